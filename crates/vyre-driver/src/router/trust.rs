//! How far a backend is trusted with a program: unverified, verified, quarantined, or wrong for
//! good.
//!
//! ```text
//! Unverified ──claimed──▶ Verifying ──matched the oracle──▶ Verified
//!     ▲ ▲                   │ │ failed                          │ failed
//!     │ └── inconclusive ───┘ ▼                                 │
//!     └──── time is up ── Quarantined ◀─────────────────────────┘
//!
//! any of these ──results were wrong──▶ Wrong, for good
//! ```
//!
//! Each quarantine lasts twice as long as the one before. A backend that leaves quarantine must be
//! verified again, unless it ran successfully in the meantime as a last resort.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Length of the first quarantine: ten times as long as opening PoCL and lavapipe takes (90 ms for
/// both), so that calls do not fail on a driver that is still being reopened. 1 ms breaks no bound
/// of `filetests/routing`.
const FIRST_QUARANTINE_NS: u64 = 1_000_000_000;
/// Length of the longest quarantine: a backend that always fails costs a service one call an hour.
const LONGEST_QUARANTINE_NS: u64 = 3_600_000_000_000;
/// How long a claim is valid without a report, and the delay before another claim after an
/// inconclusive one: twice what the runtime allows a check to take.
const CLAIM_NS: u64 = 60_000_000_000;

/// What is known about the backend's results for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TrustState {
    Unverified,
    Verifying,
    Verified,
    /// It failed.
    Quarantined,
    /// Its results were wrong.
    Wrong,
}

/// How far one backend is trusted with one program, or with all of them.
#[derive(Debug, Default)]
pub(super) struct Trust {
    state: AtomicU8,
    /// Whether it failed, and has neither been verified nor run since.
    doubted: AtomicBool,
    /// Number of quarantines.
    strikes: AtomicU32,
    /// When the quarantine or the claim ends. Nothing is claimed before that.
    until_ns: AtomicU64,
    ever_verified: AtomicBool,
    /// What speaks against it. Locked while the state is set, so that nothing overwrites
    /// [`TrustState::Wrong`].
    reason: Mutex<String>,
}

impl Trust {
    #[inline]
    pub(super) fn state(&self) -> TrustState {
        match self.state.load(Acquire) {
            0 => TrustState::Unverified,
            1 => TrustState::Verifying,
            2 => TrustState::Verified,
            3 => TrustState::Quarantined,
            _ => TrustState::Wrong,
        }
    }

