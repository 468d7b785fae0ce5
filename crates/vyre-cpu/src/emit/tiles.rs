//! Rows copied to thread-local memory for a few iterations of a loop. They are transposed on the
//! way, so that the elements of one iteration are contiguous.

use super::{Emitter, Pieces, element_bytes};
use crate::piece::{I64, Lane, Value as Operand};
use crate::vector::{Reg, RowStarts, TILE, Tile, TileStep};
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

    /// Bytes of one element of all lanes.
    fn tile_vector(&self, tile: Tile) -> i64 {
        self.lanes() as i64 * element_bytes(self.tile_element(tile))
    }

    fn tile_start(&mut self, tile: Tile) -> Operand {
        let at = tile.0 as usize;
        if self.tiles.len() <= at {
            self.tiles.resize(at + 1, None);
        }
        let slot = match self.tiles[at] {
            Some(slot) => slot,
            None => {
                let bytes = self.tile_vector(tile) as u32 * TILE;
                *self.tiles[at].insert(self.builder.create_slot(bytes))
            }
        };
        self.builder.stack_address(slot)
    }

    /// Copies each lane's elements from its place in a buffer, or back, in squares of as many lanes
    /// as a piece has.
    fn copy_tile(&mut self, tile: Tile, span: RowStarts, back: bool) {
        let element = self.tile_element(tile);
        let (bytes, vector) = (element_bytes(element), self.tile_vector(tile));
        let start = self.tile_start(tile);
        let lanes: Vec<Operand> = self
            .spaced_lanes(span.index)
            .into_iter()
            .map(|index| self.address(span.buffer, element, index))
            .collect();
        let words = self.builder.piece(Lane::I32);
        let side = i64::from(words.bytes()) / bytes;
        for (group, rows) in (0_i64..).zip(lanes.chunks(side as usize)) {
            for first in (0..i64::from(TILE)).step_by(side as usize) {
                let columns: Vec<i32> =
                    (first..first + side).map(|k| (k * vector + group * side * bytes) as i32).collect();
                let outside: Vec<(Operand, i32)> =
                    rows.iter().map(|&row| (row, (first * bytes) as i32)).collect();
                let inside: Vec<(Operand, i32)> = columns.into_iter().map(|at| (start, at)).collect();
                let (from, to) = if back { (inside, outside) } else { (outside, inside) };
                let loaded: Pieces =
                    from.into_iter().map(|(at, offset)| self.builder.load(words, at, offset)).collect();
                let turned = self.builder.transpose(bytes as u8, &loaded);
                for (piece, (at, offset)) in turned.into_iter().zip(to) {
                    self.builder.store(piece, at, offset);
                }
            }
        }
    }

    /// Address of element `number` of all lanes.
    fn tile_address(&mut self, tile: Tile, number: Reg) -> Operand {
        let start = self.tile_start(tile);
        let number = self.scalar(number);
        let number = self.builder.extend_unsigned(I64, number);
        let offset = self.builder.times(number, self.tile_vector(tile));
        self.builder.add(start, offset)
    }

    /// Loads element `number` of each lane.
    pub(super) fn load_tile(&mut self, tile: Tile, number: Reg) -> Pieces {
        let address = self.tile_address(tile, number);
        self.reload(self.tile_element(tile).value_type(), address)
    }

    fn put_in_tile(&mut self, tile: Tile, number: Reg, value: Reg) {
        let address = self.tile_address(tile, number);
        let values = self.vector(value);
        self.store_pieces(&values, address, 0);
    }
}
