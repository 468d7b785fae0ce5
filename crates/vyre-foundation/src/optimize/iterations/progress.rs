//! Loops without a counter, bounded by a variable that moves towards a limit in each iteration.
//!
//! The analysis follows all paths through one iteration, for one variable at a time. It tracks how
//! the variable differs from its value at the start of the iteration, and what the conditions on
//! the path imply about that value. If every path to another iteration moves the variable in one
//! direction, and only from within limits, the distance bounds the iterations: for sums by the
//! step, for quotients and products by the logarithm.

use super::super::walk::each_stmt;
use super::{Variable, Walk, assigned};
use crate::kernel::interval::{Interval, Relation};
use crate::kernel::{Def, LocalId, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use hashbrown::HashMap;

/// Maximum number of variables tried. None of the benchmarks and filetests has more than 2.
const MOST_VARIABLES: usize = 32;

/// Maximum number of iterations that are followed by another one. `before` holds the variables
/// before the loop.
pub(super) fn rounds(walk: &Walk<'_>, before: &[Variable], body: &[Stmt]) -> Option<u64> {
    let integer = |local: &LocalId| walk.kernel.locals[local.index()].ty.is_integer();
    let variables = compared(walk, body).into_iter().filter(integer).take(MOST_VARIABLES);
    let bounds = variables.filter_map(|local| {
        let full = Interval::of_type(walk.kernel.locals[local.index()].ty);
        let round = Round { walk, local, full, changes: HashMap::new(), again: None };
        round.along(body)?.rounds(before[local.index()].range, full)
    });
    bounds.min()
}

/// The variables that a loop both assigns and compares, directly or after one operation.
fn compared(walk: &Walk<'_>, body: &[Stmt]) -> Vec<LocalId> {
    let definition = |value: &ValueId| walk.definitions[value.index()];
    let mut found = Vec::new();
    each_stmt(body, &mut |stmt| {
        let StmtKind::Def(_, Def::Op(op, operands)) = &stmt.kind else { return };
        if Relation::of(*op, true).is_none() || !walk.kernel.ty(operands[0]).is_integer() {
            return;
        }
        for operand in operands.iter() {
            let behind = match definition(operand) {
                Some(Def::Op(_, operands)) => operands,
                Some(_) | None => std::slice::from_ref(operand),
            };
            found.extend(behind.iter().filter_map(definition).filter_map(|def| match def {
                Def::Get(local) => Some(*local),
                _ => None,
            }));
        }
    });
    let assigned = assigned(body);
    found.sort_unstable();
    found.dedup();
    found.retain(|local| assigned.binary_search(local).is_ok());
    found
}

/// How a value relates to the variable's value at the start of the iteration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A sum with it.
    Moved(Interval),
    /// Divided by at least this much, 2 or more, rounded down.
    Divided(i128),
    /// Multiplied by this, 2 or more.
    Multiplied(i128),
    /// Independent of it.
    Became(Interval),
}

const NOTHING: Interval = Interval { low: 0, high: 0 };
const NONE: Change = Change::Moved(NOTHING);

/// A path through an iteration.
#[derive(Clone, Copy)]
struct Way {
    /// The change of the variable so far.
    change: Change,
    /// The possible values of the variable at the start of the iteration.
    start: Interval,
    /// The variable's offset from there when it was compared, provided that nothing wrapped.
    compared: Interval,
}

impl Way {
    /// The union of two paths.
    fn or(self, other: Way) -> Option<Way> {
        let change = match (self.change, other.change) {
            (Change::Moved(a), Change::Moved(b)) => Change::Moved(a.join(b)),
            (Change::Divided(a), Change::Divided(b)) => Change::Divided(a.min(b)),
            (Change::Became(a), Change::Became(b)) => Change::Became(a.join(b)),
            (a, b) if a == b => a,
            (Change::Moved(_) | Change::Divided(_) | Change::Multiplied(_) | Change::Became(_), _) => {
                return None;
            }
        };
        let compared = self.compared.join(other.compared);
        Some(Way { change, start: self.start.join(other.start), compared })
    }

