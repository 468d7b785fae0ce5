//! Exchange between the lanes of a subgroup.
//!
//! A subgroup consists of the lanes that exist: the last subgroup of a workgroup can be smaller
//! than the subgroup size. A missing lane yields zero when read and takes no part in ballots,
//! reductions and scans.

use crate::Evaluator;
use vyre_foundation::ops::{Combine, SubgroupOp};
use vyre_foundation::types::Value;

/// The result of every lane, from the operands of all lanes.
pub(crate) fn exchange(op: SubgroupOp, lanes: &[[Value; 2]], evaluator: Evaluator) -> Vec<Value> {
    match op {
        SubgroupOp::Size | SubgroupOp::Lane | SubgroupOp::Id | SubgroupOp::Count => {
            unreachable!("these need no exchange")
        }
        SubgroupOp::Ballot => {
            let votes = lanes.iter().enumerate().filter(|(_, operands)| operands[0].as_bool() == Some(true));
            let ballot = votes.fold(0u64, |bits, (lane, _)| bits | 1 << lane);
            vec![Value::U64(ballot); lanes.len()]
        }
        SubgroupOp::Broadcast | SubgroupOp::Shuffle => lanes
            .iter()
            .map(|[own, lane]| {
                let named = lane.as_u32().and_then(|lane| lanes.get(lane as usize));
                named.map_or(Value::zero(own.ty()), |operands| operands[0])
            })
            .collect(),
        SubgroupOp::Reduce(combine) => {
            let all = inclusive(combine, lanes, evaluator);
            let total = all.last().copied();
            total.map_or(Vec::new(), |total| vec![total; lanes.len()])
        }
        SubgroupOp::Inclusive(combine) => inclusive(combine, lanes, evaluator),
        SubgroupOp::Exclusive(combine) => {
            let mut results = inclusive(combine, lanes, evaluator);
            results.rotate_right(1);
            if let (Some(first), Some(lane)) = (results.first_mut(), lanes.first()) {
                *first = combine.identity(lane[0].ty());
            }
            results
        }
    }
}

/// Each lane combined with all lanes below it, from lane 0 up.
fn inclusive(combine: Combine, lanes: &[[Value; 2]], evaluator: Evaluator) -> Vec<Value> {
    let mut so_far: Option<Value> = None;
    let step = |[value, _]: &[Value; 2]| {
        let next = match so_far {
            None => *value,
            Some(sum) => crate::running_dispatch::apply(evaluator, combine.op(), &[sum, *value]),
        };
        so_far = Some(next);
        next
    };
    lanes.iter().map(step).collect()
}
