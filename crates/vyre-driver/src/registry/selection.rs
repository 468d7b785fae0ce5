//! Selection of the backend to use when none is named and nothing is measured yet.
//!
//! Every candidate is opened once, contained (see `probe`), and ranked by
//! [`compare_selection_facts`]. The result is cached for the process.

use super::probe::probe_all;
use super::{
    BackendRegistration, backend_dispatches, backend_is_oracle, backend_precedence, duplicate,
    registered_backends,
};
use crate::router::RefusedBackend;
use crate::{BackendError, DeviceClass, DeviceProfile, VyreBackend};
use std::cmp::Ordering;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The criteria for the choice between backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionFacts {
    /// The backend's id.
    pub id: &'static str,
    /// Whether its device is the CPU behind a GPU interface.
    pub software_adapter: bool,
    /// The capability of its device; see [`capability_score`].
    pub capability_score: u32,
    /// The quality of its kernel timing, from 0 to 3.
    pub timing_quality_score: u32,
    /// Memory bandwidth; 0 if unknown.
    pub memory_bandwidth_gbps: u32,
    /// Its rank, lower preferred.
    pub precedence: u32,
    /// The time it took to open.
    pub acquisition_ns: u64,
}

impl SelectionFacts {
    /// The facts about a backend with this profile and opening time.
    pub fn new(profile: &DeviceProfile, acquisition: Duration) -> SelectionFacts {
        SelectionFacts {
            id: profile.backend,
            software_adapter: profile.device_class == DeviceClass::Software,
            capability_score: capability_score(profile),
            timing_quality_score: profile.timing_quality.score(),
            memory_bandwidth_gbps: profile.mem_bw_gbps,
            precedence: backend_precedence(profile.backend),
            acquisition_ns: u64::try_from(acquisition.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// The result of the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectionReport {
    /// The usable backends, best first.
    pub ranked: Vec<SelectionFacts>,
    /// The backends that were not candidates, or failed as one, by id.
    pub refused: Vec<RefusedBackend>,
}

impl SelectionReport {
    /// The id of the selected backend.
    pub fn selected(&self) -> Option<&'static str> {
        self.ranked.first().map(|facts| facts.id)
    }
}

impl fmt::Display for SelectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, facts) in self.ranked.iter().enumerate() {
            let verdict = if k == 0 { "selected" } else { "usable" };
            let software = if facts.software_adapter { ", software adapter" } else { "" };
            writeln!(
                f,
                "{}: {verdict} (capability {}, timing {}, {} GB/s, rank {}, opened in {:?}{software})",
                facts.id,
                facts.capability_score,
                facts.timing_quality_score,
                facts.memory_bandwidth_gbps,
                facts.precedence,
                Duration::from_nanos(facts.acquisition_ns),
            )?;
        }
        for RefusedBackend { backend, reason } in &self.refused {
            writeln!(f, "{backend}: refused: {reason}")?;
        }
        Ok(())
    }
}

/// The order of preference: `Less` is preferred. Hardware devices come before software ones, then
/// by capability, timing quality, bandwidth, rank, opening time, and id.
pub fn compare_selection_facts(a: &SelectionFacts, b: &SelectionFacts) -> Ordering {
    a.software_adapter
        .cmp(&b.software_adapter)
        .then(b.capability_score.cmp(&a.capability_score))
        .then(b.timing_quality_score.cmp(&a.timing_quality_score))
        .then(b.memory_bandwidth_gbps.cmp(&a.memory_bandwidth_gbps))
        .then(a.precedence.cmp(&b.precedence))
        .then(a.acquisition_ns.cmp(&b.acquisition_ns))
        .then(a.id.cmp(b.id))
}

/// The capability of a device as one number. The weights put room for data first, then parallelism,
/// then optional features. They are chosen, not measured: they only order devices until calls are
/// measured.
pub fn capability_score(profile: &DeviceProfile) -> u32 {
    let weights = [
        (profile.max_storage_buffer_binding_size > 0, 16),
        (profile.max_invocations_per_workgroup >= 64, 8),
        (profile.max_invocations_per_workgroup >= 256, 4),
        (profile.subgroup_size > 0, 8),
        (profile.supports_subgroup_ops, 8),
        (profile.has_subgroup_shuffle, 4),
        (profile.has_shared_memory, 4),
        (profile.supports_f16, 2),
        (profile.supports_bf16, 2),
        (profile.supports_tensor_cores, 4),
        (profile.supports_indirect_dispatch, 2),
        (profile.supports_device_timestamps, 2),
        (profile.supports_hardware_counters, 2),
    ];
    weights.into_iter().filter(|(holds, _)| *holds).map(|(_, weight)| weight).sum()
}

