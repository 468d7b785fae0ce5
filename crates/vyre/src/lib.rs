//! vyre: compute kernels written once, checked, optimised, and run on the backend that was measured fastest.
//!
//! This is the crate to depend on. Each backend is a feature; `cpu`, which needs nothing installed, is the default.
//! The interpreter that defines what results are right is always there.

#![forbid(unsafe_code)]

pub mod catalogue;

pub use vyre_driver as driver;
pub use vyre_foundation as foundation;

pub use vyre_driver::{BackendError, DispatchConfig, Fallback};
pub use vyre_foundation::ir::{DataType, Expr, Node, Program, ProgramBuilder};

// Linking a backend's crate registers it.
#[cfg(feature = "cpu")]
use vyre_cpu as _;
use vyre_reference as _;

/// What most programs import.
pub mod prelude {
    pub use crate::{BackendError, DataType, DispatchConfig, Expr, Fallback, Node, Program, ProgramBuilder};
}
