//! Measured cost of sharing work among threads, and the decision whether it pays.
//!
//! The start latency of threads is measured with every job, separately for threads that are
//! spinning and for threads that sleep. Work is shared if it takes several times the start latency
//! of the spinning threads; sleeping threads are woken if it takes several times as long as waking
//! them. Short dispatches in quick succession count together: after enough of them the threads are
//! woken, and pick up the next ones by spinning.
//!
//! The duration of work is measured as well, per program and size; the estimate from the code is
//! only the initial guess.

use crate::pool::thread_count;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Threads that work on a job besides the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    Nobody,
    /// Threads that are spinning for work.
    Awake,
    /// Sleeping threads too.
    Everybody,
}

/// Measured state of the threads; one per process.
pub(crate) struct Costs {
    /// Start latency in nanoseconds: of a spinning thread, and of a sleeping one.
    start: [AtomicU64; 2],
    /// Number of threads spinning for work.
    looking: AtomicUsize,
    /// Nanoseconds of work that was not shared only because the threads slept, and when the last of
    /// it began.
    missed: AtomicU64,
    last_missed: AtomicU64,
}

pub(crate) static COSTS: Costs = Costs::new();

/// Nanoseconds since a fixed moment.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Multiple of the start latency that work must take to be shared. A thread costs about as much
/// again as its start: its pieces are not in its cache, and the caller waits for its last one.
const TIMES_START: u64 = 3;

/// Initial start latencies, and the bounds that measurements are clamped to: a thread that the
/// system did not schedule for a while says nothing about the next job.
const START_GUESS: [u64; 2] = [1_000, 20_000];
const START_LEAST: [u64; 2] = [500, 5_000];
const START_MOST: u64 = 100_000;

impl Costs {
    const fn new() -> Costs {
        Costs {
            start: [AtomicU64::new(START_GUESS[0]), AtomicU64::new(START_GUESS[1])],
            looking: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
            last_missed: AtomicU64::new(0),
        }
    }

    /// Records that a thread began to work `delay` nanoseconds after the offer, and whether it had
    /// slept.
    pub(crate) fn began(&self, delay: u64, slept: bool) {
        let kind = usize::from(slept);
        let old = self.start[kind].load(Relaxed);
        let new = (7 * old + delay.min(4 * old)) / 8;
        self.start[kind].store(new.clamp(START_LEAST[kind], START_MOST), Relaxed);
    }

    /// A thread starts spinning for work.
    pub(crate) fn looks(&self) {
        self.looking.fetch_add(1, Relaxed);
    }

    /// A thread found work or goes to sleep.
    pub(crate) fn looks_no_more(&self) {
        self.looking.fetch_sub(1, Relaxed);
    }

    /// Nanoseconds for which spinning costs less than sleeping and being woken.
    pub(crate) fn patience(&self) -> u64 {
        2 * self.start[1].load(Relaxed)
    }

    /// Nanoseconds of work from which waking threads pays.
    pub(crate) fn worth_waking(&self) -> u64 {
        TIMES_START * self.start[1].load(Relaxed)
    }

    /// Selects the help that pays for work that takes one thread `work` nanoseconds.
    fn worth_asking(&self, work: u64) -> Help {
        if work < TIMES_START * self.start[0].load(Relaxed) || thread_count() == 1 {
            Help::Nobody
        } else if work < self.worth_waking() {
            Help::Awake
        } else {
            Help::Everybody
        }
    }

    /// Selects the help for work that justifies only threads that are awake.
    fn awake_for(&self, work: u64) -> Help {
        if self.looking.load(Relaxed) > 0 { Help::Awake } else { self.miss(work, self.worth_waking()) }
    }

    /// Records work that threads would have shared had they not slept.
    fn miss(&self, work: u64, asleep: u64) -> Help {
        let now = now();
        let recent = now.saturating_sub(self.last_missed.swap(now, Relaxed)) < work + self.patience();
        let missed = if recent { self.missed.load(Relaxed) + work } else { work };
        let wake = missed >= asleep;
        self.missed.store(if wake { 0 } else { missed }, Relaxed);
        if wake { Help::Everybody } else { Help::Nobody }
    }
}

/// Measured duration of a program by number of invocations.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// Initial estimate per invocation, in sixteenths of a nanosecond.
    guess: u64,
    /// Per power of two of invocations: 256ths of a nanosecond per invocation on one thread; 0 if
    /// unknown.
    alone: [AtomicU32; SIZES],
    /// The same for the elapsed time with the help of threads that were awake.
    helped: [AtomicU32; SIZES],
    /// Count of short dispatches, of which few are timed.
    short: AtomicU32,
    /// Count of dispatches for which help was optional.
    choices: AtomicU32,
}

/// The help chosen for a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) help: Help,
    /// Whether its time predicts later dispatches like it.
    pub(crate) counts: bool,
}

