//! What is known of a device.
//!
//! Zero and the empty string mean *unknown*, and what is unknown is not enforced. The same goes for the abilities
//! (`supports_…`, `has_…`) of a profile whose class is [`DeviceClass::Unknown`]: such a backend describes no device, so
//! a `false` there is no refusal, and a program is admitted on the strength of the backend's supported ops alone. A
//! backend that names its device's class is held to its flags.

use serde::Serialize;

/// What kind of device it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum DeviceClass {
    /// The backend describes no device.
    #[default]
    Unknown,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// The processor, reached directly.
    Cpu,
    /// The processor behind a GPU interface: selected last.
    Software,
}

/// How well a backend can time a kernel; later is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum DeviceTimingQuality {
    /// Wall time around the whole call.
    #[default]
    HostOnly,
    /// Wall time between enqueueing and completion.
    HostEnqueueWait,
    /// The device writes timestamps.
    DeviceTimestamps,
    /// The device counts what it does.
    HardwareCounters,
}

impl DeviceTimingQuality {
    /// The quality as a number from 0 to 3.
    pub fn score(self) -> u32 {
        self as u32
    }
}

/// Where a device's float arithmetic leaves IEEE-754. All false on a strict device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct FloatDepartures {
    /// Subnormal operands or results may become zero.
    pub flushes_subnormals: bool,
    /// A product and a sum may be rounded once instead of twice.
    pub contracts: bool,
    /// The sign of a zero may be lost.
    pub ignores_zero_sign: bool,
    /// Infinities and NaNs may give anything.
    pub ignores_non_finite: bool,
    /// Division and square root may be off by some units in the last place.
    pub approximate_division: bool,
}

/// What is known of a device. Build one from [`DeviceProfile::conservative`] and what is known beyond it:
///
/// ```
/// use vyre_driver::{DeviceClass, DeviceProfile};
/// let profile = DeviceProfile {
///     device_class: DeviceClass::Cpu,
///     supports_f64: true,
///     max_workgroup_size: [1024, 1024, 64],
///     ..DeviceProfile::conservative("toy")
/// };
/// assert!(!profile.supports_f16);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct DeviceProfile {
    /// The backend's id.
    pub backend: &'static str,
    /// The device's own name.
    pub device_name: &'static str,
    /// The driver's name and version, and the backend's own build; code compiled under another one is not reused.
    pub driver_version: &'static str,
    /// What kind of device it is.
    pub device_class: DeviceClass,
    /// Subgroup votes, reductions and scans.
    pub supports_subgroup_ops: bool,
    /// Subgroup shuffles and broadcasts.
    pub has_subgroup_shuffle: bool,
    /// Lanes per subgroup.
    pub subgroup_size: u32,
    /// Workgroup memory.
    pub has_shared_memory: bool,
    /// Bytes of workgroup memory per workgroup.
    pub max_shared_memory_bytes: u32,
    /// Elements of `f16`.
    pub supports_f16: bool,
    /// Elements of `bf16`.
    pub supports_bf16: bool,
    /// `f64`, as values and elements.
    pub supports_f64: bool,
    /// 64-bit integers, as values and elements.
    pub supports_int64: bool,
    /// Atomics on 64-bit integers.
    pub supports_atomic64: bool,
    /// Elements of one or two bytes, whatever their type.
    pub supports_narrow_storage: bool,
    /// Matrix units.
    pub supports_tensor_cores: bool,
    /// A grid that is read from device memory.
    pub supports_indirect_dispatch: bool,
    /// Invocations per workgroup on each axis.
    pub max_workgroup_size: [u32; 3],
    /// Invocations per workgroup in all.
    pub max_invocations_per_workgroup: u32,
    /// Workgroups on each axis of a grid.
    pub max_workgroups_per_dimension: u32,
    /// Bytes of one storage buffer.
    pub max_storage_buffer_binding_size: u64,
    /// Compute units, multiprocessors or cores.
    pub compute_units: u32,
    /// Memory bandwidth in gigabytes per second.
    pub mem_bw_gbps: u32,
    /// How well kernels can be timed.
    pub timing_quality: DeviceTimingQuality,
    /// Whether the device writes timestamps.
    pub supports_device_timestamps: bool,
    /// Whether the device counts what it does.
    pub supports_hardware_counters: bool,
    /// Whether float results are IEEE-754 to the bit, so that they are compared by bits.
    pub strict_float: bool,
    /// What a device that is not strict departs from.
    pub float_departures: FloatDepartures,
}

impl DeviceProfile {
    /// The profile of a backend about whose device nothing is known.
    pub const fn conservative(backend: &'static str) -> DeviceProfile {
        DeviceProfile {
            backend,
            device_name: "",
            driver_version: "",
            device_class: DeviceClass::Unknown,
            supports_subgroup_ops: false,
            has_subgroup_shuffle: false,
            subgroup_size: 0,
            has_shared_memory: false,
            max_shared_memory_bytes: 0,
            supports_f16: false,
            supports_bf16: false,
            supports_f64: false,
            supports_int64: false,
            supports_atomic64: false,
            supports_narrow_storage: false,
            supports_tensor_cores: false,
            supports_indirect_dispatch: false,
            max_workgroup_size: [0; 3],
            max_invocations_per_workgroup: 0,
            max_workgroups_per_dimension: 0,
            max_storage_buffer_binding_size: 0,
            compute_units: 0,
            mem_bw_gbps: 0,
            timing_quality: DeviceTimingQuality::HostOnly,
            supports_device_timestamps: false,
            supports_hardware_counters: false,
            strict_float: false,
            float_departures: FloatDepartures {
                flushes_subnormals: false,
                contracts: false,
                ignores_zero_sign: false,
                ignores_non_finite: false,
                approximate_division: false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conservative_is_the_default_with_a_name() {
        assert_eq!(DeviceProfile::conservative("x"), DeviceProfile { backend: "x", ..Default::default() });
    }

    #[test]
    fn timing_qualities_are_ordered_and_scored() {
        use DeviceTimingQuality::*;
        let all = [HostOnly, HostEnqueueWait, DeviceTimestamps, HardwareCounters];
        assert!(all.is_sorted());
        assert_eq!(all.map(DeviceTimingQuality::score), [0, 1, 2, 3]);
    }
}
