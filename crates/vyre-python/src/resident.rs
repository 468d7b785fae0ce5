//! Buffers that stay on a backend between calls.

use crate::arrays::{array, shape_of};
use crate::element;
use crate::errors;
use crate::memory::View;
use crate::parameter::Parameter;
use crate::runtime;
use pyo3::prelude::*;
use vyre::unstable::aliased;
use vyre::{Argument, DataType};

/// An array that stays on the device which first runs a call on it. Pass it instead of an array;
/// kernels can write to it.
#[pyclass(frozen, module = "vyre")]
pub(crate) struct Resident {
    buffer: vyre::Resident<u8>,
    pub(crate) element: DataType,
    shape: Vec<usize>,
}

impl Resident {
    /// Creates a buffer of zeros.
    pub(crate) fn zeros(py: Python<'_>, element: DataType, shape: Vec<usize>) -> PyResult<Resident> {
        let count: usize = shape.iter().product();
        let zeros = vec![0; count.saturating_mul(element.size())];
        Ok(Resident { buffer: runtime::get(py)?.resident(&zeros), element, shape })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The buffer as an argument with a compatible element type; any call can write it, as with
    /// Python arrays.
    pub(crate) fn argument(&self, element: DataType) -> Argument<'_> {
        Argument::resident_cell(element, aliased(&self.buffer))
    }

    /// Parameter against which arrays to copy from or to are checked.
    fn parameter(&self, into: bool) -> Parameter {
        let make = if into { Parameter::write } else { Parameter::read };
        make("array", self.element)
    }

    fn view(&self, array: &Bound<'_, PyAny>, into: bool) -> PyResult<View> {
        let of = "a resident array";
        let view = View::of(array)?;
        view.check(array, &self.parameter(into), of)?;
        let (given, own) = (view.extent().1 / self.element.size(), self.bytes() / self.element.size());
        if given != own {
            let message = format!("{of} has {own} elements, and the array {given}; pass one with {own}");
            return Err(errors::argument(array.py(), message));
        }
        Ok(view)
    }
}

#[pymethods]
impl Resident {
    #[new]
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Resident> {
        let complain = |message: &str| errors::argument(array.py(), message.into());
        let view =
            View::of(array).map_err(|_| complain("only arrays can be resident; pass a NumPy array"))?;
        let Some(element) = view.element() else {
            return Err(complain("kernels have no type for the elements of this array"));
        };
        if !view.is_contiguous() {
            return Err(complain(
                "the array is not contiguous in memory; pass numpy.ascontiguousarray(array)",
            ));
        }
        let count = view.extent().1 / element.size();
        let shape = shape_of(array, count).unwrap_or_else(|| vec![count]);
        Ok(Resident { buffer: runtime::get(array.py())?.resident(view.bytes()), element, shape })
    }

    /// The length of each axis.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// NumPy's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        element::numpy_name(self.element)
    }

    /// The backend that holds it; `None` before the first call.
    #[getter]
    fn backend(&self) -> Option<&'static str> {
        self.buffer.backend()
    }

    /// Copy the contents, into `out` if passed, and return the copy.
    #[pyo3(signature = (out=None))]
    fn read<'py>(&self, py: Python<'py>, out: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let out = match out {
            Some(out) => out,
            None => array(py, self.element, &self.shape)?,
        };
        let mut view = self.view(&out, true)?;
        let bytes = view.bytes_mut();
        py.detach(|| self.buffer.read_into(0, bytes)).map_err(|error| errors::call(py, &error, None))?;
        drop(view);
        Ok(out)
    }

    /// Replace the contents.
    fn write(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, view) = (array.py(), self.view(array, false)?);
        let bytes = view.bytes();
        py.detach(|| aliased(&self.buffer).write(0, bytes)).map_err(|error| errors::call(py, &error, None))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            let message = "the contents are on a device; an array of them is a copy";
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let array = self.read(py, None)?;
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    fn __repr__(&self) -> String {
        let place = self.buffer.backend().map_or("no device yet".into(), |id| format!("`{id}`"));
        format!("<vyre.Resident: {:?} elements of {} on {place}>", self.shape, self.element)
    }
}
