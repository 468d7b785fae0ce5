//! Bit-exact `fma` without a fused instruction.
//!
//! **f32** is computed in `f64`, where the product of two `f32` is exact. The sum is rounded to
//! odd: its error, found by Knuth's two-sum, decides its last bit. Rounding to `f32` then yields
//! the same result as rounding the exact sum.
//!
//! **f64** is computed in integers. Product and addend are normalised to 128-bit numbers with the
//! highest bit near the top. The smaller one is shifted down to the other's exponent, with all
//! shifted-out bits merged into a sticky bit. The two are added or subtracted, normalised, and
//! rounded once. If a factor is zero or not finite, the plain operations are exact; an addend that
//! is not finite is the result.

use super::SequenceEmitter;
use crate::kernel::ValueId;
use crate::ops::Op;
use crate::types::{Value, ValueType};

const SIGN: u64 = 1 << 63;
const INFINITY: u64 = 0x7FF << 52;
/// The implicit leading bit of normal numbers.
const IMPLIED: u64 = 1 << 52;

/// A finite number: sign · mantissa · 2^(exponent − 1075), with a mantissa from 2^52 to 2^53, or
/// zero.
struct Parts {
    sign: ValueId,
    exponent: ValueId,
    mantissa: ValueId,
}

/// An unsigned 128-bit number.
#[derive(Clone, Copy)]
struct Wide {
    high: ValueId,
    low: ValueId,
}

