//! Simulated machines for the router: what routing costs compared with always knowing the best
//! backend, and how soon the router leaves a backend that goes bad.
//!
//! Lines of a case (times in nanoseconds):
//!
//! - `backend NAME FIXED + PER_ELEMENT n`: a backend and its time for n elements, in selection
//!   order; `, x50 above 2^20` makes it slower beyond a size.
//! - `size 2^16`, `size 2^6 to 2^22`: the size of the calls; a range is cycled through.
//!   `sizes 2^14 2^16 for 4 s`: each size in turn, for this long.
//! - `calls 10000`, `seeds 6`: length of a run, and the number of runs with different noise; the
//!   seeds are 1, 2, …, or 1, 7920, … with `seeds 6 step 7919`.
//! - `noise 5%`: log-normal with this deviation; `noise 20% spiky` adds one call in a hundred that
//!   takes ten times as long; `noise busy` is a machine with other work. One run for each line.
//! - `variant NAME: EVENT`: one run for each line. Events: `b0 x5 from 5000`, the same with
//!   `for 70 ms` or `for 12 calls`, and with `disturbed` at the end if vyre itself is the cause;
//!   `b0 creeps to x3 over 10000`; `all swing x2 over 4398`; `all x4 every other 1000`;
//!   `b0 FAULT from 500` with one of the names of [`Fault`].
//! - `cold x8`: factor on a call to a backend other than the last one.
//! - `verification 20000 + 0.2 n`: its timings, if they differ from calls; `verification nothing`
//!   times nothing; `verification first` verifies the second backend before the first call.
//! - `bound …`: see [`Bound`].

use super::file::{Line, Section, duration_ns, number};
use super::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use vyre_driver::pgo::PgoTable;
use vyre_driver::router::{
    BackendIndex, BackendSet, Background, Candidate, Conformance, Placement, Policy, ProgramRoutes, Reason,
    Rejection, Route, RouteRequest, Router, Timing,
};
use vyre_driver::{BackendError, DeviceProfile};

/// Sizes that a verification times.
const VERIFIED_SIZES: [u64; 3] = [64, 4096, 65_536];
/// Time of a canary, and of a call that fails.
const CANARY_NS: u64 = 20_000;
const FAILURE_NS: u64 = 1_000_000;
/// Rules of probing that a result shows.
const SHOWN_RULES: usize = 8;

/// A backend's time as a function of the size.
#[derive(Clone, Copy, Debug)]
struct Model {
    fixed_ns: f64,
    per_element_ns: f64,
    /// Size beyond which the backend is slower, and the factor.
    cliff: Option<(u64, f64)>,
}

impl Model {
    /// Reads `2000 + 0.5 n, x50 above 2^20`.
    fn parse(text: &str) -> Option<Model> {
        let (line, cliff) = match text.split_once(", ") {
            Some((line, cliff)) => {
                let (factor, size) = cliff.split_once(" above ")?;
                (line, Some((number(size)? as u64, number(factor)?)))
            }
            None => (text, None),
        };
        let (fixed, growing) = line.split_once(" + ").unwrap_or((line, "0 n"));
        let per_element_ns = number(growing.strip_suffix(" n")?)?;
        Some(Model { fixed_ns: number(fixed)?, per_element_ns, cliff })
    }

    fn at(self, elements: u64) -> f64 {
        let factor = self.cliff.filter(|(size, _)| elements > *size).map_or(1.0, |(_, factor)| factor);
        factor * (self.fixed_ns + self.per_element_ns * elements as f64)
    }
}

#[derive(Clone, Copy, Debug)]
enum Noise {
    Plain(f64),
    Spiky(f64),
    /// Other work comes and goes: calls then take several times as long, and some wait for a
    /// processor. A call can stall for a long time at any moment.
    Busy,
}

