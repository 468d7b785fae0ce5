//! Support for kernels inside engines: the proof that they are elementwise, and bundles for
//! workers.

use crate::errors;
use crate::kernel::PythonKernel;
use crate::runtime;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::PathBuf;
use vyre::diagnostics::Diagnostics;
use vyre::unstable::foundation::elementwise::elementwise;
use vyre::unstable::foundation::kernel::BufferId;
use vyre::unstable::foundation::optimize::iteration_bound;
use vyre::{Certified, Program};

/// Kernels with loops longer than this are not run on values that the caller did not supply.
const MANY_ROUNDS: u64 = 1 << 16;

/// Return the names of a kernel's columns and of its parameters, and whether it ends soon for any
/// column values; raise if it is not elementwise.
#[pyfunction]
pub(crate) fn elementwise_proof(
    kernel: &Bound<'_, PythonKernel>,
) -> PyResult<(Vec<String>, Vec<String>, bool)> {
    let checked = kernel.get().checked();
    match elementwise(checked) {
        Ok(proof) => {
            let names = |ids: Vec<BufferId>| -> Vec<String> {
                ids.into_iter().map(|id| checked.buffer(id).decl.name.to_string()).collect()
            };
            let ends = iteration_bound(checked).is_some_and(|rounds| rounds <= MANY_ROUNDS);
            Ok((names(proof.columns), names(proof.parameters), ends))
        }
        Err(reason) => {
            let source = checked.source.clone();
            let text = source.as_deref().unwrap_or_default().to_owned();
            Err(errors::program(kernel.py(), &Diagnostics::new(vec![reason], source), &text))
        }
    }
}

/// Write the data learnt for these kernels to a file for workers.
#[pyfunction]
pub(crate) fn bundle(
    py: Python<'_>,
    kernels: Vec<Bound<'_, PythonKernel>>,
    path: PathBuf,
    origin: String,
) -> PyResult<()> {
    let programs: Vec<Program> = kernels.iter().map(|kernel| kernel.get().whole().clone()).collect();
    let runtime = runtime::get(py)?;
    let written = py.detach(|| {
        runtime.settle();
        runtime.export_of(&path, &origin, &programs)
    });
    written.map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Return for each backend its name, device, driver, the bundle that certified it, and why a
/// certificate does not apply; then the same as a line of text.
#[pyfunction]
pub(crate) fn certified(py: Python<'_>) -> PyResult<Vec<(Vec<Option<String>>, String)>> {
    let row = |item: Certified| {
        let line = item.to_string();
        (vec![Some(item.backend), Some(item.device), Some(item.driver), item.origin, item.instead_of], line)
    };
    Ok(runtime::get(py)?.certified().into_iter().map(row).collect())
}
