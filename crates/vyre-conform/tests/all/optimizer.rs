//! The optimizer against the interpreter, bit for bit: each pass alone, the schedules, and random
//! subsets and orders.

use vyre_conform::choices::bytes_from_seed;
use vyre_conform::filetest::doubts;
use vyre_conform::generate::{Case, Generator, Options};
use vyre_foundation::kernel::{Doubts, Kernel};
use vyre_foundation::legalise::{WantedPasses, legalise};
use vyre_foundation::messages;
use vyre_foundation::ops::Op;
use vyre_foundation::optimize::{Assume, Pass, Schedule, Target, optimize};
use vyre_reference::{FaultKind, RunError, run};

/// Number of generated programs per test; `VYRE_CASES` overrides it.
fn cases(default: u64) -> u64 {
    std::env::var("VYRE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The outputs, or how the run ended. The sanitizer also checks that accesses marked `in_bounds`
/// are in bounds.
fn outcome(kernel: &Kernel, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let options = vyre_reference::RunOptions { sanitize: true, ..vyre_reference::RunOptions::default() };
    match run(kernel, &inputs, &options) {
        Ok(done) => match done.reports.iter().find(|report| report.fault == FaultKind::WrongProof) {
            None => Ok(done.outputs),
            Some(report) => Err(report.to_string()),
        },
        Err(RunError::Trapped { code }) => Err(format!("trap {code}")),
        Err(other) => Err(other.to_string()),
    }
}

/// Counts of what happened to the cases of a test.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    invalid: u64,
    required: u64,
    satisfied: u64,
}

impl Tally {
    fn check(&mut self, seed: u64, case: &Case, schedules: &[Schedule]) {
        self.cases += 1;
        let Ok(kernel) = case.program.validate() else {
            self.invalid += 1;
            return;
        };
        let expected = outcome(&kernel, case);
        for schedule in schedules {
            // Alternates between coarsened kernels and kernels with requirements on their
            // dispatches.
            let assume = Assume { dispatch_checks: seed % 2 == 1, ..Assume::no_overrides(&kernel) };
            let mut schedule =
                schedule.clone().with_assumptions(assume).with_coarsening(1 + (seed % 5) as u32);
            schedule.target.slow_division = !seed.is_multiple_of(3);
            let optimized = self.proved(&kernel, case, &mut schedule);
            let found = outcome(&optimized, case);
            let names: Vec<&str> = schedule.passes.iter().map(|pass| pass.name()).collect();
            assert!(
                found == expected,
                "seed {seed}, passes {names:?}: expected {expected:?}, found {found:?}"
            );
        }
    }

    /// The kernel whose proof the case's dispatch completes: all accesses that it can prove are
    /// left unchecked, as in a pipeline.
    fn proved(&mut self, kernel: &Kernel, case: &Case, schedule: &mut Schedule) -> Kernel {
        for attempt in 0.. {
            let optimized = optimize(kernel.clone(), schedule);
            self.required += u64::from(!optimized.proof.is_empty());
            let doubts = doubts(&optimized, &case.inputs).expect("the inputs fit");
            if doubts == Doubts::NONE {
                self.satisfied += u64::from(!optimized.proof.is_empty());
                return optimized;
            }
            schedule.assume.doubtful = doubts;
            schedule.assume.dispatch_checks = attempt == 0;
        }
        unreachable!("without dispatch checks there is no doubt")
    }

    /// Rejects a vacuous test: nearly all programs must be valid, and some requirements must have
    /// been met.
    fn is_of_use(&self) {
        assert!(self.invalid * 20 <= self.cases, "{self:?}");
        assert!(self.satisfied * 8 >= self.required, "{self:?}");
        assert!(self.cases < 50 || self.satisfied > 0, "{self:?}");
    }
}

#[test]
fn each_pass_alone_changes_no_result() {
    // A target that lacks every op, so that decomposition does all it can.
    let target = Target { lacking: Op::ALL.to_vec(), ..Target::default() };
    let alone = |&pass: &Pass| Schedule::of(&[pass]).with_target(target.clone());
    let alone: Vec<Schedule> = Pass::ALL.iter().map(alone).collect();
    let generator = Generator::new(Options::default());
    let mut tally = Tally::default();
    for seed in 0..cases(200) {
        tally.check(seed, &generator.from_seed(seed), &alone);
    }
    tally.is_of_use();
}

#[test]
fn the_schedules_change_no_result() {
    let schedules = [Schedule::quick(), Schedule::full()];
    let generator = Generator::new(Options::default());
    let mut tally = Tally::default();
    for seed in 0..cases(100) {
        tally.check(seed, &generator.from_seed(seed), &schedules);
    }
    tally.is_of_use();
}

/// Programs about indices: what a launch proves is in range, and the sanitizer sees every access.
#[test]
fn proofs_of_launches_are_right() {
    let schedules = [Schedule::quick(), Schedule::full()];
    let generator = Generator::new(Options { indices: true, ..Options::default() });
    let mut tally = Tally::default();
    for seed in 0..cases(100) {
        // Odd seeds have proofs.
        tally.check(2 * seed + 1, &generator.from_seed(seed), &schedules);
    }
    tally.is_of_use();
    assert!(tally.satisfied * 4 > tally.cases, "{tally:?}");
}

#[test]
fn random_subsets_and_orders_change_no_result() {
    let generator = Generator::new(Options::default());
    let mut tally = Tally::default();
    for seed in 0..cases(100) {
        let draw = |salt: u64, longest: usize| {
            let bytes = bytes_from_seed(seed ^ salt, longest);
            let length = 1 + usize::from(bytes[0]) % (longest - 1);
            let passes: Vec<Pass> = bytes[1..=length]
                .iter()
                .map(|&byte| Pass::ALL[usize::from(byte) % Pass::ALL.len()])
                .collect();
            Schedule::of(&passes)
        };
        let schedules = [draw(0x5EED, 8), draw(0xF00D, 24)];
        tally.check(seed, &generator.from_seed(seed), &schedules);
    }
    tally.is_of_use();
}

/// Generated loops take every kind of step, and stores cover all types.
#[test]
fn the_forms_that_targets_want_change_no_result() {
    let generator = Generator::new(Options::default());
    let all = [
        &["trip-counts"][..],
        &["unknown-steps"],
        &["nan-stores"],
        &["half-floats"],
        &["trip-counts", "nan-stores", "half-floats"],
    ];
    let mut changed = 0;
    for seed in 0..cases(100) {
        let case = generator.from_seed(seed);
        let Ok(kernel) = case.program.validate() else { continue };
        let expected = outcome(&kernel, &case);
        for names in &all {
            let wanted = WantedPasses::from_names(names.iter().copied()).expect("the passes are there");
            let legal = legalise(&kernel, &wanted);
            let found = outcome(&legal, &case);
            assert!(found == expected, "seed {seed}, {names:?}: expected {expected:?}, found {found:?}");
            changed += u64::from(legal.values.len() > kernel.values.len());
        }
    }
    assert!(cases(100) < 50 || changed > 0, "no program had anything to change");
}

/// Operands that cover every case of `fma`: arbitrary bits, sums that nearly cancel, results around
/// the smallest numbers.
fn fma_operands(count: usize) -> Vec<[f64; 3]> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let special = [0.0, -0.0, 1.0, -1.5, 5e-324, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NAN];
    let mut rows = Vec::new();
    for a in special {
        for b in special {
            rows.extend(special.map(|c| [a, b, c]));
        }
    }
    while rows.len() < count {
        let scale = |bits: u64, low: u64, width: u64| {
            f64::from_bits(bits & !(0x7FF << 52) | (low + (bits >> 52) % width) << 52)
        };
        let (x, y) = (scale(next(), 1023 - 30, 60), scale(next(), 1023 - 30, 60));
        let ulps = (next() % 64) as i64 - 32;
        let product = x * y;
        rows.push([f64::from_bits(next()), f64::from_bits(next()), f64::from_bits(next())]);
        rows.push([x, y, -f64::from_bits((product.to_bits() as i64 + ulps) as u64)]);
        rows.push([x, y, scale(next(), 1023 - 120, 240)]);
        // Products near the smallest numbers.
        let tiny = scale(next(), 0, 3) * f64::from_bits((next() % 60 + 1000) << 52);
        rows.push([x, scale(next(), 0, 70), tiny]);
        rows.push([scale(next(), 480, 60), scale(next(), 480, 60), f64::from_bits(next() % 16)]);
        rows.push([scale(next(), 1500, 60), scale(next(), 1500, 60), scale(next(), 2000, 46)]);
    }
    rows
}

