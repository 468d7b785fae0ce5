//! vyre: compute kernels written once, checked, optimised, and run on the backend that was measured fastest.
//!
//! This is the crate to depend on. A [`Runtime`] opens every backend that is linked, proves that each gives the results
//! that the interpreter gives, and sends each call where it is measured to be done first. Each backend is a feature;
//! `cpu`, which needs nothing installed, is the default. The interpreter is always there.

#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("buffers hold little-endian elements, and slices are bound as they lie in memory");

mod apart;
mod argument;
mod backend;
mod background;
mod batch;
mod call;
pub mod catalogue;
mod code;
mod conformance;
pub mod contact;
mod core;
mod dispatch;
mod exhibit;
mod explain;
mod held;
mod helper;
#[doc(hidden)]
pub mod host;
#[cfg(feature = "import")]
mod import;
mod inputs;
mod intrinsics;
mod meter;
mod options;
mod parameter;
mod pending;
mod ready;
mod rehearsal;
mod report;
mod resident;
mod routine;
mod runtime;
mod saved;
mod sequence;
mod shared;
mod side;
mod special;
mod tables;
mod trial;
mod turn;
#[doc(hidden)]
pub mod typed;
mod verify;

pub use argument::{Argument, Element};
pub use call::Call;
pub use core::Device;
pub use explain::{Explanation, Standing};
pub use intrinsics::*;
pub use pending::Pending;
pub use ready::OpRoutine;
pub use rehearsal::Rehearsal;
pub use report::{Attempt, Report};
pub use resident::Resident;
pub use routine::Routine;
pub use runtime::{BACKENDS_VARIABLE, FROZEN_VARIABLE, IntoProgram, Runtime, RuntimeBuilder};
pub use sequence::{Batch, Sequence};
pub use tables::{CACHE_LIMIT_VARIABLE, TABLES_VARIABLE};
pub use typed::{Float, Integer, KernelCall, Map, Number, Read, Write};
pub use vyre_macros::{assert, function, include_kernel, kernel, map, print};

pub use vyre_driver as driver;
pub use vyre_foundation as foundation;
#[cfg(feature = "import")]
pub use vyre_import as shader;

pub use vyre_driver::messages::{Message, Prints};
pub use vyre_driver::router::{Reason, RefusedBackend};
pub use vyre_driver::{BackendError, DispatchConfig, Fallback};
pub use vyre_foundation::ir::{DataType, Expr, Node, Program, ProgramBuilder};
pub use vyre_foundation::text::Constants;

// Linking a backend's crate registers it.
#[cfg(feature = "cpu")]
use vyre_cpu as _;
#[cfg(feature = "opencl")]
use vyre_opencl as _;
#[cfg(feature = "wgpu")]
use vyre_wgpu as _;

/// What most programs import.
pub mod prelude {
    pub use crate::{
        BackendError, DataType, DispatchConfig, Expr, Fallback, Node, Program, ProgramBuilder, Report,
        Resident, Routine, Runtime,
    };
}

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
