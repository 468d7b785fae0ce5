//! Scalars: the kinds in naga types, and how each is represented in a program.

use crate::fault::{Fault, Result};
use naga::ScalarKind;
use vyre_foundation::ir::{DataType, Expr, Op, ValueType};

/// Scalar types of shaders. An `f16` is computed as an `f32` that is rounded after every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ScalarType {
    Bool,
    U32,
    I32,
    F16,
    F32,
    U64,
    I64,
    F64,
}

impl ScalarType {
    pub(super) const COUNT: usize = 8;
    pub(super) const ALL: [ScalarType; ScalarType::COUNT] = [
        ScalarType::Bool,
        ScalarType::U32,
        ScalarType::I32,
        ScalarType::F16,
        ScalarType::F32,
        ScalarType::U64,
        ScalarType::I64,
        ScalarType::F64,
    ];

    pub(super) fn of(scalar: naga::Scalar) -> Result<ScalarType> {
        Ok(match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => ScalarType::Bool,
            (ScalarKind::Uint, 4) => ScalarType::U32,
            (ScalarKind::Sint, 4) | (ScalarKind::AbstractInt, _) => ScalarType::I32,
            (ScalarKind::Float, 2) => ScalarType::F16,
            (ScalarKind::Float, 4) | (ScalarKind::AbstractFloat, _) => ScalarType::F32,
            (ScalarKind::Uint, 8) => ScalarType::U64,
            (ScalarKind::Sint, 8) => ScalarType::I64,
            (ScalarKind::Float, 8) => ScalarType::F64,
            (ScalarKind::Uint | ScalarKind::Sint | ScalarKind::Float, width) => {
                return Err(Fault::unsupported(format!("a number of {} bits", u32::from(width) * 8)));
            }
        })
    }

    /// Type of values of this kind in the program.
    pub(super) fn value(self) -> ValueType {
        match self {
            ScalarType::Bool => ValueType::Bool,
            ScalarType::U32 => ValueType::U32,
            ScalarType::I32 => ValueType::I32,
            ScalarType::F16 | ScalarType::F32 => ValueType::F32,
            ScalarType::U64 => ValueType::U64,
            ScalarType::I64 => ValueType::I64,
            ScalarType::F64 => ValueType::F64,
        }
    }

    /// Type of elements in memory.
    pub(super) fn data(self) -> DataType {
        match self {
            ScalarType::Bool => DataType::Bool,
            ScalarType::U32 => DataType::U32,
            ScalarType::I32 => DataType::I32,
            ScalarType::F16 => DataType::F16,
            ScalarType::F32 => DataType::F32,
            ScalarType::U64 => DataType::U64,
            ScalarType::I64 => DataType::I64,
            ScalarType::F64 => DataType::F64,
        }
    }

    /// Suffix for the names of variables of this kind.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            ScalarType::Bool => "bool",
            ScalarType::U32 => "u32",
            ScalarType::I32 => "i32",
            ScalarType::F16 => "f16",
            ScalarType::F32 => "f32",
            ScalarType::U64 => "u64",
            ScalarType::I64 => "i64",
            ScalarType::F64 => "f64",
        }
    }

    /// Size in bytes in host-shared memory.
    pub(super) fn width(self) -> u32 {
        match self {
            ScalarType::F16 => 2,
            ScalarType::Bool | ScalarType::U32 | ScalarType::I32 | ScalarType::F32 => 4,
            ScalarType::U64 | ScalarType::I64 | ScalarType::F64 => 8,
        }
    }

    pub(super) fn is_float(self) -> bool {
        match self {
            ScalarType::F16 | ScalarType::F32 | ScalarType::F64 => true,
            ScalarType::Bool | ScalarType::U32 | ScalarType::I32 | ScalarType::U64 | ScalarType::I64 => false,
        }
    }

    pub(super) fn is_signed(self) -> bool {
        match self {
            ScalarType::I32 | ScalarType::I64 => true,
            ScalarType::Bool
            | ScalarType::U32
            | ScalarType::U64
            | ScalarType::F16
            | ScalarType::F32
            | ScalarType::F64 => false,
        }
    }

    /// A number of this kind.
    pub(super) fn literal(self, value: f64) -> Expr {
        match self {
            ScalarType::Bool => Expr::bool(value != 0.0),
            ScalarType::U32 => Expr::u32(value as u32),
            ScalarType::I32 => Expr::i32(value as i32),
            ScalarType::F16 => round(Expr::f32(value as f32)),
            ScalarType::F32 => Expr::f32(value as f32),
            ScalarType::U64 => Expr::u64(value as u64),
            ScalarType::I64 => Expr::i64(value as i64),
            ScalarType::F64 => Expr::f64(value),
        }
    }

    pub(super) fn zero(self) -> Expr {
        match self {
            ScalarType::F16 => Expr::f32(0.0),
            ScalarType::Bool
            | ScalarType::U32
            | ScalarType::I32
            | ScalarType::F32
            | ScalarType::U64
            | ScalarType::I64
            | ScalarType::F64 => self.literal(0.0),
        }
    }

    /// Rounds the result of an `f32` operation to this kind.
    pub(super) fn rounded(self, value: Expr) -> Expr {
        match self {
            ScalarType::F16 => round(value),
            ScalarType::Bool
            | ScalarType::U32
            | ScalarType::I32
            | ScalarType::F32
            | ScalarType::U64
            | ScalarType::I64
            | ScalarType::F64 => value,
        }
    }

    /// Converts by value.
    pub(super) fn convert(self, value: Expr, to: ScalarType) -> Expr {
        let converted = if self.value() == to.value() { value } else { value.cast(to.value()) };
        if self == to || self == ScalarType::Bool { converted } else { to.rounded(converted) }
    }

    /// Reinterprets the bits as another kind of the same width; a bool is 0 or 1.
    pub(super) fn bits(self, value: Expr, to: ScalarType) -> Expr {
        if self == to {
            return value;
        }
        // The bits of a float made from bits are those bits, even for a NaN.
        let value = match value {
            Expr::Op(Op::BitsF32 | Op::BitsF64, args) if args.len() == 1 => args[0].clone(),
            other => other,
        };
        let op = match to {
            ScalarType::Bool => return value.differs(self.zero()),
            _ if self == ScalarType::Bool => return self.convert(value, to),
            ScalarType::F16 => return Expr::op(Op::BitsF16, [value]),
            ScalarType::U32 if self == ScalarType::F16 => Op::F16Bits,
            ScalarType::U32 => Op::BitsU32,
            ScalarType::I32 => Op::BitsI32,
            ScalarType::F32 => Op::BitsF32,
            ScalarType::U64 => Op::BitsU64,
            ScalarType::I64 => Op::BitsI64,
            ScalarType::F64 => Op::BitsF64,
        };
        Expr::op(op, [value])
    }
}

fn round(value: Expr) -> Expr {
    Expr::op(Op::BitsF16, [Expr::op(Op::F16Bits, [value])])
}
