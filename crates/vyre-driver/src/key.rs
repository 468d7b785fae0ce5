//! The scope of code and of what is learnt about it.
//!
//! A [`CodeKey`] holds everything that affects code or results: the program, how it is compiled,
//! and the device, driver and build that it is compiled for. A program with uniforms compiled in is
//! a different program. The pipeline cache keys code by it. Routes and rows of the PGO table and of
//! the tuner are keyed by its [digest](CodeKey::digest) and its [`DeviceKey`]; certificates, which
//! concern no particular program, by the latter alone.

use crate::pipeline::COMPILER_VERSION;
use crate::{DeviceProfile, DispatchConfig};
use vyre_foundation::ir::Program;

impl DispatchConfig {
    /// Only the settings that affect the compiled code; the others come with each call.
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

    /// The code policy without the shape and the optimizer's effort, which affect speed only.
    pub(crate) fn result_policy(&self) -> DispatchConfig {
        DispatchConfig {
            workgroup_override: None,
            elements_per_invocation: None,
            schedule: None,
            ..self.code_policy()
        }
    }
}

/// The device, its driver, and the vyre build that compiles for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceKey {
    /// The backend's id.
    pub backend: &'static str,
    /// The device's name.
    pub device: &'static str,
    /// The driver's name and version.
    pub driver: &'static str,
    /// The vyre build.
    pub build: &'static str,
}

impl DeviceKey {
    /// The key of a device with this build.
    pub fn new(profile: &DeviceProfile) -> DeviceKey {
        let DeviceProfile { backend, device_name: device, driver_version: driver, .. } = *profile;
        DeviceKey { backend, device, driver, build: COMPILER_VERSION }
    }
}

/// Everything that affects code or results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeKey {
    /// The program's fingerprint.
    pub program: [u8; 32],
    /// How it is compiled.
    pub policy: DispatchConfig,
    /// The device that it is compiled for.
    pub device: DeviceKey,
}

impl CodeKey {
    /// The key of a program on a device.
    pub fn new(profile: &DeviceProfile, program: &Program, config: &DispatchConfig) -> CodeKey {
        let mut policy = config.code_policy();
        // An override equal to the program's workgroup size is no override.
        policy.workgroup_override =
            policy.workgroup_override.filter(|&size| size != program.workgroup_size());
        CodeKey { program: program.fingerprint(), policy, device: DeviceKey::new(profile) }
    }

    /// The key, per device, of what is learnt about a program's times and results: its fingerprint,
    /// unless a policy or a kind of use ([`DispatchConfig::profile`]) distinguishes it from the
    /// plain program.
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
