//! Ready ops: plans of several programs, run by one call on the backend that is fastest for the op.
//!
//! A plan is made for a device and a size, so an [`OpRoutine`] holds the function that makes it.
//! Everything else is as with programs: data passed between steps stays on the backend, and the
//! plan as a whole is routed, verified, tuned and measured.

use crate::call::Call;
use crate::explain::Explanation;
use crate::routine_core::{MakePlan, RoutineCore};
use crate::sequence::Batch;
use crate::shared::Shared;
use std::sync::Arc;
use vyre_driver::BackendError;

/// A ready op loaded into a runtime, from [`Runtime::load_op`](crate::Runtime::load_op). Cheap to
/// clone, and callable from any number of threads.
#[derive(Clone)]
pub struct OpRoutine {
    core: Arc<RoutineCore>,
}

impl OpRoutine {
    pub(crate) fn new(shared: Arc<Shared>, make: Arc<MakePlan>) -> Result<OpRoutine, BackendError> {
        let config = shared.config.clone();
        Ok(OpRoutine { core: Arc::new(RoutineCore::of_op(shared, make, config)?) })
    }

    /// Starts a call at a size, whose meaning is up to the loaded function: usually the number of
    /// elements. Bind every buffer by its name, then [`run`](Call::run).
    pub fn call(&self, size: usize) -> Call<'_> {
        Call::at(&self.core, size)
    }

    /// Starts a batch of calls that run in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.core)
    }

    /// Explains the routing of a call at a size.
    pub fn explain(&self, size: usize) -> Explanation {
        Explanation::new(&self.core, size as u64)
    }
}

impl std::fmt::Debug for OpRoutine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpRoutine").field("op", &self.core.name()).finish_non_exhaustive()
    }
}
