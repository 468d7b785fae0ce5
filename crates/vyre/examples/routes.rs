//! Routed calls compared with each single backend: `cargo run --release -p vyre --example routes`,
//! with the features of the backends to compare; `-- sincos 65536` prints only the rows of that
//! kernel or size, `-- explain` also prints the router's data for rows that are behind.
//!
//! For each kernel and size, routed calls alone first warm up the router. Then blocks of routed
//! calls and blocks of the same calls on each backend by name alternate in random order. The calls
//! by name go through a second runtime with the same backends, so that they teach the router
//! nothing, and all calls use the same memory. A block contains as many calls as take [`BLOCK`], so
//! that the times include occasional routing work (re-measurements, probes, checks). The comparison
//! is between medians over the blocks of the time per call, as the caller sees it; a row is
//! measured until its medians are known to 1%, or for [`LONGEST_MEASURED`]. A backend that is far
//! slower than the best after a few blocks is dropped. `goes to` is where the router sends its
//! calls at the end; the last column is the routed time over that of the fastest single backend.

use std::time::{Duration, Instant};
use vyre::prelude::*;
use vyre::{Argument, Reason};

const KERNELS: &[(&str, &str)] = &[
    (
        "add",
        "kernel add(x: read f32[], y: read f32[], z: output f32[]) { z[invocation.x] = x[invocation.x] + y[invocation.x] }",
    ),
    (
        "saxpy",
        "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) { y[invocation.x] = a * x[invocation.x] + y[invocation.x] }",
    ),
    (
        "norm",
        "kernel norm(x: read f32[], y: read f32[], r: output f32[]) { let i = invocation.x; r[i] = sqrt(x[i] * x[i] + y[i] * y[i]) }",
    ),
    ("exp", "kernel exp_all(x: read f32[], r: output f32[]) { r[invocation.x] = exp(x[invocation.x]) }"),
    (
        "sincos",
        "kernel sincos(x: read f32[], r: output f32[]) { let v = x[invocation.x]; r[invocation.x] = sin(v) + cos(v) }",
    ),
    (
        "gauss",
        "kernel gauss(x: read f32[], r: output f32[]) { let v = x[invocation.x]; r[invocation.x] = 0.3989423 * exp(-0.5 * v * v) + erf(v) }",
    ),
    (
        "clamp",
        "kernel clamp_all(x: read i32[], r: output i32[]) { r[invocation.x] = clamp(x[invocation.x], -8i32, 8i32) }",
    ),
    (
        "hash",
        "kernel hash(x: read u32[], r: output u32[]) { let h = x[invocation.x] * 0xcc9e2d51; h = rotate_left(h, 15) * 0x1b873593; h ^= h >> 16; r[invocation.x] = h * 0x85ebca6b }",
    ),
    (
        "gather",
        "kernel gather(x: read f32[], n: read u32[], r: output f32[]) { r[invocation.x] = x[n[invocation.x] % len(x)] }",
    ),
    (
        "stencil",
        "kernel stencil(x: read f32[], r: output f32[]) { let i = invocation.x; r[i] = 0.25 * x[i - 1] + 0.5 * x[i] + 0.25 * x[i + 1] }",
    ),
    (
        "poly",
        "kernel poly(x: read f32[], r: output f32[]) { let v = x[invocation.x]; let s = 0.0; for k in 0..64 { s = s * v + f32(k) }; r[invocation.x] = s }",
    ),
    (
        "collatz",
        "kernel collatz(x: read u32[], r: output u32[]) { let n = x[invocation.x] % 64 + 1; let k = 0; while n > 1 && k < 128 { if n % 2 == 0 { n /= 2 } else { n = 3 * n + 1 }; k += 1 }; r[invocation.x] = k }",
    ),
];
const SIZES: [u32; 4] = [1 << 8, 1 << 12, 1 << 16, 1 << 20];
/// How long each row is warmed up, and measured.
const WARM_UP: Duration = Duration::from_millis(2500);
const MEASURED: Duration = Duration::from_millis(1500);
const LONGEST_MEASURED: Duration = Duration::from_secs(6);
const FEWEST_ROUNDS: usize = 31;
/// Target relative error of the medians.
const PRECISE: f64 = 0.01;
/// Duration of a block of calls.
const BLOCK: Duration = Duration::from_micros(200);
/// After `FEWEST_BLOCKS` blocks, a backend that is `FAR_SLOWER` times slower than the best is left
/// out.
const FEWEST_BLOCKS: usize = 5;
const FAR_SLOWER: f64 = 1.5;
/// Allowed ratio of a row's routed time to its best single backend.
const BOUND: f64 = 1.05;

