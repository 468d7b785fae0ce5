//! Simulated machines on which tuning must find faster shapes and never choose slower ones,
//! compared with a tuner that measures candidates in sequence and takes the lowest median.

use std::time::Duration;
use vyre_driver::tuner::{Contest, find_fastest};

const CANDIDATES: usize = 24;
const TRIALS: u64 = 400;
/// The same number of runs per candidate as successive halving takes on average.
const SEQUENTIAL_SAMPLES: usize = 9;

struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().max(1e-300).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Quiet,
    /// Slowly becomes up to 60% slower and recovers.
    Drifting,
    /// 10% either way, with one run in twenty up to five times as long.
    Noisy,
    /// Alternates between normal and half speed.
    TwoStates,
}

struct Machine {
    kind: Kind,
    /// True times, with the default first.
    times: Vec<f64>,
    random: Random,
    runs: u64,
    slow: bool,
}

impl Machine {
    fn new(kind: Kind, range: (f64, f64), seed: u64) -> Machine {
        let mut random = Random(seed * 6007 + 11);
        let (least, most) = range;
        // A third of the candidates are as fast as the default.
        let spread =
            |k: usize| if k.is_multiple_of(3) { 1.0 } else { least + (most - least) * random.uniform() };
        let times = (0..CANDIDATES).map(spread).map(|factor| 100_000.0 * factor).collect();
        Machine { kind, times, random, runs: 0, slow: false }
    }

    fn best(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Contest for Machine {
    fn measure(&mut self, candidate: usize) -> Result<u64, String> {
        self.runs += 1;
        let random = &mut self.random;
        let factor = match self.kind {
            Kind::Quiet => 1.0 + 0.003 * random.normal(),
            Kind::Drifting => (1.3 + 0.3 * (self.runs as f64 / 60.0).sin()) * (1.0 + 0.01 * random.normal()),
            Kind::Noisy => {
                let spike = if random.uniform() < 0.05 { 1.0 + 4.0 * random.uniform() } else { 1.0 };
                (0.1 * random.normal()).exp() * spike
            }
            Kind::TwoStates => {
                if random.uniform() < 0.03 {
                    self.slow = !self.slow;
                }
                (if self.slow { 2.0 } else { 1.0 }) * (1.0 + 0.02 * random.normal())
            }
        };
        Ok((self.times[candidate] * factor.max(0.01)) as u64)
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

fn sequential(machine: &mut Machine) -> usize {
    let medians = (0..CANDIDATES).map(|candidate| {
        let mut times: Vec<u64> =
            (0..SEQUENTIAL_SAMPLES).filter_map(|_| machine.measure(candidate).ok()).collect();
        times.sort_unstable();
        (times[times.len() / 2], candidate)
    });
    medians.min().map_or(0, |(_, candidate)| candidate)
}

fn live(machine: &mut Machine) -> usize {
    find_fastest(machine, CANDIDATES, Duration::MAX, &mut |_| {}).winner
}

#[derive(Debug)]
struct Summary {
    /// How often the choice is truly slower than the default.
    slower: f64,
    /// How much slower than the best the choice is, on average.
    regret: f64,
    runs: f64,
}

fn summarize(kind: Kind, range: (f64, f64), choose: impl Fn(&mut Machine) -> usize) -> Summary {
    let mut summary = Summary { slower: 0.0, regret: 0.0, runs: 0.0 };
    for seed in 0..TRIALS {
        let mut machine = Machine::new(kind, range, seed);
        let winner = choose(&mut machine);
        let chosen = machine.times[winner];
        summary.slower += f64::from(u8::from(chosen > machine.times[0]));
        summary.regret += chosen / machine.best() - 1.0;
        summary.runs += machine.runs as f64;
    }
    let mean = |sum: f64| sum / TRIALS as f64;
    Summary { slower: mean(summary.slower), regret: mean(summary.regret), runs: mean(summary.runs) }
}

/// Range of the candidates' times relative to the default: up to a fifth faster, barely faster, or
/// never faster.
const RANGES: [(&str, (f64, f64)); 3] =
    [("some faster", (0.8, 1.3)), ("hardly faster", (0.98, 1.1)), ("none faster", (1.0, 1.1))];

#[test]
fn tuning_is_seldom_slower_than_the_default_and_never_on_a_quiet_machine() {
    println!(
        "{:<14} {:<10} {:<12} {:>8} {:>8} {:>6}",
        "candidates", "machine", "tuner", "slower", "regret", "runs"
    );
    let (mut regrets, mut cases) = (0.0, 0.0);
    for (candidates, range) in RANGES {
        for kind in [Kind::Quiet, Kind::Drifting, Kind::Noisy, Kind::TwoStates] {
            let (ours, theirs) = (summarize(kind, range, live), summarize(kind, range, sequential));
            for (name, summary) in [("live", &ours), ("sequential", &theirs)] {
                println!(
                    "{candidates:<14} {:<10} {name:<12} {:>7.2}% {:>7.2}% {:>6.0}",
                    format!("{kind:?}"),
                    100.0 * summary.slower,
                    100.0 * summary.regret,
                    summary.runs
                );
            }
            let allowed = if kind == Kind::Quiet { 0.0 } else { 0.04 };
            assert!(ours.slower <= allowed, "{candidates}, {kind:?}: {ours:?}");
            assert!(ours.regret < 0.015, "{candidates}, {kind:?}: {ours:?}");
            regrets += ours.regret;
            cases += 1.0;
        }
    }
    println!("mean regret {:.2}%", 100.0 * regrets / cases);
    assert!(regrets / cases < 0.0075);
}
