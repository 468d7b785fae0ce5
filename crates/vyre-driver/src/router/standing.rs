//! Whether a backend may run a program: verified, not yet, or in quarantine.
//!
//! ```text
//! Unverified ──claimed──▶ Verifying ──matched the oracle──▶ Verified
//!     ▲                       │ failed or wrong                 │ failed, or wrong in a later check
//!     └──── time is up ── Quarantined ◀─────────────────────────┘
//! ```
//!
//! Each further quarantine lasts twice as long as the last. Leaving it means being verified again, not being trusted.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// How long the first quarantine lasts.
const FIRST_QUARANTINE_NS: u64 = 1_000_000_000;
/// How long any lasts at most.
const LONGEST_QUARANTINE_NS: u64 = 3_600_000_000_000;
/// A claim whose outcome was not reported by then is void.
const CLAIM_NS: u64 = 60_000_000_000;

/// What is known of the backend's results for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Unverified,
    Verifying,
    Verified,
    Quarantined,
}

/// What put a backend into quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Offence {
    None,
    /// It failed: as a last resort it may be tried again.
    Failed,
    /// Its results were wrong: it is never a last resort.
    Wrong,
}

/// One backend's standing with one program, or with all of them.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: AtomicU8,
    offence: AtomicU8,
    /// How often it was put into quarantine.
    strikes: AtomicU32,
    /// When the quarantine or the claim ends.
    until_ns: AtomicU64,
    ever_verified: AtomicBool,
    reason: Mutex<String>,
}

impl Standing {
    pub(super) fn state(&self) -> State {
        match self.state.load(Acquire) {
            0 => State::Unverified,
            1 => State::Verifying,
            2 => State::Verified,
            _ => State::Quarantined,
        }
    }

    pub(super) fn offence(&self) -> Offence {
        match self.offence.load(Acquire) {
            0 => Offence::None,
            1 => Offence::Failed,
            _ => Offence::Wrong,
        }
    }

    /// Whether it never was in quarantine.
    pub(super) fn is_clean(&self) -> bool {
        self.strikes.load(Relaxed) == 0
    }

    /// Whether its results were found right at some time.
    pub(super) fn was_verified(&self) -> bool {
        self.ever_verified.load(Relaxed)
    }

    /// Why it is, or was, in quarantine.
    pub(super) fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the quarantine ends.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns.load(Relaxed)
    }

    pub(super) fn verify(&self) {
        self.ever_verified.store(true, Relaxed);
        self.offence.store(Offence::None as u8, Release);
        self.state.store(State::Verified as u8, Release);
    }

    pub(super) fn quarantine(&self, offence: Offence, reason: &str, now_ns: u64) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        let strikes = self.strikes.fetch_add(1, Relaxed).min(31);
        let length = FIRST_QUARANTINE_NS.saturating_mul(1 << strikes).min(LONGEST_QUARANTINE_NS);
        self.until_ns.store(now_ns.saturating_add(length), Relaxed);
        self.offence.store(offence as u8, Release);
        self.state.store(State::Quarantined as u8, Release);
    }

    /// Ends a quarantine or a claim whose time is up. Whether the state changed.
    pub(super) fn expire(&self, now_ns: u64) -> bool {
        let state = self.state();
        let timed = matches!(state, State::Quarantined | State::Verifying);
        timed
            && now_ns >= self.until_ns()
            && self.state.compare_exchange(state as u8, State::Unverified as u8, AcqRel, Relaxed).is_ok()
    }

    /// Takes the task of verifying; one caller only gets it.
    pub(super) fn claim(&self, now_ns: u64) -> bool {
        let (from, to) = (State::Unverified as u8, State::Verifying as u8);
        let claimed = self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok();
        if claimed {
            self.until_ns.store(now_ns.saturating_add(CLAIM_NS), Relaxed);
        }
        claimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantines_get_longer_and_end_unverified() {
        let standing = Standing::default();
        assert_eq!((standing.state(), standing.is_clean()), (State::Unverified, true));
        let mut now = 5;
        for strike in 0..40_u32 {
            standing.quarantine(Offence::Failed, "no", now);
            let length = FIRST_QUARANTINE_NS.saturating_mul(1 << strike.min(31)).min(LONGEST_QUARANTINE_NS);
            assert_eq!(standing.until_ns(), now + length);
            assert!(!standing.expire(now + length - 1) && standing.expire(now + length));
            assert_eq!(standing.state(), State::Unverified);
            now += length;
        }
        assert_eq!((standing.reason().as_str(), standing.is_clean()), ("no", false));
    }

    #[test]
    fn one_caller_gets_the_task_until_its_time_is_up() {
        let standing = Standing::default();
        assert!(standing.claim(0) && !standing.claim(0));
        assert!(!standing.expire(CLAIM_NS - 1) && standing.expire(CLAIM_NS) && standing.claim(CLAIM_NS));
        standing.verify();
        assert!(!standing.expire(u64::MAX) && !standing.claim(0));
        assert_eq!(standing.state(), State::Verified);
    }
}