/// How a backend goes bad.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Fails,
    /// Its calls exceed their deadlines.
    Hangs,
    /// Its results become wrong.
    Lies,
    LosesDevice,
    RunsOutOfMemory,
}

impl Fault {
    fn parse(word: &str) -> Option<Fault> {
        Some(match word {
            "fails" => Fault::Fails,
            "hangs" => Fault::Hangs,
            "lies" => Fault::Lies,
            "loses-device" => Fault::LosesDevice,
            "runs-out-of-memory" => Fault::RunsOutOfMemory,
            _ => return None,
        })
    }

    /// The error of a call; none if the call returns.
    fn error(self) -> Option<BackendError> {
        let backend = "b0".to_owned();
        Some(match self {
            Fault::Fails => BackendError::new("no"),
            Fault::Hangs => BackendError::Timeout { backend, limit: Duration::from_secs(1) },
            Fault::LosesDevice => BackendError::DeviceLost { backend, message: "gone".into() },
            Fault::RunsOutOfMemory => BackendError::DeviceOutOfMemory { backend, requested_bytes: 1 },
            Fault::Lies => return None,
        })
    }
}

/// How long a backend is slower.
#[derive(Clone, Copy, Debug)]
enum Span {
    Forever,
    Calls(u64),
    Time(u64),
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    Slows { factor: f64, from: u64, span: Span },
    Creeps { factor: f64, calls: f64 },
    Swings { factor: f64, calls: f64 },
    EveryOther { factor: f64, calls: u64 },
    Goes { fault: Fault, from: u64 },
}

/// A change of the machine.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// The backend that changes; none for all.
    backend: Option<usize>,
    effect: Effect,
    /// Whether slow calls are reported as disturbed by vyre's own work.
    disturbed: bool,
}

impl Event {
    fn parse(text: &str, backends: &[(String, Model)]) -> Option<Event> {
        let mut words: Vec<&str> = text.split(' ').collect();
        let disturbed = words.last() == Some(&"disturbed");
        words.truncate(words.len() - usize::from(disturbed));
        let (who, rest) = words.split_first()?;
        let backend = match *who {
            "all" => None,
            name => Some(backends.iter().position(|(known, _)| known == name)?),
        };
        let call = |word: &str| word.parse::<u64>().ok();
        let slows =
            |factor, from, span| Some(Effect::Slows { factor: number(factor)?, from: call(from)?, span });
        let effect = match rest {
            ["creeps", "to", factor, "over", calls] => {
                Effect::Creeps { factor: number(factor)?, calls: number(calls)? }
            }
            ["swing", factor, "over", calls] => {
                Effect::Swings { factor: number(factor)?, calls: number(calls)? }
            }
            [factor, "every", "other", calls] => {
                Effect::EveryOther { factor: number(factor)?, calls: call(calls)? }
            }
            [factor, "from", from, "for", calls, "calls"] => slows(factor, from, Span::Calls(call(calls)?))?,
            [factor, "from", from, "for", count, unit] => {
                slows(factor, from, Span::Time(duration_ns(&format!("{count} {unit}"))? as u64))?
            }
            [word, "from", from] => match Fault::parse(word) {
                Some(fault) => Effect::Goes { fault, from: call(from)? },
                None => slows(word, from, Span::Forever)?,
            },
            _ => return None,
        };
        Some(Event { backend, effect, disturbed })
    }

    fn concerns(self, backend: usize) -> bool {
        self.backend.is_none_or(|known| known == backend)
    }
}

#[derive(Clone, Debug)]
enum Verification {
    AsCalls,
    Timed(Model),
    Nothing,
    First,
}

