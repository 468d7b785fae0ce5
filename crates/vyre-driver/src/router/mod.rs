//! Which backend a call goes to: the fastest one that was proved right, found out at a bounded price.
//!
//! The router decides and learns; it runs nothing, and every time it goes by is given to it, so that tests can simulate
//! whole machines. Whoever runs calls asks [`ProgramRoutes::route`], and reports what came of it.
//!
//! **A cell** is one program (by op id or `fp:<fingerprint>`) at one size bucket, ⌊log2 elements⌋, with its buffers in one
//! place (host memory, or resident on one backend). Times are end to end as the caller sees them, so what transfers cost is
//! in them.
//!
//! **Who may run**: the selected backend, because it passed the conformance set; any other only after its results for this
//! program were verified; none in quarantine. A backend whose results were wrong is never a last resort.
//!
//! **Who does run**: the incumbent, which is the fastest by verified rows of the PGO table, else the first in the order of
//! selection, until calls tell better. A call is a *probe*, and goes elsewhere, only if there is an estimate for the other
//! backend (its own calls, a verified row, or what follows from other sizes: a fixed and a growing cost, from the sizes
//! that it was timed at when it was verified, or from calls), and while
//! `spent + (estimate of the other − estimate of the incumbent) ≤ 1% of the program's total time`. An estimate from other sizes
//! may be off, so a probe also has to be bearable: even at four times its estimate it would cost no more than all calls so far took.
//! What a probe took beyond the incumbent's estimate is added to `spent`, but for hiccups: what is more than three deviations
//! beyond the backend's own level, once that is known, happens to every backend alike. Probes of a backend that several calls
//! of the size showed to take more than twice as long, or that is expected to take sixteen times as long, get only half of that
//! budget, so that a new size finds some left; but not those of one that was the faster of the two when both were at their best.
//!
//! **Bursts**: a backend that was idle is slow at first, because its threads sleep and the caches hold what another backend
//! worked on; one call in between says little of what its calls would take if it got all of them. So a probe that is slower
//! than the incumbent is followed by another at once, and by up to two more if that was faster than the first or near the
//! incumbent: within the budget, or if it took longer than expected at a size that is new to it, was expected to be about as
//! fast, and becomes much faster with each. Only the last of them counts as its time, of four the middle one of the last three. One that is faster than the incumbent is followed by more until it is sure which of the two is faster: that costs nothing.
//!
//! **The bound**: all probes together cost at most 1% of the program's time, plus what the last burst took beyond its
//! estimate. Beyond that a backend that other sizes say is faster is tried once per size, where it would cost less than a
//! tenth of the program's time at worst, and one whose calls of this size were probably faster is asked again until that is
//! sure. So a device that is expected to pay off is probed after a few calls, and one that is
//! not waits until the budget has room for it.
//!
//! **Changes**: a CUSUM on the incumbent notices that it slowed down; then what is known of the others is in doubt, the
//! best guess takes over, and probing starts afresh. A backend that fails is put into quarantine at once; one that begins
//! to answer wrongly is found by canaries, small checks that the router asks for every [`CANARY_PERIOD`] calls. Of calls that
//! were slow [beside work of vyre's own](ProgramRoutes::finished_disturbed) only one in three counts.
//!
//! A warm call takes no lock and allocates nothing: it reads a few atomics, and adds to a few when it is done.

mod cell;
mod explain;
pub mod fallback;
mod program;
mod rows;
mod standing;
mod statistics;

pub use explain::{CandidateExplanation, Explanation};
pub use program::{CANARY_PERIOD, ProgramRoutes, TimeSpent};

use crate::hex;
use crate::pgo::PgoTable;
use crate::{BackendError, DeviceProfile};
use serde::Serialize;
use standing::Standing;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// The most backends that one router chooses from.
pub const MAX_CANDIDATES: usize = 32;

/// A backend's position in the router's list, which is the order of selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BackendIndex(pub u8);

