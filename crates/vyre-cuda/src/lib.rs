//! The backend `cuda`: NVIDIA devices, through libraries that are looked for at run time.
//!
//! A kernel is optimized and written as CUDA C++ (`vyre_foundation::emit`), compiled by NVRTC to code for the device at
//! hand (`compiler`), which is kept on disk, and run in a session (`session`): memory of the device and pinned memory of
//! the host, a stream, and what the last call put on it, as a graph. `library` finds libcuda and NVRTC, `api` is the table
//! of their functions, `device` what the devices are, `context` one of them. Without the libraries, a driver that is
//! recent enough or a device, opening the backend is an error that says which of them is missing.

#![allow(unsafe_code)] // CUDA is a C interface; every block says who upholds what.

mod api;
mod backend;
mod code;
mod compiler;
mod context;
mod device;
mod layout;
mod library;
mod memory;
mod session;

pub use backend::{Cuda, LINKED};
pub use device::BACKEND_ID;
