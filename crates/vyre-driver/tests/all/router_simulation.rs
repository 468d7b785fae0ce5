//! Simulated machines: the cost of routing compared with always knowing the best backend, and how
//! soon the router leaves a backend that goes bad. All times come from a model and a seeded
//! generator, so every run is identical.

use std::collections::BTreeMap;
use vyre_driver::pgo::PgoTable;
use vyre_driver::router::{
    BackendIndex, BackendSet, Background, Call, Candidate, Conformance, Placement, Policy, ProgramRoutes,
    Reason, Rejection, Route, Router, Timing,
};
use vyre_driver::{BackendError, DeviceProfile};

const CALLS: u64 = 10_000;

/// A seeded generator of normally distributed numbers.
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

/// A backend's time as a function of the size.
#[derive(Clone, Copy)]
struct Model {
    fixed_ns: f64,
    per_element_ns: f64,
}

impl Model {
    fn at(self, elements: u64) -> f64 {
        self.fixed_ns + self.per_element_ns * elements as f64
    }
}

/// Noise around the model's time.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Log-normal, with this standard deviation.
    Plain(f64),
    /// The same, with one call in a hundred ten times as long.
    Spiky(f64),
}

/// How the machine changes over time: a factor per backend and call.
#[derive(Clone, Copy, Debug)]
enum Change {
    Steady,
    /// All backends drift together by a factor of two.
    Together,
    /// The first backend becomes five times slower half-way.
    Swap,
    /// The first backend slowly becomes three times slower.
    Creep,
    /// The whole machine is four times slower every other thousand calls.
    TwoStates,
}

impl Change {
    fn factor(self, backend: usize, call: u64, count: usize) -> f64 {
        match self {
            Change::Steady => 1.0,
            Change::Together => (call as f64 / 700.0).sin().exp2(),
            Change::Swap | Change::Creep if backend != 0 || count < 2 => 1.0,
            Change::Swap => {
                if call < CALLS / 2 {
                    1.0
                } else {
                    5.0
                }
            }
            Change::Creep => 1.0 + 2.0 * call as f64 / CALLS as f64,
            Change::TwoStates => {
                if (call / 1000).is_multiple_of(2) {
                    1.0
                } else {
                    4.0
                }
            }
        }
    }
}

struct Machine {
    models: Vec<Model>,
    noise: Noise,
    change: Change,
    random: Random,
}

impl Machine {
    fn expected(&self, backend: usize, elements: u64, call: u64) -> f64 {
        self.models[backend].at(elements) * self.change.factor(backend, call, self.models.len())
    }

    fn run(&mut self, backend: usize, elements: u64, call: u64) -> u64 {
        let noise = match self.noise {
            Noise::Plain(deviation) => deviation * self.random.normal(),
            Noise::Spiky(deviation) => {
                let spike = if self.random.uniform() < 0.01 { 10f64.ln() } else { 0.0 };
                deviation * self.random.normal() + spike
            }
        };
        (self.expected(backend, elements, call) * noise.exp()) as u64
    }
}

fn router(count: usize) -> Router {
    let ids = ["b0", "b1", "b2", "b3"];
    let candidate = |id: &&'static str| Candidate::new(&DeviceProfile::conservative(id), Conformance::Passed);
    Router::new(ids[..count].iter().map(candidate).collect(), &PgoTable::default(), Policy::default())
}

/// Result of a simulation.
#[derive(Debug)]
struct Outcome {
    /// Time beyond that of the best backend at each call, relative to it, by the model.
    overhead: f64,
    total_ns: u64,
    /// Cost of probes according to the router.
    probes_ns: u64,
    /// Cost of probes according to the model: their time beyond that of the incumbents.
    modelled_probes_ns: f64,
    /// Longest total time of consecutive probes at one size.
    largest_burst_ns: u64,
}

