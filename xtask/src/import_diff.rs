//! `cargo xtask import-diff`: builds and starts `vyre-import-diff`, a separate binary because it
//! links every backend and wgpu.

use crate::root;
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Shaders, or folders of shaders
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Measure `cpu` against the unmodified shader instead, at 2^20 invocations
    #[arg(long)]
    time: bool,
    /// Seconds for each entry point
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "--quiet", "-p", "vyre-import-diff", "--manifest-path"]);
    cargo.arg(root().join("Cargo.toml")).arg("--").args(&arguments.paths);
    cargo.args(["--seconds", &arguments.seconds.to_string()]);
    if arguments.time {
        cargo.arg("--time");
    }
    let status = cargo.status().map_err(|error| format!("cargo does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err("results differ".into()) }
}
