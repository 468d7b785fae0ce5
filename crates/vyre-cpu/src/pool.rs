//! A thread pool that runs one job at a time.
//!
//! The caller takes part in its own job. Each thread has a fixed range of the pieces, so that the
//! data it last worked on is in its cache; when that range is done it steals from the others, so
//! that a slow thread does less. A thread spins for a while before it sleeps, since dispatches tend
//! to come in succession, and so does a caller that waits for the last pieces. If the pool is busy
//! with another caller's job, the caller runs its own alone: there are no more cores to gain.
//! `costs.rs` decides whether work is shared.

use crate::affinity::Affinity;
use crate::costs::{COSTS, Help, now};
use crate::per_process::PerProcess;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// The current job: a function of the piece number, the number of pieces, and who was asked.
#[derive(Clone, Copy)]
struct Job {
    run: &'static (dyn Fn(usize) + Sync),
    pieces: usize,
    help: Help,
}

struct Pool {
    /// Held by the caller whose job is running.
    busy: Mutex<()>,
    /// Ticket of the job, whether it is open to threads, and the number of holders; see [`State`].
    state: AtomicU64,
    /// Written by the holder of `busy` while no thread holds a job; read by threads that hold one.
    job: UnsafeCell<Option<Job>>,
    /// Per thread, the caller first: number of pieces taken from its range.
    taken: Box<[Counter]>,
    /// Time at which the job was offered.
    offered: AtomicU64,
    /// Nanoseconds that threads other than the caller spent on the job.
    spent: AtomicU64,
    /// Held while going to sleep and while waking sleepers.
    sleep: Mutex<()>,
    /// Number of threads that sleep or are about to.
    sleepers: AtomicUsize,
    wake: Condvar,
    /// Whether the caller sleeps, or is about to, until its job is done.
    waiting: AtomicBool,
    done: Condvar,
    apart: Affinity,
}

// SAFETY: `job` is written only by the holder of `busy` while the state is closed and no thread
// holds the job, and read only by threads that hold it; acquiring and releasing the job order these
// accesses.
unsafe impl Sync for Pool {}

/// A counter on a separate cache line.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicUsize);

/// Decoded value of `Pool::state`.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    /// Threads can acquire the job.
    const OPEN: u64 = 1 << 16;

    fn holders(self) -> u64 {
        self.0 & (Self::OPEN - 1)
    }

    fn is_open(self) -> bool {
        self.0 & Self::OPEN != 0
    }

    /// Changes with every job.
    fn ticket(self) -> u64 {
        self.0 >> 17
    }

    fn next_job(self) -> State {
        State(self.ticket().wrapping_add(1) << 17 | Self::OPEN)
    }
}

/// Returns the number of threads a dispatch can use: `VYRE_THREADS`, or the machine's available
/// parallelism.
pub fn thread_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("VYRE_THREADS").ok().and_then(|text| text.trim().parse::<usize>().ok());
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        wanted.filter(|&count| count > 0).unwrap_or(available).min(1024)
    })
}

fn pool() -> &'static Pool {
    static POOL: PerProcess<Pool> = PerProcess::new();
    let make = || Pool {
        busy: Mutex::new(()),
        state: AtomicU64::new(0),
        job: UnsafeCell::new(None),
        taken: (0..thread_count()).map(|_| Counter::default()).collect(),
        offered: AtomicU64::new(0),
        spent: AtomicU64::new(0),
        sleep: Mutex::new(()),
        sleepers: AtomicUsize::new(0),
        wake: Condvar::new(),
        waiting: AtomicBool::new(false),
        done: Condvar::new(),
        apart: Affinity::default(),
    };
    let start = |pool: &'static Pool| {
        for number in 1..thread_count() {
            let name = format!("vyre-cpu-{number}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || pool.serve(number));
            if let Err(error) = spawned {
                tracing::warn!("a thread of the cpu backend did not start, so there are fewer: {error}");
                break;
            }
        }
    };
    POOL.get(make, start)
}

/// Runs `run` for every piece from 0 on, with the help of other threads if they are free. Returns
/// when all pieces are done, with the nanoseconds that all threads together spent on them.
pub(crate) fn share(pieces: usize, help: Help, run: &(dyn Fn(usize) + Sync)) -> u64 {
    let begun = now();
    let alone = || {
        (0..pieces).for_each(run);
        now() - begun
    };
    if pieces <= 1 || thread_count() == 1 || help == Help::Nobody {
        return alone();
    }
    let pool = pool();
    let Ok(_busy) = pool.busy.try_lock() else {
        return alone();
    };
    pool.run(pieces, help, run)
}

