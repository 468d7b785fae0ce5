//! The runtime: backends opened and certified once, programs loaded into it, what is learnt kept.

use crate::argument::Element;
use crate::backend::{Backend, Opened};
use crate::background::Jobs;
use crate::catalogue::{Plan, PlanError};
use crate::contact::{Contact, Manner, Met, Strangers, Wanted, contact, linked};
use crate::dispatch::nanoseconds;
use crate::ready::{Device, OpRoutine};
use crate::resident::Resident;
use crate::routine::{Routine, RoutineCore};
use crate::sequence::Sequence;
use crate::tables::Tables;
use bytemuck::Pod;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::Certificate;
use vyre_driver::registry::{self, SelectionFacts};
use vyre_driver::router::{Candidate, Conformance, Policy, ProgramRoutes, RefusedBackend, Route, Router};
use vyre_driver::tables::TableError;
use vyre_driver::tuner::{Mode, Tuner};
use vyre_driver::{BackendError, DispatchConfig, PipelineCache, VyreBackend, trace};
use vyre_foundation::hints::{HotPathHints, RegionRecord};
use vyre_foundation::ir::Program;
use vyre_foundation::text;

/// The environment variable that lists the backends to use, separated by commas.
pub const BACKENDS_VARIABLE: &str = "VYRE_BACKENDS";
/// The environment variable that freezes routing when it is `on`.
pub const FROZEN_VARIABLE: &str = "VYRE_FROZEN";

/// How far the rough clock may be behind: far less than any quarantine lasts.
pub(crate) const CLOCK_LAG_NS: u64 = 1_000_000;
/// Without a call for so long, nobody is calling.
const LATELY_NS: u64 = 50_000_000;

/// Runs programs on the backend that is measured fastest and was proved right. Build one and share it: it is cheap to
/// clone, and used from any number of threads.
///
/// ```
/// use vyre::prelude::*;
/// # fn main() -> Result<(), BackendError> {
/// # let runtime = Runtime::builder().without_tables().build()?;
/// # stringify! {
/// let runtime = Runtime::new()?;
/// # };
/// let saxpy = runtime.load(
///     "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
///        let i = invocation.x
///        y[i] = a * x[i] + y[i]
///      }",
/// )?;
/// let (x, mut y) = (vec![1.0f32; 1000], vec![0.5f32; 1000]);
/// let report = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).run()?;
/// assert_eq!((y[999], report.elements), (2.5, 1000));
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    handle: Arc<Handle>,
}

/// What the last clone of a runtime ends.
struct Handle {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    /// In the order of selection, which is also the router's.
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) router: Router,
    pub(crate) pipelines: PipelineCache,
    pub(crate) hints: HotPathHints,
    pub(crate) background: Jobs,
    /// One per backend.
    pub(crate) tuners: Vec<Tuner>,
    /// Whether calls have their shapes tuned.
    pub(crate) tuning: Mode,
    /// Whether hot routines are compiled again.
    pub(crate) recompiles: bool,
    policy: Policy,
    pub(crate) standings: Vec<(SelectionFacts, Certificate)>,
    refused: Vec<RefusedBackend>,
    config: DispatchConfig,
    routines: Mutex<Vec<Weak<RoutineCore>>>,
    /// Backends that are used only where they are named, by id.
    unrouted: Mutex<HashMap<String, Arc<Backend>>>,
    tables: Tables,
    started: Instant,
    /// For calls that take little longer than reading the system's clock does.
    pub(crate) clock: quanta::Clock,
    /// The router's clock as of lately; see [`Shared::recent_ns`].
    recent_ns: AtomicU64,
}

/// How a runtime is to be, from [`Runtime::builder`]. What is not set is as the environment says, else as usual.
#[must_use = "build the runtime"]
pub struct RuntimeBuilder {
    ids: Option<Vec<String>>,
    instances: Vec<Arc<dyn VyreBackend>>,
    config: DispatchConfig,
    tables: Tables,
    policy: Policy,
    hints: HotPathHints,
    imported: Vec<Bundle>,
    tuning: Mode,
    recompiles: bool,
    manner: Manner,
}

impl Runtime {
    /// A runtime over every linked backend that opens and conforms, with the user's own tables.
    pub fn new() -> Result<Runtime, BackendError> {
        Runtime::builder().build()
    }

    /// A runtime that is to be otherwise.
    pub fn builder() -> RuntimeBuilder {
        let named = std::env::var(BACKENDS_VARIABLE).unwrap_or_default();
        let ids: Vec<String> =
            named.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
        let frozen = std::env::var(FROZEN_VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("on"));
        RuntimeBuilder {
            ids: (!ids.is_empty()).then_some(ids),
            instances: Vec::new(),
            config: DispatchConfig::default(),
            tables: Tables::of_user(),
            policy: Policy { frozen },
            // A program has a handful of regions; this many are those of thousands of programs.
            hints: HotPathHints::with_capacity(16_384),
            imported: Vec::new(),
            tuning: Mode::from_env(),
            recompiles: true,
            manner: Manner::usual(),
        }
    }

