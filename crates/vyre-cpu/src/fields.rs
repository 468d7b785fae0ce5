//! Merging of stores that fill a range of memory together: `y[2 * i] = a` and `y[2 * i + 1] = b`
//! become one store of both fields.
//!
//! A strided store alone writes lane by lane, since it must not touch the gaps between its
//! elements. Where a block contains as many stores as the stride, one element apart, the last one
//! writes for all. Nothing in between can access the buffer or leave the block.

use crate::vector::{Calc, Frame, Index, Inst, Reg, Store, Var, VectorCode};
use std::collections::HashMap;
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::Place;
use vyre_foundation::types::Value;

pub(crate) fn join_fields(code: &mut VectorCode) {
    let mut bases = Bases::default();
    let blocks = match &mut code.frame {
        Frame::Rows { head, full, tail } => vec![head, full, tail],
        Frame::Groups(body) => vec![body],
    };
    for block in blocks {
        join(block, &mut bases);
    }
}

/// Scalars expressed as another one plus a constant.
#[derive(Default)]
pub(crate) struct Bases {
    constants: HashMap<Reg, u32>,
    sums: HashMap<Reg, (Reg, u32)>,
}

impl Bases {
    pub(crate) fn note(&mut self, reg: Reg, calc: &Calc) {
        match calc {
            Calc::Const(Value::U32(number)) => drop(self.constants.insert(reg, *number)),
            Calc::Const(Value::I32(number)) => drop(self.constants.insert(reg, *number as u32)),
            Calc::Op(Op::Add, args) => {
                let known = |reg: &Reg| self.constants.get(reg).copied();
                let sum = match args[..] {
                    [a, ref b] if known(b).is_some() => known(b).map(|number| (a, number)),
                    [ref a, b] => known(a).map(|number| (b, number)),
                    _ => None,
                };
                if let Some((base, number)) = sum {
                    let (root, more) = self.of(base);
                    self.sums.insert(reg, (root, more.wrapping_add(number)));
                }
            }
            _ => {}
        }
    }

    /// Returns the register and the constant whose sum a register is.
    pub(crate) fn of(&self, reg: Reg) -> (Reg, u32) {
        self.sums.get(&reg).copied().unwrap_or((reg, 0))
    }
}

fn join(block: &mut Vec<Inst>, bases: &mut Bases) {
    for inst in block.iter_mut() {
        match inst {
            Inst::Def(reg, calc) => bases.note(*reg, calc),
            Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|b| join(b, bases)),
            Inst::Loop { body, next, .. } => [body, next].into_iter().for_each(|b| join(b, bases)),
            Inst::Lanes { full, tail } => [full, tail].into_iter().for_each(|b| join(b, bases)),
            Inst::Set(..)
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
    for at in 0..block.len() {
        if let Some((store, parts)) = group_at(block, at, bases) {
            // The last of them writes; the others are replaced by placeholders until the end.
            let last = parts.iter().copied().max().unwrap_or(at);
            for part in parts {
                block[part] = Inst::Set(NOTHING, store.value);
            }
            block[last] = Inst::Store(store);
        }
    }
    block.retain(|inst| !matches!(inst, Inst::Set(var, _) if *var == NOTHING));
}

/// Placeholder for a merged store.
const NOTHING: Var = Var(u32::MAX);

/// Matches the complete set of fields that starts with a strided store: one store of all, and their
/// positions.
fn group_at(block: &[Inst], at: usize, bases: &Bases) -> Option<(Store, Vec<usize>)> {
    let (first, base, stride) = strided(&block[at])?;
    let (root, offset) = bases.of(base);
    let mut found: Vec<(u32, usize)> = vec![(0, at)];
    for (number, inst) in block.iter().enumerate().skip(at + 1) {
        if found.len() == stride {
            break;
        }
        match strided(inst) {
            Some((store, base, other_stride)) if store.place == first.place => {
                let (other_root, other_offset) = bases.of(base);
                let is_field = other_root == root && other_stride == stride && store.checked == first.checked;
                let field = other_offset.wrapping_sub(offset);
                if !is_field || found.iter().any(|&(known, _)| known == field) {
                    return None;
                }
                found.push((field, number));
            }
            Some(_) => {}
            None if may_touch(inst, first.place) => return None,
            None => {}
        }
    }
    // Sorted from the lowest; the first one found can be any of them.
    found.sort_unstable_by_key(|&(field, _)| field as i32);
    let lowest = found[0].0;
    let fields = (0..).zip(&found).all(|(k, &(field, _))| field.wrapping_sub(lowest) == k);
    if found.len() != stride || !fields {
        return None;
    }
    let of = |number: usize| match &block[number] {
        Inst::Store(store) => store,
        _ => unreachable!("only stores were found"),
    };
    let more = found[1..].iter().map(|&(_, number)| of(number).value).collect();
    let store = Store { more, ..of(found[0].1).clone() };
    Some((store, found.into_iter().map(|(_, number)| number).collect()))
}

/// Matches a strided store whose lanes all run.
fn strided(inst: &Inst) -> Option<(&Store, Reg, usize)> {
    match inst {
        Inst::Store(store) if store.mask.is_none() && store.more.is_empty() => match store.index {
            Index::Strided(base, stride @ 2..=4) => Some((store, base, stride as usize)),
            Index::Strided(..)
            | Index::Same(_)
            | Index::Consecutive(_)
            | Index::Spaced(..)
            | Index::Mostly { .. }
            | Index::Each(_) => None,
        },
        _ => None,
    }
}

/// Whether an instruction can read or write a place, or leave the block.
fn may_touch(inst: &Inst, place: Place) -> bool {
    match inst {
        Inst::Def(_, Calc::Load { place: other, .. }) => *other == place,
        Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. }) => true,
        Inst::Store(store) => store.place == place,
        Inst::Def(..) | Inst::Set(..) | Inst::Keep(..) => false,
        Inst::Tile(_)
        | Inst::Clear { .. }
        | Inst::If { .. }
        | Inst::Loop { .. }
        | Inst::Lanes { .. }
        | Inst::Break
        | Inst::Continue
        | Inst::EndLanes
        | Inst::EndGroup
        | Inst::Trap(_) => true,
    }
}
