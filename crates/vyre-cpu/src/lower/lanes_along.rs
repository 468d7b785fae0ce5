//! Loops whose iterations are the lanes.

use super::control::size;
use super::{LaneValue, Lowering, ValueStorage};
use crate::divergence::Item;
use crate::row_reductions::Reduced;
use crate::vector::{Calc, Inst, Reg, RegType, Var};
use vyre_foundation::ir::{Combine, Op, SubgroupOp};
use vyre_foundation::kernel::{Def, StmtKind, ValueId};
use vyre_foundation::types::{Value, ValueType};

/// Vectors of iterations that are summed apart from the others.
const VECTORS: u32 = 8;

/// Whether a loop only sums words, with a few statements per iteration.
fn sums_little(locals: &[Reduced], item: &Item<'_>) -> bool {
    // From 12 to any number, the same benchmarks (`characters`, `spaces`) sum bytes apart; longer
    // bodies hide the latency of a sum themselves.
    const FEW: usize = 24;
    locals.iter().all(|reduced| reduced.combine == Combine::Add) && size(item) <= FEW
}

impl<'k> Lowering<'k> {
    /// A loop whose iterations are the lanes while there are enough of them; the others follow one
    /// by one.
    pub(super) fn counted_along(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        [from, to, step]: [Reg; 3],
        (lanes, locals): (u32, Vec<Reduced>),
    ) {
        let position = self.var(RegType { ty: ValueType::U32, vector: false });
        self.out.push(Inst::Set(position, from));
        let storage: Vec<ValueStorage> =
            locals.iter().map(|reduced| self.local_storage(reduced.local)).collect();
        let partial: Vec<Var> = locals.iter().map(|reduced| self.start_sum(*reduced)).collect();
        for reduced in &locals {
            self.locals.facts.uniform[reduced.local.index()] = false;
        }
        let invocations = std::mem::replace(&mut self.lanes, lanes);
        if sums_little(&locals, item) && self.loads_narrow(item) {
            self.several_along(item, counter, (to, position), (&locals, &partial));
        }
        self.vectors_along(item, counter, to, position);
        self.lanes = invocations;
        for ((&Reduced { local, combine }, &var), &storage) in locals.iter().zip(&partial).zip(&storage) {
            self.locals.storage[local.index()] = Some(storage);
            self.locals.facts.uniform[local.index()] = true;
            let ty = self.kernel.locals[local.index()].ty;
            let calc =
                Calc::Subgroup { op: SubgroupOp::Reduce(combine), operands: vec![self.get(var)], mask: None };
            let all = self.def(RegType { ty, vector: true }, calc);
            let all = self.scalar(ty, Calc::First(all));
            let before = self.read_local(local);
            let after = self.op(combine.op(), &[before, all]);
            if let ValueStorage::Var(var) = storage {
                self.out.push(Inst::Set(var, after));
            }
        }
        let from = self.get(position);
        self.rounds(item, counter, [from, to, step]);
        if let Some(Inst::Loop { rest, .. }) = self.out.last_mut() {
            *rest = true;
        }
    }

    /// Whether an iteration loads elements narrower than a lane.
    fn loads_narrow(&self, item: &Item<'k>) -> bool {
        item.blocks[0].iter().any(|item| match &item.stmt.kind {
            StmtKind::Def(_, Def::Load { place, .. }) => self.kernel.element(*place).size() < 4,
            _ => false,
        })
    }

    /// Iterations in several vectors at a time, whose sums start at zero: they stay small enough
    /// for narrow lanes where the summands are. The order of a sum of integers does not matter.
    fn several_along(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        (to, position): (Reg, Var),
        (locals, partial): (&[Reduced], &[Var]),
    ) {
        let (lanes, all) = (self.lanes, self.lanes * VECTORS);
        let end = self.end_of_whole(position, to, all);
        self.first_copy(|this| {
            let state = this.start_unmasked();
            this.loops.open.push(state);
            let body = this.nested(|this| {
                let base = this.get(position);
                let condition = this.op(Op::Lt, &[base, end]);
                this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
                let sums: Vec<Var> = locals.iter().map(|reduced| this.start_sum(*reduced)).collect();
                for number in 0..VECTORS {
                    let distance = this.constant(Value::U32(number * lanes));
                    let base = this.op(Op::Add, &[base, distance]);
                    this.define(counter, LaneValue::Affine { base, stride: 1 });
                    this.in_masks(this.masks, |this| this.block(&item.blocks[0]));
                }
                for ((reduced, &sum), &total) in locals.iter().zip(&sums).zip(partial) {
                    let both = [this.get(total), this.get(sum)];
                    let after = this.op(reduced.combine.op(), &both);
                    this.out.push(Inst::Set(total, after));
                    this.locals.storage[reduced.local.index()] = Some(ValueStorage::Var(total));
                }
            });
            this.loops.open.pop();
            let next = this.nested(|this| this.count_up(position, all));
            this.out.push(Inst::Loop { body, next, rest: false });
        });
    }

    /// Returns the last position up to which whole blocks of iterations go; the size of a block is
    /// a power of two.
    fn end_of_whole(&mut self, position: Var, to: Reg, size: u32) -> Reg {
        let base = self.get(position);
        let left = self.op(Op::SatSub, &[to, base]);
        let kept = self.constant(Value::U32(!(size - 1)));
        let whole = self.op(Op::And, &[left, kept]);
        self.op(Op::Add, &[base, whole])
    }

    /// Sets up a variable for a part of a reduction, as the local's home.
    fn start_sum(&mut self, Reduced { local, combine }: Reduced) -> Var {
        let ty = self.kernel.locals[local.index()].ty;
        let identity = self.def(RegType { ty, vector: true }, Calc::Const(combine.identity(ty)));
        let var = self.var(RegType { ty, vector: true });
        self.out.push(Inst::Set(var, identity));
        self.locals.storage[local.index()] = Some(ValueStorage::Var(var));
        var
    }

    /// Iterations in vectors.
    fn vectors_along(&mut self, item: &Item<'k>, counter: ValueId, to: Reg, position: Var) {
        let end = self.end_of_whole(position, to, self.lanes);
        // The remaining iterations belong to the same loop.
        self.first_copy(|this| {
            let state = this.start_unmasked();
            let lanes = this.lanes;
            let body = this.loop_body(item, state, |this| {
                let base = this.get(position);
                this.define(counter, LaneValue::Affine { base, stride: 1 });
                Some(this.op(Op::Lt, &[base, end]))
            });
            let next = this.nested(|this| this.count_up(position, lanes));
            this.out.push(Inst::Loop { body, next, rest: false });
        });
    }
}
