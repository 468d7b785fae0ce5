//! Range analysis: marks accesses as in range and decides conditions, from guards, loop bounds,
//! lengths and types.
//!
//! One forward walk tracks, for each integer value, an interval and the values that it is known not
//! to exceed. Values never change, so a fact holds wherever the point that established it
//! dominates: facts from a definition hold permanently, facts from a guard inside its block, and
//! facts from a guard whose other side exits until the enclosing block ends. A journal undoes
//! facts.
//!
//! An index is in range if its interval ends below the minimum length of the memory, or if a chain
//! of "not above" relations leads from it to the memory's length with a strict "below" among its
//! links. A comparison that the facts decide becomes a constant; a branch on a condition that is
//! already known is replaced by the side taken.

mod prove;

use super::rewrite::Names;
use super::target::Assume;
use super::walk::{ends, fixed_len};
use crate::ir::{Builtin, Span};
use crate::kernel::interval::{Interval, Relation, transfer};
use crate::kernel::proof::Reg;
use crate::kernel::{
    BufferId, Def, KernelBody, KernelDomain, Known, LocalId, Operands, Place, Stmt, StmtKind, ValueId,
};
use crate::ops::{Op, Signature, SubgroupOp};
use crate::types::{Value, ValueType};
use hashbrown::HashMap;
use prove::ProofWriter;
use smallvec::{SmallVec, smallvec};

/// Maximum number of values that a search for a chain visits. The benchmarks need fewer than 8;
/// with 2, nine kernels of `filetests` keep checks.
const SEARCH_LIMIT: usize = 48;
/// How many of a value's bounds are considered: the latest, and the first.
const BOUNDS: [usize; 2] = [24, 8];
/// Recursion depth for recomputing an interval from operands that a guard has narrowed since, which
/// visits up to 2^4 values: an index such as `(i + 1) / 2 + j` takes 3.
const REFRESH_DEPTH: usize = 4;
/// The largest subgroup size of any device.
const MAX_SUBGROUP: i128 = 64;

/// Marks accesses as in range and decides conditions.
pub(super) fn run(body: &mut KernelBody, assume: &Assume) {
    walk(body, assume, None);
}

/// Results of range analysis by source position.
#[derive(Default)]
pub(crate) struct ObservedRanges {
    /// The range of an integer where the statement at that position uses or defines it, and the
    /// buffers whose lengths it stays below there.
    pub(crate) values: HashMap<(Span, ValueId), Ranged>,
    /// Whether the accesses at that position are proved in range.
    pub(crate) accesses: HashMap<Span, bool>,
}

/// The possible values of an integer at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranged {
    pub(crate) low: i128,
    pub(crate) high: i128,
    pub(crate) below: Vec<BufferId>,
}

/// Runs the analysis on a kernel whose dispatches override nothing.
pub(crate) fn observe(kernel: &KernelBody) -> ObservedRanges {
    let mut body = kernel.clone();
    let assume = Assume::no_overrides(kernel);
    walk(&mut body, &assume, Some(ObservedRanges::default())).unwrap_or_default()
}

fn walk(body: &mut KernelBody, assume: &Assume, observed: Option<ObservedRanges>) -> Option<ObservedRanges> {
    let statements = std::mem::take(&mut body.body);
    let mut walk = Walk {
        observed,
        names: Names::new(body),
        definitions: vec![None; body.values.len()],
        intervals: body.values.iter().map(|info| Interval::of_type(info.ty)).collect(),
        above: vec![Vec::new(); body.values.len()],
        shortest: (0..body.buffers.len()).map(|id| shortest(body, BufferId(id as u32))).collect(),
        journal: Vec::new(),
        assume: *assume,
        writer: ProofWriter::new(body, assume),
        body,
    };
    let statements = walk.block(statements);
    walk.body.body = statements;
    walk.body.proof = walk.writer.finish();
    walk.observed
}