fn main() -> Result<(), BackendError> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let explains = wanted.iter().any(|word| word == "explain");
    let (sizes, names): (Vec<&String>, Vec<&String>) =
        wanted.iter().filter(|word| *word != "explain").partition(|word| word.parse::<u32>().is_ok());
    let is_wanted = |words: &[&String], word: &str| words.is_empty() || words.iter().any(|own| *own == word);
    let runtime = Runtime::builder().without_tables().meet_drivers_first().build()?;
    let twin = Runtime::builder().without_tables().helper(None).meet_drivers_first().build()?;
    let backends: Vec<&str> = runtime.backends().collect();
    runtime
        .refused()
        .iter()
        .for_each(|refused| println!("{} is not here: {}", refused.backend, refused.reason));
    let columns: String = backends.iter().map(|backend| format!("{backend:>13}")).collect();
    println!("{:<9}{:>9}{:>13}{columns}  {:<10} over best", "kernel", "elements", "routed", "goes to");
    let mut ratios = Vec::new();
    for (name, source) in KERNELS.iter().filter(|(name, _)| is_wanted(&names, name)) {
        let (routed, named) = (runtime.load(*source)?, twin.load(*source)?);
        for elements in SIZES.into_iter().filter(|elements| is_wanted(&sizes, &elements.to_string())) {
            let memory = generated(&routed, elements);
            let mut subject = Subject { routed: &routed, named: &named, memory };
            let ratio = row([&runtime, &twin], name, &mut subject, &backends)?;
            if explains && ratio > BOUND {
                println!("{}", routed.explain(elements as usize));
            }
            ratios.push(ratio);
        }
    }
    let (worst, behind) =
        (ratios.iter().copied().fold(0.0, f64::max), ratios.iter().filter(|&&ratio| ratio > BOUND));
    println!(
        "{} of {} rows are more than 5% from their best single backend; the worst is {:+.1}%",
        behind.count(),
        ratios.len(),
        100.0 * (worst - 1.0)
    );
    Ok(())
}

/// A program in both runtimes, and the memory that it is called on.
struct Subject<'a> {
    routed: &'a Routine,
    named: &'a Routine,
    memory: Vec<Vec<u8>>,
}

impl Subject<'_> {
    /// Makes a call on this backend, or a routed one.
    fn run(&mut self, backend: Option<&str>) -> Result<Report, BackendError> {
        let routine = if backend.is_some() { self.named } else { self.routed };
        let mut call = routine.call();
        for (buffer, bytes) in routine.program().buffers().iter().zip(&mut self.memory) {
            let written = buffer.access.is_output();
            let argument = if written { Argument::bytes_mut(bytes) } else { Argument::bytes(bytes) };
            call = call.bind(&buffer.name, argument);
        }
        match backend {
            Some(backend) => call.on(backend).run(),
            None => call.run(),
        }
    }

    /// Makes routed calls until one is not a probe.
    fn incumbent(&mut self) -> Result<Report, BackendError> {
        loop {
            let report = self.run(None)?;
            if report.why != Reason::Probe {
                return Ok(report);
            }
        }
    }
}

/// Memory for the program's buffers, with `elements` elements each unless the program fixes the
/// length.
fn generated(routine: &Routine, elements: u32) -> Vec<Vec<u8>> {
    let number = |element: DataType, k: u32| {
        let bits = k.wrapping_mul(0x9E37_79B1);
        if element == DataType::F32 { (bits as f32 / u32::MAX as f32).to_bits() } else { bits }
    };
    let buffer = |element: DataType, count: u32| {
        let count = if count > 0 { count } else { elements };
        (0..count).flat_map(|k| number(element, k).to_le_bytes()).collect()
    };
    routine.program().buffers().iter().map(|decl| buffer(decl.element, decl.count)).collect()
}

/// One contestant: routed calls, or calls on one backend.
struct Column<'a> {
    backend: Option<&'a str>,
    calls: u32,
    /// Nanoseconds per call for each block.
    blocks: Vec<f64>,
}

