//! Test infrastructure of vyre: conformance of the compiler and every backend. Never linked by
//! users.
//!
//! [`generate`] makes programs and inputs from bytes ([`choices`]); [`differential`] runs them in
//! every way that must give the same result; [`shrink`] reduces failures, and [`filetest`] stores
//! them next to the hand-written tests. [`stress`] lets threads open, compile, run and drop
//! concurrently. [`outcome`] and [`data`] represent results and buffer contents, [`samples`] has
//! the kernels for a backend's first tests, [`seeds`] decides how many generated programs a test
//! runs, and [`backends`] provides null and misbehaving backends for tests of code that calls
//! backends.

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
