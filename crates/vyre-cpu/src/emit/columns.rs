//! Columns of records: loads of several neighbouring elements of each lane's record, such as the
//! entries of a small matrix, transposed in registers.
//!
//! Lanes that are a wide constant stride apart share no piece, so a load at such a stride goes lane
//! by lane. Where a stretch of code loads many elements of the records, a *window* of each record,
//! as wide as a piece, is loaded for every lane, and a square of windows is transposed: each load
//! is a row of the result. Windows of four words are loaded two to a piece. Of elements narrower
//! than a lane, windows of 16 bytes are transposed in words as wide as a lane, and each load takes
//! a part of its word. Records of two or three words follow one another in memory: whole pieces of
//! them are loaded once, and each load takes its words from them. A window is between elements
//! that the stretch loads, so all of it is in range; nothing wraps between them, since a buffer
//! never has an element with the index 2^32 - 1. A stretch ends at a store to an element that it
//! loads.

use super::narrow::{Width, narrow};
use super::windows::{Column, LaneAddress};
use super::{Emitter, Pieces, element_bytes};
use crate::elements::MOST_STRIDE;
use crate::piece::{Block, I32, I64, Lane, Narrow, Value as Operand};
use crate::vector::{Index, Reg, Store};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::{DataType, Value};

/// A window that is loaded already.
pub(super) struct Window {
    /// Block in which it was loaded, and the loads that took their column.
    block: Block,
    taken: Vec<Reg>,
    columns: Vec<Pieces>,
}

