//! Work beside the calls: one thread, started when there is something to do and gone some time after there is not.
//!
//! Whatever it does takes processors and memory from the calls of that time, so it rests in between, and whoever times a call
//! can ask whether it ran [undisturbed](Jobs::is_quiet_since).

use crate::forms::{self, Resize};
use crate::ready::OpCore;
use crate::routine::RoutineCore;
use crate::special::Values;
use crate::verify;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use vyre_driver::contain;
use vyre_driver::leaving::Inside;
use vyre_driver::router::BackendIndex;

/// Something to do.
pub(crate) enum Job {
    /// Verify the routine on the backend.
    Verify(Arc<RoutineCore>, BackendIndex),
    /// Check that the backend still gives what it gave.
    Canary(Arc<RoutineCore>, BackendIndex),
    /// Verify the op on the backend.
    VerifyOp(Arc<OpCore>, BackendIndex),
    /// Check that the backend still gives what it gave for the op.
    CanaryOp(Arc<OpCore>, BackendIndex),
    /// Find the routine's fastest shape at one size.
    Tune { core: Arc<RoutineCore>, index: BackendIndex, elements: u64, inputs: Vec<Vec<u8>> },
    /// Try another workgroup size on the routine at one size.
    Resize { core: Arc<RoutineCore>, index: BackendIndex, resize: Resize },
    /// Compile a hot routine with the expensive schedule.
    Recompile { core: Arc<RoutineCore>, index: BackendIndex, inputs: Vec<Vec<u8>> },
    /// Compile a hot routine for uniforms that are the same in nearly all calls.
    Specialise { core: Arc<RoutineCore>, index: BackendIndex, values: Values, inputs: Vec<Vec<u8>> },
}

impl Job {
    /// Whether it checks results. Such a job has threads of its own, which are waited for, and goes before jobs that are about
    /// speed.
    fn is_check(&self) -> bool {
        match self {
            Job::Verify(..) | Job::Canary(..) | Job::VerifyOp(..) | Job::CanaryOp(..) => true,
            Job::Tune { .. } | Job::Resize { .. } | Job::Recompile { .. } | Job::Specialise { .. } => false,
        }
    }

    fn run(self) {
        let _inside = (!self.is_check()).then(Inside::enter);
        let done = contain(|| match &self {
            Job::Verify(routine, backend) => verify::verify(routine, *backend),
            Job::Canary(routine, backend) => drop(verify::canary(routine, *backend)),
            Job::VerifyOp(op, backend) => op.verify(*backend),
            Job::CanaryOp(op, backend) => op.canary(*backend),
            Job::Tune { core, index, elements, inputs } => {
                forms::tune_beside(core, *index, *elements, inputs);
            }
            Job::Resize { core, index, resize } => forms::resize_beside(core, *index, resize),
            Job::Recompile { core, index, inputs } => forms::recompile_beside(core, *index, inputs),
            Job::Specialise { core, index, values, inputs } => {
                forms::specialise_beside(core, *index, values, inputs);
            }
        });
        if let Err(message) = done {
            tracing::error!(message, "work in the background ended early");
        }
    }
}

/// Jobs in order, but that checks of results go first.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<State>);

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    /// Something is to be done, or nothing ever again.
    wanted: Condvar,
    /// Everything is done.
    idle: Condvar,
    /// Odd while the thread is at work, and another number each time.
    activity: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Whether the thread is there.
    staffed: bool,
    /// Whether it is at work on a job.
    busy: bool,
    /// Nothing more is taken in.
    closed: bool,
}

impl Queue {
    fn take_check(&mut self) -> Option<Job> {
        let position = self.jobs.iter().position(Job::is_check)?;
        self.jobs.remove(position)
    }
}

/// How long the thread waits for another job: starting one costs far more than waking it.
const LINGER: Duration = Duration::from_secs(2);

impl Jobs {
    pub(crate) fn push(&self, job: Job) {
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        queue.jobs.push_back(job);
        if queue.staffed {
            self.0.wanted.notify_one();
            return;
        }
        let jobs = self.clone();
        let started = thread::Builder::new().name("vyre-background".into()).spawn(move || jobs.work());
        match started {
            Ok(_) => queue.staffed = true,
            Err(error) => {
                queue.jobs.clear();
                tracing::warn!(%error, "there is no thread for verification; backends stay unverified");
            }
        }
    }

    /// Waits until nothing is left to do.
    pub(crate) fn settle(&self) {
        let mut queue = self.lock();
        while queue.busy || !queue.jobs.is_empty() {
            queue = self.0.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets what was not begun, and takes in nothing more.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let dropped = std::mem::take(&mut queue.jobs);
        self.0.wanted.notify_all();
        self.0.idle.notify_all();
        drop(queue);
        // A job may be the last to hold the runtime, whose end must not happen under the lock.
        drop(dropped);
    }

    /// Whether the thread is at work, as a number that changes when it begins and when it stops.
    pub(crate) fn activity(&self) -> u64 {
        self.0.activity.load(Relaxed)
    }

    /// Whether the thread did nothing since the activity was this.
    pub(crate) fn is_quiet_since(&self, activity: u64) -> bool {
        activity.is_multiple_of(2) && self.activity() == activity
    }

    /// For a job, between its steps: leaves the machine to others for so long.
    pub(crate) fn rest(&self, time: Duration) {
        self.0.activity.fetch_add(1, Relaxed);
        thread::sleep(time);
        self.0.activity.fetch_add(1, Relaxed);
    }

    /// Does the checks of results that are waiting: for a job that takes long, between its steps. An error if the job is
    /// to end, because everything does.
    pub(crate) fn let_checks_pass(&self) -> Result<(), String> {
        loop {
            let mut queue = self.lock();
            if queue.closed {
                return Err("the runtime ended".to_owned());
            }
            let Some(check) = queue.take_check() else { return Ok(()) };
            drop(queue);
            check.run();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            self.0.activity.fetch_add(1, Relaxed);
            job.run();
            self.0.activity.fetch_add(1, Relaxed);
        }
    }

    /// The next job; `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        queue.busy = false;
        loop {
            if let Some(job) = queue.take_check().or_else(|| queue.jobs.pop_front()) {
                queue.busy = true;
                return Some(job);
            }
            self.0.idle.notify_all();
            let waited = self.0.wanted.wait_timeout(queue, LINGER).unwrap_or_else(PoisonError::into_inner);
            queue = waited.0;
            if queue.jobs.is_empty() && (queue.closed || waited.1.timed_out()) {
                queue.staffed = false;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
