//! Exchanges between the lanes of a subgroup.
//!
//! All operations are built from the ballot and from shuffles of words: float reductions and scans
//! must follow lane order, which the devices' own operations do not guarantee. A lane that does not
//! exist (in the last subgroup of a workgroup) yields zero and is not combined.

use super::Emitter;
use super::build::Expr;
use naga::{BinaryOperator, Expression, GatherMode, ScalarKind, Statement};
use vyre_foundation::kernel::ValueId;
use vyre_foundation::ops::{Combine, Op, SubgroupOp};
use vyre_foundation::types::{Value, ValueType};

impl Emitter<'_> {
    pub(super) fn subgroup(&mut self, op: SubgroupOp, operands: &[ValueId], result: ValueType) -> Expr {
        let args: Vec<Expr> = operands.iter().map(|&operand| self.value(operand)).collect();
        match op {
            SubgroupOp::Size => self.build.u32(self.traits.subgroup_size),
            SubgroupOp::Lane => self.lane(),
            SubgroupOp::Id => {
                self.build.with_u32(BinaryOperator::Divide, self.ids.linear, self.traits.subgroup_size)
            }
            SubgroupOp::Count => {
                let invocations: u32 = self.form.workgroup.iter().product();
                self.build.u32(invocations.div_ceil(self.traits.subgroup_size.max(1)))
            }
            SubgroupOp::Ballot => self.ballot(args[0]),
            SubgroupOp::Broadcast | SubgroupOp::Shuffle => self.shuffle(args[0], args[1], result),
            SubgroupOp::Reduce(combine) => {
                let lanes = self.lane_count();
                self.combined(combine, args[0], result, |this, k| {
                    let k = this.build.u32(k);
                    this.build.binary(BinaryOperator::Less, k, lanes)
                })
            }
            SubgroupOp::Inclusive(combine) => {
                let lane = self.lane();
                self.combined(combine, args[0], result, |this, k| {
                    let k = this.build.u32(k);
                    this.build.binary(BinaryOperator::LessEqual, k, lane)
                })
            }
            SubgroupOp::Exclusive(combine) => {
                let lane = self.lane();
                let below = self.combined(combine, args[0], result, |this, k| {
                    let k = this.build.u32(k);
                    this.build.binary(BinaryOperator::Less, k, lane)
                });
                let identity = self.constant(combine.identity(result));
                let first = self.build.with_u32(BinaryOperator::Equal, lane, 0);
                self.build.select(first, identity, below)
            }
        }
    }

    fn lane(&mut self) -> Expr {
        self.build.with_u32(BinaryOperator::Modulo, self.ids.linear, self.traits.subgroup_size)
    }

    /// Number of lanes in this invocation's subgroup.
    fn lane_count(&mut self) -> Expr {
        let size = self.traits.subgroup_size;
        let invocations: u32 = self.form.workgroup.iter().product();
        let lane = self.lane();
        let first = self.build.binary(BinaryOperator::Subtract, self.ids.linear, lane);
        let invocations = self.build.u32(invocations);
        let left = self.build.binary(BinaryOperator::Subtract, invocations, first);
        let size = self.build.u32(size);
        self.build.math(naga::MathFunction::Min, &[left, size])
    }

    fn ballot(&mut self, predicate: Expr) -> Expr {
        let result = self.build.name(Expression::SubgroupBallotResult);
        self.build.push(Statement::SubgroupBallot { result, predicate: Some(predicate) });
        let [low, high] = [0, 1].map(|word| self.build.component(result, word));
        self.joined(low, high)
    }

    /// The value of the given lane, or zero if the lane does not exist.
    fn shuffle(&mut self, value: Expr, lane: Expr, ty: ValueType) -> Expr {
        let lanes = self.lane_count();
        let exists = self.build.binary(BinaryOperator::Less, lane, lanes);
        let own = self.build.u32(0);
        let lane = self.build.select(exists, lane, own);
        let found = self.shuffled(value, lane, ty);
        let zero = self.constant(Value::zero(ty));
        self.build.select(exists, found, zero)
    }

    /// The value of a lane that exists, moved word by word.
    fn shuffled(&mut self, value: Expr, lane: Expr, ty: ValueType) -> Expr {
        match ty {
            ValueType::U32 => self.shuffled_word(value, lane),
            ValueType::I32 | ValueType::F32 => {
                let bits = self.build.bitcast(value, ScalarKind::Uint);
                let found = self.shuffled_word(bits, lane);
                let kind = if ty == ValueType::I32 { ScalarKind::Sint } else { ScalarKind::Float };
                self.build.bitcast(found, kind)
            }
            ValueType::Bool => {
                let [yes, no] = [1, 0].map(|bit| self.build.u32(bit));
                let bit = self.build.select(value, yes, no);
                let found = self.shuffled_word(bit, lane);
                self.build.with_u32(BinaryOperator::NotEqual, found, 0)
            }
            ValueType::U64 | ValueType::I64 | ValueType::F64 => {
                let [low, high] = self.halves(value, ty).map(|half| self.shuffled_word(half, lane));
                let found = self.joined(low, high);
                match ty {
                    ValueType::I64 => self.build.bitcast(found, ScalarKind::Sint),
                    ValueType::F64 => self.build.bitcast(found, ScalarKind::Float),
                    ValueType::U64 | ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::F32 => {
                        found
                    }
                }
            }
        }
    }

    fn shuffled_word(&mut self, argument: Expr, lane: Expr) -> Expr {
        let ty = self.build.value_ty(ValueType::U32);
        let result = self.build.name(Expression::SubgroupOperationResult { ty });
        self.build.push(Statement::SubgroupGather { mode: GatherMode::Shuffle(lane), argument, result });
        result
    }

    /// Lane 0's value combined with those of the lanes for which `takes_part` holds, in lane order.
    fn combined(
        &mut self,
        combine: Combine,
        value: Expr,
        ty: ValueType,
        mut takes_part: impl FnMut(&mut Self, u32) -> Expr,
    ) -> Expr {
        let first = self.build.u32(0);
        let mut sum = self.shuffled(value, first, ty);
        for k in 1..self.traits.subgroup_size {
            let lane = self.build.u32(k);
            let next = self.shuffled(value, lane, ty);
            let more = self.combine(combine, sum, next, ty);
            let takes_part = takes_part(self, k);
            sum = self.build.select(takes_part, more, sum);
        }
        sum
    }

    fn combine(&mut self, combine: Combine, x: Expr, y: Expr, ty: ValueType) -> Expr {
        match combine {
            Combine::Add => self.build.binary(BinaryOperator::Add, x, y),
            Combine::Mul => self.build.binary(BinaryOperator::Multiply, x, y),
            Combine::Min => self.extreme(Op::Min, [x, y], ty),
            Combine::Max => self.extreme(Op::Max, [x, y], ty),
            Combine::And => self.build.binary(BinaryOperator::And, x, y),
            Combine::Or => self.build.binary(BinaryOperator::InclusiveOr, x, y),
            Combine::Xor => self.build.binary(BinaryOperator::ExclusiveOr, x, y),
        }
    }
}
