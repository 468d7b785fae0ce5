//! A turn held by one thread at a time, or an event in progress; others wait for its end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A held turn, released on drop.
pub(crate) struct HeldTurn(Arc<Turn>);

impl Turn {
    pub(crate) fn new(taken: bool) -> Turn {
        Turn { taken: Mutex::new(taken), free: Condvar::new() }
    }

    /// Waits until the turn is free, up to a limit.
    pub(crate) fn wait(&self, limit: Duration) -> MutexGuard<'_, bool> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, limit, |taken| *taken);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn take(self: &Arc<Turn>, limit: Duration) -> Option<HeldTurn> {
        (!std::mem::replace(&mut *self.wait(limit), true)).then(|| HeldTurn(self.clone()))
    }

    pub(crate) fn end(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.free.notify_all();
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        self.0.end();
    }
}
