//! Tests of generated programs; the files under `filetests/` have a separate binary and harness.

mod differential;
mod elementwise;
mod generator;
mod large;
mod optimizer;