#[test]
fn fma_of_simpler_ops_rounds_once() {
    let rows = fma_operands(cases(20_000) as usize);
    let count = rows.len();
    let schedule = Schedule::of(&[Pass::Decompose]);
    let schedule = schedule.with_target(Target { lacking: vec![Op::Fma], ..Target::default() });
    for ty in ["f32", "f64"] {
        let source = format!(
            "kernel fused(x: read {ty}[], y: read {ty}[], z: read {ty}[], out: output {ty}[]) over x workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 out[i] = fma(x[i], y[i], z[i]) }} }}"
        );
        let program = vyre_foundation::text::parse(&source).expect("it parses");
        let kernel = program.validate().expect("it is valid");
        let decomposed = optimize(kernel.clone(), &schedule);
        assert!(!decomposed.needs.ops.contains(&Op::Fma.id()));
        let element = kernel.buffers[0].decl.element;
        let column = |k: usize| -> Vec<u8> {
            let bytes = |row: &[f64; 3]| match ty {
                "f64" => row[k].to_le_bytes().to_vec(),
                // The upper half of the bits covers all of f32, which a conversion would not.
                _ if row[k].is_normal() && (row[k] as f32).is_infinite() => {
                    ((row[k].to_bits() >> 32) as u32).to_le_bytes().to_vec()
                }
                _ => (row[k] as f32).to_le_bytes().to_vec(),
            };
            rows.iter().flat_map(bytes).collect()
        };
        let columns = [column(0), column(1), column(2)];
        let inputs: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        let outputs =
            |kernel: &Kernel| run(kernel, &inputs, &Default::default()).expect("it runs").outputs.remove(0);
        let (expected, found) = (outputs(&kernel), outputs(&decomposed));
        for k in 0..count {
            let size = element.size();
            let at = k * size..(k + 1) * size;
            let operands = columns.each_ref().map(|column| element.load(&column[at.clone()]));
            assert_eq!(
                element.load(&found[at.clone()]),
                element.load(&expected[at.clone()]),
                "fma of {operands:?}"
            );
        }
    }
}

