//! Runs the workspace's tests: builds every test binary with one call of cargo, runs two at a time,
//! and lists the slowest tests.
//!
//! Binaries run as under cargo, in their package's folder. A binary with the standard harness
//! reports the time of each test; that report is unstable, so `RUSTC_BOOTSTRAP` is set for the
//! binary, not for the compiler.

use crate::ci::{StepOutcome, cargo_command};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of binaries run in parallel: one per processor of the smallest supported machine. Each
/// uses as many threads as there are processors, because many tests wait.
const AT_ONCE: usize = 2;
/// Number of slowest tests listed.
const LISTED: usize = 10;
/// Slowest binaries, which start first so that none of them runs alone at the end.
const LONGEST_FIRST: [&str; 7] = [
    "vyre all",
    "vyre-conform filetests",
    "vyre-wgpu all",
    "vyre-cli cli",
    "vyre-cpu all",
    "vyre-macros mistakes",
    "vyre-opencl all",
];

/// Test binary.
struct Binary {
    /// Package and target.
    name: String,
    executable: PathBuf,
    folder: PathBuf,
}

/// Result of a binary.
struct Ran {
    name: String,
    took: Duration,
    output: Output,
}

/// Builds and runs the tests selected by these arguments of `cargo test`.
pub(crate) fn run(words: &str) -> Result<StepOutcome, String> {
    let mut binaries = build(words)?;
    let rank = |binary: &Binary| LONGEST_FIRST.iter().position(|name| binary.name.starts_with(name));
    binaries.sort_by_key(|binary| rank(binary).unwrap_or(LONGEST_FIRST.len()));
    let (count, started) = (binaries.len(), Instant::now());
    let queue = Mutex::new(VecDeque::from(binaries));
    let ran = Mutex::new(Vec::new());
    // The lock must not be held while a binary runs, as it would be in the head of the loop.
    let next = || locked(&queue).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(binary) = next() {
                    let one = execute(&binary);
                    show(&binary.name, &one);
                    locked(&ran).push(one);
                }
            });
        }
    });
    println!("{count} test binaries in {:.1} s", started.elapsed().as_secs_f64());
    summary(&ran.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn build(words: &str) -> Result<Vec<Binary>, String> {
    println!("$ cargo test {words} --no-run");
    let mut command =
        cargo_command(&format!("test {words} --no-run --quiet --message-format json-render-diagnostics"));
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("`cargo test {words} --no-run`: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let binaries: Vec<Binary> = text.lines().filter_map(binary).collect();
    if binaries.is_empty() { Err(format!("`cargo test {words}` has no tests")) } else { Ok(binaries) }
}

/// Test binary that a message of cargo describes.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package} {}", message["target"]["name"].as_str()?);
    Some(Binary { name, executable: executable.into(), folder })
}

fn execute(binary: &Binary) -> Result<Ran, String> {
    let started = Instant::now();
    let command = |words: &[&str]| {
        let mut command = Command::new(&binary.executable);
        command.args(words).current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
        command.stdin(Stdio::null()).output().map_err(|error| format!("{}: {error}", binary.name))
    };
    let help = command(&["--help"])?;
    let tells_times = String::from_utf8_lossy(&help.stdout).contains("--report-time");
    let mut test = Command::new(&binary.executable);
    test.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder).stdin(Stdio::null());
    if tells_times {
        test.args(["-Z", "unstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    }
    let output = test.output().map_err(|error| format!("{}: {error}", binary.name))?;
    Ok(Ran { name: binary.name.clone(), took: started.elapsed(), output })
}

/// Prints one line for a binary that passed and for each skipped test, and the whole output of one
/// that failed.
fn show(name: &str, ran: &Result<Ran, String>) {
    match ran {
        Err(error) => println!("FAILED {error}"),
        Ok(ran) => {
            let text = String::from_utf8_lossy(&ran.output.stdout);
            let seconds = ran.took.as_secs_f64();
            if ran.output.status.success() {
                println!("ok     {name:<36} {:>5} passed {seconds:>7.1} s", Counts::of(&text).passed);
                text.lines()
                    .filter(|line| line.trim_start().starts_with("SKIP"))
                    .for_each(|line| println!("{line}"));
            } else {
                println!("FAILED {name}: {} after {seconds:.1} s", ran.output.status);
                println!("{text}{}", String::from_utf8_lossy(&ran.output.stderr));
            }
        }
    }
}

fn summary(ran: &[Result<Ran, String>]) -> Result<StepOutcome, String> {
    let mut counts = Counts::default();
    let mut times: Vec<(f64, String)> = Vec::new();
    let mut failed = Vec::new();
    for one in ran {
        match one {
            Err(error) => failed.push(error.clone()),
            Ok(Ran { name, output, .. }) => {
                let text = String::from_utf8_lossy(&output.stdout);
                counts.add(&Counts::of(&text));
                times.extend(
                    text.lines().filter_map(test_time).map(|(test, time)| (time, format!("{name} {test}"))),
                );
                failed.extend((!output.status.success()).then(|| name.clone()));
            }
        }
    }
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("the slowest tests:");
    times.iter().take(LISTED).for_each(|(time, test)| println!("{time:>8.1} s  {test}"));
    println!("{} passed, {} failed", counts.passed, counts.failed);
    match failed.is_empty() {
        true => Ok(StepOutcome::Passed),
        false => Err(failed.join(", ")),
    }
}

/// Number of tests that passed and failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

impl Counts {
    /// Parses the harness's summary lines: `test result: ok. 3 passed; 0 failed; …`.
    fn of(output: &str) -> Counts {
        let mut counts = Counts::default();
        for line in output.lines().filter_map(|line| line.trim().strip_prefix("test result: ")) {
            let words: Vec<&str> = line.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let before = |word: &str| {
                let at = words.iter().position(|other| *other == word)?;
                words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
            };
            counts.add(&Counts {
                passed: before("passed").unwrap_or(0),
                failed: before("failed").unwrap_or(0),
            });
        }
        counts
    }

    fn add(&mut self, other: &Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Parses the name and time in seconds of a test: `test name ... ok <1.234s>`.
fn test_time(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.split_once('<')?.1.strip_suffix("s>")?;
    Some((name, seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_harness_says_is_read() {
        let output = "\nrunning 2 tests\ntest a::b ... ok <1.250s>\ntest c ... FAILED <0.5s>\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";
        assert_eq!(Counts::of(output), Counts { passed: 1, failed: 1 });
        let times: Vec<_> = output.lines().filter_map(test_time).collect();
        assert_eq!(times, [("a::b", 1.25), ("c", 0.5)]);
        assert_eq!(Counts::of("test result: ok. 7 passed; 0 failed"), Counts { passed: 7, failed: 0 });
        assert_eq!(test_time("test a ... ok"), None);
    }
}
