//! Keeping a backend's panic from becoming the process's, and its slowness from becoming the caller's.

use crate::BackendError;
use crate::process_exit::{Inside, outside};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Runs code of a backend; a panic in it comes back as its message.
///
/// A backend that panicked half-way may be left in a state of its own making; the driver itself keeps nothing that such a
/// call could leave half-written, which is what `AssertUnwindSafe` stands for here.
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| format!("it panicked: {}", panic_text(&*payload)))
}

/// Runs a call of a backend: a panic becomes a launch that failed.
pub fn contain_call<T>(
    backend: &str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    contain(run).unwrap_or_else(|message| Err(BackendError::failed(backend, message)))
}

/// Why work on a thread of its own gave nothing.
#[derive(Debug)]
pub enum Unfinished {
    /// It did not end in time, and goes on.
    Late,
    /// It panicked; this is its message.
    Panicked(String),
    /// There was no thread for it.
    NeverBegun(io::Error),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Late => f.write_str("it did not end in time"),
            Unfinished::Panicked(message) => f.write_str(message),
            Unfinished::NeverBegun(error) => write!(f, "there was no thread for it: {error}"),
        }
    }
}

/// Drivers follow expressions recursively; long kernels need more than threads usually have.
const STACK: usize = 64 << 20;

/// Work on a thread of its own, which may go into drivers.
struct Work<T>(Receiver<Result<T, String>>);

impl<T: Send + 'static> Work<T> {
    fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<Work<T>, Unfinished> {
        let (done, waiting) = channel();
        let thread = thread::Builder::new().name(format!("vyre-{name}")).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let _inside = Inside::enter();
            // Nobody listens any more where the time is up.
            let _ = done.send(contain(work));
        });
        spawned.map_err(Unfinished::NeverBegun)?;
        Ok(Work(waiting))
    }

    fn wait(self, limit: Duration) -> Result<T, Unfinished> {
        let done = outside(|| self.0.recv_timeout(limit));
        done.map_err(|_| Unfinished::Late)?.map_err(Unfinished::Panicked)
    }
}

/// Does work on a thread of its own and waits for it so long. Nothing can stop a driver, so work that takes longer goes on;
/// what it gives then is dropped.
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
    Work::start(name, work)?.wait(limit)
}

/// Opens things at once, each on a thread of the name that is given; together they have one time limit.
pub fn open_all<K, T: Send + 'static, F: FnOnce() -> Result<T, String> + Send + 'static>(
    limit: Duration,
    all: impl IntoIterator<Item = (K, String, F)>,
) -> Vec<(K, Result<T, String>)> {
    let started = Instant::now();
    let start = |(key, name, open): (K, String, F)| (key, Work::start(&name, open));
    let opening: Vec<_> = all.into_iter().map(start).collect();
    let outcome = |opening: Result<Work<Result<T, String>>, Unfinished>| {
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