/// What must hold for every run of a case.
#[derive(Clone, Debug)]
enum Bound {
    /// `overhead 3%`: time beyond that of the best backend at each call, by the model.
    Overhead(f64),
    /// `probes 1% + burst`: cost of probes, by the router and by the model, relative to all time,
    /// plus the longest series of probes at one size, `one probe`, or a duration.
    Probes(f64, Allowance),
    /// `probed`: at least one call is a probe.
    Probed,
    /// `left 20 median 12`: calls to the backend of the event from its start; the median is over
    /// the seeds.
    Left { most: u64, median: u64 },
    /// `ends on b1`: where the next call would go.
    Ends(usize),
    /// `last 1000 b1 951 to 1000`: calls of the last ones that go to a backend.
    Last { calls: usize, backend: usize, from: usize, to: usize },
    /// `settles 5% after 2.5 s`: at each size, most time after this long goes to backends within
    /// this much of the best.
    Settles { within: f64, after_ns: u64 },
    /// `rules risky costly`: the first rules of probing that decide about the second backend.
    Rules(Vec<String>),
}

#[derive(Clone, Copy, Debug)]
enum Allowance {
    Burst,
    OneProbe,
    Time(u64),
}

impl Bound {
    fn parse(text: &str, backends: &[(String, Model)]) -> Option<Bound> {
        let words: Vec<&str> = text.split(' ').collect();
        let count = |word: &str| word.parse::<usize>().ok();
        let backend = |name: &str| backends.iter().position(|(known, _)| known == name);
        Some(match words[..] {
            ["overhead", most] => Bound::Overhead(number(most)?),
            ["probes", share, "+", "burst"] => Bound::Probes(number(share)?, Allowance::Burst),
            ["probes", share, "+", "one", "probe"] => Bound::Probes(number(share)?, Allowance::OneProbe),
            ["probes", share, "+", time, unit] => {
                let time = duration_ns(&format!("{time} {unit}"))?;
                Bound::Probes(number(share)?, Allowance::Time(time as u64))
            }
            ["probed"] => Bound::Probed,
            ["left", most] => Bound::Left { most: most.parse().ok()?, median: u64::MAX },
            ["left", most, "median", median] => {
                Bound::Left { most: most.parse().ok()?, median: median.parse().ok()? }
            }
            ["ends", "on", name] => Bound::Ends(backend(name)?),
            ["last", calls, name, from, "to", to] => {
                let (calls, from, to) = (count(calls)?, count(from)?, count(to)?);
                Bound::Last { calls, backend: backend(name)?, from, to }
            }
            ["settles", within, "after", time, unit] => {
                let after_ns = duration_ns(&format!("{time} {unit}"))? as u64;
                Bound::Settles { within: number(within)?, after_ns }
            }
            ["rules", ref rules @ ..] => Bound::Rules(rules.iter().map(|&rule| rule.to_owned()).collect()),
            _ => return None,
        })
    }
}

/// A machine, what happens to it, and what must hold.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    backends: Vec<(String, Model)>,
    sizes: Vec<u64>,
    /// Time of each size; none if the sizes are cycled through.
    time_per_size: Option<u64>,
    calls: u64,
    seeds: u64,
    seed_step: u64,
    noises: Vec<(String, Noise)>,
    variants: Vec<(String, Option<Event>)>,
    cold: f64,
    verification: Verification,
    bounds: Vec<Bound>,
}

impl Case {
    pub(crate) fn parse(section: &Section) -> Result<Case, String> {
        let mut case = Case {
            backends: Vec::new(),
            sizes: Vec::new(),
            time_per_size: None,
            calls: 0,
            seeds: 1,
            seed_step: 1,
            noises: Vec::new(),
            variants: Vec::new(),
            cold: 1.0,
            verification: Verification::AsCalls,
            bounds: Vec::new(),
        };
        // Events and bounds name backends, which can follow them.
        let declares = |line: &&Line| line.split().0 == "backend";
        let (first, rest): (Vec<&Line>, Vec<&Line>) = section.lines.iter().partition(declares);
        for line in first.into_iter().chain(rest) {
            case.read(line.split()).ok_or_else(|| line.error("not a line of a routing file"))?;
        }
        if case.variants.is_empty() {
            case.variants.push(("steady".to_owned(), None));
        }
        if case.noises.is_empty() {
            case.noises.push(("none".to_owned(), Noise::Plain(0.0)));
        }
        let complete = !case.backends.is_empty() && !case.sizes.is_empty();
        if complete && !case.bounds.is_empty() {
            Ok(case)
        } else {
            Err("backends, a size or a bound missing".into())
        }
    }

