//! A backend as a runtime holds it: not yet opened, open, or lost and reopened.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use vyre_driver::tuner::Tuner;
use vyre_driver::{
    BackendError, DeviceProfile, Unfinished, VyreBackend, contain, next_backend_instance, registry, within,
};

/// How long a call waits for a lost device to reopen before it continues without it, and how long
/// selection waits for a backend to open: a hundred times what opening PoCL and lavapipe takes (90
/// ms for both).
const REOPENING_LIMIT: Duration = Duration::from_secs(10);

/// Placeholder profile of a backend not opened yet.
static UNKNOWN: DeviceProfile = DeviceProfile::conservative("");

/// A backend of a runtime.
pub(crate) struct Backend {
    pub(crate) id: &'static str,
    /// Position in selection order; past the last for a backend used only when named.
    pub(crate) position: usize,
    met: OnceLock<(DeviceProfile, Tuner)>,
    /// Whether the registry can open it again.
    registered: bool,
    /// Whether it has a driver, which can crash or hang and has its own threads.
    pub(crate) is_driven: bool,
    /// Separate from the driver, for calls that only check whether their code is of this instance.
    instance: AtomicU64,
    /// How many dispatches of a sequence it takes at once.
    sequence_steps: AtomicUsize,
    driver: RwLock<Option<OpenDriver>>,
    /// Whether a thread is reopening it.
    reopening: AtomicBool,
}

/// An open driver. Handles and pipelines made by it belong to its instance.
#[derive(Clone)]
pub(crate) struct OpenDriver {
    pub(crate) driver: Arc<dyn VyreBackend>,
    pub(crate) instance: u64,
}

impl Backend {
    /// A backend not opened yet.
    pub(crate) fn unmet(position: usize, id: &'static str, registered: bool) -> Backend {
        Backend {
            id,
            position,
            met: OnceLock::new(),
            registered,
            is_driven: has_driver(id),
            instance: AtomicU64::new(0),
            sequence_steps: AtomicUsize::new(1),
            driver: RwLock::default(),
            reopening: AtomicBool::new(false),
        }
    }

    /// An open backend.
    pub(crate) fn open(position: usize, opened: Opened, tuner: Tuner) -> Backend {
        let backend = Backend::unmet(position, opened.profile.backend, opened.registered);
        backend.meet(opened, tuner);
        backend
    }

    /// Installs the opened driver.
    pub(crate) fn meet(&self, opened: Opened, tuner: Tuner) {
        if self.met.set((opened.profile, tuner)).is_ok() {
            self.install(opened.driver);
        }
    }

    pub(crate) fn is_met(&self) -> bool {
        self.met.get().is_some()
    }

    pub(crate) fn profile(&self) -> &DeviceProfile {
        self.met.get().map_or(&UNKNOWN, |(profile, _)| profile)
    }

    /// Tuning results on the backend; `None` before it was opened.
    pub(crate) fn tuner(&self) -> Option<&Tuner> {
        self.met.get().map(|(_, tuner)| tuner)
    }

    /// The current instance; code of any other is dead.
    #[inline]
    pub(crate) fn instance(&self) -> u64 {
        self.instance.load(Acquire)
    }

    /// How many dispatches of a sequence it takes at once.
    pub(crate) fn sequence_steps(&self) -> usize {
        self.sequence_steps.load(Relaxed)
    }

    /// The open driver; a lost one is reopened first.
    pub(crate) fn live(self: &Arc<Self>) -> Result<OpenDriver, BackendError> {
        match self.current() {
            Some(live) => Ok(live),
            None if !self.is_met() => {
                let reasons = format!("{}: its driver has not been checked yet", self.id);
                Err(BackendError::NoUsableBackend { reasons })
            }
            None => self.reopen(),
        }
    }

    fn current(&self) -> Option<OpenDriver> {
        let live = self.driver.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.instance == self.instance())
    }

    /// Marks the device of this instance as lost: the next compile reopens it. Returns whether it
    /// was the current instance; a late report from a replaced instance says nothing about its
    /// successor.
    pub(crate) fn lose(&self, instance: u64) -> bool {
        // The caller's instance cannot be reopened, so it stays in use.
        let next = if self.registered { 0 } else { next_backend_instance() };
        let lost = self.instance.compare_exchange(instance, next, AcqRel, Relaxed).is_ok();
        if lost && !self.registered {
            let mut driver = self.driver.write().unwrap_or_else(PoisonError::into_inner);
            driver.iter_mut().for_each(|live| live.instance = next);
        }
        lost
    }

    fn install(&self, driver: Arc<dyn VyreBackend>) -> OpenDriver {
        let live = OpenDriver { driver, instance: next_backend_instance() };
        let before = self.driver.write().unwrap_or_else(PoisonError::into_inner).replace(live.clone());
        let steps = contain(|| live.driver.sequence_steps()).unwrap_or(1);
        self.sequence_steps.store(steps, Relaxed);
        self.instance.store(live.instance, Release);
        // Dropping a driver can take long, and happens outside the lock. A panic in it must not
        // affect the successor.
        let _ = contain(|| drop(before));
        live
    }

    /// Reopens a lost device on a separate thread, so that neither a hanging driver nor its lock
    /// blocks a call. One call waits for it, up to a limit; others go elsewhere meanwhile.
    #[cold]
    fn reopen(self: &Arc<Self>) -> Result<OpenDriver, BackendError> {
        let lost = |message: String| BackendError::DeviceLost { backend: self.id.into(), message };
        if self.reopening.swap(true, AcqRel) {
            return Err(lost("it is being opened again".into()));
        }
        let backend = self.clone();
        let opening = move || {
            let opened = registry::acquire(backend.id).map(|driver| backend.install(driver.into()));
            backend.reopening.store(false, Release);
            opened
        };
        within(&format!("reopen-{}", self.id), REOPENING_LIMIT, opening).unwrap_or_else(|unfinished| {
            if matches!(unfinished, Unfinished::NeverBegun(_)) {
                self.reopening.store(false, Release);
            }
            Err(lost(format!("it was not opened again: {unfinished}")))
        })
    }
}

/// Whether a backend has a driver; any other is already part of this process.
pub(crate) fn has_driver(id: &str) -> bool {
    let base = id.split_once(':').map_or(id, |(base, _)| base);
    registry::backend_devices(base).is_some()
}

/// A backend that was just opened.
pub(crate) struct Opened {
    pub(crate) driver: Arc<dyn VyreBackend>,
    /// Includes the backend's id.
    pub(crate) profile: DeviceProfile,
    pub(crate) registered: bool,
}

impl Opened {
    pub(crate) fn new(driver: Arc<dyn VyreBackend>, registered: bool) -> Opened {
        // A wrapper may pass on the profile of what it wraps; the id is the instance's own.
        let profile = DeviceProfile { backend: driver.id(), ..driver.device_profile() };
        Opened { driver, profile, registered }
    }
}
