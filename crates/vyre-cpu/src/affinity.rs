//! Keeps pool threads off their caller's processor.
//!
//! A woken thread can be placed on the processor of its waker, even though another one is idle. The
//! two then take turns, and shared work takes as long as without help, until the system migrates
//! one of them, which it does only after many milliseconds. So before sleeping threads are woken,
//! their affinity is set to exclude the caller's processor. That takes a system call per thread,
//! and only when the caller has moved to another processor since the last time.

/// With this many threads or more, placement is left to the system, which has many idle processors
/// to find. Each move of the caller to another processor would take that many system calls.
#[cfg(target_os = "linux")]
const MOST_THREADS: usize = 16;

/// Threads of a pool.
#[cfg(target_os = "linux")]
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    threads: std::sync::Mutex<Vec<Thread>>,
    /// The excluded processor plus one.
    avoided: std::sync::atomic::AtomicUsize,
}

/// A thread and its allowed processors.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Thread {
    id: libc::pid_t,
    allowed: libc::cpu_set_t,
}

#[cfg(target_os = "linux")]
impl Affinity {
    /// Adds the calling thread.
    pub(crate) fn join(&self) {
        // SAFETY: the call writes the set, for which all zeros is an empty one; the size is that of
        // the set.
        let (id, allowed, outcome) = unsafe {
            let mut allowed: libc::cpu_set_t = std::mem::zeroed();
            let outcome = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut allowed);
            (libc::gettid(), allowed, outcome)
        };
        if outcome == 0 {
            self.lock().push(Thread { id, allowed });
            self.avoided.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Keeps the threads off the processor that the calling thread runs on.
    pub(crate) fn keep(&self) {
        // SAFETY: the call takes no arguments and returns a number.
        let Ok(processor) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return };
        if self.avoided.swap(processor + 1, std::sync::atomic::Ordering::Relaxed) == processor + 1 {
            return;
        }
        let threads = self.lock();
        if threads.len() >= MOST_THREADS || processor >= libc::CPU_SETSIZE as usize {
            return;
        }
        for Thread { id, allowed } in &*threads {
            let mut others = *allowed;
            // SAFETY: the number is within the set; the size is that of the set, which is only
            // read. A thread with no other processor keeps its affinity, and so does one for which
            // the call fails.
            unsafe {
                libc::CPU_CLR(processor, &mut others);
                if libc::CPU_COUNT(&others) > 0 {
                    libc::sched_setaffinity(*id, size_of::<libc::cpu_set_t>(), &raw const others);
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Threads of a pool; a no-op on systems other than Linux.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Default)]
pub(crate) struct Affinity;

#[cfg(not(target_os = "linux"))]
impl Affinity {
    pub(crate) fn join(&self) {}

    pub(crate) fn keep(&self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    /// Returns the processors that a thread can run on.
    fn allowed(id: libc::pid_t) -> libc::cpu_set_t {
        // SAFETY: as in `join`.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(id, size_of::<libc::cpu_set_t>(), &raw mut set), 0);
            set
        }
    }

    #[test]
    fn threads_stay_off_the_callers_processor_where_there_is_another() {
        let (apart, (told, tells)) = (Arc::new(Affinity::default()), mpsc::channel());
        let (end, ended) = mpsc::channel::<()>();
        let theirs = apart.clone();
        let thread = std::thread::spawn(move || {
            theirs.join();
            // SAFETY: the call takes no arguments and returns a number.
            told.send(unsafe { libc::gettid() }).expect("the test waits");
            let _ = ended.recv();
        });
        let id = tells.recv().expect("the thread tells");
        let before = allowed(id);
        apart.keep();
        let avoided = apart.avoided.load(std::sync::atomic::Ordering::Relaxed) - 1;
        let after = allowed(id);
        // SAFETY: the sets are valid, and the number is within them.
        let (count, fewer, has) =
            unsafe { (libc::CPU_COUNT(&before), libc::CPU_COUNT(&after), libc::CPU_ISSET(avoided, &after)) };
        assert_eq!((fewer, has), if count > 1 { (count - 1, false) } else { (1, true) });
        drop(end);
        thread.join().expect("it ends");
    }
}
