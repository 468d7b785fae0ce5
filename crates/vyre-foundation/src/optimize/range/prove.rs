//! Writes the kernel's [`Proof`]: what a launch computes to show that accesses are in range.
//!
//! The walk asks for the register of a value at the current point. It is computed from the value's
//! definition, from the registers of its operands, and from the guards around this point. A guard
//! restricts both sides of its comparison, and through sums, products, quotients, casts and the
//! like the operands they were computed from: `x + 1 < n` restricts `x`. Everything computed from a
//! restricted value is computed anew where it is used below the guard.
//!
//! Intervals do not relate values to each other. Two relations matter in indices, and the facts of
//! the walk supply them: `i - j` is not negative if `j` is at most `i`, and `i + j` is below `n` if
//! `i` is below `n - j`.
//!
//! Variables have no definition to compute from. The value last assigned to one is known in the
//! rest of that block; in a loop, an assumption that every assignment in the loop satisfies takes
//! its place.
//!
//! While it is written, the program is evaluated for every launch at once, where lengths and
//! uniforms can have any value, which proves accesses permanently, and for typical launches. An
//! access that none of these proves stays checked: it comes from border handling or memory, and
//! hardly any launch would prove it.

use super::{Limit, Undo, UpperBound, Walk};
use crate::ir::{Access, Builtin, Span};
use crate::kernel::interval::{Interval, Relation};
use crate::kernel::known::Lookup;
use crate::kernel::proof::{Check, Doubts, Proof, ProofStep, Quantity, QuantitySource, Reg, is_empty_with};
use crate::kernel::{
    BufferId, Def, KernelBody, KernelDomain, Known, LocalId, Operands, Place, Stmt, StmtKind, ValueId,
};
use crate::ops::{Op, Signature};
use crate::optimize::target::Assume;
use crate::optimize::walk::{each_stmt, fixed_len};
use crate::types::{Value, ValueType};
use hashbrown::HashMap;

// Limits on the cost of a proof, for hostile programs. The comment on each says what the benchmarks
// and the kernels of `filetests` need.

/// Maximum depth of an expression; deeper values are known by their static interval. `sobel` needs
/// between 6 and 12.
const DEPTH: usize = 24;
/// Maximum number of steps, including those that no check needs. None needs 256.
const MOST_STEPS: usize = 4096;
/// Maximum number of checks. `batched` has 40.
const MOST_CHECKS: usize = 128;
/// How far a guard restricts the operands that its sides were computed from. 1 is enough, and
/// without it three kernels keep checks.
const INVERSE_DEPTH: usize = 6;
/// Maximum number of nested selects whose conditions restrict their arms. `periodic` needs 1, an
/// index clamped on both sides has 2.
const MOST_SELECTS: usize = 3;
/// Maximum nesting of trials, one for each of several nested loops. `search`, `tree` and `walk`
/// need 1.
const MOST_TRIALS: usize = 2;
/// Number of guards around an access, the innermost first, whose failure makes it unreachable.
/// `masked_stores` needs 2.
const GUARDS: usize = 8;
/// Maximum depth of an expression of known values: `(width + 15) / 16` has 2.
const KNOWN_DEPTH: usize = 4;

/// The proof as far as it is written.
pub(super) struct ProofWriter {
    proof: Proof,
    /// The register of each step, so that equal steps share one.
    registers: HashMap<ProofStep, Reg>,
    /// Per register: its values in any launch, and whether they are the same in every launch.
    always: Vec<Interval>,
    fixed: Vec<bool>,
    /// The same in each typical launch.
    typical: [Vec<Interval>; TYPICAL.len()],
    /// Per value: its register as restricted by the guards around the current point.
    restricted: Vec<Option<Reg>>,
    /// Registers that are empty if no invocation gets to the current point.
    guards: Vec<Reg>,
    /// Per value: the register that the current question found for it, with the question's number.
    memo: Vec<(u32, Reg)>,
    /// Number of the current question.
    question: u32,
    /// Number of the latest question.
    questions: u32,
    depth: usize,
    /// Number of selects whose arms are being computed.
    selects: usize,
    /// Per value read from a variable: its register, if known.
    read: Vec<Option<Reg>>,
    /// Per variable: its register at the current point, if known.
    variables: Vec<Option<Reg>>,
    /// The variables that the loops around the current point assign, with the values that they are
    /// assumed to stay within.
    loops: Vec<(LocalId, Reg)>,
    /// The conditions under which the assumptions of a trial hold; `None` outside a trial.
    trial: Option<Vec<(LocalId, Reg)>>,
    /// Nesting depth of trials.
    trials: usize,
    /// The statement that the walk is at.
    pub(super) at: Option<Span>,
}

