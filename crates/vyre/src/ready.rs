//! Ready ops through the runtime: a plan of several programs, run by one call on the backend that is fastest for it.
//!
//! A plan is made for a device and a size, so an [`OpRoutine`] holds the function that makes it. A call asks the router by op
//! and size, takes the plan for that backend (made and compiled once), and runs its steps; what they pass to one another
//! stays on the backend.
//!
//! **Proved right as a whole**: before a backend other than the selected one runs an op, the whole plan, at the size cut to
//! [`CUTS`] and on copies of what the first such call's inputs start with, has to give there what it gives in the interpreter.

use crate::argument::{Argument, Memory};
use crate::backend::Backend;
use crate::background::Job;
use crate::call::argument_fault;
use crate::catalogue::sample::Agreement;
use crate::catalogue::{CompiledPlan, Plan, PlanError, Role};
use crate::dispatch::{Attempts, Called, Failure, Launched, contained, nanoseconds};
use crate::explain::Explanation;
use crate::report::{Report, Why};
use crate::runtime::Shared;
use crate::verify::{CUTS, Finding, ORACLE_LIMIT, within_limit};
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::router::fallback::{ChosenBy, Phase, default_policy};
use vyre_driver::router::{BackendIndex, Background, Placement, ProgramRoutes, Rejection, Route, Timing};
use vyre_driver::tuner::{Mode, Tuner};
use vyre_driver::{BackendError, Binding, DeviceProfile, DispatchConfig, Fallback, OutputBuffers};
use vyre_foundation::diagnostics::{Diagnostic, Diagnostics};
use vyre_reference::CpuRef;

/// The device that a plan is made for. It stands for its profile wherever one is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    profile: &'a DeviceProfile,
    tuner: &'a Tuner,
}

impl Device<'_> {
    /// What tuning found on it, for families of plans such as
    /// [`matmul_tuned`](crate::catalogue::matmul::matmul_tuned).
    pub fn tuner(&self) -> &Tuner {
        self.tuner
    }
}

impl Deref for Device<'_> {
    type Target = DeviceProfile;
    fn deref(&self) -> &DeviceProfile {
        self.profile
    }
}

/// Makes the plan of a size for a device.
type Make = dyn Fn(u32, &Device<'_>) -> Result<Plan, PlanError> + Send + Sync;

/// A ready op loaded into a runtime, from [`Runtime::load_op`](crate::Runtime::load_op). Cheap to clone, and called from any
/// number of threads.
#[derive(Clone)]
pub struct OpRoutine {
    core: Arc<OpCore>,
}

pub(crate) struct OpCore {
    shared: Arc<Shared>,
    op: &'static str,
    make: Box<Make>,
    /// The buffers that a call binds, in the plan's order.
    parameters: Vec<Parameter>,
    routes: Arc<ProgramRoutes>,
    /// The plans that were used last, the last one first.
    plans: Mutex<Vec<Kept>>,
    sample: OnceLock<Sample>,
}

struct Parameter {
    name: &'static str,
    role: Role,
}

/// A plan that was compiled.
struct Kept {
    size: u32,
    instance: u64,
    plan: Arc<CompiledPlan>,
}

/// So many compiled plans are kept with an op; each keeps its intermediate buffers.
const MOST_KEPT: usize = 8;

/// What the inputs of a call start with, to verify on.
struct Sample {
    size: u32,
    starts: Vec<Vec<u8>>,
}

/// What the interpreter gives for a plan.
struct Expected {
    size: u32,
    plan: Plan,
    inputs: Vec<Vec<u8>>,
    outputs: OutputBuffers,
}

/// So much is kept of an input.
const SAMPLED_BYTES: usize = 1 << 20;
/// Sizes that a verified backend is timed at besides, up to that of the call.
const TIMED_SIZES: [u32; 2] = [64, 65_536];
/// A larger size is left out once a call took longer than this.
const TIMED_LIMIT: Duration = Duration::from_millis(8);
const TIMED_RUNS: usize = 3;

impl OpRoutine {
    pub(crate) fn new(shared: Arc<Shared>, make: Box<Make>) -> Result<OpRoutine, BackendError> {
        // Names and roles of the buffers are the same on every device and at every size.
        let (profile, tuner) = (DeviceProfile::conservative("any"), Tuner::in_memory(Mode::OffUseDefault));
        let device = Device { profile: &profile, tuner: &tuner };
        let mut made = CUTS.iter().chain(&[1, 0]).map(|&size| make(size, &device));
        let plan = made.find(Result::is_ok).unwrap_or_else(|| make(CUTS[0], &device)).map_err(refused)?;
        drop(made);
        let bound = plan.buffers.iter().filter(|buffer| buffer.role.is_bound());
        let parameters =
            bound.map(|buffer| Parameter { name: buffer.name, role: buffer.role.clone() }).collect();
        let mut hasher = blake3::Hasher::new_derive_key("vyre plan");
        for step in &plan.steps {
            hasher.update(&step.program.fingerprint());
        }
        let routes = shared.router.program(Some(plan.op), *hasher.finalize().as_bytes());
        let (op, plans, sample) = (plan.op, Mutex::default(), OnceLock::new());
        Ok(OpRoutine { core: Arc::new(OpCore { shared, op, make, parameters, routes, plans, sample }) })
    }

    /// A call at a size, which is what the function that was loaded takes it for: most often the number of elements.
    pub fn call(&self, size: u32) -> OpCall<'_> {
        let memory = self.core.parameters.iter().map(|_| Memory::Nothing).collect();
        let (faults, options) = (Vec::new(), Options::default());
        OpCall { core: &self.core, size, memory, faults, options }
    }

    /// Why a call at a size would go where it would go.
    pub fn explain(&self, size: u32) -> Explanation {
        Explanation::new(&self.core.shared, &self.core.routes, size.into())
    }
}