    /// How often a variable that starts in `first` can take this path; `None` if it could wrap
    /// around.
    fn rounds(self, first: Interval, full: Interval) -> Option<u64> {
        let Interval { low, high } = self.start;
        let count = |from: i128, to: i128, step: i128| {
            if from > to { Some(0) } else { u64::try_from((to - from) / step + 1).ok() }
        };
        match self.change {
            Change::Moved(by) => {
                let next = Interval::new(low + by.low, high + by.high);
                // By induction: an iteration starts with the first value or with the result of
                // another iteration.
                let compared = plus(next.join(first), self.compared);
                let stays = next.within(full) && (self.compared == NOTHING || compared.within(full));
                match stays {
                    true if by.low > 0 => count(first.low, high, by.low),
                    true if by.high < 0 => count(low, first.high, -by.high),
                    true | false => None,
                }
            }
            Change::Divided(_) | Change::Multiplied(_) | Change::Became(_) if self.compared != NOTHING => {
                None
            }
            // With the value that it became, no further iteration takes this path.
            Change::Became(range) => range.meet(self.start).is_none().then_some(1),
            Change::Divided(by) => (low > 0).then(|| powers(by, first.high)),
            Change::Multiplied(by) => {
                let stays = first.low > 0 && high.checked_mul(by).is_some_and(|most| most <= full.high);
                stays.then(|| powers(by, high / first.low))
            }
        }
    }
}

/// All sums of a number from each interval.
fn plus(x: Interval, y: Interval) -> Interval {
    Interval::new(x.low.saturating_add(y.low), x.high.saturating_add(y.high))
}

/// The number of powers of `of`, starting with 1, that are at most `most`.
fn powers(of: i128, most: i128) -> u64 {
    let mut rest = most;
    let mut count = 0;
    while rest > 0 {
        rest /= of;
        count += 1;
    }
    count
}

struct Round<'w, 'a> {
    walk: &'w Walk<'a>,
    local: LocalId,
    full: Interval,
    changes: HashMap<ValueId, Change>,
    /// All paths that led to another iteration by `continue`.
    again: Option<Way>,
}

/// The iteration changes the variable in an unsupported way.
struct Unclear;

impl Round<'_, '_> {
    /// The union of all paths to another iteration; `None` if one is unclear or if there is none.
    fn along(mut self, body: &[Stmt]) -> Option<Way> {
        let start = self.way(NONE);
        let end = self.block(body, start).ok()?;
        match (end, self.again) {
            (Some(end), Some(again)) => end.or(again),
            (way, other) => way.or(other),
        }
    }

    fn way(&self, change: Change) -> Way {
        Way { change, start: self.full, compared: NOTHING }
    }

    /// The path after a block; `None` if control does not reach its end.
    fn block(&mut self, block: &[Stmt], way: Way) -> Result<Option<Way>, Unclear> {
        let mut way = way;
        for stmt in block {
            match self.statement(&stmt.kind, way)? {
                Some(next) => way = next,
                None => return Ok(None),
            }
        }
        Ok(Some(way))
    }

    fn statement(&mut self, kind: &StmtKind, way: Way) -> Result<Option<Way>, Unclear> {
        match kind {
            StmtKind::Def(value, def) => self.define(*value, def, way),
            StmtKind::Set(local, value) if *local == self.local => {
                let known = self.changes.get(value).copied();
                let change = known.unwrap_or(Change::Became(self.walk.ranges[value.index()]));
                return Ok(Some(Way { change, ..way }));
            }
            StmtKind::If { condition, then, otherwise } => {
                let yes = self.block(then, self.narrowed(way, *condition, true))?;
                let no = self.block(otherwise, self.narrowed(way, *condition, false))?;
                return match (yes, no) {
                    (Some(yes), Some(no)) => yes.or(no).ok_or(Unclear).map(Some),
                    (Some(way), None) | (None, Some(way)) => Ok(Some(way)),
                    (None, None) => Ok(None),
                };
            }
            StmtKind::For { body, .. } | StmtKind::Loop(body) => {
                if assigned(body).contains(&self.local) {
                    return Err(Unclear);
                }
            }
            StmtKind::Region { body, .. } => return self.block(body, way),
            StmtKind::Continue => {
                self.again = Some(match self.again {
                    Some(again) => again.or(way).ok_or(Unclear)?,
                    None => way,
                });
                return Ok(None);
            }
            StmtKind::Break | StmtKind::Return | StmtKind::Trap(_) => return Ok(None),
            StmtKind::Set(..) | StmtKind::Clear(_) | StmtKind::Store { .. } | StmtKind::Barrier => {}
        }
        Ok(Some(way))
    }

