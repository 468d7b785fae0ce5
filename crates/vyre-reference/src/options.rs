//! Options of a run.

use crate::order::Order;
use std::time::Duration;
use vyre_foundation::launch::Overrides;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::Value;

/// The largest subgroup size: a ballot has 64 bits.
pub const MAX_SUBGROUP_SIZE: u32 = 64;

/// What computes the table ops. Must give a value of the op's result type for operands of the types it takes.
pub type Evaluator = fn(Op, &[Value]) -> Option<Value>;

/// How a kernel is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Another workgroup size or grid than the kernel's own.
    pub overrides: Overrides,
    /// Lanes of a subgroup, 1 to [`MAX_SUBGROUP_SIZE`].
    pub subgroup_size: u32,
    /// Who runs first.
    pub order: Order,
    /// How long the run may take.
    pub timeout: Option<Duration>,
    /// Bytes that the run may allocate: outputs, workgroup memory, the state of invocations, shadow memory.
    pub memory_limit: u64,
    /// Whether to look for data races and other faults.
    pub sanitize: bool,
    /// What computes the table ops: [`eval`], unless a test replaces it to see whether the mistake is found.
    pub evaluator: Evaluator,
}

impl Default for Options {
    /// The kernel's own shape, subgroups of 32, ascending order, no time limit, 2 GiB, no sanitizer.
    fn default() -> Options {
        Options {
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
