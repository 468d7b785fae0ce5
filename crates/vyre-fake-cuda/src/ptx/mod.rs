//! PTX as NVRTC produces it from emitted kernels: parsed ([`mod@parse`]), checked ([`mod@lint`])
//! and run ([`machine`]).
//!
//! Only what occurs in practice is supported. Any other instruction, modifier or type is an error
//! that names it, so that nothing is interpreted by guesswork.

pub mod lint;
pub mod machine;
pub mod memory;
pub mod parse;

pub use lint::lint;
pub use machine::{Grid, LaunchError, LaunchExecutor};
pub use memory::SimulatedMemory;
pub use parse::{EntryFunction, Module, parse};
