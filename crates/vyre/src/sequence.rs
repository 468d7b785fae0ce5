//! Several calls as one: a batch of one routine, or a sequence of any, without reading back in
//! between.

use crate::argument::{Bound, argument_error};
use crate::call::Call;
use crate::dispatch;
use crate::joint_launch;
use crate::report::Report;
use crate::routine_core::RoutineCore;
use std::sync::Arc;
use vyre_driver::BackendError;

/// Calls that run one after the other, from [`Runtime::sequence`](crate::Runtime::sequence). Every
/// call is checked before the first one runs. Resident buffers stay where they are between the
/// calls: the router counts the cost of moving them, so the calls go to one backend unless another
/// is faster all the same. A device that supports it (`cuda`) runs neighbours in one launch;
/// [`Report::wall`] is then a share of its time, in proportion to what each takes alone.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let add = runtime.load(
///     "kernel add(x: read_write f32[], y: read f32[]) { x[invocation.x] += y[invocation.x] }",
/// )?;
/// let (mut x, y) = (runtime.resident(&[1.0f32, 2.0]), runtime.resident(&[10.0f32, 20.0]));
/// let cell = x.cell(); // three calls write it
/// let reports = runtime
///     .sequence()
///     .then(double.call().bind("x", cell))
///     .then(add.call().bind("x", cell).bind("y", &y))
///     .then(double.call().bind("x", cell))
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

    /// Runs the calls in order and waits for them. The first error ends the run; the calls before
    /// it are done.
    pub fn run(mut self) -> Result<Vec<Report>, BackendError> {
        self.calls.iter_mut().try_for_each(Call::check)?;
        joint_launch::run(&mut self.calls)
    }
}

impl<'a> Extend<Call<'a>> for Sequence<'a> {
    fn extend<I: IntoIterator<Item = Call<'a>>>(&mut self, calls: I) {
        self.calls.extend(calls);
    }
}

/// Calls of one routine that run in one go, from [`Routine::batch`](crate::Routine::batch) or
/// [`OpRoutine::batch`](crate::OpRoutine::batch). The options of the first call (backend, fallback,
/// timeout, configuration) apply to all. Every call is checked before anything runs.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut rows = vec![vec![1.0f32; 100]; 8];
/// let mut batch = double.batch();
/// batch.extend(rows.iter_mut().map(|row| double.call().bind("x", row)));
/// let report = batch.run()?;
/// assert_eq!(report.map(|report| report.elements), Some(800));
/// assert!(rows.iter().flatten().all(|&x| x == 2.0));
/// # Ok::<(), BackendError>(())
/// ```
#[must_use = "a batch does nothing until it is run"]
pub struct Batch<'a> {
    core: &'a Arc<RoutineCore>,
    calls: Vec<Call<'a>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(core: &'a Arc<RoutineCore>) -> Batch<'a> {
        Batch { core, calls: Vec::new() }
    }

    /// Adds a call of the batch's routine.
    pub fn then(mut self, call: Call<'a>) -> Batch<'a> {
        self.calls.push(call);
        self
    }

    /// Runs the calls and waits for them. The report covers all of them; `None` if there are no
    /// calls. After an error, memory bound for writing has unspecified contents, as after a single
    /// call's.
    pub fn run(mut self) -> Result<Option<Report>, BackendError> {
        let size = self.calls.first().map_or(0, |call| call.options.size);
        for call in &mut self.calls {
            let (name, other) = (self.core.name(), call.options.size);
            if !call.is_of(self.core) {
                let message =
                    format!("a batch of `{name}` was given a call of something else; use a sequence");
                return Err(argument_error(message));
            }
            if other != size {
                let message = format!(
                    "a batch of `{name}` was given calls at sizes {size} and {other}; use a sequence"
                );
                return Err(argument_error(message));
            }
            call.check()?;
        }
        let Some(first) = self.calls.first_mut() else { return Ok(None) };
        let options = std::mem::take(&mut first.options);
        let mut items: Vec<&mut [Bound<'_>]> = self.calls.iter_mut().map(Call::bound).collect();
        dispatch::run(self.core, &mut items, &options).map(Some)
    }
}

impl<'a> Extend<Call<'a>> for Batch<'a> {
    fn extend<I: IntoIterator<Item = Call<'a>>>(&mut self, calls: I) {
        self.calls.extend(calls);
    }
}
