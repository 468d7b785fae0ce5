//! NumPy arrays: creation and shapes.

use crate::element;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use vyre::DataType;

/// Creates a NumPy array with unspecified contents; the runtime zeroes a kernel's results.
pub(crate) fn array<'py>(py: Python<'py>, element: DataType, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    py.import("numpy")?.call_method1("empty", (PyTuple::new(py, shape)?, element::numpy_name(element)))
}

/// Shape of an object, if it has `count` elements.
pub(crate) fn shape_of(object: &Bound<'_, PyAny>, count: usize) -> Option<Vec<usize>> {
    let shape: Vec<usize> = object.getattr("shape").ok()?.extract().ok()?;
    let product = shape.iter().try_fold(1_usize, |all, &axis| all.checked_mul(axis));
    (product == Some(count)).then_some(shape)
}