impl ProofWriter {
    /// Continues the proof of the kernel.
    pub(super) fn new(body: &mut KernelBody, assume: &Assume) -> ProofWriter {
        let before = std::mem::take(&mut body.proof);
        let mut writer = ProofWriter {
            proof: Proof { steps: Vec::new(), checks: before.checks },
            registers: HashMap::new(),
            always: Vec::new(),
            fixed: Vec::new(),
            typical: Default::default(),
            restricted: vec![None; body.values.len()],
            guards: Vec::new(),
            memo: vec![(0, 0); body.values.len()],
            question: 0,
            questions: 0,
            depth: 0,
            selects: 0,
            read: vec![None; body.values.len()],
            variables: vec![None; body.locals.len()],
            loops: Vec::new(),
            trial: None,
            trials: 0,
            at: None,
        };
        for step in before.steps {
            writer.push(step, body, assume);
        }
        writer
    }

    /// The finished proof.
    pub(super) fn finish(mut self) -> Proof {
        self.proof.prune();
        self.proof
    }

    fn push(&mut self, step: ProofStep, body: &KernelBody, assume: &Assume) -> Reg {
        let reg = self.proof.steps.len() as Reg;
        let mut fixed = !matches!(step, ProofStep::Launch(..));
        let mut operands = step;
        operands.each_register(|reg| fixed &= self.fixed[*reg as usize]);
        self.fixed.push(fixed);
        // The values over all launches do not show how those of one launch are related.
        let relates = matches!(step, ProofStep::Outside(_, within) if !self.fixed[within as usize]);
        let any = step.evaluate(&self.always, &mut Unknown);
        self.always.push(if relates { Interval::new(0, 1) } else { any });
        for (typical, [length, parameter]) in self.typical.iter_mut().zip(TYPICAL) {
            typical.push(step.evaluate(typical, &mut Typical { body, assume, length, parameter }));
        }
        self.proof.steps.push(step);
        self.registers.insert(step, reg);
        reg
    }

    /// Undoes a restriction.
    pub(super) fn restore(&mut self, value: ValueId, before: Option<Reg>) {
        self.restricted[value.index()] = before;
    }

    /// Forgets a variable.
    pub(super) fn forget(&mut self, local: LocalId) {
        self.variables[local.index()] = None;
    }

    /// Leaves a guard.
    pub(super) fn leave(&mut self) {
        self.guards.pop();
    }

    /// Begins a question, for which nothing is found yet.
    fn ask(&mut self) {
        self.questions += 1;
        self.question = self.questions;
    }
}

