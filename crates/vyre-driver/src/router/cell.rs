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
/// The most calls between two looks beyond the incumbent.
pub(super) const LONGEST_LOOK_INTERVAL: u64 = 128;
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
    /// Calls that were slow beside other work, of which only some count.
    pub(super) disturbed: AtomicU64,
    /// Until when it may not run this size: it was out of memory.
    pub(super) blocked_until_ns: AtomicU64,
}

/// The most calls of one burst before it is clear what the backend takes, and of all.
const WARMING_CALLS: u64 = 4;
const BURST_CALLS: u64 = 8;
/// A call that took less than this part of the one before it is still warming up.
const WARMING_UP: f64 = 0.9;
/// The same of one that takes more than there is to spend.
const STILL_COLD: f64 = 0.6;
/// One that took less than so many times what it has to beat may be so by chance.
const NEAR: f64 = 1.5;

/// Probes one after the other. A backend that was idle pays for threads that sleep and caches that hold what another backend
/// worked on; what its calls would take if it got all of them, only the later calls of a burst tell.
#[derive(Debug, Default)]
pub(super) struct Burst {
    calls: AtomicU64,
    /// What the last two calls took, the last one first.
    last_ns: [AtomicU64; 2],
    /// The position of the backend that has the next call as well, plus one; 0 if none has.
    next: AtomicU64,
}

/// A call of a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct BurstCall {
    pub(super) backend: BackendIndex,
    pub(super) elapsed_ns: u64,
    /// What the incumbent takes.
    pub(super) to_beat_ns: f64,
    /// What another call like this one may cost.
    pub(super) budget_ns: f64,
    /// Whether it may cost more as long as it becomes much faster with each.
    pub(super) may_be_cold: bool,
}

/// What a call of a burst says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BurstStep {
    /// Nothing yet: the next call may be faster.
    Warming,
    /// It beat the incumbent; more calls cost nothing, and make sure.
    Winning,
    /// The burst is over, and this is what the backend takes.
    Over { usual_ns: u64 },
}

impl Burst {
    pub(super) fn add(&self, call: BurstCall) -> BurstStep {
        let BurstCall { backend, elapsed_ns, to_beat_ns, budget_ns, may_be_cold } = call;
        let calls = self.calls.load(Relaxed) + 1;
        let price = elapsed_ns as f64 - to_beat_ns;
        let [last, before] = [0, 1].map(|k| self.last_ns[k].load(Relaxed));
        let (elapsed, near) = (elapsed_ns as f64, NEAR * to_beat_ns);
        let unclear = calls == 1 || elapsed < WARMING_UP * last as f64 || elapsed < near;
        let cold = may_be_cold && (calls == 1 || elapsed < STILL_COLD * last as f64);
        let step = if price < 0.0 && calls < BURST_CALLS {
            BurstStep::Winning
        } else if price >= 0.0 && calls < WARMING_CALLS && (cold || (unclear && price <= budget_ns)) {
            BurstStep::Warming
        } else {
            // The first call warmed up; of three others that is the middle one.
            let middle = elapsed_ns.max(last.min(before)).min(last.max(before));
            BurstStep::Over { usual_ns: if calls < WARMING_CALLS { elapsed_ns } else { middle } }
        };
        let goes_on = matches!(step, BurstStep::Warming | BurstStep::Winning);
        self.calls.store(if goes_on { calls } else { 0 }, Relaxed);
        self.last_ns[1].store(last, Relaxed);
        self.last_ns[0].store(elapsed_ns, Relaxed);
        self.next.store(if goes_on { u64::from(backend.0) + 1 } else { 0 }, Relaxed);
        step
    }

    /// The backend that has the next call as well; asked for once.
    pub(super) fn take_next(&self) -> Option<BackendIndex> {
        match self.next.swap(0, Relaxed) {
            0 => None,
            next => Some(BackendIndex((next - 1) as u8)),
        }
    }

    /// Whatever comes next is another burst.
    pub(super) fn end(&self) {
        self.calls.store(0, Relaxed);
        self.next.store(0, Relaxed);
    }
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
    /// How many calls later the look after that one is, if it finds nothing to do; 0 for as usual.
    pub(super) look_interval: AtomicU64,
    /// The number of the call from which on the incumbent may be checked again.
    pub(super) canary_due: AtomicU64,
    pub(super) burst: Burst,
    /// Whether the incumbent slowed down and no probe told since whether another is faster.
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
            look_interval: AtomicU64::new(0),
            canary_due: AtomicU64::new(0),
            burst: Burst::default(),
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
        self.look_interval.store(0, Relaxed);
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
