//! The backend `cuda`: NVIDIA devices, through libraries that are located at run time.
//!
//! A kernel is optimized and written as CUDA C++ (`vyre_foundation::emit`), compiled by NVRTC to
//! device code (`compiler`), which is cached on disk, and run in a session (`session`): device
//! memory, pinned host memory, a stream, and graphs of repeated calls. `library` finds libcuda and
//! NVRTC, `api` is the table of their functions, `device` enumerates devices, and `context` is one
//! in use. Opening the backend without the libraries, a recent enough driver or a device is an
//! error that reports which of them is missing.

#![allow(unsafe_code)] // CUDA is a C interface; each SAFETY comment states the contract.

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
