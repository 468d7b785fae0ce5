//! `vyre bench`: measures the catalogue's ops against native C and the machine's limits, in one
//! run.
//!
//! Every figure is a ratio within the run: each round runs every contestant once, in random order
//! (`measure.rs`), and a time is divided by the limit's best time of the run, or by another
//! contestant's time in the same round. The limit (`workloads.rs`, `bench/native/limit_*.c`) moves
//! the least number of bytes that the workload has to move, or does its multiply-adds. Results are
//! checked before anything is timed.

mod cold;
mod html;
mod kernel;
mod measure;
mod native;
mod report;
mod workloads;

use crate::files::{self, write};
use crate::output::{Ending, print, warn};
use crate::quantity;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::RowBudget;
use native::Peers;
use report::{BenchReport, Row, SCHEMA};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vyre::Runtime;
use vyre_driver::{VyreBackend, registry};
use workloads::{WORKLOADS, Workload};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each figure is a multiple of the machine's limit, the best time of the run for copying, updating or \
reading the least number of bytes that the workload has to move, or for its multiply-adds, with all \
threads. `C` is plain C from bench/native, compiled by `cc -O3 -march=native` when the benchmark starts; \
rows called `user` are kernels outside the catalogue, with their C (bench/user). In a backend's own column \
the data is resident; `end to end` starts and ends in host memory; `routed` calls the runtime, which \
selects a backend.

Examples:
  vyre bench                                  the whole table, within ten minutes
  vyre bench --quick --only matmul            a first impression of two rows
  vyre bench --kernel blur.vyre --c blur.c --in picture=rand:u8:2^24
  vyre bench --json now.json --compare before.json --html report.html")]
pub(crate) struct Arguments {
    /// Rounds per row; slow rows get fewer
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = at_least_one)]
    rounds: usize,
    /// Time for the rounds of a row, in seconds
    #[arg(long, value_name = "S", default_value_t = 15.0, value_parser = quantity::seconds)]
    seconds: f64,
    /// Time for the whole run, in seconds, divided among the rows; contestants too slow for a row's
    /// share run fewer rounds
    #[arg(long, value_name = "S", default_value_t = 540.0, value_parser = quantity::seconds)]
    limit: f64,
    /// Run few rounds and at most two seconds per row
    #[arg(long)]
    quick: bool,
    /// Also measure the code that a first call gets, before a kernel is known to run often
    #[arg(long)]
    first_code: bool,
    /// Measure only rows whose name contains TEXT; repeatable
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure only this kernel, on inputs from `--in` or from the `// bench --in …` line of its
    /// file
    #[arg(long, value_name = "FILE.vyre", conflicts_with = "only")]
    kernel: Option<PathBuf>,
    /// Compare with this C file, whose `void run(void *const *data, const size_t *count)` gets the
    /// kernel's parameters in order; repeatable, for objects and libraries to link with it
    #[arg(long, value_name = "FILE.c", requires = "kernel")]
    c: Vec<PathBuf>,
    #[command(flatten)]
    conditions: kernel::Conditions,
    /// Measure only these backends [default: all linked backends]
    #[arg(long, value_name = "ID")]
    backend: Vec<String>,
    /// Also write the figures and all samples to this JSON file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Also show the change since the run that wrote this `--json` file
    #[arg(long, value_name = "PATH")]
    compare: Option<PathBuf>,
    /// Also write an HTML page with plots to this file
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Run as the fresh process of a cold-start measurement
    #[arg(long, hide = true, value_name = "ID")]
    cold_start: Option<String>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&rounds| rounds > 0).ok_or_else(|| "write a number of at least 1".into())
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    for path in arguments.json.iter().chain(&arguments.html) {
        // Fail before the run rather than after minutes of measuring.
        if let Err(ending) = files::check_writable(path) {
            return ending;
        }
    }
    let done = match &arguments.cold_start {
        Some(backend) => cold::child(backend),
        None => bench(arguments),
    };
    done.unwrap_or_else(|ending| ending)
}

