//! Finds the fastest of several candidates on a noisy machine.
//!
//! **Field**: candidate 0 is the default. Each candidate is first checked once (its results must
//! match the default's) and run once to warm up; a candidate that fails or differs is eliminated.
//!
//! **Halving**: rounds of passes. In a pass every remaining candidate runs once, in random order,
//! so that a disturbance affects all alike; the score is the logarithm of the time minus the median
//! of its pass. After a round the better half stays, by the median over all passes so far. The last
//! few candidates get more passes. Of those that equal the best within the noise, the first becomes
//! the leader, so that repeated tuning gives the same answer.
//!
//! **Duel**: the leader against the default, in pairs that alternate the order; on a noisy machine
//! each side of a pair is the median of several runs. To win, the leader must be faster in enough
//! of 7 to 21 pairs that chance alone would do it less than once in fifty times, and by more than a
//! margin derived from the spread of single runs (at least 1%, at most 5%: smaller differences are
//! not reproducible). It also wins if it is far faster in each of the first 4 pairs, which noise
//! cannot explain. Both sides are then rebuilt, and the leader has to win again, because the
//! placement of code and memory makes a difference that lasts as long as they do. Otherwise the
//! default stays.

use std::time::Duration;

// The simulated machines of `filetests/tuning` set these constants. The comment on each says what
// other values do there: the bounds that break, or the means over all machines, on which the choice
// takes 0.41% longer than the best candidate (the regret) and is found in 378 runs.

/// Passes in each round before the last: the minimum, and the maximum on a noisy machine. (1, 3):
/// too much regret (`some_faster`). (2, 4): 111 runs fewer, but at the bounds. (6, 14): 251 runs
/// more, and too much regret (`far_faster`).
const PASSES: (usize, usize) = (3, 7);
/// A round with at most this many candidates is the last. 2 and 8: the regret differs by 0.005%.
const LAST_ROUND: usize = 4;
/// Passes in the last round: the minimum and the maximum. (3, 10): too much regret on seven
/// machines. (14, 50): 0.04% less regret for 21 runs more.
const LAST_PASSES: (usize, usize) = (7, 25);
/// Minimum and maximum number of pairs in a duel. Fewer than 6 cannot reach the significance level;
/// at least 12: 12 runs more, nothing gained. At most 9: too much regret (`some_faster`); at most
/// 42: 0.007% less for 25 runs more.
const LEAST_PAIRS: usize = 7;
const MOST_PAIRS: usize = 21;
/// This many pairs are enough if the challenger took less than two thirds of the time in each.
/// Without this rule: 48 runs more on the machines of `far_faster`. Two pairs, or nine tenths of
/// the time, save 5 to 8 runs on average and rely on runs that one disturbance can slow down
/// together.
const FEWEST_PAIRS: usize = 4;
const FAR_FASTER: f64 = 2.0 / 3.0;
/// Spread below which single runs are compared; above it, medians of several runs. Spread 0.1, or
/// always single runs: too much regret (`some_faster`, noisy). Spread 0.02: 53 runs more.
const QUIET_ENOUGH: f64 = 0.05;
/// 3: 0.002% more regret. 25: 15 runs more, nothing gained.
const MOST_REPEATS: usize = 9;
/// Significance level: the chance of a win by luck. 0.002: 0.015% more regret. 0.2: 0.005% less,
/// where all disturbances are independent, as they are not on real machines.
const CHANCE: f64 = 0.02;
/// Required speedup on a quiet machine, and on the noisiest. 0.03 and 0.15: too much regret
/// (`some_faster`). 0.002: 63 runs more. 0.01 for the noisiest: choices that are slower than the
/// default.
const MARGIN: f64 = 0.01;
const LARGEST_MARGIN: f64 = 0.05;
/// The margin in between, in standard deviations of single runs. 0.25: choices that are slower than
/// the default. 1: 0.06% less regret, but 2 leaves room for the differences between two builds of
/// the same code, which the simulated machines do not have.
const MARGIN_DEVIATIONS: f64 = 2.0;

/// Runs candidates, on memory that it owns, and measures their time.
pub trait Contest {
    /// The time of one run of this candidate, in nanoseconds.
    fn measure(&mut self, candidate: usize) -> Result<u64, String>;

