//! What is known of one program at one size, with its buffers in one place.

use super::BackendIndex;
use super::statistics::Statistics;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

/// Sizes are `u64`, so ⌊log2⌋ is below this.
pub(super) const BUCKETS: usize = 64;

/// No incumbent yet.
const NOBODY: u8 = u8::MAX;

/// The calls between two probes of a backend that is about as fast as the incumbent.
pub(super) const SHORT_INTERVAL: u64 = 8;
/// The calls between two probes of one that was slower every time.
pub(super) const LONG_INTERVAL: u64 = 256;
/// What was known before so many calls is stale.
pub(super) const STALE_INTERVAL: u64 = 64;

/// One backend in one cell.
#[derive(Debug, Default)]
pub(super) struct Arm {
    pub(super) statistics: Statistics,
    /// The number of the cell's call from which on it may be probed again.
    pub(super) due: AtomicU64,
    /// How many calls lie between its probes.
    pub(super) interval: AtomicU64,
    /// Until when it may not run this size: it was out of memory.
    pub(super) blocked_until_ns: AtomicU64,
}

/// One cell. What every call reads and writes is on one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Cell {
    /// Calls that were done.
    pub(super) calls: AtomicU64,
    /// Their time that is not yet part of the program's total.
    pub(super) unsettled_ns: AtomicU64,
    /// The number of the call that has to look at more than the incumbent.
    pub(super) next_look: AtomicU64,
    /// The number of the call from which on the incumbent may be checked again.
    pub(super) canary_due: AtomicU64,
    /// Whether the incumbent slowed down and nothing was probed since.
    pub(super) shaken: AtomicBool,
    incumbent: AtomicU8,
    reason: AtomicU8,
    pub(super) arms: Box<[Arm]>,
}

impl Cell {
    pub(super) fn new(backends: usize) -> Cell {
        Cell {
            calls: AtomicU64::new(0),
            unsettled_ns: AtomicU64::new(0),
            next_look: AtomicU64::new(0),
            canary_due: AtomicU64::new(0),
            shaken: AtomicBool::new(false),
            incumbent: AtomicU8::new(NOBODY),
            reason: AtomicU8::new(0),
            arms: (0..backends).map(|_| Arm::default()).collect(),
        }
    }

    pub(super) fn arm(&self, backend: BackendIndex) -> Option<&Arm> {
        self.arms.get(backend.index())
    }

    pub(super) fn incumbent(&self) -> Option<BackendIndex> {
        let incumbent = self.incumbent.load(Relaxed);
        (incumbent != NOBODY).then_some(BackendIndex(incumbent))
    }

    /// The incumbent and the number of the reason for it.
    pub(super) fn choice(&self) -> Option<(BackendIndex, u8)> {
        Some((self.incumbent()?, self.reason.load(Relaxed)))
    }

    pub(super) fn choose(&self, backend: BackendIndex, reason: u8) {
        self.reason.store(reason, Relaxed);
        self.incumbent.store(backend.0, Relaxed);
    }

    /// Leaves the choice to the next call.
    pub(super) fn unseat(&self) {
        self.incumbent.store(NOBODY, Relaxed);
        self.look_now();
    }

    pub(super) fn look_now(&self) {
        self.next_look.store(0, Relaxed);
    }
}

/// The cells of a program with its buffers in one place, made as they are needed.
#[derive(Debug)]
pub(super) struct Cells([OnceLock<Box<Cell>>; BUCKETS]);

impl Cells {
    pub(super) fn new() -> Cells {
        Cells([const { OnceLock::new() }; BUCKETS])
    }

    pub(super) fn get(&self, bucket: u8) -> Option<&Cell> {
        self.0.get(usize::from(bucket))?.get().map(|cell| &**cell)
    }

    /// The cell of this bucket; `make` makes it.
    pub(super) fn get_or_make(&self, bucket: u8, make: impl FnOnce() -> Cell) -> &Cell {
        let slot = &self.0[usize::from(bucket).min(BUCKETS - 1)];
        slot.get_or_init(|| Box::new(make()))
    }

    /// The cells there are, with their buckets, the smallest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = (u8, &Cell)> {
        self.0.iter().enumerate().filter_map(|(bucket, cell)| Some((bucket as u8, &**cell.get()?)))
    }
}