fn simulate(machine: &mut Machine, elements: impl Fn(u64) -> u64) -> Outcome {
    let count = machine.models.len();
    let router = router(count);
    let program = router.program(None, [1; 32]);
    let (mut now, mut cost, mut best, mut largest_burst_ns) = (0, 0.0, 0.0, 0);
    let mut modelled_probes_ns = 0.0;
    let mut bursts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut incumbents: BTreeMap<u64, usize> = BTreeMap::new();
    for call in 0..CALLS {
        let elements = elements(call);
        let route = program.route(&Call::new(elements, now)).expect("some backend may run");
        let chosen = route.backend.index();
        let elapsed = machine.run(chosen, elements, call);
        now += elapsed;
        cost += machine.expected(chosen, elements, call);
        best += (0..count).map(|k| machine.expected(k, elements, call)).fold(f64::INFINITY, f64::min);
        let burst = bursts.entry(elements).or_default();
        if route.reason == Reason::Probe {
            *burst += elapsed;
            let instead = machine.expected(incumbents[&elements], elements, call);
            modelled_probes_ns += machine.expected(chosen, elements, call) - instead;
        } else {
            *burst = 0;
            incumbents.insert(elements, chosen);
        }
        largest_burst_ns = largest_burst_ns.max(*burst);
        program.finished(&route, elapsed);
        do_background(&program, route, now, |backend, elements| machine.run(backend, elements, call));
    }
    let spent = program.time_spent();
    assert_eq!((spent.total_ns, program.calls()), (now, CALLS));
    let (overhead, probes_ns) = (cost / best - 1.0, spent.probes_ns);
    Outcome { overhead, total_ns: now, probes_ns, modelled_probes_ns, largest_burst_ns }
}

fn best_of_three(mut run: impl FnMut(u64) -> u64) -> impl FnMut(u64) -> Timing {
    move |elements| Timing { elements, elapsed_ns: (0..3).map(|_| run(elements)).min().unwrap_or(0) }
}

/// Completes the background work: every check passes, and a verification times runs at three sizes.
fn do_background(program: &ProgramRoutes, route: Route, now: u64, mut run: impl FnMut(usize, u64) -> u64) {
    match route.background {
        Some(Background::Verify(backend)) => {
            let timings = [64, 4096, 65_536].map(best_of_three(|elements| run(backend.index(), elements)));
            program.verified(backend, Ok(&timings), now);
        }
        Some(Background::Canary(backend)) => program.canary(backend, Ok(()), 20_000, now),
        None => {}
    }
}

const NOISES: [Noise; 4] = [Noise::Plain(0.0), Noise::Plain(0.05), Noise::Plain(0.3), Noise::Spiky(0.2)];

/// Runs every combination of noise, change and seed; prints one line per noise and change, and
/// checks the bounds.
fn check(name: &str, models: &[Model], elements: impl Fn(u64) -> u64 + Copy) {
    check_with(&NOISES, name, models, elements);
}

fn check_with(noises: &[Noise], name: &str, models: &[Model], elements: impl Fn(u64) -> u64 + Copy) {
    let mut failures = 0;
    for change in [Change::Steady, Change::Together, Change::Swap, Change::Creep, Change::TwoStates] {
        for &noise in noises {
            let mut worst: f64 = 0.0;
            let mut probing: f64 = 0.0;
            for seed in 0..6 {
                let random = Random(seed * 7919 + 1);
                let mut machine = Machine { models: models.to_vec(), noise, change, random };
                let outcome = simulate(&mut machine, elements);
                worst = worst.max(outcome.overhead);
                probing = probing.max(outcome.probes_ns as f64 / outcome.total_ns as f64);
                let bound = outcome.total_ns / 100 + outcome.largest_burst_ns;
                let within = outcome.probes_ns <= bound && outcome.modelled_probes_ns <= bound as f64;
                assert!(within, "{name}, {change:?}, {noise:?}: {outcome:?}");
            }
            println!(
                "{name:<28} {:<10} {:<12} overhead at most {:>6.2}%, probing {:>5.2}%",
                format!("{change:?}"),
                format!("{noise:?}"),
                100.0 * worst,
                100.0 * probing
            );
            failures += usize::from(worst >= 0.03);
        }
    }
    assert_eq!(failures, 0, "{name}: overheads of 3% or more");
}

