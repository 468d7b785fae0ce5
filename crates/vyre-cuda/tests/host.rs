//! The backend on a fake driver, whose devices interpret PTX that the real NVRTC makes: `cargo xtask cuda` installs that
//! and runs this. Each scenario is a process of its own with a driver as it needs it.
//!
//! `VYRE_NVRTC` names the real NVRTC; without it, scenarios that compile anything are counted as ignored. `VYRE_CUDA_SM`
//! is the architecture of the fake device, `VYRE_CASES` how many programs are generated.

use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre::catalogue::{OPS, reduce};
use vyre::{Runtime, catalogue::Plan};
use vyre_conform::differential::{Comparison, Mismatch, Runner, Variation};
use vyre_conform::filetest::{Command, FileTest, write};
use vyre_conform::generate::{Generator, Options};
use vyre_conform::seeds::Seeds;
use vyre_cuda::Cuda;
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceProfile, DispatchConfig, Failed, Schedule, SequenceStep,
    VyreBackend, pipeline, registry,
};
use vyre_foundation::ir::{Combine, DataType};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;

type Done = Result<(), String>;

/// A test with a driver of its own.
struct Scenario {
    name: &'static str,
    /// What `VYRE_FAKE_CUDA` is.
    settings: &'static str,
    driver: Driver,
    run: fn() -> Done,
}

/// What is there to be loaded.
#[derive(Clone, Copy, PartialEq)]
enum Driver {
    /// The fake driver, and the fake NVRTC on top of the real one.
    Whole,
    /// The same without these functions.
    Without(&'static [&'static str]),
    /// The fake driver, and nothing to compile with.
    Alone,
    /// No library at all.
    Absent,
    /// A library that is no driver.
    Other,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "filetests, first half", settings: "", driver: Driver::Whole, run: || filetests(0) },
    Scenario { name: "filetests, second half", settings: "", driver: Driver::Whole, run: || filetests(1) },
    Scenario { name: "generated programs", settings: "", driver: Driver::Whole, run: generated },
    Scenario { name: "catalogue", settings: "", driver: Driver::Whole, run: catalogue },
    Scenario {
        name: "conformance set through a runtime",
        settings: "",
        driver: Driver::Whole,
        run: conformance,
    },
    Scenario { name: "resident buffers", settings: "", driver: Driver::Whole, run: residents },
    Scenario { name: "batches and graphs", settings: "", driver: Driver::Whole, run: || batches(true) },
    Scenario {
        name: "batches on a driver without graphs",
        settings: "pools=0",
        driver: Driver::Without(&["cuGraphLaunch", "cuMemAllocAsync"]),
        run: || batches(false),
    },
    Scenario { name: "sequences and graphs", settings: "", driver: Driver::Whole, run: || sequences(true) },
    Scenario {
        name: "sequences on a driver without graphs",
        settings: "pools=0",
        driver: Driver::Without(&["cuGraphLaunch"]),
        run: || sequences(false),
    },
    Scenario {
        name: "sequences through a runtime",
        settings: "",
        driver: Driver::Whole,
        run: sequences_in_runtime,
    },
    Scenario {
        name: "a sequence in little memory",
        settings: "memory=1048576",
        driver: Driver::Whole,
        run: sequence_in_little_memory,
    },
    Scenario { name: "an op of several kernels", settings: "", driver: Driver::Whole, run: op_in_one_launch },
    Scenario { name: "large calls", settings: "memory=4294967296", driver: Driver::Whole, run: large },
    Scenario { name: "large grids", settings: "", driver: Driver::Whole, run: large_grids },
    Scenario { name: "several devices", settings: "devices=2", driver: Driver::Whole, run: devices },
    Scenario { name: "code on disk", settings: "", driver: Driver::Whole, run: kept_code },
    Scenario { name: "times", settings: "", driver: Driver::Whole, run: times },
    Scenario { name: "deadlines", settings: "", driver: Driver::Whole, run: deadlines },
    Scenario { name: "out of memory", settings: "memory=1048576", driver: Driver::Whole, run: out_of_memory },
    Scenario {
        name: "out of memory without pools",
        settings: "memory=1048576,pools=0",
        driver: Driver::Whole,
        run: out_of_memory,
    },
    Scenario {
        name: "an illegal access breaks the device",
        settings: "fault=700,at=2",
        driver: Driver::Whole,
        run: || lost("ILLEGAL_ADDRESS"),
    },
    Scenario {
        name: "a failed launch breaks the device",
        settings: "fault=719,at=2",
        driver: Driver::Whole,
        run: || lost("LAUNCH_FAILED"),
    },
    Scenario {
        name: "a lost device in a runtime",
        settings: "fault=700,at=70",
        driver: Driver::Whole,
        run: lost_in_runtime,
    },
    Scenario { name: "a kernel that hangs", settings: "hang=2", driver: Driver::Whole, run: hang },
    Scenario { name: "no library", settings: "", driver: Driver::Absent, run: absent },
    Scenario {
        name: "another library",
        settings: "",
        driver: Driver::Other,
        run: || refused(&["libcuda has no `cuInit`", "update NVIDIA's driver"]),
    },
    Scenario {
        name: "a driver without a function",
        settings: "",
        driver: Driver::Without(&["cuCtxPopCurrent_v2"]),
        run: || refused(&["libcuda has no `cuCtxPopCurrent_v2`"]),
    },
    Scenario {
        name: "an old driver",
        settings: "version=10020",
        driver: Driver::Alone,
        run: || refused(&["the driver is for CUDA 10.2", "update NVIDIA's driver"]),
    },
    Scenario {
        name: "a driver older than NVRTC",
        settings: "version=11080",
        driver: Driver::Whole,
        run: || refused(&["does not load into a driver for CUDA 11.8", "nvidia-cuda-nvrtc-cu11"]),
    },
    Scenario {
        name: "no device",
        settings: "devices=0",
        driver: Driver::Alone,
        run: || refused(&["the driver finds no device"]),
    },
    Scenario {
        name: "an old device",
        settings: "sm=61",
        driver: Driver::Whole,
        run: || refused(&["compute capability 6.1", "7.0"]),
    },
    Scenario {
        name: "no NVRTC",
        settings: "",
        driver: Driver::Alone,
        run: || refused(&["VYRE_NVRTC_LIBRARY", "does not load"]),
    },
];

