//! Scalar integers.

use super::super::bytes::Vex;
use super::super::instruction::{Alu, Base, InstKind, MemoryOperand, OperandOrder};
use super::{RegisterOrMemory, Selector, general, op, with_width};
use crate::piece::{Op, Value};
use regalloc2::{Operand, VReg};

impl Selector<'_> {
    /// Computes a scalar integer that is not loaded, compared or selected.
    pub(super) fn scalar(&mut self, value: Value) {
        let (to, wide) = (self.home(value), self.ty(value).is_wide());
        match self.op(value) {
            Op::Add => self.sum(value, to, wide),
            Op::Sub => self.alu(value, to, Alu::Sub, false),
            Op::And => self.alu(value, to, Alu::And, true),
            Op::Or => self.alu(value, to, Alu::Or, true),
            Op::Xor => self.alu(value, to, Alu::Xor, true),
            Op::AndNot => {
                let [a, b] = self.args(value);
                let (a, b) = (self.register(a), self.register(b));
                self.three_to(
                    to,
                    Vex { wide, ..op::GENERAL_AND_NOT },
                    false,
                    b,
                    RegisterOrMemory::Register(a),
                    None,
                );
            }
            Op::Mul => self.product(value, to, wide),
            Op::Not => self.in_place(value, to, InstKind::Unary(2), None),
            Op::Neg => self.in_place(value, to, InstKind::Unary(3), None),
            Op::ShiftLeft => self.shift(value, to, 4, op::GENERAL_LEFT),
            Op::ShiftRight => self.shift(value, to, 5, op::GENERAL_RIGHT),
            Op::ShiftRightSigned => self.shift(value, to, 7, op::GENERAL_RIGHT_SIGNED),
            Op::Div { signed } => self.divide(value, signed, false),
            Op::Rem { signed } => self.divide(value, signed, true),
            Op::MulHigh { signed } => {
                let [a, b] = self.args(value);
                let (a, b, low) = (self.register(a), self.register(b), self.general());
                let operands = [
                    Operand::reg_fixed_use(a, general(0)),
                    Operand::reg_use_at_end(b),
                    Operand::reg_fixed_def(low, general(0)),
                    Operand::reg_fixed_def(to, general(2)),
                ];
                self.push_with(InstKind::MultiplyHigh { signed }, wide, &operands, None, None);
            }
            Op::CountOnes => self.count(value, to, 0xB8),
            Op::LeadingZeros => self.count(value, to, 0xBD),
            Op::TrailingZeros => self.count(value, to, 0xBC),
            Op::Extend { signed: true } => {
                let [from] = self.args(value);
                let from = self.register(from);
                self.push(InstKind::SignExtend32, &[Operand::reg_def(to), Operand::reg_use(from)]);
            }
            Op::Reduce => {
                let [from] = self.args(value);
                let from = self.register(from);
                self.push(InstKind::Copy32, &[Operand::reg_def(to), Operand::reg_use(from)]);
            }
            not_by_type!()
            | not_for_scalars!()
            | Op::Abs
            | Op::FloatDiv
            | Op::FloatMin
            | Op::FloatMax
            | Op::Fma
            | Op::Sqrt
            | Op::Round(_)
            | Op::Promote
            | Op::Demote
            | Op::FromInt { .. } => {
                unreachable!("{value} is not a scalar integer, or is expanded by the builder")
            }
        }
    }

    /// Computes a result in the register of the only operand.
    fn in_place(&mut self, value: Value, to: VReg, kind: InstKind, immediate: Option<i64>) {
        let from = self.function.operands(value)[0];
        let from = self.register(from);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(from)];
        self.push_with(kind, self.ty(value).is_wide(), &operands, None, immediate);
    }

    /// Computes a sum as an address, which can go to any register.
    fn sum(&mut self, value: Value, to: VReg, wide: bool) {
        let [mut a, mut b] = self.args(value);
        if self.small(a).is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        let base = self.register(a);
        let (index, displacement) = match self.small(b) {
            Some(number) => (None, number as i32),
            None => (Some((self.register(b), 0)), 0),
        };
        let memory = MemoryOperand { base: Base::Register(base), index, displacement };
        self.push_with(InstKind::Lea, wide, &[Operand::reg_def(to)], Some(memory), None);
    }

    fn alu(&mut self, value: Value, to: VReg, alu: Alu, commutes: bool) {
        let [mut a, mut b] = self.args(value);
        let wide = self.ty(value).is_wide();
        if commutes && self.small(a).is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        let first = self.register(a);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(first)];
        match self.small(b) {
            Some(number) => self.push_with(InstKind::Alu(alu), wide, &operands, None, Some(number)),
            None => {
                let b = self.scalar_place(b);
                self.push_place(InstKind::Alu(alu), wide, &operands, b, None);
            }
        }
    }

    fn product(&mut self, value: Value, to: VReg, wide: bool) {
        let [mut a, mut b] = self.args(value);
        if self.small(a).is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        let first = self.register(a);
        match self.small(b) {
            Some(number) if number.count_ones() == 1 && number > 0 => {
                let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(first)];
                let count = i64::from(number.trailing_zeros());
                self.push_with(InstKind::ShiftNumber(4), wide, &operands, None, Some(count));
            }
            Some(number) => {
                let operands = [Operand::reg_def(to), Operand::reg_use(first)];
                self.push_with(InstKind::MultiplyNumber, wide, &operands, None, Some(number));
            }
            None => {
                let b = self.scalar_place(b);
                let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(first)];
                self.push_place(InstKind::Multiply, wide, &operands, b, None);
            }
        }
    }

    /// Shifts; the machine takes counts modulo the width too.
    fn shift(&mut self, value: Value, to: VReg, digit: u8, by_register: Vex) {
        let [from, count] = self.args(value);
        let ty = self.ty(value);
        if let Some(count) = self.small(count) {
            let count = count & i64::from(8 * ty.bytes() - 1);
            return self.in_place(value, to, InstKind::ShiftNumber(digit), Some(count));
        }
        let (from, count) = (self.register(from), self.register(count));
        // The count is where other instructions have their first operand.
        let vex = Vex { wide: ty.is_wide(), ..by_register };
        self.three_to(to, vex, false, count, RegisterOrMemory::Register(from), None);
    }

    fn divide(&mut self, value: Value, signed: bool, wants_rest: bool) {
        let [a, b] = self.args(value);
        let (to, other) = (self.home(value), self.general());
        let (quotient, rest) = if wants_rest { (other, to) } else { (to, other) };
        let (a, b) = (self.register(a), self.register(b));
        let operands = [
            Operand::reg_fixed_use(a, general(0)),
            Operand::reg_use_at_end(b),
            Operand::reg_fixed_def(quotient, general(0)),
            Operand::reg_fixed_def(rest, general(2)),
        ];
        self.push_with(InstKind::Divide { signed }, self.ty(value).is_wide(), &operands, None, None);
    }

    fn count(&mut self, value: Value, to: VReg, opcode: u8) {
        let [from] = self.args(value);
        let from = self.register(from);
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        self.push_with(InstKind::Count(opcode), self.ty(value).is_wide(), &operands, None, None);
    }

    /// Extracts a scalar from a piece.
    pub(super) fn taken_from_piece(&mut self, value: Value) {
        let [piece] = self.args(value);
        let (to, ty) = (self.home(value), self.ty(value));
        let mut from = self.register(piece);
        let Op::Extract(lane) = self.op(value) else {
            let kind = InstKind::Vector(op::SIGN_BITS, OperandOrder::Two);
            return self.push_with(kind, true, &[Operand::reg_def(to), Operand::reg_use(from)], None, None);
        };
        let per_half = (16 / ty.bytes()) as u8;
        if lane >= per_half {
            from = self.high_half(from);
        }
        let lane = lane % per_half;
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        if ty.is_float() {
            let words = if ty.is_wide() { 0xE4 | if lane == 1 { 0x0A } else { 0 } } else { 0xE4 & !3 | lane };
            self.push_with(
                InstKind::Vector(op::SHUFFLE_WORDS, OperandOrder::Two),
                false,
                &operands,
                None,
                Some(words.into()),
            );
        } else if lane == 0 {
            self.transfer(to, from, ty.is_wide());
        } else {
            let vex = with_width(op::EXTRACT, ty.is_wide());
            let kind = InstKind::Vector(vex, OperandOrder::TwoReversed);
            self.push_with(kind, false, &operands, None, Some(lane.into()));
        }
    }
}
