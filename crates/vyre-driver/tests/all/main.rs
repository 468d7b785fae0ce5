//! The driver layer's tests that share a process. Those beside this folder need one of their own: they register
//! backends, count allocations, listen to `tracing`, or end the process.

mod build_id;
mod dispatch_defaults;
mod faults;
mod outside_backend;
mod pgo;
mod pipeline_cache;
mod router;
mod router_simulation;
mod table_files;
mod tuner_live;
mod tuner_simulation;
