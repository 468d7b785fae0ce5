//! A call under construction: names, types and access are checked as arguments are bound, and all
//! faults reported at once.

use crate::argument::{Argument, Bound, argument_fault};
use crate::dispatch;
use crate::options::CallOptions;
use crate::parameter::Parameter;
use crate::pending::{Pending, Scope};
use crate::report::Report;
use crate::routine_core::{RoutineCore, Work};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{BackendError, Cancellation, DispatchConfig, Fallback, contain};
use vyre_foundation::diagnostics::{Diagnostic, Diagnostics};
use vyre_foundation::launch::{self, Launch};

/// A call under construction, from [`Routine::call`](crate::Routine::call) or
/// [`OpRoutine::call`](crate::OpRoutine::call).
#[must_use = "a call does nothing until it is run"]
pub struct Call<'a> {
    core: &'a Arc<RoutineCore>,
    memory: BoundMemory<'a>,
    /// Number of buffers bound.
    bound: usize,
    /// Faults that prevent the call from running; empty if only lengths do not fit, which is
    /// checked once all are known.
    faults: Option<Box<Faults>>,
    pub(crate) options: CallOptions<'a>,
}

/// One item per parameter, in binding order. A call is moved with every argument bound, so the
/// items are not part of it: moving them took 20 ns of 220.
struct BoundMemory<'a>(Vec<Bound<'a>>);

thread_local! {
    /// The memory of this thread's last call, so that the next one allocates nothing.
    static SPARE: Cell<Vec<Bound<'static>>> = const { Cell::new(Vec::new()) };
}

impl<'a> BoundMemory<'a> {
    #[inline]
    fn new(count: usize) -> BoundMemory<'a> {
        let mut memory: Vec<Bound<'a>> = SPARE.try_with(Cell::take).unwrap_or_default();
        memory.resize_with(count, || Bound::Nothing);
        BoundMemory(memory)
    }
}

impl Drop for BoundMemory<'_> {
    fn drop(&mut self) {
        // Collected in place: the allocation stays.
        let spare = std::mem::take(&mut self.0).into_iter().map(|_| Bound::Nothing).collect();
        // A thread that is ending keeps nothing.
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}