/// The result of the selection in this process; runs the selection if necessary.
pub fn selection_report() -> &'static SelectionReport {
    &selection().report
}

/// The profiles of the usable backends, in the order of [`selection_report`].
pub fn selection_profiles() -> &'static [DeviceProfile] {
    &selection().profiles
}

/// Opens the best backend that runs programs and is not an oracle. The choice is made once per
/// process.
pub fn acquire_preferred_dispatch_backend() -> Result<Box<dyn VyreBackend>, BackendError> {
    let selection = selection();
    let Some(winner) = selection.winner else {
        return Err(none_usable(&selection.report.refused));
    };
    let probed = selection.probed.lock().unwrap_or_else(PoisonError::into_inner).take();
    probed.map_or_else(|| winner.acquire(), Ok)
}

/// The profiles of the usable backends, if the selection has already run.
pub(crate) fn known_profiles() -> &'static [DeviceProfile] {
    SELECTION.get().map_or(&[], |selection| &selection.profiles)
}

struct ProcessSelection {
    report: SelectionReport,
    profiles: Vec<DeviceProfile>,
    winner: Option<&'static BackendRegistration>,
    /// The winner's instance from the selection, handed to the first caller.
    probed: Mutex<Option<Box<dyn VyreBackend>>>,
}

static SELECTION: OnceLock<ProcessSelection> = OnceLock::new();

fn selection() -> &'static ProcessSelection {
    SELECTION.get_or_init(select)
}

fn select() -> ProcessSelection {
    let (candidates, mut refused) = selectable();
    let mut usable = Vec::new();
    for (registration, outcome) in probe_all(&candidates) {
        match outcome {
            Ok(probed) => {
                let acquisition = Duration::from_nanos(probed.acquisition_ns);
                let facts = SelectionFacts::new(&probed.profile, acquisition);
                usable.push((SelectionFacts { id: registration.id, ..facts }, registration, probed));
            }
            Err(reason) => refused.push(RefusedBackend { backend: registration.id.to_owned(), reason }),
        }
    }
    usable.sort_by(|(a, ..), (b, ..)| compare_selection_facts(a, b));
    refused.sort_by(|a, b| a.backend.cmp(&b.backend));
    for RefusedBackend { backend, reason } in &refused {
        tracing::debug!(backend, reason, "backend refused");
    }
    let ranked = usable.iter().map(|(facts, ..)| facts.clone()).collect();
    let profiles = usable.iter().map(|(.., probed)| probed.profile).collect();
    let best = usable.into_iter().next();
    ProcessSelection {
        report: SelectionReport { ranked, refused },
        profiles,
        winner: best.as_ref().map(|(_, registration, _)| *registration),
        probed: Mutex::new(best.map(|(.., probed)| probed.backend)),
    }
}

/// The linked backends that can be selected, and the refused ones.
pub fn selectable() -> (Vec<&'static BackendRegistration>, Vec<RefusedBackend>) {
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for same_id in registered_backends().chunk_by(|a, b| a.id == b.id) {
        let [first, others @ ..] = same_id else { continue };
        let id = first.id;
        let reason = if backend_is_oracle(id) {
            Some(ORACLE_REASON.into())
        } else if !backend_dispatches(id) {
            Some("it does not declare that it runs programs".into())
        } else if others.is_empty() {
            None
        } else {
            Some(duplicate(id).to_string())
        };
        match reason {
            Some(reason) => refused.push(RefusedBackend { backend: id.to_owned(), reason }),
            None => candidates.push(*first),
        }
    }
    (candidates, refused)
}

const ORACLE_REASON: &str = "it is an oracle, used only where it is named";

