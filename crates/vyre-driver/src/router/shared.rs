//! State shared by all programs of a router: its backends, the table, the policy.

use super::call::{BackendIndex, Candidate, Conformance, Policy};
use super::cell::somebody;
use super::trust::Trust;
use crate::pgo::{PgoTable, RouteDecision};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// State shared by all programs of a router.
#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) backends: Box<[SharedBackend]>,
    /// The selected backend, stored as its index plus one: the first that passed the conformance
    /// set.
    pub(super) selected: AtomicU8,
    pub(super) table: PgoTable,
    pub(super) policy: Policy,
}

impl RouterState {
    /// The backend that may run programs before they are verified on it.
    #[inline]
    pub(super) fn selected(&self) -> Option<BackendIndex> {
        somebody(self.selected.load(Relaxed))
    }

    pub(super) fn index_of(&self, id: &str) -> Option<BackendIndex> {
        let position = self.backends.iter().position(|backend| backend.candidate().id == id)?;
        Some(BackendIndex(position as u8))
    }

    pub(super) fn candidate(&self, backend: BackendIndex) -> &Candidate {
        self.backends[backend.index()].candidate()
    }

    /// Whether the backend is listed and passed the conformance set.
    pub(super) fn conforms(&self, backend: BackendIndex) -> bool {
        let backend = self.backends.get(backend.index());
        backend.is_some_and(|backend| backend.candidate().conformance == Conformance::Passed)
    }

    /// Whether a row applies to a conforming backend's current device and driver.
    pub(super) fn holds(&self, row: &RouteDecision, backend: BackendIndex) -> bool {
        let Candidate { id, device, driver, .. } = self.candidate(backend);
        self.conforms(backend) && row.identity_of(id) == Some((device, driver))
    }
}

#[derive(Debug)]
pub(super) struct SharedBackend {
    pub(super) listed: Candidate,
    /// The identity reported for a backend that was listed as pending.
    pub(super) met: OnceLock<Candidate>,
    /// Whether its device is available at all.
    pub(super) device: Trust,
    /// Time to transfer one KiB to or from it.
    pub(super) transfer_ns_per_kib: AtomicU64,
}

impl SharedBackend {
    pub(super) fn candidate(&self) -> &Candidate {
        self.met.get().unwrap_or(&self.listed)
    }
}
