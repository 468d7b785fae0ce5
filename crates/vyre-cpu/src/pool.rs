//! A few threads that share out one piece of work at a time.
//!
//! The caller takes part in its own work. Pieces are handed out by a counter, so that a slow thread takes fewer. Threads
//! look for work for a moment before they sleep, since dispatches tend to follow each other. If the pool is busy with
//! another caller's work, the caller does its own alone: there are no more cores to win.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};

/// The work under way: a function of the piece's number, and how many pieces there are.
#[derive(Clone, Copy)]
struct Job {
    run: &'static (dyn Fn(usize) + Sync),
    pieces: usize,
}

struct Pool {
    threads: usize,
    /// Taken by the caller whose work is under way.
    busy: Mutex<()>,
    state: Mutex<State>,
    wake: Condvar,
    done: Condvar,
    next: AtomicUsize,
    /// Changes with every job, so that a thread that looks for work sees one without a lock.
    ticket: AtomicUsize,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    ticket: usize,
    /// Threads that still hold the job.
    working: usize,
}

/// How many threads a dispatch may use: `VYRE_THREADS`, or as many as the machine runs at once.
pub(crate) fn thread_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("VYRE_THREADS").ok().and_then(|text| text.trim().parse::<usize>().ok());
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        wanted.filter(|&count| count > 0).unwrap_or(available).min(1024)
    })
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool: &'static Pool = Box::leak(Box::new(Pool {
            threads: thread_count(),
            busy: Mutex::new(()),
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            next: AtomicUsize::new(0),
            ticket: AtomicUsize::new(0),
        }));
        for number in 1..pool.threads {
            let spawned =
                std::thread::Builder::new().name(format!("vyre-cpu-{number}")).spawn(|| pool.serve());
            if let Err(error) = spawned {
                tracing::warn!("a thread of the cpu backend did not start, so there are fewer: {error}");
                break;
            }
        }
        pool
    })
}

/// Runs `run` for every piece from 0 on, on several threads if that many are free. Returns when all are done.
pub(crate) fn share(pieces: usize, run: &(dyn Fn(usize) + Sync)) {
    if pieces <= 1 || thread_count() == 1 {
        return (0..pieces).for_each(run);
    }
    #[cfg(test)]
    TIMES_SHARED.set(TIMES_SHARED.get() + 1);
    let pool = pool();
    let Ok(_busy) = pool.busy.try_lock() else {
        return (0..pieces).for_each(run);
    };
    pool.run(pieces, run);
}

#[cfg(test)]
thread_local! {
    static TIMES_SHARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often this thread had work for several.
#[cfg(test)]
pub(crate) fn times_shared() -> usize {
    TIMES_SHARED.get()
}

impl Pool {
    fn run(&self, pieces: usize, run: &(dyn Fn(usize) + Sync)) {
        // SAFETY: the reference is used only until `working` is back at zero with the job withdrawn, which this function
        // waits for before it returns, whatever happens in between.
        let run: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(run) };
        let job = Job { run, pieces };
        let withdraw = Withdraw(self);
        self.next.store(0, Ordering::Relaxed);
        {
            let mut state = lock(&self.state);
            state.job = Some(job);
            state.ticket = state.ticket.wrapping_add(1);
            self.ticket.store(state.ticket, Ordering::Release);
        }
        self.wake.notify_all();
        self.work(job);
        drop(withdraw);
    }

    fn work(&self, job: Job) {
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= job.pieces {
                return;
            }
            (job.run)(piece);
        }
    }

    /// The life of a thread of the pool.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            self.look_for_work(seen);
            let job = {
                let mut state = lock(&self.state);
                while state.job.is_none() || state.ticket == seen {
                    state = self.wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                seen = state.ticket;
                state.working += 1;
                state.job
            };
            let finish = Finish(self);
            if let Some(job) = job {
                self.work(job);
            }
            drop(finish);
        }
    }

    fn look_for_work(&self, seen: usize) {
        for _ in 0..2_000 {
            if self.ticket.load(Ordering::Acquire) != seen {
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// Takes the job back and waits until no thread holds it.
struct Withdraw<'a>(&'a Pool);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.job = None;
        while state.working > 0 {
            state = self.0.done.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// Says that a thread no longer holds the job.
struct Finish<'a>(&'a Pool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.working -= 1;
        if state.working == 0 {
            self.0.done.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A flag that a kernel looks at, raised when its time is up.
#[derive(Debug, Default)]
pub(crate) struct Cancel(pub(crate) AtomicBool);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once() {
        for pieces in [0, 1, 2, 7, 1000] {
            let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
            share(pieces, &|piece| {
                counts[piece].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{pieces}");
        }
    }

    #[test]
    fn many_callers_at_once_each_get_all_of_their_work() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let sum = AtomicUsize::new(0);
                        share(64, &|piece| {
                            sum.fetch_add(piece, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 64 * 63 / 2);
                    }
                });
            }
        });
    }
}
