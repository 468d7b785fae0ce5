//! Store-to-load forwarding and dead store elimination.
//!
//! A load of a value that this invocation just stored becomes that value, and a store that is
//! overwritten before it can be observed is removed.
//!
//! One forward walk tracks the stored values. An out-of-range store does nothing and an
//! out-of-range load yields zero, so a value is forwarded only if one of the two is proved in
//! range. A store to a narrower element type changes the value and is not tracked. A store to the
//! same memory at another index invalidates what it may overwrite; atomics, barriers, branches and
//! loops invalidate what they may write.

use super::rewrite::Names;
use super::walk::{Writes, definitions, fixed_len, is_shared, written};
use crate::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::types::Value;

/// Maximum number of tracked stores, which keeps the walk linear. 16 and 128 change none of the
/// benchmarks.
const MEMORY_LIMIT: usize = 32;

/// Forwards stored values and drops overwritten stores.
pub(super) fn run(body: &mut KernelBody) {
    let constants = definitions(body)
        .into_iter()
        .map(|def| if let Some(Def::Const(constant)) = def { Some(constant) } else { None })
        .collect();
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk { names: Names::new(body), constants, stored: Vec::new(), body };
    let statements = walk.block(statements);
    walk.body.body = statements;
}

/// A store whose value is still in memory.
#[derive(Clone, Copy)]
struct Stored {
    place: Place,
    index: ValueId,
    value: ValueId,
    in_bounds: bool,
    /// The position of the store in the current block, as long as it cannot have been observed.
    unseen_at: Option<usize>,
}

struct Walk<'a> {
    body: &'a mut KernelBody,
    names: Names,
    constants: Vec<Option<Value>>,
    /// Oldest first.
    stored: Vec<Stored>,
}

impl Walk<'_> {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mut out: Vec<Option<Stmt>> = Vec::with_capacity(block.len());
        for mut stmt in block {
            self.names.apply(&mut stmt.kind);
            if let StmtKind::Def(value, Def::Load { place, index, in_bounds }) = &stmt.kind
                && let Some(known) = self.known(*place, *index, *in_bounds)
            {
                self.names.replace(*value, known);
                continue;
            }
            if let Some(covered) = self.effects(&stmt.kind, out.len()) {
                out[covered] = None;
            }
            self.nested(&mut stmt.kind);
            out.push(Some(stmt));
        }
        out.into_iter().flatten().collect()
    }

    /// The value in memory at this index, if an earlier store determines it.
    fn known(&self, place: Place, index: ValueId, in_bounds: bool) -> Option<ValueId> {
        let stored = self.stored.iter().find(|stored| stored.place == place && stored.index == index)?;
        (in_bounds || stored.in_bounds || self.is_there(place, index)).then_some(stored.value)
    }

    /// Whether the index is a constant inside memory of fixed length.
    fn is_there(&self, place: Place, index: ValueId) -> bool {
        let index = self.constants[index.index()].and_then(Value::as_u32);
        index.zip(fixed_len(self.body, place)).is_some_and(|(index, len)| index < len)
    }

    /// Updates the tracked stores for a statement; returns the position of a store that it
    /// overwrites.
    fn effects(&mut self, kind: &StmtKind, position: usize) -> Option<usize> {
        match kind {
            &StmtKind::Store { place, index, value, in_bounds } => {
                return self.store(Stored { place, index, value, in_bounds, unseen_at: Some(position) });
            }
            &StmtKind::Def(_, Def::Load { place, index, .. }) => self.see(place, index),
            StmtKind::Barrier => {
                let body = &*self.body;
                self.stored.retain(|stored| !is_shared(body, stored.place));
            }
            StmtKind::If { .. }
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Region { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Trap(_) => self.stored.iter_mut().for_each(|stored| stored.unseen_at = None),
            StmtKind::Def(..) | StmtKind::Clear(_) => {
                if let Some(place) = written(kind) {
                    self.stored.retain(|stored| stored.place != place);
                }
            }
            StmtKind::Set(..) => {}
        }
        None
    }

    /// Tracks a store and drops those that it may overwrite; returns the position of a store that
    /// it overwrites.
    fn store(&mut self, new: Stored) -> Option<usize> {
        let covers = |old: &Stored| old.place == new.place && old.index == new.index;
        let covered = self.stored.iter().find(|old| covers(old)).and_then(|old| old.unseen_at);
        let stored = std::mem::take(&mut self.stored);
        self.stored = stored
            .into_iter()
            .filter(|old| old.place != new.place || self.apart(old.index, new.index))
            .collect();
        if self.stored.len() == MEMORY_LIMIT {
            self.stored.remove(0);
        }
        // A load from a narrower element does not yield the stored value.
        let element = self.body.element(new.place);
        if element == element.value_type().data_type() {
            self.stored.push(new);
        }
        covered
    }

    /// Marks as observed every store that a load may read.
    fn see(&mut self, place: Place, index: ValueId) {
        for k in 0..self.stored.len() {
            let stored = self.stored[k];
            if stored.place == place && !self.apart(stored.index, index) {
                self.stored[k].unseen_at = None;
            }
        }
    }

    fn apart(&self, one: ValueId, other: ValueId) -> bool {
        let constants = self.constants[one.index()].zip(self.constants[other.index()]);
        constants.is_some_and(|(one, other)| one != other)
    }

    fn nested(&mut self, kind: &mut StmtKind) {
        let writes = Writes::of(kind.blocks());
        if matches!(kind, StmtKind::For { .. } | StmtKind::Loop(_)) {
            self.forget(&writes);
        }
        for nested in kind.blocks_mut().into_iter().flatten() {
            let before = self.stored.clone();
            *nested = self.block(std::mem::take(nested));
            self.stored = before;
        }
        self.forget(&writes);
    }

    fn forget(&mut self, writes: &Writes) {
        let body = &*self.body;
        self.stored.retain(|stored| !writes.touches(body, stored.place));
    }
}
