//! The Python package: its tests, and wheels.
//!
//! The extension is built with the workspace, in the profile of the tests, and installed beside a
//! copy of `python/vyre` in a virtual environment below `target`. Without Python 3.11 or newer the
//! step is skipped.

use crate::ci::{StepOutcome, cargo_command};
use crate::root;
use clap::Args;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that the tests need.
const PACKAGES: [&str; 2] = ["numpy", "pytest"];
/// Packages that the type checks need.
const CHECKERS: [&str; 2] = ["mypy", "pyright[nodejs]"];
/// Interpreters to try; the first that is new enough is used.
const INTERPRETERS: [&str; 3] = ["python3", "python3.11", "python"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build the extension in release mode, with the backends `wgpu` and `opencl`
    #[arg(long)]
    release: bool,
    /// Also run the type checkers
    #[arg(long)]
    types: bool,
    /// Only build the package and install it into the environment
    #[arg(long)]
    no_tests: bool,
    /// Arguments for pytest
    #[arg(last = true)]
    pytest: Vec<String>,
}

/// Runs `cargo xtask python`.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Some(python) = interpreter() else { return Err(MISSING.into()) };
    let environment = Environment::new(&python)?;
    if arguments.types {
        succeed(environment.command(["-m", "pip", "install", "--quiet"]).args(CHECKERS))?;
    }
    environment.install_package(arguments.release)?;
    println!("{} has the package", environment.python().display());
    if arguments.no_tests { Ok(()) } else { environment.test(&arguments.pytest) }
}

/// Runs the step of `cargo xtask ci`.
pub(crate) fn check() -> Result<StepOutcome, String> {
    let Some(python) = interpreter() else { return Ok(StepOutcome::Skipped(MISSING.into())) };
    let environment = Environment::new(&python)?;
    environment.install_package(false)?;
    environment.test(&[])?;
    Ok(StepOutcome::Passed)
}

/// Maximum size of a wheel, in bytes.
const LARGEST_WHEEL: u64 = 8_000_000;

/// Runs `cargo xtask wheel`: builds a wheel for Python 3.11 and newer, with all backends, in
/// `target/wheels`, and returns its path.
pub(crate) fn wheel() -> Result<PathBuf, String> {
    let Some(python) = interpreter() else { return Err(MISSING.into()) };
    let environment = Environment::new(&python)?;
    let folder = root().join("target/wheels");
    let with_path = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(with_path)?;
    }
    let mut command = environment.command(["-m", "pip", "wheel", "--no-deps", "--wheel-dir"]);
    // The tag names the oldest supported glibc, as PyPI requires.
    command.env("MATURIN_PEP517_ARGS", "--compatibility pypi");
    succeed(command.arg(&folder).arg(root()))?;
    let wheel = fs::read_dir(&folder).map_err(with_path)?.flatten().next().ok_or("pip made no wheel")?.path();
    let size = fs::metadata(&wheel).map_err(with_path)?.len();
    println!("{} {:.2} MB", wheel.display(), size as f64 / 1e6);
    if size > LARGEST_WHEEL {
        return Err(format!("the wheel has {size} bytes, more than {LARGEST_WHEEL}"));
    }
    Ok(wheel)
}

/// Installs a wheel into a dedicated environment, as a user would, and runs a kernel there.
pub(crate) fn try_wheel(wheel: &Path) -> Result<(), String> {
    let Some(python) = interpreter() else { return Err(MISSING.into()) };
    let folder = root().join("target/python/wheel");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let environment = Environment::with("target/python/wheel", &python, &[])?;
    succeed(environment.command(["-m", "pip", "install", "--quiet"]).arg(wheel))?;
    succeed(environment.command(["examples/blur.py"]).env("VYRE_TABLES", "off"))
}

pub(crate) const MISSING: &str = "there is no Python 3.11 or newer";

/// Finds a Python that is new enough.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let is_new = |name: &&&str| {
        let question = "import sys, venv; sys.exit(sys.version_info < (3, 11))";
        Command::new(name).args(["-c", question]).output().is_ok_and(|output| output.status.success())
    };
    INTERPRETERS.iter().find(is_new).map(PathBuf::from)
}

/// Virtual environment below `target`.
pub(crate) struct Environment(PathBuf);

impl Environment {
    fn new(python: &Path) -> Result<Environment, String> {
        Environment::with("target/python/venv", python, &PACKAGES)
    }

    /// Creates or opens the environment in this folder and installs these packages.
    pub(crate) fn with(folder: &str, python: &Path, packages: &[&str]) -> Result<Environment, String> {
        let environment = Environment(root().join(folder));
        if !environment.python().exists() {
            succeed(Command::new(python).args(["-m", "venv"]).arg(&environment.0))?;
        }
        let names: Vec<&str> = packages.iter().filter_map(|package| package.split('[').next()).collect();
        let question = "import sys, importlib.metadata as m; [m.version(name) for name in sys.argv[1:]]";
        let have = environment.command(["-c", question]).args(names).output();
        if !have.is_ok_and(|output| output.status.success()) {
            succeed(environment.command(["-m", "pip", "install", "--quiet"]).args(packages))?;
        }
        Ok(environment)
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.0.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
    }

    fn command<const N: usize>(&self, words: [&str; N]) -> Command {
        let mut command = Command::new(self.python());
        command.args(words).current_dir(root());
        command
    }

    /// Installs the package and the extension into the environment.
    pub(crate) fn install_package(&self, release: bool) -> Result<(), String> {
        let mut words = "build --package vyre-python --quiet".to_string();
        words += if release { " --release --features wgpu,opencl" } else { "" };
        succeed(&mut cargo_command(&words))?;
        let question = "import sysconfig; print(sysconfig.get_path('platlib'))";
        let output = self.command(["-c", question]).output().map_err(|error| error.to_string())?;
        let folder = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("vyre");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        copy_folder(&root().join("python/vyre"), &folder)?;
        let profile = if release { "release" } else { "debug" };
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let built = target.join(profile).join(format!("{DLL_PREFIX}_vyre{DLL_SUFFIX}"));
        let name = if cfg!(windows) { "_vyre.pyd" } else { "_vyre.abi3.so" };
        copy(&built, &folder.join(name))
    }

    fn test(&self, words: &[String]) -> Result<(), String> {
        let mut command = self.command(["-m", "pytest", "-q"]);
        // Data learnt in other runs must not affect the tests.
        command.env("VYRE_TABLES", "off");
        if words.is_empty() {
            command.arg("python/tests")
        } else {
            command.args(words)
        };
        succeed(&mut command)
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(|_| ()).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

/// Copies a folder without Python's compiled files.
fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(with_path)?;
    for entry in fs::read_dir(from).map_err(with_path)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "__pycache__" {
            copy_folder(&path, &to.join(name))?;
        } else if path.is_file() && !name.to_string_lossy().starts_with("_vyre.abi3") {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}