impl std::fmt::Debug for OpRoutine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpRoutine").field("op", &self.core.op).finish_non_exhaustive()
    }
}

/// A call of a ready op under construction, from [`OpRoutine::call`].
#[must_use = "a call does nothing until it is run"]
pub struct OpCall<'a> {
    core: &'a Arc<OpCore>,
    size: u32,
    /// One item per parameter.
    memory: Vec<Memory<'a>>,
    faults: Vec<Diagnostic>,
    options: Options<'a>,
}

#[derive(Clone, Copy, Default)]
struct Options<'a> {
    backend: Option<&'a str>,
    fallback: Option<Fallback>,
    timeout: Option<Duration>,
}

impl<'a> OpCall<'a> {
    /// Binds memory to the buffer of that name: a slice, `&mut` where the op writes.
    pub fn bind(mut self, name: &str, argument: impl Into<Argument<'a>>) -> OpCall<'a> {
        let op = self.core.op;
        let memory = argument.into().memory;
        let fault = match self.core.parameters.iter().position(|parameter| parameter.name == name) {
            None => {
                let names: Vec<&str> = self.core.parameters.iter().map(|other| other.name).collect();
                argument_fault(format!("op `{op}` has no buffer `{name}` to bind"))
                    .help(format!("it has: {}", names.join(", ")))
            }
            Some(at) if !matches!(self.memory[at], Memory::Nothing) => {
                argument_fault(format!("buffer `{name}` of op `{op}` is bound twice"))
                    .help("bind each buffer once")
            }
            Some(at)
                if self.core.parameters[at].role != Role::Input && !matches!(memory, Memory::Write(_)) =>
            {
                argument_fault(format!(
                    "op `{op}` writes to buffer `{name}`, and what was bound cannot be written"
                ))
                .help(format!("bind it with `&mut {name}`"))
            }
            Some(_) if matches!(memory, Memory::Resident(_)) => {
                argument_fault(format!("buffer `{name}` of op `{op}` takes no resident buffer"))
                    .help("bind a slice")
            }
            Some(at) => {
                self.memory[at] = memory;
                return self;
            }
        };
        self.faults.push(fault);
        self
    }

    /// Runs on this backend and no other, unless a fallback is allowed.
    pub fn on(mut self, backend: &'a str) -> OpCall<'a> {
        self.options.backend = Some(backend);
        self
    }

    /// Whether another backend may do the work if the chosen one cannot. Unset, a routed call may fall back with a
    /// warning, and one on a named backend may not. An op that changes a buffer in place is not repeated once it ran.
    pub fn fallback(mut self, fallback: Fallback) -> OpCall<'a> {
        self.options.fallback = Some(fallback);
        self
    }

    /// How long the call may take.
    pub fn timeout(mut self, limit: Duration) -> OpCall<'a> {
        self.options.timeout = Some(limit);
        self
    }