/// The value that a statement defines, and whether its access is in range, if it has one.
fn made_by(kind: &StmtKind) -> (Option<ValueId>, Option<bool>) {
    match kind {
        StmtKind::Def(value, Def::Load { in_bounds, .. } | Def::Atomic { in_bounds, .. }) => {
            (Some(*value), Some(*in_bounds))
        }
        StmtKind::Def(value, _) => (Some(*value), None),
        StmtKind::Store { in_bounds, .. } => (None, Some(*in_bounds)),
        StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::If { .. }
        | StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Region { .. }
        | StmtKind::Trap(_) => (None, None),
    }
}

fn shortest(body: &KernelBody, buffer: BufferId) -> i128 {
    fixed_len(body, Place::Buffer(buffer)).map_or(0, i128::from)
}

/// An upper bound of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UpperBound {
    by: Limit,
    /// Whether the bound is exclusive.
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Value(ValueId),
    Len(BufferId),
    /// The number of invocations on an axis whose size is computed at dispatch.
    Axis(u8),
}

/// An ordering comparison: true if `lesser` is below `greater`, or equal unless it is strict.
struct OrderComparison {
    lesser: ValueId,
    greater: ValueId,
    strict: bool,
}

impl OrderComparison {
    fn of(op: Op, x: ValueId, y: ValueId) -> Option<OrderComparison> {
        let [rising, falling] = [(x, y), (y, x)];
        let orders = [
            (Op::Lt, rising, true),
            (Op::Le, rising, false),
            (Op::Gt, falling, true),
            (Op::Ge, falling, false),
        ];
        let &(_, (lesser, greater), strict) = orders.iter().find(|order| order.0 == op)?;
        Some(OrderComparison { lesser, greater, strict })
    }
}

/// A journal entry that undoes a fact.
enum Undo {
    Interval(ValueId, Interval),
    Above(ValueId),
    Shortest(BufferId, i128),
    Restricted(ValueId, Option<Reg>),
    Guard,
    Variable(LocalId),
}

struct Walk<'a> {
    body: &'a mut KernelBody,
    assume: Assume,
    names: Names,
    definitions: Vec<Option<Def>>,
    intervals: Vec<Interval>,
    above: Vec<Vec<UpperBound>>,
    /// The minimum length of each buffer.
    shortest: Vec<i128>,
    journal: Vec<Undo>,
    writer: ProofWriter,
    observed: Option<ObservedRanges>,
}

