//! A call under construction: names, types and access are checked as arguments are bound, and all faults told at once.

use crate::argument::{Argument, Memory};
use crate::dispatch;
use crate::pending::{Completion, Pending};
use crate::report::Report;
use crate::routine::{Parameter, RoutineCore};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{BackendError, DispatchConfig, Fallback, contain};
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::launch::{Launch, Overrides};

/// Programs with more buffers than this are called with an allocation.
pub(crate) const INLINE: usize = 8;

/// A call under construction, from [`Routine::call`](crate::Routine::call).
#[must_use = "a call does nothing until it is run"]
pub struct Call<'a> {
    core: &'a Arc<RoutineCore>,
    inline: [Memory<'a>; INLINE],
    /// Used instead if there are more parameters.
    spilled: Vec<Memory<'a>>,
    faults: Vec<Diagnostic>,
    pub(crate) options: CallOptions<'a>,
}

/// How a call is to be run.
#[derive(Default)]
pub(crate) struct CallOptions<'a> {
    /// The backend that the caller named.
    pub(crate) backend: Option<&'a str>,
    /// Whether to tune, instead of what the runtime does.
    pub(crate) tuning: Option<Mode>,
    fallback: Option<Fallback>,
    timeout: Option<Duration>,
    /// Everything else; apart, because a call is moved with every argument that is bound and most have none.
    config: Option<Box<DispatchConfig>>,
}

impl CallOptions<'_> {
    /// What was set on the call, over the routine's own configuration. Copies only where something was set.
    pub(crate) fn config<'a>(&'a self, base: &'a DispatchConfig) -> Cow<'a, DispatchConfig> {
        let config = self.config.as_deref().map_or(Cow::Borrowed(base), |own| own.merged(base));
        if self.fallback.is_none() && self.timeout.is_none() {
            return config;
        }
        let (fallback, timeout) = (self.fallback.or(config.fallback), self.timeout.or(config.timeout));
        Cow::Owned(DispatchConfig { fallback, timeout, ..config.into_owned() })
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(core: &'a Arc<RoutineCore>) -> Call<'a> {
        let more = core.parameters.len() > INLINE;
        let spilled = (0..if more { core.parameters.len() } else { 0 }).map(|_| Memory::Nothing).collect();
        Call {
            core,
            inline: [const { Memory::Nothing }; INLINE],
            spilled,
            faults: Vec::new(),
            options: CallOptions::default(),
        }
    }

    /// Binds memory to the buffer of that name: a number, a slice, or a resident buffer; `&mut` where the program writes.
    // Inlined, so that the call is built in place rather than moved with every argument.
    #[inline]
    pub fn bind(mut self, name: &str, argument: impl Into<Argument<'a>>) -> Call<'a> {
        self.take(name, argument.into());
        self
    }

    fn take(&mut self, name: &str, argument: Argument<'a>) {
        let core = self.core;
        match core.parameters.iter().position(|parameter| *parameter.name == *name) {
            None => self.faults.push(no_such_buffer(core, name)),
            Some(position) => {
                if let Some(fault) = misfit(core, &core.parameters[position], &argument) {
                    self.faults.push(fault);
                } else if !matches!(self.memory()[position], Memory::Nothing) {
                    self.faults.push(bound_twice(core, name));
                } else {
                    self.memory()[position] = argument.memory;
                }
            }
        }
    }

    /// Runs on this backend and no other, unless a fallback is allowed.
    pub fn on(mut self, backend: &'a str) -> Call<'a> {
        self.options.backend = Some(backend);
        self
    }

    /// Whether another backend may do the work if the chosen one cannot. Unset, a routed call may fall back with a
    /// warning, and one on a named backend may not. With `Allow`, memory that the program reads and writes is saved before
    /// each launch, so that a call can be repeated elsewhere even after its kernel ran.
    pub fn fallback(mut self, fallback: Fallback) -> Call<'a> {
        self.options.fallback = Some(fallback);
        self
    }

    /// Whether this call may have its shape tuned, in the background, for calls after it. Unset, as the runtime does.
    pub fn tuning(mut self, mode: Mode) -> Call<'a> {
        self.options.tuning = Some(mode);
        self
    }

    /// How long the call may take.
    pub fn timeout(mut self, limit: Duration) -> Call<'a> {
        self.options.timeout = Some(limit);
        self
    }

    /// Lays a configuration over the routine's; what was set on the call before stays.
    pub fn config(mut self, config: &DispatchConfig) -> Call<'a> {
        let laid = self.options.config.take().map_or_else(|| config.clone(), |own| own.over(config));
        self.options.config = Some(Box::new(laid));
        self
    }

    /// Runs the call and waits for it.
    pub fn run(mut self) -> Result<Report, BackendError> {
        self.check()?;
        self.run_bound()
    }

    /// Runs the call on a thread of its own, in a scope that outlives what is bound; at once if no thread can be had. Gives
    /// a [`Pending`] to wait for or to await. [`Routine::start_with`](crate::Routine::start_with) needs no scope.
    pub fn start<'scope>(self, scope: &'scope Scope<'scope, '_>) -> Pending<'scope>
    where
        'a: 'scope,
    {
        let (pending, completion) = Pending::new();
        let work = Handover::new((self, completion));
        let taken = work.clone();
        let started =
            thread::Builder::new().name("vyre-call".into()).spawn_scoped(scope, move || taken.run(finish));
        if started.is_err() {
            work.run(finish);
        }
        pending
    }

    pub(crate) fn run_checked(mut self) -> Result<Report, BackendError> {
        self.run_bound()
    }

    fn run_bound(&mut self) -> Result<Report, BackendError> {
        let Call { core, inline, spilled, options, .. } = self;
        let count = core.parameters.len();
        let memory = if spilled.is_empty() { &mut inline[..count] } else { &mut spilled[..] };
        dispatch::run(core, memory, options)
    }

    /// Whether it calls this routine.
    pub(crate) fn is_of(&self, core: &Arc<RoutineCore>) -> bool {
        Arc::ptr_eq(self.core, core)
    }

    /// What is bound: one item per parameter, in binding order.
    pub(crate) fn bound(&mut self) -> &mut [Memory<'a>] {
        if self.spilled.is_empty() {
            &mut self.inline[..self.core.parameters.len()]
        } else {
            &mut self.spilled[..]
        }
    }

    fn memory(&mut self) -> &mut [Memory<'a>] {
        if self.spilled.is_empty() { &mut self.inline } else { &mut self.spilled }
    }

    /// Every buffer is bound, and every length possible.
    pub(crate) fn check(&mut self) -> Result<(), BackendError> {
        let core = self.core;
        let memory = if self.spilled.is_empty() { &self.inline[..] } else { &self.spilled[..] };
        let mut fits = true;
        for (parameter, memory) in core.parameters.iter().zip(memory) {
            let length = memory.len();
            if matches!(memory, Memory::Nothing) {
                self.faults.push(not_bound(core, parameter));
            } else if parameter.count > 0 {
                fits &= length == parameter.count as usize * parameter.size;
            } else {
                fits &= length.is_multiple_of(parameter.size) && length / parameter.size <= u32::MAX as usize;
            }
        }
        if !self.faults.is_empty() {
            return Err(Diagnostics::from(std::mem::take(&mut self.faults)).into());
        }
        if !fits {
            let lengths: Vec<usize> = memory[..core.parameters.len()].iter().map(Memory::len).collect();
            Launch::from_bound(&core.kernel, &lengths, Overrides::default())?;
        }
        Ok(())
    }
}

