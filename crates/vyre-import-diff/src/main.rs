//! Runs every compute entry point of a folder of shaders twice and reports where the results
//! differ: unmodified, through the wgpu crate on a software adapter, and imported, on every
//! backend. `cargo xtask import-diff FOLDER` starts it.
//!
//! Each entry point runs in its own process (`entry_point.rs`), so that a driver that crashes or
//! hangs costs only one row of the table. Inputs are generated at random until the interpreter's
//! sanitizer reports nothing about them (`inputs.rs`).

mod compare;
mod entry_point;
mod inputs;
mod shader;
mod unmodified;

use clap::Parser;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Compares unmodified shaders with their imported programs.
#[derive(Parser)]
struct Arguments {
    /// Shaders, or folders of shaders.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Measure instead: `cpu` against the unmodified shader, at 2^20 invocations.
    #[arg(long)]
    time: bool,
    /// Time limit for each entry point, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run only this entry point, in this process.
    #[arg(long, hide = true)]
    entry: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let (Some(entry), [file]) = (&arguments.entry, &arguments.paths[..]) {
        let row = entry_point::run(file, entry, arguments.time);
        println!("{}\t{}", row.verdict, row.detail.replace(['\n', '\t'], " "));
        return ExitCode::SUCCESS;
    }
    let mut files = Vec::new();
    for path in &arguments.paths {
        collect(path, &mut files);
    }
    files.sort();
    let mut table = Table::default();
    for file in &files {
        match shader::Shader::read(file).and_then(|shader| shader.entry_points()) {
            Err(message) => table.add(file, "-", "unread", &message),
            Ok(entries) => {
                for entry in entries {
                    let (verdict, detail) = child(file, &entry, &arguments);
                    table.add(file, &entry, &verdict, &detail);
                }
            }
        }
    }
    table.print(arguments.time);
    if table.counts.keys().any(|verdict| verdict == "differs" || verdict == "crashed") {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if let Ok(entries) = std::fs::read_dir(path) {
        entries.flatten().for_each(|entry| collect(&entry.path(), files));
    } else if shader::is_shader(path) {
        files.push(path.to_path_buf());
    }
}

/// Runs an entry point in a child process and returns its verdict and details.
fn child(file: &Path, entry: &str, arguments: &Arguments) -> (String, String) {
    let failed = |detail: String| ("crashed".to_string(), detail);
    let Ok(program) = std::env::current_exe() else { return failed("no program to start".into()) };
    let mut command = Command::new(program);
    command.arg(file).args(["--entry", entry]).stdout(Stdio::piped()).stderr(Stdio::null());
    if arguments.time {
        command.arg("--time");
    }
    let mut process = match command.spawn() {
        Ok(process) => process,
        Err(error) => return failed(error.to_string()),
    };
    let deadline = Instant::now() + Duration::from_secs(arguments.seconds);
    let status = loop {
        match process.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) | Err(_) => {
                let _ = process.kill();
                let _ = process.wait();
                return ("late".into(), format!("no result within {} s", arguments.seconds));
            }
        }
    };
    let mut said = String::new();
    if let Some(mut out) = process.stdout.take() {
        let _ = std::io::Read::read_to_string(&mut out, &mut said);
    }
    match said.trim_end_matches('\n').split_once('\t') {
        Some((verdict, detail)) if status.success() => (verdict.into(), detail.into()),
        _ => failed(format!("{status}")),
    }
}

/// Table of results, and the number of each verdict.
#[derive(Default)]
struct Table {
    counts: BTreeMap<String, usize>,
    ratios: Vec<f64>,
}

impl Table {
    fn add(&mut self, file: &Path, entry: &str, verdict: &str, detail: &str) {
        *self.counts.entry(verdict.into()).or_default() += 1;
        self.ratios
            .extend(detail.split_whitespace().find_map(|word| word.strip_suffix('x')?.parse::<f64>().ok()));
        println!("{verdict:12} {} {entry}: {detail}", file.display());
    }

    fn print(&mut self, time: bool) {
        println!();
        for (verdict, count) in &self.counts {
            println!("{count:5} {verdict}");
        }
        self.ratios.sort_by(f64::total_cmp);
        if let (true, Some(median)) = (time, self.ratios.get(self.ratios.len() / 2)) {
            println!("median {median:.2}x over {} entry points", self.ratios.len());
        }
    }
}
