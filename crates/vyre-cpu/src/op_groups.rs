//! The table's ops, grouped by how machine code computes them.
//!
//! A function that emits one group takes that group's type, so that it handles every op it can be
//! given and no other.

use crate::piece::{IntOrder, Rounding};
use vyre_foundation::ir::Op;
use vyre_foundation::types::ValueType;

/// An op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpGroup {
    Arithmetic(Arithmetic),
    Integer(IntegerOp),
    Float(FloatOp),
    Logic(Logic),
    Compare(Comparison),
    Test(FloatTest),
    Count(BitCount),
    Shift(Shift),
    Select,
    /// Conversion of the value to this type.
    Cast(ValueType),
    /// The same bits as this type.
    Bitcast(ValueType),
}

/// Arithmetic on integers or floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Neg,
    Abs,
    Sign,
    Extreme(Extreme),
    Clamp,
}

/// Minimum or maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extreme {
    Min,
    Max,
}

/// Arithmetic on integers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntegerOp {
    Rem,
    SaturatingAdd,
    SaturatingSub,
    Distance,
    MulHigh,
    ReverseBits,
}

/// Arithmetic on floats only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Fma,
    Sqrt,
    ReciprocalSqrt,
    Round(Rounding),
    CopySign,
}

/// Bitwise logic, on integers or `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
    Not,
}

/// Comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Inequality(Inequality),
}

/// Order of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inequality {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Property of a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatTest {
    Nan,
    Infinite,
    Finite,
}

/// Count of an integer's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitCount {
    Ones,
    LeadingZeros,
    TrailingZeros,
}

/// Shift or rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Left,
    Right,
    RotateLeft,
    RotateRight,
}

impl OpGroup {
    /// Returns the group of an op.
    pub(crate) fn of(op: Op) -> OpGroup {
        use OpGroup::{Bitcast, Cast, Compare, Count, Float, Integer, Test};
        let arithmetic = OpGroup::Arithmetic;
        let logic = OpGroup::Logic;
        let shift = OpGroup::Shift;
        match op {
            Op::Add => arithmetic(Arithmetic::Add),
            Op::Sub => arithmetic(Arithmetic::Sub),
            Op::Mul => arithmetic(Arithmetic::Mul),
            Op::Div => arithmetic(Arithmetic::Div),
            Op::Neg => arithmetic(Arithmetic::Neg),
            Op::Abs => arithmetic(Arithmetic::Abs),
            Op::Sign => arithmetic(Arithmetic::Sign),
            Op::Min => arithmetic(Arithmetic::Extreme(Extreme::Min)),
            Op::Max => arithmetic(Arithmetic::Extreme(Extreme::Max)),
            Op::Clamp => arithmetic(Arithmetic::Clamp),
            Op::Rem => Integer(IntegerOp::Rem),
            Op::SatAdd => Integer(IntegerOp::SaturatingAdd),
            Op::SatSub => Integer(IntegerOp::SaturatingSub),
            Op::AbsDiff => Integer(IntegerOp::Distance),
            Op::MulHi => Integer(IntegerOp::MulHigh),
            Op::ReverseBits => Integer(IntegerOp::ReverseBits),
            Op::Fma => Float(FloatOp::Fma),
            Op::Sqrt => Float(FloatOp::Sqrt),
            Op::Rsqrt => Float(FloatOp::ReciprocalSqrt),
            Op::Floor => Float(FloatOp::Round(Rounding::Down)),
            Op::Ceil => Float(FloatOp::Round(Rounding::Up)),
            Op::Trunc => Float(FloatOp::Round(Rounding::Zero)),
            Op::Round => Float(FloatOp::Round(Rounding::Nearest)),
            Op::Copysign => Float(FloatOp::CopySign),
            Op::And => logic(Logic::And),
            Op::Or => logic(Logic::Or),
            Op::Xor => logic(Logic::Xor),
            Op::Not => logic(Logic::Not),
            Op::Eq => Compare(Comparison::Equal),
            Op::Ne => Compare(Comparison::NotEqual),
            Op::Lt => Compare(Comparison::Inequality(Inequality::Less)),
            Op::Le => Compare(Comparison::Inequality(Inequality::LessOrEqual)),
            Op::Gt => Compare(Comparison::Inequality(Inequality::Greater)),
            Op::Ge => Compare(Comparison::Inequality(Inequality::GreaterOrEqual)),
            Op::IsNan => Test(FloatTest::Nan),
            Op::IsInf => Test(FloatTest::Infinite),
            Op::IsFinite => Test(FloatTest::Finite),
            Op::Popcount => Count(BitCount::Ones),
            Op::Clz => Count(BitCount::LeadingZeros),
            Op::Ctz => Count(BitCount::TrailingZeros),
            Op::Shl => shift(Shift::Left),
            Op::Shr => shift(Shift::Right),
            Op::RotateLeft => shift(Shift::RotateLeft),
            Op::RotateRight => shift(Shift::RotateRight),
            Op::Select => OpGroup::Select,
            Op::ToBool => Cast(ValueType::Bool),
            Op::ToU32 => Cast(ValueType::U32),
            Op::ToI32 => Cast(ValueType::I32),
            Op::ToU64 => Cast(ValueType::U64),
            Op::ToI64 => Cast(ValueType::I64),
            Op::ToF32 => Cast(ValueType::F32),
            Op::ToF64 => Cast(ValueType::F64),
            Op::BitsU32 => Bitcast(ValueType::U32),
            Op::BitsI32 => Bitcast(ValueType::I32),
            Op::BitsU64 => Bitcast(ValueType::U64),
            Op::BitsI64 => Bitcast(ValueType::I64),
            Op::BitsF32 => Bitcast(ValueType::F32),
            Op::BitsF64 => Bitcast(ValueType::F64),
            vyre_foundation::expanded_op!() => {
                unreachable!("{op:?} was replaced by its expansion before the lowering")
            }
        }
    }
}

