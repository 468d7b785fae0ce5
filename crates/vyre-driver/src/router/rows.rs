//! Rows of the PGO table: which are valid here, and which the router adds.
//!
//! A row is valid if it is verified and was made by this compiler version; its findings about a
//! backend apply on the device and driver that it names (`RouterState::holds`). A backend that gave
//! wrong results is saved as `rejected`. A backend that failed is not, because a failure says
//! nothing about the next process.

use super::call::Candidate;
use super::program::ProgramRoutes;
use super::shared::RouterState;
use super::trust::TrustState;
use crate::pgo::{BackendIdentity, BackendLatency, PgoTable, RejectedBackend, RouteDecision};
use crate::pipeline::COMPILER_VERSION;
use crate::tables::stamp_after;
use std::sync::Arc;

/// Minimum number of calls behind a time in a row: as many as a burst of probes has, after which
/// the time is no longer that of an idle backend.
const CALLS_FOR_A_ROW: u64 = 8;

/// The rows of the table that are valid here.
pub(super) fn valid(table: &PgoTable) -> PgoTable {
    let holds = |row: &RouteDecision| row.verified && row.compiler_version == COMPILER_VERSION;
    let mut valid = table.clone();
    valid.routes.retain(|_, row| holds(row));
    valid.routes_by_size.values_mut().for_each(|rows| rows.retain(|_, row| holds(row)));
    valid
}

/// The results of the programs' calls on host memory, as rows.
pub(super) fn learned(shared: &RouterState, programs: &[Arc<ProgramRoutes>]) -> PgoTable {
    let mut table = PgoTable::default();
    for program in programs {
        for bucket in program.buckets() {
            let Some(row) = learned_row(shared, program, bucket) else { continue };
            let (key, bucket) = (&program.program.row_key, bucket.into());
            let known = shared.table.routes_by_size.get(key).and_then(|rows| rows.get(&bucket));
            let row = match known {
                Some(known) => row.in_place_of(known),
                None => row,
            };
            table.routes_by_size.entry(key.clone()).or_default().insert(bucket, row);
        }
    }
    table
}

/// The row of one program at one size; `None` if there is nothing to record.
fn learned_row(shared: &RouterState, program: &ProgramRoutes, bucket: u8) -> Option<RouteDecision> {
    let mut row = RouteDecision {
        verified: true,
        fingerprint: program.fingerprint().to_owned(),
        size_bucket: Some(bucket.into()),
        compiler_version: COMPILER_VERSION.to_owned(),
        certified_at_ns: stamp_after(None),
        ..RouteDecision::default()
    };
    for index in program.indices() {
        let Candidate { id, device, driver, .. } = shared.candidate(index);
        let trust = program.trust(index);
        let seen = program.on_host(bucket, index).filter(|(_, calls)| *calls >= CALLS_FOR_A_ROW);
        match (trust.state(), seen) {
            (TrustState::Verified, Some((pace, _))) => {
                let latency_ns = (pace.time_ns().round() as u64).min(i64::MAX as u64);
                row.observations.push(BackendLatency { backend: id.clone(), latency_ns });
            }
            (TrustState::Wrong, _) => {
                row.rejected.push(RejectedBackend { backend: id.clone(), reason: trust.reason() });
            }
            (
                TrustState::Verified
                | TrustState::Unverified
                | TrustState::Verifying
                | TrustState::Quarantined,
                _,
            ) => continue,
        }
        row.identities.push(BackendIdentity::new(id, device, driver));
    }
    row.put_fastest_first();
    (!row.identities.is_empty()).then_some(row)
}
