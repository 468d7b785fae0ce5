//! Generated programs on this backend, at every schedule and several workgroup sizes, compared with
//! the interpreter bit for bit (or within the bounds that a device without strict floats declares).

use std::sync::Arc;
use std::time::Duration;
use vyre_conform::differential::{ComparisonOutcome, Runner, Variation};
use vyre_conform::generate::{Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_driver::Schedule;
use vyre_wgpu::Wgpu;

#[test]
fn generated_programs_give_the_interpreters_bits() {
    let gpu = match Wgpu::new() {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => return eprintln!("SKIP wgpu: {error}"),
    };
    let generator = Generator::new(Options::for_backend(&*gpu));
    let runner = Runner { backends: vec![gpu], ..Runner::default() };
    let sizes = [[64, 1, 1], [1, 1, 1], [7, 1, 1], [3, 2, 2], [32, 2, 1], [16, 4, 1]];
    let (mut equal, mut unsupported) = (0, 0);
    for seed in Seeds::new(100, 500, Duration::from_secs(45)) {
        let case = generator.from_seed(seed);
        let size = sizes[seed as usize % sizes.len()];
        // Compiling for a device takes milliseconds, so each case runs in one of four ways.
        let ways = [
            (Some(Schedule::Off), None),
            (Some(Schedule::Cheap), None),
            (Some(Schedule::Expensive), None),
            (None, Some(size)),
        ];
        let (schedule, workgroup) = ways[(seed / 2) as usize % ways.len()];
        let variation = Variation::Backend { backend: 0, schedule, workgroup };
        match runner.compare(&case, &variation) {
            ComparisonOutcome::Equal { .. } => equal += 1,
            ComparisonOutcome::Unsupported => unsupported += 1,
            ComparisonOutcome::Different(difference) => {
                panic!("seed {seed}, {variation}: {difference}\n{}", case.program)
            }
        }
    }
    eprintln!("{equal} programs gave the same, {unsupported} were refused");
    assert!(equal > 9 * unsupported, "{unsupported} programs were refused, {equal} were not");
}
