//! Store-to-load forwarding: a load of what this invocation stored just before becomes the stored value, and a store
//! that another one covers before anything can see it disappears.
//!
//! One forward walk remembers what was stored where. A store out of range does nothing, and a load there gives zero, so
//! the value is forwarded only if one of the two is proved in range; into a narrower element type the store changes the
//! value, and nothing is remembered. A store to the same memory at another index forgets what it may overwrite; atomics,
//! barriers, branches and loops forget what they may write.

use super::rewrite::Names;
use super::walk::{Writes, definitions, fixed_len, is_shared, written};
use crate::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use crate::types::Value;

/// How many stores are remembered: enough for real kernels, and it keeps the walk linear.
const MEMORY_LIMIT: usize = 32;

/// Forwards stored values and drops covered stores.
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
    /// Where the store stands in the block being walked, as long as nothing can have seen it.
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

    /// The value in memory at this index, if an earlier store tells.
    fn known(&self, place: Place, index: ValueId, in_bounds: bool) -> Option<ValueId> {
        let stored = self.stored.iter().find(|stored| stored.place == place && stored.index == index)?;
        (in_bounds || stored.in_bounds || self.is_there(place, index)).then_some(stored.value)
    }

    /// Whether the index is a constant inside memory of fixed length.
    fn is_there(&self, place: Place, index: ValueId) -> bool {
        let index = self.constants[index.index()].and_then(Value::as_u32);
        index.zip(fixed_len(self.body, place)).is_some_and(|(index, len)| index < len)
    }

    /// Takes note of what the statement itself does to memory; gives the place of a store that it covers.
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

    /// Remembers a store and forgets what it may overwrite; gives the place of a store that it covers.
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
        // A narrower element does not give back what was stored.
        let element = self.body.element(new.place);
        if element == element.value_type().data_type() {
            self.stored.push(new);
        }
        covered
    }

    /// A load may look at every store to its memory that is not certainly elsewhere.
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
