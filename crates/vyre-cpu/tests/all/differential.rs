//! Generated programs on this backend, at every schedule and several workgroup sizes, compared with
//! the interpreter bit for bit.

use std::sync::Arc;
use std::time::Duration;
use vyre_conform::differential::{ComparisonOutcome, Runner, Variation};
use vyre_conform::generate::{Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, Schedule, VyreBackend};

#[test]
fn generated_programs_give_the_interpreters_bits() -> Result<(), BackendError> {
    let cpu = Arc::new(Cpu::new()?);
    let subgroup_size = Some(cpu.device_profile().subgroup_size);
    let runner = Runner { backends: vec![cpu], ..Runner::default() };
    let generator = Generator::new(Options { subgroup_size, ..Options::default() });
    let sizes = [[64, 1, 1], [1, 1, 1], [7, 1, 1], [3, 2, 2], [32, 2, 1], [16, 4, 1]];
    for seed in Seeds::new(100, 400, Duration::from_secs(30)) {
        let case = generator.from_seed(seed);
        let size = sizes[seed as usize % sizes.len()];
        let ways = [
            (Some(Schedule::Off), None),
            (Some(Schedule::Cheap), None),
            (Some(Schedule::Expensive), None),
            (None, Some(size)),
        ];
        for (schedule, workgroup) in ways {
            let variation = Variation::Backend { backend: 0, schedule, workgroup };
            if let ComparisonOutcome::Different(difference) = runner.compare(&case, &variation) {
                panic!("seed {seed}, {variation}: {difference}\n{}", case.program);
            }
        }
    }
    Ok(())
}
