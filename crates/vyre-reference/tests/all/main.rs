//! Tests of the interpreter that share a process; the one outside this folder reads per-process
//! counters.

mod limits;
mod sanitizer;
mod semantics;
