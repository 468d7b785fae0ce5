//! Decomposition: replaces an op that the target lacks with a bit-exact sequence of simpler ones.
//!
//! A sequence uses only arithmetic, bitwise ops, shifts, comparisons, `select` and conversions that
//! every target has. Ops in a sequence that the target may also lack (`clamp` uses `min` and `max`)
//! are decomposed recursively. Ops without an exact sequence (`sqrt`, rounding) are kept: a backend
//! that lacks one rejects the kernel.

mod fma;

use super::rewrite::{Emitter, RuleOutcome, rewrite};
use super::target::Target;
use crate::kernel::{Def, KernelBody, ValueId};
use crate::ops::{Op, SpecialValue};
use crate::types::{Value, ValueType};

/// Replaces the ops that the target lacks.
pub(super) fn run(body: &mut KernelBody, target: &Target) {
    if target.lacking.is_empty() {
        return;
    }
    rewrite(body, &mut |emitter, _, def| {
        let Def::Op(op, operands) = def else { return RuleOutcome::Def(def) };
        let mut sequence = SequenceEmitter { emitter, target };
        match target.lacks(op).then(|| sequence.expand(op, &operands)).flatten() {
            Some(value) => RuleOutcome::Value(value),
            None => RuleOutcome::Def(Def::Op(op, operands)),
        }
    });
}

/// Emits sequences before the op that they replace.
struct SequenceEmitter<'a, 'b, 'c> {
    emitter: &'a mut Emitter<'b>,
    target: &'c Target,
}