    /// Runs the call and waits for it. After an error, memory given for writing has unspecified contents.
    pub fn run(mut self) -> Result<Report, BackendError> {
        self.check()?;
        let OpCall { core, size, options, .. } = &self;
        let (core, size, options) = (*core, *size, *options);
        let named = options.backend.and_then(|id| core.shared.router.index_of(id));
        if let (Some(id), None) = (options.backend, named) {
            let backend = core.shared.unrouted(id)?;
            let launched = self.launch(&backend).map_err(|failure| failure.error)?;
            return Ok(launched.report(&backend, Why::Named, size.into(), Vec::new()));
        }
        let chosen_by = if named.is_some() { ChosenBy::Caller } else { ChosenBy::Router };
        let fallback = options.fallback.unwrap_or_else(|| default_policy(chosen_by));
        let called = Called { shared: &core.shared, name: core.op, routes: &core.routes };
        let mut attempts = Attempts::new(called, fallback, named);
        loop {
            let route = self.choose(&attempts)?;
            let backend = core.shared.chosen(&route);
            let activity = core.shared.background.activity();
            match self.launch(backend) {
                Ok(launched) => {
                    core.shared.timed(&core.routes, &route, nanoseconds(launched.elapsed), activity);
                    core.beside(&route);
                    return Ok(attempts.report(backend, &route, size.into(), launched));
                }
                Err(failure) => attempts.take(backend, &route, failure)?,
            }
        }
    }

    /// Every buffer is bound.
    fn check(&mut self) -> Result<(), BackendError> {
        let op = self.core.op;
        for (parameter, memory) in self.core.parameters.iter().zip(&self.memory) {
            if matches!(memory, Memory::Nothing) {
                let name = parameter.name;
                let mutable = if parameter.role == Role::Input { "&" } else { "&mut " };
                let fault = argument_fault(format!("buffer `{name}` of op `{op}` is not bound"));
                self.faults.push(fault.help(format!("add `.bind(\"{name}\", {mutable}…)`")));
            }
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(Diagnostics::from(std::mem::take(&mut self.faults)).into())
    }

    /// Asks the router; verifies first where a backend lacks only that.
    fn choose(&self, attempts: &Attempts<'_>) -> Result<Route, BackendError> {
        let core = self.core;
        let mut verifications = core.shared.backends.len();
        loop {
            let now_ns = core.shared.now_ns();
            let (elements, placement) = (self.size.into(), Placement::Host);
            let call = attempts.call(elements, placement, now_ns);
            let none = match core.routes.route(&call) {
                Ok(route) => {
                    if route.background.is_some() {
                        self.sample();
                    }
                    return Ok(route);
                }
                Err(none) => none,
            };
            match none.verify_first.filter(|_| verifications > 0) {
                None => return Err(attempts.no_route(none)),
                Some(index) => {
                    verifications -= 1;
                    self.sample();
                    core.verify(index);
                }
            }
        }
    }

    /// Keeps what the inputs start with, if nothing is kept yet.
    fn sample(&self) {
        self.core.sample.get_or_init(|| {
            let start = |memory: &Memory<'_>| {
                let bytes: &[u8] = match memory {
                    Memory::Number(bytes, length) => &bytes[..*length],
                    Memory::Read(bytes) => bytes,
                    Memory::Write(bytes) => bytes,
                    Memory::Nothing | Memory::Resident(_) => &[],
                };
                bytes[..bytes.len().min(SAMPLED_BYTES)].to_vec()
            };
            let given = self.core.parameters.iter().zip(&self.memory);
            let given = given.filter(|(parameter, _)| parameter.role != Role::Output);
            Sample { size: self.size, starts: given.map(|(_, memory)| start(memory)).collect() }
        });
    }

    fn launch(&mut self, backend: &Arc<Backend>) -> Result<Launched, Failure> {
        let before = |error| Failure { error, elapsed_ns: 0, phase: Phase::BeforeLaunch };
        let core = self.core;
        let plan = core.plan(backend, self.size).map_err(before)?;
        self.fits(&plan).map_err(before)?;
        let timeout = self.options.timeout;
        let mut bindings: Vec<Binding<'_>> = Vec::with_capacity(self.memory.len());
        for memory in &mut self.memory {
            bindings.push(match memory {
                Memory::Number(bytes, length) => Binding::Read(&bytes[..*length]),
                Memory::Read(bytes) => Binding::Read(bytes),
                Memory::Write(bytes) => Binding::ReadWrite(bytes),
                Memory::Nothing | Memory::Resident(_) => unreachable!("refused when the call was checked"),
            });
        }
        let began = Instant::now();
        let outcome = contained(backend, || plan.run_within(&mut bindings, timeout));
        let elapsed = began.elapsed();
        core.shared.tick();
        let updates = core.parameters.iter().any(|parameter| parameter.role == Role::Updated);
        let phase = if updates { Phase::Launched } else { Phase::LaunchedOnSavedMemory };
        outcome.map_err(|error| Failure { error, elapsed_ns: nanoseconds(elapsed), phase })?;
        Ok(Launched { elapsed, device: None, tuned: None })
    }

