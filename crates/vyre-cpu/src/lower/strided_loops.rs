//! Counted loops whose lanes start at different, evenly spaced counters.
//!
//! Lanes that share step and end run without masks while the last lane has an iteration. Lanes
//! whose ends are spaced like their starts have the same number of iterations. Iterations left over
//! run under masks.

use super::loops::has_exits;
use super::tiled_loops::Tiled;
use super::{LaneValue, Lowering};
use crate::divergence::Item;
use crate::vector::{Inst, Reg, RegType, Var};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::ValueId;
use vyre_foundation::types::{Value, ValueType};

/// A counted loop whose counter is a `u32` that starts at `base` in lane 0 and `stride` higher in
/// each next lane.
#[derive(Clone, Copy)]
pub(super) struct Across {
    base: Reg,
    stride: u32,
    to: Reg,
    step: Reg,
}

/// A counted loop with step one whose lane k runs from `from` to `to`, both plus k times `stride`.
#[derive(Clone, Copy)]
pub(super) struct Abreast {
    from: Reg,
    to: Reg,
    stride: Reg,
}

impl<'k> Lowering<'k> {
    /// Recognises a loop with an affine counter: lanes start at a constant distance and share step
    /// and end.
    pub(super) fn across(&mut self, item: &Item<'k>, [from, to, step]: [ValueId; 3]) -> Option<Across> {
        if self.kernel.ty(from) != ValueType::U32 || item.blocks[0].iter().any(has_exits) {
            return None;
        }
        let LaneValue::Affine { base, stride } = self.value(from) else { return None };
        let (LaneValue::Uniform(to), LaneValue::Uniform(step)) = (self.value(to), self.value(step)) else {
            return None;
        };
        Some(Across { base, stride, to, step })
    }

    /// While the last lane has an iteration, all lanes do, so those iterations need no mask. The
    /// rest run under masks.
    pub(super) fn counted_across(&mut self, item: &Item<'k>, counter: ValueId, across: Across) {
        let start = self.op(Op::ToU64, &[across.base]);
        let position = self.var(RegType { ty: ValueType::U64, vector: false });
        self.out.push(Inst::Set(position, start));
        if self.masks.is_all() {
            self.rounds_of_all(item, counter, across, position);
        }
        let position = self.get(position);
        self.rounds_of_some(item, counter, across, [start, position]);
    }

    /// Iterations that every lane has. Positions are exact: they stay below 2^33.
    fn rounds_of_all(&mut self, item: &Item<'k>, counter: ValueId, across: Across, position: Var) {
        let Across { stride, to, step, .. } = across;
        let (to, step) = (self.op(Op::ToU64, &[to]), self.op(Op::ToU64, &[step]));
        let reach = self.constant(Value::U64(u64::from(stride) * u64::from(self.lanes - 1)));
        // The masked iterations belong to the same loop.
        self.first_copy(|this| {
            let state = this.start_unmasked();
            let body = this.loop_body(item, state, |this| {
                let current = this.get(position);
                let base = this.op(Op::ToU32, &[current]);
                this.define(counter, LaneValue::Affine { base, stride });
                let last = this.op(Op::Add, &[current, reach]);
                Some(this.op(Op::Lt, &[last, to]))
            });
            let next = this.nested(|this| {
                let current = this.get(position);
                let following = this.op(Op::Add, &[current, step]);
                this.out.push(Inst::Set(position, following));
            });
            this.out.push(Inst::Loop { body, next, rest: false });
        });
    }