    fn read(&mut self, (word, rest): (&str, &str)) -> Option<()> {
        match word {
            "backend" => {
                let (name, model) = rest.split_once(' ')?;
                self.backends.push((name.to_owned(), Model::parse(model)?));
            }
            "size" => match rest.split_once(" to ") {
                Some((from, to)) => self.sizes = powers(number(from)? as u64, number(to)? as u64),
                None => self.sizes = vec![number(rest)? as u64],
            },
            "sizes" => {
                let (sizes, time) = rest.split_once(" for ")?;
                self.time_per_size = Some(duration_ns(time)? as u64);
                let sizes = sizes.split(' ').map(|size| number(size).map(|size| size as u64));
                self.sizes = sizes.collect::<Option<_>>()?;
            }
            "calls" => self.calls = rest.parse().ok()?,
            "seeds" => {
                let (count, step) = rest.split_once(" step ").unwrap_or((rest, "1"));
                (self.seeds, self.seed_step) = (count.parse().ok()?, step.parse().ok()?);
            }
            "noise" => {
                let noise = match rest.split_once(' ') {
                    _ if rest == "busy" => Noise::Busy,
                    _ if rest == "none" => Noise::Plain(0.0),
                    Some((deviation, "spiky")) => Noise::Spiky(number(deviation)?),
                    _ => Noise::Plain(number(rest)?),
                };
                self.noises.push((rest.to_owned(), noise));
            }
            "variant" => match rest.split_once(": ") {
                Some((name, event)) => {
                    self.variants.push((name.to_owned(), Some(Event::parse(event, &self.backends)?)));
                }
                None => self.variants.push((rest.to_owned(), None)),
            },
            "cold" => self.cold = number(rest)?,
            "verification" => {
                self.verification = match rest {
                    "nothing" => Verification::Nothing,
                    "first" => Verification::First,
                    model => Verification::Timed(Model::parse(model)?),
                }
            }
            "bound" => self.bounds.push(Bound::parse(rest, &self.backends)?),
            _ => return None,
        }
        Some(())
    }

    /// Runs the case; returns one result per variant and noise, and the broken bounds.
    pub(crate) fn run(&self) -> (Vec<String>, Vec<String>) {
        let (mut results, mut broken) = (Vec::new(), Vec::new());
        for (variant, event) in &self.variants {
            for (name, noise) in &self.noises {
                let runs: Vec<Run> =
                    (0..self.seeds).map(|seed| Run::new(self, *event, *noise, seed).finish()).collect();
                let label = format!("{variant}, noise {name}");
                let shown = self.bounds.iter().filter_map(|bound| self.shown(bound, &runs));
                results.push(format!("{label}: {}{}", self.shares(&runs), shown.collect::<String>()));
                let failed = self.bounds.iter().filter(|bound| !holds(bound, &runs));
                broken.extend(failed.map(|bound| format!("{label}: broken: {bound:?}")));
            }
        }
        (results, broken)
    }

