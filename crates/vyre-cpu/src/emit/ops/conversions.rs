//! Conversions between types.

use super::super::{Emitter, Pieces, scalar_type};
use crate::op_groups::Comparison;
use crate::piece::{F32, F64, FloatOrder, I32, I64, IntOrder, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::ir::Op;
use vyre_foundation::types::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, Value, ValueType};

impl Emitter<'_> {
    pub(super) fn bitcast(&mut self, reg_type: RegType, to: ValueType, value: Operand) -> Operand {
        let target = RegType { ty: to, vector: reg_type.vector };
        if !reg_type.ty.is_float() {
            return self.value_of_bits(target, value);
        }
        if to.is_float() {
            return value;
        }
        let nan = if reg_type.is_wide() { CANONICAL_NAN_F64 } else { CANONICAL_NAN_F32.into() };
        let nan = self.constant(reg_type, nan);
        let is_nan = self.builder.compare_floats(FloatOrder::NotEqual, value, value);
        let value = self.choose(reg_type, is_nan, nan, value);
        self.bits_of(reg_type, value)
    }

    pub(super) fn cast_scalar(&mut self, from: ValueType, to: ValueType, x: Operand) -> Operand {
        use ValueType::{Bool, F32 as FloatSingle, F64 as FloatDouble, I32 as Signed, I64 as SignedLong};
        use ValueType::{U32 as Unsigned, U64 as UnsignedLong};
        let reg_type = RegType { ty: from, vector: false };
        if from == to {
            return x;
        }
        match (from, to) {
            (FloatSingle | FloatDouble, Bool) => {
                let zero = self.constant(reg_type, 0);
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

    pub(super) fn cast_vector(&mut self, from: ValueType, to: ValueType, pieces: &[Operand]) -> Pieces {
        use ValueType::{Bool, F32 as FloatSingle, F64 as FloatDouble, I32 as Signed, I64 as SignedLong};
        use ValueType::{U32 as Unsigned, U64 as UnsignedLong};
        let reg_type = RegType { ty: from, vector: true };
        if from == to {
            return pieces.to_vec();
        }
        match (from, to) {
            (_, Bool) => {
                let zero = self.constant(reg_type, 0);
                let masks = pieces
                    .iter()
                    .map(|&piece| self.compare(Comparison::NotEqual, reg_type, [piece, zero]))
                    .collect();
                self.narrow_mask(from, masks)
            }
            (Bool, _) => {
                let one = Value::one(to).to_bits();
                let target = RegType { ty: to, vector: true };
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
}