    /// Whether the lengths are those of the plan.
    fn fits(&self, plan: &CompiledPlan) -> Result<(), BackendError> {
        let bound = plan.buffers().iter().filter(|buffer| buffer.role.is_bound());
        let wrong = bound.zip(&self.memory).filter(|(buffer, memory)| buffer.bytes != memory.len());
        let faults: Vec<Diagnostic> = wrong
            .map(|(buffer, memory)| {
                let (op, name, size, given) = (self.core.op, buffer.name, self.size, memory.len());
                let wanted = buffer.bytes;
                argument_fault(format!(
                    "buffer `{name}` of op `{op}` has {wanted} bytes at size {size}, not {given}"
                ))
            })
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(Diagnostics::from(faults).into()) }
    }
}

impl OpCore {
    /// The plan of a size for a backend.
    fn make(&self, backend: &Backend, size: u32) -> Result<Plan, BackendError> {
        let untuned = Tuner::in_memory(Mode::OffUseDefault);
        let tuner = self.shared.tuners.get(backend.position).unwrap_or(&untuned);
        (self.make)(size, &Device { profile: &backend.profile, tuner }).map_err(refused)
    }

    /// The plan of a size, compiled for a backend: one that was used lately, or a new one.
    fn plan(&self, backend: &Arc<Backend>, size: u32) -> Result<Arc<CompiledPlan>, BackendError> {
        backend.recover()?;
        let instance = backend.instance();
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = plans.iter().position(|kept| kept.size == size && kept.instance == instance) {
            plans[..=at].rotate_right(1);
            return Ok(plans[0].plan.clone());
        }
        drop(plans);
        let plan = self.make(backend, size)?;
        let made = contained(backend, || plan.compile(backend.driver(), &DispatchConfig::default()))?;
        let plan = Arc::new(made);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.insert(0, Kept { size, instance, plan: plan.clone() });
        plans.truncate(MOST_KEPT);
        Ok(plan)
    }

    /// Has done what the router wants done beside a call.
    fn beside(self: &Arc<Self>, route: &Route) {
        match route.background {
            Some(Background::Verify(index)) => {
                self.shared.background.push(Job::VerifyOp(self.clone(), index));
            }
            Some(Background::Canary(index)) => {
                self.shared.background.push(Job::CanaryOp(self.clone(), index));
            }
            None => {}
        }
    }

    /// Verifies the op on a backend, and tells the router.
    pub(crate) fn verify(self: &Arc<Self>, index: BackendIndex) {
        let core = self.clone();
        let outcome = within_limit(&self.shared, index, move |backend| {
            let compared = core.compare(backend)?;
            core.timings(backend, compared).map_err(Finding::failed)
        });
        let now_ns = self.shared.now_ns();
        let finding = match outcome {
            Ok(timings) => return self.routes.verified(index, Ok(&timings), now_ns),
            Err(finding) => finding,
        };
        let rejection = match &finding {
            Finding::Wrong(reason) => Rejection::Wrong(reason),
            Finding::Failed(reason) => Rejection::Failed(reason),
            // The selected backend runs on the strength of the conformance set; nothing is known against it.
            Finding::Inconclusive(_) if self.shared.router.selected() == Some(index) => return,
            Finding::Inconclusive(reason) => Rejection::Failed(reason),
        };
        let backend = self.shared.router.id(index);
        tracing::info!(
            op = self.op,
            backend,
            reason = finding.reason(),
            "the backend is not used for this op"
        );
        self.routes.verified(index, Err(rejection), now_ns);
    }

    /// Checks that a backend still gives what the interpreter gives, and tells the router.
    pub(crate) fn canary(self: &Arc<Self>, index: BackendIndex) {
        let core = self.clone();
        let began = Instant::now();
        let outcome = within_limit(&self.shared, index, move |backend| core.compare(backend).map(drop));
        let rejection = match &outcome {
            Ok(()) | Err(Finding::Inconclusive(_)) => Ok(()),
            Err(Finding::Wrong(reason)) => Err(Rejection::Wrong(reason)),
            Err(Finding::Failed(reason)) => Err(Rejection::Failed(reason)),
        };
        self.routes.canary(index, rejection, nanoseconds(began.elapsed()), self.shared.now_ns());
    }

