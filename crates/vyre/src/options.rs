//! Options of a call.

use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{DispatchConfig, Fallback};

/// Calls of routines with more buffers than this allocate.
pub(crate) const INLINE: usize = 7;

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
    /// The call's options over the routine's configuration; `None` if none were set.
    #[inline]
    pub(crate) fn config(&self, base: &DispatchConfig) -> Option<DispatchConfig> {
        let unset = self.config.is_none() && self.fallback.is_none() && self.timeout.is_none();
        if unset { None } else { Some(self.laid_over(base)) }
    }

    fn laid_over(&self, base: &DispatchConfig) -> DispatchConfig {
        let config = self.config.as_deref().map_or_else(|| base.clone(), |own| own.over(base));
        let (fallback, timeout) = (self.fallback.or(config.fallback), self.timeout.or(config.timeout));
        DispatchConfig { fallback, timeout, ..config }
    }
}
