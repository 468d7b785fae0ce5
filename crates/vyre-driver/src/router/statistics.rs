//! What is known of one backend's time in one cell, as lock-free statistics.
//!
//! **Level**: an average of the logarithm of the time that forgets exponentially (the first calls count equally, then each
//! counts for [`NEWEST_WEIGHT`]), so that 100x outliers and 100x differences are treated alike. A residual counts for at most
//! three deviations, so one hiccup moves it little.
//!
//! **Change**: a one-sided CUSUM of the residuals. It grows only while calls keep coming in slower than the level says, and
//! its alarm is what makes the router forget. The allowance grows with the noise, so noise alone does not set it off.
//!
//! **Drift**: a backend that is called seldom is behind the times. When it is called again, the level of the backend that was
//! called meanwhile tells how the machine changed; the seldom one changed along with it or not, whichever the call agrees
//! with more.
//!
//! Threads update without a lock: of two updates at once one may be lost, which an average does not notice. Counts are exact.

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

/// A copy of the statistics at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Snapshot {
    /// Calls that were timed since the start or the last forgetting; 0 for a level that was only told or is in doubt.
    pub(super) recent: u64,
    /// All calls that were timed.
    pub(super) calls: u64,
    /// The logarithm of the time in nanoseconds.
    pub(super) level: f64,
    /// The deviation of one call's logarithm.
    pub(super) deviation: f64,
    /// The CUSUM.
    pub(super) change: f64,
}

impl Snapshot {
    /// The usual time.
    pub(super) fn time_ns(&self) -> f64 {
        self.level.exp()
    }

    /// What calls hardly ever take longer than, but for hiccups.
    pub(super) fn at_most_ns(&self) -> f64 {
        (self.level + 3.0 * self.deviation).exp()
    }

    /// How far off the level may be: one standard error.
    pub(super) fn error(&self) -> f64 {
        // Exponential forgetting never knows more than this many calls' worth.
        let most = (2.0 - NEWEST_WEIGHT) / NEWEST_WEIGHT;
        self.deviation / (self.recent as f64).clamp(1.0, most).sqrt()
    }

    /// How much slower than `other` this is surely, as a logarithm: the difference less two standard errors.
    pub(super) fn surely_slower_by(&self, other: &Snapshot) -> f64 {
        self.level - other.level - 2.0 * self.error().hypot(other.error())
    }
}

/// Whether a call's time means that the backend has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    AsBefore,
    Slowed,
}

/// One backend's times in one cell. A cache line of its own: threads on different backends do not meet.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Statistics {
    /// Whether there is a level at all.
    known: AtomicBool,
    calls: AtomicU64,
    recent: AtomicU64,
    level: AtomicU64,
    fast_level: AtomicU64,
    variance: AtomicU64,
    change: AtomicU64,
    /// The lowest level so far.
    lowest: AtomicU64,
    /// The level of the backend to compare with, when this one was last called.
    anchor: AtomicU64,
    /// How much the level may have changed since the last call, and may not; 0 if that is no question.
    doubt: AtomicU64,
}

impl Statistics {
    /// Adds a call.
    pub(super) fn add(&self, elapsed_ns: u64) -> Verdict {
        let log = logarithm(elapsed_ns.max(1) as f64);
        self.calls.fetch_add(1, Relaxed);
        let recent = self.recent.load(Relaxed).saturating_add(1);
        self.recent.store(recent, Relaxed);
        // A first call pays for caches and pages that later ones find warm, so the second may only lower the level.
        if recent == 1 || (recent == 2 && log < load(&self.level)) {
            self.start_at(log);
            return Verdict::AsBefore;
        }
        let (level, variance) = (self.settle_doubt(log), load(&self.variance));
        let deviation = variance.sqrt().max(LEAST_DEVIATION);
        let residual = log - level;
        let tame = residual.clamp(-3.0 * deviation, 3.0 * deviation);
        // Dividing takes longer than all the rest.
        let weight = if recent < SETTLED { (1.0 / recent as f64).max(NEWEST_WEIGHT) } else { NEWEST_WEIGHT };
        store(&self.level, level + weight * tame);
        store(&self.lowest, load(&self.lowest).min(level + weight * tame));
        let variance_weight = match recent < SETTLED {
            true => (1.0 / (recent as f64 + ASSUMED_CALLS)).max(NEWEST_WEIGHT),
            false => NEWEST_WEIGHT,
        };
        store(&self.variance, variance + variance_weight * (tame * tame - variance));
        let fast = load(&self.fast_level);
        store(&self.fast_level, fast + FAST_WEIGHT * (log - fast));
        let allowance = ALLOWANCE.max(0.75 * deviation);
        let change = (load(&self.change) + residual.min(LARGEST_STEP) - allowance).max(0.0);
        store(&self.change, change);
        if change > ALARM { Verdict::Slowed } else { Verdict::AsBefore }
    }

    /// Counts a call whose time says nothing.
    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// Adds a call of a backend that is called seldom, `anchor` being the level of the one that is called usually.
    pub(super) fn add_seldom(&self, elapsed_ns: u64, anchor: f64) {
        let shift = anchor - load(&self.anchor);
        if self.recent.load(Relaxed) > 0 && load(&self.doubt) == 0.0 {
            store(&self.doubt, shift);
        }
        store(&self.anchor, anchor);
        self.add(elapsed_ns);
    }