    /// Compares the plan on a backend with the same plan in the interpreter; gives the size that it was done at.
    fn compare(&self, backend: &Arc<Backend>) -> Result<u32, Finding> {
        let nothing = || Finding::Inconclusive("no call has been seen to take a sample from".into());
        let sample = self.sample.get().ok_or_else(nothing)?;
        let Expected { size, plan, inputs, outputs: expected } = self.ask_oracle(backend, sample)?;
        let compiled = plan.compile(backend.driver(), &DispatchConfig::default()).map_err(Finding::failed)?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let found = compiled.run(&inputs).map_err(Finding::failed)?;
        let written = self.parameters.iter().filter(|parameter| parameter.role != Role::Input);
        for (parameter, (expected, found)) in written.zip(expected.iter().zip(&found)) {
            if let Some(fault) = Agreement::Bits.fault(expected, found) {
                return Err(Finding::Wrong(format!("buffer `{}` at size {size}: {fault}", parameter.name)));
            }
        }
        Ok(size)
    }

    /// The largest cut that the interpreter gets through in time, and what it gives.
    fn ask_oracle(&self, backend: &Backend, sample: &Sample) -> Result<Expected, Finding> {
        let lanes = backend.profile.subgroup_size;
        let config =
            DispatchConfig { subgroup_size: (lanes > 0).then_some(lanes), ..DispatchConfig::default() };
        let mut failure = String::new();
        let mut sizes = CUTS.map(|cut| cut.min(sample.size)).to_vec();
        sizes.dedup();
        for size in sizes {
            let plan = self.make(backend, size).map_err(Finding::failed)?;
            let inputs = sample.inputs(&plan);
            let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let oracle = plan.compile(Arc::new(CpuRef), &config).map_err(Finding::failed)?;
            match oracle.run_inputs_within(&borrowed, Some(ORACLE_LIMIT)) {
                Ok(outputs) => return Ok(Expected { size, plan, inputs, outputs }),
                Err(error @ BackendError::Timeout { .. }) => failure = error.to_string(),
                Err(error) => {
                    return Err(Finding::Inconclusive(format!("the interpreter could not run it: {error}")));
                }
            }
        }
        Err(Finding::Inconclusive(format!("the interpreter was too slow at every size: {failure}")))
    }

    /// How long the backend takes at a few sizes.
    fn timings(&self, backend: &Arc<Backend>, compared: u32) -> Result<Vec<Timing>, BackendError> {
        let Some(sample) = self.sample.get() else { return Ok(Vec::new()) };
        let [small, large] = TIMED_SIZES.map(|size| size.min(sample.size));
        let mut sizes = vec![small, compared, large];
        sizes.sort_unstable();
        sizes.dedup();
        let mut timings = Vec::new();
        for size in sizes {
            let plan = self.make(backend, size)?;
            let compiled = plan.compile(backend.driver(), &DispatchConfig::default())?;
            let inputs = sample.inputs(&plan);
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            compiled.run(&inputs)?;
            let mut least = Duration::MAX;
            for _ in 0..TIMED_RUNS {
                let began = Instant::now();
                compiled.run(&inputs)?;
                least = least.min(began.elapsed());
            }
            timings.push(Timing { elements: size.into(), elapsed_ns: nanoseconds(least) });
            if least > TIMED_LIMIT {
                break;
            }
        }
        Ok(timings)
    }
}

impl Sample {
    /// Inputs for a plan: what the call's started with, repeated where that is too short.
    fn inputs(&self, plan: &Plan) -> Vec<Vec<u8>> {
        let given = plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Input | Role::Updated));
        let fill = |(buffer, start): (&crate::catalogue::PlanBuffer, &Vec<u8>)| {
            let mut bytes: Vec<u8> = start.iter().copied().cycle().take(buffer.bytes).collect();
            bytes.resize(buffer.bytes, 0);
            bytes
        };
        given.zip(&self.starts).map(fill).collect()
    }
}

/// There is no plan for what the caller asked for, whatever the backend.
fn refused(error: PlanError) -> BackendError {
    Diagnostics::from(vec![argument_fault(error.to_string())]).into()
}
