//! Options of a run.

use crate::order::Order;
use std::time::Duration;
use vyre_foundation::launch::Overrides;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::Value;

/// The largest subgroup size: a ballot has 64 bits.
pub const MAX_SUBGROUP_SIZE: u32 = 64;

/// Evaluates table ops. Must return a value of the op's result type for operands of valid types.
pub type Evaluator = fn(Op, &[Value]) -> Option<Value>;

/// Options for running a kernel.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Overrides of the kernel's workgroup size or grid.
    pub overrides: Overrides,
    /// Lanes of a subgroup, 1 to [`MAX_SUBGROUP_SIZE`].
    pub subgroup_size: u32,
    /// Schedule of invocations.
    pub order: Order,
    /// Time limit of the run.
    pub timeout: Option<Duration>,
    /// Limit on allocated bytes: outputs, workgroup memory, the state of invocations, shadow
    /// memory.
    pub memory_limit: u64,
    /// Whether to detect data races and other faults.
    pub sanitize: bool,
    /// Evaluator of table ops: [`eval`], unless a test replaces it to check that a bug is found.
    pub evaluator: Evaluator,
}

impl Default for RunOptions {
    /// The kernel's own shape, subgroups of 32, ascending order, no time limit, 2 GiB, no
    /// sanitizer.
    fn default() -> RunOptions {
        RunOptions {
            overrides: Overrides::default(),
            subgroup_size: 32,
            order: Order::Ascending,
            timeout: None,
            memory_limit: 2 << 30,
            sanitize: false,
            evaluator: eval,
        }
    }
}
