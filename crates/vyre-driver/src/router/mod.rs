//! Routing: sends each call to the fastest backend proved right, at a bounded search cost.
//!
//! The router decides and learns; it runs nothing. The caller supplies every timestamp and
//! duration, so tests can simulate whole machines. Callers request a route with
//! [`ProgramRoutes::route`] and report the outcome.
//!
//! **Cells**: a cell is one program (by op id or `fp:<fingerprint>`, and its fingerprint) at one
//! size bucket, ⌊log2 elements⌋, with its buffers in one place (host memory, or resident on one
//! backend). Times are end to end as the caller sees them, so they include transfers.
//!
//! **Eligibility**: the selected backend may run because it passed the conformance set. Any other
//! backend may run only after its results for this program were verified. A quarantined backend
//! runs only if there is no other. A backend whose results were wrong never runs the program again:
//! not as a last resort, not if it is named, and not in a later process on the same device, driver
//! and compiler version, because wrong results are saved. Failures are not saved, and exceeding a
//! caller's deadline is not a failure.
//!
//! **Incumbent**: the fastest backend by the verified rows of the PGO table, otherwise the first in
//! selection order, until measured calls show a better one.
//!
//! **Probes**: a call goes to another backend only if a rule allows it. The rules are an ordered
//! list (`probing.rs`); the first that applies decides, and [`ProgramRoutes::explain`] names it for
//! every backend. A backend that is expected to be faster is probed unless its worst case costs too
//! much; any other is probed when its rest is over and its expected price is within the budget. The
//! expectation comes from the backend's calls, a verified row, or other sizes: a fixed and a
//! growing cost, fitted to the sizes timed by its verification or by calls.
//!
//! **Bound**: the price of a probe is the time it took beyond the incumbent's; a probe that was
//! faster earns some of it back. All probes together cost at most 1% of the program's time, plus
//! the overrun of the last burst beyond its estimate, plus the probes of backends that other sizes
//! wrongly predict to be faster: one burst per size, in which each call costs at most a quarter of
//! all time so far unless it takes more than four times the expected time. Hiccups are not charged:
//! time more than three deviations above a backend's level, or more than four times what is
//! expected of one that was hardly timed, is attributed to the machine, unless it happens twice.
//! Each backend has a separate share of the 1%, so probes of one backend that were expensive on a
//! disturbed machine do not keep another from being probed.
//!
//! **Changes**: CUSUMs on the incumbent detect that it became slower, or faster because the cause
//! of a slowdown is over; the levels of the others are then in doubt, and probing restarts. A
//! backend that fails is quarantined at once. A backend that starts to return wrong results is
//! found by canaries, small checks that the router requests every [`CANARY_PERIOD`] calls. Of the
//! slow calls made [while vyre itself was busy](ProgramRoutes::finished_disturbed), only one in
//! three counts.
//!
//! **New backends**: a backend whose driver is still being opened is listed as
//! [`Conformance::Pending`] and runs nothing until [`Router::met`] reports its identity.
//!
//! A warm call takes no lock and allocates nothing: it reads a few atomics, and updates a few on
//! completion.

mod call;
mod cell;
mod estimate;
mod explain;
pub mod fallback;
mod probing;
mod program;
mod rows;
mod shared;
mod statistics;
mod trust;

pub use call::{
    BackendIndex, BackendSet, Background, Candidate, Conformance, MAX_CANDIDATES, NoRoute, Placement, Policy,
    Reason, RefusedBackend, Rejection, Route, RouteRequest, Timing,
};
pub use explain::{CandidateExplanation, ProbingExplanation, RouteExplanation};
pub use program::{CANARY_PERIOD, ProgramRoutes, TimeSpent};

use crate::hex;
use crate::pgo::{PgoTable, ProgramKey};
use cell::NOBODY;
use shared::{RouterState, SharedBackend};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use trust::Trust;

/// Transfer cost assumed until transfers are timed: 4 GiB per second, about a quarter of what a
/// PCIe 3.0 link with 16 lanes can carry (15.75 GB/s).
const GUESSED_TRANSFER_NS_PER_KIB: u64 = 240;

/// Chooses backends for calls and learns from their times; shared between threads.
///
/// ```
/// use vyre_driver::pgo::PgoTable;
/// use vyre_driver::router::{RouteRequest, Candidate, Conformance, Policy, Reason, Router};
/// use vyre_driver::DeviceProfile;
/// let cpu = Candidate::new(&DeviceProfile::conservative("cpu"), Conformance::Passed);
/// let router = Router::new(vec![cpu], &PgoTable::default(), Policy::default());
/// let program = router.program(Some("blas.saxpy"), [7; 32]);
/// let route = program.route(&RouteRequest::new(1 << 20, 0))?;
/// assert_eq!((router.id(route.backend), route.reason), ("cpu", Reason::Selected));
/// program.finished(&route, 150_000);
/// # Ok::<(), vyre_driver::router::NoRoute>(())
/// ```
#[derive(Debug)]
pub struct Router {
    shared: Arc<RouterState>,
    programs: RwLock<HashMap<String, Arc<ProgramRoutes>>>,
}

