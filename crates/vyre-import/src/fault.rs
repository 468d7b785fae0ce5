//! Faults of a shader, before they become diagnostics with a position in the user's text.

use std::sync::Arc;
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::ir::Span;

/// One fault. If its position is unknown where it is found, the walk over the statements adds it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    code: Code,
    message: String,
    help: Option<String>,
    span: Option<Span>,
}

pub(crate) type Result<T> = std::result::Result<T, Box<Fault>>;

impl Fault {
    /// The text or the words are not a valid shader.
    pub(crate) fn unreadable(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::UnreadableShader, message.into())
    }

    /// The shader contains something that programs cannot express.
    pub(crate) fn unsupported(what: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::UnsupportedShader, format!("{} cannot be imported", what.into()))
    }

    /// There is no entry point with that name, or there are several to choose from.
    pub(crate) fn entry(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderEntry, message.into())
    }

    /// A constant has no value, or an invalid one.
    pub(crate) fn constant(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderConstant, message.into())
    }

    /// The shader, or the resulting program, exceeds a limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Box<Fault> {
        Fault::new(Code::ShaderTooLarge, message.into())
    }

    fn new(code: Code, message: String) -> Box<Fault> {
        Box::new(Fault { code, message, help: None, span: None })
    }

    /// Adds a suggested action.
    pub(crate) fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Fault> {
        self.help = Some(help.into());
        self
    }

    /// Adds a position, unless the fault has one.
    pub(crate) fn or_at(mut self: Box<Self>, span: Option<Span>) -> Box<Fault> {
        self.span = self.span.or(span);
        self
    }

    /// Converts the fault to diagnostics, with the source text.
    pub(crate) fn diagnostics(self, source: Option<Arc<str>>) -> Diagnostics {
        let mut item = Diagnostic::new(self.code, self.message).at(self.span);
        item.help = self.help;
        Diagnostics::new(vec![item], source)
    }
}

/// Converts a naga span; generated code has none.
pub(crate) fn span_of(span: naga::Span) -> Option<Span> {
    let range = span.to_range()?;
    Some(Span { start: u32::try_from(range.start).ok()?, end: u32::try_from(range.end).ok()? })
}
