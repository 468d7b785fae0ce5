//! `cargo xtask editors`: checks and packages the extension for Visual Studio Code.
//!
//! The grammar's scopes are compared with the language server's tokens on every `.vyre` file of the
//! repository.

use crate::{ci, root};
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

#[derive(Args, Default)]
pub(crate) struct Arguments {
    /// Folder for the package [default: the extension's folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    ci::cargo("build -p vyre-cli --bin vyre")?;
    let folder = root().join("editors/vscode");
    let npm = |words: &[&str]| {
        let mut command = Command::new("npm");
        command.args(words).current_dir(&folder).env("VYRE", root().join("target/debug/vyre"));
        println!("$ npm {}", words.join(" "));
        let status = command.status().map_err(|error| format!("npm: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("`npm {}`: {status}", words.join(" "))) }
    };
    npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    npm(&["test"])?;
    match &arguments.out {
        None => npm(&["run", "package"]),
        Some(out) => npm(&["run", "package", "--", "--out", &out.to_string_lossy()]),
    }
}