    /// Checks that the candidate's results match the default's; the error says how they differ.
    fn check(&mut self, candidate: usize) -> Result<(), String>;

    /// Rebuilds a candidate, as a new process would.
    fn renew(&mut self, candidate: usize) -> Result<(), String>;

    /// Time that the contest has taken so far.
    fn elapsed(&mut self) -> Duration;
}

/// The progress of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: Stage,
    /// Remaining candidates.
    pub candidates: usize,
    /// Number of timed runs.
    pub samples: usize,
    /// Time taken so far.
    pub elapsed: Duration,
    /// Time limit.
    pub limit: Duration,
}

/// The stage of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Comparing results.
    Checking,
    /// Comparing times.
    Halving,
    /// Leader against default.
    Duel,
}

/// Why the winner won.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The winner won the duel.
    Won(Duel),
    /// The leader did not win the duel, so the default stays.
    Kept {
        /// The leader.
        leader: usize,
        /// The result of the duel.
        duel: Duel,
    },
    /// No candidate was faster than the default.
    DefaultLeads,
    /// The default had no rival.
    NoRivals,
    /// The time limit was reached.
    OutOfTime,
}

/// The result of a duel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duel {
    /// Number of pairs run.
    pub pairs: usize,
    /// Pairs in which the challenger was faster.
    pub wins: usize,
    /// The challenger's time divided by the other's, for the median pair.
    pub ratio: f64,
    /// Whether the challenger won.
    pub won: bool,
}

/// The outcome of a contest.
#[derive(Clone, Debug, PartialEq)]
pub struct ContestOutcome {
    /// The candidate to use; 0, the default, unless another won the duel.
    pub winner: usize,
    /// Why it won.
    pub verdict: Verdict,
    /// The times of each candidate, in the order of measurement.
    pub samples: Vec<Vec<u64>>,
    /// Candidates that failed or gave different results, and why.
    pub failed: Vec<(usize, String)>,
}

impl ContestOutcome {
    /// Whether the outcome should be remembered: a contest that ran out of time decided nothing.
    pub fn decides(&self) -> bool {
        self.verdict != Verdict::OutOfTime
    }
}

/// Finds the fastest of the candidates, of which 0 is the default. Calls `progress` at every step.
///
/// ```
/// use std::time::Duration;
/// use vyre_driver::tuner::{Contest, find_fastest};
/// struct Model([u64; 3]);
/// impl Contest for Model {
///     fn measure(&mut self, candidate: usize) -> Result<u64, String> { Ok(self.0[candidate]) }
///     fn check(&mut self, _: usize) -> Result<(), String> { Ok(()) }
///     fn renew(&mut self, _: usize) -> Result<(), String> { Ok(()) }
///     fn elapsed(&mut self) -> Duration { Duration::ZERO }
/// }
/// let outcome = find_fastest(&mut Model([100, 120, 90]), 3, Duration::from_secs(1), &mut |_| {});
/// assert_eq!(outcome.winner, 2);
/// ```
pub fn find_fastest(
    contest: &mut dyn Contest,
    candidates: usize,
    limit: Duration,
    progress: &mut dyn FnMut(Progress),
) -> ContestOutcome {
    let outcome = ContestOutcome {
        winner: 0,
        verdict: Verdict::NoRivals,
        samples: vec![Vec::new(); candidates],
        failed: Vec::new(),
    };
    let mut field = Field {
        contest,
        progress,
        limit,
        outcome,
        remaining: Vec::new(),
        random: Random(candidates as u64),
        precision: Precision { repeats: 1, margin: MARGIN },
    };
    let verdict = field.run(candidates).unwrap_or(Verdict::OutOfTime);
    ContestOutcome { verdict, ..field.outcome }
}

