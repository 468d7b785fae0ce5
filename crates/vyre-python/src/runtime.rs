//! The runtime that a process has, made when it is first wanted.

use crate::errors;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vyre::{Message, Runtime};

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

fn slot() -> MutexGuard<'static, Option<Runtime>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's runtime.
pub(crate) fn get(py: Python<'_>) -> PyResult<Runtime> {
    // Whoever holds the slot may need the interpreter's lock, to print.
    let made = py.detach(|| {
        let mut slot = slot();
        match &*slot {
            Some(runtime) => Ok(runtime.clone()),
            None => Runtime::builder()
                .on_print(print)
                .open_drivers_later()
                .build()
                .inspect(|made| *slot = Some(made.clone())),
        }
    });
    made.map_err(|error| errors::call(py, &error, None))
}

/// Kernels print to `sys.stderr`, wherever that goes.
fn print(message: &Message) {
    Python::attach(|py| {
        let line = format!("{}\n", message.text);
        let wrote = py.import("sys").and_then(|sys| sys.getattr("stderr")?.call_method1("write", (line,)));
        // A stream that is closed or `None` hears nothing, as with Python's own `print`.
        drop(wrote);
    });
}

/// The backends that calls are routed to.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> PyResult<Vec<&'static str>> {
    Ok(get(py)?.backends().collect())
}

/// The backends that calls are not routed to, and why.
#[pyfunction]
pub(crate) fn refused(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    Ok(get(py)?.refused().into_iter().map(|refused| (refused.backend, refused.reason)).collect())
}

/// Waits until nothing is being done in the background.
#[pyfunction]
pub(crate) fn settle(py: Python<'_>) -> PyResult<()> {
    let runtime = get(py)?;
    py.detach(|| runtime.settle());
    Ok(())
}

/// Writes what was learnt to the tables.
#[pyfunction]
pub(crate) fn save(py: Python<'_>) -> PyResult<()> {
    let runtime = get(py)?;
    py.detach(|| runtime.save()).map_err(|error| errors::call(py, &error, None))
}

/// Ends the process's runtime, which writes what it learnt; kernels that were called go on.
#[pyfunction]
pub(crate) fn close(py: Python<'_>) {
    py.detach(|| drop(slot().take()));
}
