//! `vyre certify`: compares backends with the interpreter on programs, measures the correct ones
//! and records the outcome in the routing table.

use crate::certify_report;
use crate::dispatch::ShapeArguments;
use crate::inputs::InputArguments;
use crate::output::{Ending, OutputFormat, print, progress_bar};
use crate::quantity;
use crate::source::{LoadedProgram, SetArguments, load_with};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use vyre::Runtime;
use vyre::unstable::opening::meet_unknown_drivers;
use vyre_driver::pgo::{PgoTable, RouteDecision};
use vyre_driver::storage::Storage;
use vyre_driver::{
    BackendError, CompiledPipeline, DeviceProfile, DispatchConfig, VyreBackend, pipeline, registry,
};
use vyre_foundation::ir::{OpId, Program};

#[derive(Debug, clap::Args)]
#[command(after_help = format!("{}\n\n{EXAMPLES}", crate::inputs::INPUTS_HELP))]
pub(crate) struct Arguments {
    /// Programs to certify
    #[arg(required_unless_present = "report")]
    files: Vec<PathBuf>,
    /// Instead, write a JSON report on one backend's results on the conformance set and on
    /// generated programs
    #[arg(long, value_name = "FILE", conflicts_with = "files", requires = "backends")]
    report: Option<PathBuf>,
    #[command(flatten)]
    set: SetArguments,
    /// Lengths for buffers that are sized at dispatch and have no input; filled with random
    /// elements, once per length
    #[arg(long, value_name = "COUNT", value_delimiter = ',', value_parser = quantity::count)]
    sizes: Vec<u64>,
    /// Only these backends [default: all usable backends]
    #[arg(long = "backend", value_name = "ID", value_delimiter = ',')]
    backends: Vec<String>,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Measure without updating the routing table
    #[arg(long)]
    dry_run: bool,
    /// Print JSON instead of text, without progress
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
The outputs of every backend are compared with the interpreter's; a backend that is wrong is rejected, \
however fast. Each of the others runs once to warm up, then several times, interleaved in random order. \
The fastest becomes the route for programs of this name at about this size.

Examples:
  vyre certify examples/saxpy.vyre --in a=2 --sizes 1K,64K,1M
  vyre certify examples/black_scholes.vyre --backend cpu --json --dry-run
  vyre certify --backend cpu --report cpu.json";

pub(crate) fn run(arguments: &Arguments) -> Ending {
    certify(arguments).unwrap_or_else(|ending| ending)
}

fn certify(arguments: &Arguments) -> Result<Ending, Ending> {
    if let Some(path) = &arguments.report {
        return certify_report::write(&arguments.backends, path, OutputFormat::of(arguments.json));
    }
    let load = |file: &PathBuf| load_with(file, &arguments.set);
    let programs: Vec<LoadedProgram> = arguments.files.iter().map(load).collect::<Result<_, _>>()?;
    let mut sized_programs: Vec<(&LoadedProgram, Option<u64>)> = Vec::new();
    for loaded in &programs {
        if arguments.sizes.is_empty() {
            sized_programs.push((loaded, None));
        }
        sized_programs.extend(arguments.sizes.iter().map(|size| (loaded, Some(*size))));
    }
    // All inputs are checked before anything is measured.
    for (loaded, size) in &sized_programs {
        arguments.inputs.gather_sized(loaded, size.map(|size| size.min(1)))?;
    }
    let backends = open(&arguments.backends)?;
    let bar = progress_bar(sized_programs.len() as u64, "measurements", OutputFormat::of(arguments.json));
    let mut rows = Vec::new();
    let mut table = PgoTable::default();
    for (loaded, size) in sized_programs {
        bar.set_message(loaded.file.clone());
        let row = measure(arguments, (loaded, size), &backends, &mut table)?;
        bar.inc(1);
        if arguments.json {
            rows.push(serde_json::json!({ "file": loaded.file, "op": op_id(loaded), "decision": row }));
        } else {
            bar.suspend(|| show(loaded, &row));
        }
    }
    bar.finish_and_clear();
    leave_oracles(&mut table);
    let kept = keep(arguments, &table)?;
    if arguments.json {
        print(&serde_json::json!({ "routes": rows, "kept_in": kept }).to_string());
    } else if let Some(path) = kept {
        print(&format!("kept in {path}"));
    }
    Ok(Ending::Done)
}

/// Opens the named backends, else those that a runtime uses. The runtime first probes unknown
/// drivers in a helper process and records the result.
fn open(ids: &[String]) -> Result<Vec<Arc<dyn VyreBackend>>, Ending> {
    let ids: Vec<String> = if ids.is_empty() {
        let runtime = Runtime::builder().meet_drivers_first().build()?;
        runtime.backends().map(str::to_owned).collect()
    } else {
        ids.to_vec()
    };
    meet_unknown_drivers(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    ids.iter().map(|id| Ok(registry::acquire(id)?.into())).collect()
}

fn measure(
    arguments: &Arguments,
    (loaded, size): (&LoadedProgram, Option<u64>),
    backends: &[Arc<dyn VyreBackend>],
    table: &mut PgoTable,
) -> Result<RouteDecision, Ending> {
    let inputs = arguments.inputs.gather_sized(loaded, size)?;
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let oracle = vyre_reference::CpuRef;
    let config = arguments.shape.config()?;
    let (op, program) = (op_id(loaded), &loaded.program);
    let prepare =
        |backend| Prepared { backend, pipeline: pipeline::compile(backend.clone(), program, &config) };
    let prepared: Vec<Prepared<'_>> = backends.iter().map(prepare).collect();
    let backends: Vec<&dyn VyreBackend> =
        prepared.iter().map(|backend| backend as &dyn VyreBackend).collect();
    Ok(table.certify_op_verified(&oracle, op, program, &borrowed, &config, &backends)?.clone())
}

/// Key of a program in the routing table: its name, else its fingerprint.
pub(crate) fn op_id(loaded: &LoadedProgram) -> String {
    match loaded.program.name() {
        Some(name) => name.to_string(),
        None => format!("fp:{}", loaded.fingerprint()),
    }
}

/// Removes rows whose only backends are oracles, since nothing is ever routed to an oracle.
fn leave_oracles(table: &mut PgoTable) {
    let tells = |row: &RouteDecision| {
        row.observations.iter().any(|observed| !registry::backend_is_oracle(&observed.backend))
    };
    table.routes.retain(|_, row| tells(row));
    table.routes_by_size.values_mut().for_each(|rows| rows.retain(|_, row| tells(row)));
    table.routes_by_size.retain(|_, rows| !rows.is_empty());
}

fn keep(arguments: &Arguments, table: &PgoTable) -> Result<Option<String>, Ending> {
    let nothing = table.routes.is_empty() && table.routes_by_size.is_empty();
    let Some(path) = Storage::of_user().routes.filter(|_| !arguments.dry_run && !nothing) else {
        return Ok(None);
    };
    table.save(&path).map_err(|error| Ending::Usage(error.to_string()))?;
    Ok(Some(path.display().to_string()))
}

fn show(loaded: &LoadedProgram, row: &RouteDecision) {
    let size = row.size_bucket.map(|bucket| format!(", 2^{bucket} elements and up")).unwrap_or_default();
    print(&format!("{}{size}: {} is fastest", op_id(loaded), row.backend));
    for observed in &row.observations {
        print(&format!("  {:<10} {:>12}", observed.backend, quantity::time(observed.latency_ns)));
    }
    for rejected in &row.rejected {
        print(&format!("  {:<10} rejected: {}", rejected.backend, rejected.reason));
    }
}

/// Backend with a compiled program, so that only execution is measured, as in any call after the
/// first.
struct Prepared<'a> {
    backend: &'a Arc<dyn VyreBackend>,
    pipeline: Result<Arc<dyn CompiledPipeline>, BackendError>,
}

impl VyreBackend for Prepared<'_> {
    fn id(&self) -> &'static str {
        self.backend.id()
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(program, &borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        _: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.pipeline.as_ref().map_err(Clone::clone)?.dispatch_borrowed(inputs, config)
    }

    fn device_profile(&self) -> DeviceProfile {
        self.backend.device_profile()
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        self.backend.supported_ops()
    }
}
