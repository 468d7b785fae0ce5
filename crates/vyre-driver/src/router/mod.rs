//! Which backend a call goes to: the fastest one that was proved right, found out at a bounded price.
//!
//! The router decides and learns; it runs nothing, and every time it goes by is given to it, so that tests can simulate
//! whole machines. Whoever runs calls asks [`ProgramRoutes::route`], and reports what came of it.
//!
//! **A cell** is one program (by op id or `fp:<fingerprint>`, and its fingerprint) at one size bucket, ⌊log2 elements⌋, with its
//! buffers in one place (host memory, or resident on one backend). Times are end to end as the caller sees them, so what
//! transfers cost is in them.
//!
//! **Who may run**: the selected backend, because it passed the conformance set; any other only after its results for this
//! program were verified; none in quarantine, unless there is no other. A backend whose results were wrong never runs the
//! program again: not as a last resort, not if it is named, and not in a later process on the same device, driver and
//! compiler version, because that is saved. A failure is not saved, and a caller's deadline is not a failure.
//!
//! **Who does run**: the incumbent, which is the fastest by verified rows of the PGO table, else the first in the order of
//! selection, until calls tell better.
//!
//! **Probes**: a call goes elsewhere only if a rule says so. The rules are an ordered list (`probing.rs`), of which the first that
//! applies decides, and [`ProgramRoutes::explain`] names it for every backend: one that is expected to be faster is probed, unless
//! it could cost too much at worst; any other is probed when it has rested and its expected price is within the budget.
//! What is expected follows from its own calls, a verified row, or other sizes: a fixed and a growing cost, from the sizes
//! that it was timed at when it was verified, or from calls.
//!
//! **The bound**: the price of a probe is what it took beyond what the incumbent takes; one that was faster earns some of it back. All
//! probes together cost at most 1% of the program's time, plus what the last burst took beyond its estimate, and plus those of
//! backends that other sizes wrongly say are faster: one burst for each size, of which each call costs no more than a quarter
//! of all time so far unless it takes more than four times what was expected. Hiccups do not count: what is more than three deviations
//! beyond the backend's own level, once that is known, happens to every backend alike, unless it happens twice. Each backend has its
//! part of the 1% for itself: what probes of one cost while the machine was disturbed does not keep another from being probed.
//!
//! **Changes**: a CUSUM on the incumbent notices that it slowed down; then what is known of the others is in doubt, and probing
//! starts afresh. A backend that fails is put into quarantine at once; one that begins
//! to answer wrongly is found by canaries, small checks that the router asks for every [`CANARY_PERIOD`] calls. Of calls that
//! were slow [beside work of vyre's own](ProgramRoutes::finished_disturbed) only one in three counts.
//!
//! **New backends**: one whose driver is being met is listed as [`Conformance::Pending`] and runs nothing until
//! [`Router::met`] says what it is.
//!
//! A warm call takes no lock and allocates nothing: it reads a few atomics, and adds to a few when it is done.

mod call;
mod cell;
mod estimate;
mod explain;
pub mod fallback;
mod probing;
mod program;
mod rows;
mod shared;
mod standing;
mod statistics;

pub use call::{
    BackendIndex, BackendSet, Background, Call, Candidate, Conformance, MAX_CANDIDATES, NoRoute, Placement,
    Policy, Reason, RefusedBackend, Rejection, Route, Timing,
};
pub use explain::{CandidateExplanation, Explanation, ProbingExplanation};
pub use program::{CANARY_PERIOD, ProgramRoutes, TimeSpent};

use crate::hex;
use crate::pgo::{PgoTable, ProgramKey};
use cell::NOBODY;
use shared::{Shared, SharedBackend};
use standing::Standing;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Guessed until transfers were timed: 4 GiB per second.
const GUESSED_TRANSFER_NS_PER_KIB: u64 = 240;

/// Chooses backends for calls, and learns from them; shared by threads.
///
/// ```
/// use vyre_driver::pgo::PgoTable;
/// use vyre_driver::router::{Call, Candidate, Conformance, Policy, Reason, Router};
/// use vyre_driver::DeviceProfile;
/// let cpu = Candidate::new(&DeviceProfile::conservative("cpu"), Conformance::Passed);
/// let router = Router::new(vec![cpu], &PgoTable::default(), Policy::default());
/// let program = router.program(Some("blas.saxpy"), [7; 32]);
/// let route = program.route(&Call::new(1 << 20, 0))?;
/// assert_eq!((router.id(route.backend), route.reason), ("cpu", Reason::Selected));
/// program.finished(&route, 150_000);
/// # Ok::<(), vyre_driver::router::NoRoute>(())
/// ```
#[derive(Debug)]
pub struct Router {
    shared: Arc<Shared>,
    programs: RwLock<HashMap<String, Arc<ProgramRoutes>>>,
}

