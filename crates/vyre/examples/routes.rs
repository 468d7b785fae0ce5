//! Routed calls against each single backend: `cargo run --release -p vyre --example routes`, with the features of the
//! backends to compare; `-- sincos 65536` prints only the rows of that kernel or size.
//!
//! For each kernel and size: the router is warmed up by calls, then routed calls and calls on each backend by name are timed,
//! each round in another random order, and the medians printed. Times are from before a call to after it, as its caller sees
//! them. The last column is the routed time over that of the fastest single backend.

use std::time::{Duration, Instant};
use vyre::Rehearsal;
use vyre::prelude::*;

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
const WARM_UP: Duration = Duration::from_millis(600);
const MEASURED: Duration = Duration::from_millis(600);
const FEWEST_ROUNDS: usize = 15;

fn main() -> Result<(), BackendError> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let (sizes, names): (Vec<&String>, Vec<&String>) =
        wanted.iter().partition(|word| word.parse::<u32>().is_ok());
    let is_wanted = |words: &[&String], word: &str| words.is_empty() || words.iter().any(|own| *own == word);
    let runtime = Runtime::builder().without_tables().build()?;
    let backends: Vec<&str> = runtime.backends().collect();
    runtime
        .refused()
        .iter()
        .for_each(|refused| println!("{} is not here: {}", refused.backend, refused.reason));
    let columns: String = backends.iter().map(|backend| format!("{backend:>13}")).collect();
    println!("{:<9}{:>9}{:>13}{columns}  {:<10} over best", "kernel", "elements", "routed", "goes to");
    let mut worst: f64 = 0.0;
    for (name, source) in KERNELS.iter().filter(|(name, _)| is_wanted(&names, name)) {
        let routine = runtime.load(*source)?;
        for elements in SIZES.into_iter().filter(|elements| is_wanted(&sizes, &elements.to_string())) {
            let ratio = row(&runtime, name, &mut routine.rehearse(elements), &backends)?;
            worst = worst.max(ratio);
        }
    }
    println!("the worst row is {:+.1}% from its best single backend", 100.0 * (worst - 1.0));
    Ok(())
}

/// Prints a row, and gives the routed time over the best.
fn row(
    runtime: &Runtime,
    name: &str,
    rehearsal: &mut Rehearsal,
    backends: &[&str],
) -> Result<f64, BackendError> {
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        rehearsal.run()?;
    }
    runtime.settle();
    let usable: Vec<bool> = backends.iter().map(|backend| rehearsal.run_on(backend).is_ok()).collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); backends.len() + 1];
    // What ran just before a call leaves caches and clocks behind; no column may always follow the same other one.
    let mut order: Vec<usize> = (0..=backends.len()).filter(|&k| k == 0 || usable[k - 1]).collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let (mut last, began) = (rehearsal.run()?, Instant::now());
    while began.elapsed() < MEASURED || times[0].len() < FEWEST_ROUNDS {
        for k in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(k, (random >> 33) as usize % (k + 1));
        }
        for &k in &order {
            let start = Instant::now();
            if k == 0 {
                last = rehearsal.run()?;
            } else {
                rehearsal.run_on(backends[k - 1])?;
            }
            times[k].push(start.elapsed());
        }
    }
    let medians: Vec<Option<f64>> = times.into_iter().map(median).collect();
    let best = medians[1..].iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let routed = medians[0].unwrap_or(f64::INFINITY);
    let cell = |time: &Option<f64>| time.map_or("-".into(), |time| format!("{:.1} us", time / 1e3));
    let cells: String = medians.iter().map(|time| format!("{:>13}", cell(time))).collect();
    println!(
        "{name:<9}{:>9}{cells}  {:<10} {:+.1}%",
        last.elements,
        last.backend,
        100.0 * (routed / best - 1.0)
    );
    Ok(routed / best)
}

fn median(mut times: Vec<Duration>) -> Option<f64> {
    times.sort_unstable();
    times.get(times.len() / 2).map(|time| time.as_nanos() as f64)
}
