//! Decides which threads help with a dispatch, from measurements.
//!
//! [`decide`] is a pure function: it takes a [`Situation`], everything known when a dispatch
//! starts, and returns the first of the [`RULES`] that applies. [`Learnt::choose`] takes the
//! snapshot and applies the rule.
//!
//! **Starts**: the start latency of threads is measured with every job, separately for threads that
//! spin and for threads that sleep. A spinning thread pays for work of several times its latency,
//! and a sleeping one is woken at once for work of several times the latency of waking it.
//!
//! **Medium work** is between the two. One such dispatch is over before a sleeping thread could
//! start, but a thread that is woken during one of many spins for the next. If dispatches have come
//! for as long as waking takes, as many again are likely, so threads are woken then: sooner if that
//! paid off the last times, later if it did not ([`Reluctance`]). A thread goes back to sleep after
//! [`Costs::patience`] without work, which limits what waking it in vain costs.
//!
//! **Durations** are measured per program and size, alone and with help; the estimate from the code
//! is only the initial guess. The slower way is re-measured now and then ([`Turn`]).

use crate::pool::thread_count;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
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

/// Everything that the help for a dispatch depends on. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Situation {
    threads: usize,
    /// Expected time on one thread.
    work: u64,
    /// Start latency of a spinning thread, and of a sleeping one.
    start: u64,
    wake: u64,
    /// Measured time per invocation on one thread, and with help; 0 if unknown.
    alone: u32,
    helped: u32,
    turn: Turn,
    /// Whether threads are spinning for work.
    awake: bool,
    /// Recent work that threads would have shared had they not slept, including this dispatch.
    missed: u64,
    reluctance: Reluctance,
}

impl Situation {
    /// Whether help is known to pay, or may.
    fn help_pays(&self) -> bool {
        self.helped == 0 || self.helped <= self.alone
    }
}

/// Multiple of the start latency that work must take to be shared. A thread costs about as much
/// again as its start: its pieces are not in its cache, and the caller waits for its last one.
const TIMES_START: u64 = 3;

/// One rule.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    reason: &'static str,
    help: Help,
    part: Part,
    applies: fn(&Situation) -> bool,
}

/// What a decision is part of, besides its dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Nothing,
    /// The comparison of working alone and with help.
    Comparison,
    /// The same, and the sum of work that sleeping threads miss.
    MissedWork,
}

/// The rules; the first that applies decides.
static RULES: [Rule; 10] = [
    Rule {
        name: "one thread",
        reason: "there are no other threads",
        help: Help::Nobody,
        part: Part::Nothing,
        applies: |now| now.threads == 1,
    },
    Rule {
        name: "short",
        reason: "the work takes little longer than the start of a spinning thread",
        help: Help::Nobody,
        part: Part::Nothing,
        applies: |now| now.work < TIMES_START * now.start,
    },
    Rule {
        name: "long",
        reason: "the work takes much longer than waking a thread",
        help: Help::Everybody,
        part: Part::Nothing,
        applies: |now| now.work >= TIMES_START * now.wake,
    },
    Rule {
        name: "untimed",
        reason: "the time on one thread has to be measured first",
        help: Help::Nobody,
        part: Part::Nothing,
        applies: |now| now.alone == 0,
    },
    Rule {
        name: "alone again",
        reason: "help pays; whether it still does is measured",
        help: Help::Nobody,
        part: Part::Comparison,
        applies: |now| now.turn.is_other_way() && now.help_pays(),
    },
    Rule {
        name: "no gain",
        reason: "help does not pay",
        help: Help::Nobody,
        part: Part::Comparison,
        applies: |now| !now.turn.is_other_way() && !now.help_pays(),
    },
    Rule {
        name: "awake",
        reason: "threads are spinning, and help pays or is measured",
        help: Help::Awake,
        part: Part::Comparison,
        applies: |now| now.awake,
    },
    Rule {
        name: "help again",
        reason: "help does not pay; whether it does now can only be measured with the threads awake",
        help: Help::Everybody,
        part: Part::Comparison,
        applies: |now| now.turn.is_other_way(),
    },
    Rule {
        name: "frequent",
        reason: "dispatches keep coming, and threads woken now help with the next ones",
        help: Help::Everybody,
        part: Part::MissedWork,
        applies: |now| now.missed >= now.reluctance.of(now.wake),
    },
    Rule {
        name: "asleep",
        reason: "the work would be done before a sleeping thread could start",
        help: Help::Nobody,
        part: Part::MissedWork,
        applies: |_| true,
    },
];

