//! What can go wrong between a program and a device, told by who must act.
//!
//! Every kind has a row in one table, [`ERROR_KINDS`]: its stable code, what it means, and what to do about it. The
//! reference page of error codes is generated from that table.

use std::fmt;
use std::time::Duration;
use vyre_foundation::diagnostics::Diagnostics;

/// Why a backend did not do what it was asked.
///
/// ```
/// use vyre_driver::BackendError;
/// let error = BackendError::UnsupportedFeature { name: "f64".into(), backend: "toy".into() };
/// assert_eq!(error.code(), 3);
/// assert_eq!(error.to_string(), "backend `toy` does not support f64");
/// assert!(error.fix().is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// Anything that no other kind describes.
    Other {
        /// What happened, to which thing.
        message: String,
    },
    /// The device has no memory left for this.
    DeviceOutOfMemory {
        /// The backend.
        backend: String,
        /// How much was asked for.
        requested_bytes: u64,
    },
    /// This backend cannot do this; another one may.
    UnsupportedFeature {
        /// What it lacks.
        name: String,
        /// The backend.
        backend: String,
    },
    /// The device's own compiler refused what vyre gave it.
    KernelCompileFailed {
        /// The backend.
        backend: String,
        /// What its compiler said.
        message: String,
    },
    /// The launch did not complete.
    DispatchFailed {
        /// The backend or pipeline.
        backend: String,
        /// What happened.
        message: String,
    },
    /// The program, or what was given to run it on, is wrong on every backend.
    InvalidProgram {
        /// All that was found.
        diagnostics: Diagnostics,
    },
    /// The kernel itself ended the dispatch.
    Trapped {
        /// The kernel's name.
        kernel: String,
        /// The code that its `trap` gives.
        code: u32,
    },
    /// The dispatch ran past its deadline and was ended.
    Timeout {
        /// The backend.
        backend: String,
        /// The deadline.
        limit: Duration,
    },
    /// The device is gone; nothing on this backend instance will work again.
    DeviceLost {
        /// The backend.
        backend: String,
        /// What the device's interface said.
        message: String,
    },
    /// No backend with this id is part of the process.
    NotLinked {
        /// The id asked for.
        id: String,
        /// The ids that are there.
        linked: Vec<String>,
    },
    /// Several linked backends claim one id.
    DuplicateBackend {
        /// The id.
        id: String,
        /// One description per claimant.
        claimants: Vec<String>,
    },
    /// Backends are linked, but none can be used here.
    NoUsableBackend {
        /// Each backend and why not.
        reasons: String,
    },
}

/// One row of the table of error kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorKind {
    /// The number that [`BackendError::code`] gives; never reused.
    pub code: u32,
    /// The variant's name.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it, where that does not depend on the case.
    pub fix: Option<&'static str>,
}

/// Every kind of error, in the order of their codes.
pub const ERROR_KINDS: &[ErrorKind] = &[
    ErrorKind { code: 1, name: "Other", meaning: "Anything that no other kind describes.", fix: None },
    ErrorKind {
        code: 2,
        name: "DeviceOutOfMemory",
        meaning: "The device has no memory left for a buffer or a kernel.",
        fix: Some("free resident buffers, or split the work into smaller dispatches"),
    },
    ErrorKind {
        code: 3,
        name: "UnsupportedFeature",
        meaning: "The backend or its device lacks an op, a type, a size or an interface that was asked of it.",
        fix: Some("choose a backend or device that has it, or change the program or its configuration"),
    },
    ErrorKind {
        code: 4,
        name: "KernelCompileFailed",
        meaning: "The device's own compiler refused a program that vyre had accepted.",
        fix: Some(
            "update the device's driver, or choose another backend; if both are current, report it as a bug",
        ),
    },
    ErrorKind {
        code: 5,
        name: "DispatchFailed",
        meaning: "A launch did not complete, or gave something that does not fit what was asked.",
        fix: Some("read the message; memory given for writing has unspecified contents"),
    },
    ErrorKind {
        code: 6,
        name: "InvalidProgram",
        meaning: "The program, or the inputs given to it, break a rule that holds on every backend.",
        fix: Some("correct what the diagnostics name; `vyre explain <code>` tells more about each"),
    },
    ErrorKind {
        code: 7,
        name: "Trapped",
        meaning: "The kernel reached a `trap`; the dispatch has no outputs.",
        fix: Some("look up the trap's code in the kernel"),
    },
    ErrorKind {
        code: 8,
        name: "Timeout",
        meaning: "The dispatch ran past `DispatchConfig::timeout` and was ended.",
        fix: Some("raise the timeout, give less work per dispatch, or look for a loop that does not end"),
    },
    ErrorKind {
        code: 9,
        name: "DeviceLost",
        meaning: "The device was reset, removed or taken away.",
        fix: Some("acquire the backend again; its pipelines and resident buffers are gone"),
    },
    ErrorKind {
        code: 10,
        name: "NotLinked",
        meaning: "No backend with this id is part of the process.",
        fix: Some("add the backend's crate or feature to the build, or use an id that is linked"),
    },
    ErrorKind {
        code: 11,
        name: "DuplicateBackend",
        meaning: "Two linked crates register a backend under one id.",
        fix: Some("link one of them only; `cargo tree --duplicates` shows two versions of one crate"),
    },
    ErrorKind {
        code: 12,
        name: "NoUsableBackend",
        meaning: "Every linked backend was refused or failed when it was tried.",
        fix: Some("repair one of the backends listed, or link another; the `cpu` backend needs no device"),
    },
];

