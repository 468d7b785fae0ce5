//! One backend's time in one cell: a [`Pace`], which is a pure value, and [`Statistics`], which
//! keep one in atomics.
//!
//! **Level**: an exponentially weighted average of the logarithm of the time (the first calls count
//! equally, then each counts for [`NEWEST_WEIGHT`]), so that 100x outliers and 100x differences are
//! treated alike. Residuals are clamped to three deviations, so one hiccup moves it little.
//!
//! **Change**: two CUSUMs of the residuals. One grows only while calls are consistently slower than
//! the level, the other while they are consistently faster; the alarm of either makes the router
//! doubt what it learnt. The allowance grows with the noise, so noise alone does not raise it.
//!
//! Threads update without a lock: of two concurrent updates one can be lost, which is negligible in
//! an average or a count over many calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

// The simulated machines of `filetests/routing` set these constants, as those of probing.

/// Factor by which a backend can exceed an estimate from other sizes. 16: more than 3% overhead
/// (`crossover`). 2: a backend that slows down is left too late (`going_bad`).
pub(super) const SAFETY: f64 = 4.0;
/// Weight of the newest call once there are enough calls. 0.02: a backend that slows down is left
/// too late (`going_bad`). 0.2: one that stays slow is not noticed (`disturbed_calls`), since the
/// level follows it.
const NEWEST_WEIGHT: f64 = 0.05;
/// Number of calls from which the newest has that weight.
const SETTLED: u64 = (1.0 / NEWEST_WEIGHT) as u64 + 1;
/// Weight of the newest call in the fast level, which becomes the level after a change. 0.2 and
/// 0.9: a backend that slows down is left too late (`going_bad`).
const FAST_WEIGHT: f64 = 0.5;
/// The deviation assumed at first: 20%, with the weight of four calls. 5%: more than 3% overhead
/// (`crossover`). 50%, or the weight of one call: a backend is left too late (`going_bad`).
const ASSUMED_DEVIATION: f64 = 0.2;
const ASSUMED_CALLS: f64 = 4.0;
/// Maximum weight, in calls, of a level that is stale. 20: not used again after a disturbance
/// (`storm`).
const CALLS_OF_A_STALE_LEVEL: u64 = 4;
/// Floor of the deviation: no machine is quieter than 2%. 0.5%: not used again after a disturbance
/// (`used_again`).
const LEAST_DEVIATION: f64 = 0.02;
/// Residuals are capped at this in the CUSUM, or at three deviations if that is more: one call,
/// however slow, is not a change. 4: a few slow calls during vyre's own work make it leave the
/// faster backend (`disturbed_calls`). Without the deviations, the allowance of a noisy backend
/// that becomes slower grows beyond the cap, and it is never left.
const LARGEST_STEP: f64 = 1.0;
/// Slowdown of a call that does not count towards a change: 28%, or three quarters of a deviation.
/// 0.1: not used again after a disturbance (`used_again`). 0.6: more than 3% overhead
/// (`changing_sizes`).
const ALLOWANCE: f64 = 0.25;
/// Threshold of the CUSUM. A 4x slowdown (ln 4 = 1.39, counted as 1) exceeds it in six calls. 1.5:
/// more than 3% overhead (`two_backends`). 12: a backend that goes bad is left too late
/// (`going_bad`).
const ALARM: f64 = 4.0;

/// The pace of one backend's calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Calls timed since the start or the last restart; 0 for a level that was measured elsewhere
    /// or is in doubt.
    pub(super) recent: u64,
    /// The logarithm of the time in nanoseconds.
    pub(super) level: f64,
    fast_level: f64,
    /// The level before it rose, to which it may return; it follows a level above it slowly.
    calm_level: f64,
    variance: f64,
    /// The CUSUM of slower calls, and of faster ones.
    slower: f64,
    faster: f64,
}

