//! Integer division and remainder.
//!
//! Machines have no vector division of integers. 32-bit lanes are divided in f64, by `x / y`, or by
//! `x * r` where all lanes have the same divisor, r being the reciprocal rounded away from zero.
//! Either is truncated to the integer quotient q:
//!
//! - where x / y is an integer, the division yields it, and x·r is no less: rounding is monotonic
//!   and q is an f64;
//! - else x / y is at least 1/|y| short of the next integer. The relative error of the division is
//!   less than 2⁻⁵³, of the product less than 2⁻⁵¹, and since |x| ≤ 2³² that is less than 2⁻¹⁹/|y|.
//!
//! Wider lanes are divided one by one, by a routine.

use super::super::{Emitter, Pieces};
use super::{Division, Operation};
use crate::op_groups::{IntegerOp, OpGroup};
use crate::piece::{F64, I64, IntOrder, Rounding, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::types::{Value, ValueType};

const DOUBLES: RegType = RegType { ty: ValueType::F64, vector: true };

/// 2⁵², from which on an f64 holds an integer in its lowest bits.
const INTEGERS: f64 = 4_503_599_627_370_496.0;

impl Emitter<'_> {
    /// Divides scalars, or vectors of 32-bit lanes.
    pub(super) fn divide(&mut self, part: Division, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        if reg_type.vector {
            return self.divide_words(part, reg_type, x, y);
        }
        let divisor = self.divisor(reg_type, x, y);
        let signed = reg_type.ty.is_signed_integer();
        match part {
            Division::Quotient => self.builder.div(signed, x, divisor),
            Division::Remainder => self.builder.rem(signed, x, divisor),
        }
    }

    /// Replaces divisors that make the machine fault (0, and -1 for the least dividend) by 1, which
    /// gives the required result.
    fn divisor(&mut self, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        let one = self.constant(reg_type, 1);
        let mut refused = self.builder.compare_const(IntOrder::Equal, y, 0);
        if reg_type.ty.is_signed_integer() {
            let least = self.constant(reg_type, 1 << (reg_type.ty.bits() - 1));
            let is_least = self.builder.compare(IntOrder::Equal, x, least);
            let is_minus = self.builder.compare_const(IntOrder::Equal, y, -1);
            let overflows = self.builder.and(is_least, is_minus);
            refused = self.builder.or(refused, overflows);
        }
        self.builder.select(refused, one, y)
    }

    fn divide_words(&mut self, part: Division, reg_type: RegType, x: Operand, y: Operand) -> Operand {
        let zero = self.constant(reg_type, 0);
        let is_zero = self.builder.compare(IntOrder::Equal, y, zero);
        // A mask is -1, so this turns 0 into 1, which gives the required result for a division by
        // 0.
        let divisor = self.builder.sub(y, is_zero);
        let halves = [false, true].map(|high| {
            let (a, b) =
                (self.half_as_doubles(reg_type, x, high), self.half_as_doubles(reg_type, divisor, high));
            self.builder.float_div(a, b)
        });
        let quotient = self.whole_words(halves);
        self.quotient_or_rest(part, x, quotient, divisor)
    }

    /// Divides vectors of 32-bit lanes by a scalar.
    pub(super) fn divided_by_one(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[x, y] = operation.args else { return None };
        let is_remainder = operation.group == OpGroup::Integer(IntegerOp::Rem);
        let part = if is_remainder { Division::Remainder } else { Division::Quotient };
        if self.reg_type(y).vector {
            return None;
        }
        let (reg_type, ty) = (operation.reg_type(), operation.types[0]);
        let y = self.scalar(y);
        let is_zero = self.builder.compare_const(IntOrder::Equal, y, 0);
        let one = self.constant(RegType { ty, vector: false }, 1);
        let divisor = self.builder.select(is_zero, one, y);
        let wide = match ty.is_signed_integer() {
            true => self.builder.extend(true, I64, divisor),
            false => self.builder.extend_unsigned(I64, divisor),
        };
        let number = self.builder.int_to_float(true, F64, wide);
        let one = self.constant_scalar(Value::F64(1.0));
        let nearest = self.builder.float_div(one, number);
        // The next number away from zero has the next higher bits, whatever its sign.
        let bits = self.builder.bitcast(I64, nearest);
        let away = self.builder.add_const(bits, 1);
        let all = self.builder.splat(self.piece_type(ValueType::U64), away);
        let reciprocal = self.value_of_bits(DOUBLES, all);
        let divisor = self.builder.splat(self.machine(reg_type), divisor);
        let pieces = self.vector(x);
        let divided = pieces.into_iter().map(|x| {
            let halves = [false, true].map(|high| {
                let half = self.half_as_doubles(reg_type, x, high);
                self.builder.mul(half, reciprocal)
            });
            let quotient = self.whole_words(halves);
            self.quotient_or_rest(part, x, quotient, divisor)
        });
        Some(divided.collect())
    }

    fn quotient_or_rest(
        &mut self,
        part: Division,
        x: Operand,
        quotient: Operand,
        divisor: Operand,
    ) -> Operand {
        if part == Division::Quotient {
            return quotient;
        }
        let product = self.builder.mul(quotient, divisor);
        self.builder.sub(x, product)
    }

    /// Converts half of a piece's 32-bit lanes to f64: puts them in the lowest bits of 2⁵², then
    /// subtracts that. Signed lanes are biased to be non-negative, and back.
    fn half_as_doubles(&mut self, reg_type: RegType, x: Operand, high: bool) -> Operand {
        let (moved, zero) = if reg_type.ty.is_signed_integer() {
            let least = self.constant(reg_type, 1 << 31);
            (self.builder.xor(x, least), INTEGERS + f64::from(1_u32 << 31))
        } else {
            (x, INTEGERS)
        };
        let wide = self.builder.widen_half(false, high, moved);
        let above = self.constant_piece(ValueType::U64, INTEGERS.to_bits());
        let bits = self.builder.or(wide, above);
        let number = self.value_of_bits(DOUBLES, bits);
        let zero = self.constant_piece(ValueType::F64, zero.to_bits());
        self.builder.sub(number, zero)
    }

    /// Truncates two pieces of f64 to 32-bit lanes: adding a number whose last bit is worth one
    /// leaves the integer in the lowest bits.
    fn whole_words(&mut self, halves: [Operand; 2]) -> Operand {
        let large = self.constant_piece(ValueType::F64, (1.5 * INTEGERS).to_bits());
        let [low, high] = halves.map(|half| {
            let whole = self.builder.round(Rounding::Zero, half);
            let sum = self.builder.add(whole, large);
            self.builder.bitcast(self.piece_type(ValueType::U64), sum)
        });
        self.builder.low_halves(low, high)
    }
}
