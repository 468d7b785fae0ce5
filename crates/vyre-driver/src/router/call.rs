//! The vocabulary of routing: candidates, calls, routes, reasons.

/// A backend that may not run a call, and the reason.
pub use crate::pgo::RejectedBackend as RefusedBackend;
use crate::{BackendError, DeviceProfile};
use serde::Serialize;
use std::fmt;

/// Maximum number of backends per router: the bits of a [`BackendSet`].
pub const MAX_CANDIDATES: usize = 32;

/// A backend's index in the router's list, which is in selection order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BackendIndex(pub u8);

impl BackendIndex {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendSet(u32);

impl BackendSet {
    /// This set with one more backend.
    #[must_use]
    pub fn with(self, backend: BackendIndex) -> BackendSet {
        BackendSet(self.0 | 1_u32.checked_shl(backend.0.into()).unwrap_or(0))
    }

    /// Whether the set contains the backend.
    pub fn contains(self, backend: BackendIndex) -> bool {
        self.with(backend) == self && backend.index() < MAX_CANDIDATES
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Result of the built-in conformance set for a backend, on this device, driver and compiler
/// version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conformance {
    /// It passed.
    Passed,
    /// It failed, for this reason.
    Failed(String),
    /// It was not run.
    Unknown,
    /// The driver is still being opened; [`Router::met`](super::Router::met) reports the result.
    Pending,
}

/// A backend to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The backend's id.
    pub id: String,
    /// Its device.
    pub device: String,
    /// Its driver and driver version.
    pub driver: String,
    /// Its result on the conformance set.
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

    /// A backend whose driver is still being opened.
    pub fn pending(id: &str) -> Candidate {
        let (device, driver) = (String::new(), String::new());
        Candidate { id: id.to_owned(), device, driver, conformance: Conformance::Pending }
    }
}

/// Options for a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Route by verified rows of the table only: nothing is probed, and a call without a row has no
    /// route.
    pub frozen: bool,
}

/// Where a call's buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In host memory.
    Host,
    /// Resident on a backend; to run elsewhere, the bytes must be transferred there and back.
    Resident {
        /// The backend that holds them.
        home: BackendIndex,
        /// Their size in bytes.
        bytes: u64,
    },
}

/// A call to route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRequest {
    /// Number of elements that the call covers.
    pub elements: u64,
    /// Where its buffers are.
    pub placement: Placement,
    /// The time by any monotonic clock; the same one for all calls and reports.
    pub now_ns: u64,
    /// The backend that the caller named.
    pub only: Option<BackendIndex>,
    /// Backends that were already tried for this call.
    pub exclude: BackendSet,
    /// The caller's time limit; `u64::MAX` without one.
    pub limit_ns: u64,
}

impl RouteRequest {
    /// A call on buffers in host memory that can go to any backend.
    pub fn new(elements: u64, now_ns: u64) -> RouteRequest {
        let exclude = BackendSet::default();
        RouteRequest { elements, placement: Placement::Host, now_ns, only: None, exclude, limit_ns: u64::MAX }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal;)*) => {
        /// Why a call goes where it goes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            pub(super) fn from_number(number: u8) -> Reason {
                [$(Reason::$name),*].get(usize::from(number)).copied().unwrap_or(Reason::Selected)
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Reason::$name => $text,)* })
            }
        }
    };
}

reasons! {
    /// Nothing is measured yet: the first eligible backend in selection order.
    Selected "nothing is measured yet; it is first in the order of selection";
    /// The fastest by a verified row of the PGO table.
    Table "it is the fastest in a verified row of the routing table";
    /// The fastest in earlier calls.
    Measured "it was the fastest in earlier calls";
    /// A probe, to find out whether it is faster.
    Probe "a probe, within the budget, to find out whether it is faster";
    /// The caller named it.
    Named "the caller named it";
    /// The other backends were tried for this call and failed.
    Fallback "the backends tried before it failed";
    /// It is quarantined, but no other backend may run this.
    LastResort "it is in quarantine, but no other backend may run this";
    /// Routing is frozen, and a verified row of the PGO table selects it.
    Frozen "routing is frozen, and a verified row of the routing table names it";
}

/// Work to do on another thread, alongside the call. Its recipient reports the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Compare the backend's results with the oracle's, on the program cut to at most 4,096
    /// invocations, and report to [`ProgramRoutes::verified`](super::ProgramRoutes::verified).
    Verify(BackendIndex),
    /// Repeat the run that it was verified on, compare with the oracle's saved results, and report
    /// to [`ProgramRoutes::canary`](super::ProgramRoutes::canary).
    Canary(BackendIndex),
}

/// The backend for a call, and why.
#[must_use = "report the outcome"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Copied as one word: loading the fields byte by byte would stall.
#[repr(align(8))]
pub struct Route {
    /// The backend to run on.
    pub backend: BackendIndex,
    /// Why it was chosen.
    pub reason: Reason,
    /// Work to do alongside the call.
    pub background: Option<Background>,
    pub(super) bucket: u8,
    pub(super) home: Option<BackendIndex>,
}

/// Error: no backend may run a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoute {
    /// The program of the call.
    pub program: String,
    /// Every backend, and why it was refused.
    pub refused: Vec<RefusedBackend>,
    /// A backend that lacks only a verification: verify it, report the outcome, and route again.
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

/// The time of a small run, from a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Number of elements in the run.
    pub elements: u64,
    /// Time of the run.
    pub elapsed_ns: u64,
}

/// Why a check of a backend's results did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The results differ from the oracle's; how.
    Wrong(String),
    /// The run failed, for this reason.
    Failed(String),
    /// The check decided nothing, for this reason; it does not count against the backend.
    Inconclusive(String),
}