/// Bytes of the code for a device, of any kernel and on average. The largest that was seen has 557 kB, for sm_120.
const LARGEST_CODE: u64 = 640 << 10;
const MEAN_CODE: u64 = 32 << 10;

fn main() {
    if let Ok(name) = std::env::var("VYRE_CUDA_SCENARIO") {
        let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
        match found.map_or(Err(format!("no scenario `{name}`")), |scenario| (scenario.run)()) {
            Ok(()) => return,
            Err(message) => {
                eprintln!("{message}");
                std::process::exit(1);
            }
        }
    }
    let nvrtc = std::env::var_os("VYRE_NVRTC").map(PathBuf::from).filter(|path| path.is_file());
    let trial = |scenario: &'static Scenario| {
        let compiles = matches!(scenario.driver, Driver::Whole | Driver::Without(_));
        let nvrtc = nvrtc.clone();
        let ignored = compiles && nvrtc.is_none();
        if ignored {
            eprintln!("SKIP {}: no NVRTC; `cargo xtask cuda` installs it", scenario.name);
        }
        let trial = Trial::test(scenario.name, move || Ok(start(scenario, nvrtc.as_deref())?));
        trial.with_ignored_flag(ignored)
    };
    libtest_mimic::run(&Arguments::from_args(), SCENARIOS.iter().map(trial).collect()).exit();
}

/// The fake driver's library, which is built beside this test.
fn fake() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folders = own.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join("libvyre_fake_cuda.so"));
    found.find(|path| path.is_file()).ok_or("the fake driver is not built".into())
}

/// A copy of the library in which these functions have other names.
fn without(library: &Path, names: &[&str], folder: &Path) -> Result<PathBuf, String> {
    let mut bytes = std::fs::read(library).map_err(|error| error.to_string())?;
    for name in names {
        let pattern = [b"\0", name.as_bytes(), b"\0"].concat();
        let at = bytes.windows(pattern.len()).position(|window| window == pattern);
        let at = at.ok_or(format!("the fake driver has no `{name}`"))?;
        bytes[at + name.len()] = b'_';
    }
    let copy = folder.join("libcuda.so.1");
    std::fs::write(&copy, bytes).map_err(|error| error.to_string())?;
    Ok(copy)
}

fn start(scenario: &Scenario, nvrtc: Option<&Path>) -> Done {
    let says = |error: std::io::Error| error.to_string();
    let (folder, fake) = (tempfile::tempdir().map_err(says)?, fake()?);
    let (driver, compiler) = match scenario.driver {
        Driver::Whole => (fake.clone(), fake),
        Driver::Without(names) => {
            let driver = without(&fake, names, folder.path())?;
            (driver, fake)
        }
        Driver::Alone => (fake, folder.path().join("nothing.so")),
        Driver::Absent => (folder.path().join("nothing.so"), folder.path().join("nothing.so")),
        Driver::Other => ("libc.so.6".into(), fake),
    };
    let mut process = Process::new(std::env::current_exe().map_err(says)?);
    let settings = match std::env::var("VYRE_CUDA_SM") {
        Ok(sm) if !scenario.settings.contains("sm=") => format!("{},sm={sm}", scenario.settings),
        _ => scenario.settings.to_string(),
    };
    process
        .env("VYRE_CUDA_SCENARIO", scenario.name)
        .env("VYRE_FAKE_CUDA", settings)
        .env("VYRE_NVRTC_LIBRARY", compiler)
        .env("VYRE_REAL_NVRTC", nvrtc.unwrap_or(Path::new("")))
        .env("VYRE_HELPER", folder.path().join("no-helper"))
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .env("XDG_CONFIG_HOME", folder.path().join("config"));
    match scenario.driver {
        Driver::Absent => process
            .env_remove("VYRE_CUDA_LIBRARY")
            .env("LD_LIBRARY_PATH", folder.path())
            .env("LD_DEBUG", "files")
            .env("LD_DEBUG_OUTPUT", folder.path().join("loaded")),
        _ => process.env("VYRE_CUDA_LIBRARY", driver),
    };
    let output = process.output().map_err(says)?;
    if output.status.success() {
        return match scenario.driver {
            Driver::Absent if cfg!(target_env = "gnu") => tried_little(folder.path()),
            _ => Ok(()),
        };
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Err(format!(
        "{}\n{}",
        output.status,
        text.chars().rev().take(6000).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    ))
}

/// Without a driver two names are tried, once, and nothing else is looked for.
fn tried_little(folder: &Path) -> Done {
    let mut tried = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("loaded.") {
            let text = std::fs::read(entry.path()).map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let loads = text.lines().filter(|line| line.contains("dynamically loaded by"));
            let names = loads.filter_map(|line| line.split("file=").nth(1)?.split(" [").next());
            tried.extend(names.map(str::to_owned));
        }
    }
    ensure(tried == ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"], format!("{tried:?} are tried"))
}

// What the scenarios use.

fn says(error: BackendError) -> String {
    error.to_string()
}

fn ensure(holds: bool, what: impl Into<String>) -> Done {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn open() -> Result<Arc<dyn VyreBackend>, String> {
    Ok(Arc::new(Cuda::new().map_err(says)?))
}

fn words(count: u32, factor: u32) -> Vec<u8> {
    (0..count).flat_map(|k| (k * factor).to_le_bytes()).collect()
}

const ADD: &str = "kernel add(a: u32 uniform, x: read u32[], y: output u32[], z: read_write u32[]) over x {
  region \"r\" { let i = invocation.x
    if x[i] != 3 { y[i] = x[i] + a }
    z[i] = z[i] + x[i] } }";