fn model(fixed_ns: f64, per_element_ns: f64) -> Model {
    Model { fixed_ns, per_element_ns }
}

#[test]
fn two_backends_from_equal_to_a_hundred_times_apart() {
    for apart in [1.02, 1.1, 1.5, 4.0, 20.0, 100.0] {
        let (fast, slow) = (model(2_000.0, 0.5), model(2_000.0 * apart, 0.5 * apart));
        check(&format!("{apart}x, the slower selected"), &[slow, fast], |_| 1 << 16);
        check(&format!("{apart}x, the faster selected"), &[fast, slow], |_| 1 << 16);
    }
}

/// The processor has a low fixed cost, the device a low cost per element.
const PROCESSOR: Model = Model { fixed_ns: 1_000.0, per_element_ns: 0.6 };
const DEVICE: Model = Model { fixed_ns: 200_000.0, per_element_ns: 0.02 };

#[test]
fn a_device_that_does_not_pay_off_for_small_sizes() {
    check("small, device selected", &[DEVICE, PROCESSOR], |_| 1 << 10);
    check("small, processor selected", &[PROCESSOR, DEVICE], |_| 1 << 10);
}

/// The two cross over between 2^18 and 2^19 elements, far beyond the verified sizes: the split into
/// fixed and per-element cost predicts it.
#[test]
fn a_device_that_pays_off_only_when_large_is_found_at_once() {
    for size in [16, 18, 19, 20, 22] {
        check(&format!("2^{size}, device selected"), &[DEVICE, PROCESSOR], |_| 1 << size);
        check(&format!("2^{size}, processor selected"), &[PROCESSOR, DEVICE], |_| 1 << size);
    }
    // Alternating sizes on both sides: fewer than 600 calls of each, too few to average out much
    // noise.
    let quiet = &NOISES[..2];
    check_with(quiet, "sizes 2^6 to 2^22", &[PROCESSOR, DEVICE], |call| 1 << (6 + call % 17));
    check_with(quiet, "sizes 2^22 to 2^6", &[DEVICE, PROCESSOR], |call| 1 << (22 - call % 17));
}

/// A backend that is slow after idling can still be the faster one once it is warm: single calls
/// between those of another would never show it.
#[test]
fn a_backend_that_is_slow_after_idling_is_found_to_be_the_faster_one() {
    let router = router(2);
    let program = router.program(None, [5; 32]);
    let (mut now, mut last, mut went) = (0, 0, Vec::new());
    for _ in 0..3_000 {
        let route = program.route(&Call::new(1 << 20, now)).expect("some backend may run");
        let warm = [280_000, 220_000][route.backend.index()];
        let elapsed = if last == route.backend.0 { warm } else { 8 * warm };
        (now, last) = (now + elapsed, route.backend.0);
        program.finished(&route, elapsed);
        went.push(last);
        do_background(&program, route, now, |_, elements| 20_000 + elements / 5);
    }
    let other = went[2_000..].iter().filter(|&&backend| backend == 1).count();
    assert!(other > 950, "{other} of the last 1,000 calls went to the faster backend");
    let spent = program.time_spent();
    assert!(spent.probes_ns <= spent.total_ns / 100 + 3 * 8 * 280_000, "{spent:?}");
}

