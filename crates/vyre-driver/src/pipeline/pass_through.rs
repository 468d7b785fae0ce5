//! The pipeline of a backend that does not compile: every dispatch is a call of the backend.

use crate::admission::check_shape;
use crate::containment::contain;
use crate::dispatch::{byte_count, plain_record};
use crate::observability::observe_launch;
use crate::{BackendError, CompiledPipeline, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend, hex};
use std::borrow::Cow;
use std::sync::Arc;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;

/// Inputs and outputs are forwarded unchecked and untouched; borrowed inputs stay borrowed. A panic of the backend is a
/// failed dispatch.
pub(super) struct PassThrough {
    pub(super) id: String,
    pub(super) backend: Arc<dyn VyreBackend>,
    pub(super) program: Program,
    pub(super) kernel: Kernel,
    pub(super) profile: DeviceProfile,
    pub(super) config: DispatchConfig,
}

/// Enough of the fingerprint that two programs never share an id: 128 bits.
const ID_BYTES: usize = 16;

impl PassThrough {
    /// `<backend id>:<prefix of the fingerprint>`.
    pub(super) fn id_of(backend: &dyn VyreBackend, program: &Program) -> String {
        format!("{}:{}", backend.id(), hex::encode(&program.fingerprint()[..ID_BYTES]))
    }

    /// The call's configuration over the compile-time one. Overrides that the call brings are checked as those were.
    fn effective<'a>(&'a self, call: &'a DispatchConfig) -> Result<Cow<'a, DispatchConfig>, BackendError> {
        let effective = call.merged(&self.config);
        let shaped = call.workgroup_override.is_some()
            || call.grid_override.is_some()
            || call.domain_override.is_some()
            || call.elements_per_invocation.is_some();
        if shaped {
            check_shape(&self.profile, &self.kernel, &effective)?;
        }
        Ok(effective)
    }

    fn contained(
        &self,
        run: impl FnOnce() -> Result<OutputBuffers, BackendError>,
    ) -> Result<OutputBuffers, BackendError> {
        contain(run).unwrap_or_else(|message| {
            Err(BackendError::DispatchFailed { backend: self.backend.id().into(), message })
        })
    }
}

impl CompiledPipeline for PassThrough {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || {
            let config = self.effective(config)?;
            let outputs = self.contained(|| self.backend.dispatch(&self.program, inputs, &config))?;
            let record = plain_record(byte_count(inputs), &outputs);
            Ok((outputs, record))
        })
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || {
            let config = self.effective(config)?;
            let outputs =
                self.contained(|| self.backend.dispatch_borrowed(&self.program, inputs, &config))?;
            let record = plain_record(byte_count(inputs), &outputs);
            Ok((outputs, record))
        })
    }
}
