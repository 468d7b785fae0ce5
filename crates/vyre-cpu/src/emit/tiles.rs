//! Rows copied to thread-local memory for a few iterations of a loop: each lane's elements are
//! contiguous.

use super::{Emitter, Pieces, element_bytes};
use crate::piece::{I64, Lane, Value as Operand};
use crate::vector::{Reg, Span, TILE, Tile, TileStep};
use vyre_foundation::types::DataType;

impl Emitter<'_> {
    pub(super) fn tile_step(&mut self, step: &TileStep) {
        match *step {
            TileStep::Fill(tile, span) => self.copy_tile(tile, span, false),
            TileStep::Flush(tile, span) => self.copy_tile(tile, span, true),
            TileStep::Put { tile, number, value } => self.put_in_tile(tile, number, value),
        }
    }

    fn tile_element(&self, tile: Tile) -> DataType {
        self.code.tiles[tile.0 as usize]
    }

    /// Bytes of one lane's elements.
    fn tile_row(&self, tile: Tile) -> i64 {
        i64::from(TILE) * element_bytes(self.tile_element(tile))
    }

    fn tile_start(&mut self, tile: Tile) -> Operand {
        let at = tile.0 as usize;
        if self.tiles.len() <= at {
            self.tiles.resize(at + 1, None);
        }
        let slot = match self.tiles[at] {
            Some(slot) => slot,
            None => {
                let bytes = self.tile_row(tile) as u32 * self.code.lanes;
                *self.tiles[at].insert(self.builder.create_slot(bytes))
            }
        };
        self.builder.stack_address(slot)
    }

    /// Copies each lane's elements from its place in a buffer, or back.
    fn copy_tile(&mut self, tile: Tile, span: Span, back: bool) {
        let (element, row) = (self.tile_element(tile), self.tile_row(tile));
        let start = self.tile_start(tile);
        let indices = self.spaced_lanes(span.index);
        let wide = self.builder.piece(Lane::I64);
        let ty = if row >= i64::from(wide.bytes()) { wide } else { I64 };
        for (lane, index) in (0_i64..).zip(indices) {
            let outside = self.address(span.buffer, element, index);
            let inside = self.builder.add_const(start, lane * row);
            let (from, to) = if back { (inside, outside) } else { (outside, inside) };
            for offset in (0..row as i32).step_by(ty.bytes() as usize) {
                let part = self.builder.load(ty, from, offset);
                self.builder.store(part, to, offset);
            }
        }
    }

    /// Address of element `number` of lane 0.
    fn tile_address(&mut self, tile: Tile, number: Reg) -> Operand {
        let start = self.tile_start(tile);
        let number = self.scalar(number);
        let number = self.builder.extend_unsigned(I64, number);
        let offset = self.builder.times(number, element_bytes(self.tile_element(tile)));
        self.builder.add(start, offset)
    }

    /// Loads element `number` of each lane.
    pub(super) fn load_tile(&mut self, tile: Tile, number: Reg) -> Pieces {
        let (element, row) = (self.tile_element(tile), self.tile_row(tile));
        let start = self.tile_address(tile, number);
        let ty = element.value_type();
        self.collect_lanes(ty, |this, lane| {
            let address = this.builder.add_const(start, lane as i64 * row);
            let value = this.load_element(element, address);
            this.lane_of(ty, value)
        })
    }

    fn put_in_tile(&mut self, tile: Tile, number: Reg, value: Reg) {
        let (element, row) = (self.tile_element(tile), self.tile_row(tile));
        let start = self.tile_address(tile, number);
        let values = self.vector(value);
        for lane in 0..self.lanes() {
            let address = self.builder.add_const(start, lane as i64 * row);
            let value = self.scalar_lane(element.value_type(), &values, lane);
            self.store_element(element, value, address);
        }
    }
}