/// A duel of two candidates: whether `challenger` is faster than `champion` by more than the
/// margin. Each side of a pair is the median of `repeats` runs.
fn duel(
    measure: &mut dyn FnMut(usize) -> Result<u64, String>,
    [challenger, champion]: [usize; 2],
    Precision { repeats, margin }: Precision,
) -> Result<Duel, String> {
    let mut ratios: Vec<f64> = Vec::new();
    loop {
        let order =
            if ratios.len().is_multiple_of(2) { [challenger, champion] } else { [champion, challenger] };
        let mut logs = [Vec::new(), Vec::new()];
        for _ in 0..repeats.max(1) {
            for candidate in order {
                let time = measure(candidate)?;
                logs[usize::from(candidate == champion)].push(logarithm(time));
            }
        }
        let [mut challengers, mut champions] = logs;
        ratios.push(median(&mut challengers) - median(&mut champions));
        let duel = judge(&ratios, margin);
        if duel.won || duel.pairs >= MOST_PAIRS || is_lost(&duel) {
            return Ok(duel);
        }
    }
}

/// Runs per side of a pair when a new version challenges the current one: a third of
/// [`MOST_REPEATS`], because a duel runs alongside calls and nine would triple its time; three
/// already keep the bounds of `filetests/tuning`. A single run is enough if it takes at least
/// `LONG_RUN_NS`, which is longer than a time slice of the system, so that it averages out
/// disturbances by itself.
const CHALLENGE_REPEATS: usize = 3;
const LONG_RUN_NS: u64 = 10_000_000;

/// The time limit is extended to this many of the longest run, up to `LONGEST_CHALLENGE` in all: a
/// duel of ten pairs, and the two runs before it, can then finish whatever the kernel's time.
const RUNS_OF_A_CHALLENGE: u32 = 24;
const LONGEST_CHALLENGE: Duration = Duration::from_secs(60);

/// Decides whether a new version, candidate 1, can replace the current one, candidate 0: it must
/// give the same results and win a duel within the limit. The error says why it cannot.
pub fn challenge(contest: &mut dyn Contest, mut limit: Duration) -> Result<Duel, String> {
    let mut measure = |contest: &mut dyn Contest, candidate: usize| {
        let before = contest.elapsed();
        if before > limit {
            return Err("the time was up".to_owned());
        }
        let measured = contest.measure(candidate);
        let took = contest.elapsed().saturating_sub(before);
        limit = limit.max(took.saturating_mul(RUNS_OF_A_CHALLENGE).min(LONGEST_CHALLENGE));
        measured
    };
    let mut longest_ns = 0;
    for candidate in [0, 1] {
        contest.check(candidate)?;
        longest_ns = measure(contest, candidate)?.max(longest_ns);
    }
    let repeats = if longest_ns < LONG_RUN_NS { CHALLENGE_REPEATS } else { 1 };
    let precision = Precision { repeats, margin: MARGIN };
    let duel = duel(&mut |candidate| measure(contest, candidate), [1, 0], precision)?;
    let Duel { wins, pairs, ratio, won } = duel;
    if won { Ok(duel) } else { Err(format!("it won {wins} of {pairs} pairs, at {ratio:.3} of the time")) }
}

/// The precision of a duel.
#[derive(Clone, Copy)]
struct Precision {
    /// Runs on each side of a pair.
    repeats: usize,
    /// Required speedup of the challenger.
    margin: f64,
}

struct OutOfTime;

struct Field<'a> {
    contest: &'a mut dyn Contest,
    progress: &'a mut dyn FnMut(Progress),
    limit: Duration,
    outcome: ContestOutcome,
    remaining: Vec<usize>,
    random: Random,
    /// The precision of the duel.
    precision: Precision,
}