/// What `ADD` gives for so many elements.
fn sums(count: u32, a: u32) -> [Vec<u8>; 2] {
    let mut sums: Vec<u8> = (0..count).flat_map(|k| (k + a).to_le_bytes()).collect();
    if count > 3 {
        sums[12..16].fill(0);
    }
    [sums, words(count, 8)]
}

fn inputs(count: u32, a: u32) -> [Vec<u8>; 3] {
    [a.to_le_bytes().to_vec(), words(count, 1), words(count, 7)]
}

/// A function of the fake driver that is for tests.
fn counts() -> Result<(u64, u64), String> {
    let path = std::env::var_os("VYRE_CUDA_LIBRARY").ok_or("no library")?;
    let (mut launches, mut graphs) = (0, 0);
    #[allow(unsafe_code)]
    // SAFETY: the library is the fake driver, and the function writes two numbers.
    unsafe {
        let library = libloading::Library::new(path).map_err(|error| error.to_string())?;
        let function: libloading::Symbol<'_, unsafe extern "C" fn(*mut u64, *mut u64)> =
            library.get(b"vyreFakeCounts\0").map_err(|error| error.to_string())?;
        function(&mut launches, &mut graphs);
    }
    Ok((launches, graphs))
}

/// The real code of each kernel was made, and is small; prints how small.
fn code_is_small(kernels: u64) -> Done {
    let path = std::env::var_os("VYRE_NVRTC_LIBRARY").ok_or("no library")?;
    let (mut programs, mut bytes, mut largest) = (0, 0, 0);
    #[allow(unsafe_code)]
    // SAFETY: the library is the fake NVRTC, and the function writes three numbers.
    unsafe {
        let library = libloading::Library::new(path).map_err(|error| error.to_string())?;
        let function: libloading::Symbol<'_, unsafe extern "C" fn(*mut u64, *mut u64, *mut u64)> =
            library.get(b"vyreFakeCode\0").map_err(|error| error.to_string())?;
        function(&mut programs, &mut bytes, &mut largest);
    }
    let mean = bytes / programs.max(1);
    println!("code for the device: {programs} kernels, {mean} bytes on average, {largest} at most");
    ensure(programs >= kernels, format!("code was made for {programs} of {kernels} kernels"))?;
    ensure(
        mean <= MEAN_CODE && largest <= LARGEST_CODE,
        format!("{mean} bytes on average, {largest} at most"),
    )
}

// Results.

fn filetests(half: usize) -> Done {
    let backend = open()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    let mut folders = vec![root.join("filetests"), root.join("examples")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "vyre") {
                files.push(path);
            }
        }
    }
    files.sort();
    let (mut ran, mut faults) = (0, Vec::new());
    for path in files.iter().skip(half).step_by(2) {
        let source = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let test = FileTest::parse(&source)?;
        for command in test.commands() {
            let Command::Run(named) = &command else { continue };
            if named.is_empty() || named.iter().any(|id| id == "cuda") {
                ran += 1;
                if let Err(fault) = test.check(&command, std::slice::from_ref(&backend)) {
                    faults.push(format!("{}: {fault}", path.display()));
                }
            }
        }
    }
    println!("{ran} filetests");
    ensure(ran > 50, format!("only {ran} filetests"))?;
    ensure(faults.is_empty(), format!("{} of {ran}\n{}", faults.len(), faults.join("\n")))?;
    code_is_small(50)
}

fn generated() -> Done {
    let cuda = open()?;
    let generator = Generator::new(Options::for_backend(&*cuda));
    let runner = Runner { backends: vec![cuda], ..Runner::default() };
    let sizes = [[64, 1, 1], [1, 1, 1], [7, 1, 1], [3, 2, 2], [32, 2, 1], [16, 4, 1]];
    for seed in Seeds::new(200, 200, Duration::from_secs(600)) {
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
        if let Comparison::Different(difference) = runner.compare(&case, &variation) {
            let mismatch = Mismatch { case, variation, backend: Some("cuda"), difference };
            let small = runner.shrunk(&mismatch);
            let notes = [format!("seed {seed}, {}: {}", small.variation, small.difference)];
            let text = write(&small.case, &notes).unwrap_or_else(|error| error);
            return Err(format!("seed {seed}: {}\n{text}", mismatch.difference));
        }
    }
    code_is_small(1)
}

