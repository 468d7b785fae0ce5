//! Hot-path hints: a bounded record of the cost of each kernel region.
//!
//! A hint affects only performance, never results. Records are stored in a vector of slots, linked
//! into a doubly linked list from the most to the least recently recorded, with a hash table that
//! indexes the slots. A hit updates its slot in place and moves it to the front; a new region at
//! capacity reuses the last slot. Both are O(1), and a hit does not allocate. A single mutex guards
//! all state, so counts are exact across threads.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Regions that a record holds by default: several times the kernel files of the benchmarks (71).
const DEFAULT_CAPACITY: usize = 256;
/// The mean time from which a region is hot by default: five hundred times what routing a call
/// costs (0.2 µs).
const DEFAULT_HOT_THRESHOLD_NS: u64 = 100_000;

/// The accumulated cost of one region. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionRecord {
    /// The number of dispatches.
    pub dispatch_count: u64,
    /// Total time in nanoseconds.
    pub kernel_ns_total: u64,
    /// Time of the slowest dispatch in nanoseconds.
    pub kernel_ns_max: u64,
    /// Total bytes accessed.
    pub bytes_total: u64,
}

impl RegionRecord {
    /// Mean time per dispatch in nanoseconds; 0 without dispatches.
    pub fn mean_kernel_ns(&self) -> u64 {
        self.kernel_ns_total.checked_div(self.dispatch_count).unwrap_or(0)
    }

    /// Mean bytes accessed per dispatch; 0 without dispatches.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes_total.checked_div(self.dispatch_count).unwrap_or(0)
    }

    fn add(&mut self, other: RegionRecord) {
        self.dispatch_count = self.dispatch_count.saturating_add(other.dispatch_count);
        self.kernel_ns_total = self.kernel_ns_total.saturating_add(other.kernel_ns_total);
        self.kernel_ns_max = self.kernel_ns_max.max(other.kernel_ns_max);
        self.bytes_total = self.bytes_total.saturating_add(other.bytes_total);
    }
}

/// A bounded record of region costs; at capacity the least recently recorded region is evicted.
///
/// ```
/// use vyre_foundation::hints::HotPathHints;
/// let hints = HotPathHints::default().with_hot_threshold_ns(1_000);
/// hints.record("blas.saxpy", 1_500, 4096);
/// assert!(hints.is_hot("blas.saxpy"));
/// assert!(!hints.is_hot("never.seen"));
/// ```
pub struct HotPathHints {
    capacity: usize,
    hot_threshold_ns: u64,
    hasher: DefaultHashBuilder,
    regions: Mutex<Regions>,
}

impl HotPathHints {
    /// Creates a record for up to `capacity` regions, allocated on demand; 0 records nothing.
    pub fn with_capacity(capacity: usize) -> HotPathHints {
        HotPathHints {
            // The largest number is not a slot: it terminates the list.
            capacity: capacity.min(NONE as usize),
            hot_threshold_ns: DEFAULT_HOT_THRESHOLD_NS,
            hasher: DefaultHashBuilder::default(),
            regions: Mutex::new(Regions::default()),
        }
    }

    /// Sets the mean time from which a region is hot; 100 000 ns by default.
    #[must_use]
    pub fn with_hot_threshold_ns(mut self, threshold: u64) -> HotPathHints {
        self.hot_threshold_ns = threshold;
        self
    }

    /// Records one dispatch of `region`.
    pub fn record(&self, region: &str, kernel_ns: u64, bytes_touched: u64) {
        let dispatch = RegionRecord {
            dispatch_count: 1,
            kernel_ns_total: kernel_ns,
            kernel_ns_max: kernel_ns,
            bytes_total: bytes_touched,
        };
        self.absorb(region, dispatch);
    }

    /// Adds an existing record of `region` as one update; a record without dispatches adds nothing.
    ///
    /// Absorbing the output of [`records`](HotPathHints::records) in order restores it.
    pub fn absorb(&self, region: &str, record: RegionRecord) {
        if self.capacity > 0 && record.dispatch_count > 0 {
            let key = self.key(region);
            self.lock().add(key, record, self.capacity);
        }
    }

    /// Whether the region's mean time per dispatch is at least the threshold; `false` without a
    /// record.
    pub fn is_hot(&self, region: &str) -> bool {
        self.record_for(region).is_some_and(|record| record.mean_kernel_ns() >= self.hot_threshold_ns)
    }

    /// The number of recorded dispatches of the region.
    pub fn dispatch_count(&self, region: &str) -> u64 {
        self.record_for(region).unwrap_or_default().dispatch_count
    }

    /// The region's mean time per dispatch in nanoseconds; 0 without a record.
    pub fn mean_kernel_ns(&self, region: &str) -> u64 {
        self.record_for(region).unwrap_or_default().mean_kernel_ns()
    }

    /// The region's record. A lookup does not affect eviction order.
    pub fn record_for(&self, region: &str) -> Option<RegionRecord> {
        let key = self.key(region);
        let regions = self.lock();
        regions.find(key).map(|slot| regions.slots[slot as usize].record)
    }

