//! Processor time that threads use between calls: `cargo run --release -p vyre --example idle`.
//!
//! Makes calls that threads share, in bursts and with pauses, and prints the processor time that
//! the process used during the pauses. Reads the scheduler's statistics, so it needs Linux.

use std::time::{Duration, Instant};
use vyre::prelude::*;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
  y[invocation.x] = a * x[invocation.x] + y[invocation.x]
}";

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    let saxpy = runtime.load(SAXPY)?;
    let (x, mut y) = (vec![1.0_f32; 65_536], vec![1.0_f32; 65_536]);
    let mut call = || saxpy.call().bind("a", 0.5_f32).bind("x", &x).bind("y", &mut y).run().map(drop);
    (0..5000).try_for_each(|_| call())?;
    runtime.settle();
    for (calls, pause, bursts) in [(1000, 500, 4), (100, 20, 50), (10, 10, 100), (1, 10, 100), (1, 1, 500)] {
        let (mut idle, mut used) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..bursts {
            (0..calls).try_for_each(|_| call())?;
            let (began, before) = (Instant::now(), processor_time());
            std::thread::sleep(Duration::from_millis(pause));
            idle += began.elapsed();
            used += processor_time().saturating_sub(before);
        }
        let each = used / bursts;
        let share = 100.0 * used.as_secs_f64() / idle.as_secs_f64();
        println!("{calls} calls, then {pause} ms without: {each:?} of processor time per pause, {share:.2}%");
    }
    Ok(())
}

/// Processor time of all threads of the process.
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(time).sum())
}
