//! The single path of every call: programs, ops, batches, sequences and named backends alike.
//!
//! ```text
//! arguments checked ─▶ route ─▶ code (compiled once) ─▶ launch ─▶ learn ─▶ report
//!                        ▲                                │ error
//!                        └── exclude that backend ◀── fallback allows it, and memory is as it was
//! ```
//! A warm call takes no lock that another call waits for, and allocates nothing itself.
//!
//! **Blame.** A caller's mistake, including its deadline, marks no backend; a call that ran out of
//! time counts as slow. What a device instance reports after it was replaced does not affect its
//! successor.

use crate::argument::Bound;
use crate::backend::Backend;
use crate::backend_state::ReadyCode;
use crate::background::Purpose;
use crate::batch;
use crate::catalogue::CompiledPlan;
use crate::code::{self, CodeRequest, HOT_NS, Observed};
use crate::first_run;
use crate::held_buffers::{Bindings, HeldBuffers};
use crate::options::CallOptions;
use crate::report::{Attempt, Report};
use crate::routine_core::{Pair, RoutineCore};
use crate::shared::{CLOCK_LAG_NS, LONGEST_MEETING, nanoseconds};
use crate::snapshot::Snapshot;
use crate::verify;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::messages;
use vyre_driver::observability::{take_device_time, want_device_time};
use vyre_driver::router::fallback::{ChosenBy, FallbackDecision, Phase, decide, default_policy};
use vyre_driver::router::{
    self, BackendIndex, BackendSet, Background, NoRoute, Placement, ProgramRoutes, Route, RouteRequest,
};
use vyre_driver::tuner::Shape;
use vyre_driver::{BackendError, CompiledPipeline, DispatchConfig, Fallback, contain_call, copy_out};

/// Number of a thread's calls between checks whether a routine has become hot, and between timings
/// on its device. A call longer than [`HEATING_CALL_NS`] is also followed by a check. Chosen, not
/// measured: timing slows down one call in sixteen, and a routine is found to be hot at most
/// sixteen short calls late.
const HEAT_PERIOD: u64 = 16;
const HEATING_CALL_NS: u64 = HOT_NS / HEAT_PERIOD;
/// A call longer than this updates the router's coarse clock; of shorter ones, one in
/// [`HEAT_PERIOD`] does.
const LONG_CALL_NS: u64 = CLOCK_LAG_NS / HEAT_PERIOD;
/// How long a caller without a limit waits for a check. It only keeps a wait from being endless: a
/// check has limits of its own, 30 s for a backend and 2 s for the interpreter.
const UNLIMITED: Duration = Duration::from_secs(3600);

/// Runs checked calls in one go: a single call, or a batch. Each has one item per parameter, in
/// binding order.
pub(crate) fn run(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Bound<'_>]],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    if core.speaks {
        return run_speaking(core, items, options);
    }
    run_silent(core, items, options)
}

/// Runs a call that can print. Its output is in the report, and goes to the runtime's listener or
/// to `tracing`.
#[cold]
fn run_speaking(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Bound<'_>]],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    let (outcome, prints) = messages::listen(|| run_silent(core, items, options));
    match &core.shared.listener {
        Some(listener) => prints.messages.iter().for_each(listener),
        None => prints.trace(),
    }
    outcome.map(|report| Report { printed: Some(Box::new(prints)), ..report })
}

#[inline]
fn run_silent(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Bound<'_>]],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    match options.is_configured() {
        true => run_configured(core, items, options),
        false => run_with(core, items, options, &core.config),
    }
}

/// Runs a call with its own configuration. Not inlined, so that the stack frame of other calls has
/// no room for one.
#[inline(never)]
fn run_configured(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Bound<'_>]],
    options: &CallOptions<'_>,
) -> Result<Report, BackendError> {
    let config = options.config(&core.config);
    match core.differs(&config) {
        true => run_with(&core.with_policy(&config)?, items, options, &config),
        false => run_with(core, items, options, &config),
    }
}