impl Router {
    /// A router over these backends, in the order of selection; those past [`MAX_CANDIDATES`] are left out, with a
    /// warning. Of the table, rows count that are verified and were made by this compiler version, for those of their
    /// backends whose device and driver are the same now.
    pub fn new(mut candidates: Vec<Candidate>, table: &PgoTable, policy: Policy) -> Router {
        if candidates.len() > MAX_CANDIDATES {
            tracing::warn!("only the first {MAX_CANDIDATES} of {} backends are used", candidates.len());
            candidates.truncate(MAX_CANDIDATES);
        }
        let passed = candidates.iter().position(|candidate| candidate.conformance == Conformance::Passed);
        let backend = |listed| SharedBackend {
            listed,
            met: OnceLock::new(),
            device: Standing::default(),
            transfer_ns_per_kib: AtomicU64::new(GUESSED_TRANSFER_NS_PER_KIB),
        };
        let shared = Shared {
            backends: candidates.into_iter().map(backend).collect(),
            selected: AtomicU8::new(passed.map_or(NOBODY, |position| position as u8 + 1)),
            table: rows::valid(table),
            policy,
        };
        Router { shared: Arc::new(shared), programs: RwLock::default() }
    }

    /// The routes of a program, by its op id, else by its fingerprint. To be asked once, when the program is loaded.
    pub fn program(&self, op_id: Option<&str>, fingerprint: [u8; 32]) -> Arc<ProgramRoutes> {
        let fingerprint = hex::encode(&fingerprint);
        let key = op_id.map_or_else(|| format!("fp:{fingerprint}"), str::to_owned);
        // An op id that names another program now has other routes.
        let slot = format!("{key}@{fingerprint}");
        if let Some(known) = self.programs.read().unwrap_or_else(PoisonError::into_inner).get(&slot) {
            return known.clone();
        }
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        let make = || Arc::new(ProgramRoutes::new(self.shared.clone(), ProgramKey::new(key, fingerprint)));
        programs.entry(slot).or_insert_with(make).clone()
    }

    /// Reports what became of a backend that was listed as [`Conformance::Pending`]: its device, its driver, and how it did on
    /// the conformance set. From then on it is like any other, rows of the table about it count, and if no backend was
    /// selected before, it is. Only the first report about a backend counts, and its id stays as listed.
    pub fn met(&self, backend: BackendIndex, candidate: Candidate) {
        let Some(shared) = self.shared.backends.get(backend.index()) else { return };
        let candidate = Candidate { id: shared.listed.id.clone(), ..candidate };
        if shared.listed.conformance != Conformance::Pending || shared.met.set(candidate).is_err() {
            return;
        }
        if self.shared.conforms(backend) {
            // One that was selected earlier stays so.
            let _ = self.shared.selected.compare_exchange(NOBODY, backend.0 + 1, Relaxed, Relaxed);
        }
        self.programs().iter().for_each(|program| program.met(backend));
    }

    /// All programs that routes were asked for, and their batches.
    pub fn programs(&self) -> Vec<Arc<ProgramRoutes>> {
        let programs = self.programs.read().unwrap_or_else(PoisonError::into_inner);
        programs.values().flat_map(|program| [Some(program), program.batches()]).flatten().cloned().collect()
    }

    /// The id of a backend; empty for a position past the list.
    pub fn id(&self, backend: BackendIndex) -> &str {
        self.shared.backends.get(backend.index()).map_or("", |backend| backend.listed.id.as_str())
    }

    /// The position of a backend.
    pub fn index_of(&self, id: &str) -> Option<BackendIndex> {
        self.shared.index_of(id)
    }

    /// The backends, in the order of selection.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.shared.backends.iter().map(SharedBackend::candidate)
    }

    /// The backend that may run programs before they are verified on it.
    pub fn selected(&self) -> Option<BackendIndex> {
        self.shared.selected()
    }

    /// Reports how long it took to move so many bytes from or to a backend's device.
    pub fn transferred(&self, backend: BackendIndex, bytes: u64, elapsed_ns: u64) {
        if let Some(backend) = self.shared.backends.get(backend.index())
            && bytes >= 1024
        {
            let (seen, known) = (elapsed_ns / (bytes / 1024), backend.transfer_ns_per_kib.load(Relaxed));
            backend.transfer_ns_per_kib.store(known / 8 * 7 + seen / 8 + 1, Relaxed);
        }
    }

    /// What was learnt, as verified rows for [`PgoTable::save`]: every cell on host memory in which a verified backend is
    /// the fastest.
    pub fn learned(&self) -> PgoTable {
        rows::learned(&self.shared, &self.programs())
    }
}
