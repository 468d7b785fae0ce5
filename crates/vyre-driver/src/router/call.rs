//! What is routed and what comes of it: candidates, calls, routes, reasons.

/// A backend that may not run a call, and why not.
pub use crate::pgo::RejectedBackend as RefusedBackend;
use crate::{BackendError, DeviceProfile};
use serde::Serialize;
use std::fmt;

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
    /// Its driver is being met; [`Router::met`](super::Router::met) tells what came of it.
    Pending,
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

    /// A backend whose driver is being met.
    pub fn pending(id: &str) -> Candidate {
        let (device, driver) = (String::new(), String::new());
        Candidate { id: id.to_owned(), device, driver, conformance: Conformance::Pending }
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
    /// Nothing is measured yet: the first in the order of selection that may run it.
    Selected "nothing is measured yet; it is first in the order of selection";
    /// A verified row of the PGO table has it fastest.
    Table "a verified row of the routing table has it fastest";
    /// It was the fastest in earlier calls.
    Measured "it was the fastest in earlier calls";
    /// To find out whether it is faster.
    Probe "a probe, within the budget, to find out whether it is faster";
    /// The caller named it.
    Named "the caller named it";
    /// The others were tried for this call, and failed.
    Fallback "what was tried before failed";
    /// It is in quarantine, but no other backend may run this.
    LastResort "it is in quarantine, but nothing else may run this";
    /// The router is frozen, and a verified row of the PGO table says so.
    Frozen "routing is frozen, and a verified row of the routing table says so";
}

/// Something to do beside the call, on another thread. Whoever gets it reports the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Compare the backend's results with the oracle's, on the program cut to at most 4,096 invocations, and report by
    /// [`ProgramRoutes::verified`](super::ProgramRoutes::verified).
    Verify(BackendIndex),
    /// Run what it was verified on again, compare with what the oracle gave then, and report by
    /// [`ProgramRoutes::canary`](super::ProgramRoutes::canary).
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
    pub(super) bucket: u8,
    pub(super) home: Option<BackendIndex>,
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
pub enum Rejection<Reason> {
    /// The results differ from the oracle's, in this way.
    Wrong(Reason),
    /// There were no results, for this reason.
    Failed(Reason),
    /// There was nothing to tell by, for this reason: nothing speaks against the backend.
    Inconclusive(Reason),
}

impl Rejection<String> {
    /// The same, borrowed.
    pub fn as_ref(&self) -> Rejection<&str> {
        match self {
            Rejection::Wrong(reason) => Rejection::Wrong(reason),
            Rejection::Failed(reason) => Rejection::Failed(reason),
            Rejection::Inconclusive(reason) => Rejection::Inconclusive(reason),
        }
    }
}
