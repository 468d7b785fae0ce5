//! The one path of every call: route, pipeline, launch, report.
//!
//! ```text
//! route ─▶ pipeline (compiled once) ─▶ launch ─▶ tell the router and the meters ─▶ report
//!   ▲                                    │ error
//!   └── exclude that backend ◀── fallback allows it, and memory is as it was
//! ```
//! A warm call takes no lock that another call waits for, and allocates nothing of its own.

use crate::argument::Memory;
use crate::backend::Backend;
use crate::background::Job;
use crate::batch;
use crate::call::{CallOptions, INLINE};
use crate::forms::{Code, HOT_NS, Observed, Wanted};
use crate::report::{Attempt, Report, Why};
use crate::resident::Held;
use crate::routine::RoutineCore;
use crate::runtime::{CLOCK_LAG_NS, Shared};
use crate::verify;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::observability::take_device_time;
use vyre_driver::router::fallback::{ChosenBy, Phase, Verdict, decide, default_policy};
use vyre_driver::router::{
    self, BackendIndex, BackendSet, Background, NoRoute, Placement, ProgramRoutes, Route,
};
use vyre_driver::tuner::{Mode, Shape};
use vyre_driver::{BackendError, Binding, DispatchConfig, Fallback, contain};
use vyre_foundation::ir::Access;

