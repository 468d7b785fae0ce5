//! Table ops, each emitted as the exact operations that devices agree on.

use super::build::Expr;
use super::{Emitter, unsigned};
use naga::{BinaryOperator, MathFunction, ScalarKind, UnaryOperator};
use vyre_foundation::kernel::ValueId;
use vyre_foundation::ops::Op;
use vyre_foundation::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};

impl Emitter<'_> {
    pub(super) fn op(&mut self, op: Op, operands: &[ValueId], result: ValueType) -> Expr {
        let ty = self.kernel.ty(operands[0]);
        let args: Vec<Expr> = operands.iter().map(|&operand| self.value(operand)).collect();
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Op::Add => self.build.binary(BinaryOperator::Add, x, y),
            Op::Sub if ty.is_float() && (self.traits.folds_floats || self.traits.rewrites_floats) => {
                // The driver assumes that x - x is zero, even if x is infinite, or that (x + y) - y
                // is x.
                let negated = self.flipped(y, ty);
                self.build.binary(BinaryOperator::Add, x, negated)
            }
            Op::Sub => self.build.binary(BinaryOperator::Subtract, x, y),
            Op::Mul => self.build.binary(BinaryOperator::Multiply, x, y),
            // Naga's integer division follows vyre's rules: x / 0 = x, x % 0 = 0, MIN / -1 = MIN,
            // MIN % -1 = 0. It rejects a divisor that is a literal zero.
            Op::Div if self.is_integer_zero(operands[1]) => x,
            Op::Rem if self.is_integer_zero(operands[1]) => y,
            Op::Div => self.build.binary(BinaryOperator::Divide, x, y),
            Op::Rem => self.build.binary(BinaryOperator::Modulo, x, y),
            Op::Neg if ty.is_float() => self.flipped(x, ty),
            Op::Neg => {
                let zero = self.build.constant(Value::zero(ty));
                self.build.binary(BinaryOperator::Subtract, zero, x)
            }
            Op::Abs => self.absolute(x, ty),
            Op::Min | Op::Max => self.extreme(op, [x, y], ty),
            Op::Fma => self.build.math(MathFunction::Fma, &[x, y, args[2]]),
            Op::Sqrt => self.build.math(MathFunction::Sqrt, &[x]),
            Op::Floor => self.integral(MathFunction::Floor, x, ty),
            Op::Ceil => self.integral(MathFunction::Ceil, x, ty),
            Op::Trunc => self.integral(MathFunction::Trunc, x, ty),
            Op::Round => self.integral(MathFunction::Round, x, ty),
            Op::IsNan => self.is_nan(x, ty),
            Op::IsInf => self.against_infinity(BinaryOperator::Equal, x, ty),
            Op::IsFinite => self.against_infinity(BinaryOperator::Less, x, ty),
            Op::And => self.bits(ty, [BinaryOperator::And, BinaryOperator::LogicalAnd], x, y),
            Op::Or => self.bits(ty, [BinaryOperator::InclusiveOr, BinaryOperator::LogicalOr], x, y),
            Op::Xor => self.bits(ty, [BinaryOperator::ExclusiveOr, BinaryOperator::NotEqual], x, y),
            Op::Not if ty == ValueType::Bool => self.not(x),
            Op::Not => self.build.unary(UnaryOperator::BitwiseNot, x),
            Op::Shl => self.shifted(BinaryOperator::ShiftLeft, x, (operands[1], ty)),
            Op::Shr => self.shifted(BinaryOperator::ShiftRight, x, (operands[1], ty)),
            Op::Popcount | Op::Clz | Op::Ctz => self.counted_bits(op, x, ty),
            Op::ReverseBits => self.reversed(x, ty),
            Op::Eq => self.build.binary(BinaryOperator::Equal, x, y),
            Op::Ne if ty.is_float() => {
                // Naga's `!=` is false for a NaN.
                let equal = self.build.binary(BinaryOperator::Equal, x, y);
                self.not(equal)
            }
            Op::Ne => self.build.binary(BinaryOperator::NotEqual, x, y),
            Op::Lt => self.build.binary(BinaryOperator::Less, x, y),
            Op::Le => self.build.binary(BinaryOperator::LessEqual, x, y),
            Op::Gt => self.build.binary(BinaryOperator::Greater, x, y),
            Op::Ge => self.build.binary(BinaryOperator::GreaterEqual, x, y),
            Op::Select => {
                let known = operands[1..].iter().all(|&id| self.kernel.values[id.index()].uniform);
                let other = if known { self.unconfused(args[2], result) } else { args[2] };
                self.build.select(x, y, other)
            }
            Op::ToBool | Op::ToU32 | Op::ToI32 | Op::ToU64 | Op::ToI64 | Op::ToF32 | Op::ToF64 => {
                self.cast(x, ty, result)
            }
            Op::BitsU32 | Op::BitsI32 | Op::BitsU64 | Op::BitsI64 | Op::BitsF32 | Op::BitsF64 => {
                self.reinterpreted(x, ty, result)
            }
            Op::Clamp
            | Op::Sign
            | Op::SatAdd
            | Op::SatSub
            | Op::AbsDiff
            | Op::RotateLeft
            | Op::RotateRight
            | Op::MulHi
            | Op::Rsqrt
            | Op::Copysign => unreachable!("{op:?} is decomposed before emission"),
            vyre_foundation::expanded_op!() => unreachable!("{op:?} is expanded before emission"),
        }
    }

    pub(super) fn is_integer_zero(&self, id: ValueId) -> bool {
        self.constants[id.index()].and_then(Value::as_integer) == Some(0)
    }

    /// A constant of the kernel. If the driver folds arithmetic on zeros, float zeros are made from
    /// the opaque zero; if it rewrites arithmetic, all floats are.
    pub(super) fn constant(&mut self, value: Value) -> Expr {
        let is_zero = match value {
            Value::F32(x) => x == 0.0,
            Value::F64(x) => x == 0.0,
            Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => false,
        };
        let opaque = (is_zero && self.traits.folds_floats) || self.traits.rewrites_floats;
        if !value.ty().is_float() || !opaque {
            return self.build.constant(value);
        }
        let bits = self.build.constant(Value::from_bits(unsigned(value.ty()), value.to_bits()));
        let zero = self.zero_bits(value.ty());
        let bits = self.build.binary(BinaryOperator::ExclusiveOr, zero, bits);
        self.build.bitcast(bits, ScalarKind::Float)
    }

    /// The opaque zero as an unsigned integer of the type's width.
    pub(super) fn zero_bits(&mut self, ty: ValueType) -> Expr {
        if ty.bits() == 64 { self.build.convert(self.zero, ValueType::U64) } else { self.zero }
    }

    fn bits(&mut self, ty: ValueType, [integer, boolean]: [BinaryOperator; 2], x: Expr, y: Expr) -> Expr {
        self.build.binary(if ty == ValueType::Bool { boolean } else { integer }, x, y)
    }

    /// The float with its sign flipped.
    fn flipped(&mut self, x: Expr, ty: ValueType) -> Expr {
        let bits = self.build.bitcast(x, ScalarKind::Uint);
        let sign = self.bit_pattern(ty, 1 << (ty.bits() - 1));
        let bits = self.build.binary(BinaryOperator::ExclusiveOr, bits, sign);
        self.build.bitcast(bits, ScalarKind::Float)
    }

    /// A constant of the unsigned type as wide as `ty`.
    fn bit_pattern(&mut self, ty: ValueType, bits: u64) -> Expr {
        self.build.constant(Value::from_bits(unsigned(ty), bits))
    }

    /// The bits of a float without its sign.
    fn size_bits(&mut self, x: Expr, ty: ValueType) -> Expr {
        let bits = self.build.bitcast(x, ScalarKind::Uint);
        let mask = self.bit_pattern(ty, (1 << (ty.bits() - 1)) - 1);
        self.build.binary(BinaryOperator::And, bits, mask)
    }

    fn absolute(&mut self, x: Expr, ty: ValueType) -> Expr {
        if ty.is_float() {
            let bits = self.size_bits(x, ty);
            return self.build.bitcast(bits, ScalarKind::Float);
        }
        if !ty.is_signed_integer() {
            return x;
        }
        let zero = self.build.constant(Value::zero(ty));
        let negated = self.build.binary(BinaryOperator::Subtract, zero, x);
        let negative = self.build.binary(BinaryOperator::Less, x, zero);
        self.build.select(negative, negated, x)
    }

    /// Rounds to an integral value and keeps the operand's sign. Devices that implement this only
    /// for `f32` emulate it with additions for `f64` and lose the sign of a zero.
    fn integral(&mut self, fun: MathFunction, x: Expr, ty: ValueType) -> Expr {
        let rounded = self.build.math(fun, &[x]);
        if ty != ValueType::F64 {
            return rounded;
        }
        let [rounded, bits] = [rounded, x].map(|float| self.build.bitcast(float, ScalarKind::Uint));
        let sign = self.bit_pattern(ty, 1 << 63);
        let sign = self.build.binary(BinaryOperator::And, bits, sign);
        let bits = self.build.binary(BinaryOperator::InclusiveOr, rounded, sign);
        self.build.bitcast(bits, ScalarKind::Float)
    }

    /// Compares a float's magnitude with infinity's, as bits.
    fn against_infinity(&mut self, op: BinaryOperator, x: Expr, ty: ValueType) -> Expr {
        let bits = self.size_bits(x, ty);
        let infinity = match ty {
            ValueType::F64 => f64::INFINITY.to_bits(),
            ValueType::F32
            | ValueType::Bool
            | ValueType::U32
            | ValueType::I32
            | ValueType::U64
            | ValueType::I64 => f32::INFINITY.to_bits().into(),
        };
        let infinity = self.bit_pattern(ty, infinity);
        self.build.binary(op, bits, infinity)
    }

    pub(super) fn is_nan(&mut self, x: Expr, ty: ValueType) -> Expr {
        self.against_infinity(BinaryOperator::Greater, x, ty)
    }

    /// A float's bits, with every NaN made canonical.
    pub(super) fn canonical_bits(&mut self, x: Expr, ty: ValueType) -> Expr {
        let is_nan = self.is_nan(x, ty);
        let bits = self.build.bitcast(x, ScalarKind::Uint);
        let canonical = if ty == ValueType::F64 { CANONICAL_NAN_F64 } else { CANONICAL_NAN_F32.into() };
        let canonical = self.bit_pattern(ty, canonical);
        self.build.select(is_nan, canonical, bits)
    }

    /// `min` or `max`. Equal floats differ at most in the sign of a zero: `or` of the bits yields
    /// -0.0, `and` yields +0.0. A NaN loses to the other operand.
    pub(super) fn extreme(&mut self, op: Op, [x, y]: [Expr; 2], ty: ValueType) -> Expr {
        let least = op == Op::Min;
        if !ty.is_float() {
            return self.build.math(if least { MathFunction::Min } else { MathFunction::Max }, &[x, y]);
        }
        let order = if least { BinaryOperator::Less } else { BinaryOperator::Greater };
        let x_wins = self.build.binary(order, x, y);
        let chosen = self.build.select(x_wins, x, y);
        let [x_bits, y_bits] = [x, y].map(|float| self.build.bitcast(float, ScalarKind::Uint));
        let zeros = if least { BinaryOperator::InclusiveOr } else { BinaryOperator::And };
        let merged = self.build.binary(zeros, x_bits, y_bits);
        let merged = self.build.bitcast(merged, ScalarKind::Float);
        let equal = self.build.binary(BinaryOperator::Equal, x, y);
        let chosen = self.build.select(equal, merged, chosen);
        // With a NaN no comparison holds, so `y` was chosen.
        let y_is_nan = self.is_nan(y, ty);
        self.build.select(y_is_nan, x, chosen)
    }

    /// A shift with its count taken modulo the width.
    fn shifted(&mut self, op: BinaryOperator, x: Expr, (count, ty): (ValueId, ValueType)) -> Expr {
        // Naga rejects a literal count that is too large.
        if let Some(Value::U32(count)) = self.constants[count.index()] {
            return self.build.with_u32(op, x, count % ty.bits());
        }
        let count = self.value(count);
        let count = self.build.with_u32(BinaryOperator::And, count, ty.bits() - 1);
        self.build.binary(op, x, count)
    }

    /// Lower and upper word of a 64-bit integer.
    pub(super) fn halves(&mut self, x: Expr, ty: ValueType) -> [Expr; 2] {
        let bits = if ty == ValueType::U64 { x } else { self.build.bitcast(x, ScalarKind::Uint) };
        let high = self.build.with_u32(BinaryOperator::ShiftRight, bits, 32);
        [bits, high].map(|half| self.build.convert(half, ValueType::U32))
    }

    fn counted_bits(&mut self, op: Op, x: Expr, ty: ValueType) -> Expr {
        let fun = match op {
            Op::Popcount => MathFunction::CountOneBits,
            Op::Clz => MathFunction::CountLeadingZeros,
            _ => MathFunction::CountTrailingZeros,
        };
        if ty.bits() == 32 {
            let bits = self.unsigned_bits(x, ty);
            return self.build.math(fun, &[bits]);
        }
        let halves = self.halves(x, ty);
        let [low, high] = halves.map(|half| self.build.math(fun, &[half]));
        if op == Op::Popcount {
            return self.build.binary(BinaryOperator::Add, low, high);
        }
        // The half that is counted first, and the count that continues when it is all zeros.
        let (first, count, rest) =
            if op == Op::Clz { (halves[1], high, low) } else { (halves[0], low, high) };
        let whole = self.build.with_u32(BinaryOperator::Add, rest, 32);
        let empty = self.build.with_u32(BinaryOperator::Equal, first, 0);
        self.build.select(empty, whole, count)
    }

    fn reversed(&mut self, x: Expr, ty: ValueType) -> Expr {
        let bits = if ty.bits() == 32 {
            let bits = self.unsigned_bits(x, ty);
            self.build.math(MathFunction::ReverseBits, &[bits])
        } else {
            let [low, high] =
                self.halves(x, ty).map(|half| self.build.math(MathFunction::ReverseBits, &[half]));
            self.joined(high, low)
        };
        if ty.is_signed_integer() { self.build.bitcast(bits, ScalarKind::Sint) } else { bits }
    }

    fn cast(&mut self, x: Expr, from: ValueType, to: ValueType) -> Expr {
        if from == to {
            return x;
        }
        if to == ValueType::Bool {
            return self.is_not_zero(x, from);
        }
        match from {
            ValueType::Bool => {
                let [one, zero] = [Value::one(to), Value::zero(to)].map(|value| self.constant(value));
                let zero = self.unconfused(zero, to);
                self.build.select(x, one, zero)
            }
            ValueType::F32 | ValueType::F64 if to.is_float() => self.build.convert(x, to),
            ValueType::F32 | ValueType::F64 => self.saturated(x, from, to),
            ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 if to.is_float() => {
                // A zero that the driver can derive must not become a literal one.
                let opaque = self.traits.folds_floats && from.bits() == 32;
                let x = if opaque { self.disguised(x, from) } else { x };
                self.build.convert(x, to)
            }
            ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => self.resized(x, from, to),
        }
    }

    fn disguised(&mut self, x: Expr, ty: ValueType) -> Expr {
        let bits = self.zero_bits(ty);
        let zero = if ty.is_signed_integer() { self.build.bitcast(bits, ScalarKind::Sint) } else { bits };
        self.build.binary(BinaryOperator::ExclusiveOr, x, zero)
    }

    /// One operand of a select that the driver might find to be constant; see
    /// [`confuses_zeros`](super::Traits::confuses_zeros). Float zeros are handled by
    /// [`constant`](Self::constant).
    fn unconfused(&mut self, x: Expr, ty: ValueType) -> Expr {
        if self.traits.confuses_zeros && ty.is_integer() { self.disguised(x, ty) } else { x }
    }

    /// A value on its way to a variable that control flow selects; drivers turn such control flow
    /// into selects and back.
    pub(super) fn chosen_by_control(&mut self, id: ValueId) -> Expr {
        let x = self.value(id);
        let known = self.kernel.values[id.index()].uniform;
        let literal = self.constants[id.index()].is_some();
        let chosen = (self.around.branch && known) || (self.around.cycle && literal);
        if chosen { self.unconfused(x, self.kernel.ty(id)) } else { x }
    }

    /// The condition in a form that the driver cannot evaluate at compile time.
    pub(super) fn disguised_condition(&mut self, condition: Expr) -> Expr {
        let [yes, no] = [1, 0].map(|bit| self.build.u32(bit));
        let bit = self.build.select(condition, yes, no);
        let bit = self.build.binary(BinaryOperator::ExclusiveOr, bit, self.zero);
        self.build.binary(BinaryOperator::NotEqual, bit, no)
    }

    /// Whether a value is not zero. A NaN is not zero; both float zeros are.
    fn is_not_zero(&mut self, x: Expr, ty: ValueType) -> Expr {
        if ty.is_float() {
            let bits = self.size_bits(x, ty);
            let zero = self.bit_pattern(ty, 0);
            return self.build.binary(BinaryOperator::NotEqual, bits, zero);
        }
        let zero = self.build.constant(Value::zero(ty));
        self.build.binary(BinaryOperator::NotEqual, x, zero)
    }

    /// Converts an integer to another width or signedness; the source's signedness determines how
    /// it is extended.
    fn resized(&mut self, x: Expr, from: ValueType, to: ValueType) -> Expr {
        let signed = from.is_signed_integer();
        let resized = match (signed, to.bits()) {
            _ if from.bits() == to.bits() => x,
            (true, 64) => self.sign_extended(x),
            (true, _) => self.build.convert(x, ValueType::I32),
            (false, 64) => self.build.convert(x, ValueType::U64),
            (false, _) => self.build.convert(x, ValueType::U32),
        };
        if signed == to.is_signed_integer() {
            return resized;
        }
        self.build.bitcast(resized, if signed { ScalarKind::Uint } else { ScalarKind::Sint })
    }

    /// Converts an `i32` to `i64`. Mesa 22.3 gets signed comparisons of a converted `i32` with a
    /// constant wrong, so the sign is extended by arithmetic: flipping the sign bit and then
    /// subtracting it borrows through all higher bits.
    fn sign_extended(&mut self, x: Expr) -> Expr {
        let bits = self.build.bitcast(x, ScalarKind::Uint);
        let bits = self.build.convert(bits, ValueType::U64);
        let sign = self.build.constant(Value::U64(1 << 31));
        let flipped = self.build.binary(BinaryOperator::ExclusiveOr, bits, sign);
        let extended = self.build.binary(BinaryOperator::Subtract, flipped, sign);
        self.build.bitcast(extended, ScalarKind::Sint)
    }

    /// Converts a float to an integer: truncated, saturated, NaN as 0. The device converts only
    /// values in range.
    fn saturated(&mut self, x: Expr, from: ValueType, to: ValueType) -> Expr {
        let float = |x: f64| if from == ValueType::F64 { Value::F64(x) } else { Value::F32(x as f32) };
        let signed = to.is_signed_integer();
        // Both limits are powers of two, which every float type represents exactly.
        let above = 2f64.powi(to.bits() as i32 - i32::from(signed));
        let below = if signed { -above } else { 0.0 };
        let (least, most) = match to {
            ValueType::I32 => (Value::I32(i32::MIN), Value::I32(i32::MAX)),
            ValueType::U64 => (Value::U64(0), Value::U64(u64::MAX)),
            ValueType::I64 => (Value::I64(i64::MIN), Value::I64(i64::MAX)),
            ValueType::U32 | ValueType::Bool | ValueType::F32 | ValueType::F64 => {
                (Value::U32(0), Value::U32(u32::MAX))
            }
        };
        let (high, low) = (self.build.constant(float(above)), self.constant(float(below)));
        let too_high = self.build.binary(BinaryOperator::GreaterEqual, x, high);
        let not_low = self.build.binary(BinaryOperator::GreaterEqual, x, low);
        let not_high = self.build.binary(BinaryOperator::Less, x, high);
        let inside = self.build.binary(BinaryOperator::LogicalAnd, not_low, not_high);
        let nothing = self.constant(float(0.0));
        let safe = self.build.select(inside, x, nothing);
        let converted = self.build.convert(safe, to);
        let too_low = self.build.binary(BinaryOperator::Less, x, low);
        let [least, most] = [least, most].map(|limit| self.build.constant(limit));
        let found = self.build.select(too_high, most, converted);
        self.build.select(too_low, least, found)
    }

    fn reinterpreted(&mut self, x: Expr, from: ValueType, to: ValueType) -> Expr {
        if from.is_float() {
            if to.is_float() {
                return x;
            }
            let bits = self.canonical_bits(x, from);
            return if to.is_signed_integer() { self.build.bitcast(bits, ScalarKind::Sint) } else { bits };
        }
        match to {
            ValueType::F32 | ValueType::F64 => self.build.bitcast(x, ScalarKind::Float),
            ValueType::I32 | ValueType::I64 if !from.is_signed_integer() => {
                self.build.bitcast(x, ScalarKind::Sint)
            }
            ValueType::U32 | ValueType::U64 if from.is_signed_integer() => {
                self.build.bitcast(x, ScalarKind::Uint)
            }
            ValueType::Bool | ValueType::U32 | ValueType::U64 | ValueType::I32 | ValueType::I64 => x,
        }
    }
}
