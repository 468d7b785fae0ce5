//! Cost that the runtime adds to a call: `cargo run --release -p vyre --example call_overhead`.
//!
//! Alternates calls of the same no-op pipeline, directly and through a runtime, and prints the
//! medians.

#[path = "../tests/quiet/mod.rs"]
mod quiet;

use quiet::{Nothing, PROGRAM, Quiet};
use std::sync::Arc;
use std::time::Instant;
use vyre::prelude::*;
use vyre::unstable::driver::observability::{LaunchRecord, record_launch};
use vyre::unstable::driver::{Binding, CompiledPipeline, DispatchConfig};

/// Rounds so short that on a busy machine most of them are not interrupted.
const ROUNDS: usize = 2001;
const CALLS: u32 = 1000;

fn main() -> Result<(), BackendError> {
    let runtime =
        Runtime::builder().backends::<String>([]).backend(Arc::new(Quiet)).without_tables().build()?;
    let routine = runtime.load(PROGRAM)?;
    let pipeline: Arc<dyn CompiledPipeline> = Arc::new(Nothing);
    let config = DispatchConfig::default();
    let (n, a, mut x, mut y) = (3u32.to_le_bytes(), [1u32; 64], [1u32; 64], [1u32; 64]);
    let mut direct = || {
        let (a, x) = (bytes(&a), &mut [0u8; 256]);
        let mut bindings = [Binding::Read(&n), Binding::Read(a), Binding::ReadWrite(x)];
        record_launch(LaunchRecord::default());
        pipeline.dispatch_bound(&mut bindings, &config)
    };
    let mut routed = || routine.call().bind("n", 3u32).bind("a", &a).bind("x", &mut x).run().map(|_| ());
    let mut typed = || quiet::quiet(3, &a, &mut y).run(&runtime).map(|_| ());
    // By then verification and the first canaries are complete.
    (0..200_000).try_for_each(|_| routed().and_then(|()| typed()))?;
    let (mut direct_ns, mut routed_ns, mut typed_ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct_ns.push(time(&mut direct)?);
        routed_ns.push(time(&mut routed)?);
        typed_ns.push(time(&mut typed)?);
    }
    let (direct, routed, typed) = (median(direct_ns), median(routed_ns), median(typed_ns));
    println!(
        "pipeline call {direct:.1} ns, routed call {routed:.1} ns: routing, hints and telemetry add {:.1} ns",
        routed - direct
    );
    println!("typed call {typed:.1} ns: {:+.1} ns to the one that binds by name", typed - routed);
    Ok(())
}

fn bytes(slice: &[u32; 64]) -> &[u8] {
    bytemuck::cast_slice(slice)
}

fn time(call: &mut impl FnMut() -> Result<(), BackendError>) -> Result<f64, BackendError> {
    let began = Instant::now();
    (0..CALLS).try_for_each(|_| call())?;
    Ok(began.elapsed().as_nanos() as f64 / f64::from(CALLS))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
