//! The table ops, on scalars and on vectors.
//!
//! Most ops share one sequence: machine instructions that work lane by lane, with comparisons that
//! produce a condition for `choose` (a byte for scalars, a mask as wide as the operands for
//! vectors). Ops without a vector form run lane by lane.

use super::call::{Passed, Scalars};
use super::ranges::Range;
use super::{Emitter, Pieces, scalar_type};
use crate::piece::{F32, F64, FloatOrder, I32, I64, IntOrder, Rounding, Type, Value as Operand};
use crate::routines;
use crate::vector::Reg;
use vyre_foundation::ir::Op;
use vyre_foundation::ops::Signature;
use vyre_foundation::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};

/// Operands of an instruction sequence: scalars or vector pieces, and their type.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) vector: bool,
    pub(super) ty: ValueType,
}

impl Kind {
    fn wide(self) -> bool {
        self.ty.bits() == 64
    }
}

/// The sequence that computes an op.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Arithmetic,
    Condition,
    Count,
    Shift,
    Choice,
    Conversion,
}

fn family(op: Op) -> Family {
    match op {
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Rem | Op::Neg | Op::Abs | Op::Sign => Family::Arithmetic,
        Op::Min | Op::Max | Op::Clamp | Op::SatAdd | Op::SatSub | Op::AbsDiff => Family::Arithmetic,
        Op::MulHi | Op::Fma | Op::Sqrt | Op::Rsqrt | Op::Floor | Op::Ceil => Family::Arithmetic,
        Op::Trunc | Op::Round | Op::Copysign => Family::Arithmetic,
        Op::And | Op::Or | Op::Xor | Op::Not | Op::ReverseBits => Family::Arithmetic,
        Op::IsNan | Op::IsInf | Op::IsFinite => Family::Condition,
        Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge => Family::Condition,
        Op::Popcount | Op::Clz | Op::Ctz => Family::Count,
        Op::Shl | Op::Shr | Op::RotateLeft | Op::RotateRight => Family::Shift,
        Op::Select => Family::Choice,
        Op::ToBool | Op::ToU32 | Op::ToI32 | Op::ToU64 | Op::ToI64 | Op::ToF32 | Op::ToF64 => {
            Family::Conversion
        }
        Op::BitsU32 | Op::BitsI32 | Op::BitsU64 | Op::BitsI64 | Op::BitsF32 | Op::BitsF64 => {
            Family::Conversion
        }
        vyre_foundation::expanded_op!() => {
            unreachable!("{op:?} was replaced by its expansion before the lowering")
        }
    }
}

