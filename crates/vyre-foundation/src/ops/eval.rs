//! The semantics of every pure op. The interpreter, constant folding and the law tests all call
//! `eval`.
//!
//! NaN results are canonical, so that equal results have equal bits. An op whose operand types do
//! not match its signature gives `None`; for types that pass
//! [`Signature::result`](super::Signature::result) evaluation is total.

use super::table::Op;
use crate::types::{Value, ValueType};

/// Evaluates `op` on `args`; `None` if the op does not take values of these types.
///
/// ```
/// use vyre_foundation::ops::{Op, eval};
/// use vyre_foundation::types::Value;
/// assert_eq!(eval(Op::Div, &[Value::U32(7), Value::U32(0)]), Some(Value::U32(7)));
/// assert_eq!(eval(Op::ToU32, &[Value::F32(-1.0)]), Some(Value::U32(0)));
/// assert_eq!(eval(Op::Add, &[Value::U32(1), Value::F32(1.0)]), None);
/// ```
pub fn eval(op: Op, args: &[Value]) -> Option<Value> {
    if args.len() != op.row().signature.arity() {
        return None;
    }
    if op.row().expansion_error.is_some() {
        return crate::math::evaluate(op, args).map(Value::canonical);
    }
    let x = args[0];
    let y = *args.get(1).unwrap_or(&x);
    let z = *args.get(2).unwrap_or(&x);
    apply(op, x, y, z).map(Value::canonical)
}

/// Applies one generic expression to the common integer type of both operands.
macro_rules! integers {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $body:expr) => {
        match ($x, $y) {
            (Value::U32($a), Value::U32($b)) => Some(Value::from($body)),
            (Value::I32($a), Value::I32($b)) => Some(Value::from($body)),
            (Value::U64($a), Value::U64($b)) => Some(Value::from($body)),
            (Value::I64($a), Value::I64($b)) => Some(Value::from($body)),
            _ => None,
        }
    };
    ($x:expr, |$a:ident| $body:expr) => {
        match $x {
            Value::U32($a) => Some(Value::from($body)),
            Value::I32($a) => Some(Value::from($body)),
            Value::U64($a) => Some(Value::from($body)),
            Value::I64($a) => Some(Value::from($body)),
            Value::Bool(_) | Value::F32(_) | Value::F64(_) => None,
        }
    };
}

/// Applies one expression to two booleans.
macro_rules! booleans {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $body:expr) => {
        if let (Value::Bool($a), Value::Bool($b)) = ($x, $y) { Some(Value::Bool($body)) } else { None }
    };
}

/// Applies one generic expression to the common float type of the operands.
macro_rules! floats {
    ($x:expr, $y:expr, |$a:ident, $b:ident| $body:expr) => {
        match ($x, $y) {
            (Value::F32($a), Value::F32($b)) => Some(Value::from($body)),
            (Value::F64($a), Value::F64($b)) => Some(Value::from($body)),
            _ => None,
        }
    };
    ($x:expr, |$a:ident| $body:expr) => {
        match $x {
            Value::F32($a) => Some(Value::from($body)),
            Value::F64($a) => Some(Value::from($body)),
            Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => None,
        }
    };
}