/// Calls so long that there are few of them: the first ones have to find the better backend.
#[test]
fn few_long_calls_suffice_to_find_the_better_backend() {
    for (models, size) in [([PROCESSOR, DEVICE], 22), ([DEVICE, PROCESSOR], 14)] {
        for noise in [Noise::Plain(0.0), Noise::Plain(0.05)] {
            for seed in 0..20 {
                let router = router(2);
                let program = router.program(None, [3; 32]);
                let (random, models) = (Random(seed * 31 + 5), models.to_vec());
                let mut machine = Machine { models, noise, change: Change::Steady, random };
                let (mut now, mut went) = (0, Vec::new());
                for call in 0..24 {
                    let route = program.route(&Call::new(1 << size, now)).expect("some backend may run");
                    let elapsed = machine.run(route.backend.index(), 1 << size, call);
                    now += elapsed;
                    went.push(route.backend.0);
                    program.finished(&route, elapsed);
                    do_background(&program, route, now, |backend, elements| {
                        machine.run(backend, elements, call)
                    });
                }
                let stayed = went.iter().skip(12).filter(|&&backend| backend == 1).count();
                assert!(stayed >= 10, "2^{size}, {noise:?}, {seed}: {went:?}");
            }
        }
    }
}

/// A backend whose cost grows faster than its small runs suggest costs at most the probing budget
/// plus one probe.
#[test]
fn an_estimate_that_is_far_too_low_costs_one_probe() {
    for noise in NOISES {
        for seed in 0..6 {
            let models = vec![PROCESSOR, model(2_000.0, 0.05)];
            let mut machine = Machine { models, noise, change: Change::Steady, random: Random(seed) };
            let router = router(2);
            let program = router.program(None, [4; 32]);
            let (mut now, mut probes, mut largest) = (0, 0, 0);
            for call in 0..1_000 {
                let route = program.route(&Call::new(1 << 22, now)).expect("some backend may run");
                // Past its memory capacity, the second backend is fifty times slower.
                let beyond = if route.backend.index() == 1 { 50 } else { 1 };
                let elapsed = beyond * machine.run(route.backend.index(), 1 << 22, call);
                now += elapsed;
                if route.reason == Reason::Probe {
                    probes += 1;
                    largest = largest.max(elapsed);
                }
                program.finished(&route, elapsed);
                do_background(&program, route, now, |backend, elements| machine.run(backend, elements, call));
            }
            assert!(probes >= 1, "{noise:?}");
            let spent = program.time_spent().probes_ns;
            assert!(spent <= now / 100 + largest, "{noise:?}: {probes} probes took {spent} of {now}");
        }
    }
}

#[test]
fn four_backends() {
    let models = [model(9_000.0, 4.0), model(2_000.0, 0.5), model(50_000.0, 0.4), model(200_000.0, 50.0)];
    check("four backends", &models, |_| 1 << 16);
}

/// How the incumbent goes bad.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails,
    /// Its calls exceed their deadlines.
    Hangs,
    Lies,
    Slows,
    LosesDevice,
    RunsOutOfMemory,
}

