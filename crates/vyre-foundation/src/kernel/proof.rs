//! Proofs that a launch completes: is every access that the code leaves unchecked in range?
//!
//! The lengths, uniforms and grid of a launch are known before it starts. A [`Proof`] is a small
//! program that computes, for these values, the interval of every index: each [`ProofStep`] fills
//! one register with the possible values of an expression at a point of the kernel, over all
//! invocations that get there. A launch runs the program once; if every [`Check`] holds, the code
//! without checks is safe for that launch.
//!
//! Steps are pure and refer to earlier registers only, so equal steps share a register. A guard
//! does not branch: it makes a new register, with the values that pass it. An empty interval means
//! that no invocation gets there; whatever depends on it is empty too, and its checks hold.
//!
//! The optimizer writes proofs (`optimize/range/prove.rs`).

use super::interval::{Interval, Relation, inverse, transfer};
use super::known::Named;
use super::{BufferId, KernelBody};
use crate::ir::Builtin;
use crate::launch::Launch;
use crate::ops::Op;
use crate::types::{Value, ValueType};
use smallvec::SmallVec;
use std::fmt;

/// A program that decides for a launch whether the accesses that the kernel leaves unchecked are in
/// range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    pub(crate) steps: Vec<ProofStep>,
    pub(crate) checks: Vec<Check>,
}

/// A register of a proof: the number of the step that fills it.
pub(crate) type Reg = u32;

/// Computes an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ProofStep {
    /// These values, in every launch.
    Within(Interval),
    /// A quantity that a launch knows; within the interval if it does not.
    Launch(Quantity, Interval),
    /// The result of an op.
    Op { op: Op, args: [Reg; 3], count: u8, operand: ValueType, result: ValueType },
    /// `x - y` where the kernel implies that `y` is at most `x`.
    Difference(Reg, Reg),
    /// `x + y` where the kernel implies that `x` is below a difference of the limit and `y`.
    Sum { x: Reg, y: Reg, limit: Reg },
    /// The counter of a loop, in its iterations.
    Counter { from: Reg, to: Reg, step: Reg },
    /// The values in both.
    Both(Reg, Reg),
    /// The values of the first that have this relation to a value of the second.
    Where(Reg, Relation, Reg),
    /// The values of either.
    Either(Reg, Reg),
    /// 0 if every value of the first is one of the second, else 1.
    Outside(Reg, Reg),
    /// The values of the first, if the second is not empty.
    If(Reg, Reg),
    /// The values of the `k`th argument for which an op has such a result.
    Argument { op: Op, args: [Reg; 2], k: u8, ty: ValueType, of: ValueType, result: Reg },
}

/// A quantity that a launch knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Quantity {
    /// The length of a buffer.
    Len(BufferId),
    /// An element of a buffer that the kernel only reads.
    Element(BufferId, u32),
    /// A position or size of the grid on an axis.
    Place(Builtin, u8),
    /// The position on the first axis as before coarsening.
    Position,
}

/// Requires every value of a register to be less than every value of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) index: Reg,
    pub(crate) below: Reg,
    /// The accesses that rely on it.
    pub(crate) of: Doubts,
}

/// A set of accesses and guards, by a hash of their buffers and positions in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Doubts(u64);

impl Doubts {
    /// No access.
    pub const NONE: Doubts = Doubts(0);

    /// The set with one access: `buffer` and `start` are its buffer and source position, if known.
    pub(crate) fn of(buffer: Option<BufferId>, start: u32) -> Doubts {
        let mixed = u64::from(start) * 0x9E37_79B9 + buffer.map_or(0, |buffer| u64::from(buffer.0) + 1);
        Doubts(1 << (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58))
    }

    /// Every access.
    pub const ALL: Doubts = Doubts(u64::MAX);

    /// The accesses in either set.
    #[must_use]
    pub fn with(self, other: Doubts) -> Doubts {
        Doubts(self.0 | other.0)
    }

