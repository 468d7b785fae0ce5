//! Hit rates of pipeline caches, in this run and in recent ones.

use crate::tables::{self, Row, Rows, TableError, stamp_after};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of runs in a file, which takes 25 KB: recent runs show the hit rate of today's
/// programs.
const MAX_RUNS: usize = 256;

/// Hits and misses of a pipeline cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineCacheSnapshot {
    /// Requests that were served from the cache.
    pub hits: u64,
    /// Requests that had to compile.
    pub misses: u64,
}

/// Whether a compile hit the backend's cache, from its counters before and after.
pub(super) fn cache_outcome(
    before: Option<PipelineCacheSnapshot>,
    after: Option<PipelineCacheSnapshot>,
) -> Option<bool> {
    let (before, after) = (before?, after?);
    if after.hits > before.hits {
        Some(true)
    } else if after.misses > before.misses {
        Some(false)
    } else {
        None
    }
}

/// Tracks the outcomes of many compiles, to detect a hit rate that is too low.
///
/// ```
/// use vyre_driver::pipeline::PipelineCacheAudit;
/// let audit = PipelineCacheAudit::new();
/// for outcome in [Some(true), Some(true), Some(false), None] {
///     audit.observe(outcome);
/// }
/// let snapshot = audit.snapshot(7000);
/// assert_eq!((snapshot.hit_rate_bps, snapshot.below_alarm_threshold), (Some(6666), true));
/// ```
#[derive(Debug, Default)]
pub struct PipelineCacheAudit {
    hits: AtomicU64,
    misses: AtomicU64,
    unknowns: AtomicU64,
    /// Identifies this audit in the file.
    run: OnceLock<String>,
}

/// The counts of a [`PipelineCacheAudit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipelineCacheAuditSnapshot {
    /// Compiles that the cache served.
    pub hits: u64,
    /// Compiles that it did not.
    pub misses: u64,
    /// Compiles with an unknown outcome.
    pub unknowns: u64,
    /// Hits per ten thousand known outcomes, rounded down; `None` without any.
    pub hit_rate_bps: Option<u32>,
    /// Whether the rate is known and below the threshold.
    pub below_alarm_threshold: bool,
}

impl PipelineCacheAudit {
    /// An empty audit.
    pub const fn new() -> PipelineCacheAudit {
        PipelineCacheAudit {
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            unknowns: AtomicU64::new(0),
            run: OnceLock::new(),
        }
    }

    /// Records one outcome, as reported in `cache_hit`.
    pub fn observe(&self, cache_hit: Option<bool>) {
        let counter = match cache_hit {
            Some(true) => &self.hits,
            Some(false) => &self.misses,
            None => &self.unknowns,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The counts so far, and whether fewer than `alarm_bps` of ten thousand were hits. 0 never
    /// alarms.
    pub fn snapshot(&self, alarm_bps: u32) -> PipelineCacheAuditSnapshot {
        let hits = self.hits.load(Relaxed);
        let misses = self.misses.load(Relaxed);
        let known = u128::from(hits) + u128::from(misses);
        // The quotient is at most 10,000.
        let hit_rate_bps = (u128::from(hits) * 10_000).checked_div(known).map(|rate| rate as u32);
        PipelineCacheAuditSnapshot {
            hits,
            misses,
            unknowns: self.unknowns.load(Relaxed),
            hit_rate_bps,
            below_alarm_threshold: hit_rate_bps.is_some_and(|rate| rate < alarm_bps),
        }
    }

    /// Saves the counts so far along with those of other runs; a file keeps the last 256 runs.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        let PipelineCacheAuditSnapshot { hits, misses, unknowns, .. } = self.snapshot(0);
        if (hits, misses, unknowns) == (0, 0, 0) {
            return Ok(());
        }
        let saved_at_ns = stamp_after(None);
        let run = self.run.get_or_init(|| format!("{}-{saved_at_ns}", std::process::id()));
        tables::update(path, |file: &mut Rows<Run>| {
            file.0.insert(run.clone(), Run { hits, misses, unknowns, saved_at_ns });
        })
    }

    /// The combined counts of the runs in this file, and the number of runs.
    pub fn load(path: &Path) -> Result<(PipelineCacheAudit, usize), TableError> {
        let runs: Rows<Run> = tables::load(path)?;
        let all = PipelineCacheAudit::new();
        for Run { hits, misses, unknowns, .. } in runs.0.values() {
            all.hits.fetch_add(*hits, Relaxed);
            all.misses.fetch_add(*misses, Relaxed);
            all.unknowns.fetch_add(*unknowns, Relaxed);
        }
        Ok((all, runs.0.len()))
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Run {
    hits: u64,
    misses: u64,
    unknowns: u64,
    saved_at_ns: u64,
}

impl Row for Run {
    const KIND: &'static str = "compiles";
    const MAX_ROWS: usize = MAX_RUNS;

    fn stamp(&self) -> u64 {
        self.saved_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_floored_over_known_outcomes() {
        let check = |outcomes: &[Option<bool>], alarm, rate, below| {
            let audit = PipelineCacheAudit::new();
            outcomes.iter().for_each(|&outcome| audit.observe(outcome));
            let snapshot = audit.snapshot(alarm);
            assert_eq!(
                (snapshot.hit_rate_bps, snapshot.below_alarm_threshold),
                (rate, below),
                "{outcomes:?}"
            );
            assert_eq!(snapshot.hits + snapshot.misses + snapshot.unknowns, outcomes.len() as u64);
        };
        check(&[], 10_000, None, false);
        check(&[None, None], 10_000, None, false);
        check(&[Some(true), Some(true), Some(false)], 6666, Some(6666), false);
        check(&[Some(true), Some(true), Some(false)], 6667, Some(6666), true);
        check(&[Some(false)], 0, Some(0), false);
        check(&[Some(false)], 1, Some(0), true);
        check(&[Some(true), None], u32::MAX, Some(10_000), true);
    }

    #[test]
    fn outcomes_come_from_counters_that_rose() {
        let at = |hits, misses| Some(PipelineCacheSnapshot { hits, misses });
        assert_eq!(cache_outcome(at(1, 1), at(2, 1)), Some(true));
        assert_eq!(cache_outcome(at(1, 1), at(1, 2)), Some(false));
        assert_eq!(cache_outcome(at(1, 1), at(1, 1)), None);
        assert_eq!(cache_outcome(None, at(1, 1)), None);
        assert_eq!(cache_outcome(at(1, 1), None), None);
    }
}
