//! Intervals of integers: the possible values of integer and `bool` types.
//!
//! Each op maps intervals to an interval that contains every possible result. Bounds are computed
//! without wrapping; if the exact result may exceed the type, the interval is that of the type.
//! `bool` counts as 0 and 1. Floats have no interval, and results derived from them are known only
//! by type.

use crate::ops::Op;
use crate::types::{DataType, Value, ValueType};
use std::fmt;

/// All integers from `low` to `high`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    pub(crate) low: i128,
    pub(crate) high: i128,
}

impl Interval {
    /// No value. Its ends make it neutral in [`join`](Self::join).
    pub(crate) const EMPTY: Interval = Interval { low: i128::MAX, high: i128::MIN };

    /// From `low` to `high`.
    pub(crate) fn new(low: i128, high: i128) -> Interval {
        Interval { low, high }
    }

    /// The single value `value`.
    pub(crate) fn only(value: i128) -> Interval {
        Interval::new(value, value)
    }

    /// Every value of the type; unbounded for floats.
    pub(crate) fn of_type(ty: ValueType) -> Interval {
        match ty {
            ValueType::Bool => Interval::new(0, 1),
            ValueType::U32 => Interval::new(0, u32::MAX.into()),
            ValueType::I32 => Interval::new(i32::MIN.into(), i32::MAX.into()),
            ValueType::U64 => Interval::new(0, u64::MAX.into()),
            ValueType::I64 => Interval::new(i64::MIN.into(), i64::MAX.into()),
            ValueType::F32 | ValueType::F64 => Interval::new(i128::MIN, i128::MAX),
        }
    }

    /// Every value that a load from memory of this type can yield.
    pub(crate) fn of_element(element: DataType) -> Interval {
        match element {
            DataType::U8 => Interval::new(0, u8::MAX.into()),
            DataType::I8 => Interval::new(i8::MIN.into(), i8::MAX.into()),
            DataType::U16 => Interval::new(0, u16::MAX.into()),
            DataType::I16 => Interval::new(i16::MIN.into(), i16::MAX.into()),
            DataType::Bool
            | DataType::U32
            | DataType::I32
            | DataType::U64
            | DataType::I64
            | DataType::F16
            | DataType::Bf16
            | DataType::F32
            | DataType::F64 => Interval::of_type(element.value_type()),
        }
    }

    /// The interval of a constant.
    pub(crate) fn of_constant(value: Value) -> Interval {
        match value.as_bool().map(i128::from).or(value.as_integer()) {
            Some(exact) => Interval::only(exact),
            None => Interval::of_type(value.ty()),
        }
    }

    /// The value, if there is only one.
    pub(crate) fn single(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }

    /// The intersection; `None` if it is empty.
    pub(crate) fn meet(self, other: Interval) -> Option<Interval> {
        let both = Interval::new(self.low.max(other.low), self.high.min(other.high));
        (both.low <= both.high).then_some(both)
    }

    /// The intersection, which can be empty.
    pub(crate) fn both(self, other: Interval) -> Interval {
        self.meet(other).unwrap_or(Interval::EMPTY)
    }

    /// Whether it has no value.
    pub(crate) fn is_empty(self) -> bool {
        self.low > self.high
    }

    /// `f`, unless one of the intervals is empty.
    pub(crate) fn unless_empty(self, other: Interval, f: impl FnOnce() -> Interval) -> Interval {
        if self.is_empty() || other.is_empty() { Interval::EMPTY } else { f() }
    }

    /// The numbers below `count`; 0 if there are none.
    pub(crate) fn first(count: i128) -> Interval {
        Interval::new(0, (count - 1).max(0))
    }