/// The rule that decides which threads help.
fn decide(now: &Situation) -> &'static Rule {
    let [.., last] = &RULES;
    RULES.iter().find(|rule| (rule.applies)(now)).unwrap_or(last)
}

/// Position of a dispatch in the cycle in which the slower way is re-measured. After each change of
/// ways, the first dispatches find their data in another processor's cache and do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The slower way, not measured.
    OtherSettles,
    /// The slower way, measured.
    Other,
    /// The faster way, not measured.
    UsualSettles,
    /// The faster way, measured.
    Usual,
}

/// Length of a cycle in dispatches; the second if the slower way takes at least half as long again.
/// Four dispatches in 256 that take at most half as long again cost 0.8% of the time; four in 4096
/// cost as little if they take eight times as long.
const CYCLE: u32 = 256;
const CYCLE_IF_CLEAR: u32 = 4096;
/// Dispatches of a cycle that take the slower way, and of each way that settle. Chosen, not
/// measured: two dispatches of the slower way are left that count.
const OTHER_WAY: u32 = 4;
const SETTLING: u32 = 2;

impl Turn {
    /// The turn of a dispatch by its number, with the times of the two ways.
    fn of(number: u32, [alone, helped]: [u32; 2]) -> Turn {
        let (less, more) = (alone.min(helped), alone.max(helped));
        match number % if more < less + less / 2 { CYCLE } else { CYCLE_IF_CLEAR } {
            0..SETTLING => Turn::OtherSettles,
            SETTLING..OTHER_WAY => Turn::Other,
            at if at < OTHER_WAY + SETTLING => Turn::UsualSettles,
            _ => Turn::Usual,
        }
    }

    fn is_other_way(self) -> bool {
        matches!(self, Turn::OtherSettles | Turn::Other)
    }

    fn counts(self) -> bool {
        matches!(self, Turn::Other | Turn::Usual)
    }
}

/// How much work runs without help before sleeping threads are woken for the dispatches to come, in
/// steps from an eighth of the latency of waking them to four times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reluctance(u32);

impl Reluctance {
    /// As long as waking takes.
    const FIRST: Reluctance = Reluctance(3);
    const MOST: Reluctance = Reluctance(5);

    /// Nanoseconds of work, for this latency of waking.
    fn of(self, wake: u64) -> u64 {
        (wake << self.0) / 8
    }

    /// The reluctance after threads were woken, worked this long, and slept again.
    fn after(self, worked: u64, wake: u64) -> Reluctance {
        match worked >= wake {
            true => Reluctance(self.0.saturating_sub(1)),
            false => Reluctance((self.0 + 2).min(Self::MOST.0)),
        }
    }
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
    reluctance: AtomicU32,
    /// Whether the threads were last woken for more work to come.
    on_trial: AtomicBool,
}

pub(crate) static COSTS: Costs = Costs::new();

/// Nanoseconds since a fixed moment.
pub(crate) fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Initial start latencies, and the bounds that measurements are clamped to: a thread that the
/// system did not schedule for a while says nothing about the next job. The guesses only count
/// until the first job is measured. Chosen, not measured, around the 5 µs that waking a thread
/// takes.
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
            reluctance: AtomicU32::new(Reluctance::FIRST.0),
            on_trial: AtomicBool::new(false),
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

    /// A thread goes to sleep; it worked this many nanoseconds without being woken for it since it
    /// last woke.
    pub(crate) fn sleeps(&self, worked: u64) {
        if self.on_trial.swap(false, Relaxed) {
            let after = Reluctance(self.reluctance.load(Relaxed)).after(worked, self.wake());
            self.reluctance.store(after.0, Relaxed);
        }
    }

    fn wake(&self) -> u64 {
        self.start[1].load(Relaxed)
    }

    /// Nanoseconds for which spinning costs less than sleeping and being woken.
    pub(crate) fn patience(&self) -> u64 {
        2 * self.wake()
    }

    /// Nanoseconds of work from which waking threads pays.
    pub(crate) fn worth_waking(&self) -> u64 {
        TIMES_START * self.wake()
    }

    /// Recent work that was not shared because the threads slept, with this work that begins now.
    fn missed_with(&self, work: u64, now: u64) -> u64 {
        let recent = now.saturating_sub(self.last_missed.load(Relaxed)) < work + self.patience();
        if recent { self.missed.load(Relaxed).saturating_add(work) } else { work }
    }

    /// Records work that is not shared because the threads sleep, or that they are woken for more.
    fn slept_through(&self, missed: u64, woken: bool, now: u64) {
        self.missed.store(if woken { 0 } else { missed }, Relaxed);
        self.last_missed.store(now, Relaxed);
        if woken {
            self.on_trial.store(true, Relaxed);
        }
    }
}

