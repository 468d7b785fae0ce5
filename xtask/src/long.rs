//! Long-running checks that find what short tests rarely trigger. Each runs in a child process, so
//! that a crash is a failure and does not end the others.

use crate::{attack, editors, release, root};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run only the checks with these names
    names: Vec<String>,
    /// Seconds for each part of a run
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Number of inputs for each fuzz target
    #[arg(long, default_value_t = 10_000_000)]
    inputs: u64,
    /// Number of generated programs: half on `cpu` by default, more in its other modes, a hundredth
    /// on each driver
    #[arg(long, default_value_t = 500_000)]
    programs: u64,
    /// First seed of generated programs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of points for each f64 function
    #[arg(long, default_value_t = 100_000_000)]
    points: u64,
    /// Number of processes that write the same tables; a quarter are killed
    #[arg(long, default_value_t = 10_000)]
    processes: u64,
}

struct Run {
    name: &'static str,
    /// Takes hours: runs only if it is named.
    is_asked_for: bool,
    run: fn(&Arguments) -> Result<(), String>,
}

const fn minutes(name: &'static str, run: fn(&Arguments) -> Result<(), String>) -> Run {
    Run { name, is_asked_for: false, run }
}

const fn hours(name: &'static str, run: fn(&Arguments) -> Result<(), String>) -> Run {
    Run { name, is_asked_for: true, run }
}

const RUNS: [Run; 9] = [
    minutes("driver-stress", |arguments| driver_stress(arguments.seconds)),
    minutes("fuzz", |arguments| fuzz(arguments.inputs)),
    minutes("attack", |arguments| attack(arguments.processes)),
    minutes("conform", |arguments| conform(arguments.programs, arguments.seed)),
    minutes("valgrind", |_| valgrind()),
    minutes("editors", |_| editors::run(&editors::Arguments::default())),
    hours("release", |_| release::run(&release::Arguments::dry())),
    minutes("ulp-reference", |_| ulp(&["--features", "precise"], &["--reference", "100000"])),
    hours("ulp", |arguments| ulp(&[], &["--points", &arguments.points.to_string()])),
];

/// Measures the errors of the f64 functions, or of the reference they are compared with. An
/// interrupted run resumes where it stopped.
fn ulp(build: &[&str], what: &[&str]) -> Result<(), String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["run", "--release", "--quiet", "--package", "xtask"]).args(build);
    succeed(cargo.args(["--", "ulp"]).args(what))
}

/// Runs generated programs on every backend: on `cpu` in each of its modes, on a driver one program
/// for every hundred of those.
fn conform(programs: u64, seed: u64) -> Result<(), String> {
    let features = "wgpu,opencl,cranelift";
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--release", "-p", "vyre-cli", "--features", features]).current_dir(root());
    succeed(&mut build)?;
    let ways = [
        ("cpu", None::<(&str, &str)>, 10_u64),
        ("cpu", Some(("VYRE_CPU_LANES", "8")), 5),
        ("cpu", Some(("VYRE_CPU_LANES", "16")), 5),
        ("cpu", Some(("VYRE_CPU_LANES", "1")), 1),
        ("cpu", Some(("VYRE_CPU_PAST_CACHES", "always")), 1),
        ("cpu", Some(("VYRE_CPU", "avx2")), 2),
        ("cpu", Some(("VYRE_CPU", "cranelift")), 2),
        ("wgpu", None, 0),
        ("opencl", None, 0),
    ];
    let failures = root().join("target/long/conform-failures");
    for (backend, variable, twentieths) in ways {
        let count = if twentieths == 0 { programs / 100 } else { programs / 20 * twentieths };
        println!("{backend} {variable:?}: {count} programs from seed {seed}");
        let mut vyre = Command::new(root().join("target/release/vyre"));
        vyre.args(["conform", "--backend", backend, "--sample", "1", "--out"]).arg(&failures);
        vyre.args(["--count", &count.to_string(), "--seed", &seed.to_string()]);
        vyre.envs(variable);
        succeed(&mut vyre)?;
    }
    // Programs about indices run on memory between guard pages.
    println!("cpu: {programs} programs about indices from seed {seed}");
    let mut guarded = Command::new(env!("CARGO"));
    guarded.args(["test", "--release", "--quiet", "-p", "vyre-cpu", "--test", "all", "proved_at_launch"]);
    guarded.env("VYRE_CASES", programs.to_string()).env("VYRE_SEED", seed.to_string());
    succeed(guarded.current_dir(root()))
}