/// Evaluates an op; operands beyond its arity are ignored.
fn apply(op: Op, x: Value, y: Value, z: Value) -> Option<Value> {
    match op {
        Op::Add => integers!(x, y, |a, b| a.wrapping_add(b)).or(floats!(x, y, |a, b| a + b)),
        Op::Sub => integers!(x, y, |a, b| a.wrapping_sub(b)).or(floats!(x, y, |a, b| a - b)),
        Op::Mul => integers!(x, y, |a, b| a.wrapping_mul(b)).or(floats!(x, y, |a, b| a * b)),
        Op::Div => {
            integers!(x, y, |a, b| if b == 0 { a } else { a.wrapping_div(b) }).or(floats!(x, y, |a, b| a / b))
        }
        Op::Rem => integers!(x, y, |a, b| if b == 0 { b } else { a.wrapping_rem(b) }),
        Op::Neg => integers!(x, |a| a.wrapping_neg()).or(floats!(x, |a| -a)),
        Op::Abs => absolute(x),
        Op::Sign => sign(x),
        Op::Min => minimum(x, y),
        Op::Max => maximum(x, y),
        Op::Clamp => minimum(maximum(x, y)?, z),
        Op::SatAdd => integers!(x, y, |a, b| a.saturating_add(b)),
        Op::SatSub => integers!(x, y, |a, b| a.saturating_sub(b)),
        Op::AbsDiff => integers!(x, y, |a, b| a.abs_diff(b)),
        Op::MulHi => multiply_high(x, y),
        Op::Fma => match (x, y, z) {
            (Value::F32(a), Value::F32(b), Value::F32(c)) => Some(Value::F32(a.mul_add(b, c))),
            (Value::F64(a), Value::F64(b), Value::F64(c)) => Some(Value::F64(a.mul_add(b, c))),
            _ => None,
        },
        Op::Sqrt => floats!(x, |a| a.sqrt()),
        Op::Rsqrt => floats!(x, |a| a.sqrt().recip()),
        Op::Floor => floats!(x, |a| a.floor()),
        Op::Ceil => floats!(x, |a| a.ceil()),
        Op::Trunc => floats!(x, |a| a.trunc()),
        Op::Round => floats!(x, |a| a.round_ties_even()),
        Op::Copysign => floats!(x, y, |a, b| if b.is_nan() { a.abs() } else { a.copysign(b) }),
        Op::IsNan => floats!(x, |a| a.is_nan()),
        Op::IsInf => floats!(x, |a| a.is_infinite()),
        Op::IsFinite => floats!(x, |a| a.is_finite()),
        crate::expanded_op!() => unreachable!("{op:?} is evaluated by its expansion"),
        Op::And => booleans!(x, y, |a, b| a & b).or(integers!(x, y, |a, b| a & b)),
        Op::Or => booleans!(x, y, |a, b| a | b).or(integers!(x, y, |a, b| a | b)),
        Op::Xor => booleans!(x, y, |a, b| a ^ b).or(integers!(x, y, |a, b| a ^ b)),
        Op::Not => booleans!(x, y, |a, _b| !a).or(integers!(x, |a| !a)),
        Op::Shl => integers!(x, |a| a.wrapping_shl(y.as_u32()?)),
        Op::Shr => integers!(x, |a| a.wrapping_shr(y.as_u32()?)),
        Op::RotateLeft => integers!(x, |a| a.rotate_left(y.as_u32()?)),
        Op::RotateRight => integers!(x, |a| a.rotate_right(y.as_u32()?)),
        Op::Popcount => integers!(x, |a| a.count_ones()),
        Op::Clz => integers!(x, |a| a.leading_zeros()),
        Op::Ctz => integers!(x, |a| a.trailing_zeros()),
        Op::ReverseBits => integers!(x, |a| a.reverse_bits()),
        Op::Eq => equal(x, y).map(Value::Bool),
        Op::Ne => equal(x, y).map(|same| Value::Bool(!same)),
        Op::Lt => integers!(x, y, |a, b| a < b).or(floats!(x, y, |a, b| a < b)),
        Op::Le => integers!(x, y, |a, b| a <= b).or(floats!(x, y, |a, b| a <= b)),
        Op::Gt => integers!(x, y, |a, b| a > b).or(floats!(x, y, |a, b| a > b)),
        Op::Ge => integers!(x, y, |a, b| a >= b).or(floats!(x, y, |a, b| a >= b)),
        Op::Select => (y.ty() == z.ty()).then_some(if x.as_bool()? { y } else { z }),
        Op::ToBool => Some(cast(x, ValueType::Bool)),
        Op::ToU32 => Some(cast(x, ValueType::U32)),
        Op::ToI32 => Some(cast(x, ValueType::I32)),
        Op::ToU64 => Some(cast(x, ValueType::U64)),
        Op::ToI64 => Some(cast(x, ValueType::I64)),
        Op::ToF32 => Some(cast(x, ValueType::F32)),
        Op::ToF64 => Some(cast(x, ValueType::F64)),
        Op::BitsU32 => bitcast(x, ValueType::U32),
        Op::BitsI32 => bitcast(x, ValueType::I32),
        Op::BitsU64 => bitcast(x, ValueType::U64),
        Op::BitsI64 => bitcast(x, ValueType::I64),
        Op::BitsF32 => bitcast(x, ValueType::F32),
        Op::BitsF64 => bitcast(x, ValueType::F64),
    }
}

