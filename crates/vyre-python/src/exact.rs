//! Exact float sums as Python objects.

use crate::errors;
use crate::memory::View;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vyre::{DataType, ExactFloat};

/// An exact sum of f32s or f64s. Sums combine with `+`, in any order, to the same bytes.
#[pyclass(frozen, module = "vyre._vyre")]
pub(crate) struct ExactSum(vyre::ExactSum);

#[pymethods]
impl ExactSum {
    /// Sum the elements of an array; an empty sum without one.
    #[new]
    #[pyo3(signature = (array=None))]
    fn new(py: Python<'_>, array: Option<&Bound<'_, PyAny>>) -> PyResult<ExactSum> {
        let Some(array) = array else { return Ok(ExactSum(vyre::ExactSum::new())) };
        let view = View::of(array)?;
        let bytes = view.bytes();
        match view.element().filter(|_| view.is_contiguous()) {
            Some(DataType::F32) => Ok(ExactSum(py.detach(|| sum(bytes, f32::from_le_bytes)))),
            Some(DataType::F64) => Ok(ExactSum(py.detach(|| sum(bytes, f64::from_le_bytes)))),
            Some(_) | None => {
                let message = "an exact sum takes a contiguous array of numpy.float32 or numpy.float64";
                Err(errors::argument(py, message.into()))
            }
        }
    }

    fn __add__(&self, other: &ExactSum) -> ExactSum {
        let mut sum = self.0.clone();
        sum.combine(&other.0);
        ExactSum(sum)
    }

    fn __eq__(&self, other: &ExactSum) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        format!("<vyre.ExactSum {:?}>", self.0.to_f64())
    }

    /// The sum, rounded to the nearest f32.
    #[getter]
    fn f32(&self) -> f32 {
        self.0.to_f32()
    }

    /// The sum, rounded to the nearest f64.
    #[getter]
    fn f64(&self) -> f64 {
        self.0.to_f64()
    }

    /// The sum as bytes; equal sums give equal bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// Restore a sum from its bytes.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<ExactSum> {
        let sum = vyre::ExactSum::from_bytes(bytes);
        sum.map(ExactSum).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let from_bytes = slf.get_type().getattr("from_bytes")?;
        Ok((from_bytes, (slf.get().__bytes__(slf.py()),)))
    }
}

/// Sums the floats in memory. Unaligned ones, which NumPy does not create itself, are copied first.
fn sum<T: ExactFloat, const N: usize>(bytes: &[u8], read: fn([u8; N]) -> T) -> vyre::ExactSum {
    match bytemuck::try_cast_slice::<u8, T>(bytes) {
        Ok(numbers) => vyre::ExactSum::of_shared(numbers, vyre::unstable::thread_count()),
        Err(_) => {
            let numbers: Vec<T> = bytes.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect();
            vyre::ExactSum::of(&numbers)
        }
    }
}
