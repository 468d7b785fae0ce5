//! The interpreter's tests.

mod backend;
mod limits;
mod sanitizer;
mod semantics;
