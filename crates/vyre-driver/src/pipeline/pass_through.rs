//! The pipeline of a backend that does not compile: every dispatch calls the backend.

use crate::admission::check_shape;
use crate::containment::contain_call;
use crate::dispatch::{byte_count, observe_outputs};
use crate::{BackendError, CompiledPipeline, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend};
use std::borrow::Cow;
use std::sync::Arc;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;

/// Forwards inputs and outputs unchecked and unchanged; borrowed inputs stay borrowed. A panic in
/// the backend is a failed dispatch.
pub(super) struct PassThrough {
    pub(super) id: String,
    pub(super) backend: Arc<dyn VyreBackend>,
    pub(super) program: Program,
    pub(super) kernel: Kernel,
    pub(super) profile: DeviceProfile,
    pub(super) config: DispatchConfig,
}

impl PassThrough {
    /// The call's configuration merged over the compile-time one. Overrides in the call get the
    /// same checks as those at compile time.
    fn effective<'a>(&'a self, call: &'a DispatchConfig) -> Result<Cow<'a, DispatchConfig>, BackendError> {
        let effective = call.merged(&self.config);
        if call.is_shaped() {
            check_shape(&self.profile, &self.kernel, &effective)?;
        }
        Ok(effective)
    }

    fn observed(
        &self,
        config: &DispatchConfig,
        input_bytes: u64,
        run: impl FnOnce(&DispatchConfig) -> Result<OutputBuffers, BackendError>,
    ) -> Result<OutputBuffers, BackendError> {
        observe_outputs(&self.id, config, input_bytes, || {
            let config = self.effective(config)?;
            contain_call(self.backend.id(), || run(&config))
        })
    }
}

impl CompiledPipeline for PassThrough {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let run = |config: &_| self.backend.dispatch(&self.program, inputs, config);
        self.observed(config, byte_count(inputs), run)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let run = |config: &_| self.backend.dispatch_borrowed(&self.program, inputs, config);
        self.observed(config, byte_count(inputs), run)
    }
}