fn catalogue() -> Done {
    let (cuda, oracle): (_, Arc<dyn VyreBackend>) = (open()?, Arc::new(CpuRef));
    let profile: DeviceProfile = cuda.device_profile();
    let mut faults = Vec::new();
    for op in OPS {
        for sample in vyre_samples::of(op.id, 70) {
            let plan: Plan = (sample.plan)(&profile).map_err(|error| error.to_string())?;
            let given: Vec<&[u8]> = sample.inputs.iter().map(Vec::as_slice).collect();
            let run = |backend: &Arc<dyn VyreBackend>, config: &DispatchConfig| {
                plan.compile(backend.clone(), config)?.run(&given)
            };
            let lanes =
                DispatchConfig { subgroup_size: Some(profile.subgroup_size), ..DispatchConfig::default() };
            let name = format!("{}, {}", op.id, sample.label);
            match (run(&cuda, &DispatchConfig::default()), run(&oracle, &lanes)) {
                (Ok(found), Ok(expected)) => {
                    if found != expected {
                        faults.push(format!("{name}: the interpreter gives other bits"));
                    }
                    faults.extend(sample.fault(&found).map(|fault| format!("{name}: {fault}")));
                }
                (Err(error), _) | (_, Err(error)) => faults.push(format!("{name}: {error}")),
            }
        }
    }
    ensure(faults.is_empty(), faults.join("\n"))?;
    code_is_small(OPS.len() as u64)
}

fn runtime() -> Result<Runtime, String> {
    let builder = Runtime::builder().backends(["cuda"]).helper(None).meet_drivers_first().without_tables();
    builder.build().map_err(says)
}

/// A runtime routes to a backend only when it passed the set.
fn conformance() -> Done {
    let runtime = runtime()?;
    let refused: Vec<String> =
        runtime.refused().iter().map(|refused| format!("{}: {}", refused.backend, refused.reason)).collect();
    let met: Vec<&str> = runtime.backends().collect();
    ensure(met.contains(&"cuda"), format!("met {met:?}, refused {refused:?}"))?;
    let saxpy = runtime
        .load("kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) { let i = invocation.x\n y[i] = a * x[i] + y[i] }")
        .map_err(says)?;
    let (x, mut y) = ([1.0_f32, 2.0, 3.0], [10.0_f32, 20.0, 30.0]);
    let report =
        saxpy.call().bind("a", 2.0_f32).bind("x", &x[..]).bind("y", &mut y[..]).run().map_err(says)?;
    runtime.settle();
    ensure(y == [12.0, 24.0, 36.0], format!("{y:?} on {report:?}"))
}

fn residents() -> Done {
    let cuda = open()?;
    let handle = cuda.allocate_resident(400).map_err(says)?;
    let mut bytes = vec![1; 400];
    cuda.download_resident(handle, 0, &mut bytes).map_err(says)?;
    ensure(bytes == [0; 400], "new buffers are zero")?;
    cuda.upload_resident(handle, 0, &words(100, 1)).map_err(says)?;
    cuda.upload_resident(handle, 8, &[9, 0, 0, 0]).map_err(says)?;
    let double = parse(
        "kernel double(x: read_write u32[]) { region \"r\" { x[invocation.x] = 2 * x[invocation.x] } }",
    )
    .map_err(|faults| faults.to_string())?;
    let compiled = pipeline::compile(cuda.clone(), &double, &DispatchConfig::default()).map_err(says)?;
    for _ in 0..3 {
        let mut bindings = [Binding::Resident(handle)];
        compiled.dispatch_bound(&mut bindings, &DispatchConfig::default()).map_err(says)?;
    }
    cuda.download_resident(handle, 0, &mut bytes).map_err(says)?;
    let mut expected = words(100, 8);
    expected[8..12].copy_from_slice(&72_u32.to_le_bytes());
    ensure(bytes == expected, format!("{bytes:?}"))?;
    // A uniform that is resident, an output that is, and an input.
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let add = pipeline::compile(cuda.clone(), &add, &DispatchConfig::default()).map_err(says)?;
    let a = cuda.allocate_resident(4).map_err(says)?;
    cuda.upload_resident(a, 0, &5_u32.to_le_bytes()).map_err(says)?;
    cuda.upload_resident(handle, 0, &words(100, 1)).map_err(says)?;
    let out = cuda.allocate_resident(400).map_err(says)?;
    let mut z = words(100, 7);
    let mut bindings =
        [Binding::Resident(a), Binding::Resident(handle), Binding::Resident(out), Binding::ReadWrite(&mut z)];
    add.dispatch_bound(&mut bindings, &DispatchConfig::default()).map_err(says)?;
    cuda.download_resident(out, 0, &mut bytes).map_err(says)?;
    ensure([bytes, z] == sums(100, 5), "mixed buffers")?;
    for handle in [handle, a, out] {
        cuda.free_resident(handle).map_err(says)?;
    }
    ensure(cuda.free_resident(out).is_err(), "freed twice")
}

