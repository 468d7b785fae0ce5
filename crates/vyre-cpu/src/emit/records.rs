//! Records of narrow elements: loads at one stride that together read every element of a range,
//! such as the three channels of a picture.
//!
//! The loads of a record share their pieces. All elements from the lowest field's first to the
//! highest field's last are in range, since some lane loads each; nothing wraps between them,
//! since a buffer never has an element with the index 2^32 - 1.

use super::narrow::narrow;
use super::{Emitter, element_bytes};
use crate::elements::Bases;
use crate::piece::{Block, I64, Value as Operand};
use crate::schedule::nested;
use crate::vector::{Calc, Index, Inst, Reg, VectorCode};
use hashbrown::HashMap;
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{BufferId, KernelBody, Place};
use vyre_foundation::types::DataType;

/// The place of a load in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    record: usize,
    /// Number of fields below it.
    number: u32,
    /// Number of fields.
    count: u32,
}

/// Pieces of a record that are loaded already.
#[derive(Default)]
pub(super) struct Loaded {
    /// Fields taken from it so far.
    taken: Vec<Reg>,
    /// Block in which it was loaded, and the address of the lowest field.
    at: Option<(Block, Operand)>,
    pieces: HashMap<Vec<i32>, Operand>,
}

/// A load at a stride.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    buffer: BufferId,
    stride: i32,
    root: Reg,
}

/// Per register: its place in a record, if it is loaded from one.
pub(super) fn fields_of_records(kernel: &KernelBody, code: &VectorCode) -> HashMap<Reg, Field> {
    let blocks = code.frame.blocks();
    let mut search =
        Search { kernel, bases: Bases::default(), open: Vec::new(), records: 0, found: HashMap::new() };
    blocks.into_iter().for_each(|block| search.block(block));
    search.found
}

struct Search<'a> {
    kernel: &'a KernelBody,
    bases: Bases,
    /// Loads of the current straight stretch, with the offset of each from its root.
    open: Vec<(Run, Vec<(Reg, u32)>)>,
    records: usize,
    found: HashMap<Reg, Field>,
}

impl Search<'_> {
    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            match inst {
                Inst::Def(reg, calc) => {
                    self.bases.note(*reg, calc);
                    self.load(*reg, calc);
                }
                Inst::Store(_) | Inst::Set(..) | Inst::Keep(..) => {}
                _ => self.close(),
            }
            nested(inst).into_iter().for_each(|block| self.block(block));
        }
        self.close();
    }

    fn load(&mut self, reg: Reg, calc: &Calc) {
        let Calc::Load {
            place: Place::Buffer(buffer),
            element,
            index: Index::Strided(base, stride @ 2..),
            checked: false,
        } = calc
        else {
            return;
        };
        if narrow(*element).is_none() || self.kernel.buffer(*buffer).decl.access != Access::Read {
            return;
        }
        let (root, offset) = self.bases.of(*base);
        let run = Run { buffer: *buffer, stride: *stride, root };
        match self.open.iter_mut().find(|(known, _)| *known == run) {
            Some((_, loads)) => loads.push((reg, offset)),
            None => self.open.push((run, vec![(reg, offset)])),
        }
    }

    /// Ends a stretch: notes the records that all its loads make up.
    fn close(&mut self) {
        for (run, mut loads) in std::mem::take(&mut self.open) {
            loads.sort_by_key(|&(_, offset)| offset as i32);
            let lowest = loads[0].1;
            let number = |offset: u32| offset.wrapping_sub(lowest);
            let count = loads.len() as u32;
            let is_whole = loads.iter().zip(0..).all(|(&(_, offset), k)| number(offset) == k);
            if count < 2 || count > run.stride as u32 || !is_whole {
                continue;
            }
            for (reg, offset) in loads {
                let field = Field { record: self.records, number: number(offset), count };
                self.found.insert(reg, field);
            }
            self.records += 1;
        }
    }
}

impl Emitter<'_> {
    /// Starts a load from a record: returns the address of the lowest field of lane 0.
    pub(super) fn start_of_record(
        &mut self,
        reg: Reg,
        field: Field,
        (buffer, element): (BufferId, DataType),
        base: Reg,
    ) -> Operand {
        let block = self.builder.current();
        let known = self.records.entry(field.record).or_default();
        // The same field again belongs to other lanes.
        if known.at.is_none_or(|(at, _)| at != block) || known.taken.contains(&reg) {
            *known = Loaded::default();
        }
        known.taken.push(reg);
        if let Some((_, address)) = known.at {
            return address;
        }
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        let lowest = self.builder.add_const(index, -i64::from(field.number));
        let address = self.address(buffer, element, lowest);
        if let Some(known) = self.records.get_mut(&field.record) {
            known.at = Some((block, address));
        }
        address
    }

    /// Loads a piece of a record from these offsets, or returns it if it is loaded already.
    pub(super) fn piece_of_record(&mut self, field: Field, address: Operand, starts: &[i32]) -> Operand {
        let known = self.records.get(&field.record).and_then(|record| record.pieces.get(starts));
        if let Some(&piece) = known {
            return piece;
        }
        let piece = self.builder.load_halves(address, starts);
        if let Some(record) = self.records.get_mut(&field.record) {
            record.pieces.insert(starts.to_vec(), piece);
        }
        piece
    }
}

impl Field {
    /// Bytes of a record below this field, and above it.
    pub(super) fn around(self, element: DataType) -> [i32; 2] {
        [self.number, self.count - 1 - self.number]
            .map(|fields| fields as i32 * element_bytes(element) as i32)
    }
}
