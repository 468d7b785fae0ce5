//! Tests of the driver layer that share a process. Those outside this folder need a separate one:
//! they register backends, read per-process counters, count allocations, subscribe to `tracing`, or
//! end the process.

mod build_id;
mod pgo;
mod router;
mod table_files;
mod tuner_live;