impl<'a> Column<'a> {
    /// `None` if the backend cannot run the program.
    fn new(backend: Option<&'a str>, subject: &mut Subject<'_>) -> Option<Column<'a>> {
        let mut column = Column { backend, calls: 1, blocks: Vec::new() };
        // The first block warms up.
        let times = [(); 4].map(|()| column.block(subject).ok());
        let call = times.into_iter().skip(1).flatten().fold(f64::INFINITY, f64::min);
        column.calls = (BLOCK.as_nanos() as f64 / call).clamp(1.0, 4096.0) as u32;
        call.is_finite().then_some(column)
    }

    /// Runs a block and returns the time per call.
    fn block(&self, subject: &mut Subject<'_>) -> Result<f64, BackendError> {
        let start = Instant::now();
        for _ in 0..self.calls {
            subject.run(self.backend)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(self.calls))
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    fn quantile(&self, part: f64) -> f64 {
        let mut blocks = self.blocks.clone();
        blocks.sort_unstable_by(f64::total_cmp);
        blocks.get((blocks.len() as f64 * part) as usize).copied().unwrap_or(f64::INFINITY)
    }

    /// Relative standard error of the median, from the middle half of the blocks.
    fn error(&self) -> f64 {
        let spread = (self.quantile(0.75) - self.quantile(0.25)) / self.median();
        0.93 * spread / (self.blocks.len() as f64).sqrt()
    }
}

/// Prints a row and returns the routed time over the best.
fn row(
    runtimes: [&Runtime; 2],
    name: &str,
    subject: &mut Subject<'_>,
    backends: &[&str],
) -> Result<f64, BackendError> {
    warm_up(subject, None, WARM_UP)?;
    let mut columns = vec![Column::new(None, subject)];
    for backend in backends {
        // A backend that cannot run the program has no column.
        let _ = warm_up(subject, Some(backend), WARM_UP / 6);
        columns.push(Column::new(Some(backend), subject));
    }
    runtimes.into_iter().for_each(Runtime::settle);
    measure(&mut columns, subject)?;
    let last = subject.incumbent()?;
    let medians: Vec<Option<f64>> =
        columns.iter().map(|column| column.as_ref().map(Column::median)).collect();
    let best = medians[1..].iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let routed = medians[0].unwrap_or(f64::INFINITY);
    let cell = |time: &Option<f64>| time.map_or("-".into(), |time| format!("{:.2} us", time / 1e3));
    let cells: String = medians.iter().map(|time| format!("{:>13}", cell(time))).collect();
    println!(
        "{name:<9}{:>9}{cells}  {:<10} {:+.1}%",
        last.elements,
        last.backend,
        100.0 * (routed / best - 1.0)
    );
    Ok(routed / best)
}

fn warm_up(subject: &mut Subject<'_>, backend: Option<&str>, time: Duration) -> Result<(), BackendError> {
    let began = Instant::now();
    while began.elapsed() < time {
        subject.run(backend)?;
    }
    Ok(())
}

/// Runs blocks of all columns, in a different order each round: a block is affected by the caches
/// and clocks that the previous one left, so no column may always follow the same other one.
fn measure(columns: &mut [Option<Column<'_>>], subject: &mut Subject<'_>) -> Result<(), BackendError> {
    let mut order: Vec<usize> = (0..columns.len()).filter(|&k| columns[k].is_some()).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let (mut rounds, began, mut least) = (0, Instant::now(), MEASURED);
    while began.elapsed() < least || rounds < FEWEST_ROUNDS {
        for k in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(k, (random >> 33) as usize % (k + 1));
        }
        for &k in &order {
            if let Some(column) = &mut columns[k] {
                let time = column.block(subject)?;
                column.blocks.push(time);
            }
        }
        rounds += 1;
        if rounds == FEWEST_BLOCKS {
            let medians: Vec<f64> =
                columns.iter().map(|column| column.as_ref().map_or(f64::INFINITY, Column::median)).collect();
            let best = medians[1..].iter().copied().fold(f64::INFINITY, f64::min);
            order.retain(|&k| k == 0 || medians[k] <= FAR_SLOWER * best);
        }
        if began.elapsed() >= least && least < LONGEST_MEASURED {
            let errors = order.iter().filter_map(|&k| columns[k].as_ref().map(Column::error));
            least += if errors.fold(0.0, f64::max) > PRECISE { MEASURED / 4 } else { Duration::ZERO };
        }
    }
    Ok(())
}
