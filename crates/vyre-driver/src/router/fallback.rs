//! Fallback: whether another backend may retry a failed call, by the rules of [`Fallback`].
//!
//! An error in the program or its inputs occurs on every backend, and a caller whose deadline has
//! passed does not want another backend to start; neither is retried. A failed launch may have
//! written to the caller's memory, so it is retried only if that memory was saved first.

use crate::{BackendError, Fallback};

/// How the backend was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    /// The caller named it.
    Caller,
    /// The router chose it.
    Router,
}

/// How far a failed call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was launched: the caller's memory is untouched.
    BeforeLaunch,
    /// The kernel may have run; the memory it can write was saved and can be restored, or there is
    /// none.
    LaunchedOnSavedMemory,
    /// The kernel may have run on the caller's memory.
    Launched,
}

/// What to do about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackDecision {
    /// Try another backend, and warn.
    RetryWithWarning,
    /// Try another backend; the result reports which one ran.
    Retry,
    /// Return the error to the caller, for this reason.
    Fail(&'static str),
}

/// The policy if the caller specifies none: a named backend is binding, a routed one is not.
pub fn default_policy(chosen: ChosenBy) -> Fallback {
    match chosen {
        ChosenBy::Caller => Fallback::Forbid,
        ChosenBy::Router => Fallback::Warn,
    }
}

/// Decides what to do about a failed call.
///
/// ```
/// use vyre_driver::router::fallback::{Phase, FallbackDecision, decide};
/// use vyre_driver::{BackendError, Fallback};
/// let error = BackendError::new("the driver gave up");
/// assert_eq!(decide(Fallback::Allow, Phase::BeforeLaunch, &error), FallbackDecision::Retry);
/// assert!(matches!(decide(Fallback::Allow, Phase::Launched, &error), FallbackDecision::Fail(_)));
/// ```
pub fn decide(policy: Fallback, phase: Phase, error: &BackendError) -> FallbackDecision {
    if let Some(reason) = excuse(error) {
        return FallbackDecision::Fail(reason);
    }
    match (policy, phase) {
        (Fallback::Forbid, _) => FallbackDecision::Fail("fallback is forbidden"),
        (_, Phase::Launched) => FallbackDecision::Fail("the kernel may have written to the caller's memory"),
        (Fallback::Warn, Phase::BeforeLaunch | Phase::LaunchedOnSavedMemory) => {
            FallbackDecision::RetryWithWarning
        }
        (Fallback::Allow, Phase::BeforeLaunch | Phase::LaunchedOnSavedMemory) => FallbackDecision::Retry,
    }
}

/// Why an error is not the backend's fault; `None` if it is.
pub(super) fn excuse(error: &BackendError) -> Option<&'static str> {
    match error {
        BackendError::InvalidProgram { .. }
        | BackendError::Trapped { .. }
        | BackendError::AssertFailed { .. } => Some("the program or its inputs would fail on every backend"),
        BackendError::Timeout { .. } => Some("the caller's time limit has passed"),
        BackendError::Cancelled { .. } => Some("the caller cancelled the call"),
        BackendError::Other { .. }
        | BackendError::DeviceOutOfMemory { .. }
        | BackendError::UnsupportedFeature { .. }
        | BackendError::KernelCompileFailed { .. }
        | BackendError::DispatchFailed { .. }
        | BackendError::DeviceLost { .. }
        | BackendError::NotLinked { .. }
        | BackendError::DuplicateBackend { .. }
        | BackendError::NoUsableBackend { .. }
        | BackendError::TableFailed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_rules() {
        use Phase::*;
        let (retry, warn, fail) = ("retry", "warn", "fail");
        let word = |decision| match decision {
            FallbackDecision::Retry => retry,
            FallbackDecision::RetryWithWarning => warn,
            FallbackDecision::Fail(_) => fail,
        };
        let failed = BackendError::DispatchFailed { backend: "b".into(), message: "m".into() };
        let excused = [
            BackendError::Trapped { kernel: "k".into(), code: 1 },
            BackendError::InvalidProgram { diagnostics: Default::default() },
            BackendError::Timeout { backend: "b".into(), limit: std::time::Duration::from_secs(1) },
        ];
        for (policy, phase, expected) in [
            (Fallback::Forbid, BeforeLaunch, fail),
            (Fallback::Forbid, LaunchedOnSavedMemory, fail),
            (Fallback::Warn, BeforeLaunch, warn),
            (Fallback::Warn, LaunchedOnSavedMemory, warn),
            (Fallback::Warn, Launched, fail),
            (Fallback::Allow, BeforeLaunch, retry),
            (Fallback::Allow, LaunchedOnSavedMemory, retry),
            (Fallback::Allow, Launched, fail),
        ] {
            assert_eq!(word(decide(policy, phase, &failed)), expected, "{policy:?} {phase:?}");
            for error in &excused {
                assert_eq!(word(decide(policy, phase, error)), fail, "{policy:?} {phase:?} {error}");
            }
        }
        assert_eq!(default_policy(ChosenBy::Caller), Fallback::Forbid);
        assert_eq!(default_policy(ChosenBy::Router), Fallback::Warn);
    }
}