/// Runs `cpu`'s memory handling and machine code under Valgrind: large frames, threads, every kind
/// of access, and generated programs.
fn valgrind() -> Result<(), String> {
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root()).args(["test", "--quiet", "-p", "vyre-cpu", "--features", "cranelift"]);
        cargo.args(["--test", "all"]);
        cargo
    };
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("valgrind is not installed".into());
    }
    // C programs with every mistake that the interface reports, and threads that free what others
    // use. Optimised Rust can read the value of an `Option` before checking that there is one, and
    // Valgrind cannot know that nothing depends on it.
    let mut programs = Command::new(env!("CARGO"));
    programs.current_dir(root()).args(["test", "--quiet", "-p", "vyre-c", "--test", "c"]);
    let runner = "valgrind -q --error-exitcode=9 --leak-check=no --undef-value-errors=no";
    succeed(programs.env("VYRE_C_RUNNER", runner))?;
    succeed(cargo().arg("--no-run"))?;
    let mut watched = cargo();
    // Tests that re-run the binary are skipped, since Valgrind does not follow the new process.
    watched.args(["--", "frames::", "threads::", "oracle::", "differential::", "--skip", "again::"]);
    watched.env("VYRE_CASES", "50");
    let runner = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";
    succeed(watched.env(runner, "valgrind -q --error-exitcode=9 --leak-check=no"))
}

/// Fuzzes the readers of text, wire bytes, tables, bundles, manifests and arrays with mutated
/// inputs.
fn fuzz(inputs: u64) -> Result<(), String> {
    let readers = [
        &["-p", "vyre-driver", "--lib"][..],
        &["-p", "vyre-cli", "--lib"],
        &["-p", "vyre-import", "--test", "fuzz"],
    ];
    readers.into_iter().try_for_each(|reader| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(root()).env("VYRE_FUZZ_COUNT", inputs.to_string());
        command.args(["test", "--release"]).args(reader).args(["fuzz_", "--", "--nocapture"]);
        succeed(&mut command)
    })
}

/// Runs `cargo xtask attack` on a release build, with more processes.
fn attack(processes: u64) -> Result<(), String> {
    attack::run(&attack::Arguments { processes, damaged: 500, seed: 2, release: true, names: Vec::new() })
}

/// Number of threads that keep the processors busy during a stress test, so that threads are
/// preempted at bad moments more often.
const BUSY_THREADS: usize = 4;

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let names: Vec<&str> = RUNS.iter().map(|run| run.name).collect();
    if let Some(unknown) = arguments.names.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no long run `{unknown}`; there are {}", names.join(", ")));
    }
    let mut failed = Vec::new();
    for Run { name, is_asked_for, run } in &RUNS {
        let is_named = arguments.names.iter().any(|wanted| wanted == name);
        if !is_named && (*is_asked_for || !arguments.names.is_empty()) {
            continue;
        }
        println!("==> {name}");
        let start = Instant::now();
        let outcome = run(arguments);
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("{name}: ok, {seconds:.1} s"),
            Err(message) => {
                println!("{name}: FAILED {message}, {seconds:.1} s");
                failed.push(*name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs threads that compile, run, drop and reopen concurrently, on each backend with a driver,
/// from cold caches on a busy machine.
fn driver_stress(seconds: u64) -> Result<(), String> {
    for backend in ["vyre-opencl", "vyre-wgpu"] {
        // Built first, so that the busy threads do not slow the build down.
        succeed(&mut stress_test(backend, &["--no-run"]))?;
        let caches = empty_folder(backend)?;
        let mut test = stress_test(backend, &["--", "--nocapture"]);
        test.env("XDG_CACHE_HOME", &caches).env("VYRE_STRESS_SECONDS", seconds.to_string());
        // PoCL would prefer these to the empty folder.
        test.env_remove("POCL_CACHE_DIR").env_remove("POCL_KERNEL_CACHE");
        let outcome = on_a_busy_machine(|| succeed(&mut test));
        // A leftover folder is in the target folder and is emptied next time.
        let _ = std::fs::remove_dir_all(&caches);
        outcome?;
    }
    Ok(())
}

fn stress_test(package: &str, words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["test", "--quiet", "--package", package, "--test", "stress"]).args(words);
    command.current_dir(root());
    command
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

fn empty_folder(name: &str) -> Result<PathBuf, String> {
    let folder = root().join("target/long").join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failed)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// Runs `work` while threads of this process keep the processors busy.
fn on_a_busy_machine<T>(work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..BUSY_THREADS {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        outcome
    })
}
