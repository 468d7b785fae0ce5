//! Search for windows of records (`columns.rs`): loads of several neighbouring elements of each
//! lane's record in one stretch of code.

use super::narrow::narrow;
use crate::elements::{Bases, Elements, MOST_STRIDE, Stride};
use crate::piece::Value as Operand;
use crate::schedule::nested;
use crate::vector::{Calc, Frame, Index, Inst, Reg, Store, VectorCode};
use hashbrown::{HashMap, HashSet};
use std::ops::RangeInclusive;
use vyre_foundation::kernel::{self, BufferId};
use vyre_foundation::types::DataType;

/// Address and offset of a lane's element.
pub(super) type LaneAddress = (Operand, i32);

/// Strides of records of words that are loaded whole: those of at most 16 bytes. `complex` and
/// `haar` have 2 words, `kmeans` 3, `radix4` 4.
const SHORT_RECORDS: RangeInclusive<u32> = 2..=4;

/// The place of a load in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) window: usize,
    /// Number of elements of the window below it.
    pub(super) below: u32,
    /// Bytes of the window in each lane.
    pub(super) bytes: u32,
}

/// Returns the loads that are made in windows of records.
pub(crate) fn loads_of_records(code: &VectorCode, piece_bytes: u32) -> HashSet<Reg> {
    columns_of_records(code, piece_bytes).into_keys().collect()
}

/// Per register: its place in a window, if it is loaded from one.
pub(super) fn columns_of_records(code: &VectorCode, piece_bytes: u32) -> HashMap<Reg, Column> {
    let Some(bases) = Bases::of_code(code) else { return HashMap::new() };
    let blocks: Vec<&Vec<Inst>> = match &code.frame {
        Frame::Rows { full, tail, .. } => vec![full, tail],
        Frame::Groups(body) => vec![body],
    };
    let mut search = Search { bases, piece_bytes, open: Vec::new(), windows: 0, found: HashMap::new() };
    blocks.into_iter().for_each(|block| search.block(block));
    search.found
}

/// Loads of one stretch from the same records.
struct Record {
    buffer: BufferId,
    element: DataType,
    /// The elements of the first load.
    first: Elements,
    loads: Vec<(Reg, Elements)>,
    /// What the stretch wrote since the first load.
    written: Vec<Elements>,
}

struct Search {
    bases: Bases,
    piece_bytes: u32,
    open: Vec<Record>,
    windows: usize,
    found: HashMap<Reg, Column>,
}

impl Search {
    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            match inst {
                Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. }) => self.close(|_| true),
                Inst::Def(reg, calc) => self.load(*reg, calc),
                Inst::Store(store) => self.store(store),
                Inst::Set(..) | Inst::Keep(..) => {}
                Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::If { .. }
                | Inst::Loop { .. }
                | Inst::Lanes { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => self.close(|_| true),
            }
            nested(inst).into_iter().for_each(|block| self.block(block));
        }
        self.close(|_| true);
    }

    fn store(&mut self, store: &Store) {
        let elements = self.bases.elements(store.index);
        let written: Vec<Elements> =
            (0..=store.more.len() as u32).filter_map(|k| Some(elements?.plus(k))).collect();
        let is_kept = |record: &Record| {
            let is_apart = |written: &Elements| record.loads.iter().all(|(_, read)| read.are_apart(*written));
            !written.is_empty() && written.iter().all(is_apart)
        };
        self.close(|record| store.place == kernel::Place::Buffer(record.buffer) && !is_kept(record));
        for record in &mut self.open {
            if store.place == kernel::Place::Buffer(record.buffer) {
                record.written.extend(&written);
            }
        }
    }

    fn load(&mut self, reg: Reg, calc: &Calc) {
        let Calc::Load {
            place: kernel::Place::Buffer(buffer),
            element,
            index: index @ (Index::Spaced(..) | Index::Strided(..)),
            checked: false,
        } = calc
        else {
            return;
        };
        let Some(elements) = self.bases.elements(*index) else { return };
        let Stride::Constant(stride) = elements.stride else { return };
        let is_word = element.size() >= 4;
        let is_short = matches!(index, Index::Strided(..));
        if is_short && !(element.size() == 4 && SHORT_RECORDS.contains(&stride)) {
            return;
        }
        if !is_word && (narrow(*element).is_none() || stride > MOST_STRIDE || self.piece_bytes < 32) {
            return;
        }
        let is_same = |record: &Record| {
            let same_rows = (record.first.root, record.first.stride) == (elements.root, elements.stride);
            record.buffer == *buffer && same_rows
        };
        // A window is loaded before the stores of its stretch.
        let is_written = |record: &Record| !record.written.iter().all(|written| written.are_apart(elements));
        self.close(|record| is_same(record) && is_written(record));
        match self.open.iter_mut().find(|record| is_same(record)) {
            Some(record) => record.loads.push((reg, elements)),
            None => self.open.push(Record {
                buffer: *buffer,
                element: *element,
                first: elements,
                loads: vec![(reg, elements)],
                written: Vec::new(),
            }),
        }
    }

    /// Ends the stretch of some records: notes the windows that hold enough of their loads.
    fn close(&mut self, ends: impl Fn(&Record) -> bool) {
        let (closed, open) = std::mem::take(&mut self.open).into_iter().partition(ends);
        self.open = open;
        let closed: Vec<Record> = closed;
        closed.into_iter().for_each(|record| self.windows_of(record));
    }

    fn windows_of(&mut self, record: Record) {
        let size = record.element.size() as i64;
        let offset = |elements: Elements| i64::from(elements.offset.wrapping_sub(record.first.offset) as i32);
        let mut loads: Vec<(i64, Reg)> =
            record.loads.iter().map(|&(reg, elements)| (offset(elements), reg)).collect();
        loads.sort_unstable();
        let (Some(&(lowest, _)), Some(&(highest, _))) = (loads.first(), loads.last()) else { return };
        let Some(window) = self.window_bytes(&record, (highest + 1 - lowest) * size) else { return };
        let side = i64::from(window) / size;
        let mut rest = &loads[..];
        while let Some(&(next, _)) = rest.first() {
            let start = next.min(highest + 1 - side);
            let (inside, others) = rest.split_at(rest.partition_point(|&(at, _)| at < start + side));
            rest = others;
            // A square costs about as much as a few loads lane by lane.
            if start < lowest || 2 * inside.len() < side.min(8) as usize {
                continue;
            }
            for &(at, reg) in inside {
                let below = (at - start) as u32;
                self.found.insert(reg, Column { window: self.windows, below, bytes: window });
            }
            self.windows += 1;
        }
    }
}

impl Search {
    /// Bytes of the windows of a record of which this many bytes are loaded. Records of a few words
    /// are loaded whole, and four words of others if they do not fill a piece. Narrow elements that
    /// do not fill 16 bytes are loaded in words, if the records are whole words close together.
    fn window_bytes(&self, record: &Record, loaded: i64) -> Option<u32> {
        let Stride::Constant(stride) = record.first.stride else { return None };
        let apart = stride as usize * record.element.size();
        if narrow(record.element).is_none() {
            let is_four = (16..i64::from(self.piece_bytes)).contains(&loaded) && stride <= MOST_STRIDE;
            return match record.element.size() {
                4 if SHORT_RECORDS.contains(&stride) => (loaded >= apart as i64).then_some(apart as u32),
                4 if is_four => Some(16),
                _ => Some(self.piece_bytes),
            };
        }
        match loaded {
            16.. => Some(16),
            4.. if apart.is_multiple_of(4) && (2..8).contains(&(apart / 4)) => Some(4),
            _ => None,
        }
    }
}
