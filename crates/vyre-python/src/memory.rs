//! Memory of Python objects, borrowed through the buffer protocol for the duration of a call.
//!
//! This is the crate's only unsafe code. The protocol guarantees that the memory of a view stays
//! valid until the view is released. The caller must ensure that nothing else writes to it while a
//! call runs without the interpreter lock, as with NumPy's functions.
#![allow(unsafe_code)]

use crate::element;
use crate::errors;
use crate::parameter::Parameter;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use vyre::DataType;
use vyre::ir::Access;

/// View of an object's memory.
pub(crate) struct View {
    raw: ffi::Py_buffer,
    element: Option<DataType>,
    contiguous: bool,
}

impl View {
    /// Requests a view from an object; fails if it provides none.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let mut raw = MaybeUninit::<ffi::Py_buffer>::uninit();
        let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_STRIDES;
        // SAFETY: the interpreter lock is held, the object is alive, and `raw` has room for the
        // view.
        let gave = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), raw.as_mut_ptr(), flags) };
        if gave != 0 {
            return Err(PyErr::take(object.py()).unwrap_or_else(|| PyBufferError::new_err("no buffer")));
        }
        // SAFETY: `PyObject_GetBuffer` succeeded, so `raw` is initialized.
        let raw = unsafe { raw.assume_init() };
        let element = match raw.format.is_null() {
            true => Some(DataType::U8),
            // SAFETY: a format is a C string that lives as long as the view.
            false => element::of_format(unsafe { CStr::from_ptr(raw.format) }, raw.itemsize),
        };
        // SAFETY: the view is complete. It is queried before it is moved, since its shape can point
        // into itself.
        let contiguous = unsafe { ffi::PyBuffer_IsContiguous(&raw, b'C' as _) } != 0;
        Ok(View { raw, element, contiguous })
    }

    /// Address and size of the memory in bytes.
    pub(crate) fn extent(&self) -> (usize, usize) {
        (self.raw.buf as usize, self.len())
    }

    fn len(&self) -> usize {
        usize::try_from(self.raw.len).unwrap_or(0)
    }

    /// Bytes for reading.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the view is contiguous (`check`), and its memory stays valid until it is
        // released, when it is dropped.
        unsafe { std::slice::from_raw_parts(self.raw.buf.cast(), self.len()) }
    }

    /// Bytes for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as in `bytes`; the memory is writable and overlaps no other of the call (`check`,
        // `disjoint`).
        unsafe { std::slice::from_raw_parts_mut(self.raw.buf.cast(), self.len()) }
    }

    /// Checks that the memory can be bound to a parameter; the error is a single line.
    pub(crate) fn check(&self, object: &Bound<'_, PyAny>, parameter: &Parameter, of: &str) -> PyResult<()> {
        let Parameter { name, element, access, .. } = parameter;
        let writes = matches!(access, Access::Output | Access::ReadWrite);
        let fits = self.element.is_some_and(|given| element::fits(given, *element));
        if fits && self.contiguous && !(writes && self.raw.readonly != 0) {
            return Ok(());
        }
        let numpy = element::numpy_name(*element);
        let message = if !fits {
            let given = self.given(object);
            format!("`{name}` of {of} has elements of {element}, not {given}; pass an array of numpy.{numpy}")
        } else if !self.contiguous {
            format!("`{name}` of {of} is not contiguous in memory; pass numpy.ascontiguousarray({name})")
        } else {
            format!("`{name}` of {of} is {access}, and what was passed cannot be written; pass a copy of it")
        };
        Err(errors::argument(object.py(), message))
    }

    /// Name of the element type, for messages.
    fn given(&self, object: &Bound<'_, PyAny>) -> String {
        match self.element {
            Some(element) => element.to_string(),
            None => match object.getattr("dtype") {
                Ok(named) => named.to_string(),
                // SAFETY: as in `of`.
                Err(_) => unsafe { CStr::from_ptr(self.raw.format) }.to_string_lossy().into_owned(),
            },
        }
    }

    pub(crate) fn element(&self) -> Option<DataType> {
        self.element
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// Reinterprets untyped bytes as elements of this type.
    pub(crate) fn retyped(mut self, element: DataType) -> View {
        self.element = Some(element);
        self
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: views are dropped by code that holds the interpreter lock, and this one has not
        // been released.
        unsafe { ffi::PyBuffer_Release(&mut self.raw) };
    }
}

/// Whether the object supports the buffer protocol.
pub(crate) fn lends(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the interpreter lock is held and the object is alive.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}
