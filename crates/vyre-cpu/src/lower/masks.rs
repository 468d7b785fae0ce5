//! Masks: which lanes run.
//!
//! There is no mask where all lanes of the vector run. A divergent `if` narrows it for each side. A
//! divergent exit masks its lanes off: a `break` from the loop's live mask, a `continue` from the
//! current iteration, a `return` from every enclosing loop and from the body. After a statement
//! that can mask lanes off, the mask is recomputed from that of its block.

use super::Lowering;
use crate::divergence::Item;
use crate::vector::{Calc, Inst, Reg, RegType, Var, VectorSlot};
use vyre_foundation::ir::Op;
use vyre_foundation::types::Value;

/// Masks at a point of the code; `None` is all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Masks {
    running: Option<Reg>,
    /// The running lanes as narrowed only by exits from the innermost loop.
    in_loop: Option<Reg>,
    /// The running lanes as narrowed only by returns.
    unreturned: Option<Reg>,
    /// Mask of a last, partial vector; it includes at least one lane.
    tail: Option<Reg>,
}

/// Lanes that have finished.
#[derive(Default)]
pub(super) struct Finished {
    /// Lanes that have finished this run of statements.
    pub(super) returned: Option<Var>,
    /// Lanes that stay off in later stretches of the workgroup's work: first those that returned,
    /// then, for each loop of the workgroup, those that skip the rest of an iteration.
    pub(super) off: Vec<Option<VectorSlot>>,
}

impl Masks {
    /// Masks at the start of a vector of invocations.
    pub(super) fn of_vector(tail: Option<Reg>) -> Masks {
        Masks { running: tail, in_loop: tail, unreturned: tail, tail }
    }

    /// Mask of the running lanes.
    pub(super) fn running(self) -> Option<Reg> {
        self.running
    }

    /// Whether every lane of the vector runs.
    pub(super) fn is_all(self) -> bool {
        self.running.is_none()
    }

    /// Whether every lane runs that the vector has, so that at least one does.
    pub(super) fn is_outermost(self) -> bool {
        self.running == self.tail
    }

    /// Whether the running lanes are those that are still in the innermost loop.
    pub(super) fn is_whole_loop(self) -> bool {
        self.running == self.in_loop
    }

    /// Whether a block's mask has every lane that has not returned.
    pub(super) fn is_unreturned(self, block: Option<Reg>) -> bool {
        block == self.unreturned
    }

    /// Masks of a block in which these lanes run.
    pub(super) fn in_block(self, running: Option<Reg>) -> Masks {
        Masks { running, ..self }
    }

    /// Masks of an iteration in which these lanes run.
    pub(super) fn in_iteration(self, running: Option<Reg>) -> Masks {
        Masks { running, in_loop: running, ..self }
    }

    /// Masks outside loops once only these lanes have not returned.
    pub(super) fn after_returns(self, running: Option<Reg>) -> Masks {
        Masks { running, in_loop: running, unreturned: running, ..self }
    }
}

impl<'k> Lowering<'k> {
    /// Runs `fill` with these masks. The masks before it hold again afterwards.
    pub(super) fn in_masks<T>(&mut self, masks: Masks, fill: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(&mut self.masks, masks);
        let result = fill(self);
        self.masks = outer;
        result
    }

    pub(super) fn narrowed(&mut self, mask: Option<Reg>, condition: Reg) -> Reg {
        match mask {
            None => condition,
            Some(mask) => self.op(Op::And, &[mask, condition]),
        }
    }

    /// Returns the mask as a register even where all lanes run.
    pub(super) fn full_mask(&mut self, mask: Option<Reg>) -> Reg {
        match mask {
            Some(mask) => mask,
            None => self.def(RegType::MASK, Calc::Const(Value::Bool(true))),
        }
    }

    pub(super) fn strike(&mut self, var: Var, lanes: Reg) {
        let old = self.get(var);
        let kept = self.op(Op::Not, &[lanes]);
        let new = self.op(Op::And, &[old, kept]);
        self.out.push(Inst::Set(var, new));
    }

    pub(super) fn mark(&mut self, var: Var, lanes: Reg) {
        let old = self.get(var);
        let new = self.op(Op::Or, &[old, lanes]);
        self.out.push(Inst::Set(var, new));
    }

    /// Narrows a block's mask to the lanes still running.
    pub(super) fn still_running(&mut self, block: Option<Reg>) -> Option<Reg> {
        let mut mask = block;
        match self.loops.open.last() {
            Some(state) => {
                let (live, skipped) = (state.live, state.skipped);
                if let Some(live) = live {
                    let live = self.get(live);
                    mask = Some(self.narrowed(mask, live));
                }
                if let Some(skipped) = skipped {
                    let skipped = self.get(skipped);
                    let kept = self.op(Op::Not, &[skipped]);
                    mask = Some(self.narrowed(mask, kept));
                }
            }
            None => {
                if let Some(returned) = self.finished.returned {
                    let returned = self.get(returned);
                    let kept = self.op(Op::Not, &[returned]);
                    mask = Some(self.narrowed(mask, kept));
                }
            }
        }
        mask
    }

    /// Sets up the mask of finished lanes, and masks off those that finished in earlier
    /// stretches.
    pub(super) fn start_returned(&mut self, items: &[Item<'k>]) {
        let slots: Vec<VectorSlot> = self.finished.off.iter().copied().flatten().collect();
        if slots.is_empty() && !items.iter().any(|item| item.marks.kills) {
            return;
        }
        let mut done = self.def(RegType::MASK, Calc::Const(Value::Bool(false)));
        for slot in slots {
            let off = self.recall(slot);
            done = self.op(Op::Or, &[done, off]);
            let on = self.op(Op::Not, &[off]);
            let running = self.narrowed(self.masks.running(), on);
            self.masks = self.masks.after_returns(Some(running));
        }
        let var = self.var(RegType::MASK);
        self.out.push(Inst::Set(var, done));
        self.finished.returned = Some(var);
    }

    /// Marks lanes as finished with this run of statements, and with later ones if there is a slot.
    pub(super) fn done(&mut self, lanes: Reg, slot: Option<VectorSlot>) {
        if let Some(returned) = self.finished.returned {
            self.mark(returned, lanes);
        }
        if let Some(slot) = slot {
            let before = self.recall(slot);
            let now = self.op(Op::Or, &[before, lanes]);
            self.out.push(Inst::Keep(slot, now));
        }
    }
}
