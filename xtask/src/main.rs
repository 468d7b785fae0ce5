//! Development tasks of the workspace: `cargo xtask <task>`.

mod attack;
mod ci;
mod cuda;
mod dependencies;
mod docs;
mod editors;
mod engines;
mod header;
mod import_diff;
mod lines;
mod long;
mod modules;
mod promises;
mod python;
mod release;
mod sbom;
mod setup;
mod steps;
mod surface;
mod test_runner;
mod ulp;

use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Development tasks of the vyre workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Do to the `vyre` command what bad luck and bad intentions do, for two minutes.
    Attack(attack::Arguments),
    /// Check everything that a change must pass, and print what each step took.
    Ci(ci::Arguments),
    /// Compile and run the CUDA and HIP texts of many programs without a GPU; NVRTC is installed from PyPI for it.
    Cuda(cuda::Arguments),
    /// Write the generated pages of docs/, or check that they are current.
    Docs(docs::Arguments),
    /// Run kernels inside Ray, Dask, DuckDB, DataFusion, Polars and Spark, or measure them there.
    Engines(engines::Arguments),
    /// Check and package the extension for Visual Studio Code; wants npm.
    Editors(editors::Arguments),
    /// Run the shaders of a folder as they are and imported, and tell where results differ.
    ImportDiff(import_diff::Arguments),
    /// Print how many lines of code each crate has, without tests, comments and blanks.
    Lines,
    /// Run for minutes what finds rare faults: drivers under stress, fuzzing, many killed processes.
    Long(long::Arguments),
    /// Fail on a cycle of imports among more than two files of a crate, or print the graph of a crate's modules.
    Modules(modules::Arguments),
    /// Build everything that a release consists of, and try it.
    Release(release::Arguments),
    /// Build the Python package into an environment below `target`, and run its tests.
    Python(python::Arguments),
    /// Print how many interpreter steps the optimizer saves on the kernels of filetests/kernels, and what it takes.
    Steps,
    /// Install the system packages with which the tests reach more backends.
    Setup,
    /// Write down the public surface of the crate `vyre`, or check that it is what was written down.
    Surface(surface::Arguments),
    /// Measure the error of the transcendental ops over all inputs and record it in docs/.
    Ulp(ulp::Arguments),
    /// Build a wheel of the Python package, with all backends.
    Wheel,
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Attack(arguments) => attack::run(&arguments),
        Task::Ci(arguments) => ci::run(&arguments),
        Task::Cuda(arguments) => cuda::run(&arguments),
        Task::Docs(arguments) => docs::run(&arguments),
        Task::Engines(arguments) => engines::run(&arguments),
        Task::Editors(arguments) => editors::run(&arguments),
        Task::ImportDiff(arguments) => import_diff::run(&arguments),
        Task::Lines => lines::run(),
        Task::Long(arguments) => long::run(&arguments),
        Task::Modules(arguments) => modules::run(&arguments),
        Task::Release(arguments) => release::run(&arguments),
        Task::Python(arguments) => python::run(&arguments),
        Task::Setup => setup::run(),
        Task::Surface(arguments) => surface::run(&arguments),
        Task::Ulp(arguments) => ulp::run(&arguments),
        Task::Steps => steps::run(),
        Task::Wheel => python::wheel().map(|_| ()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
