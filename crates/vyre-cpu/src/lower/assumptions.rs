//! Vectors of invocations away from borders: assumptions about them, and the test for those.
//!
//! Kernels keep their indices inside bounds with `clamp`, `min`, `max` and `%`, and find their
//! block with `/`. In nearly every vector such an op changes no lane, or all lanes alike, or gives
//! one quotient, and consecutive lanes stay consecutive. So the code of a vector is emitted twice:
//! once under that assumption, with wide accesses, and once without it. The assumptions depend only
//! on scalars that are known when a vector begins, so the test precedes both copies.

use crate::divergence::Item;
use crate::vector::{Calc, Index, Inst, Reg, RegType, Source};
use hashbrown::HashSet;
use std::collections::BTreeMap;
use vyre_foundation::ir::{Access, Op};
use vyre_foundation::kernel::{Def, KernelBody, Place, StmtKind};
use vyre_foundation::types::ValueType;

/// Whether a kernel has ops that keep a per-lane value inside bounds.
pub(crate) fn has_borders(items: &[Item<'_>], kernel: &KernelBody) -> bool {
    items.iter().any(|item| {
        let keeps_inside = match &item.stmt.kind {
            StmtKind::Def(value, Def::Op(Op::Clamp | Op::Min | Op::Max | Op::Rem | Op::Div, _)) => {
                let info = kernel.values[value.index()];
                !info.uniform && matches!(info.ty, ValueType::U32 | ValueType::I32)
            }
            _ => false,
        };
        keeps_inside || item.blocks.iter().any(|block| has_borders(block, kernel))
    })
}

/// Assumptions in the code of a vector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supposed {
    /// Scalar conditions that must all hold.
    pub(crate) conditions: Vec<Reg>,
    /// Whether they keep lanes consecutive.
    pub(crate) pays: bool,
    /// Scalars that are known when a vector begins, and their definitions, which use only others of
    /// these.
    known: BTreeMap<Reg, Calc>,
}

impl Supposed {
    pub(crate) fn new() -> Supposed {
        Supposed::default()
    }

    /// Whether a scalar is known when a vector begins.
    pub(crate) fn is_known(&self, reg: Reg) -> bool {
        self.known.contains_key(&reg)
    }

    /// Records the definition of a register.
    pub(crate) fn note(&mut self, kernel: &KernelBody, reg: Reg, reg_type: RegType, calc: &Calc) {
        let is_known = !reg_type.vector
            && match calc {
                Calc::Const(_) | Calc::Len(_) | Calc::Source(Source::Position(_) | Source::Grid(_)) => true,
                Calc::Op(_, args) => args.iter().all(|arg| self.is_known(*arg)),
                Calc::Load { place: Place::Buffer(buffer), index: Index::Same(index), .. } => {
                    kernel.buffer(*buffer).decl.access == Access::Uniform && self.is_known(*index)
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
                | Calc::Subgroup { .. } => false,
            };
        if is_known {
            self.known.insert(reg, calc.clone());
        }
    }

    /// Removes the definitions that the conditions depend on from the code, and returns them in
    /// dependence order.
    pub(crate) fn taken_out_of(&self, code: &mut Vec<Inst>) -> Vec<Inst> {
        let mut wanted: HashSet<Reg> = HashSet::new();
        let mut pending = self.conditions.clone();
        while let Some(reg) = pending.pop() {
            if wanted.insert(reg) {
                match &self.known[&reg] {
                    Calc::Op(_, args) => pending.extend(args),
                    Calc::Load { index: Index::Same(index), .. } => pending.push(*index),
                    _ => {}
                }
            }
        }
        remove(code, &wanted);
        // Registers are numbered in the order of their definitions.
        let taken = self.known.iter().filter(|(reg, _)| wanted.contains(*reg));
        taken.map(|(reg, calc)| Inst::Def(*reg, calc.clone())).collect()
    }
}

/// Removes the definitions of registers.
fn remove(code: &mut Vec<Inst>, registers: &HashSet<Reg>) {
    code.retain(|inst| !matches!(inst, Inst::Def(reg, _) if registers.contains(reg)));
    for inst in code {
        match inst {
            Inst::If { then: one, otherwise: other, .. }
            | Inst::Loop { body: one, next: other, .. }
            | Inst::Lanes { full: one, tail: other } => {
                remove(one, registers);
                remove(other, registers);
            }
            Inst::Def(..)
            | Inst::Set(..)
            | Inst::Keep(..)
            | Inst::Store(_)
            | Inst::Tile(_)
            | Inst::Clear { .. }
            | Inst::Break
            | Inst::Continue
            | Inst::EndLanes
            | Inst::EndGroup
            | Inst::Trap(_) => {}
        }
    }
}
