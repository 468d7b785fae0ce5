//! `vyre fmt`: formats programs in the standard layout.

use crate::files;
use crate::output::{Ending, OutputFormat, diagnostics_json, print, print_program, show_diagnostics};
use std::path::{Path, PathBuf};
use vyre_foundation::text;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Comments are kept; only spaces, line breaks and semicolons change. Standard input is formatted to standard \
output.

Examples:
  vyre fmt examples/*.vyre
  vyre fmt --check examples/*.vyre
  vyre fmt - < kernel.vyre")]
pub(crate) struct Arguments {
    /// Files to rewrite; `-` is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Change nothing; list the files that would change, and exit with code 1 if there are any
    #[arg(long)]
    check: bool,
    /// Print one JSON array with the outcome for each file
    #[arg(long)]
    json: bool,
}

/// Outcome for a file.
enum FormatOutcome {
    AsItWas,
    Changed(String),
    Invalid(serde_json::Value),
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    lay_out_all(arguments).unwrap_or_else(|ending| ending)
}

fn lay_out_all(arguments: &Arguments) -> Result<Ending, Ending> {
    let mut rows = Vec::new();
    let (mut changed, mut invalid) = (false, false);
    for file in &arguments.files {
        let name = file.display().to_string();
        let source = files::read_text(file)?;
        let outcome = lay_out(&source, &name, OutputFormat::of(arguments.json))?;
        let mut row =
            serde_json::json!({ "file": name, "changed": matches!(outcome, FormatOutcome::Changed(_)) });
        let standard = file == Path::new("-");
        match &outcome {
            FormatOutcome::Changed(text) if !arguments.check && !standard => {
                files::write(file, text.as_bytes())?
            }
            FormatOutcome::Changed(text) if !arguments.check && !arguments.json => print_program(text),
            FormatOutcome::AsItWas if standard && !arguments.check && !arguments.json => {
                print_program(&source)
            }
            FormatOutcome::Changed(_) if !arguments.json => print(&format!("{name}: would change")),
            FormatOutcome::Invalid(diagnostics) => row["diagnostics"] = diagnostics.clone(),
            FormatOutcome::Changed(_) | FormatOutcome::AsItWas => {}
        }
        changed |= matches!(outcome, FormatOutcome::Changed(_));
        invalid |= matches!(outcome, FormatOutcome::Invalid(_));
        rows.push(row);
    }
    if arguments.json {
        print(&serde_json::Value::from(rows).to_string());
    }
    Ok(if invalid || (changed && arguments.check) { Ending::CheckFailed } else { Ending::Done })
}

fn lay_out(source: &str, name: &str, format: OutputFormat) -> Result<FormatOutcome, Ending> {
    let formatted = match text::format(source) {
        Ok(formatted) => formatted,
        Err(faults) => {
            if format == OutputFormat::Text {
                show_diagnostics(&faults, name);
            }
            return Ok(FormatOutcome::Invalid(diagnostics_json(&faults, source)));
        }
    };
    // Formatting must not change the meaning: if it would, that is a bug here, and the file stays
    // as it is.
    if text::parse(&formatted) != text::parse(source) {
        return Err(Ending::CannotRun(format!(
            "{name} is left unchanged: formatting it would change its meaning"
        )));
    }
    Ok(if formatted == source { FormatOutcome::AsItWas } else { FormatOutcome::Changed(formatted) })
}
