//! A call under way on another thread.

use crate::report::Report;
use std::thread::ScopedJoinHandle;
use vyre_driver::BackendError;

/// A call under way, from [`Call::start`](crate::Call::start). The memory that it was given stays borrowed until its scope
/// ends, so nothing is copied and nothing can be freed under it.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let (mut x, mut y) = ([1.0f32; 100], [2.0f32; 100]);
/// std::thread::scope(|scope| {
///     let first = double.call().bind("x", &mut x).start(scope);
///     let second = double.call().bind("x", &mut y).start(scope);
///     first.wait()?;
///     second.wait()
/// })?;
/// assert_eq!((x[0], y[99]), (2.0, 4.0));
/// # Ok::<(), BackendError>(())
/// ```
#[derive(Debug)]
pub struct Pending<'scope> {
    pub(crate) outcome: Result<ScopedJoinHandle<'scope, Result<Report, BackendError>>, BackendError>,
}

impl Pending<'_> {
    /// Whether the call is over, so that waiting for it takes no time.
    pub fn is_finished(&self) -> bool {
        self.outcome.as_ref().map_or(true, ScopedJoinHandle::is_finished)
    }

    /// Waits for the call.
    pub fn wait(self) -> Result<Report, BackendError> {
        self.outcome?.join().unwrap_or_else(|_| Err(BackendError::new("the thread of a call ended early")))
    }
}
