//! The optimizer against the interpreter: each pass alone, the schedules, random subsets and orders, by bits.

use vyre_conform::choices::bytes_from_seed;
use vyre_conform::generate::{Case, Generator, Options};
use vyre_foundation::kernel::{BufferId, Kernel};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::ops::Op;
use vyre_foundation::optimize::{Assume, Pass, Schedule, Target, optimize};
use vyre_foundation::types::Value;
use vyre_reference::{Fault, RunError, run};

/// How many generated programs each test takes; `VYRE_CASES` sets another number.
fn cases(default: u64) -> u64 {
    std::env::var("VYRE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The outputs, or how the run ended. The sanitizer also checks that what is marked `in_bounds` is.
fn outcome(kernel: &Kernel, case: &Case) -> Result<Vec<Vec<u8>>, String> {
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let options = vyre_reference::Options { sanitize: true, ..vyre_reference::Options::default() };
    match run(kernel, &inputs, &options) {
        Ok(done) => match done.reports.iter().find(|report| report.fault == Fault::WrongProof) {
            None => Ok(done.outputs),
            Some(report) => Err(report.to_string()),
        },
        Err(RunError::Trapped { code }) => Err(format!("trap {code}")),
        Err(other) => Err(other.to_string()),
    }
}

/// Whether the case's dispatch is one that the kernel was optimized for.
fn satisfies(kernel: &Kernel, case: &Case) -> bool {
    let lengths: Vec<usize> = case.inputs.iter().map(Vec::len).collect();
    let launch = Launch::from_inputs(kernel, &lengths, Overrides::default()).expect("the inputs fit");
    let inputs: Vec<BufferId> =
        kernel.bound_buffers().into_iter().filter(|&id| kernel.buffer(id).decl.access.is_input()).collect();
    launch.satisfies(&kernel.requires, &mut |buffer, index| {
        let element = kernel.buffer(buffer).decl.element;
        let bytes = &case.inputs[inputs.iter().position(|&id| id == buffer)?];
        let chunk = bytes.chunks_exact(element.size()).nth(index as usize);
        chunk.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
    })
}

/// What became of the cases of a test.
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
            // Coarsened kernels, and kernels that ask something of their dispatches, in turns.
            let assume = Assume { dispatch_checks: seed % 2 == 1, ..Assume::no_overrides(&kernel) };
            let mut schedule =
                schedule.clone().with_assumptions(assume).with_coarsening(1 + (seed % 5) as u32);
            schedule.target.slow_division = !seed.is_multiple_of(3);
            let optimized = optimize(kernel.clone(), &schedule);
            self.required += u64::from(!optimized.requires.is_empty());
            if !satisfies(&optimized, case) {
                continue;
            }
            self.satisfied += u64::from(!optimized.requires.is_empty());
            let found = outcome(&optimized, case);
            let names: Vec<&str> = schedule.passes.iter().map(|pass| pass.name()).collect();
            assert!(
                found == expected,
                "seed {seed}, passes {names:?}: expected {expected:?}, found {found:?}"
            );
        }
    }

    /// A test that hardly ran is none: nearly all programs are valid, and requirements that were met were seen.
    fn is_of_use(&self) {
        assert!(self.invalid * 20 <= self.cases, "{self:?}");
        assert!(self.satisfied * 8 >= self.required, "{self:?}");
        assert!(self.cases < 50 || self.satisfied > 0, "{self:?}");
    }
}

#[test]
fn each_pass_alone_changes_no_result() {
    // A target that lacks everything makes decomposition do what it can.
    let target = Target { lacking: Op::ALL.to_vec(), ..Target::default() };
    let alone = |&pass: &Pass| Schedule::of(&[pass]).with_target(target.clone());
    let alone: Vec<Schedule> = Pass::ALL.iter().map(alone).collect();
    let generator = Generator::new(Options::default());
    let mut tally = Tally::default();
    for seed in 0..cases(60) {
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
