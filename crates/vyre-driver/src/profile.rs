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

impl FloatDepartures {
    /// None at all.
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
        pub struct DeviceProfile { $($(#[$doc])* pub $field: $ty,)* }

        impl DeviceProfile {
            /// The profile of a backend about whose device nothing is known.
            pub const fn conservative(backend: &'static str) -> DeviceProfile {
                DeviceProfile { backend, ..DeviceProfile { $($field: $unknown,)* } }
            }
        }
    };
}

device_profile! {
    /// The backend's id.
    backend: &'static str = "",
    /// The device's own name.
    device_name: &'static str = "",
    /// The driver's name and version, and the backend's own build; code compiled under another one is not reused.
    driver_version: &'static str = "",
    /// What kind of device it is.
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
    /// A grid that is read from device memory.
    supports_indirect_dispatch: bool = false,
    /// Invocations per workgroup on each axis.
    max_workgroup_size: [u32; 3] = [0; 3],
    /// Invocations per workgroup in all.
    max_invocations_per_workgroup: u32 = 0,
    /// Workgroups on each axis of a grid.
    max_workgroups_per_dimension: u32 = 0,
    /// Bytes of one storage buffer.
    max_storage_buffer_binding_size: u64 = 0,
    /// Compute units, multiprocessors or cores.
    compute_units: u32 = 0,
    /// Memory bandwidth in gigabytes per second.
    mem_bw_gbps: u32 = 0,
    /// How well kernels can be timed.
    timing_quality: DeviceTimingQuality = DeviceTimingQuality::HostOnly,
    /// Whether the device writes timestamps.
    supports_device_timestamps: bool = false,
    /// Whether the device counts what it does.
    supports_hardware_counters: bool = false,
    /// Whether float results are IEEE-754 to the bit, so that they are compared by bits.
    strict_float: bool = false,
    /// What a device that is not strict departs from.
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
