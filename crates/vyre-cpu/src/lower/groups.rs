//! Workgroups with barriers.
//!
//! A statement that contains a barrier runs once per workgroup, with scalar control flow; the code
//! between barriers becomes a loop over the group's vectors of invocations ([`Inst::Lanes`]). A
//! varying value or local that is live across such a boundary is kept in memory per vector; a
//! uniform one is a scalar variable. Each vector of invocations starts with the uniform variables
//! as they were before the loop, and all vectors leave the same values in them.

use super::across_barriers::{Parts, Portable};
use super::{LaneValue, Lowering, Tail, ValueStorage};
use crate::divergence::Item;
use crate::vector::{Calc, Inst, Reg, RegType, Var, VectorSlot};
use vyre_foundation::kernel::{StmtKind, ValueId};
use vyre_foundation::types::{Value, ValueType};

impl<'k> Lowering<'k> {
    /// Finds the values and locals that are live across parts of the workgroup's work.
    pub(super) fn find_crossing(&mut self, items: &[Item<'k>]) {
        self.values.portable = Portable::find(self.kernel, items, self.layout_of_rows());
        let mut parts = Parts::new(&self.values.portable);
        parts.group(items);
        let (locals, crossing) = (parts.locals, parts.crossing);
        for (local, used_in) in locals {
            if used_in.len() > 1 {
                self.locals.crossing[local.index()] = true;
                self.local_storage(local);
            }
        }
        let mut crossing: Vec<ValueId> = crossing.into_iter().collect();
        crossing.sort_unstable();
        for value in crossing {
            let info = self.kernel.values[value.index()];
            let storage = if info.uniform {
                ValueStorage::Var(self.var(RegType { ty: info.ty, vector: false }))
            } else {
                ValueStorage::Slot(self.slot(info.ty))
            };
            self.values.crossing.insert(value, storage);
        }
    }

    /// Lowers the whole work of one workgroup.
    pub(super) fn whole_group(&mut self, items: &[Item<'k>]) -> Vec<Inst> {
        self.nested(|this| {
            let kept = items.iter().any(|item| item.is_group_level() && item.marks.kills);
            let slot = kept.then(|| this.no_lanes());
            this.finished.off.push(slot);
            let body = this.group(items);
            this.out.extend(body);
        })
    }

    /// Allocates a slot for a mask, initially empty.
    fn no_lanes(&mut self) -> VectorSlot {
        let slot = self.slot(ValueType::Bool);
        self.empty(slot);
        slot
    }

    fn empty(&mut self, slot: VectorSlot) {
        let [full, tail] = [(); 2].map(|()| {
            self.nested(|this| {
                let none = this.def(RegType::MASK, Calc::Const(Value::Bool(false)));
                this.out.push(Inst::Keep(slot, none));
            })
        });
        self.out.push(Inst::Lanes { full, tail });
    }

    /// Lowers the body of a loop that the workgroup runs together.
    fn group_rounds(&mut self, item: &Item<'k>) -> Vec<Inst> {
        self.nested(|this| {
            let slot = item.marks.skips.then(|| this.no_lanes());
            this.finished.off.push(slot);
            let body = this.group(&item.blocks[0]);
            this.out.extend(body);
            this.finished.off.pop();
        })
    }

    /// Lowers statements with barriers once, and the stretches between them per vector of lanes.
    fn group(&mut self, items: &[Item<'k>]) -> Vec<Inst> {
        self.nested(|this| {
            let mut rest = items;
            while !rest.is_empty() {
                let stretch = rest.iter().position(|item| item.is_group_level()).unwrap_or(rest.len());
                if stretch > 0 {
                    this.stretch(&rest[..stretch]);
                }
                if let Some(item) = rest.get(stretch) {
                    this.group_item(item);
                }
                rest = &rest[(stretch + 1).min(rest.len())..];
            }
        })
    }

    /// A stretch without barriers: a loop over the group's vectors of invocations.
    fn stretch(&mut self, items: &[Item<'k>]) {
        let count: u32 = self.workgroup.iter().product();
        let (whole, rest) = (count / self.lanes, count % self.lanes);
        // Each vector of lanes starts with the uniform variables as they were before the first.
        let mut written = Vec::new();
        self.uniform_variables_written(items, &mut written);
        let before: Vec<(Var, Reg)> = written.into_iter().map(|var| (var, self.get(var))).collect();
        let reset = |mut insts: Vec<Inst>| {
            insts.splice(0..0, before.iter().map(|&(var, reg)| Inst::Set(var, reg)));
            insts
        };
        let (mut full, mut tail) = (Vec::new(), Vec::new());
        if whole > 0 {
            full = reset(self.vector_of_lanes(items, None));
        }
        if rest > 0 {
            tail = reset(self.vector_of_lanes(items, Some(Tail::Group(rest))));
        }
        self.loops.started += loops_in(items);
        self.out.push(Inst::Lanes { full, tail });
    }

    /// Collects the variables of uniform locals that a stretch writes.
    fn uniform_variables_written(&mut self, items: &[Item<'k>], found: &mut Vec<Var>) {
        for item in items {
            if let StmtKind::Set(local, _) = &item.stmt.kind
                && self.locals.crossing[local.index()]
                && let ValueStorage::Var(var) = self.local_storage(*local)
                && !found.contains(&var)
            {
                found.push(var);
            }
            for block in &item.blocks {
                self.uniform_variables_written(block, found);
            }
        }
    }

    fn group_item(&mut self, item: &Item<'k>) {
        let outer = std::mem::replace(&mut self.region, item.region);
        self.group_statement(item);
        self.region = outer;
    }

    fn group_statement(&mut self, item: &Item<'k>) {
        match &item.stmt.kind {
            StmtKind::If { condition, .. } => {
                let condition = self.operand(*condition);
                let then = self.group(&item.blocks[0]);
                let otherwise = self.group(&item.blocks[1]);
                self.out.push(Inst::If { condition, then, otherwise });
            }
            StmtKind::For { .. } => self.group_counted(item),
            StmtKind::Loop(_) => {
                self.loops.started += 1;
                let body = self.group_rounds(item);
                self.out.push(Inst::Loop { body, next: Vec::new(), rest: false });
            }
            StmtKind::Break => self.out.push(Inst::Break),
            StmtKind::Continue => self.out.push(Inst::Continue),
            StmtKind::Return => self.out.push(Inst::EndGroup),
            // All vectors of the previous stretch have run by the time the next one starts.
            StmtKind::Barrier => {}
            StmtKind::Region { .. } => {
                unreachable!("regions that the workgroup runs together were taken apart")
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Trap(_) => unreachable!("it holds no barrier and no exit"),
        }
    }

    fn group_counted(&mut self, item: &Item<'k>) {
        let StmtKind::For { counter, from, to, step, .. } = &item.stmt.kind else {
            unreachable!("only called for counted loops")
        };
        let bounds = [*from, *to, *step].map(|bound| self.operand(bound));
        let rounds = self.start_rounds(bounds);
        self.loops.started += 1;
        let counter = *counter;
        let body = self.nested(|this| {
            let current = this.get(rounds.position);
            let condition = this.has_round(&rounds, current);
            this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
            this.define(counter, LaneValue::Uniform(current));
            let body = this.group_rounds(item);
            this.out.extend(body);
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest: false });
    }
}

fn loops_in(items: &[Item<'_>]) -> usize {
    items
        .iter()
        .map(|item| {
            let own = usize::from(matches!(item.stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_)));
            own + item.blocks.iter().map(|block| loops_in(block)).sum::<usize>()
        })
        .sum()
}