impl SequenceEmitter<'_, '_, '_> {
    pub(super) fn fused(&mut self, x: ValueId, y: ValueId, z: ValueId) -> ValueId {
        if self.ty(x) == ValueType::F64 { self.fused_double([x, y, z]) } else { self.fused_single([x, y, z]) }
    }

    fn fused_single(&mut self, args: [ValueId; 3]) -> ValueId {
        let [x, y, z] = args.map(|arg| self.op(Op::ToF64, &[arg]));
        let product = self.op(Op::Mul, &[x, y]);
        let sum = self.op(Op::Add, &[product, z]);
        // A NaN if the sum is not finite, so that neither comparison below holds.
        let of_z = self.op(Op::Sub, &[sum, product]);
        let of_product = self.op(Op::Sub, &[sum, of_z]);
        let lost_product = self.op(Op::Sub, &[product, of_product]);
        let lost_z = self.op(Op::Sub, &[z, of_z]);
        let lost = self.op(Op::Add, &[lost_product, lost_z]);
        let zero = self.constant(sum, 0);
        let [above, below] = [Op::Gt, Op::Lt].map(|order| self.op(order, &[lost, zero]));
        let inexact = self.op(Op::Or, &[above, below]);
        let bits = self.unsigned(sum);
        let [none, one] = [0, 1].map(|number| self.long(number));
        let last = self.op(Op::And, &[bits, one]);
        let even = self.op(Op::Eq, &[last, none]);
        let adjust = self.op(Op::And, &[inexact, even]);
        let positive = self.op(Op::Gt, &[sum, zero]);
        let outward = self.op(Op::Eq, &[positive, above]);
        let (up, down) = (self.op(Op::Add, &[bits, one]), self.op(Op::Sub, &[bits, one]));
        let odd = self.select(outward, up, down);
        let bits = self.select(adjust, odd, bits);
        let sum = self.op(Op::BitsF64, &[bits]);
        self.op(Op::ToF32, &[sum])
    }

    fn fused_double(&mut self, args: [ValueId; 3]) -> ValueId {
        let bits = args.map(|arg| self.unsigned(arg));
        let [x, y, z] = bits.map(|bits| self.parts(bits));
        let product = self.product(x.mantissa, y.mantissa);
        let addend = Wide { high: self.shifted(Op::Shl, z.mantissa, 9), low: self.long(0) };
        // The exponents of the lowest bits: the product was shifted up by 20, the addend by 73.
        let sum = self.op(Op::Add, &[x.exponent, y.exponent]);
        let product_at = self.plus(sum, -2150 - 20);
        let addend_at = self.plus(z.exponent, -1075 - 73);
        let nothing = self.long(0);
        let no_addend = self.op(Op::Eq, &[z.mantissa, nothing]);
        let apart = self.op(Op::Sub, &[product_at, addend_at]);
        let level = self.int(0);
        let apart = self.select(no_addend, level, apart);
        let apart_down = self.op(Op::Sub, &[level, apart]);
        let [addend_down, product_down] =
            [apart, apart_down].map(|distance| self.op(Op::Max, &[distance, level]));
        let addend = self.shifted_down(addend, addend_down);
        let product = self.shifted_down(product, product_down);
        let product_leads = self.op(Op::Ge, &[apart, level]);
        let at = self.select(product_leads, product_at, addend_at);

        let sign = self.op(Op::Xor, &[x.sign, y.sign]);
        let same = self.op(Op::Eq, &[sign, z.sign]);
        let product_wins = self.is_at_least(product, addend);
        let total = self.total(product, addend);
        let difference = self.difference(product, addend, product_wins);
        let sum = self.choose(same, total, difference);
        let of_product = self.op(Op::Or, &[same, product_wins]);
        let sign = self.select(of_product, sign, z.sign);
        let rounded = self.rounded(sum, at, sign);
        let result = self.op(Op::BitsF64, &[rounded]);
        self.plain_where_exact(args, bits, result)
    }

    /// Selects the plain operations where they are exact, or an infinite or NaN addend; otherwise
    /// `result`.
    fn plain_where_exact(&mut self, args: [ValueId; 3], bits: [ValueId; 3], result: ValueId) -> ValueId {
        let (infinity, zero) = (self.long(INFINITY), self.long(0));
        let [x, y, z] = bits.map(|bits| {
            let rest = self.long(!SIGN);
            self.op(Op::And, &[bits, rest])
        });
        let z_alone = self.op(Op::Ge, &[z, infinity]);
        let result = self.select(z_alone, args[2], result);
        // With these factors the product is exact: zero, infinite or NaN.
        let [x_exact, y_exact] = [x, y].map(|size| {
            let infinite = self.op(Op::Ge, &[size, infinity]);
            let none = self.op(Op::Eq, &[size, zero]);
            self.op(Op::Or, &[infinite, none])
        });
        let exact = self.op(Op::Or, &[x_exact, y_exact]);
        let product = self.op(Op::Mul, &[args[0], args[1]]);
        let plain = self.op(Op::Add, &[product, args[2]]);
        self.select(exact, plain, result)
    }

    fn long(&mut self, number: u64) -> ValueId {
        self.emitter.emit_constant(Value::U64(number))
    }

    fn int(&mut self, number: i32) -> ValueId {
        self.emitter.emit_constant(Value::I32(number))
    }

    /// Adds a constant to an `i32`.
    fn plus(&mut self, x: ValueId, number: i32) -> ValueId {
        let number = self.int(number);
        self.op(Op::Add, &[x, number])
    }

    fn parts(&mut self, bits: ValueId) -> Parts {
        let [sign, fraction] = [SIGN, IMPLIED - 1].map(|mask| {
            let mask = self.long(mask);
            self.op(Op::And, &[bits, mask])
        });
        let field = self.shifted(Op::Shr, bits, 52);
        let field = self.op(Op::ToI32, &[field]);
        let mask = self.int(0x7FF);
        let field = self.op(Op::And, &[field, mask]);
        let [zero, one] = [0, 1].map(|number| self.int(number));
        let normal = self.op(Op::Ne, &[field, zero]);
        let (implied, nothing) = (self.long(IMPLIED), self.long(0));
        let implied = self.select(normal, implied, nothing);
        let mantissa = self.op(Op::Or, &[fraction, implied]);
        let exponent = self.select(normal, field, one);
        // Normalises a subnormal.
        let zeros = self.op(Op::Clz, &[mantissa]);
        let spare = self.count(11);
        let up = self.op(Op::Sub, &[zeros, spare]);
        let mantissa = self.op(Op::Shl, &[mantissa, up]);
        let up = self.op(Op::ToI32, &[up]);
        let exponent = self.op(Op::Sub, &[exponent, up]);
        Parts { sign, exponent, mantissa }
    }

    /// The product of two mantissas, computed by half words and shifted up by 20; its highest bit
    /// is bit 124 or 125.
    fn product(&mut self, x: ValueId, y: ValueId) -> Wide {
        let mask = self.long(u32::MAX.into());
        let [x_low, y_low] = [x, y].map(|word| self.op(Op::And, &[word, mask]));
        let [x_high, y_high] = [x, y].map(|word| self.shifted(Op::Shr, word, 32));
        let low = self.op(Op::Mul, &[x_low, y_low]);
        let high = self.op(Op::Mul, &[x_high, y_high]);
        let cross = [(x_low, y_high), (x_high, y_low)].map(|(a, b)| self.op(Op::Mul, &[a, b]));
        let cross = self.op(Op::Add, &cross);
        let middle = Wide { high: self.shifted(Op::Shr, cross, 32), low: self.shifted(Op::Shl, cross, 32) };
        let product = self.total(Wide { high, low }, middle);
        let from_low = self.shifted(Op::Shr, product.low, 44);
        let high = self.shifted(Op::Shl, product.high, 20);
        Wide { high: self.op(Op::Or, &[high, from_low]), low: self.shifted(Op::Shl, product.low, 20) }
    }

    fn choose(&mut self, condition: ValueId, yes: Wide, no: Wide) -> Wide {
        Wide { high: self.select(condition, yes.high, no.high), low: self.select(condition, yes.low, no.low) }
    }

    /// 1 if the condition holds, otherwise 0.
    fn bit(&mut self, condition: ValueId) -> ValueId {
        self.op(Op::ToU64, &[condition])
    }

    fn total(&mut self, x: Wide, y: Wide) -> Wide {
        let low = self.op(Op::Add, &[x.low, y.low]);
        let carries = self.op(Op::Lt, &[low, x.low]);
        let carry = self.bit(carries);
        let high = self.op(Op::Add, &[x.high, y.high]);
        Wide { high: self.op(Op::Add, &[high, carry]), low }
    }

    fn is_at_least(&mut self, x: Wide, y: Wide) -> ValueId {
        let above = self.op(Op::Gt, &[x.high, y.high]);
        let level = self.op(Op::Eq, &[x.high, y.high]);
        let low = self.op(Op::Ge, &[x.low, y.low]);
        let level = self.op(Op::And, &[level, low]);
        self.op(Op::Or, &[above, level])
    }

    /// The absolute difference; `x_wins` is true if `x` is not the smaller.
    fn difference(&mut self, x: Wide, y: Wide, x_wins: ValueId) -> Wide {
        let (large, small) = (self.choose(x_wins, x, y), self.choose(x_wins, y, x));
        let low = self.op(Op::Sub, &[large.low, small.low]);
        let borrows = self.op(Op::Lt, &[large.low, small.low]);
        let borrow = self.bit(borrows);
        let high = self.op(Op::Sub, &[large.high, small.high]);
        Wide { high: self.op(Op::Sub, &[high, borrow]), low }
    }

    /// Shifts right by a non-negative `i32`; shifted-out bits are merged into the lowest bit.
    fn shifted_down(&mut self, x: Wide, by: ValueId) -> Wide {
        let most = self.int(127);
        let by = self.op(Op::Min, &[by, most]);
        let by = self.op(Op::ToU32, &[by]);
        let word = self.count(64);
        let far = self.op(Op::Ge, &[by, word]);
        let nothing = self.long(0);
        // Shift counts are taken modulo 64, so both cases shift by the same count; for 64 or more,
        // a word moves first.
        let moved = Wide { high: nothing, low: x.high };
        let start = self.choose(far, moved, x);
        let dropped = self.select(far, x.low, nothing);
        // x << (64 − n) for n from 0 to 63, in two shifts that are each less than 64.
        let last = self.count(63);
        let rest = self.op(Op::Sub, &[last, by]);
        let [from_high, from_low] = [start.high, start.low].map(|word| {
            let word = self.shifted(Op::Shl, word, 1);
            self.op(Op::Shl, &[word, rest])
        });
        let high = self.op(Op::Shr, &[start.high, by]);
        let low = self.op(Op::Shr, &[start.low, by]);
        let low = self.op(Op::Or, &[low, from_high]);
        let lost = self.op(Op::Or, &[from_low, dropped]);
        Wide { high, low: self.with_rest(low, lost) }
    }

    /// Sets the lowest bit of the word if `rest` is not zero.
    fn with_rest(&mut self, word: ValueId, rest: ValueId) -> ValueId {
        let nothing = self.long(0);
        let inexact = self.op(Op::Ne, &[rest, nothing]);
        let inexact = self.bit(inexact);
        self.op(Op::Or, &[word, inexact])
    }

    /// The bits of the double nearest to x · 2^at with this sign, ties to even. An exact zero is
    /// +0.
    fn rounded(&mut self, x: Wide, at: ValueId, sign: ValueId) -> ValueId {
        let nothing = self.long(0);
        let no_high = self.op(Op::Eq, &[x.high, nothing]);
        let [high_zeros, low_zeros] = [x.high, x.low].map(|word| self.op(Op::Clz, &[word]));
        let word = self.count(64);
        let low_zeros = self.op(Op::Add, &[low_zeros, word]);
        let zeros = self.select(no_high, low_zeros, high_zeros);
        // Normalises to 64 bits with the highest bit set.
        let last = self.count(63);
        let rest = self.op(Op::Sub, &[last, zeros]);
        let from_low = self.shifted(Op::Shr, x.low, 1);
        let from_low = self.op(Op::Shr, &[from_low, rest]);
        let [high, low] = [x.high, x.low].map(|word| self.op(Op::Shl, &[word, zeros]));
        let high = self.op(Op::Or, &[high, from_low]);
        let high = self.select(no_high, low, high);
        let low = self.select(no_high, nothing, low);
        let top = self.with_rest(high, low);

        let zeros = self.op(Op::ToI32, &[zeros]);
        let exponent = self.op(Op::Sub, &[at, zeros]);
        let exponent = self.plus(exponent, 127 + 1023);
        let bits = self.rounded_top(top, exponent);
        let most = self.int(2046);
        let overflows = self.op(Op::Gt, &[exponent, most]);
        let infinity = self.long(INFINITY);
        let bits = self.select(overflows, infinity, bits);
        let bits = self.op(Op::Or, &[bits, sign]);
        let all = self.op(Op::Or, &[x.high, x.low]);
        let is_zero = self.op(Op::Eq, &[all, nothing]);
        self.select(is_zero, nothing, bits)
    }

    /// Exponent field and fraction of a number whose highest bit is bit 63 of `top`. Below the
    /// smallest normal number, fewer bits are kept.
    fn rounded_top(&mut self, top: ValueId, exponent: ValueId) -> ValueId {
        let [zero, one] = [0, 1].map(|number| self.int(number));
        let below = self.op(Op::Sub, &[one, exponent]);
        let below = self.op(Op::Max, &[below, zero]);
        // At 52 places down, one bit is kept. Any further shift is done first, and 8 places have
        // the same effect as more.
        let [most, further] = [52, 60].map(|number| self.int(number));
        let below = self.op(Op::Min, &[below, further]);
        let kept = self.op(Op::Min, &[below, most]);
        let early = self.op(Op::Sub, &[below, kept]);
        let early = self.op(Op::ToU32, &[early]);
        let shifted = self.op(Op::Shr, &[top, early]);
        let back = self.op(Op::Shl, &[shifted, early]);
        let lost = self.op(Op::Sub, &[top, back]);
        let top = self.with_rest(shifted, lost);

        let kept = self.op(Op::ToU32, &[kept]);
        let spare = self.count(11);
        let count = self.op(Op::Add, &[kept, spare]);
        let whole = self.op(Op::Shr, &[top, count]);
        let back = self.op(Op::Shl, &[whole, count]);
        let rest = self.op(Op::Sub, &[top, back]);
        let single = self.count(1);
        let less = self.op(Op::Sub, &[count, single]);
        let unit = self.long(1);
        let half = self.op(Op::Shl, &[unit, less]);
        let above = self.op(Op::Gt, &[rest, half]);
        let tie = self.op(Op::Eq, &[rest, half]);
        let last = self.op(Op::And, &[whole, unit]);
        let odd = self.op(Op::Eq, &[last, unit]);
        let tie_up = self.op(Op::And, &[tie, odd]);
        let up = self.op(Op::Or, &[above, tie_up]);
        let up = self.bit(up);
        // The implicit bit of the mantissa adds one to the exponent field, and so does a mantissa
        // that rounds up to the next power of two.
        let field = self.op(Op::Max, &[exponent, one]);
        let field = self.op(Op::Sub, &[field, one]);
        let field = self.op(Op::ToU64, &[field]);
        let field = self.shifted(Op::Shl, field, 52);
        let bits = self.op(Op::Add, &[field, whole]);
        self.op(Op::Add, &[bits, up])
    }
}
