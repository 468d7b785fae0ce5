//! A minimal third-party backend: two methods, everything else from the defaults.

use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend};
use vyre_foundation::ir::Program;

/// Returns its inputs.
pub(crate) struct Toy {
    pub(crate) id: &'static str,
    pub(crate) profile: DeviceProfile,
}

impl Toy {
    pub(crate) fn open(id: &'static str) -> Result<Box<dyn VyreBackend>, BackendError> {
        Toy::with(DeviceProfile::conservative(id))
    }

    pub(crate) fn with(profile: DeviceProfile) -> Result<Box<dyn VyreBackend>, BackendError> {
        Ok(Box::new(Toy { id: profile.backend, profile }))
    }
}

impl VyreBackend for Toy {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(
        &self,
        _: &Program,
        inputs: &[Vec<u8>],
        _: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        Ok(inputs.to_vec())
    }

    fn device_profile(&self) -> DeviceProfile {
        self.profile
    }
}
