//! `cargo xtask ulp`: measures the error of the transcendental ops against the true values.
//!
//! On `f32` a unary op is run on all 2^32 inputs and a binary op on a dense stratified sample; on
//! `f64` all are run on samples over all exponents. It evaluates the op's expansion, the code that
//! every strict backend runs. The results go to docs/ulp.json and into the table of docs/ops.md;
//! the tests check that both match the current expansions.

mod block;
mod double;
mod hard_cases;
#[cfg(feature = "precise")]
mod precise;
mod progress;
mod record;
mod reference;
mod sample;
#[cfg(test)]
mod tests;
mod wide;

use block::{Block, LANES};
use indicatif::{ProgressBar, ProgressStyle};
use progress::Progress;
use record::{Measurement, Record};
use reference::{Reference, errors_in_ulp, reference};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vyre_foundation::math;
use vyre_foundation::ops::Op;
use vyre_foundation::types::ValueType;
use wide::WideTally;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Functions to measure [default: all]
    functions: Vec<String>,
    /// Also record a partial measurement; the record includes the number of inputs
    #[arg(long)]
    record: bool,
    /// Take only every Nth input; nothing is recorded unless N is 1 or with `--record`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// Measure the f64 functions at COUNT points each; skip those already measured at as many, and
    /// resume an interrupted measurement
    #[arg(long, value_name = "COUNT")]
    points: Option<u64>,
    /// Check the f64 reference functions at COUNT points each against 256-bit numbers
    #[arg(long, value_name = "COUNT")]
    reference: Option<u64>,
    /// Number of threads [default: number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// Number of points at which a binary function is measured.
const PAIRS: u64 = 1_000_000_000;

/// Measures the functions one after another, prints each result and records it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let chosen =
        |op: &Op| arguments.functions.is_empty() || arguments.functions.iter().any(|f| f == op.row().name);
    if let Some(unknown) =
        arguments.functions.iter().find(|name| !expanded().any(|op| op.row().name == **name))
    {
        return Err(format!("no op with an expansion is called `{unknown}`"));
    }
    let threads =
        arguments.threads.or(std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    if let Some(points) = arguments.reference {
        return check_reference(expanded().filter(chosen), points, threads);
    }
    if let Some(points) = arguments.points {
        return run_wide(expanded().filter(chosen), points, threads);
    }
    let mut faults = Vec::new();
    for op in expanded().filter(chosen) {
        let start = Instant::now();
        let measurement = measure(op, arguments.stride, threads);
        println!("{measurement} in {:.0} s", start.elapsed().as_secs_f64());
        if !measurement.max_ulp.is_finite() {
            faults.push(format!("{} has a wrong special value", op.row().name));
        }
        if arguments.stride == 1 || arguments.record {
            Record::read()?.with(measurement).write()?;
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

#[cfg(feature = "precise")]
use precise::check_reference;

/// Checks the reference in a build with 256-bit numbers; other builds leave them out to save time.
#[cfg(not(feature = "precise"))]
fn check_reference(ops: impl Iterator<Item = Op>, points: u64, threads: usize) -> Result<(), String> {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.current_dir(crate::root()).args(["run", "--quiet", "--package", "xtask", "--features", "precise"]);
    cargo.args(["--", "ulp", "--reference", &points.to_string(), "--threads", &threads.to_string()]);
    let status = cargo.args(ops.map(|op| op.row().name)).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err("the reference was not confirmed".into()) }
}

/// Number of `f64` points between two saves of the progress.
const CHUNK: u64 = 1 << 19;

/// Measures functions on `f64`. Progress is saved, so that an interrupted run resumes where it
/// stopped.
fn run_wide(ops: impl Iterator<Item = Op>, points: u64, threads: usize) -> Result<(), String> {
    let mut faults = Vec::new();
    for op in ops {
        let fingerprint = math::fingerprint(op, ValueType::F64).unwrap_or_default();
        let known = Record::read()?;
        let known = known.functions.get(&record::wide_name(op));
        if known.is_some_and(|known| known.covers(&fingerprint, points)) {
            continue;
        }
        let start = Instant::now();
        let measurement = measure_wide(op, fingerprint, points, threads)?;
        println!("{measurement} in {:.0} s", start.elapsed().as_secs_f64());
        let bound = op.expansion_error(ValueType::F64).unwrap_or(0.0);
        if measurement.max_ulp > f64::from(bound) {
            faults.push(format!("{} is off by more than {bound} ULP on f64", op.row().name));
        }
        Record::read()?.with(measurement).write()?;
        Progress::remove(op.row().name);
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Measures a function at its hard cases and at `points` points, continuing from saved progress.
fn measure_wide(op: Op, fingerprint: String, points: u64, threads: usize) -> Result<Measurement, String> {
    let name = op.row().name;
    let fresh =
        || Progress { tally: WideTally::of_hard_cases(op), fingerprint: fingerprint.clone(), done: 0 };
    let mut progress = Progress::read(name, &fingerprint).unwrap_or_else(fresh);
    let bar = progress_bar(points, name);
    while progress.done < points {
        bar.set_position(progress.done);
        if bar.is_hidden() {
            println!("{name} f64: {} of {points} points", progress.done);
        }
        let end = points.min(progress.done + CHUNK);
        progress.tally.join(wide::measure(op, progress.done..end, threads));
        progress.done = end;
        progress.write(name)?;
    }
    bar.finish_and_clear();
    Ok(Measurement::wide(op, progress.done, progress.tally))
}

fn progress_bar(total: u64, name: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(name);
    match ProgressStyle::with_template("{msg:8} {wide_bar} {percent:>3}% {eta:>4}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Ops whose expansion is not exact, in table order.
fn expanded() -> impl Iterator<Item = Op> {
    Op::ALL.iter().copied().filter(|op| op.row().expansion_error.is_some_and(|bounds| bounds[0] > 0.0))
}

/// Measures one function against the true one, over every `stride`th input.
fn measure(op: Op, stride: u64, threads: usize) -> Measurement {
    let Some(reference) = reference(op) else { unreachable!("{op:?} has no expansion") };
    let total = match reference {
        Reference::Unary(_) => (1u64 << 32).div_ceil(stride),
        // Each number covers an input and its negative.
        Reference::Even(_) | Reference::Odd(_) => (1u64 << 31).div_ceil(stride),
        Reference::Binary(_) => PAIRS.div_ceil(stride),
    };
    const PIECE: u64 = 1 << 18;
    let bar = progress_bar(total, op.row().name);
    let next = AtomicU64::new(0);
    let worst = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut sweep = Sweep::new(op, reference, stride);
                loop {
                    let first = next.fetch_add(PIECE, Ordering::Relaxed);
                    if first >= total {
                        break;
                    }
                    let end = total.min(first + PIECE);
                    sweep.piece(first, end);
                    bar.inc(end - first);
                }
                if let Ok(mut worst) = worst.lock() {
                    worst.join(sweep.tally);
                }
            });
        }
    });
    bar.finish_and_clear();
    let tally = worst.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    Measurement::new(op, tally)
}

/// Worst error so far and its inputs, and how many results were the nearest `f32`.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    inputs: u64,
    nearest: u64,
    error: f64,
    /// Bits of the inputs, in operand order; the smallest if several are equally bad, so that the
    /// result does not depend on threads.
    at: [u32; 2],
}

