//! Compilation of programs into reusable pipelines.
//!
//! [`compile`] and its variants admit the program (see `admission`), have the backend compile it,
//! and return its pipeline; for a backend that does not compile, they return a pass-through
//! pipeline that calls the backend each time. They always ask the backend: caches belong to
//! backends and to the runtime, which share [`PipelineCache`](crate::PipelineCache).

mod audit;
mod manifest;
mod pass_through;

pub use audit::{PipelineCacheAudit, PipelineCacheAuditSnapshot, PipelineCacheSnapshot};
pub use manifest::{COMPILER_VERSION, ManifestError, PipelineReproManifest};

use crate::admission::admit;
use crate::containment::contain;
use crate::messages::Speaking;
use crate::observability::{count_pass_through, observe_compile};
use crate::{BackendError, CompiledPipeline, DispatchConfig, VyreBackend, hex};
use pass_through::PassThrough;
use std::fmt;
use std::sync::Arc;
use vyre_foundation::ir::Program;

/// The default workgroup size of a one-dimensional kernel: a whole number of subgroups wherever
/// these have 8, 16, 32 or 64 lanes, and within the 256 invocations that WebGPU guarantees.
pub const DEFAULT_1D_WORKGROUP_SIZE: [u32; 3] = [64, 1, 1];

/// A pipeline, and how it was made.
#[derive(Clone)]
pub struct CompiledWithTelemetry {
    /// The pipeline.
    pub pipeline: Arc<dyn CompiledPipeline>,
    /// The information needed to reproduce it.
    pub manifest: PipelineReproManifest,
    /// Whether it came from the backend's cache; `None` if the backend does not report it.
    pub cache_hit: Option<bool>,
}

impl fmt::Debug for CompiledWithTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledWithTelemetry")
            .field("pipeline", &self.pipeline.id())
            .field("manifest", &self.manifest)
            .field("cache_hit", &self.cache_hit)
            .finish()
    }
}

/// The result of prewarming.
#[derive(Clone, Debug, PartialEq)]
pub struct Prewarmed {
    /// The id of the pipeline that is now ready.
    pub pipeline_id: String,
    /// Whether it came from the backend's cache; `None` if the backend does not report it.
    pub cache_hit: Option<bool>,
    /// The information needed to reproduce it.
    pub manifest: PipelineReproManifest,
}

/// Compiles the program into a pipeline on this backend.
///
/// ```
/// use std::sync::Arc;
/// use vyre_driver::{BackendError, DispatchConfig, VyreBackend, pipeline};
/// use vyre_foundation::ir::Program;
///
/// struct Echo;
/// impl VyreBackend for Echo {
///     fn id(&self) -> &'static str {
///         "echo"
///     }
///     fn dispatch(&self, _: &Program, inputs: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
///         Ok(inputs.to_vec())
///     }
/// }
///
/// let config = DispatchConfig::default();
/// let pipeline = pipeline::compile(Arc::new(Echo), &Program::empty(), &config)?;
/// let mut slots = vec![Vec::with_capacity(16)];
/// pipeline.dispatch_borrowed_into(&[b"abc"], &config, &mut slots)?;
/// assert_eq!((&slots[0][..], slots[0].capacity()), (&b"abc"[..], 16));
/// # Ok::<(), BackendError>(())
/// ```
pub fn compile(
    backend: Arc<dyn VyreBackend>,
    program: &Program,
    config: &DispatchConfig,
) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    observe_compile(backend.id(), || make(&backend, program, config))
}

/// Like [`compile`], for an owned program.
pub fn compile_owned(
    backend: Arc<dyn VyreBackend>,
    program: Program,
    config: &DispatchConfig,
) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    compile(backend, &program, config)
}

/// Like [`compile_owned`], and reports how the pipeline was made.
pub fn compile_owned_with_telemetry(
    backend: Arc<dyn VyreBackend>,
    program: Program,
    config: &DispatchConfig,
) -> Result<CompiledWithTelemetry, BackendError> {
    let before = backend.pipeline_cache_snapshot();
    let pipeline = compile(backend.clone(), &program, config)?;
    let cache_hit = audit::cache_outcome(before, backend.pipeline_cache_snapshot());
    let manifest = PipelineReproManifest::new(&*backend, &*pipeline, &program, config);
    Ok(CompiledWithTelemetry { pipeline, manifest, cache_hit })
}

/// Has the backend compile the program, so that a later [`compile`] finds it cached. Never
/// dispatches.
pub fn prewarm(
    backend: Arc<dyn VyreBackend>,
    program: &Program,
    config: &DispatchConfig,
) -> Result<Prewarmed, BackendError> {
    prewarm_owned(backend, program.clone(), config)
}

/// Like [`prewarm`], for an owned program.
pub fn prewarm_owned(
    backend: Arc<dyn VyreBackend>,
    program: Program,
    config: &DispatchConfig,
) -> Result<Prewarmed, BackendError> {
    let made = compile_owned_with_telemetry(backend, program, config)?;
    let pipeline_id = made.pipeline.id().to_string();
    Ok(Prewarmed { pipeline_id, cache_hit: made.cache_hit, manifest: made.manifest })
}

/// A pipeline of a program, which reports the program's messages if it has any.
fn make(
    backend: &Arc<dyn VyreBackend>,
    program: &Program,
    config: &DispatchConfig,
) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    let speaks = program.is_region_wrapped() && !program.validate()?.messages.is_empty();
    match if speaks { Speaking::new(backend, program, config)? } else { None } {
        Some(pipeline) => Ok(Arc::new(pipeline)),
        None => make_silent(backend, program, config),
    }
}

/// `<backend id>:<prefix of the fingerprint>`: 128 bits, so that no two programs share an id.
pub(crate) fn pipeline_id(backend: &str, fingerprint: &[u8; 32]) -> String {
    format!("{backend}:{}", hex::encode(&fingerprint[..16]))
}

/// A pipeline of a program without its messages.
pub(crate) fn make_silent(
    backend: &Arc<dyn VyreBackend>,
    program: &Program,
    config: &DispatchConfig,
) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    let profile = backend.device_profile();
    let kernel = admit(&**backend, &profile, program, config)?;
    let native = contain(|| backend.compile_native(program, config)).unwrap_or_else(|message| {
        Err(BackendError::KernelCompileFailed { backend: backend.id().into(), message })
    })?;
    Ok(match native {
        Some(pipeline) => pipeline,
        None => {
            count_pass_through();
            Arc::new(PassThrough {
                id: pipeline_id(backend.id(), &program.fingerprint()),
                backend: backend.clone(),
                program: program.clone(),
                kernel,
                profile,
                config: config.clone(),
            })
        }
    })
}