/// Number of calls to the incumbent, the faster of two, after it goes bad at call 500.
fn calls_after(fault: Fault, noise: f64, seed: u64) -> u64 {
    let models = vec![model(2_000.0, 0.5), model(4_000.0, 1.0)];
    let mut machine =
        Machine { models, noise: Noise::Plain(noise), change: Change::Steady, random: Random(seed) };
    let router = router(2);
    let program = router.program(Some("op"), [2; 32]);
    let (mut now, mut after) = (0, 0);
    for call in 0..600_u64 {
        let mut tried = BackendSet::default();
        loop {
            let wanted = Call { exclude: tried, ..Call::new(1 << 16, now) };
            let route = program.route(&wanted).expect("one of the two may run");
            let bad = route.backend == BackendIndex(0) && call >= 500;
            after += u64::from(bad);
            let elapsed = machine.run(route.backend.index(), 1 << 16, call);
            let error = match fault {
                Fault::Fails => BackendError::new("no"),
                Fault::Hangs => {
                    BackendError::Timeout { backend: "b0".into(), limit: std::time::Duration::from_secs(1) }
                }
                Fault::LosesDevice => {
                    BackendError::DeviceLost { backend: "b0".into(), message: "gone".into() }
                }
                Fault::RunsOutOfMemory => {
                    BackendError::DeviceOutOfMemory { backend: "b0".into(), requested_bytes: 1 }
                }
                Fault::Lies | Fault::Slows => {
                    let slowed = if bad && matches!(fault, Fault::Slows) { 4 * elapsed } else { elapsed };
                    now += slowed;
                    program.finished(&route, slowed);
                    match route.background {
                        Some(Background::Canary(backend)) if call >= 500 && matches!(fault, Fault::Lies) => {
                            let outcome = if backend == BackendIndex(0) {
                                Err(Rejection::Wrong("bits differ"))
                            } else {
                                Ok(())
                            };
                            program.canary(backend, outcome, 20_000, now);
                        }
                        _ => do_background(&program, route, now, |backend, elements| {
                            machine.run(backend, elements, call)
                        }),
                    }
                    break;
                }
            };
            if bad {
                now += 1_000_000;
                program.failed(&route, &error, 1_000_000, now);
                if matches!(fault, Fault::Hangs) {
                    break;
                }
                tried = tried.with(route.backend);
                continue;
            }
            now += elapsed;
            program.finished(&route, elapsed);
            do_background(&program, route, now, |backend, elements| machine.run(backend, elements, call));
            break;
        }
    }
    if noise < 0.5 {
        let explained = program.explain(1 << 16, Placement::Host, now);
        assert_eq!(explained.backend.as_deref(), Some("b1"), "{fault:?}: {explained}");
    }
    after
}

#[test]
fn a_backend_that_goes_bad_is_left_within_twenty_calls() {
    use Fault::*;
    for fault in [Fails, Hangs, Lies, Slows, LosesDevice, RunsOutOfMemory] {
        let worst = (1..=20).map(|seed| calls_after(fault, 0.1, seed)).max().unwrap_or(0);
        println!("{fault:?}: left after at most {worst} calls");
        assert!(worst <= 20, "{fault:?}: {worst}");
    }
}

/// On a noisy machine it takes longer to notice, but less than until the next regular probe.
#[test]
fn a_backend_that_slows_down_is_left_despite_noise() {
    for (noise, median, most) in [(0.3, 12, 20), (0.6, 40, 100), (0.9, 45, 100)] {
        let mut calls: Vec<u64> = (1..=41).map(|seed| calls_after(Fault::Slows, noise, seed)).collect();
        calls.sort_unstable();
        println!("noise {noise}: left after {} calls, {} in the median", calls[40], calls[20]);
        assert!(calls[20] <= median && calls[40] <= most, "noise {noise}: {calls:?}");
    }
}

/// From call 500 on, makes the next `calls` calls on the first backend `slower` times as long and
/// reports them as disturbed by vyre's own work. Returns the backend preferred at the end and the
/// number of disturbed calls.
fn beside_other_work(calls: u64, slower: u64) -> (String, u64) {
    let models = vec![model(2_000.0, 0.5), model(4_000.0, 1.0)];
    let mut machine =
        Machine { models, noise: Noise::Plain(0.05), change: Change::Steady, random: Random(3) };
    let router = router(2);
    let program = router.program(Some("op"), [7; 32]);
    let (mut now, mut slow) = (0, 0);
    for call in 0..600 {
        let route = program.route(&Call::new(1 << 16, now)).expect("one of the two may run");
        let elapsed = machine.run(route.backend.index(), 1 << 16, call);
        let disturbed = call >= 500 && route.backend == BackendIndex(0) && slow < calls;
        if disturbed {
            slow += 1;
            now += slower * elapsed;
            program.finished_disturbed(&route, slower * elapsed);
        } else {
            now += elapsed;
            program.finished(&route, elapsed);
        }
        do_background(&program, route, now, |backend, elements| machine.run(backend, elements, call));
    }
    let spent = program.time_spent();
    assert_eq!((spent.total_ns, program.calls()), (now, 600));
    let explained = program.explain(1 << 16, Placement::Host, now);
    (explained.backend.unwrap_or_default(), slow)
}

