//! Accesses with evenly spaced lanes: rows of a matrix, one per lane.
//!
//! The lanes' indices are sums of scalars, so none have to be extracted from a vector. 32-bit sums
//! wrap as the kernel's do, and are exact.

use super::{Emitter, Pieces};
use crate::piece::{I64, IntOrder, Value as Operand};
use crate::vector::{Index, Reg, Store};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::DataType;

impl Emitter<'_> {
    /// Returns the indices as a vector.
    pub(super) fn spaced(&mut self, base: Reg, stride: Reg) -> Pieces {
        let (base, stride, numbers) = (self.vector(base), self.vector(stride), self.lane_numbers());
        let parts = base.into_iter().zip(stride).zip(numbers);
        parts
            .map(|((base, stride), number)| {
                let steps = self.builder.mul(stride, number);
                self.builder.add(base, steps)
            })
            .collect()
    }

    /// Returns the indices of the lanes, each as 64 bits.
    pub(super) fn spaced_lanes(&mut self, [base, stride]: [Reg; 2]) -> Vec<Operand> {
        let mut lanes = vec![self.scalar(base)];
        let mut reach = self.scalar(stride);
        loop {
            for lane in 0..lanes.len() {
                let next = self.builder.add(lanes[lane], reach);
                lanes.push(next);
            }
            if lanes.len() >= self.lanes() {
                break;
            }
            reach = self.builder.add(reach, reach);
        }
        lanes.into_iter().map(|lane| self.builder.extend_unsigned(I64, lane)).collect()
    }

    pub(super) fn load_spaced(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: [Reg; 2],
        checked: bool,
    ) -> Pieces {
        let ty = element.value_type();
        if !checked {
            let lanes = self.column_addresses(buffer, element, Index::Spaced(index[0], index[1]));
            return self.collect_lanes(ty, |this, lane| {
                let (address, offset) = lanes[lane];
                let address = this.builder.add_const(address, offset.into());
                let value = this.load_element(element, address);
                this.lane_of(ty, value)
            });
        }
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        for _ in 0..self.piece_count(ty) {
            self.builder.append_param(after, self.piece_type(ty));
        }
        let inside = self.all_spaced_inside(buffer, index);
        self.builder.branch(inside, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        let indices = self.spaced_lanes(index);
        let pieces = self.load_lanes(buffer, element, &indices);
        self.builder.jump(after, &pieces);
        self.builder.begin(slow);
        let vector = self.spaced(index[0], index[1]);
        let pieces = self.gather(buffer, element, &vector, true);
        self.builder.jump(after, &pieces);
        self.builder.begin(after);
        self.builder.params(after).to_vec()
    }

    /// Whether the first and the last lane are in range with no wrap between them, so that all
    /// lanes are.
    fn all_spaced_inside(&mut self, buffer: BufferId, [base, stride]: [Reg; 2]) -> Operand {
        let (_, length) = self.buffers[buffer.index()];
        let (base, stride) = (self.scalar(base), self.scalar(stride));
        let first = self.builder.extend_unsigned(I64, base);
        let stride = self.builder.extend(true, I64, stride);
        let others = i64::from(self.code.lanes - 1);
        let reach = self.builder.times(stride, others);
        let last = self.builder.add(first, reach);
        let starts = self.builder.compare(IntOrder::UnsignedLess, first, length);
        let ends = self.builder.compare(IntOrder::UnsignedLess, last, length);
        self.builder.and(starts, ends)
    }

    pub(super) fn store_spaced(&mut self, buffer: BufferId, index: [Reg; 2], store: &Store) {
        if store.mask.is_some() {
            let index = self.spaced(index[0], index[1]);
            return self.scatter(buffer, &index, store);
        }
        if !store.more.is_empty() {
            return self.store_columns(buffer, index, store);
        }
        if self.put_in_square(buffer, index, store) {
            return;
        }
        let indices = self.spaced_lanes(index);
        let values = self.vector(store.value);
        self.store_lanes(buffer, indices, &values, store);
    }
}
