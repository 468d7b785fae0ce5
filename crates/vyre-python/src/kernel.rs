//! Kernels as Python callables.

use crate::errors;
use crate::outputs::Sizing;
use crate::parameter::{self, Parameter};
use crate::report::Report;
use crate::run::{self, All, Given, INLINE, KeywordOptions, LastCall};
use crate::runtime;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;
use vyre::diagnostics::Diagnostics;
use vyre::ir::Access;
use vyre::unstable::foundation::kernel;
use vyre::unstable::foundation::text;
use vyre::{Constants, Program, Routine};

/// A checked program. It is loaded into the process's runtime when it is first called.
#[pyclass(name = "Kernel", subclass, frozen, module = "vyre._vyre")]
pub(crate) struct PythonKernel {
    text: String,
    program: Program,
    kernel: kernel::Kernel,
    /// Name used in messages.
    title: String,
    parameters: Vec<Parameter>,
    /// Indices of the parameters among all declarations.
    declared: Vec<usize>,
    /// Positions of the parameters that are read, in binding order.
    inputs: Vec<usize>,
    /// Number of parameters that are results.
    results: usize,
    /// Maximum number of parameters that a caller can pass.
    most: usize,
    routine: OnceLock<Routine>,
    last_call: LastCall,
}

type Objects<'py> = SmallVec<[Option<Bound<'py, PyAny>>; INLINE]>;

impl PythonKernel {
    /// The validated kernel.
    pub(crate) fn checked(&self) -> &kernel::Kernel {
        &self.kernel
    }

    /// The program as loaded.
    pub(crate) fn whole(&self) -> &Program {
        &self.program
    }

    fn routine(&self, py: Python<'_>) -> PyResult<&Routine> {
        match self.routine.get() {
            Some(routine) => Ok(routine),
            None => self.load(py),
        }
    }

    #[cold]
    fn load(&self, py: Python<'_>) -> PyResult<&Routine> {
        let runtime = runtime::get(py)?;
        let loaded = py.detach(|| runtime.load(&self.program));
        let routine = loaded.map_err(|error| errors::call(py, &error, None))?;
        Ok(self.routine.get_or_init(|| routine))
    }

