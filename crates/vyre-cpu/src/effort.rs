//! The time that code is worth.

/// How much time code is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Compiles several times as fast: one copy of everything, and registers given out in one pass.
    Quick,
    /// Runs as fast as can be.
    Full,
}
