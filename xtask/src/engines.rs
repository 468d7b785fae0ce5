//! Kernels inside engines: the tests of `python/engines` with the engines from PyPI, in a dedicated
//! environment.
//!
//! Everything runs on this machine, listens only on loopback, and is stopped at its time limit.

use crate::ci::StepOutcome;
use crate::python::{Environment, MISSING, interpreter, succeed};
use crate::root;
use clap::Args;
use std::process::Command;

/// Packages that install within a minute; CI uses these.
const QUICK: [&str; 6] = ["numpy", "pytest", "pyarrow", "duckdb", "polars", "datafusion"];
/// Packages that take some minutes more. Spark also needs Java, and is skipped without it.
const REST: [&str; 6] =
    ["ray[data]", "dask[array,dataframe,distributed]", "distributed", "pandas", "numba", "pyspark"];
const QUICK_TESTS: [&str; 4] = ["test_arrow.py", "test_partials.py", "test_sql.py", "test_bundle.py"];
const REST_TESTS: [&str; 3] = ["test_dask.py", "test_ray.py", "test_spark.py"];
/// Time limits of the tests in seconds, without installation and build.
const QUICK_LIMIT: u32 = 150;
const LIMIT: u32 = 900;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only DuckDB, DataFusion, Polars and Arrow
    #[arg(long)]
    quick: bool,
    /// Measure instead: the adapter's cost per batch, and rows per second against Numba, in these
    /// engines or in all
    #[arg(long, num_args = 0.., value_name = "ENGINE")]
    bench: Option<Vec<String>>,
    /// Build the extension in release mode; `--bench` always does
    #[arg(long)]
    release: bool,
}

/// Runs `cargo xtask engines`.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let Some(python) = interpreter() else { return Err(MISSING.into()) };
    let mut packages = QUICK.to_vec();
    let mut tests = QUICK_TESTS.to_vec();
    if !arguments.quick {
        packages.extend(REST);
        tests.extend(REST_TESTS);
    }
    let environment = Environment::with("target/engines/venv", &python, &packages)?;
    environment.install_package(arguments.release || arguments.bench.is_some())?;
    match &arguments.bench {
        Some(engines) => {
            succeed(limited(&environment, LIMIT).arg("python/engines/adapter_cost.py"))?;
            succeed(limited(&environment, LIMIT).arg("python/engines/bench.py").args(engines))
        }
        None => test(&environment, &tests, if arguments.quick { QUICK_LIMIT } else { LIMIT }),
    }
}

/// Runs the quick part as a step of `cargo xtask ci`.
pub(crate) fn check() -> Result<StepOutcome, String> {
    let Some(python) = interpreter() else { return Ok(StepOutcome::Skipped(MISSING.into())) };
    let environment = match Environment::with("target/engines/venv", &python, &QUICK) {
        Ok(environment) => environment,
        Err(error) => return Ok(StepOutcome::Skipped(format!("the engines cannot be installed: {error}"))),
    };
    environment.install_package(false)?;
    test(&environment, &QUICK_TESTS, QUICK_LIMIT)?;
    Ok(StepOutcome::Passed)
}

fn test(environment: &Environment, files: &[&str], limit: u32) -> Result<(), String> {
    let mut command = limited(environment, limit);
    command.args(["-m", "pytest", "-q", "--disable-warnings", "-p", "no:cacheprovider"]);
    // Data learnt in other runs must not affect the tests.
    command.env("VYRE_TABLES", "off");
    succeed(command.args(files.iter().map(|file| format!("python/engines/{file}"))))
}

/// The environment's Python under `timeout`, which also kills its children.
fn limited(environment: &Environment, seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &seconds.to_string()]).arg(environment.python()).current_dir(root());
    command
}