/// The error for having no usable backend: each refused backend and its reason.
pub fn none_usable(refused: &[RefusedBackend]) -> BackendError {
    let list = |row: fn(&RefusedBackend) -> String, separator| {
        refused.iter().map(row).collect::<Vec<String>>().join(separator)
    };
    let reasons = if refused.is_empty() {
        "none is linked".into()
    } else if refused.iter().all(|refused| refused.reason == ORACLE_REASON) {
        let ids = list(|refused| refused.backend.clone(), ", ");
        format!("only oracles are linked ({ids}), and an oracle is used only where it is named")
    } else {
        list(|refused| format!("{}: {}", refused.backend, refused.reason), "; ")
    };
    BackendError::NoUsableBackend { reasons }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceTimingQuality;

    #[test]
    fn each_ability_has_its_weight() {
        let none = DeviceProfile::conservative("x");
        let cases = [
            (none, 0),
            (DeviceProfile { max_storage_buffer_binding_size: 1, ..none }, 16),
            (DeviceProfile { max_invocations_per_workgroup: 63, ..none }, 0),
            (DeviceProfile { max_invocations_per_workgroup: 64, ..none }, 8),
            (DeviceProfile { max_invocations_per_workgroup: 256, ..none }, 12),
            (DeviceProfile { subgroup_size: 32, ..none }, 8),
            (DeviceProfile { supports_subgroup_ops: true, ..none }, 8),
            (DeviceProfile { has_subgroup_shuffle: true, ..none }, 4),
            (DeviceProfile { has_shared_memory: true, ..none }, 4),
            (DeviceProfile { supports_f16: true, ..none }, 2),
            (DeviceProfile { supports_bf16: true, ..none }, 2),
            (DeviceProfile { supports_tensor_cores: true, ..none }, 4),
            (DeviceProfile { supports_indirect_dispatch: true, ..none }, 2),
            (DeviceProfile { supports_device_timestamps: true, ..none }, 2),
            (DeviceProfile { supports_hardware_counters: true, ..none }, 2),
            // Facts that selection ignores.
            (DeviceProfile { supports_f64: true, supports_int64: true, compute_units: 99, ..none }, 0),
            (DeviceProfile { timing_quality: DeviceTimingQuality::HardwareCounters, ..none }, 0),
        ];
        for (profile, expected) in cases {
            assert_eq!(capability_score(&profile), expected, "{profile:?}");
        }
    }

    #[test]
    fn each_fact_outweighs_all_that_come_after_it() {
        let worst = SelectionFacts {
            id: "z",
            software_adapter: true,
            capability_score: 0,
            timing_quality_score: 0,
            memory_bandwidth_gbps: 0,
            precedence: u32::MAX,
            acquisition_ns: u64::MAX,
        };
        let best = SelectionFacts {
            id: "a",
            software_adapter: false,
            capability_score: 66,
            timing_quality_score: 3,
            memory_bandwidth_gbps: 1000,
            precedence: 0,
            acquisition_ns: 1,
        };
        let wins_by = [
            SelectionFacts { software_adapter: false, ..worst.clone() },
            SelectionFacts { capability_score: 66, software_adapter: false, ..worst.clone() },
            SelectionFacts {
                id: "z",
                acquisition_ns: u64::MAX,
                precedence: u32::MAX,
                memory_bandwidth_gbps: 0,
                ..best.clone()
            },
            SelectionFacts { id: "z", acquisition_ns: u64::MAX, precedence: u32::MAX, ..best.clone() },
            SelectionFacts { id: "z", acquisition_ns: u64::MAX, ..best.clone() },
            SelectionFacts { id: "z", ..best.clone() },
        ];
        let loses_by = [
            SelectionFacts { software_adapter: true, ..best.clone() },
            SelectionFacts { capability_score: 65, ..best.clone() },
            SelectionFacts { timing_quality_score: 2, ..best.clone() },
            SelectionFacts { memory_bandwidth_gbps: 999, ..best.clone() },
            SelectionFacts { precedence: 1, ..best.clone() },
            SelectionFacts { acquisition_ns: 2, ..best.clone() },
        ];
        for (winner, loser) in wins_by.iter().zip(&loses_by) {
            assert_eq!(compare_selection_facts(winner, loser), Ordering::Less, "{winner:?} {loser:?}");
            assert_eq!(compare_selection_facts(loser, winner), Ordering::Greater);
        }
        assert_eq!(
            compare_selection_facts(&best, &SelectionFacts { id: "b", ..best.clone() }),
            Ordering::Less
        );
        assert_eq!(compare_selection_facts(&best, &best), Ordering::Equal);
    }
}
