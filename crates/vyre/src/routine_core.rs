//! A program or op loaded into a runtime, with everything that its calls need, worked out once.
//!
//! All calls of a core share one code policy. A call whose configuration asks for another (a
//! schedule, a budget, a workgroup size) goes to another core [with that
//! policy](RoutineCore::with_policy), which has its own code, routes and results: what was verified
//! under a budget says nothing about strict calls.

use crate::backend::{Backend, OpenDriver};
use crate::backend_state::{BackendState, ReadyCode};
use crate::catalogue::{Plan, PlanError};
use crate::known_results::Evidence;
use crate::meter::Meters;
use crate::parameter::Parameter;
use crate::shared::Shared;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use vyre_driver::judge::Output;
use vyre_driver::router::ProgramRoutes;
use vyre_driver::tuner::{Mode, Tuner};
use vyre_driver::{BackendError, Cached, CodeKey, DeviceProfile, DispatchConfig, PipelineKey, pipeline};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{BufferId, Kernel, KernelDomain};
use vyre_foundation::launch::{Launch, LaunchArgument};

/// A program with more values than this counts as large: compiling one of 2,000 takes `cpu` about
/// 0.2 s.
const LARGE_PROGRAM: usize = 1000;

/// Maximum cores kept for other policies. A call site uses one or two; a caller that sweeps a
/// setting must not keep the code of all its values. Chosen, not measured.
const MOST_POLICIES: usize = 16;
/// Maximum notes kept on code: more than a routine gets from its few tries per backend and size.
const MOST_NOTES: usize = 64;

pub(crate) struct RoutineCore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) work: Work,
    /// The buffers that a call binds, in binding order.
    pub(crate) parameters: Vec<Parameter>,
    /// Whether a call can print or assert.
    pub(crate) speaks: bool,
    /// Whether a call changes memory that it also reads.
    pub(crate) reads_and_writes: bool,
    /// Defaults for calls.
    pub(crate) config: DispatchConfig,
    pub(crate) routes: Arc<ProgramRoutes>,
    /// One per backend of the runtime, and one for those used only when named.
    states: Vec<BackendState>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) evidence: Evidence,
    /// Outcomes of recompilations and tuning, for explanations.
    notes: Mutex<Vec<String>>,
    /// Cores of the same work with other code policies, last used first.
    other_policies: Mutex<Vec<Arc<RoutineCore>>>,
}

/// The work of a call.
#[derive(Clone)]
pub(crate) enum Work {
    Program {
        program: Program,
        kernel: Kernel,
        extent: ElementCount,
    },
    /// A plan of several programs, made for a size and a device.
    Op {
        op: &'static str,
        make: Arc<MakePlan>,
    },
}

/// Makes the plan for a size and a device.
pub(crate) type MakePlan = dyn Fn(u32, &Device<'_>) -> Result<Plan, PlanError> + Send + Sync;

/// The number of elements that a call covers.
#[derive(Clone)]
pub(crate) enum ElementCount {
    Fixed(u64),
    /// The length of the buffer at this position among the parameters.
    LengthOf(usize),
    /// Computed per call; the buffers that a call binds, in order.
    Formula(Arc<[BufferId]>),
}

/// The device that a plan is made for. Dereferences to its profile.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    profile: &'a DeviceProfile,
    tuner: &'a Tuner,
}

impl<'a> Device<'a> {
    /// Tuning results on this device, for families of plans such as
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

impl RoutineCore {
    /// The core of a program.
    pub(crate) fn of_program(
        shared: Arc<Shared>,
        program: Program,
        config: DispatchConfig,
    ) -> Result<RoutineCore, BackendError> {
        let kernel = program.validate()?;
        let bound = kernel.bound_buffers();
        let sizing = kernel.sizing_buffers();
        let parameter = |&id: &_| {
            let decl = &kernel.buffer(id).decl;
            let sizes = sizing.contains(&id);
            Parameter { sizes, ..Parameter::new(decl.name.clone(), decl.access, decl.element, decl.count) }
        };
        let parameters: Vec<Parameter> = bound.iter().map(parameter).collect();
        let extent = match &kernel.domain {
            KernelDomain::Counts(counts) => {
                ElementCount::Fixed(counts.iter().fold(1, |all: u64, &axis| all.saturating_mul(axis.into())))
            }
            KernelDomain::Axes(_) | KernelDomain::Given => ElementCount::Formula(bound.clone().into()),
            KernelDomain::LenOf(buffer) => match bound.iter().position(|id| id == buffer) {
                Some(position) => ElementCount::LengthOf(position),
                None => unreachable!("validation lets a domain follow bound buffers only"),
            },
        };
        let (name, fingerprint) = (program.name().map(|name| name.to_string()), program.fingerprint());
        let meters = Meters::new(&kernel);
        let speaks = !kernel.messages.is_empty();
        let work = Work::Program { program, kernel, extent };
        let mut core =
            RoutineCore::new(shared, work, parameters, meters, config, name.as_deref(), fingerprint);
        core.speaks = speaks;
        Ok(core)
    }

