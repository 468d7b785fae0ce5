//! The linked backends, and the selection among them.
//!
//! A backend registers by being linked: its crate submits one [`BackendRegistration`] together with
//! a [`BackendCapability`], a [`BackendPrecedence`], and [`BackendDevices`] if it drives several
//! devices. This crate submits nothing. The submissions are read once, on first use.
//!
//! ```
//! use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
//! use vyre_driver::{BackendError, DispatchConfig, VyreBackend, default_supported_ops};
//! use vyre_foundation::ir::Program;
//!
//! struct Echo;
//! impl VyreBackend for Echo {
//!     fn id(&self) -> &'static str {
//!         "echo"
//!     }
//!     fn dispatch(&self, _: &Program, inputs: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
//!         Ok(inputs.to_vec())
//!     }
//! }
//!
//! fn main() -> Result<(), BackendError> {
//!     inventory::submit! {
//!         BackendRegistration { id: "echo", factory: || Ok(Box::new(Echo)), supported_ops: default_supported_ops }
//!     }
//!     inventory::submit! { BackendCapability { id: "echo", dispatches: true, oracle: false } }
//!     inventory::submit! { BackendPrecedence { id: "echo", rank: 500 } }
//!
//!     assert_eq!(vyre_driver::registry::acquire("echo")?.id(), "echo");
//!     assert_eq!(vyre_driver::registry::acquire_preferred_dispatch_backend()?.id(), "echo");
//!     Ok(())
//! }
//! ```

mod probe;
mod selection;

/// Every row of the op table: the ops that admission assumes for a backend that does not list its
/// own.
pub use crate::backend::default_supported_ops as core_supported_ops;
pub use probe::set_probe_time_limit;
pub use selection::{
    SelectionFacts, SelectionReport, acquire_preferred_dispatch_backend, capability_score,
    compare_selection_facts, none_usable, selectable, selection_profiles, selection_report,
};

pub(crate) use selection::known_profiles;

use crate::containment::contain;
use crate::{BackendError, VyreBackend};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use vyre_foundation::ops::OpId;

/// A linked backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendRegistration {
    /// The id, unique in the process.
    pub id: &'static str,
    /// Opens the backend on its best device.
    pub factory: fn() -> Result<Box<dyn VyreBackend>, BackendError>,
    /// The table ops that it supports, available without opening it.
    pub supported_ops: fn() -> &'static HashSet<OpId>,
}

/// The role of a backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendCapability {
    /// The backend's id.
    pub id: &'static str,
    /// Whether it runs programs.
    pub dispatches: bool,
    /// Whether its results are right by definition; an oracle is used only if it is named.
    pub oracle: bool,
}

/// The rank of a backend among otherwise equal ones.
#[derive(Clone, Copy, Debug)]
pub struct BackendPrecedence {
    /// The backend's id.
    pub id: &'static str,
    /// Lower is preferred.
    pub rank: u32,
}

/// The devices of a backend that drives several: `wgpu:1` is device 1 of `wgpu`.
#[derive(Clone, Copy, Debug)]
pub struct BackendDevices {
    /// The backend's id.
    pub id: &'static str,
    /// The devices' names, best first; the registration's factory opens device 0.
    pub names: fn() -> Result<Vec<String>, BackendError>,
    /// Opens one device. The instance's id is `<id>:<device>`, or the bare id for device 0.
    pub open: fn(device: u32) -> Result<Box<dyn VyreBackend>, BackendError>,
    /// A stamp of the installed drivers, obtained without opening any; empty if not available.
    pub stamp: fn() -> String,
}

/// The device at this index of a backend's list, and the id of its instances; an error if the index
/// is out of range.
///
/// ```
/// use vyre_driver::registry::nth_device;
/// assert_eq!(nth_device("toy", &["fast", "slow"], 1)?, ("toy:1", &"slow"));
/// assert!(nth_device("toy", &["fast"], 1).is_err());
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
pub fn nth_device<'d, T>(
    backend: &'static str,
    all: &'d [T],
    device: u32,
) -> Result<(&'static str, &'d T), BackendError> {
    let Some(found) = all.get(device as usize) else {
        let count = all.len();
        return Err(BackendError::new(format!(
            "backend `{backend}` has {count} devices, so `{backend}:{device}` does not exist: use a number below {count}"
        )));
    };
    let id = if device == 0 { backend } else { interned(format!("{backend}:{device}")) };
    Ok((id, found))
}

/// Interns a string for the lifetime of the process; for the names of devices and drivers, of which
/// a machine has few.
pub fn interned(text: String) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(text.as_str()) {
        return known;
    }
    let kept: &'static str = Box::leak(text.into_boxed_str());
    names.insert(kept);
    kept
}

/// A stamp of the drivers listed by these files, or by the files in these folders: their names,
/// lengths and modification times.
pub fn stamp_of_files(paths: &[PathBuf]) -> String {
    let mut facts = Vec::new();
    for path in paths {
        let below = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        for file in below.chain([path.clone()]) {
            if let Ok(found) = std::fs::metadata(&file)
                && found.is_file()
            {
                facts.push(format!("{} {} {:?}", file.display(), found.len(), found.modified().ok()));
            }
        }
    }
    facts.sort();
    facts.dedup();
    match facts.as_slice() {
        [] => String::new(),
        facts => blake3::hash(facts.join("\n").as_bytes()).to_hex()[..16].to_owned(),
    }
}

/// The driver stamp of a backend, or of the backend that a numbered device belongs to.
pub fn driver_stamp(id: &str) -> String {
    let base = id.split_once(':').map_or(id, |(base, _)| base);
    backend_devices(base).and_then(|devices| contain(devices.stamp).ok()).unwrap_or_default()
}

