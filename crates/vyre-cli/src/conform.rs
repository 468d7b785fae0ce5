//! `vyre conform`: runs generated programs in every way that must give the same result.
//!
//! Workers take seeds in order; each generates the program of its seed and compares it. A mismatch
//! is shrunk and written as a filetest, under a temporary name first, so that an interrupted run
//! leaves only complete files.

use crate::files;
use crate::output::{Ending, OutputFormat, Paint, painted, print, progress_bar, warn};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vyre::unstable::opening::meet_unknown_drivers;
use vyre_conform::differential::{Mismatch, Runner};
use vyre_conform::filetest;
use vyre_conform::generate::{Generator, Options};
use vyre_driver::{VyreBackend, registry};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every program runs on the interpreter and on the backend, with each optimizer schedule and at several \
workgroup sizes; for an oracle such as cpu-ref also in several orders of invocations, after a round trip \
through text and wire bytes, and with changes that must not affect results. Results are compared by bits, \
or within the bounds that the device declares.

Examples:
  vyre conform --backend cpu-ref --count 2000
  vyre conform --backend cpu --seconds 600 --out failures
  vyre conform --backend cpu --count 100000 --sample 1 --statements 10")]
pub(crate) struct Arguments {
    /// Backend to compare with the interpreter
    #[arg(long, value_name = "ID")]
    backend: String,
    /// Number of programs [default: 1000, or no limit with --seconds]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// First seed; the same seed gives the same programs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder for failures, one filetest each
    #[arg(long, value_name = "DIR", default_value = "conform-failures")]
    out: PathBuf,
    /// Stop after this many mismatches
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_failures: usize,
    /// Programs to compare in parallel [default: number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run each program in N of the ways, drawn by its seed, instead of in all, to cover more
    /// programs in the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Approximate number of statements per program; smaller programs compile faster, so that more
    /// fit in the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    statements: Option<u32>,
    /// Programs about indices only: accesses that a launch proves in range or not, with hostile
    /// sizes
    #[arg(long)]
    indices: bool,
    /// Print JSON instead of text, without progress
    #[arg(long)]
    json: bool,
}

/// Number of programs when neither a count nor a time is specified: the number that the README's
/// example runs.
const DEFAULT_COUNT: u64 = 1000;

/// State shared by all workers.
struct Session<'a> {
    arguments: &'a Arguments,
    runner: Runner,
    generator: Generator,
    stop: &'a AtomicBool,
    deadline: Option<Instant>,
    limit: u64,
    next: AtomicU64,
    totals: Mutex<Totals>,
    bar: ProgressBar,
}

#[derive(Default)]
struct Totals {
    programs: u64,
    runs: u64,
    unsupported: u64,
    with_outputs: u64,
    failures: Vec<Failure>,
}

struct Failure {
    seed: u64,
    what: String,
    difference: String,
    file: Result<PathBuf, String>,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    search(arguments).unwrap_or_else(|ending| ending)
}

fn search(arguments: &Arguments) -> Result<Ending, Ending> {
    meet_unknown_drivers(&[&arguments.backend]);
    let backend: Arc<dyn VyreBackend> = registry::acquire(&arguments.backend)?.into();
    let mut options = Options::for_backend(&*backend);
    options.max_statements = arguments.statements.unwrap_or(options.max_statements);
    options.indices = arguments.indices;
    let generator = Generator::new(options);
    let interpreter = registry::backend_is_oracle(backend.id());
    static STOP: AtomicBool = AtomicBool::new(false);
    crate::stop_on_interrupt(&STOP);
    let started = Instant::now();
    let seconds = arguments.seconds.map(Duration::try_from_secs_f64).transpose();
    let seconds = seconds.map_err(|error| Ending::Usage(format!("--seconds: {error}")))?;
    let session = Session {
        runner: Runner {
            backends: vec![backend],
            interpreter,
            sample: arguments.sample.map(|sample| usize::try_from(sample).unwrap_or(usize::MAX)),
            ..Runner::default()
        },
        generator,
        stop: &STOP,
        deadline: seconds.and_then(|seconds| started.checked_add(seconds)),
        limit: arguments.count.unwrap_or(if seconds.is_some() { u64::MAX } else { DEFAULT_COUNT }),
        next: AtomicU64::new(0),
        totals: Mutex::new(Totals::default()),
        bar: progress(arguments),
        arguments,
    };
    // A panic in a pass or backend is reported as a mismatch, without the default panic message.
    let usual_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let all = || std::thread::available_parallelism().map_or(1, |jobs| jobs.get());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.unwrap_or_else(all).max(1) {
            scope.spawn(|| session.work());
        }
    });
    std::panic::set_hook(usual_hook);
    session.bar.finish_and_clear();
    Ok(session.finish(started.elapsed()))
}

