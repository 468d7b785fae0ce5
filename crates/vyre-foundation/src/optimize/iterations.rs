//! Upper bounds on the loop iterations of one invocation.
//!
//! One walk in execution order tracks an interval for each integer value and variable, from
//! constants, types, ops and the conditions on the path, and from a dispatch, if there is one
//! (lengths, sizes, elements of small read-only buffers). The intervals of its bounds limit a
//! counted loop. Any other loop has a bound if a variable moves towards a limit in each iteration
//! (`progress.rs`).
//!
//! Iterations are counted as on machines that run invocations in lockstep: the iteration in which a
//! loop ends counts too, both sides of a branch run, and loops after a `break` run once more.

mod progress;

use super::walk::each_stmt;
use crate::kernel::interval::{Interval, Relation, transfer};
use crate::kernel::{BufferId, Def, KernelBody, LocalId, Place, Stmt, StmtKind, ValueId};
use crate::launch::Launch;
use crate::ops::{Op, SubgroupOp};
use crate::types::Value;
use smallvec::{SmallVec, smallvec};

/// An upper bound on the loop iterations, over all loops, of any one invocation; `None` if none was
/// found.
///
/// The iteration in which a loop ends counts too. The bound also holds for invocations that run in
/// lockstep, where a loop continues until the last of them leaves it. Clearing a private array
/// counts as a loop over its elements.
///
/// ```
/// use vyre_foundation::optimize::iteration_bound;
/// use vyre_foundation::text::parse;
/// let source = "kernel k(n: u8 uniform, out: output u32[1]) workgroup 1 { region \"r\" {
///   let sum = 0
///   for i in 0..n { for j in 0..4 { sum = sum + j } }
///   out[0] = sum } }";
/// // At most 255 outer rounds and the one that ends them, each with five inner ones.
/// let kernel = parse(source)?.validate()?;
/// assert_eq!(iteration_bound(&kernel), Some(256 * (1 + 5)));
/// # Ok::<(), vyre_foundation::diagnostics::Diagnostics>(())
/// ```
pub fn iteration_bound(kernel: &KernelBody) -> Option<u64> {
    Walk::new(kernel, None).rounds()
}

/// Like [`iteration_bound`], for one dispatch. `element` returns an element of a `read` or
/// `uniform` buffer, zero if out of range, or `None` if its memory cannot be read.
pub(crate) fn dispatch_iteration_bound(
    kernel: &KernelBody,
    launch: &Launch,
    element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
) -> Option<u64> {
    Walk::new(kernel, Some(Dispatch { launch, element })).rounds()
}

/// A dispatch about to run.
struct Dispatch<'a> {
    launch: &'a Launch,
    element: &'a mut dyn FnMut(BufferId, u32) -> Option<Value>,
}

/// The known state of a variable.
#[derive(Clone, Copy)]
struct Variable {
    range: Interval,
    /// The value last read from it, unless it was assigned since.
    read: Option<ValueId>,
}

/// The result of walking a block.
struct Passed {
    rounds: u64,
    /// Whether control can reach its end.
    goes_on: bool,
}

/// A log entry that restores a state from before a branch.
enum Before {
    Value(ValueId, Interval),
    Variable(LocalId, Variable),
}

/// Maximum number of parts of a condition examined through `and`, `or` and `not`. None of the
/// benchmarks has 16.
const MOST_PARTS: usize = 32;

/// Maximum number of buffer elements examined for one load.
const MOST_ELEMENTS: i128 = 1024;

/// A relation between two values.
type Fact = (Relation, [ValueId; 2]);

struct Walk<'a> {
    kernel: &'a KernelBody,
    dispatch: Option<Dispatch<'a>>,
    ranges: Vec<Interval>,
    definitions: Vec<Option<&'a Def>>,
    variables: Vec<Variable>,
    /// What was narrowed or assigned, to be undone at the end of a branch.
    log: Vec<Before>,
}

