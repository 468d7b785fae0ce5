//! Calls: arguments read from Python objects, bound, and run.

use crate::element;
use crate::errors;
use crate::memory::{self, View};
use crate::number::{self, Bytes};
use crate::parameter::Parameter;
use crate::resident::Resident;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vyre::ir::Access;
use vyre::{Argument, BackendError, Call, Report};

/// Calls with more parameters than this allocate.
pub(crate) const INLINE: usize = 8;

/// Argument of a call.
pub(crate) enum Given<'py> {
    Number(Bytes),
    Memory(View),
    Resident(Bound<'py, Resident>),
}

/// Arguments of a call, one per parameter.
pub(crate) type All<'py> = SmallVec<[Given<'py>; INLINE]>;

impl<'py> Given<'py> {
    /// Reads an object as the argument for a parameter; `of` names the kernel or op.
    pub(crate) fn read(object: &Bound<'py, PyAny>, parameter: &Parameter, of: &str) -> PyResult<Given<'py>> {
        if parameter.single {
            return number::bytes(object, parameter, of).map(Given::Number);
        }
        match View::of(object) {
            Ok(view) => {
                let view = match view.check(object, parameter, of) {
                    Ok(()) => view,
                    Err(_) if is_untyped(object) => {
                        let view = view.retyped(parameter.element);
                        view.check(object, parameter, of)?;
                        view
                    }
                    Err(error) => return Err(error),
                };
                Ok(Given::Memory(view))
            }
            Err(error) => Given::read_other(object, parameter, of, error),
        }
    }

    /// Reads an object without the buffer protocol: a resident buffer, or an array that NumPy can
    /// view.
    #[cold]
    fn read_other(
        object: &Bound<'py, PyAny>,
        parameter: &Parameter,
        of: &str,
        error: PyErr,
    ) -> PyResult<Given<'py>> {
        let Parameter { name, element, .. } = parameter;
        if let Ok(resident) = object.cast::<Resident>() {
            let given = resident.get().element;
            if element::fits(given, *element) {
                return Ok(Given::Resident(resident.clone()));
            }
            let message = format!("`{name}` of {of} has elements of {element}, not {given}");
            return Err(errors::argument(object.py(), message));
        }
        // A refused view states the reason.
        if memory::lends(object) {
            let message = format!("`{name}` of {of} cannot be used: {}", error.value(object.py()));
            return Err(errors::argument(object.py(), message));
        }
        if object.hasattr("__dlpack__")? {
            let seen = object.py().import("numpy")?.call_method1("from_dlpack", (object,));
            if let Ok(seen) = seen.as_ref()
                && !seen.is(object)
            {
                return Given::read(seen, parameter, of);
            }
        }
        let (kind, numpy) = (errors::type_name(object), element::numpy_name(*element));
        let message = format!(
            "`{name}` of {of} takes an array of {element}, not {kind}; pass an array of numpy.{numpy}"
        );
        Err(errors::argument(object.py(), message))
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Given::Number((_, size)) => *size,
            Given::Memory(view) => view.extent().1,
            Given::Resident(resident) => resident.get().bytes(),
        }
    }

    /// Bytes, if they are in host memory.
    pub(crate) fn contents(&self) -> Option<&[u8]> {
        match self {
            Given::Number((bytes, size)) => bytes.get(..*size),
            Given::Memory(view) => Some(view.bytes()),
            Given::Resident(_) => None,
        }
    }

    fn argument(&mut self, parameter: &Parameter) -> Argument<'_> {
        match self {
            Given::Number((bytes, size)) => Argument::bytes(&bytes[..*size]),
            Given::Memory(view) => match writes(parameter.access) {
                true => Argument::bytes_mut(view.bytes_mut()),
                false => Argument::bytes(view.bytes()),
            },
            Given::Resident(resident) => resident.get().argument(parameter.element),
        }
    }
}

fn writes(access: Access) -> bool {
    matches!(access, Access::ReadWrite | Access::Output)
}

