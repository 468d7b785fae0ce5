//! The tests of generated programs; the files under `filetests/` have a binary and a harness of their own.

mod differential;
mod elementwise;
mod generator;
mod large;
mod optimizer;
