//! Integer division and remainder.
//!
//! Machines divide no vectors of integers. 32-bit lanes are divided in f64, by `x / y`, or by `x * r` where all lanes have the
//! same divisor, r being the reciprocal that is rounded away from zero. Either is cut to the integer quotient q:
//!
//! - where x / y is an integer, the division gives it, and x·r is no less: rounding keeps that order, as q is an f64;
//! - else x / y lies at least 1/|y| short of the next integer. The division is off by less than 2⁻⁵³ of it, the product by less
//!   than 2⁻⁵¹, and since |x| ≤ 2³² that is less than 2⁻¹⁹/|y|.
//!
//! Wider lanes are divided one by one, by a routine.

use super::access::little;
use super::elementwise::Kind;
use super::{Emitter, Pieces};
use crate::vector::Reg;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, F64X2, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value as Clif};
use vyre_foundation::ir::Op;
use vyre_foundation::types::{Value, ValueType};

const DOUBLES: Kind = Kind { vector: true, ty: ValueType::F64 };

/// 2⁵², above which an f64 holds an integer in its lowest bits.
const INTEGERS: f64 = 4_503_599_627_370_496.0;

impl Emitter<'_, '_> {
    /// Scalars, and vectors of 32-bit lanes.
    pub(super) fn divide(&mut self, op: Op, kind: Kind, x: Clif, y: Clif) -> Clif {
        if kind.vector {
            return self.divide_words(op, kind, x, y);
        }
        let divisor = self.divisor(kind, x, y);
        match (op, kind.ty.is_signed_integer()) {
            (Op::Div, true) => self.builder.ins().sdiv(x, divisor),
            (Op::Div, false) => self.builder.ins().udiv(x, divisor),
            (_, true) => self.builder.ins().srem(x, divisor),
            (_, false) => self.builder.ins().urem(x, divisor),
        }
    }

    /// The divisors that the machine refuses (0, and -1 under the least number) give the same as 1.
    fn divisor(&mut self, kind: Kind, x: Clif, y: Clif) -> Clif {
        let one = self.constant(kind, 1);
        let mut refused = self.builder.ins().icmp_imm_u(IntCC::Equal, y, 0);
        if kind.ty.is_signed_integer() {
            let least = self.constant(kind, 1 << (kind.ty.bits() - 1));
            let is_least = self.builder.ins().icmp(IntCC::Equal, x, least);
            let is_minus = self.builder.ins().icmp_imm_s(IntCC::Equal, y, -1);
            let overflows = self.builder.ins().band(is_least, is_minus);
            refused = self.builder.ins().bor(refused, overflows);
        }
        self.builder.ins().select(refused, one, y)
    }

    fn divide_words(&mut self, op: Op, kind: Kind, x: Clif, y: Clif) -> Clif {
        let zero = self.constant(kind, 0);
        let is_zero = self.builder.ins().icmp(IntCC::Equal, y, zero);
        // A mask is -1, so this makes 1 of 0, which gives what a division by 0 does.
        let divisor = self.builder.ins().isub(y, is_zero);
        let halves = [false, true].map(|high| {
            let (a, b) = (self.half_as_doubles(kind, x, high), self.half_as_doubles(kind, divisor, high));
            self.builder.ins().fdiv(a, b)
        });
        let quotient = self.whole_words(halves);
        self.quotient_or_rest(op, x, quotient, divisor)
    }

    /// Vectors of 32-bit lanes by one number.
    pub(super) fn divided_by_one(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        let divides = matches!(op, Op::Div | Op::Rem) && matches!(ty, ValueType::U32 | ValueType::I32);
        if !divides || self.shape(args[1]).vector {
            return None;
        }
        let kind = Kind { vector: true, ty };
        let y = self.scalar(args[1]);
        let is_zero = self.builder.ins().icmp_imm_u(IntCC::Equal, y, 0);
        let one = self.constant(Kind { vector: false, ty }, 1);
        let divisor = self.builder.ins().select(is_zero, one, y);
        let wide = match ty.is_signed_integer() {
            true => self.builder.ins().sextend(I64, divisor),
            false => self.builder.ins().uextend(I64, divisor),
        };
        let number = self.builder.ins().fcvt_from_sint(F64, wide);
        let one = self.constant_scalar(Value::F64(1.0));
        let nearest = self.builder.ins().fdiv(one, number);
        // The next number away from zero has the next higher bits, whatever its sign.
        let bits = self.builder.ins().bitcast(I64, little(), nearest);
        let away = self.builder.ins().iadd_imm_u(bits, 1);
        let all = self.builder.ins().splat(I64X2, away);
        let reciprocal = self.value_of_bits(DOUBLES, all);
        let divisor = self.builder.ins().splat(kind.machine(), divisor);
        let pieces = self.vector(args[0]);
        let divided = pieces.into_iter().map(|x| {
            let halves = [false, true].map(|high| {
                let half = self.half_as_doubles(kind, x, high);
                self.builder.ins().fmul(half, reciprocal)
            });
            let quotient = self.whole_words(halves);
            self.quotient_or_rest(op, x, quotient, divisor)
        });
        Some(divided.collect())
    }

    fn quotient_or_rest(&mut self, op: Op, x: Clif, quotient: Clif, divisor: Clif) -> Clif {
        if op == Op::Div {
            return quotient;
        }
        let product = self.builder.ins().imul(quotient, divisor);
        self.builder.ins().isub(x, product)
    }

    /// Two of four 32-bit lanes as f64: as the lowest bits of 2⁵², which is taken off again. Signed ones are moved to where they
    /// are not negative, and back.
    fn half_as_doubles(&mut self, kind: Kind, x: Clif, high: bool) -> Clif {
        let (moved, zero) = if kind.ty.is_signed_integer() {
            let least = self.constant(kind, 1 << 31);
            (self.builder.ins().bxor(x, least), INTEGERS + f64::from(1_u32 << 31))
        } else {
            (x, INTEGERS)
        };
        let wide = match high {
            false => self.builder.ins().uwiden_low(moved),
            true => self.builder.ins().uwiden_high(moved),
        };
        let above = self.constant_piece(I64X2, INTEGERS.to_bits());
        let bits = self.builder.ins().bor(wide, above);
        let number = self.value_of_bits(DOUBLES, bits);
        let zero = self.constant_piece(F64X2, zero.to_bits());
        self.builder.ins().fsub(number, zero)
    }

    /// What four f64 are before the point, as 32-bit lanes: the lowest bits of the sum with a number so large that it ends there.
    fn whole_words(&mut self, halves: [Clif; 2]) -> Clif {
        let large = self.constant_piece(F64X2, (1.5 * INTEGERS).to_bits());
        let [low, high] = halves.map(|half| {
            let whole = self.builder.ins().trunc(half);
            self.builder.ins().fadd(whole, large)
        });
        self.pick_words(low, high, [0, 2, 4, 6])
    }
}
