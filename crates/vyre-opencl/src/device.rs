//! Enumerates devices and their capabilities.
//!
//! The library is the system's loader (`libOpenCL.so.1`, `OpenCL.dll`), or the one that
//! `OPENCL_DYLIB_PATH` names. All devices of all platforms are listed, real ones before processors
//! acting as one, larger before smaller. A device is excluded, with the reason recorded, if it
//! lacks a compiler, is switched off, or supports only OpenCL's embedded profile.

use crate::driver_threads::{devices_of, stack_bytes};
use cl3::device::{self, get_device_data};
use cl3::error_codes::{CL_PLATFORM_NOT_FOUND_KHR, error_text};
use cl3::platform::{get_platform_data, get_platform_ids};
use cl3::types::{cl_device_id, cl_device_info, cl_int};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use vyre_driver::registry::interned;
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DeviceTimingQuality, FloatDepartures};

/// Id under which the backend is registered.
pub const BACKEND_ID: &str = "opencl";

/// A usable device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsableDevice {
    pub(crate) id: cl_device_id,
    pub(crate) profile: DeviceProfile,
    /// Whether the device works on the host's memory.
    pub(crate) shares_memory: bool,
    /// Whether correctly rounded `/` and `sqrt` of `f32` are available.
    pub(crate) exact_division: bool,
    /// Whether the driver crashes on concurrent launches of one program that need different code
    /// ([`gate`](crate::gate)).
    pub(crate) needs_gates: bool,
    /// Limit on the private memory of a workgroup in bytes, if the driver does not check that it
    /// fits.
    pub(crate) private_limit: Option<u64>,
    strength: u64,
}

// SAFETY: OpenCL accepts a device id on any thread.
unsafe impl Send for UsableDevice {}
// SAFETY: as above.
unsafe impl Sync for UsableDevice {}

/// Every usable device, best first; the error reports what is missing if there is none.
pub(crate) fn devices() -> Result<Vec<UsableDevice>, BackendError> {
    // PoCL (3.1) sets up its devices on the first query and answers a concurrent thread from a
    // half-finished setup.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(target_os = "linux")]
    crate::process_environment::prepare_for_pocl();
    check_library()?;
    let platforms = match get_platform_ids() {
        Ok(platforms) => platforms,
        Err(CL_PLATFORM_NOT_FOUND_KHR) => Vec::new(),
        Err(code) => return Err(absent(format!("listing the platforms failed with {}", error_text(code)))),
    };
    if platforms.is_empty() {
        return Err(absent("no platform: the OpenCL library is installed, but no driver for it".into()));
    }
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for platform in platforms {
        let name = text(get_platform_data(platform, cl3::platform::CL_PLATFORM_NAME));
        let ids = devices_of(platform).unwrap_or_else(|code| {
            left_out.push(format!("platform `{name}`: {}", error_text(code)));
            Vec::new()
        });
        if ids.is_empty() {
            left_out.push(format!("platform `{name}` has no device"));
        }
        for id in ids {
            match examine(id, &name) {
                Ok(device) => found.push(device),
                Err(reason) => left_out.push(reason),
            }
        }
    }
    if found.is_empty() {
        return Err(absent(format!("no usable device: {}", left_out.join("; "))));
    }
    found.sort_by_key(|device| (device.profile.device_class, u64::MAX - device.strength));
    Ok(found)
}

/// Loads the library on the first call; this is the only place where loading can fail.
fn check_library() -> Result<(), BackendError> {
    // The binding falls back to the system's library if the named one is missing, but a library
    // that was named explicitly must be used.
    let named = std::env::var("OPENCL_DYLIB_PATH").unwrap_or_default();
    if !named.is_empty() && !named.split(';').any(|path| Path::new(path).exists()) {
        return Err(absent(format!("the library that OPENCL_DYLIB_PATH names does not exist: {named}")));
    }
    match cl3::load_library() {
        Ok(_) => Ok(()),
        Err(error) => Err(absent(format!("the OpenCL library does not load: {error}"))),
    }
}

fn absent(message: String) -> BackendError {
    BackendError::new(format!(
        "backend `{BACKEND_ID}` cannot be used: {message}; install an OpenCL driver (on Debian: pocl-opencl-icd)"
    ))
}

/// Queries one device.
struct Query(cl_device_id);

impl Query {
    fn bytes(&self, what: cl_device_info) -> Vec<u8> {
        get_device_data(self.0, what).unwrap_or_default()
    }

    fn text(&self, what: cl_device_info) -> String {
        text(get_device_data(self.0, what))
    }

