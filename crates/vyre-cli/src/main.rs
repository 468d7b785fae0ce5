//! The vyre command.
fn main() {}