impl Walk<'_> {
    /// Whether the index is in range, in every launch or in those that the proof admits.
    pub(super) fn proves(&mut self, index: ValueId, place: Place) -> bool {
        if self.in_range(index, place) {
            return true;
        }
        let (below, buffer) = match place {
            Place::Buffer(buffer) => {
                let length = self.interval_of_length(buffer);
                (self.step(ProofStep::Launch(Quantity::Len(buffer), length)), Some(buffer))
            }
            Place::Array(array) => {
                let count = self.body.arrays[array.index()].count;
                (self.step(ProofStep::Within(Interval::only(count.into()))), None)
            }
        };
        let index = self.register(index);
        self.proves_below(index, below, buffer)
    }

    /// Whether a guard can be left to the launch: it compares an invocation id with a length or
    /// parameter. Guards against rounded-up domains have this form, and they usually hold in the
    /// whole domain.
    pub(super) fn leaves_guard(&mut self, lesser: ValueId, greater: ValueId) -> bool {
        let own_number =
            matches!(self.definitions[lesser.index()], Some(Def::Builtin(Builtin::InvocationId, _)));
        if !own_number || !self.assume.within_domain || !self.body.shape_free {
            return false;
        }
        match self.known(greater, 0) {
            Some(Known::Len(_) | Known::Element(..)) => {
                let [index, below] = self.registers([lesser, greater]);
                let proved = self.proves_below(index, below, None);
                if proved {
                    self.restrict(lesser, Relation::Less, greater);
                }
                proved
            }
            Some(Known::Const(_) | Known::Groups(_) | Known::Op(..)) | None => false,
        }
    }

    /// Whether a register is below another, in every launch or in those that the proof admits.
    fn proves_below(&mut self, index: Reg, below: Reg, buffer: Option<BufferId>) -> bool {
        let index = self.reached(index, 0);
        let of = Doubts::of(buffer, self.writer.at.map_or(0, |at| at.start));
        let check = Check { index, below, of };
        if check.holds(&self.writer.always) {
            return true;
        }
        let admitted = self.assume.dispatch_checks && !self.assume.doubtful.meets(of);
        if !admitted
            || self.writer.trial.is_some()
            || !self.is_likely(check)
            || self.writer.proof.checks.len() >= MOST_CHECKS
        {
            return false;
        }
        let same = |other: &&mut Check| (other.index, other.below) == (index, below);
        match self.writer.proof.checks.iter_mut().find(same) {
            Some(known) => known.of = known.of.with(of),
            None => self.writer.proof.checks.push(check),
        }
        true
    }

    /// Whether a typical launch meets the check: one with buffers of one length, or with memory for
    /// several elements per invocation. An index just past the end comes from border handling,
    /// which must stay checked; one that can be anything comes from memory or wraps.
    fn is_likely(&self, check: Check) -> bool {
        let anything = Interval::of_type(ValueType::U32).high;
        self.writer.typical.iter().any(|typical| {
            let [index, below] = [check.index, check.below].map(|reg| typical[reg as usize]);
            check.holds(typical) || (index.high < anything && index.high >= below.low / 2 * 3)
        })
    }

    /// The register, or an empty one if no invocation passes the guards after the first `outside`.
    fn reached(&mut self, mut index: Reg, outside: usize) -> Reg {
        for k in (outside..self.writer.guards.len()).rev().take(GUARDS) {
            let guard = self.writer.guards[k];
            let implied =
                guard == index || (guard < index && is_empty_with(&self.writer.proof.steps, index, guard));
            if !implied {
                index = self.step(ProofStep::If(index, guard));
            }
        }
        index
    }

    fn step(&mut self, step: ProofStep) -> Reg {
        if let Some(&reg) = self.writer.registers.get(&step) {
            return reg;
        }
        let reg = self.writer.push(step, self.body, &self.assume);
        match self.writer.always[reg as usize].single() {
            // What no launch can change is a constant.
            Some(_) if !matches!(step, ProofStep::Within(_)) => {
                let constant = self.step(ProofStep::Within(self.writer.always[reg as usize]));
                self.writer.registers.insert(step, constant);
                constant
            }
            Some(_) | None => reg,
        }
    }

    /// The register of an integer or `bool` at the current point.
    fn register(&mut self, value: ValueId) -> Reg {
        self.writer.ask();
        self.computed(value)
    }

    /// The registers of two values at the current point.
    fn registers(&mut self, values: [ValueId; 2]) -> [Reg; 2] {
        self.writer.ask();
        values.map(|value| self.computed(value))
    }

    fn computed(&mut self, value: ValueId) -> Reg {
        let (question, reg) = self.writer.memo[value.index()];
        if question == self.writer.question {
            return reg;
        }
        if self.writer.depth >= DEPTH || self.writer.proof.steps.len() >= MOST_STEPS {
            return self.step(ProofStep::Within(self.intervals[value.index()]));
        }
        self.writer.depth += 1;
        let mut reg = self.defined(value);
        self.writer.depth -= 1;
        if let Some(restricted) = self.writer.restricted[value.index()] {
            let is_subset = self.derives(restricted, reg);
            reg = if is_subset { restricted } else { self.step(ProofStep::Both(reg, restricted)) };
        }
        self.writer.memo[value.index()] = (self.writer.question, reg);
        reg
    }

    /// Whether a register is a subset of another by its own definition.
    fn derives(&self, from: Reg, whole: Reg) -> bool {
        match self.writer.proof.steps[from as usize] {
            _ if from == whole => true,
            ProofStep::Where(x, ..) | ProofStep::If(x, _) => self.derives(x, whole),
            ProofStep::Both(x, y) => self.derives(x, whole) || self.derives(y, whole),
            ProofStep::Argument { args, k, .. } => self.derives(args[usize::from(k)], whole),
            ProofStep::Within(_)
            | ProofStep::Launch(..)
            | ProofStep::Op { .. }
            | ProofStep::Difference(..)
            | ProofStep::Sum { .. }
            | ProofStep::Either(..)
            | ProofStep::Outside(..)
            | ProofStep::Counter { .. } => false,
        }
    }

    /// The register of a value by its definition.
    fn defined(&mut self, value: ValueId) -> Reg {
        let fallback = ProofStep::Within(self.intervals[value.index()]);
        // A loop counter has no definition; its loop restricts it.
        let Some(def) = self.definitions[value.index()].clone() else { return self.step(fallback) };
        let quantity = match &def {
            Def::Op(op, operands) => return self.of_op(value, *op, operands),
            Def::Len(buffer) => Some(Quantity::Len(*buffer)),
            Def::Builtin(Builtin::InvocationId, 0) if self.body.coarsening == 1 => Some(Quantity::Position),
            Def::Builtin(builtin, axis) => Some(Quantity::Place(*builtin, *axis)),
            Def::Load { .. } => match self.known(value, 0) {
                Some(Known::Element(buffer, index)) => Some(Quantity::Element(buffer, index)),
                Some(Known::Const(_) | Known::Len(_) | Known::Groups(_) | Known::Op(..)) | None => None,
            },
            Def::Get(_) => {
                let known = self.writer.read[value.index()];
                return known.unwrap_or_else(|| self.step(fallback));
            }
            Def::Const(_) | Def::Atomic { .. } | Def::Subgroup(..) => None,
        };
        match quantity {
            Some(quantity) => {
                let otherwise = self.interval_of(value, &def);
                self.step(ProofStep::Launch(quantity, otherwise))
            }
            None => self.step(fallback),
        }
    }

    fn of_op(&mut self, value: ValueId, op: Op, operands: &Operands) -> Reg {
        let [operand, result] = [operands[0], value].map(|value| self.body.ty(value));
        let by_integers = operands.iter().all(|&operand| !self.body.ty(operand).is_float());
        if !by_integers || result.is_float() || operands.len() > 3 {
            return self.step(ProofStep::Within(self.intervals[value.index()]));
        }
        if op == Op::Select {
            return self.of_select(value, [operands[0], operands[1], operands[2]]);
        }
        let mut args = [0; 3];
        for (arg, &operand) in args.iter_mut().zip(operands.iter()) {
            *arg = self.computed(operand);
        }
        if let &[x, y] = &operands[..]
            && operand.is_integer()
        {
            if op == Op::Sub && !operand.is_signed_integer() && self.at_most(y, x) {
                return self.step(ProofStep::Difference(args[0], args[1]));
            }
            if op == Op::Add
                && let Some(limit) = self.limit_of_sum(x, y).or_else(|| self.limit_of_sum(y, x))
            {
                let limit = self.computed(limit);
                return self.step(ProofStep::Sum { x: args[0], y: args[1], limit });
            }
        }
        self.step(ProofStep::Op { op, args, count: operands.len() as u8, operand, result })
    }

    /// Each arm of a select, where its condition holds or fails.
    fn of_select(&mut self, value: ValueId, [condition, yes, no]: [ValueId; 3]) -> Reg {
        let decided = self.computed(condition);
        let [yes, no] = [(yes, true), (no, false)].map(|(arm, holds)| self.of_arm(arm, condition, holds));
        let [operand, result] = [condition, value].map(|value| self.body.ty(value));
        self.step(ProofStep::Op { op: Op::Select, args: [decided, yes, no], count: 3, operand, result })
    }

    fn of_arm(&mut self, arm: ValueId, condition: ValueId, holds: bool) -> Reg {
        if self.writer.selects >= MOST_SELECTS {
            return self.computed(arm);
        }
        let question = self.writer.question;
        let (mark, outside) = (self.journal.len(), self.writer.guards.len());
        self.writer.selects += 1;
        self.learn(condition, holds);
        let reg = self.register(arm);
        let reg = self.reached(reg, outside);
        self.writer.selects -= 1;
        self.undo(mark);
        self.writer.question = question;
        reg
    }

    fn at_most(&self, lesser: ValueId, greater: ValueId) -> bool {
        self.reaches(lesser, UpperBound { by: Limit::Value(greater), strict: false })
    }

    /// The `n` of a known `x < n - y` in which the difference is not negative.
    fn limit_of_sum(&self, x: ValueId, y: ValueId) -> Option<ValueId> {
        self.bounds(x).filter(|bound| bound.strict).find_map(|bound| match bound.by {
            Limit::Value(by) => match &self.definitions[by.index()] {
                Some(Def::Op(Op::Sub, operands)) if operands[1] == y => {
                    let unsigned = !self.body.ty(by).is_signed_integer();
                    (unsigned && self.at_most(y, operands[0])).then_some(operands[0])
                }
                Some(_) | None => None,
            },
            Limit::Len(_) | Limit::Axis(_) => None,
        })
    }

    /// Restricts both sides of a comparison that holds at the current point.
    pub(super) fn restrict(&mut self, x: ValueId, relation: Relation, y: ValueId) {
        if self.writer.proof.steps.len() >= MOST_STEPS {
            return;
        }
        let [from_x, from_y] = self.registers([x, y]);
        let lesser = self.step(ProofStep::Where(from_x, relation, from_y));
        let greater = self.step(ProofStep::Where(from_y, relation.mirrored(), from_x));
        self.enter(lesser);
        self.set_restricted(x, lesser, INVERSE_DEPTH);
        self.set_restricted(y, greater, INVERSE_DEPTH);
    }

    /// Restricts a loop counter inside its loop.
    pub(super) fn restrict_counter(&mut self, counter: ValueId, [from, to, step]: [ValueId; 3]) {
        let [from, to, step] = [from, to, step].map(|bound| self.register(bound));
        let reg = self.step(ProofStep::Counter { from, to, step });
        self.enter(reg);
        self.set_restricted(counter, reg, 0);
    }

    /// Remembers what is known of a variable where it is read.
    pub(super) fn read_variable(&mut self, value: ValueId, local: LocalId) {
        self.writer.read[value.index()] = self.writer.variables[local.index()];
    }

    /// Follows an assignment.
    pub(super) fn assign_variable(&mut self, local: LocalId, value: ValueId) {
        if !self.body.ty(value).is_integer() {
            return;
        }
        let loops = self.writer.loops.iter().filter(|(of, _)| *of == local);
        let assumed: Vec<Reg> = loops.map(|(_, within)| *within).collect();
        let reg = self.register(value);
        for &within in &assumed {
            let reached = self.reached(reg, 0);
            let outside = self.step(ProofStep::Outside(reached, within));
            match &mut self.writer.trial {
                Some(conditions) => conditions.push((local, outside)),
                None => self.require_inside(outside),
            }
        }
        // In a loop, the assumption is what holds at every point.
        self.set_variable(local, assumed.last().copied().unwrap_or(reg));
    }

    /// Requires a register that is 0 if an assumption holds. Any proof in the loop can rely on it.
    fn require_inside(&mut self, outside: Reg) {
        let below = self.step(ProofStep::Within(Interval::only(1)));
        let check = Check { index: outside, below, of: Doubts::ALL };
        if !check.holds(&self.writer.always) && !self.writer.proof.checks.contains(&check) {
            self.writer.proof.checks.push(check);
        }
    }

    fn set_variable(&mut self, local: LocalId, reg: Reg) {
        self.writer.variables[local.index()] = Some(reg);
        self.journal.push(Undo::Variable(local));
    }

    /// Walks the body of a loop. A variable that it assigns is assumed to stay between 0 and the
    /// largest value that such variables start with (a search, a tree), or not below its own first
    /// value (a walk), if a trial finds that assignments keep to it.
    pub(super) fn looped(&mut self, body: Vec<Stmt>) -> Vec<Stmt> {
        let assigned = self.assigned_integers(&body);
        let assumed = self.assumptions(&body, &assigned);
        assigned.iter().for_each(|&local| self.writer.forget(local));
        let outside = self.writer.loops.len();
        self.assume_loop(&assumed);
        let body = self.block(body);
        self.writer.loops.truncate(outside);
        assigned.iter().for_each(|&local| self.writer.forget(local));
        assumed.into_iter().for_each(|(local, within)| self.set_variable(local, within));
        body
    }

    fn assigned_integers(&self, body: &[Stmt]) -> Vec<LocalId> {
        let mut assigned = Vec::new();
        each_stmt(body, &mut |stmt| {
            if let StmtKind::Set(local, _) = stmt.kind
                && self.body.locals[local.index()].ty.is_integer()
                && !assigned.contains(&local)
            {
                assigned.push(local);
            }
        });
        assigned
    }

    fn assume_loop(&mut self, assumed: &[(LocalId, Reg)]) {
        for &(local, within) in assumed {
            self.set_variable(local, within);
            self.writer.loops.push((local, within));
        }
    }

    /// The values that variables stay within in a loop, as far as trials confirm it.
    fn assumptions(&mut self, body: &[Stmt], assigned: &[LocalId]) -> Vec<(LocalId, Reg)> {
        let start = |local: &LocalId| Some((*local, self.writer.variables[local.index()]?));
        let starts: Vec<(LocalId, Reg)> = assigned.iter().filter_map(start).collect();
        if starts.is_empty() || self.writer.trials >= MOST_TRIALS {
            return Vec::new();
        }
        let mut hull = self.step(ProofStep::Within(Interval::only(0)));
        for &(_, reg) in &starts {
            hull = self.step(ProofStep::Either(hull, reg));
        }
        let mut assumed: Vec<(LocalId, Reg)> = starts.iter().map(|&(local, _)| (local, hull)).collect();
        let broken = self.trial(body, &assumed);
        let mut is_confirmed = broken.is_empty();
        for (assumption, &(local, first)) in assumed.iter_mut().zip(&starts) {
            if broken.contains(&local) {
                let full = Interval::of_type(self.body.locals[local.index()].ty);
                let most = self.step(ProofStep::Within(Interval::only(full.high)));
                assumption.1 = self.step(ProofStep::Either(first, most));
            }
        }
        assumed.retain(|&(local, within)| {
            let full = Interval::of_type(self.body.locals[local.index()].ty);
            self.writer.typical.iter().any(|typical| typical[within as usize] != full)
        });
        is_confirmed &= assumed.len() == starts.len();
        for _ in 0..2 {
            if is_confirmed || assumed.is_empty() {
                return assumed;
            }
            let broken = self.trial(body, &assumed);
            is_confirmed = broken.is_empty();
            assumed.retain(|(local, _)| !broken.contains(local));
        }
        if is_confirmed { assumed } else { Vec::new() }
    }

    /// The variables for which an assumption is not confirmed, neither for every launch nor, if a
    /// launch can decide it, for a typical one.
    fn trial(&mut self, body: &[Stmt], assumed: &[(LocalId, Reg)]) -> Vec<LocalId> {
        let before = (self.names.clone(), self.writer.variables.clone(), self.observed.take());
        let outer = self.writer.trial.replace(Vec::new());
        let (mark, outside) = (self.journal.len(), self.writer.loops.len());
        self.writer.trials += 1;
        self.assigned_integers(body).into_iter().for_each(|local| self.writer.forget(local));
        self.assume_loop(assumed);
        self.block(body.to_vec());
        self.writer.trials -= 1;
        self.writer.loops.truncate(outside);
        self.undo(mark);
        (self.names, self.writer.variables, self.observed) = before;
        let conditions = std::mem::replace(&mut self.writer.trial, outer).unwrap_or_default();
        let of = Doubts::of(None, self.writer.at.map_or(0, |at| at.start));
        let asked = self.assume.dispatch_checks && !self.assume.doubtful.meets(of);
        let keeps = |values: &[Interval], reg: Reg| values[reg as usize] == Interval::only(0);
        let broken = conditions.into_iter().filter(|&(_, reg)| {
            let typically = || self.writer.typical.iter().any(|typical| keeps(typical, reg));
            !(keeps(&self.writer.always, reg) || (asked && typically()))
        });
        broken.map(|(local, _)| local).collect()
    }

    fn enter(&mut self, guard: Reg) {
        self.writer.guards.push(guard);
        self.journal.push(Undo::Guard);
    }

    /// Restricts a value, and the operands that it was computed from.
    fn set_restricted(&mut self, value: ValueId, to: Reg, depth: usize) {
        let before = self.writer.restricted[value.index()].replace(to);
        self.journal.push(Undo::Restricted(value, before));
        let Some(Def::Op(op, operands)) = self.definitions[value.index()].clone() else { return };
        let integers = operands.iter().all(|&operand| self.body.ty(operand).is_integer());
        if depth == 0 || !integers || !has_inverse(op) {
            return;
        }
        let x = operands[0];
        let y = *operands.get(1).unwrap_or(&x);
        let [ty, of] = [x, value].map(|value| self.body.ty(value));
        for (k, operand) in operands.iter().enumerate() {
            let args = self.registers([x, y]);
            if self.writer.always[args[k] as usize].single().is_none() {
                let reg = self.step(ProofStep::Argument { op, args, k: k as u8, ty, of, result: to });
                self.set_restricted(*operand, reg, depth - 1);
            }
        }
    }

    /// The axis, computed at dispatch, whose number of invocations equals this value.
    pub(super) fn axis_of(&self, value: ValueId) -> Option<u8> {
        let KernelDomain::Axes(axes) = &self.body.domain else { return None };
        let known = self.known(value, KNOWN_DEPTH)?;
        axes.iter().position(|axis| *axis == known).map(|axis| axis as u8)
    }

    /// The value as an expression that a dispatch can evaluate.
    fn known(&self, value: ValueId, depth: usize) -> Option<Known> {
        match self.definitions[value.index()].as_ref()? {
            Def::Const(constant) => Some(Known::Const(*constant)),
            Def::Len(buffer) => Some(Known::Len(*buffer)),
            Def::Builtin(Builtin::GridSize, axis) => Some(Known::Groups(*axis)),
            Def::Load { place: Place::Buffer(buffer), index, .. } => {
                let read_only =
                    matches!(self.body.buffer(*buffer).decl.access, Access::Read | Access::Uniform);
                let index = u32::try_from(self.intervals[index.index()].single()?).ok()?;
                read_only.then_some(Known::Element(*buffer, index))
            }
            Def::Op(op, operands) if depth > 0 => {
                let args: Option<Vec<Known>> =
                    operands.iter().map(|&operand| self.known(operand, depth - 1)).collect();
                Some(Known::Op(*op, args?))
            }
            Def::Op(..)
            | Def::Builtin(
                Builtin::InvocationId | Builtin::LocalId | Builtin::WorkgroupId | Builtin::WorkgroupSize,
                _,
            )
            | Def::Load { place: Place::Array(_), .. }
            | Def::Get(_)
            | Def::Atomic { .. }
            | Def::Subgroup(..) => None,
        }
    }
}

