//! The table ops, on scalars and on vectors.
//!
//! Most ops are one sequence for both: machine instructions that work lane by lane, with comparisons giving a
//! condition that `choose` understands (a byte for scalars, a mask as wide as the operands for vectors). What has no
//! vector form is done lane by lane.

use super::access::{little, mask_type};
use super::call::{Passed, Scalars};
use super::{Emitter, Pieces, piece_type, scalar_type};
use crate::routines;
use crate::vector::Reg;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F64, I8X16, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{ConstantData, InstBuilder, Type, Value as Clif};
use vyre_foundation::ir::Op;
use vyre_foundation::ops::Signature;
use vyre_foundation::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};

/// What a sequence of instructions works on: scalars or pieces of vectors, and the operands' type.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) vector: bool,
    pub(super) ty: ValueType,
}

impl Kind {
    pub(super) fn machine(self) -> Type {
        if self.vector { piece_type(self.ty) } else { scalar_type(self.ty) }
    }

    fn wide(self) -> bool {
        self.ty.bits() == 64
    }

    /// The integer type of the same layout.
    fn bits_type(self) -> Type {
        match (self.vector, self.wide()) {
            (true, true) => I64X2,
            (true, false) => I32X4,
            (false, true) => I64,
            (false, false) => I32,
        }
    }
}

/// Which sequence computes an op.
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
        Op::Exp | Op::Exp2 | Op::Log | Op::Log2 | Op::Pow | Op::Sin | Op::Cos | Op::Tan | Op::Asin => {
            expanded(op)
        }
        Op::Acos | Op::Atan | Op::Atan2 | Op::Sinh | Op::Cosh | Op::Tanh | Op::Erf | Op::Cbrt => expanded(op),
    }
}

fn expanded(op: Op) -> Family {
    unreachable!("{op:?} was replaced by its expansion before the lowering")
}

impl Emitter<'_, '_> {
    pub(super) fn operation(&mut self, op: Op, args: &[Reg], vector: bool) -> Pieces {
        let types: Vec<ValueType> = args.iter().map(|&arg| self.shape(arg).ty).collect();
        if !vector {
            let values: Vec<Clif> = args.iter().map(|&arg| self.scalar(arg)).collect();
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
        if let Some(pieces) = self.compared_with_constant(op, args, types[0]) {
            return pieces;
        }
        let values: Vec<Pieces> = args.iter().map(|&arg| self.vector(arg)).collect();
        self.vector_op(op, &types, &values)
    }

    /// An op on scalars.
    pub(super) fn scalar_op(&mut self, op: Op, types: &[ValueType], args: &[Clif]) -> Clif {
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

    fn convert_scalar(&mut self, op: Op, from: ValueType, x: Clif) -> Clif {
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
            Family::Shift => self.lane_by_lane(op, types, args),
            Family::Condition | Family::Arithmetic if kind.ty == ValueType::Bool => {
                self.vector_bools(op, args)
            }
            Family::Condition => {
                let masks = self.by_pieces(args, |this, args| this.condition(op, kind, args));
                self.narrow_mask(kind.ty, masks)
            }
            Family::Count if kind.wide() => self.lane_by_lane(op, types, args),
            Family::Count => self.by_pieces(args, |this, args| this.count_vector(op, args[0])),
            Family::Arithmetic if self.has_vector_form(op, kind) => {
                self.by_pieces(args, |this, args| this.arithmetic(op, kind, args))
            }
            Family::Arithmetic => self.lane_by_lane(op, types, args),
        }
    }

    /// An integer op on two pieces of 32-bit lanes.
    pub(super) fn combine_words(&mut self, op: Op, ty: ValueType, a: Clif, b: Clif) -> Clif {
        self.integer_op(op, Kind { vector: true, ty }, &[a, b])
    }

    fn convert_vector(&mut self, op: Op, from: ValueType, pieces: &[Clif]) -> Pieces {
        match op.row().signature {
            Signature::Bitcast(to) => {
                self.each(pieces, |this, piece| this.bitcast(Kind { vector: true, ty: from }, to, piece))
            }
            Signature::Cast(to) => self.cast_vector(from, to, pieces),
            _ => unreachable!("{op:?} is a conversion"),
        }
    }

    fn by_pieces(&mut self, args: &[Pieces], mut each: impl FnMut(&mut Self, &[Clif]) -> Clif) -> Pieces {
        let count = args[0].len();
        let row = |k: usize| -> Vec<Clif> { args.iter().map(|arg| arg[k]).collect() };
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
            let values: Vec<Clif> = typed.map(|(arg, &ty)| self.scalar_lane(ty, arg, lane)).collect();
            scalars.push(self.scalar_op(op, types, &values));
        }
        self.vector_of_scalars(result, &scalars)
    }

