//! What is known of one backend's time in one cell: a [`Pace`], computed without side effects, and [`Statistics`], which
//! keep one in atomics.
//!
//! **Level**: an average of the logarithm of the time that forgets exponentially (the first calls count equally, then each
//! counts for [`NEWEST_WEIGHT`]), so that 100x outliers and 100x differences are treated alike. A residual counts for at most
//! three deviations, so one hiccup moves it little.
//!
//! **Change**: a one-sided CUSUM of the residuals. It grows only while calls keep coming in slower than the level says, and
//! its alarm is what makes the router forget. The allowance grows with the noise, so noise alone does not set it off.
//!
//! Threads update without a lock: of two updates at once one may be lost, which neither an average nor a count of many notices.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How much the newest call counts once there are enough of them.
const NEWEST_WEIGHT: f64 = 0.05;
/// From so many calls on, the newest counts for that.
const SETTLED: u64 = (1.0 / NEWEST_WEIGHT) as u64 + 1;
/// The same for the level that follows quickly, which becomes the level after a change.
const FAST_WEIGHT: f64 = 0.5;
/// The deviation assumed before any was seen: 20%, worth four calls.
const ASSUMED_DEVIATION: f64 = 0.2;
const ASSUMED_CALLS: f64 = 4.0;
/// A level that was not followed closely is worth no more calls than this.
const CALLS_OF_A_STALE_LEVEL: u64 = 4;
/// No machine is quieter than 2%.
const LEAST_DEVIATION: f64 = 0.02;
/// A residual above this counts as this much in the CUSUM: one call, however slow, is not a change.
const LARGEST_STEP: f64 = 1.0;
/// What each call may be slower without counting towards a change: 28%, or three quarters of a deviation.
const ALLOWANCE: f64 = 0.25;
/// A 4x slowdown (ln 4 = 1.39, counted as 1) passes this in six calls.
const ALARM: f64 = 4.0;

/// What calls of one backend take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Calls that were timed since the start or the last forgetting; 0 for a level that was only told or is in doubt.
    pub(super) recent: u64,
    /// The logarithm of the time in nanoseconds.
    pub(super) level: f64,
    fast_level: f64,
    /// The level before it rose, which it may return to; it follows a level above it slowly.
    calm_level: f64,
    variance: f64,
    /// The CUSUM.
    change: f64,
}

impl Pace {
    /// The pace of a time that was measured elsewhere.
    pub(super) fn told(time_ns: u64) -> Pace {
        Pace { recent: 0, ..Pace::first(logarithm(time_ns.max(1) as f64)) }
    }

    fn first(level: f64) -> Pace {
        let variance = ASSUMED_DEVIATION * ASSUMED_DEVIATION;
        Pace { recent: 1, level, fast_level: level, calm_level: level, variance, change: 0.0 }
    }

    /// The pace after another call.
    #[inline]
    pub(super) fn after(self, elapsed_ns: u64) -> Pace {
        let log = logarithm(elapsed_ns.max(1) as f64);
        let recent = self.recent.saturating_add(1);
        // A first call pays for caches and pages that later ones find warm, so the second may only lower the level.
        if recent == 1 || (recent == 2 && log < self.level) {
            return Pace { recent, calm_level: self.calm_after(log), ..Pace::first(log) };
        }
        let deviation = self.deviation();
        let residual = log - self.level;
        let tame = residual.clamp(-3.0 * deviation, 3.0 * deviation);
        // Dividing takes longer than all the rest.
        let weight =
            |calls: f64| if recent < SETTLED { (1.0 / calls).max(NEWEST_WEIGHT) } else { NEWEST_WEIGHT };
        let level = self.level + weight(recent as f64) * tame;
        let variance_weight = weight(recent as f64 + ASSUMED_CALLS);
        let variance = self.variance + variance_weight * (tame * tame - self.variance);
        let fast_level = self.fast_level + FAST_WEIGHT * (log - self.fast_level);
        let allowance = ALLOWANCE.max(0.75 * deviation);
        let change = (self.change + residual.min(LARGEST_STEP) - allowance).max(0.0);
        Pace { recent, level, fast_level, calm_level: self.calm_after(level), variance, change }
    }

    fn calm_after(&self, level: f64) -> f64 {
        let calm = self.calm_level;
        if calm < level { calm + NEWEST_WEIGHT * (level - calm) } else { level }
    }

    /// Whether calls keep coming in slower than the level says.
    pub(super) fn has_slowed(&self) -> bool {
        self.change > ALARM
    }

