//! Runs a case in every way that must give the same result, and reports differences.
//!
//! The expected outcome is that of the interpreter in ascending order on the unchanged program.
//! Everything else is a [`Variation`]: another order of invocations, an optimised kernel, the
//! program after a round trip through text or wire bytes, with dead code or split regions, at
//! another workgroup size, on a backend. Outcomes are compared by bits, or within the bounds that a
//! device with loose floats declares.

use crate::choices::next_random;
use crate::generate::Case;
use crate::metamorphic::{with_dead_code, with_split_regions};
use crate::outcome::{Judge, Outcome, difference};
use crate::shrink::shrink;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::{CompiledPipeline, DispatchConfig, Schedule, VyreBackend, messages, pipeline};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::Overrides;
use vyre_foundation::ops::eval;
use vyre_foundation::optimize::{self, Pass};
use vyre_reference::{Evaluator, FaultKind, Order, RunOptions, run, run_speaking};

/// Longer than any generated program takes; a program that does not end is a finding.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit for shrinking a case.
const SHRINKING: Duration = Duration::from_secs(120);

/// One way to run a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Variation {
    /// The interpreter with another order of invocations.
    Order(Order),
    /// The interpreter on the optimized kernel.
    Optimized(optimize::Schedule),
    /// The program printed as text and parsed again.
    Text,
    /// The program encoded and decoded.
    Wire,
    /// Dead code added, chosen by the seed.
    DeadCode(u64),
    /// Regions split in two.
    SplitRegions,
    /// Another workgroup size.
    Workgroup([u32; 3]),
    /// A backend, through its pipeline.
    Backend {
        /// Index of the backend in [`Runner::backends`].
        backend: usize,
        /// Optimization level.
        schedule: Option<Schedule>,
        /// Another workgroup size.
        workgroup: Option<[u32; 3]>,
    },
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variation::Order(order) => write!(f, "interpreter, order {order:?}"),
            Variation::Optimized(schedule) => {
                let names: Vec<&str> = schedule.passes.iter().map(|pass| pass.name()).collect();
                write!(f, "interpreter, optimized by {}", names.join(" "))
            }
            Variation::Text => f.write_str("program printed as text and read again"),
            Variation::Wire => f.write_str("program encoded and decoded"),
            Variation::DeadCode(seed) => write!(f, "dead code added (seed {seed})"),
            Variation::SplitRegions => f.write_str("regions split"),
            Variation::Workgroup(size) => write!(f, "workgroup size {size:?}"),
            Variation::Backend { schedule, workgroup, .. } => {
                f.write_str("backend")?;
                schedule.iter().try_for_each(|schedule| write!(f, ", {schedule:?} optimization"))?;
                workgroup.iter().try_for_each(|size| write!(f, ", workgroup size {size:?}"))
            }
        }
    }
}

/// A difference between two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The case.
    pub case: Case,
    /// The variation that gave another result.
    pub variation: Variation,
    /// The id of the backend, if one was involved.
    pub backend: Option<&'static str>,
    /// What differs.
    pub difference: String,
}

/// Summary of checking a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Runs compared with the expected outcome.
    pub runs: u64,
    /// Runs that a backend rejected for lack of a capability.
    pub unsupported: u64,
    /// Whether the case produced outputs rather than a trap.
    pub with_outputs: bool,
}

/// Checks cases against the interpreter.
///
/// ```
/// use vyre_conform::differential::Runner;
/// use vyre_conform::generate::{Generator, Options};
/// let case = Generator::new(Options::default()).from_seed(1);
/// let checked = Runner::default().check(&case, 1).map_err(|mismatch| mismatch.difference)?;
/// assert!(checked.runs > 5);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone)]
pub struct Runner {
    /// Backends to compare with the interpreter.
    pub backends: Vec<Arc<dyn VyreBackend>>,
    /// Whether the interpreter's own variations run too, or only the backends.
    pub interpreter: bool,
    /// Evaluator for the interpreter's variations: [`eval`], unless a test injects a bug.
    pub evaluator: Evaluator,
    /// Number of variations per case, drawn by its seed; `None` runs all. Fewer variations per
    /// program allow more programs in the same time.
    pub sample: Option<usize>,
}

impl Default for Runner {
    fn default() -> Runner {
        Runner { backends: Vec::new(), interpreter: true, evaluator: eval, sample: None }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<&str> = self.backends.iter().map(|backend| backend.id()).collect();
        f.debug_struct("Runner").field("backends", &ids).finish_non_exhaustive()
    }
}

