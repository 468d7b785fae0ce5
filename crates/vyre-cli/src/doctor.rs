//! `vyre doctor`: checks whether everything that vyre needs works on this machine.

use crate::devices::{self, DeviceState};
use crate::output::{Ending, Paint, painted_out, print};
use crate::quantity;
use crate::tables::{TableKind, files};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use vyre_conform::differential::Runner;
use vyre_conform::generate::{Generator, Options};
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::storage::Storage;
use vyre_driver::{VyreBackend, registry};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every usable backend runs some generated programs and is compared with the interpreter; every table is \
read. Exits with code 1 if something is broken; something that is merely missing is reported but is not a \
fault.

Examples:
  vyre doctor
  vyre doctor --json")]
pub(crate) struct Arguments {
    /// Number of programs to compare on each backend
    #[arg(long, default_value_t = 10, value_name = "N")]
    programs: u64,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Fine,
    /// Useful to know, but not a fault.
    Note,
    Broken,
}

impl Health {
    fn name(self) -> &'static str {
        match self {
            Health::Fine => "ok",
            Health::Note => "note",
            Health::Broken => "broken",
        }
    }
}

struct Check {
    name: String,
    health: Health,
    message: String,
    help: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, health: Health, message: impl Into<String>) -> Check {
        Check { name: name.into(), health, message: message.into(), help: None }
    }

    fn help(self, help: impl Into<String>) -> Check {
        Check { help: Some(help.into()), ..self }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let mut checks = vec![version()];
    checks.extend(backends(arguments.programs));
    checks.extend(tables());
    checks.extend(environment());
    if arguments.json {
        let json = |check: &Check| {
            serde_json::json!({
                "check": check.name, "verdict": check.health.name(), "message": check.message, "help": check.help,
            })
        };
        print(&checks.iter().map(json).collect::<serde_json::Value>().to_string());
    } else {
        checks.iter().for_each(show);
    }
    if checks.iter().any(|check| check.health == Health::Broken) { Ending::CheckFailed } else { Ending::Done }
}

fn show(check: &Check) {
    let word = format!("{:<7}", check.health.name());
    let word = match check.health {
        Health::Fine => painted_out(&word, Paint::Green),
        Health::Note => painted_out(&word, Paint::Yellow),
        Health::Broken => painted_out(&word, Paint::Red),
    };
    print(&format!("{word} {}: {}", check.name, check.message));
    if let Some(help) = &check.help {
        print(&format!("        help: {help}"));
    }
}

fn version() -> Check {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    Check::new("vyre", Health::Fine, format!("{COMPILER_VERSION} on {os} {arch}, {threads} threads"))
}

fn backends(programs: u64) -> Vec<Check> {
    let devices = devices::all();
    let mut checks: Vec<Check> = Vec::new();
    for device in &devices {
        checks.push(match &device.state {
            DeviceState::Usable { profile, .. } => compare(device.id, profile.device_name, programs),
            DeviceState::Refused(_) if registry::backend_is_oracle(device.id) => {
                compare(device.id, "the interpreter", programs)
            }
            DeviceState::Refused(reason) => {
                Check::new(format!("backend {}", device.id), Health::Note, reason.clone())
            }
        });
    }
    if !devices.iter().any(|device| matches!(device.state, DeviceState::Usable { .. })) {
        let none = Check::new("selection", Health::Broken, "no backend can be selected");
        checks.push(none.help("build with the feature `cpu`, which needs nothing installed"));
    }
    checks
}

/// Compares the backend with the interpreter on generated programs.
fn compare(id: &'static str, device: &str, programs: u64) -> Check {
    let name = format!("backend {id}");
    let backend: Arc<dyn VyreBackend> = match registry::acquire(id) {
        Ok(backend) => backend.into(),
        Err(error) => return Check::new(name, Health::Broken, error.to_string()),
    };
    let generator = Generator::new(Options::for_backend(&*backend));
    let runner = Runner { backends: vec![backend], ..Runner::default() };
    let began = Instant::now();
    let failure = (0..programs).find_map(|seed| runner.check(&generator.from_seed(seed), seed).err());
    let took = quantity::time(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    match failure {
        None => Check::new(name, Health::Fine, format!("{device}: {programs} programs match the interpreter, {took}")),
        Some(mismatch) => Check::new(name, Health::Broken, format!("{device}: {}", mismatch.difference))
            .help(format!("`vyre conform --backend {id}` writes the failing program; leave the backend out with --backend")),
    }
}

fn tables() -> Vec<Check> {
    let places = Storage::of_user();
    let mut checks = Vec::new();
    for file in files(&places) {
        let path = file.path.display();
        let name = format!("table {}", file.kind.name());
        checks.push(match &file.rows {
            _ if file.kind == TableKind::SetAside => {
                Check::new(name, Health::Note, format!("{path} was damaged and is no longer used"))
                    .help("inspect it or remove it: `vyre cache clear set-aside`")
            }
            Ok(rows) => Check::new(name, Health::Fine, format!("{path}: {rows} rows")),
            Err(error) => Check::new(name, Health::Broken, error.to_string()),
        });
    }
    let folders = [&places.routes, &places.hints].into_iter().flatten().filter_map(|path| path.parent());
    checks.extend(folders.filter_map(unwritable));
    if places.routes.is_none() {
        let note = Check::new("tables", Health::Note, "learnt data is not saved");
        checks
            .push(note.help("set HOME or XDG_CONFIG_HOME to a folder, and do not set VYRE_TABLES to `off`"));
    }
    checks
}

/// Fails if nothing can be written in a folder, or in its nearest existing ancestor.
fn unwritable(folder: &Path) -> Option<Check> {
    let existing = folder.ancestors().find(|above| above.is_dir())?;
    let probe = existing.join(format!(".vyre-doctor-{}", std::process::id()));
    let written = std::fs::write(&probe, b"");
    let _ = std::fs::remove_file(&probe);
    let error = written.err()?;
    let message = format!("{} cannot be written: {error}", existing.display());
    Some(
        Check::new("tables", Health::Broken, message)
            .help("make the folder writable, or name another in VYRE_TABLES"),
    )
}

/// Lists the environment variables that affect vyre.
fn environment() -> Vec<Check> {
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VYRE_"));
    let check = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Check::new("environment", Health::Note, format!("{}={}", name.display(), value.display()))
    };
    ours.map(check).collect()
}
