//! An adapter and its properties.

use crate::device::{Adapter, ShaderLanguage};
use crate::emit::Traits;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vyre_driver::{BackendError, DeviceProfile, default_supported_ops};
use vyre_foundation::ir::{Op, OpId};
use vyre_foundation::kernel::Kernel;

/// An adapter and its properties.
#[derive(Debug)]
pub struct WgpuDevice {
    /// Id of the instance: `wgpu`, `wgpu:1`, …
    pub(crate) id: &'static str,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) profile: DeviceProfile,
    pub(crate) traits: Traits,
    pub(crate) language: ShaderLanguage,
    pub(crate) supported: HashSet<OpId>,
    /// Fingerprints of kernels on which the driver's compiler timed out, with the limit.
    pub(crate) endless: Mutex<HashMap<[u8; 32], Duration>>,
}

/// Properties of an adapter, determined once per process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) profile: DeviceProfile,
    pub(crate) traits: Traits,
    pub(crate) language: ShaderLanguage,
}

impl WgpuDevice {
    pub(crate) fn new(adapter: Arc<Adapter>, identity: &Identity) -> WgpuDevice {
        let Identity { profile, traits, language } = *identity;
        let mut supported = default_supported_ops().clone();
        // `fma` is the device's own, or built from 64-bit operations.
        if !traits.fused_fma && !profile.supports_f64 {
            supported.remove(&Op::Fma.id());
        }
        WgpuDevice {
            id: profile.backend,
            adapter,
            profile,
            traits,
            language,
            supported,
            endless: Mutex::default(),
        }
    }

    /// The limit at which the driver's compiler was abandoned on this kernel, if it was. The kernel
    /// is not compiled again, since every attempt would leave a busy thread.
    pub(crate) fn left_behind(&self, kernel: &Kernel) -> Option<Duration> {
        let endless = self.endless.lock().unwrap_or_else(PoisonError::into_inner);
        endless.get(&kernel.fingerprint).copied()
    }

    pub(crate) fn leave_behind(&self, kernel: &Kernel, limit: Duration) {
        let mut endless = self.endless.lock().unwrap_or_else(PoisonError::into_inner);
        endless.insert(kernel.fingerprint, limit);
    }

    pub(crate) fn unsupported(&self, name: String) -> BackendError {
        BackendError::UnsupportedFeature { name, backend: self.id.into() }
    }
}
