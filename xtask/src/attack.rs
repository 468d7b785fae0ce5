//! `cargo xtask attack`: exposes the `vyre` command to faults and hostile input, for about two
//! minutes.
//!
//! It runs hostile programs on every backend, kills processes while they write the same tables,
//! damages tables and bundles, and passes wrong arguments. The command must not die by a signal
//! that it was not sent, panic, or overrun its deadline by much, and whatever a process reported as
//! saved must exist. All of this happens in a dedicated folder.

use crate::root;
use clap::Args;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Number of processes that write the same tables; every fourth is killed
    #[arg(long, default_value_t = 400)]
    pub(crate) processes: u64,
    /// Number of damaged tables and of damaged bundles to try
    #[arg(long, default_value_t = 60)]
    pub(crate) damaged: u64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Attack a release build
    #[arg(long)]
    pub(crate) release: bool,
    /// Run only the attacks with these names
    pub(crate) names: Vec<String>,
}

/// Attack that returns a summary, or what broke.
type Attack<'a> = dyn Fn() -> Result<String, String> + 'a;

/// Number of processes that write the same tables in parallel.
const AT_ONCE: usize = 8;
/// Number of hostile programs in parallel; low, because they are timed.
const PROGRAMS_AT_ONCE: usize = 2;
/// Time limit of a program, time limit of an endless one, and how late either can return.
const DEADLINE: Duration = Duration::from_secs(3);
const ENDLESS_DEADLINE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_millis(500);

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let target = Target::build(arguments.release)?;
    let steps: [(&str, &Attack<'_>); 5] = [
        ("programs", &|| hostile_programs(&target)),
        ("processes", &|| killed_processes(&target, arguments)),
        ("tables", &|| damaged_tables(&target, arguments)),
        ("bundles", &|| hostile_bundles(&target, arguments)),
        ("arguments", &|| wrong_arguments(&target)),
    ];
    let known: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = arguments.names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no attack `{unknown}`; there are {}", known.join(", ")));
    }
    let mut failed = Vec::new();
    for (name, step) in steps {
        if !arguments.names.is_empty() && !arguments.names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let began = Instant::now();
        let outcome = step();
        let seconds = began.elapsed().as_secs_f64();
        match outcome {
            Ok(found) => println!("{name}: ok, {found}, {seconds:.1} s"),
            Err(message) => {
                println!("{name}: FAILED, {seconds:.1} s\n{message}");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// The command under attack, and the folder for its files.
struct Target {
    vyre: PathBuf,
    folder: PathBuf,
}

impl Target {
    fn build(release: bool) -> Result<Target, String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root()).args(["build", "-p", "vyre-cli", "--features", "wgpu,opencl"]);
        cargo.args(release.then_some("--release"));
        let status = cargo.status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err("the command does not build".into());
        }
        let folder = std::env::temp_dir().join(format!("vyre-attack-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let profile = if release { "release" } else { "debug" };
        Ok(Target { vyre: root().join("target").join(profile).join("vyre"), folder })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.vyre);
        command.args(arguments).env("VYRE_TABLES", self.tables()).env("HOME", &self.folder);
        command.env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<Output, String> {
        self.command(arguments).output().map_err(|error| error.to_string())
    }

    fn tables(&self) -> PathBuf {
        self.folder.join("tables")
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Fails if the command died by a signal or panicked; returns the exit code.
fn survived(what: &str, output: &Output) -> Result<i32, String> {
    let printed = String::from_utf8_lossy(&output.stderr);
    if printed.contains("panicked at") {
        return Err(format!("{what} panicked:\n{printed}"));
    }
    output.status.code().ok_or_else(|| format!("{what} ended by {}:\n{printed}", output.status))
}

/// Next number of a deterministic pseudorandom sequence.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

/// Runs every hostile program on every backend. Each must give the interpreter's outputs, be
/// refused or time out.
fn hostile_programs(target: &Target) -> Result<String, String> {
    let entries = fs::read_dir(root().join("filetests/hostile")).map_err(|error| error.to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for backend in BACKENDS {
        // Drivers are probed before anything is timed.
        survived(backend, &target.run(&["run", "examples/saxpy.vyre", "--backend", backend])?)?;
    }
    let counts = [const { AtomicU64::new(0) }; 3];
    let attack = |number: u64| {
        let Some(file) = files.get(number as usize) else { return Ok(()) };
        let mut expected = None;
        for backend in BACKENDS {
            let kind = match outputs(target, file, backend)? {
                Outcome::Outputs(found) => {
                    let first = expected.get_or_insert_with(|| found.clone());
                    if *first != found && !reads_subgroups(file) {
                        return Err(format!("{} on `{backend}` gives other outputs", file.display()));
                    }
                    0
                }
                Outcome::Refused => 1,
                Outcome::Late => 2,
            };
            counts[kind].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let failures = at_once(PROGRAMS_AT_ONCE, files.len() as u64, attack);
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    let [equal, refused, late] = counts.map(AtomicU64::into_inner);
    Ok(format!(
        "{} programs: {equal} gave outputs, {refused} were refused, {late} ran out of time",
        files.len()
    ))
}

/// Calls `work` for each number below `count` on `threads` threads; returns the failures in no
/// particular order.
fn at_once(threads: usize, count: u64, work: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<String> {
    let (started, failures) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = started.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    if let Err(failure) = work(number) {
                        failures.lock().unwrap_or_else(|error| error.into_inner()).push(failure);
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap_or_else(|error| error.into_inner())
}

const BACKENDS: [&str; 4] = ["cpu-ref", "cpu", "wgpu", "opencl"];

enum Outcome {
    Outputs(String),
    Refused,
    Late,
}

fn reads_subgroups(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains("subgroup_"))
}

/// Time limit of a program; shorter if its test expects a timeout.
fn deadline_of(file: &Path) -> Duration {
    let endless = fs::read_to_string(file).is_ok_and(|text| text.contains("// expect timeout"));
    if endless { ENDLESS_DEADLINE } else { DEADLINE }
}

fn outputs(target: &Target, file: &Path, backend: &str) -> Result<Outcome, String> {
    let shown = format!("{} on `{backend}`", file.display());
    let deadline = deadline_of(file);
    let seconds = deadline.as_secs_f64().to_string();
    let file = file.display().to_string();
    let began = Instant::now();
    let output = target.run(&["run", &file, "--backend", backend, "--timeout", &seconds, "--json"])?;
    let took = began.elapsed();
    let code = survived(&shown, &output)?;
    if took > deadline + GRACE {
        return Err(format!("{shown} took {took:?}"));
    }
    match code {
        0 => {
            let json: serde_json::Value =
                serde_json::from_slice(&output.stdout).map_err(|error| format!("{shown}: {error}"))?;
            Ok(Outcome::Outputs(json["outputs"].to_string()))
        }
        3 => Ok(Outcome::Refused),
        4 => Ok(Outcome::Late),
        code => Err(format!("{shown} ended with {code}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs many processes that write one table and kills every fourth. Rows that the others reported
/// as kept must exist.
fn killed_processes(target: &Target, arguments: &Arguments) -> Result<String, String> {
    let (killed, kept) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let one = |number: u64| -> Result<(), String> {
        let name = format!("attack_{number}");
        let file = target.path(&format!("{name}.vyre"));
        let text = format!(
            "kernel {name}(y: output u32[64]) {{ region \"r\" {{ y[invocation.x] = invocation.x + {number} }} }}\n"
        );
        fs::write(&file, text).map_err(|error| error.to_string())?;
        let mut command = target.command(&["certify", &file, "--backend", "cpu", "--json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let kill = number % 4 == 3;
        if kill {
            let mut state = arguments.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number) | 1;
            std::thread::sleep(Duration::from_micros(next(&mut state) % 40_000));
            child.kill().map_err(|error| error.to_string())?;
            killed.fetch_add(1, Ordering::Relaxed);
        }
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let _ = fs::remove_file(&file);
        if output.status.success() {
            kept.lock().unwrap_or_else(|error| error.into_inner()).push(name);
            return Ok(());
        }
        if kill {
            Ok(())
        } else {
            Err(format!("certify {number}: {}", String::from_utf8_lossy(&output.stderr)))
        }
    };
    let failures = at_once(AT_ONCE, arguments.processes, one);
    if let Some(first) = failures.first() {
        return Err(format!("{} processes failed; the first: {first}", failures.len()));
    }
    let verified = target.run(&["cache", "verify"])?;
    if survived("cache verify", &verified)? != 0 {
        return Err(format!("the tables are damaged: {}", String::from_utf8_lossy(&verified.stdout)));
    }
    let kept = kept.into_inner().unwrap_or_default();
    // Read through the command itself.
    let bundle = target.path("kept.toml");
    survived("cache export", &target.run(&["cache", "export", &bundle])?)?;
    let text = fs::read_to_string(&bundle).map_err(|error| error.to_string())?;
    let rows: HashSet<&str> = text.lines().filter_map(|line| line.strip_prefix("[routes.routes.")).collect();
    let lost: Vec<&String> = kept.iter().filter(|name| !rows.contains(format!("{name}]").as_str())).collect();
    if !lost.is_empty() {
        return Err(format!("{} rows of {} that were kept are not there: {lost:?}", lost.len(), kept.len()));
    }
    let killed = killed.into_inner();
    Ok(format!("{} processes, {killed} killed, {} rows kept and there", arguments.processes, kept.len()))
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, mut files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| files_of(folder)));
    files.sort();
    files
}

/// Changes, truncates or duplicates a few of the bytes.
fn damaged(bytes: &[u8], state: &mut u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + next(state) % 4 {
        let at = next(state) as usize % bytes.len().max(1);
        match next(state) % 5 {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => bytes.splice(at..at, *b"9999999999999999999999").for_each(drop),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = next(state) as u8),
        }
    }
    bytes
}

/// Damages tables: commands must report it and continue, and programs must still run.
fn damaged_tables(target: &Target, arguments: &Arguments) -> Result<String, String> {
    let _ = fs::remove_dir_all(target.tables());
    for example in ["examples/saxpy.vyre", "examples/reduce.vyre"] {
        survived("certify", &target.run(&["certify", example, "--sizes", "1K", "--backend", "cpu"])?)?;
        survived(
            "tune",
            &target.run(&["tune", example, "--size", "1K", "--seconds", "0.1", "--backend", "cpu"])?,
        )?;
    }
    let sound: Vec<(PathBuf, Vec<u8>)> = files_of(&target.tables())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension != "lock"))
        .filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes)))
        .collect();
    if sound.is_empty() {
        return Err("there are no tables".into());
    }
    let mut state = arguments.seed | 1;
    for _ in 0..arguments.damaged {
        let (path, bytes) = &sound[next(&mut state) as usize % sound.len()];
        fs::write(path, damaged(bytes, &mut state)).map_err(|error| error.to_string())?;
        survived("cache verify", &target.run(&["cache", "verify"])?)?;
        survived("cache ls", &target.run(&["cache", "ls"])?)?;
        let output = target.run(&["run", "examples/saxpy.vyre"])?;
        if survived("run", &output)? != 0 {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(format!("with a damaged {} nothing runs: {printed}", path.display()));
        }
    }
    // Damaged tables were quarantined; the rest of the attack starts with empty ones.
    fs::remove_dir_all(target.tables()).map_err(|error| error.to_string())?;
    Ok(format!("{} damaged in turn", arguments.damaged))
}

/// Imports damaged bundles, which must be accepted or refused cleanly.
fn hostile_bundles(target: &Target, arguments: &Arguments) -> Result<String, String> {
    survived("certify", &target.run(&["certify", "examples/saxpy.vyre", "--backend", "cpu"])?)?;
    let bundle = target.path("bundle.toml");
    survived("cache export", &target.run(&["cache", "export", &bundle])?)?;
    let sound = fs::read(&bundle).map_err(|error| error.to_string())?;
    let (mut state, mut refused) = (arguments.seed.wrapping_add(99) | 1, 0);
    for _ in 0..arguments.damaged {
        fs::write(&bundle, damaged(&sound, &mut state)).map_err(|error| error.to_string())?;
        refused += u64::from(survived("cache import", &target.run(&["cache", "import", &bundle])?)? != 0);
        let output = target.run(&["run", "examples/saxpy.vyre"])?;
        if survived("run", &output)? != 0 {
            return Err(format!("after an import nothing runs: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(format!("{} tried, {refused} refused", arguments.damaged))
}

/// Wrong arguments, which must end with exit code 2, or with the code for a program that cannot
/// run.
const WRONG: &[&[&str]] = &[
    &["run"],
    &["run", "no-such-file"],
    &["run", "/dev/zero"],
    &["run", "examples"],
    &["run", "examples/saxpy.vyre", "--workgroup", "0"],
    &["run", "examples/saxpy.vyre", "--grid", "4294967296"],
    &["run", "examples/saxpy.vyre", "--timeout", "nan"],
    &["run", "examples/saxpy.vyre", "--timeout", "-1"],
    &["run", "examples/saxpy.vyre", "--backend", "no-such-backend"],
    &["run", "examples/saxpy.vyre", "--in", "a=1", "--in", "a=2"],
    &["run", "examples/saxpy.vyre", "--in", "x=5..0"],
    &["run", "examples/saxpy.vyre", "--in", "x=@/dev/zero"],
    &["run", "examples/saxpy.vyre", "--in", "x=repeat(1, 99999999999999999999)"],
    &["run", "examples/saxpy.vyre", "--json", "--manifest", "-"],
    &["run", "examples/saxpy.vyre", "--out", "-", "--json"],
    &["bench", "--rounds", "0"],
    &["bench", "--seconds", "nan"],
    &["bench", "--json", "/no/such/folder/file"],
    &["tune", "examples/saxpy.vyre", "--seconds", "nan"],
    &["conform", "--backend", "cpu", "--seconds", "inf"],
    &["replay", "/dev/zero"],
    &["replay", "examples/saxpy.vyre"],
    &["cache", "import", "/dev/zero"],
    &["cache", "import", "examples/saxpy.vyre"],
    &["explain", "V999"],
    &["emit", "examples/saxpy.vyre", "--target", "none"],
];

fn wrong_arguments(target: &Target) -> Result<String, String> {
    for arguments in WRONG {
        let what = format!("vyre {}", arguments.join(" "));
        let code = survived(&what, &target.run(arguments)?)?;
        if !(1..=3).contains(&code) {
            return Err(format!("`{what}` ended with {code}"));
        }
    }
    // A failed write must be reported.
    for arguments in [&["ops"][..], &["devices", "--json"], &["run", "examples/saxpy.vyre"], &["cache", "ls"]]
    {
        let what = format!("vyre {} > /dev/full", arguments.join(" "));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").map_err(|error| error.to_string())?;
        let output = target.command(arguments).stdout(full).stderr(Stdio::piped()).output();
        if survived(&what, &output.map_err(|error| error.to_string())?)? != 2 {
            return Err(format!("`{what}` did not end with 2"));
        }
    }
    Ok(format!("{} tried", WRONG.len() + 4))
}
