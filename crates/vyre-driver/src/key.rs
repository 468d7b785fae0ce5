//! What code, and what is known of it, is valid for.
//!
//! A [`CodeKey`] holds everything that changes code or results: the program, how it is compiled, and the device, driver and
//! builds that it is compiled for. Uniforms that are compiled in make another program. The pipeline cache keys code by it;
//! routes, rows of the PGO table and of the tuner key what they know by its [digest](CodeKey::digest) and its
//! [`DeviceKey`], and certificates, which are about no program, by the latter alone.

use crate::pipeline::COMPILER_VERSION;
use crate::{DeviceProfile, DispatchConfig};
use vyre_foundation::ir::Program;

impl DispatchConfig {
    /// Only what changes the code that is compiled; everything else comes with each call.
    #[must_use]
    pub fn code_policy(&self) -> DispatchConfig {
        DispatchConfig {
            ulp_budget: self.ulp_budget,
            workgroup_override: self.workgroup_override,
            schedule: self.schedule,
            elements_per_invocation: self.elements_per_invocation,
            subgroup_size: self.subgroup_size,
            native_math: self.native_math,
            asserts: self.asserts,
            ..DispatchConfig::default()
        }
    }
}

/// The device, its driver, and the vyre that compiles for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceKey {
    /// The backend's id.
    pub backend: &'static str,
    /// The device's name.
    pub device: &'static str,
    /// The driver's name and version.
    pub driver: &'static str,
    /// The build of vyre.
    pub build: &'static str,
}

impl DeviceKey {
    /// The key of a device, with this build.
    pub fn new(profile: &DeviceProfile) -> DeviceKey {
        let DeviceProfile { backend, device_name: device, driver_version: driver, .. } = *profile;
        DeviceKey { backend, device, driver, build: COMPILER_VERSION }
    }
}

/// Everything that changes code or results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeKey {
    /// The program's fingerprint.
    pub program: [u8; 32],
    /// How it is compiled.
    pub policy: DispatchConfig,
    /// What it is compiled for.
    pub device: DeviceKey,
}

impl CodeKey {
    /// The key of a program on a device.
    pub fn new(profile: &DeviceProfile, program: &Program, config: &DispatchConfig) -> CodeKey {
        let mut policy = config.code_policy();
        // The program's own size and an override to the same size are one.
        policy.workgroup_override =
            policy.workgroup_override.filter(|&size| size != program.workgroup_size());
        CodeKey { program: program.fingerprint(), policy, device: DeviceKey::new(profile) }
    }

    /// What is known of a program's times and results is kept under this, by device: its fingerprint, unless a policy or
    /// a kind of use, [`DispatchConfig::profile`], tells it from the program as it is.
    pub fn digest(program: [u8; 32], config: &DispatchConfig) -> [u8; 32] {
        let policy = DispatchConfig { profile: config.profile.clone(), ..config.code_policy() };
        if policy.is_unset() {
            return program;
        }
        let mut hasher = blake3::Hasher::new_derive_key("vyre code key 1");
        hasher.update(&program).update(format!("{policy:?}").as_bytes());
        *hasher.finalize().as_bytes()
    }
}