/// Measured durations of a program by number of invocations.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// Initial estimate per invocation, in sixteenths of a nanosecond.
    guess: u64,
    /// One per power of two of invocations.
    sizes: [Size; SIZES],
}

const SIZES: usize = 64;

/// Measured durations of about one size, in 256ths of a nanosecond per invocation; 0 if unknown.
#[derive(Debug)]
struct Size {
    /// On one thread.
    alone: AtomicU32,
    /// Elapsed time with the help of threads that were awake.
    helped: AtomicU32,
    /// Count of short dispatches, of which few are timed.
    short: AtomicU32,
    /// Count of dispatches in which the two ways are compared.
    compared: AtomicU32,
}

/// The decision for a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) help: Help,
    /// Expected nanoseconds on one thread.
    pub(crate) work: u64,
    /// Whether it is timed, because its time predicts later dispatches like it.
    pub(crate) timed: bool,
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

/// One in this many dispatches shorter than `SHORT_NS` is timed. Timing takes two readings of the
/// clock, 46 ns: 1% of `SHORT_NS`, and timed once in 16 dispatches, 1% down to 300 ns.
const SELDOM: u32 = 16;
const SHORT_NS: u64 = 4_000;

/// The first measurement is capped at this multiple of the guess: it includes page faults and cold
/// caches, and later measurements replace it only gradually. Chosen, not measured; further
/// measurements raise one that was capped too low.
const FIRST_AT_MOST: u64 = 16;

impl Learnt {
    pub(crate) fn new(guess: u64) -> Learnt {
        let unknown = || AtomicU32::new(0);
        let size = |_| Size { alone: unknown(), helped: unknown(), short: unknown(), compared: unknown() };
        Learnt { guess, sizes: std::array::from_fn(size) }
    }

    fn size(&self, invocations: u64) -> &Size {
        &self.sizes[invocations.max(1).ilog2() as usize]
    }

    /// Estimates the nanoseconds that a number of invocations takes on one thread.
    pub(crate) fn estimate(&self, invocations: u64) -> u64 {
        self.expected(invocations, self.size(invocations).alone.load(Relaxed))
    }

    fn expected(&self, invocations: u64, alone: u32) -> u64 {
        match alone {
            0 => invocations.saturating_mul(self.guess) / 16,
            measured => invocations.saturating_mul(measured.into()) / 256,
        }
    }

    /// Chooses the help for a number of invocations.
    pub(crate) fn choose(&self, invocations: u64, costs: &Costs) -> Choice {
        self.choose_at(thread_count(), now, invocations, costs)
    }

    fn choose_at(&self, threads: usize, clock: fn() -> u64, invocations: u64, costs: &Costs) -> Choice {
        let size = self.size(invocations);
        let [alone, helped] = [&size.alone, &size.helped].map(|time| time.load(Relaxed));
        let work = self.expected(invocations, alone);
        let [start, wake] = [&costs.start[0], &costs.start[1]].map(|start| start.load(Relaxed));
        let awake = costs.looking.load(Relaxed) > 0;
        // The clock is read only if the answer can depend on it.
        let is_medium = (TIMES_START * start..TIMES_START * wake).contains(&work);
        let missed = if awake || !is_medium { work } else { costs.missed_with(work, clock()) };
        let reluctance = Reluctance(costs.reluctance.load(Relaxed));
        let turn = Turn::of(size.compared.load(Relaxed), [alone, helped]);
        let now = Situation { threads, work, start, wake, alone, helped, turn, awake, missed, reluctance };
        let Rule { name, reason, help, part, .. } = *decide(&now);
        if part != Part::Nothing {
            next(&size.compared);
            tracing::trace!(name, reason, work, "help with a dispatch");
        }
        if part == Part::MissedWork {
            costs.slept_through(missed, help == Help::Everybody, clock());
        }
        let predicts = part == Part::Nothing || turn.counts();
        let often = work >= SHORT_NS || alone == 0 || next(&size.short).is_multiple_of(SELDOM);
        Choice { help, work, timed: predicts && often }
    }

