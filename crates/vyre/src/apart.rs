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
//! What a driver has not been seen to survive is tried in a helper process before ([`trial`](crate::trial)).

use crate::argument::Memory;
use crate::backend::Backend;
use crate::code::{self, Wanted};
use crate::core::Core;
use crate::held::Held;
use crate::shared::nanoseconds;
use crate::{dispatch, trial};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::messages;
use vyre_driver::tuner::{Mode, Shape};
use vyre_driver::{BackendError, DispatchConfig, Unfinished, within};
use vyre_foundation::ir::Access;

/// Whose turn it is to make a routine's first run on a backend.
#[derive(Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The turn, until it is dropped.
struct Taken(Arc<Turn>);

impl Turn {
    fn take(self: &Arc<Turn>, limit: Duration) -> Option<Taken> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, limit, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *taken, true)).then(|| Taken(self.clone()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_all();
    }
}

/// A call to run.
pub(crate) struct Wish<'a> {
    pub(crate) config: &'a DispatchConfig,
    pub(crate) elements: u64,
    pub(crate) size: u32,
    pub(crate) mode: Mode,
    pub(crate) limit: Duration,
}

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
pub(crate) fn run(
    core: &Arc<Core>,
    backend: &Arc<Backend>,
    item: &[Memory<'_>],
    wish: &Wish<'_>,
) -> Result<Done, BackendError> {
    let began = Instant::now();
    let left = || wish.limit.saturating_sub(began.elapsed());
    let late = || BackendError::Timeout { backend: backend.id.into(), limit: wish.limit };
    let turn = core.side(backend).turn.take(wish.limit).ok_or_else(late)?;
    let memory = copies(backend, item)?;
    let job = Job {
        core: core.clone(),
        backend: backend.clone(),
        config: DispatchConfig { timeout: Some(left()), ..wish.config.clone() },
        elements: wish.elements,
        size: wish.size,
        mode: wish.mode,
        memory,
    };
    finish(backend, wish.limit, turn, left(), move || job.run())
}

/// Has the code of a call made apart; a [`BackendError::Timeout`] where that takes too long.
pub(crate) fn prepare(core: &Arc<Core>, backend: &Arc<Backend>, wish: &Wish<'_>) -> Result<(), BackendError> {
    let began = Instant::now();
    let late = || BackendError::Timeout { backend: backend.id.into(), limit: wish.limit };
    let turn = core.side(backend).turn.take(wish.limit).ok_or_else(late)?;
    let (job_core, job_backend, config) = (core.clone(), backend.clone(), wish.config.clone());
    let (elements, size, mode) = (wish.elements, wish.size, wish.mode);
    finish(backend, wish.limit, turn, wish.limit.saturating_sub(began.elapsed()), move || {
        trial::survives(&job_core, &job_backend)?;
        let wanted = Wanted { config: &config, elements, size, items: &[], mode };
        let code = code::code(&job_core, &job_backend, &wanted)?;
        job_core.side(&job_backend).set_run(code.instance);
        Ok(())
    })
}

/// Does a first run on a thread of its own, whose turn it is, and waits for what is left of a limit.
fn finish<T: Send + 'static>(
    backend: &Backend,
    limit: Duration,
    turn: Taken,
    left: Duration,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let id = backend.id;
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
        Err(unfinished) => {
            Err(BackendError::DispatchFailed { backend: id.into(), message: unfinished.to_string() })
        }
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

struct Job {
    core: Arc<Core>,
    backend: Arc<Backend>,
    config: DispatchConfig,
    elements: u64,
    size: u32,
    mode: Mode,
    memory: Vec<Vec<u8>>,
}

impl Job {
    fn run(mut self) -> Result<Done, BackendError> {
        let (core, backend) = (&self.core, &self.backend);
        let called = Instant::now();
        trial::survives(core, backend)?;
        let mut item: Vec<Memory<'_>> = core
            .parameters
            .iter()
            .zip(&mut self.memory)
            .map(|(parameter, bytes)| match parameter.access {
                Access::ReadWrite | Access::Output => Memory::Write(bytes),
                Access::Read | Access::Uniform | Access::Workgroup => Memory::Read(bytes),
            })
            .collect();
        let items = [item.as_mut_slice()];
        let wanted = Wanted {
            config: &self.config,
            elements: self.elements,
            size: self.size,
            items: &items,
            mode: self.mode,
        };
        let code = code::code(core, backend, &wanted)?;
        // What compiling took is gone from the time to run.
        let timeout = self.config.timeout.map(|limit| limit.saturating_sub(called.elapsed()));
        let config = DispatchConfig { timeout, ..self.config.clone() };
        let [item] = items;
        let began = Instant::now();
        dispatch::with_bindings(core, item, &Held::default(), |bindings| {
            code.pipeline.dispatch_bound(bindings, &config)
        })?;
        let elapsed = Duration::from_nanos(nanoseconds(began.elapsed()));
        core.side(backend).set_run(code.instance);
        Ok(Done { elapsed, tuned: code.tuned, memory: self.memory })
    }
}
