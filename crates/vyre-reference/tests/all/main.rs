//! The tests of the interpreter that share a process; the one beside this folder reads the counters of its process.

mod limits;
mod sanitizer;
mod semantics;
