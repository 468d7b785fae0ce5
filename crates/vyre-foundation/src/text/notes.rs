//! Names as the parser meets them, for [`analysis`](super::analysis): declarations, uses, and where scopes begin and end.
//!
//! Nothing is noted unless an editor asks, and nothing depends on what was.

use super::cursor::{Parsed, Parser};
use super::lexer::Kind;
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

impl Parser<'_> {
    fn note(&mut self, note: Note) {
        if let Some(notes) = &mut self.notes {
            notes.list.push(note);
        }
    }

    pub(super) fn open_scope(&mut self) {
        self.note(Note::Opens);
    }

    pub(super) fn close_scope(&mut self) {
        let end = if self.at_end() { self.source().len() as u32 } else { self.previous().span.end };
        self.note(Note::Closes(end));
    }

    /// A declaration whose name was just taken.
    pub(super) fn declared(&self, kind: SymbolKind, name: &Name, start: u32) -> Declared {
        let span = self.previous().span;
        Declared { kind, name: name.clone(), span, whole: Span { start, end: span.end }, ty: None }
    }

    /// The declaration ends with what was taken last.
    pub(super) fn note_declared(&mut self, mut declared: Declared) {
        declared.whole.end = self.previous().span.end.max(declared.whole.end);
        self.note(Note::Declares(declared));
    }

    pub(super) fn note_used(&mut self, name: &Name, span: Span) {
        if self.notes.is_some() {
            self.note(Note::Uses(name.clone(), span));
        }
    }

    /// A name that stands for something declared elsewhere.
    pub(super) fn used_name(&mut self, what: &str) -> Parsed<Name> {
        let name = self.name(what)?;
        let span = self.previous().span;
        self.note_used(&name, span);
        Ok(name)
    }

    /// What was taken since `start` could not be read.
    pub(super) fn note_unread(&mut self, start: usize) {
        if self.notes.is_none() {
            return;
        }
        for position in start..self.position() {
            let token = self.token_at(position);
            let name = match token.kind {
                Kind::Quoted => self.quoted_name(token),
                Kind::Word => self.plain_name(token),
                Kind::String | Kind::Number | Kind::Symbol | Kind::Bad | Kind::End => continue,
            };
            if let Some(notes) = &mut self.notes {
                notes.unread.insert(name);
            }
        }
    }
}
