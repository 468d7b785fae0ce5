//! Built-in functions on the bits of integers: counting, bit fields, and packed numbers.

use super::math::Operands;
use super::scalar_type::ScalarType;
use naga::MathFunction as Math;
use vyre_foundation::ir::{Expr, Op};

/// Scalars of the function's result; `None` if it is not a bit function.
pub(super) fn bit_function(function: Math, operands: &Operands) -> Option<Vec<Expr>> {
    let kind = operands.kind;
    let [x, y, ..] = &operands.lists;
    let count =
        |op: Op| operands.each(1, |args| ScalarType::U32.convert(Expr::op(op, [args[0].clone()]), kind));
    let signed = |value: &Expr, part: u32| byte_signed(value, part);
    Some(match function {
        Math::CountOneBits => count(Op::Popcount),
        Math::CountLeadingZeros => count(Op::Clz),
        Math::CountTrailingZeros => count(Op::Ctz),
        Math::ReverseBits => operands.each(1, |args| args[0].clone().reverse_bits()),
        Math::FirstTrailingBit => operands.each(1, |args| {
            let pointee = ScalarType::U32.convert(args[0].clone().ctz(), kind);
            Expr::select(args[0].clone().equals(kind.zero()), all_ones(kind), pointee)
        }),
        Math::FirstLeadingBit => operands.each(1, |args| first_leading_bit(kind, &args[0])),
        Math::ExtractBits => {
            operands.each(3, |args| args[0].clone().extract_bits(args[1].clone(), args[2].clone()))
        }
        Math::InsertBits => operands.each(4, |args| {
            let [old, new, offset, count] = args else { unreachable!("four were asked for") };
            old.clone().insert_bits(new, offset, count)
        }),
        Math::Unpack4xU8 => (0..4).map(|part| byte(&x[0], part)).collect(),
        Math::Unpack4xI8 => (0..4).map(|part| signed(&x[0], part)).collect(),
        Math::Unpack4x8unorm => (0..4)
            .map(|part| ScalarType::U32.convert(byte(&x[0], part), ScalarType::F32) / Expr::f32(255.0))
            .collect(),
        Math::Unpack4x8snorm => (0..4).map(|part| signed_norm(signed(&x[0], part), 127.0)).collect(),
        Math::Unpack2x16unorm => (0..2)
            .map(|part| ScalarType::U32.convert(half(&x[0], part), ScalarType::F32) / Expr::f32(65535.0))
            .collect(),
        Math::Unpack2x16snorm => (0..2).map(|part| signed_norm(half_signed(&x[0], part), 32767.0)).collect(),
        Math::Unpack2x16float => (0..2).map(|part| half(&x[0], part).bits_f16()).collect(),
        Math::Pack4xU8 | Math::Pack4xI8 => pack(x.iter().map(|leaf| to_word(kind, leaf.clone())), 8),
        Math::Pack4xU8Clamp => pack(x.iter().map(|leaf| leaf.clone().min(Expr::u32(255))), 8),
        Math::Pack4xI8Clamp => {
            let clamped = |leaf: &Expr| leaf.clone().clamp(Expr::i32(-128), Expr::i32(127));
            pack(x.iter().map(|leaf| to_word(kind, clamped(leaf))), 8)
        }
        Math::Pack4x8unorm => pack(x.iter().map(|leaf| norm(leaf, 0.0, 255.0)), 8),
        Math::Pack4x8snorm => pack(x.iter().map(|leaf| norm(leaf, -1.0, 127.0)), 8),
        Math::Pack2x16unorm => pack(x.iter().map(|leaf| norm(leaf, 0.0, 65535.0)), 16),
        Math::Pack2x16snorm => pack(x.iter().map(|leaf| norm(leaf, -1.0, 32767.0)), 16),
        Math::Pack2x16float => pack(x.iter().map(|leaf| leaf.clone().f16_bits()), 16),
        Math::Dot4U8Packed => sum((0..4).map(|part| byte(&x[0], part) * byte(&y[0], part))),
        Math::Dot4I8Packed => sum((0..4).map(|part| signed(&x[0], part) * signed(&y[0], part))),
        _ => return None,
    })
}

fn all_ones(kind: ScalarType) -> Expr {
    !kind.zero()
}

/// Position of the highest bit that differs from the sign; all ones if there is none.
fn first_leading_bit(kind: ScalarType, value: &Expr) -> Expr {
    let top = kind.width() * 8 - 1;
    let magnitude =
        if kind.is_signed() { value.clone() ^ (value.clone() >> Expr::u32(top)) } else { value.clone() };
    let pointee = Expr::u32(top) - magnitude.clone().clz();
    Expr::select(magnitude.equals(kind.zero()), all_ones(kind), ScalarType::U32.convert(pointee, kind))
}

fn byte(word: &Expr, part: u32) -> Expr {
    (word.clone() >> Expr::u32(8 * part)) & Expr::u32(255)
}

fn half(word: &Expr, part: u32) -> Expr {
    (word.clone() >> Expr::u32(16 * part)) & Expr::u32(0xffff)
}

fn byte_signed(word: &Expr, part: u32) -> Expr {
    (word.clone().cast(ScalarType::I32.value()) << Expr::u32(24 - 8 * part)) >> Expr::u32(24)
}

fn half_signed(word: &Expr, part: u32) -> Expr {
    (word.clone().cast(ScalarType::I32.value()) << Expr::u32(16 - 16 * part)) >> Expr::u32(16)
}

fn signed_norm(value: Expr, scale: f32) -> Expr {
    (ScalarType::I32.convert(value, ScalarType::F32) / Expr::f32(scale)).max(Expr::f32(-1.0))
}

/// A number from `low` to 1 as a scaled integer, in a word.
fn norm(value: &Expr, low: f32, scale: f32) -> Expr {
    let clamped = value.clone().clamp(Expr::f32(low), Expr::f32(1.0));
    let steps = (Expr::f32(0.5) + Expr::f32(scale) * clamped).floor();
    to_word(ScalarType::I32, ScalarType::F32.convert(steps, ScalarType::I32))
}

fn to_word(kind: ScalarType, value: Expr) -> Expr {
    kind.convert(value, ScalarType::U32)
}

/// Packs the low bits of each word side by side, the first lowest.
fn pack(words: impl Iterator<Item = Expr>, bits: u32) -> Vec<Expr> {
    let low = Expr::u32((1 << bits) - 1);
    let placed = words.zip(0u32..).map(|(word, part)| (word & &low) << Expr::u32(bits * part));
    placed.reduce(|packed, part| packed | part).into_iter().collect()
}

fn sum(terms: impl Iterator<Item = Expr>) -> Vec<Expr> {
    terms.reduce(|sum, term| sum + term).into_iter().collect()
}
