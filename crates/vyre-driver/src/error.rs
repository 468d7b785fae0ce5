//! The errors that can occur between a program and a device, classified by who must act.
//!
//! Every kind has a row in one table: its stable code, meaning, fields, message, and fix.
//! [`BackendError`], [`ERROR_KINDS`] and the reference page of error codes are generated from that
//! table.

use std::fmt;
use std::time::Duration;
use vyre_foundation::diagnostics::Diagnostics;

/// One row of the table of error kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorKind {
    /// The number that [`BackendError::code`] returns; never reused.
    pub code: u32,
    /// The variant's name.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// The fix, if it does not depend on the case.
    pub fix: Option<&'static str>,
}

macro_rules! backend_errors {
    ($($code:literal $name:ident $meaning:literal
        { $($(#[$doc:meta])* $field:ident: $ty:ty,)* } ($($text:tt)*) $fix:expr;)*) => {
        /// Why a backend failed to do what was requested.
        ///
        /// ```
        /// use vyre_driver::BackendError;
        /// let error =
        ///     BackendError::UnsupportedFeature { name: "f64".into(), backend: "toy".into() };
        /// assert_eq!(error.code(), 3);
        /// assert_eq!(error.to_string(), "backend `toy` does not support f64");
        /// assert!(error.fix().is_some());
        /// ```
        #[derive(Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum BackendError {
            $(#[doc = $meaning] $name { $($(#[$doc])* $field: $ty,)* },)*
        }

        /// Every kind of error, ordered by code.
        pub const ERROR_KINDS: &[ErrorKind] =
            &[$(ErrorKind { code: $code, name: stringify!($name), meaning: $meaning, fix: $fix },)*];

        impl BackendError {
            /// The number of this kind of error; stable, never reused.
            pub fn code(&self) -> u32 {
                match self { $(BackendError::$name { .. } => $code,)* }
            }
        }

        impl fmt::Display for BackendError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(BackendError::$name { $($field),* } => write!(f, $($text)*),)* }
            }
        }

        /// The same as [`Display`](fmt::Display), because a `main` that fails prints it.
        impl fmt::Debug for BackendError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

backend_errors! {
    1 Other "Anything that no other kind describes." {
        /// What happened, and to what.
        message: String,
    } ("{message}") None;

    2 DeviceOutOfMemory "The device has no memory left for a buffer or a kernel." {
        /// The backend.
        backend: String,
        /// The requested size.
        requested_bytes: u64,
    } ("backend `{backend}` is out of device memory: {requested_bytes} bytes were requested")
    Some("free resident buffers, or split the work into smaller dispatches");

    3 UnsupportedFeature
    "The backend or its device lacks an op, a type, a size or an interface that was requested." {
        /// The missing feature.
        name: String,
        /// The backend.
        backend: String,
    } ("backend `{backend}` does not support {name}")
    Some("choose a backend or device that has it, or change the program or its configuration");

    4 KernelCompileFailed "The device's own compiler refused a program that vyre had accepted." {
        /// The backend.
        backend: String,
        /// The compiler's message.
        message: String,
    } ("backend `{backend}` could not compile the kernel: {message}")
    Some("update the device's driver, or choose another backend; if both are current, report it as a bug");

    5 DispatchFailed "A launch did not complete, or its results do not match the request." {
        /// The backend or pipeline.
        backend: String,
        /// What happened.
        message: String,
    } ("dispatch on `{backend}` failed: {message}")
    Some("read the message; memory given for writing has unspecified contents");

    6 InvalidProgram "The program or its inputs break a rule that holds on every backend." {
        /// All diagnostics.
        diagnostics: Diagnostics,
    } ("{}{diagnostics}", heading(diagnostics))
    Some("correct what the diagnostics name; `vyre explain <code>` explains each of them");

    7 Trapped "The kernel reached a `trap`; the dispatch has no outputs." {
        /// The kernel's name.
        kernel: String,
        /// The code of the `trap`.
        code: u32,
    } ("kernel `{kernel}` trapped with code {code}")
    Some("look up the trap's code in the kernel");

    8 Timeout "The dispatch ran past `DispatchConfig::timeout` and was ended." {
        /// The backend.
        backend: String,
        /// The time limit.
        limit: Duration,
    } ("dispatch on `{backend}` was ended after its timeout of {limit:?}")
    Some("raise the timeout, give less work per dispatch, or look for a loop that does not end");

    9 DeviceLost "The device was reset, removed or taken away." {
        /// The backend.
        backend: String,
        /// The message of the device's interface.
        message: String,
    } ("the device of backend `{backend}` is lost: {message}")
    Some("acquire the backend again; its pipelines and resident buffers are gone");

    10 NotLinked "No backend with this id is linked into the process." {
        /// The requested id.
        id: String,
        /// The ids that are linked.
        linked: Vec<String>,
    } ("backend `{id}` is not linked; {}", listed(linked))
    Some("add the backend's crate or feature to the build, or use an id that is linked");

    11 DuplicateBackend "Two linked crates register a backend under one id." {
        /// The id.
        id: String,
        /// One description per claimant.
        claimants: Vec<String>,
    } ("backend id `{id}` is registered {} times: {}", claimants.len(), claimants.join(" and "))
    Some("link only one of them; `cargo tree --duplicates` shows two versions of one crate");

    12 NoUsableBackend "Every linked backend was refused or failed when it was tried." {
        /// Each backend and why it is not usable.
        reasons: String,
    } ("no backend is usable: {reasons}")
    Some("repair one of the backends listed, or link another; the `cpu` backend needs no device");

    13 AssertFailed "An `assert` of the kernel did not hold; the kernel ran on, and memory holds what it wrote." {
        /// The kernel's name.
        kernel: String,
        /// The message of the lowest invocation whose assert failed, among the messages that were
        /// kept.
        message: String,
        /// The line and column of that assert, if the program was parsed from text.
        at: Option<(usize, usize)>,
        /// That invocation.
        invocation: [u32; 3],
        /// Number of failed asserts.
        failed: u32,
    } ("kernel `{kernel}`: {}", assert_failed(message, *at, *invocation, *failed))
    Some(
        "look at what the assert says; `--asserts off`, or `asserts(false)` on a call, runs the kernel without asserts"
    );

    14 Cancelled "The caller cancelled the call." {
        /// What was cancelled.
        name: String,
    } ("the call of {name} was cancelled") None;

    15 TableFailed "A table of learnt data could not be read or written." {
        /// Each table and the reason.
        message: String,
    } ("{message}") Some("look at the folder's permissions and free space, or set `VYRE_TABLES` to another folder");
}

impl BackendError {
    /// An error with only a message. The message says what happened, to what, and how to fix it.
    pub fn new(message: impl Into<String>) -> BackendError {
        BackendError::Other { message: message.into() }
    }

    /// A failed launch on a backend.
    pub fn failed(backend: &str, message: impl Into<String>) -> BackendError {
        BackendError::DispatchFailed { backend: backend.into(), message: message.into() }
    }

    /// The error of a backend without resident buffers.
    pub(crate) fn no_resident_buffers(backend: &str) -> BackendError {
        BackendError::UnsupportedFeature { name: "resident buffers".into(), backend: backend.into() }
    }

    /// The row that describes this kind of error.
    pub fn kind(&self) -> &'static ErrorKind {
        &ERROR_KINDS[self.code() as usize - 1]
    }

    /// The error as seen by a call with this limit: a timeout reports the whole limit.
    #[must_use]
    pub fn of_call(self, limit: Option<Duration>) -> BackendError {
        match (self, limit) {
            (BackendError::Timeout { backend, .. }, Some(limit)) => BackendError::Timeout { backend, limit },
            (other, _) => other,
        }
    }

    /// The fix, if known.
    pub fn fix(&self) -> Option<&str> {
        match self {
            BackendError::InvalidProgram { diagnostics } => {
                let help = diagnostics.iter().find_map(|item| item.help.as_deref());
                help.or(self.kind().fix)
            }
            _ => self.kind().fix,
        }
    }
}

fn assert_failed(message: &str, at: Option<(usize, usize)>, [x, y, z]: [u32; 3], failed: u32) -> String {
    let place = at.map_or_else(String::new, |(line, column)| format!(" at {line}:{column}"));
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    let all = if failed > 1 { format!(" ({failed} asserts failed)") } else { String::new() };
    format!("assert failed{place} in invocation ({x}, {y}, {z}){said}{all}")
}

/// The heading before diagnostics: codes that begin with a D are mistakes in the call, not in its
/// program.
fn heading(diagnostics: &Diagnostics) -> &'static str {
    let is_of_call = diagnostics.iter().all(|item| item.code.as_str().starts_with('D'));
    if is_of_call && !diagnostics.is_empty() { "" } else { "invalid program:\n" }
}

fn listed(linked: &[String]) -> String {
    if linked.is_empty() { "no backend is".into() } else { format!("these are: {}", linked.join(", ")) }
}

impl std::error::Error for BackendError {
    /// The diagnostics of an invalid program or call, which [`Display`](fmt::Display) includes as
    /// well.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackendError::InvalidProgram { diagnostics } => Some(diagnostics),
            _ => None,
        }
    }
}

