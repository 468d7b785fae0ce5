//! The embedded backend `cpu`: runs kernels across SIMD lanes, with nothing to install.
//!
//! A kernel is optimized (`vyre_foundation::optimize`), lowered to vector form (`lower`) and then
//! to register-width pieces (`emit`, `piece`), compiled to machine code (`x64`, or `clif` by way of
//! Cranelift) and run in place on the caller's memory, on several threads where that pays (`pool`).
//! Results are bit-identical to the interpreter's.

// The comment on each tuning constant says what set it. Figures on code size are of the machine
// code of 54 kernels in `bench/user`, `bench/kernels` and `examples`, called the benchmarks.

#![allow(unsafe_code)] // Runs machine code on callers' memory; each block justifies itself.

mod affinity;
mod backend;
#[cfg(any(feature = "cranelift", not(all(target_arch = "x86_64", not(windows)))))]
mod clif;
mod code;
mod compiler;
mod context;
mod costs;
mod divergence;
mod effort;
mod elements;
mod emit;
mod host;
mod inspect;
mod joined_stores;
mod lower;
mod machine;
mod op_groups;
mod per_process;
mod perf_map;
mod piece;
mod pipeline;
mod pool;
mod ragged_rows;
mod register_pressure;
mod resident_memory;
mod routines;
mod row_reductions;
mod row_walks;
mod rows;
mod schedule;
mod source_region;
mod store_forwarding;
mod stores_past_caches;
mod vector;
mod watchdog;
#[cfg(all(target_arch = "x86_64", not(windows)))]
mod x64;

pub use backend::{BACKEND_ID, Cpu, LINKED};
pub use host::avx512_rejected;
pub use inspect::{AccessKind, CodeReport, MemoryAccess, Reach, code_report};
pub use pipeline::{machine_code, vector_listing, vector_listing_for};
pub use pool::thread_count;
pub use source_region::MachineCode;