fn finish((call, completion): (Call<'_>, Completion<Result<Report, BackendError>>)) {
    // Nobody joins the thread: a panic is an error like any other.
    completion.complete(contain(|| call.run()).unwrap_or_else(|message| Err(BackendError::new(message))));
}

/// Work for another thread that is not lost if there is none to be had.
pub(crate) struct Handover<W>(Arc<Mutex<Option<W>>>);

impl<W> Clone for Handover<W> {
    fn clone(&self) -> Self {
        Handover(self.0.clone())
    }
}

impl<W> Handover<W> {
    pub(crate) fn new(work: W) -> Handover<W> {
        Handover(Arc::new(Mutex::new(Some(work))))
    }

    /// Does the work, unless it was done.
    pub(crate) fn run(&self, with: impl FnOnce(W)) {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            with(work);
        }
    }
}

/// What is wrong with what a caller gave.
pub(crate) fn argument_fault(message: String) -> Diagnostic {
    Diagnostic::new(Code::Argument, message)
}

fn no_such_buffer(core: &RoutineCore, name: &str) -> Diagnostic {
    let names: Vec<&str> = core.parameters.iter().map(|parameter| &*parameter.name).collect();
    let kernel = core.kernel.display_name();
    argument_fault(format!("kernel `{kernel}` has no buffer `{name}` to bind"))
        .help(format!("it has: {}", names.join(", ")))
}

fn bound_twice(core: &RoutineCore, name: &str) -> Diagnostic {
    argument_fault(format!("buffer `{name}` of kernel `{}` is bound twice", core.kernel.display_name()))
        .help("bind each buffer once")
}

fn not_bound(core: &RoutineCore, parameter: &Parameter) -> Diagnostic {
    let Parameter { name, element, .. } = parameter;
    let mutable = if parameter.access.is_output() { "&mut " } else { "&" };
    argument_fault(format!("buffer `{name}` of kernel `{}` is not bound", core.kernel.display_name()))
        .help(format!("add `.bind(\"{name}\", {mutable}…)` with elements of {element}"))
}

/// Why the argument cannot stand for the parameter, if it cannot.
fn misfit(core: &RoutineCore, parameter: &Parameter, argument: &Argument<'_>) -> Option<Diagnostic> {
    let Parameter { name, element, access, .. } = parameter;
    let kernel = core.kernel.display_name();
    if !argument.kind.fits(*element) {
        let given = argument.kind.name;
        let message = format!("buffer `{name}` of kernel `{kernel}` has elements of {element}, not {given}");
        return Some(argument_fault(message).help(format!("bind {}", rust_type(parameter))));
    }
    if let Memory::Resident(buffer) = &argument.memory
        && !buffer.belongs_to(&core.shared)
    {
        let message = format!("the resident buffer bound to `{name}` belongs to another runtime");
        return Some(
            argument_fault(message).help("make it with the runtime that the program was loaded into"),
        );
    }
    let writable = matches!(argument.memory, Memory::Write(_) | Memory::Resident(_));
    if access.is_output() && !writable {
        let message =
            format!("buffer `{name}` of kernel `{kernel}` is {access}, and what was bound cannot be written");
        return Some(argument_fault(message).help(format!("bind it with `&mut {name}`")));
    }
    None
}

fn rust_type(parameter: &Parameter) -> String {
    use vyre_foundation::ir::DataType;
    let name = match parameter.element {
        DataType::Bool => "bool (u8 where the program writes)",
        DataType::F16 | DataType::Bf16 => "u16, the elements' bits",
        DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F32
        | DataType::F64 => parameter.element.name(),
    };
    format!("elements of type {name}")
}