    /// The core of an op.
    pub(crate) fn of_op(
        shared: Arc<Shared>,
        make: Arc<MakePlan>,
        config: DispatchConfig,
    ) -> Result<RoutineCore, BackendError> {
        // The names, roles and types of the buffers are the same on every device and at every size.
        let (profile, tuner) = (DeviceProfile::conservative("any"), Tuner::in_memory(Mode::OffUseDefault));
        let device = Device { profile: &profile, tuner: &tuner };
        let mut made = [4096, 256, 16, 1, 0].iter().map(|&size| make(size, &device));
        let plan = made.find(Result::is_ok).unwrap_or_else(|| make(4096, &device))?;
        drop(made);
        let parameters = plan.parameters();
        let mut hasher = blake3::Hasher::new_derive_key("vyre plan");
        for step in &plan.steps {
            hasher.update(&step.program.fingerprint());
        }
        let fingerprint = *hasher.finalize().as_bytes();
        let meters = Meters::of_op(plan.op, &fingerprint);
        let work = Work::Op { op: plan.op, make };
        let mut core = RoutineCore::new(shared, work, parameters, meters, config, Some(plan.op), fingerprint);
        core.speaks = plan
            .programs()
            .into_iter()
            .any(|program| program.validate().is_ok_and(|kernel| !kernel.messages.is_empty()));
        Ok(core)
    }

    fn new(
        shared: Arc<Shared>,
        work: Work,
        parameters: Vec<Parameter>,
        meters: Meters,
        config: DispatchConfig,
        name: Option<&str>,
        fingerprint: [u8; 32],
    ) -> RoutineCore {
        let digest = CodeKey::digest(fingerprint, &config);
        let meters = Arc::new(meters);
        shared.keep_meters(&meters);
        RoutineCore {
            speaks: false,
            reads_and_writes: parameters.iter().any(|parameter| parameter.access == Access::ReadWrite),
            parameters,
            config,
            routes: shared.router.program(name, digest),
            states: (0..=shared.backends.len()).map(|_| BackendState::new()).collect(),
            meters,
            evidence: Evidence::default(),
            notes: Mutex::default(),
            other_policies: Mutex::default(),
            work,
            shared,
        }
    }

    /// Whether calls in this configuration need other code or separate measurements.
    pub(crate) fn differs(&self, config: &DispatchConfig) -> bool {
        config.code_policy() != self.config.code_policy() || config.profile != self.config.profile
    }

    /// The core of the same work with a call's code policy.
    #[cold]
    pub(crate) fn with_policy(&self, config: &DispatchConfig) -> Result<Arc<RoutineCore>, BackendError> {
        let mut others = self.other_policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = others.iter().position(|other| !other.differs(config)) {
            others[..=at].rotate_right(1);
            return Ok(others[0].clone());
        }
        let (shared, config) = (self.shared.clone(), config.clone());
        let core = Arc::new(match &self.work {
            Work::Program { program, .. } => RoutineCore::of_program(shared, program.clone(), config)?,
            Work::Op { make, .. } => RoutineCore::of_op(shared, make.clone(), config)?,
        });
        others.insert(0, core.clone());
        others.truncate(MOST_POLICIES);
        Ok(core)
    }

    /// State of the routine on a backend.
    #[inline]
    pub(crate) fn state(&self, backend: &Backend) -> &BackendState {
        &self.states[backend.position.min(self.states.len() - 1)]
    }

    /// Whether even the embedded backend may take long to compile it.
    pub(crate) fn is_large(&self) -> bool {
        match &self.work {
            Work::Program { kernel, .. } => kernel.values.len() > LARGE_PROGRAM,
            Work::Op { .. } => false,
        }
    }

    /// The name for messages and logs.
    pub(crate) fn name(&self) -> &str {
        match &self.work {
            Work::Program { kernel, .. } => kernel.display_name(),
            Work::Op { op, .. } => op,
        }
    }

    /// "kernel `name`" or "op `name`", for messages.
    pub(crate) fn title(&self) -> String {
        match &self.work {
            Work::Program { kernel, .. } => format!("kernel `{}`", kernel.display_name()),
            Work::Op { op, .. } => format!("op `{op}`"),
        }
    }

