//! The state of one program at one size, with its buffers in one place.

use super::call::BackendIndex;
use super::probing::Burst;
use super::statistics::Statistics;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Number of size buckets: ⌊log2⌋ of a `u64` is below this.
pub(super) const BUCKETS: usize = 64;

/// Encodes "no backend"; a backend is stored as its index plus one.
pub(super) const NOBODY: u8 = 0;

/// One backend in one cell.
#[derive(Debug, Default)]
pub(super) struct Arm {
    pub(super) statistics: Statistics,
    /// The call number of the cell at which its rest ends.
    due: AtomicU64,
    /// Length of its last rest, in calls.
    rest: AtomicU64,
    /// Time of the first probe of its last burst.
    pub(super) first_probe_ns: AtomicU64,
    /// Slow calls made while vyre itself was busy, of which only some count.
    pub(super) disturbed: AtomicU64,
    /// Blocked at this size until then, because it was out of memory.
    pub(super) blocked_until_ns: AtomicU64,
}

impl Arm {
    /// Suspends probes for `calls` calls after this one, unless the backend is expected to be
    /// faster.
    pub(super) fn rest(&self, number: u64, calls: u64) {
        self.rest.store(calls, Relaxed);
        self.due.store(number.saturating_add(calls), Relaxed);
    }

    /// Length of its last rest, in calls.
    pub(super) fn rested(&self) -> u64 {
        self.rest.load(Relaxed)
    }

    /// Calls left of its current rest.
    pub(super) fn rests(&self, number: u64) -> u64 {
        self.due.load(Relaxed).saturating_sub(number)
    }
}

/// One cell. The fields that every call reads and writes share one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Cell {
    /// Completed calls.
    calls: AtomicU64,
    /// Time of all calls, and the part of it that is in the program's total.
    time_ns: AtomicU64,
    settled_ns: AtomicU64,
    /// Call number of the next look beyond the incumbent.
    pub(super) next_look: AtomicU64,
    /// Interval to the look after that one if it finds nothing to do; 0 for the default.
    pub(super) look_interval: AtomicU64,
    /// Level above which the incumbent is slower than a rival's expected level, as bits.
    rival_level: AtomicU64,
    /// Call number from which the next canary is due.
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

    /// Number of completed calls.
    #[inline]
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Counts a completed call.
    #[inline]
    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Adds the time of a call.
    #[inline]
    pub(super) fn add_time(&self, elapsed_ns: u64) {
        self.time_ns.fetch_add(elapsed_ns, Relaxed);
    }

    /// Takes the time that is not yet part of the program's total.
    pub(super) fn settle(&self) -> u64 {
        let time_ns = self.time_ns.load(Relaxed);
        time_ns.saturating_sub(self.settled_ns.fetch_max(time_ns, Relaxed))
    }

    /// The time that is not yet part of the program's total.
    pub(super) fn unsettled_ns(&self) -> u64 {
        self.time_ns.load(Relaxed).saturating_sub(self.settled_ns.load(Relaxed))
    }

    #[inline]
    pub(super) fn arm(&self, backend: BackendIndex) -> Option<&Arm> {
        self.arms.get(backend.index())
    }

    #[inline]
    pub(super) fn incumbent(&self) -> Option<BackendIndex> {
        somebody(self.incumbent.load(Relaxed))
    }

    /// The incumbent, and the number of the `Reason` for it.
    #[inline]
    pub(super) fn choice(&self) -> Option<(BackendIndex, u8)> {
        Some((self.incumbent()?, self.reason.load(Relaxed)))
    }

    pub(super) fn choose(&self, backend: BackendIndex, reason: u8) {
        self.reason.store(reason, Relaxed);
        self.incumbent.store(backend.0 + 1, Relaxed);
    }

    /// Removes the incumbent; the next call chooses another.
    pub(super) fn unseat(&self) {
        self.incumbent.store(NOBODY, Relaxed);
        self.look_now();
    }

    pub(super) fn look_now(&self) {
        self.look_interval.store(0, Relaxed);
        self.next_look.store(0, Relaxed);
    }

    /// Sets the expected level of the nearest rival; infinite if there is none.
    pub(super) fn expect_rival(&self, level: f64) {
        self.rival_level.store(level.to_bits(), Relaxed);
    }

    /// Whether an incumbent at this level is slower than a rival is expected to be, so that the
    /// next call should look.
    #[inline]
    pub(super) fn is_beaten(&self, level: f64) -> bool {
        level > f64::from_bits(self.rival_level.load(Relaxed))
    }

    /// The current burst.
    pub(super) fn burst(&self) -> Burst {
        Burst { calls: self.burst_calls.load(Relaxed), last_ns: self.burst_last_ns.load(Relaxed) }
    }

    /// The backend that has the next call of the burst.
    pub(super) fn burst_next(&self) -> Option<BackendIndex> {
        somebody(self.burst_next.load(Relaxed))
    }

    /// Takes the backend that has the next call of the burst, so that only one call gets it.
    pub(super) fn take_burst_next(&self) -> Option<BackendIndex> {
        somebody(self.burst_next.swap(NOBODY, Relaxed))
    }

    /// Continues the burst: the backend gets the next call as well.
    pub(super) fn go_on(&self, backend: BackendIndex, burst: Burst) {
        self.burst_calls.store(burst.calls, Relaxed);
        self.burst_last_ns.store(burst.last_ns, Relaxed);
        self.burst_next.store(backend.0 + 1, Relaxed);
        self.look_now();
    }

    /// Ends the burst; the next probe starts another.
    pub(super) fn end_burst(&self) {
        self.burst_calls.store(0, Relaxed);
        self.burst_next.store(NOBODY, Relaxed);
    }
}

#[inline]
pub(super) fn somebody(stored: u8) -> Option<BackendIndex> {
    stored.checked_sub(1).map(BackendIndex)
}

/// The cells of a program with its buffers in one place, created on demand.
#[derive(Debug)]
pub(super) struct Cells([OnceLock<Box<Cell>>; BUCKETS]);

impl Cells {
    pub(super) fn new() -> Cells {
        Cells([const { OnceLock::new() }; BUCKETS])
    }

    #[inline]
    pub(super) fn get(&self, bucket: u8) -> Option<&Cell> {
        self.0.get(usize::from(bucket))?.get().map(|cell| &**cell)
    }

    /// The cell of this bucket, created by `make` on first use.
    pub(super) fn get_or_make(&self, bucket: u8, make: impl FnOnce() -> Cell) -> &Cell {
        let cell = &self.0[usize::from(bucket).min(BUCKETS - 1)];
        cell.get_or_init(|| Box::new(make()))
    }

    /// The existing cells with their buckets, smallest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = (u8, &Cell)> {
        self.0.iter().enumerate().filter_map(|(bucket, cell)| Some((bucket as u8, &**cell.get()?)))
    }
}
