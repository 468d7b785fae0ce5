//! A routine that gets faster while it runs: `cargo run --release -p vyre --example hot`.
//!
//! It starts with code from the cheap schedule; once it is hot, code from the expensive one
//! replaces it if it is faster.

use std::time::{Duration, Instant};
use vyre::prelude::*;

/// Work that only the expensive schedule hoists out of the loop and keeps in registers.
const KERNEL: &str = "kernel polynomial(x: read_write f32[], c: read f32[8]) {
  let i = invocation.x
  let v = x[i]
  let sum = 0.0
  array powers: f32[8]
  powers[0] = 1.0
  for k in 1..8 { powers[k] = powers[k - 1] * v }
  for k in 0..8 { sum = sum + powers[k] * c[k] }
  if sum < 0.5 { sum = sum + 0.25 } else { sum = sum * 0.5 }
  x[i] = sum
}";

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::builder().without_tables().meet_drivers_first().build()?;
    let routine = runtime.load(KERNEL)?;
    let coefficients: Vec<f32> = (0..8).map(|k| 0.5f32.powi(k)).collect();
    let start: Vec<f32> = (0..1 << 18).map(|k| k as f32 / (1 << 18) as f32).collect();
    let mut first = None;
    for window in 0..20 {
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < Duration::from_millis(100) {
            let mut x = start.clone();
            let report = routine.call().bind("x", &mut x).bind("c", &coefficients).run()?;
            times.push(report.wall);
            let bits: Vec<u32> = x.iter().map(|value| value.to_bits()).collect();
            assert_eq!(*first.get_or_insert_with(|| bits.clone()), bits, "results never change");
        }
        times.sort();
        println!("{:>5} ms: median call {:?} of {}", window * 100, times[times.len() / 2], times.len());
    }
    for note in routine.explain(start.len()).code {
        println!("{note}");
    }
    Ok(())
}
