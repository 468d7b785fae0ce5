//! Enumerates devices and their capabilities.
//!
//! Devices are queried once per process, and larger ones come first. A device is excluded, with the
//! reason recorded, if it is too old (before compute capability 7.0, barriers and lane exchanges
//! wait for invocations that have returned), if its owner prohibits its use, or if NVRTC cannot
//! generate code for it.

use crate::api::DeviceNumber;
use crate::library::{LoadedDriver, LoadedNvrtc, driver, error_text, nvrtc, shown};
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use vyre_driver::registry::interned;
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DeviceTimingQuality};

/// Id under which the backend is registered.
pub const BACKEND_ID: &str = "cuda";

/// A usable device.
pub(crate) struct UsableDevice {
    pub(crate) driver: &'static LoadedDriver,
    pub(crate) nvrtc: &'static LoadedNvrtc,
    pub(crate) number: DeviceNumber,
    pub(crate) profile: DeviceProfile,
    /// Architecture that NVRTC compiles for, as in `sm_75`.
    pub(crate) arch: u32,
    /// Maximum workgroups along each axis of a launch.
    pub(crate) most_groups: [u64; 3],
    /// Whether memory can be allocated in stream order.
    pub(crate) has_pools: bool,
    /// Why the device was lost. A device with a broken context stays lost until the process ends.
    pub(crate) lost: OnceLock<String>,
}

/// The oldest supported compute capability.
const OLDEST: (c_int, c_int) = (7, 0);
/// Threads per warp.
const WARP: c_int = 32;

/// `CUdevice_attribute`.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Attribute {
    MostThreads = 1,
    BlockX = 2,
    BlockY = 3,
    BlockZ = 4,
    GridX = 5,
    GridY = 6,
    GridZ = 7,
    SharedBytes = 8,
    WarpSize = 10,
    ClockRate = 13,
    Multiprocessors = 16,
    Integrated = 18,
    ComputeMode = 20,
    MemoryClockRate = 36,
    MemoryBusWidth = 37,
    Major = 75,
    Minor = 76,
    MemoryPools = 115,
}

/// `CU_COMPUTEMODE_PROHIBITED`.
const PROHIBITED: c_int = 2;

/// Every usable device, best first; the error reports what is missing if there is none.
pub(crate) fn devices() -> Result<&'static [UsableDevice], BackendError> {
    static DEVICES: OnceLock<Result<Vec<UsableDevice>, String>> = OnceLock::new();
    let found = DEVICES.get_or_init(find);
    found
        .as_deref()
        .map_err(|reason| BackendError::new(format!("backend `{BACKEND_ID}` cannot be used: {reason}")))
}

fn find() -> Result<Vec<UsableDevice>, String> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: the function writes a number.
    let asked = unsafe { (driver.api.device_count)(&mut count) };
    if asked != 0 {
        return Err(format!("counting the devices failed with {} ({asked})", error_text(&driver.api, asked)));
    }
    if count == 0 {
        return Err("the driver finds no device".into());
    }
    let nvrtc = nvrtc()?;
    if nvrtc.version.0 > driver.version / 1000 {
        return Err(format!(
            "code of NVRTC {}.{} does not load into a driver for CUDA {}: update NVIDIA's driver, or install an older NVRTC \
             (`pip install nvidia-cuda-nvrtc-cu{}`)",
            nvrtc.version.0,
            nvrtc.version.1,
            shown(driver.version),
            driver.version / 1000
        ));
    }
    let known = known_archs(nvrtc);
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for ordinal in 0..count {
        match examine(driver, nvrtc, ordinal, &known) {
            Ok(device) => found.push(device),
            Err(reason) => left_out.push(reason),
        }
    }
    if found.is_empty() {
        return Err(format!("no usable device: {}", left_out.join("; ")));
    }
    found.sort_by_key(|(strength, _)| u64::MAX - strength);
    Ok(found.into_iter().map(|(_, device)| device).collect())
}

/// Architectures that NVRTC supports; empty if it does not report them.
fn known_archs(nvrtc: &LoadedNvrtc) -> Vec<c_int> {
    let (Some(count), Some(list)) = (nvrtc.api.arch_count, nvrtc.api.archs) else { return Vec::new() };
    let mut length = 0;
    // SAFETY: the functions write a number, and that many numbers.
    unsafe {
        if count(&mut length) != 0 {
            return Vec::new();
        }
        let mut archs = vec![0; usize::try_from(length).unwrap_or(0)];
        if list(archs.as_mut_ptr()) != 0 {
            return Vec::new();
        }
        archs
    }
}

/// Architecture to compile for: the device's own, or the newest supported one whose code runs on
/// it.
fn arch_for((major, minor): (c_int, c_int), known: &[c_int]) -> Option<u32> {
    let own = 10 * major + minor;
    let fitting = known.iter().copied().filter(|arch| arch / 10 == major && *arch <= own).max();
    let chosen = if known.is_empty() { Some(own) } else { fitting };
    chosen.and_then(|arch| u32::try_from(arch).ok())
}