    /// Whether the sets have an access in common.
    pub(crate) fn meets(self, other: Doubts) -> bool {
        self.0 & other.0 != 0
    }

    /// The set as bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The set with these bits.
    pub fn from_bits(bits: u64) -> Doubts {
        Doubts(bits)
    }
}

/// Source of the quantities of a launch.
pub(crate) trait QuantitySource {
    /// The values of a quantity, if they are known.
    fn quantity(&mut self, quantity: Quantity) -> Option<Interval>;
}

/// The facts of a launch.
pub(crate) struct LaunchFacts<'a> {
    pub(crate) launch: &'a Launch,
    /// An element of a read-only buffer; `None` if unknown.
    pub(crate) element: &'a mut dyn FnMut(BufferId, u32) -> Option<Value>,
}

impl QuantitySource for LaunchFacts<'_> {
    fn quantity(&mut self, quantity: Quantity) -> Option<Interval> {
        let launch = self.launch;
        match quantity {
            Quantity::Len(buffer) => {
                launch.lengths.get(buffer.index()).map(|&length| Interval::only(length.into()))
            }
            Quantity::Element(buffer, index) => (self.element)(buffer, index).map(Interval::of_constant),
            Quantity::Place(builtin, axis) => Some(launch.place(builtin, usize::from(axis))),
            Quantity::Position => match launch.domain.filter(|_| launch.limit.is_some()) {
                Some(domain) => Some(Interval::first(domain[0].into())),
                None => (launch.coarsening == 1).then(|| launch.place(Builtin::InvocationId, 0)),
            },
        }
    }
}

/// Number of registers that need no allocation. The longest proof of the benchmarks and filetests
/// has 51 steps (`filetests/bounds/signed_clamp.vyre`), that of `matmul` 48.
const FEW: usize = 96;

impl Proof {
    /// Whether no launch has to be checked.
    pub fn is_empty(&self) -> bool {
        self.checks.is_empty()
    }

    /// The number of accesses and guards that a launch decides.
    pub fn len(&self) -> usize {
        self.checks.len()
    }

    /// The accesses that are not proved in range for a launch.
    pub(crate) fn fails(&self, facts: &mut LaunchFacts) -> Doubts {
        if self.checks.is_empty() {
            return Doubts::NONE;
        }
        let mut registers: SmallVec<[Interval; FEW]> = SmallVec::with_capacity(self.steps.len());
        for step in &self.steps {
            registers.push(step.evaluate(&registers, facts));
        }
        let failed = self.checks.iter().filter(|check| !check.holds(&registers));
        failed.fold(Doubts::NONE, |all, check| all.with(check.of))
    }

    /// Drops the steps that no check needs.
    pub(crate) fn prune(&mut self) {
        let mut needed = vec![false; self.steps.len()];
        for check in &self.checks {
            [check.index, check.below].into_iter().for_each(|reg| needed[reg as usize] = true);
        }
        for k in (0..self.steps.len()).rev() {
            if needed[k] {
                self.steps[k].each_register(|reg| needed[*reg as usize] = true);
            }
        }
        let mut kept = 0;
        let renamed = needed.iter().map(|&needed| {
            kept += u32::from(needed);
            kept.wrapping_sub(1)
        });
        let renamed: Vec<Reg> = renamed.collect();
        let mut number = 0;
        self.steps.retain_mut(|step| {
            step.each_register(|reg| *reg = renamed[*reg as usize]);
            number += 1;
            needed[number - 1]
        });
        for check in &mut self.checks {
            (check.index, check.below) = (renamed[check.index as usize], renamed[check.below as usize]);
        }
    }
}

impl Check {
    pub(crate) fn holds(&self, registers: &[Interval]) -> bool {
        let [index, below] = [self.index, self.below].map(|reg| registers[reg as usize]);
        index.is_empty() || below.is_empty() || index.high < below.low
    }
}