fn run_with(
    core: &Arc<RoutineCore>,
    items: &mut [&mut [Bound<'_>]],
    options: &CallOptions<'_>,
    config: &DispatchConfig,
) -> Result<Report, BackendError> {
    let began = config.timeout.map(|_| Instant::now());
    let unrouted;
    let mut named = None;
    let mut only = None;
    if let Some(id) = options.backend {
        named = core.shared.router.index_of(id);
        match named.and_then(|index| core.shared.backends.get(index.index())) {
            None => {
                unrouted = core.shared.unrouted(id, config.timeout)?;
                only = Some(&unrouted);
            }
            // A call that names a backend waits for it to open.
            Some(backend) if !backend.is_met() => {
                let is_over = core.shared.wait_for_drivers(config.timeout.unwrap_or(LONGEST_MEETING));
                if let Some(limit) = config.timeout.filter(|_| !is_over) {
                    return Err(BackendError::Timeout { backend: id.into(), limit });
                }
            }
            Some(_) => {}
        }
    }
    let chosen_by = if options.backend.is_some() { ChosenBy::Caller } else { ChosenBy::Router };
    let fallback = config.fallback.unwrap_or_else(|| default_policy(chosen_by));
    let mut call = RoutedCall::new(core, items, options, config, fallback);
    call.began = began;
    let mut attempts = Attempts { named, exclude: BackendSet::default(), refusals: Vec::new() };
    loop {
        let route = match only.is_none().then(|| call.route(items, &attempts)) {
            None => None,
            Some(Ok(route)) => Some(route),
            Some(Err(error)) => {
                attempts.go_on(&call, attempts.named, Phase::BeforeLaunch, error)?;
                continue;
            }
        };
        let backend = match (only, &route) {
            (Some(backend), _) => backend,
            (None, Some(route)) => core.shared.chosen(route),
            (None, None) => unreachable!("a call is routed or has its backend"),
        };
        match call.launch(backend, route.as_ref(), items) {
            Ok(done) => return Ok(call.report(backend, route.as_ref(), done, attempts.refusals)),
            Err(failure) => {
                let Some(route) = &route else { return Err(failure.error) };
                attempts.take(&call, backend, route, *failure)?;
            }
        }
    }
}

/// Outcome of a launch.
pub(crate) struct LaunchOutcome {
    pub(crate) elapsed: Duration,
    /// The kernel's time on the device, if it was measured.
    pub(crate) device: Option<Duration>,
    /// The shape that the code was tuned to.
    pub(crate) tuned: Option<Shape>,
}

/// Facts about a call that every part of the path needs, computed once.
pub(crate) struct RoutedCall<'a> {
    pub(crate) core: &'a Arc<RoutineCore>,
    pub(crate) routes: &'a ProgramRoutes,
    config: &'a DispatchConfig,
    options: &'a CallOptions<'a>,
    pub(crate) fallback: Fallback,
    /// Start of the caller's time, if it is limited.
    began: Option<Instant>,
    elements: u64,
    bytes: u64,
    /// Whether any of its memory is a resident buffer.
    resident: bool,
}

impl<'a> RoutedCall<'a> {
    #[inline(always)]
    pub(crate) fn new(
        core: &'a Arc<RoutineCore>,
        items: &[&mut [Bound<'_>]],
        options: &'a CallOptions<'a>,
        config: &'a DispatchConfig,
        fallback: Fallback,
    ) -> RoutedCall<'a> {
        let routes = if items.len() == 1 { &core.routes } else { core.routes.in_batches() };
        let (began, elements, bytes, resident) = (None, 0, 0, false);
        let mut call =
            RoutedCall { core, routes, config, options, fallback, began, elements, bytes, resident };
        for item in items {
            let memory = |position: usize| item.get(position).map_or(0.into(), Bound::argument);
            call.elements = call.elements.saturating_add(core.elements(options.size, memory, config));
            for memory in item.iter() {
                call.bytes += memory.len() as u64;
                call.resident |= memory.resident().is_some();
            }
        }
        call
    }

    /// The call as the router sees it.
    #[inline]
    fn asked(&self, items: &[&mut [Bound<'_>]], only: Option<BackendIndex>) -> RouteRequest {
        let placement = if self.resident { placement(items) } else { Placement::Host };
        let (elements, now_ns) = (self.elements, self.core.shared.recent_ns());
        let limit_ns = self.config.timeout.map_or(u64::MAX, |limit| limit.as_nanos() as u64);
        RouteRequest { elements, placement, now_ns, only, exclude: BackendSet::default(), limit_ns }
    }

    /// The route of a warm call; `None` if the router has to look first.
    pub(crate) fn warm_route(
        &self,
        items: &[&mut [Bound<'_>]],
        named: Option<BackendIndex>,
    ) -> Option<Route> {
        self.routes.warm_route(&self.asked(items, named))
    }

    /// The route: that of a warm call, or the result of a full lookup.
    #[inline]
    fn route(&self, items: &[&mut [Bound<'_>]], attempts: &Attempts) -> Result<Route, BackendError> {
        let call = RouteRequest { exclude: attempts.exclude, ..self.asked(items, attempts.named) };
        match self.routes.warm_route(&call) {
            Some(route) => Ok(route),
            None => self.look(items, attempts, call),
        }
    }

    /// Asks the router, first verifying a backend that lacks nothing else. Each verification
    /// settles one backend's standing, so there are at most as many rounds as backends.
    #[cold]
    fn look(
        &self,
        items: &[&mut [Bound<'_>]],
        attempts: &Attempts,
        mut call: RouteRequest,
    ) -> Result<Route, BackendError> {
        let RoutedCall { core, options, .. } = *self;
        let sample = || {
            if let Some(item) = items.first() {
                verify::sample(core, options.size, self.elements, item);
            }
        };
        let mut verifications = core.shared.backends.len();
        loop {
            let none = match self.routes.route(&call) {
                Ok(route) => {
                    if route.background.is_some() {
                        sample();
                    }
                    return Ok(route);
                }
                // Reading the clock costs as much as routing. Only a refusal, which may have
                // expired by now, needs the exact time.
                Err(_) if call.now_ns + CLOCK_LAG_NS < core.shared.now_ns() => {
                    call.now_ns = core.shared.now_ns();
                    continue;
                }
                Err(none) => none,
            };
            let Some(backend) = none.verify_first.filter(|_| verifications > 0) else {
                return Err(attempts.no_route(none));
            };
            if let (Duration::ZERO, Some(limit)) = (self.left(), self.config.timeout) {
                let backend = core.shared.router.id(backend).to_owned();
                return Err(BackendError::Timeout { backend, limit });
            }
            verifications -= 1;
            sample();
            verify::verify(core, backend, self.left());
            call.now_ns = core.shared.now_ns();
        }
    }

    /// Time left to the caller.
    fn left(&self) -> Duration {
        let limit = self.config.timeout.unwrap_or(UNLIMITED);
        self.began.map_or(limit, |began| limit.saturating_sub(began.elapsed()))
    }

    /// The configuration, with the time left to the caller.
    #[inline]
    fn rest(&self) -> Cow<'a, DispatchConfig> {
        match self.began {
            Some(began) => self.config.after(began.elapsed()),
            None => Cow::Borrowed(self.config),
        }
    }

    // Inlined so that the result is written in place.
    #[inline(always)]
    fn launch(
        &self,
        backend: &Arc<Backend>,
        route: Option<&Route>,
        items: &mut [&mut [Bound<'_>]],
    ) -> Result<LaunchOutcome, Box<Failure>> {
        let RoutedCall { core, fallback, .. } = *self;
        let shared = &core.shared;
        if backend.is_driven && shared.background.is_forked() {
            let message = "its driver was opened before this process was forked, and its threads do not exist in \
                           this one; build a runtime in the child";
            let error = BackendError::failed(backend.id, message);
            return Err(Failure::before_launch(error, backend.instance()));
        }
        let first = self.is_first_run(backend);
        if first && !self.resident && items.len() == 1 {
            return self.launch_apart(backend, route, items);
        }
        let before = |error: BackendError| {
            Failure::before_launch(error.of_call(self.config.timeout), backend.instance())
        };
        if first {
            let request = CodeRequest { config: &self.rest(), ..self.request(backend, items) };
            first_run::prepare(&request, self.left()).map_err(before)?;
        }
        let code = code::code(&self.request(backend, items)).map_err(before)?;
        let ReadyCode { pipeline, instance, tuned, .. } = &code;
        let held = match self.resident {
            false => HeldBuffers::default(),
            true => {
                let calls = items.iter().map(|item| (core.parameters.as_slice(), &**item));
                let checked = check_lengths(&**pipeline, items);
                checked
                    .and_then(|()| HeldBuffers::take(calls, backend, *instance))
                    .map_err(|error| Failure::before_launch(error, *instance))?
            }
        };
        let saved = match fallback == Fallback::Allow || self.resident {
            false => Snapshot::nothing(core.reads_and_writes),
            true => Snapshot::take(&core.parameters, items, fallback),
        };
        let together =
            items.len() > 1 && !batch::runs_in_place(core, items, backend.profile().device_class, fallback);
        // Device time is measured when the report shows it, and otherwise now and then.
        want_device_time(self.options.device_time || core.meters.is_due(HEAT_PERIOD));
        let activity = shared.background.activity();
        let began = shared.clock.raw();
        let outcome = match together {
            true => self.launch_together(backend, &**pipeline, items),
            false => items.iter_mut().try_for_each(|item| {
                let config = self.rest();
                let mut bindings = Bindings::new();
                held.bind(&core.parameters, item, &mut bindings);
                contain_call(backend.id, || pipeline.dispatch_bound(&mut bindings, &config))
            }),
        };
        let outcome = outcome.map_err(|error| error.of_call(self.config.timeout));
        let elapsed_ns = shared.clock.delta_as_nanos(began, shared.clock.raw());
        let elapsed = Duration::from_nanos(elapsed_ns);
        drop(held);
        let device = take_device_time();
        let background = route.and_then(|route| route.background);
        let checked = match background.is_some() || fallback == Fallback::Allow {
            true => outcome.and_then(|()| self.background_work(backend, route, elapsed)),
            false => outcome,
        };
        if let Err(error) = checked {
            saved.put_back(&core.parameters, items);
            self.blame((backend, *tuned), items, &error);
            let phase = if together { Phase::LaunchedOnSavedMemory } else { saved.phase() };
            return Err(Failure::new(error, elapsed_ns, phase, *instance));
        }
        saved.release();
        if let Some(route) = route {
            self.timed(route, elapsed_ns, activity);
        }
        self.learn((backend, *tuned), items, elapsed_ns, device);
        Ok(LaunchOutcome { elapsed, device, tuned: *tuned })
    }

    /// Takes a tuned shape that failed out of use, unless the caller or the program is at fault.
    #[cold]
    pub(crate) fn blame(
        &self,
        (backend, tuned): (&Arc<Backend>, Option<Shape>),
        items: &[&mut [Bound<'_>]],
        error: &BackendError,
    ) {
        let excused = matches!(
            error,
            BackendError::Timeout { .. }
                | BackendError::Cancelled { .. }
                | BackendError::Trapped { .. }
                | BackendError::AssertFailed { .. }
        );
        if let Some(shape) = tuned.filter(|_| !excused) {
            code::drop_tuned(&self.request(backend, items), shape, error);
        }
    }

    /// Reports a failed call on this instance of a backend to the router.
    #[cold]
    pub(crate) fn failed(
        &self,
        (backend, instance): (&Backend, u64),
        route: &Route,
        error: &BackendError,
        elapsed_ns: u64,
    ) {
        let is_lost = matches!(error, BackendError::DeviceLost { .. });
        let is_late = is_lost && !self.core.lost(backend, instance);
        match is_late {
            true => self.routes.abandoned(route, elapsed_ns),
            false => self.routes.failed(route, error, elapsed_ns, self.core.shared.now_ns()),
        }
    }

    /// Counts finished calls, and checks now and then whether other code would be faster.
    #[inline(always)]
    pub(crate) fn learn(
        &self,
        (backend, tuned): (&Arc<Backend>, Option<Shape>),
        items: &[&mut [Bound<'_>]],
        elapsed_ns: u64,
        device: Option<Duration>,
    ) {
        let (core, shared) = (self.core, &self.core.shared);
        let count = items.len().max(1) as u64;
        let each_ns = core.state(backend).device_ns(elapsed_ns, device.map(nanoseconds)) / count;
        let mut counted = core.meters.record(each_ns, self.bytes / count);
        (1..count).for_each(|_| counted = core.meters.record(each_ns, self.bytes / count));
        let now_and_then = counted.calls.is_multiple_of(HEAT_PERIOD);
        let called_ns = shared.recent_ns();
        if now_and_then || elapsed_ns > LONG_CALL_NS {
            shared.tick();
        }
        if now_and_then || elapsed_ns > HEATING_CALL_NS {
            let idle_ns = shared.now_ns().saturating_sub(elapsed_ns).saturating_sub(called_ns);
            let seen = Observed { elapsed_ns, idle_ns, counted, tuned };
            code::consider(&self.request(backend, items), &seen);
        }
    }

    /// Whether the backend has not run the routine yet, may take long to compile it, and the caller
    /// has a deadline.
    fn is_first_run(&self, backend: &Backend) -> bool {
        self.began.is_some()
            && (backend.is_driven || self.core.is_large())
            && !self.core.state(backend).has_run(backend.instance())
    }

    /// Launches all calls of a batch at once, on copies; one by one if their total time is limited.
    fn launch_together(
        &self,
        backend: &Backend,
        pipeline: &dyn CompiledPipeline,
        items: &mut [&mut [Bound<'_>]],
    ) -> Result<(), BackendError> {
        let core = self.core;
        let inputs: Vec<Vec<&[u8]>> = items.iter().map(|item| batch::inputs_of(core, item)).collect();
        let borrowed: Vec<&[&[u8]]> = inputs.iter().map(Vec::as_slice).collect();
        let at_once = if self.began.is_some() { 1 } else { borrowed.len().max(1) };
        let mut outputs = Vec::with_capacity(borrowed.len());
        for some in borrowed.chunks(at_once) {
            let mut slots = Vec::new();
            let config = self.rest();
            contain_call(backend.id, || pipeline.dispatch_borrowed_batched_into(some, &config, &mut slots))?;
            outputs.append(&mut slots);
        }
        items.iter_mut().zip(&outputs).try_for_each(|(item, outputs)| {
            let mut bindings = Bindings::new();
            HeldBuffers::default().bind(&core.parameters, item, &mut bindings);
            copy_out(backend.id, outputs, &mut bindings)
        })
    }

    /// As [`launch`](Self::launch), on copies: the caller's memory is unchanged until everything
    /// has succeeded.
    #[cold]
    fn launch_apart(
        &self,
        backend: &Arc<Backend>,
        route: Option<&Route>,
        items: &mut [&mut [Bound<'_>]],
    ) -> Result<LaunchOutcome, Box<Failure>> {
        let core = self.core;
        let (began, activity) = (Instant::now(), core.shared.background.activity());
        let done = first_run::run(&self.request(backend, items), self.left());
        let done = done.map_err(|error| error.of_call(self.config.timeout));
        let checked =
            done.and_then(|done| self.background_work(backend, route, began.elapsed()).map(|()| done));
        let done = checked.map_err(|error| {
            let (elapsed_ns, phase) = (nanoseconds(began.elapsed()), Phase::LaunchedOnSavedMemory);
            Failure::new(error, elapsed_ns, phase, backend.instance())
        })?;
        items.iter_mut().for_each(|item| done.copy_back(core, item));
        let elapsed_ns = nanoseconds(done.elapsed);
        if let Some(route) = route {
            self.timed(route, elapsed_ns, activity);
        }
        core.meters.record(elapsed_ns, self.bytes);
        core.shared.tick();
        Ok(LaunchOutcome { elapsed: done.elapsed, device: None, tuned: done.tuned })
    }

    #[inline]
    pub(crate) fn report(
        &self,
        backend: &Backend,
        route: Option<&Route>,
        LaunchOutcome { elapsed: wall, device, tuned }: LaunchOutcome,
        refusals: Vec<Attempt>,
    ) -> Report {
        let why = route.map_or(router::Reason::Named, |route| route.reason);
        let (backend, elements) = (backend.id, self.elements as usize);
        Report { backend, why, elements, wall, device, tuned, refusals, printed: None }
    }

    pub(crate) fn request<'i, 'm>(
        &'i self,
        backend: &'i Arc<Backend>,
        items: &'i [&'i mut [Bound<'m>]],
    ) -> CodeRequest<'i, 'i, 'm> {
        let RoutedCall { core, config, options, elements, .. } = *self;
        let mode = options.tuning.unwrap_or(core.shared.tuning);
        CodeRequest { at: Pair { core, backend }, config, elements, size: options.size, items, mode }
    }

    /// Reports the call's duration to the router; `activity` is the background activity when it
    /// began.
    #[inline]
    fn timed(&self, route: &Route, elapsed_ns: u64, activity: u64) {
        match self.core.shared.background.is_quiet_since(activity) {
            true => self.routes.finished(route, elapsed_ns),
            false => self.routes.finished_disturbed(route, elapsed_ns),
        }
    }

    /// Does the work that the router asks for alongside a call, in the background. A caller that
    /// allows fallback also waits for a check of the backend that just ran, within its own
    /// limit, and gets another backend's result if the check fails.
    #[cold]
    fn background_work(
        &self,
        backend: &Arc<Backend>,
        route: Option<&Route>,
        elapsed: Duration,
    ) -> Result<(), BackendError> {
        let Some(route) = route else { return Ok(()) };
        let wrong = |message| BackendError::failed(backend.id, message);
        let allowed = self.fallback == Fallback::Allow;
        let Some(job) = route.background else {
            let left = self.config.timeout.map(|_| self.left());
            return match allowed {
                true => verify::spot_check(Pair { core: self.core, backend }, left, elapsed).map_err(wrong),
                false => Ok(()),
            };
        };
        let (core, jobs) = (self.core.clone(), &self.core.shared.background);
        match job {
            Background::Verify(index) => {
                jobs.push(Purpose::Check, move || verify::verify(&core, index, UNLIMITED));
            }
            Background::Canary(index) => {
                let checked = match allowed && index == route.backend {
                    true => verify::canary(&core, index, false, self.left()).map_err(wrong),
                    false => Ok(()),
                };
                jobs.push(Purpose::Check, move || drop(verify::canary(&core, index, true, UNLIMITED)));
                return checked;
            }
        }
        Ok(())
    }
}

/// Backends tried for this call.
struct Attempts {
    named: Option<BackendIndex>,
    exclude: BackendSet,
    refusals: Vec<Attempt>,
}

impl Attempts {
    /// Reports why backends failed, rather than only that they were tried.
    fn no_route(&self, mut none: NoRoute) -> BackendError {
        for refused in &mut none.refused {
            let mut tried = self.refusals.iter().filter(|attempt| attempt.backend == refused.backend);
            tried.next().into_iter().for_each(|attempt| refused.reason.clone_from(&attempt.reason));
        }
        none.into()
    }

    /// Records a failed launch, as [`go_on`](Self::go_on).
    #[cold]
    fn take(
        &mut self,
        call: &RoutedCall<'_>,
        backend: &Backend,
        route: &Route,
        Failure { error, elapsed_ns, phase, instance }: Failure,
    ) -> Result<(), BackendError> {
        call.failed((backend, instance), route, &error, elapsed_ns);
        self.go_on(call, Some(route.backend), phase, error)
    }

    /// Goes on without a backend that failed, or without the one that the caller named if it may
    /// not run this. Returns the error if the fallback policy rules out another backend; otherwise
    /// the call can be routed again.
    #[cold]
    fn go_on(
        &mut self,
        call: &RoutedCall<'_>,
        without: Option<BackendIndex>,
        phase: Phase,
        error: BackendError,
    ) -> Result<(), BackendError> {
        let backends = &call.core.shared.backends;
        let found = without.and_then(|index| Some((index, backends.get(index.index())?.id)));
        let Some((index, backend)) = found else { return Err(error) };
        match decide(call.fallback, phase, &error) {
            FallbackDecision::Fail(_) => return Err(error),
            FallbackDecision::Retry => {}
            FallbackDecision::RetryWithWarning => {
                let routine = call.core.name();
                tracing::warn!(routine, backend, %error, "the backend could not run it; trying another");
            }
        }
        messages::forget();
        self.exclude = self.exclude.with(index);
        self.named = None;
        self.refusals.push(Attempt { backend, reason: error.to_string() });
        Ok(())
    }
}

struct Failure {
    error: BackendError,
    elapsed_ns: u64,
    phase: Phase,
    /// The instance of the backend that failed.
    instance: u64,
}

impl Failure {
    #[cold]
    fn new(error: BackendError, elapsed_ns: u64, phase: Phase, instance: u64) -> Box<Failure> {
        // A backend reports a missing feature before it launches anything.
        let lacks = matches!(error, BackendError::UnsupportedFeature { .. });
        let phase = if lacks { Phase::BeforeLaunch } else { phase };
        Box::new(Failure { error, elapsed_ns, phase, instance })
    }

    fn before_launch(error: BackendError, instance: u64) -> Box<Failure> {
        Failure::new(error, 0, Phase::BeforeLaunch, instance)
    }
}

/// Fails if the plan of an op was given buffers of other lengths. A program's pipeline checks its
/// buffers itself.
fn check_lengths(pipeline: &dyn CompiledPipeline, items: &[&mut [Bound<'_>]]) -> Result<(), BackendError> {
    let plan = pipeline.as_any().and_then(|made| made.downcast_ref::<CompiledPlan>());
    plan.map_or(Ok(()), |plan| {
        items.iter().try_for_each(|item| plan.check_lengths(item.iter().map(Bound::len)))
    })
}

/// The placement of most bytes of the calls' resident buffers.
fn placement(items: &[&mut [Bound<'_>]]) -> Placement {
    let mut best: Option<(usize, u64)> = None;
    for memory in items.iter().flat_map(|item| item.iter()) {
        if let Some(buffer) = memory.resident()
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
