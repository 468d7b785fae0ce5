//! The runtime: opens and certifies backends once, loads programs, and keeps what it learns.

use crate::argument::Element;
use crate::backend::Backend;
use crate::background::Jobs;
use crate::catalogue::{Plan, PlanError};
use crate::certified::Certified;
use crate::op_routine::OpRoutine;
use crate::opening::{
    BackendToOpen, CertifiedBackend, OpenedBackends, OpeningPolicy, UnknownDrivers, linked, open_backends,
    rows_of,
};
use crate::resident::Resident;
use crate::routine::Routine;
use crate::routine_core::{Device, RoutineCore};
use crate::sequence::Sequence;
use crate::shared::{LONGEST_MEETING, Listener, Selection, Shared};
use crate::turn::Turn;
use crate::typed::LoadedKernels;
use bytemuck::Pod;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::{Certificate, CertificateTable};
use vyre_driver::messages::Message;
use vyre_driver::process_exit::{self, Inside};
use vyre_driver::registry::none_usable;
use vyre_driver::router::{
    BackendIndex, Candidate, Conformance, MAX_CANDIDATES, Policy, RefusedBackend, Router,
};
use vyre_driver::storage::Storage;
use vyre_driver::tuner::Mode;
use vyre_driver::{BackendError, DispatchConfig, PipelineCache, VyreBackend, trace};
use vyre_foundation::hints::{HotPathHints, RegionRecord};
use vyre_foundation::ir::Program;
use vyre_foundation::text::{self, Constants};

/// The environment variable that lists the backends to use, separated by commas.
pub const BACKENDS_VARIABLE: &str = "VYRE_BACKENDS";
/// The environment variable that freezes routing when it is `on`.
pub const FROZEN_VARIABLE: &str = "VYRE_FROZEN";

/// The environment variable that names a bundle to load, as [`RuntimeBuilder::carry`] does.
pub const BUNDLE_VARIABLE: &str = "VYRE_BUNDLE";

/// Runs each program on the backend measured fastest among those proved correct. Build one and
/// share it: it is cheap to clone, and any number of threads can use it.
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

/// State that ends with the last clone of a runtime.
struct Handle {
    shared: Arc<Shared>,
    /// Kernels compiled into the program, once loaded. They hold `shared`, so they are dropped with
    /// the last clone.
    loaded: LoadedKernels,
}

/// Options for a [`Runtime`], from [`Runtime::builder`]. Unset options come from the environment,
/// then from the defaults.
#[must_use = "build the runtime"]
pub struct RuntimeBuilder {
    ids: Option<Vec<String>>,
    instances: Vec<Arc<dyn VyreBackend>>,
    config: DispatchConfig,
    tables: Storage,
    policy: Policy,
    hints: HotPathHints,
    imported: Vec<Bundle>,
    carried: Option<PathBuf>,
    tuning: Mode,
    recompiles: bool,
    named_only: bool,
    opening: OpeningPolicy,
    listener: Option<Listener>,
}

impl Runtime {
    /// A runtime over every linked backend that opens and conforms, with the user's own tables. The
    /// [crate's page](crate#what-runtimenew-opens-starts-and-writes) lists the files, threads and
    /// processes that come with it.
    pub fn new() -> Result<Runtime, BackendError> {
        Runtime::builder().build()
    }

    /// Starts building a runtime, with defaults from the environment.
    pub fn builder() -> RuntimeBuilder {
        let named = std::env::var(BACKENDS_VARIABLE).unwrap_or_default();
        let ids: Vec<String> =
            named.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
        let frozen = std::env::var(FROZEN_VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("on"));
        RuntimeBuilder {
            ids: (!ids.is_empty()).then_some(ids),
            instances: Vec::new(),
            config: DispatchConfig::default(),
            tables: Storage::of_user(),
            policy: Policy { frozen },
            // A program has a handful of regions, so this leaves room for thousands of programs.
            hints: HotPathHints::with_capacity(16_384),
            imported: Vec::new(),
            carried: std::env::var_os(BUNDLE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from),
            tuning: Mode::from_env(),
            recompiles: true,
            named_only: false,
            opening: OpeningPolicy::usual(),
            listener: None,
        }
    }