    /// Records the time of a dispatch.
    pub(crate) fn took(&self, taken: Taken) {
        let size = self.size(taken.invocations);
        let (time, nanoseconds) = match taken.help {
            Help::Nobody => (&size.alone, taken.elapsed),
            Help::Awake => (&size.helped, taken.elapsed),
            // Work worth waking threads for rarely runs without them.
            Help::Everybody => (&size.alone, taken.spent),
        };
        let new = nanoseconds.saturating_mul(256) / taken.invocations.max(1);
        let old = u64::from(time.load(Relaxed));
        // A thread that was descheduled takes longer than its work, so increases are adopted slowly
        // and decreases quickly.
        let next = match old {
            // One bad measurement does not rule out help.
            0 if taken.help == Help::Awake => new.min(size.alone.load(Relaxed).into()),
            0 => new.min((FIRST_AT_MOST * 16).saturating_mul(self.guess)),
            _ if new < old => (old + new) / 2,
            _ => (7 * old + new.min(4 * old)).div_ceil(8),
        };
        time.store(u32::try_from(next).unwrap_or(u32::MAX).max(1), Relaxed);
    }
}

/// Increments a counter and returns its old value; a concurrent increment can be lost.
fn next(counter: &AtomicU32) -> u32 {
    let count = counter.load(Relaxed);
    counter.store(count.wrapping_add(1), Relaxed);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work of 10 µs that takes 8 µs with help; starts take 1 µs and 20 µs, and threads sleep.
    const MEDIUM: Situation = Situation {
        threads: 2,
        work: 10_000,
        start: 1_000,
        wake: 20_000,
        alone: 100,
        helped: 80,
        turn: Turn::Usual,
        awake: false,
        missed: 10_000,
        reluctance: Reluctance::FIRST,
    };

    #[test]
    fn the_first_rule_that_applies_decides() {
        let awake = Situation { awake: true, ..MEDIUM };
        let slower = Situation { helped: 110, ..MEDIUM };
        let mut met = std::collections::BTreeSet::new();
        for (expected, now) in [
            ("one thread", Situation { threads: 1, work: u64::MAX, ..awake }),
            ("short", Situation { work: 2_999, alone: 0, ..awake }),
            ("long", Situation { work: 60_000, alone: 0, ..slower }),
            ("untimed", Situation { work: 3_000, alone: 0, ..awake }),
            ("untimed", Situation { work: 59_999, alone: 0, ..awake }),
            ("alone again", Situation { turn: Turn::OtherSettles, ..awake }),
            ("alone again", Situation { turn: Turn::Other, ..MEDIUM }),
            ("no gain", slower),
            ("no gain", Situation { awake: true, missed: 99_000, ..slower }),
            ("awake", awake),
            ("awake", Situation { helped: 0, ..awake }),
            ("awake", Situation { turn: Turn::UsualSettles, ..awake }),
            ("awake", Situation { awake: true, turn: Turn::Other, ..slower }),
            ("help again", Situation { turn: Turn::OtherSettles, ..slower }),
            ("frequent", Situation { missed: 20_000, ..MEDIUM }),
            ("frequent", Situation { reluctance: Reluctance(0), ..MEDIUM }),
            ("asleep", MEDIUM),
            ("asleep", Situation { missed: 79_999, reluctance: Reluctance::MOST, ..MEDIUM }),
        ] {
            let rule = decide(&now);
            assert_eq!(rule.name, expected, "{}: {now:?}", rule.reason);
            met.insert(rule.name);
        }
        assert_eq!(met.len(), RULES.len(), "every rule decides somewhere, and names are unique");
    }

    #[test]
    fn the_slower_way_has_a_few_turns_of_every_cycle() {
        let turns = |numbers: std::ops::Range<u32>, times| -> Vec<Turn> {
            numbers.map(|number| Turn::of(number, times)).collect()
        };
        use Turn::*;
        let first = [OtherSettles, OtherSettles, Other, Other, UsualSettles, UsualSettles, Usual];
        assert_eq!(turns(0..7, [100, 80]), first);
        assert_eq!(turns(256..263, [80, 100]), first);
        assert_eq!(turns(256..263, [160, 80]), [Usual; 7]);
        assert_eq!(turns(4096..4103, [160, 80]), first);
    }

    #[test]
    fn threads_are_woken_sooner_where_that_paid_and_later_where_it_did_not() {
        let wake = 20_000;
        for (worked, expected) in [
            (&[][..], 20_000),
            (&[20_000], 10_000),
            (&[90_000, 90_000, 90_000, 90_000], 2_500),
            (&[19_999], 80_000),
            (&[0, 0, 0], 80_000),
            (&[90_000, 90_000, 90_000, 0], 10_000),
        ] {
            let after = worked.iter().fold(Reluctance::FIRST, |now, &worked| now.after(worked, wake));
            assert_eq!(after.of(wake), expected, "{worked:?}");
        }
    }

    #[test]
    fn threads_that_begin_late_are_asked_for_more_work_only() {
        for (delay, expected) in [
            (80_000, 230_000..=240_000),
            (u64::MAX, TIMES_START * START_MOST..=TIMES_START * START_MOST),
            (0, TIMES_START * START_LEAST[1]..=TIMES_START * START_LEAST[1]),
        ] {
            let costs = Costs::new();
            (0..200).for_each(|_| costs.began(delay, true));
            assert!(expected.contains(&costs.worth_waking()), "{delay}: {}", costs.worth_waking());
        }
    }

    fn took(learnt: &Learnt, help: Help, elapsed: u64) {
        learnt.took(Taken { invocations: 1000, help, elapsed, spent: 2 * elapsed });
    }

    #[test]
    fn what_was_measured_replaces_the_guess_for_its_size() {
        let (learnt, costs) = (Learnt::new(32), Costs::new());
        assert_eq!(learnt.estimate(1000), 2000);
        assert!(learnt.choose(1000, &costs).timed);
        took(&learnt, Help::Nobody, 500);
        assert_eq!(learnt.estimate(1000), 500);
        assert_eq!(learnt.estimate(1_000_000), 2_000_000);
        let timed = (0..160).filter(|_| learnt.choose(1000, &costs).timed).count();
        assert_eq!(timed, 10);
        (0..100).for_each(|_| took(&learnt, Help::Nobody, 1000));
        assert!((995..=1005).contains(&learnt.estimate(1000)), "{}", learnt.estimate(1000));
        learnt.took(Taken { invocations: u64::MAX, help: Help::Everybody, elapsed: 1, spent: u64::MAX });
        assert!(learnt.estimate(u64::MAX) > 0);
    }

    /// Number of dispatches with each help, of one cycle with two threads and without pauses.
    fn helps(learnt: &Learnt, costs: &Costs) -> [usize; 3] {
        let helps: Vec<Help> = (0..CYCLE).map(|_| learnt.choose_at(2, || 0, 1000, costs).help).collect();
        [Help::Nobody, Help::Awake, Help::Everybody]
            .map(|help| helps.iter().filter(|other| **other == help).count())
    }

    #[test]
    fn threads_that_are_awake_help_where_that_was_faster() {
        let (learnt, costs) = (Learnt::new(1600), Costs::new());
        costs.looks();
        took(&learnt, Help::Nobody, 10_000);
        took(&learnt, Help::Awake, 8_000);
        assert_eq!(helps(&learnt, &costs), [4, 252, 0]);
        (0..100).for_each(|_| took(&learnt, Help::Awake, 11_000));
        assert_eq!(helps(&learnt, &costs), [252, 4, 0]);
    }

    #[test]
    fn sleeping_threads_are_woken_for_dispatches_that_keep_coming() {
        let (learnt, costs) = (Learnt::new(1600), Costs::new());
        took(&learnt, Help::Nobody, 10_000);
        // Every other one completes the 20 µs that waking takes.
        assert_eq!(helps(&learnt, &costs), [4 + 126, 0, 126]);
        costs.sleeps(0);
        assert_eq!(helps(&learnt, &costs), [4 + 220, 0, 32], "waking them was in vain");
    }
}
