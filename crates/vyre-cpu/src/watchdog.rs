//! A thread that ends dispatches at their deadline.
//!
//! A timed dispatch registers its flag and deadline here and removes them when it is done. The
//! thread sleeps until the next deadline and raises the flags that are due. It starts with the
//! first timed dispatch of the process.

use crate::per_process::PerProcess;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A watched dispatch.
struct Watch {
    number: u64,
    deadline: Instant,
    /// Alive as long as the entry exists: `watched` removes it before the flag's borrow ends.
    flag: *const AtomicBool,
}

// SAFETY: the pointer is to an atomic that any thread can set.
unsafe impl Send for Watch {}

#[derive(Default)]
struct Watchdog {
    watches: Mutex<Watches>,
    changed: Condvar,
}

#[derive(Default)]
struct Watches {
    list: Vec<Watch>,
    last: u64,
}

/// Returns the instant after a timeout; the longest timeouts are capped so that it exists.
pub(crate) fn after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(1 << 30))
}

/// Runs `work`; the flag is raised when the time is up.
pub(crate) fn watched(flag: &AtomicBool, timeout: Duration, work: impl FnOnce()) {
    let watchdog = watchdog();
    let deadline = after(timeout);
    let number = {
        let mut watches = watchdog.lock();
        let first = watches.list.iter().all(|watch| deadline < watch.deadline);
        watches.last += 1;
        let number = watches.last;
        watches.list.push(Watch { number, deadline, flag });
        // The thread sleeps until the earliest deadline; it is woken only for an earlier one.
        if first {
            watchdog.changed.notify_one();
        }
        number
    };
    let done = Done { watchdog, number };
    work();
    drop(done);
}

/// Removes a watch on drop, including on unwinding.
struct Done {
    watchdog: &'static Watchdog,
    number: u64,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.watchdog.lock().list.retain(|watch| watch.number != self.number);
    }
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: PerProcess<Watchdog> = PerProcess::new();
    WATCHDOG.get(Watchdog::default, |watchdog| {
        let spawned = std::thread::Builder::new().name("vyre-cpu-time".into()).spawn(|| watchdog.serve());
        if let Err(error) = spawned {
            tracing::warn!("timeouts of the cpu backend are late: its thread did not start: {error}");
        }
    })
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut watches = self.lock();
        loop {
            let now = Instant::now();
            for watch in watches.list.iter().filter(|watch| watch.deadline <= now) {
                // SAFETY: the entry exists, so the dispatch has not removed its flag; see `Watch`.
                unsafe { (*watch.flag).store(true, Ordering::Relaxed) };
            }
            watches.list.retain(|watch| watch.deadline > now);
            let next = watches.list.iter().map(|watch| watch.deadline).min();
            watches = match next {
                None => self.changed.wait(watches).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let waited = self.changed.wait_timeout(watches, next - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