/// Runs a call on memory that was checked: one item per parameter, in binding order.
pub(crate) fn run(
    core: &Arc<RoutineCore>,
    memory: &mut [Memory<'_>],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    let laid = options.config(&core.config);
    let config = laid.as_ref().unwrap_or(&core.config);
    let elements = core.elements(|position| memory.get(position).map_or(0, Memory::len), config);
    let mut named = None;
    if let Some(id) = options.backend {
        named = core.shared.router.index_of(id);
        if named.is_none() {
            let backend = core.shared.unrouted(id)?;
            return run_unrouted(core, &backend, memory, config);
        }
    }
    let mode = options.tuning.unwrap_or(core.shared.tuning);
    let fallback = config.fallback.unwrap_or_else(|| default_policy(chosen_by(named)));
    let given = Given::of(memory);
    let placement = if given.resident { placement(memory) } else { Placement::Host };
    let (now_ns, exclude) = (core.shared.recent_ns(), BackendSet::default());
    let call = router::Call { elements, placement, now_ns, only: named, exclude };
    let Some(route) = &core.routes.warm_route(&call) else {
        let attempts = Attempts::new(Called::of(core, &core.routes), fallback, named);
        let route = &choose(core, memory, elements, &attempts)?;
        return run_on(core, memory, Launching { route, config, fallback, given, elements, mode }, attempts);
    };
    let backend = core.shared.chosen(route);
    let launching = Launching { route, config, fallback, given, elements, mode };
    match launch(core, backend, memory, &launching) {
        Ok(launched) => Ok(launched.report(backend, why(named, route), elements, Vec::new())),
        Err(failure) => {
            let mut attempts = Attempts::new(Called::of(core, &core.routes), fallback, named);
            attempts.take(backend, route, *failure)?;
            let route = &choose(core, memory, elements, &attempts)?;
            run_on(core, memory, Launching { route, ..launching }, attempts)
        }
    }
}

/// Runs a call where it was routed to, and where else that fails.
#[cold]
fn run_on(
    core: &Arc<RoutineCore>,
    memory: &mut [Memory<'_>],
    first: Launching<'_>,
    mut attempts: Attempts<'_>,
) -> Result<Report, BackendError> {
    let mut route = *first.route;
    loop {
        let backend = core.shared.chosen(&route);
        match launch(core, backend, memory, &Launching { route: &route, ..first }) {
            Ok(launched) => return Ok(attempts.report(backend, &route, first.elements, launched)),
            Err(failure) => attempts.take(backend, &route, *failure)?,
        }
        route = choose(core, memory, first.elements, &attempts)?;
    }
}

fn chosen_by(named: Option<BackendIndex>) -> ChosenBy {
    if named.is_some() { ChosenBy::Caller } else { ChosenBy::Router }
}

fn why(named: Option<BackendIndex>, route: &Route) -> Why {
    if named.is_some() { Why::Named } else { Why::Routed(route.reason) }
}

/// What all parts of the path want to know of a call's memory, looked at once.
#[derive(Clone, Copy)]
struct Given {
    bytes: u64,
    /// Whether any of it is a resident buffer.
    resident: bool,
}

impl Given {
    fn of(memory: &[Memory<'_>]) -> Given {
        let mut given = Given { bytes: 0, resident: false };
        for item in memory {
            given.bytes += item.len() as u64;
            given.resident |= matches!(item, Memory::Resident(_));
        }
        given
    }
}

/// Runs calls that were checked in one go: routed as one, reported as one.
pub(crate) fn run_batch(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Memory<'_>]],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    let laid = options.config(&core.config);
    let config = laid.as_ref().unwrap_or(&core.config);
    let length = |item: &&mut [Memory<'_>]| {
        core.elements(|position| item.get(position).map_or(0, Memory::len), config)
    };
    let elements = items.iter().map(length).fold(0, u64::saturating_add);
    let named = options.backend.and_then(|id| core.shared.router.index_of(id));
    if let (Some(id), None) = (options.backend, named) {
        let backend = core.shared.unrouted(id)?;
        let began = Instant::now();
        for item in items {
            run_unrouted(core, &backend, item, config)?;
        }
        let launched = Launched { elapsed: began.elapsed(), device: None, tuned: None };
        return Ok(launched.report(&backend, Why::Named, elements, Vec::new()));
    }
    let fallback = config.fallback.unwrap_or_else(|| default_policy(chosen_by(named)));
    let mut attempts = Attempts::new(Called::of(core, core.batch_routes()), fallback, named);
    loop {
        let first: &[Memory<'_>] = items.first().map_or(&[], |first| &**first);
        let (given, mode) = (Given::of(first), Mode::OffUseDefault);
        let route = &choose(core, first, elements, &attempts)?;
        let backend = core.shared.chosen(route);
        let launching = Launching { route, config, fallback, given, elements, mode };
        match launch_batch(core, backend, items, &launching) {
            Ok(launched) => return Ok(attempts.report(backend, route, elements, launched)),
            Err(failure) => attempts.take(backend, route, *failure)?,
        }
    }
}

/// What a call is of.
pub(crate) struct Called<'a> {
    pub(crate) shared: &'a Shared,
    /// The name of the kernel or op, for messages.
    pub(crate) name: &'a str,
    /// The routes of single calls, or of batches.
    pub(crate) routes: &'a ProgramRoutes,
}

impl<'a> Called<'a> {
    fn of(core: &'a RoutineCore, routes: &'a ProgramRoutes) -> Called<'a> {
        Called { shared: &core.shared, name: core.kernel.display_name(), routes }
    }
}

/// The backends that this call was tried on.
pub(crate) struct Attempts<'a> {
    called: Called<'a>,
    fallback: Fallback,
    named: Option<BackendIndex>,
    exclude: BackendSet,
    refusals: Vec<Attempt>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(called: Called<'a>, fallback: Fallback, named: Option<BackendIndex>) -> Attempts<'a> {
        Attempts { called, fallback, named, exclude: BackendSet::default(), refusals: Vec::new() }
    }

    /// What is to be routed now.
    pub(crate) fn call(&self, elements: u64, placement: Placement, now_ns: u64) -> router::Call {
        router::Call { elements, placement, now_ns, only: self.named, exclude: self.exclude }
    }

    /// What went wrong before is the better answer than that nothing is left.
    pub(crate) fn no_route(&self, none: NoRoute) -> BackendError {
        let error = BackendError::from(none);
        if self.refusals.is_empty() {
            return error;
        }
        let tried = self.refusals.iter().map(|Attempt { backend, reason }| format!("{backend}: {reason}"));
        let reasons = format!("{}; {error}", tried.collect::<Vec<_>>().join("; "));
        BackendError::NoUsableBackend { reasons }
    }

    pub(crate) fn report(
        self,
        backend: &Backend,
        route: &Route,
        elements: u64,
        launched: Launched,
    ) -> Report {
        let why = why(self.named, route);
        launched.report(backend, why, elements, self.refusals)
    }

    /// Takes in a failure: an error if it is the caller's, else the call may be routed again.
    pub(crate) fn take(
        &mut self,
        backend: &Backend,
        route: &Route,
        Failure { error, elapsed_ns, phase }: Failure,
    ) -> Result<(), BackendError> {
        let Called { shared, name, routes } = self.called;
        routes.failed(route, &error, elapsed_ns, shared.now_ns());
        if matches!(error, BackendError::DeviceLost { .. }) {
            shared.pipelines.forget_backend(backend.lose());
        }
        match decide(self.fallback, phase, &error) {
            Verdict::Fail(_) => return Err(error),
            Verdict::Retry => {}
            Verdict::RetryWithWarning => {
                let (kernel, backend) = (name, backend.id);
                tracing::warn!(kernel, backend, %error, "the backend could not run the kernel; trying another");
            }
        }
        self.exclude = self.exclude.with(route.backend);
        self.named = None;
        self.refusals.push(Attempt { backend: backend.id, reason: error.to_string() });
        Ok(())
    }
}

/// Asks the router; verifies first where a backend lacks only that. Each verification settles one backend's standing, so
/// there are at most as many rounds as backends.
fn choose(
    core: &Arc<RoutineCore>,
    memory: &[Memory<'_>],
    elements: u64,
    attempts: &Attempts<'_>,
) -> Result<Route, BackendError> {
    let placement = placement(memory);
    let mut verifications = core.shared.backends.len();
    // Reading the clock costs as much as routing; only a refusal, which may be over by now, needs the time exactly.
    let mut now_ns = core.shared.recent_ns();
    loop {
        let call = attempts.call(elements, placement, now_ns);
        let none = match attempts.called.routes.route(&call) {
            Ok(route) => {
                if route.background.is_some() {
                    core.verifier.sample(core, memory);
                }
                return Ok(route);
            }
            Err(_) if now_ns + CLOCK_LAG_NS < core.shared.now_ns() => {
                now_ns = core.shared.now_ns();
                continue;
            }
            Err(none) => none,
        };
        match none.verify_first.filter(|_| verifications > 0) {
            None => return Err(attempts.no_route(none)),
            Some(backend) => {
                verifications -= 1;
                core.verifier.sample(core, memory);
                verify::verify(core, backend);
                now_ns = core.shared.now_ns();
            }
        }
    }
}

/// Where the resident buffers of a call are: where most of their bytes are.
fn placement(memory: &[Memory<'_>]) -> Placement {
    let mut best: Option<(usize, u64)> = None;
    for item in memory {
        if let Memory::Resident(buffer) = item
            && let Some(home) = buffer.home()
        {
            let bytes = buffer.bytes() as u64;
            best = match best {
                Some((known, sum)) if known == home => Some((known, sum + bytes)),
                Some((known, sum)) if sum >= bytes => Some((known, sum)),
                Some(_) | None => Some((home, bytes)),
            };
        }
    }
    match best {
        None => Placement::Host,
        Some((home, bytes)) => Placement::Resident { home: BackendIndex(home as u8), bytes },
    }
}

/// Every so many calls of a thread, a routine is looked at whether it has become hot; and after every call that took so long.
const HEAT_PERIOD: u64 = 16;
const HEATING_CALL_NS: u64 = HOT_NS / HEAT_PERIOD;
/// A call that took so long tells the router's clock the time; shorter ones only one in [`HEAT_PERIOD`].
const LONG_CALL_NS: u64 = CLOCK_LAG_NS / HEAT_PERIOD;

/// What a launch is to be.
struct Launching<'a> {
    route: &'a Route,
    config: &'a DispatchConfig,
    fallback: Fallback,
    given: Given,
    elements: u64,
    mode: Mode,
}

pub(crate) struct Launched {
    pub(crate) elapsed: Duration,
    pub(crate) device: Option<Duration>,
    pub(crate) tuned: Option<Shape>,
}

impl Launched {
    pub(crate) fn report(self, backend: &Backend, why: Why, elements: u64, refusals: Vec<Attempt>) -> Report {
        let Launched { elapsed: wall, device, tuned } = self;
        Report { backend: backend.id, why, elements, wall, device, tuned, refusals }
    }
}

pub(crate) struct Failure {
    pub(crate) error: BackendError,
    pub(crate) elapsed_ns: u64,
    pub(crate) phase: Phase,
}

impl Failure {
    #[cold]
    fn before_launch(error: BackendError) -> Box<Failure> {
        Box::new(Failure { error, elapsed_ns: 0, phase: Phase::BeforeLaunch })
    }
}

// Inlined, so that what it gives is written where it is wanted.
#[inline(always)]
fn launch(
    core: &Arc<RoutineCore>,
    backend: &Arc<Backend>,
    memory: &mut [Memory<'_>],
    launching: &Launching<'_>,
) -> Result<Launched, Box<Failure>> {
    let &Launching { route, config, fallback, given, elements, mode } = launching;
    let Code { pipeline, tuned } =
        core.code(backend, &Wanted { config, elements, memory, mode }).map_err(Failure::before_launch)?;
    let held = match given.resident {
        false => Held::default(),
        true => Held::take(core, backend, memory).map_err(Failure::before_launch)?,
    };
    let saved = match fallback == Fallback::Allow || given.resident {
        false => Saved::nothing(core),
        true => Saved::take(core, memory, fallback),
    };
    let activity = core.shared.background.activity();
    let clock = &core.shared.clock;
    let began = clock.raw();
    let outcome = with_bindings(core, memory, &held, |bindings| {
        contained(backend, || pipeline.dispatch_bound(bindings, config))
    });
    let elapsed_ns = clock.delta_as_nanos(began, clock.raw());
    let elapsed = Duration::from_nanos(elapsed_ns);
    drop(held);
    let device = take_device_time();
    let beside = match route.background.is_some() || fallback == Fallback::Allow {
        true => outcome.and_then(|()| beside(core, backend, launching, elapsed)),
        false => outcome,
    };
    if let Err(error) = beside {
        saved.put_back(core, memory);
        if let Some(shape) = tuned {
            core.drop_tuned(backend, &Wanted { config, elements, memory, mode }, shape, &error);
        }
        // What a backend lacks it says before it launches anything.
        let lacks = matches!(error, BackendError::UnsupportedFeature { .. });
        let phase = if lacks { Phase::BeforeLaunch } else { saved.phase() };
        return Err(Box::new(Failure { error, elapsed_ns, phase }));
    }
    saved.release();
    core.shared.timed(&core.routes, route, elapsed_ns, activity);
    let counted = core.meters.record(device.map_or(elapsed_ns, nanoseconds), given.bytes);
    let now_and_then = counted.calls.is_multiple_of(HEAT_PERIOD);
    if now_and_then || elapsed_ns > LONG_CALL_NS {
        core.shared.tick();
    }
    if now_and_then || elapsed_ns > HEATING_CALL_NS {
        core.consider(
            backend,
            &Wanted { config, elements, memory, mode },
            &Observed { elapsed_ns, tuned, counted },
        );
    }
    Ok(Launched { elapsed, device, tuned })
}

/// Calls into a driver; a panic there is its failure.
pub(crate) fn contained<T>(
    backend: &Backend,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    contain(run)
        .unwrap_or_else(|message| Err(BackendError::DispatchFailed { backend: backend.id.into(), message }))
}

/// Launches all calls of a batch: in place one after the other, or together on copies.
fn launch_batch(
    core: &Arc<RoutineCore>,
    backend: &Arc<Backend>,
    items: &mut [&mut [Memory<'_>]],
    launching: &Launching<'_>,
) -> Result<Launched, Box<Failure>> {
    let Launching { route, config, .. } = launching;
    let pipeline = core.pipeline(backend, config).map_err(Failure::before_launch)?;
    let in_place = batch::runs_in_place(core, items, backend.profile.device_class, launching.fallback);
    let activity = core.shared.background.activity();
    let began = Instant::now();
    let mut outputs = Vec::new();
    let outcome = if in_place {
        items.iter_mut().try_for_each(|item| {
            let held = Held::take(core, backend, item)?;
            with_bindings(core, item, &held, |bindings| {
                contained(backend, || pipeline.dispatch_bound(bindings, config))
            })
        })
    } else {
        let inputs: Vec<Vec<&[u8]>> = items.iter().map(|item| batch::inputs_of(core, item)).collect();
        let borrowed: Vec<&[&[u8]]> = inputs.iter().map(Vec::as_slice).collect();
        contained(backend, || pipeline.dispatch_borrowed_batched_into(&borrowed, config, &mut outputs))
    };
    let elapsed = began.elapsed();
    let device = take_device_time();
    let copied = outcome.and_then(|()| beside(core, backend, launching, elapsed)).and_then(|()| {
        items.iter_mut().zip(&outputs).try_for_each(|(item, outputs)| {
            batch::copy_outputs(core, item, outputs)
                .map_err(|message| BackendError::DispatchFailed { backend: backend.id.into(), message })
        })
    });
    let elapsed_ns = nanoseconds(elapsed);
    if let Err(error) = copied {
        let phase = if in_place { Phase::Launched } else { Phase::LaunchedOnSavedMemory };
        return Err(Box::new(Failure { error, elapsed_ns, phase }));
    }
    core.shared.tick();
    core.shared.timed(core.batch_routes(), route, elapsed_ns, activity);
    let each_ns = device.map_or(elapsed_ns, nanoseconds) / items.len().max(1) as u64;
    for item in items {
        core.meters.record(each_ns, item.iter().map(|memory| memory.len() as u64).sum());
    }
    Ok(Launched { elapsed, device, tuned: None })
}

/// Does what the router wants done beside a call: in the background, except that a caller who allows fallback waits for
/// a check of the backend that just ran, and gets another backend's result if it turns out to answer wrongly.
fn beside(
    core: &Arc<RoutineCore>,
    backend: &Arc<Backend>,
    Launching { route, config, fallback, .. }: &Launching<'_>,
    elapsed: Duration,
) -> Result<(), BackendError> {
    let wrong = |message| BackendError::DispatchFailed { backend: backend.id.into(), message };
    match route.background {
        None if *fallback != Fallback::Allow => Ok(()),
        None => verify::spot_check(core, backend, config.timeout, elapsed).map_err(wrong),
        Some(Background::Canary(checked)) if *fallback == Fallback::Allow => {
            let healthy = verify::canary(core, checked);
            if checked == route.backend { healthy.map_err(wrong) } else { Ok(()) }
        }
        Some(Background::Canary(backend)) => {
            core.shared.background.push(Job::Canary(core.clone(), backend));
            Ok(())
        }
        Some(Background::Verify(backend)) => {
            core.shared.background.push(Job::Verify(core.clone(), backend));
            Ok(())
        }
    }
}

/// Runs on a backend outside the router's list: it was named, and nothing else will do.
fn run_unrouted(
    core: &Arc<RoutineCore>,
    backend: &Arc<Backend>,
    memory: &mut [Memory<'_>],
    config: &DispatchConfig,
) -> Result<Report, BackendError> {
    let elements = core.elements(|position| memory.get(position).map_or(0, Memory::len), config);
    let pipeline = core.pipeline(backend, config)?;
    let held = Held::take(core, backend, memory)?;
    let began = Instant::now();
    with_bindings(core, memory, &held, |bindings| {
        contained(backend, || pipeline.dispatch_bound(bindings, config))
    })?;
    let elapsed = began.elapsed();
    let device = take_device_time();
    let bytes = memory.iter().map(|item| item.len() as u64).sum();
    core.meters.record(nanoseconds(device.unwrap_or(elapsed)), bytes);
    let launched = Launched { elapsed, device, tuned: None };
    Ok(launched.report(backend, Why::Named, elements, Vec::new()))
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// The memory as bindings, on the stack where there are few.
fn with_bindings<R>(
    core: &RoutineCore,
    memory: &mut [Memory<'_>],
    held: &Held<'_>,
    run: impl FnOnce(&mut [Binding<'_>]) -> R,
) -> R {
    let count = memory.len();
    let bindings = core.parameters.iter().zip(memory.iter_mut()).map(|(parameter, memory)| match memory {
        Memory::Nothing => unreachable!("a call runs only when every buffer is bound"),
        Memory::Number(bytes, length) => Binding::Read(&bytes[..*length]),
        Memory::Read(bytes) => Binding::Read(bytes),
        Memory::Write(bytes) => match parameter.access {
            Access::ReadWrite => Binding::ReadWrite(bytes),
            Access::Output => Binding::Write(bytes),
            Access::Read | Access::Uniform | Access::Workgroup => Binding::Read(bytes),
        },
        Memory::Resident(buffer) => Binding::Resident(held.handle(buffer)),
    });
    if count > INLINE {
        return run(&mut bindings.collect::<Vec<_>>());
    }
    let mut few = [const { Binding::Read(&[]) }; INLINE];
    few.iter_mut().zip(bindings).for_each(|(slot, binding)| *slot = binding);
    run(&mut few[..count])
}

thread_local! {
    /// Memory for saved contents, kept between calls so that saving does not allocate.
    static SAVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// More than this is given back after the call.
const KEPT_BYTES: usize = 16 << 20;

/// The contents of memory that a kernel reads and writes, from before its launch. Outputs need none: every launch starts
/// them from zero.
struct Saved {
    bytes: Vec<u8>,
    /// Whether a launch may change memory that was not saved.
    unsaved: bool,
}

impl Saved {
    /// For a call on host memory that is not repeated once it was launched.
    fn nothing(core: &RoutineCore) -> Saved {
        Saved { bytes: Vec::new(), unsaved: core.reads_and_writes }
    }

    fn take(core: &RoutineCore, memory: &[Memory<'_>], fallback: Fallback) -> Saved {
        let mut saved = Saved { bytes: Vec::new(), unsaved: false };
        let mut any = false;
        for (parameter, memory) in core.parameters.iter().zip(memory) {
            match memory {
                Memory::Write(_) => any |= parameter.access == Access::ReadWrite,
                Memory::Resident(_) => saved.unsaved |= parameter.access.is_output(),
                Memory::Nothing | Memory::Number(..) | Memory::Read(_) => {}
            }
        }
        if !any {
            return saved;
        }
        match fallback {
            Fallback::Forbid | Fallback::Warn => saved.unsaved = true,
            Fallback::Allow => {
                saved.bytes = SAVED.try_with(RefCell::take).unwrap_or_default();
                saved.bytes.clear();
                for (parameter, memory) in core.parameters.iter().zip(memory) {
                    if let (Access::ReadWrite, Memory::Write(bytes)) = (parameter.access, memory) {
                        saved.bytes.extend_from_slice(bytes);
                    }
                }
            }
        }
        saved
    }

    fn phase(&self) -> Phase {
        if self.unsaved { Phase::Launched } else { Phase::LaunchedOnSavedMemory }
    }

    fn put_back(&self, core: &RoutineCore, memory: &mut [Memory<'_>]) {
        let mut rest = &self.bytes[..];
        for (parameter, memory) in core.parameters.iter().zip(memory) {
            if let (Access::ReadWrite, Memory::Write(bytes)) = (parameter.access, memory)
                && let Some((saved, after)) = rest.split_at_checked(bytes.len())
            {
                bytes.copy_from_slice(saved);
                rest = after;
            }
        }
    }

    /// Keeps the memory for the next call of this thread.
    fn release(self) {
        if self.bytes.capacity() > 0 && self.bytes.capacity() <= KEPT_BYTES {
            // A thread that is ending keeps nothing.
            let _ = SAVED.try_with(|kept| kept.replace(self.bytes));
        }
    }
}
