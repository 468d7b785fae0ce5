//! Small calls with the results that are right, to compare backends on.

use crate::catalogue::Plan;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vyre_driver::{DispatchConfig, OutputBuffers};

/// What is kept of a call to make small calls of.
pub(crate) struct Sample {
    /// The size that the caller gave, of an op.
    pub(crate) size: u32,
    /// One per buffer that a call binds.
    pub(crate) buffers: Vec<Start>,
}

/// What a buffer of a call starts with.
pub(crate) struct Start {
    /// Empty where the call does not read it.
    pub(crate) bytes: Vec<u8>,
    /// How many bytes the call gave.
    pub(crate) given: usize,
}

/// A small call.
pub(crate) struct KnownResult {
    /// One per buffer that a call binds: what it holds before.
    pub(crate) memory: Vec<Vec<u8>>,
    /// How it is run.
    pub(crate) config: DispatchConfig,
    pub(crate) elements: u64,
    /// The plan to run, of an op.
    pub(crate) plan: Option<Plan>,
}

/// A small call, and what the interpreter gives for it.
pub(crate) struct Judged {
    pub(crate) exhibit: KnownResult,
    /// The outputs, or the code with which the kernel traps.
    pub(crate) outcome: Result<OutputBuffers, u32>,
}

/// The subgroup size that the interpreter has to use to be comparable, where it matters.
pub(crate) type Lanes = Option<u32>;

/// What a routine is verified on: renewed from time to time, so that a backend cannot be right by chance for long.
#[derive(Default)]
pub(crate) struct Evidence {
    /// Of a call that came after the one in use.
    next: Mutex<Option<Sample>>,
    used: Mutex<Used>,
}

/// The sample in use, and the calls that were judged on it.
#[derive(Clone, Default)]
pub(crate) struct Used {
    pub(crate) sample: Option<Arc<Sample>>,
    pub(crate) judged: BTreeMap<Lanes, Result<Arc<Judged>, String>>,
}

impl Evidence {
    /// Offers a sample of the call that is about to run.
    pub(crate) fn offer(&self, sample: Sample) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    /// Puts the newest sample in use, if there is one that was not used yet.
    pub(crate) fn renew(&self) {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sample) = next {
            let used = Used { sample: Some(Arc::new(sample)), judged: BTreeMap::new() };
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
        }
    }

    pub(crate) fn used(&self) -> Used {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what was judged on a sample, unless another one is in use by now.
    pub(crate) fn keep(&self, sample: &Arc<Sample>, lanes: Lanes, judged: Result<Arc<Judged>, String>) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.sample.as_ref().is_some_and(|present| Arc::ptr_eq(present, sample)) {
            used.judged.insert(lanes, judged);
        }
    }
}

/// Under `Fallback::Allow`, spot checks may take one part in so many of the time of the calls.
const SPOT_SHARE: u64 = 4;

/// A check small enough to be made before a call returns.
pub(crate) struct Spot {
    pub(crate) judged: Judged,
    /// What it takes.
    cost_ns: AtomicU64,
    /// The share of the calls' time that was not used for it yet.
    saved_ns: AtomicU64,
}

impl Spot {
    pub(crate) fn new(judged: Judged, cost_ns: u64) -> Spot {
        Spot { judged, cost_ns: AtomicU64::new(cost_ns), saved_ns: AtomicU64::new(0) }
    }

    /// Whether it is due after a call that took so long, within the time that the call has left.
    pub(crate) fn is_due(&self, elapsed_ns: u64, left: Option<Duration>) -> bool {
        let (share, cost) = (elapsed_ns / SPOT_SHARE, self.cost_ns.load(Relaxed));
        let saved = self.saved_ns.fetch_add(share, Relaxed).saturating_add(share);
        let due = saved >= cost && left.is_none_or(|left| left > Duration::from_nanos(cost));
        if due {
            self.saved_ns.store(0, Relaxed);
        }
        due
    }

    /// What it took; whatever else the machine does only ever makes it slower.
    pub(crate) fn took(&self, elapsed_ns: u64) {
        self.cost_ns.fetch_min(elapsed_ns, Relaxed);
    }
}