    /// Loads a program, given as a [`Program`] or as text. A body that is not made up of regions is
    /// wrapped in one.
    pub fn load(&self, program: impl IntoProgram) -> Result<Routine, BackendError> {
        self.load_with(program, &DispatchConfig::default())
    }

    /// Loads a program that was sent with its [fingerprint](Program::fingerprint). Fails if the
    /// fingerprint differs here, since the program could then mean something else.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let text = "kernel double(x: read_write f32[]) { x[invocation.x] *= 2.0 }";
    /// let fingerprint = runtime.load(text)?.program().fingerprint();
    /// assert!(runtime.load_sent(text, &fingerprint).is_ok());
    /// assert!(runtime.load_sent(&text.replace("2.0", "3.0"), &fingerprint).is_err());
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn load_sent(
        &self,
        program: impl IntoProgram,
        fingerprint: &[u8; 32],
    ) -> Result<Routine, BackendError> {
        let program = program.into_program()?.in_regions();
        let found = program.fingerprint();
        if found == *fingerprint {
            return self.load(program);
        }
        let name = program.name().map_or("(unnamed)", |name| name);
        let hex = |bytes: &[u8; 32]| bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (found, sent) = (hex(&found), hex(fingerprint));
        let message =
            format!("kernel `{name}` was sent as {sent}… and is {found}… here: it may mean something else");
        Err(BackendError::Other { message })
    }

    /// Loads a program built in Rust, or taken from another runtime's routine.
    pub fn load_program(&self, program: Program) -> Result<Routine, BackendError> {
        self.load(program)
    }

    /// Like [`load`](Self::load), with a configuration for all calls of the routine.
    pub fn load_with(
        &self,
        program: impl IntoProgram,
        config: &DispatchConfig,
    ) -> Result<Routine, BackendError> {
        let program = program.into_program()?.in_regions();
        let shared = &self.handle.shared;
        let core = RoutineCore::of_program(shared.clone(), program, config.over(&shared.config))?;
        Ok(Routine { core: Arc::new(core) })
    }