    /// What Cranelift has no vector instruction for.
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

    pub(super) fn constant(&mut self, kind: Kind, bits: u64) -> Clif {
        if kind.vector {
            return self.constant_piece(kind.machine(), bits);
        }
        self.constant_scalar(Value::from_bits(kind.ty, bits))
    }

    fn bits_constant(&mut self, kind: Kind, bits: u64) -> Clif {
        let ty = if kind.wide() { ValueType::U64 } else { ValueType::U32 };
        self.constant(Kind { ty, ..kind }, bits)
    }

    fn bits_of(&mut self, kind: Kind, value: Clif) -> Clif {
        if kind.ty.is_float() { self.builder.ins().bitcast(kind.bits_type(), little(), value) } else { value }
    }

    pub(super) fn value_of_bits(&mut self, kind: Kind, bits: Clif) -> Clif {
        if kind.ty.is_float() { self.builder.ins().bitcast(kind.machine(), little(), bits) } else { bits }
    }

    /// One of two values by a condition of the same kind.
    fn choose(&mut self, kind: Kind, condition: Clif, yes: Clif, no: Clif) -> Clif {
        if !kind.vector {
            return self.builder.ins().select(condition, yes, no);
        }
        let (yes, no) = (self.bits_of(kind, yes), self.bits_of(kind, no));
        let chosen = if self.x86 {
            self.builder.ins().blendv(condition, yes, no)
        } else {
            self.builder.ins().bitselect(condition, yes, no)
        };
        self.value_of_bits(kind, chosen)
    }

    /// Zero where the condition does not hold.
    fn keep_if(&mut self, kind: Kind, condition: Clif, value: Clif) -> Clif {
        if kind.vector {
            let bits = self.bits_of(kind, value);
            let kept = self.builder.ins().band(bits, condition);
            return self.value_of_bits(kind, kept);
        }
        let zero = self.constant(kind, 0);
        self.builder.ins().select(condition, value, zero)
    }

    /// Vectors chosen lane by lane with a mask of 32-bit lanes.
    pub(super) fn blend(&mut self, ty: ValueType, mask: &[Clif], yes: &[Clif], no: &[Clif]) -> Pieces {
        let mask = self.native_mask(ty, mask);
        let kind = Kind { vector: true, ty: if ty == ValueType::Bool { ValueType::U32 } else { ty } };
        (0..yes.len()).map(|k| self.choose(kind, mask[k], yes[k], no[k])).collect()
    }

    /// A mask with lanes as wide as those of `ty`.
    pub(super) fn native_mask(&mut self, ty: ValueType, mask: &[Clif]) -> Pieces {
        if mask_type(ty) == I32X4 {
            return mask.to_vec();
        }
        mask.iter()
            .flat_map(|&piece| [self.builder.ins().swiden_low(piece), self.builder.ins().swiden_high(piece)])
            .collect()
    }

    /// A mask with lanes as wide as those of `ty`, as one with 32-bit lanes.
    fn narrow_mask(&mut self, ty: ValueType, masks: Pieces) -> Pieces {
        if mask_type(ty) == I32X4 {
            return masks;
        }
        masks.chunks(2).map(|pair| self.low_halves(pair[0], pair[1])).collect()
    }

    /// The low 32 bits of four 64-bit lanes.
    fn low_halves(&mut self, a: Clif, b: Clif) -> Clif {
        self.pick_words(a, b, [0, 2, 4, 6])
    }

    /// Four of the eight 32-bit words of two pieces.
    pub(super) fn pick_words(&mut self, a: Clif, b: Clif, words: [u8; 4]) -> Clif {
        let a = self.builder.ins().bitcast(I8X16, little(), a);
        let b = self.builder.ins().bitcast(I8X16, little(), b);
        let bytes: Vec<u8> = words.iter().flat_map(|word| (0..4).map(move |byte| 4 * word + byte)).collect();
        let mask = self.builder.func.dfg.immediates.push(ConstantData::from(bytes));
        let picked = self.builder.ins().shuffle(a, b, mask);
        self.builder.ins().bitcast(I32X4, little(), picked)
    }