/// No pass drops, repeats or reorders messages, which only the lowered program emits.
#[test]
fn messages_survive_every_pass() {
    let text = "fn odd(x: u32) -> bool { x % 2 == 1 }
        kernel k(x: read u32[], y: output u32[]) workgroup 8 { region \"r\" {
            let i = invocation.x
            for k in 0..4 {
                print(\"{} {}\", i, k)
                if odd(x[i] + k) { print(\"odd\") } else { print(\"even\") }
                assert(odd(i) || k < 2, \"{}\", k)
            }
            print(\"same\")
            print(\"same\")
            y[i] = x[i]
        } }";
    let program = vyre_foundation::text::parse(text).expect("parses");
    let lowered = messages::lower(&program, messages::WantedMessages { asserts: true, records: 500 })
        .expect("valid")
        .expect("it speaks");
    let silent = program.validate().expect("valid");
    assert_eq!((silent.messages.len(), lowered.program.validate().expect("valid").messages.len()), (6, 0));
    let x: Vec<u8> = (0..10_u32).flat_map(u32::to_le_bytes).collect();
    let inputs = [x.as_slice(), &lowered.buffer()];
    let kernel = lowered.program.validate().expect("valid");
    let said = |kernel: &Kernel| {
        let done = run(kernel, &inputs, &vyre_reference::RunOptions::default()).expect("runs");
        (done.outputs[0].clone(), lowered.said(&done.outputs[1]))
    };
    let (outputs, expected) = said(&kernel);
    assert_eq!((expected.count, expected.failed, outputs), (110, 10, x.clone()));
    let alone = Pass::ALL.iter().map(|pass| Schedule { passes: vec![*pass], ..Schedule::none() });
    for schedule in alone.chain([Schedule::quick(), Schedule::full(), Schedule::full().with_coarsening(4)]) {
        let found = said(&optimize(kernel.clone(), &schedule)).1;
        assert_eq!(found, expected, "{:?}", schedule.passes);
    }
}