    /// How many elements a call on this memory covers; `size` is the caller's size for an op.
    #[inline]
    pub(crate) fn elements<'m>(
        &self,
        size: u32,
        memory: impl Fn(usize) -> LaunchArgument<'m>,
        config: &DispatchConfig,
    ) -> u64 {
        let Work::Program { kernel, extent, .. } = &self.work else { return size.into() };
        if let Some(grid) = config.grid_override {
            let workgroup = config.workgroup_override.unwrap_or(kernel.workgroup_size);
            return grid.iter().chain(&workgroup).fold(1, |all: u64, &axis| all.saturating_mul(axis.into()));
        }
        if let Some(domain) = config.domain_override {
            return domain.iter().fold(1, |all: u64, &axis| all.saturating_mul(axis.into()));
        }
        match extent {
            ElementCount::Fixed(elements) => *elements,
            ElementCount::LengthOf(position) => {
                // Element sizes are powers of two.
                let size = self.parameters.get(*position).map_or(1, |parameter| parameter.size);
                (memory(*position).length >> size.trailing_zeros()) as u64
            }
            // A formula that cannot be evaluated is refused at launch.
            ElementCount::Formula(bound) => {
                let bound = |buffer| memory(bound.iter().position(|&id| id == buffer).unwrap_or(usize::MAX));
                Launch::domain_on(kernel, config.overrides(), &bound).unwrap_or(0)
            }
        }
    }

    /// The buffers that a call writes, in order.
    pub(crate) fn outputs(&self) -> Vec<Output<'_>> {
        let written = self.parameters.iter().filter(|parameter| parameter.access.is_output());
        written.map(|parameter| Output { name: &parameter.name, element: parameter.element }).collect()
    }

    /// The program of a core that is not an op.
    pub(crate) fn program(&self) -> &Program {
        match &self.work {
            Work::Program { program, .. } => program,
            Work::Op { .. } => unreachable!("an op has plans"),
        }
    }

    /// The kernel of a core that is not an op.
    pub(crate) fn kernel(&self) -> &Kernel {
        match &self.work {
            Work::Program { kernel, .. } => kernel,
            Work::Op { .. } => unreachable!("an op has plans"),
        }
    }

    /// The memory that a call reads, with its parameters.
    pub(crate) fn inputs<'c, M>(&'c self, item: &'c [M]) -> impl Iterator<Item = (&'c Parameter, &'c M)> {
        self.parameters.iter().zip(item).filter(|(parameter, _)| parameter.access.is_input())
    }

    /// The plan of an op for a backend and a size.
    pub(crate) fn plan(&self, backend: &Backend, size: u32) -> Result<Plan, BackendError> {
        let Work::Op { make, .. } = &self.work else { unreachable!("only ops have plans") };
        let untuned = Tuner::in_memory(Mode::OffUseDefault);
        let tuner = backend.tuner().unwrap_or(&untuned);
        Ok(make(size, &Device { profile: backend.profile(), tuner })?)
    }

    /// Marks the device of this instance as lost. Returns whether it was the current instance.
    pub(crate) fn lost(&self, backend: &Backend, instance: u64) -> bool {
        self.shared.pipelines.forget_backend(instance);
        backend.lose(instance)
    }

    /// Outcomes of recompilations and tuning.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, note: String) {
        tracing::debug!(kernel = self.name(), note);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES {
            notes.push(note);
        }
    }
}

/// A routine on a backend.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) core: &'a Arc<RoutineCore>,
    pub(crate) backend: &'a Arc<Backend>,
}

impl<'a> Pair<'a> {
    #[inline]
    pub(crate) fn state(self) -> &'a BackendState {
        self.core.state(self.backend)
    }

    /// Compiles the program, or finds it in the cache.
    pub(crate) fn compile(
        self,
        program: &Program,
        policy: &DispatchConfig,
    ) -> Result<ReadyCode, BackendError> {
        let OpenDriver { driver, instance } = self.backend.live()?;
        let key = PipelineKey::new(instance, self.backend.profile(), program, policy);
        let pipeline = self.core.shared.pipelines.get_or_compile(&key, || {
            let values = program.validate().map_or(0, |kernel| kernel.values.len());
            // A backend does not report the size of its code; it grows with the kernel.
            let bytes = 4096 + 64 * values as u64;
            pipeline::compile(driver, program, policy).map(|pipeline| Cached { pipeline, bytes })
        });
        let pipeline = pipeline.inspect_err(|error| self.look_for_loss(error, instance))?;
        Ok(ReadyCode { instance, pipeline, schedule: policy.schedule, tuned: None })
    }

    /// Records the loss of a device during compilation.
    pub(crate) fn look_for_loss(self, error: &BackendError, instance: u64) {
        if matches!(error, BackendError::DeviceLost { .. }) {
            self.core.lost(self.backend, instance);
        }
    }

    /// Adds a note on the code of this backend.
    pub(crate) fn note(self, what: &str) {
        self.core.note(format!("{}{what}", self.backend.id));
    }
}

impl Drop for RoutineCore {
    fn drop(&mut self) {
        self.meters.drain(&self.shared.hints);
    }
}