fn progress(arguments: &Arguments) -> ProgressBar {
    match arguments.count {
        None if arguments.seconds.is_some() => {
            let bar = progress_bar(0, "programs", OutputFormat::of(arguments.json));
            bar.unset_length();
            bar
        }
        count => progress_bar(count.unwrap_or(DEFAULT_COUNT), "programs", OutputFormat::of(arguments.json)),
    }
}

impl Session<'_> {
    fn work(&self) {
        while !self.is_over() {
            let offset = self.next.fetch_add(1, Ordering::Relaxed);
            if offset >= self.limit {
                return;
            }
            let seed = self.arguments.seed.wrapping_add(offset);
            let result = self.runner.check(&self.generator.from_seed(seed), seed);
            // Results recorded before another worker panicked still count.
            let mut totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            totals.programs += 1;
            self.bar.inc(1);
            match result {
                Ok(checked) => {
                    totals.runs += checked.runs;
                    totals.unsupported += checked.unsupported;
                    totals.with_outputs += u64::from(checked.with_outputs);
                }
                Err(mismatch) => {
                    drop(totals);
                    self.record(seed, &mismatch);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let failures = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).failures.len();
        self.stop.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || failures >= self.arguments.max_failures
    }

    fn record(&self, seed: u64, mismatch: &Mismatch) {
        let small = self.runner.shrunk(mismatch);
        let what = match small.backend {
            Some(id) => format!("{id}: {}", small.variation),
            None => small.variation.to_string(),
        };
        let file = self.write(seed, &small, &what);
        let failure = Failure { seed, what, difference: small.difference, file };
        if !self.arguments.json {
            let head = painted("mismatch", Paint::Red);
            self.bar.suspend(|| warn(&format!("{head} {}", failure.describe())));
        }
        let mut totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        totals.failures.push(failure);
        self.bar.set_message(format!("{} mismatches", totals.failures.len()));
    }

    fn write(&self, seed: u64, mismatch: &Mismatch, what: &str) -> Result<PathBuf, String> {
        let notes = [format!("Found by `vyre conform`, seed {seed}; {what}: {}", mismatch.difference)];
        let text = filetest::write(&mismatch.case, &notes)?;
        let name = format!("{}-{seed}.vyre", self.arguments.backend.replace(':', "-"));
        let path = self.arguments.out.join(name);
        std::fs::create_dir_all(&self.arguments.out).map_err(|error| error.to_string())?;
        files::replace(&path, text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(path)
    }

    fn finish(self, elapsed: Duration) -> Ending {
        let interrupted = self.stop.load(Ordering::Relaxed);
        let totals = self.totals.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.arguments.json {
            print(&totals.to_json(self.arguments, elapsed).to_string());
        } else {
            print(&totals.summary(self.arguments, elapsed));
        }
        match (totals.failures.is_empty(), interrupted) {
            (false, _) => Ending::CheckFailed,
            (true, true) => Ending::Interrupted,
            (true, false) => Ending::Done,
        }
    }
}

impl Failure {
    fn describe(&self) -> String {
        let file = match &self.file {
            Ok(path) => format!("written to {}", path.display()),
            Err(message) => format!("not written: {message}"),
        };
        format!("seed {}, {}: {}; {file}", self.seed, self.what, self.difference)
    }
}

impl Totals {
    fn summary(&self, arguments: &Arguments, elapsed: Duration) -> String {
        let Totals { programs, runs, unsupported, with_outputs, failures } = self;
        format!(
            "{}: {programs} programs from seed {}, {runs} comparisons, {unsupported} unsupported, {with_outputs} with \
             outputs, {} mismatches, {:.1} s",
            arguments.backend,
            arguments.seed,
            failures.len(),
            elapsed.as_secs_f64()
        )
    }

    fn to_json(&self, arguments: &Arguments, elapsed: Duration) -> serde_json::Value {
        let failure = |failure: &Failure| {
            serde_json::json!({
                "seed": failure.seed,
                "variation": failure.what,
                "difference": failure.difference,
                "file": failure.file.as_ref().ok(),
            })
        };
        serde_json::json!({
            "backend": arguments.backend,
            "seed": arguments.seed,
            "programs": self.programs,
            "comparisons": self.runs,
            "unsupported": self.unsupported,
            "with_outputs": self.with_outputs,
            "seconds": elapsed.as_secs_f64(),
            "mismatches": self.failures.iter().map(failure).collect::<serde_json::Value>(),
        })
    }
}
