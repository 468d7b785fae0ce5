//! Process exit while vyre's threads are inside a driver.
//!
//! A driver tears itself down when the process exits, and a thread that compiles or runs something
//! in it at that moment crashes. vyre's threads therefore mark when they are
//! [inside](Inside::enter), and a backend that opened a driver makes the process
//! [wait](wait_outside) for them before the driver's teardown. A thread that reaches a [rest] point
//! in the meantime stays there.
//!
//! While a driver is still being loaded, exit handlers registered earlier run after the driver's
//! teardown, and later ones cannot be registered yet. Destructors of the exiting thread's
//! thread-local values run before all of them: the process's first thread has [one](watch_end) that
//! waits. On Linux it has it before `main`, so that this holds for programs that use vyre only on
//! other threads ([`exit_handlers`](crate::exit_handlers)).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use std::{process, thread};

/// Maximum wait, so that a hung driver does not block the exit. Chosen for a user who waits for the
/// prompt, not measured.
const LIMIT: Duration = Duration::from_secs(5);
/// Interval at which the exiting thread looks whether the others are outside: it delays the exit by
/// at most this.
const STEP: Duration = Duration::from_millis(1);

static ENDING: AtomicBool = AtomicBool::new(false);
/// The process id, and the number of its threads that are inside. After a `fork`, the child has its
/// parent's count but none of those threads.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// The number of this process's threads that are inside, from the value of [`INSIDE`].
fn count(word: u64) -> u32 {
    let is_own = (word >> 32) as u32 == process::id();
    if is_own { word as u32 } else { 0 }
}

fn recount(change: impl Fn(u32) -> u32) {
    let changed = |word| Some(u64::from(process::id()) << 32 | u64::from(change(count(word))));
    let _ = INSIDE.fetch_update(SeqCst, SeqCst, changed);
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static END: End = End { is_first_thread: is_first_thread() };
}

struct End {
    is_first_thread: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        // Other threads can end long before the process does.
        if self.is_first_thread {
            wait_outside();
        }
    }
}

/// The first thread of a process has the process's id.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_first_thread() -> bool {
    let thread = std::fs::read_link("/proc/thread-self");
    thread.is_ok_and(|thread| thread.file_name() == thread.iter().next())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_first_thread() -> bool {
    thread::current().name() == Some("main")
}

/// Makes the process wait for threads that are [`Inside`] when its first thread exits, if this is
/// the first thread. Called by every function that opens drivers on other threads.
pub extern "C" fn watch_end() {
    END.with(|_| ());
}

/// Makes process exit wait for threads that are inside a driver, in a crate that loads one. Defines
/// `end_after_own_threads`, to be called after each load, and an initialiser that [watches
/// the end](crate::process_exit::watch_end) from before `main`. Expands to unsafe declarations of
/// the C library's functions.
#[macro_export]
macro_rules! exit_handlers {
    () => {
        unsafe extern "C" {
            /// The C library's `atexit`: handlers run in reverse order of registration.
            safe fn atexit(call: extern "C" fn()) -> std::ffi::c_int;
        }

        /// Makes process exit wait for threads that are inside a driver. Loaded libraries register
        /// their exit handlers on load, so this handler runs before theirs.
        fn end_after_own_threads() {
            if atexit($crate::process_exit::wait_outside) != 0 {
                tracing::debug!("the process may end while a driver is at work");
            }
        }

        /// Runs on the first thread before `main`, or on the thread that loads this library.
        // SAFETY: the section holds functions of this type. This one needs nothing that `main` sets
        // up: it reads a link in `/proc` and registers a destructor with the C library.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        #[used]
        #[unsafe(link_section = ".init_array")]
        static WATCH_END: extern "C" fn() = $crate::process_exit::watch_end;
    };
}

/// Marks its thread as possibly inside a driver, until dropped.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Marks this thread, which must be one of vyre's, as inside.
    pub fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        recount(|inside| inside + 1);
        rest();
        Inside(PhantomData)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        recount(|inside| inside.saturating_sub(1));
    }
}

/// A safe point between two steps in a driver: a thread that is [`Inside`] stops here once the
/// process is exiting.
pub fn rest() {
    let depth = DEPTH.get();
    if depth > 0 && ENDING.load(SeqCst) {
        recount(|inside| inside.saturating_sub(depth));
        loop {
            thread::park();
        }
    }
}

/// Waits for another thread or process. This thread does not count as [`Inside`] meanwhile;
/// otherwise the exit would wait for it, and it for a thread that is parked.
pub fn outside<T>(wait: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    recount(|inside| inside.saturating_sub(depth));
    let waited = wait();
    recount(|inside| inside + depth);
    DEPTH.set(depth);
    rest();
    waited
}

/// Whether another thread is still [`Inside`] after waiting up to `limit`; for a program that wants
/// to exit at once.
pub fn is_anyone_inside(limit: Duration) -> bool {
    let began = Instant::now();
    let is_anyone = || count(INSIDE.load(SeqCst)) > DEPTH.get();
    while is_anyone() && began.elapsed() < limit {
        thread::sleep(STEP);
    }
    is_anyone()
}

/// For `atexit`, after a driver was opened: waits until no thread is [`Inside`], for at most five
/// seconds.
pub extern "C" fn wait_outside() {
    // If an earlier call waited, no thread has entered since.
    if !ENDING.swap(true, SeqCst) {
        is_anyone_inside(LIMIT);
    }
}
