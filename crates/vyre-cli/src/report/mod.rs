//! `vyre report`: a page with everything that vyre knows about this machine.
//!
//! [`Facts`] are gathered from the registry and the tables on disk; `page` lays them out and `plot`
//! draws. The page is self-contained: styles, plots and the light/dark switch are embedded.

pub(crate) mod page;
mod plot;

use crate::devices::{self, LinkedBackend};
use crate::output::{Ending, print};
use crate::tables::{TableFile, TableKind};
use crate::{cache, files};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use vyre_driver::hints_file::{MAX_REGIONS, load_hints};
use vyre_driver::pgo::{PgoTable, RouteDecision};
use vyre_driver::storage::Storage;
use vyre_driver::tuner::{CandidateSamples, Shape, TunerCache};
use vyre_foundation::hints::{HotPathHints, RegionRecord};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page shows the devices, the routes with their measurements, what the tuner tried, the regions that \
take the most time, and the state of the tables. All numbers come from the tables; `vyre certify` and \
`vyre tune` add to them.

Examples:
  vyre report --out report.html
  vyre report --json")]
pub(crate) struct Arguments {
    /// File to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "vyre-report.html")]
    out: PathBuf,
    /// Print the facts as JSON instead of writing a page
    #[arg(long)]
    json: bool,
}

/// Contents of the page.
struct Facts {
    devices: Vec<LinkedBackend>,
    routes: Vec<Route>,
    tuned: Vec<Tuned>,
    /// Sorted by total time, largest first.
    regions: Vec<(String, RegionRecord)>,
    files: Vec<TableFile>,
    /// Seconds since 1970.
    written_at: u64,
}

/// Row of the routing table.
struct Route {
    op: String,
    decision: RouteDecision,
}

/// Decision of the tuner.
struct Tuned {
    /// Name of the table file, which begins with the device's name.
    adapter: String,
    key: String,
    shape: Shape,
    candidates: Vec<CandidateSamples>,
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let facts = Facts::gather();
    if arguments.json {
        print(&facts.to_json().to_string());
        return Ending::Done;
    }
    if let Err(ending) = files::write(&arguments.out, page::render(&facts).as_bytes()) {
        return ending;
    }
    if arguments.out.as_os_str() != "-" {
        print(&format!("written to {}", arguments.out.display()));
    }
    Ending::Done
}

impl Facts {
    fn gather() -> Facts {
        let places = Storage::of_user();
        let files = crate::tables::files(&places);
        Facts {
            devices: devices::all(),
            routes: routes(&places),
            tuned: tuned(&files),
            regions: regions(&places),
            files,
            written_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let devices: serde_json::Value =
            self.devices.iter().enumerate().map(|(at, device)| device.to_json(at)).collect();
        let route = |route: &Route| serde_json::json!({ "op": route.op, "decision": route.decision });
        let tuned = |tuned: &Tuned| {
            serde_json::json!({
                "adapter": tuned.adapter,
                "key": tuned.key,
                "shape": tuned.shape,
                "candidates": tuned.candidates,
            })
        };
        let region = |(name, record): &(String, RegionRecord)| {
            serde_json::json!({
                "region": name,
                "dispatches": record.dispatch_count,
                "total_ns": record.kernel_ns_total,
                "longest_ns": record.kernel_ns_max,
                "bytes": record.bytes_total,
            })
        };
        serde_json::json!({
            "written_at": self.written_at,
            "devices": devices,
            "routes": self.routes.iter().map(route).collect::<serde_json::Value>(),
            "tuner": self.tuned.iter().map(tuned).collect::<serde_json::Value>(),
            "regions": self.regions.iter().map(region).collect::<serde_json::Value>(),
            "tables": self.files.iter().map(cache::to_json).collect::<serde_json::Value>(),
        })
    }
}

/// Rows of the routing table, sorted by op; an unreadable table gives none and is reported with the
/// tables.
fn routes(places: &Storage) -> Vec<Route> {
    let table = places.routes.as_deref().and_then(|path| PgoTable::load(path).ok()).unwrap_or_default();
    let sized = table.routes_by_size.iter().flat_map(|(op, rows)| rows.values().map(move |row| (op, row)));
    let any = table.routes.iter().filter(|(_, row)| row.size_bucket.is_none());
    let mut routes: Vec<Route> =
        sized.chain(any).map(|(op, row)| Route { op: op.clone(), decision: row.clone() }).collect();
    routes.sort_by(|a, b| (&a.op, a.decision.size_bucket).cmp(&(&b.op, b.decision.size_bucket)));
    routes
}

fn tuned(files: &[TableFile]) -> Vec<Tuned> {
    let mut tuned = Vec::new();
    for file in files.iter().filter(|file| file.kind == TableKind::Tuner) {
        let Ok(cache) = TunerCache::load(&file.path) else { continue };
        let adapter = file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for key in cache.keys() {
            let Some(shape) = cache.shape(key) else { continue };
            let candidates = cache.samples(key).to_vec();
            tuned.push(Tuned { adapter: adapter.clone(), key: key.to_owned(), shape, candidates });
        }
    }
    tuned
}

fn regions(places: &Storage) -> Vec<(String, RegionRecord)> {
    let hints = HotPathHints::with_capacity(MAX_REGIONS);
    if let Some(path) = &places.hints
        && load_hints(&hints, path).is_err()
    {
        return Vec::new();
    }
    let mut regions = hints.records();
    regions.sort_by_key(|(name, record)| (std::cmp::Reverse(record.kernel_ns_total), name.clone()));
    regions
}
