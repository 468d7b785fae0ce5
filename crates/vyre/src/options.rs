//! How a call is to be run.

use std::time::Duration;
use vyre_driver::tuner::Mode;
use vyre_driver::{DispatchConfig, Fallback};

/// Routines with more buffers than this are called with an allocation.
pub(crate) const INLINE: usize = 7;

/// How a call is to be run.
#[derive(Default)]
pub(crate) struct CallOptions<'a> {
    /// The backend that the caller named.
    pub(crate) backend: Option<&'a str>,
    /// Whether to tune, instead of what the runtime does.
    pub(crate) tuning: Option<Mode>,
    /// The size that an op is called at.
    pub(crate) size: u32,
    /// Whether the report is to say how long the kernel ran on its device.
    pub(crate) device_time: bool,
    pub(crate) fallback: Option<Fallback>,
    pub(crate) timeout: Option<Duration>,
    /// Everything else; apart, because a call is moved with every argument that is bound and most have none.
    pub(crate) config: Option<Box<DispatchConfig>>,
}

impl CallOptions<'_> {
    /// What was set on the call, over the routine's own configuration; `None` where nothing was set.
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
