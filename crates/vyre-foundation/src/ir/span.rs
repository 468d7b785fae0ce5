//! Places in the text that a program was read from.

use std::sync::Arc;

/// A stretch of source text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Where it starts.
    pub start: u32,
    /// Where it ends, exclusive.
    pub end: u32,
}

/// Where the parts of a program stand in the text it was read from.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    /// The whole text.
    pub source: Arc<str>,
    /// The kernel's header: `kernel name`.
    pub header: Span,
    /// What stands behind `over`; nothing where that is missing.
    pub domain: Span,
    /// One per buffer, in declaration order.
    pub buffers: Vec<Span>,
    /// One per function, in declaration order: its header.
    pub functions: Vec<Span>,
    /// One per statement and expression, in post-order: the functions in order (statements, then the result), then the
    /// body; an expression after its operands, a statement after its expressions and blocks.
    pub tree: Vec<Span>,
}
