//! Explanations of routes, as text and as JSON.

use super::call::{BackendIndex, Conformance, Placement, Reason};
use super::probing::{PROBE_SHARE, decide};
use super::program::{CellKey, ProgramRoutes};
use super::trust::TrustState;
use serde::Serialize;
use std::fmt;

/// What the router knows about a program at one size, and the resulting route.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteExplanation {
    /// The op id, or `fp:` followed by the fingerprint.
    pub program: String,
    /// The program's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// Number of elements.
    pub elements: u64,
    /// ⌊log2⌋ of the number of elements.
    pub size_bucket: u32,
    /// The backend that the buffers are resident on; none for host memory.
    pub resident_on: Option<String>,
    /// The backend that calls go to.
    pub backend: Option<String>,
    /// Why calls go there.
    pub reason: Option<Reason>,
    /// Whether only verified rows of the table decide.
    pub frozen: bool,
    /// Calls at this size so far.
    pub calls: u64,
    /// Time of all calls of the program.
    pub total_ns: u64,
    /// Cost of probes so far.
    pub probes_ns: u64,
    /// Current limit on the cost of probes.
    pub probes_limit_ns: u64,
    /// Whether the table has a verified row for this size.
    pub has_row: bool,
    /// Every backend, in selection order.
    pub candidates: Vec<CandidateExplanation>,
}

/// What the router knows about one backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateExplanation {
    /// The backend's id.
    pub backend: String,
    /// Its device.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// `verified`, `certified` (by the conformance set), `unverified`, `verifying`, `quarantined`
    /// or `wrong`.
    pub standing: &'static str,
    /// Why it may not run; none if it may.
    pub refused: Option<String>,
    /// Its calls at this size.
    pub calls: u64,
    /// Its expected time.
    pub estimate_ns: Option<u64>,
    /// The basis of the expectation.
    pub estimate_from: Option<String>,
    /// Standard deviation of single calls, in percent.
    pub deviation_percent: Option<f64>,
    /// Whether the next look probes it, and why; none for the incumbent and for backends that may
    /// not run.
    pub probing: Option<ProbingExplanation>,
}

/// Whether a backend can be probed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProbingExplanation {
    /// Whether the rule allows a probe.
    pub probed: bool,
    /// The name of the rule that decided.
    pub rule: &'static str,
    /// The rule's criterion.
    pub reason: &'static str,
}

impl RouteExplanation {
    pub(super) fn new(
        routes: &ProgramRoutes,
        elements: u64,
        placement: Placement,
        now_ns: u64,
    ) -> RouteExplanation {
        let key = CellKey::new(elements, placement);
        let cell = routes.cell(key);
        // Decisions depend on the time of all calls.
        routes.settle(cell);
        let choice = cell.choice();
        let id = |backend: BackendIndex| {
            routes.shared.backends.get(backend.index()).map(|backend| backend.candidate().id.clone())
        };
        let spent = routes.time_spent();
        RouteExplanation {
            program: routes.key().to_owned(),
            fingerprint: routes.fingerprint().to_owned(),
            elements,
            size_bucket: key.bucket.into(),
            resident_on: key.home.and_then(id),
            backend: choice.and_then(|(backend, _)| id(backend)),
            reason: choice.map(|(_, reason)| Reason::from_number(reason)),
            frozen: routes.shared.policy.frozen,
            calls: cell.calls(),
            total_ns: spent.total_ns,
            probes_ns: spent.probes_ns,
            probes_limit_ns: (PROBE_SHARE * spent.total_ns as f64) as u64,
            has_row: routes.row(key).is_some(),
            candidates: routes
                .indices()
                .map(|index| CandidateExplanation::new(routes, index, key, now_ns))
                .collect(),
        }
    }

    /// The explanation as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

impl CandidateExplanation {
    fn new(routes: &ProgramRoutes, index: BackendIndex, key: CellKey, now_ns: u64) -> CandidateExplanation {
        let candidate = routes.shared.candidate(index);
        let cell = routes.cell(key);
        let statistics = cell.arm(index).map(|arm| &arm.statistics);
        let pace = statistics.and_then(|statistics| statistics.pace());
        let estimate = routes.estimate(key, index);
        let refused = routes.refusal(index, key, now_ns);
        let rivals = cell
            .incumbent()
            .filter(|&incumbent| incumbent != index && refused.is_none() && !routes.shared.policy.frozen);
        CandidateExplanation {
            backend: candidate.id.clone(),
            device: candidate.device.clone(),
            driver: candidate.driver.clone(),
            standing: match (routes.trust(index).state(), &candidate.conformance) {
                (TrustState::Verified, _) => "verified",
                (TrustState::Wrong, _) => "wrong",
                (TrustState::Quarantined, _) => "quarantined",
                (TrustState::Verifying, _) => "verifying",
                (TrustState::Unverified, Conformance::Passed) => "certified",
                (
                    TrustState::Unverified,
                    Conformance::Failed(_) | Conformance::Unknown | Conformance::Pending,
                ) => "unverified",
            },
            refused,
            calls: statistics.map_or(0, |statistics| statistics.calls()),
            estimate_ns: estimate.map(|estimate| estimate.ns.round() as u64),
            estimate_from: estimate.map(|estimate| estimate.basis.to_string()),
            deviation_percent: pace.filter(|pace| pace.recent > 1).map(|pace| 100.0 * pace.deviation()),
            probing: rivals.map(|incumbent| {
                let rule = decide(&routes.rival(cell, key, index, (incumbent, cell.burst_next()), u64::MAX));
                ProbingExplanation { probed: rule.probes, rule: rule.name, reason: rule.reason }
            }),
        }
    }
}

impl fmt::Display for RouteExplanation {
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
            writeln!(f, "{candidate}")?;
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

impl fmt::Display for CandidateExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<12} {}", self.backend, self.standing)?;
        if let (Some(ns), Some(from)) = (self.estimate_ns, &self.estimate_from) {
            write!(f, ", about {:.3} ms by {from}", ns as f64 / 1e6)?;
        }
        if let Some(deviation) = self.deviation_percent {
            write!(f, " (±{deviation:.0}%, {} calls)", self.calls)?;
        }
        if let Some(reason) = &self.refused {
            write!(f, "; refused: {reason}")?;
        }
        if let Some(ProbingExplanation { probed, rule, reason }) = self.probing {
            write!(f, "; {} ({rule}: {reason})", if probed { "probed next" } else { "not probed" })?;
        }
        Ok(())
    }
}
