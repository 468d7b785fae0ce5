//! Copy and constant propagation through mutable variables: a read whose value is known becomes
//! that value.
//!
//! One forward walk tracks the value of each local, where a single value is known. Branches record
//! changes in a journal that is undone at their end: a local is known after a branch if all sides
//! that reach its end agree. A loop invalidates at its start what its body sets. A read that is
//! kept becomes the known value for later reads, and a write of the value that the local already
//! holds is removed. Values that a block defines are forgotten at its end.

use super::rewrite::Names;
use super::walk::{Writes, ends};
use crate::kernel::{Def, KernelBody, LocalId, Stmt, StmtKind, ValueId};
use std::collections::BTreeMap;

/// Replaces reads of locals with the values that they yield.
pub(super) fn run(body: &mut KernelBody) {
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk {
        names: Names::new(body),
        holds: vec![None; body.locals.len()],
        journal: Vec::new(),
        block_of: vec![usize::MAX; body.values.len()],
        open: Vec::new(),
        blocks: 0,
    };
    body.body = walk.block(statements);
}

struct Walk {
    names: Names,
    /// The value of each local, where it is known.
    holds: Vec<Option<ValueId>>,
    /// The previous values of `holds`, one per change.
    journal: Vec<(LocalId, Option<ValueId>)>,
    /// The block that defines each value.
    block_of: Vec<usize>,
    /// The open blocks, outermost first.
    open: Vec<usize>,
    blocks: usize,
}

impl Walk {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        self.open.push(self.blocks);
        self.blocks += 1;
        let mut out = Vec::with_capacity(block.len());
        for mut stmt in block {
            self.names.apply(&mut stmt.kind);
            if self.keeps(&stmt.kind) {
                self.nested(&mut stmt.kind);
                out.push(stmt);
            }
        }
        self.open.pop();
        out
    }

    /// Records the effect of a statement on locals; `false` if the statement is redundant.
    fn keeps(&mut self, kind: &StmtKind) -> bool {
        match kind {
            StmtKind::Def(value, Def::Get(local)) => {
                if let Some(known) = self.holds[local.index()] {
                    self.names.replace(*value, known);
                    return false;
                }
                self.define(*value);
                self.hold(*local, Some(*value));
            }
            StmtKind::Def(value, _) => self.define(*value),
            StmtKind::Set(local, value) if self.holds[local.index()] == Some(*value) => return false,
            StmtKind::Set(local, value) => self.hold(*local, Some(*value)),
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
            | StmtKind::Trap(_) => {}
        }
        true
    }

    fn nested(&mut self, kind: &mut StmtKind) {
        match kind {
            StmtKind::If { then, otherwise, .. } => self.branch(then, otherwise),
            StmtKind::For { counter, body, .. } => {
                // The counter belongs to the block that is walked next.
                self.block_of[counter.index()] = self.blocks;
                self.repeat(body);
            }
            StmtKind::Loop(body) => self.repeat(body),
            StmtKind::Region { body, .. } => {
                let mark = self.journal.len();
                *body = self.block(std::mem::take(body));
                self.forget_hidden(mark);
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => {}
        }
    }

    fn branch(&mut self, then: &mut Vec<Stmt>, otherwise: &mut Vec<Stmt>) {
        let after_then = self.side(then);
        let after_otherwise = self.side(otherwise);
        let merged = match (ends(then), ends(otherwise)) {
            (true, _) => after_otherwise,
            (false, true) => after_then,
            (false, false) => self.agreed(after_then, after_otherwise),
        };
        for (local, value) in merged {
            self.hold(local, value.filter(|&value| self.in_scope(value)));
        }
    }

    /// Walks one side, undoes its changes, and returns the values of the changed locals at its end.
    fn side(&mut self, block: &mut Vec<Stmt>) -> BTreeMap<LocalId, Option<ValueId>> {
        let mark = self.journal.len();
        *block = self.block(std::mem::take(block));
        let changed: BTreeMap<_, _> =
            self.journal[mark..].iter().map(|&(local, _)| (local, self.holds[local.index()])).collect();
        for (local, before) in self.journal.drain(mark..).rev() {
            self.holds[local.index()] = before;
        }
        changed
    }

    /// The values on which both sides agree, for each local that one of them changed.
    fn agreed(
        &self,
        then: BTreeMap<LocalId, Option<ValueId>>,
        otherwise: BTreeMap<LocalId, Option<ValueId>>,
    ) -> BTreeMap<LocalId, Option<ValueId>> {
        let before = |local: &LocalId| self.holds[local.index()];
        let mut merged = BTreeMap::new();
        for local in then.keys().chain(otherwise.keys()) {
            let left = then.get(local).copied().unwrap_or_else(|| before(local));
            let right = otherwise.get(local).copied().unwrap_or_else(|| before(local));
            merged.insert(*local, if left == right { left } else { None });
        }
        merged
    }

    fn repeat(&mut self, body: &mut Vec<Stmt>) {
        let set = Writes::of([body, &[]]).locals;
        let forget = |walk: &mut Walk| set.iter().for_each(|&local| walk.hold(local, None));
        forget(self);
        // Reads that the body keeps are known only inside it; after the loop, what held before it
        // still holds.
        self.side(body);
        forget(self);
    }

    fn forget_hidden(&mut self, mark: usize) {
        let changed: Vec<LocalId> = self.journal[mark..].iter().map(|&(local, _)| local).collect();
        for local in changed {
            if self.holds[local.index()].is_some_and(|value| !self.in_scope(value)) {
                self.hold(local, None);
            }
        }
    }

    fn define(&mut self, value: ValueId) {
        self.block_of[value.index()] = self.open.last().copied().unwrap_or(0);
    }

    fn in_scope(&self, value: ValueId) -> bool {
        // Block numbers increase inwards, so the open ones are sorted.
        self.open.binary_search(&self.block_of[value.index()]).is_ok()
    }

    fn hold(&mut self, local: LocalId, value: Option<ValueId>) {
        self.journal.push((local, self.holds[local.index()]));
        self.holds[local.index()] = value;
    }
}
