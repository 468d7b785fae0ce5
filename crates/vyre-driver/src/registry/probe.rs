//! Probes backends that are not known to be good.
//!
//! Each backend is opened on a separate thread, so that a driver that panics or hangs affects only
//! itself. A thread that exceeds the time limit is abandoned: it cannot be stopped, but nothing
//! waits for it, and it drops its result.

use super::BackendRegistration;
use crate::containment::open_all;
use crate::{DeviceProfile, VyreBackend};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A backend that opened.
pub(super) struct Probed {
    pub(super) backend: Box<dyn VyreBackend>,
    pub(super) profile: DeviceProfile,
    pub(super) acquisition_ns: u64,
}

/// A hundred times what opening PoCL and lavapipe takes (90 ms for both).
static PROBE_LIMIT_MS: AtomicU64 = AtomicU64::new(10_000);

/// Sets the time limit for opening a backend during selection; the default is 10 seconds. Has an
/// effect only before the first selection of the process.
pub fn set_probe_time_limit(limit: Duration) {
    PROBE_LIMIT_MS.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Relaxed);
}

/// Opens all of these concurrently, with one time limit for all.
pub(super) fn probe_all(
    registrations: &[&'static BackendRegistration],
) -> Vec<(&'static BackendRegistration, Result<Probed, String>)> {
    let probe = |&registration: &&'static BackendRegistration| {
        (registration, format!("probe-{}", registration.id), move || probe(registration))
    };
    open_all(Duration::from_millis(PROBE_LIMIT_MS.load(Relaxed)), registrations.iter().map(probe))
}

fn probe(registration: &BackendRegistration) -> Result<Probed, String> {
    if let Some(reason) = super::refusals().get(registration.id).cloned() {
        return Err(reason);
    }
    let start = Instant::now();
    let backend = (registration.factory)().map_err(|error| error.to_string())?;
    let acquisition_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let profile = backend.device_profile();
    Ok(Probed { backend, profile, acquisition_ns })
}
