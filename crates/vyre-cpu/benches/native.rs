//! The kernels of `bench/kernels` compared with the native peers of `bench/native`, in one run, in
//! random order.
//!
//! `cargo bench -p vyre-cpu --bench native [-- words]` runs the rows whose names contain one of the
//! words. Both sides work in place on arrays with the same contents; the results are compared
//! before anything is timed. Each figure is the median over the rounds, with the first decile
//! beside it; compile time is mean processor time; `vyre/C` below 1 means that vyre is faster.
//! Without a C compiler only vyre's times are shown. `--dump` instead writes each kernel's vector
//! form and machine code to the target's folder for temporary files, and prints how to read them.

#![allow(unsafe_code)] // Loads and calls C functions.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_cpu::Cpu;
use vyre_driver::{Binding, CompiledPipeline, DispatchConfig, pipeline};
use vyre_foundation::ir::{Access, Domain, Program};
use vyre_foundation::text::parse;

type Failure = Box<dyn std::error::Error>;

/// A workload: its arrays, the kernels that run in sequence, and the peer that does the same in one
/// call.
struct Row {
    name: &'static str,
    peer: &'static str,
    arrays: Vec<Array>,
    kernels: Vec<(&'static str, Option<[u32; 3]>)>,
    compare: Compare,
}

/// An array of a workload, matched by name in kernels and by position in the peer.
#[derive(Clone, PartialEq)]
struct Array {
    name: &'static str,
    element_bytes: usize,
    data: Vec<u8>,
}

fn array(name: &'static str, data: Vec<u8>) -> Array {
    Array { name, element_bytes: 4, data }
}

/// How the results of both sides are compared.
#[derive(Clone, Copy, PartialEq)]
enum Compare {
    Bits,
    /// As `f32`, up to this relative difference.
    Close(f32),
    /// The sum of the last array, as `f32`.
    SumOfLast,
    /// The sum of the last array, as `u32`, in any order of addition.
    WrappingSumOfLast,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if std::env::args().any(|word| word == "--first") {
        let Row { kernels, mut arrays, .. } = saxpy("first", 1024);
        let row = Row { kernels, arrays: arrays.clone(), ..saxpy("first", 0) };
        return run_ours(&steps(&row)?, &mut arrays);
    }
    let dump = std::env::args().any(|word| word == "--dump");
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    println!(
        "{:<18} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7} {:>8}",
        "row", "vyre us", "p10", "C us", "p10", "vyre/C", "p10/p10", "compile"
    );
    if wanted("fresh process") && !dump {
        fresh_process()?;
    }
    for (name, make) in rows() {
        if wanted(name) {
            let row = make(name);
            if let Err(failure) = if dump { write_code(&row) } else { measure(row) } {
                println!("{name:<18} {failure}");
            }
        }
    }
    Ok(())
}

/// Time of a whole process that computes one result: saxpy of 1024 elements.
fn fresh_process() -> Result<(), Failure> {
    let mut times = Vec::new();
    for _ in 0..25 {
        let begun = Instant::now();
        let status = Command::new(std::env::current_exe()?).arg("--first").status()?;
        times.push(begun.elapsed());
        if !status.success() {
            return Err("the fresh process failed".into());
        }
    }
    print_row("fresh process", &mut times, &mut [], Duration::ZERO);
    Ok(())
}

type MakeRow = Box<dyn Fn(&'static str) -> Row>;

/// Every row, built when its turn comes: all arrays together are large.
fn rows() -> Vec<(&'static str, MakeRow)> {
    let mut rows: Vec<(&'static str, MakeRow)> = Vec::new();
    for (name, bits) in [("saxpy 2^10", 10), ("saxpy 2^16", 16), ("saxpy 2^20", 20), ("saxpy 2^24", 24)] {
        rows.push((name, Box::new(move |name| saxpy(name, 1 << bits))));
    }
    rows.push(("sum f32 2^24", Box::new(|name| sum(name, "sum_f32", floats(1 << 24, 0.0, 1.0)))));
    rows.push(("sum u32 2^24", Box::new(|name| sum(name, "sum_u32", words(1 << 24)))));
    rows.push(("scan u32 2^24", Box::new(|name| scan(name, 1 << 24))));
    rows.push(("histogram 2^24", Box::new(|name| histogram(name, 1 << 24))));
    rows.push(("jacobi 4096", Box::new(|name| jacobi(name, 4096))));
    rows.push(("matmul 512", Box::new(|name| matmul(name, 512))));
    rows.push(("matmul 1024", Box::new(|name| matmul(name, 1024))));
    rows.push(("mandelbrot 1024", Box::new(|name| mandelbrot(name, 1024))));
    rows.push(("black_scholes 2^20", Box::new(|name| black_scholes(name, 1 << 20))));
    rows.push(("softmax 4096x1024", Box::new(|name| softmax(name, 4096, 1024))));
    rows.push(("murmur3 2^24", Box::new(|name| murmur3(name, 1 << 24))));
    rows
}

fn saxpy(name: &'static str, count: usize) -> Row {
    let arrays = vec![
        array("a", bytes(&[0.5])),
        array("x", floats(count, -1.0, 1.0)),
        array("y", floats(count, -1.0, 1.0)),
    ];
    Row { name, peer: "saxpy", arrays, kernels: vec![("saxpy", None)], compare: Compare::Bits }
}

fn sum(name: &'static str, kernel: &'static str, x: Vec<u8>) -> Row {
    let compare = if kernel == "sum_f32" { Compare::SumOfLast } else { Compare::WrappingSumOfLast };
    let arrays = vec![array("x", x), array("partial", vec![0; 4 * 1024])];
    Row { name, peer: kernel, arrays, kernels: vec![(kernel, None)], compare }
}

fn scan(name: &'static str, count: usize) -> Row {
    let arrays =
        vec![array("x", words(count)), array("totals", vec![0; 1024]), array("y", vec![0; 4 * count])];
    let kernels = vec![("scan_totals", None), ("scan_apply", None)];
    Row { name, peer: "scan_u32", arrays, kernels, compare: Compare::WrappingSumOfLast }
}

fn histogram(name: &'static str, count: usize) -> Row {
    let arrays =
        vec![Array { name: "x", element_bytes: 1, data: random_bytes(count) }, array("bins", vec![0; 1024])];
    Row { name, peer: "histogram", arrays, kernels: vec![("histogram", None)], compare: Compare::Bits }
}

fn jacobi(name: &'static str, side: u32) -> Row {
    let cells = (side * side) as usize;
    let arrays = vec![
        array("width", side.to_le_bytes().to_vec()),
        array("a", floats(cells, 0.0, 1.0)),
        array("b", vec![0; 4 * cells]),
    ];
    let kernels = vec![("jacobi", Some([side, side, 1]))];
    Row { name, peer: "jacobi", arrays, kernels, compare: Compare::Bits }
}

fn matmul(name: &'static str, side: u32) -> Row {
    let cells = (side * side) as usize;
    let arrays = vec![
        array("n", side.to_le_bytes().to_vec()),
        array("a", floats(cells, -1.0, 1.0)),
        array("b", floats(cells, -1.0, 1.0)),
        array("c", vec![0; 4 * cells]),
    ];
    let kernels = vec![("matmul", Some([side, side / 4, 1]))];
    Row { name, peer: "matmul", arrays, kernels, compare: Compare::Bits }
}

fn mandelbrot(name: &'static str, side: u32) -> Row {
    let arrays = vec![
        array("width", side.to_le_bytes().to_vec()),
        array("rounds", vec![0; 4 * (side * side) as usize]),
    ];
    let kernels = vec![("mandelbrot", Some([side, side, 1]))];
    Row { name, peer: "mandelbrot", arrays, kernels, compare: Compare::Bits }
}

fn black_scholes(name: &'static str, count: usize) -> Row {
    let arrays = vec![
        array("strike", bytes(&[100.0])),
        array("rate", bytes(&[0.05])),
        array("volatility", bytes(&[0.2])),
        array("years", bytes(&[1.0])),
        array("spot", floats(count, 50.0, 150.0)),
        array("price", vec![0; 4 * count]),
    ];
    let kernels = vec![("black_scholes", None)];
    Row { name, peer: "black_scholes", arrays, kernels, compare: Compare::Close(1e-3) }
}

fn softmax(name: &'static str, rows: usize, columns: u32) -> Row {
    let cells = rows * columns as usize;
    let arrays = vec![
        array("columns", columns.to_le_bytes().to_vec()),
        array("x", floats(cells, -4.0, 4.0)),
        array("y", vec![0; 4 * cells]),
    ];
    let kernels = vec![("softmax", None)];
    Row { name, peer: "softmax", arrays, kernels, compare: Compare::Close(1e-5) }
}

fn murmur3(name: &'static str, count: usize) -> Row {
    let arrays = vec![array("x", words(count)), array("y", vec![0; 4 * count])];
    Row { name, peer: "murmur3", arrays, kernels: vec![("murmur3", None)], compare: Compare::Bits }
}

// Measurement.

fn measure(row: Row) -> Result<(), Failure> {
    let compiled = compile(&row)?;
    let Row { name, arrays, compare, .. } = row;
    let (mut ours, mut theirs) = (arrays.clone(), arrays);
    run_ours(&compiled.steps, &mut ours)?;
    let peer = Peer::build(row.peer)?;
    if let Some(peer) = &peer {
        peer.run(&mut theirs);
        check(compare, &ours, &theirs)?;
    }
    let begun = Instant::now();
    run_ours(&compiled.steps, &mut ours)?;
    let once = begun.elapsed().max(Duration::from_nanos(100));
    // A sample is long enough for the clock, a row long enough for a median.
    let calls = (Duration::from_micros(200).as_nanos() / once.as_nanos()).clamp(1, 1000) as u32;
    let rounds = (Duration::from_millis(1500).as_nanos() / (2 * once * calls).as_nanos()).clamp(9, 301);
    let (mut own_times, mut peer_times) = (Vec::new(), Vec::new());
    let mut random = Random(7);
    for _ in 0..rounds {
        let ours_first = random.next() & 1 == 0;
        for turn in [ours_first, !ours_first] {
            if turn {
                own_times.push(time_ours(&compiled.steps, &mut ours, calls)?);
            } else if let Some(peer) = &peer {
                let begun = Instant::now();
                (0..calls).for_each(|_| peer.run(&mut theirs));
                peer_times.push(begun.elapsed() / calls);
            }
        }
    }
    print_row(name, &mut own_times, &mut peer_times, compiled.time);
    Ok(())
}

fn print_row(name: &str, own: &mut [Duration], peer: &mut [Duration], compile: Duration) {
    let micro = |time: Duration| time.as_nanos() as f64 / 1e3;
    let pick = |times: &mut [Duration], tenths: usize| {
        times.sort_unstable();
        times.get(times.len() * tenths / 10).copied().map_or(f64::NAN, micro)
    };
    let (own_median, own_decile) = (pick(own, 5), pick(own, 1));
    let (peer_median, peer_decile) = (pick(peer, 5), pick(peer, 1));
    println!(
        "{name:<18} {own_median:>10.2} {own_decile:>10.2} {peer_median:>10.2} {peer_decile:>10.2} {:>7.2} {:>7.2} {:>6.2}ms",
        own_median / peer_median,
        own_decile / peer_decile,
        compile.as_secs_f64() * 1e3,
    );
}

/// Number of compilations to average over: the system counts processor time in steps of
/// milliseconds.
const COMPILES: u32 = 40;

struct Compiled {
    steps: Vec<Step>,
    /// Mean for the slowest kernel.
    time: Duration,
}

/// A compiled kernel, and the array that each of its buffers is bound to.
struct Step {
    pipeline: Arc<dyn CompiledPipeline>,
    buffers: Vec<(usize, Access)>,
}

fn program(kernel: &str, domain: Option<[u32; 3]>) -> Result<Program, Failure> {
    let source = std::fs::read_to_string(folder().join("kernels").join(format!("{kernel}.vyre")))?;
    let program = parse(&source)?;
    Ok(match domain {
        Some(counts) => program.with_domain(Domain::Counts(counts)),
        None => program,
    })
}

fn write_code(row: &Row) -> Result<(), Failure> {
    for &(kernel, domain) in &row.kernels {
        let program = program(kernel, domain)?;
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(kernel);
        let config = DispatchConfig::default();
        std::fs::write(at.with_extension("vector"), vyre_cpu::vector_listing(&program, &config)?)?;
        std::fs::write(at.with_extension("bin"), vyre_cpu::machine_code(&program, &config)?.bytes)?;
        println!("objdump -D -b binary -m i386:x86-64 -M intel {}", at.with_extension("bin").display());
    }
    Ok(())
}

/// Compiles the row's kernels.
fn steps(row: &Row) -> Result<Vec<Step>, Failure> {
    let backend = Arc::new(Cpu::new()?);
    let make = |&(kernel, domain): &(&str, Option<[u32; 3]>)| {
        let program = program(kernel, domain)?;
        let pipeline = pipeline::compile(backend.clone(), &program, &DispatchConfig::default())?;
        Ok(Step { pipeline, buffers: buffers(&program, row)? })
    };
    row.kernels.iter().map(make).collect()
}

fn compile(row: &Row) -> Result<Compiled, Failure> {
    let backend = Arc::new(Cpu::new()?);
    let mut compiled = Compiled { steps: steps(row)?, time: Duration::ZERO };
    for &(kernel, domain) in &row.kernels {
        let program = program(kernel, domain)?;
        let config = DispatchConfig::default();
        let programs = (0..COMPILES).map(|_| parse(&program.to_string())).collect::<Result<Vec<_>, _>>()?;
        let begun = processor_time();
        for fresh in &programs {
            pipeline::compile(backend.clone(), fresh, &config)?;
        }
        compiled.time = compiled.time.max((processor_time() - begun) / COMPILES);
    }
    Ok(compiled)
}

/// Processor time of this thread where the system reports it, since other processes share the
/// processor; otherwise wall-clock time.
fn processor_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let used = used.and_then(|text| text.split(' ').next()?.parse().ok());
    used.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn buffers(program: &Program, row: &Row) -> Result<Vec<(usize, Access)>, Failure> {
    let kernel = program.validate()?;
    let bound = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
    bound
        .map(|decl| {
            let at = row.arrays.iter().position(|array| array.name == &*decl.name);
            Ok((at.ok_or("a kernel has a buffer that its row lacks")?, decl.access))
        })
        .collect()
}

/// One binding per buffer of the kernel; no kernel binds an array twice.
fn bindings<'a>(step: &Step, arrays: &'a mut [Array]) -> Vec<Binding<'a>> {
    let mut free: Vec<Option<&'a mut Vec<u8>>> =
        arrays.iter_mut().map(|array| Some(&mut array.data)).collect();
    let bind = |&(at, access): &(usize, Access)| {
        let data: &'a mut [u8] = free[at].take().map_or(&mut [], |data| data);
        match access {
            Access::ReadWrite => Binding::ReadWrite(data),
            Access::Output => Binding::Write(data),
            Access::Read | Access::Uniform | Access::Workgroup => Binding::Read(data),
        }
    };
    step.buffers.iter().map(bind).collect()
}

fn run_ours(steps: &[Step], arrays: &mut [Array]) -> Result<(), Failure> {
    for step in steps {
        // A histogram starts from zero.
        if let Some(bins) = arrays.iter_mut().find(|array| array.name == "bins") {
            bins.data.fill(0);
        }
        step.pipeline.dispatch_bound(&mut bindings(step, arrays), &DispatchConfig::default())?;
    }
    Ok(())
}

fn time_ours(steps: &[Step], arrays: &mut [Array], calls: u32) -> Result<Duration, Failure> {
    let config = DispatchConfig::default();
    let [step] = steps else {
        let begun = Instant::now();
        for _ in 0..calls {
            run_ours(steps, arrays)?;
        }
        return Ok(begun.elapsed() / calls);
    };
    let mut bindings = bindings(step, arrays);
    let begun = Instant::now();
    for _ in 0..calls {
        step.pipeline.dispatch_bound(&mut bindings, &config)?;
    }
    Ok(begun.elapsed() / calls)
}

fn check(compare: Compare, ours: &[Array], theirs: &[Array]) -> Result<(), Failure> {
    let singles = |data: &[u8]| -> Vec<f32> {
        data.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    };
    let last = |arrays: &[Array]| arrays.last().map(|array| array.data.clone()).unwrap_or_default();
    let (own, peer) = (last(ours), last(theirs));
    let agree = match compare {
        Compare::Bits => ours == theirs,
        Compare::Close(bound) => {
            let near = |a: f32, b: f32| (a - b).abs() <= bound * a.abs().max(b.abs()).max(0.1);
            singles(&own).into_iter().zip(singles(&peer)).all(|(a, b)| near(a, b))
        }
        Compare::SumOfLast => {
            // The peer's plain sum of this many `f32` values has lost digits; the kernel's is more
            // accurate.
            let [a, b]: [f64; 2] = [own, peer].map(|data| singles(&data).into_iter().map(f64::from).sum());
            (a - b).abs() <= 0.05 * a.abs()
        }
        Compare::WrappingSumOfLast => {
            let sum = |data: &[u8]| {
                let words = data.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
                words.fold(0_u32, u32::wrapping_add)
            };
            sum(&own) == sum(&peer)
        }
    };
    if agree { Ok(()) } else { Err("the results of vyre and C differ".into()) }
}

// Peers.

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A peer's function; its library stays loaded.
struct Peer(unsafe extern "C" fn(*const *mut c_void, *const usize));

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench")
}

