//! Cost of one interpreter instruction: `cargo bench -p vyre-reference`.
//!
//! Every figure is per item; an item is one executed instruction (`Run::steps`), so the time per
//! item is the nanoseconds per simple expression node.

use divan::counter::ItemsCount;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::parse;
use vyre_reference::{Order, RunOptions, run};

fn main() {
    divan::main();
}

fn kernel(text: &str) -> Kernel {
    let program = parse(text).unwrap_or_else(|faults| panic!("{faults}"));
    program.validate().unwrap_or_else(|faults| panic!("{faults}"))
}

fn bench(bencher: divan::Bencher<'_, '_>, text: &str, options: RunOptions) {
    let (kernel, input) = (kernel(text), vec![1; 4 * 4096]);
    let once = || run(&kernel, &[&input], &options).unwrap_or_else(|error| panic!("{error}"));
    let steps = once().steps;
    bencher.counter(ItemsCount::new(steps)).bench_local(once);
}

const ARITHMETIC: &str = "kernel arithmetic(x: read u32[], y: output u32[]) {
  region \"arithmetic\" {
    let v = x[invocation.x]
    for k in 0..20 { v = (v * 1664525 + 1013904223) ^ (v >> 7) }
    y[invocation.x] = v
  }
}";

const FLOATS: &str = "kernel floats(x: read f32[], y: output f32[]) {
  region \"floats\" {
    let v = x[invocation.x]
    for k in 0..20 { v = fma(v, 0.5, sqrt(abs(v))) / 3.0 + min(v, 1.0) }
    y[invocation.x] = v
  }
}";

const SHARED: &str = "kernel shared(x: read u32[], y: output u32[], tile: workgroup u32[64]) {
  region \"shared\" {
    tile[local.x] = x[invocation.x]
    for k in 0..20 {
      barrier
      let other = tile[(local.x + k) % 64]
      barrier
      tile[local.x] = tile[local.x] + other
    }
    y[invocation.x] = tile[local.x]
  }
}";

#[divan::bench]
fn integer_arithmetic(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, ARITHMETIC, RunOptions::default());
}

#[divan::bench]
fn float_arithmetic(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, FLOATS, RunOptions::default());
}

#[divan::bench]
fn barriers_and_shared_memory(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, SHARED, RunOptions::default());
}

#[divan::bench]
fn interleaved(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, SHARED, RunOptions { order: Order::Interleaved(1), ..RunOptions::default() });
}

#[divan::bench]
fn sanitized(bencher: divan::Bencher<'_, '_>) {
    bench(bencher, SHARED, RunOptions { sanitize: true, ..RunOptions::default() });
}