impl Pace {
    /// The pace for a time that was measured elsewhere.
    pub(super) fn assumed(time_ns: u64) -> Pace {
        Pace { recent: 0, ..Pace::first(logarithm(time_ns.max(1) as f64)) }
    }

    #[inline]
    fn first(level: f64) -> Pace {
        let variance = ASSUMED_DEVIATION * ASSUMED_DEVIATION;
        let (fast_level, calm_level) = (level, level);
        Pace { recent: 1, level, fast_level, calm_level, variance, slower: 0.0, faster: 0.0 }
    }

    /// The pace after another call.
    #[inline]
    pub(super) fn after(self, elapsed_ns: u64) -> Pace {
        let log = logarithm(elapsed_ns.max(1) as f64);
        let recent = self.recent.saturating_add(1);
        // The first call pays for cold caches and page faults, so the second can only lower the
        // level.
        if recent == 1 || (recent == 2 && log < self.level) {
            return Pace { recent, calm_level: self.calm_after(log), ..Pace::first(log) };
        }
        let deviation = self.deviation();
        let residual = log - self.level;
        let tame = residual.clamp(-3.0 * deviation, 3.0 * deviation);
        // A division takes longer than everything else here.
        let weight =
            |calls: f64| if recent < SETTLED { (1.0 / calls).max(NEWEST_WEIGHT) } else { NEWEST_WEIGHT };
        let level = self.level + weight(recent as f64) * tame;
        let variance_weight = weight(recent as f64 + ASSUMED_CALLS);
        let variance = self.variance + variance_weight * (tame * tame - self.variance);
        let fast_level = self.fast_level + FAST_WEIGHT * (log - self.fast_level);
        let allowance = ALLOWANCE.max(0.75 * deviation);
        let most = LARGEST_STEP.max(3.0 * deviation);
        let slower = (self.slower + residual.min(most) - allowance).max(0.0);
        let faster = (self.faster + (-residual).min(most) - allowance).max(0.0);
        Pace { recent, level, fast_level, calm_level: self.calm_after(level), variance, slower, faster }
    }

    #[inline]
    fn calm_after(&self, level: f64) -> f64 {
        let calm = self.calm_level;
        if calm < level { calm + NEWEST_WEIGHT * (level - calm) } else { level }
    }

    /// Whether calls are consistently slower or faster than the level.
    #[inline]
    pub(super) fn has_changed(&self) -> bool {
        self.slower.max(self.faster) > ALARM
    }

    /// The pace after a change: at the level of the last calls, with low confidence.
    pub(super) fn restarted(self) -> Pace {
        let Pace { variance, calm_level, .. } = self;
        Pace { recent: 2, variance, calm_level, ..Pace::first(self.fast_level) }
    }

    /// The pace of a backend that was idle for a while: its level has the weight of few calls.
    pub(super) fn stale(self) -> Pace {
        Pace { recent: self.recent.min(CALLS_OF_A_STALE_LEVEL), ..self }
    }

    /// The pace of a backend that may have changed; the next call decides.
    pub(super) fn in_doubt(self) -> Pace {
        Pace { recent: 0, ..self }
    }

    /// The usual time.
    pub(super) fn time_ns(&self) -> f64 {
        self.level.exp()
    }

    /// The likely time of a call if the cause of a slowdown may be over: half-way between the calm
    /// level and the current one.
    pub(super) fn likely_ns(&self) -> f64 {
        (0.5 * (self.level + self.calm_level.min(self.level))).exp()
    }

    /// A time that calls hardly ever exceed, except in hiccups.
    pub(super) fn at_most_ns(&self) -> f64 {
        (self.level + 3.0 * self.deviation()).exp()
    }

    /// One standard deviation of the logarithm of single calls.
    #[inline]
    pub(super) fn deviation(&self) -> f64 {
        self.variance.sqrt().max(LEAST_DEVIATION)
    }

