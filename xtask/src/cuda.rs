//! Tests of the CUDA and HIP source, and of the `cuda` backend, without a GPU.
//!
//! NVRTC is installed from PyPI into a virtual environment under `target`; HIP is compiled with an
//! installed clang. `docs/cuda.md` describes what the tests do and do not show.

use crate::ci::{EVERYTHING, StepOutcome, cargo_command};
use crate::root;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Run 2,000 generated programs on each of three architectures, instead of 200 on one
    #[arg(long)]
    all: bool,
}

/// PyPI package with NVRTC.
const PACKAGE: &str = "nvidia-cuda-nvrtc-cu12";
/// Architectures of `--all`: the oldest supported, one in between, and the newest.
const ARCHITECTURES: [&str; 3] = ["75", "90", "120"];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let rounds: &[(&str, &str)] = match arguments.all {
        false => &[("75", "200")],
        true => &ARCHITECTURES.map(|sm| (sm, "2000")),
    };
    for (sm, cases) in rounds {
        match check(sm, cases)? {
            StepOutcome::Passed => println!("sm_{sm}: ok"),
            StepOutcome::Skipped(reason) => println!("SKIP {reason}"),
        }
    }
    Ok(())
}

/// Runs the step of `cargo xtask ci`.
pub(crate) fn step() -> Result<StepOutcome, String> {
    check("75", "200")
}

fn check(sm: &str, cases: &str) -> Result<StepOutcome, String> {
    let nvrtc = match nvrtc() {
        Ok(path) => path,
        Err(reason) => return Ok(StepOutcome::Skipped(reason)),
    };
    // The whole workspace is named so that the binaries of the `tests` step are reused.
    let words = format!("test {EVERYTHING} --test host --test hip --quiet");
    let mut command = cargo_command(&words);
    command.env("VYRE_NVRTC", &nvrtc).env("VYRE_CUDA_SM", sm).env("VYRE_CASES", cases);
    match clang() {
        Some(clang) => drop(command.env("VYRE_HIP_CLANG", clang)),
        None => println!("SKIP HIP: no clang with AMD's target"),
    }
    println!("$ VYRE_NVRTC={} VYRE_CUDA_SM={sm} VYRE_CASES={cases} cargo {words}", nvrtc.display());
    let status = command.status().map_err(|error| format!("cargo {words}: {error}"))?;
    if status.success() { Ok(StepOutcome::Passed) } else { Err(format!("cargo {words}: {status}")) }
}

/// Path of NVRTC's library, installed if missing.
fn nvrtc() -> Result<PathBuf, String> {
    let environment = root().join("target/cuda/venv");
    if let Some(found) = library(&environment) {
        return Ok(found);
    }
    let python = environment.join("bin/python");
    let made = python.is_file() || succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let installed = made && succeeds(Command::new(python).args(["-m", "pip", "install", "--quiet", PACKAGE]));
    if !installed {
        return Err(format!(
            "NVRTC cannot be installed: `pip install {PACKAGE}` in a virtual environment failed"
        ));
    }
    library(&environment).ok_or(format!("{PACKAGE} holds no libnvrtc.so.12"))
}

fn library(environment: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(environment.join("lib")).ok()?.flatten();
    let packages =
        versions.map(|version| version.path().join("site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
    packages.into_iter().find(|path| path.is_file())
}

/// Finds a clang that compiles for AMD devices.
fn clang() -> Option<String> {
    let names =
        std::iter::once("clang".to_string()).chain((15..=21).rev().map(|version| format!("clang-{version}")));
    names.into_iter().find(|name| {
        let output = Command::new(name).arg("--print-targets").stderr(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("amdgcn"))
    })
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
