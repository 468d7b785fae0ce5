//! One dispatch: the backend that is named or chosen, a pipeline for it, and what came out.

use crate::output::Ending;
use crate::quantity;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::pipeline::{self, PipelineReproManifest};
use vyre_driver::{DispatchConfig, VyreBackend, registry};
use vyre_foundation::ir::Program;

/// The backend that is asked for when none is named.
pub(crate) const AUTO: &str = "auto";

/// How a dispatch is shaped.
#[derive(Debug, clap::Args)]
pub(crate) struct ShapeArguments {
    /// Invocations per workgroup, as 64 or 8,8,1.
    #[arg(long, value_name = "SIZE", value_parser = quantity::axes)]
    workgroup: Option<[u32; 3]>,
    /// Workgroups, as 64 or 8,8,1.
    #[arg(long, value_name = "COUNT", value_parser = quantity::axes)]
    grid: Option<[u32; 3]>,
    /// Lanes per subgroup.
    #[arg(long)]
    subgroup: Option<u32>,
    /// How long the dispatch may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
}

impl ShapeArguments {
    pub(crate) fn config(&self) -> Result<DispatchConfig, Ending> {
        let timeout = Duration::try_from_secs_f64(self.timeout)
            .map_err(|error| Ending::Usage(format!("--timeout {}: {error}", self.timeout)))?;
        Ok(DispatchConfig {
            workgroup_override: self.workgroup,
            grid_override: self.grid,
            subgroup_size: self.subgroup,
            timeout: Some(timeout),
            ..DispatchConfig::default()
        })
    }
}

/// What a dispatch gave, and how.
pub(crate) struct Dispatched {
    /// One per output and read_write buffer, in binding order.
    pub(crate) outputs: Vec<Vec<u8>>,
    pub(crate) backend: String,
    /// Why this backend.
    pub(crate) why: String,
    pub(crate) compile_ns: u64,
    pub(crate) dispatch_ns: u64,
    pub(crate) manifest: PipelineReproManifest,
}

/// Runs the program once on a backend; [`AUTO`] is the one that selection prefers.
pub(crate) fn dispatch(
    backend: &str,
    program: &Program,
    inputs: &[Vec<u8>],
    config: &DispatchConfig,
) -> Result<Dispatched, Ending> {
    let (backend, why) = open(backend)?;
    let began = Instant::now();
    let made = pipeline::compile_owned_with_telemetry(backend.clone(), program.clone(), config)?;
    let compiled = Instant::now();
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let outputs = made.pipeline.dispatch_borrowed(&borrowed, config)?;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(Dispatched {
        outputs,
        backend: backend.id().into(),
        why,
        compile_ns: ns(compiled - began),
        dispatch_ns: ns(compiled.elapsed()),
        manifest: made.manifest,
    })
}

/// Opens a backend, and says why it is this one.
pub(crate) fn open(id: &str) -> Result<(Arc<dyn VyreBackend>, String), Ending> {
    if id != AUTO {
        return Ok((registry::acquire(id)?.into(), "it was named".into()));
    }
    let backend = registry::acquire_preferred_dispatch_backend()?;
    let usable = registry::selection_report().ranked.len();
    let why = match usable {
        1 => "it is the only usable one".into(),
        _ => format!("selection ranks it first of {usable}"),
    };
    Ok((backend.into(), why))
}