    /// The number of regions with a record.
    pub fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// Whether no region has a record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A snapshot of all records, the least recently recorded region first.
    pub fn records(&self) -> Vec<(String, RegionRecord)> {
        self.lock().oldest_first().map(|slot| (slot.region.to_string(), slot.record)).collect()
    }

    /// A snapshot of all records, the region with the highest total time first; ties are ordered by
    /// name.
    pub fn ranked(&self) -> Vec<(String, RegionRecord)> {
        let mut records = self.records();
        records.sort_by(|(a_region, a), (b_region, b)| {
            b.kernel_ns_total.cmp(&a.kernel_ns_total).then_with(|| a_region.cmp(b_region))
        });
        records
    }

    fn key<'a>(&self, region: &'a str) -> RegionKey<'a> {
        RegionKey { region, hash: self.hasher.hash_one(region) }
    }

    /// Code under the lock never panics, so the records are intact even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HotPathHints {
    fn default() -> HotPathHints {
        HotPathHints::with_capacity(DEFAULT_CAPACITY)
    }
}

impl Clone for HotPathHints {
    /// Clones a snapshot of the records; the two are independent afterwards.
    fn clone(&self) -> HotPathHints {
        HotPathHints {
            capacity: self.capacity,
            hot_threshold_ns: self.hot_threshold_ns,
            hasher: self.hasher.clone(),
            regions: Mutex::new(self.lock().clone()),
        }
    }
}

impl fmt::Debug for HotPathHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotPathHints")
            .field("capacity", &self.capacity)
            .field("hot_threshold_ns", &self.hot_threshold_ns)
            .field("len", &self.len())
            .finish()
    }
}

/// The end of the list, in either direction.
const NONE: u32 = u32::MAX;

/// Fits in one cache line: a hit on a region that is not the newest touches three of these.
#[derive(Clone)]
struct RegionSlot {
    region: Box<str>,
    record: RegionRecord,
    hash: u64,
    newer: u32,
    older: u32,
}

/// A region and its hash, which is computed outside the lock.
#[derive(Clone, Copy)]
struct RegionKey<'a> {
    region: &'a str,
    hash: u64,
}

