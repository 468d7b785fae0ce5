//! What can be wrong with a shader, before it is told as a diagnostic with a place in the user's text.

use std::sync::Arc;
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::ir::Span;

/// One fault. A place that is not known where the fault is found is added by who walks over the statements.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    code: Code,
    message: String,
    help: Option<String>,
    span: Option<Span>,
}

pub(crate) type Result<T> = std::result::Result<T, Box<Fault>>;

impl Fault {
    /// The text or the words are not a shader.
    pub(crate) fn unreadable(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::UnreadableShader, message.into())
    }

    /// The shader has something that no program can say.
    pub(crate) fn unsupported(what: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::UnsupportedShader, format!("{} cannot be imported", what.into()))
    }

    /// No entry point has that name, or there are several to choose from.
    pub(crate) fn entry(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderEntry, message.into())
    }

    /// A constant has no value, or one that it cannot have.
    pub(crate) fn constant(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderConstant, message.into())
    }

    /// The shader, or what comes of it, is beyond a limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderTooLarge, message.into())
    }

    fn new(code: Code, message: String) -> Box<Fault> {
        Box::new(Fault { code, message, help: None, span: None })
    }

    /// The same with an action to take.
    pub(crate) fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Fault> {
        self.help = Some(help.into());
        self
    }

    /// The same at this place, unless it has one.
    pub(crate) fn or_at(mut self: Box<Self>, span: Option<Span>) -> Box<Fault> {
        self.span = self.span.or(span);
        self
    }

    /// The fault as it is told, with the text that it is in.
    pub(crate) fn diagnostics(self, source: Option<Arc<str>>) -> Diagnostics {
        let mut item = Diagnostic::new(self.code, self.message).at(self.span);
        item.help = self.help;
        Diagnostics::new(vec![item], source)
    }
}

/// A place of naga's in ours; what naga made up has none.
pub(crate) fn place(span: naga::Span) -> Option<Span> {
    let range = span.to_range()?;
    Some(Span { start: u32::try_from(range.start).ok()?, end: u32::try_from(range.end).ok()? })
}