/// Whether a restricted result can restrict the operands.
fn has_inverse(op: Op) -> bool {
    let cast = matches!(op.row().signature, Signature::Cast(_));
    cast || [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Shr, Op::Shl, Op::Min, Op::Max, Op::Or].contains(&op)
}

/// Every launch at once: nothing is known.
struct Unknown;

impl QuantitySource for Unknown {
    fn quantity(&mut self, _quantity: Quantity) -> Option<Interval> {
        None
    }
}

/// A launch with long buffers of one length and a small grid.
struct Typical<'a> {
    body: &'a KernelBody,
    assume: &'a Assume,
    /// The length of every buffer that has no other.
    length: u32,
    /// The value of every parameter.
    parameter: u32,
}

/// Many elements. These three are guesses about launches: they decide which checks are worth a
/// place in the proof, and never whether an access is in range. Chosen, not measured.
const LARGE: u32 = 3 << 20;
/// A length so short that a matrix can have rows of it.
const MEDIUM: u32 = 3 << 10;
/// Size of grids, and of parameters such as the width of a row.
const SMALL: u32 = 16;
/// The lengths and parameters of typical launches: a parameter can be a width or the number of
/// elements, and a buffer can have as many elements as another has rows.
const TYPICAL: [[u32; 2]; 3] = [[LARGE, SMALL], [LARGE, LARGE], [MEDIUM, SMALL]];

