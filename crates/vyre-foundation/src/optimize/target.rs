//! What passes may rely on: the device, and the dispatches.

use crate::kernel::KernelBody;
use crate::ops::Op;

/// What the device lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Table ops that it has no instruction for.
    pub lacking: Vec<Op>,
    /// Whether it takes longer to divide an integer than to multiply two and add or shift a few times, constant divisors
    /// included.
    pub slow_division: bool,
}

impl Target {
    pub(crate) fn lacks(&self, op: Op) -> bool {
        self.lacking.contains(&op)
    }
}

/// What the caller promises about the dispatches of the optimized kernel. The default promises nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assume {
    /// Every dispatch has this workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// No dispatch overrides the grid, so that a shape-free kernel runs only invocations inside its domain.
    pub within_domain: bool,
    /// Every dispatch is checked against `KernelBody::requires` and does not run this kernel where that does not hold.
    pub dispatch_checks: bool,
}

impl Assume {
    /// Every dispatch runs the kernel at its own workgroup size, over its own domain.
    pub fn no_overrides(kernel: &KernelBody) -> Assume {
        Assume { workgroup: Some(kernel.workgroup_size), within_domain: true, dispatch_checks: false }
    }
}
