//! Dead code elimination: removes values, variables, private arrays, branches and counted loops
//! that have no effect.
//!
//! First, a backward walk drops each `Set` whose value no path reads. A loop treats every local
//! that it reads as live at its end, so the walk needs no fixpoint. Then everything that the
//! kernel's effects depend on (stores to buffers, atomics, barriers, returns, traps) is marked,
//! through values, locals and arrays, and the rest is dropped; a variable that only feeds itself is
//! never marked. An uncounted loop is kept even if it computes nothing, because its termination is
//! observable.

use super::walk::each_stmt;
use crate::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};

/// Removes code without effect.
pub(crate) fn run(body: &mut KernelBody) {
    drop_dead_sets(body);
    let marks = Marks::of(body);
    sweep(&mut body.body, &marks, &mut 0);
}

/// A bit set of locals.
#[derive(Clone)]
struct Locals(Vec<u64>);

impl Locals {
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn set(&mut self, index: usize, live: bool) {
        let bit = 1 << (index % 64);
        if live { self.0[index / 64] |= bit } else { self.0[index / 64] &= !bit }
    }

    fn add(&mut self, other: &Locals) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// The locals that are live now, at the innermost loop's next iteration, and after that loop.
struct Live {
    now: Locals,
    at_continue: Locals,
    at_break: Locals,
}

fn drop_dead_sets(body: &mut KernelBody) {
    let none = Locals(vec![0; body.locals.len().div_ceil(64)]);
    let mut live = Live { now: none.clone(), at_continue: none.clone(), at_break: none };
    live_block(&mut body.body, &mut live);
}

/// Walks the block backwards; `live` goes from the state after the block to the state before it.
fn live_block(block: &mut Vec<Stmt>, live: &mut Live) {
    let mut kept: Vec<Stmt> = Vec::with_capacity(block.len());
    for mut stmt in std::mem::take(block).into_iter().rev() {
        if let StmtKind::Set(local, _) = stmt.kind
            && !live.now.contains(local.index())
        {
            continue;
        }
        live_stmt(&mut stmt.kind, live);
        kept.push(stmt);
    }
    kept.reverse();
    *block = kept;
}

fn live_stmt(kind: &mut StmtKind, live: &mut Live) {
    match kind {
        StmtKind::Set(local, _) => live.now.set(local.index(), false),
        StmtKind::Def(_, Def::Get(local)) => live.now.set(local.index(), true),
        StmtKind::If { then, otherwise, .. } => {
            let behind = live.now.clone();
            live_block(then, live);
            let before_then = std::mem::replace(&mut live.now, behind);
            live_block(otherwise, live);
            live.now.add(&before_then);
        }
        StmtKind::For { body, .. } | StmtKind::Loop(body) => live_loop(body, live),
        StmtKind::Region { body, .. } => live_block(body, live),
        StmtKind::Break => live.now = live.at_break.clone(),
        StmtKind::Continue => live.now = live.at_continue.clone(),
        StmtKind::Return | StmtKind::Trap(_) => live.now.0.fill(0),
        StmtKind::Def(
            _,
            Def::Const(_)
            | Def::Op(..)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..),
        )
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Barrier => {}
    }
}

/// Before the loop and at the end of each iteration, a local is live if it is live after the loop
/// or read anywhere in it.
fn live_loop(body: &mut Vec<Stmt>, live: &mut Live) {
    let behind = live.now.clone();
    each_stmt(body, &mut |stmt| {
        if let StmtKind::Def(_, Def::Get(local)) = stmt.kind {
            live.now.set(local.index(), true);
        }
    });
    let around = live.now.clone();
    let outer_continue = std::mem::replace(&mut live.at_continue, around.clone());
    let outer_break = std::mem::replace(&mut live.at_break, behind);
    live_block(body, live);
    live.now.add(&around);
    (live.at_continue, live.at_break) = (outer_continue, outer_break);
}

/// A statement with blocks, numbered in forward order.
struct Control {
    parent: Option<usize>,
    reads: Vec<ValueId>,
    /// The parents of its `break` and `continue` statements, which are needed if the loop is.
    exits: Vec<Option<usize>>,
    needed: bool,
}

/// A write to a local or array: the values that it uses, and the enclosing control statement.
type Writer = (Vec<ValueId>, Option<usize>);

/// The parts of the kernel that its effects depend on.
struct Marks {
    values: Vec<bool>,
    locals: Vec<bool>,
    arrays: Vec<bool>,
    controls: Vec<Control>,
    definitions: Vec<Option<Def>>,
    writers_of_locals: Vec<Vec<Writer>>,
    writers_of_arrays: Vec<Vec<Writer>>,
    /// Marked values whose operands are not yet marked.
    pending: Vec<ValueId>,
    /// Marked controls whose reads, parents and exits are not yet marked.
    pending_controls: Vec<usize>,
}

impl Marks {
    fn of(body: &KernelBody) -> Marks {
        let mut marks = Marks {
            values: vec![false; body.values.len()],
            locals: vec![false; body.locals.len()],
            arrays: vec![false; body.arrays.len()],
            controls: Vec::new(),
            definitions: vec![None; body.values.len()],
            writers_of_locals: vec![Vec::new(); body.locals.len()],
            writers_of_arrays: vec![Vec::new(); body.arrays.len()],
            pending: Vec::new(),
            pending_controls: Vec::new(),
        };
        marks.gather(&body.body, None, None);
        marks.settle();
        marks
    }