fn batches(graphs: bool) -> Done {
    let cuda = open()?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let add = pipeline::compile(cuda.clone(), &add, &DispatchConfig::default()).map_err(says)?;
    let config = DispatchConfig::default();
    let mut slots = Vec::new();
    for round in 0..5_u32 {
        // All rounds but the last put the same on the stream.
        let count = if round == 4 { 33 } else { 50 };
        let items: Vec<[Vec<u8>; 3]> = (0..10).map(|k| inputs(count + k, k)).collect();
        let borrowed: Vec<Vec<&[u8]>> =
            items.iter().map(|item| item.iter().map(Vec::as_slice).collect()).collect();
        let borrowed: Vec<&[&[u8]]> = borrowed.iter().map(Vec::as_slice).collect();
        add.dispatch_borrowed_batched_into(&borrowed, &config, &mut slots).map_err(says)?;
        for (k, slot) in slots.iter().enumerate() {
            let k = k as u32;
            ensure(*slot == sums(count + k, k), format!("round {round}, item {k}"))?;
        }
    }
    let (launches, launched_graphs) = counts()?;
    let expected = if graphs { (30, 3) } else { (50, 0) };
    ensure(
        (launches, launched_graphs) == expected,
        format!("{launches} launches, {launched_graphs} graphs"),
    )?;
    // An item that traps ends the batch; those before it are done.
    let source = "kernel check(x: read u32[], y: output u32[]) over x { region \"r\" {
      if x[invocation.x] == 7 { trap 3 }
      y[invocation.x] = x[invocation.x] } }";
    let check = parse(source).map_err(|faults| faults.to_string())?;
    let check = pipeline::compile(cuda, &check, &config).map_err(says)?;
    let items = [words(4, 1), words(5, 1), words(9, 1), words(3, 1)];
    let borrowed: Vec<[&[u8]; 1]> = items.iter().map(|item| [item.as_slice()]).collect();
    let borrowed: Vec<&[&[u8]]> = borrowed.iter().map(|item| &item[..]).collect();
    let mut slots = Vec::new();
    let ended = check.dispatch_borrowed_batched_into(&borrowed, &config, &mut slots);
    ensure(matches!(ended, Err(BackendError::Trapped { code: 3, .. })), format!("{ended:?}"))?;
    ensure(slots[0] == [words(4, 1)] && slots[1] == [words(5, 1)], "items before the trap")
}

fn compiled(cuda: &Arc<dyn VyreBackend>, source: &str) -> Result<Arc<dyn CompiledPipeline>, String> {
    let program = parse(source).map_err(|faults| faults.to_string())?;
    pipeline::compile(cuda.clone(), &program, &DispatchConfig::default()).map_err(says)
}

/// Runs steps on resident buffers.
fn sequence(
    cuda: &Arc<dyn VyreBackend>,
    steps: &[(&Arc<dyn CompiledPipeline>, &[u64])],
) -> Result<(), Failed> {
    let config = DispatchConfig::default();
    let resident = |(_, handles): &(&Arc<dyn CompiledPipeline>, &[u64])| {
        handles.iter().map(|handle| Binding::Resident(*handle)).collect::<Vec<_>>()
    };
    let mut bindings: Vec<Vec<Binding<'_>>> = steps.iter().map(resident).collect();
    let each = steps.iter().zip(&mut bindings);
    let mut steps: Vec<SequenceStep<'_, '_>> = each
        .map(|((pipeline, _), bindings)| SequenceStep { pipeline: &***pipeline, bindings, config: &config })
        .collect();
    cuda.dispatch_sequence(&mut steps)
}