inventory::collect!(BackendRegistration);
inventory::collect!(BackendCapability);
inventory::collect!(BackendPrecedence);
inventory::collect!(BackendDevices);

impl BackendRegistration {
    /// Opens the backend. A panic in its factory is an error.
    pub fn acquire(&self) -> Result<Box<dyn VyreBackend>, BackendError> {
        open(self.id, self.factory)
    }
}

/// Prevents this process from opening a backend whose driver is known to crash or hang. Affects
/// selection only before the first one of the process.
pub fn refuse(id: &str, reason: &str) {
    refusals().insert(id.to_owned(), reason.to_owned());
}

fn refusals() -> MutexGuard<'static, HashMap<String, String>> {
    static REFUSALS: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every linked backend, by id.
pub fn registered_backends() -> &'static [&'static BackendRegistration] {
    static BY_ID: LazyLock<Vec<&'static BackendRegistration>> = LazyLock::new(|| {
        let mut all: Vec<_> = inventory::iter::<BackendRegistration>().collect();
        all.sort_by_key(|registration| registration.id);
        all
    });
    &BY_ID
}

/// Every linked backend, lowest rank first, then by id.
pub fn registered_backends_by_precedence_slice() -> &'static [&'static BackendRegistration] {
    static BY_PRECEDENCE: LazyLock<Vec<&'static BackendRegistration>> = LazyLock::new(|| {
        let mut all = registered_backends().to_vec();
        all.sort_by_key(|registration| (backend_precedence(registration.id), registration.id));
        all
    });
    &BY_PRECEDENCE
}

/// Like [`registered_backends_by_precedence_slice`], as an owned list.
pub fn registered_backends_by_precedence() -> Vec<&'static BackendRegistration> {
    registered_backends_by_precedence_slice().to_vec()
}

/// Whether the backend runs programs; false if it has no capability entry.
pub fn backend_dispatches(id: &str) -> bool {
    let mut claims =
        inventory::iter::<BackendCapability>().filter(|capability| capability.id == id).peekable();
    claims.peek().is_some() && claims.all(|capability| capability.dispatches)
}

/// Whether the backend is an oracle, which is used only if it is named.
pub fn backend_is_oracle(id: &str) -> bool {
    inventory::iter::<BackendCapability>().any(|capability| capability.id == id && capability.oracle)
}

/// The backend's rank, lower preferred; `u32::MAX` if it has none.
pub fn backend_precedence(id: &str) -> u32 {
    let ranks = inventory::iter::<BackendPrecedence>().filter(|precedence| precedence.id == id);
    ranks.map(|precedence| precedence.rank).min().unwrap_or(u32::MAX)
}

/// The devices of a backend that drives several.
pub fn backend_devices(id: &str) -> Option<&'static BackendDevices> {
    inventory::iter::<BackendDevices>().find(|devices| devices.id == id)
}

/// Opens the backend with this id: a registered one, or `<registered>:<number>` for one of its
/// other devices.
pub fn acquire(id: &str) -> Result<Box<dyn VyreBackend>, BackendError> {
    if let Some(registration) = find(id)? {
        return registration.acquire();
    }
    let numbered = id.rsplit_once(':').and_then(|(base, device)| Some((base, device.parse::<u32>().ok()?)));
    if let Some((base, device)) = numbered
        && let Some(registration) = find(base)?
    {
        return acquire_device(registration, device);
    }
    let linked = registered_backends().iter().map(|registration| registration.id.to_string()).collect();
    Err(BackendError::NotLinked { id: id.into(), linked })
}

fn acquire_device(
    registration: &BackendRegistration,
    device: u32,
) -> Result<Box<dyn VyreBackend>, BackendError> {
    let id = registration.id;
    match backend_devices(id) {
        Some(devices) => open(id, || (devices.open)(device)),
        None if device == 0 => registration.acquire(),
        None => Err(BackendError::new(format!(
            "backend `{id}` has one device, so `{id}:{device}` does not exist: use `{id}`"
        ))),
    }
}

/// The registration with this id, if any; an error if there are several.
fn find(id: &str) -> Result<Option<&'static BackendRegistration>, BackendError> {
    let mut found = registered_backends().iter().copied().filter(|registration| registration.id == id);
    let first = found.next();
    if found.next().is_none() { Ok(first) } else { Err(duplicate(id)) }
}

/// An error that names every claimant of an id by its Rust type, which requires an instance.
fn duplicate(id: &str) -> BackendError {
    let same_id = |registration: &&&BackendRegistration| registration.id == id;
    let all: Vec<&'static BackendRegistration> =
        registered_backends().iter().filter(same_id).copied().collect();
    let claimants = probe::probe_all(&all).into_iter().map(|(_, outcome)| match outcome {
        Ok(probed) => format!("`{}`", probed.backend.implementation()),
        Err(reason) => format!("one that does not open ({reason})"),
    });
    BackendError::DuplicateBackend { id: id.into(), claimants: claimants.collect() }
}

fn open(
    id: &str,
    factory: impl FnOnce() -> Result<Box<dyn VyreBackend>, BackendError>,
) -> Result<Box<dyn VyreBackend>, BackendError> {
    if let Some(reason) = refusals().get(id).cloned() {
        return Err(BackendError::new(format!("backend `{id}` is not opened: {reason}")));
    }
    contain(factory)
        .unwrap_or_else(|panic| Err(BackendError::new(format!("backend `{id}` did not open: {panic}"))))
}