impl ProofStep {
    /// The interval, from the registers of the steps before.
    pub(crate) fn evaluate(&self, registers: &[Interval], source: &mut dyn QuantitySource) -> Interval {
        let get = |reg: Reg| registers[reg as usize];
        match *self {
            ProofStep::Within(interval) => interval,
            ProofStep::Launch(quantity, otherwise) => match source.quantity(quantity) {
                Some(known) => known.both(otherwise),
                None => otherwise,
            },
            ProofStep::Op { op, args, count, operand, result } => {
                let args = args.map(get);
                match args[..count.into()].iter().any(|arg| arg.is_empty()) {
                    // An arm that is not possible leaves the other one.
                    true if op == Op::Select && !args[0].is_empty() => args[1].join(args[2]),
                    true => Interval::EMPTY,
                    false => transfer(op, &args[..count.into()], operand, result),
                }
            }
            ProofStep::Difference(x, y) => {
                let (x, y) = (get(x), get(y));
                x.unless_empty(y, || Interval::new((x.low - y.high).max(0), x.high - y.low))
            }
            ProofStep::Sum { x, y, limit } => {
                let (x, y, limit) = (get(x), get(y), get(limit));
                let sum = || Interval::new(x.low + y.low, (x.high + y.high).min(limit.high - 1));
                x.unless_empty(y, || x.unless_empty(limit, sum))
            }
            ProofStep::Counter { from, to, step } => counter(get(from), get(to), get(step)),
            ProofStep::Both(x, y) => get(x).both(get(y)),
            ProofStep::Where(x, relation, y) => {
                let (x, y) = (get(x), get(y));
                x.unless_empty(y, || x.both(relation.left(x, y)))
            }
            ProofStep::Either(x, y) => get(x).join(get(y)),
            ProofStep::Outside(x, y) => {
                let (x, y) = (get(x), get(y));
                Interval::only(i128::from(!x.is_empty() && !x.within(y)))
            }
            ProofStep::If(x, y) => get(x).unless_empty(get(y), || get(x)),
            ProofStep::Argument { op, args, k, ty, of, result } => {
                let (args, result) = (args.map(get), get(result));
                let own = args[usize::from(k)];
                match inverse(op, args, usize::from(k), [ty, of], result) {
                    Some(found) if !result.is_empty() => own.both(found),
                    Some(_) | None => own,
                }
            }
        }
    }

    pub(crate) fn each_register(&mut self, mut visit: impl FnMut(&mut Reg)) {
        match self {
            ProofStep::Within(_) | ProofStep::Launch(..) => {}
            ProofStep::Op { args, count, .. } => args[..usize::from(*count)].iter_mut().for_each(visit),
            ProofStep::Sum { x, y, limit } => [x, y, limit].into_iter().for_each(visit),
            ProofStep::Counter { from, to, step } => [from, to, step].into_iter().for_each(visit),
            ProofStep::Difference(x, y)
            | ProofStep::Both(x, y)
            | ProofStep::Either(x, y)
            | ProofStep::Outside(x, y)
            | ProofStep::Where(x, _, y)
            | ProofStep::If(x, y) => [x, y].into_iter().for_each(visit),
            ProofStep::Argument { args, result, .. } => {
                args.iter_mut().for_each(&mut visit);
                visit(result);
            }
        }
    }

    /// Whether the step is empty if such registers are.
    fn is_empty_if(&self, empty: impl Fn(Reg) -> bool) -> bool {
        match *self {
            ProofStep::Within(_) | ProofStep::Launch(..) | ProofStep::Outside(..) => false,
            ProofStep::Either(x, y) => empty(x) && empty(y),
            ProofStep::Op { op: Op::Select, args, .. } => empty(args[0]),
            ProofStep::Op { args, count, .. } => args[..usize::from(count)].iter().any(|&arg| empty(arg)),
            ProofStep::Sum { x, y, limit } => empty(x) || empty(y) || empty(limit),
            ProofStep::Counter { from, to, step } => empty(from) || empty(to) || empty(step),
            ProofStep::Difference(x, y)
            | ProofStep::Both(x, y)
            | ProofStep::Where(x, _, y)
            | ProofStep::If(x, y) => empty(x) || empty(y),
            ProofStep::Argument { args, k, .. } => empty(args[usize::from(k)]),
        }
    }
}

