//! Options of a call.

use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{DispatchConfig, Fallback};

/// Options of a call.
#[derive(Default)]
pub(crate) struct CallOptions<'a> {
    /// The backend named by the caller.
    pub(crate) backend: Option<&'a str>,
    /// The tuning mode, if not the runtime's.
    pub(crate) tuning: Option<Mode>,
    /// The size at which an op is called.
    pub(crate) size: u32,
    /// Whether the report includes the kernel's time on its device.
    pub(crate) device_time: bool,
    pub(crate) fallback: Option<Fallback>,
    pub(crate) timeout: Option<Duration>,
    /// All other options. Boxed, because a call is moved with every argument bound and most have
    /// none.
    pub(crate) config: Option<Box<DispatchConfig>>,
}

impl CallOptions<'_> {
    /// Whether any option of the routine's configuration was set.
    #[inline]
    pub(crate) fn is_configured(&self) -> bool {
        self.config.is_some() || self.fallback.is_some() || self.timeout.is_some()
    }

    /// The call's options over the routine's configuration.
    pub(crate) fn config(&self, base: &DispatchConfig) -> DispatchConfig {
        let config = self.config.as_deref().map_or_else(|| base.clone(), |own| own.over(base));
        let (fallback, timeout) = (self.fallback.or(config.fallback), self.timeout.or(config.timeout));
        DispatchConfig { fallback, timeout, ..config }
    }
}
