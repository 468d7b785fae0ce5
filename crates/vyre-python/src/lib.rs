//! Extension module of the Python package `vyre`: kernel calls on memory of Python objects, and the
//! command line.
//!
//! `python/vyre` has the rest: the decorators, the translator from Python, the ready-made ops by
//! name, and the exceptions. The path of a call is entirely in this crate: [`kernel`] matches
//! arguments to parameters, [`number`] and [`memory`] read them, [`run`] runs the call and releases
//! the interpreter lock where that pays, and [`errors`] raises exceptions.

mod arrays;
mod element;
mod engines;
mod errors;
mod exact;
mod kernel;
mod memory;
mod number;
mod ops;
mod outputs;
mod parameter;
mod report;
mod resident;
mod run;
mod runtime;
mod signatures;

use pyo3::prelude::*;
use std::ffi::OsString;

/// Run the command line with these arguments, the first of which is the command's name, and return
/// its exit code.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| vyre_cli::run(words))
}

/// Set the command that starts the command line in a separate process.
#[pyfunction]
fn set_command(words: Vec<OsString>) {
    vyre::unstable::opening::set_command(words);
}

#[pymodule]
fn _vyre(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<kernel::PythonKernel>()?;
    module.add_class::<exact::ExactSum>()?;
    module.add_class::<report::Report>()?;
    module.add_class::<resident::Resident>()?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(set_command, module)?)?;
    module.add_function(wrap_pyfunction!(engines::bundle, module)?)?;
    module.add_function(wrap_pyfunction!(engines::certified, module)?)?;
    module.add_function(wrap_pyfunction!(engines::elementwise_proof, module)?)?;
    module.add_function(wrap_pyfunction!(ops::op, module)?)?;
    module.add_function(wrap_pyfunction!(ops::table, module)?)?;
    module.add_function(wrap_pyfunction!(signatures::signatures, module)?)?;
    module.add_function(wrap_pyfunction!(signatures::result, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::backends, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::refused, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::settle, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::save, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::close, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
