//! Two copies of the code of a vector: one for vectors away from borders, one for the rest.

use super::assumptions::Supposed;
use super::{COPIES, LaneValue, Lowering};
use crate::divergence::Item;
use crate::op_groups::Inequality;
use crate::row_walks::compared;
use crate::vector::{Inst, Reg};
use std::collections::BTreeMap;
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::ValueId;
use vyre_foundation::types::{Value, ValueType};

/// Result of a comparison in all lanes and iterations of a loop, provided `when` holds.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) holds: Reg,
    pub(super) when: Reg,
}

/// Affine values that a bounding op keeps affine, provided the conditions hold.
pub(super) struct StillAffine {
    pub(super) base: Reg,
    pub(super) stride: u32,
    pub(super) conditions: Vec<Reg>,
}

impl<'k> Lowering<'k> {
    /// Emits code for vectors whose lanes are all on one side of every border, and code for the
    /// rest; `condition` selects the first.
    pub(super) fn inner_and_border(&mut self, items: &[Item<'k>], condition: &mut Option<Reg>) -> Vec<Inst> {
        self.supposed = Some(Supposed::new());
        let mut inner = self.vector_of_lanes(items, None);
        let supposed = self.supposed.take().unwrap_or_default();
        if !supposed.pays {
            return self.vector_of_lanes(items, None);
        }
        let mut insts = supposed.taken_out_of(&mut inner);
        let all = self.nested(|this| {
            let both =
                |all: Option<Reg>, next: &Reg| Some(all.map_or(*next, |all| this.op(Op::And, &[all, *next])));
            *condition = supposed.conditions.iter().fold(None, both);
        });
        insts.extend(all);
        let otherwise = self.vector_of_lanes(items, None);
        match *condition {
            Some(condition) => insts.push(Inst::If { condition, then: inner, otherwise }),
            None => unreachable!("what pays has a condition"),
        }
        insts
    }

    /// Returns the result of an op for vectors away from borders, if a condition for that can be
    /// computed: the value stays within bounds, a remainder reduces every lane by as much as lane
    /// 0, or a quotient or comparison is the same in all lanes.
    pub(super) fn supposed_op(&mut self, op: Op, args: &[LaneValue]) -> Option<LaneValue> {
        let supposed = self.supposed.as_ref()?;
        let is_known = |lane_value: &LaneValue| match *lane_value {
            LaneValue::Uniform(reg) | LaneValue::Affine { base: reg, .. } => supposed.is_known(reg),
            LaneValue::Spaced { .. } | LaneValue::Varying(_) => false,
        };
        if !args.iter().all(is_known) {
            return None;
        }
        let kept = self.kept_inside(op, args).map(|kept| {
            let StillAffine { base, stride, conditions } = kept;
            (LaneValue::Affine { base, stride }, conditions)
        });
        let kept = kept.or_else(|| self.one_quotient(op, args));
        let pays = kept.is_some();
        let (lane_value, conditions) = match kept {
            Some(kept) => kept,
            None => self.one_outcome(op, args)?,
        };
        if let Some(supposed) = &mut self.supposed {
            supposed.conditions.extend(conditions);
            supposed.pays |= pays;
        }
        Some(lane_value)
    }

    /// Returns the operand of a bounding op where the op changes no lane, or changes all lanes by
    /// the same amount.
    pub(super) fn kept_inside(&mut self, op: Op, args: &[LaneValue]) -> Option<StillAffine> {
        let (base, stride, bounds) = match *args {
            [LaneValue::Affine { base, stride }, LaneValue::Uniform(bound)] => (base, stride, [bound, bound]),
            [LaneValue::Affine { base, stride }, LaneValue::Uniform(low), LaneValue::Uniform(high)] => {
                (base, stride, [low, high])
            }
            [LaneValue::Uniform(bound), LaneValue::Affine { base, stride }] => (base, stride, [bound, bound]),
            _ => return None,
        };
        let steps = self.steps(stride)?;
        let ty = self.reg_type(base).ty;
        if op == Op::Rem {
            let is_first = matches!(args[0], LaneValue::Affine { .. });
            // A vector rarely fits within one period of only a few lanes.
            let is_short =
                self.reg_facts.constants.get(&bounds[0]).is_some_and(|&by| !is_long(by, self.lanes));
            if ty != ValueType::U32 || !is_first || is_short {
                return None;
            }
            let rest = self.op(Op::Rem, &[base, bounds[0]]);
            let [first, start, end] = [base, rest, bounds[0]].map(|reg| self.op(Op::ToI64, &[reg]));
            let most = self.constant(Value::I64(most(ty)));
            let conditions =
                vec![self.last_is(Op::Le, first, steps, most), self.last_is(Op::Lt, start, steps, end)];
            return Some(StillAffine { base: rest, stride, conditions });
        }
        let is_order = (op == Op::Clamp && args.len() == 3) || matches!(op, Op::Min | Op::Max);
        if !is_order {
            return None;
        }
        let [first, low, high] = [base, bounds[0], bounds[1]].map(|reg| self.op(Op::ToI64, &[reg]));
        let end = if op == Op::Max { self.constant(Value::I64(most(ty))) } else { high };
        let mut conditions = vec![self.last_is(Op::Le, first, steps, end)];
        if op != Op::Min {
            conditions.push(self.op(Op::Le, &[low, first]));
        }
        Some(StillAffine { base, stride, conditions })
    }

    /// Returns the quotient that all lanes have, with the conditions for it: those under which a
    /// remainder by the same number reduces every lane by as much as lane 0.
    fn one_quotient(&mut self, op: Op, args: &[LaneValue]) -> Option<(LaneValue, Vec<Reg>)> {
        let (Op::Div, &[LaneValue::Affine { base, .. }, LaneValue::Uniform(by)]) = (op, args) else {
            return None;
        };
        let StillAffine { conditions, .. } = self.kept_inside(Op::Rem, args)?;
        Some((LaneValue::Uniform(self.op(Op::Div, &[base, by])), conditions))
    }

    /// Returns the outcome of a comparison that is the same in all lanes, with the conditions for
    /// it.
    fn one_outcome(&mut self, op: Op, args: &[LaneValue]) -> Option<(LaneValue, Vec<Reg>)> {
        let order = Inequality::of(op)?;
        let (order, base, stride, bound) = match *args {
            [LaneValue::Affine { base, stride }, LaneValue::Uniform(bound)] => (order, base, stride, bound),
            [LaneValue::Uniform(bound), LaneValue::Affine { base, stride }] => {
                (order.mirrored(), base, stride, bound)
            }
            _ => return None,
        };
        let steps = self.steps(stride)?;
        let ty = self.reg_type(base).ty;
        let [first, bound] = [base, bound].map(|reg| self.op(Op::ToI64, &[reg]));
        let most = self.constant(Value::I64(most(ty)));
        let no_wrap = self.last_is(Op::Le, first, steps, most);
        let steps = self.constant(Value::I64(steps));
        let last = self.op(Op::Add, &[first, steps]);
        let outcomes = [first, last].map(|lane| self.op(order.op(), &[lane, bound]));
        let apart = self.op(Op::Xor, &outcomes);
        let one = self.op(Op::Not, &[apart]);
        Some((LaneValue::Uniform(outcomes[0]), vec![no_wrap, one]))
    }

    /// Distance from the first lane to the last, if positive and at most 2^16.
    fn steps(&self, stride: u32) -> Option<i64> {
        let steps = i64::from(self.lanes - 1) * i64::from(stride as i32);
        (1..=1 << 16).contains(&steps).then_some(steps)
    }

    /// Compares the last lane with a bound.
    fn last_is(&mut self, order: Op, first: Reg, steps: i64, bound: Reg) -> Reg {
        let steps = self.constant(Value::I64(steps));
        let last = self.op(Op::Add, &[first, steps]);
        self.op(order, &[last, bound])
    }

    /// Finds comparisons, such as border guards, that have one outcome in all lanes and iterations
    /// of a loop, and the conditions for that.
    pub(super) fn outcomes(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        bounds: [Reg; 3],
    ) -> BTreeMap<ValueId, Outcome> {
        let mut found = BTreeMap::new();
        if !self.masks.is_all() || self.lanes == 1 || !self.decided.is_empty() || self.copies >= COPIES {
            return found;
        }
        let compared = compared(&item.blocks[0], counter, self.kernel);
        let definitions = compared.definitions;
        let at = LaneValue::Uniform(bounds[0]);
        for (value, order, [x, y]) in compared.found {
            let sides = [x, y].map(|side| self.in_round(&definitions, side, counter, at));
            let [Some(x), Some(y)] = sides else { continue };
            if let Some(outcome) = self.outcome(order, [x, y], bounds) {
                found.insert(value, outcome);
            }
        }
        found
    }

    /// Returns the outcome of a comparison in the first iteration, if its varying side only
    /// increases, by one per lane and per iteration.
    fn outcome(
        &mut self,
        order: Inequality,
        sides: [LaneValue; 2],
        [from, to, _]: [Reg; 3],
    ) -> Option<Outcome> {
        let [LaneValue::Affine { base, stride: 1 }, LaneValue::Uniform(bound)] = sides else { return None };
        let ty = self.reg_type(base).ty;
        let [first, bound, from, to] = [base, bound, from, to].map(|reg| self.op(Op::ToI64, &[reg]));
        let rounds = self.op(Op::Sub, &[to, from]);
        let others = self.constant(Value::I64(i64::from(self.lanes) - 2));
        let reach = self.op(Op::Add, &[rounds, others]);
        let last = self.op(Op::Add, &[first, reach]);
        let most = self.constant(Value::I64(most(ty)));
        let no_wrap = self.op(Op::Le, &[last, most]);
        let outcomes = [first, last].map(|lane| self.op(order.op(), &[lane, bound]));
        let apart = self.op(Op::Xor, &outcomes);
        let one = self.op(Op::Not, &[apart]);
        Some(Outcome { holds: outcomes[0], when: self.op(Op::And, &[no_wrap, one]) })
    }
}

/// Whether a divisor spans several vectors.
fn is_long(divisor: Value, lanes: u32) -> bool {
    divisor.as_u32().is_some_and(|divisor| divisor >= 4 * lanes)
}

/// Greatest value of a 32-bit integer type.
fn most(ty: ValueType) -> i64 {
    if ty == ValueType::U32 { u32::MAX.into() } else { i32::MAX.into() }
}