    /// Loads a program: a [`Program`], or its text. A body that is not all regions is put in one.
    pub fn load(&self, program: impl IntoProgram) -> Result<Routine, BackendError> {
        self.load_with(program, &DispatchConfig::default())
    }

    /// Like [`load`](Self::load), with a configuration that all its calls are laid over.
    pub fn load_with(
        &self,
        program: impl IntoProgram,
        config: &DispatchConfig,
    ) -> Result<Routine, BackendError> {
        let program = program.into_program()?.in_regions();
        let shared = &self.handle.shared;
        let core = Arc::new(RoutineCore::new(shared.clone(), program, config.over(&shared.config))?);
        let mut routines = shared.routines.lock().unwrap_or_else(PoisonError::into_inner);
        routines.retain(|routine| routine.strong_count() > 0);
        routines.push(Arc::downgrade(&core));
        Ok(Routine { core })
    }

    /// Loads a ready op of the [catalogue](crate::catalogue): a function from a size and a device to the plan to run there. A
    /// call runs all programs of the plan, on the backend that is fastest for the op at that size.
    ///
    /// ```
    /// use vyre::catalogue::sort::{self, Key};
    /// use vyre::prelude::*;
    /// # let runtime = Runtime::builder().without_tables().build()?;
    /// let sort = runtime.load_op(|size, device| sort::keys(Key::I32, size, device))?;
    /// let keys = [3_i32, -7, 12, 0, -1];
    /// let mut sorted = [0_i32; 5];
    /// let report = sort.call(5).bind("keys", &keys).bind("sorted", &mut sorted).run()?;
    /// assert_eq!(sorted, [-7, -1, 0, 3, 12]);
    /// println!("{report}");
    /// # Ok::<(), BackendError>(())
    /// ```
    pub fn load_op(
        &self,
        make: impl Fn(u32, &Device<'_>) -> Result<Plan, PlanError> + Send + Sync + 'static,
    ) -> Result<OpRoutine, BackendError> {
        OpRoutine::new(self.handle.shared.clone(), Box::new(make))
    }

    /// A buffer with these contents that stays on the backend which first runs a call on it.
    pub fn resident<T: Element + Pod>(&self, contents: &[T]) -> Resident<T> {
        Resident::new(self.handle.shared.clone(), contents)
    }

    /// Calls that run one after the other, all of them checked before the first one runs.
    pub fn sequence<'a>(&self) -> Sequence<'a> {
        Sequence::default()
    }

    /// Writes everything that was learnt, here and in the tables, into one file to carry elsewhere. `origin` says where it
    /// comes from.
    pub fn export(&self, path: impl AsRef<Path>, origin: &str) -> Result<Bundle, TableError> {
        let shared = &self.handle.shared;
        let mut bundle = Bundle::new(origin);
        bundle.routes = shared.tables.load_routes();
        bundle.routes.merge(&shared.router.learned());
        bundle.certificates = shared.tables.load_certificates();
        shared.standings.iter().for_each(|(_, certificate)| bundle.certificates.merge(certificate.clone()));
        shared.tables.add_tuned(&mut bundle);
        bundle.save(path.as_ref())?;
        Ok(bundle)
    }

    /// The ids of the backends that calls are routed to, in the order of selection.
    pub fn backends(&self) -> impl Iterator<Item = &'static str> {
        self.handle.shared.backends.iter().map(|backend| backend.id)
    }

    /// The linked backends that calls are not routed to, and why.
    pub fn refused(&self) -> Vec<RefusedBackend> {
        self.handle.shared.refused()
    }

    /// How many routed calls were finished; a batch is one.
    pub fn calls(&self) -> u64 {
        self.handle.shared.router.programs().iter().map(|program| program.calls()).sum()
    }

    /// What every region of every program cost so far, the one that took the most time first. Keys are
    /// `<generator>@<16 hex digits of the program's fingerprint>`.
    pub fn hints(&self) -> Vec<(String, RegionRecord)> {
        self.handle.shared.drain_meters();
        self.handle.shared.hints.ranked()
    }

    /// Waits until nothing is being verified in the background.
    pub fn settle(&self) {
        self.handle.shared.background.settle();
    }