impl Field<'_> {
    fn run(&mut self, candidates: usize) -> Result<Verdict, OutOfTime> {
        for candidate in 0..candidates {
            self.report(Stage::Checking)?;
            let checked = self.contest.check(candidate).and_then(|()| self.contest.measure(candidate));
            match checked {
                Ok(_) => self.remaining.push(candidate),
                Err(reason) => self.outcome.failed.push((candidate, reason)),
            }
        }
        if self.remaining.first() != Some(&0) || self.remaining.len() < 2 {
            return Ok(Verdict::NoRivals);
        }
        let leader = self.halve()?;
        if leader == 0 { Ok(Verdict::DefaultLeads) } else { self.duel(leader) }
    }

    /// Eliminates candidates round by round, and returns the leader.
    fn halve(&mut self) -> Result<usize, OutOfTime> {
        // Scores are kept across rounds: the remaining candidates took part in all passes, so other
        // candidates' effect on a pass is the same for all of them.
        let mut scores = vec![Vec::new(); self.outcome.samples.len()];
        loop {
            let last = self.remaining.len() <= LAST_ROUND;
            let (least, most) = if last { LAST_PASSES } else { PASSES };
            for passes in 1..=most {
                self.pass(&mut scores)?;
                let unsure = |&candidate: &usize| noise(&scores[candidate]) > MARGIN;
                if passes >= least && !self.remaining.iter().any(unsure) {
                    break;
                }
            }
            let failed = &self.outcome.failed;
            let mut ranked: Vec<(f64, usize)> = self
                .remaining
                .iter()
                .filter(|&&candidate| failed.iter().all(|(other, _)| *other != candidate))
                .map(|&candidate| (median(&mut scores[candidate].clone()), candidate))
                .collect();
            ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            if last || ranked.len() <= 1 {
                let spreads = ranked.iter().map(|&(_, candidate)| spread(&scores[candidate]));
                let loudest = spreads.fold(0.0, f64::max);
                self.precision = Precision {
                    repeats: ((loudest / QUIET_ENOUGH).powi(2) as usize).clamp(1, MOST_REPEATS),
                    margin: (MARGIN_DEVIATIONS * loudest).clamp(MARGIN, LARGEST_MARGIN),
                };
                return Ok(leader_of(&ranked, &scores));
            }
            ranked.truncate(ranked.len().div_ceil(2));
            self.remaining = ranked.into_iter().map(|(_, candidate)| candidate).collect();
            self.remaining.sort_unstable();
        }
    }

    /// Runs every remaining candidate once.
    fn pass(&mut self, scores: &mut [Vec<f64>]) -> Result<(), OutOfTime> {
        let order = self.random.order(&self.remaining);
        let timed = order.into_iter().filter_map(|candidate| Some((candidate, self.sample(candidate)?)));
        let logs: Vec<(usize, f64)> = timed.map(|(candidate, time)| (candidate, logarithm(time))).collect();
        let middle = median(&mut logs.iter().map(|(_, log)| *log).collect::<Vec<_>>());
        for (candidate, log) in logs {
            scores[candidate].push(log - middle);
        }
        self.report(Stage::Halving)
    }

    /// The time of one run; `None` if it failed, which eliminates the candidate.
    fn sample(&mut self, candidate: usize) -> Option<u64> {
        if self.outcome.failed.iter().any(|(failed, _)| *failed == candidate) {
            return None;
        }
        let measured = self.contest.measure(candidate);
        let failure = |reason: &String| self.outcome.failed.push((candidate, reason.clone()));
        let time = measured.inspect_err(failure).ok()?;
        self.outcome.samples[candidate].push(time);
        Some(time)
    }

    fn duel(&mut self, leader: usize) -> Result<Verdict, OutOfTime> {
        match self.fight([leader, 0]) {
            Ok(duel) if duel.won => {
                self.outcome.winner = leader;
                Ok(Verdict::Won(duel))
            }
            Ok(duel) => Ok(Verdict::Kept { leader, duel }),
            // Whichever side failed, the default stays.
            Err(_) if self.contest.elapsed() > self.limit => Err(OutOfTime),
            Err(_) => Ok(Verdict::DefaultLeads),
        }
    }

    /// Runs a duel and, if it is won, a second one with both sides rebuilt. Its runs are samples
    /// like any other.
    fn fight(&mut self, sides: [usize; 2]) -> Result<Duel, String> {
        let precision = self.precision;
        let first = duel(&mut |candidate| self.timed(candidate), sides, precision)?;
        if !first.won {
            return Ok(first);
        }
        for candidate in sides {
            self.contest.renew(candidate)?;
            self.contest.check(candidate)?;
            self.timed(candidate)?;
        }
        duel(&mut |candidate| self.timed(candidate), sides, precision)
    }

    /// The time of one run in a duel.
    fn timed(&mut self, candidate: usize) -> Result<u64, String> {
        let time = self.sample(candidate);
        self.report(Stage::Duel).map_err(|OutOfTime| "the time is up".to_owned())?;
        time.ok_or_else(|| "it failed".to_owned())
    }

    /// Reports progress; an error if the time limit was reached.
    fn report(&mut self, stage: Stage) -> Result<(), OutOfTime> {
        let (elapsed, limit) = (self.contest.elapsed(), self.limit);
        let samples = self.outcome.samples.iter().map(Vec::len).sum();
        (self.progress)(Progress { stage, candidates: self.remaining.len(), samples, elapsed, limit });
        if elapsed > limit { Err(OutOfTime) } else { Ok(()) }
    }
}

