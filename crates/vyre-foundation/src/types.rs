//! The types of values and of memory.
//!
//! A kernel computes with seven *value types*. Memory holds *storage types*: the value types and
//! six narrower ones. A load widens a storage type to its value type and a store narrows it back;
//! [`DataType::load`] and [`DataType::store`] define both conversions. Memory is little-endian on
//! every device.

use crate::half_float::{bf16_from_f32, bf16_to_f32, f16_from_f32, f16_to_f32};
use std::fmt;

/// The type of a value that a kernel computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueType {
    /// `true` or `false`.
    Bool,
    /// 32-bit unsigned integer.
    U32,
    /// 32-bit signed integer, two's complement.
    I32,
    /// 64-bit unsigned integer.
    U64,
    /// 64-bit signed integer, two's complement.
    I64,
    /// IEEE-754 binary32.
    F32,
    /// IEEE-754 binary64.
    F64,
}

impl ValueType {
    /// Every value type, in the order of their wire tags.
    pub const ALL: [ValueType; 7] = [
        ValueType::Bool,
        ValueType::U32,
        ValueType::I32,
        ValueType::U64,
        ValueType::I64,
        ValueType::F32,
        ValueType::F64,
    ];

    /// The type's name in text.
    pub fn name(self) -> &'static str {
        self.data_type().name()
    }

    /// The storage type that holds this type's values unchanged.
    pub fn data_type(self) -> DataType {
        match self {
            ValueType::Bool => DataType::Bool,
            ValueType::U32 => DataType::U32,
            ValueType::I32 => DataType::I32,
            ValueType::U64 => DataType::U64,
            ValueType::I64 => DataType::I64,
            ValueType::F32 => DataType::F32,
            ValueType::F64 => DataType::F64,
        }
    }

    /// Whether values are IEEE-754 numbers.
    pub fn is_float(self) -> bool {
        matches!(self, ValueType::F32 | ValueType::F64)
    }

    /// Whether values are integers; `bool` is not one.
    pub fn is_integer(self) -> bool {
        matches!(self, ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64)
    }

    /// Whether values can be negative integers.
    pub fn is_signed_integer(self) -> bool {
        matches!(self, ValueType::I32 | ValueType::I64)
    }

    /// Width in bits; `bool` has one.
    pub fn bits(self) -> u32 {
        match self {
            ValueType::Bool => 1,
            ValueType::U32 | ValueType::I32 | ValueType::F32 => 32,
            ValueType::U64 | ValueType::I64 | ValueType::F64 => 64,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of an element in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataType {
    /// One byte: zero loads as `false`, anything else as `true`; a store writes 0 or 1.
    Bool,
    /// 8-bit unsigned integer; loads as `u32`.
    U8,
    /// 8-bit signed integer; loads as `i32`.
    I8,
    /// 16-bit unsigned integer; loads as `u32`.
    U16,
    /// 16-bit signed integer; loads as `i32`.
    I16,
    /// 32-bit unsigned integer.
    U32,
    /// 32-bit signed integer.
    I32,
    /// 64-bit unsigned integer.
    U64,
    /// 64-bit signed integer.
    I64,
    /// IEEE-754 binary16; loads as `f32`.
    F16,
    /// The upper half of a binary32; loads as `f32`.
    Bf16,
    /// IEEE-754 binary32.
    F32,
    /// IEEE-754 binary64.
    F64,
}

impl DataType {
    /// Every storage type, in the order of their wire tags.
    pub const ALL: [DataType; 13] = [
        DataType::Bool,
        DataType::U8,
        DataType::I8,
        DataType::U16,
        DataType::I16,
        DataType::U32,
        DataType::I32,
        DataType::U64,
        DataType::I64,
        DataType::F16,
        DataType::Bf16,
        DataType::F32,
        DataType::F64,
    ];

    /// The type's name in kernel text.
    pub fn name(self) -> &'static str {
        match self {
            DataType::Bool => "bool",
            DataType::U8 => "u8",
            DataType::I8 => "i8",
            DataType::U16 => "u16",
            DataType::I16 => "i16",
            DataType::U32 => "u32",
            DataType::I32 => "i32",
            DataType::U64 => "u64",
            DataType::I64 => "i64",
            DataType::F16 => "f16",
            DataType::Bf16 => "bf16",
            DataType::F32 => "f32",
            DataType::F64 => "f64",
        }
    }

    /// The type with this name, if any.
    pub fn from_name(name: &str) -> Option<DataType> {
        DataType::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            DataType::Bool | DataType::U8 | DataType::I8 => 1,
            DataType::U16 | DataType::I16 | DataType::F16 | DataType::Bf16 => 2,
            DataType::U32 | DataType::I32 | DataType::F32 => 4,
            DataType::U64 | DataType::I64 | DataType::F64 => 8,
        }
    }

    /// The type that a load yields and a store takes.
    pub fn value_type(self) -> ValueType {
        match self {
            DataType::Bool => ValueType::Bool,
            DataType::U8 | DataType::U16 | DataType::U32 => ValueType::U32,
            DataType::I8 | DataType::I16 | DataType::I32 => ValueType::I32,
            DataType::U64 => ValueType::U64,
            DataType::I64 => ValueType::I64,
            DataType::F16 | DataType::Bf16 | DataType::F32 => ValueType::F32,
            DataType::F64 => ValueType::F64,
        }
    }

    /// Reads one element from its little-endian bytes; `None` unless `bytes` is exactly
    /// [`DataType::size`] long.
    pub fn load(self, bytes: &[u8]) -> Option<Value> {
        let value = match self {
            DataType::Bool => Value::Bool(bytes.first_chunk::<1>()?[0] != 0),
            DataType::U8 => Value::U32(bytes.first_chunk::<1>()?[0].into()),
            DataType::I8 => Value::I32(i8::from_le_bytes(*bytes.first_chunk()?).into()),
            DataType::U16 => Value::U32(u16::from_le_bytes(*bytes.first_chunk()?).into()),
            DataType::I16 => Value::I32(i16::from_le_bytes(*bytes.first_chunk()?).into()),
            DataType::U32 => Value::U32(u32::from_le_bytes(*bytes.first_chunk()?)),
            DataType::I32 => Value::I32(i32::from_le_bytes(*bytes.first_chunk()?)),
            DataType::U64 => Value::U64(u64::from_le_bytes(*bytes.first_chunk()?)),
            DataType::I64 => Value::I64(i64::from_le_bytes(*bytes.first_chunk()?)),
            DataType::F16 => Value::F32(f16_to_f32(u16::from_le_bytes(*bytes.first_chunk()?))),
            DataType::Bf16 => Value::F32(bf16_to_f32(u16::from_le_bytes(*bytes.first_chunk()?))),
            DataType::F32 => Value::F32(f32::from_le_bytes(*bytes.first_chunk()?)),
            DataType::F64 => Value::F64(f64::from_le_bytes(*bytes.first_chunk()?)),
        };
        (bytes.len() == self.size()).then_some(value.canonical())
    }

    /// Writes one element as little-endian bytes and reports whether it did.
    ///
    /// Integers keep their low bits, floats round to nearest even, and a NaN becomes the canonical
    /// one. Returns `false` and writes nothing if the value's type or the length of `bytes` does
    /// not match.
    pub fn store(self, value: Value, bytes: &mut [u8]) -> bool {
        if bytes.len() != self.size() || value.ty() != self.value_type() {
            return false;
        }
        let bits = self.narrow(value);
        bytes.copy_from_slice(&bits.to_le_bytes()[..self.size()]);
        true
    }

    /// The bits that storing `value` leaves in memory, in the low [`DataType::size`] bytes.
    pub fn narrow(self, value: Value) -> u64 {
        let kept = u64::MAX >> (64 - 8 * self.size());
        match (self, value.canonical()) {
            (DataType::F16, Value::F32(x)) if x.is_nan() => 0x7E00,
            (DataType::F16, Value::F32(x)) => f16_from_f32(x).into(),
            (DataType::Bf16, Value::F32(x)) if x.is_nan() => 0x7FC0,
            (DataType::Bf16, Value::F32(x)) => bf16_from_f32(x).into(),
            (_, other) => other.to_bits() & kept,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<ValueType> for DataType {
    fn from(ty: ValueType) -> DataType {
        ty.data_type()
    }
}

/// A value of any value type.
///
/// Equality and hashing are by type and bits: `0.0 != -0.0`, and a NaN equals itself.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// A `u32`.
    U32(u32),
    /// An `i32`.
    I32(i32),
    /// A `u64`.
    U64(u64),
    /// An `i64`.
    I64(i64),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
}

/// The bits of every observable `f32` NaN.
pub const CANONICAL_NAN_F32: u32 = 0x7FC0_0000;
/// The bits of every observable `f64` NaN.
pub const CANONICAL_NAN_F64: u64 = 0x7FF8_0000_0000_0000;

impl Value {
    /// The value's type.
    pub fn ty(self) -> ValueType {
        match self {
            Value::Bool(_) => ValueType::Bool,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
        }
    }

    /// Zero or `false`, which is also the result of an out-of-range load.
    pub fn zero(ty: ValueType) -> Value {
        Value::from_bits(ty, 0)
    }

    /// One, or `true`.
    pub fn one(ty: ValueType) -> Value {
        match ty {
            ValueType::Bool => Value::Bool(true),
            ValueType::U32 => Value::U32(1),
            ValueType::I32 => Value::I32(1),
            ValueType::U64 => Value::U64(1),
            ValueType::I64 => Value::I64(1),
            ValueType::F32 => Value::F32(1.0),
            ValueType::F64 => Value::F64(1.0),
        }
    }

    /// The value's bits, zero-extended.
    pub fn to_bits(self) -> u64 {
        match self {
            Value::Bool(x) => x.into(),
            Value::U32(x) => x.into(),
            Value::I32(x) => (x as u32).into(),
            Value::U64(x) => x,
            Value::I64(x) => x as u64,
            Value::F32(x) => x.to_bits().into(),
            Value::F64(x) => x.to_bits(),
        }
    }

    /// The value of type `ty` with these bits; bits beyond the type's width are ignored.
    pub fn from_bits(ty: ValueType, bits: u64) -> Value {
        match ty {
            ValueType::Bool => Value::Bool(bits & 1 != 0),
            ValueType::U32 => Value::U32(bits as u32),
            ValueType::I32 => Value::I32(bits as u32 as i32),
            ValueType::U64 => Value::U64(bits),
            ValueType::I64 => Value::I64(bits as i64),
            ValueType::F32 => Value::F32(f32::from_bits(bits as u32)),
            ValueType::F64 => Value::F64(f64::from_bits(bits)),
        }
    }

    /// The value itself, or the canonical quiet NaN for any NaN.
    pub fn canonical(self) -> Value {
        match self {
            Value::F32(x) if x.is_nan() => Value::F32(f32::from_bits(CANONICAL_NAN_F32)),
            Value::F64(x) if x.is_nan() => Value::F64(f64::from_bits(CANONICAL_NAN_F64)),
            other => other,
        }
    }

    /// The truth value, if this is one.
    pub fn as_bool(self) -> Option<bool> {
        if let Value::Bool(x) = self { Some(x) } else { None }
    }

    /// The `u32`, if this is one.
    pub fn as_u32(self) -> Option<u32> {
        if let Value::U32(x) = self { Some(x) } else { None }
    }

    /// An integer of any type as an exact number; `None` for `bool` and floats.
    pub fn as_integer(self) -> Option<i128> {
        match self {
            Value::U32(x) => Some(x.into()),
            Value::I32(x) => Some(x.into()),
            Value::U64(x) => Some(x.into()),
            Value::I64(x) => Some(x.into()),
            Value::Bool(_) | Value::F32(_) | Value::F64(_) => None,
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.ty() == other.ty() && self.to_bits() == other.to_bits()
    }
}

impl Eq for Value {}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.ty().hash(state);
        self.to_bits().hash(state);
    }
}

macro_rules! value_from {
    ($($variant:ident $ty:ty),*) => { $(
        impl From<$ty> for Value {
            fn from(x: $ty) -> Value {
                Value::$variant(x)
            }
        }
    )* };
}
value_from!(Bool bool, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        let check = |ty: DataType, value: Value, expected: u64| {
            assert_eq!(ty.narrow(value), expected, "{ty} of {value:?}");
        };
        check(DataType::U8, Value::U32(0x1FF), 0xFF);
        check(DataType::I16, Value::I32(-1), 0xFFFF);
        check(DataType::F16, Value::F32(2049.0), 0x6800); // a tie, rounds to the even 2048
        check(DataType::F16, Value::F32(2051.0), 0x6802); // a tie, rounds to the even 2052
        check(DataType::F16, Value::F32(65520.0), 0x7C00);
        check(DataType::F16, Value::F32(2f32.powi(-25)), 0);
        check(DataType::F16, Value::F32(f32::from_bits(0x3300_0001)), 1);
        check(DataType::Bf16, Value::F32(f32::from_bits(0x3F80_8000)), 0x3F80);
        check(DataType::Bf16, Value::F32(f32::from_bits(0x3F81_8000)), 0x3F82);
        check(DataType::Bf16, Value::F32(f32::MAX), 0x7F80);
        check(DataType::F16, Value::F32(f32::from_bits(0xFFC0_0001)), 0x7E00);
        check(DataType::Bf16, Value::F32(f32::from_bits(0xFFC0_0001)), 0x7FC0);
        check(DataType::F32, Value::F32(-f32::NAN), CANONICAL_NAN_F32.into());
    }

    #[test]
    fn half_floats_survive_a_load_and_a_store() {
        for ty in [DataType::F16, DataType::Bf16] {
            for bits in 0..=u16::MAX {
                let value = ty.load(&bits.to_le_bytes()).expect("two bytes are one element");
                let is_nan = matches!(value, Value::F32(x) if x.is_nan());
                let canonical = if ty == DataType::F16 { 0x7E00 } else { 0x7FC0 };
                assert_eq!(ty.narrow(value), if is_nan { canonical } else { bits.into() });
            }
        }
    }
}