#[test]
fn calls_beside_other_work_count_little_but_a_slow_backend_is_still_left() {
    for slower in [2, 10, 100] {
        assert_eq!(beside_other_work(12, slower), ("b0".to_owned(), 12), "{slower} times");
    }
    let (backend, calls) = beside_other_work(u64::MAX, 4);
    assert_eq!(backend, "b1");
    assert!(calls <= 20, "{calls}");
}

/// A storm: for a while, other work slows each of two backends by a factor, and some calls wait for
/// a processor. A backend that the last call did not use takes `idle` times as long.
struct Storm {
    times_ns: [f64; 2],
    idle: [f64; 2],
    slower: [f64; 2],
    waits: f64,
    length_ns: f64,
}

impl Storm {
    /// Time lost in the second after the storm by calls that did not go to the faster backend, as a
    /// share of the time of all calls in it.
    fn loses_afterwards(&self, seed: u64) -> f64 {
        let (router, mut random) = (router(2), Random(seed));
        let program = router.program(None, [9; 32]);
        let (begins, mut now, mut last) = (5e8, 0_u64, 0);
        let (ends, best) = (begins + self.length_ns, self.times_ns[0].min(self.times_ns[1]));
        let (mut lost, mut all) = (0.0, 0.0);
        while (now as f64) < ends + 1e9 {
            let route = program.route(&Call::new(1 << 16, now)).expect("some backend may run");
            let (backend, started) = (route.backend.index(), now as f64);
            let idle = if last == backend { 1.0 } else { self.idle[backend] };
            let expected = self.times_ns[backend] * idle;
            let mut elapsed = expected * (0.05 * random.normal()).exp();
            if (begins..ends).contains(&started) {
                elapsed *= self.slower[backend];
                elapsed += if random.uniform() < self.waits { 4e6 } else { 0.0 };
            } else if started >= ends {
                (lost, all) = (lost + expected - best, all + expected);
            }
            (now, last) = (now + elapsed as u64, backend);
            program.finished(&route, elapsed as u64);
            do_background(&program, route, now, |backend, elements| {
                (self.times_ns[backend] * (0.2 + 0.8 * elements as f64 / 65_536.0)) as u64
            });
        }
        lost / all
    }
}

/// The faster backend is used again soon, even if it is slow after idling, so that a single probe
/// does not show that it is the faster one.
#[test]
fn a_backend_that_a_storm_drove_away_is_used_again_soon() {
    for (times_ns, idle) in [
        ([20e3, 43e3], [1.0, 1.0]),
        ([20e3, 43e3], [3.0, 2.0]),
        ([20e3, 25e3], [3.0, 2.0]),
        ([20e3, 25e3], [1.0, 1.0]),
    ] {
        for (length_ns, slower, waits) in [
            (20e6, [4.0, 1.0], 0.0),
            (20e6, [10.0, 2.0], 0.02),
            (200e6, [4.0, 1.0], 0.02),
            (200e6, [4.0, 4.0], 0.02),
            (200e6, [10.0, 2.0], 0.0),
        ] {
            let storm = Storm { times_ns, idle, slower, waits, length_ns };
            let mut losses: Vec<f64> = (0..7).map(|seed| storm.loses_afterwards(seed * 77 + 3)).collect();
            losses.sort_unstable_by(f64::total_cmp);
            let (median, most) = (100.0 * losses[3], 100.0 * losses[6]);
            println!(
                "{times_ns:?} {idle:?} {length_ns:e} {slower:?} {waits}: {median:.1}%, at most {most:.1}%"
            );
            assert!(most < 30.0, "{times_ns:?} {idle:?} {length_ns:e} {slower:?} {waits}");
        }
    }
}

