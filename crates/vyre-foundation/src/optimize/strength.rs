//! Strength reduction: replaces division and remainder by a constant with shifts, masks and
//! multiplications.
//!
//! Powers of two become shifts. Other divisors become the high half of a product with a rounded-up
//! reciprocal, if the target declares its division slow: elsewhere one op is better than three, and
//! the compilers behind a backend apply the same technique. With w bits, m = ⌊2^(w+s) / d⌋ + 1
//! gives x / d = mul_hi(x, m) >> s for all x below 2^(w−k) if m·d ≤ 2^(w+s) + 2^(s+k) (Granlund and
//! Montgomery, 1994). The least such s is used; for an even divisor, x is shifted right first if
//! that helps; in the worst case m has w + 1 bits, which costs two more ops. Signed numbers have
//! one significant bit less and need a sign correction.
//!
//! Products with a power of two stay products, because backends derive strides from them.

use super::rewrite::{Emitter, RuleOutcome, rewrite};
use super::target::Target;
use crate::kernel::{Def, KernelBody, Operands, ValueId};
use crate::ops::Op;
use crate::types::{Value, ValueType};

/// Replaces divisions and remainders by constants.
pub(super) fn run(body: &mut KernelBody, target: &Target) {
    rewrite(body, &mut |emitter, _, def| {
        let Def::Op(op @ (Op::Div | Op::Rem), operands) = def else { return RuleOutcome::Def(def) };
        let (x, divisor) = (operands[0], emitter.constant(operands[1]));
        let cheaper = divisor.and_then(|divisor| match divisor.ty().is_float() {
            true => reciprocal(emitter, x, divisor),
            false if op == Op::Div => quotient(emitter, target, x, divisor).map(RuleOutcome::Value),
            false => remainder(emitter, target, &operands, divisor),
        });
        cheaper.unwrap_or(RuleOutcome::Def(def))
    });
}

fn op(op: Op, operands: &[ValueId]) -> RuleOutcome {
    RuleOutcome::Def(Def::Op(op, Operands::new(operands)))
}

/// Replaces division by a power of two with multiplication by its reciprocal, if that is a normal
/// number: both round the same exact quotient.
fn reciprocal(emitter: &mut Emitter, x: ValueId, divisor: Value) -> Option<RuleOutcome> {
    let inverse = match divisor {
        Value::F32(d) => Value::F32(1.0 / d),
        Value::F64(d) => Value::F64(1.0 / d),
        Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => return None,
    };
    if !(is_normal_power_of_two(divisor) && is_normal_power_of_two(inverse)) {
        return None;
    }
    let inverse = emitter.emit_constant(inverse);
    Some(op(Op::Mul, &[x, inverse]))
}

fn is_normal_power_of_two(value: Value) -> bool {
    match value {
        Value::F32(x) => x.is_normal() && x.to_bits() << 9 == 0,
        Value::F64(x) => x.is_normal() && x.to_bits() << 12 == 0,
        Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => false,
    }
}

/// Computes `x / divisor`; `None` if the division should stay.
fn quotient(emitter: &mut Emitter, target: &Target, x: ValueId, divisor: Value) -> Option<ValueId> {
    match divisor {
        Value::U32(d) => unsigned_quotient(emitter, target, x, d.into()),
        Value::U64(d) => unsigned_quotient(emitter, target, x, d),
        Value::I32(d) => signed_quotient(emitter, target, x, d.into()),
        Value::I64(d) => signed_quotient(emitter, target, x, d),
        Value::Bool(_) | Value::F32(_) | Value::F64(_) => None,
    }
}

fn unsigned_quotient(emitter: &mut Emitter, target: &Target, x: ValueId, d: u64) -> Option<ValueId> {
    if d < 2 {
        return None;
    }
    if d.is_power_of_two() {
        return Some(shifted(emitter, x, d.trailing_zeros()));
    }
    if !target.slow_division || target.lacks(Op::MulHi) {
        return None;
    }
    let ty = emitter.body.ty(x);
    if let Some(found) = Reciprocal::find(d, ty.bits(), 0) {
        return Some(found.multiply(emitter, x));
    }
    let twos = d.trailing_zeros();
    if twos > 0 {
        let odd = shifted(emitter, x, twos);
        return Reciprocal::find(d >> twos, ty.bits(), twos).map(|found| found.multiply(emitter, odd));
    }
    // The factor's top bit does not fit: x·m / 2^w is the high half plus x, halved midway to stay
    // in range.
    let log = u64::BITS - d.leading_zeros();
    let excess = (1u128 << log) - u128::from(d);
    let factor = ((excess << ty.bits()) / u128::from(d) + 1) as u64;
    let high = Reciprocal { factor, shift: 0 }.multiply(emitter, x);
    let rest = emitter.emit_op(Op::Sub, &[x, high]);
    let half = shifted(emitter, rest, 1);
    let sum = emitter.emit_op(Op::Add, &[half, high]);
    Some(shifted(emitter, sum, log - 1))
}

