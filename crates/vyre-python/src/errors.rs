//! Errors, raised as the exceptions that `vyre/errors.py` defines.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vyre::BackendError;
use vyre::unstable::foundation::diagnostics::{Diagnostics, Severity, line_column};

const MODULE: &str = "vyre.errors";

/// Exception for an argument that does not fit.
pub(crate) fn argument(py: Python<'_>, message: String) -> PyErr {
    raised(py, "ArgumentError", (message,))
}

/// Exception for an invalid program, with every fault in its message and as data.
pub(crate) fn program(py: Python<'_>, diagnostics: &Diagnostics, source: &str) -> PyErr {
    let faults = diagnostics.iter().map(|item| {
        let place = item.span.map(|span| line_column(source, span.start));
        let fault = PyDict::new(py);
        fault.set_item("code", item.code.as_str())?;
        fault.set_item("severity", if item.severity() == Severity::Error { "error" } else { "warning" })?;
        fault.set_item("message", item.message_in(source))?;
        fault.set_item("help", item.help.as_deref())?;
        fault.set_item("line", place.map(|(line, _)| line))?;
        fault.set_item("column", place.map(|(_, column)| column))?;
        Ok(fault)
    });
    match faults.collect::<PyResult<Vec<_>>>() {
        Ok(faults) => raised(py, "ProgramError", (diagnostics.to_string(), faults)),
        Err(error) => error,
    }
}

/// Exception for a call that failed. `kernel` is the callee, if its source has positions to show.
pub(crate) fn call(py: Python<'_>, error: &BackendError, kernel: Option<&Bound<'_, PyAny>>) -> PyErr {
    let code = format!("E{:03}", error.code());
    let (kind, message, at) = match error {
        BackendError::InvalidProgram { diagnostics } => {
            let line = |item: &vyre::diagnostics::Diagnostic| match &item.help {
                Some(help) => format!("{}; {help}", item.message),
                None => item.message.clone(),
            };
            let lines: Vec<String> = diagnostics.iter().map(line).collect();
            return argument(py, lines.join("\n"));
        }
        BackendError::AssertFailed { at, .. } => ("AssertFailed", error.to_string(), *at),
        BackendError::Trapped { .. } => ("Trapped", error.to_string(), None),
        BackendError::Timeout { .. } => ("Timeout", error.to_string(), None),
        BackendError::NotLinked { .. } => return argument(py, error.to_string()),
        _ => ("DeviceError", error.to_string(), None),
    };
    raised(py, "of_call", (kind, message, code, error.fix(), at, kernel))
}

/// Name of an object's type.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".into(), |name| format!("a {name}"))
}

/// Calls `name` in `vyre.errors` and returns the resulting exception.
fn raised<'py>(py: Python<'py>, name: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let made = py.import(MODULE).and_then(|module| module.getattr(name)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}