/// Time budget of the whole run.
struct Budget {
    rounds: usize,
    /// Time for the rounds of a row.
    seconds: f64,
    started: Instant,
    limit: Duration,
    first_code: bool,
}

impl Budget {
    /// Budget of the next row when `rows` rows are left, including that one.
    fn share(&self, rows: usize) -> RowBudget {
        let left = self.limit.saturating_sub(self.started.elapsed()).as_secs_f64();
        // A row that starts after the deadline is still measured.
        let row_seconds = (left / rows.max(1) as f64).max(1.0);
        let Budget { rounds, first_code, .. } = *self;
        RowBudget { rounds, seconds: self.seconds.min(row_seconds), row_seconds, first_code }
    }
}

fn bench(arguments: &Arguments) -> Result<Ending, Ending> {
    let started = Instant::now();
    let earlier = arguments.compare.as_deref().map(read_report).transpose()?;
    let rows = rows(arguments)?;
    let limit = Duration::try_from_secs_f64(arguments.limit)
        .map_err(|error| Ending::Usage(format!("--limit {}: {error}", arguments.limit)))?;
    let seconds = arguments.seconds.clamp(0.1, 3600.0);
    let (rounds, seconds) = match arguments.quick {
        true => (arguments.rounds.clamp(1, 7), seconds.min(2.0)),
        false => (arguments.rounds.clamp(1, 10_000), seconds),
    };
    let budget = Budget { rounds, seconds, started, limit, first_code: arguments.first_code };
    let backends = open_backends(&arguments.backend)?;
    let report = measure_all(&rows, &backends, budget)?;
    if cfg!(debug_assertions) {
        warn("this build is not optimised: build with --release for meaningful figures");
    }
    print(&report.table());
    if let Some(earlier) = earlier {
        print(&format!("\nSince the earlier run:\n\n{}", report.comparison(&earlier)));
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Ending::CannotRun(format!("the figures cannot be written: {error}")))?;
        write(path, text.as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        write(path, html::page(&report).as_bytes())?;
    }
    let wrong = report.rows.iter().flat_map(|row| &row.faults).any(|fault| fault.contains("wrong result"));
    Ok(if wrong { Ending::CheckFailed } else { Ending::Done })
}

/// Source of a row's kernel.
enum RowSource {
    Op(&'static Workload),
    User(&'static str, &'static str),
    Given(Box<kernel::BenchKernel>),
}

impl RowSource {
    fn name(&self) -> String {
        match self {
            RowSource::Op(workload) => workload.name.into(),
            RowSource::User(name, _) => format!("user: {name}"),
            RowSource::Given(kernel) => kernel.name().into(),
        }
    }
}

/// Selects the rows that the arguments ask for.
fn rows(arguments: &Arguments) -> Result<Vec<RowSource>, Ending> {
    if let Some(file) = &arguments.kernel {
        let kernel = kernel::of_file(file, &arguments.c, &arguments.conditions)?;
        return Ok(vec![RowSource::Given(Box::new(kernel))]);
    }
    if !arguments.conditions.is_empty() {
        return Err(Ending::Usage("--in, --set and --within are for --kernel".into()));
    }
    let users = native::USER.iter().map(|(name, text)| RowSource::User(name, text));
    let all: Vec<RowSource> = WORKLOADS.iter().map(RowSource::Op).chain(users).collect();
    let names: Vec<String> = all.iter().map(RowSource::name).collect();
    let is_wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|part| name.contains(part.as_str()))
    };
    let wanted: Vec<RowSource> = all.into_iter().filter(|source| is_wanted(&source.name())).collect();
    if wanted.is_empty() {
        return Err(Ending::Usage(format!("--only matches no row; the rows are: {}", names.join(", "))));
    }
    Ok(wanted)
}