impl BackendIndex {
    /// The position as a number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendSet(u32);

impl BackendSet {
    /// This set and one more.
    #[must_use]
    pub fn with(self, backend: BackendIndex) -> BackendSet {
        BackendSet(self.0 | 1_u32.checked_shl(backend.0.into()).unwrap_or(0))
    }

    /// Whether the backend is in it.
    pub fn contains(self, backend: BackendIndex) -> bool {
        self.with(backend) == self && backend.index() < MAX_CANDIDATES
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Whether a backend passed the built-in conformance set, on this device, driver and compiler version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conformance {
    /// It did.
    Passed,
    /// It did not, for this reason.
    Failed(String),
    /// It was not tried.
    Unknown,
}

/// A backend to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The backend's id.
    pub id: String,
    /// Its device.
    pub device: String,
    /// Its driver and the driver's version.
    pub driver: String,
    /// Whether it passed the conformance set.
    pub conformance: Conformance,
}

impl Candidate {
    /// The candidate with this profile.
    pub fn new(profile: &DeviceProfile, conformance: Conformance) -> Candidate {
        Candidate {
            id: profile.backend.to_owned(),
            device: profile.device_name.to_owned(),
            driver: profile.driver_version.to_owned(),
            conformance,
        }
    }
}

/// How a router behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Only verified rows of the table decide; nothing is probed, and a call without a row has no route.
    pub frozen: bool,
}

/// Where a call's buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In host memory.
    Host,
    /// Resident on a backend; to run elsewhere, so many bytes have to move there and back.
    Resident {
        /// Where they are.
        home: BackendIndex,
        /// How many bytes.
        bytes: u64,
    },
}

/// What is to be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// How many elements the call is over.
    pub elements: u64,
    /// Where its buffers are.
    pub placement: Placement,
    /// The time by any clock that does not go back; the same one for all calls and reports.
    pub now_ns: u64,
    /// The backend that the caller named.
    pub only: Option<BackendIndex>,
    /// Backends that this call has been tried on already.
    pub exclude: BackendSet,
}

impl Call {
    /// A call on buffers in host memory that any backend may take.
    pub fn new(elements: u64, now_ns: u64) -> Call {
        let exclude = BackendSet::default();
        Call { elements, placement: Placement::Host, now_ns, only: None, exclude }
    }
}

/// Why a call goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[repr(u8)]
pub enum Reason {
    /// Nothing is measured yet: the first in the order of selection that may run it.
    Selected,
    /// A verified row of the PGO table has it fastest.
    Table,
    /// It was the fastest in earlier calls.
    Measured,
    /// To find out whether it is faster.
    Probe,
    /// The caller named it.
    Named,
    /// The others were tried for this call, and failed.
    Fallback,
    /// It is in quarantine, but no other backend may run this.
    LastResort,
    /// The router is frozen, and a verified row of the PGO table says so.
    Frozen,
}

impl Reason {
    const ALL: [Reason; 8] = [
        Reason::Selected,
        Reason::Table,
        Reason::Measured,
        Reason::Probe,
        Reason::Named,
        Reason::Fallback,
        Reason::LastResort,
        Reason::Frozen,
    ];

    fn from_number(number: u8) -> Reason {
        Reason::ALL.get(usize::from(number)).copied().unwrap_or(Reason::Selected)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Selected => "nothing is measured yet; it is first in the order of selection",
            Reason::Table => "a verified row of the routing table has it fastest",
            Reason::Measured => "it was the fastest in earlier calls",
            Reason::Probe => "a probe, within the budget, to find out whether it is faster",
            Reason::Named => "the caller named it",
            Reason::Fallback => "what was tried before failed",
            Reason::LastResort => "it is in quarantine, but nothing else may run this",
            Reason::Frozen => "routing is frozen, and a verified row of the routing table says so",
        })
    }
}

/// Something to do beside the call, on another thread. Whoever gets it reports the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Compare the backend's results with the oracle's, on the program cut to at most 4,096 invocations, and report by
    /// [`ProgramRoutes::verified`].
    Verify(BackendIndex),
    /// Run what it was verified on again, compare with what the oracle gave then, and report by
    /// [`ProgramRoutes::canary`].
    Canary(BackendIndex),
}

