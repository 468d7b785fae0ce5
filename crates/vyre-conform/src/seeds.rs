//! Seeds of generated programs for a test: as many as fit its time, so that a busy machine makes a
//! test smaller, not longer.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Seeds from `VYRE_SEED` (default 0): `VYRE_CASES` of them, else at least `least`, and up to
/// `most` while time remains.
#[derive(Debug)]
pub struct Seeds {
    next: u64,
    least: u64,
    end: u64,
    deadline: Instant,
}

impl Seeds {
    /// The seeds of one test.
    pub fn new(least: u64, most: u64, time: Duration) -> Seeds {
        let start = number("VYRE_SEED").unwrap_or(0);
        let asked = number("VYRE_CASES");
        Seeds {
            next: start,
            least: start.saturating_add(asked.unwrap_or(least)),
            end: start.saturating_add(asked.unwrap_or(most)),
            deadline: Instant::now() + time,
        }
    }

    /// Calls `check` with each seed, in parallel on all processors.
    pub fn for_each_at_once(self, check: impl Fn(u64) + Sync) {
        let workers = std::thread::available_parallelism().map_or(1, |workers| workers.get());
        let seeds = Mutex::new(self);
        let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some(seed) = next() {
                        check(seed);
                    }
                });
            }
        });
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let wanted = self.next < self.least || (self.next < self.end && Instant::now() < self.deadline);
        wanted.then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_time_there_are_only_the_least() {
        let seeds = |time: u64| Seeds {
            next: 5,
            least: 8,
            end: 12,
            deadline: Instant::now() + Duration::from_secs(time),
        };
        assert_eq!(seeds(0).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(seeds(3600).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10, 11]);
    }
}
