//! Algebraic laws that a row can claim. A law is bit-exact: it holds for every value of every type
//! that the claim covers, including NaN, infinities and signed zeros.

use crate::types::{Value, ValueType};

/// A distinguished value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialValue {
    /// 0, `+0.0` or `false`.
    Zero,
    /// `-0.0`; floats only.
    NegativeZero,
    /// 1, `1.0` or `true`.
    One,
    /// All bits set: `-1`, the largest unsigned, or `true`.
    AllOnes,
    /// The least value of the type; minus infinity for floats.
    Least,
    /// The greatest value of the type; plus infinity for floats.
    Greatest,
    /// A NaN; floats only.
    Nan,
}

impl SpecialValue {
    /// This value of type `ty`, if the type has it.
    pub fn of(self, ty: ValueType) -> Option<Value> {
        let float = |x32: f32, x64: f64| match ty {
            ValueType::F32 => Some(Value::F32(x32)),
            ValueType::F64 => Some(Value::F64(x64)),
            ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => None,
        };
        let integer = |least: bool| match ty {
            ValueType::Bool => Value::Bool(!least),
            ValueType::U32 => Value::U32(if least { 0 } else { u32::MAX }),
            ValueType::I32 => Value::I32(if least { i32::MIN } else { i32::MAX }),
            ValueType::U64 => Value::U64(if least { 0 } else { u64::MAX }),
            ValueType::I64 => Value::I64(if least { i64::MIN } else { i64::MAX }),
            ValueType::F32 => Value::F32(if least { f32::NEG_INFINITY } else { f32::INFINITY }),
            ValueType::F64 => Value::F64(if least { f64::NEG_INFINITY } else { f64::INFINITY }),
        };
        match self {
            SpecialValue::Zero => Some(Value::zero(ty)),
            SpecialValue::NegativeZero => float(-0.0, -0.0),
            SpecialValue::One => Some(Value::one(ty)),
            SpecialValue::AllOnes => (!ty.is_float()).then(|| Value::from_bits(ty, u64::MAX)),
            SpecialValue::Least => Some(integer(true)),
            SpecialValue::Greatest => Some(integer(false)),
            SpecialValue::Nan => float(f32::NAN, f64::NAN).map(Value::canonical),
        }
    }
}

/// An identity that holds for an op, written `f` below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// `f(x, y) = f(y, x)`.
    Commutative,
    /// `f(f(x, y), z) = f(x, f(y, z))`.
    Associative,
    /// `f(x, x) = x`.
    Idempotent,
    /// `f(f(x)) = x`.
    Involution,
    /// `f(f(x)) = f(x)`.
    Projection,
    /// `f(e, x) = x`.
    LeftIdentity(SpecialValue),
    /// `f(x, e) = x`.
    RightIdentity(SpecialValue),
    /// `f(e, x) = e`.
    LeftAbsorbing(SpecialValue),
    /// `f(x, e) = e`.
    RightAbsorbing(SpecialValue),
    /// `f(x, x) = e`.
    SelfGives(SpecialValue),
}

impl Law {
    /// The law in algebraic notation, for documentation.
    pub fn describe(self) -> String {
        match self {
            Law::Commutative => "commutative".into(),
            Law::Associative => "associative".into(),
            Law::Idempotent => "f(x, x) = x".into(),
            Law::Involution => "f(f(x)) = x".into(),
            Law::Projection => "f(f(x)) = f(x)".into(),
            Law::LeftIdentity(e) => format!("f({0}, x) = x", e.describe()),
            Law::RightIdentity(e) => format!("f(x, {0}) = x", e.describe()),
            Law::LeftAbsorbing(e) => format!("f({0}, x) = {0}", e.describe()),
            Law::RightAbsorbing(e) => format!("f(x, {0}) = {0}", e.describe()),
            Law::SelfGives(e) => format!("f(x, x) = {}", e.describe()),
        }
    }
}

impl SpecialValue {
    fn describe(self) -> &'static str {
        match self {
            SpecialValue::Zero => "0",
            SpecialValue::NegativeZero => "-0.0",
            SpecialValue::One => "1",
            SpecialValue::AllOnes => "all ones",
            SpecialValue::Least => "least",
            SpecialValue::Greatest => "greatest",
            SpecialValue::Nan => "NaN",
        }
    }
}