/// Where a call goes.
#[must_use = "report what came of it"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Copied as one word: its bytes one by one would be waited for.
#[repr(align(8))]
pub struct Route {
    /// The backend.
    pub backend: BackendIndex,
    /// Why.
    pub reason: Reason,
    /// What to do beside it.
    pub background: Option<Background>,
    bucket: u8,
    home: Option<BackendIndex>,
}

/// A backend that may not run a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedBackend {
    /// The backend's id.
    pub backend: String,
    /// Why not.
    pub reason: String,
}

/// No backend may run a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoute {
    /// What the call would have run.
    pub program: String,
    /// Every backend, and why not.
    pub refused: Vec<RefusedBackend>,
    /// A backend that only lacks being verified: do that, report it, and route again.
    pub verify_first: Option<BackendIndex>,
}

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no backend may run `{}`", self.program)?;
        for (k, RefusedBackend { backend, reason }) in self.refused.iter().enumerate() {
            write!(f, "{} {backend}: {reason}", if k == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for NoRoute {}

impl From<NoRoute> for BackendError {
    fn from(none: NoRoute) -> BackendError {
        BackendError::NoUsableBackend { reasons: none.to_string() }
    }
}

/// How long a small run took, from a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Over how many elements.
    pub elements: u64,
    /// How long.
    pub elapsed_ns: u64,
}

/// Why a check of a backend's results went against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection<'a> {
    /// The results differ from the oracle's, in this way.
    Wrong(&'a str),
    /// There were no results, for this reason.
    Failed(&'a str),
}

/// What all programs of a router share.
#[derive(Debug)]
struct Shared {
    backends: Box<[SharedBackend]>,
    /// The first that passed the conformance set.
    selected: Option<BackendIndex>,
    table: PgoTable,
    policy: Policy,
}

#[derive(Debug)]
struct SharedBackend {
    candidate: Candidate,
    /// Whether its device is there at all.
    device: Standing,
    /// What moving a KiB from or to it takes.
    transfer_ns_per_kib: AtomicU64,
}

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
    /// warning. Of the table, rows count that are verified and were made by this compiler version on the devices and
    /// drivers that are there.
    pub fn new(mut candidates: Vec<Candidate>, table: &PgoTable, policy: Policy) -> Router {
        if candidates.len() > MAX_CANDIDATES {
            tracing::warn!("only the first {MAX_CANDIDATES} of {} backends are used", candidates.len());
            candidates.truncate(MAX_CANDIDATES);
        }
        let passed = candidates.iter().position(|candidate| candidate.conformance == Conformance::Passed);
        let table = rows::valid(table, &candidates);
        let backend = |candidate| SharedBackend {
            candidate,
            device: Standing::default(),
            transfer_ns_per_kib: AtomicU64::new(GUESSED_TRANSFER_NS_PER_KIB),
        };
        let shared = Shared {
            backends: candidates.into_iter().map(backend).collect(),
            selected: passed.map(|position| BackendIndex(position as u8)),
            table,
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
        let make = || Arc::new(ProgramRoutes::new(self.shared.clone(), key, fingerprint));
        programs.entry(slot).or_insert_with(make).clone()
    }

    /// All programs that routes were asked for.
    pub fn programs(&self) -> Vec<Arc<ProgramRoutes>> {
        self.programs.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The id of a backend; empty for a position past the list.
    pub fn id(&self, backend: BackendIndex) -> &str {
        self.shared.backends.get(backend.index()).map_or("", |backend| backend.candidate.id.as_str())
    }

    /// The position of a backend.
    pub fn index_of(&self, id: &str) -> Option<BackendIndex> {
        let position = self.shared.backends.iter().position(|backend| backend.candidate.id == id)?;
        Some(BackendIndex(position as u8))
    }

    /// The backends, in the order of selection.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.shared.backends.iter().map(|backend| &backend.candidate)
    }

    /// The backend that may run programs before they are verified on it.
    pub fn selected(&self) -> Option<BackendIndex> {
        self.shared.selected
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
