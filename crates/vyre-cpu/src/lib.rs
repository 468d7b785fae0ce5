//! The embedded backend `cpu`: kernels run across SIMD lanes, compiled by Cranelift, with nothing to install.
//!
//! A kernel is optimized (`vyre_foundation::optimize`), brought into vector form (`lower`), turned into machine code
//! (`emit`) and run in place on the caller's memory, on several threads where that pays (`pool`). Results are the
//! interpreter's to the bit.

#![allow(unsafe_code)] // Machine code is called, and callers' memory handed to it; every block says who upholds what.

mod apart;
mod backend;
mod code;
mod costs;
mod coverage;
mod crossing;
mod divergence;
mod emit;
mod lower;
mod machine;
mod pipeline;
mod pool;
mod pressure;
mod resident;
mod routines;
mod schedule;
mod vector;
mod watchdog;

pub use backend::{BACKEND_ID, Cpu};
pub use pipeline::{machine_code, vector_listing};
