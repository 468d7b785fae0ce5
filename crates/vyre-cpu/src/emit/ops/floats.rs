//! Arithmetic on floats.

use super::super::Emitter;
use crate::op_groups::{Arithmetic, Extreme, FloatOp};
use crate::piece::{FloatOrder, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::types::{Value, ValueType};

impl Emitter<'_> {
    /// Emits arithmetic that integers have too.
    pub(super) fn float_arithmetic(
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
            Arithmetic::Div => self.builder.float_div(x, y),
            Arithmetic::Neg => self.builder.neg(x),
            Arithmetic::Abs => self.builder.abs(x),
            Arithmetic::Sign => self.sign_of_float(reg_type, x),
            Arithmetic::Extreme(extreme) => self.float_extreme(extreme, reg_type, x, y),
            Arithmetic::Clamp => {
                let raised = self.float_extreme(Extreme::Max, reg_type, x, y);
                self.float_extreme(Extreme::Min, reg_type, raised, args[2])
            }
        }
    }

    /// Emits arithmetic that only floats have.
    pub(super) fn float_op(&mut self, op: FloatOp, reg_type: RegType, args: &[Operand]) -> Operand {
        let x = args[0];
        match op {
            FloatOp::Fma => self.builder.fma(x, args[1], args[2]),
            FloatOp::Sqrt => self.builder.sqrt(x),
            FloatOp::ReciprocalSqrt => {
                let root = self.builder.sqrt(x);
                let one = self.constant_one(reg_type);
                self.builder.float_div(one, root)
            }
            FloatOp::Round(rounding) => self.builder.round(rounding, x),
            FloatOp::CopySign => self.copy_sign(reg_type, x, args[1]),
        }
    }

    fn constant_one(&mut self, reg_type: RegType) -> Operand {
        self.constant(reg_type, Value::one(reg_type.ty).to_bits())
    }

    fn sign_of_float(&mut self, reg_type: RegType, x: Operand) -> Operand {
        let (zero, one) = (self.constant(reg_type, 0), self.constant_one(reg_type));
        let minus_one = self.builder.neg(one);
        let negative = self.builder.compare_floats(FloatOrder::Less, x, zero);
        let is_zero = self.builder.compare_floats(FloatOrder::Equal, x, zero);
        let unit = self.choose(reg_type, negative, minus_one, one);
        self.choose(reg_type, is_zero, x, unit)
    }

    /// Minimum or maximum: a NaN yields the other operand, and -0.0 is less than 0.0.
    fn float_extreme(&mut self, extreme: Extreme, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        let is_nan = self.builder.compare_floats(FloatOrder::NotEqual, x, x);
        let number = self.choose(reg_type, is_nan, y, x);
        self.extreme_with_number(extreme, reg_type, number, y)
    }

    /// The same, where `x` is NaN only if `y` is.
    pub(super) fn extreme_with_number(
        &mut self,
        extreme: Extreme,
        reg_type: RegType,
        x: Operand,
        y: Operand,
    ) -> Operand {
        let min = extreme == Extreme::Min;
        let chosen = if min { self.builder.float_min(y, x) } else { self.builder.float_max(y, x) };
        // Equal operands differ at most in the sign of a zero, which `or` and `and` settle.
        let (chosen_bits, y_bits) = (self.bits_of(reg_type, chosen), self.bits_of(reg_type, y));
        let code = if min { FloatOrder::Equal } else { FloatOrder::NotEqual };
        let compared = self.builder.compare_floats(code, chosen, y);
        let compared = if reg_type.vector { compared } else { self.condition_mask(reg_type, compared) };
        let settled = if min {
            let sign = self.builder.and(y_bits, compared);
            self.builder.or(chosen_bits, sign)
        } else {
            let sign = self.builder.or(y_bits, compared);
            self.builder.and(chosen_bits, sign)
        };
        self.value_of_bits(reg_type, settled)
    }

    /// Converts a scalar condition to all ones or all zeros.
    fn condition_mask(&mut self, reg_type: RegType, condition: Operand) -> Operand {
        let one = self.builder.extend_unsigned(self.machine(reg_type).bits(), condition);
        self.builder.neg(one)
    }

    fn copy_sign(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        let sign = 1_u64 << (reg_type.ty.bits() - 1);
        let (sign_bit, rest) = (self.bits_constant(reg_type, sign), self.bits_constant(reg_type, sign - 1));
        let (x_bits, y_bits) = (self.bits_of(reg_type, x), self.bits_of(reg_type, y));
        let magnitude = self.builder.and(x_bits, rest);
        let taken = self.builder.and(y_bits, sign_bit);
        let is_number = self.builder.compare_floats(FloatOrder::Equal, y, y);
        let bits_kind =
            RegType { ty: if reg_type.is_wide() { ValueType::U64 } else { ValueType::U32 }, ..reg_type };
        let taken = self.keep_if(bits_kind, is_number, taken);
        let bits = self.builder.or(magnitude, taken);
        self.value_of_bits(reg_type, bits)
    }
}
