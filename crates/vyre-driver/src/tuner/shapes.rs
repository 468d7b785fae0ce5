//! Candidate shapes for a shape-free kernel on a device, and which of them the device supports.

use crate::admission::{check_grid, check_workgroup};
use crate::{DeviceClass, DeviceProfile, DispatchConfig};
use serde::{Deserialize, Serialize};
use vyre_foundation::kernel::KernelBody;

/// Workgroup sizes of two-dimensional dispatches: 64 to 512 invocations, in multiples of 8 rows and
/// columns, so that neighbours share cache lines along both axes. Chosen, not measured; a contest
/// decides among them.
const TILES: [[u32; 2]; 5] = [[8, 8], [16, 8], [16, 16], [32, 8], [32, 16]];
/// Candidate numbers of elements per invocation. Chosen, not measured; a contest decides among
/// them.
const ELEMENTS: [u32; 4] = [1, 2, 4, 8];

/// How a kernel is mapped onto a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Invocations per workgroup.
    pub workgroup_size: [u32; 3],
    /// Elements of the domain's first axis that one invocation handles.
    pub elements_per_invocation: u32,
}

impl Shape {
    /// The shape of a kernel under a configuration.
    pub fn of(kernel: &KernelBody, config: &DispatchConfig) -> Shape {
        Shape {
            workgroup_size: config.workgroup_override.unwrap_or(kernel.workgroup_size),
            elements_per_invocation: config.elements_per_invocation.unwrap_or(1),
        }
    }

    /// The configuration with this shape.
    pub fn configure(self, config: &DispatchConfig) -> DispatchConfig {
        DispatchConfig {
            workgroup_override: Some(self.workgroup_size),
            elements_per_invocation: (self.elements_per_invocation > 1)
                .then_some(self.elements_per_invocation),
            ..config.clone()
        }
    }

    /// Why a device cannot run this shape over this domain; `None` if it can.
    pub fn refusal(self, profile: &DeviceProfile, domain: [u32; 3]) -> Option<String> {
        if self.workgroup_size.contains(&0) || self.elements_per_invocation == 0 {
            return Some(format!("{self} has a zero"));
        }
        let checked = check_workgroup(profile, self.workgroup_size)
            .and_then(|()| check_grid(profile, self.groups(domain)));
        checked.err().map(|error| format!("{self}: {error}"))
    }

    /// Number of workgroups that cover the domain on each axis.
    fn groups(self, domain: [u32; 3]) -> [u32; 3] {
        let per_group = |k: usize| {
            let elements = if k == 0 { self.elements_per_invocation } else { 1 };
            (u64::from(self.workgroup_size[k]) * u64::from(elements)).max(1)
        };
        std::array::from_fn(|k| u64::from(domain[k]).div_ceil(per_group(k)) as u32)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.workgroup_size;
        write!(f, "{x}x{y}x{z}")?;
        if self.elements_per_invocation > 1 {
            write!(f, " by {}", self.elements_per_invocation)?;
        }
        Ok(())
    }
}

/// Maximum number of invocations of a workgroup along one axis, as far as the limits are known.
pub(super) fn longest_line(profile: &DeviceProfile) -> u32 {
    let limits = [profile.max_workgroup_size[0], profile.max_invocations_per_workgroup];
    limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(u32::MAX)
}

/// The candidate shapes for a shape-free kernel, the default first. `lines` are the workgroup sizes
/// along one axis ([`Tuner::candidates_for`](super::Tuner::candidates_for)). All but the default
/// are within the device's limits.
pub fn shapes_for(lines: &[u32], profile: &DeviceProfile, domain: [u32; 3], default: Shape) -> Vec<Shape> {
    let mut shapes = vec![default];
    let shortest = lines.first().copied().unwrap_or(1);
    // On a CPU a subgroup is a vector. Two vectors keep a core busier if the registers suffice; one
    // invocation at a time can be faster if the lanes access distant memory.
    let vectors = match profile.device_class {
        DeviceClass::Cpu if profile.subgroup_size > 0 => {
            vec![1, profile.subgroup_size, 2 * profile.subgroup_size]
        }
        _ => Vec::new(),
    };
    let lines = vectors.iter().chain(lines).map(|&x| [x, 1, 1]);
    let tiles = TILES.into_iter().filter(|_| domain[1] > 1).map(|[x, y]| [x, y, 1]);
    // A CPU backend distributes elements over lanes and threads itself.
    let elements = if profile.device_class == DeviceClass::Cpu { &ELEMENTS[..1] } else { &ELEMENTS[..] };
    for workgroup_size in lines.chain(tiles) {
        for &elements_per_invocation in elements {
            let shape = Shape { workgroup_size, elements_per_invocation };
            let whole: u64 = u64::from(workgroup_size[0]) * u64::from(elements_per_invocation);
            // A group larger than the domain only adds idle invocations.
            let idle = whole > u64::from(domain[0]).next_power_of_two() && whole > u64::from(shortest);
            if shape != default && !idle && shape.refusal(profile, domain).is_none() {
                shapes.push(shape);
            }
        }
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuner::{Mode, Tuner};

    const DEFAULT: Shape = Shape { workgroup_size: [64, 1, 1], elements_per_invocation: 1 };

    #[test]
    fn every_limit_prunes() {
        let count = |profile: DeviceProfile, domain: u32| {
            let lines = Tuner::in_memory(Mode::On).candidates_for(longest_line(&profile));
            let shapes = shapes_for(&lines, &profile, [domain, 1, 1], DEFAULT);
            assert_eq!(shapes[0], DEFAULT);
            let unique: std::collections::BTreeSet<&Shape> = shapes.iter().collect();
            assert_eq!(unique.len(), shapes.len());
            for shape in &shapes[1..] {
                assert_eq!(shape.refusal(&profile, [domain, 1, 1]), None);
            }
            shapes.len()
        };
        let open = DeviceProfile::conservative("toy");
        assert_eq!(count(open, 1 << 24), 24);
        let processor = DeviceProfile { device_class: DeviceClass::Cpu, subgroup_size: 0, ..open };
        assert_eq!(count(processor, 1 << 24), 6);
        assert_eq!(count(DeviceProfile { subgroup_size: 8, ..processor }, 1 << 24), 9);
        assert_eq!(count(DeviceProfile { max_workgroup_size: [256, 1, 1], ..open }, 1 << 24), 16);
        assert_eq!(count(DeviceProfile { max_invocations_per_workgroup: 128, ..open }, 1 << 24), 12);
        // A device below all the usual sizes is tried at its limit.
        assert_eq!(count(DeviceProfile { max_invocations_per_workgroup: 16, ..open }, 1 << 24), 1 + 4);
        // 2^24 elements in at most 65,535 groups: 512 elements or more per group, 256 being one
        // group too many.
        let grid = DeviceProfile { max_workgroups_per_dimension: 65_535, ..open };
        assert_eq!(count(grid, 1 << 24), 1 + 14);
        assert_eq!(count(open, 10), 2);
    }
}
