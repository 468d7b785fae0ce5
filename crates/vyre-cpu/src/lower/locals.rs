//! Locals of the kernel, and where they are stored.

use super::{Lowering, ValueStorage};
use crate::divergence::{Item, LocalFacts};
use crate::vector::{Inst, Reg, RegType, Var, VectorSlot};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{Def, LocalId, StmtKind, ValueId};

/// Locals of the kernel.
pub(super) struct Locals {
    pub(super) facts: LocalFacts,
    pub(super) storage: Vec<Option<ValueStorage>>,
    /// Whether each is used in more than one part of the workgroup's work.
    pub(super) crossing: Vec<bool>,
    /// Workgroup locals that this vector of invocations holds in variables, with their slots.
    pub(super) borrowed: Vec<(Var, VectorSlot)>,
}

impl Locals {
    pub(super) fn new(facts: LocalFacts, count: usize) -> Locals {
        Locals { facts, storage: vec![None; count], crossing: vec![false; count], borrowed: Vec::new() }
    }
}

impl<'k> Lowering<'k> {
    pub(super) fn local_storage(&mut self, local: LocalId) -> ValueStorage {
        if let Some(storage) = self.locals.storage[local.index()] {
            return storage;
        }
        let ty = self.kernel.locals[local.index()].ty;
        let uniform = self.locals.facts.uniform[local.index()];
        let storage = if self.locals.crossing[local.index()] && !uniform {
            ValueStorage::Slot(self.slot(ty))
        } else {
            ValueStorage::Var(self.var(RegType { ty, vector: !uniform }))
        };
        self.locals.storage[local.index()] = Some(storage);
        storage
    }

    pub(super) fn read_local(&mut self, local: LocalId) -> Reg {
        match self.local_storage(local) {
            ValueStorage::Var(var) => self.get(var),
            ValueStorage::Slot(slot) => self.recall(slot),
        }
    }

    pub(super) fn set_local(&mut self, local: LocalId, value: ValueId) {
        let storage = self.local_storage(local);
        let mut value = self.operand(value);
        if !self.locals.facts.uniform[local.index()]
            && let Some(running) = self.masks.running()
            && !self.may_overwrite(local)
        {
            let old = self.read_local(local);
            value = self.op(Op::Select, &[running, value, old]);
        }
        self.out.push(match storage {
            ValueStorage::Var(var) => Inst::Set(var, value),
            ValueStorage::Slot(slot) => Inst::Keep(slot, value),
        });
    }

    /// Whether the inactive lanes have no further use for this local.
    fn may_overwrite(&self, local: LocalId) -> bool {
        let number = self.loops.open.last().map_or(0, |state| state.number);
        self.masks.is_whole_loop() && self.locals.facts.lost_outside(local, number)
    }

    /// Loads the workgroup's varying locals that `items` use into variables of this vector of
    /// invocations.
    pub(super) fn borrow_locals(&mut self, items: &[Item<'k>]) {
        let mut used = Vec::new();
        locals_used(items, &mut used);
        for local in used {
            if let Some(ValueStorage::Slot(slot)) = self.locals.storage[local.index()] {
                let value = self.recall(slot);
                let var = self.var(RegType { ty: self.declared.slots[slot.0 as usize], vector: true });
                self.out.push(Inst::Set(var, value));
                self.locals.storage[local.index()] = Some(ValueStorage::Var(var));
                self.locals.borrowed.push((var, slot));
            }
        }
    }

    /// Writes borrowed locals back to their slots for the other parts of the workgroup's work.
    pub(super) fn return_locals(&mut self) {
        for (var, slot) in self.locals.borrowed.clone() {
            let value = self.get(var);
            self.out.push(Inst::Keep(slot, value));
        }
    }
}

/// Collects the locals that statements read or write, each once.
fn locals_used(items: &[Item<'_>], found: &mut Vec<LocalId>) {
    for item in items {
        if let StmtKind::Set(local, _) | StmtKind::Def(_, Def::Get(local)) = &item.stmt.kind
            && !found.contains(local)
        {
            found.push(*local);
        }
        for block in &item.blocks {
            locals_used(block, found);
        }
    }
}