    /// The level was not followed closely: it is worth few calls.
    pub(super) fn grow_stale(&self) {
        self.recent.fetch_min(CALLS_OF_A_STALE_LEVEL, Relaxed);
    }

    /// Whether there were enough calls that chance is unlikely to have made the level what it is.
    pub(super) fn is_sure(&self) -> bool {
        self.recent.load(Relaxed) > CALLS_OF_A_STALE_LEVEL
    }

    /// The lowest level so far, as a time: what the backend takes when nothing slows it down.
    pub(super) fn lowest_ns(&self) -> Option<f64> {
        self.known.load(Relaxed).then(|| load(&self.lowest).exp())
    }

    /// Takes a time that was measured elsewhere, until the first call tells better.
    pub(super) fn tell(&self, time_ns: u64) {
        if self.recent.load(Relaxed) == 0 {
            self.start_at(logarithm(time_ns.max(1) as f64));
        }
    }

    /// After a change: the level is where the last calls were, and is no longer sure. Gives by how much it moved.
    pub(super) fn restart(&self) -> f64 {
        let (level, fast, variance) = (load(&self.level), load(&self.fast_level), load(&self.variance));
        if !self.known.load(Relaxed) {
            return 0.0;
        }
        self.start_at(fast);
        store(&self.variance, variance);
        self.recent.store(2, Relaxed);
        fast - level
    }

    /// Another backend's level moved by so much; this one's may have, too. The next call tells.
    pub(super) fn doubt(&self, shift: f64) {
        store(&self.doubt, shift);
        store(&self.change, 0.0);
        self.grow_stale();
    }

    /// The level that a call with this logarithm agrees with more: with or without the shift in doubt.
    fn settle_doubt(&self, log: f64) -> f64 {
        let (level, shift) = (load(&self.level), load(&self.doubt));
        if shift == 0.0 {
            return level;
        }
        store(&self.doubt, 0.0);
        if (log - level - shift).abs() < (log - level).abs() { level + shift } else { level }
    }

    /// `None` while nothing is known.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        self.known.load(Relaxed).then(|| Snapshot {
            recent: self.recent.load(Relaxed),
            calls: self.calls.load(Relaxed),
            level: load(&self.level),
            deviation: load(&self.variance).sqrt().max(LEAST_DEVIATION),
            change: load(&self.change),
        })
    }

    fn start_at(&self, log: f64) {
        let lowest = if self.known.load(Relaxed) { load(&self.lowest).min(log) } else { log };
        store(&self.lowest, lowest);
        store(&self.doubt, 0.0);
        store(&self.level, log);
        store(&self.fast_level, log);
        store(&self.variance, ASSUMED_DEVIATION * ASSUMED_DEVIATION);
        store(&self.change, 0.0);
        self.known.store(true, Relaxed);
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

fn load(cell: &AtomicU64) -> f64 {
    f64::from_bits(cell.load(Relaxed))
}

fn store(cell: &AtomicU64, value: f64) {
    cell.store(value.to_bits(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> (Statistics, Option<usize>) {
        let statistics = Statistics::default();
        let alarm = times.into_iter().position(|time| statistics.add(time) == Verdict::Slowed);
        (statistics, alarm)
    }

    #[test]
    fn the_level_is_the_usual_time_despite_hiccups() {
        let times = (0..400).map(|k| if k % 40 == 39 { 1_000_000 } else { 1_000 });
        let (statistics, alarm) = after(times);
        let seen = statistics.snapshot().expect("calls were added");
        assert_eq!((seen.calls, alarm), (400, None));
        assert!((900.0..1_200.0).contains(&seen.time_ns()), "{seen:?}");
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
    fn after_a_change_the_level_is_the_recent_one_and_others_follow_if_they_did() {
        let (statistics, _) = after((0..106).map(|k| if k < 100 { 1_000 } else { 4_000 }));
        let before = statistics.snapshot().expect("calls were added");
        let moved = statistics.restart();
        let restarted = statistics.snapshot().expect("calls were added");
        assert!((3_800.0..4_100.0).contains(&restarted.time_ns()), "{restarted:?}");
        assert!((restarted.level - before.level - moved).abs() < 1e-9);
        let doubting = |next: u64| {
            let (other, _) = after((0..50).map(|_| 2_000));
            other.doubt(4f64.ln());
            other.add(next);
            other.snapshot().expect("calls were added").time_ns()
        };
        assert!((1_900.0..2_100.0).contains(&doubting(1_900)), "it stayed as it was");
        assert!((7_500.0..8_500.0).contains(&doubting(8_300)), "it changed, too");
        let untouched = Statistics::default();
        untouched.restart();
        untouched.doubt(1.0);
        assert_eq!(untouched.snapshot(), None);
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
        let (statistics, _) = after([0, u64::MAX, 0, 1, u64::MAX].into_iter().cycle().take(1_000));
        let seen = statistics.snapshot().expect("calls were added");
        assert!(seen.level.is_finite() && seen.deviation.is_finite() && seen.error().is_finite(), "{seen:?}");
    }
}
