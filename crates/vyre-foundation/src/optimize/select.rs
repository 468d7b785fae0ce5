//! If-conversion: replaces a branch that only computes a few cheap values and sets variables with
//! selects.
//!
//! Both sides then run, which is allowed because all ops are total. Branches are converted if they
//! have no loads, stores, exits or nested blocks, and few ops on both sides together. For a
//! variable that only one side sets, the select chooses between the new and the old value, which
//! must exist on every path.
//!
//! Before that, stores at the end of both sides to the same index of the same place are moved after
//! the branch: a store that all invocations reach needs no mask, and the branch without it can
//! become a select.

use super::rewrite::new_value;
use crate::ir::Span;
use crate::kernel::{Def, KernelBody, Local, LocalId, Operands, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use std::collections::BTreeMap;

/// Maximum number of ops on both sides together. With 2, the code of `digits` and two other kernels
/// grows by 314 instructions; 8 and 16 change none of the benchmarks.
const OP_LIMIT: usize = 4;
/// Maximum number of variables that need a select. A search for the nearest of several points has 2
/// (the distance and its number); 4 and 8 change none of the benchmarks.
const SET_LIMIT: usize = 2;

/// Converts the branches that qualify, innermost first.
pub(super) fn run(body: &mut KernelBody) {
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk { certainly_set: vec![false; body.locals.len()], journal: Vec::new(), body };
    let statements = walk.block(statements);
    walk.body.body = statements;
}

struct Walk<'a> {
    body: &'a mut KernelBody,
    /// The locals known to be set on every path to this point.
    certainly_set: Vec<bool>,
    /// The locals first set by the open blocks.
    journal: Vec<LocalId>,
}

impl Walk<'_> {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(block.len());
        for mut stmt in block {
            let keeps_sets = matches!(stmt.kind, StmtKind::Region { .. });
            for nested in stmt.kind.blocks_mut().into_iter().flatten() {
                let mark = self.journal.len();
                *nested = self.block(std::mem::take(nested));
                if !keeps_sets {
                    self.journal.drain(mark..).for_each(|local| self.certainly_set[local.index()] = false);
                }
            }
            let stored = self.stores_of_both(&mut stmt);
            match Sides::of(&stmt.kind).filter(|sides| self.allows(sides)) {
                Some(sides) => self.convert(sides, stmt, &mut out),
                None => {
                    self.note(&stmt.kind);
                    out.push(stmt);
                }
            }
            stored.into_iter().rev().for_each(|stored| self.store(stored, &mut out));
        }
        out
    }

    /// Takes matching stores from the ends of both sides, which differ only in the stored value,
    /// and makes the sides set variables instead. The last store comes first.
    fn stores_of_both(&mut self, stmt: &mut Stmt) -> Vec<Stored> {
        let mut taken = Vec::new();
        let StmtKind::If { then, otherwise, .. } = &mut stmt.kind else { return taken };
        while let (Some(yes), Some(no)) = (last_effect(then), last_effect(otherwise))
            && let Some([value, other]) = values_of_one_store(&then[yes].kind, &otherwise[no].kind)
        {
            let local = LocalId(self.body.locals.len() as u32);
            self.body.locals.push(Local { name: "stored".into(), ty: self.body.ty(value) });
            self.certainly_set.push(false);
            let store = std::mem::replace(&mut then[yes].kind, StmtKind::Set(local, value));
            otherwise[no].kind = StmtKind::Set(local, other);
            taken.push(Stored { store, local, at: then[yes].at });
        }
        taken
    }

    fn store(&mut self, Stored { mut store, local, at }: Stored, out: &mut Vec<Stmt>) {
        let got = new_value(self.body, self.body.locals[local.index()].ty);
        out.push(Stmt { kind: StmtKind::Def(got, Def::Get(local)), at });
        if let StmtKind::Store { value, .. } = &mut store {
            *value = got;
        }
        out.push(Stmt { kind: store, at });
    }

    fn note(&mut self, kind: &StmtKind) {
        let StmtKind::Set(local, _) = kind else { return };
        if !std::mem::replace(&mut self.certainly_set[local.index()], true) {
            self.journal.push(*local);
        }
    }

    /// Whether each local that only one side sets has an old value.
    fn allows(&self, sides: &Sides) -> bool {
        sides
            .sets
            .iter()
            .all(|(local, values)| values.iter().all(Option::is_some) || self.certainly_set[local.index()])
    }

    fn convert(&mut self, sides: Sides, stmt: Stmt, out: &mut Vec<Stmt>) {
        let at = stmt.at;
        let StmtKind::If { condition, then, otherwise } = stmt.kind else { return };
        let is_def = |stmt: &Stmt| matches!(stmt.kind, StmtKind::Def(..));
        out.extend(then.into_iter().chain(otherwise).filter(is_def));
        for (local, values) in sides.sets {
            let mut emit = |kind: StmtKind| out.push(Stmt { kind, at });
            let mut old = || {
                let old = new_value(self.body, self.body.locals[local.index()].ty);
                emit(StmtKind::Def(old, Def::Get(local)));
                old
            };
            let [yes, no] = values.map(|value| value.unwrap_or_else(&mut old));
            let selected = new_value(self.body, self.body.ty(yes));
            let operands = Operands::new(&[condition, yes, no]);
            emit(StmtKind::Def(selected, Def::Op(Op::Select, operands)));
            emit(StmtKind::Set(local, selected));
            self.note(&StmtKind::Set(local, selected));
        }
    }
}

