//! Test machinery of vyre: what keeps the compiler and every backend honest. Never linked by users.
//!
//! [`generate`] makes programs and inputs from bytes ([`choices`]); [`differential`] runs them in every way that must
//! give the same; [`shrink`] makes what fails small, and [`filetest`] writes it down, next to the tests written by
//! hand. [`stress`] lets threads open, compile, run and drop at once. [`outcome`] and [`data`] are the common terms for
//! results and buffer contents, [`samples`] the kernels that a backend's own tests begin with, [`seeds`] how many
//! generated programs a test takes, [`backends`] do nothing, or misbehave, for tests of whoever calls backends.

#![forbid(unsafe_code)]

pub mod backends;
pub mod choices;
pub mod data;
pub mod differential;
pub mod filetest;
pub mod fuzz;
pub mod generate;
pub mod metamorphic;
pub mod outcome;
pub mod samples;
pub mod seeds;
pub mod shrink;
pub mod stress;
