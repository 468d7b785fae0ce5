//! Rows of the PGO table: which of them hold here, and what the router adds to them.
//!
//! A row holds if it is verified, was made by this compiler version, and on the device and driver that each of its backends
//! has now; a backend whose device or driver changed, or is not known, drops out of it.

use super::program::ProgramRoutes;
use super::standing::State;
use super::{Candidate, Shared};
use crate::pgo::{BackendIdentity, BackendLatency, PgoTable, RejectedBackend, RouteDecision};
use crate::pipeline::COMPILER_VERSION;
use crate::tables::stamp_after;
use std::sync::Arc;

/// How many calls a time in a row is of, at least.
const CALLS_FOR_A_ROW: u64 = 8;

/// The rows of the table that hold for these backends.
pub(super) fn valid(table: &PgoTable, candidates: &[Candidate]) -> PgoTable {
    let row = |row: &RouteDecision| valid_row(row, candidates);
    PgoTable {
        routes: table.routes.iter().filter_map(|(op, route)| Some((op.clone(), row(route)?))).collect(),
        routes_by_size: table
            .routes_by_size
            .iter()
            .map(|(op, rows)| {
                (op.clone(), rows.iter().filter_map(|(size, route)| Some((*size, row(route)?))).collect())
            })
            .collect(),
    }
}

fn valid_row(row: &RouteDecision, candidates: &[Candidate]) -> Option<RouteDecision> {
    if !row.verified || row.compiler_version != COMPILER_VERSION {
        return None;
    }
    let holds = |id: &str| {
        let candidate = candidates.iter().find(|candidate| candidate.id == id);
        candidate.is_some_and(|candidate| {
            row.identity_of(id) == Some((candidate.device.as_str(), candidate.driver.as_str()))
        })
    };
    let mut valid = row.clone();
    valid.observations.retain(|observation| holds(&observation.backend));
    valid.rejected.retain(|rejected| holds(&rejected.backend));
    valid.backend = valid.observations.first()?.backend.clone();
    Some(valid)
}

/// What the programs' calls on host memory told, as rows.
pub(super) fn learned(shared: &Shared, programs: &[Arc<ProgramRoutes>]) -> PgoTable {
    let mut table = PgoTable::default();
    for program in programs {
        for (bucket, _) in program.host.all() {
            if let Some(row) = learned_row(shared, program, bucket) {
                let newest =
                    table.routes.get(program.key()).map(|route: &RouteDecision| route.certified_at_ns);
                let row = RouteDecision { certified_at_ns: stamp_after(newest), ..row };
                let by_size = table.routes_by_size.entry(program.key().to_owned()).or_default();
                by_size.insert(bucket.into(), row.clone());
                table.routes.insert(program.key().to_owned(), row);
            }
        }
    }
    table
}

fn learned_row(shared: &Shared, program: &ProgramRoutes, bucket: u8) -> Option<RouteDecision> {
    let cell = program.host.get(bucket)?;
    let mut row = RouteDecision {
        verified: true,
        fingerprint: program.fingerprint().to_owned(),
        size_bucket: Some(bucket.into()),
        compiler_version: COMPILER_VERSION.to_owned(),
        ..RouteDecision::default()
    };
    for ((arm, standing), backend) in cell.arms.iter().zip(&program.standings).zip(&shared.backends) {
        let id = &backend.candidate.id;
        let seen = arm.statistics.snapshot().filter(|seen| seen.calls >= CALLS_FOR_A_ROW);
        match (standing.state(), seen) {
            (State::Verified, Some(seen)) => {
                let latency_ns = (seen.time_ns() as u64).min(i64::MAX as u64);
                row.observations.push(BackendLatency { backend: id.clone(), latency_ns });
            }
            (State::Quarantined, _) => {
                row.rejected.push(RejectedBackend { backend: id.clone(), reason: standing.reason() });
            }
            (State::Verified | State::Unverified | State::Verifying, _) => continue,
        }
        let Candidate { device, driver, .. } = &backend.candidate;
        row.identities.push(BackendIdentity {
            backend: id.clone(),
            device: device.clone(),
            driver: driver.clone(),
        });
    }
    row.observations.sort_by(|a, b| (a.latency_ns, &a.backend).cmp(&(b.latency_ns, &b.backend)));
    let fastest = row.observations.first()?.backend.clone();
    let (device, driver) =
        row.identity_of(&fastest).map(|(device, driver)| (device.to_owned(), driver.to_owned()))?;
    Some(RouteDecision { backend: fastest, device, driver, ..row })
}