    /// Whether the interval is contained in `other`.
    pub(crate) fn within(self, other: Interval) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The smallest interval that contains both.
    pub(crate) fn join(self, other: Interval) -> Interval {
        Interval::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// The smallest interval that contains the results of `f` on the corners; `None` if one of them
    /// is undefined.
    fn corners(self, other: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Interval> {
        let first = Interval::only(f(self.low, other.low)?);
        let rest = [f(self.low, other.high)?, f(self.high, other.low)?, f(self.high, other.high)?];
        Some(rest.into_iter().fold(first, |all, corner| all.join(Interval::only(corner))))
    }
}

/// The possible results of `op` for operands in these intervals; `operand` is the type of the first
/// operand, `result` that of the result.
pub(crate) fn transfer(op: Op, args: &[Interval], operand: ValueType, result: ValueType) -> Interval {
    let full = Interval::of_type(result);
    if operand.is_float() && !matches!(op, Op::Select) {
        return full;
    }
    let x = args[0];
    let y = *args.get(1).unwrap_or(&x);
    let z = *args.get(2).unwrap_or(&x);
    let exact = integer_transfer(op, [x, y, z], operand);
    exact.filter(|found| found.within(full)).unwrap_or(full)
}

/// The exact interval, before wrapping; `None` if unknown.
fn integer_transfer(op: Op, [x, y, z]: [Interval; 3], ty: ValueType) -> Option<Interval> {
    let width = i128::from(ty.bits());
    let pointwise = |f: fn(i128, i128) -> i128| Some(Interval::new(f(x.low, y.low), f(x.high, y.high)));
    let below_power = |high: i128| Interval::new(0, ((high + 1) as u128).next_power_of_two() as i128 - 1);
    let natural = x.low >= 0 && y.low >= 0;
    match op {
        Op::Add => x.corners(y, i128::checked_add),
        Op::Sub => x.corners(y, i128::checked_sub),
        Op::Mul => x.corners(y, i128::checked_mul),
        Op::Div if y.low > 0 => x.corners(y, i128::checked_div),
        Op::Div if natural => Some(Interval::new(0, x.high)),
        Op::Rem if natural => Some(Interval::new(0, x.high.min((y.high - 1).max(0)))),
        // A remainder has the sign of its dividend, and is smaller in magnitude than its divisor.
        Op::Rem => {
            let most = y.low.abs().max(y.high.abs()) - 1;
            let side = |end: i128| end.clamp(-most.max(0), most.max(0));
            Some(Interval::new(side(x.low.min(0)), side(x.high.max(0))))
        }
        Op::Div => None,
        Op::Min => pointwise(i128::min),
        Op::Max => pointwise(i128::max),
        Op::Clamp => {
            let raised = Interval::new(x.low.max(y.low), x.high.max(y.high));
            Some(Interval::new(raised.low.min(z.low), raised.high.min(z.high)))
        }
        Op::SatAdd => Some(saturate(Interval::new(x.low + y.low, x.high + y.high), ty)),
        Op::SatSub => Some(saturate(Interval::new(x.low - y.high, x.high - y.low), ty)),
        Op::MulHi if natural => Some(Interval::new(0, x.high.checked_mul(y.high)? >> width)),
        Op::Abs if x.low >= 0 => Some(x),
        Op::Sign => Some(Interval::new(x.low.signum(), x.high.signum())),
        Op::And if x.low >= 0 => Some(Interval::new(0, if y.low >= 0 { x.high.min(y.high) } else { x.high })),
        Op::And if y.low >= 0 => Some(Interval::new(0, y.high)),
        // A bit of the result is a bit of an operand, so it does not exceed the sum.
        Op::Or if natural => {
            let high = below_power(x.high.max(y.high)).high.min(x.high.checked_add(y.high)?);
            Some(Interval::new(x.low.max(y.low), high))
        }
        Op::Xor if natural => Some(below_power(x.high.max(y.high))),
        Op::Not if ty == ValueType::Bool => Some(Interval::new(1 - x.high, 1 - x.low)),
        Op::Shr => match y.single() {
            Some(count) => Some(Interval::new(x.low >> (count % width), x.high >> (count % width))),
            None => (x.low >= 0).then(|| Interval::new(0, x.high)),
        },
        Op::Shl => {
            let factor = 1i128 << (y.single()? % width);
            x.corners(Interval::only(factor), i128::checked_mul)
        }
        Op::Popcount | Op::Clz | Op::Ctz => Some(Interval::new(0, width)),
        Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => {
            decide(op, x, y).map(|b| Interval::only(b.into()))
        }
        Op::Select => match x.single() {
            Some(0) => Some(z),
            Some(_) => Some(y),
            None => Some(y.join(z)),
        },
        Op::ToBool if x.single() == Some(0) => Some(Interval::only(0)),
        Op::ToBool if x.low > 0 || x.high < 0 => Some(Interval::only(1)),
        // An integer that fits in the new type keeps its value.
        Op::ToU32 | Op::ToI32 | Op::ToU64 | Op::ToI64 => Some(x),
        Op::BitsU32 | Op::BitsI32 | Op::BitsU64 | Op::BitsI64 => Some(x),
        Op::MulHi
        | Op::Abs
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Not
        | Op::ToBool
        | Op::Neg
        | Op::AbsDiff
        | Op::RotateLeft
        | Op::RotateRight
        | Op::ReverseBits
        | Op::Fma
        | Op::Sqrt
        | Op::Rsqrt
        | Op::Floor
        | Op::Ceil
        | Op::Trunc
        | Op::Round
        | Op::Copysign
        | Op::IsNan
        | Op::IsInf
        | Op::IsFinite
        | Op::ToF32
        | Op::ToF64
        | Op::BitsF32
        | Op::BitsF64
        | crate::expanded_op!() => None,
    }
}

/// The values of the `k`th argument for which an op has a result in `result`, given the intervals
/// of the arguments; `None` if nothing follows. The types are those of the arguments and of the
/// result.
pub(crate) fn inverse(
    op: Op,
    args: [Interval; 2],
    k: usize,
    [ty, of]: [ValueType; 2],
    result: Interval,
) -> Option<Interval> {
    let [x, y] = args;
    let other = args[1 - k];
    if x.is_empty() || y.is_empty() || result.is_empty() {
        return None;
    }
    let natural = x.low >= 0 && y.low >= 0;
    // Without wrapping, the op is a function of integers.
    let exact = || integer_transfer(op, [x, y, y], ty).is_some_and(|all| all.within(Interval::of_type(of)));
    let rounded_up = |number: i128, by: i128| number.max(0).checked_add(by - 1).map(|sum| sum / by);
    match op {
        Op::Add if exact() => Some(Interval::new(result.low - other.high, result.high - other.low)),
        Op::Sub if exact() && k == 0 => {
            Some(Interval::new(result.low.checked_add(y.low)?, result.high.checked_add(y.high)?))
        }
        Op::Sub if exact() => Some(Interval::new(x.low - result.high, x.high - result.low)),
        Op::Mul if natural && other.low > 0 && exact() => {
            Some(Interval::new(rounded_up(result.low, other.high)?, result.high.max(0) / other.low))
        }
        Op::Div if k == 0 && natural && y.low > 0 && result.low >= 0 => {
            let high = result.high.checked_mul(y.high)?.checked_add(y.high - 1)?;
            Some(Interval::new(result.low.checked_mul(y.low)?, high))
        }
        Op::Shr if k == 0 && natural && result.low >= 0 => {
            let factor = 1i128 << (y.single()? % i128::from(ty.bits()));
            let high = result.high.checked_mul(factor)?.checked_add(factor - 1)?;
            Some(Interval::new(result.low.checked_mul(factor)?, high))
        }
        Op::Shl if k == 0 && natural && exact() => {
            let factor = 1i128 << (y.single()? % i128::from(ty.bits()));
            Some(Interval::new(rounded_up(result.low, factor)?, result.high.max(0) / factor))
        }
        Op::Min => Some(Interval { low: result.low, high: i128::MAX }),
        Op::Max => Some(Interval { low: i128::MIN, high: result.high }),
        Op::Or if natural => Some(Interval { low: i128::MIN, high: result.high }),
        Op::ToU32 | Op::ToI32 | Op::ToU64 | Op::ToI64 if k == 0 && exact() => Some(result),
        Op::BitsU32 | Op::BitsI32 | Op::BitsU64 | Op::BitsI64 if k == 0 && exact() => Some(result),
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Shr
        | Op::Shl
        | Op::Or
        | Op::ToU32
        | Op::ToI32
        | Op::ToU64
        | Op::ToI64
        | Op::BitsU32
        | Op::BitsI32
        | Op::BitsU64
        | Op::BitsI64
        | Op::Rem
        | Op::Clamp
        | Op::SatAdd
        | Op::SatSub
        | Op::Sign
        | Op::Popcount
        | Op::Clz
        | Op::Ctz
        | Op::Eq
        | Op::Ne
        | Op::Lt
        | Op::Le
        | Op::Gt
        | Op::Ge
        | Op::Select
        | Op::MulHi
        | Op::Abs
        | Op::And
        | Op::Xor
        | Op::Not
        | Op::ToBool
        | Op::Neg
        | Op::AbsDiff
        | Op::RotateLeft
        | Op::RotateRight
        | Op::ReverseBits
        | Op::Fma
        | Op::Sqrt
        | Op::Rsqrt
        | Op::Floor
        | Op::Ceil
        | Op::Trunc
        | Op::Round
        | Op::Copysign
        | Op::IsNan
        | Op::IsInf
        | Op::IsFinite
        | Op::ToF32
        | Op::ToF64
        | Op::BitsF32
        | Op::BitsF64
        | crate::expanded_op!() => None,
    }
}

fn saturate(interval: Interval, ty: ValueType) -> Interval {
    let full = Interval::of_type(ty);
    Interval::new(interval.low.clamp(full.low, full.high), interval.high.clamp(full.low, full.high))
}

/// Decides a comparison of integers, if the intervals allow it.
fn decide(op: Op, x: Interval, y: Interval) -> Option<bool> {
    let always = |holds: bool, fails: bool| if holds { Some(true) } else { fails.then_some(false) };
    let apart = x.meet(y).is_none();
    let same = x.single().is_some() && x == y;
    match op {
        Op::Eq => always(same, apart),
        Op::Ne => always(apart, same),
        Op::Lt => always(x.high < y.low, x.low >= y.high),
        Op::Le => always(x.high <= y.low, x.low > y.high),
        Op::Gt => always(x.low > y.high, x.high <= y.low),
        Op::Ge => always(x.low >= y.high, x.high < y.low),
        other => unreachable!("{other:?} is no comparison"),
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(value) => write!(f, "{value}"),
            None => write!(f, "{}..={}", self.low, self.high),
        }
    }
}

/// A relation that holds between two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    Different,
}

