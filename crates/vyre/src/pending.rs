//! Calls on other threads: handles to wait for, the thread pool that runs them, and scopes that
//! lend memory to them.
//!
//! A call is a [`Task`], done by whichever thread takes it first: a thread of the pool, or the
//! caller that cancels it. Tasks wait in a [`TaskPool`], which starts threads on demand and ends
//! those that were idle for a while. A runtime has one pool for calls that own their memory; a
//! [`Scope`] has one for calls that borrow it.

use crate::report::Report;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use vyre_driver::process_exit::Inside;
use vyre_driver::{BackendError, Cancellation};

/// Maximum threads of a pool. Most calls wait for a device or for the threads of `cpu`, so there
/// can be more calls under way than processors. Chosen, not measured: further calls wait for a
/// thread.
const MOST_THREADS: usize = 8;

/// An idle thread ends after this long. Starting and joining a thread takes 23 µs, waking one 5 µs:
/// calls that come just too late for this lose 18 µs in five seconds.
const LINGER: Duration = Duration::from_secs(5);

/// A call under way, from [`Call::start`](crate::Call::start) or
/// [`Routine::start_with`](crate::Routine::start_with). [`wait`](Self::wait) for it, or `.await`
/// it: it is a future that any executor can run, woken when the call ends. Dropping it does not end
/// the call; [`cancel`](Self::cancel) does.
///
/// With `Call::start`, the memory bound to the call stays borrowed until its [`scope`] ends, so
/// nothing is copied and nothing can be freed while in use.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime
///     .load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let (mut x, mut y) = ([1.0f32; 100], [2.0f32; 100]);
/// vyre::scope(|scope| {
///     let first = double.call().bind("x", &mut x).start(scope);
///     let second = double.call().bind("x", &mut y).start(scope);
///     first.wait()?;
///     second.wait()
/// })?;
/// assert_eq!((x[0], y[99]), (2.0, 4.0));
/// # Ok::<(), BackendError>(())
/// ```
#[must_use = "wait for it, or await it"]
pub struct Pending<'scope, T = Result<Report, BackendError>> {
    outcome: Arc<Completion<T>>,
    task: Arc<dyn Task + 'scope>,
    cancellation: Cancellation,
}

/// State shared by a call's thread and its waiter.
struct Completion<T> {
    state: Mutex<CompletionState<T>>,
    over: Condvar,
}

enum CompletionState<T> {
    UnderWay(Option<Waker>),
    Over(T),
    Taken,
}

impl<'scope, T: Send + 'scope> Pending<'scope, T> {
    /// Creates a call that `submit` hands to a thread. `work` returns its outcome; it receives the
    /// flag that ends the call, or `None` if it was cancelled before it began.
    pub(crate) fn new<W>(work: W, submit: impl FnOnce(Arc<dyn Task + 'scope>)) -> Pending<'scope, T>
    where
        W: FnOnce(Option<Cancellation>) -> T + Send + 'scope,
    {
        let outcome =
            Arc::new(Completion { state: Mutex::new(CompletionState::UnderWay(None)), over: Condvar::new() });
        let (cancellation, completes) = (Cancellation::default(), outcome.clone());
        let flag = cancellation.clone();
        let task: Arc<dyn Task + 'scope> = Arc::new(Once(Mutex::new(Some(move |cancelled: bool| {
            completes.complete(work((!cancelled).then_some(flag)));
        }))));
        submit(task.clone());
        Pending { outcome, task, cancellation }
    }
}

impl<T> Pending<'_, T> {
    /// Whether the call has ended, so that waiting for it takes no time.
    pub fn is_finished(&self) -> bool {
        !matches!(*self.outcome.lock(), CompletionState::UnderWay(_))
    }

    /// Cancels the call. One that has not begun never runs. One that is running is interrupted if
    /// it has a [`timeout`](crate::Call::timeout) and its backend supports interruption, as `cpu`
    /// does; otherwise it runs to completion. The outcome of a call that did not complete is
    /// [`BackendError::Cancelled`]. Memory bound to an interrupted call for writing has unspecified
    /// contents.
    pub fn cancel(&self) {
        self.cancellation.cancel();
        self.task.run(true);
    }

    /// Waits for the call.
    ///
    /// # Panics
    ///
    /// If the outcome was already taken, by polling the future until it was ready.
    pub fn wait(self) -> T {
        let mut state = self.outcome.lock();
        loop {
            match std::mem::replace(&mut *state, CompletionState::Taken) {
                CompletionState::Over(outcome) => return outcome,
                CompletionState::UnderWay(waker) => *state = CompletionState::UnderWay(waker),
                CompletionState::Taken => panic!("the outcome of a pending call was taken by polling it"),
            }
            state = self.outcome.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<'_, T> {
    type Output = T;

    /// After it was ready once, stays pending: the outcome is returned only once.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.outcome.lock();
        match std::mem::replace(&mut *state, CompletionState::Taken) {
            CompletionState::Over(outcome) => Poll::Ready(outcome),
            CompletionState::UnderWay(_) => {
                *state = CompletionState::UnderWay(Some(context.waker().clone()));
                Poll::Pending
            }
            CompletionState::Taken => Poll::Pending,
        }
    }
}

