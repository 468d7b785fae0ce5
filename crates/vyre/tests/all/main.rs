//! The runtime's tests that share a process. Those beside this folder need one of their own: they count allocations,
//! register backends, fork, or run themselves again.

mod catalogue;
mod exact;
mod family;
mod kernels;
mod messages;
mod ops;
mod own_backend;
mod planted;
mod promises;
mod real_backends;
mod runtime;
mod sequence;
mod simple;
mod tuning;
mod walker;
