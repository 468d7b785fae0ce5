//! Containment of backends: a panic does not take down the process, and slowness does not block the
//! caller.

use crate::BackendError;
use crate::process_exit::{Inside, outside};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Runs backend code; a panic in it is returned as its message.
///
/// A backend that panicked may be left in an inconsistent state. The driver itself keeps no state
/// that such a call could leave half-written, which justifies `AssertUnwindSafe` here.
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| format!("it panicked: {}", panic_text(&*payload)))
}

/// Runs a call of a backend; a panic becomes a failed launch.
pub fn contain_call<T>(
    backend: &str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    contain(run).unwrap_or_else(|message| Err(BackendError::failed(backend, message)))
}

/// Why work on a dedicated thread gave no result.
#[derive(Debug)]
pub enum Unfinished {
    /// It did not finish in time, and is still running.
    Late,
    /// It panicked, with this message.
    Panicked(String),
    /// Its thread could not be started.
    NeverBegun(io::Error),
}

impl Unfinished {
    /// The error of a call of this backend that waited for the work up to `limit`.
    pub fn of_backend(self, backend: &str, limit: Duration) -> BackendError {
        match self {
            Unfinished::Late => BackendError::Timeout { backend: backend.into(), limit },
            unfinished => BackendError::failed(backend, unfinished.to_string()),
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Late => f.write_str("it did not finish in time"),
            Unfinished::Panicked(message) => f.write_str(message),
            Unfinished::NeverBegun(error) => write!(f, "no thread could be started for it: {error}"),
        }
    }
}

/// Stack size: drivers traverse expressions recursively, and long kernels need more than the
/// default. Eight times the 8 MiB that Linux gives to a first thread; chosen, not measured. It is
/// address space: memory is committed only as it is used.
const STACK: usize = 64 << 20;

/// Work on a dedicated thread, which can enter drivers.
struct WorkThread<T>(Receiver<Result<T, String>>);

impl<T: Send + 'static> WorkThread<T> {
    fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<WorkThread<T>, Unfinished> {
        let (done, waiting) = channel();
        let thread = thread::Builder::new().name(format!("vyre-{name}")).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let _inside = Inside::enter();
            // The receiver is gone if the time was up.
            let _ = done.send(contain(work));
        });
        spawned.map_err(Unfinished::NeverBegun)?;
        Ok(WorkThread(waiting))
    }

    fn wait(self, limit: Duration) -> Result<T, Unfinished> {
        let done = outside(|| self.0.recv_timeout(limit));
        done.map_err(|_| Unfinished::Late)?.map_err(Unfinished::Panicked)
    }
}

/// Runs work on a dedicated thread and waits for it up to `limit`. A driver cannot be stopped, so
/// work that takes longer keeps running, and its result is dropped.
///
/// ```
/// use std::time::Duration;
/// use vyre_driver::{Unfinished, within};
///
/// let sum = within("sum", Duration::from_secs(60), || 2 + 2);
/// assert!(matches!(sum, Ok(4)));
/// let endless = within("endless", Duration::ZERO, || std::thread::park());
/// assert!(matches!(endless, Err(Unfinished::Late)));
/// ```
pub fn within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    WorkThread::start(name, work)?.wait(limit)
}

/// Opens things concurrently, each on a thread with the given name, with one time limit for all.
pub fn open_all<K, T: Send + 'static, F: FnOnce() -> Result<T, String> + Send + 'static>(
    limit: Duration,
    all: impl IntoIterator<Item = (K, String, F)>,
) -> Vec<(K, Result<T, String>)> {
    let started = Instant::now();
    let start = |(key, name, open): (K, String, F)| (key, WorkThread::start(&name, open));
    let opening: Vec<_> = all.into_iter().map(start).collect();
    let outcome = |opening: Result<WorkThread<Result<T, String>>, Unfinished>| {
        let opened = opening.and_then(|opening| opening.wait(limit.saturating_sub(started.elapsed())));
        opened.unwrap_or_else(|unfinished| match unfinished {
            Unfinished::Late => Err(format!("it did not open within {limit:?}")),
            unfinished => Err(unfinished.to_string()),
        })
    };
    opening.into_iter().map(|(key, opening)| (key, outcome(opening))).collect()
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::contain;

    #[test]
    fn panics_become_messages() {
        assert_eq!(contain(|| 5), Ok(5));
        assert_eq!(contain(|| panic!("plain")), Err::<(), _>("it panicked: plain".into()));
        assert_eq!(contain(|| panic!("formatted {}", 1)), Err::<(), _>("it panicked: formatted 1".into()));
        let odd = contain(|| std::panic::panic_any(7u8));
        assert_eq!(odd, Err::<(), _>("it panicked: (no message)".into()));
    }
}