impl Lookup for Typical<'_> {
    fn length(&mut self, buffer: BufferId) -> Option<u32> {
        let formula = self.body.buffer(buffer).length.as_ref();
        fixed_len(self.body, Place::Buffer(buffer))
            .or_else(|| formula?.evaluate(self)?.as_u32())
            .or(Some(self.length))
    }

    fn element(&mut self, buffer: BufferId, _index: u32) -> Option<Value> {
        let ty = self.body.buffer(buffer).decl.element.value_type();
        ty.is_integer().then(|| Value::from_bits(ty, self.parameter.into()))
    }

    fn groups(&mut self, _axis: u8) -> Option<u32> {
        Some(SMALL)
    }
}

impl QuantitySource for Typical<'_> {
    fn quantity(&mut self, quantity: Quantity) -> Option<Interval> {
        match quantity {
            Quantity::Len(buffer) => self.length(buffer).map(|length| Interval::only(length.into())),
            Quantity::Element(buffer, index) => self.element(buffer, index).map(Interval::of_constant),
            Quantity::Position => Some(Interval::first(self.count(0))),
            Quantity::Place(Builtin::InvocationId, axis) => {
                let elements = if axis == 0 { i128::from(self.body.coarsening) } else { 1 };
                Some(Interval::first(self.count(usize::from(axis)) / elements))
            }
            Quantity::Place(Builtin::WorkgroupId, _) => Some(Interval::first(SMALL.into())),
            Quantity::Place(Builtin::GridSize, _) => Some(Interval::only(SMALL.into())),
            Quantity::Place(Builtin::LocalId, axis) => Some(Interval::first(self.workgroup(axis.into()))),
            Quantity::Place(Builtin::WorkgroupSize, axis) => {
                Some(Interval::only(self.workgroup(axis.into())))
            }
        }
    }
}

impl Typical<'_> {
    fn workgroup(&self, axis: usize) -> i128 {
        self.assume.workgroup.unwrap_or(self.body.workgroup_size)[axis].into()
    }

    /// Invocations on an axis.
    fn count(&mut self, axis: usize) -> i128 {
        let inside = self.assume.within_domain && self.body.shape_free;
        match self.body.domain.axis(axis) {
            _ if !inside => i128::from(SMALL) * self.workgroup(axis),
            Some(count) => count.evaluate(self).and_then(Value::as_integer).unwrap_or(SMALL.into()),
            None if axis == 0 => self.length.into(),
            None => 1,
        }
    }
}
