//! Loops.

use super::Lowering;
use crate::divergence::Item;
use crate::row_reductions::reduced;
use crate::vector::{Calc, Inst, Reg, RegType, Var};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{Stmt, StmtKind, ValueId};
use vyre_foundation::types::Value;

/// Loops of the kernel, numbered from 1 in the order in which they start.
#[derive(Default)]
pub(super) struct Loops {
    /// Loops around the open block, innermost last.
    pub(super) open: Vec<LoopState>,
    pub(super) started: usize,
}

/// A loop being lowered.
pub(super) struct LoopState {
    pub(super) number: usize,
    /// Lanes still in the loop; `None` if all leave together.
    pub(super) live: Option<Var>,
    /// Lanes that skip the rest of the iteration.
    pub(super) skipped: Option<Var>,
}

/// Counter of a loop.
pub(super) struct Rounds {
    pub(super) position: Var,
    step: Reg,
    test: RoundTest,
}

/// Test for a further iteration of a counted loop.
enum RoundTest {
    /// The counter, which increments by one, is below the end.
    Below(Reg),
    /// A flag set by the previous iteration: whether its counter was short of the end minus the
    /// step.
    Flag { more: Var, order: Op, reduced: Reg },
}

impl<'k> Lowering<'k> {
    pub(super) fn looped(&mut self, item: &Item<'k>) {
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |_| None);
        self.out.push(Inst::Loop { body, next: Vec::new(), rest: false });
    }

    /// Numbers the loop and, if lanes leave it separately, sets up its live mask.
    pub(super) fn start_loop(&mut self, item: &Item<'k>) -> LoopState {
        self.loops.started += 1;
        let number = self.loops.started;
        let live = item.marks.divergent_loop.then(|| {
            let var = self.var(RegType::MASK);
            let mask = self.full_mask(self.masks.running());
            self.out.push(Inst::Set(var, mask));
            var
        });
        let skipped = item.marks.skips.then(|| self.var(RegType::MASK));
        LoopState { number, live, skipped }
    }

    /// Numbers a loop that all lanes leave together.
    pub(super) fn start_unmasked(&mut self) -> LoopState {
        self.loops.started += 1;
        LoopState { number: self.loops.started, live: None, skipped: None }
    }

    /// Emits the first of several copies of the same loops: numbering starts over for the next.
    pub(super) fn first_copy<T>(&mut self, fill: impl FnOnce(&mut Self) -> T) -> T {
        let started = self.loops.started;
        let result = fill(self);
        self.loops.started = started;
        result
    }

    /// Lowers a loop's body. `head` runs at the start of each iteration and can return a condition
    /// that narrows the live lanes.
    pub(super) fn loop_body(
        &mut self,
        item: &Item<'k>,
        state: LoopState,
        head: impl FnOnce(&mut Self) -> Option<Reg>,
    ) -> Vec<Inst> {
        let (live, skipped) = (state.live, state.skipped);
        self.loops.open.push(state);
        let body = self.nested(|this| {
            this.in_masks(this.masks, |this| {
                let goes_on = head(this);
                this.start_iteration(item, live, goes_on);
                if let Some(skipped) = skipped {
                    let none = this.def(RegType::MASK, Calc::Const(Value::Bool(false)));
                    this.out.push(Inst::Set(skipped, none));
                }
                this.round(&item.blocks[0], live);
            });
        });
        self.loops.open.pop();
        body
    }

    /// Narrows the masks to the lanes that run an iteration, and leaves the loop if there are none.
    fn start_iteration(&mut self, item: &Item<'k>, live: Option<Var>, goes_on: Option<Reg>) {
        let mut running = self.masks.running();
        if let Some(live) = live {
            let mut mask = self.get(live);
            if let Some(condition) = goes_on {
                mask = self.op(Op::And, &[mask, condition]);
                self.out.push(Inst::Set(live, mask));
            }
            running = Some(mask);
            // A loop that starts with a condition tests the mask there.
            if leading_condition(&item.blocks[0]).is_none() {
                self.break_unless_any(mask);
            }
        } else if let Some(condition) = goes_on {
            self.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
        }
        self.masks = self.masks.in_iteration(running);
    }

    fn break_unless_any(&mut self, mask: Reg) {
        let condition = self.any(mask);
        self.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
    }

    /// Lowers the statements of an iteration. The condition of a divergent `while` narrows the live
    /// lanes directly.
    fn round(&mut self, items: &[Item<'k>], live: Option<Var>) {
        let (Some(live), Some((at, condition))) = (live, leading_condition(items)) else {
            return self.block(items);
        };
        for item in &items[..at] {
            self.item(item);
        }
        let condition = self.operand(condition);
        let before = self.get(live);
        let mask = self.op(Op::And, &[before, condition]);
        self.out.push(Inst::Set(live, mask));
        self.masks = self.masks.in_iteration(Some(mask));
        self.break_unless_any(mask);
        self.block(&items[at + 1..]);
    }

    pub(super) fn counted(&mut self, item: &Item<'k>) {
        let StmtKind::For { counter, from, to, step, .. } = &item.stmt.kind else {
            unreachable!("only called for counted loops")
        };
        if let Some(across) = self.across(item, [*from, *to, *step]) {
            return self.counted_across(item, *counter, across);
        }
        if let Some(abreast) = self.abreast(item, [*from, *to, *step]) {
            return self.counted_abreast(item, *counter, abreast);
        }
        let bounds = [*from, *to, *step].map(|bound| self.operand(bound));
        let is_simple = self.reg_facts.constants.get(&bounds[2]) == Some(&Value::one(self.kernel.ty(*from)))
            && bounds.iter().all(|&bound| !self.reg_type(bound).vector);
        if !is_simple {
            return self.rounds(item, *counter, bounds);
        }
        if let Some(lanes) = self.along
            && let StmtKind::For { body, .. } = &item.stmt.kind
            && let Some(locals) = reduced(self.kernel, body, *counter)
        {
            return self.counted_along(item, *counter, bounds, (lanes, locals));
        }
        let outcomes = self.outcomes(item, *counter, bounds);
        let Some(condition) =
            outcomes.values().map(|outcome| outcome.when).reduce(|all, next| self.op(Op::And, &[all, next]))
        else {
            return self.simple_rounds(item, *counter, bounds);
        };
        let then = self.first_copy(|this| {
            this.nested(|this| {
                this.decided = outcomes;
                this.simple_rounds(item, *counter, bounds);
                this.decided.clear();
            })
        });
        // The same loop, for vectors that meet a border in some iteration.
        self.copies += 1;
        let otherwise = self.nested(|this| this.simple_rounds(item, *counter, bounds));
        self.copies -= 1;
        self.out.push(Inst::If { condition, then, otherwise });
    }

    pub(super) fn rounds(&mut self, item: &Item<'k>, counter: ValueId, bounds: [Reg; 3]) {
        let rounds = self.start_rounds(bounds);
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let current = this.get(rounds.position);
            let lane_value = this.lane_value(current);
            this.define(counter, lane_value);
            Some(this.has_round(&rounds, current))
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest: false });
    }

    /// Sets up the counter of a loop from its bounds.
    pub(super) fn start_rounds(&mut self, bounds @ [from, to, step]: [Reg; 3]) -> Rounds {
        let types = bounds.map(|reg| self.reg_type(reg));
        let ty = types[0].ty;
        // The counter is a vector only if lanes have different starts or steps.
        let position = self.var(RegType { ty, vector: types[0].vector || types[2].vector });
        self.out.push(Inst::Set(position, from));
        let test = match self.reg_facts.constants.get(&step).copied() {
            Some(value) if value == Value::one(ty) => RoundTest::Below(to),
            Some(value) => {
                let down = matches!(value, Value::I32(i32::MIN..=-1) | Value::I64(i64::MIN..=-1));
                let order = if down { Op::Gt } else { Op::Lt };
                // No iteration follows once the counter reaches the end minus the step; the
                // subtraction saturates.
                let reduced = self.op(Op::SatSub, &[to, step]);
                let first = self.op(order, &[from, to]);
                let more = self.var(self.reg_type(first));
                self.out.push(Inst::Set(more, first));
                RoundTest::Flag { more, order, reduced }
            }
            None => unreachable!("other steps than constants were counted in rounds"),
        };
        Rounds { position, step, test }
    }

    pub(super) fn has_round(&mut self, rounds: &Rounds, current: Reg) -> Reg {
        match rounds.test {
            RoundTest::Below(to) => self.op(Op::Lt, &[current, to]),
            RoundTest::Flag { more, .. } => self.get(more),
        }
    }

    pub(super) fn next_round(&mut self, rounds: &Rounds) {
        let current = self.get(rounds.position);
        match rounds.test {
            RoundTest::Below(_) => {}
            RoundTest::Flag { more, order, reduced } => {
                let goes_on = self.op(order, &[current, reduced]);
                self.out.push(Inst::Set(more, goes_on));
            }
        }
        let following = self.op(Op::Add, &[current, rounds.step]);
        self.out.push(Inst::Set(rounds.position, following));
    }
}

/// The test at the start of a `while` iteration: its position and the condition to continue.
fn leading_condition(items: &[Item<'_>]) -> Option<(usize, ValueId)> {
    let at = items.iter().position(|item| !matches!(item.stmt.kind, StmtKind::Def(..)))?;
    let StmtKind::If { condition, then, otherwise } = &items[at].stmt.kind else { return None };
    let breaks = then.is_empty() && matches!(otherwise[..], [Stmt { kind: StmtKind::Break, .. }]);
    breaks.then_some((at, *condition))
}

/// Whether a statement can leave a loop, an iteration or the invocation.
pub(super) fn has_exits(item: &Item<'_>) -> bool {
    matches!(item.stmt.kind, StmtKind::Break | StmtKind::Continue | StmtKind::Return)
        || item.blocks.iter().flatten().any(has_exits)
}
