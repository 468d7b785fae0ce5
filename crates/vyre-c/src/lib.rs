//! vyre for C: the functions of `include/vyre.h`.
//!
//! The header is generated from this crate's sources by `cargo xtask docs`: every `extern "C"` function, `repr(C)`
//! struct, handle and constant, with its comment. `include/vyre.hpp` is the same for C++17.
//!
//! - `handles` is the table behind every handle. A handle is a place in it and a generation, so that one
//!   that was freed is told, whatever came to its place since; an object in use on another thread lives until that use ends.
//! - `status` is how a function fails: a code, and a text that the thread keeps.
//! - `text` is strings that the caller frees.
//! - `command` finds the `vyre` command beside the library.
//! - `runtime`, `routine`, `array`, `report` and `ops` are the functions; `argument` is what calls bind.
//!
//! No panic leaves a function: [`status::guarded`] is around each.

// C's memory is reached through the pointers that it gives; every block says who upholds what.
#![allow(unsafe_code)]
// The names are those of the header.
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

/// A static library has an object per crate, and a linker takes only those that something refers to. Backends register
/// themselves, so this does.
#[used]
static BACKENDS: &&[&u8] = &vyre::unstable::LINKED;