fn signed_quotient(emitter: &mut Emitter, target: &Target, x: ValueId, d: i64) -> Option<ValueId> {
    if d == -1 {
        return Some(emitter.emit_op(Op::Neg, &[x]));
    }
    let magnitude = d.unsigned_abs();
    if !target.slow_division || magnitude < 2 {
        return None;
    }
    if magnitude.is_power_of_two() {
        let quotient = signed_shift(emitter, x, magnitude.trailing_zeros());
        return Some(if d < 0 { emitter.emit_op(Op::Neg, &[quotient]) } else { quotient });
    }
    if target.lacks(Op::MulHi) {
        return None;
    }
    let width = emitter.body.ty(x).bits();
    let found = Reciprocal::find(magnitude, width, 1)?;
    let mut high = Reciprocal { shift: 0, ..found }.multiply(emitter, x);
    if found.factor >> (width - 1) != 0 {
        // The factor reads as a negative number, 2^w too small.
        high = emitter.emit_op(Op::Add, &[high, x]);
    }
    let rounded_down = shifted(emitter, high, found.shift);
    // -1 for negative numbers, whose quotients round up.
    let sign = shifted(emitter, x, width - 1);
    let [from, less] = if d < 0 { [sign, rounded_down] } else { [rounded_down, sign] };
    Some(emitter.emit_op(Op::Sub, &[from, less]))
}

/// A reciprocal: division becomes the high half of a product with `factor`, shifted right by
/// `shift`.
#[derive(Clone, Copy)]
struct Reciprocal {
    factor: u64,
    shift: u32,
}

impl Reciprocal {
    /// Finds a reciprocal for dividing `width`-bit numbers, whose top `spare` bits are unused, by
    /// `d`; `None` if the factor needs more than `width` bits.
    fn find(d: u64, width: u32, spare: u32) -> Option<Reciprocal> {
        let d = u128::from(d);
        (0..width).find_map(|shift| {
            let power = 1u128 << (width + shift);
            let factor = power / d + 1;
            let exact = factor * d - power <= 1u128 << (shift + spare);
            (exact && factor < 1u128 << width).then_some(Reciprocal { factor: factor as u64, shift })
        })
    }

    fn multiply(self, emitter: &mut Emitter, x: ValueId) -> ValueId {
        let factor = Value::from_bits(emitter.body.ty(x), self.factor);
        let factor = emitter.emit_constant(factor);
        let high = emitter.emit_op(Op::MulHi, &[x, factor]);
        shifted(emitter, high, self.shift)
    }
}

/// `x >> count`.
fn shifted(emitter: &mut Emitter, x: ValueId, count: u32) -> ValueId {
    if count == 0 {
        return x;
    }
    let count = emitter.emit_constant(Value::U32(count));
    emitter.emit_op(Op::Shr, &[x, count])
}

/// `x / 2^count` of a signed number: a negative one is biased first, so that the shift rounds
/// towards zero.
fn signed_shift(emitter: &mut Emitter, x: ValueId, count: u32) -> ValueId {
    let ty = emitter.body.ty(x);
    let (unsigned, width) = if ty == ValueType::I32 { (Op::ToU32, 32) } else { (Op::ToU64, 64) };
    let sign = shifted(emitter, x, width - 1);
    let sign = emitter.emit_op(unsigned, &[sign]);
    let bias = shifted(emitter, sign, width - count);
    let bias = emitter.emit_op(Op::cast(ty), &[bias]);
    let moved = emitter.emit_op(Op::Add, &[x, bias]);
    shifted(emitter, moved, count)
}

/// `x % d` is a mask for an unsigned power of two, else `x − (x / d) · d`.
fn remainder(
    emitter: &mut Emitter,
    target: &Target,
    operands: &Operands,
    divisor: Value,
) -> Option<RuleOutcome> {
    let x = operands[0];
    if let Value::U32(_) | Value::U64(_) = divisor
        && divisor.to_bits().is_power_of_two()
    {
        let mask = emitter.emit_constant(Value::from_bits(divisor.ty(), divisor.to_bits() - 1));
        return Some(op(Op::And, &[x, mask]));
    }
    if divisor.as_integer() == Some(-1) {
        return Some(RuleOutcome::Def(Def::Const(Value::zero(divisor.ty()))));
    }
    let quotient = quotient(emitter, target, x, divisor)?;
    let product = emitter.emit_op(Op::Mul, &[quotient, operands[1]]);
    Some(op(Op::Sub, &[x, product]))
}
