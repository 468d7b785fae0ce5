//! Scalars: the kinds in naga types, and how each is represented in a program.

use crate::fault::{Fault, Result};
use naga::ScalarKind;
use vyre_foundation::ir::{DataType, Expr, Op, ValueType};

/// Scalar types of shaders. An `f16` is computed as an `f32` that is rounded after every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Bool,
    U32,
    I32,
    F16,
    F32,
    U64,
    I64,
    F64,
}

impl Kind {
    pub(super) const COUNT: usize = 8;
    pub(super) const ALL: [Kind; Kind::COUNT] =
        [Kind::Bool, Kind::U32, Kind::I32, Kind::F16, Kind::F32, Kind::U64, Kind::I64, Kind::F64];

    pub(super) fn of(scalar: naga::Scalar) -> Result<Kind> {
        Ok(match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => Kind::Bool,
            (ScalarKind::Uint, 4) => Kind::U32,
            (ScalarKind::Sint, 4) | (ScalarKind::AbstractInt, _) => Kind::I32,
            (ScalarKind::Float, 2) => Kind::F16,
            (ScalarKind::Float, 4) | (ScalarKind::AbstractFloat, _) => Kind::F32,
            (ScalarKind::Uint, 8) => Kind::U64,
            (ScalarKind::Sint, 8) => Kind::I64,
            (ScalarKind::Float, 8) => Kind::F64,
            (ScalarKind::Uint | ScalarKind::Sint | ScalarKind::Float, width) => {
                return Err(Fault::unsupported(format!("a number of {} bits", u32::from(width) * 8)));
            }
        })
    }

    /// Type of values of this kind in the program.
    pub(super) fn value(self) -> ValueType {
        match self {
            Kind::Bool => ValueType::Bool,
            Kind::U32 => ValueType::U32,
            Kind::I32 => ValueType::I32,
            Kind::F16 | Kind::F32 => ValueType::F32,
            Kind::U64 => ValueType::U64,
            Kind::I64 => ValueType::I64,
            Kind::F64 => ValueType::F64,
        }
    }

    /// Type of elements in memory.
    pub(super) fn data(self) -> DataType {
        match self {
            Kind::Bool => DataType::Bool,
            Kind::U32 => DataType::U32,
            Kind::I32 => DataType::I32,
            Kind::F16 => DataType::F16,
            Kind::F32 => DataType::F32,
            Kind::U64 => DataType::U64,
            Kind::I64 => DataType::I64,
            Kind::F64 => DataType::F64,
        }
    }

    /// Suffix for the names of variables of this kind.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::U32 => "u32",
            Kind::I32 => "i32",
            Kind::F16 => "f16",
            Kind::F32 => "f32",
            Kind::U64 => "u64",
            Kind::I64 => "i64",
            Kind::F64 => "f64",
        }
    }

    /// Size in bytes in host-shared memory.
    pub(super) fn width(self) -> u32 {
        match self {
            Kind::F16 => 2,
            Kind::Bool | Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
        }
    }

    pub(super) fn is_float(self) -> bool {
        match self {
            Kind::F16 | Kind::F32 | Kind::F64 => true,
            Kind::Bool | Kind::U32 | Kind::I32 | Kind::U64 | Kind::I64 => false,
        }
    }

    pub(super) fn is_signed(self) -> bool {
        match self {
            Kind::I32 | Kind::I64 => true,
            Kind::Bool | Kind::U32 | Kind::U64 | Kind::F16 | Kind::F32 | Kind::F64 => false,
        }
    }

    /// A number of this kind.
    pub(super) fn literal(self, value: f64) -> Expr {
        match self {
            Kind::Bool => Expr::bool(value != 0.0),
            Kind::U32 => Expr::u32(value as u32),
            Kind::I32 => Expr::i32(value as i32),
            Kind::F16 => round(Expr::f32(value as f32)),
            Kind::F32 => Expr::f32(value as f32),
            Kind::U64 => Expr::u64(value as u64),
            Kind::I64 => Expr::i64(value as i64),
            Kind::F64 => Expr::f64(value),
        }
    }

    pub(super) fn zero(self) -> Expr {
        match self {
            Kind::F16 => Expr::f32(0.0),
            Kind::Bool | Kind::U32 | Kind::I32 | Kind::F32 | Kind::U64 | Kind::I64 | Kind::F64 => {
                self.literal(0.0)
            }
        }
    }

    /// Rounds the result of an `f32` operation to this kind.
    pub(super) fn rounded(self, value: Expr) -> Expr {
        match self {
            Kind::F16 => round(value),
            Kind::Bool | Kind::U32 | Kind::I32 | Kind::F32 | Kind::U64 | Kind::I64 | Kind::F64 => value,
        }
    }

    /// Converts by value.
    pub(super) fn convert(self, value: Expr, to: Kind) -> Expr {
        let converted = if self.value() == to.value() { value } else { value.cast(to.value()) };
        if self == to || self == Kind::Bool { converted } else { to.rounded(converted) }
    }

    /// Reinterprets the bits as another kind of the same width; a bool is 0 or 1.
    pub(super) fn bits(self, value: Expr, to: Kind) -> Expr {
        if self == to {
            return value;
        }
        // The bits of a float made from bits are those bits, even for a NaN.
        let value = match value {
            Expr::Op(Op::BitsF32 | Op::BitsF64, args) if args.len() == 1 => args[0].clone(),
            other => other,
        };
        let op = match to {
            Kind::Bool => return value.differs(self.zero()),
            _ if self == Kind::Bool => return self.convert(value, to),
            Kind::F16 => return Expr::op(Op::BitsF16, [value]),
            Kind::U32 if self == Kind::F16 => Op::F16Bits,
            Kind::U32 => Op::BitsU32,
            Kind::I32 => Op::BitsI32,
            Kind::F32 => Op::BitsF32,
            Kind::U64 => Op::BitsU64,
            Kind::I64 => Op::BitsI64,
            Kind::F64 => Op::BitsF64,
        };
        Expr::op(op, [value])
    }
}

fn round(value: Expr) -> Expr {
    Expr::op(Op::BitsF16, [Expr::op(Op::F16Bits, [value])])
}