fn read(cuda: &Arc<dyn VyreBackend>, handle: u64, count: u32) -> Result<Vec<u32>, String> {
    let mut bytes = vec![0; 4 * count as usize];
    cuda.download_resident(handle, 0, &mut bytes).map_err(says)?;
    Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// Kernels on resident buffers, each of which reads what the ones before it wrote.
fn sequences(graphs: bool) -> Done {
    let cuda = open()?;
    let double = compiled(
        &cuda,
        "kernel double(x: read_write u32[]) { region \"r\" { x[invocation.x] = 2 * x[invocation.x] } }",
    )?;
    // Writes one element; the others are zero, though they were something else before.
    let first = compiled(
        &cuda,
        "kernel first(x: read u32[], y: output u32[]) over [1, 1, 1] { region \"r\" { y[1] = x[1] + 1 } }",
    )?;
    let add = compiled(
        &cuda,
        "kernel add(n: u32 uniform, x: read_write u32[], y: read u32[]) over x { region \"r\" { x[invocation.x] += n + y[invocation.x] } }",
    )?;
    let resident = |contents: &[u8]| {
        let handle = cuda.allocate_resident(contents.len()).map_err(says)?;
        cuda.upload_resident(handle, 0, contents).map_err(says)?;
        Ok::<u64, String>(handle)
    };
    let (x, y, n) = (resident(&words(4, 1))?, resident(&words(4, 100))?, resident(&words(1, 0))?);
    let mut expected = [0_u32, 1, 2, 3];
    let mut ones = [0_u32, 100, 200, 300];
    for round in 0..6 {
        let before = counts()?;
        // The first step reads what the third clears.
        let steps: [(&Arc<dyn CompiledPipeline>, &[u64]); 5] =
            [(&add, &[n, x, y]), (&double, &[x]), (&first, &[x, y]), (&add, &[n, x, y]), (&double, &[y])];
        sequence(&cuda, &steps).map_err(|failed| failed.error.to_string())?;
        for (x, y) in expected.iter_mut().zip(ones) {
            *x = 2 * (*x + y);
        }
        ones = [0, expected[1] + 1, 0, 0];
        for (x, y) in expected.iter_mut().zip(ones) {
            *x += y;
        }
        ones[1] *= 2;
        ensure(read(&cuda, x, 4)? == expected, format!("round {round}: x"))?;
        ensure(read(&cuda, y, 4)? == ones, format!("round {round}: y"))?;
        let after = counts()?;
        let counted = (after.0 - before.0, after.1 - before.1);
        // The second time it is captured, from then on it is one call of the driver.
        let wanted = match (round, graphs) {
            (0, _) | (_, false) => (5, 0),
            (1, true) => (5, 1),
            (_, true) => (0, 1),
        };
        ensure(counted == wanted, format!("round {round}: {counted:?} launches and graphs"))?;
    }
    // A uniform that a step before writes is read after it.
    let count =
        compiled(&cuda, "kernel count(x: read_write u32[]) over [1, 1, 1] { region \"r\" { x[0] += 1 } }")?;
    let total = resident(&words(4, 0))?;
    let ones = resident(&[0; 16])?;
    for _ in 0..3 {
        let steps: [(&Arc<dyn CompiledPipeline>, &[u64]); 3] =
            [(&count, &[n]), (&add, &[n, total, ones]), (&count, &[n])];
        sequence(&cuda, &steps).map_err(|failed| failed.error.to_string())?;
    }
    ensure(read(&cuda, total, 4)? == [1 + 3 + 5; 4], "a uniform that changes")?;
    // Nothing runs after a trap, and what ran before it is done.
    let check = compiled(
        &cuda,
        "kernel check(x: read u32[]) over x { region \"r\" { if x[invocation.x] == 9 { trap 3 } } }",
    )?;
    let steps: [(&Arc<dyn CompiledPipeline>, &[u64]); 4] =
        [(&check, &[ones]), (&double, &[total]), (&check, &[total]), (&double, &[total])];
    sequence(&cuda, &steps).map_err(|failed| failed.error.to_string())?;
    ensure(read(&cuda, total, 4)? == [36; 4], "no trap")?;
    cuda.upload_resident(ones, 0, &words(4, 3)).map_err(says)?;
    let steps: [(&Arc<dyn CompiledPipeline>, &[u64]); 4] =
        [(&double, &[total]), (&double, &[ones]), (&check, &[ones]), (&double, &[total])];
    sequence(&cuda, &steps).map_err(|failed| failed.error.to_string())?;
    cuda.upload_resident(ones, 0, &words(4, 9)).map_err(says)?;
    let ended = sequence(&cuda, &[(&double, &[total]), (&check, &[ones]), (&double, &[total])]);
    ensure(
        matches!(&ended, Err(Failed { done: 1, error: BackendError::Trapped { code: 3, .. } })),
        format!("{ended:?}"),
    )?;
    ensure(read(&cuda, total, 4)? == [36 * 8; 4], "what follows a trap does not run")?;
    // A step that is refused is not begun, and those before it are done.
    let ended = sequence(&cuda, &[(&double, &[total]), (&add, &[n, total, total]), (&double, &[total])]);
    ensure(matches!(&ended, Err(Failed { done: 1, .. })), format!("{ended:?}"))?;
    ensure(read(&cuda, total, 4)? == [36 * 16; 4], "a step that is refused")
}

fn sequences_in_runtime() -> Done {
    let runtime = runtime()?;
    let load = |source: &str| runtime.load(source).map_err(says);
    let double = load("kernel double(x: read_write u32[]) { x[invocation.x] = 2 * x[invocation.x] }")?;
    let add = load(
        "kernel add(n: u32 uniform, x: read_write u32[], y: read u32[]) over x { x[invocation.x] += n + y[invocation.x] }",
    )?;
    let (mut x, mut y) = (runtime.resident(&[1_u32, 2, 3]), runtime.resident(&[10_u32, 20, 30]));
    let (x, y) = (x.cell(), y.cell());
    let mut expected = [1_u32, 2, 3];
    runtime.settle();
    let mut run = |backend: Option<&str>| {
        let before = counts()?;
        let calls = [
            double.call().bind("x", x),
            add.call().bind("n", 7_u32).bind("x", x).bind("y", y),
            double.call().bind("x", x),
        ];
        let mut sequence = runtime.sequence();
        sequence.extend(calls.into_iter().map(|call| backend.into_iter().fold(call, |call, id| call.on(id))));
        let reports = sequence.run().map_err(says)?;
        ensure(reports.len() == 3 && reports.iter().all(|report| report.backend == "cuda"), "reports")?;
        for (x, y) in expected.iter_mut().zip([10, 20, 30]) {
            *x = x.wrapping_mul(2).wrapping_add(7 + y).wrapping_mul(2);
        }
        ensure(x.read().map_err(says)? == expected, "results")?;
        let after = counts()?;
        Ok::<(u64, u64), String>((after.0 - before.0, after.1 - before.1))
    };
    // A named backend needs no look around: the second time it is captured, from then on it is one call of the driver.
    for (round, wanted) in [(3, 0), (3, 1), (0, 1), (0, 1)].into_iter().enumerate() {
        let counted = run(Some("cuda"))?;
        ensure(counted == wanted, format!("round {round}: {counted:?} launches and graphs"))?;
    }
    // Else the router has some calls run alone, and checks what they give beside them.
    let mut graphs = 0;
    for _ in 0..40 {
        graphs += run(None)?.1;
    }
    ensure(graphs >= 20, format!("{graphs} graphs"))
}

/// All steps at once do not fit the memory, each alone does.
fn sequence_in_little_memory() -> Done {
    let runtime = runtime()?;
    let add = runtime
        .load("kernel add(x: read u32[], y: output u32[]) over x { y[invocation.x] = x[invocation.x] + 1 }")
        .map_err(says)?;
    let given: Vec<u32> = (0..20_000).collect();
    for _ in 0..3 {
        let mut outputs = vec![vec![0_u32; given.len()]; 10];
        let mut sequence = runtime.sequence();
        sequence.extend(
            outputs.iter_mut().map(|output| add.call().bind("x", &given).bind("y", output).on("cuda")),
        );
        let reports = sequence.run().map_err(says)?;
        ensure(reports.len() == 10, format!("{} reports", reports.len()))?;
        for output in &outputs {
            ensure(output.iter().zip(&given).all(|(y, x)| *y == x + 1), "sums")?;
        }
    }
    Ok(())
}

/// The kernels of an op run in one launch.
fn op_in_one_launch() -> Done {
    let cuda = open()?;
    let count = 100_000_u32;
    let plan = reduce::reduce(Combine::Add, DataType::U32, count, &cuda.device_profile())
        .map_err(|error| error.to_string())?;
    let plan = plan.compile(cuda, &DispatchConfig::default()).map_err(says)?;
    ensure(plan.dispatches() > 1, "one dispatch")?;
    let x = words(count, 1);
    for round in 0..4 {
        let before = counts()?;
        let sum = plan.run(&[&x]).map_err(says)?;
        ensure(sum == [(count - 1).wrapping_mul(count / 2).to_le_bytes().to_vec()], format!("{sum:?}"))?;
        let after = counts()?;
        let counted = (after.0 - before.0, after.1 - before.1);
        ensure(round < 2 || counted == (0, 1), format!("round {round}: {counted:?} launches and graphs"))?;
    }
    Ok(())
}

/// More than a piece, and more than is pinned.
fn large() -> Done {
    let cuda = open()?;
    let source = "kernel first(x: read u32[], y: output u32[1], z: read_write u32[]) over [1, 1, 1] {
      region \"r\" { y[0] = x[len(x) - 1] + z[0]\n z[len(z) - 1] = x[0] + 1 } }";
    let program = parse(source).map_err(|faults| faults.to_string())?;
    let compiled = pipeline::compile(cuda, &program, &DispatchConfig::default()).map_err(says)?;
    for count in [3 << 20, 12 << 20] {
        let (x, z) = (words(count, 1), words(count, 3));
        let mut expected = z.clone();
        let last = expected.len() - 4;
        expected[last..].copy_from_slice(&1_u32.to_le_bytes());
        for timeout in [None, Some(Duration::from_secs(300))] {
            let config = DispatchConfig { timeout, ..DispatchConfig::default() };
            let found = compiled.dispatch_borrowed(&[&x, &z], &config).map_err(says)?;
            ensure(found[0] == (count - 1).to_le_bytes(), "the last element")?;
            ensure(found[1] == expected, "what was written")?;
        }
    }
    Ok(())
}

/// Grids that a launch cannot have as they are.
fn large_grids() -> Done {
    let cuda = open()?;
    let source = "kernel tall(n: output u32[1], far: output u32[3]) over [1, 70000, 2] workgroup [1, 1, 1] {
      region \"r\" { let k = atomic_add(n, 0, 1)
        if invocation.y == 69999 && invocation.z == 1 { far[0] = workgroup.y\n far[1] = workgroup.z\n far[2] = grid_size.y } } }";
    let program = parse(source).map_err(|faults| faults.to_string())?;
    let found = cuda.dispatch(&program, &[], &DispatchConfig::default()).map_err(says)?;
    let far: Vec<u8> = [69_999_u32, 1, 70_000].iter().flat_map(|k| k.to_le_bytes()).collect();
    ensure(found == [140_000_u32.to_le_bytes().to_vec(), far], format!("{found:?}"))
}

