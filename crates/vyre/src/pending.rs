//! Calls on other threads: what a caller waits for, the few threads that run them, and scopes that lend memory to them.
//!
//! A call is a [`Task`]: whoever takes it first does it, be it a thread of the pool or the caller that cancels it. Tasks
//! wait in a [`Pool`], which starts threads as they are needed and ends them when they were idle for a while. A runtime has
//! one pool for calls that own their memory; a [`Scope`] has one for calls that borrow it.

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

/// The most threads of a pool. Most calls wait for a device or for the threads of `cpu`, so there may be more calls under
/// way than there are processors.
const MOST_THREADS: usize = 8;

/// An idle thread ends after this long.
const LINGER: Duration = Duration::from_secs(5);

/// A call under way, from [`Call::start`](crate::Call::start) or
/// [`Routine::start_with`](crate::Routine::start_with). [`wait`](Self::wait) for it, or `.await` it: it is a future that any executor
/// can run, woken when the call is over. Dropping it does not end the call; [`cancel`](Self::cancel) does.
///
/// From `Call::start`, the memory that the call was given stays borrowed until its [`scope`] ends, so nothing is copied and
/// nothing can be freed under it.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
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
    outcome: Arc<Outcome<T>>,
    task: Arc<dyn Task + 'scope>,
    cancellation: Cancellation,
}

/// What the thread of a call and whoever waits for it share.
struct Outcome<T> {
    state: Mutex<State<T>>,
    over: Condvar,
}

enum State<T> {
    UnderWay(Option<Waker>),
    Over(T),
    Taken,
}

impl<'scope, T: Send + 'scope> Pending<'scope, T> {
    /// A call that `submit` hands to a thread. `work` gives its outcome; it gets whether the call was cancelled before it
    /// began, and the flag that ends it later.
    pub(crate) fn new<W>(work: W, submit: impl FnOnce(Arc<dyn Task + 'scope>)) -> Pending<'scope, T>
    where
        W: FnOnce(Start) -> T + Send + 'scope,
    {
        let outcome = Arc::new(Outcome { state: Mutex::new(State::UnderWay(None)), over: Condvar::new() });
        let (cancellation, completes) = (Cancellation::default(), outcome.clone());
        let flag = cancellation.clone();
        let task: Arc<dyn Task + 'scope> = Arc::new(Once(Mutex::new(Some(move |cancelled| {
            completes.complete(work(Start { cancelled, cancellation: flag }));
        }))));
        submit(task.clone());
        Pending { outcome, task, cancellation }
    }
}

/// How a call begins.
pub(crate) struct Start {
    /// Whether it was cancelled before.
    pub(crate) cancelled: bool,
    pub(crate) cancellation: Cancellation,
}

impl<T> Pending<'_, T> {
    /// Whether the call is over, so that waiting for it takes no time.
    pub fn is_finished(&self) -> bool {
        !matches!(*self.outcome.lock(), State::UnderWay(_))
    }

    /// Cancels the call. One that has not begun never runs. One that runs is interrupted if it has a
    /// [`timeout`](crate::Call::timeout) and its backend can be interrupted, as `cpu` can; otherwise it runs to its end.
    /// The outcome of a call that did not end by itself is [`BackendError::Cancelled`]. Memory that an interrupted call
    /// was given for writing has unspecified contents.
    pub fn cancel(&self) {
        self.cancellation.cancel();
        self.task.run(true);
    }

    /// Waits for the call.
    ///
    /// # Panics
    ///
    /// If its outcome was taken before, by polling it by hand until it was ready.
    pub fn wait(self) -> T {
        let mut state = self.outcome.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Over(outcome) => return outcome,
                State::UnderWay(waker) => *state = State::UnderWay(waker),
                State::Taken => panic!("the outcome of a pending call was taken by polling it"),
            }
            state = self.outcome.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<'_, T> {
    type Output = T;

    /// Once it was ready, it stays pending: the outcome is given once.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.outcome.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Over(outcome) => Poll::Ready(outcome),
            State::UnderWay(_) => {
                *state = State::UnderWay(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Taken => Poll::Pending,
        }
    }
}

impl<T> Outcome<T> {
    fn complete(&self, outcome: T) {
        let before = std::mem::replace(&mut *self.lock(), State::Over(outcome));
        self.over.notify_all();
        if let State::UnderWay(Some(waker)) = before {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("finished", &self.is_finished()).finish()
    }
}

/// Work that is done once, by whoever takes it first.
pub(crate) trait Task: Send + Sync {
    /// Does the work, unless somebody did; cancelled work only says so.
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

/// A few threads and the tasks that wait for them.
#[derive(Default)]
pub(crate) struct Pool<'a> {
    queue: Mutex<Queue<'a>>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue<'a> {
    tasks: VecDeque<Arc<dyn Task + 'a>>,
    threads: usize,
    idle: usize,
    /// No task will come: idle threads end at once.
    closed: bool,
}

thread_local! {
    /// Whether this thread is one of a pool.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

impl<'a> Pool<'a> {
    /// Hands a task to a thread, which `spawn` starts if none is idle. Without any thread, and on a thread of a pool, which
    /// must not wait for its own kind, the task is done here.
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

    /// Does tasks until there were none for a while.
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

    /// Lets idle threads end; what was submitted is still done.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Queue<'a>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread of a pool that outlives whoever submits.
pub(crate) fn spawn(pool: Arc<Pool<'static>>) -> io::Result<()> {
    thread::Builder::new().name("vyre-call".into()).spawn(move || pool.work()).map(drop)
}

/// Where calls run that borrow their memory; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    threads: &'scope thread::Scope<'scope, 'env>,
    pool: Arc<Pool<'scope>>,
}

/// Runs `work`, which may [start](crate::Call::start) calls that borrow what is outside of it, and waits for all of them.
/// As [`std::thread::scope`], with a few threads for any number of calls.
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
