//! Steps that every change must pass.
//!
//! Every step runs, whether or not an earlier one failed, so that one run reports everything. All
//! steps share the target folder and the compiler flags: a step that changed `RUSTFLAGS` would
//! rebuild every dependency.

use crate::{
    architecture, cuda, dependencies, docs, engines, modules, python, root, setup, surface, test_runner,
};
use clap::Args;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run only the steps with these names
    steps: Vec<String>,
}

struct Step {
    name: &'static str,
    /// Time budget in seconds for a cold run on two cores; the sum stays within 25 minutes.
    budget: u64,
    run: fn() -> Result<StepOutcome, String>,
}

pub(crate) enum StepOutcome {
    Passed,
    Skipped(String),
}

/// The whole workspace, with every backend linked into the command and the facade, and both code
/// generators of `cpu`.
pub(crate) const EVERYTHING: &str = "--workspace --features vyre-cli/wgpu,vyre-cli/opencl,vyre-cli/cuda,vyre/wgpu,vyre/opencl,vyre/cuda,vyre-cpu/cranelift";

/// All steps, in order. Formatting comes first because it fails fastest, and clippy before the
/// tests because it finds compile errors without linking.
const STEPS: [Step; 13] = [
    Step { name: "setup", budget: 60, run: || setup::install_as_root().map(passed) },
    Step { name: "format", budget: 10, run: || cargo("fmt --all --check") },
    Step {
        name: "modules",
        budget: 5,
        run: || modules::check().and_then(|()| architecture::check()).map(passed),
    },
    Step {
        name: "clippy",
        budget: 170,
        run: || cargo(&format!("clippy {EVERYTHING} --all-targets --quiet --keep-going -- -D warnings")),
    },
    Step {
        name: "tests",
        budget: 790,
        run: || test_runner::run(&format!("{EVERYTHING} --lib --bins --tests --examples")),
    },
    Step { name: "cuda", budget: 90, run: cuda::step },
    // With the features of the tests, so that the libraries built for those are reused.
    Step {
        name: "doc-tests",
        budget: 40,
        run: || cargo(&format!("test {EVERYTHING} --doc --quiet --no-fail-fast")),
    },
    Step { name: "python", budget: 110, run: python::check },
    Step { name: "engines", budget: 30, run: engines::check },
    Step { name: "docs", budget: 40, run: documentation },
    Step { name: "features", budget: 135, run: features },
    Step { name: "msrv", budget: 10, run: minimum_rust },
    Step { name: "dependencies", budget: 10, run: dependencies::check },
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
    if let Some(unknown) = arguments.steps.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no step `{unknown}`; the steps are {}", names.join(", ")));
    }
    let mut report = Report::default();
    for step in &STEPS {
        if arguments.steps.is_empty() || arguments.steps.iter().any(|name| name == step.name) {
            println!("==> {}", step.name);
            let start = Instant::now();
            let outcome = (step.run)();
            report.add(step, start.elapsed(), outcome);
        }
    }
    report.finish()
}

#[derive(Default)]
struct Report {
    lines: Vec<String>,
    total: Duration,
    failed: Vec<&'static str>,
    skipped: usize,
}

impl Report {
    fn add(&mut self, step: &Step, took: Duration, outcome: Result<StepOutcome, String>) {
        let outcome = match outcome {
            Ok(StepOutcome::Passed) => "ok".to_string(),
            Ok(StepOutcome::Skipped(reason)) => {
                self.skipped += 1;
                format!("SKIP {reason}")
            }
            Err(message) => {
                self.failed.push(step.name);
                format!("FAILED {message}")
            }
        };
        let over = if took.as_secs() > step.budget { "over its budget, " } else { "" };
        let seconds = took.as_secs_f64();
        self.total += took;
        self.lines
            .push(format!("{:<13} {seconds:>7.1} s of {:>4} s  {over}{outcome}", step.name, step.budget));
    }

    fn finish(self) -> Result<(), String> {
        println!("\n{}", self.lines.join("\n"));
        println!(
            "total {:.1} s, {} skipped, {} failed",
            self.total.as_secs_f64(),
            self.skipped,
            self.failed.len()
        );
        if self.failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", self.failed.join(", "))) }
    }
}