    fn define(&mut self, value: ValueId, def: &Def, way: Way) {
        let change = match def {
            Def::Get(local) if *local == self.local => Some(way.change),
            Def::Op(op, operands) => self.computed(*op, operands),
            Def::Get(_)
            | Def::Const(_)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => None,
        };
        if let Some(change) = change {
            self.changes.insert(value, change);
        }
    }

    fn computed(&self, op: Op, operands: &[ValueId]) -> Option<Change> {
        let change = |k: usize| operands.get(k).and_then(|operand| self.changes.get(operand)).copied();
        let range = |k: usize| self.walk.ranges[operands[k].index()];
        let constant = |k: usize| range(k).single();
        match (op, change(0), change(1)) {
            (Op::Add, Some(NONE), Some(NONE)) => Some(Change::Multiplied(2)),
            (Op::Add, Some(Change::Moved(by)), None) => Some(self.moved(by, range(1))),
            (Op::Add, None, Some(Change::Moved(by))) => Some(self.moved(by, range(0))),
            (Op::Sub, Some(Change::Moved(by)), None) => {
                let back = range(1);
                Some(self.moved(by, Interval::new(-back.high, -back.low)))
            }
            (Op::Mul, Some(NONE), None) => constant(1).filter(|&by| by >= 2).map(Change::Multiplied),
            (Op::Mul, None, Some(NONE)) => constant(0).filter(|&by| by >= 2).map(Change::Multiplied),
            (Op::Shl, Some(NONE), None) => self.shift(constant(1)?).map(Change::Multiplied),
            (Op::Div, Some(NONE), None) => constant(1).filter(|&by| by >= 2).map(Change::Divided),
            (Op::Shr, Some(NONE), None) => self.shift(constant(1)?).map(Change::Divided),
            (Op::Select, None, Some(yes)) => {
                let no = change(2)?;
                self.way(yes).or(self.way(no)).map(|way| way.change)
            }
            _ => None,
        }
    }

    /// Adds a step. A step in the upper half of an unsigned type is a negative one.
    fn moved(&self, by: Interval, on: Interval) -> Change {
        let count = self.full.high + 1;
        let unsigned = self.full.low == 0;
        let on = match on.single() {
            Some(step) if unsigned && step > count / 2 => Interval::only(step - count),
            Some(step) if unsigned && step < -count / 2 => Interval::only(step + count),
            Some(_) | None => on,
        };
        Change::Moved(plus(by, on))
    }

    /// The power of two that a shift multiplies or divides by; `None` for a shift by zero.
    fn shift(&self, count: i128) -> Option<i128> {
        let width = i128::from(self.walk.kernel.locals[self.local.index()].ty.bits());
        let count = count.rem_euclid(width);
        (count > 0).then(|| 1 << count)
    }

    /// The path restricted to a condition that is true or false.
    fn narrowed(&self, mut way: Way, condition: ValueId, holds: bool) -> Way {
        for (relation, operands) in self.walk.implied(condition, holds) {
            let moved = operands.map(|operand| match self.changes.get(&operand) {
                Some(Change::Moved(by)) => by.single(),
                Some(Change::Divided(_) | Change::Multiplied(_) | Change::Became(_)) | None => None,
            });
            let [x, y] = operands.map(|operand| self.walk.ranges[operand.index()]);
            let (by, relation, other) = match moved {
                [Some(by), None] => (by, relation, y),
                [None, Some(by)] => (by, relation.mirrored(), x),
                [Some(_), Some(_)] | [None, None] => continue,
            };
            let moved = plus(way.start, Interval::only(by));
            let now = relation.left(moved.meet(self.full).unwrap_or(moved), other);
            way.start = way.start.meet(plus(now, Interval::only(-by))).unwrap_or(way.start);
            way.compared = way.compared.join(Interval::only(by));
        }
        way
    }
}
