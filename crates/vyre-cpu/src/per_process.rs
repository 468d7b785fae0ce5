//! Things that have threads, one per process: a child of `fork` has none of its parent's threads, and locks that they held
//! stay locked in it, so it makes such a thing anew. Which process this is, is looked at only where work is handed to a
//! thread.

use std::sync::atomic::{AtomicPtr, Ordering::*};

/// A thing of the present process, made when it is first asked for.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Entry<T>>);

struct Entry<T> {
    process: u32,
    thing: T,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The thing; whoever made it starts its threads.
    pub(crate) fn get(&self, make: impl FnOnce() -> T, start: impl FnOnce(&'static T)) -> &'static T {
        let (process, present) = (std::process::id(), self.0.load(Acquire));
        // SAFETY: what is stored was leaked below and is never freed.
        if let Some(entry) = unsafe { present.as_ref() }
            && entry.process == process
        {
            return &entry.thing;
        }
        let made = Box::into_raw(Box::new(Entry { process, thing: make() }));
        match self.0.compare_exchange(present, made, AcqRel, Acquire) {
            Ok(_) => {
                // SAFETY: it was just leaked.
                let thing = unsafe { &(*made).thing };
                start(thing);
                thing
            }
            Err(other) => {
                // SAFETY: nobody else saw it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: what is stored was leaked and is never freed; another thread of this process just stored it.
                unsafe { &(*other).thing }
            }
        }
    }
}
