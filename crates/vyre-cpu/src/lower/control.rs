//! One vector of invocations: its statements and branches.

use super::masks::Masks;
use super::{COPIES, LaneValue, Lowering, Tail};
use crate::divergence::{Item, Marks};
use crate::vector::{Calc, Inst, Reg, RegType, Source, Var};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{Def, StmtKind, ValueId};
use vyre_foundation::types::{Value, ValueType};

impl<'k> Lowering<'k> {
    /// Lowers all of `items` for one vector of invocations.
    pub(super) fn vector_of_lanes(&mut self, items: &[Item<'k>], tail: Option<Tail>) -> Vec<Inst> {
        let storage = self.locals.storage.clone();
        let values = std::mem::replace(&mut self.values.lane_values, vec![None; self.kernel.values.len()]);
        // The full and the partial form contain the same loops and declare separate variables.
        let insts = self.first_copy(|this| {
            this.nested(|this| {
                let tail = tail.map(|tail| this.lanes_left(tail));
                this.in_masks(Masks::of_vector(tail), |this| {
                    this.borrow_locals(items);
                    this.start_returned(items);
                    this.block(items);
                    this.return_locals();
                });
            })
        });
        self.finished.returned = None;
        self.locals.borrowed.clear();
        self.locals.storage = storage;
        self.values.lane_values = values;
        insts
    }

    /// Mask of a last vector that is not full.
    fn lanes_left(&mut self, tail: Tail) -> Reg {
        let numbers = self.lane_numbers();
        let count = match tail {
            Tail::Row => self.scalar(ValueType::U32, Calc::Source(Source::Remaining)),
            Tail::Group(count) => self.constant(Value::U32(count)),
        };
        self.op(Op::Lt, &[numbers, count])
    }

    /// Ends this vector of invocations.
    fn end_lanes(&mut self) -> Vec<Inst> {
        self.nested(|this| {
            this.return_locals();
            this.out.push(Inst::EndLanes);
        })
    }

    pub(super) fn block(&mut self, items: &[Item<'k>]) {
        let block = self.masks.running();
        for (number, item) in items.iter().enumerate() {
            self.item(item);
            if item.marks.kills && number + 1 < items.len() {
                let running = self.still_running(block);
                self.masks = self.masks.in_block(running);
                self.end_if_none(block);
            }
        }
    }

    /// Ends the vector of invocations once no lane runs. Only applies where the block contains
    /// every lane that has not returned.
    fn end_if_none(&mut self, block: Option<Reg>) {
        if self.loops.open.is_empty()
            && self.masks.is_unreturned(block)
            && let Some(running) = self.masks.running()
        {
            let any = self.any(running);
            let otherwise = self.end_lanes();
            self.out.push(Inst::If { condition: any, then: Vec::new(), otherwise });
            self.masks = self.masks.after_returns(Some(running));
        }
    }

    pub(super) fn item(&mut self, item: &Item<'k>) {
        let outer = std::mem::replace(&mut self.region, item.region);
        self.statement(item);
        self.region = outer;
    }

    fn statement(&mut self, item: &Item<'k>) {
        match &item.stmt.kind {
            StmtKind::Def(value, def) => {
                let lane_value = self.calculate(*value, def);
                self.define(*value, lane_value);
            }
            StmtKind::Set(local, value) => self.set_local(*local, *value),
            StmtKind::Clear(array) => {
                self.out.push(Inst::Clear { array: array.0, mask: self.masks.running() })
            }
            StmtKind::Store { place, index, value, in_bounds } => {
                self.store(*place, *index, *value, *in_bounds);
            }
            StmtKind::If { condition, .. } => self.conditional(item, *condition),
            StmtKind::For { .. } => self.counted(item),
            StmtKind::Loop(_) => self.looped(item),
            StmtKind::Break => self.leave_loop(item.marks),
            StmtKind::Continue => self.skip_round(item.marks),
            StmtKind::Return => self.end_invocation(item.marks),
            StmtKind::Region { .. } => self.block(&item.blocks[0]),
            StmtKind::Trap(code) => self.trap(*code),
            StmtKind::Barrier => unreachable!("a barrier is met between vectors, not in one"),
        }
    }

    fn trap(&mut self, code: u32) {
        // The mask can be empty if the enclosing branch was too cheap to test.
        match self.masks.running() {
            None => self.out.push(Inst::Trap(code)),
            Some(mask) => {
                let condition = self.any(mask);
                self.out.push(Inst::If { condition, then: vec![Inst::Trap(code)], otherwise: Vec::new() });
            }
        }
    }

    fn conditional(&mut self, item: &Item<'k>, condition: ValueId) {
        let (then, otherwise) = (&item.blocks[0], &item.blocks[1]);
        let condition = match self.value(condition) {
            LaneValue::Uniform(condition) => {
                let then = self.branch(then, self.masks.running());
                let otherwise = self.branch(otherwise, self.masks.running());
                self.out.push(Inst::If { condition, then, otherwise });
                return;
            }
            LaneValue::Varying(condition) => condition,
            LaneValue::Affine { .. } | LaneValue::Spaced { .. } => unreachable!("a condition is bool"),
        };
        let may_be_all = !self.reg_facts.partial.contains(&condition) || !otherwise.is_empty();
        if self.masks.is_all() && may_be_all && self.copies < COPIES && is_worth_copies(then, otherwise) {
            return self.three_ways(then, otherwise, condition);
        }
        let running = self.masks.running();
        if !then.is_empty() {
            let mask = self.narrowed(running, condition);
            self.masked(then, mask);
        }
        if !otherwise.is_empty() {
            let condition = self.op(Op::Not, &[condition]);
            let mask = self.narrowed(running, condition);
            self.masked(otherwise, mask);
        }
    }

    /// A divergent `if` where all lanes run: most vectors take one side as a whole and need no
    /// masks.
    fn three_ways(&mut self, then: &[Item<'k>], otherwise: &[Item<'k>], condition: Reg) {
        self.copies += 1;
        let (all_then, all_otherwise) =
            self.first_copy(|this| (this.branch(then, None), this.branch(otherwise, None)));
        let apart = self.nested(|this| {
            this.in_mask(then, condition);
            if !otherwise.is_empty() {
                let mask = this.op(Op::Not, &[condition]);
                this.in_mask(otherwise, mask);
            }
        });
        self.copies -= 1;
        let all = self.def(RegType::CONDITION, Calc::All(condition));
        let mixed = self.nested(|this| {
            let any = this.any(condition);
            this.out.push(Inst::If { condition: any, then: apart, otherwise: all_otherwise });
        });
        self.out.push(Inst::If { condition: all, then: all_then, otherwise: mixed });
    }

    /// Lowers statements under a mask without a branch around them.
    fn in_mask(&mut self, items: &[Item<'k>], mask: Reg) {
        self.in_masks(self.masks.in_block(Some(mask)), |this| this.block(items));
    }

    fn branch(&mut self, items: &[Item<'k>], running: Option<Reg>) -> Vec<Inst> {
        let masks = self.masks.in_block(running);
        self.nested(|this| this.in_masks(masks, |this| this.block(items)))
    }

    /// One side of a divergent `if`: branched over where no lane takes it, unless it costs less
    /// than the test.
    fn masked(&mut self, items: &[Item<'k>], mask: Reg) {
        if is_cheap(items) {
            return self.in_mask(items, mask);
        }
        let then = self.branch(items, Some(mask));
        let condition = self.any(mask);
        self.out.push(Inst::If { condition, then, otherwise: Vec::new() });
    }

    fn leave_loop(&mut self, marks: Marks) {
        if !marks.divergent {
            return self.out.push(Inst::Break);
        }
        let lanes = self.full_mask(self.masks.running());
        let live = self.loops.open.last().and_then(|state| state.live);
        let Some(live) = live else { unreachable!("a loop that lanes leave alone has a mask") };
        self.strike(live, lanes);
    }

    fn skip_round(&mut self, marks: Marks) {
        if !marks.divergent {
            return self.out.push(Inst::Continue);
        }
        let lanes = self.full_mask(self.masks.running());
        match self.loops.open.last().map(|state| state.skipped) {
            Some(Some(skipped)) => self.mark(skipped, lanes),
            Some(None) => unreachable!("a loop whose rounds lanes skip has a mask"),
            // The loop belongs to the workgroup, and no barrier follows in this iteration.
            None => {
                let slot = self.finished.off.last().copied().flatten();
                self.done(lanes, slot);
            }
        }
    }

    fn end_invocation(&mut self, marks: Marks) {
        if !marks.divergent {
            let end = self.end_lanes();
            return self.out.extend(end);
        }
        let lanes = self.full_mask(self.masks.running());
        let live: Vec<Var> = self.loops.open.iter().filter_map(|state| state.live).collect();
        for var in live {
            self.strike(var, lanes);
        }
        let slot = self.finished.off.first().copied().flatten();
        self.done(lanes, slot);
    }
}

/// Whether a side of an `if` costs less than a test and a branch: a few ops and writes of locals.
fn is_cheap(items: &[Item<'_>]) -> bool {
    // With 0, the code of three benchmarks grows by the tests; from 6 to 24, all have the same
    // code.
    const FEW: usize = 12;
    items.len() <= FEW
        && items.iter().all(|item| match &item.stmt.kind {
            StmtKind::Def(_, Def::Const(_) | Def::Get(_) | Def::Op(..) | Def::Len(_) | Def::Builtin(..))
            | StmtKind::Set(..)
            | StmtKind::Break
            | StmtKind::Continue => true,
            StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..))
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::If { .. }
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => false,
        })
}

/// Whether the sides of an `if` benefit from a copy without masks: they access memory, and are
/// short or consist of accesses to a large part.
fn is_worth_copies(then: &[Item<'_>], otherwise: &[Item<'_>]) -> bool {
    // The stencils (`blur`, `erode`) have 25 to 48 statements. With 192, the code of `mandelbrot`
    // grows by 2 KiB, whose lanes diverge anyway.
    const SHORT: usize = 96;
    // The inside of a filter of 5 by 5 weights has 170 statements, of which 53 are accesses, each
    // several times as long with a mask; one of 7 by 7 has 320 and 101, larger ones keep a loop.
    // `mandelbrot` and `black_scholes` have fewer accesses, and their code does not change.
    const LONG: usize = 512;
    const STATEMENTS_PER_ACCESS: usize = 16;
    let total = |count: fn(&Item<'_>) -> usize| then.iter().chain(otherwise).map(count).sum::<usize>();
    let (statements, accesses) = (total(size), total(accesses));
    let is_dense = statements <= LONG && statements <= STATEMENTS_PER_ACCESS * accesses;
    accesses > 0 && (statements <= SHORT || is_dense)
}

/// Number of accesses to memory.
fn accesses(item: &Item<'_>) -> usize {
    let own = matches!(
        item.stmt.kind,
        StmtKind::Store { .. } | StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. })
    );
    usize::from(own) + item.blocks.iter().flatten().map(accesses).sum::<usize>()
}

/// Number of statements.
pub(super) fn size(item: &Item<'_>) -> usize {
    1 + item.blocks.iter().flatten().map(size).sum::<usize>()
}
