//! What sharing work among threads costs, measured, and whether it pays.
//!
//! How long a thread takes to begin is measured with every job, apart for threads that look for work and for threads that
//! sleep. Work is shared if it takes several times as long as the threads at hand take to begin; sleeping threads are woken
//! if it takes several times as long as waking them. Short dispatches that follow each other closely count together: after
//! enough of them the threads are woken, and find the next ones by looking.
//!
//! How long work takes is measured too, per program and size; what the code looks like is only the first guess.

use crate::pool::thread_count;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Who works on a job beside the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Help {
    Nobody,
    /// Threads that are looking for work.
    Awake,
    /// Threads that sleep too.
    Everybody,
}

/// What is known of the threads; one per process.
pub(crate) struct Costs {
    /// Nanoseconds that a thread takes to begin: one that looks for work, and one that sleeps.
    start: [AtomicU64; 2],
    /// Threads that are looking for work.
    looking: AtomicUsize,
    /// Nanoseconds of work that was not shared only because the threads slept, and when the last of it began.
    missed: AtomicU64,
    last_missed: AtomicU64,
}

pub(crate) static COSTS: Costs = Costs::new();

/// Nanoseconds since some moment.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// A thread costs about as much again as it takes to begin: its pieces are in no cache of its own, and the caller waits
/// for its last one.
const TIMES_START: u64 = 3;

/// What the time to begin is taken to be before it was measured, and the bounds that no measurement exceeds: a thread that
/// the system did not run for a while says nothing of the next job.
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

    /// A thread began to work so many nanoseconds after it was offered; it slept before, or not.
    pub(crate) fn began(&self, delay: u64, slept: bool) {
        let kind = usize::from(slept);
        let old = self.start[kind].load(Relaxed);
        let new = (7 * old + delay.min(4 * old)) / 8;
        self.start[kind].store(new.clamp(START_LEAST[kind], START_MOST), Relaxed);
    }

    /// A thread begins to look for work.
    pub(crate) fn looks(&self) {
        self.looking.fetch_add(1, Relaxed);
    }

    /// It found some, or sleeps.
    pub(crate) fn looks_no_more(&self) {
        self.looking.fetch_sub(1, Relaxed);
    }

    /// For so many nanoseconds looking costs less than sleeping and being woken.
    pub(crate) fn patience(&self) -> u64 {
        2 * self.start[1].load(Relaxed)
    }

    /// Work of so many nanoseconds is worth waking threads for.
    pub(crate) fn worth_waking(&self) -> u64 {
        TIMES_START * self.start[1].load(Relaxed)
    }

    /// Who is worth asking for help with work that takes one thread so many nanoseconds.
    fn worth_asking(&self, work: u64) -> Help {
        if work < TIMES_START * self.start[0].load(Relaxed) || thread_count() == 1 {
            Help::Nobody
        } else if work < self.worth_waking() {
            Help::Awake
        } else {
            Help::Everybody
        }
    }

    /// Who can help with work that threads are worth asking for only if they are awake.
    fn awake_for(&self, work: u64) -> Help {
        if self.looking.load(Relaxed) > 0 { Help::Awake } else { self.miss(work, self.worth_waking()) }
    }

    /// Work that threads would have helped with, had they not slept.
    fn miss(&self, work: u64, asleep: u64) -> Help {
        let now = now();
        let recent = now.saturating_sub(self.last_missed.swap(now, Relaxed)) < work + self.patience();
        let missed = if recent { self.missed.load(Relaxed) + work } else { work };
        let wake = missed >= asleep;
        self.missed.store(if wake { 0 } else { missed }, Relaxed);
        if wake { Help::Everybody } else { Help::Nobody }
    }
}

/// How long a program takes, by how many invocations there are.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// A guess at the time of an invocation, in sixteenths of a nanosecond.
    guess: u64,
    /// Per power of two of invocations: 256ths of a nanosecond per invocation on one thread; 0 if unknown.
    alone: [AtomicU32; SIZES],
    /// The same until all were done, with the threads that were awake.
    helped: [AtomicU32; SIZES],
    /// Short dispatches, of which few are timed.
    short: AtomicU32,
    /// Dispatches that threads could have helped with or not.
    choices: AtomicU32,
}

/// Who helps with a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) help: Help,
    /// Whether its time says what later ones like it take.
    pub(crate) counts: bool,
}

/// How a dispatch ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) invocations: u64,
    pub(crate) help: Help,
    /// Nanoseconds until it was done.
    pub(crate) elapsed: u64,
    /// Nanoseconds that all threads together spent on it.
    pub(crate) spent: u64,
}

const SIZES: usize = 64;

/// One of so many dispatches that are too short to notice a clock is timed.
const SELDOM: u32 = 16;
const SHORT_NS: u64 = 4_000;

/// Of so many dispatches the first few are run the other way, to see whether that is still slower: of those where it took less
/// than half as long again, and of others. After each change the first ones find in another processor's cache what they need,
/// so they do not count.
const AGAIN: u32 = 256;
const AGAIN_IF_CLEAR: u32 = 4096;
const OTHER_WAY: u32 = 4;
const SETTLING: u32 = 2;

/// The first measurement is believed up to so many times the guess.
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

    /// Roughly how many nanoseconds so many invocations take on one thread.
    pub(crate) fn estimate(&self, invocations: u64) -> u64 {
        match u64::from(self.alone[size(invocations)].load(Relaxed)) {
            0 => invocations.saturating_mul(self.guess) / 16,
            measured => invocations.saturating_mul(measured) / 256,
        }
    }

    /// Who helps with so many invocations, thought to take so long.
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
            // Whether help pays shows only when the threads are there.
            Help::Nobody if other_way => Help::Everybody,
            help => help,
        };
        Choice { help, counts: !settling }
    }

    /// Whether a dispatch that is thought to take so long should be timed.
    pub(crate) fn wants(&self, invocations: u64, work: u64) -> bool {
        work >= SHORT_NS
            || self.alone[size(invocations)].load(Relaxed) == 0
            || next(&self.short).is_multiple_of(SELDOM)
    }

    /// Takes note of how long a dispatch took.
    pub(crate) fn took(&self, taken: Taken) {
        let (times, nanoseconds) = match taken.help {
            Help::Nobody => (&self.alone, taken.elapsed),
            Help::Awake => (&self.helped, taken.elapsed),
            // What is worth waking threads for is hardly ever done without.
            Help::Everybody => (&self.alone, taken.spent),
        };
        let time = &times[size(taken.invocations)];
        let new = nanoseconds.saturating_mul(256) / taken.invocations.max(1);
        let old = u64::from(time.load(Relaxed));
        // A thread that was not run for a while took longer than its work, so more is believed slowly and less at once.
        let next = match old {
            // One unlucky measurement is no reason to do without help.
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

/// Counts on; of two threads at once one may not be counted.
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
        // So long that the clock does not matter: each begins within its own time of the last.
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

    /// Five rounds of choices.
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
        // Two of the four that are done without help count, and all but two of the others.
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
