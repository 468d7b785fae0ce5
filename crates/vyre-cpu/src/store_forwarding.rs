//! Store-to-load forwarding of variables: a read of a variable that was just set uses the value
//! directly. An `if` that became a select then leaves no variable behind, and known facts about the
//! value apply at the read.

use crate::schedule::nested;
use crate::vector::{Calc, Frame, Index, Inst, Reg, TileStep, Var, VectorCode};
use hashbrown::HashMap;

pub(crate) fn forward(code: &mut VectorCode) {
    let mut walk = Walk { same: (0..code.regs.len() as u32).map(Reg).collect() };
    let mut frame = std::mem::replace(&mut code.frame, Frame::Groups(Vec::new()));
    let blocks = frame.blocks_mut();
    for block in blocks {
        walk.block(code, block, HashMap::new());
    }
    code.frame = frame;
}

struct Walk {
    /// Per register: its replacement.
    same: Vec<Reg>,
}

impl Walk {
    /// Processes a block; `set` holds the known values of variables at its start.
    fn block(&mut self, code: &VectorCode, block: &mut [Inst], mut set: HashMap<Var, Reg>) {
        for inst in block {
            self.rename(inst);
            match inst {
                Inst::Def(reg, Calc::Get(var)) => {
                    if let Some(&value) = set.get(var) {
                        self.same[reg.0 as usize] = value;
                    }
                }
                // A scalar assigned to a vector variable is read as a vector.
                Inst::Set(var, reg) if code.reg_type(*reg) == code.vars[var.0 as usize] => {
                    set.insert(*var, *reg);
                }
                Inst::Set(var, _) => drop(set.remove(var)),
                Inst::If { .. } | Inst::Loop { .. } | Inst::Lanes { .. } => {
                    let around = set.clone();
                    nested(inst).into_iter().for_each(|block| drop_set(block, &mut set));
                    let is_loop = !matches!(inst, Inst::If { .. });
                    let before = if is_loop { &set } else { &around };
                    match inst {
                        Inst::If { then: a, otherwise: b, .. }
                        | Inst::Loop { body: a, next: b, .. }
                        | Inst::Lanes { full: a, tail: b } => {
                            [a, b].into_iter().for_each(|block| self.block(code, block, before.clone()));
                        }
                        _ => {}
                    }
                }
                Inst::Def(..)
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

    /// Replaces the registers that an instruction reads.
    fn rename(&self, inst: &mut Inst) {
        let new = |reg: &mut Reg| *reg = self.same[reg.0 as usize];
        let new_index = |index: &mut Index| match index {
            Index::Same(a) | Index::Consecutive(a) | Index::Strided(a, _) | Index::Each(a) => new(a),
            Index::Spaced(a, b) => [a, b].into_iter().for_each(new),
            Index::Mostly { each, base, when } => [each, base, when].into_iter().for_each(new),
        };
        match inst {
            Inst::Def(_, calc) => match calc {
                Calc::Op(_, args) => args.iter_mut().for_each(new),
                Calc::Any(reg) | Calc::All(reg) | Calc::First(reg) | Calc::Tile(_, reg) => new(reg),
                Calc::Load { index, .. } => new_index(index),
                Calc::Atomic { index, operands, mask, .. } => {
                    [index].into_iter().chain(operands).chain(mask).for_each(new);
                }
                Calc::Subgroup { operands, mask, .. } => operands.iter_mut().chain(mask).for_each(new),
                Calc::Const(_)
                | Calc::LaneNumbers
                | Calc::Source(_)
                | Calc::Get(_)
                | Calc::Recall(_)
                | Calc::Len(_) => {}
            },
            Inst::Set(_, reg) | Inst::Keep(_, reg) => new(reg),
            Inst::Tile(TileStep::Fill(_, span) | TileStep::Flush(_, span)) => {
                span.index.iter_mut().for_each(new)
            }
            Inst::Tile(TileStep::Put { number, value, .. }) => [number, value].into_iter().for_each(new),
            Inst::Store(store) => {
                new_index(&mut store.index);
                [&mut store.value].into_iter().chain(&mut store.more).chain(&mut store.mask).for_each(new);
            }
            Inst::Clear { mask, .. } => mask.iter_mut().for_each(new),
            Inst::If { condition, .. } => new(condition),
            Inst::Loop { .. }
            | Inst::Lanes { .. }
            | Inst::Break
            | Inst::Continue
            | Inst::EndLanes
            | Inst::EndGroup
            | Inst::Trap(_) => {}
        }
    }
}

/// Forgets the variables that a block sets.
fn drop_set(block: &[Inst], set: &mut HashMap<Var, Reg>) {
    for inst in block {
        if let Inst::Set(var, _) = inst {
            set.remove(var);
        }
        nested(inst).into_iter().for_each(|block| drop_set(block, set));
    }
}