impl<'a> Walk<'a> {
    fn new(kernel: &'a KernelBody, dispatch: Option<Dispatch<'a>>) -> Walk<'a> {
        let unknown = |ty| Variable { range: Interval::of_type(ty), read: None };
        Walk {
            kernel,
            dispatch,
            ranges: kernel.values.iter().map(|info| Interval::of_type(info.ty)).collect(),
            definitions: vec![None; kernel.values.len()],
            variables: kernel.locals.iter().map(|local| unknown(local.ty)).collect(),
            log: Vec::new(),
        }
    }

    fn rounds(mut self) -> Option<u64> {
        let kernel = self.kernel;
        self.block(&kernel.body).map(|passed| passed.rounds)
    }

    fn block(&mut self, block: &'a [Stmt]) -> Option<Passed> {
        let mut rounds = 0_u64;
        for stmt in block {
            let passed = self.statement(&stmt.kind)?;
            rounds = rounds.checked_add(passed.rounds)?;
            if !passed.goes_on {
                return Some(Passed { rounds, goes_on: false });
            }
        }
        Some(Passed { rounds, goes_on: true })
    }

    fn statement(&mut self, kind: &'a StmtKind) -> Option<Passed> {
        let mut passed = Passed { rounds: 0, goes_on: true };
        match kind {
            StmtKind::Def(value, def) => self.define(*value, def),
            StmtKind::Set(local, value) => {
                self.assign(*local, Variable { range: self.ranges[value.index()], read: None });
            }
            StmtKind::If { condition, then, otherwise } => return self.branch(*condition, [then, otherwise]),
            StmtKind::For { counter, from, to, step, body } => {
                let [from, to, step] = [from, to, step].map(|bound| self.ranges[bound.index()]);
                self.ranges[counter.index()] = Interval::new(from.low.min(to.low), from.high.max(to.high));
                let inside = self.looped(body)?;
                passed.rounds = times(counted_rounds(from, to, step)?, inside)?;
            }
            StmtKind::Loop(body) => {
                let before = self.variables.clone();
                let inside = self.looped(body)?;
                let begun = if repeats(body) { progress::rounds(self, &before, body)? } else { 0 };
                passed.rounds = times(begun, inside)?;
            }
            StmtKind::Region { body, .. } => return self.block(body),
            StmtKind::Clear(array) => passed.rounds = u64::from(self.kernel.arrays[array.index()].count) + 1,
            StmtKind::Break | StmtKind::Continue | StmtKind::Return | StmtKind::Trap(_) => {
                passed.goes_on = false;
            }
            StmtKind::Store { .. } | StmtKind::Barrier => {}
        }
        Some(passed)
    }

    /// Walks the body of a loop for an arbitrary iteration, in which only the types of assigned
    /// variables are known; returns its iterations.
    fn looped(&mut self, body: &'a [Stmt]) -> Option<u64> {
        for local in assigned(body) {
            let range = Interval::of_type(self.kernel.locals[local.index()].ty);
            self.assign(local, Variable { range, read: None });
        }
        let mark = self.log.len();
        let passed = self.block(body)?;
        self.undo(mark);
        Some(passed.rounds)
    }

    fn branch(&mut self, condition: ValueId, sides: [&'a [Stmt]; 2]) -> Option<Passed> {
        let mark = self.log.len();
        let side = |this: &mut Self, holds: bool, block: &'a [Stmt]| {
            this.narrow(condition, holds);
            let passed = this.block(block)?;
            let changed = this.changed(mark);
            this.undo(mark);
            Some((passed, changed))
        };
        let (yes, after_yes) = side(self, true, sides[0])?;
        let (no, after_no) = side(self, false, sides[1])?;
        match (yes.goes_on, no.goes_on) {
            (true, true) => self.join(&after_yes, &after_no),
            (true, false) => {
                self.narrow(condition, true);
                after_yes.into_iter().for_each(|(local, after)| self.assign(local, after));
            }
            (false, true) => {
                self.narrow(condition, false);
                after_no.into_iter().for_each(|(local, after)| self.assign(local, after));
            }
            (false, false) => {}
        }
        let rounds = yes.rounds.checked_add(no.rounds)?;
        Some(Passed { rounds, goes_on: yes.goes_on || no.goes_on })
    }

    fn assign(&mut self, local: LocalId, now: Variable) {
        let before = std::mem::replace(&mut self.variables[local.index()], now);
        self.log.push(Before::Variable(local, before));
    }

    /// The variables that changed since `mark`, with their current state.
    fn changed(&self, mark: usize) -> Vec<(LocalId, Variable)> {
        let local = |before: &Before| match before {
            Before::Variable(local, _) => Some(*local),
            Before::Value(..) => None,
        };
        let mut locals: Vec<LocalId> = self.log[mark..].iter().filter_map(local).collect();
        locals.sort_unstable();
        locals.dedup();
        locals.into_iter().map(|local| (local, self.variables[local.index()])).collect()
    }

    fn undo(&mut self, mark: usize) {
        while self.log.len() > mark {
            match self.log.pop() {
                Some(Before::Value(value, range)) => self.ranges[value.index()] = range,
                Some(Before::Variable(local, before)) => self.variables[local.index()] = before,
                None => return,
            }
        }
    }

    /// Merges the variables of two paths that join.
    fn join(&mut self, one: &[(LocalId, Variable)], other: &[(LocalId, Variable)]) {
        let after = |side: &[(LocalId, Variable)], local: LocalId, before: Variable| {
            let found = side.binary_search_by_key(&local, |(changed, _)| *changed);
            found.map_or(before, |at| side[at].1)
        };
        let mut locals: Vec<LocalId> = one.iter().chain(other).map(|(local, _)| *local).collect();
        locals.sort_unstable();
        locals.dedup();
        for local in locals {
            let before = self.variables[local.index()];
            let range = after(one, local, before).range.join(after(other, local, before).range);
            self.assign(local, Variable { range, read: None });
        }
    }

    fn define(&mut self, value: ValueId, def: &'a Def) {
        self.definitions[value.index()] = Some(def);
        if let Def::Get(local) = def {
            self.variables[local.index()].read = Some(value);
        }
        self.ranges[value.index()] = self.range_of(value, def);
    }

    fn range_of(&mut self, value: ValueId, def: &Def) -> Interval {
        let full = Interval::of_type(self.kernel.ty(value));
        match def {
            Def::Const(constant) => Interval::of_constant(*constant),
            Def::Get(local) => self.variables[local.index()].range,
            Def::Load { place, index, .. } => self.loaded(*place, self.ranges[index.index()]),
            Def::Len(buffer) => {
                let count = match &self.dispatch {
                    Some(dispatch) => dispatch.launch.lengths[buffer.index()],
                    None => self.kernel.buffer(*buffer).decl.count,
                };
                let known = self.dispatch.is_some() || count > 0;
                if known { Interval::only(count.into()) } else { full }
            }
            Def::Builtin(builtin, axis) => self
                .dispatch
                .as_ref()
                .map_or(full, |dispatch| dispatch.launch.place(*builtin, usize::from(*axis))),
            Def::Op(op, operands) => {
                let args = operands.iter().map(|operand| self.ranges[operand.index()]);
                let args: SmallVec<[Interval; 4]> = args.collect();
                transfer(*op, &args, self.kernel.ty(operands[0]), self.kernel.ty(value))
            }
            Def::Subgroup(SubgroupOp::Id | SubgroupOp::Count, _) => {
                let most =
                    |dispatch: &Dispatch| dispatch.launch.workgroup.into_iter().map(i128::from).product();
                self.dispatch.as_ref().map_or(full, |dispatch| Interval::new(0, most(dispatch)))
            }
            Def::Atomic { .. } | Def::Subgroup(..) => full,
        }
    }

    /// The range of a load; exact for a few readable elements.
    fn loaded(&mut self, place: Place, index: Interval) -> Interval {
        let full = Interval::of_element(self.kernel.element(place));
        let (Place::Buffer(id), Some(dispatch)) = (place, &mut self.dispatch) else { return full };
        if self.kernel.buffer(id).decl.access.is_writable()
            || !self.kernel.element(place).value_type().is_integer()
        {
            return full;
        }
        // Every element past the end is zero, so the first one represents all.
        let end = i128::from(dispatch.launch.lengths[id.index()]);
        let (first, last) = (index.low.min(end), index.high.min(end));
        if first < 0 || last - first >= MOST_ELEMENTS {
            return full;
        }
        let mut element = |index: i128| {
            let index = u32::try_from(index).ok()?;
            (dispatch.element)(id, index).map(Interval::of_constant)
        };
        let all = (first..=last).map(&mut element);
        let all = all.reduce(|some, one| Some(some?.join(one?)));
        all.flatten().unwrap_or(full)
    }

    /// The relations implied by a condition that is true or false.
    fn implied(&self, condition: ValueId, holds: bool) -> SmallVec<[Fact; 4]> {
        let mut facts = SmallVec::new();
        let mut parts: SmallVec<[(ValueId, bool); 4]> = smallvec![(condition, holds)];
        for _ in 0..MOST_PARTS {
            let Some((part, holds)) = parts.pop() else { break };
            let Some(Def::Op(op, operands)) = self.definitions[part.index()] else { continue };
            if let Some(relation) = Relation::of(*op, holds) {
                facts.push((relation, [operands[0], operands[1]]));
            } else if *op == Op::Not {
                parts.push((operands[0], !holds));
            } else if *op == if holds { Op::And } else { Op::Or } {
                parts.extend(operands.iter().map(|&part| (part, holds)));
            }
        }
        facts
    }

    /// Records that a condition is true or false.
    fn narrow(&mut self, condition: ValueId, holds: bool) {
        for (relation, [x, y]) in self.implied(condition, holds) {
            if self.kernel.ty(x).is_integer() {
                let [x_range, y_range] = [x, y].map(|operand| self.ranges[operand.index()]);
                self.restrict(x, relation.left(x_range, y_range));
                self.restrict(y, relation.mirrored().left(y_range, x_range));
            }
        }
    }

    /// Narrows a value, and the variable that it was read from, to an interval.
    fn restrict(&mut self, value: ValueId, to: Interval) {
        let Some(range) = self.ranges[value.index()].meet(to) else { return };
        let before = std::mem::replace(&mut self.ranges[value.index()], range);
        self.log.push(Before::Value(value, before));
        if let Some(Def::Get(local)) = self.definitions[value.index()] {
            let variable = self.variables[local.index()];
            if variable.read == Some(value)
                && let Some(range) = variable.range.meet(to)
            {
                self.assign(*local, Variable { range, ..variable });
            }
        }
    }
}