fn absolute(x: Value) -> Option<Value> {
    match x {
        Value::U32(_) | Value::U64(_) => Some(x),
        Value::I32(a) => Some(Value::I32(a.wrapping_abs())),
        Value::I64(a) => Some(Value::I64(a.wrapping_abs())),
        Value::F32(a) => Some(Value::F32(a.abs())),
        Value::F64(a) => Some(Value::F64(a.abs())),
        Value::Bool(_) => None,
    }
}

fn sign(x: Value) -> Option<Value> {
    match x {
        Value::U32(a) => Some(Value::U32(a.min(1))),
        Value::U64(a) => Some(Value::U64(a.min(1))),
        Value::I32(a) => Some(Value::I32(a.signum())),
        Value::I64(a) => Some(Value::I64(a.signum())),
        Value::F32(_) | Value::F64(_) => floats!(x, |a| {
            if a == 0.0 {
                a
            } else if a < 0.0 {
                -1.0
            } else {
                1.0
            }
        }),
        Value::Bool(_) => None,
    }
}

fn minimum(x: Value, y: Value) -> Option<Value> {
    let float = floats!(x, y, |a, b| {
        if a.is_nan() || (a == b && b.is_sign_negative()) {
            b
        } else if b.is_nan() || a <= b {
            a
        } else {
            b
        }
    });
    integers!(x, y, |a, b| a.min(b)).or(float)
}

fn maximum(x: Value, y: Value) -> Option<Value> {
    let float = floats!(x, y, |a, b| {
        if a.is_nan() || (a == b && b.is_sign_positive()) {
            b
        } else if b.is_nan() || a >= b {
            a
        } else {
            b
        }
    });
    integers!(x, y, |a, b| a.max(b)).or(float)
}

fn multiply_high(x: Value, y: Value) -> Option<Value> {
    match (x, y) {
        (Value::U32(a), Value::U32(b)) => Some(Value::U32(((u64::from(a) * u64::from(b)) >> 32) as u32)),
        (Value::I32(a), Value::I32(b)) => Some(Value::I32(((i64::from(a) * i64::from(b)) >> 32) as i32)),
        (Value::U64(a), Value::U64(b)) => Some(Value::U64(((u128::from(a) * u128::from(b)) >> 64) as u64)),
        (Value::I64(a), Value::I64(b)) => Some(Value::I64(((i128::from(a) * i128::from(b)) >> 64) as i64)),
        _ => None,
    }
}

fn equal(x: Value, y: Value) -> Option<bool> {
    match (x, y) {
        (Value::F32(a), Value::F32(b)) => Some(a == b),
        (Value::F64(a), Value::F64(b)) => Some(a == b),
        _ => (x.ty() == y.ty()).then_some(x == y),
    }
}

/// Rust's `as` has the required semantics: it truncates and saturates floats, wraps integers, and
/// rounds once.
fn cast(x: Value, to: ValueType) -> Value {
    macro_rules! convert {
        ($a:expr) => {
            match to {
                ValueType::Bool => Value::Bool($a != (0 as _)),
                ValueType::U32 => Value::U32($a as u32),
                ValueType::I32 => Value::I32($a as i32),
                ValueType::U64 => Value::U64($a as u64),
                ValueType::I64 => Value::I64($a as i64),
                ValueType::F32 => Value::F32($a as f32),
                ValueType::F64 => Value::F64($a as f64),
            }
        };
    }
    match x {
        Value::Bool(a) => convert!(u8::from(a)),
        Value::U32(a) => convert!(a),
        Value::I32(a) => convert!(a),
        Value::U64(a) => convert!(a),
        Value::I64(a) => convert!(a),
        Value::F32(a) => convert!(a),
        Value::F64(a) => convert!(a),
    }
}

fn bitcast(x: Value, to: ValueType) -> Option<Value> {
    let same_width = x.ty().bits() == to.bits() && x.ty() != ValueType::Bool;
    same_width.then(|| Value::from_bits(to, x.canonical().to_bits()))
}