impl Emitter<'_> {
    pub(super) fn machine(&self, kind: Kind) -> Type {
        if kind.vector { self.piece_type(kind.ty) } else { scalar_type(kind.ty) }
    }

    pub(super) fn operation(&mut self, op: Op, args: &[Reg], vector: bool) -> Pieces {
        let types: Vec<ValueType> = args.iter().map(|&arg| self.shape(arg).ty).collect();
        if !vector {
            let values: Vec<Operand> = args.iter().map(|&arg| self.scalar(arg)).collect();
            return vec![self.scalar_op(op, &types, &values)];
        }
        if family(op) == Family::Shift && !self.shape(args[1]).vector {
            return self.shift_together(op, args, types[0]);
        }
        if let Some(pieces) = self.divided_by_one(op, args, types[0]) {
            return pieces;
        }
        if let Some(pieces) = self.bounded(op, args, types[0]) {
            return pieces;
        }
        if let Some(pieces) = self.extreme_of_numbers(op, args, types[0]) {
            return pieces;
        }
        if let Some(pieces) = self.chosen_by_order(op, args) {
            return pieces;
        }
        if let Some(pieces) = self.of_small_numbers(op, args, types[0]) {
            return pieces;
        }
        if let Some(pieces) = self.compared_with_constant(op, args, types[0]) {
            return pieces;
        }
        let values: Vec<Pieces> = args.iter().map(|&arg| self.vector(arg)).collect();
        self.vector_op(op, &types, &values)
    }

    /// Emits an op on scalars.
    pub(super) fn scalar_op(&mut self, op: Op, types: &[ValueType], args: &[Operand]) -> Operand {
        let kind = Kind { vector: false, ty: types[types.len() - 1] };
        let bools = kind.ty == ValueType::Bool;
        match family(op) {
            Family::Conversion => self.convert_scalar(op, types[0], args[0]),
            Family::Choice => self.choose(kind, args[0], args[1], args[2]),
            Family::Shift => self.shift(op, Kind { vector: false, ty: types[0] }, args[0], args[1]),
            Family::Condition if bools => self.compare_scalar_bools(op, args),
            Family::Arithmetic if bools => self.scalar_bools(op, args),
            Family::Condition => self.condition(op, kind, args),
            Family::Count => self.count_scalar(op, kind, args[0]),
            Family::Arithmetic => self.arithmetic(op, kind, args),
        }
    }

    fn convert_scalar(&mut self, op: Op, from: ValueType, x: Operand) -> Operand {
        match op.row().signature {
            Signature::Bitcast(to) => self.bitcast(Kind { vector: false, ty: from }, to, x),
            Signature::Cast(to) => self.cast_scalar(from, to, x),
            _ => unreachable!("{op:?} is a conversion"),
        }
    }

    fn vector_op(&mut self, op: Op, types: &[ValueType], args: &[Pieces]) -> Pieces {
        let kind = Kind { vector: true, ty: types[types.len() - 1] };
        match family(op) {
            Family::Conversion => self.convert_vector(op, types[0], &args[0]),
            Family::Choice => self.blend(kind.ty, &args[0], &args[1], &args[2]),
            Family::Shift if self.builder.shifts_lanes() => {
                self.shift_each(op, Kind { ty: types[0], ..kind }, &args[0], &args[1])
            }
            Family::Shift => self.lane_by_lane(op, types, args),
            Family::Condition | Family::Arithmetic if kind.ty == ValueType::Bool => {
                self.vector_bools(op, args)
            }
            Family::Condition => {
                let masks = self.by_pieces(args, |this, args| this.condition(op, kind, args));
                self.narrow_mask(kind.ty, masks)
            }
            Family::Count if self.builder.has_all_integers() => self.count_lanes(op, kind, &args[0]),
            Family::Count if kind.wide() => self.lane_by_lane(op, types, args),
            Family::Count => self.by_pieces(args, |this, args| this.count_vector(op, args[0])),
            Family::Arithmetic if self.has_vector_form(op, kind) => {
                self.by_pieces(args, |this, args| this.arithmetic(op, kind, args))
            }
            Family::Arithmetic => self.lane_by_lane(op, types, args),
        }
    }

    /// Emits an integer op on two pieces of 32-bit lanes.
    pub(super) fn combine_words(&mut self, op: Op, ty: ValueType, a: Operand, b: Operand) -> Operand {
        self.integer_op(op, Kind { vector: true, ty }, &[a, b])
    }

    fn convert_vector(&mut self, op: Op, from: ValueType, pieces: &[Operand]) -> Pieces {
        match op.row().signature {
            Signature::Bitcast(to) => {
                self.each(pieces, |this, piece| this.bitcast(Kind { vector: true, ty: from }, to, piece))
            }
            Signature::Cast(to) => self.cast_vector(from, to, pieces),
            _ => unreachable!("{op:?} is a conversion"),
        }
    }

    fn by_pieces(
        &mut self,
        args: &[Pieces],
        mut each: impl FnMut(&mut Self, &[Operand]) -> Operand,
    ) -> Pieces {
        let count = args[0].len();
        let row = |k: usize| -> Vec<Operand> { args.iter().map(|arg| arg[k]).collect() };
        (0..count).map(|k| each(self, &row(k))).collect()
    }

    fn lane_by_lane(&mut self, op: Op, types: &[ValueType], args: &[Pieces]) -> Pieces {
        let Some(result) = op.row().signature.result(types) else { unreachable!("the kernel's types fit") };
        if let Some(routine) = routines::op(op, types) {
            for (pieces, passed) in args.iter().zip([Passed::First, Passed::Second]) {
                self.pass(passed, pieces);
            }
            let number = u64::from(self.code.lanes);
            self.call(routine, Scalars { number, index: None, running: None });
            return self.results(result);
        }
        let mut scalars = Vec::new();
        for lane in 0..self.lanes() {
            let typed = args.iter().zip(types);
            let values: Vec<Operand> = typed.map(|(arg, &ty)| self.scalar_lane(ty, arg, lane)).collect();
            scalars.push(self.scalar_op(op, types, &values));
        }
        self.vector_of_scalars(result, &scalars)
    }

    /// Whether an op has vector instructions for this type.
    fn has_vector_form(&self, op: Op, kind: Kind) -> bool {
        let integer = kind.ty.is_integer();
        match op {
            Op::Div | Op::Rem => !(integer && kind.wide()),
            Op::MulHi => !kind.wide(),
            Op::ReverseBits => !kind.wide(),
            _ => true,
        }
    }

    // Conditions and choices.

    pub(super) fn constant(&mut self, kind: Kind, bits: u64) -> Operand {
        self.builder.constant(self.machine(kind), bits)
    }

    fn bits_constant(&mut self, kind: Kind, bits: u64) -> Operand {
        let ty = if kind.wide() { ValueType::U64 } else { ValueType::U32 };
        self.constant(Kind { ty, ..kind }, bits)
    }

    fn bits_of(&mut self, kind: Kind, value: Operand) -> Operand {
        if kind.ty.is_float() { self.builder.bitcast(self.machine(kind).bits(), value) } else { value }
    }

    pub(super) fn value_of_bits(&mut self, kind: Kind, bits: Operand) -> Operand {
        if kind.ty.is_float() { self.builder.bitcast(self.machine(kind), bits) } else { bits }
    }

    /// Selects one of two values by a condition of the same kind.
    fn choose(&mut self, kind: Kind, condition: Operand, yes: Operand, no: Operand) -> Operand {
        if kind.vector {
            self.builder.choose(condition, yes, no)
        } else {
            self.builder.select(condition, yes, no)
        }
    }

    /// Returns the value, or zero where the condition does not hold.
    fn keep_if(&mut self, kind: Kind, condition: Operand, value: Operand) -> Operand {
        if kind.vector {
            let bits = self.bits_of(kind, value);
            let kept = self.builder.and(bits, condition);
            return self.value_of_bits(kind, kept);
        }
        let zero = self.constant(kind, 0);
        self.builder.select(condition, value, zero)
    }

    /// Selects between vectors lane by lane with a mask of 32-bit lanes.
    pub(super) fn blend(
        &mut self,
        ty: ValueType,
        mask: &[Operand],
        yes: &[Operand],
        no: &[Operand],
    ) -> Pieces {
        let mask = self.native_mask(ty, mask);
        let kind = Kind { vector: true, ty: if ty == ValueType::Bool { ValueType::U32 } else { ty } };
        (0..yes.len()).map(|k| self.choose(kind, mask[k], yes[k], no[k])).collect()
    }

    /// Widens a mask to lanes as wide as those of `ty`.
    pub(super) fn native_mask(&mut self, ty: ValueType, mask: &[Operand]) -> Pieces {
        if !self.mask_type(ty).is_wide() {
            return mask.to_vec();
        }
        mask.iter().flat_map(|&piece| self.builder.widen(true, piece)).collect()
    }

    /// Narrows a mask with lanes as wide as those of `ty` to 32-bit lanes.
    fn narrow_mask(&mut self, ty: ValueType, masks: Pieces) -> Pieces {
        if !self.mask_type(ty).is_wide() {
            return masks;
        }
        masks.chunks(2).map(|pair| self.builder.low_halves(pair[0], pair[1])).collect()
    }

    fn condition(&mut self, op: Op, kind: Kind, args: &[Operand]) -> Operand {
        let x = args[0];
        if kind.ty.is_float() {
            let infinity = if kind.wide() { f64::INFINITY.to_bits() } else { f32::INFINITY.to_bits().into() };
            let (code, a, b) = match op {
                Op::Eq => (FloatOrder::Equal, x, args[1]),
                Op::Ne => (FloatOrder::NotEqual, x, args[1]),
                Op::Lt => (FloatOrder::Less, x, args[1]),
                Op::Le => (FloatOrder::LessOrEqual, x, args[1]),
                Op::Gt => (FloatOrder::Less, args[1], x),
                Op::Ge => (FloatOrder::LessOrEqual, args[1], x),
                Op::IsNan => (FloatOrder::NotEqual, x, x),
                Op::IsInf => (FloatOrder::Equal, self.builder.abs(x), self.constant(kind, infinity)),
                Op::IsFinite => (FloatOrder::Less, self.builder.abs(x), self.constant(kind, infinity)),
                _ => unreachable!("{op:?} is not a condition on floats"),
            };
            return self.builder.compare_floats(code, a, b);
        }
        let (swap, negate, base) = match op {
            Op::Eq => (false, false, Op::Eq),
            Op::Ne => (false, true, Op::Eq),
            Op::Lt => (false, false, Op::Lt),
            Op::Ge => (false, true, Op::Lt),
            Op::Gt => (true, false, Op::Lt),
            Op::Le => (true, true, Op::Lt),
            _ => unreachable!("{op:?} is not a condition on integers"),
        };
        let (a, b) = if swap { (args[1], x) } else { (x, args[1]) };
        self.compare_integers(kind, base, negate, a, b)
    }

    fn compare_integers(&mut self, kind: Kind, base: Op, negate: bool, a: Operand, b: Operand) -> Operand {
        let signed = kind.ty.is_signed_integer();
        if kind.vector && kind.wide() && base == Op::Lt {
            // 64-bit lanes have only a signed comparison; flipping the top bits turns unsigned
            // order into signed.
            let (mut a, mut b) = (a, b);
            if !signed {
                let top = self.constant(kind, 1 << 63);
                (a, b) = (self.builder.xor(a, top), self.builder.xor(b, top));
            }
            let mask = self.builder.compare(IntOrder::SignedLess, a, b);
            return if negate { self.builder.not(mask) } else { mask };
        }
        if kind.vector && base == Op::Lt && !signed && !negate {
            // Signed lanes compare in one instruction; flipping the top bits turns unsigned order
            // into signed.
            let top = self.constant(kind, 1 << 31);
            let (a, b) = (self.builder.xor(a, top), self.builder.xor(b, top));
            return self.builder.compare(IntOrder::SignedLess, a, b);
        }
        let code = match (base, negate, signed) {
            (Op::Eq, false, _) => IntOrder::Equal,
            (_, true, _) if base == Op::Eq => IntOrder::NotEqual,
            (_, false, true) => IntOrder::SignedLess,
            (_, false, false) => IntOrder::UnsignedLess,
            (_, true, true) => IntOrder::SignedGreaterOrEqual,
            (_, true, false) => IntOrder::UnsignedGreaterOrEqual,
        };
        self.builder.compare(code, a, b)
    }

    /// Unsigned comparison with a constant: `<= bound - 1` and `>= bound + 1` take fewer
    /// instructions than `<` and `>`.
    fn compared_with_constant(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        if ty != ValueType::U32 || !matches!(op, Op::Lt | Op::Gt) {
            return None;
        }
        let known = |reg: Reg| self.constants[reg.0 as usize].and_then(Value::as_u32);
        let (value, bound, below) = match (known(args[0]), known(args[1])) {
            (_, Some(bound)) => (args[0], bound, op == Op::Lt),
            (Some(bound), None) => (args[1], bound, op == Op::Gt),
            (None, None) => return None,
        };
        let (code, nearest) = if below {
            (IntOrder::UnsignedLessOrEqual, bound.checked_sub(1)?)
        } else {
            (IntOrder::UnsignedGreaterOrEqual, bound.checked_add(1)?)
        };
        let nearest = self.constant_piece(ValueType::U32, nearest.into());
        let pieces = self.vector(value);
        Some(self.each(&pieces, |this, piece| this.builder.compare(code, piece, nearest)))
    }

    /// Compares two vectors of `u32`.
    pub(super) fn compare_words(&mut self, op: Op, a: &[Operand], b: &[Operand]) -> Pieces {
        let kind = Kind { vector: true, ty: ValueType::U32 };
        a.iter().zip(b).map(|(&a, &b)| self.condition(op, kind, &[a, b])).collect()
    }

    fn less(&mut self, kind: Kind, a: Operand, b: Operand) -> Operand {
        self.condition(Op::Lt, kind, &[a, b])
    }

    // Booleans.

    fn scalar_bools(&mut self, op: Op, args: &[Operand]) -> Operand {
        match op {
            Op::And => self.builder.and(args[0], args[1]),
            Op::Or => self.builder.or(args[0], args[1]),
            Op::Xor => self.builder.xor(args[0], args[1]),
            Op::Not => {
                let one = self.constant(Kind { vector: false, ty: ValueType::Bool }, 1);
                self.builder.xor(args[0], one)
            }
            _ => unreachable!("{op:?} does not take bool"),
        }
    }

    fn compare_scalar_bools(&mut self, op: Op, args: &[Operand]) -> Operand {
        let code = if op == Op::Eq { IntOrder::Equal } else { IntOrder::NotEqual };
        self.builder.compare(code, args[0], args[1])
    }

    fn vector_bools(&mut self, op: Op, args: &[Pieces]) -> Pieces {
        self.by_pieces(args, |this, args| match op {
            Op::And => this.builder.and(args[0], args[1]),
            Op::Or => this.builder.or(args[0], args[1]),
            Op::Xor | Op::Ne => this.builder.xor(args[0], args[1]),
            Op::Not => this.builder.not(args[0]),
            Op::Eq => {
                let differ = this.builder.xor(args[0], args[1]);
                this.builder.not(differ)
            }
            _ => unreachable!("{op:?} does not take bool"),
        })
    }

    // Arithmetic.

    fn arithmetic(&mut self, op: Op, kind: Kind, args: &[Operand]) -> Operand {
        if kind.ty.is_float() { self.float_op(op, kind, args) } else { self.integer_op(op, kind, args) }
    }

    fn integer_op(&mut self, op: Op, kind: Kind, args: &[Operand]) -> Operand {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Op::Add => self.builder.add(x, y),
            Op::Sub => self.builder.sub(x, y),
            Op::Mul => self.builder.mul(x, y),
            Op::Div | Op::Rem => self.divide(op, kind, x, y),
            Op::Neg => self.builder.neg(x),
            Op::Abs if kind.ty.is_signed_integer() => self.builder.abs(x),
            Op::Abs => x,
            Op::Sign => self.sign_of_integer(kind, x),
            Op::Min => self.smaller(kind, x, y),
            Op::Max => self.larger(kind, x, y),
            Op::Clamp => {
                let raised = self.larger(kind, x, y);
                self.smaller(kind, raised, args[2])
            }
            Op::SatAdd | Op::SatSub => self.saturate(op, kind, x, y),
            Op::AbsDiff => {
                let (large, small) = (self.larger(kind, x, y), self.smaller(kind, x, y));
                self.builder.sub(large, small)
            }
            Op::MulHi => self.multiply_high(kind, x, y),
            Op::And => self.builder.and(x, y),
            Op::Or => self.builder.or(x, y),
            Op::Xor => self.builder.xor(x, y),
            Op::Not => self.builder.not(x),
            Op::ReverseBits if kind.vector => self.reverse_bits(kind, x),
            Op::ReverseBits => self.builder.reverse_bits(x),
            _ => unreachable!("{op:?} is not an integer op"),
        }
    }

    fn smaller(&mut self, kind: Kind, x: Operand, y: Operand) -> Operand {
        if kind.vector && (!kind.wide() || self.builder.has_all_integers()) {
            return self.builder.int_min(kind.ty.is_signed_integer(), x, y);
        }
        let less = self.less(kind, x, y);
        self.choose(kind, less, x, y)
    }

    fn larger(&mut self, kind: Kind, x: Operand, y: Operand) -> Operand {
        if kind.vector && (!kind.wide() || self.builder.has_all_integers()) {
            return self.builder.int_max(kind.ty.is_signed_integer(), x, y);
        }
        let less = self.less(kind, x, y);
        self.choose(kind, less, y, x)
    }

    fn sign_of_integer(&mut self, kind: Kind, x: Operand) -> Operand {
        let (zero, one) = (self.constant(kind, 0), self.constant(kind, 1));
        if !kind.ty.is_signed_integer() {
            return self.smaller(kind, x, one);
        }
        let positive = self.less(kind, zero, x);
        let negative = self.less(kind, x, zero);
        let minus_one = self.constant(kind, u64::MAX);
        let up = self.keep_if(kind, positive, one);
        self.choose(kind, negative, minus_one, up)
    }

    fn saturate(&mut self, op: Op, kind: Kind, x: Operand, y: Operand) -> Operand {
        let add = op == Op::SatAdd;
        if kind.vector && kind.ty == ValueType::U32 {
            return if add {
                let room = self.builder.not(y);
                let fits = self.builder.int_min(false, x, room);
                self.builder.add(fits, y)
            } else {
                let more = self.builder.int_max(false, x, y);
                self.builder.sub(more, y)
            };
        }
        let result = if add { self.builder.add(x, y) } else { self.builder.sub(x, y) };
        if !kind.ty.is_signed_integer() {
            return if add {
                let over = self.less(kind, result, x);
                let most = self.constant(kind, u64::MAX);
                self.choose(kind, over, most, result)
            } else {
                let under = self.less(kind, x, y);
                let zero = self.constant(kind, 0);
                self.choose(kind, under, zero, result)
            };
        }
        // The result overflowed if its sign differs from both operands' (for a difference, the
        // second operand's negated).
        let from_x = self.builder.xor(x, result);
        let from_y = if add { self.builder.xor(y, result) } else { self.builder.xor(x, y) };
        let wrong = self.builder.and(from_x, from_y);
        let zero = self.constant(kind, 0);
        let overflowed = self.less(kind, wrong, zero);
        let most = self.constant(kind, (1 << (kind.ty.bits() - 1)) - 1);
        let least = self.constant(kind, 1 << (kind.ty.bits() - 1));
        let negative = self.less(kind, x, zero);
        let limit = self.choose(kind, negative, least, most);
        self.choose(kind, overflowed, limit, result)
    }

    fn multiply_high(&mut self, kind: Kind, x: Operand, y: Operand) -> Operand {
        let signed = kind.ty.is_signed_integer();
        if kind.vector || kind.wide() {
            return self.builder.mul_high(signed, x, y);
        }
        let (a, b) = (self.builder.extend(signed, I64, x), self.builder.extend(signed, I64, y));
        let product = self.builder.mul(a, b);
        let high = self.builder.shift_right_const(product, 32);
        self.builder.reduce(I32, high)
    }

    /// Reverses the bits of 32-bit lanes by swapping neighbouring groups, from single bits up to
    /// halves.
    fn reverse_bits(&mut self, kind: Kind, x: Operand) -> Operand {
        let mut value = x;
        for (count, mask) in
            [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0F0F_0F0F), (8, 0x00FF_00FF), (16, 0x0000_FFFF)]
        {
            let mask = self.constant(kind, mask);
            let high = self.builder.shift_right_const(value, count);
            let high = self.builder.and(high, mask);
            let low = self.builder.and(value, mask);
            let low = self.builder.shift_left_const(low, count);
            value = self.builder.or(high, low);
        }
        value
    }

    fn count_scalar(&mut self, op: Op, kind: Kind, x: Operand) -> Operand {
        let count = match op {
            Op::Popcount => self.builder.count_ones(x),
            Op::Clz => self.builder.leading_zeros(x),
            Op::Ctz => self.builder.trailing_zeros(x),
            _ => unreachable!("{op:?} does not count bits"),
        };
        if kind.wide() { self.builder.reduce(I32, count) } else { count }
    }

    /// Counts bits with instructions for it; the counts are 32-bit lanes.
    fn count_lanes(&mut self, op: Op, kind: Kind, pieces: &[Operand]) -> Pieces {
        let counts = self.each(pieces, |this, x| match op {
            Op::Popcount => this.builder.count_ones(x),
            Op::Clz => this.builder.leading_zeros(x),
            _ => {
                let below = this.below_lowest(kind, x);
                this.builder.count_ones(below)
            }
        });
        if !kind.wide() {
            return counts;
        }
        counts.chunks(2).map(|pair| self.builder.low_halves(pair[0], pair[1])).collect()
    }

    /// The bits below the lowest one that is set.
    fn below_lowest(&mut self, kind: Kind, x: Operand) -> Operand {
        let ones = self.constant(kind, u64::MAX);
        let less = self.builder.add(x, ones);
        self.builder.and_not(less, x)
    }

    /// Counts bits in 32-bit lanes; leading and trailing zeros are the popcount of a mask of just
    /// those bits.
    fn count_vector(&mut self, op: Op, x: Operand) -> Operand {
        let kind = Kind { vector: true, ty: ValueType::U32 };
        match op {
            Op::Popcount => self.popcount(kind, x),
            Op::Ctz => {
                let below = self.below_lowest(kind, x);
                self.popcount(kind, below)
            }
            Op::Clz => {
                let mut smeared = x;
                for count in [1, 2, 4, 8, 16] {
                    let shifted = self.builder.shift_right_const(smeared, count);
                    smeared = self.builder.or(smeared, shifted);
                }
                let above = self.builder.not(smeared);
                self.popcount(kind, above)
            }
            _ => unreachable!("{op:?} does not count bits"),
        }
    }

    fn popcount(&mut self, kind: Kind, x: Operand) -> Operand {
        let (pairs, fours) = (self.constant(kind, 0x5555_5555), self.constant(kind, 0x3333_3333));
        let (eights, ones) = (self.constant(kind, 0x0F0F_0F0F), self.constant(kind, 0x0101_0101));
        let odd = self.builder.shift_right_const(x, 1);
        let odd = self.builder.and(odd, pairs);
        let by_two = self.builder.sub(x, odd);
        let high = self.builder.shift_right_const(by_two, 2);
        let high = self.builder.and(high, fours);
        let low = self.builder.and(by_two, fours);
        let by_four = self.builder.add(low, high);
        let high = self.builder.shift_right_const(by_four, 4);
        let sum = self.builder.add(by_four, high);
        let by_eight = self.builder.and(sum, eights);
        let total = self.builder.mul(by_eight, ones);
        self.builder.shift_right_const(total, 24)
    }

    fn shift(&mut self, op: Op, kind: Kind, x: Operand, count: Operand) -> Operand {
        match op {
            Op::Shl => self.builder.shift_left(x, count),
            Op::Shr if kind.ty.is_signed_integer() => self.builder.shift_right_signed(x, count),
            Op::Shr => self.builder.shift_right(x, count),
            Op::RotateLeft => self.builder.rotate_left(x, count),
            Op::RotateRight => {
                // The count is taken modulo the width, so the negated count is the complement.
                let rest = self.builder.neg(count);
                self.builder.rotate_left(x, rest)
            }
            _ => unreachable!("{op:?} is not a shift"),
        }
    }

    /// Shifts each lane by a separate count.
    fn shift_each(&mut self, op: Op, kind: Kind, pieces: &[Operand], counts: &[Operand]) -> Pieces {
        let counts: Pieces = if kind.wide() {
            counts.iter().flat_map(|&count| self.builder.widen(false, count)).collect()
        } else {
            counts.to_vec()
        };
        let most = self.bits_constant(kind, u64::from(kind.ty.bits()) - 1);
        let signed = kind.ty.is_signed_integer();
        pieces
            .iter()
            .zip(counts)
            .map(|(&piece, count)| {
                if matches!(op, Op::RotateLeft | Op::RotateRight) {
                    return self.builder.rotate_each(op == Op::RotateLeft, piece, count);
                }
                let count = self.builder.and(count, most);
                match op {
                    Op::Shl => self.builder.shift_left_each(piece, count),
                    _ if signed => self.builder.shift_right_signed_each(piece, count),
                    _ => self.builder.shift_right_each(piece, count),
                }
            })
            .collect()
    }

    /// Ops on values known to be small: they are the same as signed words, so conversions need no
    /// range handling.
    fn of_small_numbers(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        let is_small = |arg: &Reg| self.ranges.integer(*arg).is_some_and(Range::is_small);
        match op {
            Op::ToF32 if ty == ValueType::U32 && is_small(&args[0]) => {
                let pieces = self.vector(args[0]);
                let to = self.piece_type(ValueType::F32);
                Some(self.each(&pieces, |this, piece| this.builder.int_to_float(true, to, piece)))
            }
            Op::ToU32 | Op::ToI32 if ty == ValueType::F32 => {
                let range = self.ranges.single(args[0]).filter(|range| range.fits_word())?;
                if op == Op::ToU32 && range.least <= -1.0 {
                    return None;
                }
                let pieces = self.vector(args[0]);
                Some(self.each(&pieces, |this, piece| this.builder.truncate_pieces(piece)))
            }
            Op::Lt | Op::Le | Op::Gt | Op::Ge if ty == ValueType::U32 && args.iter().all(is_small) => {
                let kind = Kind { vector: true, ty: ValueType::I32 };
                let values: Vec<Pieces> = args.iter().map(|&arg| self.vector(arg)).collect();
                Some(self.by_pieces(&values, |this, args| this.condition(op, kind, args)))
            }
            _ => None,
        }
    }

    /// Shifts every lane by the same count.
    fn shift_together(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Pieces {
        let count = self.scalar(args[1]);
        let pieces = self.vector(args[0]);
        let kind = Kind { vector: true, ty };
        pieces.into_iter().map(|piece| self.shift(op, kind, piece, count)).collect()
    }

    fn float_op(&mut self, op: Op, kind: Kind, args: &[Operand]) -> Operand {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Op::Add => self.builder.add(x, y),
            Op::Sub => self.builder.sub(x, y),
            Op::Mul => self.builder.mul(x, y),
            Op::Div => self.builder.float_div(x, y),
            Op::Neg => self.builder.neg(x),
            Op::Abs => self.builder.abs(x),
            Op::Sign => self.sign_of_float(kind, x),
            Op::Min | Op::Max => self.float_extreme(op, kind, x, y),
            Op::Clamp => {
                let raised = self.float_extreme(Op::Max, kind, x, y);
                self.float_extreme(Op::Min, kind, raised, args[2])
            }
            Op::Fma => self.builder.fma(x, y, args[2]),
            Op::Sqrt => self.builder.sqrt(x),
            Op::Rsqrt => {
                let root = self.builder.sqrt(x);
                let one = self.constant_one(kind);
                self.builder.float_div(one, root)
            }
            Op::Floor => self.builder.round(Rounding::Down, x),
            Op::Ceil => self.builder.round(Rounding::Up, x),
            Op::Trunc => self.builder.round(Rounding::Zero, x),
            Op::Round => self.builder.round(Rounding::Nearest, x),
            Op::Copysign => self.copy_sign(kind, x, y),
            _ => unreachable!("{op:?} is not a float op"),
        }
    }

    fn constant_one(&mut self, kind: Kind) -> Operand {
        self.constant(kind, Value::one(kind.ty).to_bits())
    }

    fn sign_of_float(&mut self, kind: Kind, x: Operand) -> Operand {
        let (zero, one) = (self.constant(kind, 0), self.constant_one(kind));
        let minus_one = self.builder.neg(one);
        let negative = self.builder.compare_floats(FloatOrder::Less, x, zero);
        let is_zero = self.builder.compare_floats(FloatOrder::Equal, x, zero);
        let unit = self.choose(kind, negative, minus_one, one);
        self.choose(kind, is_zero, x, unit)
    }

    /// Minimum or maximum: a NaN yields the other operand, and -0.0 is less than 0.0.
    fn float_extreme(&mut self, op: Op, kind: Kind, x: Operand, y: Operand) -> Operand {
        let is_nan = self.builder.compare_floats(FloatOrder::NotEqual, x, x);
        let number = self.choose(kind, is_nan, y, x);
        self.extreme_with_number(op, kind, number, y)
    }

    /// The same, where `x` is NaN only if `y` is.
    fn extreme_with_number(&mut self, op: Op, kind: Kind, x: Operand, y: Operand) -> Operand {
        let min = op == Op::Min;
        let chosen = if min { self.builder.float_min(y, x) } else { self.builder.float_max(y, x) };
        // Equal operands differ at most in the sign of a zero, which `or` and `and` settle.
        let (chosen_bits, y_bits) = (self.bits_of(kind, chosen), self.bits_of(kind, y));
        let code = if min { FloatOrder::Equal } else { FloatOrder::NotEqual };
        let compared = self.builder.compare_floats(code, chosen, y);
        let compared = if kind.vector { compared } else { self.spread(kind, compared) };
        let settled = if min {
            let sign = self.builder.and(y_bits, compared);
            self.builder.or(chosen_bits, sign)
        } else {
            let sign = self.builder.or(y_bits, compared);
            self.builder.and(chosen_bits, sign)
        };
        self.value_of_bits(kind, settled)
    }

    /// Spreads a scalar condition to all ones or all zeros.
    fn spread(&mut self, kind: Kind, condition: Operand) -> Operand {
        let one = self.builder.extend_unsigned(self.machine(kind).bits(), condition);
        self.builder.neg(one)
    }

    /// Minimum or maximum with one operand known not to be NaN.
    fn extreme_of_numbers(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        if !matches!(op, Op::Min | Op::Max) || !ty.is_float() {
            return None;
        }
        let number = args.iter().position(|arg| self.numbers[arg.0 as usize])?;
        let (numbers, others) = (self.vector(args[number]), self.vector(args[1 - number]));
        let kind = Kind { vector: true, ty };
        Some((0..numbers.len()).map(|k| self.extreme_with_number(op, kind, numbers[k], others[k])).collect())
    }

    /// Matches `select(a < b, a, b)` and its variants on floats.
    fn chosen_by_order(&mut self, op: Op, args: &[Reg]) -> Option<Pieces> {
        if op != Op::Select {
            return None;
        }
        let (a, b) = self.ordered[args[0].0 as usize]?;
        let forwards = self.is_same(args[1], a) && self.is_same(args[2], b);
        let backwards = self.is_same(args[1], b) && self.is_same(args[2], a);
        if !forwards && !backwards {
            return None;
        }
        let (low, high) = (self.vector(a), self.vector(b));
        let pick = |this: &mut Self, a: Operand, b: Operand| {
            if forwards { this.builder.float_min(a, b) } else { this.builder.float_max(b, a) }
        };
        Some((0..low.len()).map(|k| pick(self, low[k], high[k])).collect())
    }

    /// Whether two registers hold the same value: the same register or equal constants.
    fn is_same(&self, a: Reg, b: Reg) -> bool {
        let constant = |reg: Reg| self.constants[reg.0 as usize].map(|value| (value.ty(), value.to_bits()));
        a == b || (constant(a).is_some() && constant(a) == constant(b))
    }

    /// Records a float comparison so that a select on it can be recognised as a minimum or maximum.
    pub(super) fn note_order(&mut self, reg: Reg, op: Op, args: &[Reg]) {
        let float = args.first().is_some_and(|&arg| self.shape(arg).ty.is_float());
        if self.shape(reg).vector && float && matches!(op, Op::Lt | Op::Gt) {
            let (a, b) = if op == Op::Lt { (args[0], args[1]) } else { (args[1], args[0]) };
            self.ordered[reg.0 as usize] = Some((a, b));
        }
    }

    /// Minimum or maximum with a constant that is neither NaN nor zero: the machine's instruction
    /// suffices.
    fn bounded(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        if !matches!(op, Op::Min | Op::Max) || !ty.is_float() {
            return None;
        }
        let plain = |value: Value| match value {
            Value::F32(x) => !x.is_nan() && x != 0.0,
            Value::F64(x) => !x.is_nan() && x != 0.0,
            Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => false,
        };
        let known = |reg: Reg| self.constants[reg.0 as usize].is_some_and(plain);
        let (value, bound) = match (known(args[0]), known(args[1])) {
            (_, true) => (args[0], args[1]),
            (true, _) => (args[1], args[0]),
            (false, false) => return None,
        };
        let (values, bounds) = (self.vector(value), self.vector(bound));
        let pick = |this: &mut Self, x: Operand, bound: Operand| {
            // Operands are ordered so that a NaN fails the comparison and yields the bound.
            if op == Op::Min { this.builder.float_min(x, bound) } else { this.builder.float_max(x, bound) }
        };
        Some((0..values.len()).map(|k| pick(self, values[k], bounds[k])).collect())
    }

    fn copy_sign(&mut self, kind: Kind, x: Operand, y: Operand) -> Operand {
        let sign = 1_u64 << (kind.ty.bits() - 1);
        let (sign_bit, rest) = (self.bits_constant(kind, sign), self.bits_constant(kind, sign - 1));
        let (x_bits, y_bits) = (self.bits_of(kind, x), self.bits_of(kind, y));
        let magnitude = self.builder.and(x_bits, rest);
        let taken = self.builder.and(y_bits, sign_bit);
        let is_number = self.builder.compare_floats(FloatOrder::Equal, y, y);
        let bits_kind = Kind { ty: if kind.wide() { ValueType::U64 } else { ValueType::U32 }, ..kind };
        let taken = self.keep_if(bits_kind, is_number, taken);
        let bits = self.builder.or(magnitude, taken);
        self.value_of_bits(kind, bits)
    }

    // Conversions.

    fn bitcast(&mut self, kind: Kind, to: ValueType, value: Operand) -> Operand {
        let target = Kind { vector: kind.vector, ty: to };
        if !kind.ty.is_float() {
            return self.value_of_bits(target, value);
        }
        if to.is_float() {
            return value;
        }
        let nan = if kind.wide() { CANONICAL_NAN_F64 } else { CANONICAL_NAN_F32.into() };
        let nan = self.constant(kind, nan);
        let is_nan = self.builder.compare_floats(FloatOrder::NotEqual, value, value);
        let value = self.choose(kind, is_nan, nan, value);
        self.bits_of(kind, value)
    }

    fn cast_scalar(&mut self, from: ValueType, to: ValueType, x: Operand) -> Operand {
        use ValueType::{Bool, F32 as FloatSingle, F64 as FloatDouble, I32 as Signed, I64 as SignedLong};
        use ValueType::{U32 as Unsigned, U64 as UnsignedLong};
        let kind = Kind { vector: false, ty: from };
        if from == to {
            return x;
        }
        match (from, to) {
            (FloatSingle | FloatDouble, Bool) => {
                let zero = self.constant(kind, 0);
                self.builder.compare_floats(FloatOrder::NotEqual, x, zero)
            }
            (_, Bool) => self.builder.compare_const(IntOrder::NotEqual, x, 0),
            (Bool, FloatSingle | FloatDouble) => {
                let word = self.builder.extend_unsigned(I32, x);
                self.builder.int_to_float(false, scalar_type(to), word)
            }
            (Bool, _) => self.builder.extend_unsigned(scalar_type(to), x),
            (FloatSingle, FloatDouble) => self.builder.promote(F64, x),
            (FloatDouble, FloatSingle) => self.builder.demote(F32, x),
            (FloatSingle | FloatDouble, Signed | SignedLong) => {
                self.builder.float_to_int(true, scalar_type(to), x)
            }
            (FloatSingle | FloatDouble, _) => self.builder.float_to_int(false, scalar_type(to), x),
            (Signed | SignedLong, FloatSingle | FloatDouble) => {
                self.builder.int_to_float(true, scalar_type(to), x)
            }
            (Unsigned | UnsignedLong, FloatSingle | FloatDouble) => {
                self.builder.int_to_float(false, scalar_type(to), x)
            }
            (Signed, SignedLong | UnsignedLong) => self.builder.extend(true, I64, x),
            (Unsigned, SignedLong | UnsignedLong) => self.builder.extend_unsigned(I64, x),
            (SignedLong | UnsignedLong, Signed | Unsigned) => self.builder.reduce(I32, x),
            (Signed | Unsigned, Signed | Unsigned)
            | (SignedLong | UnsignedLong, SignedLong | UnsignedLong) => x,
        }
    }

    fn cast_vector(&mut self, from: ValueType, to: ValueType, pieces: &[Operand]) -> Pieces {
        use ValueType::{Bool, F32 as FloatSingle, F64 as FloatDouble, I32 as Signed, I64 as SignedLong};
        use ValueType::{U32 as Unsigned, U64 as UnsignedLong};
        let kind = Kind { vector: true, ty: from };
        if from == to {
            return pieces.to_vec();
        }
        match (from, to) {
            (_, Bool) => {
                let zero = self.constant(kind, 0);
                let masks =
                    pieces.iter().map(|&piece| self.condition(Op::Ne, kind, &[piece, zero])).collect();
                self.narrow_mask(from, masks)
            }
            (Bool, _) => {
                let one = Value::one(to).to_bits();
                let target = Kind { vector: true, ty: to };
                let masks = self.native_mask(to, pieces);
                let one = self.bits_constant(target, one);
                let kept: Pieces = masks.iter().map(|&mask| self.builder.and(mask, one)).collect();
                kept.into_iter().map(|bits| self.value_of_bits(target, bits)).collect()
            }
            (Signed, FloatSingle) => {
                self.each(pieces, |this, x| this.builder.int_to_float(true, this.piece_type(to), x))
            }
            (Unsigned, FloatSingle) => {
                self.each(pieces, |this, x| this.builder.int_to_float(false, this.piece_type(to), x))
            }
            (FloatSingle, Signed) => {
                self.each(pieces, |this, x| this.builder.float_to_int(true, this.piece_type(to), x))
            }
            (FloatSingle, Unsigned) => {
                self.each(pieces, |this, x| this.builder.float_to_int(false, this.piece_type(to), x))
            }
            (Signed, SignedLong | UnsignedLong) => self.native_mask(to, pieces),
            (Unsigned, SignedLong | UnsignedLong) => {
                pieces.iter().flat_map(|&x| self.builder.widen(false, x)).collect()
            }
            (SignedLong | UnsignedLong, Signed | Unsigned) => {
                pieces.chunks(2).map(|pair| self.builder.low_halves(pair[0], pair[1])).collect()
            }
            (FloatSingle, FloatDouble) => pieces.iter().flat_map(|&x| self.builder.widen_float(x)).collect(),
            (FloatDouble, FloatSingle) => {
                pieces.chunks(2).map(|pair| self.builder.narrow_float(pair[0], pair[1])).collect()
            }
            (Signed | Unsigned, Signed | Unsigned)
            | (SignedLong | UnsignedLong, SignedLong | UnsignedLong)
            | (FloatSingle, FloatSingle)
            | (FloatDouble, FloatDouble) => pieces.to_vec(),
            (FloatDouble, Signed | Unsigned)
            | (Signed | Unsigned, FloatDouble)
            | (FloatSingle | FloatDouble, SignedLong | UnsignedLong)
            | (SignedLong | UnsignedLong, FloatSingle | FloatDouble) => {
                self.lane_by_lane(Op::cast(to), &[from], &[pieces.to_vec()])
            }
        }
    }

    fn each(&mut self, pieces: &[Operand], mut make: impl FnMut(&mut Self, Operand) -> Operand) -> Pieces {
        pieces.iter().map(|&piece| make(self, piece)).collect()
    }
}
