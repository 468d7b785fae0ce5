//! The backend `opencl`: any device with an OpenCL driver, through a library that is loaded at run
//! time.
//!
//! A kernel is optimized and written as OpenCL C (`vyre_foundation::emit`), compiled by the driver
//! (`program`; binaries are cached on disk), and run on pooled memory, or directly on the caller's
//! if device and host share memory (`run`, `compiled`, `session`, `memory`). Launches that would
//! crash a driver if run concurrently are serialised (`gate`). Opening the backend without the
//! library, a driver or a device is an error that reports which of them is missing.

#![allow(unsafe_code)] // OpenCL is a C interface; each SAFETY comment states the contract.

mod backend;
mod compiled;
mod device;
mod driver_threads;
mod gate;
mod memory;
mod object;
mod opencl_device;
#[cfg(target_os = "linux")]
mod process_environment;
mod program;
mod resident;
mod run;
mod session;
mod slices;

pub use backend::{LINKED, OpenCl};
pub use device::BACKEND_ID;
