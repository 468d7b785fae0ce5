//! Positions in the source text of a program.

use std::sync::Arc;

/// A range of source text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The start.
    pub start: u32,
    /// The end, exclusive.
    pub end: u32,
}

/// The source positions of the parts of a program.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    /// The whole text.
    pub source: Arc<str>,
    /// The kernel's header: `kernel name`.
    pub header: Span,
    /// The domain after `over`; empty if there is none.
    pub domain: Span,
    /// One per buffer, in declaration order.
    pub buffers: Vec<Span>,
    /// One per function, in declaration order: its header.
    pub functions: Vec<Span>,
    /// One per statement and expression, in post-order: the functions in order (statements, then
    /// the result), then the body. An expression follows its operands; a statement follows its
    /// expressions and blocks.
    pub tree: Vec<Span>,
}