    /// Arguments in parameter order; `None` for results that the call creates.
    fn place<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Objects<'py>> {
        let named = named.filter(|named| !named.is_empty());
        if args.len() == self.parameters.len() && named.is_none() {
            return Ok(args.iter().map(Some).collect());
        }
        let mut objects: Objects<'py> = self.parameters.iter().map(|_| None).collect();
        let all = args.len() == self.most;
        let is_free = |parameter: &Parameter| parameter.is_given() && (all || !parameter.is_result());
        let mut free =
            self.parameters.iter().zip(objects.iter_mut()).filter(|(parameter, _)| is_free(parameter));
        for object in args.iter() {
            let Some((_, place)) = free.next() else { return Err(self.miscounted(args.py(), args.len())) };
            *place = Some(object);
        }
        for (name, object) in named.iter().flat_map(|named| named.iter()) {
            self.place_named(&name.cast_into::<PyString>()?.to_string(), object, &mut objects)?;
        }
        for (parameter, object) in self.parameters.iter().zip(&objects) {
            if object.is_none() && parameter.is_given() && !parameter.is_result() {
                let message =
                    format!("`{}` of {} is missing; it takes {}", parameter.name, self.title, self.takes());
                return Err(errors::argument(args.py(), message));
            }
        }
        self.measure(args.py(), &mut objects)?;
        Ok(objects)
    }

    /// Fills in the parameters that are axis lengths.
    fn measure<'py>(&self, py: Python<'py>, objects: &mut Objects<'py>) -> PyResult<()> {
        for (place, parameter) in self.parameters.iter().enumerate() {
            let Some((of, axis)) = parameter.axis else { continue };
            let array = objects.get(of).and_then(Option::as_ref);
            let shape = array.and_then(|array| array.getattr("shape").ok()?.extract::<Vec<usize>>().ok());
            let length = shape.as_deref().filter(|shape| shape.len() == 2).and_then(|shape| shape.get(axis));
            let Some(length) = length else {
                let (name, axes) = (&self.parameters[of].name, shape.map_or(1, |shape| shape.len()));
                let message = format!("`{name}` of {} has two axes, not {axes}", self.title);
                return Err(errors::argument(py, message));
            };
            objects[place] = Some(length.into_pyobject(py)?.into_any());
        }
        Ok(())
    }

    fn place_named<'py>(
        &self,
        name: &str,
        object: Bound<'py, PyAny>,
        objects: &mut Objects<'py>,
    ) -> PyResult<()> {
        let py = object.py();
        let twice = |name: &str| {
            errors::argument(py, format!("`{name}` of {} is passed twice; pass it once", self.title))
        };
        let is_it = |parameter: &Parameter| parameter.name == name && parameter.is_given();
        if let Some(place) = self.parameters.iter().position(is_it) {
            return match objects[place].replace(object) {
                None => Ok(()),
                Some(_) => Err(twice(name)),
            };
        }
        if name != "out" || self.results == 0 {
            let message = format!("{} has no parameter `{name}`; it takes {}", self.title, self.takes());
            return Err(errors::argument(py, message));
        }
        let given: Vec<Bound<'py, PyAny>> = match object.cast::<PyTuple>() {
            Ok(several) => several.iter().collect(),
            Err(_) => vec![object],
        };
        if given.len() != self.results {
            let message = format!("`out` of {} is {} arrays, not {}", self.title, self.results, given.len());
            return Err(errors::argument(py, message));
        }
        let results = self.parameters.iter().enumerate().filter(|(_, parameter)| parameter.is_result());
        for ((place, parameter), object) in results.zip(given) {
            if objects[place].replace(object).is_some() {
                return Err(twice(&parameter.name));
            }
        }
        Ok(())
    }

    fn miscounted(&self, py: Python<'_>, count: usize) -> PyErr {
        errors::argument(py, format!("{} takes {}, not {count} arguments", self.title, self.takes()))
    }

    fn takes(&self) -> String {
        let given = self.parameters.iter().filter(|parameter| parameter.is_given());
        let names: Vec<&str> = given.map(|parameter| parameter.name.as_str()).collect();
        format!("({})", names.join(", "))
    }

    /// Creates the results that were not passed, and reads all arguments.
    fn complete<'py>(
        &self,
        py: Python<'py>,
        objects: &mut Objects<'py>,
        options: &KeywordOptions,
    ) -> PyResult<All<'py>> {
        let mut read: Vec<Option<Given<'py>>> = Vec::new();
        for (object, parameter) in objects.iter().zip(&self.parameters) {
            let given = object.as_ref().map(|object| Given::read(object, parameter, &self.title));
            read.push(given.transpose()?);
        }
        let sizing = Sizing {
            kernel: &self.kernel,
            parameters: &self.parameters,
            inputs: &self.inputs,
            declared: &self.declared,
            objects,
            domain: options.domain.as_deref(),
        };
        for (position, made) in sizing.make(py, &read)? {
            read[position] = Some(Given::read(&made, &self.parameters[position], &self.title)?);
            objects[position] = Some(made);
        }
        Ok(read.into_iter().flatten().collect())
    }

    fn call<'py>(
        slf: &Bound<'py, PythonKernel>,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        options: &KeywordOptions,
    ) -> PyResult<(Py<PyAny>, vyre::Report)> {
        let (py, kernel) = (slf.py(), slf.get());
        let routine = kernel.routine(py)?;
        let mut objects = kernel.place(args, named)?;
        let mut given: All<'py> = SmallVec::new();
        if objects.iter().all(Option::is_some) {
            for (object, parameter) in objects.iter().flatten().zip(&kernel.parameters) {
                given.push(Given::read(object, parameter, &kernel.title)?);
            }
        } else {
            given = kernel.complete(py, &mut objects, options)?;
        }
        run::disjoint(py, &kernel.parameters, &given, &kernel.title)?;
        let report =
            run::run(py, routine.call(), (&kernel.parameters, &mut given), options, &kernel.last_call)
                .map_err(|error| errors::call(py, &error, Some(slf.as_any())))?;
        Ok((kernel.results_of(py, objects)?, report))
    }

    /// Return value of a call: its result, a tuple of several, or `None` if there are none.
    fn results_of<'py>(&self, py: Python<'py>, objects: Objects<'py>) -> PyResult<Py<PyAny>> {
        if self.results == 0 {
            return Ok(py.None());
        }
        let with = objects.into_iter().zip(&self.parameters);
        let mut results = with.filter_map(|(object, parameter)| object.filter(|_| parameter.is_result()));
        match (self.results, results.next()) {
            (1, Some(only)) => Ok(only.unbind()),
            (_, first) => {
                let all: Vec<Bound<'py, PyAny>> = first.into_iter().chain(results).collect();
                Ok(PyTuple::new(py, all)?.into_any().unbind())
            }
        }
    }
}

