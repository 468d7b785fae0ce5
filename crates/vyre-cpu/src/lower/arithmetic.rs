//! Ops on scalars, affine and evenly spaced values, and vectors.

use super::{LaneValue, Lowering};
use crate::vector::Reg;
use vyre_foundation::ir::Op;
use vyre_foundation::types::{Value, ValueType};

impl<'k> Lowering<'k> {
    /// Lowers an op on values of the lanes.
    pub(super) fn calculated(&mut self, op: Op, lane_value: &[LaneValue]) -> LaneValue {
        if let Some(affine) = self.affine_op(op, lane_value) {
            return affine;
        }
        if let Some(spaced) = self.spaced_op(op, lane_value) {
            return spaced;
        }
        if let Some(supposed) = self.supposed_op(op, lane_value) {
            return supposed;
        }
        if let Some(compared) = self.aligned_comparison(op, lane_value) {
            return compared;
        }
        let args: Vec<Reg> = lane_value.iter().map(|&lane_value| self.register(lane_value)).collect();
        let reg = self.op(op, &args);
        if let Some(mostly) = self.mostly_op(op, lane_value, &args) {
            self.reg_facts.mostly.insert(reg, mostly);
        }
        self.lane_value(reg)
    }

    /// Ops that keep a value affine; arithmetic wraps, so they are exact.
    fn affine_op(&mut self, op: Op, args: &[LaneValue]) -> Option<LaneValue> {
        use LaneValue::{Affine, Uniform};
        match (op, args) {
            (Op::Add, &[Affine { base, stride }, Uniform(other)])
            | (Op::Add, &[Uniform(other), Affine { base, stride }]) => {
                Some(Affine { base: self.op(Op::Add, &[base, other]), stride })
            }
            (Op::Add, &[Affine { base, stride }, Affine { base: other, stride: step }]) => {
                Some(Affine { base: self.op(Op::Add, &[base, other]), stride: stride.wrapping_add(step) })
            }
            (Op::Sub, &[Affine { base, stride }, Uniform(other)]) => {
                Some(Affine { base: self.op(Op::Sub, &[base, other]), stride })
            }
            (Op::Sub, &[Uniform(other), Affine { base, stride }]) => {
                Some(Affine { base: self.op(Op::Sub, &[other, base]), stride: stride.wrapping_neg() })
            }
            (Op::Mul, &[Affine { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Affine { base, stride }]) => {
                let factor = self.reg_facts.constants.get(&other)?.to_bits() as u32;
                Some(Affine { base: self.op(Op::Mul, &[base, other]), stride: stride.wrapping_mul(factor) })
            }
            (Op::Shl, &[Affine { base, stride }, Uniform(count)]) => {
                let places = self.reg_facts.constants.get(&count)?.as_u32()?;
                Some(Affine { base: self.op(Op::Shl, &[base, count]), stride: stride.wrapping_shl(places) })
            }
            (Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32, &[Affine { base, stride }]) => {
                Some(Affine { base: self.op(op, &[base]), stride })
            }
            _ => None,
        }
    }

    /// Ops that keep lanes evenly spaced by a scalar known only at dispatch; arithmetic wraps, so
    /// they are exact.
    fn spaced_op(&mut self, op: Op, args: &[LaneValue]) -> Option<LaneValue> {
        use LaneValue::{Affine, Spaced, Uniform};
        let (base, stride) = match (op, args) {
            (Op::Mul, &[Affine { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Affine { base, stride }]) => {
                let stride = self.constant(Value::U32(stride));
                (self.op(Op::Mul, &[base, other]), self.times(stride, other))
            }
            (Op::Mul, &[Spaced { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Spaced { base, stride }]) => {
                (self.op(Op::Mul, &[base, other]), self.times(stride, other))
            }
            (Op::Add, &[Spaced { base, stride }, Uniform(other)])
            | (Op::Add, &[Uniform(other), Spaced { base, stride }]) => {
                (self.op(Op::Add, &[base, other]), stride)
            }
            (Op::Sub, &[Spaced { base, stride }, Uniform(other)]) => {
                (self.op(Op::Sub, &[base, other]), stride)
            }
            (Op::Add | Op::Sub, &[Spaced { base, stride }, Affine { base: other, stride: step }]) => {
                let step = self.constant(Value::U32(step));
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::Add | Op::Sub, &[Affine { base, stride }, Spaced { base: other, stride: step }]) => {
                let stride = self.constant(Value::U32(stride));
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::Add | Op::Sub, &[Spaced { base, stride }, Spaced { base: other, stride: step }]) => {
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32, &[Spaced { base, stride }]) => {
                (self.op(op, &[base]), stride)
            }
            _ => return None,
        };
        Some(Spaced { base, stride })
    }

    /// Multiplies a stride by a scalar of any 32-bit type.
    fn times(&mut self, stride: Reg, by: Reg) -> Reg {
        let by = match self.reg_type(by).ty {
            ValueType::U32 => by,
            _ => self.op(Op::ToU32, &[by]),
        };
        if self.reg_facts.constants.get(&stride) == Some(&Value::U32(1)) {
            return by;
        }
        self.op(Op::Mul, &[stride, by])
    }

    /// Compares consecutive lanes that start at a multiple of the lane count with a constant. If
    /// the constant is a multiple as well, all lanes are on one side of it; if it is less than one
    /// vector, the lanes are never all below it. Tree reductions are full of these comparisons.
    fn aligned_comparison(&mut self, op: Op, args: &[LaneValue]) -> Option<LaneValue> {
        use LaneValue::{Affine, Uniform};
        let (order, base, bound) = match (op, args) {
            (Op::Lt | Op::Ge, &[Affine { base, stride: 1 }, Uniform(bound)]) => (op, base, bound),
            (Op::Gt, &[Uniform(bound), Affine { base, stride: 1 }]) => (Op::Lt, base, bound),
            (Op::Le, &[Uniform(bound), Affine { base, stride: 1 }]) => (Op::Ge, base, bound),
            _ => return None,
        };
        let Some(&Value::U32(limit)) = self.reg_facts.constants.get(&bound) else { return None };
        if !self.reg_facts.aligned.contains(&base) {
            return None;
        }
        if limit.is_multiple_of(self.lanes) {
            return Some(Uniform(self.op(order, &[base, bound])));
        }
        let lanes = self.register(Affine { base, stride: 1 });
        let compared = self.op(order, &[lanes, bound]);
        if order == Op::Lt && limit < self.lanes {
            self.reg_facts.partial.insert(compared);
        }
        Some(LaneValue::Varying(compared))
    }

    /// Recognises results whose lanes are usually consecutive: returns the value of lane 0 and the
    /// condition for it. Values kept inside bounds qualify, as do their sums with a scalar.
    fn mostly_op(&mut self, op: Op, lane_value: &[LaneValue], args: &[Reg]) -> Option<(Reg, Reg)> {
        let known = |this: &Self, at: usize| this.reg_facts.mostly.get(args.get(at)?).copied();
        match op {
            Op::Min | Op::Max | Op::Clamp | Op::Rem => {
                let kept = self.kept_inside(op, lane_value).filter(|kept| kept.stride == 1)?;
                let mut conditions = kept.conditions.into_iter();
                let first = conditions.next()?;
                Some((kept.base, conditions.fold(first, |all, next| self.op(Op::And, &[all, next]))))
            }
            Op::Add | Op::Sub if matches!(lane_value[1], LaneValue::Uniform(_)) => {
                let (base, when) = known(self, 0)?;
                Some((self.op(op, &[base, args[1]]), when))
            }
            Op::Add if matches!(lane_value[0], LaneValue::Uniform(_)) => {
                let (base, when) = known(self, 1)?;
                Some((self.op(op, &[args[0], base]), when))
            }
            Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => {
                let (base, when) = known(self, 0)?;
                Some((self.op(op, &[base]), when))
            }
            _ => None,
        }
    }
}
