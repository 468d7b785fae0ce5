//! Bit counts, shifts and bit reversal.

use super::super::{Emitter, Pieces};
use crate::op_groups::{BitCount, Shift};
use crate::piece::{I32, Value as Operand};
use crate::vector::RegType;
use vyre_foundation::types::ValueType;

impl Emitter<'_> {
    pub(super) fn count_scalar(&mut self, count: BitCount, reg_type: RegType, x: Operand) -> Operand {
        let count = match count {
            BitCount::Ones => self.builder.count_ones(x),
            BitCount::LeadingZeros => self.builder.leading_zeros(x),
            BitCount::TrailingZeros => self.builder.trailing_zeros(x),
        };
        if reg_type.is_wide() { self.builder.reduce(I32, count) } else { count }
    }

    /// Counts bits with the instructions of AVX-512; the counts are 32-bit lanes.
    pub(super) fn count_lanes(&mut self, count: BitCount, reg_type: RegType, pieces: &[Operand]) -> Pieces {
        let counts = self.each(pieces, |this, x| match count {
            BitCount::Ones => this.builder.count_ones(x),
            BitCount::LeadingZeros => this.builder.leading_zeros(x),
            BitCount::TrailingZeros => {
                let below = this.below_lowest(reg_type, x);
                if this.builder.counts_bits() {
                    return this.builder.count_ones(below);
                }
                let all = this.constant(reg_type, reg_type.ty.bits().into());
                let above = this.builder.leading_zeros(below);
                this.builder.sub(all, above)
            }
        });
        if !reg_type.is_wide() {
            return counts;
        }
        counts.chunks(2).map(|pair| self.builder.low_halves(pair[0], pair[1])).collect()
    }

    /// Counts bits in 32-bit lanes; leading and trailing zeros are the popcount of a mask of just
    /// those bits.
    pub(super) fn count_vector(&mut self, count: BitCount, x: Operand) -> Operand {
        let reg_type = RegType { ty: ValueType::U32, vector: true };
        match count {
            BitCount::Ones => self.builder.count_ones(x),
            BitCount::TrailingZeros => {
                let below = self.below_lowest(reg_type, x);
                self.builder.count_ones(below)
            }
            BitCount::LeadingZeros => {
                let mut smeared = x;
                for count in [1, 2, 4, 8, 16] {
                    let shifted = self.builder.shift_right_const(smeared, count);
                    smeared = self.builder.or(smeared, shifted);
                }
                let above = self.builder.not(smeared);
                self.builder.count_ones(above)
            }
        }
    }

    /// The bits below the lowest one that is set.
    fn below_lowest(&mut self, reg_type: RegType, x: Operand) -> Operand {
        let ones = self.constant(reg_type, u64::MAX);
        let less = self.builder.add(x, ones);
        self.builder.and_not(less, x)
    }

    pub(super) fn shift(&mut self, shift: Shift, reg_type: RegType, x: Operand, count: Operand) -> Operand {
        match shift {
            Shift::Left => self.builder.shift_left(x, count),
            Shift::Right if reg_type.ty.is_signed_integer() => self.builder.shift_right_signed(x, count),
            Shift::Right => self.builder.shift_right(x, count),
            Shift::RotateLeft => self.builder.rotate_left(x, count),
            Shift::RotateRight => {
                // The count is taken modulo the width, so the negated count is the complement.
                let rest = self.builder.neg(count);
                self.builder.rotate_left(x, rest)
            }
        }
    }

    /// Shifts each lane by a separate count.
    pub(super) fn shift_each(
        &mut self,
        shift: Shift,
        reg_type: RegType,
        pieces: &[Operand],
        counts: &[Operand],
    ) -> Pieces {
        let counts: Pieces = if reg_type.is_wide() {
            counts.iter().flat_map(|&count| self.builder.widen(false, count)).collect()
        } else {
            counts.to_vec()
        };
        let most = self.bits_constant(reg_type, u64::from(reg_type.ty.bits()) - 1);
        let signed = reg_type.ty.is_signed_integer();
        pieces
            .iter()
            .zip(counts)
            .map(|(&piece, count)| {
                let within = |this: &mut Self| this.builder.and(count, most);
                match shift {
                    Shift::RotateLeft => self.builder.rotate_each(true, piece, count),
                    Shift::RotateRight => self.builder.rotate_each(false, piece, count),
                    Shift::Left => {
                        let count = within(self);
                        self.builder.shift_left_each(piece, count)
                    }
                    Shift::Right => {
                        let count = within(self);
                        match signed {
                            true => self.builder.shift_right_signed_each(piece, count),
                            false => self.builder.shift_right_each(piece, count),
                        }
                    }
                }
            })
            .collect()
    }

    /// Reverses the bits of 32-bit lanes by swapping neighbouring groups, from single bits up to
    /// halves.
    pub(super) fn reverse_bits(&mut self, reg_type: RegType, x: Operand) -> Operand {
        let mut value = x;
        for (count, mask) in
            [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0F0F_0F0F), (8, 0x00FF_00FF), (16, 0x0000_FFFF)]
        {
            let mask = self.constant(reg_type, mask);
            let high = self.builder.shift_right_const(value, count);
            let high = self.builder.and(high, mask);
            let low = self.builder.and(value, mask);
            let low = self.builder.shift_left_const(low, count);
            value = self.builder.or(high, low);
        }
        value
    }
}