    /// One standard error of the level.
    pub(super) fn error(&self) -> f64 {
        // Exponential weighting never amounts to more than this many calls.
        let most = (2.0 - NEWEST_WEIGHT) / NEWEST_WEIGHT;
        self.deviation() / (self.recent as f64).clamp(1.0, most).sqrt()
    }
}

/// One backend's pace in one cell. Has a separate cache line, so that threads on different backends
/// do not contend.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Statistics {
    /// Whether there is a pace at all.
    known: AtomicBool,
    /// All calls, whether or not their times counted.
    calls: AtomicU64,
    recent: AtomicU64,
    level: AtomicU64,
    fast_level: AtomicU64,
    calm_level: AtomicU64,
    variance: AtomicU64,
    slower: AtomicU64,
    faster: AtomicU64,
}

impl Statistics {
    /// Adds a call and returns the new pace.
    #[inline]
    pub(super) fn add(&self, elapsed_ns: u64) -> Pace {
        self.count();
        // An initial state behaves like a level measured elsewhere: the first call replaces it.
        let pace = self.load().after(elapsed_ns);
        self.store(pace);
        pace
    }

    /// Counts a call whose time is meaningless or stored separately.
    #[inline]
    pub(super) fn count(&self) {
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// All calls.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// The pace; `None` while nothing is known.
    pub(super) fn pace(&self) -> Option<Pace> {
        self.known.load(Relaxed).then(|| self.load())
    }

    /// Replaces the pace.
    #[inline]
    pub(super) fn store(&self, pace: Pace) {
        self.recent.store(pace.recent, Relaxed);
        let Pace { recent: _, level, fast_level, calm_level, variance, slower, faster } = pace;
        let values = [level, fast_level, calm_level, variance, slower, faster];
        for (place, value) in self.places().into_iter().zip(values) {
            place.store(value.to_bits(), Relaxed);
        }
        self.known.store(true, Relaxed);
    }

    #[inline]
    fn places(&self) -> [&AtomicU64; 6] {
        let Statistics { level, fast_level, calm_level, variance, slower, faster, .. } = self;
        [level, fast_level, calm_level, variance, slower, faster]
    }

    /// Seeds the pace with a time that was measured elsewhere; has no effect once calls were timed.
    pub(super) fn tell(&self, time_ns: u64) {
        if self.recent.load(Relaxed) == 0 {
            self.store(Pace::assumed(time_ns));
        }
    }

    #[inline]
    fn load(&self) -> Pace {
        let [level, fast_level, mut calm_level, variance, slower, faster] =
            self.places().map(|place| f64::from_bits(place.load(Relaxed)));
        if !self.known.load(Relaxed) {
            calm_level = f64::INFINITY;
        }
        let recent = self.recent.load(Relaxed);
        Pace { recent, level, fast_level, calm_level, variance, slower, faster }
    }
}

/// The natural logarithm of a time, to about six digits, in a third of the time of the exact one.
#[inline]
fn logarithm(time: f64) -> f64 {
    // time = mantissa * 2^exponent with the mantissa in [√½, √2), from the bits of a positive
    // normal number.
    const HALF_ROOT: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let offset = time.to_bits().wrapping_sub(HALF_ROOT);
    let exponent = (offset as i64 >> 52) as f64;
    let mantissa = f64::from_bits((offset & ((1 << 52) - 1)).wrapping_add(HALF_ROOT));
    // ln m = 2 artanh((m - 1) / (m + 1)), the series up to the seventh power.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let squared = s * s;
    let series = 2.0 + squared * (2.0 / 3.0 + squared * (2.0 / 5.0 + squared * (2.0 / 7.0)));
    exponent * std::f64::consts::LN_2 + s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> (Pace, Option<usize>) {
        let statistics = Statistics::default();
        let alarm = times.into_iter().position(|time| statistics.add(time).has_changed());
        (statistics.pace().expect("calls were added"), alarm)
    }

    #[test]
    fn the_level_is_the_usual_time_despite_hiccups() {
        let (pace, alarm) = after((0..400).map(|k| if k % 40 == 39 { 1_000_000 } else { 1_000 }));
        assert_eq!(alarm, None);
        assert!((900.0..1_200.0).contains(&pace.time_ns()), "{pace:?}");
    }

    #[test]
    fn a_slowdown_sets_off_the_alarm_and_noise_does_not() {
        for (factor, within) in [(4, 7), (100, 7), (2, 20)] {
            let (_, alarm) = after((0..200).map(|k| if k < 100 { 1_000 } else { 1_000 * factor }));
            let calls = alarm.map(|call| call - 99);
            // The level follows a factor of two, whether or not the alarm comes first.
            assert!(factor == 2 || calls.is_some_and(|calls| calls <= within), "{factor}x: {calls:?}");
        }
        // Noise of a factor of two either way, in a repeating order.
        let (_, alarm) = after((0..5_000u64).map(|k| [1_000, 2_000, 500, 1_400, 700][(k % 5) as usize]));
        assert_eq!(alarm, None);
    }

    /// Slow calls widen the deviation, and with it the allowance; the alarm comes all the same.
    #[test]
    fn a_slowdown_of_a_noisy_backend_sets_off_the_alarm() {
        for noise in [[1_000, 1_000, 1_000], [1_000, 1_300, 800], [1_000, 2_000, 500], [1_000, 4_000, 250]] {
            for factor in [20, 1_000] {
                let usual = (0..60).map(|k| noise[k % 3]);
                let (_, alarm) = after(usual.clone());
                assert_eq!(alarm, None, "{noise:?}");
                let (_, alarm) = after(usual.chain((0..40).map(|k| factor * noise[k % 3])));
                let calls = alarm.map(|call| call - 59);
                assert!(calls.is_some_and(|calls| calls <= 8), "{noise:?}, {factor}x: {calls:?}");
            }
        }
    }

    #[test]
    fn after_a_change_the_level_is_the_recent_one_and_what_is_in_doubt_follows_the_next_call() {
        let (before, _) = after((0..106).map(|k| if k < 100 { 1_000 } else { 4_000 }));
        let restarted = before.restarted();
        assert!((3_800.0..4_100.0).contains(&restarted.time_ns()), "{restarted:?}");
        let doubted = before.in_doubt().after(8_000);
        assert!((7_900.0..8_100.0).contains(&doubted.time_ns()), "{doubted:?}");
        let stale = before.stale().after(8_000);
        assert!(stale.level - before.level > before.after(8_000).level - before.level, "{stale:?}");
    }

    #[test]
    fn an_assumed_pace_holds_until_the_first_call() {
        let statistics = Statistics::default();
        assert_eq!(statistics.pace(), None);
        statistics.tell(500);
        assert!(
            statistics
                .pace()
                .is_some_and(|pace| pace.recent == 0 && (499.0..501.0).contains(&pace.time_ns()))
        );
        statistics.add(2_000);
        statistics.tell(500);
        assert!(statistics.pace().is_some_and(|pace| (1_999.0..2_001.0).contains(&pace.time_ns())));
        assert_eq!(statistics.calls(), 1);
    }

    #[test]
    fn logarithms_are_those_of_the_library() {
        let times =
            (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) | (1 << shift >> 1), u64::MAX >> shift]);
        for time in times.chain(1..2_000).chain((0..2_000).map(|step| 1_000_000 + 997 * step)) {
            let (fast, exact) = (logarithm(time as f64), (time as f64).ln());
            assert!((fast - exact).abs() < 1e-6, "{time}: {fast} and {exact}");
        }
    }

    #[test]
    fn no_time_makes_a_level_that_is_not_a_number() {
        let (pace, _) = after([0, u64::MAX, 0, 1, u64::MAX].into_iter().cycle().take(1_000));
        assert!(pace.level.is_finite() && pace.error().is_finite(), "{pace:?}");
    }
}