impl BackendError {
    /// An error that only has a message. Say what happened, to which thing, and what to do about it.
    pub fn new(message: impl Into<String>) -> BackendError {
        BackendError::Other { message: message.into() }
    }

    /// The row that describes this kind of error.
    pub fn kind(&self) -> &'static ErrorKind {
        let row = match self {
            BackendError::Other { .. } => 0,
            BackendError::DeviceOutOfMemory { .. } => 1,
            BackendError::UnsupportedFeature { .. } => 2,
            BackendError::KernelCompileFailed { .. } => 3,
            BackendError::DispatchFailed { .. } => 4,
            BackendError::InvalidProgram { .. } => 5,
            BackendError::Trapped { .. } => 6,
            BackendError::Timeout { .. } => 7,
            BackendError::DeviceLost { .. } => 8,
            BackendError::NotLinked { .. } => 9,
            BackendError::DuplicateBackend { .. } => 10,
            BackendError::NoUsableBackend { .. } => 11,
        };
        &ERROR_KINDS[row]
    }

    /// A number that stands for the kind of error; stable, never reused.
    pub fn code(&self) -> u32 {
        self.kind().code
    }

    /// What to do about it, where that is known.
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

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::Other { message } => f.write_str(message),
            BackendError::DeviceOutOfMemory { backend, requested_bytes } => {
                write!(
                    f,
                    "backend `{backend}` is out of device memory: {requested_bytes} bytes were asked for"
                )
            }
            BackendError::UnsupportedFeature { name, backend } => {
                write!(f, "backend `{backend}` does not support {name}")
            }
            BackendError::KernelCompileFailed { backend, message } => {
                write!(f, "backend `{backend}` could not compile the kernel: {message}")
            }
            BackendError::DispatchFailed { backend, message } => {
                write!(f, "dispatch on `{backend}` failed: {message}")
            }
            BackendError::InvalidProgram { diagnostics } => write!(f, "invalid program:\n{diagnostics}"),
            BackendError::Trapped { kernel, code } => write!(f, "kernel `{kernel}` trapped with code {code}"),
            BackendError::Timeout { backend, limit } => {
                write!(f, "dispatch on `{backend}` was ended after its timeout of {limit:?}")
            }
            BackendError::DeviceLost { backend, message } => {
                write!(f, "the device of backend `{backend}` is lost: {message}")
            }
            BackendError::NotLinked { id, linked } if linked.is_empty() => {
                write!(f, "backend `{id}` is not linked; no backend is")
            }
            BackendError::NotLinked { id, linked } => {
                write!(f, "backend `{id}` is not linked; these are: {}", linked.join(", "))
            }
            BackendError::DuplicateBackend { id, claimants } => {
                write!(
                    f,
                    "backend id `{id}` is registered {} times: {}",
                    claimants.len(),
                    claimants.join(" and ")
                )
            }
            BackendError::NoUsableBackend { reasons } => write!(f, "no backend is usable: {reasons}"),
        }
    }
}

impl std::error::Error for BackendError {}

impl From<Diagnostics> for BackendError {
    fn from(diagnostics: Diagnostics) -> BackendError {
        BackendError::InvalidProgram { diagnostics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        ]
    }

    #[test]
    fn codes_are_stable_and_match_the_table() {
        let errors = one_of_each();
        assert_eq!(errors.len(), ERROR_KINDS.len());
        for (k, error) in errors.iter().enumerate() {
            assert_eq!(error.code() as usize, k + 1, "{error:?}");
            let variant = format!("{error:?}");
            assert!(
                variant.starts_with(error.kind().name),
                "{variant} is described as {}",
                error.kind().name
            );
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn every_diagnostic_is_shown_and_its_help_is_the_fix() {
        let fault = |message: &str, help: Option<&str>| Diagnostic {
            code: Code::NotRegions,
            message: message.into(),
            help: help.map(String::from),
            span: None,
        };
        let diagnostics = Diagnostics::from(vec![fault("first", None), fault("second", Some("do this"))]);
        let error = BackendError::from(diagnostics);
        let text = error.to_string();
        assert!(text.contains("first") && text.contains("second") && text.contains("V025"), "{text}");
        assert_eq!(error.fix(), Some("do this"));
    }

    #[test]
    fn not_linked_names_the_id_and_what_is_linked() {
        let some = BackendError::NotLinked { id: "x".into(), linked: vec!["a".into(), "b".into()] };
        assert_eq!(some.to_string(), "backend `x` is not linked; these are: a, b");
        let none = BackendError::NotLinked { id: "x".into(), linked: Vec::new() };
        assert_eq!(none.to_string(), "backend `x` is not linked; no backend is");
    }
}