/// A machine that other work disturbs from time to time: calls then take several times as long, and
/// some wait for a processor. A call can stall for a long time at any moment.
struct Disturbed {
    models: Vec<Model>,
    random: Random,
    /// Start and end of the disturbance.
    from_ns: f64,
    until_ns: f64,
}

impl Disturbed {
    fn new(models: &[Model], seed: u64) -> Disturbed {
        Disturbed { models: models.to_vec(), random: Random(seed * 6_151 + 3), from_ns: 0.0, until_ns: 0.0 }
    }

    /// An exponentially distributed time with this mean.
    fn about(&mut self, mean_ns: f64) -> f64 {
        -mean_ns * self.random.uniform().max(1e-300).ln()
    }

    fn run(&mut self, backend: usize, elements: u64, now: u64) -> u64 {
        while now as f64 >= self.until_ns {
            self.from_ns = self.until_ns + self.about(500e6);
            self.until_ns = self.from_ns + self.about(50e6);
        }
        let mut elapsed = self.models[backend].at(elements) * (0.03 * self.random.normal()).exp();
        if now as f64 >= self.from_ns {
            elapsed *= self.random.normal().abs().exp();
            if self.random.uniform() < 0.02 + elapsed / 20e6 {
                elapsed += self.about(6e6);
            }
        }
        if self.random.uniform() < elapsed / 2e9 {
            elapsed += self.about(60e6);
        }
        elapsed as u64
    }
}

/// Calls a program at one size after the other for some seconds each. Returns an explanation for
/// each size at which, after a settling time, most of the time went to a backend more than 5%
/// slower than the best.
fn sizes_behind(models: &[Model], sizes: &[u32], seed: u64) -> Vec<String> {
    let mut machine = Disturbed::new(models, seed);
    let router = router(models.len());
    let program = router.program(None, [8; 32]);
    let (mut now, mut behind) = (0, Vec::new());
    for &size in sizes {
        let (began, elements) = (now, 1 << size);
        let best = models.iter().map(|model| model.at(elements)).fold(f64::INFINITY, f64::min);
        let (mut well, mut badly) = (0.0, 0.0);
        while now < began + 4_000_000_000 {
            let route = program.route(&Call::new(elements, now)).expect("some backend may run");
            let chosen = route.backend.index();
            let elapsed = machine.run(chosen, elements, now);
            now += elapsed;
            program.finished(&route, elapsed);
            do_background(&program, route, now, |backend, elements| machine.run(backend, elements, now));
            if now > began + 2_500_000_000 {
                let expected = models[chosen].at(elements);
                *(if expected > 1.05 * best { &mut badly } else { &mut well }) += expected;
            }
        }
        if badly > well {
            behind.push(program.explain(elements, Placement::Host, now).to_string());
        }
    }
    behind
}

/// Whatever disturbances do to measurements, the router returns to the best backend as calls
/// continue.
#[test]
fn a_disturbed_machine_does_not_keep_a_slower_backend_in_use() {
    let processor = model(1_000.0, 0.6);
    for others in [
        [model(15_000.0, 1.3), model(150_000.0, 2.0)],
        [model(8_000.0, 0.78), model(150_000.0, 0.9)],
        [model(6_000.0, 0.67), model(90_000.0, 0.9)],
    ] {
        for (turn, seed) in [(0, 1), (1, 2), (2, 3), (1, 4)] {
            let mut models = vec![processor, others[0], others[1]];
            models.rotate_right(turn);
            let behind = sizes_behind(&models, &[14, 16, 20], seed);
            assert!(behind.is_empty(), "{turn}, {seed}: {}", behind.join("\n"));
        }
    }
}

