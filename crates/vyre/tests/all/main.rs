//! Tests of the runtime that share a process. Those outside this folder need a separate one: they
//! count allocations, register backends, fork, or run themselves again.

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