impl<T> Completion<T> {
    fn complete(&self, outcome: T) {
        let before = std::mem::replace(&mut *self.lock(), CompletionState::Over(outcome));
        self.over.notify_all();
        if let CompletionState::UnderWay(Some(waker)) = before {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, CompletionState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("finished", &self.is_finished()).finish()
    }
}

/// Work that is done once, by whichever thread takes it first.
pub(crate) trait Task: Send + Sync {
    /// Does the work, unless it was done; cancelled work only reports the cancellation.
    fn run(&self, cancelled: bool);
}

struct Once<W>(Mutex<Option<W>>);

impl<W: FnOnce(bool) + Send> Task for Once<W> {
    fn run(&self, cancelled: bool) {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            work(cancelled);
        }
    }
}

/// A small thread pool and its queue of tasks.
#[derive(Default)]
pub(crate) struct TaskPool<'a> {
    queue: Mutex<TaskQueue<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct TaskQueue<'a> {
    tasks: VecDeque<Arc<dyn Task + 'a>>,
    threads: usize,
    idle: usize,
    /// No more tasks will come: idle threads end at once.
    closed: bool,
}

thread_local! {
    /// Whether this thread belongs to a pool.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

impl<'a> TaskPool<'a> {
    /// Hands a task to a thread, which `spawn` starts if none is idle. The task runs here if no
    /// thread can be started, or if this is a thread of a pool, which must not wait for another.
    pub(crate) fn submit(
        self: &Arc<Self>,
        task: Arc<dyn Task + 'a>,
        spawn: impl FnOnce(Arc<Self>) -> io::Result<()>,
    ) {
        if IN_POOL.get() {
            return task.run(false);
        }
        let mut queue = self.lock();
        queue.tasks.push_back(task.clone());
        let wanted = queue.idle < queue.tasks.len() && queue.threads < MOST_THREADS;
        queue.threads += usize::from(wanted);
        drop(queue);
        self.changed.notify_one();
        if wanted && spawn(self.clone()).is_err() {
            let mut queue = self.lock();
            queue.threads -= 1;
            if queue.threads == 0 {
                drop(queue);
                task.run(false);
            }
        }
    }

    /// Runs tasks until none has come for a while.
    pub(crate) fn work(&self) {
        IN_POOL.set(true);
        let mut queue = self.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                drop(queue);
                {
                    let _inside = Inside::enter();
                    task.run(false);
                }
                queue = self.lock();
                continue;
            }
            if queue.closed {
                break;
            }
            queue.idle += 1;
            let (woken, waited) =
                self.changed.wait_timeout(queue, LINGER).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.tasks.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// Lets idle threads end; submitted tasks are still done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, TaskQueue<'a>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread of a pool that outlives its submitters.
pub(crate) fn spawn(pool: Arc<TaskPool<'static>>) -> io::Result<()> {
    thread::Builder::new().name("vyre-call".into()).spawn(move || pool.work()).map(drop)
}

/// A scope for calls that borrow their memory; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    threads: &'scope thread::Scope<'scope, 'env>,
    pool: Arc<TaskPool<'scope>>,
}

/// Runs `work`, which can [start](crate::Call::start) calls that borrow from outside, and waits for
/// all of them. Like [`std::thread::scope`], with a few threads for any number of calls.
pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    thread::scope(|threads| {
        let scope = Scope { threads, pool: Arc::default() };
        work(&scope)
    })
}

impl<'scope> Scope<'scope, '_> {
    pub(crate) fn submit(&self, task: Arc<dyn Task + 'scope>) {
        self.pool.submit(task, |pool| {
            let builder = thread::Builder::new().name("vyre-call".into());
            builder.spawn_scoped(self.threads, move || pool.work()).map(drop)
        });
    }
}

impl Drop for Scope<'_, '_> {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}
