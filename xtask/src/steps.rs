//! Benefit of the optimizer: interpreter steps of real kernels without it, with the quick and with
//! the full schedule.
//!
//! The kernels are those of `filetests/kernels`, on generated inputs. The outputs of every schedule
//! are compared with those of the unoptimized kernel before anything is printed.

use std::time::{Duration, Instant};
use vyre_foundation::ir::{Access, DataType, ValueType};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::optimize::{Assume, Schedule, optimize};
use vyre_foundation::text;
use vyre_reference::{RunOptions, run as interpret};

/// A kernel's file, the values of its uniforms in order, and the number of elements of its inputs
/// sized at run time.
const KERNELS: &[(&str, &[u32], usize)] = &[
    ("saxpy", &[3], 4096),
    ("sum", &[], 8192),
    ("scan", &[], 1024),
    ("histogram", &[], 8192),
    ("jacobi", &[64, 64], 4096),
    ("matmul_tiled", &[32], 1024),
    ("matmul_registers", &[32], 1024),
    ("mandelbrot", &[32], 0),
    ("black_scholes", &[1, 2], 1024),
    ("softmax", &[96], 1536),
    ("murmur3", &[], 4096),
    ("bitonic", &[8, 16], 4096),
    ("transpose", &[32], 1024),
    ("blur", &[64], 4096),
    ("nbody", &[], 384),
    ("blend", &[], 4096),
];
/// How often a schedule is timed; the median is reported.
const ROUNDS: usize = 21;

/// Prints the table.
pub(crate) fn run() -> Result<(), String> {
    println!(
        "{:<18}{:>10}{:>10}{:>10}{:>8}{:>12}{:>12}",
        "kernel", "off", "quick", "full", "saved", "quick µs", "full µs"
    );
    let mut total = [0; 3];
    for &(name, uniforms, elements) in KERNELS {
        let row = measure(name, uniforms, elements)?;
        print_row(name, row.steps, Some(row.times));
        total.iter_mut().zip(row.steps).for_each(|(sum, steps)| *sum += steps);
    }
    print_row("together", total, None);
    Ok(())
}

fn print_row(name: &str, [off, quick, full]: [u64; 3], times: Option<[Duration; 2]>) {
    let saved = 100.0 * (1.0 - full as f64 / off as f64);
    print!("{name:<18}{off:>10}{quick:>10}{full:>10}{saved:>7.1}%");
    if let Some([quick, full]) = times {
        print!("{:>12.0}{:>12.0}", quick.as_secs_f64() * 1e6, full.as_secs_f64() * 1e6);
    }
    println!();
}

struct Row {
    steps: [u64; 3],
    times: [Duration; 2],
}

fn measure(name: &str, uniforms: &[u32], elements: usize) -> Result<Row, String> {
    let path = super::root().join("filetests/kernels").join(format!("{name}.vyre"));
    let source = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let program = text::parse(&source).map_err(|faults| faults.to_string())?;
    let kernel = program.validate().map_err(|faults| faults.to_string())?;
    let inputs = inputs(&kernel, uniforms, elements);
    let assume = Assume::no_overrides(&kernel);
    let schedules = [Schedule::quick(), Schedule::full()].map(|schedule| schedule.with_assumptions(assume));
    let [(quick, quick_time), (full, full_time)] = schedules.map(|schedule| timed(&kernel, &schedule));
    let [off, quick, full] = [&kernel, &quick, &full].map(|kernel| steps(kernel, &inputs));
    let (off, quick, full) = (off?, quick?, full?);
    if off.1 != quick.1 || off.1 != full.1 {
        return Err(format!("{name}: the optimized kernel gives other results"));
    }
    Ok(Row { steps: [off.0, quick.0, full.0], times: [quick_time, full_time] })
}

fn timed(kernel: &Kernel, schedule: &Schedule) -> (Kernel, Duration) {
    let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
    let mut optimized = kernel.clone();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        optimized = optimize(kernel.clone(), schedule);
        times.push(start.elapsed());
    }
    times.sort();
    (optimized, times[ROUNDS / 2])
}

fn steps(kernel: &Kernel, inputs: &[Vec<u8>]) -> Result<(u64, Vec<Vec<u8>>), String> {
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let done = interpret(kernel, &inputs, &RunOptions::default()).map_err(|error| error.to_string())?;
    Ok((done.steps, done.outputs))
}

fn inputs(kernel: &Kernel, uniforms: &[u32], elements: usize) -> Vec<Vec<u8>> {
    let mut uniforms = uniforms.iter();
    let mut seed = 1;
    let mut input = |access: Access, element: DataType, count: u32| {
        let given = if access == Access::Uniform && count == 1 { uniforms.next() } else { None };
        let count = if count == 0 { elements } else { count as usize };
        (0..count)
            .flat_map(|_| {
                bytes(element, given.copied().unwrap_or_else(|| random(&mut seed)), given.is_some())
            })
            .collect()
    };
    let ids = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
    ids.filter(|decl| decl.access.is_input())
        .map(|decl| input(decl.access, decl.element, decl.count))
        .collect()
}

/// Bytes of an element: the number itself if it was specified, else scaled to a sensible range.
fn bytes(element: DataType, number: u32, given: bool) -> Vec<u8> {
    let value = match element.value_type() {
        ValueType::F32 if given => (number as f32).to_bits(),
        ValueType::F32 => (number as f32 / u32::MAX as f32).to_bits(),
        ValueType::Bool
        | ValueType::U32
        | ValueType::I32
        | ValueType::U64
        | ValueType::I64
        | ValueType::F64 => number,
    };
    value.to_le_bytes()[..element.size().min(4)].to_vec()
}

/// Xorshift generator.
fn random(seed: &mut u32) -> u32 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    *seed
}
