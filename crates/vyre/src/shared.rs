//! What all routines of a runtime share.

use crate::backend::{Backend, Opened, has_driver};
use crate::background::Jobs;
use crate::helper::Helper;
use crate::meter::Meters;
use crate::pending::Pool;
use crate::tables::Tables;
use crate::turn::Turn;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::Certificate;
use vyre_driver::messages::Message;
use vyre_driver::registry::{self, SelectionFacts};
use vyre_driver::router::{BackendIndex, RefusedBackend, Route, Router};
use vyre_driver::tuner::{Mode, Tuner};
use vyre_driver::{BackendError, DispatchConfig, PipelineCache, Unfinished, within};
use vyre_foundation::hints::HotPathHints;

/// How far the rough clock may be behind: far less than any quarantine lasts.
pub(crate) const CLOCK_LAG_NS: u64 = 1_000_000;
/// A meeting has a limit of its own, which is shorter.
pub(crate) const LONGEST_MEETING: Duration = Duration::from_secs(3600);
/// Nobody is calling after this long without a call.
const LATELY_NS: u64 = 50_000_000;

/// Hears what calls print.
pub(crate) type Listener = Box<dyn Fn(&Message) + Send + Sync>;

pub(crate) struct Shared {
    /// In the order of selection, which is also the router's; those that are being met come last.
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) router: Router,
    pub(crate) pipelines: PipelineCache,
    pub(crate) hints: HotPathHints,
    pub(crate) background: Jobs,
    /// The threads of calls that were started, not run.
    pub(crate) calls: Arc<Pool<'static>>,
    /// Whether calls have their shapes tuned.
    pub(crate) tuning: Mode,
    /// Whether hot routines are compiled again.
    pub(crate) recompiles: bool,
    /// Whether only verified rows of the table decide.
    pub(crate) frozen: bool,
    pub(crate) config: DispatchConfig,
    pub(crate) selection: RwLock<Selection>,
    /// What was taken in.
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) meeting: Turn,
    pub(crate) meters: Mutex<Vec<Weak<Meters>>>,
    /// Backends that are used only where they are named, by id.
    pub(crate) unrouted: Mutex<HashMap<String, Arc<Backend>>>,
    pub(crate) tables: Tables,
    /// Who tries first what a driver may not survive.
    pub(crate) helper: Helper,
    /// Whom calls tell what they print, in place of `tracing`.
    pub(crate) listener: Option<Listener>,
    pub(crate) started: Instant,
    /// For calls that take little longer than reading the system's clock does.
    pub(crate) clock: quanta::Clock,
    /// The router's clock as of lately; see [`Shared::recent_ns`].
    pub(crate) recent_ns: AtomicU64,
}

/// How the backends stood before anything was measured.
#[derive(Default)]
pub(crate) struct Selection {
    /// The candidates, in the order of selection.
    pub(crate) met: Vec<(SelectionFacts, Certificate)>,
    pub(crate) refused: Vec<RefusedBackend>,
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

    /// The position of a backend that calls may be routed to.
    pub(crate) fn index_of(&self, backend: &Backend) -> Option<BackendIndex> {
        (backend.position < self.backends.len()).then_some(BackendIndex(backend.position as u8))
    }

    /// Whether anything may be measured to change what runs.
    pub(crate) fn learns(&self) -> bool {
        !self.frozen
    }

    /// A backend outside the router's list, opened when it is first named. One whose driver does not open in time goes on
    /// opening, for later calls.
    pub(crate) fn unrouted(
        self: &Arc<Self>,
        id: &str,
        limit: Option<Duration>,
    ) -> Result<Arc<Backend>, BackendError> {
        let known = self.unrouted.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        match (known, limit) {
            (Some(backend), _) => Ok(backend),
            (None, Some(limit)) if has_driver(id) => {
                let (shared, own_id) = (self.clone(), id.to_owned());
                let backend = id.to_owned();
                match within("open", limit, move || shared.open_unrouted(&own_id)) {
                    Ok(opened) => opened,
                    Err(Unfinished::Late) => Err(BackendError::Timeout { backend, limit }),
                    Err(unfinished) => {
                        Err(BackendError::DispatchFailed { backend, message: unfinished.to_string() })
                    }
                }
            }
            (None, Some(_) | None) => self.open_unrouted(id),
        }
    }

    fn open_unrouted(&self, id: &str) -> Result<Arc<Backend>, BackendError> {
        let known = || self.unrouted.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = Opened::new(registry::acquire(id)?.into(), true);
        let tuner = Tuner::in_memory(Mode::OffUseDefault);
        let backend = Arc::new(Backend::open(self.backends.len(), opened, tuner));
        Ok(known().entry(id.to_owned()).or_insert(backend).clone())
    }

    pub(crate) fn drain_meters(&self) {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.retain(|meters| meters.strong_count() > 0);
        let live: Vec<Arc<Meters>> = meters.iter().filter_map(Weak::upgrade).collect();
        drop(meters);
        live.iter().for_each(|meters| meters.drain(&self.hints));
    }

    /// Writes every table; those that could not be written are the error.
    pub(crate) fn save(&self) -> Result<(), BackendError> {
        self.drain_meters();
        let saved = [
            self.tables.save_hints(&self.hints),
            self.tables.save_compiles(self.pipelines.audit()),
            self.tables.save_routes(&self.router.learned()),
        ];
        let failed: Vec<String> =
            saved.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        if failed.is_empty() { Ok(()) } else { Err(BackendError::TableFailed { message: failed.join("\n") }) }
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}
