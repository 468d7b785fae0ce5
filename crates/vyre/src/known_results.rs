//! Small calls with known results, to compare backends on.

use crate::catalogue::Plan;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vyre_driver::{DispatchConfig, OutputBuffers};

/// Parts of a call, kept to make small calls from.
pub(crate) struct CallSample {
    /// The caller's size, for an op.
    pub(crate) size: u32,
    /// One per buffer that a call binds.
    pub(crate) buffers: Vec<BufferSample>,
}

/// Initial contents of a call's buffer.
pub(crate) struct BufferSample {
    /// Empty if the call does not read it, or the contents were not copied.
    pub(crate) bytes: Vec<u8>,
    /// Length of the buffer in the call, in bytes.
    pub(crate) given: usize,
}

/// A small call.
pub(crate) struct SmallCall {
    /// Initial contents, one per buffer that a call binds.
    pub(crate) memory: Vec<Vec<u8>>,
    /// The configuration to run it with.
    pub(crate) config: DispatchConfig,
    pub(crate) elements: u64,
    /// The plan to run, for an op.
    pub(crate) plan: Option<Plan>,
}

/// A small call with the interpreter's result.
pub(crate) struct KnownResult {
    pub(crate) small_call: SmallCall,
    /// The outputs, or the code with which the kernel traps.
    pub(crate) outcome: Result<OutputBuffers, u32>,
}

/// The subgroup size that the interpreter has to use for a comparable result, where it matters.
pub(crate) type Lanes = Option<u32>;

/// Data that a routine is verified on: renewed from time to time, so that a backend cannot be right
/// by chance for long.
#[derive(Default)]
pub(crate) struct Evidence {
    /// A sample of a call later than the one in use.
    next: Mutex<Option<CallSample>>,
    used: Mutex<Used>,
}

/// The sample in use, with the results known for it.
#[derive(Clone, Default)]
pub(crate) struct Used {
    pub(crate) sample: Option<Arc<CallSample>>,
    pub(crate) known: BTreeMap<Lanes, Result<Arc<KnownResult>, String>>,
}

impl Evidence {
    /// Offers a sample of the call that is about to run.
    pub(crate) fn offer(&self, sample: CallSample) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    /// Puts the newest sample in use, if it was not used yet.
    pub(crate) fn renew(&self) {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sample) = next {
            let used = Used { sample: Some(Arc::new(sample)), known: BTreeMap::new() };
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
        }
    }

    pub(crate) fn used(&self) -> Used {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a result for a sample, unless another sample is in use by now.
    pub(crate) fn keep(
        &self,
        sample: &Arc<CallSample>,
        lanes: Lanes,
        known: Result<Arc<KnownResult>, String>,
    ) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.sample.as_ref().is_some_and(|present| Arc::ptr_eq(present, sample)) {
            used.known.insert(lanes, known);
        }
    }
}

/// Under `Fallback::Allow`, spot checks take at most one part in this many of the calls' time:
/// calls four times as long as a check are checked every time.
const SPOT_SHARE: u64 = 4;

/// A check small enough to run before a call returns.
pub(crate) struct Spot {
    pub(crate) known: KnownResult,
    /// Cost of the check.
    cost_ns: AtomicU64,
    /// Share of the calls' time not yet spent on the check.
    saved_ns: AtomicU64,
}

impl Spot {
    pub(crate) fn new(known: KnownResult, cost_ns: u64) -> Spot {
        Spot { known, cost_ns: AtomicU64::new(cost_ns), saved_ns: AtomicU64::new(0) }
    }

    /// Whether the check is due after a call that took this long, and fits in the time left to the
    /// call.
    pub(crate) fn is_due(&self, elapsed_ns: u64, left: Option<Duration>) -> bool {
        let (share, cost) = (elapsed_ns / SPOT_SHARE, self.cost_ns.load(Relaxed));
        let saved = self.saved_ns.fetch_add(share, Relaxed).saturating_add(share);
        let due = saved >= cost && left.is_none_or(|left| left > Duration::from_nanos(cost));
        if due {
            self.saved_ns.store(0, Relaxed);
        }
        due
    }

    /// Records the duration of a check. Other load only ever makes it slower, so the minimum
    /// counts.
    pub(crate) fn took(&self, elapsed_ns: u64) {
        self.cost_ns.fetch_min(elapsed_ns, Relaxed);
    }
}