#[pymethods]
impl PythonKernel {
    /// Parse a kernel, with values for its constants. `axes` lists the parameters that are the
    /// length of an axis of another parameter's array and are not passed by callers: their name,
    /// the other's, and the axis.
    #[new]
    #[pyo3(signature = (text, constants=None, axes=None))]
    fn new(
        py: Python<'_>,
        text: String,
        constants: Option<BTreeMap<String, String>>,
        axes: Option<Vec<(String, String, usize)>>,
    ) -> PyResult<PythonKernel> {
        let mut set = Constants::new();
        for (name, value) in constants.into_iter().flatten() {
            set = set.set(name, value);
        }
        let refuse = |faults: Diagnostics| errors::program(py, &faults, &text);
        let program = text::parse_with(&text, &set).map_err(refuse)?.in_regions();
        let kernel = program.validate().map_err(refuse)?;
        let mut parameters = parameter::of_program(&program);
        for (name, of, axis) in axes.into_iter().flatten() {
            let place = |name: &str| parameters.iter().position(|parameter| parameter.name == name);
            if let (Some(place), Some(of)) = (place(&name), place(&of)) {
                parameters[place].axis = Some((of, axis));
            }
        }
        let buffers = program.buffers().iter().enumerate();
        let bound: Vec<_> = buffers.filter(|(_, buffer)| buffer.access != Access::Workgroup).collect();
        let mut inputs: Vec<(u32, usize)> = Vec::new();
        for (position, (_, buffer)) in bound.iter().enumerate() {
            if buffer.access.is_input() {
                inputs.push((buffer.binding, position));
            }
        }
        inputs.sort_unstable();
        Ok(PythonKernel {
            title: program.name().map_or_else(|| "the kernel".into(), |name| format!("kernel `{name}`")),
            declared: bound.iter().map(|(place, _)| *place).collect(),
            inputs: inputs.into_iter().map(|(_, position)| position).collect(),
            results: parameters.iter().filter(|parameter| parameter.is_result()).count(),
            most: parameters.iter().filter(|parameter| parameter.is_given()).count(),
            routine: OnceLock::new(),
            last_call: LastCall::unknown(),
            text,
            kernel,
            parameters,
            program,
        })
    }

    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        const USUAL: &KeywordOptions =
            &KeywordOptions { on: None, timeout: None, asserts: None, domain: None };
        PythonKernel::call(slf, args, named, USUAL).map(|(results, _)| results)
    }

    /// Call the kernel with options, and return its results and a report.
    #[pyo3(signature = (*args, on=None, timeout=None, asserts=None, domain=None, **named))]
    fn run<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        on: Option<String>,
        timeout: Option<f64>,
        asserts: Option<bool>,
        domain: Option<Vec<u32>>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(Py<PyAny>, Report)> {
        let timeout = timeout.map(|limit| seconds(slf.py(), limit)).transpose()?;
        let options = KeywordOptions { on, timeout, asserts, domain };
        let (results, report) = PythonKernel::call(slf, args, named, &options)?;
        Ok((results, Report(report)))
    }

    /// Explain where calls over this many elements run and why, as text and as JSON.
    fn explained(&self, py: Python<'_>, elements: usize) -> PyResult<(String, String)> {
        let explanation = self.routine(py)?.explain(elements);
        Ok((explanation.to_string(), explanation.to_json()))
    }

    /// The text of the program.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// The program in the standard layout, with constants substituted.
    #[getter]
    fn program(&self) -> String {
        text::print(&self.program)
    }

    /// The fingerprint of the program: 64 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.program.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The name of the kernel.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.program.name().map(|name| &**name)
    }

    /// The name, access and element type of each parameter, and whether it is a single number.
    #[getter]
    fn parameters(&self) -> Vec<(String, &'static str, &'static str, bool)> {
        let shown = |parameter: &Parameter| {
            let Parameter { name, access, element, single, .. } = parameter;
            (name.clone(), access.name(), element.name(), *single)
        };
        self.parameters.iter().filter(|parameter| parameter.is_given()).map(shown).collect()
    }
}

/// Converts a time limit in seconds.
pub(crate) fn seconds(py: Python<'_>, limit: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(limit).map_err(|_| {
        errors::argument(py, format!("a timeout of {limit} seconds; pass a number that is not negative"))
    })
}
