//! Names that the parser records for [`analysis`](super::analysis): declarations, uses, and the
//! bounds of scopes.
//!
//! Names are recorded only for editors, and parsing does not depend on them.

use crate::ir::{Name, Span};
use crate::types::ValueType;
use hashbrown::HashSet;

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Not reachable from outside without the compiler feature.
#[cfg_attr(not(feature = "compiler"), allow(unreachable_pub))]
pub enum SymbolKind {
    /// The kernel itself.
    Kernel,
    /// A function of the program.
    Function,
    /// A constant of the file.
    Constant,
    /// A buffer, or a single value passed by the caller.
    Buffer,
    /// A parameter of a function.
    Parameter,
    /// A variable.
    Variable,
    /// The counter of a loop.
    Counter,
    /// A private array.
    Array,
}

/// The recorded names, in source order.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) list: Vec<Note>,
    /// Words in malformed parts, where they may or may not be declared.
    pub(super) unread: HashSet<Name>,
}

pub(super) enum Note {
    /// A scope begins.
    Opens,
    /// The innermost scope ends here.
    Closes(u32),
    /// A name is declared, from here on.
    Declares(DeclaredName),
    /// A name is used.
    Uses(Name, Span),
}

/// A declaration.
pub(super) struct DeclaredName {
    pub(super) kind: SymbolKind,
    pub(super) name: Name,
    /// Span of the name.
    pub(super) span: Span,
    /// Span of the whole declaration, from the start of its statement or item.
    pub(super) whole: Span,
    /// Its type, if the declaration states it.
    pub(super) ty: Option<ValueType>,
}
