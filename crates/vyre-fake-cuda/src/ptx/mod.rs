//! PTX, as NVRTC makes it of emitted kernels: read ([`parse`]), looked over ([`lint`]) and run ([`machine`]).
//!
//! Only what occurs is known. An instruction, modifier or type beyond that is an error that names it, so that nothing is
//! run by guesswork.

pub mod lint;
pub mod machine;
pub mod memory;
pub mod parse;

pub use lint::lint;
pub use machine::{Fault, Grid, Machine};
pub use memory::DeviceMemory;
pub use parse::{Entry, Module, parse};
