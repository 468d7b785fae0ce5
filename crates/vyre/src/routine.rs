//! A program loaded into a runtime: the handle for callers.

use crate::backend::Backend;
use crate::call::Call;
use crate::code;
use crate::explain::Explanation;
use crate::pending::{Pending, spawn};
use crate::rehearsal::Rehearsal;
use crate::report::Report;
use crate::routine_core::{Pair, RoutineCore};
use crate::sequence::Batch;
use std::sync::Arc;
use vyre_driver::{BackendError, contain};
use vyre_foundation::ir::Program;

/// A program loaded into a [`Runtime`](crate::Runtime), ready to be called from any thread. Cheap
/// to clone.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut x = [1.0f32, 2.0, 3.0];
/// double.call().bind("x", &mut x).run()?;
/// assert_eq!(x, [2.0, 4.0, 6.0]);
/// # Ok::<(), BackendError>(())
/// ```
#[derive(Clone)]
pub struct Routine {
    pub(crate) core: Arc<RoutineCore>,
}

impl Routine {
    /// Starts a call. Bind every buffer by its name, then [`run`](Call::run).
    #[inline]
    pub fn call(&self) -> Call<'_> {
        Call::new(&self.core, 0)
    }

    /// Starts a batch of calls that run in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.core)
    }

    /// Runs a call on another thread, with memory that is moved there and returned with the
    /// outcome: for `async` code and other callers that cannot lend memory to a scope. `bind` binds
    /// the memory to the call and sets its options.
    ///
    /// ```
    /// use vyre::prelude::*;
    /// # let runtime = Runtime::builder().without_tables().build()?;
    /// let double = runtime.load(
    ///     "kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }",
    /// )?;
    /// async fn doubled(double: &Routine, x: Vec<f32>) -> Result<Vec<f32>, BackendError> {
    ///     let (x, report) = double.start_with(x, |call, x| call.bind("x", x)).await;
    ///     report?;
    ///     Ok(x)
    /// }
    /// # let (x, report) = double.start_with(vec![1.0f32; 3], |call, x| call.bind("x", x)).wait();
    /// # assert_eq!((x, report?.elements), (vec![2.0; 3], 3));
    /// # Ok::<(), BackendError>(())
    /// ```
    pub fn start_with<M, B>(&self, memory: M, bind: B) -> Pending<'static, (M, Result<Report, BackendError>)>
    where
        M: Send + 'static,
        B: for<'a> FnOnce(Call<'a>, &'a mut M) -> Call<'a> + Send + 'static,
    {
        let (routine, shared) = (self.clone(), &self.core.shared);
        let work = move |cancellation| {
            let mut memory = memory;
            let run = contain(|| bind(routine.call(), &mut memory).run_until(cancellation));
            let outcome = run.unwrap_or_else(|message| Err(BackendError::new(message)));
            (memory, outcome)
        };
        // A child of `fork` does not have the pool's threads.
        Pending::new(work, |task| match shared.background.is_forked() {
            true => task.run(false),
            false => shared.calls.submit(task, spawn),
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.core.program()
    }

    /// Explains the routing of a call over this many elements in the caller's memory.
    pub fn explain(&self, elements: usize) -> Explanation {
        Explanation::new(&self.core, elements as u64)
    }

    /// Generated memory to call the program on. Each run-time sized buffer has `elements` elements,
    /// at most 2^32 - 1.
    pub fn rehearse(&self, elements: usize) -> Rehearsal {
        Rehearsal::new(&self.core, elements.min(u32::MAX as usize))
    }

    /// Compiles the program on every backend that can run it, so that no call has to. Returns each
    /// backend's outcome.
    pub fn prewarm(&self) -> Vec<(&'static str, Result<(), BackendError>)> {
        let core = &self.core;
        let compile = |backend: &Arc<Backend>| (backend.id, code::base(Pair { core, backend }).map(|_| ()));
        core.shared.backends.iter().filter(|backend| backend.is_met()).map(compile).collect()
    }
}

impl std::fmt::Debug for Routine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routine").field("op", &self.program().op_id().as_str()).finish_non_exhaustive()
    }
}
