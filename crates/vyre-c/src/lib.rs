//! vyre for C: the functions of `include/vyre.h`.
//!
//! The header is generated from this crate's sources by `cargo xtask docs`: every `extern "C"`
//! function, `repr(C)` struct, handle and constant, with its comment. `include/vyre.hpp` is the
//! same for C++17.
//!
//! - `handles` is the table behind every handle. A handle is an index into it and a generation, so
//!   that a freed handle is reported even if its slot is reused; an object in use on another thread
//!   lives until that use ends.
//! - `status` is error reporting: a code, and a message kept per thread.
//! - `text` is strings that the caller frees.
//! - `command` finds the `vyre` command next to the library.
//! - `runtime`, `routine`, `array`, `report` and `ops` are the functions; `argument` is the
//!   arguments of calls.
//!
//! No panic leaves a function: each is wrapped in [`status::guarded`].

// C's memory is accessed through the pointers it passes; every unsafe block states who upholds
// what.
#![allow(unsafe_code)]
// The names match the header.
#![allow(non_camel_case_types)]

pub mod argument;
pub mod array;
mod command;
mod handles;
pub mod ops;
pub mod report;
pub mod routine;
pub mod runtime;
pub mod status;
pub mod text;

/// Reference to every backend, so that a static link keeps them. A linker takes only the objects of
/// a static library that something refers to, and backends register themselves.
#[used]
static BACKENDS: &&[&u8] = &vyre::unstable::LINKED;
