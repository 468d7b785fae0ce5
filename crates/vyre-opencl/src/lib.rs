//! The backend `opencl`: any device with an OpenCL driver, through a library that is loaded at run time.
//!
//! A kernel is optimized and written as OpenCL C (`vyre_foundation::emit`), compiled by the driver (`program`; what comes
//! of it is kept on disk), and run on pooled memory, or in place on the caller's where device and host share
//! memory (`run`, `variant`, `session`, `memory`); launches that a driver crashes on side by side wait for each other
//! (`gate`). Without the library, a driver or a device, opening the backend is an error that says which of them is missing.

#![allow(unsafe_code)] // OpenCL is a C interface; every block says who upholds what.

mod backend;
mod compiled;
mod core;
mod device;
mod driver_threads;
mod gate;
mod memory;
mod object;
mod program;
mod resident;
mod run;
mod session;
mod slices;

pub use backend::{LINKED, OpenCl};
pub use device::BACKEND_ID;