/// Whether `reg` is empty whenever the earlier register `cause` is.
pub(crate) fn is_empty_with(steps: &[ProofStep], reg: Reg, cause: Reg) -> bool {
    let mut empty = vec![false; steps.len()];
    empty[cause as usize] = true;
    for k in cause as usize + 1..=reg as usize {
        empty[k] = steps[k].is_empty_if(|reg| empty[reg as usize]);
    }
    empty[reg as usize]
}

/// The counter of a loop with these bounds, in its iterations.
fn counter(from: Interval, to: Interval, step: Interval) -> Interval {
    if from.is_empty() || to.is_empty() || step.is_empty() {
        return Interval::EMPTY;
    }
    let last = match (from.single(), to.single(), step.single()) {
        (Some(from), Some(to), Some(step)) if step > 0 && from < to => from + (to - 1 - from) / step * step,
        (Some(_) | None, Some(_) | None, Some(_) | None) => to.high - 1,
    };
    let up = Interval::new(from.low, last);
    let down = Interval::new(to.low + 1, from.high);
    if step.low >= 0 {
        up
    } else if step.high < 0 {
        down
    } else {
        up.join(down)
    }
}

impl fmt::Display for Named<'_, Proof> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named(kernel, proof) = self;
        for (number, step) in proof.steps.iter().enumerate() {
            writeln!(f, "  proof p{number} = {}", Named(kernel, step))?;
        }
        for Check { index, below, .. } in &proof.checks {
            writeln!(f, "  requires p{index} < p{below}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Named<'_, ProofStep> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.1 {
            ProofStep::Within(interval) => write!(f, "{interval}"),
            ProofStep::Launch(quantity, _) => Named(self.0, &quantity).fmt(f),
            ProofStep::Op { op, args, count, .. } => {
                f.write_str(op.row().name)?;
                for (k, arg) in args[..usize::from(count)].iter().enumerate() {
                    write!(f, "{} p{arg}", if k == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            ProofStep::Difference(x, y) => write!(f, "sub p{x}, p{y} if not negative"),
            ProofStep::Sum { x, y, limit } => write!(f, "add p{x}, p{y} if below p{limit}"),
            ProofStep::Counter { from, to, step } => write!(f, "counter p{from}..p{to} step p{step}"),
            ProofStep::Both(x, y) => write!(f, "p{x} and p{y}"),
            ProofStep::Where(x, relation, y) => write!(f, "p{x} if {} p{y}", relation.symbol()),
            ProofStep::Either(x, y) => write!(f, "p{x} or p{y}"),
            ProofStep::Outside(x, y) => write!(f, "p{x} is outside p{y}"),
            ProofStep::If(x, y) => write!(f, "p{x} if p{y}"),
            ProofStep::Argument { op, args, k, result, .. } => {
                let [x, y] = args;
                write!(f, "p{} if {} p{x}, p{y} in p{result}", args[usize::from(k)], op.row().name)
            }
        }
    }
}

impl fmt::Display for Named<'_, Quantity> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kernel: &KernelBody, buffer: BufferId| kernel.buffer(buffer).decl.name.clone();
        match *self.1 {
            Quantity::Len(buffer) => write!(f, "len({})", name(self.0, buffer)),
            Quantity::Element(buffer, index) => write!(f, "{}[{index}]", name(self.0, buffer)),
            Quantity::Place(builtin, axis) => {
                write!(f, "{}.{}", builtin.name(), ["x", "y", "z"][usize::from(axis)])
            }
            Quantity::Position => f.write_str("position.x"),
        }
    }
}