impl Router {
    /// Creates a router over these backends, in selection order. Those beyond [`MAX_CANDIDATES`]
    /// are dropped with a warning. Only rows of the table that are verified and were made by this
    /// compiler version are used, and only for backends whose device and driver are unchanged.
    pub fn new(mut candidates: Vec<Candidate>, table: &PgoTable, policy: Policy) -> Router {
        if candidates.len() > MAX_CANDIDATES {
            tracing::warn!("only the first {MAX_CANDIDATES} of {} backends are used", candidates.len());
            candidates.truncate(MAX_CANDIDATES);
        }
        let passed = candidates.iter().position(|candidate| candidate.conformance == Conformance::Passed);
        let backend = |listed| SharedBackend {
            listed,
            met: OnceLock::new(),
            device: Trust::default(),
            transfer_ns_per_kib: AtomicU64::new(GUESSED_TRANSFER_NS_PER_KIB),
        };
        let shared = RouterState {
            backends: candidates.into_iter().map(backend).collect(),
            selected: AtomicU8::new(passed.map_or(NOBODY, |position| position as u8 + 1)),
            table: rows::valid(table),
            policy,
        };
        Router { shared: Arc::new(shared), programs: RwLock::default() }
    }

    /// The routes of a program, by its op id if it has one, otherwise by its fingerprint. Call it
    /// once, when the program is loaded.
    pub fn program(&self, op_id: Option<&str>, fingerprint: [u8; 32]) -> Arc<ProgramRoutes> {
        let fingerprint = hex::encode(&fingerprint);
        let key = op_id.map_or_else(|| format!("fp:{fingerprint}"), str::to_owned);
        // An op id that now names a different program gets separate routes.
        let identity = format!("{key}@{fingerprint}");
        if let Some(known) = self.programs.read().unwrap_or_else(PoisonError::into_inner).get(&identity) {
            return known.clone();
        }
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(ProgramRoutes::new(self.shared.clone(), ProgramKey::new(key, fingerprint)));
        programs.entry(identity).or_insert_with(make).clone()
    }

    /// Reports the identity of a backend that was listed as [`Conformance::Pending`]: its device,
    /// its driver, and its result on the conformance set. From then on it is treated like any
    /// other, the table's rows about it apply, and it is selected if no backend was selected
    /// before. Only the first report about a backend counts, and its id stays as listed.
    pub fn met(&self, backend: BackendIndex, candidate: Candidate) {
        let Some(shared) = self.shared.backends.get(backend.index()) else { return };
        let candidate = Candidate { id: shared.listed.id.clone(), ..candidate };
        if shared.listed.conformance != Conformance::Pending || shared.met.set(candidate).is_err() {
            return;
        }
        if self.shared.conforms(backend) {
            // A backend selected earlier stays selected.
            let _ = self.shared.selected.compare_exchange(NOBODY, backend.0 + 1, Relaxed, Relaxed);
        }
        self.programs().iter().for_each(|program| program.met(backend));
    }

    /// All programs whose routes were requested, and their batches.
    pub fn programs(&self) -> Vec<Arc<ProgramRoutes>> {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        programs.values().flat_map(|program| [Some(program), program.batches()]).flatten().cloned().collect()
    }

    /// The id of a backend; empty for an index out of range.
    pub fn id(&self, backend: BackendIndex) -> &str {
        self.shared.backends.get(backend.index()).map_or("", |backend| backend.listed.id.as_str())
    }

    /// The index of a backend.
    pub fn index_of(&self, id: &str) -> Option<BackendIndex> {
        self.shared.index_of(id)
    }

    /// The backends, in selection order.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.shared.backends.iter().map(SharedBackend::candidate)
    }

    /// The backend that may run programs before they are verified on it.
    pub fn selected(&self) -> Option<BackendIndex> {
        self.shared.selected()
    }

    /// Reports how long a transfer of `bytes` to or from a backend's device took.
    pub fn transferred(&self, backend: BackendIndex, bytes: u64, elapsed_ns: u64) {
        if let Some(backend) = self.shared.backends.get(backend.index())
            && bytes >= 1024
        {
            let (seen, known) = (elapsed_ns / (bytes / 1024), backend.transfer_ns_per_kib.load(Relaxed));
            backend.transfer_ns_per_kib.store(known / 8 * 7 + seen / 8 + 1, Relaxed);
        }
    }

    /// What the router learnt, as verified rows for [`PgoTable::save`]: for every cell on host
    /// memory, the verified backends with enough calls, fastest first, and the backends whose
    /// results were wrong.
    pub fn learned(&self) -> PgoTable {
        rows::learned(&self.shared, &self.programs())
    }
}
