//! State shared by all routines of a runtime.

use crate::backend::{Backend, Opened, has_driver};
use crate::background::Jobs;
use crate::helper::Helper;
use crate::meter::Meters;
use crate::pending::TaskPool;
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
use vyre_driver::storage::Storage;
use vyre_driver::tuner::{Mode, Tuner};
use vyre_driver::{BackendError, DispatchConfig, PipelineCache, within};
use vyre_foundation::hints::HotPathHints;

/// Maximum lag of the coarse clock: a thousandth of the shortest quarantine.
pub(crate) const CLOCK_LAG_NS: u64 = 1_000_000;
/// Bound on waiting for drivers to be certified; their own limit is shorter.
pub(crate) const LONGEST_MEETING: Duration = Duration::from_secs(3600);
/// Idle after this long without a call: longer than the pauses of a loop that draws 24 frames per
/// second (42 ms).
const LATELY_NS: u64 = 50_000_000;

/// Receives what calls print.
pub(crate) type Listener = Box<dyn Fn(&Message) + Send + Sync>;

pub(crate) struct Shared {
    /// In selection order, which is also the router's; those still being opened come last.
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) router: Router,
    pub(crate) pipelines: PipelineCache,
    pub(crate) hints: HotPathHints,
    pub(crate) background: Jobs,
    /// The thread pool for calls that were started, not run.
    pub(crate) calls: Arc<TaskPool<'static>>,
    /// Whether shapes are tuned.
    pub(crate) tuning: Mode,
    /// Whether hot routines are recompiled.
    pub(crate) recompiles: bool,
    /// Whether only verified rows of the routing table decide.
    pub(crate) frozen: bool,
    pub(crate) config: DispatchConfig,
    pub(crate) selection: RwLock<Selection>,
    /// The imported bundles.
    pub(crate) bundles: Vec<Bundle>,
    pub(crate) meeting: Turn,
    pub(crate) meters: Mutex<Vec<Weak<Meters>>>,
    /// Backends used only when named, by id.
    pub(crate) unrouted: Mutex<HashMap<String, Arc<Backend>>>,
    pub(crate) tables: Storage,
    /// Helper process that first tries what a driver may not survive.
    pub(crate) helper: Helper,
    /// Receives what calls print, instead of `tracing`.
    pub(crate) listener: Option<Listener>,
    pub(crate) started: Instant,
    /// For calls that take little longer than reading the system clock.
    pub(crate) clock: quanta::Clock,
    /// Coarse copy of the router's clock; see [`Shared::recent_ns`].
    pub(crate) recent_ns: AtomicU64,
}

/// The backends before anything was measured.
#[derive(Default)]
pub(crate) struct Selection {
    /// The candidates, in selection order.
    pub(crate) met: Vec<(SelectionFacts, Certificate)>,
    pub(crate) refused: Vec<RefusedBackend>,
}

impl Shared {
    /// Nanoseconds since the runtime was built: the router's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    /// Coarse copy of the router's clock: behind by about [`CLOCK_LAG_NS`], or by the time since
    /// the last call.
    #[inline]
    pub(crate) fn recent_ns(&self) -> u64 {
        self.recent_ns.load(Relaxed)
    }

    /// Updates the coarse clock. It is written rarely, so that threads do not contend for it.
    pub(crate) fn tick(&self) {
        let now_ns = self.now_ns();
        if now_ns > self.recent_ns.load(Relaxed) + CLOCK_LAG_NS {
            self.recent_ns.store(now_ns, Relaxed);
        }
    }

    /// Whether there were calls recently.
    pub(crate) fn is_called(&self) -> bool {
        self.now_ns() < self.recent_ns().saturating_add(LATELY_NS)
    }

    /// Waits until the drivers that are opened in the background are open, up to a limit. Returns
    /// whether they are, or cannot be: a child of `fork` does not have the thread that opens them.
    pub(crate) fn wait_for_drivers(&self, limit: Duration) -> bool {
        self.background.is_forked() || !*self.meeting.wait(limit)
    }

    /// Keeps the meters of a routine, to be drained with all others.
    pub(crate) fn keep_meters(&self, kept: &Arc<Meters>) {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of dropped routines go whenever the list would grow, so it stays within twice the
        // number of live ones.
        if meters.len() == meters.capacity() {
            meters.retain(|meters| meters.strong_count() > 0);
        }
        meters.push(Arc::downgrade(kept));
    }

    /// The backend of a route.
    #[inline]
    pub(crate) fn chosen(&self, route: &Route) -> &Arc<Backend> {
        match self.backends.get(route.backend.index()) {
            Some(backend) => backend,
            None => unreachable!("the router chooses among the runtime's backends"),
        }
    }

    /// The router's index of a backend; `None` for one used only when named.
    pub(crate) fn index_of(&self, backend: &Backend) -> Option<BackendIndex> {
        (backend.position < self.backends.len()).then_some(BackendIndex(backend.position as u8))
    }

    /// Whether measurements are allowed to change what runs.
    pub(crate) fn learns(&self) -> bool {
        !self.frozen
    }

    /// A backend outside the router's list, opened when first named. A driver that does not open in
    /// time continues to open, for later calls.
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
                let opened = within("open", limit, move || shared.open_unrouted(&own_id));
                opened.unwrap_or_else(|unfinished| Err(unfinished.of_backend(id, limit)))
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

    /// Writes every table; the error lists those that could not be written.
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

#[cfg(test)]
mod tests {
    #[cfg(feature = "cpu")]
    #[test]
    fn routines_that_are_dropped_leave_nothing_behind() {
        let runtime =
            crate::Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
        let load = || runtime.load("kernel none(x: read_write u32[]) { x[0] = 1 }").expect("loads");
        let kept = load();
        (0..1000).for_each(|_| drop(load()));
        let meters = kept.core.shared.meters.lock().expect("not poisoned");
        assert!(meters.len() <= 8, "{} meters are kept", meters.len());
    }
}
