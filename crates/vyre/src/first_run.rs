//! First runs under a deadline, of a routine on a driver or of a large routine on any backend: on
//! copies, on a separate thread.
//!
//! A driver compiles when it is given a program, when it first launches it, or both, for as long as
//! it likes, and cannot be stopped. A call with a deadline therefore does not enter a driver that
//! has not run the routine yet: a separate thread does, on copies of the call's memory. If it
//! returns in time, its results are the call's; if not, the call ends and the thread continues, so
//! that a later call finds the code. Calls that come meanwhile wait for it within their limits.
//! From the second call on, everything runs in place.
//!
//! For a call on resident buffers, or of a batch, only the code is compiled on the thread
//! ([`prepare`]); the call then runs in place, since backends keep deadlines once there is code.
//!
//! Programs that a driver is not known to survive are tried in a helper process first
//! ([`helper_trial`](crate::helper_trial)).

use crate::argument::Memory;
use crate::backend::Backend;
use crate::code::{self, Wanted};
use crate::core::{Core, Pair};
use crate::held_buffers::{Bindings, HeldBuffers};
use crate::helper_trial;
use crate::shared::nanoseconds;
use crate::turn::Taken;
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
    pub(crate) fn copy_back(&self, core: &Core, item: &mut [Memory<'_>]) {
        for ((parameter, memory), copy) in core.parameters.iter().zip(item).zip(&self.memory) {
            if let Memory::Write(bytes) = memory
                && parameter.access.is_output()
            {
                bytes.copy_from_slice(copy);
            }
        }
    }
}

/// Runs a call on a separate thread; a [`BackendError::Timeout`] if that takes too long.
pub(crate) fn run(wanted: &Wanted<'_, '_, '_>, limit: Duration) -> Result<Done, BackendError> {
    let [item] = wanted.items else { unreachable!("a batch is not run apart") };
    let (core, backend, began) = (wanted.at.core.clone(), wanted.at.backend.clone(), Instant::now());
    let (id, elements, size, mode) = (backend.id, wanted.elements, wanted.size, wanted.mode);
    let turn = turn(wanted, limit)?;
    let mut memory = copies(&backend, item)?;
    let left = limit.saturating_sub(began.elapsed());
    let config = DispatchConfig { timeout: Some(left), ..wanted.config.clone() };
    finish(id, limit, turn, left, move || {
        let (at, called) = (Pair { core: &core, backend: &backend }, Instant::now());
        helper_trial::survives(at)?;
        let mut item: Vec<Memory<'_>> = memory.iter_mut().map(|bytes| Memory::Write(bytes)).collect();
        let items = [item.as_mut_slice()];
        let code = code::code(&Wanted { at, config: &config, elements, size, items: &items, mode })?;
        // Compilation counts against the time to run.
        let timeout = config.timeout.map(|limit| limit.saturating_sub(called.elapsed()));
        let config = DispatchConfig { timeout, ..config };
        let (began, held) = (Instant::now(), HeldBuffers::default());
        let mut bindings = Bindings::new();
        held.bind(&core.parameters, &mut item, &mut bindings);
        code.pipeline.dispatch_bound(&mut bindings, &config)?;
        drop(bindings);
        let elapsed = Duration::from_nanos(nanoseconds(began.elapsed()));
        at.side().set_run(code.instance);
        Ok(Done { elapsed, tuned: code.tuned, memory })
    })
}

/// Compiles a call's code on a separate thread; a [`BackendError::Timeout`] if that takes too long.
pub(crate) fn prepare(wanted: &Wanted<'_, '_, '_>, limit: Duration) -> Result<(), BackendError> {
    let (core, backend, began) = (wanted.at.core.clone(), wanted.at.backend.clone(), Instant::now());
    let (id, elements, size, mode) = (backend.id, wanted.elements, wanted.size, wanted.mode);
    let (turn, config) = (turn(wanted, limit)?, wanted.config.clone());
    finish(id, limit, turn, limit.saturating_sub(began.elapsed()), move || {
        let at = Pair { core: &core, backend: &backend };
        helper_trial::survives(at)?;
        let code = code::code(&Wanted { at, config: &config, elements, size, items: &[], mode })?;
        at.side().set_run(code.instance);
        Ok(())
    })
}

fn turn(wanted: &Wanted<'_, '_, '_>, limit: Duration) -> Result<Taken, BackendError> {
    let late = || BackendError::Timeout { backend: wanted.at.backend.id.into(), limit };
    wanted.at.side().turn.take(limit).ok_or_else(late)
}

/// Does a first run on a separate thread, which holds the turn, and waits for the time left.
fn finish<T: Send + 'static>(
    id: &'static str,
    limit: Duration,
    turn: Taken,
    left: Duration,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let done = within(&format!("first-{id}"), left, move || {
        let _turn = turn;
        messages::listen(work)
    });
    match done {
        Ok((outcome, prints)) => {
            messages::pass_on(prints);
            // Reports the caller's limit, not the time that was left.
            outcome.map_err(|error| error.of_call(Some(limit)))
        }
        Err(Unfinished::Late) => Err(BackendError::Timeout { backend: id.into(), limit }),
        Err(unfinished) => Err(BackendError::failed(id, unfinished.to_string())),
    }
}

fn copies(backend: &Backend, item: &[Memory<'_>]) -> Result<Vec<Vec<u8>>, BackendError> {
    let copy = |memory: &Memory<'_>| {
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
