//! The end of the process while threads of vyre's own are inside a driver.
//!
//! A driver takes itself apart when the process exits: whoever compiles or runs something in it at that moment crashes. So
//! vyre's own threads say when they go [inside](Inside::enter), and a backend that opened a driver has the process
//! [wait](wait_outside) for them before the driver's own end. A thread that comes to a [rest] meanwhile stays there.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// A driver that does not come back must not keep the process for longer.
const LIMIT: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

static ENDING: AtomicBool = AtomicBool::new(false);
static INSIDE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEPTH: Cell<u64> = const { Cell::new(0) };
}

/// While this lives, its thread may be inside a driver.
#[derive(Debug)]
pub struct Inside(PhantomData<*const ()>);

impl Inside {
    /// Says that this thread, one of vyre's own, goes inside.
    pub fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        INSIDE.fetch_add(1, SeqCst);
        rest();
        Inside(PhantomData)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        INSIDE.fetch_sub(1, SeqCst);
    }
}

/// Between two steps in a driver: a thread that is [`Inside`] goes no further once the process ends.
pub fn rest() {
    let depth = DEPTH.get();
    if depth > 0 && ENDING.load(SeqCst) {
        INSIDE.fetch_sub(depth, SeqCst);
        loop {
            thread::park();
        }
    }
}

/// Whether another thread is [`Inside`], after so long at most: for a program that wants to end at once.
pub fn is_anyone_inside(limit: Duration) -> bool {
    let began = Instant::now();
    while INSIDE.load(SeqCst) > DEPTH.get() && began.elapsed() < limit {
        thread::sleep(STEP);
    }
    INSIDE.load(SeqCst) > DEPTH.get()
}

/// For `atexit`, after a driver was opened: waits until no thread is [`Inside`], or for five seconds.
pub extern "C" fn wait_outside() {
    ENDING.store(true, SeqCst);
    is_anyone_inside(LIMIT);
}
