//! `vyre cache`: manages the table files of learnt data.

use crate::bundle;
use crate::output::{Ending, OutputFormat, print};
use crate::quantity;
use crate::tables::{TableFile, TableKind, files};
use std::path::{Path, PathBuf};
use vyre_driver::bundle::Bundle;
use vyre_driver::pipeline::{PipelineCacheAudit, PipelineCacheAuditSnapshot};
use vyre_driver::storage::Storage;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Tables are in $XDG_CONFIG_HOME/vyre (routes) and $XDG_CACHE_HOME/vyre (the rest), by default \
~/.config/vyre and ~/.cache/vyre; VYRE_TABLES names another folder for all of them. Removing a table loses \
measurements and nothing else.

Examples:
  vyre cache ls
  vyre cache verify --json
  vyre cache stats --alarm 50
  vyre cache clear tuner
  vyre cache export tables.bundle --origin lab
  vyre cache import tables.bundle")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the files
    Ls(Format),
    /// Read every file; exit with code 1 if one is unreadable
    Verify(Format),
    /// Show the hit rate of compiled programs in the last runs that kept tables
    Stats {
        /// Exit with code 1 if the hit rate is below this percentage
        #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
        alarm: u32,
        #[command(flatten)]
        format: Format,
    },
    /// Remove files
    Clear {
        /// Only these kinds of files [default: all]
        kinds: Vec<TableKind>,
        #[command(flatten)]
        format: Format,
    },
    /// Write routes, certificates and tuned shapes to one file, for use on similar machines
    Export {
        /// File to write
        file: PathBuf,
        /// Free-form description of where the rows come from
        #[arg(long, default_value = "")]
        origin: String,
        #[command(flatten)]
        format: Format,
    },
    /// Merge the rows of an exported file; of two rows with the same key the newer is kept
    Import {
        /// File to read
        file: PathBuf,
        #[command(flatten)]
        format: Format,
    },
}

#[derive(Debug, clap::Args)]
struct Format {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let places = Storage::of_user();
    let files = files(&places);
    match &arguments.action {
        Action::Ls(format) => {
            show(&files, format);
            Ending::Done
        }
        Action::Verify(format) => {
            show(&files, format);
            if files.iter().all(|file| file.rows.is_ok()) { Ending::Done } else { Ending::CheckFailed }
        }
        Action::Stats { alarm, format } => stats(&places, *alarm, format),
        Action::Clear { kinds, format } => clear(&files, kinds, format),
        Action::Export { file, origin, format } => export(&places, file, origin, format),
        Action::Import { file, format } => import(&places, file, format),
    }
}

fn stats(places: &Storage, alarm: u32, format: &Format) -> Ending {
    let (audit, runs) = match places.compiles.as_deref().map(PipelineCacheAudit::load).transpose() {
        Ok(kept) => kept.unwrap_or_default(),
        Err(error) => return Ending::CannotRun(error.to_string()),
    };
    let PipelineCacheAuditSnapshot { hits, misses, unknowns, hit_rate_bps, below_alarm_threshold } =
        audit.snapshot(alarm * 100);
    let percent = hit_rate_bps.map(|rate| f64::from(rate) / 100.0);
    if format.json {
        let json = serde_json::json!({
            "runs": runs, "hits": hits, "misses": misses, "unknowns": unknowns, "hit_percent": percent,
            "below_alarm": below_alarm_threshold,
        });
        print(&json.to_string());
    } else {
        let rate = percent.map_or("no rate yet".into(), |percent| format!("{percent:.2}% hit rate"));
        let below = if below_alarm_threshold { format!(", below {alarm}%") } else { String::new() };
        print(&format!("compiled programs in {runs} runs: {hits} hits, {misses} misses, {rate}{below}"));
    }
    if below_alarm_threshold { Ending::CheckFailed } else { Ending::Done }
}

fn export(places: &Storage, file: &Path, origin: &str, format: &Format) -> Ending {
    let bundle = match bundle::gather(places, origin) {
        Ok(bundle) => bundle,
        Err(error) => return Ending::CannotRun(error.to_string()),
    };
    if let Err(error) = bundle.save(file) {
        return Ending::Usage(error.to_string());
    }
    bundle::show(&bundle, &format!("written to {}", file.display()), OutputFormat::of(format.json));
    Ending::Done
}

fn import(places: &Storage, file: &Path, format: &Format) -> Ending {
    let bundle = match Bundle::load(file) {
        Ok(bundle) => bundle.with_origins(),
        Err(error) => return Ending::Usage(error.to_string()),
    };
    if let Some(error) = places.import(&bundle).first() {
        return Ending::Usage(error.to_string());
    }
    bundle::show(&bundle, &format!("added from {}", file.display()), OutputFormat::of(format.json));
    Ending::Done
}

fn show(files: &[TableFile], format: &Format) {
    if format.json {
        print(&files.iter().map(to_json).collect::<serde_json::Value>().to_string());
        return;
    }
    if files.is_empty() {
        print("nothing has been saved yet");
    }
    for file in files {
        let state = match (&file.rows, file.kind) {
            (_, TableKind::SetAside) => "damaged, no longer used".to_string(),
            (Ok(rows), _) => format!("{rows} rows"),
            (Err(error), _) => format!("not readable: {error}"),
        };
        let (kind, bytes) = (file.kind.name(), quantity::bytes(file.bytes));
        print(&format!("{kind:<10} {bytes:>10}  {}  {state}", file.path.display()));
    }
}

pub(crate) fn to_json(file: &TableFile) -> serde_json::Value {
    serde_json::json!({
        "kind": file.kind.name(),
        "path": file.path.display().to_string(),
        "bytes": file.bytes,
        "rows": file.rows.as_ref().ok(),
        "error": file.rows.as_ref().err().map(ToString::to_string),
    })
}

fn clear(files: &[TableFile], kinds: &[TableKind], format: &Format) -> Ending {
    let mut removed = Vec::new();
    for file in files.iter().filter(|file| kinds.is_empty() || kinds.contains(&file.kind)) {
        if let Err(error) = file.remove() {
            return Ending::Usage(format!("cannot remove `{}`: {error}", file.path.display()));
        }
        removed.push(file.path.display().to_string());
    }
    if format.json {
        print(&serde_json::json!({ "removed": removed }).to_string());
    } else if removed.is_empty() {
        print("nothing to remove");
    } else {
        removed.iter().for_each(|path| print(&format!("removed {path}")));
    }
    Ending::Done
}