fn examine(
    driver: &'static LoadedDriver,
    nvrtc: &'static LoadedNvrtc,
    ordinal: c_int,
    known: &[c_int],
) -> Result<(u64, UsableDevice), String> {
    let mut number = 0;
    // SAFETY: the function writes a number.
    let asked = unsafe { (driver.api.device)(&mut number, ordinal) };
    if asked != 0 {
        return Err(format!("device {ordinal}: {}", error_text(&driver.api, asked)));
    }
    let name = name_of(driver, number);
    let refuse = |reason: String| Err(format!("`{name}` {reason}"));
    let ask = |what: Attribute| {
        let mut value = 0;
        // SAFETY: the function writes a number.
        let asked = unsafe { (driver.api.device_attribute)(&mut value, what as c_int, number) };
        if asked == 0 { value } else { 0 }
    };
    let capability = (ask(Attribute::Major), ask(Attribute::Minor));
    let (major, minor) = capability;
    if capability < OLDEST {
        return refuse(format!(
            "has compute capability {major}.{minor}, and the oldest that can be used is 7.0"
        ));
    }
    if ask(Attribute::ComputeMode) == PROHIBITED {
        return refuse("is set to compute mode prohibited".into());
    }
    if ask(Attribute::WarpSize) != WARP {
        return refuse(format!("has warps of {} threads", ask(Attribute::WarpSize)));
    }
    let Some(arch) = arch_for(capability, known) else {
        let (of, version) = nvrtc.version;
        return refuse(format!(
            "has compute capability {major}.{minor}, which NVRTC {of}.{version} has no code for"
        ));
    };
    let clamp = |what: Attribute| u32::try_from(ask(what)).unwrap_or(0);
    let large = |what: Attribute| u64::from(clamp(what));
    let mut memory = 0;
    // SAFETY: the function writes a number.
    let status = unsafe { (driver.api.device_memory)(&mut memory, number) };
    // Two transfers per clock; the rate is in kilohertz, the width in bits.
    let bandwidth = 2 * large(Attribute::MemoryClockRate) * large(Attribute::MemoryBusWidth) / 8 / 1_000_000;
    let shared = clamp(Attribute::SharedBytes);
    let integrated = ask(Attribute::Integrated) != 0;
    let profile = DeviceProfile {
        device_name: interned(format!("{name} (sm_{major}{minor})")),
        driver_version: interned(format!(
            "CUDA driver {}, NVRTC {}.{}, vyre-cuda {}",
            shown(driver.version),
            nvrtc.version.0,
            nvrtc.version.1,
            env!("VYRE_BUILD_ID")
        )),
        device_class: if integrated { DeviceClass::Integrated } else { DeviceClass::Discrete },
        supports_subgroup_ops: true,
        has_subgroup_shuffle: true,
        subgroup_size: WARP as u32,
        has_shared_memory: shared > 0,
        max_shared_memory_bytes: shared,
        // Emitted code converts half floats.
        supports_f16: true,
        supports_bf16: true,
        supports_f64: true,
        supports_int64: true,
        supports_atomic64: true,
        supports_narrow_storage: true,
        supports_tensor_cores: true,
        max_workgroup_size: [Attribute::BlockX, Attribute::BlockY, Attribute::BlockZ].map(clamp),
        max_invocations_per_workgroup: clamp(Attribute::MostThreads),
        max_storage_buffer_binding_size: if status == 0 { memory as u64 } else { 0 },
        compute_units: clamp(Attribute::Multiprocessors),
        mem_bw_gbps: u32::try_from(bandwidth).unwrap_or(u32::MAX),
        timing_quality: DeviceTimingQuality::DeviceTimestamps,
        supports_device_timestamps: true,
        strict_float: true,
        ..DeviceProfile::conservative(BACKEND_ID)
    };
    let most_groups = [Attribute::GridX, Attribute::GridY, Attribute::GridZ].map(|axis| large(axis).max(1));
    let has_pools = ask(Attribute::MemoryPools) != 0;
    let strength = large(Attribute::Multiprocessors) * large(Attribute::ClockRate).max(1);
    let lost = OnceLock::new();
    Ok((strength, UsableDevice { driver, nvrtc, number, profile, arch, most_groups, has_pools, lost }))
}

fn name_of(driver: &LoadedDriver, number: DeviceNumber) -> String {
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: the function writes at most that many characters with a terminating zero; the last
    // one here is zero anyway.
    unsafe {
        let asked = (driver.api.device_name)(name.as_mut_ptr(), name.len() as c_int - 1, number);
        if asked != 0 {
            return format!("device {number}");
        }
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_for_the_device_or_for_an_older_one_of_its_kind() {
        let known = [75, 80, 86, 90, 100, 120];
        let check =
            |capability, expected| assert_eq!(arch_for(capability, &known), expected, "{capability:?}");
        check((7, 5), Some(75));
        check((8, 9), Some(86));
        check((8, 0), Some(80));
        check((12, 1), Some(120));
        check((7, 0), None);
        check((13, 0), None);
        assert_eq!(arch_for((13, 0), &[]), Some(130));
    }
}
