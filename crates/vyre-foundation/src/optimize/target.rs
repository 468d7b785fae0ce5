//! What passes can assume about the device and the dispatches.

use crate::kernel::{Doubts, KernelBody};
use crate::ops::Op;

/// The features that a device lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Table ops without an instruction on the device.
    pub lacking: Vec<Op>,
    /// Whether an integer division, even by a constant, takes longer than a multiplication and a
    /// few additions or shifts.
    pub slow_division: bool,
}

impl Target {
    pub(crate) fn lacks(&self, op: Op) -> bool {
        self.lacking.contains(&op)
    }
}

/// Guarantees from the caller about the dispatches of the optimized kernel; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assume {
    /// Every dispatch has this workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// No dispatch overrides the grid, so that a shape-free kernel runs only invocations inside its
    /// domain.
    pub within_domain: bool,
    /// Every dispatch runs the `KernelBody::proof`, and does not run this kernel if the proof
    /// fails.
    pub dispatch_checks: bool,
    /// The accesses that stay checked nevertheless.
    pub doubtful: Doubts,
}

impl Assume {
    /// Guarantees that every dispatch runs the kernel at its own workgroup size, over its own
    /// domain.
    pub fn no_overrides(kernel: &KernelBody) -> Assume {
        Assume {
            workgroup: Some(kernel.workgroup_size),
            within_domain: true,
            dispatch_checks: false,
            ..Assume::default()
        }
    }
}
