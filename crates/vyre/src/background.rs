//! Background work: one thread, started when there is work and ended some time after there is none.
//!
//! The work takes processor time and memory from concurrent calls, so it rests in between, and
//! whether a call was timed [undisturbed](Jobs::is_quiet_since) can be checked. A job that makes no
//! progress for [`STUCK`] is abandoned with its thread, and another thread continues with the rest.
//! A child of `fork` has none of its parent's threads and does no background work.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::contain;
use vyre_driver::process_exit::Inside;

/// Purpose of a job. Result checks go before work on speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Uses its own threads for what can hang, and waits for them.
    Check,
    Speed,
}

struct BackgroundJob {
    purpose: Purpose,
    work: Box<dyn FnOnce() + Send>,
}

impl BackgroundJob {
    fn run(self) {
        let _inside = (self.purpose == Purpose::Speed).then(Inside::enter);
        if let Err(message) = contain(self.work) {
            tracing::error!(message, "a background task ended early");
        }
    }
}

/// A queue of jobs, in order except that result checks go first.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<JobsState>);

struct JobsState {
    queue: Mutex<JobQueue>,
    /// Signals a new job, or that the queue is closed.
    wanted: Condvar,
    /// Signals that everything is done.
    idle: Condvar,
    /// Odd while the thread works; changes each time it starts or stops.
    activity: AtomicU64,
    /// Bytes of callers' inputs kept for jobs.
    copied: AtomicUsize,
    /// The process whose threads do the work.
    process: u32,
    /// A job without progress for this long is abandoned.
    patience: Duration,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<BackgroundJob>,
    /// Number of the thread that runs the jobs, unique to each thread.
    worker: Option<u64>,
    workers: u64,
    /// Last progress of the current job; `None` if there is no current job.
    progress: Option<Instant>,
    /// No more jobs are accepted.
    closed: bool,
}

impl JobQueue {
    fn take_check(&mut self) -> Option<BackgroundJob> {
        let position = self.jobs.iter().position(|job| job.purpose == Purpose::Check)?;
        self.jobs.remove(position)
    }

    /// Abandons a thread whose job makes no progress.
    fn give_up_stuck(&mut self, patience: Duration) {
        if self.progress.is_some_and(|progress| progress.elapsed() >= patience) {
            tracing::warn!("a background task does not return and is abandoned");
            (self.worker, self.progress) = (None, None);
        }
    }
}

/// How long an idle thread waits for another job. Starting and joining a thread takes 23 µs, waking
/// one 5 µs: jobs that come just too late for this cost 0.001% of a processor.
const LINGER: Duration = Duration::from_secs(2);
/// Twice the 30 s that a check is allowed to take.
const STUCK: Duration = Duration::from_secs(60);
/// Maximum total size of the inputs copied for work on speed: it bounds what vyre holds in addition
/// to its callers' memory. Chosen, not measured; work on larger inputs is left out.
const MOST_COPIED: usize = 64 << 20;

