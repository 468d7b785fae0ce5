//! Grids cut into parts that are launched one after another.
//!
//! Only a shape-free kernel, which reads no workgroup ids, runs the same in slices. A grid that
//! cannot be cut must be small enough for a driver to finish in reasonable time, whatever the
//! kernel does ([`check_grid`]).

use crate::gate::{EntryKind, LaunchKind};
use vyre_driver::BackendError;
use vyre_foundation::launch::Launch;

/// Approximate number of slices for a dispatch that has a deadline and cannot be interrupted: it
/// ends at most a 64th of its time late, and 64 launches of 73 µs (docs/opencl.md) add 5 ms.
const SLICES: u128 = 64;
/// Workgroups per slice of a dispatch that can be interrupted: PoCL runs that many, each ending at
/// once, in about 10 ms.
const STOPPED_GROUPS: u128 = 1 << 17;
/// Maximum workgroups of a grid that cannot be cut, with a deadline and without. If each ends at
/// once, PoCL runs the first in 0.3 s and the second in a day.
const MOST_TIMED_GROUPS: u128 = 1 << 22;
const MOST_GROUPS: u128 = 1 << 40;

/// A part of a grid: an offset and a size in invocations, a whole number of workgroups.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) entry: EntryKind,
    pub(crate) offset: [usize; 3],
    pub(crate) size: [usize; 3],
}

impl Part {
    pub(crate) fn kind(&self) -> LaunchKind {
        LaunchKind { entry: self.entry, has_offset: self.offset != [0; 3], size: self.size }
    }
}

fn groups(launch: &Launch) -> u128 {
    launch.grid.iter().fold(1, |all, &axis| all * u128::from(axis))
}

/// Whether a dispatch runs in slices: it cannot be stopped, or has too many workgroups to drain
/// quickly once stopped.
pub(crate) fn is_sliced(launch: &Launch, stoppable: bool) -> bool {
    !stoppable || groups(launch) > STOPPED_GROUPS
}

/// Maximum workgroups per slice.
pub(crate) fn groups_per_slice(launch: &Launch, stoppable: bool) -> u128 {
    if stoppable { STOPPED_GROUPS } else { groups(launch).div_ceil(SLICES).max(1) }
}

/// Refuses a grid that would occupy the driver indefinitely, or that it cannot count.
pub(crate) fn check_grid(
    backend: &str,
    launch: &Launch,
    sliced: bool,
    timed: bool,
) -> Result<(), BackendError> {
    let most = if timed { MOST_TIMED_GROUPS } else { MOST_GROUPS };
    if sliced || launch.grid.contains(&0) || groups(launch) <= most {
        return Ok(());
    }
    let under = if timed { " under a deadline" } else { "" };
    let name = format!("a grid of {:?} workgroups{under} (at most {most} in all on its device)", launch.grid);
    Err(BackendError::UnsupportedFeature { name, backend: backend.into() })
}

/// Slices of a part, first axis first.
#[derive(Clone)]
pub(crate) struct Slices {
    part: Part,
    /// Invocations per slice along each axis.
    step: [usize; 3],
    /// Start of the next slice relative to the part's offset; `None` after the last.
    next: Option<[usize; 3]>,
}

impl Slices {
    /// Cuts a part into slices of at most `most` workgroups.
    pub(crate) fn new(part: Part, workgroup: [u32; 3], most: u128) -> Slices {
        let local = workgroup.map(|size| (size as usize).max(1));
        let mut counts: [u128; 3] = std::array::from_fn(|axis| (part.size[axis] / local[axis]) as u128);
        for axis in [2, 1, 0] {
            let all: u128 = counts.iter().product();
            if all > most {
                counts[axis] = (counts[axis] / all.div_ceil(most)).max(1);
            }
        }
        let step = std::array::from_fn(|axis| counts[axis] as usize * local[axis]);
        Slices { part, step, next: (!part.size.contains(&0)).then_some([0; 3]) }
    }

    /// A superset of the slices' kinds.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = LaunchKind> + Clone + use<> {
        let Slices { part, step, .. } = self.clone();
        (0..16).filter_map(move |kind: usize| {
            let rest = |axis: usize| part.size[axis] % step[axis].max(1);
            let size =
                std::array::from_fn(|axis| if kind >> axis & 1 == 0 { step[axis] } else { rest(axis) });
            let whole = size == part.size;
            let has_offset = part.offset != [0; 3] || kind >= 8;
            let elsewhere = kind >= 8 && part.offset == [0; 3];
            let possible = !(size.contains(&0) || whole && elsewhere);
            possible.then_some(LaunchKind { entry: part.entry, has_offset, size })
        })
    }
}

impl Iterator for Slices {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let at = self.next?;
        let Part { entry, offset, size } = self.part;
        let slice = Part {
            entry,
            offset: std::array::from_fn(|axis| offset[axis] + at[axis]),
            size: std::array::from_fn(|axis| self.step[axis].min(size[axis] - at[axis])),
        };
        let mut next = at;
        self.next = (0..3).find_map(|axis| {
            next[axis] += self.step[axis];
            let inside = next[axis] < size[axis];
            if !inside {
                next[axis] = 0;
            }
            inside.then_some(next)
        });
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(size: [usize; 3], workgroup: [u32; 3], most: u128) -> Slices {
        Slices::new(Part { entry: EntryKind::Any, offset: [0; 3], size }, workgroup, most)
    }

    #[test]
    fn slices_cover_a_grid_once() {
        for (size, workgroup, most) in [
            ([64, 1, 1], [64, 1, 1], u128::MAX),
            ([640, 3, 2], [64, 1, 1], 7),
            ([12, 10, 9], [4, 2, 3], 1),
            ([12, 10, 9], [4, 2, 3], 4),
        ] {
            let all = slices(size, workgroup, most);
            let kinds: Vec<LaunchKind> = all.kinds().collect();
            let mut covered = 0;
            for part in all {
                let groups: u128 =
                    (0..3).map(|axis| (part.size[axis] / workgroup[axis] as usize) as u128).product();
                assert!(groups <= most && kinds.contains(&part.kind()), "{size:?} {most}");
                covered += part.size.iter().product::<usize>();
            }
            assert_eq!(covered, size.iter().product::<usize>());
        }
        assert_eq!(slices([0, 1, 1], [64, 1, 1], 5).count(), 0);
    }

    #[test]
    fn the_largest_grids_are_cut_without_counting_them() {
        let most = u32::MAX as usize;
        let mut all = slices([most * 64, most, most], [64, 1, 1], STOPPED_GROUPS);
        let first = all.next().map(|part| part.size).unwrap_or_default();
        assert!(first[0] / 64 <= 1 << 17 && first[0] / 64 > 1 << 16 && first[1..] == [1, 1], "{first:?}");
        assert!(all.kinds().count() <= 16);
    }
}
