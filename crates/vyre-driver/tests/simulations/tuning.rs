//! Simulated machines for the tuner: it must find faster shapes and never choose slower ones. The
//! results also show a tuner that measures candidates in sequence and takes the lowest median.
//!
//! Lines of a case:
//!
//! - `candidates 24`: the number of shapes; the first is the default. `times 0.8 to 1.3`: their
//!   times relative to the default's; every third takes the same time as the default.
//! - `trials 400`: runs with different times and noise.
//! - `noise 1%`: deviation of single runs, as a factor of at least 0.01; `noise 10% skewed` is
//!   log-normal.
//! - `drift 60% over 377`: the machine becomes this much slower and recovers, over this many runs.
//!   `spikes 5% x5`: this share of runs takes up to this many times as long. `halts 3%`: after this
//!   share of runs the machine changes between full and half speed.
//! - `bound slower 4%`: share of trials whose choice is slower than the default. `bound regret
//!   1.5%`: how much slower than the best the choice is, on average.

use super::file::{Section, number};
use super::random::Random;
use std::time::Duration;
use vyre_driver::tuner::{Contest, find_fastest};

/// The time of the default.
const DEFAULT_NS: f64 = 100_000.0;
/// Runs per candidate in sequence: as many as successive halving takes on average.
const SEQUENTIAL_SAMPLES: usize = 9;

#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    candidates: usize,
    times: (f64, f64),
    trials: u64,
    noise: f64,
    skewed: bool,
    /// Slowdown and period.
    drift: Option<(f64, f64)>,
    /// Share of runs and largest factor.
    spikes: Option<(f64, f64)>,
    /// Share of runs after which the machine changes its speed.
    halts: Option<f64>,
    slower: Option<f64>,
    regret: Option<f64>,
}

impl Case {
    pub(crate) fn parse(section: &Section) -> Result<Case, String> {
        let mut case = Case::default();
        for line in &section.lines {
            case.read(line.split()).ok_or_else(|| line.error("not a line of a tuning file"))?;
        }
        let complete =
            case.candidates > 0 && case.trials > 0 && case.slower.is_some() && case.regret.is_some();
        if complete { Ok(case) } else { Err("candidates, trials or a bound missing".into()) }
    }

    fn read(&mut self, (word, rest): (&str, &str)) -> Option<()> {
        let pair = |separator| -> Option<(f64, f64)> {
            let (one, other) = rest.split_once(separator)?;
            Some((number(one)?, number(other)?))
        };
        match word {
            "candidates" => self.candidates = rest.parse().ok()?,
            "trials" => self.trials = rest.parse().ok()?,
            "times" => self.times = pair(" to ")?,
            "noise" => {
                let deviation = rest.strip_suffix(" skewed");
                (self.noise, self.skewed) = (number(deviation.unwrap_or(rest))?, deviation.is_some());
            }
            "drift" => self.drift = Some(pair(" over ")?),
            "spikes" => self.spikes = Some(pair(" ")?),
            "halts" => self.halts = Some(number(rest)?),
            "bound" => match rest.split_once(' ')? {
                ("slower", most) => self.slower = Some(number(most)?),
                ("regret", most) => self.regret = Some(number(most)?),
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }

    /// Runs all trials; returns the results and the broken bounds.
    pub(crate) fn run(&self) -> (Vec<String>, Vec<String>) {
        let (live, sequential) = (self.summarize(live), self.summarize(sequential));
        let slower = self.slower.is_some_and(|most| live.slower > most);
        let regret = self.regret.is_some_and(|most| live.regret >= most);
        let broken = [(slower, "slower"), (regret, "regret")];
        let broken = broken.iter().filter(|(is_broken, _)| *is_broken);
        (
            vec![format!("live: {live}"), format!("sequential: {sequential}")],
            broken.map(|(_, name)| format!("broken: {name}")).collect(),
        )
    }

    fn summarize(&self, choose: fn(&mut Machine<'_>) -> usize) -> Summary {
        let mut sum = Summary::default();
        for seed in 0..self.trials {
            let mut machine = Machine::new(self, seed);
            let chosen = choose(&mut machine);
            let chosen = machine.times[chosen];
            let best = machine.times.iter().copied().fold(f64::INFINITY, f64::min);
            sum.slower += f64::from(u8::from(chosen > machine.times[0]));
            sum.regret += chosen / best - 1.0;
            sum.runs += machine.runs as f64;
        }
        let mean = |sum: f64| sum / self.trials as f64;
        Summary { slower: mean(sum.slower), regret: mean(sum.regret), runs: mean(sum.runs) }
    }
}

/// Means over the trials.
#[derive(Default)]
struct Summary {
    slower: f64,
    regret: f64,
    runs: f64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (slower, regret) = (100.0 * self.slower, 100.0 * self.regret);
        write!(f, "slower {slower:.2}%, regret {regret:.2}%, runs {:.0}", self.runs)
    }
}

struct Machine<'c> {
    case: &'c Case,
    /// True times, with the default first.
    times: Vec<f64>,
    random: Random,
    runs: u64,
    slow: bool,
}

impl Machine<'_> {
    fn new(case: &Case, seed: u64) -> Machine<'_> {
        let mut random = Random(seed * 6007 + 11);
        let (least, most) = case.times;
        let factor =
            |k: usize| if k.is_multiple_of(3) { 1.0 } else { least + (most - least) * random.uniform() };
        let times = (0..case.candidates).map(factor).map(|factor| DEFAULT_NS * factor).collect();
        Machine { case, times, random, runs: 0, slow: false }
    }

    /// The factor on the next run.
    fn factor(&mut self) -> f64 {
        let (case, random) = (self.case, &mut self.random);
        let mut factor = 1.0;
        if let Some((slowdown, period)) = case.drift {
            let phase = self.runs as f64 / period * std::f64::consts::TAU;
            factor *= 1.0 + slowdown / 2.0 * (1.0 + phase.sin());
        }
        if let Some((share, most)) = case.spikes
            && random.uniform() < share
        {
            factor *= 1.0 + (most - 1.0) * random.uniform();
        }
        if let Some(share) = case.halts {
            self.slow ^= random.uniform() < share;
            factor *= if self.slow { 2.0 } else { 1.0 };
        }
        let noise = case.noise * random.normal();
        factor * if case.skewed { noise.exp() } else { 1.0 + noise }
    }
}

impl Contest for Machine<'_> {
    fn measure(&mut self, candidate: usize) -> Result<u64, String> {
        self.runs += 1;
        Ok((self.times[candidate] * self.factor().max(0.01)) as u64)
    }

    fn check(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn renew(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}

fn live(machine: &mut Machine<'_>) -> usize {
    let candidates = machine.times.len();
    find_fastest(machine, candidates, Duration::MAX, &mut |_| {}).winner
}

fn sequential(machine: &mut Machine<'_>) -> usize {
    let medians = (0..machine.times.len()).map(|candidate| {
        let mut times: Vec<u64> =
            (0..SEQUENTIAL_SAMPLES).filter_map(|_| machine.measure(candidate).ok()).collect();
        times.sort_unstable();
        (times[times.len() / 2], candidate)
    });
    medians.min().map_or(0, |(_, candidate)| candidate)
}
