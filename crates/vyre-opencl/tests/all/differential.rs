//! Generated programs on this backend, compared with the interpreter bit for bit. Each program runs
//! in one way, in rotation over every schedule and several workgroup sizes.

use std::sync::Arc;
use std::time::Duration;
use vyre_conform::differential::{ComparisonOutcome, Mismatch, Runner, Variation};
use vyre_conform::filetest;
use vyre_conform::generate::{Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_driver::Schedule;
use vyre_opencl::OpenCl;

#[test]
fn generated_programs_give_the_interpreters_bits() {
    let opencl = match OpenCl::new() {
        Ok(opencl) => Arc::new(opencl),
        Err(missing) => return println!("SKIP {missing}"),
    };
    let generator = Generator::new(Options::for_backend(&*opencl));
    let runner = Runner { backends: vec![opencl], ..Runner::default() };
    let sizes = [[64, 1, 1], [1, 1, 1], [7, 1, 1], [3, 2, 2], [32, 2, 1], [16, 4, 1]];
    for seed in Seeds::new(100, 500, Duration::from_secs(45)) {
        let case = generator.from_seed(seed);
        let size = sizes[seed as usize / 4 % sizes.len()];
        let ways = [
            (Some(Schedule::Off), None),
            (Some(Schedule::Cheap), None),
            (Some(Schedule::Expensive), None),
            (None, Some(size)),
        ];
        let (schedule, workgroup) = ways[seed as usize % ways.len()];
        let variation = Variation::Backend { backend: 0, schedule, workgroup };
        if let ComparisonOutcome::Different(difference) = runner.compare(&case, &variation) {
            let mismatch = Mismatch { case, variation, backend: Some("opencl"), difference };
            println!(
                "seed {seed}, {}: {}\n{}",
                mismatch.variation, mismatch.difference, mismatch.case.program
            );
            let small = runner.shrunk(&mismatch);
            let notes = [format!("seed {seed}, {}: {}", small.variation, small.difference)];
            let text = filetest::write(&small.case, &notes).unwrap_or_else(|error| error);
            panic!("{}\n{text}", mismatch.difference);
        }
    }
}