/// Opens the requested backends, or all linked backends except oracles.
fn open_backends(wanted: &[String]) -> Result<Vec<Arc<dyn VyreBackend>>, Ending> {
    let mut backends: Vec<Arc<dyn VyreBackend>> = Vec::new();
    if !wanted.is_empty() {
        for id in wanted {
            backends.push(registry::acquire(id)?.into());
        }
        return Ok(backends);
    }
    for registration in registry::registered_backends_by_precedence_slice() {
        let id = registration.id;
        if !registry::backend_dispatches(id) || registry::backend_is_oracle(id) {
            continue;
        }
        match registration.acquire() {
            Ok(backend) => backends.push(backend.into()),
            Err(error) => warn(&format!("without backend {id}: {error}")),
        }
    }
    Ok(backends)
}

/// Opens a runtime over the same backends, without previously learnt tables.
fn open_runtime(backends: &[Arc<dyn VyreBackend>]) -> Option<Runtime> {
    let ids = backends.iter().map(|backend| backend.id());
    let made = Runtime::builder().backends(ids).without_tables().meet_drivers_first().build();
    made.map_err(|error| warn(&format!("without routed calls: {error}"))).ok()
}

fn measure_all(
    rows: &[RowSource],
    backends: &[Arc<dyn VyreBackend>],
    budget: Budget,
) -> Result<BenchReport, Ending> {
    static STOP: AtomicBool = AtomicBool::new(false);
    crate::stop_on_interrupt(&STOP);
    let peers = Peers::new();
    let mut report = BenchReport {
        schema: SCHEMA,
        processor: processor(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        version: env!("CARGO_PKG_VERSION").into(),
        compiler: peers.as_ref().map_or("no C compiler".into(), |peers| peers.compiler.clone()),
        backends: backends.iter().map(|backend| backend.id().to_string()).collect(),
        ..BenchReport::default()
    };
    let runtime = open_runtime(backends);
    let bar = progress_bar(rows.len());
    for backend in backends {
        bar.set_message(format!("cold start of {}", backend.id()));
        match cold::measure(backend.id(), if budget.rounds < 10 { 3 } else { 9 }) {
            Ok(cold) => report.cold.push(cold),
            Err(fault) => warn(&format!("cold start of {}: {fault}", backend.id())),
        }
    }
    for (number, source) in rows.iter().enumerate() {
        bar.set_message(source.name());
        if bar.is_hidden() {
            let (number, rows, elapsed) = (number + 1, rows.len(), budget.started.elapsed().as_secs());
            warn(&format!("{elapsed:>4} s  row {number} of {rows}: {}", source.name()));
        }
        let mut tick = |share: f64| {
            bar.set_position((100.0 * (number as f64 + share)) as u64);
            !STOP.load(Ordering::Relaxed)
        };
        let effort = budget.share(rows.len() - number);
        let task = match source {
            RowSource::Op(workload) => Ok(workload.task()),
            RowSource::User(name, text) => kernel::of_user(name, text)?.task(backends),
            RowSource::Given(kernel) => kernel.task(backends),
        };
        report.rows.push(match task {
            Ok(task) => measure::row(&task, peers.as_ref(), backends, runtime.as_ref(), effort, &mut tick),
            Err(fault) => Row { name: source.name(), faults: vec![fault], ..Row::default() },
        });
        if STOP.load(Ordering::Relaxed) {
            bar.finish_and_clear();
            return Err(Ending::Interrupted);
        }
    }
    bar.finish_and_clear();
    report.settle_limits();
    Ok(report)
}

fn progress_bar(rows: usize) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(100 * rows as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Name of the processor, where the system reports one.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(
        || format!("unknown {} processor", std::env::consts::ARCH),
        |(_, name)| name.trim().into(),
    )
}

fn read_report(path: &Path) -> Result<BenchReport, Ending> {
    let text = files::read_text(path)?;
    let report: BenchReport = serde_json::from_str(&text)
        .map_err(|error| Ending::Usage(format!("{} is not a result of --json: {error}", path.display())))?;
    if report.schema != SCHEMA {
        let schema = report.schema;
        return Err(Ending::Usage(format!(
            "{} has schema {schema}; this build reads {SCHEMA}",
            path.display()
        )));
    }
    Ok(report)
}