const _: () = assert!(size_of::<Call<'_>>() <= 96);

#[derive(Default)]
struct Faults {
    found: Vec<Diagnostic>,
    /// Positions of buffers with an argument that does not fit; they are not also reported as
    /// missing.
    misfits: Vec<usize>,
}

impl<'a> Call<'a> {
    // Inlined so that the call is written in place.
    #[inline]
    pub(crate) fn new(core: &'a Arc<RoutineCore>, size: u32) -> Call<'a> {
        let options = CallOptions { size, ..CallOptions::default() };
        Call { core, memory: BoundMemory::new(core.parameters.len()), bound: 0, faults: None, options }
    }

    /// A call of an op at a size.
    pub(crate) fn at(core: &'a Arc<RoutineCore>, size: usize) -> Call<'a> {
        match u32::try_from(size) {
            Ok(size) => Call::new(core, size),
            Err(_) => Call::new(core, 0).with_fault(argument_fault(format!(
                "{} was called at size {size}; a size is below 2^32",
                core.title()
            ))),
        }
    }

    #[cold]
    fn with_fault(mut self, fault: Diagnostic) -> Call<'a> {
        self.faults.get_or_insert_default().found.push(fault);
        self
    }

    /// Binds memory to the buffer of this name: a number, a slice or a resident buffer; `&mut`
    /// where the program writes.
    #[inline]
    pub fn bind(mut self, name: &str, argument: impl Into<Argument<'a>>) -> Call<'a> {
        self.take(name, argument.into());
        self
    }

    pub(crate) fn take(&mut self, name: &str, argument: Argument<'a>) {
        let is_named = |parameter: &Parameter| parameter.is_named(name);
        let parameters = &self.core.parameters;
        // Arguments mostly come in the order of the buffers.
        let place = match parameters.get(self.bound) {
            Some(next) if is_named(next) => Some(self.bound),
            Some(_) | None => parameters.iter().position(is_named),
        };
        match place {
            Some(position) => self.take_at(position, argument),
            None => self.take_faulty(name, argument),
        }
    }

    /// Binds memory to the buffer at this position.
    pub(crate) fn take_at(&mut self, position: usize, argument: Argument<'a>) {
        let core = self.core;
        let parameter = &core.parameters[position];
        if parameter.is_length(argument.memory.len())
            && parameter.takes(&argument, &core.shared)
            && let Some(free @ Bound::Nothing) = self.memory.0.get_mut(position)
        {
            *free = argument.memory;
            self.bound += 1;
        } else {
            self.take_faulty(&parameter.name, argument);
        }
    }

    #[cold]
    fn take_faulty(&mut self, name: &str, argument: Argument<'a>) {
        let core = self.core;
        let Faults { found: faults, misfits } = &mut **self.faults.get_or_insert_default();
        let mut named = core.parameters.iter().enumerate().filter(|(_, parameter)| *parameter.name == *name);
        let Some((position, parameter)) = named.next() else {
            return faults.push(no_such_buffer(core, name));
        };
        let misfit = parameter.misfit(&argument, &core.shared, &core.title());
        match (misfit, self.memory.0.get_mut(position)) {
            (Some(fault), _) => {
                faults.push(fault);
                misfits.push(position);
            }
            // Faults in lengths can only be reported once all lengths are known.
            (None, Some(free @ Bound::Nothing)) => {
                *free = argument.memory;
                self.bound += 1;
            }
            (None, _) => {
                let fault = argument_fault(format!("buffer `{name}` of {} is bound twice", core.title()));
                faults.push(fault.help("bind each buffer once"));
            }
        }
    }

    /// Runs on this backend only, unless a fallback is allowed.
    pub fn on(mut self, backend: &'a str) -> Call<'a> {
        self.options.backend = Some(backend);
        self
    }

    /// Whether another backend can take over if the chosen one fails. If unset, a routed call falls
    /// back with a warning, and a call on a named backend does not. With `Allow`, memory that the
    /// program reads and writes is saved before each launch, so that a call can be repeated
    /// elsewhere even after its kernel ran.
    pub fn fallback(mut self, fallback: Fallback) -> Call<'a> {
        self.options.fallback = Some(fallback);
        self
    }

    /// Whether this call can have its shape tuned, in the background, for later calls. If unset,
    /// the runtime's mode applies.
    pub fn tuning(mut self, mode: Mode) -> Call<'a> {
        self.options.tuning = Some(mode);
        self
    }

    /// Runs over these numbers of invocations, one per axis, instead of the program's domain;
    /// missing axes are 1. A shape-free program runs exactly these; any other runs the workgroups
    /// that cover them.
    ///
    /// ```
    /// # use vyre::Runtime;
    /// let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let fill = runtime.load(
    ///     "kernel fill(width: u32 uniform, y: read_write u32[]) over [width] {
    ///        y[invocation.y * width + invocation.x] = 1
    ///      }",
    /// )?;
    /// let mut y = vec![0_u32; 6];
    /// fill.call().bind("width", 3_u32).bind("y", &mut y).domain([2, 2]).run()?;
    /// assert_eq!(y, [1, 1, 0, 1, 1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn domain<const AXES: usize>(mut self, domain: [usize; AXES]) -> Call<'a> {
        if !(1..=3).contains(&AXES) || matches!(self.core.work, Work::Op { .. }) {
            let fault = match self.core.work {
                Work::Op { .. } => argument_fault(format!("{} has no domain to set", self.core.title()))
                    .help("ops are called at a size: `call(size)`"),
                Work::Program { .. } => argument_fault(format!("a domain of {AXES} axes"))
                    .help("give one to three: `domain([width, height])`"),
            };
            return self.with_fault(fault);
        }
        if let Some(large) = domain.iter().find(|&&count| u32::try_from(count).is_err()) {
            let fault = argument_fault(format!("a domain of {large} invocations on an axis"));
            return self.with_fault(fault.help("give fewer than 2^32 on each axis"));
        }
        let axes = std::array::from_fn(|axis| domain.get(axis).map_or(1, |&count| count as u32));
        let config = self.options.config.get_or_insert_default();
        config.domain_override = Some(axes);
        self
    }

    /// Whether the program's asserts are checked; they are, unless this or the routine's
    /// configuration says false.
    ///
    /// ```
    /// # use vyre::Runtime;
    /// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let root = runtime.load(
    ///     "kernel root(x: read_write f32[]) {
    ///        assert(x[invocation.x] >= 0.0, \"negative at {}: {}\", invocation.x, x[invocation.x])
    ///        x[invocation.x] = sqrt(x[invocation.x])
    ///      }",
    /// )?;
    /// let failed =
    ///     root.call().bind("x", &mut [4.0_f32, -1.0]).run().expect_err("the second is negative");
    /// assert!(
    ///     failed.to_string().ends_with("in invocation (1, 0, 0): negative at 1: -1"),
    ///     "{failed}"
    /// );
    /// root.call().bind("x", &mut [4.0_f32, -1.0]).asserts(false).run()?;
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn asserts(mut self, checked: bool) -> Call<'a> {
        self.options.config.get_or_insert_default().asserts = Some(checked);
        self
    }

    /// Time limit for the call, including compilation and opening a driver. In a batch, the first
    /// call's limit covers all of them.
    pub fn timeout(mut self, limit: Duration) -> Call<'a> {
        self.options.timeout = Some(limit);
        self
    }

    /// Makes the report include the kernel's time on its device, if the device can measure it.
    /// Otherwise that is measured only now and then.
    pub fn device_time(mut self) -> Call<'a> {
        self.options.device_time = true;
        self
    }

    /// Overrides the routine's configuration; options already set on the call take precedence.
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

    /// Runs the call on another thread, in a [`scope`](crate::scope) that the bound memory
    /// outlives. Returns a [`Pending`] to wait for, to await or to cancel.
    /// [`Routine::start_with`](crate::Routine::start_with) needs no scope.
    pub fn start<'scope>(self, scope: &Scope<'scope, '_>) -> Pending<'scope>
    where
        'a: 'scope,
    {
        Pending::new(move |cancellation| self.run_until(cancellation), |task| scope.submit(task))
    }

    /// Runs a call on its thread until it is cancelled; without a flag it was cancelled before it
    /// began. The thread is never joined, so a panic becomes an error like any other.
    pub(crate) fn run_until(mut self, cancellation: Option<Cancellation>) -> Result<Report, BackendError> {
        if cancellation.is_none() {
            return Err(BackendError::Cancelled { name: self.core.title() });
        }
        if self.options.config(&self.core.config).timeout.is_some() {
            self.options.config.get_or_insert_default().cancellation = cancellation;
        }
        contain(|| self.run()).unwrap_or_else(|message| Err(BackendError::new(message)))
    }

    /// Runs a checked call.
    pub(crate) fn run_bound(&mut self) -> Result<Report, BackendError> {
        let Call { core, memory, options, .. } = self;
        dispatch::run(core, &mut [&mut memory.0], options)
    }

    /// Whether this is a call of that routine.
    pub(crate) fn is_of(&self, core: &Arc<RoutineCore>) -> bool {
        Arc::ptr_eq(self.core, core)
    }

    /// The routine, its memory and the options.
    pub(crate) fn parts(&mut self) -> (&Arc<RoutineCore>, &mut [Bound<'a>], &CallOptions<'a>) {
        (self.core, &mut self.memory.0, &self.options)
    }

    /// The bound memory: one item per parameter, in binding order.
    pub(crate) fn bound(&mut self) -> &mut [Bound<'a>] {
        &mut self.memory.0
    }

    /// Checks that every buffer is bound and every length possible.
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
        let Faults { mut found, misfits } = *self.faults.take().unwrap_or_default();
        let memory = &self.memory.0;
        for (position, (parameter, memory)) in core.parameters.iter().zip(memory).enumerate() {
            if matches!(memory, Bound::Nothing) && !misfits.contains(&position) {
                found.push(parameter.not_bound(&core.title()));
            }
        }
        if !found.is_empty() {
            return Err(Diagnostics::from(found).into());
        }
        // The plan checks the lengths of an op's buffers.
        if let Work::Program { kernel, .. } = &core.work {
            let bound: Vec<launch::LaunchArgument<'_>> = memory.iter().map(Bound::argument).collect();
            let overrides = self.options.config(&core.config).overrides();
            Launch::from_bound(kernel, &bound, overrides)?;
        }
        Ok(())
    }
}

/// As [`Call::bind`], without moving the call: for language bindings that bind in a loop.
#[inline]
pub fn bind_in_place<'a>(call: &mut Call<'a>, name: &str, argument: Argument<'a>) {
    call.take(name, argument);
}

/// The name of the buffer that is usually bound next.
#[inline]
pub fn next_name<'a>(call: &Call<'a>) -> Option<&'a str> {
    call.core.parameters.get(call.bound).map(|parameter| &*parameter.name)
}

fn no_such_buffer(core: &RoutineCore, name: &str) -> Diagnostic {
    let names: Vec<&str> = core.parameters.iter().map(|parameter| &*parameter.name).collect();
    argument_fault(format!("{} has no buffer `{name}` to bind", core.title()))
        .help(format!("it has: {}", names.join(", ")))
}