impl Runner {
    /// Runs the case in every variation, or in a sample of them; the seed varies orders, dead code
    /// and sizes. Stops at the first mismatch.
    pub fn check(&self, case: &Case, seed: u64) -> Result<Checked, Box<Mismatch>> {
        let mut checked = Checked::default();
        let mut expectations = Expectations::default();
        for variation in self.variations(seed) {
            match self.compare_with(&mut expectations, case, &variation) {
                ComparisonOutcome::Equal { with_outputs } => {
                    checked.runs += 1;
                    checked.with_outputs |= with_outputs;
                }
                ComparisonOutcome::Unsupported => checked.unsupported += 1,
                ComparisonOutcome::Different(difference) => {
                    return Err(Box::new(self.mismatch(case, variation, difference)));
                }
            }
        }
        Ok(checked)
    }

    fn mismatch(&self, case: &Case, variation: Variation, difference: String) -> Mismatch {
        let backend = match variation {
            Variation::Backend { backend, .. } => self.backends.get(backend).map(|backend| backend.id()),
            Variation::Order(_)
            | Variation::Optimized(_)
            | Variation::Text
            | Variation::Wire
            | Variation::DeadCode(_)
            | Variation::SplitRegions
            | Variation::Workgroup(_) => None,
        };
        Mismatch { case: case.clone(), variation, backend, difference }
    }

    /// The variations to compare.
    fn variations(&self, seed: u64) -> Vec<Variation> {
        let sizes = [[64, 1, 1], [1, 1, 1], [7, 1, 1], [3, 2, 2], [32, 2, 1]];
        let size = sizes[(seed % sizes.len() as u64) as usize];
        let own = [
            Variation::Order(Order::Descending),
            Variation::Order(Order::Shuffled(seed)),
            Variation::Order(Order::Interleaved(seed)),
            Variation::Optimized(optimize::Schedule::quick()),
            Variation::Optimized(optimize::Schedule::full()),
            Variation::Optimized(random_schedule(seed)),
            Variation::Text,
            Variation::Wire,
            Variation::DeadCode(seed),
            Variation::SplitRegions,
            Variation::Workgroup(size),
        ];
        let mut variations = if self.interpreter { own.to_vec() } else { Vec::new() };
        let schedules = [None, Some(Schedule::Off), Some(Schedule::Cheap), Some(Schedule::Expensive)];
        for backend in 0..self.backends.len() {
            for schedule in schedules {
                variations.push(Variation::Backend { backend, schedule, workgroup: None });
            }
            variations.push(Variation::Backend { backend, schedule: None, workgroup: Some(size) });
        }
        let mut state = seed;
        while self.sample.is_some_and(|sample| variations.len() > sample.max(1)) {
            let drawn = next_random(&mut state) % variations.len() as u64;
            variations.swap_remove(drawn as usize);
        }
        variations
    }

    /// Compares one variation of a case with the expected outcome.
    pub fn compare(&self, case: &Case, variation: &Variation) -> ComparisonOutcome {
        self.compare_with(&mut Expectations::default(), case, variation)
    }

    fn compare_with(
        &self,
        expectations: &mut Expectations,
        case: &Case,
        variation: &Variation,
    ) -> ComparisonOutcome {
        let kernel = match case.program.validate() {
            Ok(kernel) => kernel,
            Err(faults) => {
                return ComparisonOutcome::Different(format!("the program is not valid: {faults}"));
            }
        };
        let workgroup = match variation {
            Variation::Workgroup(size) => Some(*size),
            Variation::Backend { workgroup, .. } => *workgroup,
            Variation::Order(_)
            | Variation::Optimized(_)
            | Variation::Text
            | Variation::Wire
            | Variation::DeadCode(_)
            | Variation::SplitRegions => None,
        };
        // A shape-free program gives the same result at every size; any other depends on its size.
        let expected_size = if kernel.shape_free { None } else { workgroup };
        let expected = expectations.at(&kernel, case, expected_size);
        let mut judge = Judge::default();
        let found = contained(|| match variation {
            Variation::Order(order) => {
                self.interpret(&kernel, case, RunOptions { order: *order, ..plain(case) })
            }
            Variation::Optimized(schedule) => {
                self.proved(&optimize::optimize(kernel.clone(), schedule), case)
            }
            Variation::Text => self.again(case, crate::filetest::text_round_trip(&case.program)),
            Variation::Wire => self.again(case, crate::filetest::wire_round_trip(&case.program)),
            Variation::DeadCode(seed) => self.again(case, Ok(with_dead_code(&case.program, *seed))),
            Variation::SplitRegions => self.again(case, Ok(with_split_regions(&case.program))),
            Variation::Workgroup(size) => {
                let order = Order::Descending;
                self.interpret(
                    &kernel,
                    case,
                    RunOptions { overrides: sized(Some(*size)), order, ..plain(case) },
                )
            }
            Variation::Backend { backend, schedule, .. } => {
                let Some(backend) = self.backends.get(*backend) else {
                    return Outcome::Unsupported("no such backend".into());
                };
                judge = Judge::new(&backend.device_profile(), [&case.program], &DispatchConfig::default());
                let config = config(case, *schedule, workgroup);
                twice_if_late(|| dispatch(backend, case, &config))
            }
        });
        if let Outcome::Unsupported(_) = found {
            return ComparisonOutcome::Unsupported;
        }
        match difference(&case.program, expected, &found, judge) {
            Some(difference) => ComparisonOutcome::Different(difference),
            None => ComparisonOutcome::Equal { with_outputs: matches!(expected, Outcome::Outputs(_)) },
        }
    }

