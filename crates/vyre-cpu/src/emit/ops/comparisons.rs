//! Comparisons, tests of floats, and choices by a condition.
//!
//! A condition is a byte for scalars, and for vectors a mask as wide as the operands.

use super::super::{Emitter, Pieces};
use crate::op_groups::{Comparison, FloatTest, Inequality};
use crate::piece::{FloatOrder, IntOrder, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::types::ValueType;

impl Emitter<'_> {
    /// Compares two scalars or pieces.
    pub(super) fn compare(
        &mut self,
        comparison: Comparison,
        reg_type: RegType,
        [a, b]: [Operand; 2],
    ) -> Operand {
        if !reg_type.ty.is_float() {
            return self.compare_integers(comparison, reg_type, [a, b]);
        }
        let (order, a, b) = match comparison {
            Comparison::Equal => (FloatOrder::Equal, a, b),
            Comparison::NotEqual => (FloatOrder::NotEqual, a, b),
            Comparison::Inequality(Inequality::Less) => (FloatOrder::Less, a, b),
            Comparison::Inequality(Inequality::LessOrEqual) => (FloatOrder::LessOrEqual, a, b),
            Comparison::Inequality(Inequality::Greater) => (FloatOrder::Less, b, a),
            Comparison::Inequality(Inequality::GreaterOrEqual) => (FloatOrder::LessOrEqual, b, a),
        };
        self.builder.compare_floats(order, a, b)
    }

    fn compare_integers(
        &mut self,
        comparison: Comparison,
        reg_type: RegType,
        [a, b]: [Operand; 2],
    ) -> Operand {
        match comparison {
            Comparison::Equal => self.builder.compare(IntOrder::Equal, a, b),
            Comparison::NotEqual => self.builder.compare(IntOrder::NotEqual, a, b),
            Comparison::Inequality(Inequality::Less) => self.less(reg_type, a, b),
            Comparison::Inequality(Inequality::Greater) => self.less(reg_type, b, a),
            Comparison::Inequality(Inequality::GreaterOrEqual) => self.not_less(reg_type, a, b),
            Comparison::Inequality(Inequality::LessOrEqual) => self.not_less(reg_type, b, a),
        }
    }

    /// Whether `a < b`, on integers.
    pub(super) fn less(&mut self, reg_type: RegType, a: Operand, b: Operand) -> Operand {
        let signed = reg_type.ty.is_signed_integer();
        if !reg_type.vector || signed {
            return self.builder.compare(Inequality::Less.of_integers(signed), a, b);
        }
        // Signed lanes compare in one instruction; flipping the top bits turns unsigned order into
        // signed.
        let top = self.constant(reg_type, if reg_type.is_wide() { 1 << 63 } else { 1 << 31 });
        let (a, b) = (self.builder.xor(a, top), self.builder.xor(b, top));
        self.builder.compare(IntOrder::SignedLess, a, b)
    }

    /// Whether `a >= b`, on integers.
    fn not_less(&mut self, reg_type: RegType, a: Operand, b: Operand) -> Operand {
        if reg_type.vector && reg_type.is_wide() {
            // 64-bit lanes have only a signed `<`.
            let less = self.less(reg_type, a, b);
            return self.builder.not(less);
        }
        let order = Inequality::GreaterOrEqual.of_integers(reg_type.ty.is_signed_integer());
        self.builder.compare(order, a, b)
    }

    /// Tests a float.
    pub(super) fn test_float(&mut self, test: FloatTest, reg_type: RegType, x: Operand) -> Operand {
        let infinity =
            if reg_type.is_wide() { f64::INFINITY.to_bits() } else { f32::INFINITY.to_bits().into() };
        let (order, a, b) = match test {
            FloatTest::Nan => (FloatOrder::NotEqual, x, x),
            FloatTest::Infinite => {
                (FloatOrder::Equal, self.builder.abs(x), self.constant(reg_type, infinity))
            }
            FloatTest::Finite => (FloatOrder::Less, self.builder.abs(x), self.constant(reg_type, infinity)),
        };
        self.builder.compare_floats(order, a, b)
    }

    /// Compares two vectors; the result is a mask of 32-bit lanes.
    pub(super) fn compare_vectors(
        &mut self,
        comparison: Comparison,
        ty: ValueType,
        [a, b]: [&Pieces; 2],
    ) -> Pieces {
        let pairs = a.iter().copied().zip(b.iter().copied());
        let masks = match (ty, comparison) {
            // These are masks already.
            (ValueType::Bool, Comparison::NotEqual) => pairs.map(|(a, b)| self.builder.xor(a, b)).collect(),
            (ValueType::Bool, Comparison::Equal) => pairs
                .map(|(a, b)| {
                    let differ = self.builder.xor(a, b);
                    self.builder.not(differ)
                })
                .collect(),
            (_, comparison) => {
                let reg_type = RegType { ty, vector: true };
                pairs.map(|(a, b)| self.compare(comparison, reg_type, [a, b])).collect()
            }
        };
        self.narrow_mask(ty, masks)
    }

    /// Compares two vectors of `u32`.
    pub(in super::super) fn compare_words(&mut self, order: Inequality, a: &Pieces, b: &Pieces) -> Pieces {
        self.compare_vectors(Comparison::Inequality(order), ValueType::U32, [a, b])
    }

    /// Selects one of two values by a condition of the same kind.
    pub(super) fn choose(
        &mut self,
        reg_type: RegType,
        condition: Operand,
        yes: Operand,
        no: Operand,
    ) -> Operand {
        if reg_type.vector {
            self.builder.choose(condition, yes, no)
        } else {
            self.builder.select(condition, yes, no)
        }
    }

    /// Returns the value, or zero where the condition does not hold.
    pub(super) fn keep_if(&mut self, reg_type: RegType, condition: Operand, value: Operand) -> Operand {
        if reg_type.vector {
            let bits = self.bits_of(reg_type, value);
            let kept = self.builder.and(bits, condition);
            return self.value_of_bits(reg_type, kept);
        }
        let zero = self.constant(reg_type, 0);
        self.builder.select(condition, value, zero)
    }

    /// Selects between vectors lane by lane with a mask of 32-bit lanes.
    pub(in super::super) fn blend(
        &mut self,
        ty: ValueType,
        mask: &[Operand],
        yes: &[Operand],
        no: &[Operand],
    ) -> Pieces {
        let mask = self.native_mask(ty, mask);
        let ty = if ty == ValueType::Bool { ValueType::U32 } else { ty };
        let reg_type = RegType { ty, vector: true };
        (0..yes.len()).map(|k| self.choose(reg_type, mask[k], yes[k], no[k])).collect()
    }

    /// Widens a mask to lanes as wide as those of `ty`.
    pub(in super::super) fn native_mask(&mut self, ty: ValueType, mask: &[Operand]) -> Pieces {
        if !self.mask_type(ty).is_wide() {
            return mask.to_vec();
        }
        mask.iter().flat_map(|&piece| self.builder.widen(true, piece)).collect()
    }

    /// Narrows a mask with lanes as wide as those of `ty` to 32-bit lanes.
    pub(super) fn narrow_mask(&mut self, ty: ValueType, masks: Pieces) -> Pieces {
        if !self.mask_type(ty).is_wide() {
            return masks;
        }
        masks.chunks(2).map(|pair| self.builder.low_halves(pair[0], pair[1])).collect()
    }
}
