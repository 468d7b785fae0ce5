//! Why a call would go where it would go, for people and for programs.

use super::program::{Basis, PROBE_SHARE, Place, ProgramRoutes};
use super::standing::State;
use super::{Conformance, Placement, Reason};
use serde::Serialize;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// What is known of a program at one size, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The op id, or `fp:` and the fingerprint.
    pub program: String,
    /// The program's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// How many elements.
    pub elements: u64,
    /// ⌊log2⌋ of them.
    pub size_bucket: u32,
    /// The backend that the buffers are resident on; none for host memory.
    pub resident_on: Option<String>,
    /// The backend that calls go to.
    pub backend: Option<String>,
    /// Why.
    pub reason: Option<Reason>,
    /// Whether only verified rows of the table decide.
    pub frozen: bool,
    /// Calls at this size so far.
    pub calls: u64,
    /// The time of all calls of the program.
    pub total_ns: u64,
    /// What probes cost so far.
    pub probes_ns: u64,
    /// What probes may cost by now.
    pub probes_limit_ns: u64,
    /// Whether the table has a verified row for this size.
    pub has_row: bool,
    /// Every backend, in the order of selection.
    pub candidates: Vec<CandidateExplanation>,
}

/// What is known of one backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateExplanation {
    /// The backend's id.
    pub backend: String,
    /// Its device.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// `verified`, `certified` (by the conformance set), `unverified`, `verifying` or `quarantined`.
    pub standing: &'static str,
    /// Why it may not run; none if it may.
    pub refused: Option<String>,
    /// Its calls at this size.
    pub calls: u64,
    /// The time that is expected of it.
    pub estimate_ns: Option<u64>,
    /// What the expectation is from.
    pub estimate_from: Option<String>,
    /// How much single calls differ, in percent.
    pub deviation_percent: Option<f64>,
}

impl Explanation {
    /// The explanation as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

impl ProgramRoutes {
    /// Why calls of this size go where they go. Asking changes nothing.
    pub fn explain(&self, elements: u64, placement: Placement, now_ns: u64) -> Explanation {
        let place = Place::new(elements, placement);
        let cell = self.cell(place);
        let choice = cell.choice();
        let id = |index: usize| self.shared.backends.get(index).map(|backend| backend.candidate.id.clone());
        let spent = self.time_spent();
        Explanation {
            program: self.key().to_owned(),
            fingerprint: self.fingerprint().to_owned(),
            elements,
            size_bucket: place.bucket.into(),
            resident_on: place.home.and_then(|home| id(home.index())),
            backend: choice.and_then(|(backend, _)| id(backend.index())),
            reason: choice.map(|(_, reason)| Reason::from_number(reason)),
            frozen: self.shared.policy.frozen,
            calls: cell.calls.load(Relaxed),
            total_ns: spent.total_ns,
            probes_ns: spent.probes_ns,
            probes_limit_ns: (PROBE_SHARE * spent.total_ns as f64) as u64,
            has_row: self.row(place).is_some(),
            candidates: self
                .indices()
                .map(|index| self.explain_candidate(index.index(), place, now_ns))
                .collect(),
        }
    }

    fn explain_candidate(&self, position: usize, place: Place, now_ns: u64) -> CandidateExplanation {
        let index = super::BackendIndex(position as u8);
        let (shared, standing) = (&self.shared.backends[position], &self.standings[position]);
        let cell = self.cell(place);
        let seen = cell.arm(index).and_then(|arm| arm.statistics.snapshot());
        let incumbent = cell.incumbent().unwrap_or(index);
        let estimate = self.estimate(place, index, incumbent);
        CandidateExplanation {
            backend: shared.candidate.id.clone(),
            device: shared.candidate.device.clone(),
            driver: shared.candidate.driver.clone(),
            standing: match (standing.state(), &shared.candidate.conformance) {
                (State::Verified, _) => "verified",
                (State::Quarantined, _) => "quarantined",
                (State::Verifying, _) => "verifying",
                (State::Unverified, Conformance::Passed) => "certified",
                (State::Unverified, Conformance::Failed(_) | Conformance::Unknown) => "unverified",
            },
            refused: self.refusal(index, place, now_ns),
            calls: seen.map_or(0, |seen| seen.calls),
            estimate_ns: estimate.map(|estimate| estimate.ns as u64),
            estimate_from: estimate.map(|estimate| match estimate.basis {
                Basis::Calls => "calls of this size".to_owned(),
                Basis::Earlier => "a verified row, a verification, or calls before a change".to_owned(),
                Basis::Moved => "calls on host memory, and moving the buffers".to_owned(),
                Basis::Scaled { from_bucket } => {
                    format!(
                        "calls or verifications at other sizes, the nearest about 2^{from_bucket} elements"
                    )
                }
            }),
            deviation_percent: seen.filter(|seen| seen.recent > 1).map(|seen| 100.0 * seen.deviation),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.resident_on.as_ref().map_or("host memory".to_owned(), |home| format!("`{home}`"));
        writeln!(
            f,
            "{} at {} elements (2^{}), buffers in {place}",
            self.program, self.elements, self.size_bucket
        )?;
        match (&self.backend, self.reason) {
            (Some(backend), Some(reason)) => writeln!(f, "runs on `{backend}`: {reason}")?,
            _ => writeln!(f, "not called yet at this size")?,
        }
        for candidate in &self.candidates {
            write!(f, "  {:<12} {}", candidate.backend, candidate.standing)?;
            if let (Some(ns), Some(from)) = (candidate.estimate_ns, &candidate.estimate_from) {
                write!(f, ", about {:.3} ms by {from}", ns as f64 / 1e6)?;
            }
            if let Some(deviation) = candidate.deviation_percent {
                write!(f, " (±{deviation:.0}%, {} calls)", candidate.calls)?;
            }
            match &candidate.refused {
                Some(reason) => writeln!(f, "; refused: {reason}")?,
                None => writeln!(f)?,
            }
        }
        let milliseconds = |ns: u64| ns as f64 / 1e6;
        let (total, spent, limit) =
            (milliseconds(self.total_ns), milliseconds(self.probes_ns), milliseconds(self.probes_limit_ns));
        if self.frozen {
            write!(f, "routing is frozen: nothing is probed")
        } else {
            write!(f, "probes cost {spent:.3} ms of at most {limit:.3} ms, in {total:.3} ms of calls")
        }
    }
}
