//! NumPy's arrays: made, and asked for their shapes.

use crate::element;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use vyre::DataType;

/// An array of NumPy's with unspecified contents: a kernel's results start from zero, which is the runtime's to see to.
pub(crate) fn array<'py>(py: Python<'py>, element: DataType, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    py.import("numpy")?.call_method1("empty", (PyTuple::new(py, shape)?, element::numpy_name(element)))
}

/// The lengths of an object's axes, if it has so many elements in more than one.
pub(crate) fn shape_of(object: &Bound<'_, PyAny>, count: usize) -> Option<Vec<usize>> {
    let shape: Vec<usize> = object.getattr("shape").ok()?.extract().ok()?;
    let product = shape.iter().try_fold(1_usize, |all, &axis| all.checked_mul(axis));
    (product == Some(count)).then_some(shape)
}
