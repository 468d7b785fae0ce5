//! Names as the parser meets them, for [`analysis`](super::analysis): declarations, uses, and where scopes begin and end.
//!
//! Nothing is noted unless an editor asks, and nothing depends on what was.

use crate::ir::{Name, Span};
use crate::types::ValueType;
use std::collections::HashSet;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Without the compiler nobody outside sees it.
#[cfg_attr(not(feature = "compiler"), allow(unreachable_pub))]
pub enum SymbolKind {
    /// The kernel itself.
    Kernel,
    /// A function of the program.
    Function,
    /// A constant of the file.
    Constant,
    /// A buffer, or a single value that the caller gives.
    Buffer,
    /// A parameter of a function.
    Parameter,
    /// A variable.
    Variable,
    /// The counter of a loop.
    Counter,
    /// An array of one invocation.
    Array,
}

/// What was noted, in the order of the text.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) list: Vec<Note>,
    /// The words in what could not be read: whether these are declared there is not known.
    pub(super) unread: HashSet<Name>,
}

pub(super) enum Note {
    /// A scope begins.
    Opens,
    /// The innermost scope ends here.
    Closes(u32),
    /// A name is declared, from here on.
    Declares(Declared),
    /// A name is used.
    Uses(Name, Span),
}

/// A declaration.
pub(super) struct Declared {
    pub(super) kind: SymbolKind,
    pub(super) name: Name,
    /// The name's place.
    pub(super) span: Span,
    /// The place of the whole declaration, which starts where its statement or item does.
    pub(super) whole: Span,
    /// Its type, where the declaration says it.
    pub(super) ty: Option<ValueType>,
}