    /// Loads an op of the [catalogue](crate::catalogue), given as a function from a size and a
    /// device to the plan to run there. A call runs every program of the plan, on the backend that
    /// is fastest for the op at that size.
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
        OpRoutine::new(self.handle.shared.clone(), Arc::new(make))
    }

    /// Creates a buffer with these contents that stays on a backend between calls.
    pub fn resident<T: Element + Pod>(&self, contents: &[T]) -> Resident<T> {
        Resident::new(self.handle.shared.clone(), contents)
    }

    /// A sequence of calls that run one after the other, all checked before the first one runs.
    pub fn sequence<'a>(&self) -> Sequence<'a> {
        Sequence::default()
    }

    /// Exports everything learnt, by this runtime and in its tables, to one file for use elsewhere.
    /// `origin` names the source.
    pub fn export(&self, path: impl AsRef<Path>, origin: &str) -> Result<(), BackendError> {
        Ok(self.learnt(origin).save(path.as_ref())?)
    }

    /// Like [`export`](Self::export), with the routes of these programs only.
    pub fn export_of(
        &self,
        path: impl AsRef<Path>,
        origin: &str,
        programs: &[Program],
    ) -> Result<(), BackendError> {
        let mut bundle = self.learnt(origin);
        bundle.keep_routes_of(programs);
        Ok(bundle.save(path.as_ref())?)
    }

    fn learnt(&self, origin: &str) -> Bundle {
        let shared = &self.handle.shared;
        let mut bundle = Bundle::new(origin);
        bundle.routes = shared.tables.load_routes();
        bundle.routes.merge(&shared.router.learned());
        bundle.certificates = shared.tables.load_certificates();
        let selection = shared.selection.read().unwrap_or_else(PoisonError::into_inner);
        selection.met.iter().for_each(|(_, certificate)| bundle.certificates.merge(certificate.clone()));
        drop(selection);
        shared.tables.add_tuned(&mut bundle);
        bundle
    }

    /// The ids of the backends that calls are routed to, in selection order. Drivers new to the
    /// machine are certified in the background and come last; [`settle`](Self::settle) waits for
    /// them.
    pub fn backends(&self) -> impl Iterator<Item = &'static str> {
        self.handle.shared.backends.iter().filter(|backend| backend.is_met()).map(|backend| backend.id)
    }

    /// Who certified each backend: this machine, or one whose bundle was imported.
    ///
    /// ```
    /// # let runtime = vyre::Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// for certified in runtime.certified() {
    ///     println!("{certified}");
    /// }
    /// # assert_eq!(runtime.certified().len(), 1);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn certified(&self) -> Vec<Certified> {
        let shared = &self.handle.shared;
        let selection = shared.selection.read().unwrap_or_else(PoisonError::into_inner);
        let certified = |(_, certificate): &(_, Certificate)| Certified::new(certificate, &shared.bundles);
        selection.met.iter().map(certified).collect()
    }

    /// The linked backends that calls are not routed to, with the reasons.
    pub fn refused(&self) -> Vec<RefusedBackend> {
        let selection = self.handle.shared.selection.read().unwrap_or_else(PoisonError::into_inner);
        selection.refused.clone()
    }

    /// Number of routed calls that finished; a batch counts as one.
    pub fn calls(&self) -> u64 {
        self.handle.shared.router.programs().iter().map(|program| program.calls()).sum()
    }

    /// The cost of every region of every program so far, by total time, longest first. Keys are
    /// `<generator>@<16 hex digits of the program's fingerprint>`.
    pub fn hints(&self) -> Vec<(String, RegionRecord)> {
        self.handle.shared.drain_meters();
        self.handle.shared.hints.ranked()
    }

    /// Waits for all background work: opening drivers, verifying results, comparing code.
    pub fn settle(&self) {
        let shared = &self.handle.shared;
        shared.wait_for_drivers(LONGEST_MEETING);
        shared.background.settle();
    }

    /// The kernels loaded by typed calls.
    pub(crate) fn loaded(&self) -> &LoadedKernels {
        &self.handle.loaded
    }

    /// Writes what was learnt to the tables now. Dropping the last clone does the same, and warns
    /// if it fails.
    pub fn save(&self) -> Result<(), BackendError> {
        self.handle.shared.save()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.background.close();
        // In a child of `fork`, a thread that does not exist there may hold the lock.
        if !self.shared.background.is_forked() {
            self.shared.calls.close();
        }
        if let Err(error) = self.shared.save() {
            tracing::warn!(%error, "a table was not saved");
        }
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
    /// Uses only these linked backends, as in `["cpu", "wgpu:1"]`; with an empty list, only the
    /// instances given to [`backend`](Self::backend).
    pub fn backends<Id: Into<String>>(mut self, ids: impl IntoIterator<Item = Id>) -> RuntimeBuilder {
        self.ids = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a backend instance of the caller's. It is certified like the others, on every build.
    pub fn backend(mut self, instance: Arc<dyn VyreBackend>) -> RuntimeBuilder {
        self.instances.push(instance);
        self
    }

    /// Defaults for every call.
    pub fn config(mut self, config: DispatchConfig) -> RuntimeBuilder {
        self.config = config;
        self
    }

    /// Sends what calls print to this function instead of to `tracing`.
    /// [`Report::prints`](crate::Report::prints) has it either way.
    ///
    /// ```
    /// # use vyre::Runtime;
    /// let (heard, hears) = std::sync::mpsc::channel();
    /// let listener =
    ///     move |message: &vyre::Message| heard.send(message.text.clone()).unwrap_or_default();
    /// let runtime =
    ///     Runtime::builder().backends(["cpu"]).without_tables().on_print(listener).build()?;
    /// runtime
    ///     .load("kernel hello() over 2 { print(\"hello from {}\", invocation.x) }")?
    ///     .call()
    ///     .run()?;
    /// assert_eq!(hears.recv().as_deref(), Ok("hello from 0"));
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn on_print(mut self, listener: impl Fn(&Message) + Send + Sync + 'static) -> RuntimeBuilder {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Keeps all tables in this folder.
    pub fn tables_in(mut self, folder: impl AsRef<Path>) -> RuntimeBuilder {
        self.tables = Storage::in_folder(folder.as_ref());
        self
    }

    /// Keeps what is learnt in memory only.
    pub fn without_tables(mut self) -> RuntimeBuilder {
        self.tables = Storage::default();
        self
    }

    /// Imports what another runtime [exported](Runtime::export). Rows for other devices, drivers or
    /// compiler versions have no effect; newer local rows are kept.
    pub fn import(mut self, path: impl AsRef<Path>) -> Result<RuntimeBuilder, BackendError> {
        self.imported.push(Bundle::load(path.as_ref())?.with_origins());
        Ok(self)
    }

    /// Imports a bundle for this runtime only and leaves the tables unchanged: for a worker of a
    /// fleet that was handed the file. If unset, `VYRE_BUNDLE` names the bundle.
    /// [`build`](Self::build) fails if it cannot be read. Where the device, driver or build differs
    /// from the bundle's, the worker certifies itself ([`Runtime::certified`]).
    pub fn carry(mut self, path: impl Into<PathBuf>) -> RuntimeBuilder {
        self.carried = Some(path.into());
        self
    }

    /// Routes by verified rows of the routing table only: nothing is probed, and a call that the
    /// table has no answer for fails.
    pub fn frozen(mut self) -> RuntimeBuilder {
        self.policy.frozen = true;
        self
    }

    /// Whether shapes are tuned in the background; if unset, `VYRE_AUTOTUNER` decides. Shapes tuned
    /// by earlier runs are used either way.
    pub fn tuning(mut self, mode: Mode) -> RuntimeBuilder {
        self.tuning = mode;
        self
    }

    /// Compiles every program with the expensive schedule at once, rather than when it becomes hot.
    pub fn without_recompilation(mut self) -> RuntimeBuilder {
        self.recompiles = false;
        self
    }

    /// The executable of the helper process that opens unknown drivers first; with `None`, this
    /// process opens them. If unset, it is the one named by `VYRE_HELPER`, else the command given
    /// to [`set_command`](crate::unstable::opening::set_command), else `vyre` beside the running
    /// executable.
    pub fn helper(mut self, executable: Option<PathBuf>) -> RuntimeBuilder {
        self.opening.helper.command = executable.map(|path| vec![path.into_os_string()]);
        self
    }

    /// Time limit for the helper process to certify a driver; a minute unless set.
    pub fn helper_limit(mut self, limit: Duration) -> RuntimeBuilder {
        self.opening.helper.limit = limit;
        self
    }

    /// Leaves out drivers that were never certified on this machine. Certifying one takes seconds,
    /// once, which a process that makes only a few calls cannot always spare. [`Runtime::refused`]
    /// names them; `vyre certify` certifies them.
    pub fn known_drivers_only(mut self) -> RuntimeBuilder {
        self.opening.unknown_drivers = UnknownDrivers::Skip;
        self
    }

    /// Opens nothing up front: calls name their backend with [`Call::on`](crate::Call::on), which
    /// opens it and uses it without certification.
    pub fn named_only(mut self) -> RuntimeBuilder {
        self.ids = Some(Vec::new());
        self.named_only = true;
        self
    }

    /// Makes [`build`](Self::build) wait until drivers new to the machine are certified, which
    /// takes seconds, rather than certifying them while calls run on other backends.
    pub fn meet_drivers_first(mut self) -> RuntimeBuilder {
        self.opening.unknown_drivers = UnknownDrivers::CertifyFirst;
        self
    }

    /// Opens drivers in the background, including those known on this machine, so that the first
    /// call does not wait for them: it runs on what is already open. A [frozen](Self::frozen)
    /// runtime still opens known drivers first.
    pub fn open_drivers_later(mut self) -> RuntimeBuilder {
        self.opening.opens_later = true;
        self
    }

    /// Opens and certifies the backends known on this machine, and leaves the others to the
    /// background. Fails if none is usable.
    pub fn build(mut self) -> Result<Runtime, BackendError> {
        start_trace();
        process_exit::watch_end();
        self.imported.iter().for_each(|bundle| self.tables.take_in(bundle));
        if let Some(path) = &self.carried {
            let unread = |error| BackendError::TableFailed { message: format!("the bundle: {error}") };
            self.imported.push(Bundle::load(path).map_err(unread)?.with_origins());
        }
        self.tables.limit_cache();
        self.opening.opens_later &= !self.policy.frozen;
        let known = self.certificates();
        let (wanted, mut refused) = self.wanted();
        let (unknown_drivers, wanted): (Vec<BackendToOpen>, Vec<BackendToOpen>) =
            wanted.into_iter().partition(|wanted| self.opening.puts_off(wanted, &known));
        let mut made = open_backends(wanted, &known, &self.opening);
        let mut later: Vec<String> = unknown_drivers.iter().map(BackendToOpen::id).collect();
        if made.met.is_empty() && !unknown_drivers.is_empty() {
            // There is no other backend to run calls on meanwhile.
            made.add(open_backends(unknown_drivers, &known, &self.opening));
            later.clear();
        }
        self.tables.save_certificates(&made.learnt);
        refused.append(&mut made.refused);
        if made.met.is_empty() && !self.named_only {
            return Err(none_usable(&refused));
        }
        later.truncate(MAX_CANDIDATES.saturating_sub(made.met.len()));
        let reason = |id: &str| match rows_of(id, &known).is_empty() {
            true => "its driver is new to this machine and is being checked in the background",
            false => "its driver is being opened in the background",
        };
        refused
            .extend(later.iter().map(|id| RefusedBackend { backend: id.clone(), reason: reason(id).into() }));
        refused.sort_by(|a, b| a.backend.cmp(&b.backend));
        let shared = Arc::new(self.shared(made.met, refused, &later));
        if !later.is_empty() {
            meet_later(&shared, later, known, self.opening);
        }
        Ok(Runtime { handle: Arc::new(Handle { shared, loaded: LoadedKernels::default() }) })
    }

    fn shared(
        &mut self,
        met: Vec<CertifiedBackend>,
        refused: Vec<RefusedBackend>,
        later: &[String],
    ) -> Shared {
        let (mut candidates, mut backends, mut selection) = (Vec::new(), Vec::new(), Selection::default());
        selection.refused = refused;
        for CertifiedBackend { opened, facts, certificate } in met {
            candidates.push(Candidate::new(&opened.profile, Conformance::Passed));
            let tuner = self.tables.tuner(&opened.profile, self.tuning);
            self.imported.iter().for_each(|bundle| tuner.take_in(&bundle.tuned_for(&opened.profile)));
            backends.push(Arc::new(Backend::open(backends.len(), opened, tuner)));
            selection.met.push((facts, certificate));
        }
        for id in later {
            // Ids live as long as the process, like those of linked backends.
            let id: &'static str = id.clone().leak();
            candidates.push(Candidate::pending(id));
            backends.push(Arc::new(Backend::unmet(backends.len(), id, true)));
        }
        let hints = std::mem::take(&mut self.hints);
        self.tables.load_hints(&hints);
        let mut routes = self.tables.load_routes();
        self.imported.iter().for_each(|bundle| routes.merge(&bundle.routes));
        Shared {
            router: Router::new(candidates, &routes, self.policy),
            backends,
            tuning: self.tuning,
            recompiles: self.recompiles,
            frozen: self.policy.frozen,
            pipelines: PipelineCache::default(),
            hints,
            background: Jobs::new(),
            calls: Arc::default(),
            meeting: Turn::new(!later.is_empty()),
            selection: RwLock::new(selection),
            bundles: std::mem::take(&mut self.imported),
            config: std::mem::take(&mut self.config),
            meters: Mutex::default(),
            unrouted: Mutex::new(HashMap::new()),
            tables: self.tables.clone(),
            helper: self.opening.helper.clone(),
            listener: self.listener.take(),
            started: Instant::now(),
            clock: quanta::Clock::new(),
            recent_ns: AtomicU64::new(0),
        }
    }

    fn wanted(&self) -> (Vec<BackendToOpen>, Vec<RefusedBackend>) {
        let (mut wanted, refused) = match &self.ids {
            None => linked(),
            Some(ids) => (ids.iter().map(|id| BackendToOpen::Registered(id.clone())).collect(), Vec::new()),
        };
        wanted.extend(self.instances.iter().map(|instance| BackendToOpen::Instance(instance.clone())));
        (wanted, refused)
    }

    fn certificates(&self) -> CertificateTable {
        let mut known = self.tables.load_certificates();
        for bundle in &self.imported {
            bundle.certificates.certificates.iter().for_each(|row| known.merge(row.clone()));
        }
        known
    }
}

/// Opens and certifies drivers on a dedicated thread. A runtime that ends meanwhile does not wait
/// for it.
fn meet_later(shared: &Arc<Shared>, ids: Vec<String>, known: CertificateTable, policy: OpeningPolicy) {
    let (weak, tables) = (Arc::downgrade(shared), shared.tables.clone());
    let meeting = move || {
        let _inside = Inside::enter();
        let wanted = ids.into_iter().map(BackendToOpen::Registered).collect();
        let made = open_backends(wanted, &known, &policy);
        tables.save_certificates(&made.learnt);
        if let Some(shared) = Weak::upgrade(&weak) {
            take_in(&shared, made);
        }
    };
    if let Err(error) = thread::Builder::new().name("vyre-opening".into()).spawn(meeting) {
        tracing::warn!(%error, "no thread could be started to check new drivers; they are not used");
        shared.meeting.end();
    }
}

/// Adds the backends that were opened after the runtime was built.
fn take_in(shared: &Shared, made: OpenedBackends) {
    let mut selection = shared.selection.write().unwrap_or_else(PoisonError::into_inner);
    for CertifiedBackend { opened, facts, certificate } in made.met {
        let Some(backend) = shared.backends.iter().find(|backend| backend.id == facts.id) else { continue };
        selection.refused.retain(|refused| refused.backend != facts.id);
        let candidate = Candidate::new(&opened.profile, Conformance::Passed);
        let tuner = shared.tables.tuner(&opened.profile, shared.tuning);
        shared.bundles.iter().for_each(|bundle| tuner.take_in(&bundle.tuned_for(&opened.profile)));
        backend.meet(opened, tuner);
        shared.router.met(BackendIndex(backend.position as u8), candidate);
        selection.met.push((facts, certificate));
    }
    for RefusedBackend { backend, reason } in made.refused {
        let waiting = selection.refused.iter_mut().filter(|refused| refused.backend == backend);
        waiting.for_each(|refused| refused.reason.clone_from(&reason));
    }
    drop(selection);
    shared.meeting.end();
}

/// A program or its text.
pub trait IntoProgram {
    /// Returns the program, or the errors in the text.
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

macro_rules! texts {
    ($($text:ty)*) => { $(impl IntoProgram for $text {
        fn into_program(self) -> Result<Program, BackendError> {
            Ok(text::parse(self.as_ref())?)
        }
    })* };
}

texts! { &str &&str String &String Box<str> &Box<str> Arc<str> &Arc<str> Cow<'_, str> &Cow<'_, str> }

/// A text with values for its constants.
///
/// ```
/// use vyre::{Constants, Runtime};
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let text = "const N: u32 = 4
///             kernel fill(y: output u32[N]) over N { y[invocation.x] = 2 * N }";
/// let fill = runtime.load((text, &Constants::new().set("N", 6)))?;
/// let mut y = [0_u32; 6];
/// fill.call().bind("y", &mut y).run()?;
/// assert_eq!(y, [12; 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl IntoProgram for (&str, &Constants) {
    fn into_program(self) -> Result<Program, BackendError> {
        Ok(text::parse_with(self.0, self.1)?)
    }
}

/// Starts the trace that `VYRE_TRACE` asks for; one already running continues.
fn start_trace() {
    if let Err(error) = trace::start_from_env()
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        tracing::warn!(%error, "the trace that {} asks for cannot be written", trace::TRACE_VARIABLE);
    }
}