impl Walk<'_> {
    /// Records the ranges of the integers that a statement uses, before renaming.
    fn observe(&mut self, stmt: &mut Stmt) {
        let Some(at) = stmt.at.filter(|_| self.observed.is_some()) else { return };
        let mut values = Vec::new();
        stmt.kind.each_operand_mut(|operand| values.push(*operand));
        values.into_iter().for_each(|value| self.observe_value(at, value));
    }

    fn observe_value(&mut self, at: Span, value: ValueId) {
        let stands = self.names.get(value);
        if !self.body.ty(value).is_integer() {
            return;
        }
        let Interval { low, high } = self.refreshed(stands, REFRESH_DEPTH);
        let below = |bound: &UpperBound| match bound.by {
            Limit::Len(buffer) if bound.strict => Some(buffer),
            Limit::Len(_) | Limit::Value(_) | Limit::Axis(_) => None,
        };
        let mut below: Vec<BufferId> = self.above[stands.index()].iter().filter_map(below).collect();
        below.sort_unstable();
        below.dedup();
        if let Some(observed) = &mut self.observed {
            observed.values.entry((at, value)).or_insert(Ranged { low, high, below });
        }
    }

    /// Records the range of the value that a statement defines, and whether its access is in range.
    fn observe_made(&mut self, at: Option<Span>, made: Option<ValueId>, in_bounds: Option<bool>) {
        let Some(at) = at.filter(|_| self.observed.is_some()) else { return };
        if let Some(value) = made {
            self.observe_value(at, value);
        }
        if let (Some(observed), Some(in_bounds)) = (&mut self.observed, in_bounds) {
            *observed.accesses.entry(at).or_insert(true) &= in_bounds;
        }
    }

    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mark = self.journal.len();
        let mut out = Vec::with_capacity(block.len());
        self.statements(block, &mut out);
        self.undo(mark);
        out
    }

    fn statements(&mut self, statements: Vec<Stmt>, out: &mut Vec<Stmt>) {
        for mut stmt in statements {
            self.observe(&mut stmt);
            self.names.apply(&mut stmt.kind);
            self.writer.at = stmt.at;
            if let StmtKind::If { condition, then, otherwise } = stmt.kind {
                self.branch(Branch { condition, then, otherwise, at: stmt.at }, out);
            } else if self.keeps(&mut stmt.kind) {
                let (made, in_bounds) = made_by(&stmt.kind);
                self.observe_made(stmt.at, made, in_bounds);
                out.push(stmt);
            }
            // A branch replaced by one side can end the block here.
            if ends(&out[out.len().saturating_sub(1)..]) {
                return;
            }
        }
    }

    /// Processes one statement; `false` if its value was replaced by another one.
    fn keeps(&mut self, kind: &mut StmtKind) -> bool {
        match kind {
            StmtKind::Def(value, def) => return self.define(*value, def),
            StmtKind::Store { place, index, in_bounds, .. } => {
                *in_bounds = *in_bounds || self.proves(*index, *place);
            }
            StmtKind::For { counter, from, to, step, body } => {
                let mark = self.journal.len();
                self.count(*counter, [*from, *to, *step]);
                *body = self.looped(std::mem::take(body));
                self.undo(mark);
            }
            StmtKind::Loop(body) => *body = self.looped(std::mem::take(body)),
            StmtKind::Region { body, .. } => *body = self.block(std::mem::take(body)),
            StmtKind::Set(local, value) => self.assign_variable(*local, *value),
            StmtKind::If { .. } => unreachable!("the caller works on branches"),
            StmtKind::Clear(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => {}
        }
        true
    }

    fn branch(&mut self, branch: Branch, out: &mut Vec<Stmt>) {
        let Branch { condition, then, otherwise, at } = branch;
        if let Some(known) = self.refreshed(condition, REFRESH_DEPTH).single() {
            // The surrounding facts hold in the block, so its statements can be inlined.
            self.statements(if known == 0 { otherwise } else { then }, out);
            return;
        }
        let then = self.side(condition, true, then);
        let otherwise = self.side(condition, false, otherwise);
        // After a side that exits, the fact of the other side holds until this block ends.
        match (ends(&then), ends(&otherwise)) {
            (true, false) => self.learn(condition, false),
            (false, true) => self.learn(condition, true),
            (true, true) | (false, false) => {}
        }
        out.push(Stmt { kind: StmtKind::If { condition, then, otherwise }, at });
    }

    fn side(&mut self, condition: ValueId, holds: bool, block: Vec<Stmt>) -> Vec<Stmt> {
        let mark = self.journal.len();
        self.learn(condition, holds);
        let block = self.block(block);
        self.undo(mark);
        block
    }

    /// Computes the facts of a definition; `false` if its value was replaced by an earlier one.
    fn define(&mut self, value: ValueId, def: &mut Def) -> bool {
        match def {
            Def::Load { place, index, in_bounds } => *in_bounds = *in_bounds || self.proves(*index, *place),
            Def::Atomic { buffer, index, in_bounds, .. } => {
                *in_bounds = *in_bounds || self.proves(*index, Place::Buffer(*buffer));
            }
            Def::Op(Op::Select, operands) => {
                if let Some(known) = self.refreshed(operands[0], REFRESH_DEPTH).single() {
                    self.names.replace(value, operands[if known == 0 { 2 } else { 1 }]);
                    return false;
                }
            }
            Def::Op(op, operands) => {
                if let Some(same) = self.operand_that_it_equals(*op, operands) {
                    self.names.replace(value, same);
                    return false;
                }
            }
            Def::Get(local) => self.read_variable(value, *local),
            Def::Const(_) | Def::Len(_) | Def::Builtin(..) | Def::Subgroup(..) => {}
        }
        let mut interval = self.interval_of(value, def);
        if let Def::Op(op, operands) = def
            && interval.single().is_none()
            && let Some(outcome) = self.left_guard(*op, operands)
        {
            interval = Interval::only(outcome.into());
        }
        self.definitions[value.index()] = Some(def.clone());
        // An invocation that runs is inside the domain, so the domain is not empty.
        let inside = self.assume.within_domain && self.body.shape_free;
        if inside && interval.low == 0 && interval.high > 0 && self.axis_of(value).is_some() {
            interval.low = 1;
        }
        if let (Def::Op(..), Some(single)) = (&def, interval.single()) {
            *def = Def::Const(Value::from_bits(self.body.ty(value), single as u64));
            self.definitions[value.index()] = Some(def.clone());
        }
        self.intervals[value.index()] = interval;
        self.relate(value, def);
        true
    }

    /// The operand that an integer op always equals, given the intervals: `x % y` with `x` below
    /// `y`, a mask that keeps all bits, or the minimum or maximum of two disjoint intervals.
    fn operand_that_it_equals(&self, op: Op, operands: &Operands) -> Option<ValueId> {
        let &[x, y] = &operands[..] else { return None };
        if !self.body.ty(x).is_integer() || self.body.ty(x) != self.body.ty(y) {
            return None;
        }
        let [a, b] = [x, y].map(|operand| self.intervals[operand.index()]);
        let keeps = |value: Interval, mask: Interval| {
            let ones = mask.single().filter(|&ones| ones >= 0 && (ones + 1).count_ones() == 1);
            value.low >= 0 && ones.is_some_and(|ones| value.high <= ones)
        };
        let identities = [
            (Op::Rem, a.low >= 0 && a.high < b.low, x),
            (Op::And, keeps(a, b), x),
            (Op::And, keeps(b, a), y),
            (Op::Min, a.high <= b.low, x),
            (Op::Min, b.high <= a.low, y),
            (Op::Max, a.high <= b.low, y),
            (Op::Max, b.high <= a.low, x),
        ];
        identities.into_iter().find(|&(of, holds, _)| of == op && holds).map(|(.., operand)| operand)
    }

    fn interval_of(&self, value: ValueId, def: &Def) -> Interval {
        let full = Interval::of_type(self.body.ty(value));
        match def {
            Def::Const(constant) => Interval::of_constant(*constant),
            Def::Op(op, operands) => self.op_interval(*op, operands, full),
            Def::Load { place, .. } => Interval::of_element(self.body.element(*place)),
            Def::Len(buffer) => self.interval_of_length(*buffer),
            Def::Builtin(builtin, axis) => self.builtin_interval(*builtin, usize::from(*axis)),
            Def::Subgroup(SubgroupOp::Size, _) => Interval::new(1, MAX_SUBGROUP),
            Def::Subgroup(SubgroupOp::Count, _) => Interval::new(1, self.most_invocations()),
            Def::Subgroup(SubgroupOp::Id, _) => Interval::new(0, self.most_invocations() - 1),
            Def::Subgroup(SubgroupOp::Lane, _) => Interval::new(0, MAX_SUBGROUP - 1),
            Def::Subgroup(
                SubgroupOp::Ballot
                | SubgroupOp::Broadcast
                | SubgroupOp::Shuffle
                | SubgroupOp::Reduce(_)
                | SubgroupOp::Inclusive(_)
                | SubgroupOp::Exclusive(_),
                _,
            )
            | Def::Get(_)
            | Def::Atomic { .. } => full,
        }
    }

    fn interval_of_length(&self, buffer: BufferId) -> Interval {
        let full = Interval::of_type(ValueType::U32);
        match fixed_len(self.body, Place::Buffer(buffer)) {
            Some(length) => Interval::only(length.into()),
            None => Interval { low: self.shortest[buffer.index()], ..full },
        }
    }

    fn op_interval(&self, op: Op, operands: &Operands, full: Interval) -> Interval {
        let mut args = [full; 4];
        for (arg, &operand) in args.iter_mut().zip(operands.iter()) {
            *arg = self.intervals[operand.index()];
        }
        let types: SmallVec<[ValueType; 4]> = operands.iter().map(|&operand| self.body.ty(operand)).collect();
        let result = op.row().signature.result(&types).unwrap_or(types[0]);
        let found = transfer(op, &args[..operands.len()], types[0], result);
        match self.decided(op, operands) {
            Some(holds) => Interval::only(holds.into()),
            None => found,
        }
    }

    /// Decides a comparison from the relations between its operands, independent of their
    /// intervals.
    fn decided(&self, op: Op, operands: &Operands) -> Option<bool> {
        let (x, y) = (operands[0], *operands.get(1)?);
        if !self.body.ty(x).is_integer() {
            return None;
        }
        let below = |x: ValueId, y: ValueId, strict: bool| {
            self.reaches(x, UpperBound { by: Limit::Value(y), strict })
        };
        let order = OrderComparison::of(op, x, y)?;
        if below(order.lesser, order.greater, order.strict) {
            Some(true)
        } else {
            below(order.greater, order.lesser, !order.strict).then_some(false)
        }
    }

    /// The outcome of a guard in every dispatch that completes the proof, if it can be
    /// left to those.
    fn left_guard(&mut self, op: Op, operands: &Operands) -> Option<bool> {
        let order = OrderComparison::of(op, operands[0], *operands.get(1)?)?;
        // `i < n`, or the negated form `n <= i`.
        let (lesser, greater) =
            if order.strict { (order.lesser, order.greater) } else { (order.greater, order.lesser) };
        self.leaves_guard(lesser, greater).then_some(order.strict)
    }

    /// Upper bound on the invocations, and thus the subgroups, of a workgroup.
    fn most_invocations(&self) -> i128 {
        let product = |size: [u32; 3]| size.into_iter().map(i128::from).product();
        self.assume.workgroup.map_or(i128::from(u32::MAX), product)
    }

    fn builtin_interval(&self, builtin: Builtin, axis: usize) -> Interval {
        let full = Interval::of_type(ValueType::U32);
        let inside = self.assume.within_domain && self.body.shape_free;
        match builtin {
            Builtin::LocalId => {
                self.assume.workgroup.map_or(full, |size| Interval::new(0, i128::from(size[axis]) - 1))
            }
            Builtin::WorkgroupSize => match self.assume.workgroup {
                Some(size) => Interval::only(size[axis].into()),
                None => Interval { low: 1, ..full },
            },
            Builtin::InvocationId if inside => match &self.body.domain {
                KernelDomain::Counts(counts) => Interval::new(0, (i128::from(counts[axis]) - 1).max(0)),
                KernelDomain::LenOf(_) if axis > 0 => Interval::only(0),
                // Below a length, which itself fits in a `u32`.
                KernelDomain::LenOf(_) => Interval { high: full.high - 1, ..full },
                KernelDomain::Axes(axes) => match &axes[axis] {
                    Known::Const(count) => match count.as_integer() {
                        Some(count) => Interval::new(0, (count - 1).max(0)),
                        None => full,
                    },
                    Known::Len(_) | Known::Element(..) | Known::Groups(_) | Known::Op(..) => {
                        Interval { high: full.high - 1, ..full }
                    }
                },
                KernelDomain::Given => Interval { high: full.high - 1, ..full },
            },
            Builtin::InvocationId | Builtin::WorkgroupId => full,
            // A running invocation belongs to a workgroup.
            Builtin::GridSize => Interval { low: 1, ..full },
        }
    }

    /// Adds the facts that relate a value to the operands of its definition; they hold permanently.
    fn relate(&mut self, value: ValueId, def: &Def) {
        match def {
            Def::Op(op, operands) => self.relate_op(value, *op, operands),
            Def::Builtin(Builtin::InvocationId, axis)
                if self.assume.within_domain && self.body.shape_free =>
            {
                if let Some(by) = self.domain_limit(usize::from(*axis)) {
                    self.bound(value, UpperBound { by, strict: true });
                }
            }
            Def::Const(_)
            | Def::Get(_)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => {}
        }
    }

    /// The limit of invocation ids inside the domain on an axis, if it is not a constant.
    fn domain_limit(&self, axis: usize) -> Option<Limit> {
        match &self.body.domain {
            KernelDomain::LenOf(buffer) => (axis == 0).then_some(Limit::Len(*buffer)),
            KernelDomain::Axes(axes) => match &axes[axis] {
                Known::Len(buffer) => Some(Limit::Len(*buffer)),
                Known::Const(_) => None,
                // Axes of equal size share one limit, identified by the first of them.
                size @ (Known::Element(..) | Known::Groups(_) | Known::Op(..)) => {
                    axes.iter().position(|other| other == size).map(|first| Limit::Axis(first as u8))
                }
            },
            KernelDomain::Counts(_) | KernelDomain::Given => None,
        }
    }

    fn relate_op(&mut self, value: ValueId, op: Op, operands: &Operands) {
        if !self.body.ty(value).is_integer() || !self.body.ty(operands[0]).is_integer() {
            return;
        }
        let x = operands[0];
        let y = *operands.get(1).unwrap_or(&x);
        let [from_x, from_y] = [x, y].map(|operand| self.intervals[operand.index()]);
        let natural = from_x.low >= 0 && from_y.low >= 0;
        let at_most = |by: ValueId| UpperBound { by: Limit::Value(by), strict: false };
        let full = Interval::of_type(self.body.ty(value));
        if op == Op::Min || (op == Op::And && natural) {
            [x, y].into_iter().for_each(|by| self.bound(value, at_most(by)));
        } else if op == Op::Max {
            [x, y].into_iter().for_each(|less| self.bound(less, at_most(value)));
        } else if op == Op::Clamp {
            self.bound(value, at_most(operands[2]));
        } else if matches!(op, Op::Div | Op::Shr | Op::SatSub | Op::Rem) && natural {
            self.bound(value, at_most(x));
            if op == Op::Rem && from_y.low > 0 {
                self.bound(value, UpperBound { by: Limit::Value(y), strict: true });
            }
        } else if op == Op::Sub && from_y.low >= 0 && self.does_not_wrap(value, [x, y]) {
            self.bound(value, UpperBound { by: Limit::Value(x), strict: from_y.low > 0 });
        } else if op == Op::Add && natural && from_x.high + from_y.high <= full.high {
            self.bound(x, UpperBound { by: Limit::Value(value), strict: from_y.low > 0 });
            self.bound(y, UpperBound { by: Limit::Value(value), strict: from_x.low > 0 });
        } else if matches!(op.row().signature, Signature::Cast(_)) && from_x.within(full) {
            self.bound(value, at_most(x));
            self.bound(x, at_most(value));
        }
    }

    /// Whether `x - y` is exact, for a non-negative `y`.
    fn does_not_wrap(&self, value: ValueId, [x, y]: [ValueId; 2]) -> bool {
        let exact = self.intervals[x.index()].low - self.intervals[y.index()].high;
        exact >= Interval::of_type(self.body.ty(value)).low
            || (!self.body.ty(value).is_signed_integer()
                && self.reaches(y, UpperBound { by: Limit::Value(x), strict: false }))
    }

    /// Adds the facts about a loop counter inside the loop.
    fn count(&mut self, counter: ValueId, [from, to, step]: [ValueId; 3]) {
        self.restrict_counter(counter, [from, to, step]);
        let [start, end, stride] = [from, to, step].map(|bound| self.refreshed(bound, REFRESH_DEPTH));
        let full = Interval::of_type(self.body.ty(counter));
        let (interval, limit) = if stride.low >= 0 {
            // A step of 0 runs no iterations.
            (
                Interval::new(start.low, last_round(start, end, stride)),
                UpperBound { by: Limit::Value(to), strict: true },
            )
        } else if stride.high < 0 {
            (Interval::new(end.low + 1, start.high), UpperBound { by: Limit::Value(from), strict: false })
        } else {
            return;
        };
        self.narrow(counter, interval.meet(full).unwrap_or(full));
        self.bound(counter, limit);
        if stride.low >= 0 {
            self.bound(from, UpperBound { by: Limit::Value(counter), strict: false });
        }
    }

    /// Adds the facts implied by a condition's outcome, including those about its subconditions.
    fn learn(&mut self, condition: ValueId, holds: bool) {
        let mut pending: SmallVec<[(ValueId, bool); 8]> = smallvec![(condition, holds)];
        let mut learned = 0;
        while let Some((condition, holds)) = pending.pop()
            && learned < SEARCH_LIMIT
        {
            learned += 1;
            self.narrow(condition, Interval::only(holds.into()));
            let Some(Def::Op(op, operands)) = self.definitions[condition.index()].clone() else { continue };
            if self.body.ty(operands[0]).is_integer() {
                self.learn_comparison(op, operands, holds);
            } else if (op == Op::And && holds) || (op == Op::Or && !holds) {
                pending.extend(operands.iter().map(|&operand| (operand, holds)));
            } else if op == Op::Not {
                pending.push((operands[0], !holds));
            }
        }
    }

    fn learn_comparison(&mut self, op: Op, operands: Operands, holds: bool) {
        let (x, y) = (operands[0], *operands.get(1).unwrap_or(&operands[0]));
        if let Some(order) = OrderComparison::of(op, x, y) {
            match holds {
                true => self.learn_below(order.lesser, order.greater, order.strict),
                false => self.learn_below(order.greater, order.lesser, !order.strict),
            }
        } else if (op == Op::Eq && holds) || (op == Op::Ne && !holds) {
            self.learn_below(x, y, false);
            self.learn_below(y, x, false);
        } else if matches!(op, Op::Eq | Op::Ne) {
            self.restrict(x, Relation::Different, y);
            self.learn_differs(x, y);
            self.learn_differs(y, x);
        }
    }

    fn learn_below(&mut self, x: ValueId, y: ValueId, strict: bool) {
        self.restrict(x, if strict { Relation::Less } else { Relation::LessEqual }, y);
        let gap = i128::from(strict);
        let (below, above) = (self.intervals[x.index()], self.intervals[y.index()]);
        self.narrow(x, Interval { high: below.high.min(above.high - gap), ..below });
        self.narrow(y, Interval { low: above.low.max(below.low + gap), ..above });
        self.bound(x, UpperBound { by: Limit::Value(y), strict });
    }

    /// Excludes the single value of `y` from the interval of `x`; this helps only at the interval's
    /// ends.
    fn learn_differs(&mut self, x: ValueId, y: ValueId) {
        let (mut interval, Some(other)) = (self.intervals[x.index()], self.intervals[y.index()].single())
        else {
            return;
        };
        interval.low += i128::from(interval.low == other);
        interval.high -= i128::from(interval.high == other);
        self.narrow(x, interval);
    }

    fn narrow(&mut self, value: ValueId, interval: Interval) {
        let before = self.intervals[value.index()];
        // An empty interval means that control does not reach this point; recording it gains
        // nothing.
        let Some(now) = before.meet(interval).filter(|&now| now != before) else { return };
        self.journal.push(Undo::Interval(value, before));
        self.intervals[value.index()] = now;
        if let Some(Def::Len(buffer)) = self.definitions[value.index()] {
            let known = &mut self.shortest[buffer.index()];
            self.journal.push(Undo::Shortest(buffer, *known));
            *known = (*known).max(now.low);
        }
    }

    fn bound(&mut self, value: ValueId, bound: UpperBound) {
        self.journal.push(Undo::Above(value));
        self.above[value.index()].push(bound);
    }

    fn undo(&mut self, mark: usize) {
        for undo in self.journal.drain(mark..).rev() {
            match undo {
                Undo::Interval(value, before) => self.intervals[value.index()] = before,
                Undo::Above(value) => {
                    self.above[value.index()].pop();
                }
                Undo::Shortest(buffer, before) => self.shortest[buffer.index()] = before,
                Undo::Restricted(value, before) => self.writer.restore(value, before),
                Undo::Guard => self.writer.leave(),
                Undo::Variable(local) => self.writer.forget(local),
            }
        }
    }

    /// The value's interval, recomputed from the current intervals of its operands.
    fn refreshed(&self, value: ValueId, depth: usize) -> Interval {
        let stored = self.intervals[value.index()];
        let Some(Def::Op(op, operands)) = &self.definitions[value.index()] else { return stored };
        if depth == 0 || stored.single().is_some() || self.body.ty(value).is_float() {
            return stored;
        }
        let mut args = [stored; 4];
        for (arg, &operand) in args.iter_mut().zip(operands.iter()) {
            *arg = self.refreshed(operand, depth - 1);
        }
        let found = transfer(*op, &args[..operands.len()], self.body.ty(operands[0]), self.body.ty(value));
        found.meet(stored).unwrap_or(stored)
    }

    fn in_range(&self, index: ValueId, place: Place) -> bool {
        match place {
            Place::Array(array) => {
                self.refreshed(index, REFRESH_DEPTH).high < self.body.arrays[array.index()].count.into()
            }
            Place::Buffer(buffer) => {
                self.refreshed(index, REFRESH_DEPTH).high < self.shortest[buffer.index()]
                    || self.reaches(index, UpperBound { by: Limit::Len(buffer), strict: true })
            }
        }
    }

    /// Whether a chain of bounds leads from the value to the goal.
    fn reaches(&self, value: ValueId, mut goal: UpperBound) -> bool {
        if let Limit::Value(by) = goal.by
            && let Some(Def::Len(buffer)) = self.definitions[by.index()]
        {
            goal.by = Limit::Len(buffer);
        } else if let Limit::Value(by) = goal.by
            && let Some(axis) = self.axis_of(by)
        {
            goal.by = Limit::Axis(axis);
        }
        let mut seen: SmallVec<[(ValueId, bool); 16]> = smallvec![(value, false)];
        let mut next = 0;
        while next < seen.len() {
            let (at, strict) = seen[next];
            next += 1;
            if self.is_limit(at, goal.by) && (strict || !goal.strict) {
                return true;
            }
            for bound in self.bounds(at) {
                let strict = strict || bound.strict;
                match bound.by {
                    Limit::Value(by) if seen.len() < SEARCH_LIMIT && !seen.contains(&(by, strict)) => {
                        seen.push((by, strict));
                    }
                    Limit::Value(_) => {}
                    Limit::Len(_) | Limit::Axis(_) if bound.by == goal.by && (strict || !goal.strict) => {
                        return true;
                    }
                    Limit::Len(_) | Limit::Axis(_) => {}
                }
            }
        }
        false
    }

    /// The bounds of a value, the latest first, since they come from the nearest guards. The first
    /// bounds, which come from the definition, are always included.
    fn bounds(&self, value: ValueId) -> impl Iterator<Item = &UpperBound> {
        let all = &self.above[value.index()];
        let (first, later) = all.split_at(all.len().min(BOUNDS[1]));
        later.iter().rev().take(BOUNDS[0]).chain(first.iter().rev())
    }

    fn is_limit(&self, value: ValueId, limit: Limit) -> bool {
        match limit {
            Limit::Value(other) => value == other,
            Limit::Len(buffer) => self.definitions[value.index()] == Some(Def::Len(buffer)),
            Limit::Axis(axis) => self.axis_of(value) == Some(axis),
        }
    }
}

/// The parts of a conditional statement.
struct Branch {
    condition: ValueId,
    then: Vec<Stmt>,
    otherwise: Vec<Stmt>,
    at: Option<Span>,
}

/// Upper bound on the counter of an ascending loop; exact if all bounds are.
fn last_round(start: Interval, end: Interval, stride: Interval) -> i128 {
    match (start.single(), end.single(), stride.single()) {
        (Some(from), Some(to), Some(step)) if step > 0 && from < to => from + (to - 1 - from) / step * step,
        (Some(_) | None, Some(_) | None, Some(_) | None) => end.high - 1,
    }
}