    /// Fills the tables and marks the effects.
    fn gather(&mut self, block: &[Stmt], parent: Option<usize>, innermost_loop: Option<usize>) {
        for stmt in block {
            let id = self.enter(&stmt.kind, parent, innermost_loop);
            let innermost = match stmt.kind {
                StmtKind::For { .. } | StmtKind::Loop(_) => id,
                StmtKind::Def(..)
                | StmtKind::Set(..)
                | StmtKind::Clear(_)
                | StmtKind::Store { .. }
                | StmtKind::If { .. }
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Barrier
                | StmtKind::Region { .. }
                | StmtKind::Trap(_) => innermost_loop,
            };
            for nested in stmt.kind.blocks() {
                self.gather(nested, id.or(parent), innermost);
            }
        }
    }

    /// Records one statement; returns its number if it is an `if` or a loop.
    fn enter(&mut self, kind: &StmtKind, parent: Option<usize>, innermost: Option<usize>) -> Option<usize> {
        match kind {
            StmtKind::Def(value, def) => {
                self.definitions[value.index()] = Some(def.clone());
                if matches!(def, Def::Atomic { .. }) {
                    self.need_value(*value);
                    self.need_control(parent);
                }
            }
            StmtKind::Set(local, value) => self.writers_of_locals[local.index()].push((vec![*value], parent)),
            StmtKind::Clear(array) => self.writers_of_arrays[array.index()].push((Vec::new(), parent)),
            StmtKind::Store { place: Place::Array(array), index, value, .. } => {
                self.writers_of_arrays[array.index()].push((vec![*index, *value], parent));
            }
            StmtKind::Store { place: Place::Buffer(_), index, value, .. } => {
                self.need_value(*index);
                self.need_value(*value);
                self.need_control(parent);
            }
            StmtKind::Return | StmtKind::Barrier | StmtKind::Trap(_) => self.need_control(parent),
            StmtKind::Break | StmtKind::Continue => {
                if let Some(control) = innermost {
                    self.controls[control].exits.push(parent);
                }
            }
            StmtKind::If { .. } | StmtKind::For { .. } | StmtKind::Loop(_) => {
                return Some(self.open(kind, parent));
            }
            StmtKind::Region { .. } => {}
        }
        None
    }

    fn open(&mut self, kind: &StmtKind, parent: Option<usize>) -> usize {
        let mut reads = Vec::new();
        kind.each_operand(|operand| reads.push(operand));
        self.controls.push(Control { parent, reads, exits: Vec::new(), needed: false });
        let id = self.controls.len() - 1;
        if matches!(kind, StmtKind::Loop(_)) {
            self.need_control(Some(id));
        }
        id
    }

    fn need_value(&mut self, value: ValueId) {
        if !std::mem::replace(&mut self.values[value.index()], true) {
            self.pending.push(value);
        }
    }

    fn need_control(&mut self, control: Option<usize>) {
        if let Some(id) = control
            && !std::mem::replace(&mut self.controls[id].needed, true)
        {
            self.pending_controls.push(id);
        }
    }

    fn settle(&mut self) {
        loop {
            if let Some(value) = self.pending.pop() {
                self.follow_value(value);
            } else if let Some(id) = self.pending_controls.pop() {
                self.follow_control(id);
            } else {
                return;
            }
        }
    }

    fn follow_value(&mut self, value: ValueId) {
        let Some(def) = self.definitions[value.index()].take() else { return };
        def.operands().for_each(|operand| self.need_value(operand));
        match def {
            Def::Get(local) if !std::mem::replace(&mut self.locals[local.index()], true) => {
                let writers = std::mem::take(&mut self.writers_of_locals[local.index()]);
                self.need_writers(writers);
            }
            Def::Load { place: Place::Array(array), .. }
                if !std::mem::replace(&mut self.arrays[array.index()], true) =>
            {
                let writers = std::mem::take(&mut self.writers_of_arrays[array.index()]);
                self.need_writers(writers);
            }
            Def::Get(_)
            | Def::Load { .. }
            | Def::Const(_)
            | Def::Op(..)
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => {}
        }
    }

    fn need_writers(&mut self, writers: Vec<Writer>) {
        for (values, parent) in writers {
            values.into_iter().for_each(|value| self.need_value(value));
            self.need_control(parent);
        }
    }

    fn follow_control(&mut self, id: usize) {
        let control = &mut self.controls[id];
        let (parent, reads) = (control.parent, std::mem::take(&mut control.reads));
        let exits = std::mem::take(&mut control.exits);
        self.need_control(parent);
        reads.into_iter().for_each(|value| self.need_value(value));
        exits.into_iter().for_each(|exit| self.need_control(exit));
    }
}

/// Drops unmarked statements. `next` counts the controls in the order of [`Marks::gather`].
fn sweep(block: &mut Vec<Stmt>, marks: &Marks, next: &mut usize) {
    block.retain_mut(|stmt| {
        let keeps = match &stmt.kind {
            StmtKind::Def(value, _) => marks.values[value.index()],
            StmtKind::Set(local, _) => marks.locals[local.index()],
            StmtKind::Clear(array) | StmtKind::Store { place: Place::Array(array), .. } => {
                marks.arrays[array.index()]
            }
            StmtKind::If { .. } | StmtKind::For { .. } | StmtKind::Loop(_) => {
                *next += 1;
                marks.controls[*next - 1].needed
            }
            StmtKind::Store { place: Place::Buffer(_), .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => true,
        };
        // Dropped statements are walked too, to keep the count in sync.
        for nested in stmt.kind.blocks_mut().into_iter().flatten() {
            sweep(nested, marks, next);
        }
        keeps
    });
}