impl Emitter<'_> {
    /// Loads a column of a window.
    pub(super) fn load_column(
        &mut self,
        reg: Reg,
        column: Column,
        (buffer, element): (BufferId, DataType),
        index: Index,
    ) -> Pieces {
        let width = if self.halves.regs[reg.0 as usize] { Width::Half } else { Width::Full };
        let words = self.window(reg, column, (buffer, element), index, width);
        let Some(narrow) = narrow(element) else { return words[column.below as usize].clone() };
        let bytes = u32::from(narrow.bytes);
        let lane = if width == Width::Half { 2 } else { 4 };
        let (word, place) = (column.below * bytes / lane, column.below * bytes % lane);
        let pieces = words[word as usize].clone();
        let taken = pieces
            .into_iter()
            .map(|piece| self.field_of_word(piece, narrow, (8 * lane, 8 * place)))
            .collect();
        if width == Width::Half { self.set_half(reg, taken) } else { taken }
    }

    /// Extracts a narrow element from lanes of `bits` bits, from bit `place` on.
    fn field_of_word(&mut self, piece: Operand, narrow: Narrow, (bits, place): (u32, u32)) -> Operand {
        let own = 8 * u32::from(narrow.bytes);
        if own == bits {
            return piece;
        }
        if narrow.signed {
            let top = self.builder.shift_left_const(piece, bits - own - place);
            let count = self.builder.int(I32, i64::from(bits - own));
            return self.builder.shift_right_signed(top, count);
        }
        let low = self.builder.shift_right_const(piece, place);
        if place + own == bits {
            return low;
        }
        let kept = self.builder.constant(self.builder.ty(piece), (1 << own) - 1);
        self.builder.and(low, kept)
    }

    /// Returns the columns of a window: elements, or words of them that are as wide as a lane.
    fn window(
        &mut self,
        reg: Reg,
        column: Column,
        (buffer, element): (BufferId, DataType),
        index: Index,
        width: Width,
    ) -> Vec<Pieces> {
        let block = self.builder.current();
        let key = (column.window, width);
        // The same load again belongs to other lanes.
        if let Some(window) = self.windows.get_mut(&key)
            && window.block == block
            && !window.taken.contains(&reg)
        {
            window.taken.push(reg);
            return window.columns.clone();
        }
        let lanes = self.column_addresses(buffer, element, index);
        let below = column.below as i32 * element_bytes(element) as i32;
        let lanes: Vec<LaneAddress> =
            lanes.into_iter().map(|(lane, offset)| (lane, offset - below)).collect();
        let columns = match (narrow(element), width) {
            (None, _) if column.bytes < 16 => self.columns_of_short_records(element, &lanes),
            (None, _) if column.bytes < self.builder.piece(Lane::I32).bytes() => {
                let ty = self.piece_type(element.value_type());
                let mut columns = self.columns_of_words(&lanes);
                for piece in columns.iter_mut().flatten() {
                    *piece = self.builder.bitcast(ty, *piece);
                }
                columns
            }
            (None, _) => {
                let count = self.builder.piece(Lane::I32).bytes() as usize / element.size();
                self.transposed(element, &lanes, count)
            }
            (Some(_), _) if column.bytes == 4 => self.column_of_words(&lanes, width),
            (Some(_), Width::Full) => self.columns_of_words(&lanes),
            (Some(_), Width::Half) => self.columns_of_halves(&lanes),
        };
        self.windows.insert(key, Window { block, taken: vec![reg], columns: columns.clone() });
        columns
    }

    /// Loads neighbouring elements of every lane, and returns the vectors of each.
    pub(super) fn transposed(
        &mut self,
        element: DataType,
        lanes: &[LaneAddress],
        count: usize,
    ) -> Vec<Pieces> {
        let bytes = element_bytes(element);
        let words = self.builder.piece(Lane::I32);
        let ty = self.piece_type(element.value_type());
        let side = words.bytes() as usize / bytes as usize;
        let mut columns: Vec<Pieces> = vec![Vec::new(); count];
        for group in lanes.chunks(side) {
            for first in (0..count).step_by(side) {
                let within = first as i32 * bytes as i32;
                let loaded: Pieces = group
                    .iter()
                    .map(|&(lane, offset)| self.builder.load(words, lane, offset + within))
                    .collect();
                let turned = self.builder.transpose(bytes as u8, &loaded);
                for (column, piece) in columns[first..].iter_mut().zip(turned) {
                    column.push(self.builder.bitcast(ty, piece));
                }
            }
        }
        columns
    }

    /// Loads records of two or three words that follow one another, and returns the vectors of each
    /// word.
    fn columns_of_short_records(&mut self, element: DataType, lanes: &[LaneAddress]) -> Vec<Pieces> {
        let words = self.builder.piece(Lane::I32);
        let ty = self.piece_type(element.value_type());
        let ((first, offset), (_, next)) = (lanes[0], lanes[1]);
        let (in_piece, stride) = (words.lane_count() as usize, (next - offset) as usize / 4);
        let loaded: Pieces = (0..lanes.len() * stride / in_piece)
            .map(|k| self.builder.load(words, first, offset + (k as u32 * words.bytes()) as i32))
            .collect();
        let column = |this: &mut Self, word: usize| {
            let at = |lane: usize| lane * stride + word;
            let places: Vec<(Operand, u8)> = (0..lanes.len())
                .map(|lane| (loaded[at(lane) / in_piece], (at(lane) % in_piece) as u8))
                .collect();
            let picked = places.chunks(in_piece).map(|places| {
                let piece = this.builder.gather_lanes(places);
                this.builder.bitcast(ty, piece)
            });
            picked.collect()
        };
        (0..stride).map(|word| column(self, word)).collect()
    }

    /// Loads a word of every lane, a few words apart, and returns it, or its lower and upper half.
    fn column_of_words(&mut self, lanes: &[LaneAddress], width: Width) -> Vec<Pieces> {
        let ((first, offset), (_, next)) = (lanes[0], lanes[1]);
        let address = self.builder.add_const(first, offset.into());
        let words = self.picked_words(DataType::U32, address, (next - offset) / 4);
        if width == Width::Full {
            return vec![words];
        }
        let upper: Pieces = words.iter().map(|&word| self.builder.shift_right_const(word, 16)).collect();
        [words, upper].iter().map(|words| self.lower_halves(words)).collect()
    }

    /// Loads 16 bytes of every lane, and returns the vectors of each word of them.
    fn columns_of_words(&mut self, lanes: &[LaneAddress]) -> Vec<Pieces> {
        let mut columns: Vec<Pieces> = vec![Vec::new(); 4];
        for group in lanes.chunks(self.builder.piece(Lane::I32).lane_count() as usize) {
            let turned = self.words_of_lanes(group);
            columns.iter_mut().zip(turned).for_each(|(column, piece)| column.push(piece));
        }
        columns
    }

    /// Loads 16 bytes of as many lanes as a piece has words: piece k of the result has word k of
    /// each lane.
    fn words_of_lanes(&mut self, lanes: &[LaneAddress]) -> Pieces {
        let words = self.builder.piece(Lane::I32);
        let loaded: Pieces = (0..4)
            .map(|k| {
                let (address, low) = lanes[k];
                match lanes.get(k + 4) {
                    Some((_, high)) => {
                        let piece = self.builder.load_halves(address, &[low, *high]);
                        self.builder.bitcast(words, piece)
                    }
                    None => self.builder.load(words, address, low),
                }
            })
            .collect();
        self.builder.transpose(4, &loaded)
    }

    /// The same for words of 16 bits, in half lanes. Words of even and of odd lanes are turned
    /// apart, so that two of them make a piece without crossing lanes.
    fn columns_of_halves(&mut self, lanes: &[LaneAddress]) -> Vec<Pieces> {
        let words = self.builder.piece(Lane::I32);
        let halves = self.builder.piece(Lane::I16);
        let mut columns: Vec<Pieces> = vec![Vec::new(); 8];
        for group in lanes.chunks(halves.lane_count() as usize) {
            let [even, odd] = [0, 1].map(|first| {
                let lanes: Vec<LaneAddress> = group.iter().copied().skip(first).step_by(2).collect();
                self.words_of_lanes(&lanes)
            });
            let upper = self.builder.constant(words, 0xFFFF_0000);
            let lower = self.builder.constant(words, 0xFFFF);
            for (k, (even, odd)) in even.into_iter().zip(odd).enumerate() {
                let (own, other) = (self.builder.and(even, lower), self.builder.shift_left_const(odd, 16));
                let low = self.builder.or(own, other);
                let (own, other) = (self.builder.shift_right_const(even, 16), self.builder.and(odd, upper));
                let high = self.builder.or(own, other);
                columns[2 * k].push(self.builder.bitcast(halves, low));
                columns[2 * k + 1].push(self.builder.bitcast(halves, high));
            }
        }
        columns
    }

    /// Stores a run of neighbouring elements of every lane.
    pub(super) fn store_columns(&mut self, buffer: BufferId, index: [Reg; 2], store: &Store) {
        let lanes = self.column_addresses(buffer, store.element, Index::Spaced(index[0], index[1]));
        let fields: Vec<Reg> = std::iter::once(store.value).chain(store.more.iter().copied()).collect();
        let columns: Vec<Pieces> = fields.into_iter().map(|reg| self.vector(reg)).collect();
        if columns.len() * store.element.size() < self.builder.piece(Lane::I32).bytes() as usize {
            return self.store_halves_of_pieces(&lanes, &columns);
        }
        self.store_transposed(store.element, &lanes, &columns);
    }

    /// Stores four neighbouring words of every lane, given the vectors of each. Lanes share an
    /// address.
    fn store_halves_of_pieces(&mut self, lanes: &[LaneAddress], columns: &[Pieces]) {
        let words = self.builder.piece(Lane::I32);
        for (piece, group) in lanes.chunks(words.lane_count() as usize).enumerate() {
            let pieces: Pieces =
                columns.iter().map(|column| self.builder.bitcast(words, column[piece])).collect();
            let turned = self.builder.transpose(4, &pieces);
            for (k, piece) in turned.into_iter().enumerate() {
                let ((address, low), (_, high)) = (group[k], group[k + 4]);
                self.builder.store_halves(piece, address, [low, high]);
            }
        }
    }

    /// Stores neighbouring elements of every lane, given the vectors of each.
    pub(super) fn store_transposed(&mut self, element: DataType, lanes: &[LaneAddress], columns: &[Pieces]) {
        let bytes = element_bytes(element);
        let words = self.builder.piece(Lane::I32);
        let side = words.bytes() as usize / bytes as usize;
        for (piece, group) in lanes.chunks(side).enumerate() {
            for (number, columns) in columns.chunks(side).enumerate() {
                let pieces: Pieces =
                    columns.iter().map(|column| self.builder.bitcast(words, column[piece])).collect();
                let turned = self.builder.transpose(bytes as u8, &pieces);
                let within = (number * side) as i32 * bytes as i32;
                for (piece, &(lane, offset)) in turned.into_iter().zip(group) {
                    self.builder.store(piece, lane, offset + within);
                }
            }
        }
    }

    /// Address and offset of each lane's element. At a short stride the lanes share an address:
    /// nothing wraps between elements in range.
    pub(super) fn column_addresses(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: Index,
    ) -> Vec<LaneAddress> {
        let (base, stride) = match index {
            Index::Strided(base, stride) => (base, stride as u32),
            Index::Spaced(base, stride) => {
                let known = self.constants[stride.0 as usize].and_then(Value::as_u32);
                let Some(stride) = known.filter(|&stride| stride <= MOST_STRIDE) else {
                    let lanes = self.spaced_lanes([base, stride]);
                    return lanes.into_iter().map(|lane| (self.address(buffer, element, lane), 0)).collect();
                };
                (base, stride)
            }
            Index::Same(_) | Index::Consecutive(_) | Index::Mostly { .. } | Index::Each(_) => {
                unreachable!("lanes of records are spaced evenly")
            }
        };
        let first = self.scalar(base);
        let first = self.builder.extend_unsigned(I64, first);
        let address = self.address(buffer, element, first);
        let apart = stride as i32 * element_bytes(element) as i32;
        (0..self.lanes() as i32).map(|lane| (address, apart * lane)).collect()
    }
}
