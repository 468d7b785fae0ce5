//! Which backend to use when nobody named one and nothing is measured yet.
//!
//! Every candidate is opened once, each on a thread of its own, so that a driver that panics or hangs refuses itself only;
//! a thread that outlives the time limit is abandoned. What came back is ranked by [`compare_selection_facts`]. The
//! outcome is kept for the process.

use super::{
    BackendRegistration, backend_dispatches, backend_is_oracle, backend_precedence, duplicate,
    registered_backends,
};
use crate::containment::contain;
use crate::{BackendError, DeviceClass, DeviceProfile, VyreBackend};
use std::cmp::Ordering;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What the choice between backends goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionFacts {
    /// The backend's id.
    pub id: &'static str,
    /// Whether its device is the processor behind a GPU interface.
    pub software_adapter: bool,
    /// What its device can do; see [`capability_score`].
    pub capability_score: u32,
    /// How well it can time kernels, from 0 to 3.
    pub timing_quality_score: u32,
    /// Memory bandwidth, 0 where unknown.
    pub memory_bandwidth_gbps: u32,
    /// Its rank, lower preferred.
    pub precedence: u32,
    /// How long it took to open.
    pub acquisition_ns: u64,
}

/// A backend that was not a candidate, or failed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The backend's id.
    pub id: &'static str,
    /// Why.
    pub reason: String,
}

/// How the choice between backends came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionReport {
    /// The usable backends, best first.
    pub ranked: Vec<SelectionFacts>,
    /// The others, by id.
    pub refused: Vec<Refusal>,
}

impl SelectionReport {
    /// The id of the backend that was selected.
    pub fn selected(&self) -> Option<&'static str> {
        self.ranked.first().map(|facts| facts.id)
    }
}

impl fmt::Display for SelectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, facts) in self.ranked.iter().enumerate() {
            let verdict = if k == 0 { "selected" } else { "usable" };
            let software = if facts.software_adapter { ", software adapter" } else { "" };
            writeln!(
                f,
                "{}: {verdict} (capability {}, timing {}, {} GB/s, rank {}, opened in {:?}{software})",
                facts.id,
                facts.capability_score,
                facts.timing_quality_score,
                facts.memory_bandwidth_gbps,
                facts.precedence,
                Duration::from_nanos(facts.acquisition_ns),
            )?;
        }
        for refusal in &self.refused {
            writeln!(f, "{}: refused: {}", refusal.id, refusal.reason)?;
        }
        Ok(())
    }
}

/// The order of preference: `Less` is preferred. Real devices before software ones, then by what they can do, how well
/// they are timed, their bandwidth, their rank, how fast they opened, and their id.
pub fn compare_selection_facts(a: &SelectionFacts, b: &SelectionFacts) -> Ordering {
    a.software_adapter
        .cmp(&b.software_adapter)
        .then(b.capability_score.cmp(&a.capability_score))
        .then(b.timing_quality_score.cmp(&a.timing_quality_score))
        .then(b.memory_bandwidth_gbps.cmp(&a.memory_bandwidth_gbps))
        .then(a.precedence.cmp(&b.precedence))
        .then(a.acquisition_ns.cmp(&b.acquisition_ns))
        .then(a.id.cmp(b.id))
}

/// What a device can do, as one number.
pub fn capability_score(profile: &DeviceProfile) -> u32 {
    let weights = [
        (profile.max_storage_buffer_binding_size > 0, 16),
        (profile.max_invocations_per_workgroup >= 64, 8),
        (profile.max_invocations_per_workgroup >= 256, 4),
        (profile.subgroup_size > 0, 8),
        (profile.supports_subgroup_ops, 8),
        (profile.has_subgroup_shuffle, 4),
        (profile.has_shared_memory, 4),
        (profile.supports_f16, 2),
        (profile.supports_bf16, 2),
        (profile.supports_tensor_cores, 4),
        (profile.supports_indirect_dispatch, 2),
        (profile.supports_device_timestamps, 2),
        (profile.supports_hardware_counters, 2),
    ];
    weights.into_iter().filter(|(holds, _)| *holds).map(|(_, weight)| weight).sum()
}

/// How long a backend may take to open before it is refused.
static PROBE_LIMIT_MS: AtomicU64 = AtomicU64::new(10_000);

/// Sets how long a backend may take to open before selection refuses it; 10 seconds unless set. Has an effect only
/// before the first selection of the process.
pub fn set_probe_time_limit(limit: Duration) {
    PROBE_LIMIT_MS.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Relaxed);
}

/// How the choice came out in this process; makes it if it was not made yet.
pub fn selection_report() -> &'static SelectionReport {
    &selection().report
}

/// Opens the best backend that runs programs and is no oracle. The choice is made once per process.
pub fn acquire_preferred_dispatch_backend() -> Result<Box<dyn VyreBackend>, BackendError> {
    let selection = selection();
    let Some(winner) = selection.winner else {
        return Err(none_usable(&selection.report));
    };
    let probed = selection.probed.lock().unwrap_or_else(PoisonError::into_inner).take();
    probed.map_or_else(|| winner.acquire(), Ok)
}

