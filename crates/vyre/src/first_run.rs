//! First runs under a deadline, of a routine on a driver or of a large routine on any backend: on
//! copies, on a separate thread.
//!
//! A driver compiles a program when it receives it, when it first launches it, or both; this can
//! take any time and cannot be stopped. A call with a deadline therefore does not enter a driver
//! that has not run the routine yet: a separate thread does, on copies of the call's memory. If it
//! returns in time, its results are the call's; if not, the call ends and the thread continues, so
//! that a later call finds the code. Calls that come meanwhile wait for it within their limits.
//! From the second call on, everything runs in place.
//!
//! For a call on resident buffers, or of a batch, only the code is compiled on the thread
//! ([`prepare`]); the call then runs in place, since backends keep deadlines once there is code.
//!
//! Programs that a driver is not known to survive are tried in a helper process first
//! ([`helper_trial`](crate::helper_trial)).

use crate::argument::Bound;
use crate::backend::Backend;
use crate::code::{self, CodeRequest};
use crate::held_buffers::{Bindings, HeldBuffers};
use crate::helper_trial;
use crate::routine_core::{Pair, RoutineCore};
use std::time::{Duration, Instant};
use vyre_driver::tuner::Shape;
use vyre_driver::{BackendError, DispatchConfig, Unfinished, messages, within};

/// Outcome of a run.
pub(crate) struct Done {
    pub(crate) elapsed: Duration,
    pub(crate) tuned: Option<Shape>,
    /// One per parameter.
    memory: Vec<Vec<u8>>,
}

impl Done {
    /// Copies what the kernel wrote to the caller's memory.
    pub(crate) fn copy_back(&self, core: &RoutineCore, item: &mut [Bound<'_>]) {
        for ((parameter, memory), copy) in core.parameters.iter().zip(item).zip(&self.memory) {
            if let Bound::Write(bytes) = memory
                && parameter.access.is_output()
            {
                bytes.copy_from_slice(copy);
            }
        }
    }
}

/// Runs a call on a separate thread; a [`BackendError::Timeout`] if that takes too long.
pub(crate) fn run(request: &CodeRequest<'_, '_, '_>, limit: Duration) -> Result<Done, BackendError> {
    let [item] = request.items else { unreachable!("a batch is not run apart") };
    let CodeRequest { at, elements, size, mode, .. } = *request;
    let (began, config) = (Instant::now(), request.config.clone());
    let mut memory = copies(at.backend, item)?;
    apart(at, limit, move |at| {
        // Waiting and compiling count against the time to run.
        let left = || Some(limit.saturating_sub(began.elapsed()));
        let config = DispatchConfig { timeout: left(), ..config };
        let mut item: Vec<Bound<'_>> = memory.iter_mut().map(|bytes| Bound::Write(bytes)).collect();
        let items = [item.as_mut_slice()];
        let code = code::code(&CodeRequest { at, config: &config, elements, size, items: &items, mode })?;
        let config = DispatchConfig { timeout: left(), ..config };
        let called = Instant::now();
        let mut bindings = Bindings::new();
        HeldBuffers::default().bind(&at.core.parameters, &mut item, &mut bindings);
        code.pipeline.dispatch_bound(&mut bindings, &config)?;
        drop(bindings);
        at.state().set_run(code.instance);
        Ok(Done { elapsed: called.elapsed(), tuned: code.tuned, memory })
    })
}

/// Compiles a call's code on a separate thread; a [`BackendError::Timeout`] if that takes too long.
pub(crate) fn prepare(request: &CodeRequest<'_, '_, '_>, limit: Duration) -> Result<(), BackendError> {
    let CodeRequest { at, elements, size, mode, .. } = *request;
    let config = request.config.clone();
    apart(at, limit, move |at| {
        let code = code::code(&CodeRequest { at, config: &config, elements, size, items: &[], mode })?;
        at.state().set_run(code.instance);
        Ok(())
    })
}

/// Waits for its turn, does a first run on a separate thread, which keeps the turn, and waits for
/// it, all within a limit.
fn apart<T: Send + 'static>(
    at: Pair<'_>,
    limit: Duration,
    work: impl FnOnce(Pair<'_>) -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let (core, backend, began) = (at.core.clone(), at.backend.clone(), Instant::now());
    let id = backend.id;
    let turn = at.state().turn.take(limit).ok_or_else(|| Unfinished::Late.of_backend(id, limit))?;
    let done = within(&format!("first-{id}"), limit.saturating_sub(began.elapsed()), move || {
        let (_turn, at) = (turn, Pair { core: &core, backend: &backend });
        messages::listen(|| helper_trial::survives(at).and_then(|()| work(at)))
    });
    let (outcome, prints) = done.map_err(|unfinished| unfinished.of_backend(id, limit))?;
    messages::pass_on(prints);
    // Reports the caller's limit, not the time that was left.
    outcome.map_err(|error| error.of_call(Some(limit)))
}

fn copies(backend: &Backend, item: &[Bound<'_>]) -> Result<Vec<Vec<u8>>, BackendError> {
    let copy = |memory: &Bound<'_>| {
        let bytes = memory.bytes().unwrap_or_default();
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).map_err(|_| BackendError::DeviceOutOfMemory {
            backend: backend.id.into(),
            requested_bytes: bytes.len() as u64,
        })?;
        copy.extend_from_slice(bytes);
        Ok(copy)
    };
    item.iter().map(copy).collect()
}
