//! Compile effort.

/// Trade-off between compile time and the speed of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Compiles several times as fast: one copy of everything, and single-pass register allocation.
    Quick,
    /// Generates the fastest code.
    Full,
}
