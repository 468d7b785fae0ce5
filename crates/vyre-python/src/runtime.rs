//! Runtime of the process, created on first use.

use crate::errors;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vyre::{Message, Runtime};

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

fn slot() -> MutexGuard<'static, Option<Runtime>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the process's runtime.
pub(crate) fn get(py: Python<'_>) -> PyResult<Runtime> {
    // A thread that holds the slot can need the interpreter lock, to print.
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

/// Prints a kernel's message to the current `sys.stderr`.
fn print(message: &Message) {
    Python::attach(|py| {
        let line = format!("{}\n", message.text);
        let wrote = py.import("sys").and_then(|sys| sys.getattr("stderr")?.call_method1("write", (line,)));
        // A closed or missing stream drops the message, as with Python's `print`.
        drop(wrote);
    });
}

/// Return the backends that calls are routed to.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> PyResult<Vec<&'static str>> {
    Ok(get(py)?.backends().collect())
}

/// Return the backends that calls are not routed to, and why.
#[pyfunction]
pub(crate) fn refused(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    Ok(get(py)?.refused().into_iter().map(|refused| (refused.backend, refused.reason)).collect())
}

/// Wait until all background work is done.
#[pyfunction]
pub(crate) fn settle(py: Python<'_>) -> PyResult<()> {
    let runtime = get(py)?;
    py.detach(|| runtime.settle());
    Ok(())
}

/// Write the learnt data to the tables.
#[pyfunction]
pub(crate) fn save(py: Python<'_>) -> PyResult<()> {
    let runtime = get(py)?;
    py.detach(|| runtime.save()).map_err(|error| errors::call(py, &error, None))
}

/// Close the process's runtime, which writes the learnt data; kernels that have been called keep
/// working.
#[pyfunction]
pub(crate) fn close(py: Python<'_>) {
    py.detach(|| drop(slot().take()));
}
