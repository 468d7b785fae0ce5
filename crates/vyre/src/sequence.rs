//! Several calls as one: a batch of one program, or a sequence of programs on resident buffers, without reading back between
//! them.

use crate::call::Call;
use crate::report::Report;
use vyre_driver::BackendError;

/// Calls that run one after the other, from [`Runtime::sequence`](crate::Runtime::sequence). Every call is checked before the
/// first one runs. Resident buffers stay where they are between the calls: the router counts what moving them would cost,
/// so the calls go to one backend unless another is faster all the same.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let add = runtime.load("kernel add(x: read_write f32[], y: read f32[]) { x[invocation.x] += y[invocation.x] }")?;
/// let (x, y) = (runtime.resident(&[1.0f32, 2.0]), runtime.resident(&[10.0f32, 20.0]));
/// let reports = runtime
///     .sequence()
///     .then(double.call().bind("x", &x))
///     .then(add.call().bind("x", &x).bind("y", &y))
///     .then(double.call().bind("x", &x))
///     .run()?;
/// assert_eq!(reports.len(), 3);
/// assert_eq!(x.read()?, [24.0, 48.0]);
/// # Ok::<(), BackendError>(())
/// ```
#[must_use = "a sequence does nothing until it is run"]
#[derive(Default)]
pub struct Sequence<'a> {
    calls: Vec<Call<'a>>,
}

impl<'a> Sequence<'a> {
    /// Adds a call.
    pub fn then(mut self, call: Call<'a>) -> Sequence<'a> {
        self.calls.push(call);
        self
    }

    /// Runs the calls in order and waits for them. The first error ends it; the calls before it are done.
    pub fn run(mut self) -> Result<Vec<Report>, BackendError> {
        self.calls.iter_mut().try_for_each(Call::check)?;
        self.calls.into_iter().map(Call::run_checked).collect()
    }
}

impl<'a> Extend<Call<'a>> for Sequence<'a> {
    fn extend<I: IntoIterator<Item = Call<'a>>>(&mut self, calls: I) {
        self.calls.extend(calls);
    }
}
