//! The tests of the driver layer that share a process. Those beside this folder need one of their own: they register
//! backends, read counters of the process, count allocations, listen to `tracing`, or end it.

mod build_id;
mod pgo;
mod router;
mod router_simulation;
mod table_files;
mod tuner_live;
mod tuner_simulation;
