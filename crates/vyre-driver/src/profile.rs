//! Device profiles.
//!
//! Zero and the empty string mean *unknown*, and unknown limits are not enforced. The same applies
//! to the abilities (`supports_…`, `has_…`) of a profile whose class is [`DeviceClass::Unknown`]:
//! such a backend describes no device, so a `false` is no refusal, and a program is admitted based
//! on the backend's supported ops alone. A backend that specifies its device's class is held to its
//! flags.

use serde::Serialize;

/// The kind of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum DeviceClass {
    /// The backend describes no device.
    #[default]
    Unknown,
    /// A GPU with dedicated memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// The CPU, accessed directly.
    Cpu,
    /// The CPU behind a GPU interface: selected last.
    Software,
}

/// The quality of a backend's kernel timing; later is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum DeviceTimingQuality {
    /// Wall time around the whole call.
    #[default]
    HostOnly,
    /// Wall time between enqueueing and completion.
    HostEnqueueWait,
    /// Timestamps written by the device.
    DeviceTimestamps,
    /// Hardware counters of the device.
    HardwareCounters,
}

impl DeviceTimingQuality {
    /// The quality as a number from 0 to 3.
    pub fn score(self) -> u32 {
        self as u32
    }
}

/// Departures of a device's float arithmetic from IEEE-754. All false on a strict device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct FloatDepartures {
    /// Subnormal operands or results can be flushed to zero.
    pub flushes_subnormals: bool,
    /// A product and a sum can be rounded once instead of twice.
    pub contracts: bool,
    /// The sign of a zero can be lost.
    pub ignores_zero_sign: bool,
    /// Infinities and NaNs can give any result.
    pub ignores_non_finite: bool,
    /// Division and square root can be off by some units in the last place.
    pub approximate_division: bool,
}

impl FloatDepartures {
    /// No departures.
    const NONE: FloatDepartures = FloatDepartures {
        flushes_subnormals: false,
        contracts: false,
        ignores_zero_sign: false,
        ignores_non_finite: false,
        approximate_division: false,
    };
}

macro_rules! device_profile {
    ($($(#[$doc:meta])* $field:ident: $ty:ty = $unknown:expr,)*) => {
        /// The profile of a device. Build one from [`DeviceProfile::conservative`] and the known
        /// facts:
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
        pub struct DeviceProfile { $($(#[$doc])* pub $field: $ty,)* }

        impl DeviceProfile {
            /// The profile of a backend with an unknown device.
            pub const fn conservative(backend: &'static str) -> DeviceProfile {
                DeviceProfile { backend, ..DeviceProfile { $($field: $unknown,)* } }
            }
        }
    };
}

device_profile! {
    /// The backend's id.
    backend: &'static str = "",
    /// The device's name for itself.
    device_name: &'static str = "",
    /// The driver's name and version, and the backend's build; code compiled under another one is
    /// not reused.
    driver_version: &'static str = "",
    /// The kind of device.
    device_class: DeviceClass = DeviceClass::Unknown,
    /// Subgroup votes, reductions and scans.
    supports_subgroup_ops: bool = false,
    /// Subgroup shuffles and broadcasts.
    has_subgroup_shuffle: bool = false,
    /// Lanes per subgroup.
    subgroup_size: u32 = 0,
    /// Workgroup memory.
    has_shared_memory: bool = false,
    /// Bytes of workgroup memory per workgroup.
    max_shared_memory_bytes: u32 = 0,
    /// Elements of `f16`.
    supports_f16: bool = false,
    /// Elements of `bf16`.
    supports_bf16: bool = false,
    /// `f64`, as values and elements.
    supports_f64: bool = false,
    /// 64-bit integers, as values and elements.
    supports_int64: bool = false,
    /// Atomics on 64-bit integers.
    supports_atomic64: bool = false,
    /// Elements of one or two bytes, whatever their type.
    supports_narrow_storage: bool = false,
    /// Matrix units.
    supports_tensor_cores: bool = false,
    /// Dispatch with a grid that is read from device memory.
    supports_indirect_dispatch: bool = false,
    /// Maximum number of invocations per workgroup on each axis.
    max_workgroup_size: [u32; 3] = [0; 3],
    /// Maximum number of invocations per workgroup.
    max_invocations_per_workgroup: u32 = 0,
    /// Maximum number of workgroups on each axis of a grid.
    max_workgroups_per_dimension: u32 = 0,
    /// Maximum size of a storage buffer in bytes.
    max_storage_buffer_binding_size: u64 = 0,
    /// Compute units, multiprocessors or cores.
    compute_units: u32 = 0,
    /// Memory bandwidth in gigabytes per second.
    mem_bw_gbps: u32 = 0,
    /// The quality of kernel timing.
    timing_quality: DeviceTimingQuality = DeviceTimingQuality::HostOnly,
    /// Whether the device writes timestamps.
    supports_device_timestamps: bool = false,
    /// Whether the device has hardware counters.
    supports_hardware_counters: bool = false,
    /// Whether float results conform to IEEE-754 exactly, so that they are compared bit for bit.
    strict_float: bool = false,
    /// The departures of a device that is not strict.
    float_departures: FloatDepartures = FloatDepartures::NONE,
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
