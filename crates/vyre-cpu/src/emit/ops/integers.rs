//! Arithmetic and logic on integers and `bool`.

use super::super::Emitter;
use super::Division;
use crate::op_groups::{Arithmetic, Extreme, IntegerOp, Logic};
use crate::piece::{I32, I64, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::ir::Combine;
use vyre_foundation::types::ValueType;

impl Emitter<'_> {
    /// Emits arithmetic that floats have too.
    pub(super) fn integer_arithmetic(
        &mut self,
        op: Arithmetic,
        reg_type: RegType,
        args: &[Operand],
    ) -> Operand {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Arithmetic::Add => self.builder.add(x, y),
            Arithmetic::Sub => self.builder.sub(x, y),
            Arithmetic::Mul => self.builder.mul(x, y),
            Arithmetic::Div => self.divide(Division::Quotient, reg_type, x, y),
            Arithmetic::Neg => self.builder.neg(x),
            Arithmetic::Abs if reg_type.ty.is_signed_integer() => self.builder.abs(x),
            Arithmetic::Abs => x,
            Arithmetic::Sign => self.sign_of_integer(reg_type, x),
            Arithmetic::Extreme(Extreme::Min) => self.smaller(reg_type, x, y),
            Arithmetic::Extreme(Extreme::Max) => self.larger(reg_type, x, y),
            Arithmetic::Clamp => {
                let raised = self.larger(reg_type, x, y);
                self.smaller(reg_type, raised, args[2])
            }
        }
    }

    /// Emits arithmetic that only integers have.
    pub(super) fn integer_op(&mut self, op: IntegerOp, reg_type: RegType, args: &[Operand]) -> Operand {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            IntegerOp::Rem => self.divide(Division::Remainder, reg_type, x, y),
            IntegerOp::SaturatingAdd => self.saturating_add(reg_type, x, y),
            IntegerOp::SaturatingSub => self.saturating_sub(reg_type, x, y),
            IntegerOp::Distance => {
                let (large, small) = (self.larger(reg_type, x, y), self.smaller(reg_type, x, y));
                self.builder.sub(large, small)
            }
            IntegerOp::MulHigh => self.multiply_high(reg_type, x, y),
            IntegerOp::ReverseBits if reg_type.vector => self.reverse_bits(reg_type, x),
            IntegerOp::ReverseBits => self.builder.reverse_bits(x),
        }
    }

    /// Emits logic on integers, scalar `bool`s or masks.
    pub(super) fn logic(&mut self, op: Logic, reg_type: RegType, args: &[Operand]) -> Operand {
        match op {
            Logic::And => self.builder.and(args[0], args[1]),
            Logic::Or => self.builder.or(args[0], args[1]),
            Logic::Xor => self.builder.xor(args[0], args[1]),
            Logic::Not if reg_type.ty == ValueType::Bool && !reg_type.vector => {
                let one = self.constant(reg_type, 1);
                self.builder.xor(args[0], one)
            }
            Logic::Not => self.builder.not(args[0]),
        }
    }

    /// Combines two pieces of 32-bit lanes.
    pub(in super::super) fn combine_words(
        &mut self,
        combine: Combine,
        ty: ValueType,
        [a, b]: [Operand; 2],
    ) -> Operand {
        let reg_type = RegType { ty, vector: true };
        match combine {
            Combine::Add => self.builder.add(a, b),
            Combine::Mul => self.builder.mul(a, b),
            Combine::Min => self.smaller(reg_type, a, b),
            Combine::Max => self.larger(reg_type, a, b),
            Combine::And => self.builder.and(a, b),
            Combine::Or => self.builder.or(a, b),
            Combine::Xor => self.builder.xor(a, b),
        }
    }

    pub(super) fn smaller(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        if reg_type.vector && (!reg_type.is_wide() || self.builder.has_all_integers()) {
            return self.builder.int_min(reg_type.ty.is_signed_integer(), x, y);
        }
        let less = self.less(reg_type, x, y);
        self.choose(reg_type, less, x, y)
    }

    pub(super) fn larger(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        if reg_type.vector && (!reg_type.is_wide() || self.builder.has_all_integers()) {
            return self.builder.int_max(reg_type.ty.is_signed_integer(), x, y);
        }
        let less = self.less(reg_type, x, y);
        self.choose(reg_type, less, y, x)
    }

    fn sign_of_integer(&mut self, reg_type: RegType, x: Operand) -> Operand {
        let (zero, one) = (self.constant(reg_type, 0), self.constant(reg_type, 1));
        if !reg_type.ty.is_signed_integer() {
            return self.smaller(reg_type, x, one);
        }
        let positive = self.less(reg_type, zero, x);
        let negative = self.less(reg_type, x, zero);
        let minus_one = self.constant(reg_type, u64::MAX);
        let up = self.keep_if(reg_type, positive, one);
        self.choose(reg_type, negative, minus_one, up)
    }

    fn saturating_add(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        if reg_type.vector && reg_type.ty == ValueType::U32 {
            let room = self.builder.not(y);
            let fits = self.builder.int_min(false, x, room);
            return self.builder.add(fits, y);
        }
        let sum = self.builder.add(x, y);
        if reg_type.ty.is_signed_integer() {
            let [from_x, from_y] = [x, y].map(|operand| self.builder.xor(operand, sum));
            return self.saturate_signed(reg_type, x, sum, [from_x, from_y]);
        }
        let over = self.less(reg_type, sum, x);
        let most = self.constant(reg_type, u64::MAX);
        self.choose(reg_type, over, most, sum)
    }

    fn saturating_sub(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        if reg_type.vector && reg_type.ty == ValueType::U32 {
            let more = self.builder.int_max(false, x, y);
            return self.builder.sub(more, y);
        }
        let difference = self.builder.sub(x, y);
        if reg_type.ty.is_signed_integer() {
            let signs = [self.builder.xor(x, difference), self.builder.xor(x, y)];
            return self.saturate_signed(reg_type, x, difference, signs);
        }
        let under = self.less(reg_type, x, y);
        let zero = self.constant(reg_type, 0);
        self.choose(reg_type, under, zero, difference)
    }

    /// Replaces a result that overflowed by the limit on the side of `x`. It overflowed if the top
    /// bits of both `signs` are set: its sign differs from both operands' (for a difference, the
    /// second operand's negated).
    fn saturate_signed(
        &mut self,
        reg_type: RegType,
        x: Operand,
        result: Operand,
        signs: [Operand; 2],
    ) -> Operand {
        let wrong = self.builder.and(signs[0], signs[1]);
        let zero = self.constant(reg_type, 0);
        let overflowed = self.less(reg_type, wrong, zero);
        let most = self.constant(reg_type, (1 << (reg_type.ty.bits() - 1)) - 1);
        let least = self.constant(reg_type, 1 << (reg_type.ty.bits() - 1));
        let negative = self.less(reg_type, x, zero);
        let limit = self.choose(reg_type, negative, least, most);
        self.choose(reg_type, overflowed, limit, result)
    }

    fn multiply_high(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        let signed = reg_type.ty.is_signed_integer();
        if reg_type.vector || reg_type.is_wide() {
            return self.builder.mul_high(signed, x, y);
        }
        let (a, b) = (self.builder.extend(signed, I64, x), self.builder.extend(signed, I64, y));
        let product = self.builder.mul(a, b);
        let high = self.builder.shift_right_const(product, 32);
        self.builder.reduce(I32, high)
    }
}
