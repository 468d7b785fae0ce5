//! Speed of tuned over default shapes, per kernel and backend, with repeats: `cargo run --release
//! -p vyre --example tuning_table -- cpu`. Kernel names among the arguments limit the table to
//! them: `-- wgpu opencl saxpy`; `explain` prints the reason for each winner.
//!
//! Each kernel is tuned several times from scratch; then the winner and the default are compared
//! again in pairs that played no part in the choice.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use vyre as _;
use vyre::unstable::driver::tuner::{
    Alternative, Contest, ContestInputs, Mode, PipelineContest, Shape, TuneLimits, TuneRequest, Tuner, tune,
};
use vyre::unstable::driver::{DispatchConfig, Schedule, VyreBackend, registry};
use vyre::unstable::foundation::text;

const REPEATS: usize = 10;
const PAIRS: usize = 31;

const KERNELS: [(&str, &str, usize); 4] = [
    (
        "saxpy",
        "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) workgroup 64 {
           region \"r\" { let i = invocation.x; y[i] = a * x[i] + y[i] } }",
        1 << 20,
    ),
    (
        "murmur3",
        "kernel murmur3(x: read u32[], y: output u32[] len_of x) workgroup 64 { region \"r\" {
           let i = invocation.x
           let h = x[i]
           h = (h ^ (h >> 16)) * 0x85ebca6b
           h = (h ^ (h >> 13)) * 0xc2b2ae35
           y[i] = h ^ (h >> 16) } }",
        1 << 20,
    ),
    (
        "mandelbrot",
        "kernel mandelbrot(y: read_write u32[]) workgroup 64 { region \"r\" {
           let i = invocation.x
           let cx = f32(i % 512) / 200.0 - 2.0
           let cy = f32(i / 512) / 200.0 - 1.25
           let zx = 0.0
           let zy = 0.0
           let n = 0
           while (n < 256) && (zx * zx + zy * zy < 4.0) {
             let next = zx * zx - zy * zy + cx
             zy = 2.0 * zx * zy + cy
             zx = next
             n = n + 1
           }
           y[i] = n } }",
        1 << 18,
    ),
    (
        "exp_log",
        "kernel exp_log(x: read_write f32[]) workgroup 64 {
           region \"r\" { let i = invocation.x; x[i] = log(exp(x[i]) + 1.0) } }",
        1 << 18,
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let is_kernel = |word: &String| KERNELS.iter().any(|(name, ..)| name == word);
    let words = std::env::args().skip(1).filter(|word| word != "explain");
    let (names, ids): (Vec<String>, Vec<String>) = words.partition(is_kernel);
    println!("{:<12} {:<10} {:<18} {:>5} {:>16}", "kernel", "backend", "winner", "same", "tuned / default");
    for id in if ids.is_empty() { vec!["cpu".to_owned()] } else { ids } {
        let backend: Arc<dyn VyreBackend> = registry::acquire(&id)?.into();
        for (name, source, elements) in KERNELS {
            if names.is_empty() || names.iter().any(|wanted| wanted == name) {
                row(&backend, name, source, elements)?;
            }
        }
    }
    Ok(())
}

fn row(
    backend: &Arc<dyn VyreBackend>,
    name: &str,
    source: &str,
    elements: usize,
) -> Result<(), Box<dyn Error>> {
    let program = text::parse(source)?;
    let kernel = program.validate()?;
    let data: Vec<u8> = (0..elements).flat_map(|k| (k as f32 / elements as f32).to_le_bytes()).collect();
    let scalar = 2.0f32.to_le_bytes();
    let inputs: Vec<&[u8]> = kernel
        .bound_buffers()
        .into_iter()
        .map(|id| &kernel.buffer(id).decl)
        .filter(|decl| decl.access.is_input())
        .map(|decl| if decl.count == 1 { &scalar[..] } else { &data[..] })
        .collect();
    let config = DispatchConfig { schedule: Some(Schedule::Expensive), ..DispatchConfig::default() };
    let mut winners: BTreeMap<Shape, usize> = BTreeMap::new();
    for _ in 0..REPEATS {
        let request = TuneRequest {
            backend: backend.clone(),
            program: &program,
            config: &config,
            inputs: &inputs,
            limits: TuneLimits::default(),
            pause: None,
        };
        let report = tune(&Tuner::in_memory(Mode::On), &request, &mut |_| {})?;
        if std::env::args().any(|word| word == "explain") {
            eprintln!("{name}: {}", report.reason);
        }
        *winners.entry(report.shape().ok_or("no candidates")?).or_default() += 1;
    }
    let Some((&winner, &same)) = winners.iter().max_by_key(|(_, count)| **count) else { return Ok(()) };
    let alternative = |config: DispatchConfig| Alternative { program: program.clone(), config };
    let alternatives = vec![alternative(config.clone()), alternative(winner.configure(&config))];
    let given = ContestInputs { inputs: &inputs, bound_bytes: None, memory_limit: 1 << 30 };
    let mut contest = PipelineContest::new(backend.clone(), alternatives, &given)?;
    contest.check(0)?;
    contest.check(1)?;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut times = [0; 2];
        for candidate in order {
            times[candidate] = contest.measure(candidate)?;
        }
        ratios.push(times[1] as f64 / times[0] as f64);
    }
    ratios.sort_by(f64::total_cmp);
    let default = winner == Shape::of(&kernel, &config);
    println!(
        "{name:<12} {:<10} {:<18} {same:>2}/{REPEATS} {:>16}",
        backend.id(),
        if default { "default".to_owned() } else { winner.to_string() },
        if default { "1".to_owned() } else { format!("{:.3}", ratios[PAIRS / 2]) },
    );
    Ok(())
}