impl Relation {
    /// The relation implied by a comparison that is true or false; `None` if the op is not a
    /// comparison.
    pub(crate) fn of(op: Op, holds: bool) -> Option<Relation> {
        let row = [
            (Op::Lt, Relation::Less, Relation::GreaterEqual),
            (Op::Le, Relation::LessEqual, Relation::Greater),
            (Op::Gt, Relation::Greater, Relation::LessEqual),
            (Op::Ge, Relation::GreaterEqual, Relation::Less),
            (Op::Eq, Relation::Equal, Relation::Different),
            (Op::Ne, Relation::Different, Relation::Equal),
        ];
        row.into_iter().find(|row| row.0 == op).map(|row| if holds { row.1 } else { row.2 })
    }

    /// The relation with its operands exchanged.
    pub(crate) fn mirrored(self) -> Relation {
        match self {
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
            Relation::Equal | Relation::Different => self,
        }
    }

    /// The relation as an operator.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Relation::Less => "<",
            Relation::LessEqual => "<=",
            Relation::Greater => ">",
            Relation::GreaterEqual => ">=",
            Relation::Equal => "==",
            Relation::Different => "!=",
        }
    }

    /// The possible values of the left operand.
    pub(crate) fn left(self, left: Interval, right: Interval) -> Interval {
        match self {
            Relation::Less => Interval::new(i128::MIN, right.high - 1),
            Relation::LessEqual => Interval::new(i128::MIN, right.high),
            Relation::Greater => Interval::new(right.low + 1, i128::MAX),
            Relation::GreaterEqual => Interval::new(right.low, i128::MAX),
            Relation::Equal => right,
            // Only an end of the interval can be excluded.
            Relation::Different => match right.single() {
                Some(low) if low == left.low => Interval::new(low + 1, i128::MAX),
                Some(high) if high == left.high => Interval::new(i128::MIN, high - 1),
                Some(_) | None => left,
            },
        }
    }
}