impl From<Diagnostics> for BackendError {
    fn from(diagnostics: Diagnostics) -> BackendError {
        BackendError::InvalidProgram { diagnostics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use vyre_foundation::diagnostics::{Code, Diagnostic};

    fn one_of_each() -> Vec<BackendError> {
        let (backend, message) = (String::from("toy"), String::from("what happened"));
        vec![
            BackendError::new("what happened"),
            BackendError::DeviceOutOfMemory { backend: backend.clone(), requested_bytes: 12 },
            BackendError::UnsupportedFeature { name: "f64".into(), backend: backend.clone() },
            BackendError::KernelCompileFailed { backend: backend.clone(), message: message.clone() },
            BackendError::DispatchFailed { backend: backend.clone(), message: message.clone() },
            BackendError::InvalidProgram { diagnostics: Diagnostics::default() },
            BackendError::Trapped { kernel: "saxpy".into(), code: 7 },
            BackendError::Timeout { backend: backend.clone(), limit: Duration::from_secs(1) },
            BackendError::DeviceLost { backend: backend.clone(), message },
            BackendError::NotLinked { id: "gone".into(), linked: vec!["toy".into()] },
            BackendError::DuplicateBackend { id: backend, claimants: vec!["a::B".into(), "c::D".into()] },
            BackendError::NoUsableBackend { reasons: "toy: broken".into() },
            BackendError::AssertFailed {
                kernel: "saxpy".into(),
                message: "negative".into(),
                at: Some((3, 5)),
                invocation: [1, 0, 0],
                failed: 2,
            },
            BackendError::Cancelled { name: "saxpy".into() },
            BackendError::TableFailed { message: "what happened".into() },
        ]
    }

    #[test]
    fn codes_are_stable_and_match_the_table() {
        let errors = one_of_each();
        assert_eq!(errors.len(), ERROR_KINDS.len());
        for (k, error) in errors.iter().enumerate() {
            assert_eq!(error.code() as usize, k + 1, "{error:?}");
            assert!(!error.to_string().is_empty());
            // A `main` that fails prints the one, a message the other.
            assert_eq!(format!("{error:?}"), error.to_string());
        }
    }

    #[test]
    fn every_diagnostic_is_shown_and_its_help_is_the_fix() {
        let fault = |message: &str, help: Option<&str>| Diagnostic {
            code: Code::NotRegions,
            message: message.into(),
            help: help.map(String::from),
            span: None,
            cause: None,
            edits: Vec::new(),
        };
        let diagnostics = Diagnostics::from(vec![fault("first", None), fault("second", Some("do this"))]);
        let error = BackendError::from(diagnostics);
        let text = error.to_string();
        assert!(text.contains("first") && text.contains("second") && text.contains("V025"), "{text}");
        assert_eq!(error.fix(), Some("do this"));
        let source = error.source().and_then(|source| source.downcast_ref::<Diagnostics>());
        assert_eq!(source.map(Diagnostics::len), Some(2));
        assert_eq!(BackendError::new("alone").source().map(ToString::to_string), None);
    }

    #[test]
    fn only_a_program_is_called_an_invalid_program() {
        let check = |codes: &[Code], expected: bool| {
            let fault = |&code: &Code| Diagnostic::new(code, "what is wrong");
            let error = BackendError::from(Diagnostics::from(codes.iter().map(fault).collect::<Vec<_>>()));
            assert_eq!(error.to_string().starts_with("invalid program:"), expected, "{error}");
        };
        check(&[Code::NotRegions], true);
        check(&[Code::Argument], false);
        check(&[Code::InputLength, Code::Argument], false);
        check(&[Code::Argument, Code::NotRegions], true);
    }

    #[test]
    fn not_linked_names_the_id_and_what_is_linked() {
        let some = BackendError::NotLinked { id: "x".into(), linked: vec!["a".into(), "b".into()] };
        assert_eq!(some.to_string(), "backend `x` is not linked; these are: a, b");
        let none = BackendError::NotLinked { id: "x".into(), linked: Vec::new() };
        assert_eq!(none.to_string(), "backend `x` is not linked; no backend is");
    }
}