fn passed((): ()) -> StepOutcome {
    StepOutcome::Passed
}

/// Runs cargo with these arguments in the workspace.
pub(crate) fn cargo(words: &str) -> Result<StepOutcome, String> {
    succeed(cargo_command(words), &format!("cargo {words}"))
}

pub(crate) fn cargo_command(words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(words.split_whitespace()).current_dir(root());
    command
}

fn succeed(mut command: Command, shown: &str) -> Result<StepOutcome, String> {
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("`{shown}`: {error}"))?;
    if status.success() { Ok(StepOutcome::Passed) } else { Err(format!("`{shown}`: {status}")) }
}

pub(crate) fn output(mut command: Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// Checks that the generated pages are current, that the API documentation builds without warnings,
/// and that the public surface matches the recorded one.
fn documentation() -> Result<StepOutcome, String> {
    docs::check()?;
    let words = "doc --workspace --no-deps --features vyre/import --quiet --keep-going";
    let mut command = cargo_command(words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    succeed(command, &format!("RUSTDOCFLAGS=\"-D warnings\" cargo {words}"))?;
    surface::check()
}

/// Builds every package that has features without any of them, and with each alone. A feature that
/// the package's code does not mention only forwards to another package, which is checked
/// separately.
fn features() -> Result<StepOutcome, String> {
    for package in packages()? {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(features) = package["features"].as_object().filter(|features| !features.is_empty()) else {
            continue;
        };
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let code = code_below(&manifest.with_file_name("src"))?;
        cargo(&format!("check --package {name} --no-default-features --quiet"))?;
        for feature in features.keys() {
            if code.contains(&format!("feature = \"{feature}\"")) {
                cargo(&format!("check --package {name} --no-default-features --features {feature} --quiet"))?;
            }
        }
    }
    Ok(StepOutcome::Passed)
}

/// Concatenates all Rust code in a folder and its subfolders.
fn code_below(folder: &Path) -> Result<String, String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut code = String::new();
    for entry in std::fs::read_dir(folder).map_err(with_path)? {
        let path = entry.map_err(with_path)?.path();
        if path.is_dir() {
            code += &code_below(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code += &std::fs::read_to_string(&path).map_err(with_path)?;
        }
    }
    Ok(code)
}

/// Checks that all packages and the README name the same minimum Rust version, and that the
/// workspace compiles with it where installed.
fn minimum_rust() -> Result<StepOutcome, String> {
    let mut versions: Vec<String> = packages()?
        .iter()
        .map(|package| package["rust_version"].as_str().unwrap_or("none").to_string())
        .collect();
    versions.dedup();
    let [minimum] = &versions[..] else { return Err(format!("packages disagree: {}", versions.join(", "))) };
    let readme =
        std::fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    if !readme.contains(minimum.as_str()) {
        return Err(format!("README.md does not name Rust {minimum}, which Cargo.toml does"));
    }
    let mut version = Command::new("rustc");
    version.arg("--version");
    let active = output(version).unwrap_or_default();
    if active.starts_with(&format!("rustc {minimum}.")) {
        println!("{} is the minimum, and the other steps ran with it", active.trim());
        return Ok(StepOutcome::Passed);
    }
    let toolchain = format!("{minimum}.0");
    let mut installed = Command::new("rustup");
    installed.args(["run", &toolchain, "rustc", "--version"]);
    if output(installed).is_none() {
        return Ok(StepOutcome::Skipped(format!("Rust {toolchain} is not installed")));
    }
    let mut check = Command::new("rustup");
    check.args(["run", &toolchain, "cargo", "check", "--workspace", "--quiet"]).current_dir(root());
    succeed(check, &format!("cargo +{toolchain} check --workspace"))
}

/// Packages of the workspace, from `cargo metadata`.
fn packages() -> Result<Vec<Value>, String> {
    let words = "metadata --no-deps --format-version 1";
    let text = output(cargo_command(words)).ok_or(format!("`cargo {words}` failed"))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"].as_array().cloned().ok_or("cargo metadata lists no packages".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_stays_within_25_minutes() {
        let total: u64 = STEPS.iter().map(|step| step.budget).sum();
        assert!(total <= 25 * 60, "the steps' budgets come to {total} s");
    }
}
