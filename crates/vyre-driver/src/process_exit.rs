//! The end of the process while threads of vyre's own are inside a driver.
//!
//! A driver takes itself apart when the process exits: whoever compiles or runs something in it at that moment crashes. So
//! vyre's own threads say when they go [inside](Inside::enter), and a backend that opened a driver has the process
//! [wait](wait_outside) for them before the driver's own end. A thread that comes to a [rest] meanwhile stays there.
//!
//! While a driver is still being loaded, nothing that was registered earlier comes before the driver's own end, and nothing can be
//! registered later yet. What comes before all of that are the ends of the values that belong to the thread which exits: the
//! process's first thread keeps [one](watch_end) that waits.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use std::{process, thread};

/// A driver that does not come back must not keep the process for longer.
const LIMIT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

static ENDING: AtomicBool = AtomicBool::new(false);
/// The process, and how many of its threads are inside. A child of `fork` has what its parent counted, and none of those threads.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// How many threads of this process are inside, by a word of [`INSIDE`].
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
        // Another thread may end long before the process does.
        if self.is_first_thread {
            wait_outside();
        }
    }
}

/// The first thread of a process has the number of the process.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_first_thread() -> bool {
    let thread = std::fs::read_link("/proc/thread-self");
    thread.is_ok_and(|thread| thread.file_name() == thread.iter().next())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_first_thread() -> bool {
    thread::current().name() == Some("main")
}

/// Has the process wait for threads that are [`Inside`] when its first thread exits, if this is it: for every function that
/// has other threads open drivers.
pub fn watch_end() {
    END.with(|_| ());
}

/// While this lives, its thread may be inside a driver.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Says that this thread, one of vyre's own, goes inside.
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

/// Between two steps in a driver: a thread that is [`Inside`] goes no further once the process ends.
pub fn rest() {
    let depth = DEPTH.get();
    if depth > 0 && ENDING.load(SeqCst) {
        recount(|inside| inside.saturating_sub(depth));
        loop {
            thread::park();
        }
    }
}

/// Waits for another thread or process. This thread is not [`Inside`] meanwhile: the end of the process would wait for it, and it for a
/// thread that rests.
pub fn outside<T>(wait: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    recount(|inside| inside.saturating_sub(depth));
    let waited = wait();
    recount(|inside| inside + depth);
    DEPTH.set(depth);
    rest();
    waited
}

/// Whether another thread is [`Inside`], after so long at most: for a program that wants to end at once.
pub fn is_anyone_inside(limit: Duration) -> bool {
    let began = Instant::now();
    let is_anyone = || count(INSIDE.load(SeqCst)) > DEPTH.get();
    while is_anyone() && began.elapsed() < limit {
        thread::sleep(STEP);
    }
    is_anyone()
}

/// For `atexit`, after a driver was opened: waits until no thread is [`Inside`], or for five seconds.
pub extern "C" fn wait_outside() {
    // Whoever waited before let nobody in since.
    if !ENDING.swap(true, SeqCst) {
        is_anyone_inside(LIMIT);
    }
}
