//! Estimates of a backend's time, and of its worst case.

use super::call::BackendIndex;
use super::cell::{Cell, Cells};
use super::statistics::SAFETY;
use std::fmt;

/// Relative error of a single time: smaller differences say nothing about the growing cost. 0: more
/// than 3% overhead on the simulated machines of `filetests/routing` (`crossover`).
const NOISE: f64 = 0.2;
/// The least share of a backend's time that is assumed to grow with the size. With 0, a backend
/// whose known times are all fixed cost would be expected to take no longer at any size; with this,
/// a size 1,025 times as large is expected to take twice as long.
const LEAST_GROWING_PART: f64 = 1.0 / 1024.0;

/// The expected time of a backend, and its basis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) ns: f64,
    /// The worst case.
    pub(super) at_worst_ns: f64,
    pub(super) basis: Basis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// Calls in this cell.
    Calls,
    /// A verified row, a verification, or calls before a change.
    Earlier,
    /// The time on host memory plus the transfer of the buffers.
    Moved,
    /// Other sizes, of which this is the nearest.
    Scaled { from_bucket: u8 },
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Basis::Calls => f.write_str("calls of this size"),
            Basis::Earlier => f.write_str("a verified row, a verification, or calls before a change"),
            Basis::Moved => f.write_str("calls on host memory, and moving the buffers"),
            Basis::Scaled { from_bucket } => {
                write!(f, "calls or verifications at other sizes, the nearest about 2^{from_bucket} elements")
            }
        }
    }
}

impl Estimate {
    /// Estimates from the cells with buffers in one place: from this size if it has a time,
    /// otherwise from other sizes.
    pub(super) fn new(cells: &Cells, bucket: u8, backend: BackendIndex) -> Option<Estimate> {
        let here = cells.get(bucket).and_then(|cell| cell.arm(backend)?.statistics.pace());
        here.map_or_else(
            || Estimate::from_other_sizes(cells, bucket, backend),
            |pace| {
                let basis = if pace.recent > 0 { Basis::Calls } else { Basis::Earlier };
                Some(Estimate::measured(pace.time_ns(), basis))
            },
        )
    }

    /// The estimate for the same call with its buffers transferred there and back in `moving_ns`.
    pub(super) fn moved(self, moving_ns: f64) -> Estimate {
        let Estimate { ns, at_worst_ns, .. } = self;
        Estimate { ns: ns + moving_ns, at_worst_ns: at_worst_ns + moving_ns, basis: Basis::Moved }
    }

    fn measured(ns: f64, basis: Basis) -> Estimate {
        Estimate { ns, at_worst_ns: ns, basis }
    }

    /// Interpolates between the nearest smaller and the nearest larger size, or extrapolates from
    /// the smaller sizes by a fixed and a growing cost.
    fn from_other_sizes(cells: &Cells, bucket: u8, backend: BackendIndex) -> Option<Estimate> {
        let known = |(own, cell): (u8, &Cell)| Some((own, cell.arm(backend)?.statistics.pace()?.time_ns()));
        let larger = cells.all().filter(|&(own, _)| own > bucket).find_map(known);
        let Some((near, near_ns)) = cells.all().rev().filter(|&(own, _)| own < bucket).find_map(known) else {
            // Fewer elements take no longer than more.
            return larger.map(|(from_bucket, ns)| Estimate::measured(ns, Basis::Scaled { from_bucket }));
        };
        let basis = Basis::Scaled { from_bucket: near };
        let beyond = elements(bucket) - elements(near);
        if let Some((far, far_ns)) = larger {
            let between = near_ns + (far_ns - near_ns) * beyond / (elements(far) - elements(near));
            return Some(Estimate { ns: between, at_worst_ns: SAFETY * between, basis });
        }
        let in_proportion = near_ns / elements(near);
        let straight = |noise: f64| {
            let smaller = cells.all().filter(|&(own, _)| own < near).filter_map(known);
            let slopes = smaller
                .map(|(far, far_ns)| (near_ns - far_ns + noise * near_ns) / (elements(near) - elements(far)));
            // Of slopes that differ by noise, take the lowest; without another size, all of the
            // time may grow.
            let per_element = slopes.fold(in_proportion, f64::min).max(LEAST_GROWING_PART * in_proportion);
            near_ns + per_element * beyond
        };
        let ns = straight(-NOISE);
        Some(Estimate { ns, at_worst_ns: straight(NOISE).max(SAFETY * ns), basis })
    }
}

fn elements(bucket: u8) -> f64 {
    f64::from(bucket).exp2()
}