    /// Writes what was learnt to the tables now. The last clone does so when it is dropped.
    pub fn save(&self) {
        self.handle.shared.save();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.background.close();
        self.shared.save();
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("backends", &self.backends().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl RuntimeBuilder {
    /// Only these linked backends, as in `["cpu", "wgpu:1"]`; none for only the instances given.
    pub fn backends<Id: Into<String>>(mut self, ids: impl IntoIterator<Item = Id>) -> RuntimeBuilder {
        self.ids = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// A backend of the caller's besides. It is certified like the others, every time.
    pub fn backend(mut self, instance: Arc<dyn VyreBackend>) -> RuntimeBuilder {
        self.instances.push(instance);
        self
    }

    /// What all calls are laid over.
    pub fn config(mut self, config: DispatchConfig) -> RuntimeBuilder {
        self.config = config;
        self
    }

    /// Keeps all tables in this folder.
    pub fn tables_in(mut self, folder: impl AsRef<Path>) -> RuntimeBuilder {
        self.tables = Tables::in_folder(folder.as_ref());
        self
    }

    /// Keeps what is learnt in memory only.
    pub fn without_tables(mut self) -> RuntimeBuilder {
        self.tables = Tables::default();
        self
    }

    /// Takes in what another runtime [exported](Runtime::export). Rows of other devices, drivers or compiler versions have
    /// no effect; newer rows of one's own stay.
    pub fn import(mut self, path: impl AsRef<Path>) -> Result<RuntimeBuilder, TableError> {
        self.imported.push(Bundle::load(path.as_ref())?.with_origins());
        Ok(self)
    }

    /// Lets only verified rows of the routing table decide: nothing is probed, and a call that the table has no answer for
    /// fails.
    pub fn frozen(mut self) -> RuntimeBuilder {
        self.policy.frozen = true;
        self
    }

    /// Whether calls have their shapes tuned in the background; unset, as `VYRE_AUTOTUNER` says. What earlier runs found is
    /// used either way.
    pub fn tuning(mut self, mode: Mode) -> RuntimeBuilder {
        self.tuning = mode;
        self
    }

    /// Compiles every program with the expensive schedule at once, instead of when it turns out to be hot.
    pub fn without_recompilation(mut self) -> RuntimeBuilder {
        self.recompiles = false;
        self
    }

    /// The executable that meets unknown drivers first; `None` meets them in this process. Unset, it is what `VYRE_HELPER`
    /// names, else `vyre` beside the running executable.
    pub fn helper(mut self, executable: Option<PathBuf>) -> RuntimeBuilder {
        self.manner.helper = executable;
        self
    }

    /// How long the helper process may take to meet a driver; a minute unless set.
    pub fn helper_limit(mut self, limit: Duration) -> RuntimeBuilder {
        self.manner.helper_limit = limit;
        self
    }

    /// Leaves out drivers that were never met on this machine: to meet one takes seconds, once, which a process that makes
    /// only a few calls may not have. [`Runtime::refused`] names them; `vyre certify` meets them.
    pub fn known_drivers_only(mut self) -> RuntimeBuilder {
        self.manner.strangers = Strangers::Leave;
        self
    }

    /// Opens and certifies the backends. An error if none is usable.
    pub fn build(self) -> Result<Runtime, BackendError> {
        start_trace();
        self.imported.iter().for_each(|bundle| self.tables.take_in(bundle));
        self.tables.limit_cache();
        let Contact { met, refused, .. } = self.contact();
        if met.is_empty() {
            return Err(none_usable(&refused));
        }
        let (mut candidates, mut backends, mut standings) = (Vec::new(), Vec::new(), Vec::new());
        for Met { opened, facts, certificate } in met {
            candidates.push(Candidate::new(&opened.profile, Conformance::Passed));
            backends.push(Arc::new(Backend::new(backends.len(), opened)));
            standings.push((facts, certificate));
        }
        self.tables.load_hints(&self.hints);
        let mut routes = self.tables.load_routes();
        self.imported.iter().for_each(|bundle| routes.merge(&bundle.routes));
        let router = Router::new(candidates, &routes, self.policy);
        let tuner = |backend: &Arc<Backend>| self.tables.tuner(&backend.profile, self.tuning);
        let tuners = backends.iter().map(tuner).collect();
        let shared = Shared {
            tuners,
            tuning: self.tuning,
            recompiles: self.recompiles,
            policy: self.policy,
            backends,
            router,
            pipelines: PipelineCache::default(),
            hints: self.hints,
            background: Jobs::default(),
            standings,
            refused,
            config: self.config,
            routines: Mutex::default(),
            unrouted: Mutex::default(),
            tables: self.tables,
            started: Instant::now(),
            clock: quanta::Clock::new(),
            recent_ns: AtomicU64::new(0),
        };
        Ok(Runtime { handle: Arc::new(Handle { shared: Arc::new(shared) }) })
    }

    fn contact(&self) -> Contact {
        let (mut wanted, mut refused) = match &self.ids {
            None => linked(),
            Some(ids) => (ids.iter().map(|id| Wanted::Registered(id.clone())).collect(), Vec::new()),
        };
        wanted.extend(self.instances.iter().map(|instance| Wanted::Instance(instance.clone())));
        let mut known = self.tables.load_certificates();
        for bundle in &self.imported {
            bundle.certificates.certificates.iter().for_each(|row| known.merge(row.clone()));
        }
        let mut made = contact(wanted, &known, &self.manner);
        self.tables.save_certificates(&made.learnt);
        made.refused.append(&mut refused);
        made.refused.sort_by(|a, b| a.backend.cmp(&b.backend));
        made
    }
}

impl Shared {
    /// Nanoseconds since the runtime was built: the router's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    /// The router's clock as the last calls left it: behind by about [`CLOCK_LAG_NS`], or by as long as nothing was called.
    pub(crate) fn recent_ns(&self) -> u64 {
        self.recent_ns.load(Relaxed)
    }

    /// Tells the time to those who ask for it roughly. Written seldom, so that threads do not fight over it.
    pub(crate) fn tick(&self) {
        let now_ns = self.now_ns();
        if now_ns > self.recent_ns.load(Relaxed) + CLOCK_LAG_NS {
            self.recent_ns.store(now_ns, Relaxed);
        }
    }

    /// Tells the router how long a call took; `activity` is that of the background when it began.
    pub(crate) fn timed(&self, routes: &ProgramRoutes, route: &Route, elapsed_ns: u64, activity: u64) {
        match self.background.is_quiet_since(activity) {
            true => routes.finished(route, elapsed_ns),
            false => routes.finished_disturbed(route, elapsed_ns),
        }
    }

    /// Whether there were calls just now.
    pub(crate) fn is_called(&self) -> bool {
        self.now_ns() < self.recent_ns().saturating_add(LATELY_NS)
    }

    /// The backend of a route.
    pub(crate) fn chosen(&self, route: &Route) -> &Arc<Backend> {
        match self.backends.get(route.backend.index()) {
            Some(backend) => backend,
            None => unreachable!("the router chooses among the runtime's backends"),
        }
    }

    /// Whether anything may be measured to change what runs.
    pub(crate) fn learns(&self) -> bool {
        !self.policy.frozen
    }

    pub(crate) fn refused(&self) -> Vec<RefusedBackend> {
        self.refused.clone()
    }

    /// A backend outside the router's list, opened when it is first named.
    pub(crate) fn unrouted(&self, id: &str) -> Result<Arc<Backend>, BackendError> {
        let mut known = self.unrouted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = known.get(id) {
            return Ok(backend.clone());
        }
        let opened = Opened::new(registry::acquire(id)?.into(), true);
        let backend = Arc::new(Backend::new(usize::MAX, opened));
        known.insert(id.to_owned(), backend.clone());
        Ok(backend)
    }

    fn drain_meters(&self) {
        let routines = self.routines.lock().unwrap_or_else(PoisonError::into_inner);
        let live: Vec<Arc<RoutineCore>> = routines.iter().filter_map(Weak::upgrade).collect();
        // The last owner of a routine drains it as well, which must not happen under the lock.
        drop(routines);
        live.iter().for_each(|routine| routine.meters.drain(&self.hints));
    }

    fn save(&self) {
        self.drain_meters();
        self.tables.save_hints(&self.hints);
        self.tables.save_routes(&self.router.learned());
    }
}

/// A program or its text.
pub trait IntoProgram {
    /// The program, or what is wrong with the text.
    fn into_program(self) -> Result<Program, BackendError>;
}

impl IntoProgram for Program {
    fn into_program(self) -> Result<Program, BackendError> {
        Ok(self)
    }
}

impl IntoProgram for &Program {
    fn into_program(self) -> Result<Program, BackendError> {
        Ok(self.clone())
    }
}

impl IntoProgram for &str {
    fn into_program(self) -> Result<Program, BackendError> {
        Ok(text::parse(self)?)
    }
}

fn none_usable(refused: &[RefusedBackend]) -> BackendError {
    let each = refused.iter().map(|RefusedBackend { backend, reason }| format!("{backend}: {reason}"));
    let reasons = each.collect::<Vec<_>>().join("; ");
    BackendError::NoUsableBackend {
        reasons: if reasons.is_empty() { "none is linked".into() } else { reasons },
    }
}

/// Starts the trace that `VYRE_TRACE` asks for; one that runs already goes on.
fn start_trace() {
    if let Err(error) = trace::start_from_env()
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        tracing::warn!(%error, "the trace that {} asks for cannot be written", trace::TRACE_VARIABLE);
    }
}