fn devices() -> Done {
    let names = Cuda::device_names().map_err(says)?;
    ensure(names.len() == 2 && names[0].contains("Fake 0"), format!("{names:?}"))?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    for id in ["cuda", "cuda:0", "cuda:1"] {
        let backend = registry::acquire(id).map_err(says)?;
        ensure(backend.id() == id || id == "cuda:0", backend.id())?;
        let found = backend.dispatch(&add, &inputs(20, 5), &DispatchConfig::default()).map_err(says)?;
        ensure(found == sums(20, 5), id)?;
    }
    let missing = registry::acquire("cuda:2").err().map(says).unwrap_or_default();
    ensure(missing.contains("below 2"), missing)
}

fn kept_code() -> Done {
    let cache = PathBuf::from(std::env::var_os("XDG_CACHE_HOME").unwrap_or_default()).join("vyre/cuda");
    let files = || std::fs::read_dir(&cache).into_iter().flatten().flatten().map(|entry| entry.path());
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let run = || {
        let cuda = Cuda::new().map_err(says)?;
        let found = cuda.dispatch(&add, &inputs(20, 5), &DispatchConfig::default()).map_err(says)?;
        ensure(found == sums(20, 5), "wrong")
    };
    run()?;
    let kept: Vec<PathBuf> = files().collect();
    ensure(kept.len() == 1, format!("{kept:?}"))?;
    let whole = std::fs::read(&kept[0]).map_err(|error| error.to_string())?;
    run()?;
    ensure(files().count() == 1, "code that is there is used")?;
    // Damaged, and whole by its checksum but nothing that a driver takes.
    for damaged in [whole[..whole.len() / 2].to_vec(), Vec::new()] {
        std::fs::write(&kept[0], damaged).map_err(|error| error.to_string())?;
        run()?;
        let again = std::fs::read(&kept[0]).map_err(|error| error.to_string())?;
        ensure(again == whole, "made anew")?;
    }
    Ok(())
}

fn times() -> Done {
    let cuda = open()?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let add = pipeline::compile(cuda, &add, &DispatchConfig::default()).map_err(says)?;
    let given = inputs(2000, 5);
    let given: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
    let timed = add.dispatch_timed(&given, &DispatchConfig::default()).map_err(says)?;
    ensure(timed.outputs == sums(2000, 5), "wrong")?;
    let device = timed.device.ok_or("no time")?;
    ensure(device > Duration::ZERO && device <= timed.wall, format!("{device:?} of {:?}", timed.wall))
}

// What goes wrong.