    fn condition(&mut self, op: Op, kind: Kind, args: &[Clif]) -> Clif {
        let x = args[0];
        if kind.ty.is_float() {
            let infinity = if kind.wide() { f64::INFINITY.to_bits() } else { f32::INFINITY.to_bits().into() };
            let (code, a, b) = match op {
                Op::Eq => (FloatCC::Equal, x, args[1]),
                Op::Ne => (FloatCC::NotEqual, x, args[1]),
                Op::Lt => (FloatCC::LessThan, x, args[1]),
                Op::Le => (FloatCC::LessThanOrEqual, x, args[1]),
                Op::Gt => (FloatCC::LessThan, args[1], x),
                Op::Ge => (FloatCC::LessThanOrEqual, args[1], x),
                Op::IsNan => (FloatCC::NotEqual, x, x),
                Op::IsInf => (FloatCC::Equal, self.builder.ins().fabs(x), self.constant(kind, infinity)),
                Op::IsFinite => {
                    (FloatCC::LessThan, self.builder.ins().fabs(x), self.constant(kind, infinity))
                }
                _ => unreachable!("{op:?} is not a condition on floats"),
            };
            return self.builder.ins().fcmp(code, a, b);
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

    fn compare_integers(&mut self, kind: Kind, base: Op, negate: bool, a: Clif, b: Clif) -> Clif {
        let signed = kind.ty.is_signed_integer();
        if kind.vector && kind.wide() && base == Op::Lt {
            // 64-bit lanes compare signed only; with the top bits flipped, unsigned order is signed order.
            let (mut a, mut b) = (a, b);
            if !signed {
                let top = self.constant(kind, 1 << 63);
                (a, b) = (self.builder.ins().bxor(a, top), self.builder.ins().bxor(b, top));
            }
            let mask = self.builder.ins().icmp(IntCC::SignedLessThan, a, b);
            return if negate { self.builder.ins().bnot(mask) } else { mask };
        }
        if kind.vector && base == Op::Lt && !signed && !negate {
            // Machines compare signed lanes in one instruction; with the top bits flipped, unsigned order is signed order.
            let top = self.constant(kind, 1 << 31);
            let (a, b) = (self.builder.ins().bxor(a, top), self.builder.ins().bxor(b, top));
            return self.builder.ins().icmp(IntCC::SignedLessThan, a, b);
        }
        let code = match (base, negate, signed) {
            (Op::Eq, false, _) => IntCC::Equal,
            (_, true, _) if base == Op::Eq => IntCC::NotEqual,
            (_, false, true) => IntCC::SignedLessThan,
            (_, false, false) => IntCC::UnsignedLessThan,
            (_, true, true) => IntCC::SignedGreaterThanOrEqual,
            (_, true, false) => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.builder.ins().icmp(code, a, b)
    }

    /// Below or above a constant, unsigned: "at most the one before" and "at least the one after" are shorter.
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
            (IntCC::UnsignedLessThanOrEqual, bound.checked_sub(1)?)
        } else {
            (IntCC::UnsignedGreaterThanOrEqual, bound.checked_add(1)?)
        };
        let nearest = self.constant_piece(I32X4, nearest.into());
        let pieces = self.vector(value);
        Some(self.each(&pieces, |this, piece| this.builder.ins().icmp(code, piece, nearest)))
    }

    fn less(&mut self, kind: Kind, a: Clif, b: Clif) -> Clif {
        self.condition(Op::Lt, kind, &[a, b])
    }

    // Booleans.

    fn scalar_bools(&mut self, op: Op, args: &[Clif]) -> Clif {
        match op {
            Op::And => self.builder.ins().band(args[0], args[1]),
            Op::Or => self.builder.ins().bor(args[0], args[1]),
            Op::Xor => self.builder.ins().bxor(args[0], args[1]),
            Op::Not => self.builder.ins().bxor_imm_s(args[0], 1),
            _ => unreachable!("{op:?} does not take bool"),
        }
    }

    fn compare_scalar_bools(&mut self, op: Op, args: &[Clif]) -> Clif {
        let code = if op == Op::Eq { IntCC::Equal } else { IntCC::NotEqual };
        self.builder.ins().icmp(code, args[0], args[1])
    }

    fn vector_bools(&mut self, op: Op, args: &[Pieces]) -> Pieces {
        self.by_pieces(args, |this, args| match op {
            Op::And => this.builder.ins().band(args[0], args[1]),
            Op::Or => this.builder.ins().bor(args[0], args[1]),
            Op::Xor | Op::Ne => this.builder.ins().bxor(args[0], args[1]),
            Op::Not => this.builder.ins().bnot(args[0]),
            Op::Eq => {
                let differ = this.builder.ins().bxor(args[0], args[1]);
                this.builder.ins().bnot(differ)
            }
            _ => unreachable!("{op:?} does not take bool"),
        })
    }

    // Arithmetic.

    fn arithmetic(&mut self, op: Op, kind: Kind, args: &[Clif]) -> Clif {
        if kind.ty.is_float() { self.float_op(op, kind, args) } else { self.integer_op(op, kind, args) }
    }

    fn integer_op(&mut self, op: Op, kind: Kind, args: &[Clif]) -> Clif {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Op::Add => self.builder.ins().iadd(x, y),
            Op::Sub => self.builder.ins().isub(x, y),
            Op::Mul => self.builder.ins().imul(x, y),
            Op::Div | Op::Rem => self.divide(op, kind, x, y),
            Op::Neg => self.builder.ins().ineg(x),
            Op::Abs if kind.ty.is_signed_integer() => self.builder.ins().iabs(x),
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
                self.builder.ins().isub(large, small)
            }
            Op::MulHi => self.multiply_high(kind, x, y),
            Op::And => self.builder.ins().band(x, y),
            Op::Or => self.builder.ins().bor(x, y),
            Op::Xor => self.builder.ins().bxor(x, y),
            Op::Not => self.builder.ins().bnot(x),
            Op::ReverseBits if kind.vector => self.reverse_bits(kind, x),
            Op::ReverseBits => self.builder.ins().bitrev(x),
            _ => unreachable!("{op:?} is not an integer op"),
        }
    }

    fn smaller(&mut self, kind: Kind, x: Clif, y: Clif) -> Clif {
        let less = self.less(kind, x, y);
        self.choose(kind, less, x, y)
    }

    fn larger(&mut self, kind: Kind, x: Clif, y: Clif) -> Clif {
        let less = self.less(kind, x, y);
        self.choose(kind, less, y, x)
    }

    fn sign_of_integer(&mut self, kind: Kind, x: Clif) -> Clif {
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

    fn saturate(&mut self, op: Op, kind: Kind, x: Clif, y: Clif) -> Clif {
        let add = op == Op::SatAdd;
        let result = if add { self.builder.ins().iadd(x, y) } else { self.builder.ins().isub(x, y) };
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
        // The sign is wrong if it differs from both operands' (the second one's negated, for a difference).
        let from_x = self.builder.ins().bxor(x, result);
        let from_y = if add { self.builder.ins().bxor(y, result) } else { self.builder.ins().bxor(x, y) };
        let wrong = self.builder.ins().band(from_x, from_y);
        let zero = self.constant(kind, 0);
        let overflowed = self.less(kind, wrong, zero);
        let most = self.constant(kind, (1 << (kind.ty.bits() - 1)) - 1);
        let least = self.constant(kind, 1 << (kind.ty.bits() - 1));
        let negative = self.less(kind, x, zero);
        let limit = self.choose(kind, negative, least, most);
        self.choose(kind, overflowed, limit, result)
    }

    fn multiply_high(&mut self, kind: Kind, x: Clif, y: Clif) -> Clif {
        let signed = kind.ty.is_signed_integer();
        if kind.vector {
            let half = |this: &mut Self, value: Clif, high: bool| match (signed, high) {
                (true, false) => this.builder.ins().swiden_low(value),
                (true, true) => this.builder.ins().swiden_high(value),
                (false, false) => this.builder.ins().uwiden_low(value),
                (false, true) => this.builder.ins().uwiden_high(value),
            };
            let products = [false, true].map(|high| {
                let (a, b) = (half(self, x, high), half(self, y, high));
                self.builder.ins().imul(a, b)
            });
            return self.pick_words(products[0], products[1], [1, 3, 5, 7]);
        }
        if kind.wide() {
            return if signed { self.builder.ins().smulhi(x, y) } else { self.builder.ins().umulhi(x, y) };
        }
        let wide = |this: &mut Self, value: Clif| {
            if signed {
                this.builder.ins().sextend(I64, value)
            } else {
                this.builder.ins().uextend(I64, value)
            }
        };
        let (a, b) = (wide(self, x), wide(self, y));
        let product = self.builder.ins().imul(a, b);
        let high = self.builder.ins().ushr_imm_u(product, 32);
        self.builder.ins().ireduce(I32, high)
    }

    /// 32-bit lanes: neighbouring groups of bits change places, from single bits up to halves.
    fn reverse_bits(&mut self, kind: Kind, x: Clif) -> Clif {
        let mut value = x;
        for (count, mask) in
            [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0F0F_0F0F), (8, 0x00FF_00FF), (16, 0x0000_FFFF)]
        {
            let mask = self.constant(kind, mask);
            let high = self.builder.ins().ushr_imm_u(value, count);
            let high = self.builder.ins().band(high, mask);
            let low = self.builder.ins().band(value, mask);
            let low = self.builder.ins().ishl_imm_u(low, count);
            value = self.builder.ins().bor(high, low);
        }
        value
    }

    fn count_scalar(&mut self, op: Op, kind: Kind, x: Clif) -> Clif {
        let count = match op {
            Op::Popcount => self.builder.ins().popcnt(x),
            Op::Clz => self.builder.ins().clz(x),
            Op::Ctz => self.builder.ins().ctz(x),
            _ => unreachable!("{op:?} does not count bits"),
        };
        if kind.wide() { self.builder.ins().ireduce(I32, count) } else { count }
    }

    /// 32-bit lanes; leading and trailing zeros are the bits of a number that has just those set.
    fn count_vector(&mut self, op: Op, x: Clif) -> Clif {
        let kind = Kind { vector: true, ty: ValueType::U32 };
        match op {
            Op::Popcount => self.popcount(kind, x),
            Op::Ctz => {
                let ones = self.constant(kind, u64::MAX);
                let less = self.builder.ins().iadd(x, ones);
                let below = self.builder.ins().band_not(less, x);
                self.popcount(kind, below)
            }
            Op::Clz => {
                let mut smeared = x;
                for count in [1, 2, 4, 8, 16] {
                    let shifted = self.builder.ins().ushr_imm_u(smeared, count);
                    smeared = self.builder.ins().bor(smeared, shifted);
                }
                let above = self.builder.ins().bnot(smeared);
                self.popcount(kind, above)
            }
            _ => unreachable!("{op:?} does not count bits"),
        }
    }

    fn popcount(&mut self, kind: Kind, x: Clif) -> Clif {
        let (pairs, fours) = (self.constant(kind, 0x5555_5555), self.constant(kind, 0x3333_3333));
        let (eights, ones) = (self.constant(kind, 0x0F0F_0F0F), self.constant(kind, 0x0101_0101));
        let odd = self.builder.ins().ushr_imm_u(x, 1);
        let odd = self.builder.ins().band(odd, pairs);
        let by_two = self.builder.ins().isub(x, odd);
        let high = self.builder.ins().ushr_imm_u(by_two, 2);
        let high = self.builder.ins().band(high, fours);
        let low = self.builder.ins().band(by_two, fours);
        let by_four = self.builder.ins().iadd(low, high);
        let high = self.builder.ins().ushr_imm_u(by_four, 4);
        let sum = self.builder.ins().iadd(by_four, high);
        let by_eight = self.builder.ins().band(sum, eights);
        let total = self.builder.ins().imul(by_eight, ones);
        self.builder.ins().ushr_imm_u(total, 24)
    }

    fn shift(&mut self, op: Op, kind: Kind, x: Clif, count: Clif) -> Clif {
        match op {
            Op::Shl => self.builder.ins().ishl(x, count),
            Op::Shr if kind.ty.is_signed_integer() => self.builder.ins().sshr(x, count),
            Op::Shr => self.builder.ins().ushr(x, count),
            Op::RotateLeft | Op::RotateRight => {
                // A shift takes its count modulo the width, so the negated count is the rest of the width.
                let rest = self.builder.ins().ineg(count);
                let (left, right) = if op == Op::RotateLeft { (count, rest) } else { (rest, count) };
                let high = self.builder.ins().ishl(x, left);
                let low = self.builder.ins().ushr(x, right);
                self.builder.ins().bor(high, low)
            }
            _ => unreachable!("{op:?} is not a shift"),
        }
    }

    /// A shift by the same count in every lane.
    fn shift_together(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Pieces {
        let count = self.scalar(args[1]);
        let pieces = self.vector(args[0]);
        let kind = Kind { vector: true, ty };
        pieces.into_iter().map(|piece| self.shift(op, kind, piece, count)).collect()
    }

    fn float_op(&mut self, op: Op, kind: Kind, args: &[Clif]) -> Clif {
        let x = args[0];
        let y = *args.get(1).unwrap_or(&x);
        match op {
            Op::Add => self.builder.ins().fadd(x, y),
            Op::Sub => self.builder.ins().fsub(x, y),
            Op::Mul => self.builder.ins().fmul(x, y),
            Op::Div => self.builder.ins().fdiv(x, y),
            Op::Neg => self.builder.ins().fneg(x),
            Op::Abs => self.builder.ins().fabs(x),
            Op::Sign => self.sign_of_float(kind, x),
            Op::Min | Op::Max => self.float_extreme(op, kind, x, y),
            Op::Clamp => {
                let raised = self.float_extreme(Op::Max, kind, x, y);
                self.float_extreme(Op::Min, kind, raised, args[2])
            }
            Op::Fma => self.builder.ins().fma(x, y, args[2]),
            Op::Sqrt => self.builder.ins().sqrt(x),
            Op::Rsqrt => {
                let root = self.builder.ins().sqrt(x);
                let one = self.constant_one(kind);
                self.builder.ins().fdiv(one, root)
            }
            Op::Floor => self.builder.ins().floor(x),
            Op::Ceil => self.builder.ins().ceil(x),
            Op::Trunc => self.builder.ins().trunc(x),
            Op::Round => self.builder.ins().nearest(x),
            Op::Copysign => self.copy_sign(kind, x, y),
            _ => unreachable!("{op:?} is not a float op"),
        }
    }

    fn constant_one(&mut self, kind: Kind) -> Clif {
        self.constant(kind, Value::one(kind.ty).to_bits())
    }

    fn sign_of_float(&mut self, kind: Kind, x: Clif) -> Clif {
        let (zero, one) = (self.constant(kind, 0), self.constant_one(kind));
        let minus_one = self.builder.ins().fneg(one);
        let negative = self.builder.ins().fcmp(FloatCC::LessThan, x, zero);
        let is_zero = self.builder.ins().fcmp(FloatCC::Equal, x, zero);
        let unit = self.choose(kind, negative, minus_one, one);
        self.choose(kind, is_zero, x, unit)
    }

    /// A NaN gives way to the other operand; of two equal ones, zeros, -0.0 is the smaller.
    fn float_extreme(&mut self, op: Op, kind: Kind, x: Clif, y: Clif) -> Clif {
        let is_nan = self.builder.ins().fcmp(FloatCC::NotEqual, x, x);
        let number = self.choose(kind, is_nan, y, x);
        self.extreme_with_number(op, kind, number, y)
    }

    /// The same where a NaN can be in `x` only if there is one in `y`.
    fn extreme_with_number(&mut self, op: Op, kind: Kind, x: Clif, y: Clif) -> Clif {
        let min = op == Op::Min;
        let (a, b) = if min { (y, x) } else { (x, y) };
        let better = self.builder.ins().fcmp(FloatCC::LessThan, a, b);
        let chosen = self.choose_by_order(kind, better, y, x);
        // Equal operands differ at most in a zero's sign, which `or` and `and` settle.
        let (chosen_bits, y_bits) = (self.bits_of(kind, chosen), self.bits_of(kind, y));
        let code = if min { FloatCC::Equal } else { FloatCC::NotEqual };
        let compared = self.builder.ins().fcmp(code, chosen, y);
        let compared = if kind.vector { compared } else { self.spread(kind, compared) };
        let settled = if min {
            let sign = self.builder.ins().band(y_bits, compared);
            self.builder.ins().bor(chosen_bits, sign)
        } else {
            let sign = self.builder.ins().bor(y_bits, compared);
            self.builder.ins().band(chosen_bits, sign)
        };
        self.value_of_bits(kind, settled)
    }

    /// A scalar condition as all ones or all zeros.
    fn spread(&mut self, kind: Kind, condition: Clif) -> Clif {
        let one = self.builder.ins().uextend(kind.bits_type(), condition);
        self.builder.ins().ineg(one)
    }

    /// A choice between the operands of the comparison that decides it, in a form that is one machine instruction.
    fn choose_by_order(&mut self, kind: Kind, less: Clif, yes: Clif, no: Clif) -> Clif {
        if !kind.vector {
            return self.builder.ins().select(less, yes, no);
        }
        let less = self.builder.ins().bitcast(kind.machine(), little(), less);
        self.builder.ins().bitselect(less, yes, no)
    }

    /// A minimum or maximum of which one operand is known to be a number.
    fn extreme_of_numbers(&mut self, op: Op, args: &[Reg], ty: ValueType) -> Option<Pieces> {
        if !matches!(op, Op::Min | Op::Max) || !ty.is_float() {
            return None;
        }
        let number = args.iter().position(|arg| self.numbers[arg.0 as usize])?;
        let (numbers, others) = (self.vector(args[number]), self.vector(args[1 - number]));
        let kind = Kind { vector: true, ty };
        Some((0..numbers.len()).map(|k| self.extreme_with_number(op, kind, numbers[k], others[k])).collect())
    }

    /// `select(a < b, a, b)` and its like on floats.
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
        let kind = Kind { vector: true, ty: self.shape(a).ty };
        let (low, high) = (self.vector(a), self.vector(b));
        let pick = |this: &mut Self, a: Clif, b: Clif| {
            let less = this.builder.ins().fcmp(FloatCC::LessThan, a, b);
            let (yes, no) = if forwards { (a, b) } else { (b, a) };
            this.choose_by_order(kind, less, yes, no)
        };
        Some((0..low.len()).map(|k| pick(self, low[k], high[k])).collect())
    }

    /// Whether two registers hold the same, as one register or as one constant.
    fn is_same(&self, a: Reg, b: Reg) -> bool {
        let constant = |reg: Reg| self.constants[reg.0 as usize].map(|value| (value.ty(), value.to_bits()));
        a == b || (constant(a).is_some() && constant(a) == constant(b))
    }

    /// Remembers an order of floats, so that a choice it decides can be seen for what it is.
    pub(super) fn note_order(&mut self, reg: Reg, op: Op, args: &[Reg]) {
        let float = args.first().is_some_and(|&arg| self.shape(arg).ty.is_float());
        if self.shape(reg).vector && float && matches!(op, Op::Lt | Op::Gt) {
            let (a, b) = if op == Op::Lt { (args[0], args[1]) } else { (args[1], args[0]) };
            self.ordered[reg.0 as usize] = Some((a, b));
        }
    }

    /// A minimum or maximum with a constant that is neither NaN nor zero: the machine's own comparison does.
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
        let kind = Kind { vector: true, ty };
        let pick = |this: &mut Self, x: Clif, bound: Clif| {
            // Ordered so that a NaN fails the comparison and gives the bound.
            let (a, b) = if op == Op::Min { (x, bound) } else { (bound, x) };
            let inside = this.builder.ins().fcmp(FloatCC::LessThan, a, b);
            this.choose_by_order(kind, inside, x, bound)
        };
        Some((0..values.len()).map(|k| pick(self, values[k], bounds[k])).collect())
    }

    fn copy_sign(&mut self, kind: Kind, x: Clif, y: Clif) -> Clif {
        let sign = 1_u64 << (kind.ty.bits() - 1);
        let (sign_bit, rest) = (self.bits_constant(kind, sign), self.bits_constant(kind, sign - 1));
        let (x_bits, y_bits) = (self.bits_of(kind, x), self.bits_of(kind, y));
        let magnitude = self.builder.ins().band(x_bits, rest);
        let taken = self.builder.ins().band(y_bits, sign_bit);
        let is_number = self.builder.ins().fcmp(FloatCC::Equal, y, y);
        let bits_kind = Kind { ty: if kind.wide() { ValueType::U64 } else { ValueType::U32 }, ..kind };
        let taken = self.keep_if(bits_kind, is_number, taken);
        let bits = self.builder.ins().bor(magnitude, taken);
        self.value_of_bits(kind, bits)
    }

    // Conversions.

    fn bitcast(&mut self, kind: Kind, to: ValueType, value: Clif) -> Clif {
        let target = Kind { vector: kind.vector, ty: to };
        if !kind.ty.is_float() {
            return self.value_of_bits(target, value);
        }
        if to.is_float() {
            return value;
        }
        let nan = if kind.wide() { CANONICAL_NAN_F64 } else { CANONICAL_NAN_F32.into() };
        let nan = self.constant(kind, nan);
        let is_nan = self.builder.ins().fcmp(FloatCC::NotEqual, value, value);
        let value = self.choose(kind, is_nan, nan, value);
        self.bits_of(kind, value)
    }

    fn cast_scalar(&mut self, from: ValueType, to: ValueType, x: Clif) -> Clif {
        use ValueType::{Bool, F32 as FloatSingle, F64 as FloatDouble, I32 as Signed, I64 as SignedLong};
        use ValueType::{U32 as Unsigned, U64 as UnsignedLong};
        let kind = Kind { vector: false, ty: from };
        if from == to {
            return x;
        }
        match (from, to) {
            (FloatSingle | FloatDouble, Bool) => {
                let zero = self.constant(kind, 0);
                self.builder.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            (_, Bool) => self.builder.ins().icmp_imm_s(IntCC::NotEqual, x, 0),
            (Bool, FloatSingle | FloatDouble) => {
                let word = self.builder.ins().uextend(I32, x);
                self.builder.ins().fcvt_from_uint(scalar_type(to), word)
            }
            (Bool, _) => self.builder.ins().uextend(scalar_type(to), x),
            (FloatSingle, FloatDouble) => self.builder.ins().fpromote(F64, x),
            (FloatDouble, FloatSingle) => self.builder.ins().fdemote(F32, x),
            (FloatSingle | FloatDouble, Signed | SignedLong) => {
                self.builder.ins().fcvt_to_sint_sat(scalar_type(to), x)
            }
            (FloatSingle | FloatDouble, _) => self.builder.ins().fcvt_to_uint_sat(scalar_type(to), x),
            (Signed | SignedLong, FloatSingle | FloatDouble) => {
                self.builder.ins().fcvt_from_sint(scalar_type(to), x)
            }
            (Unsigned | UnsignedLong, FloatSingle | FloatDouble) => {
                self.builder.ins().fcvt_from_uint(scalar_type(to), x)
            }
            (Signed, SignedLong | UnsignedLong) => self.builder.ins().sextend(I64, x),
            (Unsigned, SignedLong | UnsignedLong) => self.builder.ins().uextend(I64, x),
            (SignedLong | UnsignedLong, Signed | Unsigned) => self.builder.ins().ireduce(I32, x),
            (Signed | Unsigned, Signed | Unsigned)
            | (SignedLong | UnsignedLong, SignedLong | UnsignedLong) => x,
        }
    }

    fn cast_vector(&mut self, from: ValueType, to: ValueType, pieces: &[Clif]) -> Pieces {
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
                let kept: Pieces = masks.iter().map(|&mask| self.builder.ins().band(mask, one)).collect();
                kept.into_iter().map(|bits| self.value_of_bits(target, bits)).collect()
            }
            (Signed, FloatSingle) => {
                self.each(pieces, |this, x| this.builder.ins().fcvt_from_sint(piece_type(to), x))
            }
            (Unsigned, FloatSingle) => {
                self.each(pieces, |this, x| this.builder.ins().fcvt_from_uint(piece_type(to), x))
            }
            (FloatSingle, Signed) => {
                self.each(pieces, |this, x| this.builder.ins().fcvt_to_sint_sat(I32X4, x))
            }
            (FloatSingle, Unsigned) => {
                self.each(pieces, |this, x| this.builder.ins().fcvt_to_uint_sat(I32X4, x))
            }
            (Signed, SignedLong | UnsignedLong) => self.native_mask(to, pieces),
            (Unsigned, SignedLong | UnsignedLong) => pieces
                .iter()
                .flat_map(|&x| [self.builder.ins().uwiden_low(x), self.builder.ins().uwiden_high(x)])
                .collect(),
            (SignedLong | UnsignedLong, Signed | Unsigned) => {
                pieces.chunks(2).map(|pair| self.low_halves(pair[0], pair[1])).collect()
            }
            (FloatSingle, FloatDouble) => pieces
                .iter()
                .flat_map(|&x| {
                    let upper = self.pick_words(x, x, [2, 3, 2, 3]);
                    let upper = self.builder.ins().bitcast(piece_type(from), little(), upper);
                    [self.builder.ins().fvpromote_low(x), self.builder.ins().fvpromote_low(upper)]
                })
                .collect(),
            (FloatDouble, FloatSingle) => pieces
                .chunks(2)
                .map(|pair| {
                    let (low, high) =
                        (self.builder.ins().fvdemote(pair[0]), self.builder.ins().fvdemote(pair[1]));
                    let joined = self.pick_words(low, high, [0, 1, 4, 5]);
                    self.builder.ins().bitcast(piece_type(to), little(), joined)
                })
                .collect(),
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

    fn each(&mut self, pieces: &[Clif], mut make: impl FnMut(&mut Self, Clif) -> Clif) -> Pieces {
        pieces.iter().map(|&piece| make(self, piece)).collect()
    }
}