    /// Whether a valid case still fails under this variation.
    pub fn differs(&self, case: &Case, variation: &Variation) -> bool {
        matches!(self.compare(case, variation), ComparisonOutcome::Different(_))
    }

    /// Shrinks the mismatch to the smallest case that still shows it.
    pub fn shrunk(&self, mismatch: &Mismatch) -> Mismatch {
        // Racing or order-dependent programs can differ legitimately, so shrinking must not end at
        // one. If the case itself counts as one, the interpreter is wrong, and the check would
        // reject every candidate.
        let sound = |case: &Case| races(case).is_empty() && is_deterministic(case);
        let must_be_sound = sound(&mismatch.case);
        let started = Instant::now();
        let mut fails = |case: &Case| {
            started.elapsed() < SHRINKING
                && self.differs(case, &mismatch.variation)
                && (!must_be_sound || sound(case))
        };
        let case = shrink(&mismatch.case, &mut fails);
        match self.compare(&case, &mismatch.variation) {
            ComparisonOutcome::Different(difference) => Mismatch { case, difference, ..mismatch.clone() },
            ComparisonOutcome::Equal { .. } | ComparisonOutcome::Unsupported => mismatch.clone(),
        }
    }

    fn interpret(&self, kernel: &Kernel, case: &Case, options: RunOptions) -> Outcome {
        interpret(kernel, case, &RunOptions { evaluator: self.evaluator, ..options })
    }

    /// The outcome of an optimized kernel; an access wrongly proved in range is a failure.
    fn proved(&self, kernel: &Kernel, case: &Case) -> Outcome {
        let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
        let result =
            run(kernel, &inputs, &RunOptions { sanitize: true, evaluator: self.evaluator, ..plain(case) });
        let wrong = |run: &vyre_reference::Run| {
            run.reports
                .iter()
                .find(|report| report.fault == FaultKind::WrongProof)
                .map(|report| report.to_string())
        };
        match result.as_ref().ok().and_then(wrong) {
            Some(report) => Outcome::Failed(report),
            None => result.into(),
        }
    }

    /// The outcome of a program that must be equivalent to that of the case.
    fn again(&self, case: &Case, program: Result<Program, String>) -> Outcome {
        let kernel = program.and_then(|program| program.validate().map_err(|faults| faults.to_string()));
        match kernel {
            Ok(kernel) => self.interpret(&kernel, case, plain(case)),
            Err(message) => Outcome::Failed(message),
        }
    }
}

/// Cached interpreter outcomes of one case, by workgroup size.
#[derive(Default)]
struct Expectations(Vec<(Option<[u32; 3]>, Outcome)>);