    /// Whether it failed, and has neither been verified nor run since.
    #[inline]
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Relaxed)
    }

    /// Whether its results were ever verified.
    pub(super) fn was_verified(&self) -> bool {
        self.ever_verified.load(Relaxed)
    }

    /// The reason for its current or last quarantine or rejection.
    pub(super) fn reason(&self) -> String {
        self.lock().clone()
    }

    /// When the quarantine ends.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns.load(Relaxed)
    }

    /// Records that its results were right. Has no effect on [`TrustState::Wrong`].
    pub(super) fn verify(&self) {
        let _held = self.lock();
        if self.state() != TrustState::Wrong {
            self.ever_verified.store(true, Relaxed);
            self.doubted.store(false, Relaxed);
            self.set(TrustState::Verified);
        }
    }

    /// Records a failure. Has no effect on [`TrustState::Wrong`].
    pub(super) fn quarantine(&self, reason: &str, now_ns: u64) {
        let mut held = self.lock();
        if self.state() == TrustState::Wrong {
            return;
        }
        reason.clone_into(&mut held);
        let strikes = self.strikes.fetch_add(1, Relaxed).min(31);
        let length = FIRST_QUARANTINE_NS.saturating_mul(1 << strikes).min(LONGEST_QUARANTINE_NS);
        self.until_ns.store(now_ns.saturating_add(length), Relaxed);
        self.doubted.store(true, Relaxed);
        self.set(TrustState::Quarantined);
    }

    /// Records wrong results; this state is final.
    pub(super) fn reject(&self, reason: &str) {
        let mut held = self.lock();
        reason.clone_into(&mut held);
        self.set(TrustState::Wrong);
    }

    /// Restores the state before a failure: it ran without failing, or the router verifies nothing.
    pub(super) fn recover(&self) {
        let _held = self.lock();
        if matches!(self.state(), TrustState::Quarantined | TrustState::Unverified) {
            self.doubted.store(false, Relaxed);
            self.set(if self.was_verified() { TrustState::Verified } else { TrustState::Unverified });
        }
    }

    /// Ends an expired quarantine or claim. Returns whether the state changed.
    pub(super) fn expire(&self, now_ns: u64) -> bool {
        let state = self.state();
        let timed = matches!(state, TrustState::Quarantined | TrustState::Verifying);
        timed
            && now_ns >= self.until_ns()
            && self.state.compare_exchange(state as u8, TrustState::Unverified as u8, AcqRel, Relaxed).is_ok()
    }

    /// Whether it can be verified now: it is not verified, and no inconclusive attempt was recent.
    pub(super) fn is_verifiable(&self, now_ns: u64) -> bool {
        match self.state() {
            TrustState::Verifying => true,
            TrustState::Unverified => now_ns >= self.until_ns(),
            TrustState::Verified | TrustState::Quarantined | TrustState::Wrong => false,
        }
    }

    /// Claims the verification; only one caller succeeds.
    pub(super) fn claim(&self, now_ns: u64) -> bool {
        let (from, to) = (TrustState::Unverified as u8, TrustState::Verifying as u8);
        let claimed =
            self.is_verifiable(now_ns) && self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok();
        if claimed {
            self.until_ns.store(now_ns.saturating_add(CLAIM_NS), Relaxed);
        }
        claimed
    }

    /// Releases the claim without an outcome.
    pub(super) fn release(&self, now_ns: u64) {
        let _held = self.lock();
        if matches!(self.state(), TrustState::Unverified | TrustState::Verifying) {
            self.until_ns.store(now_ns.saturating_add(CLAIM_NS), Relaxed);
            self.set(TrustState::Unverified);
        }
    }

    fn set(&self, state: TrustState) {
        self.state.store(state as u8, Release);
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantines_get_longer_and_end_unverified() {
        let trust = Trust::default();
        assert_eq!((trust.state(), trust.is_doubted()), (TrustState::Unverified, false));
        let mut now = 5;
        for strike in 0..40_u32 {
            trust.quarantine("no", now);
            let length = FIRST_QUARANTINE_NS.saturating_mul(1 << strike.min(31)).min(LONGEST_QUARANTINE_NS);
            assert_eq!(trust.until_ns(), now + length);
            assert!(!trust.expire(now + length - 1) && trust.expire(now + length));
            assert_eq!(trust.state(), TrustState::Unverified);
            now += length;
        }
        assert_eq!((trust.reason().as_str(), trust.is_doubted()), ("no", true));
    }

    #[test]
    fn one_caller_gets_the_task_until_its_time_is_up() {
        let trust = Trust::default();
        assert!(trust.claim(0) && !trust.claim(0));
        assert!(!trust.expire(CLAIM_NS - 1) && trust.expire(CLAIM_NS) && trust.claim(CLAIM_NS));
        trust.verify();
        assert!(!trust.expire(u64::MAX) && !trust.claim(0));
        assert_eq!(trust.state(), TrustState::Verified);
    }

    #[test]
    fn what_came_to_nothing_is_not_tried_again_at_once() {
        let trust = Trust::default();
        assert!(trust.claim(5));
        trust.release(10);
        assert_eq!((trust.state(), trust.is_doubted()), (TrustState::Unverified, false));
        assert!(!trust.is_verifiable(CLAIM_NS + 9) && !trust.claim(CLAIM_NS + 9));
        assert!(trust.is_verifiable(CLAIM_NS + 10) && trust.claim(CLAIM_NS + 10));
        trust.verify();
        trust.release(20);
        assert_eq!(trust.state(), TrustState::Verified);
    }

    #[test]
    fn a_backend_that_ran_again_keeps_its_standing_and_is_not_checked_sooner() {
        let trust = Trust::default();
        trust.quarantine("no", 0);
        trust.recover();
        assert_eq!((trust.state(), trust.is_doubted()), (TrustState::Unverified, false));
        assert!(!trust.claim(FIRST_QUARANTINE_NS - 1) && trust.claim(FIRST_QUARANTINE_NS));
        trust.verify();
        trust.quarantine("no", 0);
        trust.recover();
        assert_eq!(trust.state(), TrustState::Verified);
    }

    #[test]
    fn nothing_leads_back_from_wrong_results() {
        let trust = Trust::default();
        trust.verify();
        trust.reject("bits differ");
        trust.quarantine("the driver gave up", 0);
        trust.verify();
        trust.recover();
        assert!(!trust.expire(u64::MAX) && !trust.claim(u64::MAX));
        assert_eq!((trust.state(), trust.reason().as_str()), (TrustState::Wrong, "bits differ"));
    }
}