/// Whether the object holds untyped bytes, as Arrow's buffers do.
fn is_untyped(object: &Bound<'_, PyAny>) -> bool {
    object.get_type().module().is_ok_and(|module| module == "pyarrow.lib")
}

/// Fails if memory that is written is reached by two parameters.
pub(crate) fn disjoint(py: Python<'_>, parameters: &[Parameter], given: &All<'_>, of: &str) -> PyResult<()> {
    for (position, (parameter, item)) in parameters.iter().zip(given).enumerate() {
        let Given::Memory(view) = item else { continue };
        if !writes(parameter.access) {
            continue;
        }
        let (start, size) = view.extent();
        for (other, (beside, item)) in parameters.iter().zip(given).enumerate() {
            let Given::Memory(view) = item else { continue };
            let (from, length) = view.extent();
            if other != position && start < from + length && from < start + size {
                let (written, beside) = (&parameter.name, &beside.name);
                let message = format!(
                    "`{written}` of {of} is written, and its memory overlaps that of `{beside}`; pass a copy of one"
                );
                return Err(errors::argument(py, message));
            }
        }
    }
    Ok(())
}

/// Options of a call.
#[derive(Default)]
pub(crate) struct KeywordOptions {
    pub(crate) on: Option<String>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) asserts: Option<bool>,
    pub(crate) domain: Option<Vec<u32>>,
}

impl KeywordOptions {
    fn lay<'a>(&'a self, mut call: Call<'a>) -> Call<'a> {
        if let Some(backend) = &self.on {
            call = call.on(backend);
        }
        if let Some(limit) = self.timeout {
            call = call.timeout(limit);
        }
        if let Some(checked) = self.asserts {
            call = call.asserts(checked);
        }
        match self.domain.as_deref() {
            None => call,
            Some(&[x]) => call.domain([x as usize]),
            Some(&[x, y]) => call.domain([x, y].map(|count| count as usize)),
            Some(&[x, y, z]) => call.domain([x, y, z].map(|count| count as usize)),
            Some(_) => call.domain([]),
        }
    }
}

/// Duration and size of a kernel's last call, from which that of the next is estimated.
pub(crate) struct LastCall {
    nanoseconds: AtomicU64,
    bytes: AtomicU64,
}

impl LastCall {
    /// Duration from which a call releases the interpreter lock, in nanoseconds. Releasing and
    /// retaking an uncontended lock takes about 60 ns, less than one percent of such a call, and
    /// lets other threads run.
    const WORTH_LETTING_GO: u64 = 10_000;

    /// Unknown, as before the first call, which compiles.
    pub(crate) fn unknown() -> LastCall {
        LastCall { nanoseconds: AtomicU64::new(u64::MAX), bytes: AtomicU64::new(1) }
    }

    fn is_long(&self, bytes: u64) -> bool {
        let (took, before) = (self.nanoseconds.load(Relaxed), self.bytes.load(Relaxed));
        took.saturating_mul((bytes / before.max(1)).max(1)) >= LastCall::WORTH_LETTING_GO
    }

    fn learn(&self, bytes: u64, report: &Report) {
        self.nanoseconds.store(u64::try_from(report.wall.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.bytes.store(bytes, Relaxed);
    }
}

/// Runs a call on its arguments.
pub(crate) fn run<'a>(
    py: Python<'_>,
    call: Call<'a>,
    (parameters, given): (&[Parameter], &'a mut All<'_>),
    options: &'a KeywordOptions,
    last_call: &LastCall,
) -> Result<Report, BackendError> {
    let bytes = given.iter().map(|given| given.len() as u64).sum();
    let mut call = options.lay(call);
    for (parameter, given) in parameters.iter().zip(given.iter_mut()) {
        call = call.bind(&parameter.name, given.argument(parameter));
    }
    let report = match options.timeout.is_some() || last_call.is_long(bytes) {
        true => py.detach(|| call.run()),
        false => call.run(),
    }?;
    last_call.learn(bytes, &report);
    Ok(report)
}
