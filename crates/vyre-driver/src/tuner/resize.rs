//! Resizing of a running kernel's workgroups: suggestions of a [`DefaultPolicy`], damped so that
//! they cannot oscillate.
//!
//! After a suggestion there is a cool-down during which nothing is suggested, whatever the
//! feedback; each rejected suggestion doubles it. A size that lost its duel, or was replaced by
//! another, is not suggested again.

use super::policy::{DefaultPolicy, TunerFeedback};
use std::time::Duration;

/// The longest cool-down, as a multiple of the first: with a first one of a second, a duel lost
/// every 17 minutes, which takes less than 0.1% of the time.
const LONGEST_PAUSE: u32 = 1024;

/// The outcome of a suggestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeOutcome {
    /// It won its duel and is in use.
    Won,
    /// It lost its duel.
    Lost,
}

/// Suggests sizes for one kernel, which must be shape-free.
///
/// ```
/// use std::time::Duration;
/// use vyre_driver::tuner::{DefaultPolicy, Resizer, ResizeOutcome, TunerFeedback};
/// let mut resizer = Resizer::new(DefaultPolicy::default(), Duration::from_secs(1));
/// let slow = TunerFeedback { observed_workgroup_size_x: 64, ..TunerFeedback::default() };
/// assert_eq!(resizer.suggest(&slow, Duration::ZERO), Some(128));
/// resizer.tried(64, 128, ResizeOutcome::Lost);
/// assert_eq!(resizer.suggest(&slow, Duration::from_secs(100)), None);
/// ```
#[derive(Clone, Debug)]
pub struct Resizer {
    policy: DefaultPolicy,
    pause: Duration,
    longest: Duration,
    quiet_until: Duration,
    /// Sizes that are not suggested again.
    settled: Vec<u32>,
}

impl Resizer {
    /// Creates a resizer with this cool-down after each suggestion.
    pub fn new(policy: DefaultPolicy, cool_down: Duration) -> Resizer {
        let longest = cool_down.saturating_mul(LONGEST_PAUSE);
        Resizer { policy, pause: cool_down, longest, quiet_until: Duration::ZERO, settled: Vec::new() }
    }

    /// A size to try in a duel against the current one; `now` is the time by any monotonic clock.
    pub fn suggest(&mut self, feedback: &TunerFeedback, now: Duration) -> Option<u32> {
        if now < self.quiet_until {
            return None;
        }
        let size = self.policy.suggest_resize(feedback).filter(|size| !self.settled.contains(size))?;
        self.quiet_until = now.saturating_add(self.pause);
        Some(size)
    }

    /// Records the outcome of the duel between a suggestion and the size in use.
    pub fn tried(&mut self, in_use: u32, suggested: u32, outcome: ResizeOutcome) {
        match outcome {
            ResizeOutcome::Won => self.settled.push(in_use),
            ResizeOutcome::Lost => {
                self.settled.push(suggested);
                self.pause = self.pause.saturating_mul(2).min(self.longest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_swings_between_sizes() {
        let mut resizer = Resizer::new(DefaultPolicy::default(), Duration::from_secs(1));
        let mut size = 256;
        let mut tried = Vec::new();
        // The feedback asks for the opposite each time, and every duel is won.
        for second in 0..10_000_u64 {
            let idle_us = if second % 2 == 0 { 200_000 } else { 0 };
            let feedback =
                TunerFeedback { observed_workgroup_size_x: size, idle_us, ..TunerFeedback::default() };
            if let Some(suggested) = resizer.suggest(&feedback, Duration::from_secs(second)) {
                tried.push(suggested);
                resizer.tried(size, suggested, ResizeOutcome::Won);
                size = suggested;
            }
        }
        let mut unique = tried.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), tried.len(), "no size comes twice: {tried:?}");
        assert!(tried.len() <= 6, "{tried:?}");
    }

    #[test]
    fn suggestions_keep_their_distance() {
        let mut resizer = Resizer::new(DefaultPolicy::default(), Duration::from_secs(10));
        let slow = |size| TunerFeedback { observed_workgroup_size_x: size, ..TunerFeedback::default() };
        assert_eq!(resizer.suggest(&slow(64), Duration::ZERO), Some(128));
        assert_eq!(resizer.suggest(&slow(64), Duration::from_secs(9)), None);
        assert_eq!(resizer.suggest(&slow(64), Duration::from_secs(10)), Some(128));
        resizer.tried(64, 128, ResizeOutcome::Lost);
        assert_eq!(resizer.suggest(&slow(256), Duration::from_secs(20)), Some(512));
        assert_eq!(resizer.suggest(&slow(256), Duration::from_secs(39)), None, "twice as long after a loss");
        assert_eq!(resizer.suggest(&slow(256), Duration::from_secs(40)), Some(512));
    }
}