    /// Iterations under masks, starting at `position`. The tests avoid wrapped counters, since a
    /// counter past 2^32 would look small: the loop's first iteration compares the start value with
    /// the end; each later one compares the previous value, which has not wrapped, with the end
    /// minus the step.
    fn rounds_of_some(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        across: Across,
        [start, position]: [Reg; 2],
    ) {
        let Across { base, stride, to, step } = across;
        let reduced = self.op(Op::SatSub, &[to, step]);
        let here = self.op(Op::ToU32, &[position]);
        let before = self.op(Op::Sub, &[here, step]);
        let at_start = self.op(Op::Eq, &[start, position]);
        let (asked, limit) =
            (self.op(Op::Select, &[at_start, base, before]), self.op(Op::Select, &[at_start, to, reduced]));
        let u32 = RegType { ty: ValueType::U32, vector: false };
        let [position, asked, limit] = [here, asked, limit].map(|start| {
            let var = self.var(u32);
            self.out.push(Inst::Set(var, start));
            var
        });
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let base = this.get(position);
            this.define(counter, LaneValue::Affine { base, stride });
            let base = this.get(asked);
            let asked = this.register(LaneValue::Affine { base, stride });
            let limit = this.get(limit);
            Some(this.op(Op::Lt, &[asked, limit]))
        });
        let next = self.nested(|this| {
            let current = this.get(position);
            this.out.push(Inst::Set(asked, current));
            this.out.push(Inst::Set(limit, reduced));
            let following = this.op(Op::Add, &[current, step]);
            this.out.push(Inst::Set(position, following));
        });
        self.out.push(Inst::Loop { body, next, rest: true });
    }

    /// Recognises a loop whose starts and ends have the same stride across lanes, so that all lanes
    /// have the same number of iterations: rows of equal length.
    pub(super) fn abreast(&mut self, item: &Item<'k>, [from, to, step]: [ValueId; 3]) -> Option<Abreast> {
        if self.kernel.ty(from) != ValueType::U32 || item.blocks[0].iter().any(has_exits) {
            return None;
        }
        let LaneValue::Uniform(step) = self.value(step) else { return None };
        if self.reg_facts.constants.get(&step) != Some(&Value::U32(1)) {
            return None;
        }
        let (from, stride, to) = match (self.value(from), self.value(to)) {
            (LaneValue::Spaced { base, stride }, LaneValue::Spaced { base: to, stride: same })
                if stride == same =>
            {
                (base, stride, to)
            }
            (LaneValue::Affine { base, stride }, LaneValue::Affine { base: to, stride: same })
                if stride == same =>
            {
                (base, self.constant(Value::U32(stride)), to)
            }
            _ => return None,
        };
        Some(Abreast { from, to, stride })
    }

    /// Runs the same number of iterations in all lanes unless a lane's counter wraps; remaining
    /// iterations run under masks.
    pub(super) fn counted_abreast(&mut self, item: &Item<'k>, counter: ValueId, abreast: Abreast) {
        let Abreast { from, to, stride } = abreast;
        let position = self.var(RegType { ty: ValueType::U32, vector: false });
        self.out.push(Inst::Set(position, from));
        if self.masks.is_all() {
            let [first, end, apart] = [from, to, stride].map(|reg| self.op(Op::ToU64, &[reg]));
            let others = self.constant(Value::U64(u64::from(self.lanes - 1)));
            let reach = self.op(Op::Mul, &[apart, others]);
            let farthest = self.op(Op::Max, &[first, end]);
            let farthest = self.op(Op::Add, &[farthest, reach]);
            let most = self.constant(Value::U64(u32::MAX.into()));
            let no_wrap = self.op(Op::Le, &[farthest, most]);
            // If a lane's counter wraps, the end equals the start and no unmasked iteration runs.
            let end = self.op(Op::Select, &[no_wrap, to, from]);
            if let Some(walks) = self.walks(item, counter, LaneValue::Spaced { base: from, stride }) {
                let tiled = Tiled { position, to: end, stride: Some(stride) };
                self.rounds_in_tiles(item, counter, &walks, tiled);
            }
            self.rounds_abreast(item, counter, Abreast { from, to: end, stride }, position);
        }
        let base = self.get(position);
        let rest = self.masks.is_all();
        let start = self.register(LaneValue::Spaced { base, stride });
        let end = self.register(LaneValue::Spaced { base: to, stride });
        let step = self.constant(Value::U32(1));
        let rounds = self.start_rounds([start, end, step]);
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let current = this.get(rounds.position);
            this.define(counter, LaneValue::Varying(current));
            Some(this.has_round(&rounds, current))
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest });
    }

    /// Iterations of all lanes together.
    fn rounds_abreast(&mut self, item: &Item<'k>, counter: ValueId, abreast: Abreast, position: Var) {
        let Abreast { to, stride, .. } = abreast;
        // The masked iterations belong to the same loop.
        self.first_copy(|this| {
            let state = this.start_unmasked();
            let body = this.loop_body(item, state, |this| {
                let base = this.get(position);
                this.define(counter, LaneValue::Spaced { base, stride });
                Some(this.op(Op::Lt, &[base, to]))
            });
            let next = this.nested(|this| {
                let current = this.get(position);
                let one = this.constant(Value::U32(1));
                let following = this.op(Op::Add, &[current, one]);
                this.out.push(Inst::Set(position, following));
            });
            this.out.push(Inst::Loop { body, next, rest: false });
        });
    }
}
