//! Runs dispatches, each in a session; a batch is launched in full before any of it is waited for.

use crate::opencl_device::{OpenClDevice, QueueTiming};
use crate::session::{Session, watched};
use crate::slices::{check_grid, is_sliced};
use std::time::{Duration, Instant};
use vyre_driver::BackendError;
use vyre_driver::native::{Failed, Job};

/// Runs one dispatch to completion.
pub(crate) fn run(
    opencl: &OpenClDevice,
    job: Job<'_, '_, OpenClDevice>,
) -> Result<Option<Duration>, BackendError> {
    let Job { variant, launch, arguments, config, timed } = job;
    let session = Session::new(opencl, variant, if timed { QueueTiming::On } else { QueueTiming::Off })?;
    let started = Instant::now();
    // A dispatch that can be neither interrupted nor sliced is checked when it is done.
    let sliced =
        variant.form.within_domain && config.timeout.is_some() && is_sliced(launch, variant.form.stoppable);
    check_grid(opencl.id, launch, sliced, config.timeout.is_some())?;
    let left = || config.timeout.map(|limit| limit.saturating_sub(started.elapsed()));
    let deadline = config.timeout.filter(|_| sliced).and_then(|limit| started.checked_add(limit));
    let mut launched = session.launch(arguments, launch, deadline)?;
    session.collect(&mut launched)?;
    watched(&launched, left(), || session.wait())?;
    session.show_lent(&launched)?;
    session.ending(&launched, config.timeout)?;
    let late = config.timeout.filter(|limit| !variant.form.stoppable && started.elapsed() > *limit);
    if let Some(limit) = late {
        return Err(BackendError::Timeout { backend: opencl.id.into(), limit });
    }
    let device = if timed { launched.device_time() } else { None };
    session.release(launched);
    // Saving its binary, which can follow, waits for all launches.
    drop(session);
    variant.code.launched(opencl);
    Ok(device)
}

/// Runs a batch; consecutive jobs with the same code run together.
pub(crate) fn run_all(opencl: &OpenClDevice, jobs: Vec<Job<'_, '_, OpenClDevice>>) -> Result<(), Failed> {
    let mut done = 0;
    let mut rest = jobs.into_iter().peekable();
    while let Some(first) = rest.next() {
        let variant = first.variant;
        let mut together = vec![first];
        while let Some(job) = rest.next_if(|job| std::ptr::eq(job.variant, variant)) {
            together.push(job);
        }
        let count = together.len();
        run_together(opencl, together)
            .map_err(|failed| Failed { done: done + failed.done, error: failed.error })?;
        done += count;
    }
    Ok(())
}

/// Launches all, then waits for all.
fn run_together(opencl: &OpenClDevice, jobs: Vec<Job<'_, '_, OpenClDevice>>) -> Result<(), Failed> {
    let Some(first) = jobs.first() else { return Ok(()) };
    let begun = |error| Failed { done: 0, error };
    let session = Session::new(opencl, first.variant, QueueTiming::Off).map_err(begun)?;
    let mut launched = Vec::with_capacity(jobs.len());
    let mut failure = None;
    for job in jobs {
        let item = check_grid(opencl.id, job.launch, false, false)
            .and_then(|()| session.launch(job.arguments, job.launch, None));
        match item.and_then(|mut item| session.collect(&mut item).map(|()| item)) {
            Ok(item) => launched.push(item),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    session.wait().map_err(begun)?;
    let count = launched.len();
    for (done, item) in launched.into_iter().enumerate() {
        let ended = session.show_lent(&item).and_then(|()| session.ending(&item, None));
        session.release(item);
        ended.map_err(|error| Failed { done, error })?;
    }
    failure.map_or(Ok(()), |error| Err(Failed { done: count, error }))
}