/// A backend that was a hundred times slower for a while is probed again long before the probing
/// budget covers such a call.
#[test]
fn a_backend_that_was_disturbed_is_used_again_soon() {
    let router = router(2);
    let program = router.program(None, [9; 32]);
    let (mut now, mut until, mut went) = (0, 0, Vec::new());
    for call in 0..5_000 {
        let route = program.route(&Call::new(1 << 20, now)).expect("some backend may run");
        until = if call == 3_000 { now + 70_000_000 } else { until };
        let disturbed = now < until && route.backend.index() == 0;
        let elapsed = [100_000, 135_000][route.backend.index()] * if disturbed { 125 } else { 1 };
        now += elapsed;
        program.finished(&route, elapsed);
        do_background(&program, route, now, |backend, _| [100_000, 135_000][backend]);
        went.push(route.backend.0);
    }
    let away = went[3_000..].iter().filter(|&&backend| backend == 1).count();
    assert!((1..1_500).contains(&away), "{away} of 2,000 calls elsewhere");
}

/// Timings of the second backend that its verification reports.
#[derive(Clone, Copy)]
enum Told {
    Nothing,
    Timings,
    /// The same, before the first call.
    TimingsAtOnce,
}

/// The probing rule that `explain` reports for the second backend, call by call, while calls go to
/// the first.
fn rules_of(models: [Model; 2], told: Told, size: u32) -> Vec<&'static str> {
    let router = router(2);
    let program = router.program(None, [6; 32]);
    let (mut now, mut rules) = (0, Vec::new());
    let verify = |backend: BackendIndex, now| {
        let run = |elements| models[backend.index()].at(elements) as u64;
        let timings = [64, 4096, 65_536].map(|elements| Timing { elements, elapsed_ns: run(elements) });
        let nothing = matches!(told, Told::Nothing);
        program.verified(backend, Ok(if nothing { &[] } else { &timings }), now);
    };
    if matches!(told, Told::TimingsAtOnce) {
        verify(BackendIndex(1), now);
    }
    let explain = |now: u64| program.explain(1 << size, Placement::Host, now).candidates[1].probing;
    for _ in 0..600 {
        let route = program.route(&Call::new(1 << size, now)).expect("some backend may run");
        rules.extend(explain(now).map(|probing| probing.rule));
        let elapsed = models[route.backend.index()].at(1 << size) as u64;
        now += elapsed;
        program.finished(&route, elapsed);
        if let Some(Background::Verify(backend)) = route.background {
            verify(backend, now);
        }
        rules.extend(explain(now).map(|probing| probing.rule));
    }
    rules.dedup();
    rules
}

#[test]
fn every_rule_of_probing_decides_on_some_machine() {
    use Told::*;
    let one = model(1_000.0, 1.0);
    let mut met = std::collections::BTreeSet::new();
    for (other, told, size, expected) in [
        (model(400.0, 0.4), TimingsAtOnce, 16, &["untimed", "faster"][..]),
        (model(400.0, 0.4), Nothing, 16, &["unknown"]),
        (model(1_100.0, 1.1), Timings, 16, &["risky", "costly", "affordable", "resting", "affordable"]),
        (model(2_000.0, 2.0), Timings, 16, &["risky", "costly", "affordable", "resting", "costly"]),
        (model(100_000.0, 100.0), Timings, 16, &["risky", "costly"]),
        (model(1_300_000.0, 0.5), Timings, 20, &["risky", "costly", "affordable", "resting"]),
        (model(1_300_000.0, 0.5), Timings, 22, &["risky", "faster", "burst"]),
    ] {
        let rules = rules_of([one, other], told, size);
        assert!(rules.starts_with(expected), "{rules:?}");
        met.extend(rules);
    }
    let all = ["affordable", "burst", "costly", "faster", "resting", "risky", "unknown", "untimed"];
    assert_eq!(met.into_iter().collect::<Vec<_>>(), all);
}
