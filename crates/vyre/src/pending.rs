//! A call under way on another thread: to be waited for, or awaited.

use crate::report::Report;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use vyre_driver::BackendError;

/// A call under way, from [`Call::start`](crate::Call::start) or
/// [`Routine::start_with`](crate::Routine::start_with). [`wait`](Self::wait) for it, or `.await` it: it is a future that any executor
/// can run, woken when the call is over. Dropping it does not end the call.
///
/// From `Call::start`, the memory that the call was given stays borrowed until its scope ends, so nothing is copied and
/// nothing can be freed under it.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let (mut x, mut y) = ([1.0f32; 100], [2.0f32; 100]);
/// std::thread::scope(|scope| {
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
    shared: Arc<Shared<T>>,
    scope: PhantomData<&'scope ()>,
}

/// What the thread of a call and whoever waits for it share.
struct Shared<T> {
    state: Mutex<State<T>>,
    over: Condvar,
}

enum State<T> {
    UnderWay(Option<Waker>),
    Over(T),
    Taken,
}

/// The thread's end of a pending call.
pub(crate) struct Completion<T>(Arc<Shared<T>>);

impl<T> Pending<'_, T> {
    pub(crate) fn new() -> (Self, Completion<T>) {
        let shared = Arc::new(Shared { state: Mutex::new(State::UnderWay(None)), over: Condvar::new() });
        (Pending { shared: shared.clone(), scope: PhantomData }, Completion(shared))
    }

    /// Whether the call is over, so that waiting for it takes no time.
    pub fn is_finished(&self) -> bool {
        !matches!(*self.shared.lock(), State::UnderWay(_))
    }

    /// Waits for the call.
    ///
    /// # Panics
    ///
    /// If its outcome was taken before, by polling it by hand until it was ready.
    pub fn wait(self) -> T {
        let mut state = self.shared.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Over(outcome) => return outcome,
                State::UnderWay(waker) => *state = State::UnderWay(waker),
                State::Taken => panic!("the outcome of a pending call was taken by polling it"),
            }
            state = self.shared.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<'_, T> {
    type Output = T;

    /// Once it was ready, it stays pending: the outcome is given once.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.shared.lock();
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

impl<T> Completion<T> {
    /// The call is over.
    pub(crate) fn complete(self, outcome: T) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Over(outcome));
        self.0.over.notify_all();
        if let State::UnderWay(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> std::fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("finished", &self.is_finished()).finish()
    }
}