#[derive(Clone)]
struct Regions {
    /// Finds a region's slot by its hash.
    table: HashTable<u32>,
    slots: Vec<RegionSlot>,
    newest: u32,
    oldest: u32,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { table: HashTable::new(), slots: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl Regions {
    fn find(&self, key: RegionKey<'_>) -> Option<u32> {
        self.table.find(key.hash, |&slot| *self.slots[slot as usize].region == *key.region).copied()
    }

    fn add(&mut self, key: RegionKey<'_>, record: RegionRecord, capacity: usize) {
        let slot = match self.find(key) {
            Some(slot) => slot,
            None => self.slot_for_new(key, capacity),
        };
        self.slots[slot as usize].record.add(record);
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    /// A slot for a new region: a fresh one, or at capacity that of the evicted oldest region.
    fn slot_for_new(&mut self, key: RegionKey<'_>, capacity: usize) -> u32 {
        let record = RegionRecord::default();
        let empty =
            RegionSlot { region: key.region.into(), record, hash: key.hash, newer: NONE, older: NONE };
        let slot = if self.slots.len() < capacity {
            self.slots.push(empty);
            let slot = self.slots.len() as u32 - 1;
            self.link_newest(slot);
            slot
        } else {
            let slot = self.oldest;
            let evicted = &mut self.slots[slot as usize];
            if let Ok(entry) = self.table.find_entry(evicted.hash, |&other| other == slot) {
                entry.remove();
            }
            *evicted = RegionSlot { newer: evicted.newer, older: evicted.older, ..empty };
            slot
        };
        self.table.insert_unique(key.hash, slot, |&slot| self.slots[slot as usize].hash);
        slot
    }

    fn unlink(&mut self, slot: u32) {
        let RegionSlot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        self.slots[slot as usize].newer = NONE;
        self.slots[slot as usize].older = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn oldest_first(&self) -> impl Iterator<Item = &RegionSlot> {
        let at = |slot: u32| self.slots.get(slot as usize);
        std::iter::successors(at(self.oldest), move |slot| at(slot.newer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(hints: &HotPathHints) -> Vec<String> {
        hints.records().iter().map(|(region, _)| region.to_string()).collect()
    }

    #[test]
    fn the_least_recently_recorded_region_makes_room() {
        let check = |capacity: usize, recorded: &str, expected: &str| {
            let hints = HotPathHints::with_capacity(capacity);
            for region in recorded.split_whitespace() {
                hints.record(region, 1, 1);
                // A lookup must not count as a recording.
                hints.is_hot("a");
                assert!(hints.len() <= capacity);
            }
            assert_eq!(regions(&hints).join(" "), expected, "{recorded} at {capacity}");
        };
        check(0, "a b", "");
        check(1, "a", "a");
        check(1, "a b a b", "b");
        check(2, "a b", "a b");
        check(2, "a b a", "b a");
        check(2, "a b a c", "a c");
        check(3, "a b c", "a b c");
        check(3, "a b c b", "a c b");
        check(3, "a b c a d", "c a d");
        check(3, "a b c c d e", "c d e");
        check(3, "a b c d e f a", "e f a");
    }

    #[test]
    fn records_add_up_and_sums_stop_at_the_limit() {
        let hints = HotPathHints::default();
        assert!(hints.is_empty());
        assert_eq!(hints.record_for("r"), None);
        hints.record("r", 10, 100);
        hints.record("r", 30, 101);
        let expected =
            RegionRecord { dispatch_count: 2, kernel_ns_total: 40, kernel_ns_max: 30, bytes_total: 201 };
        assert_eq!(hints.record_for("r"), Some(expected));
        assert_eq!((expected.mean_kernel_ns(), expected.mean_bytes()), (20, 100));
        assert_eq!((hints.dispatch_count("r"), hints.mean_kernel_ns("r")), (2, 20));
        assert_eq!((hints.dispatch_count("s"), hints.mean_kernel_ns("s")), (0, 0));
        assert_eq!((RegionRecord::default().mean_kernel_ns(), RegionRecord::default().mean_bytes()), (0, 0));

        hints.record("r", u64::MAX, u64::MAX);
        hints.absorb("r", RegionRecord { dispatch_count: u64::MAX, ..RegionRecord::default() });
        let full = RegionRecord {
            dispatch_count: u64::MAX,
            kernel_ns_total: u64::MAX,
            kernel_ns_max: u64::MAX,
            bytes_total: u64::MAX,
        };
        assert_eq!(hints.record_for("r"), Some(full));
    }

    #[test]
    fn a_region_is_hot_from_the_threshold_on() {
        let check = |threshold: Option<u64>, ns: u64, expected: bool| {
            let hints = HotPathHints::default();
            let hints = threshold.map_or(hints.clone(), |threshold| hints.with_hot_threshold_ns(threshold));
            assert!(!hints.is_hot("r"));
            hints.record("r", ns, 0);
            assert_eq!(hints.is_hot("r"), expected, "{ns} ns at {threshold:?}");
        };
        check(None, 99_999, false);
        check(None, 100_000, true);
        check(Some(5), 4, false);
        check(Some(5), 5, true);
        check(Some(0), 0, true);
    }

    #[test]
    fn a_clone_records_apart() {
        let hints = HotPathHints::with_capacity(2);
        hints.record("a", 1, 0);
        let copy = hints.clone();
        hints.record("a", 1, 0);
        copy.record("b", 1, 0);
        copy.record("c", 1, 0);
        assert_eq!((regions(&hints), hints.dispatch_count("a")), (vec!["a".into()], 2));
        assert_eq!(regions(&copy), ["b", "c"]);
        assert_eq!(format!("{copy:?}"), "HotPathHints { capacity: 2, hot_threshold_ns: 100000, len: 2 }");
    }

    #[test]
    fn ranked_is_by_total_time_and_absorbing_restores() {
        let hints = HotPathHints::default();
        for (region, ns) in [("slow", 50), ("b", 10), ("a", 10), ("slow", 1), ("fast", 1)] {
            hints.record(region, ns, 2);
        }
        let ranked: Vec<_> = hints.ranked().iter().map(|(region, _)| region.to_string()).collect();
        assert_eq!(ranked, ["slow", "a", "b", "fast"]);

        let restored = HotPathHints::default();
        restored.absorb("never.ran", RegionRecord::default());
        for (region, record) in hints.records() {
            restored.absorb(&region, record);
        }
        assert_eq!(restored.records(), hints.records());
    }

    #[test]
    fn counts_are_exact_from_many_threads() {
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 20_000;
        let hints = HotPathHints::with_capacity(4);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let hints = &hints;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        hints.record("shared", round, 3);
                        hints.record(["even", "odd"][(thread % 2) as usize], 1, 1);
                    }
                });
            }
        });
        let expected = RegionRecord {
            dispatch_count: THREADS * ROUNDS,
            kernel_ns_total: THREADS * (ROUNDS * (ROUNDS - 1) / 2),
            kernel_ns_max: ROUNDS - 1,
            bytes_total: THREADS * ROUNDS * 3,
        };
        assert_eq!(hints.record_for("shared"), Some(expected));
        assert_eq!(hints.dispatch_count("even"), THREADS / 2 * ROUNDS);
        assert_eq!(hints.dispatch_count("odd"), THREADS / 2 * ROUNDS);
    }

    #[test]
    fn capacity_holds_under_threads_that_evict() {
        let hints = HotPathHints::with_capacity(16);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let hints = &hints;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        hints.record(&format!("{thread}.{}", round % 37), 1, 1);
                    }
                });
            }
        });
        assert_eq!(hints.len(), 16);
        let mut names = regions(&hints);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 16);
    }
}