impl Peer {
    /// Compiles and loads a peer; `None` if there is no compiler.
    fn build(name: &str) -> Result<Option<Peer>, Failure> {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("peer_{name}.so"));
        let source = folder().join("native").join(format!("{name}.c"));
        let flags = ["-O3", "-march=native", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC", "-o"];
        let compiler = Command::new("cc").args(flags).arg(&library).arg(&source).arg("-lm").status();
        match compiler {
            Err(_) => return Ok(None),
            Ok(status) if !status.success() => return Err(format!("cc failed on {name}.c").into()),
            Ok(_) => {}
        }
        const NOW: c_int = 2;
        let path = CString::new(library.to_string_lossy().as_bytes())?;
        // SAFETY: both strings are zero-terminated; the function has the type that `peer.h`
        // declares.
        let run = unsafe {
            let library = dlopen(path.as_ptr(), NOW);
            if library.is_null() {
                return Err(format!("{name}: its library does not load").into());
            }
            let symbol = dlsym(library, c"run".as_ptr());
            if symbol.is_null() {
                return Err(format!("{name}: it has no function `run`").into());
            }
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const *mut c_void, *const usize)>(symbol)
        };
        Ok(Some(Peer(run)))
    }

    fn run(&self, arrays: &mut [Array]) {
        let mut pointers = [std::ptr::null_mut(); 8];
        let mut counts = [0; 8];
        for (k, array) in arrays.iter_mut().enumerate() {
            pointers[k] = array.data.as_mut_ptr().cast();
            counts[k] = array.data.len() / array.element_bytes;
        }
        // SAFETY: the peer accesses the arrays within their counts, and they are borrowed for the
        // call.
        unsafe { (self.0)(pointers.as_ptr(), counts.as_ptr()) }
    }
}

// Data.

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(count: usize, from: f32, to: f32) -> Vec<u8> {
    let mut random = Random(1);
    let mut next = || from + (to - from) * (random.next() as f32 / 2_147_483_648.0);
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}

fn words(count: usize) -> Vec<u8> {
    let mut random = Random(2);
    (0..count).flat_map(|_| (random.next() as u32).to_le_bytes()).collect()
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut random = Random(3);
    (0..count).map(|_| random.next() as u8).collect()
}
