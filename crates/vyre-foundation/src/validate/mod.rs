//! Validation. (To come.)
use crate::{diagnostics::Diagnostics, ir::Program, kernel::Kernel};
pub(crate) fn validate(_program: &Program) -> Result<Kernel, Diagnostics> {
    Err(Diagnostics::default())
}
