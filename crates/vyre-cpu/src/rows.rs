//! Hoisting of row-invariant code, and the number of rows processed together.
//!
//! Scalars that depend on the row's position, on lengths and on uniforms are hoisted out of the
//! code of a vector. Ops have no effect and are defined for all operands, so those in the likely
//! side of a branch are hoisted too; loads are hoisted only from the beginning, which every vector
//! runs.
//!
//! A transposition accesses memory down columns: every lane touches another cache line, and the
//! next row touches the neighbours of all of them. Rows are then processed in blocks, vector by
//! vector, so that a line is still cached when its neighbour is needed.

use crate::vector::{Calc, Index, Inst, Reg, Shape, Source};
use vyre_foundation::ir::{Access, Op};
use vyre_foundation::kernel::{KernelBody, Place};
use vyre_foundation::types::Value;

/// Moves code that is the same for all vectors of a row out of the code of one.
pub(crate) fn head_of_row(kernel: &KernelBody, regs: &[Shape], vector: &mut Vec<Inst>) -> Vec<Inst> {
    let mut split =
        Split { kernel, regs, is_same: vec![false; regs.len()], at_start: true, head: Vec::new() };
    split.block(vector);
    split.head
}

struct Split<'k> {
    kernel: &'k KernelBody,
    regs: &'k [Shape],
    /// Per register: whether it is in the head.
    is_same: Vec<bool>,
    /// Whether only definitions have come before.
    at_start: bool,
    head: Vec<Inst>,
}

impl Split<'_> {
    fn block(&mut self, block: &mut Vec<Inst>) {
        for mut inst in std::mem::take(block) {
            match &mut inst {
                Inst::Def(reg, calc) if !self.regs[reg.0 as usize].vector && self.is_row(calc) => {
                    self.is_same[reg.0 as usize] = true;
                    self.head.push(inst);
                    continue;
                }
                Inst::Def(..) => {}
                Inst::If { then, .. } => {
                    self.at_start = false;
                    self.block(then);
                }
                Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Store(_)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Loop { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::Lanes { .. }
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => self.at_start = false,
            }
            block.push(inst);
        }
    }

    /// Whether a scalar is the same for all vectors of a row.
    fn is_row(&self, calc: &Calc) -> bool {
        let same = |reg: &Reg| self.is_same[reg.0 as usize];
        match calc {
            Calc::Const(_) | Calc::Len(_) => true,
            Calc::Source(source) => match source {
                Source::Position(axis) => *axis > 0,
                Source::Grid(_) => true,
                Source::Remaining | Source::Group(_) | Source::FirstLane => false,
            },
            Calc::Op(_, args) => args.iter().all(same),
            Calc::Load { place: Place::Buffer(buffer), index: Index::Same(index), .. } => {
                let access = self.kernel.buffer(*buffer).decl.access;
                self.at_start && access == Access::Uniform && same(index)
            }
            Calc::Load { .. }
            | Calc::LaneNumbers
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Tile(..)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => false,
        }
    }
}

/// Rows of a block: as many as a cache line has elements of 4 bytes.
const BLOCK: u32 = 16;

/// Number of rows to process together: several if a vector accesses memory down columns.
pub(crate) fn rows_at_once(kernel: &KernelBody, regs: &[Shape], vector: &[Inst]) -> u32 {
    let mut walk =
        Columns { kernel, steps: vec![None; regs.len()], strides: vec![None; regs.len()], found: false };
    walk.block(vector);
    if walk.found { BLOCK } else { 1 }
}

struct Columns<'k> {
    kernel: &'k KernelBody,
    /// Per scalar register: its increase from one row to the next, if known.
    steps: Vec<Option<i64>>,
    /// Constants.
    strides: Vec<Option<u32>>,
    found: bool,
}

impl Columns<'_> {
    fn block(&mut self, block: &[Inst]) {
        for inst in block {
            match inst {
                Inst::Def(reg, calc) => {
                    self.steps[reg.0 as usize] = self.step(calc);
                    if let Calc::Const(Value::U32(number)) = calc {
                        self.strides[reg.0 as usize] = Some(*number);
                    }
                    if let Calc::Load { place, index, .. } = calc {
                        self.access(*place, *index);
                    }
                }
                Inst::Store(store) => self.access(store.place, store.index),
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                // A loop has a separate access pattern.
                Inst::Loop { .. }
                | Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::Lanes { .. }
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
        }
    }

    fn access(&mut self, place: Place, index: Index) {
        const LINE: i64 = 64;
        let (Place::Buffer(buffer), Index::Spaced(base, stride)) = (place, index) else { return };
        let bytes = self.kernel.buffer(buffer).decl.element.size() as i64;
        let is_far = self.strides[stride.0 as usize].is_none_or(|stride| i64::from(stride) * bytes >= LINE);
        let down =
            self.steps[base.0 as usize].is_some_and(|step| step != 0 && 2 * bytes * step.abs() <= LINE);
        self.found |= is_far && down;
    }

    fn step(&self, calc: &Calc) -> Option<i64> {
        let step = |reg: &Reg| self.steps[reg.0 as usize];
        match calc {
            Calc::Source(Source::Position(1)) => Some(1),
            Calc::Const(_) | Calc::Len(_) | Calc::Source(Source::Position(_) | Source::Grid(_)) => Some(0),
            Calc::Op(Op::Add, args) => Some(step(&args[0])?.saturating_add(step(&args[1])?)),
            Calc::Op(Op::Sub, args) => Some(step(&args[0])?.saturating_sub(step(&args[1])?)),
            Calc::Op(_, args) => args.iter().all(|arg| step(arg) == Some(0)).then_some(0),
            Calc::Load { place: Place::Buffer(buffer), index: Index::Same(index), .. } => {
                let is_uniform = self.kernel.buffer(*buffer).decl.access == Access::Uniform;
                step(index).filter(|&step| is_uniform && step == 0)
            }
            Calc::Source(Source::Remaining | Source::Group(_) | Source::FirstLane)
            | Calc::Load { .. }
            | Calc::LaneNumbers
            | Calc::Get(_)
            | Calc::Recall(_)
            | Calc::Tile(..)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => None,
        }
    }
}