/// The best candidate if it is the default; otherwise the first non-default candidate that equals
/// the best within the margin and the noise.
fn leader_of(ranked: &[(f64, usize)], scores: &[Vec<f64>]) -> usize {
    let Some(&(best, leader)) = ranked.first() else { return 0 };
    let as_good = |&(score, candidate): &(f64, usize)| {
        let allowed = MARGIN.max(noise(&scores[candidate]).hypot(noise(&scores[leader])));
        (leader > 0 && candidate > 0 && score - best <= allowed).then_some(candidate)
    };
    ranked.iter().filter_map(as_good).min().unwrap_or(leader)
}

/// The standard error of the median.
fn noise(scores: &[f64]) -> f64 {
    1.25 * spread(scores) / (scores.len().max(1) as f64).sqrt()
}

/// A robust estimate of the standard deviation.
fn spread(scores: &[f64]) -> f64 {
    let center = median(&mut scores.to_vec());
    1.48 * median(&mut scores.iter().map(|score| (score - center).abs()).collect::<Vec<_>>())
}

fn judge(ratios: &[f64], margin: f64) -> Duel {
    let (pairs, wins) = (ratios.len(), ratios.iter().filter(|ratio| **ratio < 0.0).count());
    let ratio = median(&mut ratios.to_vec()).exp();
    let far_faster = pairs >= FEWEST_PAIRS && ratios.iter().all(|ratio| ratio.exp() < FAR_FASTER);
    let faster = pairs >= LEAST_PAIRS && chance_of(wins, pairs) < CHANCE && ratio < 1.0 - margin;
    let won = far_faster || faster;
    Duel { pairs, wins, ratio, won }
}

/// Whether the challenger would lose even if it won all remaining pairs.
fn is_lost(duel: &Duel) -> bool {
    chance_of(duel.wins + MOST_PAIRS - duel.pairs, MOST_PAIRS) >= CHANCE
}

/// The probability that a fair coin gives at least this many heads.
fn chance_of(heads: usize, tosses: usize) -> f64 {
    let mut ways = 1.0;
    let mut sum = 0.0;
    for tails in 0..=tosses.saturating_sub(heads) {
        sum += ways;
        ways = ways * (tosses - tails) as f64 / (tails + 1) as f64;
    }
    sum / (tosses as f64).exp2()
}

fn logarithm(time: u64) -> f64 {
    (time.max(1) as f64).ln()
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => f64::INFINITY,
        odd if odd % 2 == 1 => numbers[odd / 2],
        even => (numbers[even / 2 - 1] + numbers[even / 2]) / 2.0,
    }
}

