//! `vyre check`: faults and warnings of programs.

use crate::files;
use crate::output::{Ending, diagnostics_json, print, show_diagnostics};
use crate::source::{self, SetArguments};
use std::path::{Path, PathBuf};
use vyre_foundation::diagnostics::Diagnostics;
use vyre_foundation::elementwise::elementwise;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  vyre check examples/saxpy.vyre examples/reduce.vyre
  vyre check --elementwise examples/black_scholes.vyre")]
pub(crate) struct Arguments {
    /// Files to check; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    set: SetArguments,
    /// Also check that each program is elementwise, as engines that process columns in batches need
    #[arg(long)]
    elementwise: bool,
    /// Print one JSON array instead of text
    #[arg(long)]
    json: bool,
}

/// Result for one file.
struct Checked {
    valid: bool,
    diagnostics: Diagnostics,
    source: String,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let mut reports = Vec::new();
    let mut all_valid = true;
    for file in &arguments.files {
        let checked = match check(file, arguments) {
            Ok(checked) => checked,
            Err(ending) => return ending,
        };
        let name = file.display().to_string();
        all_valid &= checked.valid;
        if arguments.json {
            let diagnostics = diagnostics_json(&checked.diagnostics, &checked.source);
            reports.push(
                serde_json::json!({ "file": name, "valid": checked.valid, "diagnostics": diagnostics }),
            );
        } else {
            show_diagnostics(&checked.diagnostics, &name);
            print(&format!("{name}: {}", if checked.valid { "valid" } else { "not valid" }));
        }
    }
    if arguments.json {
        print(&serde_json::Value::from(reports).to_string());
    }
    if all_valid { Ending::Done } else { Ending::CheckFailed }
}

fn check(file: &Path, arguments: &Arguments) -> Result<Checked, Ending> {
    let (source, program) = source::read(&file.display().to_string(), files::read(file)?, &arguments.set)?;
    let result = program.and_then(|program| program.in_regions().validate());
    let (valid, diagnostics) = match result {
        Ok(kernel) => match elementwise(&kernel) {
            Err(reason) if arguments.elementwise => {
                let all = kernel.warnings.iter().cloned().chain([reason]).collect();
                (false, Diagnostics::new(all, kernel.source.clone()))
            }
            Ok(_) | Err(_) => (true, kernel.warnings.clone()),
        },
        Err(faults) => (false, faults),
    };
    Ok(Checked { valid, diagnostics, source })
}