/// A store taken from both sides of a branch, and the variable that holds its value.
struct Stored {
    store: StmtKind,
    local: LocalId,
    at: Option<Span>,
}

/// The last statement of a side after which nothing accesses memory or exits.
fn last_effect(side: &[Stmt]) -> Option<usize> {
    let is_pure = |kind: &StmtKind| match kind {
        StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..)) => false,
        StmtKind::Def(..) | StmtKind::Set(..) => true,
        StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::If { .. }
        | StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Region { .. }
        | StmtKind::Trap(_) => false,
    };
    side.iter().rposition(|stmt| !is_pure(&stmt.kind))
}

/// The values of two stores to the same element that are both, or neither, proved in range.
fn values_of_one_store(one: &StmtKind, other: &StmtKind) -> Option<[ValueId; 2]> {
    match (one, other) {
        (
            StmtKind::Store { place, index, value, in_bounds },
            StmtKind::Store { place: same_place, index: same_index, value: other, in_bounds: same },
        ) if (place, index, in_bounds) == (same_place, same_index, same) => Some([*value, *other]),
        _ => None,
    }
}

/// The locals that a convertible branch sets, with the values from the first and the second side.
struct Sides {
    sets: BTreeMap<LocalId, [Option<ValueId>; 2]>,
}

impl Sides {
    fn of(kind: &StmtKind) -> Option<Sides> {
        let StmtKind::If { then, otherwise, .. } = kind else { return None };
        let mut sides = Sides { sets: BTreeMap::new() };
        let ops = sides.add(then, 0)? + sides.add(otherwise, 1)?;
        (ops <= OP_LIMIT && sides.sets.len() <= SET_LIMIT).then_some(sides)
    }

    /// The number of ops in a side; `None` if it does more than compute and set.
    fn add(&mut self, block: &[Stmt], side: usize) -> Option<usize> {
        let mut ops = 0;
        for stmt in block {
            match &stmt.kind {
                StmtKind::Set(local, value) => {
                    self.sets.entry(*local).or_default()[side] = Some(*value);
                }
                // A read after a write in the same side would move before it.
                StmtKind::Def(_, Def::Get(local))
                    if self.sets.get(local).is_some_and(|s| s[side].is_some()) =>
                {
                    return None;
                }
                StmtKind::Def(_, Def::Const(_) | Def::Get(_) | Def::Len(_) | Def::Builtin(..)) => {}
                // Slow ops justify a branch.
                StmtKind::Def(_, Def::Op(op, _)) if op.row().cost > 1 => return None,
                StmtKind::Def(_, Def::Op(..)) => ops += 1,
                StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..))
                | StmtKind::Clear(_)
                | StmtKind::Store { .. }
                | StmtKind::If { .. }
                | StmtKind::For { .. }
                | StmtKind::Loop(_)
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Barrier
                | StmtKind::Region { .. }
                | StmtKind::Trap(_) => return None,
            }
        }
        Some(ops)
    }
}