/// Timing of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) invocations: u64,
    pub(crate) help: Help,
    /// Elapsed nanoseconds.
    pub(crate) elapsed: u64,
    /// Nanoseconds that all threads together spent on it.
    pub(crate) spent: u64,
}

const SIZES: usize = 64;

/// One in this many dispatches shorter than `SHORT_NS` is timed; reading the clock is significant
/// for those.
const SELDOM: u32 = 16;
const SHORT_NS: u64 = 4_000;

/// How often the slower choice is re-measured: the first `OTHER_WAY` of every `AGAIN` dispatches
/// take it, or of every `AGAIN_IF_CLEAR` if it took at least half as long again. After each switch,
/// the first `SETTLING` dispatches find their data in another processor's cache and do not count.
const AGAIN: u32 = 256;
const AGAIN_IF_CLEAR: u32 = 4096;
const OTHER_WAY: u32 = 4;
const SETTLING: u32 = 2;

/// The first measurement is capped at this multiple of the guess.
const FIRST_AT_MOST: u64 = 16;

impl Learnt {
    pub(crate) fn new(guess: u64) -> Learnt {
        let unknown = || [const { AtomicU32::new(0) }; SIZES];
        Learnt {
            guess,
            alone: unknown(),
            helped: unknown(),
            short: AtomicU32::new(0),
            choices: AtomicU32::new(0),
        }
    }

    /// Estimates the nanoseconds that a number of invocations takes on one thread.
    pub(crate) fn estimate(&self, invocations: u64) -> u64 {
        match u64::from(self.alone[size(invocations)].load(Relaxed)) {
            0 => invocations.saturating_mul(self.guess) / 16,
            measured => invocations.saturating_mul(measured) / 256,
        }
    }

    /// Chooses the help for a number of invocations, estimated at `work` nanoseconds.
    pub(crate) fn help_for(&self, invocations: u64, work: u64, costs: &Costs) -> Choice {
        let [alone, helped] = [&self.alone, &self.helped].map(|times| times[size(invocations)].load(Relaxed));
        let pays = alone == 0 || helped == 0 || helped <= alone;
        let asked = costs.worth_asking(work);
        if asked != Help::Awake || alone == 0 {
            let help = if asked == Help::Everybody { asked } else { Help::Nobody };
            return Choice { help, counts: true };
        }
        let (less, more) = (alone.min(helped), alone.max(helped));
        let turn = next(&self.choices) % if more < less + less / 2 { AGAIN } else { AGAIN_IF_CLEAR };
        let other_way = turn < OTHER_WAY;
        let settling = turn < SETTLING || (OTHER_WAY..OTHER_WAY + SETTLING).contains(&turn);
        if pays == other_way {
            return Choice { help: Help::Nobody, counts: !settling };
        }
        let help = match costs.awake_for(work) {
            // Whether help pays can only be measured with the threads awake.
            Help::Nobody if other_way => Help::Everybody,
            help => help,
        };
        Choice { help, counts: !settling }
    }

    /// Whether to time a dispatch estimated at `work` nanoseconds.
    pub(crate) fn wants(&self, invocations: u64, work: u64) -> bool {
        work >= SHORT_NS
            || self.alone[size(invocations)].load(Relaxed) == 0
            || next(&self.short).is_multiple_of(SELDOM)
    }

    /// Records the time of a dispatch.
    pub(crate) fn took(&self, taken: Taken) {
        let (times, nanoseconds) = match taken.help {
            Help::Nobody => (&self.alone, taken.elapsed),
            Help::Awake => (&self.helped, taken.elapsed),
            // Work worth waking threads for rarely runs without them.
            Help::Everybody => (&self.alone, taken.spent),
        };
        let time = &times[size(taken.invocations)];
        let new = nanoseconds.saturating_mul(256) / taken.invocations.max(1);
        let old = u64::from(time.load(Relaxed));
        // A thread that was descheduled takes longer than its work, so increases are adopted slowly
        // and decreases quickly.
        let next = match old {
            // One bad measurement does not rule out help.
            0 if taken.help == Help::Awake => {
                new.min(self.alone[size(taken.invocations)].load(Relaxed).into())
            }
            0 => new.min((FIRST_AT_MOST * 16).saturating_mul(self.guess)),
            _ if new < old => (old + new) / 2,
            _ => (7 * old + new.min(4 * old)).div_ceil(8),
        };
        time.store(u32::try_from(next).unwrap_or(u32::MAX).max(1), Relaxed);
    }
}

/// Increments a counter; a concurrent increment can be lost.
fn next(counter: &AtomicU32) -> u32 {
    let count = counter.load(Relaxed);
    counter.store(count.wrapping_add(1), Relaxed);
    count
}

