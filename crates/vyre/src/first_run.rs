//! The first run of a routine on a driver, and of a large one on any backend, under a deadline: on copies, on a thread of its
//! own.
//!
//! Drivers compile when they are given a program, when it is first launched, or both, for as long as they like, and nothing can
//! stop them. So a call with a deadline does not go into a driver that has not run the routine yet: a thread does, on
//! copies of the call's memory. If it is back in time, its results are the call's; if not, the call is over, and the thread goes
//! on, so that a later call finds the code. Calls that come meanwhile wait for it as long as they may. From the second
//! call on everything runs in place.
//!
//! A call on resident buffers, or of a batch, has only its code made apart ([`prepare`]) and then runs in place: the backends
//! keep to deadlines once there is code.
//!
//! What a driver has not been seen to survive is tried in a helper process before ([`helper_trial`](crate::helper_trial)).

use crate::argument::Memory;
use crate::backend::Backend;
use crate::code::{self, Wanted};
use crate::core::{Core, Pair};
use crate::held_buffers::HeldBuffers;
use crate::helper_trial;
use crate::shared::nanoseconds;
use crate::turn::Taken;
use std::time::{Duration, Instant};
use vyre_driver::tuner::Shape;
use vyre_driver::{BackendError, DispatchConfig, Unfinished, messages, within};

/// What came of a run.
pub(crate) struct Done {
    pub(crate) elapsed: Duration,
    pub(crate) tuned: Option<Shape>,
    /// One per parameter.
    memory: Vec<Vec<u8>>,
}

impl Done {
    /// Gives the caller what the kernel wrote.
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

/// Runs a call apart; a [`BackendError::Timeout`] where that takes too long.
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
        // What compiling took is gone from the time to run.
        let timeout = config.timeout.map(|limit| limit.saturating_sub(called.elapsed()));
        let config = DispatchConfig { timeout, ..config };
        let (began, held) = (Instant::now(), HeldBuffers::default());
        code.pipeline.dispatch_bound(&mut held.bindings(&core.parameters, &mut item), &config)?;
        let elapsed = Duration::from_nanos(nanoseconds(began.elapsed()));
        at.side().set_run(code.instance);
        Ok(Done { elapsed, tuned: code.tuned, memory })
    })
}

/// Has the code of a call made apart; a [`BackendError::Timeout`] where that takes too long.
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

/// Does a first run on a thread of its own, whose turn it is, and waits for what is left of a limit.
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
            // What was left of the time is not what the caller gave.
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