impl SequenceEmitter<'_, '_, '_> {
    /// Computes the op's result without the op; `None` if there is no exact sequence.
    fn expand(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let x = operands[0];
        let y = *operands.get(1).unwrap_or(&x);
        Some(match op {
            Op::Clamp => {
                let raised = self.op(Op::Max, &[x, y]);
                self.op(Op::Min, &[raised, operands[2]])
            }
            Op::Min | Op::Max => self.extreme(op, x, y),
            Op::Fma => self.fused(x, y, operands[2]),
            Op::Abs => self.absolute(x),
            Op::Sign => self.sign(x),
            Op::SatAdd | Op::SatSub => self.saturating(op, x, y),
            Op::AbsDiff => self.distance(x, y),
            Op::RotateLeft => self.rotated([Op::Shl, Op::Shr], x, y),
            Op::RotateRight => self.rotated([Op::Shr, Op::Shl], x, y),
            Op::MulHi => self.high_product(x, y),
            Op::Popcount => self.popcount(x),
            Op::Clz => self.leading_zeros(x),
            Op::Ctz => self.trailing_zeros(x),
            Op::ReverseBits => self.reversed(x),
            Op::Rsqrt => {
                let root = self.op(Op::Sqrt, &[x]);
                let one = self.constant(x, 1);
                self.op(Op::Div, &[one, root])
            }
            Op::IsNan => self.op(Op::Ne, &[x, x]),
            Op::IsInf => self.is_infinite(x),
            Op::IsFinite => {
                // The difference is a NaN for an infinity or a NaN.
                let nothing = self.op(Op::Sub, &[x, x]);
                let zero = self.constant(x, 0);
                self.op(Op::Eq, &[nothing, zero])
            }
            Op::Copysign => self.with_sign_of(x, y),
            Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Rem
            | Op::Neg
            | Op::Sqrt
            | Op::Floor
            | Op::Ceil
            | Op::Trunc
            | Op::Round
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::Not
            | Op::Shl
            | Op::Shr
            | Op::Eq
            | Op::Ne
            | Op::Lt
            | Op::Le
            | Op::Gt
            | Op::Ge
            | Op::Select
            | Op::ToBool
            | Op::ToU32
            | Op::ToI32
            | Op::ToU64
            | Op::ToI64
            | Op::ToF32
            | Op::ToF64
            | Op::BitsU32
            | Op::BitsI32
            | Op::BitsU64
            | Op::BitsI64
            | Op::BitsF32
            | Op::BitsF64 => return None,
            // Their expansions contain branches; the `expand` pass handles them.
            crate::expanded_op!() => return None,
        })
    }

    /// Emits an op of a sequence, decomposed if the target lacks it.
    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let expanded = if self.target.lacks(op) { self.expand(op, operands) } else { None };
        expanded.unwrap_or_else(|| self.emitter.emit_op(op, operands))
    }

    fn ty(&self, value: ValueId) -> ValueType {
        self.emitter.body.ty(value)
    }

    /// A small constant of the type of `like`.
    fn constant(&mut self, like: ValueId, number: i32) -> ValueId {
        let value = match self.ty(like) {
            ValueType::F32 => Value::F32(number as f32),
            ValueType::F64 => Value::F64(number.into()),
            ty @ (ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64) => {
                Value::from_bits(ty, i64::from(number) as u64)
            }
        };
        self.emitter.emit_constant(value)
    }

    /// The integer constant of the type of `like` with these bits.
    fn bits(&mut self, like: ValueId, bits: u64) -> ValueId {
        let value = Value::from_bits(self.ty(like), bits);
        self.emitter.emit_constant(value)
    }

    fn count(&mut self, count: u32) -> ValueId {
        self.emitter.emit_constant(Value::U32(count))
    }

    /// Shifts `x` by a fixed count.
    fn shifted(&mut self, op: Op, x: ValueId, count: u32) -> ValueId {
        let count = self.count(count);
        self.op(op, &[x, count])
    }

    /// The bits of an integer or float as an unsigned integer.
    fn unsigned(&mut self, x: ValueId) -> ValueId {
        match self.ty(x) {
            ValueType::I32 | ValueType::F32 => self.op(Op::BitsU32, &[x]),
            ValueType::I64 | ValueType::F64 => self.op(Op::BitsU64, &[x]),
            ValueType::Bool | ValueType::U32 | ValueType::U64 => x,
        }
    }

    /// Reinterprets the bits of an unsigned integer as the type of `like`.
    fn back(&mut self, x: ValueId, like: ValueId) -> ValueId {
        let to = self.ty(like);
        match Op::bitcast(to).filter(|_| to != self.ty(x)) {
            Some(bitcast) => self.op(bitcast, &[x]),
            None => x,
        }
    }

    fn select(&mut self, condition: ValueId, yes: ValueId, no: ValueId) -> ValueId {
        self.op(Op::Select, &[condition, yes, no])
    }

    /// The minimum or maximum. Integers need one comparison. Equal floats differ at most in the
    /// sign of zero: `or` of the bits selects -0.0 and `and` selects +0.0. If one operand is a NaN,
    /// the other is the result.
    fn extreme(&mut self, op: Op, x: ValueId, y: ValueId) -> ValueId {
        let (order, zeros) = if op == Op::Min { (Op::Lt, Op::Or) } else { (Op::Gt, Op::And) };
        let x_wins = self.op(order, &[x, y]);
        let chosen = self.select(x_wins, x, y);
        if !self.ty(x).is_float() {
            return chosen;
        }
        let [x_bits, y_bits] = [self.unsigned(x), self.unsigned(y)];
        let merged = self.op(zeros, &[x_bits, y_bits]);
        let merged = self.back(merged, x);
        let equal = self.op(Op::Eq, &[x, y]);
        let chosen = self.select(equal, merged, chosen);
        // With a NaN every comparison is false, and `y` is chosen.
        let y_is_nan = self.op(Op::Ne, &[y, y]);
        self.select(y_is_nan, x, chosen)
    }

    fn absolute(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x);
        if ty.is_float() {
            let bits = self.unsigned(x);
            let mask = self.bits(bits, (1 << (ty.bits() - 1)) - 1);
            let bits = self.op(Op::And, &[bits, mask]);
            return self.back(bits, x);
        }
        let zero = self.constant(x, 0);
        let negative = self.op(Op::Lt, &[x, zero]);
        let negated = self.op(Op::Neg, &[x]);
        self.select(negative, negated, x)
    }

    fn sign(&mut self, x: ValueId) -> ValueId {
        let [zero, one, minus_one] = [0, 1, -1].map(|number| self.constant(x, number));
        let negative = self.op(Op::Lt, &[x, zero]);
        let sign = self.select(negative, minus_one, one);
        let is_zero = self.op(Op::Eq, &[x, zero]);
        self.select(is_zero, x, sign)
    }

    fn saturating(&mut self, op: Op, x: ValueId, y: ValueId) -> ValueId {
        let (plain, adds) = if op == Op::SatAdd { (Op::Add, true) } else { (Op::Sub, false) };
        let result = self.op(plain, &[x, y]);
        let ty = self.ty(x);
        if !ty.is_signed_integer() {
            let wrapped = if adds { self.op(Op::Lt, &[result, x]) } else { self.op(Op::Lt, &[x, y]) };
            let limit = self.bits(x, if adds { u64::MAX } else { 0 });
            return self.select(wrapped, limit, result);
        }
        // A sum wraps if both operands differ in sign from it; a difference wraps if `x` differs in
        // sign from both `y` and the result.
        let left = self.op(Op::Xor, &[x, if adds { result } else { y }]);
        let right = self.op(Op::Xor, &[if adds { y } else { x }, result]);
        let both = self.op(Op::And, &[left, right]);
        let zero = self.constant(x, 0);
        let wrapped = self.op(Op::Lt, &[both, zero]);
        let sign = self.shifted(Op::Shr, x, ty.bits() - 1);
        let greatest = self.bits(x, (1 << (ty.bits() - 1)) - 1);
        let limit = self.op(Op::Xor, &[sign, greatest]);
        self.select(wrapped, limit, result)
    }

    fn distance(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let below = self.op(Op::Lt, &[x, y]);
        let (up, down) = (self.op(Op::Sub, &[y, x]), self.op(Op::Sub, &[x, y]));
        let distance = self.select(below, up, down);
        self.unsigned(distance)
    }

    /// Rotates the bits. Shift counts are taken modulo the width, so the opposite shift uses the
    /// negated count.
    fn rotated(&mut self, [one, other]: [Op; 2], x: ValueId, count: ValueId) -> ValueId {
        let bits = self.unsigned(x);
        let zero = self.count(0);
        let rest = self.op(Op::Sub, &[zero, count]);
        let (front, behind) = (self.op(one, &[bits, count]), self.op(other, &[bits, rest]));
        let rotated = self.op(Op::Or, &[front, behind]);
        self.back(rotated, x)
    }

    /// Schoolbook multiplication of half words; a signed product is the unsigned one minus a
    /// correction for the signs.
    fn high_product(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let half = self.ty(x).bits() / 2;
        let [a, b] = [self.unsigned(x), self.unsigned(y)];
        let mask = self.bits(a, (1 << half) - 1);
        let [a_low, b_low] = [a, b].map(|word| self.op(Op::And, &[word, mask]));
        let [a_high, b_high] = [a, b].map(|word| self.shifted(Op::Shr, word, half));
        let low = self.op(Op::Mul, &[a_low, b_low]);
        let mut carry = self.shifted(Op::Shr, low, half);
        let mut high = self.op(Op::Mul, &[a_high, b_high]);
        for (left, right) in [(a_low, b_high), (a_high, b_low)] {
            let cross = self.op(Op::Mul, &[left, right]);
            let cross_low = self.op(Op::And, &[cross, mask]);
            carry = self.op(Op::Add, &[carry, cross_low]);
            let cross_high = self.shifted(Op::Shr, cross, half);
            high = self.op(Op::Add, &[high, cross_high]);
        }
        carry = self.shifted(Op::Shr, carry, half);
        high = self.op(Op::Add, &[high, carry]);
        let mut product = self.back(high, x);
        if self.ty(x).is_signed_integer() {
            // Uses masks: llvmpipe treats a product minus a selected constant as floats and yields
            // minus zero.
            for (signed, other) in [(x, y), (y, x)] {
                let sign = self.shifted(Op::Shr, signed, 2 * half - 1);
                let excess = self.op(Op::And, &[sign, other]);
                product = self.op(Op::Sub, &[product, excess]);
            }
        }
        product
    }

    /// Adds adjacent bits, then pairs, then nibbles; a multiplication adds up the bytes.
    fn popcount(&mut self, x: ValueId) -> ValueId {
        let mut bits = self.unsigned(x);
        let [ones, twos, fours, bytes] =
            [u64::MAX / 3, u64::MAX / 5, u64::MAX / 17, u64::MAX / 255].map(|mask| self.bits(bits, mask));
        let halves = self.shifted(Op::Shr, bits, 1);
        let halves = self.op(Op::And, &[halves, ones]);
        bits = self.op(Op::Sub, &[bits, halves]);
        let upper = self.shifted(Op::Shr, bits, 2);
        let [upper, lower] = [upper, bits].map(|word| self.op(Op::And, &[word, twos]));
        bits = self.op(Op::Add, &[upper, lower]);
        let upper = self.shifted(Op::Shr, bits, 4);
        bits = self.op(Op::Add, &[bits, upper]);
        bits = self.op(Op::And, &[bits, fours]);
        bits = self.op(Op::Mul, &[bits, bytes]);
        let count = self.shifted(Op::Shr, bits, self.ty(x).bits() - 8);
        if self.ty(count) == ValueType::U32 { count } else { self.op(Op::ToU32, &[count]) }
    }

    /// Spreads the highest set bit to all lower bits and counts the bits that stay clear.
    fn leading_zeros(&mut self, x: ValueId) -> ValueId {
        let mut bits = self.unsigned(x);
        let mut distance = 1;
        while distance < self.ty(x).bits() {
            let spread = self.shifted(Op::Shr, bits, distance);
            bits = self.op(Op::Or, &[bits, spread]);
            distance *= 2;
        }
        let clear = self.op(Op::Not, &[bits]);
        self.op(Op::Popcount, &[clear])
    }

    /// Counts the bits of `!x & (x - 1)`, which are those below the lowest set bit.
    fn trailing_zeros(&mut self, x: ValueId) -> ValueId {
        let bits = self.unsigned(x);
        let one = self.bits(bits, 1);
        let less = self.op(Op::Sub, &[bits, one]);
        let clear = self.op(Op::Not, &[bits]);
        let below = self.op(Op::And, &[clear, less]);
        self.op(Op::Popcount, &[below])
    }

    /// Swaps adjacent bits, then pairs, and so on up to the halves.
    fn reversed(&mut self, x: ValueId) -> ValueId {
        let mut bits = self.unsigned(x);
        let mut distance = 1;
        while distance < self.ty(x).bits() {
            // Selects every other group of `distance` bits.
            let mask = self.bits(bits, u64::MAX / ((1 << distance) + 1));
            let upper = self.shifted(Op::Shr, bits, distance);
            let [upper, lower] = [upper, bits].map(|word| self.op(Op::And, &[word, mask]));
            let lower = self.shifted(Op::Shl, lower, distance);
            bits = self.op(Op::Or, &[upper, lower]);
            distance *= 2;
        }
        self.back(bits, x)
    }

    fn is_infinite(&mut self, x: ValueId) -> ValueId {
        let size = self.op(Op::Abs, &[x]);
        let infinity = match SpecialValue::Greatest.of(self.ty(x)) {
            Some(infinity) => self.emitter.emit_constant(infinity),
            None => unreachable!("every type has a greatest value"),
        };
        self.op(Op::Eq, &[size, infinity])
    }

    /// Combines the magnitude of `x` with the sign of `y`. The bits of a NaN read as those of the
    /// canonical NaN, which is positive.
    fn with_sign_of(&mut self, x: ValueId, y: ValueId) -> ValueId {
        let sign = 1 << (self.ty(x).bits() - 1);
        let [x_bits, y_bits] = [self.unsigned(x), self.unsigned(y)];
        let (rest, sign) = (self.bits(x_bits, sign - 1), self.bits(x_bits, sign));
        let size = self.op(Op::And, &[x_bits, rest]);
        let sign = self.op(Op::And, &[y_bits, sign]);
        let bits = self.op(Op::Or, &[size, sign]);
        self.back(bits, x)
    }
}
