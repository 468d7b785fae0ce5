//! Scalar floats.

use super::super::bytes::Vex;
use super::super::instruction::{Alu, Condition, InstKind, OperandOrder};
use super::{RegisterOrMemory, Selector, in_lanes, op, typed, with_width};
use crate::piece::{FloatOrder, Op, Rounding, Type, Value};
use regalloc2::{Operand, VReg};

impl Selector<'_> {
    /// Computes a scalar float that is not loaded, selected or moved.
    pub(super) fn float(&mut self, value: Value) {
        let (to, ty) = (self.home(value), self.ty(value));
        match self.op(value) {
            Op::Add => self.of_two(value, to, typed(op::ADD, ty), true),
            Op::Sub => self.of_two(value, to, typed(op::SUB, ty), false),
            Op::Mul => self.of_two(value, to, typed(op::MUL, ty), true),
            Op::FloatDiv => self.of_two(value, to, typed(op::DIV, ty), false),
            Op::FloatMin => self.of_two(value, to, typed(op::MIN, ty), false),
            Op::FloatMax => self.of_two(value, to, typed(op::MAX, ty), false),
            Op::Neg | Op::Abs => self.sign_changed(value, to, ty),
            Op::Fma => self.multiply_add(value, to, ty),
            Op::Sqrt => self.of_one(value, to, typed(op::SQRT, ty), None),
            Op::Round(rounding) => {
                let vex = Vex { opcode: 0x0A + u8::from(ty.is_wide()), ..in_lanes(op::ROUND_SINGLES, ty) };
                self.of_one(value, to, vex, Some(rounding_number(rounding)));
            }
            Op::Promote => self.of_one(value, to, op::SINGLE_TO_DOUBLE, None),
            Op::Demote => self.of_one(value, to, op::DOUBLE_TO_SINGLE, None),
            Op::FromInt { signed } => {
                let [from] = self.args(value);
                // An unsigned word is a long of the same value.
                let wide = self.ty(from).is_wide() || !signed;
                let from = self.register(from);
                let zero = self.vector_constant([0; 32]);
                let vex = with_width(typed(op::FROM_INT, ty), wide);
                self.three_to(to, vex, false, zero, RegisterOrMemory::Register(from), None);
            }
            not_by_type!()
            | not_for_scalars!()
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::AndNot
            | Op::Not
            | Op::ShiftLeft
            | Op::ShiftRight
            | Op::ShiftRightSigned
            | Op::Div { .. }
            | Op::Rem { .. }
            | Op::MulHigh { .. }
            | Op::CountOnes
            | Op::LeadingZeros
            | Op::TrailingZeros
            | Op::Reduce => unreachable!("{value} is not a scalar float"),
        }
    }

    /// A scalar instruction on one value; the unused upper lanes come from the operand too.
    fn of_one(&mut self, value: Value, to: VReg, vex: Vex, immediate: Option<i64>) {
        let [from] = self.args(value);
        let from = self.register(from);
        self.three_to(to, vex, false, from, RegisterOrMemory::Register(from), immediate);
    }

    /// Flips or clears the sign bits of scalars and pieces.
    pub(super) fn sign_changed(&mut self, value: Value, to: VReg, ty: Type) {
        let [from] = self.args(value);
        let from = self.register(from);
        let negates = self.op(value) == Op::Neg;
        let sign = 1_u64 << (8 * ty.lane.bytes() - 1);
        let (vex, bits) = if negates { (op::XOR, sign) } else { (op::AND, sign - 1) };
        let memory = self.every_lane(ty, bits);
        self.three_to(to, vex, ty.is_piece(), from, RegisterOrMemory::Memory(memory), None);
    }

    /// Reuses the addend's register for the result if it has no other use, else a factor's.
    pub(super) fn multiply_add(&mut self, value: Value, to: VReg, ty: Type) {
        let [a, b, c] = self.args(value);
        let into_sum = self.uses[c.index()] == 1 || self.uses[a.index()] > 1;
        let (vex, kept, x, y) =
            if into_sum { (op::MULTIPLY_ADD_231, c, a, b) } else { (op::MULTIPLY_ADD_213, a, b, c) };
        let scalar = u8::from(!ty.is_piece());
        let vex = Vex { opcode: vex.opcode + scalar, wide: ty.is_wide(), ..in_lanes(vex, ty) };
        let (kept, x) = (self.register(kept), self.register(x));
        let y = self.place(y);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(kept), Operand::reg_use(x)];
        self.push_place(InstKind::Vector(vex, OperandOrder::InPlace), ty.is_piece(), &operands, y, None);
    }

    /// Sets the flags for a comparison of scalars, if one flag condition expresses it.
    pub(super) fn float_flags(&mut self, condition: Value, order: FloatOrder) -> Option<Condition> {
        let [a, b] = self.args(condition);
        let ty = self.ty(a);
        // With the operands swapped, a NaN makes the condition false.
        let holds = match order {
            FloatOrder::Less => Condition::Above,
            FloatOrder::LessOrEqual => Condition::NotBelow,
            FloatOrder::Equal | FloatOrder::NotEqual => return None,
        };
        if ty.is_piece() {
            return None;
        }
        let b = self.register(b);
        let a = self.place(a);
        let vex = Vex { prefix: u8::from(ty.is_wide()), ..in_lanes(op::COMPARE_FLAGS, ty) };
        self.push_place(InstKind::Vector(vex, OperandOrder::Test), false, &[Operand::reg_use(b)], a, None);
        Some(holds)
    }

    /// Computes a comparison of scalars as a condition in a register.
    pub(super) fn compare_floats(&mut self, value: Value, order: FloatOrder) {
        let [a, b] = self.args(value);
        let (to, ty) = (self.home(value), self.ty(a));
        let a = self.register(a);
        let b = self.place(b);
        let mask = self.three(typed(op::COMPARE, ty), false, a, b, Some(order_number(order)));
        let bits = self.general();
        self.transfer(bits, mask, false);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(bits)];
        self.push_with(InstKind::Alu(Alu::And), false, &operands, None, Some(1));
    }

    pub(super) fn truncate(&mut self, value: Value) {
        let [from] = self.args(value);
        let (to, wide, ty) = (self.home(value), self.ty(value).is_wide(), self.ty(from));
        let from = self.register(from);
        let vex = with_width(typed(op::TO_INT, ty), wide);
        self.push(InstKind::Vector(vex, OperandOrder::Two), &[Operand::reg_def(to), Operand::reg_use(from)]);
    }
}

/// Immediate of the rounding instruction; inexact results raise no exception.
pub(super) fn rounding_number(rounding: Rounding) -> i64 {
    match rounding {
        Rounding::Nearest => 8,
        Rounding::Down => 9,
        Rounding::Up => 10,
        Rounding::Zero => 11,
    }
}

/// Immediate of the compare instruction.
pub(super) fn order_number(order: FloatOrder) -> i64 {
    match order {
        FloatOrder::Equal => 0,
        FloatOrder::Less => 1,
        FloatOrder::LessOrEqual => 2,
        FloatOrder::NotEqual => 4,
    }
}
