//! Squares of lanes and rows: accesses down columns, transposed in registers.
//!
//! Where each lane has, in the next row, its next element, as many rows as a piece has lanes are
//! processed together: one piece per lane is loaded and transposed in the first row, and what the
//! rows store is collected, transposed and stored after the last.

use super::windows::LaneAddress;
use super::{Emitter, Pieces};
use crate::piece::Lane;
use crate::vector::{Index, Reg, Store};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::DataType;

/// The rows of a square, as far as they are processed.
#[derive(Default)]
pub(super) struct Square {
    /// Number of the row.
    pub(super) row: usize,
    /// Loaded columns: for each register, its value in every row.
    loaded: Vec<(Reg, Vec<Pieces>)>,
    pub(super) store: Option<Stored>,
}

/// What the rows store.
pub(super) struct Stored {
    element: DataType,
    /// Address of each lane in the first row.
    lanes: Vec<LaneAddress>,
    /// Values of each row.
    rows: Vec<Pieces>,
}

impl Emitter<'_> {
    /// Whether rows are processed in squares.
    pub(super) fn has_squares(&self) -> bool {
        !self.code.blocks.loads.is_empty() || self.code.blocks.store.is_some()
    }

    /// Whether a register is loaded down columns of the square.
    pub(super) fn is_in_square(&self, reg: Reg) -> bool {
        self.square.is_some() && self.code.blocks.loads.contains(&reg)
    }

    pub(super) fn load_square(
        &mut self,
        reg: Reg,
        buffer: BufferId,
        element: DataType,
        index: [Reg; 2],
    ) -> Pieces {
        let known = |square: &Square| {
            let rows = square.loaded.iter().find(|(known, _)| *known == reg);
            rows.map(|(_, rows)| rows[square.row].clone())
        };
        if let Some(pieces) = self.square.as_ref().and_then(known) {
            return pieces;
        }
        let rows = self.loaded_columns(buffer, element, index);
        let first = rows[0].clone();
        if let Some(square) = &mut self.square {
            square.loaded.push((reg, rows));
        }
        first
    }

    /// Loads a column per lane, and returns the vectors of the rows.
    fn loaded_columns(&mut self, buffer: BufferId, element: DataType, index: [Reg; 2]) -> Vec<Pieces> {
        let lanes = self.column_addresses(buffer, element, Index::Spaced(index[0], index[1]));
        self.transposed(element, &lanes, self.square_rows())
    }

    /// Number of rows of a square.
    fn square_rows(&self) -> usize {
        self.builder.piece(Lane::I32).lane_count() as usize
    }

    /// Keeps what a row stores, if the store is down columns of the square; returns whether it is.
    pub(super) fn put_in_square(&mut self, buffer: BufferId, index: [Reg; 2], store: &Store) -> bool {
        if self.square.is_none() || self.code.blocks.store != Some(buffer) {
            return false;
        }
        let values = self.vector(store.value);
        let is_first = self.square.as_ref().is_some_and(|square| square.store.is_none());
        let index = Index::Spaced(index[0], index[1]);
        let lanes = if is_first { self.column_addresses(buffer, store.element, index) } else { Vec::new() };
        if let Some(square) = &mut self.square {
            let element = store.element;
            let kept = square.store.get_or_insert(Stored { element, lanes, rows: Vec::new() });
            kept.rows.push(values);
        }
        true
    }

    /// Stores what the rows of a square kept.
    pub(super) fn store_square(&mut self, stored: Option<Stored>) {
        let Some(Stored { element, lanes, rows }) = stored else { return };
        self.store_transposed(element, &lanes, &rows);
    }
}