fn deadlines() -> Done {
    let cuda = open()?;
    // An endless loop, one with a barrier, and a grid that takes long.
    let sources = [
        "kernel spin(out: output u32[1]) workgroup 1 { region \"r\" { let k = 1\n while k != 0 { k = k | 1 }\n out[0] = k } }",
        "kernel meet(out: output u32[1], t: workgroup u32[1]) over [64, 1, 1] workgroup 64 { region \"r\" {
           let k = 1\n while k != 0 { k = k | 1\n barrier }\n out[0] = k } }",
        "kernel long(out: output u32[1]) over [4294967295, 64, 1] { region \"r\" {
           let k = atomic_add(out, 0, 1) } }",
    ];
    for source in sources {
        let program = parse(source).map_err(|faults| faults.to_string())?;
        let compiled = pipeline::compile(cuda.clone(), &program, &DispatchConfig::default()).map_err(says)?;
        let config =
            DispatchConfig { timeout: Some(Duration::from_millis(900)), ..DispatchConfig::default() };
        // The first one may pass its time in the compiler.
        for _ in 0..2 {
            let ended = compiled.dispatch(&[], &config);
            ensure(matches!(ended, Err(BackendError::Timeout { .. })), format!("{ended:?} of {source}"))?;
        }
    }
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let config = DispatchConfig { timeout: Some(Duration::from_secs(60)), ..DispatchConfig::default() };
    let found = cuda.dispatch(&add, &inputs(300, 5), &config).map_err(says)?;
    ensure(found == sums(300, 5), "a call in time")
}

fn out_of_memory() -> Done {
    let cuda = open()?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let add = pipeline::compile(cuda.clone(), &add, &DispatchConfig::default()).map_err(says)?;
    let run = |count: u32| add.dispatch(&inputs(count, 5), &DispatchConfig::default());
    for _ in 0..3 {
        ensure(run(50).map_err(says)? == sums(50, 5), "a call that fits")?;
        let large = run(1 << 20);
        ensure(matches!(large, Err(BackendError::DeviceOutOfMemory { .. })), "a call that does not")?;
        let resident = cuda.allocate_resident(1 << 30);
        ensure(
            matches!(resident, Err(BackendError::DeviceOutOfMemory { .. })),
            "a buffer that does not fit",
        )?;
        // What sessions keep is given back for it.
        ensure(run(20_000).map_err(says)? == sums(20_000, 5), "a larger call")?;
        let handle = cuda.allocate_resident(900_000).map_err(says)?;
        cuda.free_resident(handle).map_err(says)?;
    }
    Ok(())
}

fn lost(reason: &str) -> Done {
    let cuda = open()?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let run = || cuda.dispatch(&add, &inputs(50, 5), &DispatchConfig::default());
    ensure(run().map_err(says)? == sums(50, 5), "the first launch")?;
    let broken = run();
    let text = broken.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure(matches!(broken, Err(BackendError::DeviceLost { .. })) && text.contains(reason), text)?;
    let (launches, _) = counts()?;
    let again = run();
    ensure(matches!(again, Err(BackendError::DeviceLost { .. })), format!("{again:?}"))?;
    ensure(matches!(cuda.allocate_resident(4), Err(BackendError::DeviceLost { .. })), "allocates")?;
    ensure(counts()?.0 == launches, "nothing is launched any more")?;
    refused(&[reason, "not used again in this process"])
}

fn lost_in_runtime() -> Done {
    let runtime = runtime()?;
    let routine = runtime
        .load("kernel double(x: read_write u32[]) { x[invocation.x] = 2 * x[invocation.x] }")
        .map_err(says)?;
    let mut ended = None;
    for _ in 0..100 {
        let mut x = [1_u32, 2, 3];
        match routine.call().bind("x", &mut x[..]).run() {
            Ok(_) => ensure(x == [2, 4, 6], format!("{x:?}"))?,
            Err(error) => {
                // The memory is as it was.
                ensure(x == [1, 2, 3], format!("{x:?} after {error}"))?;
                ended = Some(error);
                break;
            }
        }
    }
    runtime.settle();
    let error = ended.ok_or("nothing was lost")?;
    ensure(error.to_string().contains("ILLEGAL_ADDRESS"), error.to_string())?;
    let mut x = [1_u32, 2, 3];
    let again = routine.call().bind("x", &mut x[..]).run();
    ensure(again.is_err(), "the device is tried again")
}

fn hang() -> Done {
    let cuda = open()?;
    let add = parse(ADD).map_err(|faults| faults.to_string())?;
    let run = |timeout: Option<Duration>| {
        let config = DispatchConfig { timeout, ..DispatchConfig::default() };
        cuda.dispatch(&add, &inputs(50, 5), &config)
    };
    ensure(run(None).map_err(says)? == sums(50, 5), "the first launch")?;
    let began = Instant::now();
    // The first calls may pass their time in the compiler.
    let hung = loop {
        match run(Some(Duration::from_secs(2))) {
            Err(BackendError::Timeout { .. }) if began.elapsed() < Duration::from_secs(100) => {}
            other => break other,
        }
    };
    ensure(matches!(hung, Err(BackendError::DeviceLost { .. })), format!("{hung:?}"))?;
    ensure(matches!(run(None), Err(BackendError::DeviceLost { .. })), "it is not used again")
}

fn refused(parts: &[&str]) -> Done {
    let text = Cuda::new().err().map(says).ok_or("it opens")?;
    let lacking: Vec<&&str> = parts.iter().filter(|part| !text.contains(**part)).collect();
    ensure(lacking.is_empty(), format!("`{text}` does not say {lacking:?}"))
}

fn absent() -> Done {
    refused(&["backend `cuda` cannot be used", "libcuda is not there", "install NVIDIA's driver"])?;
    ensure(Cuda::device_names().is_err(), "devices without a driver")
}