/// The variables that a block assigns, without duplicates.
fn assigned(block: &[Stmt]) -> Vec<LocalId> {
    let mut locals = Vec::new();
    each_stmt(block, &mut |stmt| {
        if let StmtKind::Set(local, _) = stmt.kind {
            locals.push(local);
        }
    });
    locals.sort_unstable();
    locals.dedup();
    locals
}

/// Whether a loop with this body can begin a second iteration.
fn repeats(body: &[Stmt]) -> bool {
    fn reaches_end(block: &[Stmt], again: &mut bool) -> bool {
        block.iter().all(|stmt| match &stmt.kind {
            StmtKind::Continue => {
                *again = true;
                false
            }
            StmtKind::Break | StmtKind::Return | StmtKind::Trap(_) => false,
            StmtKind::If { then, otherwise, .. } => {
                let [then, otherwise] = [then, otherwise].map(|side| reaches_end(side, again));
                then || otherwise
            }
            StmtKind::Region { body, .. } => reaches_end(body, again),
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Barrier => true,
        })
    }
    let mut again = false;
    reaches_end(body, &mut again) || again
}

/// Total iterations of a loop with `begun` iterations of `inside` iterations each, plus the one
/// that ends it.
fn times(begun: u64, inside: u64) -> Option<u64> {
    begun.checked_add(1)?.checked_mul(inside.checked_add(1)?)
}

/// Maximum number of iterations of a counted loop with these bounds.
fn counted_rounds(from: Interval, to: Interval, step: Interval) -> Option<u64> {
    let up = if step.high > 0 { to.high - from.low } else { 0 };
    let down = if step.low < 0 { from.high - to.low } else { 0 };
    let shortest = match (step.low > 0, step.high < 0) {
        (true, _) => step.low,
        (_, true) => -step.high,
        (false, false) => 1,
    };
    let distance = up.max(down).max(0).unsigned_abs();
    u64::try_from(distance.div_ceil(shortest.unsigned_abs())).ok()
}

#[cfg(test)]
mod tests;