    /// The share of calls that each backend ran.
    fn shares(&self, runs: &[Run<'_>]) -> String {
        let all: usize = runs.iter().map(|run| run.went.len()).sum();
        let share = |(index, (name, _)): (usize, &(String, Model))| {
            let ran = runs.iter().flat_map(|run| &run.went).filter(|&&went| went == index).count();
            format!("{name} {:.1}%", 100.0 * ran as f64 / all as f64)
        };
        self.backends.iter().enumerate().map(share).collect::<Vec<_>>().join(", ")
    }

    /// What a bound is about, as measured.
    fn shown(&self, bound: &Bound, runs: &[Run<'_>]) -> Option<String> {
        let worst = |of: fn(&Run<'_>) -> f64| 100.0 * runs.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        Some(match bound {
            Bound::Overhead(_) => format!("; overhead {:.2}%", worst(|run| run.overhead())),
            Bound::Probes(..) => {
                format!("; probes {:.2}%", worst(|run| run.spent_on_probes as f64 / run.now as f64))
            }
            Bound::Left { .. } => {
                let left = left(runs);
                format!("; left after {}, median {}", left[left.len() - 1], left[left.len() / 2])
            }
            Bound::Ends(_) => {
                let mut ends: Vec<&str> = runs.iter().map(|run| run.end.as_str()).collect();
                ends.sort_unstable();
                ends.dedup();
                format!("; ends on {}", ends.join(" or "))
            }
            Bound::Settles { .. } => {
                let unsettled: usize = runs.iter().map(|run| run.unsettled).sum();
                format!("; unsettled {unsettled} of {}", self.sizes.len() * runs.len())
            }
            Bound::Rules(_) => {
                let rules: Vec<&str> = runs[0].rules.iter().copied().take(SHOWN_RULES).collect();
                format!("; rules {}", rules.join(" "))
            }
            Bound::Last { calls, backend, .. } => {
                let ran = runs.iter().map(|run| run.of_last(*calls, *backend)).min()?;
                format!("; {} {ran} of the last {calls}", self.backends[*backend].0)
            }
            Bound::Probed => return None,
        })
    }
}

/// The powers of two from one size to another, in either direction.
fn powers(from: u64, to: u64) -> Vec<u64> {
    let (low, high) = (from.min(to).ilog2(), from.max(to).ilog2());
    let mut powers: Vec<u64> = (low..=high).map(|exponent| 1 << exponent).collect();
    if from > to {
        powers.reverse();
    }
    powers
}

fn left(runs: &[Run<'_>]) -> Vec<u64> {
    let mut left: Vec<u64> = runs.iter().map(|run| run.after_event).collect();
    left.sort_unstable();
    left
}

fn holds(bound: &Bound, runs: &[Run<'_>]) -> bool {
    match bound {
        Bound::Overhead(most) => runs.iter().all(|run| run.overhead() < *most),
        Bound::Probes(share, allowance) => runs.iter().all(|run| {
            let allowed = match allowance {
                Allowance::Burst => run.largest_burst_ns,
                Allowance::OneProbe => run.largest_probe_ns,
                Allowance::Time(time) => *time,
            };
            let bound = share * run.now as f64 + allowed as f64;
            run.spent_on_probes as f64 <= bound && run.modelled_probes_ns <= bound
        }),
        Bound::Probed => runs.iter().all(|run| run.largest_probe_ns > 0),
        Bound::Left { most, median } => {
            let left = left(runs);
            left[left.len() / 2] <= *median && left[left.len() - 1] <= *most
        }
        Bound::Ends(backend) => runs.iter().all(|run| run.end == run.case.backends[*backend].0),
        Bound::Last { calls, backend, from, to } => {
            runs.iter().all(|run| (*from..=*to).contains(&run.of_last(*calls, *backend)))
        }
        Bound::Settles { .. } => runs.iter().all(|run| run.unsettled == 0),
        Bound::Rules(rules) => runs
            .iter()
            .all(|run| run.rules.starts_with(&rules.iter().map(String::as_str).collect::<Vec<_>>())),
    }
}

/// One run of a machine, with what was observed.
struct Run<'c> {
    case: &'c Case,
    event: Option<Event>,
    noise: Noise,
    random: Random,
    now: u64,
    call: u64,
    /// Calls that the event slowed down, and when it ends.
    slowed: u64,
    slow_until_ns: Option<u64>,
    /// Start and end of the current disturbance of a busy machine.
    busy: (f64, f64),
    /// The backend of every call, failed ones included.
    went: Vec<usize>,
    failures: u64,
    cost: f64,
    best: f64,
    incumbents: BTreeMap<u64, usize>,
    bursts: BTreeMap<u64, u64>,
    largest_burst_ns: u64,
    largest_probe_ns: u64,
    /// Cost of probes according to the model: their time beyond that of the incumbents.
    modelled_probes_ns: f64,
    /// Cost of probes according to the router.
    spent_on_probes: u64,
    after_event: u64,
    unsettled: usize,
    end: String,
    rules: Vec<&'static str>,
}

impl<'c> Run<'c> {
    fn new(case: &'c Case, event: Option<Event>, noise: Noise, seed: u64) -> Run<'c> {
        Run {
            case,
            event,
            noise,
            random: Random(seed * case.seed_step + 1),
            now: 0,
            call: 0,
            slowed: 0,
            slow_until_ns: None,
            busy: (0.0, 0.0),
            went: Vec::new(),
            failures: 0,
            cost: 0.0,
            best: 0.0,
            incumbents: BTreeMap::new(),
            bursts: BTreeMap::new(),
            largest_burst_ns: 0,
            largest_probe_ns: 0,
            modelled_probes_ns: 0.0,
            spent_on_probes: 0,
            after_event: 0,
            unsettled: 0,
            end: String::new(),
            rules: Vec::new(),
        }
    }

    fn finish(mut self) -> Run<'c> {
        let simulated = Candidate::new(&DeviceProfile::conservative("simulated"), Conformance::Passed);
        let candidate = |(name, _): &(String, Model)| Candidate { id: name.clone(), ..simulated.clone() };
        let candidates = self.case.backends.iter().map(candidate).collect();
        let router = Router::new(candidates, &PgoTable::default(), Policy::default());
        let program = router.program(Some("op"), [1; 32]);
        if matches!(self.case.verification, Verification::First) {
            self.verify(&program, BackendIndex(1));
        }
        let last_size = match self.case.time_per_size {
            Some(time) => self.sizes_in_turn(&program, time),
            None => self.sizes_in_a_cycle(&program),
        };
        let spent = program.time_spent();
        self.spent_on_probes = spent.probes_ns;
        if self.failures == 0 {
            assert_eq!((spent.total_ns, program.calls()), (self.now, self.call));
        }
        self.end = program.explain(last_size, Placement::Host, self.now).backend.unwrap_or_default();
        self
    }

    fn sizes_in_a_cycle(&mut self, program: &ProgramRoutes) -> u64 {
        let sizes = &self.case.sizes;
        let mut elements = sizes[0];
        while self.call < self.case.calls {
            elements = sizes[(self.call % sizes.len() as u64) as usize];
            self.one_call(program, elements);
        }
        elements
    }

    fn sizes_in_turn(&mut self, program: &ProgramRoutes, time_ns: u64) -> u64 {
        let settles = self.case.bounds.iter().find_map(|bound| match bound {
            Bound::Settles { within, after_ns } => Some((*within, *after_ns)),
            _ => None,
        });
        let (within, after_ns) = settles.unwrap_or((0.0, 0));
        let mut elements = 0;
        for &size in &self.case.sizes {
            elements = size;
            let (began, mut well, mut badly) = (self.now, 0.0, 0.0);
            while self.now < began + time_ns {
                let (cost, best) = (self.cost, self.best);
                self.one_call(program, elements);
                if self.now > began + after_ns {
                    let (cost, best) = (self.cost - cost, self.best - best);
                    *(if cost > (1.0 + within) * best { &mut badly } else { &mut well }) += cost;
                }
            }
            self.unsettled += usize::from(badly > well);
        }
        elements
    }

    fn overhead(&self) -> f64 {
        self.cost / self.best - 1.0
    }

    fn of_last(&self, calls: usize, backend: usize) -> usize {
        let start = self.went.len().saturating_sub(calls);
        self.went[start..].iter().filter(|&&went| went == backend).count()
    }

    fn model(&self, backend: usize) -> Model {
        self.case.backends[backend].1
    }

    /// Whether the event slows a call to this backend now.
    fn is_slowed(&self, backend: usize) -> bool {
        let Some(Event { effect: Effect::Slows { from, span, .. }, .. }) = self.event else { return false };
        self.event.is_some_and(|event| event.concerns(backend))
            && self.call >= from
            && match span {
                Span::Forever => true,
                Span::Calls(calls) => self.slowed < calls,
                Span::Time(time) => self.now < self.slow_until_ns.unwrap_or(self.now + time),
            }
    }

    /// The factor on a backend's times at this call.
    fn factor(&self, backend: usize) -> f64 {
        let Some(event) = self.event.filter(|event| event.concerns(backend)) else { return 1.0 };
        let call = self.call as f64;
        match event.effect {
            Effect::Slows { factor, .. } if self.is_slowed(backend) => factor,
            Effect::Creeps { factor, calls } => 1.0 + (factor - 1.0) * call / calls,
            Effect::Swings { factor, calls } => factor.powf((call / calls * std::f64::consts::TAU).sin()),
            Effect::EveryOther { factor, calls } if !(self.call / calls).is_multiple_of(2) => factor,
            Effect::Slows { .. } | Effect::EveryOther { .. } | Effect::Goes { .. } => 1.0,
        }
    }

    fn expected(&self, backend: usize, elements: u64) -> f64 {
        self.model(backend).at(elements) * self.factor(backend)
    }

    /// A time around an expected one.
    fn sample(&mut self, expected: f64) -> u64 {
        match self.noise {
            Noise::Plain(deviation) => (expected * (deviation * self.random.normal()).exp()) as u64,
            Noise::Spiky(deviation) => {
                let spike = if self.random.uniform() < 0.01 { 10.0 } else { 1.0 };
                (expected * spike * (deviation * self.random.normal()).exp()) as u64
            }
            Noise::Busy => self.sample_busy(expected),
        }
    }

    fn sample_busy(&mut self, expected: f64) -> u64 {
        let now = self.now as f64;
        while now >= self.busy.1 {
            let from = self.busy.1 + self.random.exponential(500e6);
            self.busy = (from, from + self.random.exponential(50e6));
        }
        let mut elapsed = expected * (0.03 * self.random.normal()).exp();
        if now >= self.busy.0 {
            elapsed *= self.random.normal().abs().exp();
            if self.random.uniform() < 0.02 + elapsed / 20e6 {
                elapsed += self.random.exponential(6e6);
            }
        }
        if self.random.uniform() < elapsed / 2e9 {
            elapsed += self.random.exponential(60e6);
        }
        elapsed as u64
    }

    /// The fault of a call to this backend.
    fn fault(&self, backend: usize) -> Option<Fault> {
        match self.event?.effect {
            Effect::Goes { fault, from } if self.event?.concerns(backend) && self.call >= from => Some(fault),
            _ => None,
        }
    }

    /// Routes one call until a backend runs it, and learns.
    fn one_call(&mut self, program: &ProgramRoutes, elements: u64) {
        let mut tried = BackendSet::default();
        loop {
            let call = RouteRequest { exclude: tried, ..RouteRequest::new(elements, self.now) };
            let route = program.route(&call).expect("some backend may run");
            let chosen = route.backend.index();
            self.note_rule(program, elements);
            self.count_after_event(chosen);
            let warm = self.went.last().is_none_or(|&last| last == chosen);
            self.went.push(chosen);
            if let Some(error) = self.fault(chosen).and_then(Fault::error) {
                self.now += FAILURE_NS;
                self.failures += 1;
                program.failed(&route, &error, FAILURE_NS, self.now);
                if matches!(error, BackendError::Timeout { .. }) {
                    break;
                }
                tried = tried.with(route.backend);
                continue;
            }
            let expected = self.expected(chosen, elements);
            let elapsed = self.sample(if warm { expected } else { self.case.cold * expected });
            self.account(&route, elements, elapsed);
            let slowed = self.is_slowed(chosen);
            self.slowed += u64::from(slowed);
            self.now += elapsed;
            if slowed && self.event.is_some_and(|event| event.disturbed) {
                program.finished_disturbed(&route, elapsed);
            } else {
                program.finished(&route, elapsed);
            }
            self.background(program, route.background);
            self.note_rule(program, elements);
            break;
        }
        self.call += 1;
    }

    fn count_after_event(&mut self, backend: usize) {
        let Some(event) = self.event else { return };
        let (Effect::Slows { from, .. } | Effect::Goes { from, .. }) = event.effect else { return };
        self.after_event += u64::from(event.concerns(backend) && self.call >= from);
        if let Effect::Slows { span: Span::Time(time), .. } = event.effect
            && self.call >= from
        {
            self.slow_until_ns.get_or_insert(self.now + time);
        }
    }

    /// Adds a call to the totals of the model.
    fn account(&mut self, route: &Route, elements: u64, elapsed: u64) {
        let expected = self.expected(route.backend.index(), elements);
        let all = 0..self.case.backends.len();
        self.cost += expected;
        self.best += all.map(|backend| self.expected(backend, elements)).fold(f64::INFINITY, f64::min);
        let burst = self.bursts.entry(elements).or_default();
        if route.reason == Reason::Probe {
            *burst += elapsed;
            self.largest_burst_ns = self.largest_burst_ns.max(*burst);
            self.largest_probe_ns = self.largest_probe_ns.max(elapsed);
            let instead = self.incumbents.get(&elements).map_or(0.0, |&index| self.expected(index, elements));
            self.modelled_probes_ns += expected - instead;
        } else {
            *burst = 0;
            self.incumbents.insert(elements, route.backend.index());
        }
    }

    /// Completes the background work. Only a backend that lies fails a canary.
    fn background(&mut self, program: &ProgramRoutes, work: Option<Background>) {
        match work {
            Some(Background::Verify(backend)) => self.verify(program, backend),
            Some(Background::Canary(backend)) => {
                let lies = self.fault(backend.index()) == Some(Fault::Lies);
                let wrong = Rejection::Wrong("bits differ".into());
                let outcome = if lies { Err(&wrong) } else { Ok(()) };
                program.canary(backend, outcome, CANARY_NS, self.now);
            }
            None => {}
        }
    }

    /// Reports the best of three runs at each verified size.
    fn verify(&mut self, program: &ProgramRoutes, backend: BackendIndex) {
        let timings = VERIFIED_SIZES.map(|elements| {
            let expected = match self.case.verification {
                Verification::Timed(model) => model.at(elements),
                Verification::AsCalls | Verification::Nothing | Verification::First => {
                    self.expected(backend.index(), elements)
                }
            };
            let elapsed_ns = (0..3).map(|_| self.sample(expected)).min().unwrap_or(0);
            Timing { elements, elapsed_ns }
        });
        let nothing = matches!(self.case.verification, Verification::Nothing);
        program.verified(backend, Ok(if nothing { &[] } else { &timings }), self.now);
    }

    /// Notes the rule of probing that decides about the second backend, if the case is about it.
    fn note_rule(&mut self, program: &ProgramRoutes, elements: u64) {
        if !self.case.bounds.iter().any(|bound| matches!(bound, Bound::Rules(_))) {
            return;
        }
        let explained = program.explain(elements, Placement::Host, self.now);
        if let Some(probing) = explained.candidates[1].probing
            && self.rules.last() != Some(&probing.rule)
        {
            self.rules.push(probing.rule);
        }
    }
}