impl Inequality {
    /// Returns the order that an op compares by, if it is one.
    pub(crate) fn of(op: Op) -> Option<Inequality> {
        match OpGroup::of(op) {
            OpGroup::Compare(Comparison::Inequality(order)) => Some(order),
            OpGroup::Compare(Comparison::Equal | Comparison::NotEqual)
            | OpGroup::Arithmetic(_)
            | OpGroup::Integer(_)
            | OpGroup::Float(_)
            | OpGroup::Logic(_)
            | OpGroup::Test(_)
            | OpGroup::Count(_)
            | OpGroup::Shift(_)
            | OpGroup::Select
            | OpGroup::Cast(_)
            | OpGroup::Bitcast(_) => None,
        }
    }

    /// Returns the op that compares by this order.
    pub(crate) fn op(self) -> Op {
        match self {
            Inequality::Less => Op::Lt,
            Inequality::LessOrEqual => Op::Le,
            Inequality::Greater => Op::Gt,
            Inequality::GreaterOrEqual => Op::Ge,
        }
    }

    /// Returns the equivalent order with swapped operands.
    pub(crate) fn mirrored(self) -> Inequality {
        match self {
            Inequality::Less => Inequality::Greater,
            Inequality::LessOrEqual => Inequality::GreaterOrEqual,
            Inequality::Greater => Inequality::Less,
            Inequality::GreaterOrEqual => Inequality::LessOrEqual,
        }
    }

    /// Returns the machine's comparison of integers.
    pub(crate) fn of_integers(self, signed: bool) -> IntOrder {
        match (self, signed) {
            (Inequality::Less, true) => IntOrder::SignedLess,
            (Inequality::LessOrEqual, true) => IntOrder::SignedLessOrEqual,
            (Inequality::Greater, true) => IntOrder::SignedGreater,
            (Inequality::GreaterOrEqual, true) => IntOrder::SignedGreaterOrEqual,
            (Inequality::Less, false) => IntOrder::UnsignedLess,
            (Inequality::LessOrEqual, false) => IntOrder::UnsignedLessOrEqual,
            (Inequality::Greater, false) => IntOrder::UnsignedGreater,
            (Inequality::GreaterOrEqual, false) => IntOrder::UnsignedGreaterOrEqual,
        }
    }
}

impl Comparison {
    /// Returns the machine's comparison of integers.
    pub(crate) fn of_integers(self, signed: bool) -> IntOrder {
        match self {
            Comparison::Equal => IntOrder::Equal,
            Comparison::NotEqual => IntOrder::NotEqual,
            Comparison::Inequality(order) => order.of_integers(signed),
        }
    }
}