impl Expectations {
    fn at(&mut self, kernel: &Kernel, case: &Case, size: Option<[u32; 3]>) -> &Outcome {
        let known = self.0.iter().position(|(known, _)| *known == size);
        let at = known.unwrap_or_else(|| {
            let options = RunOptions { overrides: sized(size), ..plain(case) };
            self.0.push((size, twice_if_late(|| interpret(kernel, case, &options))));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum ComparisonOutcome {
    /// The outcomes are the same.
    Equal {
        /// Whether they are outputs rather than a trap.
        with_outputs: bool,
    },
    /// The backend lacks something that the program needs.
    Unsupported,
    /// The outcomes differ, as the one-line description says.
    Different(String),
}

/// Turns a panic into a failed outcome, so that one broken pass or backend does not end the search.
fn contained(run: impl FnOnce() -> Outcome) -> Outcome {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Outcome::Failed(format!("panicked: {message}"))
    })
}

/// Retries once after a timeout, which can be due to a busy or suspended machine.
fn twice_if_late(run: impl Fn() -> Outcome) -> Outcome {
    match run() {
        Outcome::Timeout => run(),
        outcome => outcome,
    }
}

/// A random list of passes: any passes in any order must be correct.
fn random_schedule(seed: u64) -> optimize::Schedule {
    let mut state = seed;
    let mut below = |bound: usize| (next_random(&mut state) % bound as u64) as usize;
    let count = 1 + below(8);
    let passes: Vec<Pass> = (0..count).map(|_| Pass::ALL[below(Pass::ALL.len())]).collect();
    optimize::Schedule::of(&passes)
}

fn plain(case: &Case) -> RunOptions {
    RunOptions { subgroup_size: case.subgroup_size, timeout: Some(TIMEOUT), ..RunOptions::default() }
}

fn sized(workgroup: Option<[u32; 3]>) -> Overrides {
    Overrides { workgroup, ..Overrides::default() }
}

fn config(case: &Case, schedule: Option<Schedule>, workgroup: Option<[u32; 3]>) -> DispatchConfig {
    DispatchConfig {
        workgroup_override: workgroup,
        schedule,
        subgroup_size: Some(case.subgroup_size),
        timeout: Some(TIMEOUT),
        ..DispatchConfig::default()
    }
}

/// Runs a kernel on the interpreter.
pub fn interpret(kernel: &Kernel, case: &Case, options: &RunOptions) -> Outcome {
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    run(kernel, &inputs, options).into()
}

/// Runs a case on the interpreter like [`interpret`], including its messages.
pub fn interpret_speaking(case: &Case, options: &RunOptions) -> Outcome {
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let (done, said) = match run_speaking(&case.program, &inputs, options) {
        Ok((done, said)) => (done, said),
        Err(error) => return Err(error).into(),
    };
    let name =
        case.program.validate().map_or_else(|_| String::new(), |kernel| kernel.display_name().to_string());
    let (delivered, prints) = messages::listen(|| messages::tell(&name, said));
    Outcome::from(delivered.map(|()| done.outputs)).with_prints(&case.program, &prints)
}

/// Runs a case on a backend, through the pipeline that the driver compiles for it.
pub fn dispatch(backend: &Arc<dyn VyreBackend>, case: &Case, config: &DispatchConfig) -> Outcome {
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let compiled = pipeline::compile(Arc::clone(backend), &case.program, config);
    let run =
        |pipeline: Arc<dyn CompiledPipeline>| pipeline.dispatch_borrowed(&inputs, &DispatchConfig::default());
    let (outcome, prints) = messages::listen(|| compiled.and_then(run));
    Outcome::from(outcome).with_prints(&case.program, &prints)
}

/// Whether the interpreter gives the same result in several orders.
fn is_deterministic(case: &Case) -> bool {
    let Ok(kernel) = case.program.validate() else { return false };
    let ordered = |order| interpret(&kernel, case, &RunOptions { order, ..plain(case) });
    let first = ordered(Order::Ascending);
    [Order::Descending, Order::Shuffled(1), Order::Shuffled(2)]
        .into_iter()
        .all(|order| ordered(order) == first)
}

/// Sanitizer reports for a case: races, divergent barriers and wrong range proofs. Out-of-range
/// accesses are not reported, since their results are defined and the generator makes them on
/// purpose.
pub fn races(case: &Case) -> Vec<String> {
    let Ok(kernel) = case.program.validate() else { return Vec::new() };
    let inputs: Vec<&[u8]> = case.inputs.iter().map(Vec::as_slice).collect();
    let reports = match run(&kernel, &inputs, &RunOptions { sanitize: true, ..plain(case) }) {
        Ok(done) => done.reports,
        Err(vyre_reference::RunError::Diverged(report)) => vec![*report],
        Err(_) => Vec::new(),
    };
    let matters = |fault: FaultKind| match fault {
        FaultKind::Race | FaultKind::WrongProof | FaultKind::Divergence => true,
        FaultKind::OutOfRange | FaultKind::Unwritten => false,
    };
    reports.into_iter().filter(|report| matters(report.fault)).map(|report| report.to_string()).collect()
}