    /// One number of 4 or 8 bytes, depending on the answer's length; 0 for any other length.
    fn number(&self, what: cl_device_info) -> u64 {
        match *self.bytes(what).as_slice() {
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
            [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        }
    }

    fn sizes(&self, what: cl_device_info) -> [u64; 3] {
        let bytes = self.bytes(what);
        let mut words = bytes.chunks_exact(size_of::<usize>());
        std::array::from_fn(|_| {
            let word = words.next().and_then(|word| word.try_into().ok());
            word.map_or(0, |word| usize::from_ne_bytes(word) as u64)
        })
    }
}

/// Text of an answer from `get_device_data` and similar functions, without the trailing zero.
fn text(answer: Result<Vec<u8>, cl_int>) -> String {
    let bytes = answer.unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_string()
}

fn examine(id: cl_device_id, platform: &str) -> Result<UsableDevice, String> {
    let query = Query(id);
    let name = query.text(device::CL_DEVICE_NAME);
    let refuse = |reason: &str| Err(format!("`{name}` of platform `{platform}` {reason}"));
    if query.number(device::CL_DEVICE_AVAILABLE) == 0 {
        return refuse("is not available");
    }
    if query.number(device::CL_DEVICE_COMPILER_AVAILABLE) == 0 {
        return refuse("has no compiler");
    }
    if query.text(device::CL_DEVICE_PROFILE) != "FULL_PROFILE" {
        return refuse("has only the embedded profile");
    }
    if query.number(device::CL_DEVICE_ENDIAN_LITTLE) == 0 {
        return refuse("is not little-endian");
    }
    let kinds = query.number(device::CL_DEVICE_TYPE);
    let shares_memory = query.number(device::CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
    let class = if kinds & device::CL_DEVICE_TYPE_CPU != 0 {
        DeviceClass::Software
    } else if shares_memory {
        DeviceClass::Integrated
    } else {
        DeviceClass::Discrete
    };
    if platform == POCL && class == DeviceClass::Software && !has_linker(std::env::var_os("PATH")) {
        return refuse(
            "links kernels with `ld`, which is not in PATH (on Debian: binutils), and would end this process",
        );
    }
    let units = query.number(device::CL_DEVICE_MAX_COMPUTE_UNITS);
    let strength = units.saturating_mul(query.number(device::CL_DEVICE_MAX_CLOCK_FREQUENCY));
    let profile = profile(&query, platform, class);
    let exact_division = !profile.float_departures.approximate_division;
    let needs_gates = loses_count(platform, &query.text(device::CL_DRIVER_VERSION));
    // The other half of the stack is for what the driver's compiler adds.
    let private_limit = (platform == POCL && class == DeviceClass::Software).then(|| stack_bytes() / 2);
    Ok(UsableDevice { id, profile, shares_memory, exact_division, needs_gates, private_limit, strength })
}

/// The platform that runs kernels on the stacks of its own threads.
const POCL: &str = "Portable Computing Language";

/// Whether the linker is in one of these folders. PoCL aborts without it.
fn has_linker(path: Option<OsString>) -> bool {
    let name = format!("ld{}", std::env::consts::EXE_SUFFIX);
    path.is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(&name).is_file()))
}

/// Whether the driver miscounts references to its loaded code: PoCL before 6.0 does.
fn loses_count(platform: &str, version: &str) -> bool {
    let major = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    platform == POCL && major.is_none_or(|major: u32| major < 6)
}

fn profile(query: &Query, platform: &str, device_class: DeviceClass) -> DeviceProfile {
    let driver = format!(
        "{platform} {} {}, vyre-opencl {}",
        query.text(device::CL_DRIVER_VERSION),
        query.text(device::CL_DEVICE_VERSION),
        env!("VYRE_BUILD_ID")
    );
    let extensions = query.text(device::CL_DEVICE_EXTENSIONS);
    let has = |extension: &str| extensions.split_whitespace().any(|other| other == extension);
    let single = query.number(device::CL_DEVICE_SINGLE_FP_CONFIG);
    let lacks = |flag: u64| single & flag == 0;
    let float_departures = FloatDepartures {
        flushes_subnormals: lacks(device::CL_FP_DENORM),
        ignores_non_finite: lacks(device::CL_FP_INF_NAN),
        approximate_division: lacks(device::CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT),
        ..FloatDepartures::default()
    };
    let clamp = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let largest_group = clamp(query.number(device::CL_DEVICE_MAX_WORK_GROUP_SIZE));
    let shared = clamp(query.number(device::CL_DEVICE_LOCAL_MEM_SIZE));
    DeviceProfile {
        device_name: interned(query.text(device::CL_DEVICE_NAME)),
        driver_version: interned(driver),
        device_class,
        has_shared_memory: shared > 0,
        max_shared_memory_bytes: shared,
        // Narrow elements are ordinary stores in OpenCL C, and emitted code converts half floats.
        supports_f16: true,
        supports_bf16: true,
        supports_narrow_storage: true,
        supports_int64: true,
        supports_f64: query.number(device::CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
        supports_atomic64: has("cl_khr_int64_base_atomics") && has("cl_khr_int64_extended_atomics"),
        max_workgroup_size: query.sizes(device::CL_DEVICE_MAX_WORK_ITEM_SIZES).map(clamp),
        max_invocations_per_workgroup: largest_group,
        max_storage_buffer_binding_size: query.number(device::CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        compute_units: clamp(query.number(device::CL_DEVICE_MAX_COMPUTE_UNITS)),
        timing_quality: DeviceTimingQuality::DeviceTimestamps,
        supports_device_timestamps: true,
        strict_float: float_departures == FloatDepartures::default(),
        float_departures,
        ..DeviceProfile::conservative(BACKEND_ID)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_lose_count_are_known_by_version() {
        let pocl = |version| loses_count("Portable Computing Language", version);
        assert!(["1.8", "3.1", "3.1-3+deb12u1", "5.0", "unknown", ""].into_iter().all(pocl));
        assert!(!["6.0", "7.1-pre", "10.0"].into_iter().any(pocl));
        assert!(!loses_count("Some Other Platform", "3.1"));
    }
}
