//! The outcome of running a program, in one form for the interpreter and every backend.

use crate::data;
use std::fmt;
use vyre_driver::BackendError;
pub use vyre_driver::judge::Judge;
use vyre_driver::messages::{Message, Prints};
use vyre_foundation::diagnostics::Diagnostics;
use vyre_foundation::ir::{BufferDecl, Program};
use vyre_reference::RunError;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The contents of each output and read_write buffer, in binding order.
    Outputs(Vec<Vec<u8>>),
    /// The same for a program with messages, with each message as a line.
    Spoke(Vec<Vec<u8>>, Vec<String>),
    /// An assert failed: the printed messages, and the error message.
    AssertFailed(Vec<String>, String),
    /// The program trapped with this code.
    Trapped(u32),
    /// The timeout expired.
    Timeout,
    /// The program, its inputs or its configuration are invalid on every backend.
    Invalid(Diagnostics),
    /// This backend lacks something that the program needs.
    Unsupported(String),
    /// Anything else: a failure of the backend.
    Failed(String),
}

impl From<Result<vyre_reference::Run, RunError>> for Outcome {
    fn from(result: Result<vyre_reference::Run, RunError>) -> Outcome {
        match result {
            Ok(run) => Outcome::Outputs(run.outputs),
            Err(RunError::Trapped { code }) => Outcome::Trapped(code),
            Err(RunError::Timeout) => Outcome::Timeout,
            Err(RunError::Launch(diagnostics)) => Outcome::Invalid(diagnostics),
            Err(
                error @ (RunError::NotWritable { .. }
                | RunError::SubgroupSize(_)
                | RunError::Memory { .. }
                | RunError::Diverged(_)),
            ) => Outcome::Failed(error.to_string()),
        }
    }
}

impl From<Result<Vec<Vec<u8>>, BackendError>> for Outcome {
    fn from(result: Result<Vec<Vec<u8>>, BackendError>) -> Outcome {
        match result {
            Ok(outputs) => Outcome::Outputs(outputs),
            Err(BackendError::Trapped { code, .. }) => Outcome::Trapped(code),
            Err(error @ BackendError::AssertFailed { .. }) => {
                Outcome::AssertFailed(Vec::new(), error.to_string())
            }
            Err(BackendError::Timeout { .. }) => Outcome::Timeout,
            Err(BackendError::InvalidProgram { diagnostics }) => Outcome::Invalid(diagnostics),
            Err(error @ BackendError::UnsupportedFeature { .. }) => Outcome::Unsupported(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Outputs(outputs) => write!(f, "{} outputs", outputs.len()),
            Outcome::Spoke(outputs, lines) => write!(f, "{} outputs, {lines:?}", outputs.len()),
            Outcome::AssertFailed(lines, message) => write!(f, "{lines:?}, {message}"),
            Outcome::Trapped(code) => write!(f, "trap {code}"),
            Outcome::Timeout => f.write_str("timeout"),
            Outcome::Invalid(diagnostics) => write!(f, "refused: {diagnostics}"),
            Outcome::Unsupported(what) => write!(f, "unsupported: {what}"),
            Outcome::Failed(message) => write!(f, "failed: {message}"),
        }
    }
}

impl Outcome {
    /// Adds the messages printed during the run, for a program that has messages.
    pub fn with_prints(self, program: &Program, prints: &Prints) -> Outcome {
        if !program.validate().is_ok_and(|kernel| !kernel.messages.is_empty()) {
            return self;
        }
        let line = |Message { invocation: [x, y, z], text, .. }: &Message| format!("{x} {y} {z} {text:?}");
        let lines = prints.messages.iter().map(line).collect();
        match self {
            Outcome::Outputs(outputs) => Outcome::Spoke(outputs, lines),
            Outcome::AssertFailed(_, message) => Outcome::AssertFailed(lines, message),
            Outcome::Spoke(..)
            | Outcome::Trapped(_)
            | Outcome::Timeout
            | Outcome::Invalid(_)
            | Outcome::Unsupported(_)
            | Outcome::Failed(_) => self,
        }
    }
}

/// The buffers that a dispatch returns, in binding order.
pub fn returned_buffers(program: &Program) -> Vec<&BufferDecl> {
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_output()).collect();
    decls.sort_by_key(|decl| decl.binding);
    decls
}

/// The buffers that a dispatch takes, in binding order.
pub fn given_buffers(program: &Program) -> Vec<&BufferDecl> {
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_input()).collect();
    decls.sort_by_key(|decl| decl.binding);
    decls
}

/// The difference between `found` and `expected` in one line; `None` if the judge accepts `found`.
pub fn difference(program: &Program, expected: &Outcome, found: &Outcome, judge: Judge) -> Option<String> {
    if let (Outcome::Spoke(a, said), Outcome::Spoke(b, again)) = (expected, found)
        && said == again
    {
        let [a, b] = [a, b].map(|outputs| Outcome::Outputs(outputs.clone()));
        return difference(program, &a, &b, judge);
    }
    let (Outcome::Outputs(expected), Outcome::Outputs(found)) = (expected, found) else {
        let same = match (expected, found) {
            // Implementations can word a rejection differently.
            (Outcome::Invalid(expected), Outcome::Invalid(found)) => {
                expected.iter().map(|item| item.code).eq(found.iter().map(|item| item.code))
            }
            _ => expected == found,
        };
        return (!same).then(|| format!("expected {expected}, found {found}"));
    };
    let decls = returned_buffers(program);
    if expected.len() != found.len() || expected.len() != decls.len() {
        return Some(format!("expected {} outputs, found {}", expected.len(), found.len()));
    }
    for ((decl, expected), found) in decls.into_iter().zip(expected).zip(found) {
        if expected.len() != found.len() {
            let (expected, found) = (expected.len(), found.len());
            return Some(format!("`{}` has {found} bytes, expected {expected}", decl.name));
        }
        if let Some(k) = judge.first_wrong(decl.element, expected, found) {
            let size = decl.element.size();
            let show = |bytes: &[u8]| data::show_element(decl.element, &bytes[k * size..(k + 1) * size]);
            let (name, expected, found) = (&decl.name, show(expected), show(found));
            return Some(format!("`{name}[{k}]` is {found}, expected {expected}"));
        }
    }
    None
}
