//! Strength reduction: division and remainder by a constant become shifts, masks and multiplications.
//!
//! Unsigned division by a constant d that is no power of two multiplies by a rounded-up reciprocal: with w bits and
//! s = ⌈log2 d⌉ the factor m = ⌊2^w (2^s − d) / d⌋ + 1 gives q = mul_hi(m, x) and x / d = (q + ((x − q) >> 1)) >> (s − 1)
//! (Granlund and Montgomery, 1994). Signed division is reduced for powers of two only.
//! Products by a power of two stay products: backends read strides from them.

use super::Target;
use super::rewrite::{Emitter, Outcome, rewrite};
use crate::kernel::{Def, KernelBody, Operands, ValueId};
use crate::ops::Op;
use crate::types::{Value, ValueType};

/// Replaces divisions and remainders by constants.
pub(super) fn run(body: &mut KernelBody, target: &Target) {
    rewrite(body, &mut |emitter, _, def| {
        let Def::Op(op @ (Op::Div | Op::Rem), operands) = def else { return Outcome::Def(def) };
        let (x, divisor) = (operands[0], emitter.constant(operands[1]));
        let cheaper = divisor.and_then(|divisor| match divisor.ty().is_float() {
            true => reciprocal(emitter, x, divisor),
            false if op == Op::Div => quotient(emitter, target, x, divisor).map(Outcome::Value),
            false => remainder(emitter, target, &operands, divisor),
        });
        cheaper.unwrap_or(Outcome::Def(def))
    });
}

fn op(op: Op, operands: &[ValueId]) -> Outcome {
    Outcome::Def(Def::Op(op, Operands::new(operands)))
}

/// Dividing by a power of two is multiplying by its reciprocal, as long as that is a normal number: both round the same
/// exact quotient.
fn reciprocal(emitter: &mut Emitter, x: ValueId, divisor: Value) -> Option<Outcome> {
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

/// `x / divisor`; `None` where the division is better left alone.
fn quotient(emitter: &mut Emitter, target: &Target, x: ValueId, divisor: Value) -> Option<ValueId> {
    match divisor {
        Value::U32(d) => unsigned_quotient(emitter, target, x, d.into()),
        Value::U64(d) => unsigned_quotient(emitter, target, x, d),
        Value::I32(d) if d > 1 && (d as u32).is_power_of_two() => {
            Some(signed_shift(emitter, x, d.trailing_zeros()))
        }
        Value::I64(d) if d > 1 && (d as u64).is_power_of_two() => {
            Some(signed_shift(emitter, x, d.trailing_zeros()))
        }
        Value::I32(_) | Value::I64(_) | Value::Bool(_) | Value::F32(_) | Value::F64(_) => None,
    }
}

fn unsigned_quotient(emitter: &mut Emitter, target: &Target, x: ValueId, d: u64) -> Option<ValueId> {
    if d < 2 {
        return None;
    }
    if d.is_power_of_two() {
        let count = emitter.emit_constant(Value::U32(d.trailing_zeros()));
        return Some(emitter.emit_op(Op::Shr, &[x, count]));
    }
    if target.lacks(Op::MulHi) {
        return None;
    }
    let ty = emitter.body.ty(x);
    let (factor, shift) = magic(d, ty.bits());
    let factor = emitter.emit_constant(Value::from_bits(ty, factor));
    let high = emitter.emit_op(Op::MulHi, &[x, factor]);
    let rest = emitter.emit_op(Op::Sub, &[x, high]);
    let one = emitter.emit_constant(Value::U32(1));
    let half = emitter.emit_op(Op::Shr, &[rest, one]);
    let sum = emitter.emit_op(Op::Add, &[half, high]);
    let shift = emitter.emit_constant(Value::U32(shift));
    Some(emitter.emit_op(Op::Shr, &[sum, shift]))
}

/// The factor and the final shift for an unsigned division by `d`, which is above 2 and no power of two.
fn magic(d: u64, width: u32) -> (u64, u32) {
    let log = u64::BITS - (d - 1).leading_zeros();
    let excess = (1u128 << log) - u128::from(d);
    let factor = (excess << width) / u128::from(d) + 1;
    (factor as u64, log - 1)
}

/// `x / 2^count` of a signed number: a negative one is moved up first, so that the shift rounds towards zero.
fn signed_shift(emitter: &mut Emitter, x: ValueId, count: u32) -> ValueId {
    let ty = emitter.body.ty(x);
    let (unsigned, width) = if ty == ValueType::I32 { (Op::ToU32, 32) } else { (Op::ToU64, 64) };
    let last = emitter.emit_constant(Value::U32(width - 1));
    let sign = emitter.emit_op(Op::Shr, &[x, last]);
    let sign = emitter.emit_op(unsigned, &[sign]);
    let keep = emitter.emit_constant(Value::U32(width - count));
    let bias = emitter.emit_op(Op::Shr, &[sign, keep]);
    let bias = emitter.emit_op(Op::cast(ty), &[bias]);
    let moved = emitter.emit_op(Op::Add, &[x, bias]);
    let count = emitter.emit_constant(Value::U32(count));
    emitter.emit_op(Op::Shr, &[moved, count])
}

/// `x % d` is a mask for an unsigned power of two, else `x − (x / d) · d`.
fn remainder(emitter: &mut Emitter, target: &Target, operands: &Operands, divisor: Value) -> Option<Outcome> {
    let x = operands[0];
    if let Value::U32(_) | Value::U64(_) = divisor
        && divisor.to_bits().is_power_of_two()
    {
        let mask = emitter.emit_constant(Value::from_bits(divisor.ty(), divisor.to_bits() - 1));
        return Some(op(Op::And, &[x, mask]));
    }
    let quotient = quotient(emitter, target, x, divisor)?;
    let product = emitter.emit_op(Op::Mul, &[quotient, operands[1]]);
    Some(op(Op::Sub, &[x, product]))
}