fn size(invocations: u64) -> usize {
    invocations.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_wakes_threads_and_short_work_does_not() {
        let costs = Costs::new();
        assert_eq!(costs.worth_asking(TIMES_START * START_GUESS[0] - 1), Help::Nobody);
        let several = thread_count() > 1;
        let [awake, everybody] =
            [Help::Awake, Help::Everybody].map(|help| if several { help } else { Help::Nobody });
        assert_eq!(costs.worth_asking(costs.worth_waking()), everybody);
        assert_eq!(costs.worth_asking(TIMES_START * START_GUESS[0]), awake);
        assert_eq!(costs.awake_for(TIMES_START * START_GUESS[0]), Help::Nobody);
        costs.looks();
        assert_eq!(costs.awake_for(TIMES_START * START_GUESS[0]), Help::Awake);
    }

    #[test]
    fn threads_that_begin_late_are_asked_for_more_work_only() {
        let costs = Costs::new();
        (0..100).for_each(|_| costs.began(80_000, true));
        assert!((230_000..=240_000).contains(&costs.worth_waking()), "{}", costs.worth_waking());
        (0..100).for_each(|_| costs.began(u64::MAX, true));
        assert_eq!(costs.worth_waking(), TIMES_START * START_MOST);
        (0..100).for_each(|_| costs.began(0, true));
        assert_eq!(costs.worth_waking(), TIMES_START * START_LEAST[1]);
    }

    #[test]
    fn short_dispatches_count_together() {
        let costs = Costs::new();
        // So long that the clock does not matter: each begins within the duration of the one
        // before.
        let work = u64::MAX / 1_000;
        let helps: Vec<Help> = (0..20).map(|_| costs.miss(work, 10 * work)).collect();
        let woken: Vec<usize> = (0..20).filter(|&k| helps[k] == Help::Everybody).collect();
        assert_eq!(woken, [9, 19]);
    }

    fn took(learnt: &Learnt, help: Help, elapsed: u64) {
        learnt.took(Taken { invocations: 1000, help, elapsed, spent: 2 * elapsed });
    }

    #[test]
    fn what_was_measured_replaces_the_guess_for_its_size() {
        let learnt = Learnt::new(32);
        assert_eq!(learnt.estimate(1000), 2000);
        assert!(learnt.wants(1000, 2000));
        took(&learnt, Help::Nobody, 500);
        assert_eq!(learnt.estimate(1000), 500);
        assert_eq!(learnt.estimate(1_000_000), 2_000_000);
        let timed = (0..160).filter(|_| learnt.wants(1000, 500)).count();
        assert_eq!(timed, 10);
        (0..100).for_each(|_| took(&learnt, Help::Nobody, 1000));
        assert!((995..=1005).contains(&learnt.estimate(1000)), "{}", learnt.estimate(1000));
        learnt.took(Taken { invocations: u64::MAX, help: Help::Everybody, elapsed: 1, spent: u64::MAX });
        assert!(learnt.estimate(u64::MAX) > 0);
    }

    /// Five periods of choices.
    fn choices(learnt: &Learnt, costs: &Costs) -> Vec<Choice> {
        (0..5 * AGAIN).map(|_| learnt.help_for(1000, 10_000, costs)).collect()
    }

    fn with(choices: &[Choice], help: Help) -> usize {
        choices.iter().filter(|choice| choice.help == help).count()
    }

    #[test]
    fn threads_that_are_awake_help_where_that_was_faster() {
        let (learnt, costs) = (Learnt::new(1600), Costs::new());
        costs.looks();
        let several = thread_count() > 1;
        took(&learnt, Help::Nobody, 10_000);
        took(&learnt, Help::Awake, 8_000);
        let faster = choices(&learnt, &costs);
        assert_eq!(with(&faster, Help::Awake), if several { 5 * 252 } else { 0 });
        // Two of the four without help count, and all but two of the others.
        let counted: Vec<Choice> = faster.into_iter().filter(|choice| choice.counts).collect();
        let expected = if several { (5 * 252, 5 * 250) } else { (5 * 256, 0) };
        assert_eq!((counted.len(), with(&counted, Help::Awake)), expected);
        (0..100).for_each(|_| took(&learnt, Help::Awake, 11_000));
        assert_eq!(with(&choices(&learnt, &costs), Help::Awake), if several { 5 * 4 } else { 0 });
    }

    #[test]
    fn threads_that_sleep_are_woken_to_see_whether_they_help_now() {
        let (learnt, costs) = (Learnt::new(1600), Costs::new());
        took(&learnt, Help::Nobody, 10_000);
        (0..10).for_each(|_| took(&learnt, Help::Awake, 11_000));
        let slower = choices(&learnt, &costs);
        let woken = with(&slower, Help::Everybody);
        assert!(if thread_count() > 1 { (5..=5 * 4).contains(&woken) } else { woken == 0 }, "{woken}");
        assert_eq!(with(&slower, Help::Nobody) + woken, slower.len());
    }
}