impl Tally {
    fn add_block(&mut self, errors: &[f64], at: impl Fn(usize) -> [u32; 2]) {
        self.inputs += errors.len() as u64;
        self.nearest += errors.iter().filter(|error| **error <= 0.5).count() as u64;
        let worst = errors.iter().fold(0.0, |worst, &error| if error > worst { error } else { worst });
        if worst >= self.error {
            errors.iter().enumerate().for_each(|(lane, &error)| self.add(error, at(lane)));
        }
    }

    fn add(&mut self, error: f64, at: [u32; 2]) {
        if error > self.error || (error == self.error && error > 0.0 && at < self.at) {
            (self.error, self.at) = (error, at);
        }
    }

    fn join(&mut self, other: Tally) {
        self.inputs += other.inputs;
        self.nearest += other.nearest;
        self.add(other.error, other.at);
    }
}

/// One thread's share of a measurement.
struct Sweep {
    op: Op,
    reference: Reference,
    stride: u64,
    block: Block<u32>,
    tally: Tally,
}

impl Sweep {
    fn new(op: Op, reference: Reference, stride: u64) -> Sweep {
        let Some(expansion) = math::expansion(op, ValueType::F32) else {
            unreachable!("{op:?} has no expansion")
        };
        Sweep { op, reference, stride, block: Block::new(expansion), tally: Tally::default() }
    }

    /// Measures the inputs numbered `first..end`.
    fn piece(&mut self, first: u64, end: u64) {
        for start in (first..end).step_by(LANES) {
            let count = LANES.min((end - start) as usize);
            let inputs: [u32; LANES] =
                std::array::from_fn(|lane| ((start + lane as u64) * self.stride) as u32);
            let exactly = |exact: fn(f64) -> f64| inputs.map(|x| exact(f32::from_bits(x).into()));
            match self.reference {
                Reference::Unary(exact) => self.unary(inputs, &exactly(exact), count),
                Reference::Even(exact) => {
                    let exact = exactly(exact);
                    self.unary(inputs, &exact, count);
                    self.unary(inputs.map(negative), &exact, count);
                }
                Reference::Odd(exact) => {
                    let exact = exactly(exact);
                    self.unary(inputs, &exact, count);
                    self.unary(inputs.map(negative), &exact.map(|exact| -exact), count);
                }
                Reference::Binary(exact) => self.binary(start, exact, count),
            }
        }
    }

    fn unary(&mut self, inputs: [u32; LANES], exact: &[f64; LANES], count: usize) {
        *self.block.input(0) = inputs;
        let errors = errors_in_ulp(&self.block.run(), exact);
        self.tally.add_block(&errors[..count], |lane| [inputs[lane], 0]);
    }

    fn binary(&mut self, start: u64, exact: fn(f64, f64) -> f64, count: usize) {
        let pairs: [(f32, f32); LANES] =
            std::array::from_fn(|lane| sample::pair(self.op, start + lane as u64));
        *self.block.input(0) = pairs.map(|(x, _)| x.to_bits());
        *self.block.input(1) = pairs.map(|(_, y)| y.to_bits());
        let exact = pairs.map(|(x, y)| exact(x.into(), y.into()));
        let errors = errors_in_ulp(&self.block.run(), &exact);
        let at = |lane: usize| [pairs[lane].0.to_bits(), pairs[lane].1.to_bits()];
        self.tally.add_block(&errors[..count], at);
    }
}

/// The bits of -x.
fn negative(bits: u32) -> u32 {
    bits ^ 0x8000_0000
}
