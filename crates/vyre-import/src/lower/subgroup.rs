//! Subgroup exchanges.

use super::scalar_type::ScalarType;
use super::{Lower, Value};
use crate::fault::Result;
use naga::{CollectiveOperation, Expression, GatherMode, Handle, SubgroupOperation};
use vyre_foundation::ir::{Combine, Expr, SubgroupOp};

impl<'m> Lower<'m> {
    /// Lanes in which a condition holds, as four words.
    pub(super) fn ballot(
        &mut self,
        predicate: Option<Handle<Expression>>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let condition = match predicate {
            Some(predicate) => self.leaf(predicate)?,
            None => Expr::bool(true),
        };
        let lanes = self.name_it("ballot", Expr::subgroup(SubgroupOp::Ballot, [condition]))?;
        let low = lanes.clone().cast(ScalarType::U32.value());
        let high = (lanes >> Expr::u32(32)).cast(ScalarType::U32.value());
        self.give(result, vec![low, high, Expr::u32(0), Expr::u32(0)])
    }

    pub(super) fn gather(
        &mut self,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let lane = || Expr::subgroup(SubgroupOp::Lane, []);
        let (op, from) = match mode {
            GatherMode::BroadcastFirst => (SubgroupOp::Broadcast, Expr::u32(0)),
            GatherMode::Broadcast(from) => (SubgroupOp::Broadcast, self.lane_number(from)?),
            GatherMode::Shuffle(from) => (SubgroupOp::Shuffle, self.lane_number(from)?),
            GatherMode::ShuffleDown(by) => (SubgroupOp::Shuffle, lane() + self.lane_number(by)?),
            GatherMode::ShuffleUp(by) => (SubgroupOp::Shuffle, lane() - self.lane_number(by)?),
            GatherMode::ShuffleXor(by) => (SubgroupOp::Shuffle, lane() ^ self.lane_number(by)?),
            GatherMode::QuadBroadcast(from) => {
                (SubgroupOp::Shuffle, (lane() & Expr::u32(!3)) + self.lane_number(from)?)
            }
            GatherMode::QuadSwap(direction) => {
                (SubgroupOp::Shuffle, lane() ^ Expr::u32(direction as u32 + 1))
            }
        };
        let from = self.name_it("lane", from)?;
        let kind = self.kind_of(argument)?;
        let mut leaves = Vec::new();
        for leaf in self.leaves(argument)? {
            let exchanged = Expr::subgroup(op, [without_bool(kind, leaf), from.clone()]);
            let exchanged = self.name_it("t", exchanged)?;
            leaves.push(with_bool(kind, exchanged));
        }
        self.give(result, leaves)
    }

    fn lane_number(&mut self, handle: Handle<Expression>) -> Result<Expr> {
        let kind = self.kind_of(handle)?;
        Ok(kind.convert(self.leaf(handle)?, ScalarType::U32))
    }

    pub(super) fn collective(
        &mut self,
        (operation, collective): (SubgroupOperation, CollectiveOperation),
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let kind = self.kind_of(argument)?;
        let combine = match operation {
            SubgroupOperation::All | SubgroupOperation::Any => return self.vote(operation, argument, result),
            SubgroupOperation::Add => Combine::Add,
            SubgroupOperation::Mul => Combine::Mul,
            SubgroupOperation::Min => Combine::Min,
            SubgroupOperation::Max => Combine::Max,
            SubgroupOperation::And => Combine::And,
            SubgroupOperation::Or => Combine::Or,
            SubgroupOperation::Xor => Combine::Xor,
        };
        let op = match collective {
            CollectiveOperation::Reduce => SubgroupOp::Reduce(combine),
            CollectiveOperation::InclusiveScan => SubgroupOp::Inclusive(combine),
            CollectiveOperation::ExclusiveScan => SubgroupOp::Exclusive(combine),
        };
        let mut leaves = Vec::new();
        for leaf in self.leaves(argument)? {
            let combined = Expr::subgroup(op, [without_bool(kind, leaf)]);
            let combined = self.name_it("t", combined)?;
            leaves.push(kind.rounded(with_bool(kind, combined)));
        }
        self.give(result, leaves)
    }

    fn vote(
        &mut self,
        operation: SubgroupOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        let condition = self.leaf(argument)?;
        let all = operation == SubgroupOperation::All;
        let condition = if all { !condition } else { condition };
        let lanes = self.name_it("ballot", Expr::subgroup(SubgroupOp::Ballot, [condition]))?;
        let none = Expr::u64(0);
        self.give(result, vec![if all { lanes.equals(none) } else { lanes.differs(none) }])
    }

    /// Sets the scalars of a statement's result.
    pub(super) fn give(&mut self, result: Handle<Expression>, leaves: Vec<Expr>) -> Result<()> {
        let leaves = self.shared_all(leaves)?;
        self.innermost_mut().values.insert(result, Value::Leaves(leaves));
        Ok(())
    }
}

/// Converts a bool to a number, since lanes exchange only numbers.
fn without_bool(kind: ScalarType, value: Expr) -> Expr {
    if kind == ScalarType::Bool { kind.convert(value, ScalarType::U32) } else { value }
}

fn with_bool(kind: ScalarType, value: Expr) -> Expr {
    if kind == ScalarType::Bool { value.differs(Expr::u32(0)) } else { value }
}
