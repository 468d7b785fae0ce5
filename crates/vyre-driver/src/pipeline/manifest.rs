//! Manifests with everything needed to reproduce a pipeline at another time or on another machine.

use crate::{CompiledPipeline, DispatchConfig, VyreBackend, hex};
use serde::{Deserialize, Serialize};
use std::fmt;
use vyre_foundation::ir::Program;
use vyre_foundation::wire;

/// The version of the compiler and a hash of its sources, excluding those of backends: results of
/// another version, compiled or learnt, are not reused.
pub const COMPILER_VERSION: &str = env!("VYRE_BUILD_ID");

/// Everything that determines a pipeline, including the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineReproManifest {
    /// The layout of this manifest: [`PipelineReproManifest::SCHEMA`].
    pub schema: String,
    /// The backend.
    pub backend_id: String,
    /// The pipeline that it made.
    pub pipeline_id: String,
    /// The program's fingerprint in hexadecimal digits.
    pub program_digest: String,
    /// The program's wire bytes in hexadecimal digits.
    pub program: String,
    /// The configuration that the pipeline was compiled with.
    pub dispatch_policy: DispatchConfig,
    /// The device's name for itself.
    pub device: String,
    /// The device's driver.
    pub driver: String,
    /// The version of vyre.
    pub compiler_version: String,
}

/// Why a manifest could not be written, read or replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestError {
    /// It is not a manifest in JSON.
    Json {
        /// What is wrong with it.
        message: String,
    },
    /// It has another layout.
    Schema {
        /// The layout that it names.
        found: String,
    },
    /// The program in it cannot be read.
    Program {
        /// What is wrong with it.
        message: String,
    },
    /// The program in it does not match the digest.
    Digest {
        /// The digest in the manifest.
        named: String,
        /// The digest of the program.
        found: String,
    },
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManifestError::Json { message } => write!(f, "not the JSON of a pipeline manifest: {message}"),
            ManifestError::Schema { found } => write!(
                f,
                "pipeline manifest has schema `{found}`, this build reads `{}`: write it again with this build",
                PipelineReproManifest::SCHEMA
            ),
            ManifestError::Program { message } => {
                write!(f, "the program in the pipeline manifest cannot be read: {message}")
            }
            ManifestError::Digest { named, found } => write!(
                f,
                "the program in the pipeline manifest has digest {found}, the manifest names {named}: it was edited or damaged"
            ),
        }
    }
}

impl std::error::Error for ManifestError {}

impl PipelineReproManifest {
    /// The layout of the manifests that this build writes and reads.
    pub const SCHEMA: &'static str = "vyre.pipeline-repro.v1";

    /// The manifest of a pipeline.
    pub(super) fn new(
        backend: &dyn VyreBackend,
        pipeline: &dyn CompiledPipeline,
        program: &Program,
        config: &DispatchConfig,
    ) -> PipelineReproManifest {
        let profile = backend.device_profile();
        PipelineReproManifest {
            schema: PipelineReproManifest::SCHEMA.into(),
            backend_id: backend.id().into(),
            pipeline_id: pipeline.id().into(),
            program_digest: hex::encode(&program.fingerprint()),
            program: hex::encode(&wire::encode(program)),
            dispatch_policy: config.clone(),
            device: profile.device_name.into(),
            driver: profile.driver_version.into(),
            compiler_version: COMPILER_VERSION.into(),
        }
    }

    /// The manifest as JSON.
    pub fn to_json(&self) -> Result<String, ManifestError> {
        serde_json::to_string_pretty(self).map_err(|error| ManifestError::Json { message: error.to_string() })
    }

    /// Parses a manifest written by [`to_json`](Self::to_json).
    pub fn from_json(text: &str) -> Result<PipelineReproManifest, ManifestError> {
        #[derive(Deserialize)]
        struct Layout {
            schema: String,
        }
        let json = |error: serde_json::Error| ManifestError::Json { message: error.to_string() };
        // Check the layout first, so that a manifest with another layout is not reported as
        // malformed.
        let Layout { schema } = serde_json::from_str(text).map_err(json)?;
        if schema != PipelineReproManifest::SCHEMA {
            return Err(ManifestError::Schema { found: schema });
        }
        serde_json::from_str(text).map_err(json)
    }

    /// The program, checked against its digest.
    pub fn program(&self) -> Result<Program, ManifestError> {
        let bytes = hex::decode(&self.program)
            .ok_or_else(|| ManifestError::Program { message: "it is not hexadecimal digits".into() })?;
        let program =
            wire::decode(&bytes).map_err(|error| ManifestError::Program { message: error.to_string() })?;
        let found = hex::encode(&program.fingerprint());
        if found != self.program_digest {
            return Err(ManifestError::Digest { named: self.program_digest.clone(), found });
        }
        Ok(program)
    }
}
