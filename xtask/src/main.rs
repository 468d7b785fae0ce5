//! Development tasks of the workspace: `cargo xtask <task>`.

mod architecture;
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

/// Development tasks of the vyre workspace
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Expose the `vyre` command to faults and hostile input, for two minutes
    Attack(attack::Arguments),
    /// Run every check that a change must pass, and print the time of each step
    Ci(ci::Arguments),
    /// Compile and run the CUDA and HIP source of many programs without a GPU; installs NVRTC from
    /// PyPI
    Cuda(cuda::Arguments),
    /// Write the generated pages of docs/, or check that they are current
    Docs(docs::Arguments),
    /// Run kernels inside Ray, Dask, DuckDB, DataFusion, Polars and Spark, or measure them there
    Engines(engines::Arguments),
    /// Check and package the extension for Visual Studio Code; needs npm
    Editors(editors::Arguments),
    /// Run shaders both natively and imported, and report where results differ
    ImportDiff(import_diff::Arguments),
    /// Print the lines of code of each crate, without tests, comments and blank lines
    Lines,
    /// Run checks that take minutes and find rare faults: driver stress, fuzzing, many killed
    /// processes
    Long(long::Arguments),
    /// Fail on an import cycle among more than two files of a crate, or print a crate's module
    /// graph
    Modules(modules::Arguments),
    /// Build and test everything that a release consists of
    Release(release::Arguments),
    /// Build the Python package into an environment below `target`, and run its tests
    Python(python::Arguments),
    /// Print how many interpreter steps the optimizer saves on the kernels of filetests/kernels,
    /// and how long it takes
    Steps,
    /// Install the system packages that let the tests cover more backends
    Setup,
    /// Record the public surface of the crate `vyre`, or check it against the record
    Surface(surface::Arguments),
    /// Measure the error of the transcendental ops over all inputs and record it in docs/
    Ulp(ulp::Arguments),
    /// Build a wheel of the Python package, with all backends
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

/// Root folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