    /// The pace after a change: where the last calls were, and no longer sure.
    pub(super) fn restarted(self) -> Pace {
        let Pace { variance, calm_level, .. } = self;
        Pace { recent: 2, variance, calm_level, ..Pace::first(self.fast_level) }
    }

    /// The pace of a backend that was not called for a while: its level is worth few calls.
    pub(super) fn stale(self) -> Pace {
        Pace { recent: self.recent.min(CALLS_OF_A_STALE_LEVEL), ..self }
    }

    /// The pace of a backend that may have changed: the next call tells.
    pub(super) fn in_doubt(self) -> Pace {
        Pace { recent: 0, ..self }
    }

    /// The usual time.
    pub(super) fn time_ns(&self) -> f64 {
        self.level.exp()
    }

    /// What a call is likely to take, if what raised the level may be over: half-way between the level before and now.
    pub(super) fn likely_ns(&self) -> f64 {
        (0.5 * (self.level + self.calm_level.min(self.level))).exp()
    }

    /// What calls hardly ever take longer than, but for hiccups.
    pub(super) fn at_most_ns(&self) -> f64 {
        (self.level + 3.0 * self.deviation()).exp()
    }

    /// How much single calls differ: one standard deviation of the logarithm.
    pub(super) fn deviation(&self) -> f64 {
        self.variance.sqrt().max(LEAST_DEVIATION)
    }

    /// How far off the level may be: one standard error.
    pub(super) fn error(&self) -> f64 {
        // Exponential forgetting never knows more than this many calls' worth.
        let most = (2.0 - NEWEST_WEIGHT) / NEWEST_WEIGHT;
        self.deviation() / (self.recent as f64).clamp(1.0, most).sqrt()
    }
}

/// One backend's pace in one cell. A cache line of its own: threads on different backends do not meet.
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
    change: AtomicU64,
}

impl Statistics {
    /// Adds a call, and gives the pace after it.
    #[inline]
    pub(super) fn add(&self, elapsed_ns: u64) -> Pace {
        self.count();
        // What no call ever set is as good as a level that was told: the first call replaces it.
        let pace = self.load().after(elapsed_ns);
        self.store(pace);
        pace
    }

    /// Counts a call whose time says nothing, or is stored apart.
    pub(super) fn count(&self) {
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// All calls.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// `None` while nothing is known.
    pub(super) fn pace(&self) -> Option<Pace> {
        self.known.load(Relaxed).then(|| self.load())
    }

    /// Puts another pace in place of the present one.
    pub(super) fn store(&self, pace: Pace) {
        let Pace { recent, level, fast_level, calm_level, variance, change } = pace;
        self.recent.store(recent, Relaxed);
        let places = [&self.level, &self.fast_level, &self.calm_level, &self.variance, &self.change];
        for (place, value) in places.into_iter().zip([level, fast_level, calm_level, variance, change]) {
            place.store(value.to_bits(), Relaxed);
        }
        self.known.store(true, Relaxed);
    }

    /// Takes a time that was measured elsewhere, until the first call tells better.
    pub(super) fn tell(&self, time_ns: u64) {
        if self.recent.load(Relaxed) == 0 {
            self.store(Pace::told(time_ns));
        }
    }

    fn load(&self) -> Pace {
        let [level, fast_level, mut calm_level, variance, change] =
            [&self.level, &self.fast_level, &self.calm_level, &self.variance, &self.change]
                .map(|place| f64::from_bits(place.load(Relaxed)));
        if !self.known.load(Relaxed) {
            calm_level = f64::INFINITY;
        }
        Pace { recent: self.recent.load(Relaxed), level, fast_level, calm_level, variance, change }
    }
}

/// The natural logarithm of a time, to about six digits in a third of the time that all of them take.
fn logarithm(time: f64) -> f64 {
    // time = mantissa * 2^exponent with the mantissa in [√½, √2), from the bits of a positive normal number.
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
        let alarm = times.into_iter().position(|time| statistics.add(time).has_slowed());
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
            // A factor of two is followed by the level, whether or not the alarm comes first.
            assert!(factor == 2 || calls.is_some_and(|calls| calls <= within), "{factor}x: {calls:?}");
        }
        // Noise of a factor of two either way, in an order that repeats.
        let (_, alarm) = after((0..5_000u64).map(|k| [1_000, 2_000, 500, 1_400, 700][(k % 5) as usize]));
        assert_eq!(alarm, None);
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
    fn what_was_told_holds_until_the_first_call() {
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
