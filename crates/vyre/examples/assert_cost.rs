//! Cost of one assert per element: `cargo run --release -p vyre --example assert_cost`.

use std::time::{Duration, Instant};
use vyre::prelude::*;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
  let i = invocation.x
  assert(x[i] < 2.0, \"x[{}] is {}\", i, x[i])
  y[i] = a * x[i] + y[i]
}";
const ELEMENTS: usize = 1 << 20;
const CALLS: usize = 50;

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    let saxpy = runtime.load(SAXPY)?;
    let x: Vec<f32> = (0..ELEMENTS).map(|i| i as f32 / ELEMENTS as f32).collect();
    let mut y = vec![0.0_f32; ELEMENTS];
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..CALLS {
        for (checked, fastest) in [false, true].into_iter().zip(&mut fastest) {
            let began = Instant::now();
            saxpy.call().bind("a", 0.5_f32).bind("x", &x).bind("y", &mut y).asserts(checked).run()?;
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [without, with] = fastest;
    println!(
        "saxpy of {ELEMENTS} elements on cpu: {without:?} without asserts, {with:?} with one per element"
    );
    Ok(())
}