impl Pool {
    /// Runs a job; only the holder of `busy` calls this.
    fn run(&self, pieces: usize, help: Help, run: &(dyn Fn(usize) + Sync)) -> u64 {
        // SAFETY: the reference is used only by threads that hold the job, and this function
        // returns, even by unwinding, only when the job is closed and has no holders (`Withdraw`).
        let run: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(run) };
        let job = Job { run, pieces, help };
        self.taken.iter().for_each(|counter| counter.0.store(0, Ordering::Relaxed));
        self.spent.store(0, Ordering::Relaxed);
        let begun = now();
        self.offered.store(begun, Ordering::Relaxed);
        // SAFETY: the last job was withdrawn, so it has no holders; this is the holder of `busy`.
        unsafe { *self.job.get() = Some(job) };
        let withdraw = Withdraw(self);
        let state = State(self.state.load(Ordering::Relaxed)).next_job();
        self.state.store(state.0, Ordering::SeqCst);
        if help == Help::Everybody && self.sleepers.load(Ordering::SeqCst) > 0 {
            self.apart.keep();
            // A thread about to sleep holds the lock until it does.
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
        self.work(job, 0);
        let own = now() - begun;
        drop(withdraw);
        own + self.spent.load(Ordering::Relaxed)
    }

    /// Runs pieces while there are any: of the thread's own range, then of the next ones.
    fn work(&self, job: Job, thread: usize) {
        let threads = self.taken.len();
        let border = |thread: usize| job.pieces * thread / threads;
        for other in (thread..threads).chain(0..thread) {
            let (first, end) = (border(other), border(other + 1));
            loop {
                let piece = first + self.taken[other].0.fetch_add(1, Ordering::Relaxed);
                if piece >= end {
                    break;
                }
                (job.run)(piece);
            }
        }
    }

    /// Main loop of a pool thread.
    fn serve(&self, thread: usize) {
        let mut seen = 0;
        // Nanoseconds of work since it woke, without the work that it was woken for.
        let mut worked = 0;
        self.apart.join();
        loop {
            let slept = self.look_for_job(seen, worked);
            worked = if slept { 0 } else { worked };
            let state = State(self.state.load(Ordering::Relaxed));
            seen = state.ticket();
            let joined = state.is_open()
                && self
                    .state
                    .compare_exchange(state.0, state.0 + 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            if !joined {
                // Another thread joined at the same moment, or the job has ended.
                seen = if state.is_open() { seen.wrapping_sub(1) } else { seen };
                continue;
            }
            let finish = Finish(self);
            let begun = now();
            COSTS.began(begun.saturating_sub(self.offered.load(Ordering::Relaxed)), slept);
            // SAFETY: this thread holds the job.
            let job = unsafe { *self.job.get() };
            if let Some(job) = job {
                self.work(job, thread);
            }
            let spent = now() - begun;
            worked += if job.is_some_and(|job| job.help == Help::Awake) { spent } else { 0 };
            self.spent.fetch_add(spent, Ordering::Relaxed);
            drop(finish);
        }
    }

    /// Waits for a job other than the last one seen; returns whether the thread slept. It `worked`
    /// this many nanoseconds since it last woke.
    fn look_for_job(&self, seen: u64, worked: u64) -> bool {
        let is_there = || {
            let state = State(self.state.load(Ordering::SeqCst));
            state.is_open() && state.ticket() != seen
        };
        COSTS.looks();
        let found = spin_until(is_there);
        COSTS.looks_no_more();
        if found {
            return false;
        }
        COSTS.sleeps(worked);
        let mut held = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !is_there() {
            held = self.wake.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

/// Spins until a condition holds, for as long as that costs less than sleeping; returns whether it
/// held.
fn spin_until(is_there: impl Fn() -> bool) -> bool {
    // 32 pauses take 0.8 microseconds and a look at the clock 23 ns, a thirtieth of that.
    const LOOKS: u32 = 32;
    let end = now() + COSTS.patience();
    loop {
        for _ in 0..LOOKS {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if now() >= end {
            return false;
        }
    }
}

/// Withdraws the job and waits until no thread holds it.
struct Withdraw<'a>(&'a Pool);

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let pool = self.0;
        pool.state.fetch_and(!State::OPEN, Ordering::SeqCst);
        let is_free = || State(pool.state.load(Ordering::SeqCst)).holders() == 0;
        if is_free() || spin_until(is_free) {
            return;
        }
        let mut held = lock(&pool.sleep);
        pool.waiting.store(true, Ordering::SeqCst);
        while !is_free() {
            held = pool.done.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        pool.waiting.store(false, Ordering::SeqCst);
    }
}

/// Releases a thread's hold on the job.
struct Finish<'a>(&'a Pool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let before = State(self.0.state.fetch_sub(1, Ordering::SeqCst));
        if before.holders() == 1 && self.0.waiting.load(Ordering::SeqCst) {
            drop(lock(&self.0.sleep));
            self.0.done.notify_all();
        }
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once() {
        for help in [Help::Nobody, Help::Awake, Help::Everybody] {
            for pieces in [0, 1, 2, 7, 1000] {
                let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                share(pieces, help, &|piece| {
                    counts[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{pieces}");
            }
        }
    }

    #[test]
    fn many_callers_at_once_each_get_all_of_their_work() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let sum = AtomicUsize::new(0);
                        let help = if round % 3 == 0 { Help::Everybody } else { Help::Awake };
                        share(64, help, &|piece| {
                            sum.fetch_add(piece, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 64 * 63 / 2);
                    }
                });
            }
        });
    }
}