/// The profiles of the usable backends, if a selection was made already.
pub(crate) fn known_profiles() -> &'static [DeviceProfile] {
    SELECTION.get().map_or(&[], |selection| &selection.profiles)
}

struct Selection {
    report: SelectionReport,
    profiles: Vec<DeviceProfile>,
    winner: Option<&'static BackendRegistration>,
    /// The winner's instance from the selection itself, for the first who asks.
    probed: Mutex<Option<Box<dyn VyreBackend>>>,
}

static SELECTION: OnceLock<Selection> = OnceLock::new();

fn selection() -> &'static Selection {
    SELECTION.get_or_init(select)
}

fn select() -> Selection {
    let (candidates, mut refused) = candidates();
    let mut usable = Vec::new();
    for (registration, outcome) in probe_all(&candidates) {
        match outcome {
            Ok(probed) => usable.push((registration, probed)),
            Err(reason) => refused.push(Refusal { id: registration.id, reason }),
        }
    }
    usable.sort_by(|(_, a), (_, b)| compare_selection_facts(&a.facts, &b.facts));
    refused.sort_by_key(|refusal| refusal.id);
    for refusal in &refused {
        tracing::debug!(backend = refusal.id, reason = refusal.reason, "backend refused");
    }
    let report =
        SelectionReport { ranked: usable.iter().map(|(_, probed)| probed.facts.clone()).collect(), refused };
    let profiles = usable.iter().map(|(_, probed)| probed.profile).collect();
    let best = usable.into_iter().next();
    Selection {
        report,
        profiles,
        winner: best.as_ref().map(|(registration, _)| *registration),
        probed: Mutex::new(best.map(|(_, probed)| probed.backend)),
    }
}

/// Splits what is linked into what may be selected and what may not.
fn candidates() -> (Vec<&'static BackendRegistration>, Vec<Refusal>) {
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for same_id in registered_backends().chunk_by(|a, b| a.id == b.id) {
        let [first, others @ ..] = same_id else { continue };
        let id = first.id;
        let reason = if backend_is_oracle(id) {
            Some(ORACLE_REASON.into())
        } else if !backend_dispatches(id) {
            Some("it does not say that it runs programs".into())
        } else if others.is_empty() {
            None
        } else {
            Some(duplicate(id).to_string())
        };
        match reason {
            Some(reason) => refused.push(Refusal { id, reason }),
            None => candidates.push(*first),
        }
    }
    (candidates, refused)
}

const ORACLE_REASON: &str = "it is an oracle, used only where it is named";

struct Probed {
    backend: Box<dyn VyreBackend>,
    profile: DeviceProfile,
    facts: SelectionFacts,
}

fn probe_all(
    candidates: &[&'static BackendRegistration],
) -> Vec<(&'static BackendRegistration, Result<Probed, String>)> {
    let limit = Duration::from_millis(PROBE_LIMIT_MS.load(Relaxed));
    let started = Instant::now();
    let running: Vec<_> =
        candidates.iter().map(|&registration| (registration, start_probe(registration))).collect();
    let outcome = |probe: Result<mpsc::Receiver<Result<Probed, String>>, String>| {
        let left = limit.saturating_sub(started.elapsed());
        probe?.recv_timeout(left).unwrap_or_else(|_| Err(format!("it did not open within {limit:?}")))
    };
    running.into_iter().map(|(registration, probe)| (registration, outcome(probe))).collect()
}

/// Starts a probe on a thread of its own; what it finds after the receiver is gone is dropped there.
fn start_probe(
    registration: &'static BackendRegistration,
) -> Result<mpsc::Receiver<Result<Probed, String>>, String> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("vyre-probe-{}", registration.id));
    let spawned = thread.spawn(move || {
        let outcome = contain(|| probe(registration)).unwrap_or_else(Err);
        drop(sender.send(outcome));
    });
    spawned.map(|_| receiver).map_err(|error| format!("no thread to open it on: {error}"))
}

fn probe(registration: &BackendRegistration) -> Result<Probed, String> {
    let start = Instant::now();
    let backend = (registration.factory)().map_err(|error| error.to_string())?;
    let acquisition_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let profile = backend.device_profile();
    let facts = SelectionFacts {
        id: registration.id,
        software_adapter: profile.device_class == DeviceClass::Software,
        capability_score: capability_score(&profile),
        timing_quality_score: profile.timing_quality.score(),
        memory_bandwidth_gbps: profile.mem_bw_gbps,
        precedence: backend_precedence(registration.id),
        acquisition_ns,
    };
    Ok(Probed { backend, profile, facts })
}

fn none_usable(report: &SelectionReport) -> BackendError {
    let only_oracles = report.refused.iter().all(|refusal| refusal.reason == ORACLE_REASON);
    let ids: Vec<&str> = report.refused.iter().map(|refusal| refusal.id).collect();
    let each = || report.refused.iter().map(|refusal| format!("{}: {}", refusal.id, refusal.reason));
    let reasons = if report.refused.is_empty() {
        "none is linked".into()
    } else if only_oracles {
        format!("only oracles are linked ({}), and an oracle is used only where it is named", ids.join(", "))
    } else {
        each().collect::<Vec<_>>().join("; ")
    };
    BackendError::NoUsableBackend { reasons }
}