/// Copies of a call's inputs, counted while they live.
pub(crate) struct Copies {
    pub(crate) inputs: Vec<Vec<u8>>,
    /// The lengths of all its buffers.
    pub(crate) bound_bytes: Vec<usize>,
    bytes: usize,
    jobs: Jobs,
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.jobs.0.copied.fetch_sub(self.bytes, Relaxed);
    }
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs::with_patience(STUCK)
    }

    fn with_patience(patience: Duration) -> Jobs {
        Jobs(Arc::new(JobsState {
            queue: Mutex::default(),
            wanted: Condvar::new(),
            idle: Condvar::new(),
            activity: AtomicU64::new(0),
            copied: AtomicUsize::new(0),
            process: std::process::id(),
            patience,
        }))
    }

    pub(crate) fn push(&self, purpose: Purpose, work: impl FnOnce() + Send + 'static) {
        if self.is_forked() {
            return;
        }
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        queue.jobs.push_back(BackgroundJob { purpose, work: Box::new(work) });
        queue.give_up_stuck(self.0.patience);
        self.staff(&mut queue);
    }

    /// Wakes the thread, or starts one.
    fn staff(&self, queue: &mut JobQueue) {
        if queue.worker.is_some() {
            self.0.wanted.notify_one();
            return;
        }
        queue.workers += 1;
        let (jobs, number) = (self.clone(), queue.workers);
        match thread::Builder::new().name("vyre-background".into()).spawn(move || jobs.work(number)) {
            Ok(_) => queue.worker = Some(number),
            Err(error) => {
                queue.jobs.clear();
                tracing::warn!(%error, "there is no thread for verification; backends stay unverified");
            }
        }
    }

    /// Copies of inputs for a job, made by `copy`; `None` if the limit leaves no room for them.
    pub(crate) fn keep(
        &self,
        bound_bytes: Vec<usize>,
        bytes: usize,
        copy: impl FnOnce() -> Option<Vec<Vec<u8>>>,
    ) -> Option<Copies> {
        let kept = self.0.copied.fetch_add(bytes, Relaxed);
        let mut copies = Copies { inputs: Vec::new(), bound_bytes, bytes, jobs: self.clone() };
        if kept.saturating_add(bytes) > MOST_COPIED {
            return None;
        }
        copies.inputs = copy()?;
        Some(copies)
    }

    /// Waits until nothing is left to do, except for jobs that do not return.
    pub(crate) fn settle(&self) {
        if self.is_forked() {
            return;
        }
        let mut queue = self.lock();
        while queue.progress.is_some() || !queue.jobs.is_empty() {
            let waited = self.0.idle.wait_timeout(queue, self.0.patience / 8);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.give_up_stuck(self.0.patience);
            if queue.worker.is_none() && !queue.jobs.is_empty() {
                self.staff(&mut queue);
            }
        }
    }

    /// Drops the jobs not yet begun, and accepts no more.
    pub(crate) fn close(&self) {
        if self.is_forked() {
            return;
        }
        let mut queue = self.lock();
        queue.closed = true;
        let dropped = std::mem::take(&mut queue.jobs);
        self.0.wanted.notify_all();
        self.0.idle.notify_all();
        drop(queue);
        // A job may hold the last reference to the runtime, which must not be dropped under the
        // lock.
        drop(dropped);
    }

    /// A number that changes when the thread starts or stops working, and is odd while it works.
    #[inline]
    pub(crate) fn activity(&self) -> u64 {
        self.0.activity.load(Relaxed)
    }

    /// Whether the thread has been idle since the activity had this value.
    #[inline]
    pub(crate) fn is_quiet_since(&self, activity: u64) -> bool {
        activity.is_multiple_of(2) && self.activity() == activity
    }

    /// For a job, between its steps: leaves the machine to others for this long.
    pub(crate) fn rest(&self, time: Duration) {
        self.0.activity.fetch_add(1, Relaxed);
        thread::sleep(time);
        self.0.activity.fetch_add(1, Relaxed);
    }

    /// For a long job, between its steps: runs the result checks that are waiting. An error if the
    /// runtime has ended, and the job should end too.
    pub(crate) fn let_checks_pass(&self) -> Result<(), String> {
        loop {
            let mut queue = self.lock();
            if queue.closed {
                return Err("the runtime ended".to_owned());
            }
            queue.progress = queue.progress.map(|_| Instant::now());
            let Some(check) = queue.take_check() else { return Ok(()) };
            drop(queue);
            check.run();
        }
    }

    fn work(&self, number: u64) {
        while let Some(job) = self.next(number) {
            self.0.activity.fetch_add(1, Relaxed);
            job.run();
            self.0.activity.fetch_add(1, Relaxed);
        }
    }

    /// The next job; `None` ends the thread.
    fn next(&self, number: u64) -> Option<BackgroundJob> {
        let mut queue = self.lock();
        let mut timed_out = false;
        loop {
            if queue.worker != Some(number) {
                return None;
            }
            queue.progress = None;
            if let Some(job) = queue.take_check().or_else(|| queue.jobs.pop_front()) {
                queue.progress = Some(Instant::now());
                return Some(job);
            }
            self.0.idle.notify_all();
            if queue.closed || timed_out {
                queue.worker = None;
                return None;
            }
            let waited = self.0.wanted.wait_timeout(queue, LINGER).unwrap_or_else(PoisonError::into_inner);
            (queue, timed_out) = (waited.0, waited.1.timed_out());
        }
    }

    /// Whether this is a forked child, in which the thread does not exist and locks may be held for
    /// ever.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.process != std::process::id()
    }

    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_that_hangs_is_left_behind() {
        let jobs = Jobs::with_patience(Duration::from_millis(20));
        let (release, held) = channel::<()>();
        jobs.push(Purpose::Speed, move || assert!(held.recv().is_err()));
        let (sender, done) = channel();
        jobs.push(Purpose::Check, move || sender.send("checked").expect("waited for"));
        jobs.settle();
        assert_eq!(done.try_recv(), Ok("checked"));
        drop(release);
    }

    #[test]
    fn checks_go_first() {
        let jobs = Jobs::new();
        let (release, held) = channel::<()>();
        let (sender, order) = channel();
        let tell = |word: &'static str| {
            let sender = sender.clone();
            move || sender.send(word).expect("waited for")
        };
        jobs.push(Purpose::Speed, move || assert!(held.recv().is_err()));
        jobs.push(Purpose::Speed, tell("speed"));
        jobs.push(Purpose::Check, tell("check"));
        drop(release);
        jobs.settle();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["check", "speed"]);
    }

    #[test]
    fn copies_are_bounded_while_they_live() {
        let jobs = Jobs::new();
        let copy = |bytes| jobs.keep(Vec::new(), bytes, || Some(Vec::new()));
        let first = copy(MOST_COPIED - 10).expect("room for it");
        assert!(copy(11).is_none() && copy(10).is_some() && copy(10).is_some());
        drop(first);
        assert!(copy(MOST_COPIED).is_some());
        assert!(jobs.keep(Vec::new(), MOST_COPIED, || None).is_none() && copy(MOST_COPIED).is_some());
    }
}
