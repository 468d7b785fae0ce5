//! A backend as a runtime holds it, and how a lost device is found again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use vyre_driver::{BackendError, DeviceProfile, VyreBackend, next_backend_instance, registry};

/// An opened backend.
pub(crate) struct Backend {
    pub(crate) id: &'static str,
    /// Its place in the order of selection; past all of them for one that is only used where it is named.
    pub(crate) position: usize,
    pub(crate) profile: DeviceProfile,
    /// Whether the registry can open it again.
    registered: bool,
    driver: RwLock<Arc<dyn VyreBackend>>,
    /// Changes when the device was lost and found again: pipelines of another instance are dead.
    instance: AtomicU64,
    lost: AtomicBool,
}

impl Backend {
    pub(crate) fn new(position: usize, opened: Opened) -> Backend {
        Backend {
            id: opened.profile.backend,
            position,
            profile: opened.profile,
            registered: opened.registered,
            driver: RwLock::new(opened.driver),
            instance: AtomicU64::new(next_backend_instance()),
            lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn driver(&self) -> Arc<dyn VyreBackend> {
        self.driver.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn instance(&self) -> u64 {
        self.instance.load(Relaxed)
    }

    /// The device is gone: the next compile opens it anew. Gives the instance whose pipelines are dead.
    pub(crate) fn lose(&self) -> u64 {
        self.lost.store(true, Relaxed);
        self.instance.swap(next_backend_instance(), Relaxed)
    }

    /// Opens a lost device again, if it was lost.
    pub(crate) fn recover(&self) -> Result<(), BackendError> {
        if !self.registered || !self.lost.load(Relaxed) {
            return Ok(());
        }
        let mut driver = self.driver.write().unwrap_or_else(PoisonError::into_inner);
        if self.lost.load(Relaxed) {
            *driver = registry::acquire(self.id)?.into();
            self.lost.store(false, Relaxed);
        }
        Ok(())
    }
}

/// A backend that was just opened.
pub(crate) struct Opened {
    pub(crate) driver: Arc<dyn VyreBackend>,
    /// Its id among the rest.
    pub(crate) profile: DeviceProfile,
    pub(crate) registered: bool,
}

impl Opened {
    pub(crate) fn new(driver: Arc<dyn VyreBackend>, registered: bool) -> Opened {
        // Wrappers may pass on the profile of what they wrap; the id is the instance's own.
        let profile = DeviceProfile { backend: driver.id(), ..driver.device_profile() };
        Opened { driver, profile, registered }
    }
}
