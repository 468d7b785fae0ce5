//! A call under construction: names, types and access are checked as arguments are bound, and all faults told at once.

use crate::argument::{Argument, Memory};
use crate::dispatch;
use crate::pending::{Completion, Pending};
use crate::report::Report;
use crate::routine::{Parameter, RoutineCore};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{BackendError, DispatchConfig, Fallback, contain};
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::launch::{Launch, Overrides};

/// Programs with more buffers than this are called with an allocation. A call is moved with every argument that is bound, so
/// it is kept within eight of the machine's vectors.
pub(crate) const INLINE: usize = 7;

/// A call under construction, from [`Routine::call`](crate::Routine::call).
#[must_use = "a call does nothing until it is run"]
pub struct Call<'a> {
    core: &'a Arc<RoutineCore>,
    slots: Slots<'a>,
    /// How many buffers are bound.
    bound: usize,
    faults: Option<Box<Faults>>,
    pub(crate) options: CallOptions<'a>,
}

/// One place per parameter, in binding order.
enum Slots<'a> {
    Inline([Memory<'a>; INLINE]),
    /// Where there are more parameters than that.
    Spilled(Vec<Memory<'a>>),
}

impl<'a> Slots<'a> {
    #[inline]
    fn get_mut(&mut self, position: usize) -> Option<&mut Memory<'a>> {
        match self {
            Slots::Inline(memory) => memory.get_mut(position),
            Slots::Spilled(memory) => memory.get_mut(position),
        }
    }

    /// The places of this routine's parameters.
    #[inline]
    fn of(&mut self, core: &RoutineCore) -> &mut [Memory<'a>] {
        match self {
            Slots::Inline(memory) => &mut memory[..core.parameters.len()],
            Slots::Spilled(memory) => memory,
        }
    }
}

/// What keeps a call from being run.
#[derive(Default)]
struct Faults {
    found: Vec<Diagnostic>,
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
    /// What was set on the call, over the routine's own configuration; `None` where nothing was set.
    #[inline]
    pub(crate) fn config(&self, base: &DispatchConfig) -> Option<DispatchConfig> {
        let unset = self.config.is_none() && self.fallback.is_none() && self.timeout.is_none();
        if unset { None } else { Some(self.laid_over(base)) }
    }

    fn laid_over(&self, base: &DispatchConfig) -> DispatchConfig {
        let config = self.config.as_deref().map_or_else(|| base.clone(), |own| own.over(base));
        let (fallback, timeout) = (self.fallback.or(config.fallback), self.timeout.or(config.timeout));
        DispatchConfig { fallback, timeout, ..config }
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(core: &'a Arc<RoutineCore>) -> Call<'a> {
        let slots = Slots::Inline([const { Memory::Nothing }; INLINE]);
        let mut call = Call { core, slots, bound: 0, faults: None, options: CallOptions::default() };
        if core.parameters.len() > INLINE {
            call.slots = Slots::Spilled(core.parameters.iter().map(|_| Memory::Nothing).collect());
        }
        call
    }

    /// Binds memory to the buffer of that name: a number, a slice, or a resident buffer; `&mut` where the program writes.
    #[inline]
    pub fn bind(mut self, name: &str, argument: impl Into<Argument<'a>>) -> Call<'a> {
        self.take(name, argument.into());
        self
    }

    fn take(&mut self, name: &str, argument: Argument<'a>) {
        let core = self.core;
        let is_named = |parameter: &&Parameter| *parameter.name == *name;
        // Arguments mostly come in the order of the buffers.
        let next = core.parameters.get(self.bound).filter(is_named).map(|parameter| (self.bound, parameter));
        let place =
            next.or_else(|| core.parameters.iter().enumerate().find(|(_, parameter)| is_named(parameter)));
        if let Some((position, parameter)) = place
            && parameter.is_length(argument.memory.len())
            && fits(core, parameter, &argument)
            && let Some(slot @ Memory::Nothing) = self.slots.get_mut(position)
        {
            *slot = argument.memory;
            self.bound += 1;
        } else {
            self.take_faulty(name, argument);
        }
    }

    #[cold]
    fn take_faulty(&mut self, name: &str, argument: Argument<'a>) {
        let core = self.core;
        let faults = self.faults.get_or_insert_default();
        let Some(position) = core.parameters.iter().position(|parameter| *parameter.name == *name) else {
            return faults.found.push(no_such_buffer(core, name));
        };
        match (misfit(core, &core.parameters[position], &argument), self.slots.get_mut(position)) {
            (Some(fault), _) => faults.found.push(fault),
            // What is wrong with lengths can only be told when all are known.
            (None, Some(slot @ Memory::Nothing)) => {
                *slot = argument.memory;
                self.bound += 1;
            }
            (None, _) => faults.found.push(bound_twice(core, name)),
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
        let Call { core, slots, options, .. } = self;
        dispatch::run(core, slots.of(core), options)
    }

    /// Whether it calls this routine.
    pub(crate) fn is_of(&self, core: &Arc<RoutineCore>) -> bool {
        Arc::ptr_eq(self.core, core)
    }

    /// What is bound: one item per parameter, in binding order.
    pub(crate) fn bound(&mut self) -> &mut [Memory<'a>] {
        self.slots.of(self.core)
    }

    /// Every buffer is bound, and every length possible.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<(), BackendError> {
        if self.bound == self.core.parameters.len() && self.faults.is_none() {
            return Ok(());
        }
        self.tell_faults()
    }

    #[cold]
    fn tell_faults(&mut self) -> Result<(), BackendError> {
        let core = self.core;
        let Faults { mut found, .. } = self.faults.take().map_or_else(Faults::default, |faults| *faults);
        let memory = self.slots.of(core);
        for (parameter, memory) in core.parameters.iter().zip(&*memory) {
            if matches!(memory, Memory::Nothing) {
                found.push(not_bound(core, parameter));
            }
        }
        if !found.is_empty() {
            return Err(Diagnostics::from(found).into());
        }
        let lengths: Vec<usize> = memory.iter().map(Memory::len).collect();
        Launch::from_bound(&core.kernel, &lengths, Overrides::default())?;
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

/// Whether the argument can stand for the parameter.
fn fits(core: &RoutineCore, parameter: &Parameter, argument: &Argument<'_>) -> bool {
    argument.kind.fits(parameter.element)
        && match &argument.memory {
            Memory::Resident(buffer) => buffer.belongs_to(&core.shared),
            Memory::Write(_) => true,
            Memory::Nothing | Memory::Number(..) | Memory::Read(_) => !parameter.access.is_output(),
        }
}

/// Why the argument cannot stand for the parameter, if it cannot.
fn misfit(core: &RoutineCore, parameter: &Parameter, argument: &Argument<'_>) -> Option<Diagnostic> {
    if fits(core, parameter, argument) {
        return None;
    }
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
    let message =
        format!("buffer `{name}` of kernel `{kernel}` is {access}, and what was bound cannot be written");
    Some(argument_fault(message).help(format!("bind it with `&mut {name}`")))
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
