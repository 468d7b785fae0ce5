//! Per-process objects with threads. A child of `fork` has none of its parent's threads, and locks
//! that they held stay locked in it, so it creates a new object. The process id is checked only
//! where work is handed to a thread.

use std::sync::atomic::{AtomicPtr, Ordering::*};

/// An object of the current process, created on first use.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Entry<T>>);

struct Entry<T> {
    process: u32,
    thing: T,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the object; the caller that created it starts its threads.
    pub(crate) fn get(&self, make: impl FnOnce() -> T, start: impl FnOnce(&'static T)) -> &'static T {
        let (process, present) = (std::process::id(), self.0.load(Acquire));
        // SAFETY: the stored object was leaked below and is never freed.
        if let Some(entry) = unsafe { present.as_ref() }
            && entry.process == process
        {
            return &entry.thing;
        }
        let made = Box::into_raw(Box::new(Entry { process, thing: make() }));
        match self.0.compare_exchange(present, made, AcqRel, Acquire) {
            Ok(_) => {
                // SAFETY: the entry was just leaked.
                let thing = unsafe { &(*made).thing };
                start(thing);
                thing
            }
            Err(other) => {
                // SAFETY: the entry was not shared with any other thread.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: the stored object was leaked and is never freed; another thread of this
                // process just stored it.
                unsafe { &(*other).thing }
            }
        }
    }
}
