//! Calls on generated memory, to learn in advance how a program performs at a size.

use crate::argument::Argument;
use crate::call::Call;
use crate::inputs::example_bytes;
use crate::parameter::Parameter;
use crate::report::Report;
use crate::routine_core::RoutineCore;
use std::sync::Arc;
use vyre_driver::BackendError;

/// A routine with generated memory for all its buffers, from
/// [`Routine::rehearse`](crate::Routine::rehearse). What the router learns from its calls applies
/// to real calls of that size.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut rehearsal = double.rehearse(1000);
/// for _ in 0..20 {
///     rehearsal.run()?;
/// }
/// assert_eq!(double.explain(1000).route.calls, 20);
/// # Ok::<(), BackendError>(())
/// ```
pub struct Rehearsal {
    core: Arc<RoutineCore>,
    memory: Vec<Vec<u8>>,
}

impl Rehearsal {
    pub(crate) fn new(core: &Arc<RoutineCore>, elements: usize) -> Rehearsal {
        let bytes = |parameter: &Parameter| {
            let count = if parameter.count > 0 { parameter.count as usize } else { elements };
            example_bytes(parameter.element, count, &parameter.name)
        };
        let memory = core.parameters.iter().map(bytes).collect();
        Rehearsal { core: core.clone(), memory }
    }

    /// Runs a routed call.
    pub fn run(&mut self) -> Result<Report, BackendError> {
        self.run_by(None)
    }

    /// Runs a call on this backend.
    pub fn run_on(&mut self, backend: &str) -> Result<Report, BackendError> {
        self.run_by(Some(backend))
    }

    fn run_by(&mut self, backend: Option<&str>) -> Result<Report, BackendError> {
        let mut call = Call::new(&self.core, 0);
        for (parameter, memory) in self.core.parameters.iter().zip(&mut self.memory) {
            let argument = if parameter.access.is_output() {
                Argument::bytes_mut(memory)
            } else {
                Argument::bytes(memory)
            };
            call = call.bind(&parameter.name, argument);
        }
        match backend {
            Some(backend) => call.on(backend).run(),
            None => call.run(),
        }
    }
}
