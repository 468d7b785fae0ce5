//! What is the same for all vectors of a row, computed once per row.
//!
//! Scalars that depend on the row's position, on lengths and on uniforms leave the code of a vector. Ops have no effect and
//! are defined for all operands, so those of a branch leave it too if vectors mostly take it; loads leave only the
//! beginning, which every vector runs.

use crate::vector::{Calc, Index, Inst, Reg, Shape, Source};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{KernelBody, Place};

/// Moves what is the same for all vectors of a row out of the code of one.
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
    /// Whether nothing but definitions came before.
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
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::First(_)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => false,
        }
    }
}