/// Pseudorandom permutations, determined by the seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn order(&mut self, of: &[usize]) -> Vec<usize> {
        let mut order = of.to_vec();
        for k in (1..order.len()).rev() {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(k, (self.0 >> 33) as usize % (k + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact times; some candidates fail.
    struct Model {
        times: Vec<Result<u64, &'static str>>,
        wrong: Vec<usize>,
        clock: u64,
    }

    impl Contest for Model {
        fn measure(&mut self, candidate: usize) -> Result<u64, String> {
            let time = self.times[candidate].map_err(str::to_owned)?;
            self.clock += time;
            Ok(time)
        }

        fn check(&mut self, candidate: usize) -> Result<(), String> {
            if self.wrong.contains(&candidate) { Err("other results".into()) } else { Ok(()) }
        }

        fn renew(&mut self, _: usize) -> Result<(), String> {
            Ok(())
        }

        fn elapsed(&mut self) -> Duration {
            Duration::from_nanos(self.clock)
        }
    }

    fn run(times: Vec<Result<u64, &'static str>>, wrong: &[usize]) -> ContestOutcome {
        let count = times.len();
        let mut model = Model { times, wrong: wrong.to_vec(), clock: 0 };
        find_fastest(&mut model, count, Duration::from_secs(1), &mut |_| {})
    }

    #[test]
    fn the_fastest_wins_if_it_is_worth_it_and_right() {
        assert_eq!(run(vec![Ok(1000), Ok(900), Ok(950)], &[]).winner, 1);
        assert_eq!(run(vec![Ok(1000), Ok(900), Ok(950)], &[1]).winner, 2);
        assert!(matches!(run(vec![Ok(1000), Ok(995)], &[]).verdict, Verdict::Kept { leader: 1, .. }));
        assert_eq!(run(vec![Ok(1000), Ok(1000), Ok(1000)], &[]).verdict, Verdict::DefaultLeads);
        assert_eq!(run(vec![Ok(1000)], &[]).verdict, Verdict::NoRivals);
        assert_eq!(run(vec![], &[]).verdict, Verdict::NoRivals);
        assert_eq!(run(vec![Err("lost"), Ok(1)], &[]).verdict, Verdict::NoRivals);
        let outcome = run(vec![Ok(1000), Err("lost"), Ok(800)], &[]);
        assert_eq!((outcome.winner, outcome.failed), (2, vec![(1, "lost".into())]));
        // Among equals, the first wins.
        assert_eq!(run(vec![Ok(1000), Ok(803), Ok(800), Ok(805), Ok(900), Ok(801)], &[]).winner, 1);
    }

    #[test]
    fn time_that_is_up_leaves_the_default() {
        let mut model = Model { times: vec![Ok(1000), Ok(500)], wrong: vec![], clock: 0 };
        let mut reports = 0;
        let outcome = find_fastest(&mut model, 2, Duration::from_nanos(9_000), &mut |_| reports += 1);
        assert_eq!((outcome.winner, outcome.verdict), (0, Verdict::OutOfTime));
        assert!(reports > 3 && model.clock < 12_000, "{reports} {}", model.clock);
    }

    #[test]
    fn chances_are_those_of_a_coin() {
        let check = |heads, tosses, expected: f64| {
            assert!((chance_of(heads, tosses) - expected).abs() < 1e-4, "{heads} of {tosses}");
        };
        check(7, 7, 0.0078);
        check(6, 7, 0.0625);
        check(16, 21, 0.0133);
        check(15, 21, 0.0392);
        check(0, 5, 1.0);
        check(0, 0, 1.0);
    }

    #[test]
    fn a_new_version_is_refused_if_it_is_wrong_or_not_faster() {
        let refused = |times: [u64; 2], wrong: &[usize]| {
            let times = times.map(Ok).to_vec();
            let model = &mut Model { times, wrong: wrong.to_vec(), clock: 0 };
            challenge(model, Duration::MAX).err()
        };
        assert_eq!(refused([1000, 900], &[]), None);
        assert_eq!(refused([1000, 900], &[1]), Some("other results".into()));
        assert_eq!(refused([1000, 1000], &[]), Some("it won 0 of 6 pairs, at 1.000 of the time".into()));
        assert_eq!(refused([1000, 5000], &[]), Some("it won 0 of 6 pairs, at 5.000 of the time".into()));
    }

    #[test]
    fn a_duel_ends_when_it_is_decided() {
        let duel_of = |times: Vec<Result<u64, &'static str>>| {
            let precision = Precision { repeats: 1, margin: MARGIN };
            let mut model = Model { times, wrong: vec![], clock: 0 };
            duel(&mut |candidate| model.measure(candidate), [1, 0], precision)
                .map(|duel| (duel.won, duel.pairs))
        };
        assert_eq!(duel_of(vec![Ok(1000), Ok(600)]), Ok((true, 4)));
        assert_eq!(duel_of(vec![Ok(1000), Ok(900)]), Ok((true, 7)));
        assert_eq!(duel_of(vec![Ok(1000), Ok(995)]), Ok((false, 21)));
        assert_eq!(duel_of(vec![Ok(1000), Ok(1100)]), Ok((false, 6)));
        assert_eq!(duel_of(vec![Ok(1000), Err("lost")]), Err("lost".into()));
    }
}
