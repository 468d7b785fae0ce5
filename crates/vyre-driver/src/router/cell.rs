//! What is known of one program at one size, with its buffers in one place.

use super::call::BackendIndex;
use super::probing::Burst;
use super::statistics::Statistics;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Sizes are `u64`, so ⌊log2⌋ is below this.
pub(super) const BUCKETS: usize = 64;

/// No backend, where one is stored as its position and one.
pub(super) const NOBODY: u8 = 0;

/// One backend in one cell.
#[derive(Debug, Default)]
pub(super) struct Arm {
    pub(super) statistics: Statistics,
    /// The number of the cell's call from which on it may be probed again.
    due: AtomicU64,
    /// How many calls its last rest took.
    rest: AtomicU64,
    /// What the first probe of its last burst took.
    pub(super) first_probe_ns: AtomicU64,
    /// Calls that were slow beside other work, of which only some count.
    pub(super) disturbed: AtomicU64,
    /// Until when it may not run this size: it was out of memory.
    pub(super) blocked_until_ns: AtomicU64,
}

impl Arm {
    /// Is not probed for so many calls after this one, unless it is expected to be faster.
    pub(super) fn rest(&self, number: u64, calls: u64) {
        self.rest.store(calls, Relaxed);
        self.due.store(number.saturating_add(calls), Relaxed);
    }

    /// How many calls its last rest took.
    pub(super) fn rested(&self) -> u64 {
        self.rest.load(Relaxed)
    }

    /// How many calls of its rest are left.
    pub(super) fn rests(&self, number: u64) -> u64 {
        self.due.load(Relaxed).saturating_sub(number)
    }
}

/// One cell. What every call reads and writes is on one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Cell {
    /// Calls that were done.
    pub(super) calls: AtomicU64,
    /// Their time that is not yet part of the program's total.
    pub(super) unsettled_ns: AtomicU64,
    /// The number of the call that has to look at more than the incumbent.
    pub(super) next_look: AtomicU64,
    /// How many calls later the look after that one is, if it finds nothing to do; 0 for as usual.
    pub(super) look_interval: AtomicU64,
    /// The level above which the incumbent is slower than a rival is expected to be, as bits.
    rival_level: AtomicU64,
    /// The number of the call from which on the incumbent may be checked again.
    pub(super) canary_due: AtomicU64,
    burst_calls: AtomicU64,
    burst_last_ns: AtomicU64,
    /// The backend that has the next call of the burst.
    burst_next: AtomicU8,
    incumbent: AtomicU8,
    reason: AtomicU8,
    pub(super) arms: Box<[Arm]>,
}

impl Cell {
    pub(super) fn new(backends: usize) -> Cell {
        let arms = (0..backends).map(|_| Arm::default()).collect();
        Cell { arms, rival_level: AtomicU64::new(f64::INFINITY.to_bits()), ..Cell::default() }
    }

    pub(super) fn arm(&self, backend: BackendIndex) -> Option<&Arm> {
        self.arms.get(backend.index())
    }

    pub(super) fn incumbent(&self) -> Option<BackendIndex> {
        somebody(self.incumbent.load(Relaxed))
    }

    /// The incumbent and the number of the reason for it.
    pub(super) fn choice(&self) -> Option<(BackendIndex, u8)> {
        Some((self.incumbent()?, self.reason.load(Relaxed)))
    }

    pub(super) fn choose(&self, backend: BackendIndex, reason: u8) {
        self.reason.store(reason, Relaxed);
        self.incumbent.store(backend.0 + 1, Relaxed);
    }

    /// Leaves the choice to the next call.
    pub(super) fn unseat(&self) {
        self.incumbent.store(NOBODY, Relaxed);
        self.look_now();
    }

    pub(super) fn look_now(&self) {
        self.look_interval.store(0, Relaxed);
        self.next_look.store(0, Relaxed);
    }

    /// The nearest rival's expected level; infinite if there is none.
    pub(super) fn expect_rival(&self, level: f64) {
        self.rival_level.store(level.to_bits(), Relaxed);
    }

    /// Whether an incumbent at this level is slower than a rival is expected to be, and the next call should look.
    pub(super) fn is_beaten(&self, level: f64) -> bool {
        level > f64::from_bits(self.rival_level.load(Relaxed))
    }

    /// The burst under way.
    pub(super) fn burst(&self) -> Burst {
        Burst { calls: self.burst_calls.load(Relaxed), last_ns: self.burst_last_ns.load(Relaxed) }
    }

    /// The backend that has the next call of the burst.
    pub(super) fn burst_next(&self) -> Option<BackendIndex> {
        somebody(self.burst_next.load(Relaxed))
    }

    /// The same, asked for once.
    pub(super) fn take_burst_next(&self) -> Option<BackendIndex> {
        somebody(self.burst_next.swap(NOBODY, Relaxed))
    }

    /// The backend has the next call as well.
    pub(super) fn go_on(&self, backend: BackendIndex, burst: Burst) {
        self.burst_calls.store(burst.calls, Relaxed);
        self.burst_last_ns.store(burst.last_ns, Relaxed);
        self.burst_next.store(backend.0 + 1, Relaxed);
        self.look_now();
    }

    /// Whatever comes next is another burst.
    pub(super) fn end_burst(&self) {
        self.burst_calls.store(0, Relaxed);
        self.burst_next.store(NOBODY, Relaxed);
    }
}

pub(super) fn somebody(stored: u8) -> Option<BackendIndex> {
    stored.checked_sub(1).map(BackendIndex)
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
