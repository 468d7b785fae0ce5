//! Measuring backends against each other on one program, and their results against an oracle's.
//!
//! Rounds: in each, every backend still in the running runs once, in an order drawn anew, so that a machine that warms
//! up or throttles treats all alike. The first round warms up and is not timed. A backend that fails, panics or is wrong
//! is out from then on. Results are compared outside of the timed stretch, after every run, because a backend may be
//! wrong only sometimes.

use super::compare::Comparison;
use super::{
    BackendLatency, PGO_TIMED_ITERS, RejectedBackend, RouteDecision, dispatch_elements, size_bucket,
};
use crate::containment::contain;
use crate::{BackendError, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;
use vyre_foundation::ir::Program;

/// What the backends are tried on.
pub(super) struct Trial<'a> {
    pub(super) program: &'a Program,
    pub(super) inputs: &'a [&'a [u8]],
    pub(super) config: &'a DispatchConfig,
    /// Whose results are right; without one, results are not looked at.
    pub(super) oracle: Option<&'a dyn VyreBackend>,
}

/// A backend in the running, or out of it.
struct Contender<'a> {
    backend: &'a dyn VyreBackend,
    id: &'static str,
    profile: DeviceProfile,
    times_ns: Vec<u64>,
    /// Why it is out.
    rejected: Option<String>,
}

impl<'a> Trial<'a> {
    /// The outcome, not yet stamped with its time.
    pub(super) fn run(
        &self,
        op_id: &str,
        backends: &[&'a dyn VyreBackend],
    ) -> Result<RouteDecision, BackendError> {
        self.run_by(op_id, backends, &{
            let start = Instant::now();
            move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
        })
    }

    /// Like [`Trial::run`], by a clock that counts nanoseconds.
    fn run_by(
        &self,
        op_id: &str,
        backends: &[&'a dyn VyreBackend],
        clock: &dyn Fn() -> u64,
    ) -> Result<RouteDecision, BackendError> {
        let mut contenders = contenders(op_id, backends)?;
        let expected = self.expected(&contenders)?;
        let comparison = Comparison::new(self.program, self.config.ulp_budget);
        let mut shuffle = Shuffle::new();
        for round in 0..=PGO_TIMED_ITERS {
            for k in shuffle.order(contenders.len()) {
                let contender = &mut contenders[k];
                if contender.rejected.is_some() {
                    continue;
                }
                let before = clock();
                let outputs = self.dispatch(contender.backend);
                let elapsed = clock().saturating_sub(before).min(i64::MAX as u64);
                if round > 0 {
                    contender.times_ns.push(elapsed);
                }
                contender.rejected = match outputs {
                    Err(error) => Some(error.to_string()),
                    Ok(outputs) => expected
                        .get(&self.subgroup_size(contender))
                        .and_then(|expected| comparison.difference(expected, &outputs)),
                };
            }
        }
        self.decide(op_id, contenders)
    }

    /// The oracle's outputs by the subgroup size that they are for: subgroup results depend on it, so the oracle runs
    /// once for each size that a contender has. Empty without an oracle.
    fn expected(
        &self,
        contenders: &[Contender<'_>],
    ) -> Result<BTreeMap<Option<u32>, OutputBuffers>, BackendError> {
        let Some(oracle) = self.oracle else { return Ok(BTreeMap::new()) };
        let sizes: BTreeSet<Option<u32>> =
            contenders.iter().map(|contender| self.subgroup_size(contender)).collect();
        sizes
            .into_iter()
            .map(|size| {
                let config = DispatchConfig {
                    subgroup_size: self.config.subgroup_size.or(size),
                    ..self.config.clone()
                };
                Ok((size, Trial { config: &config, ..*self }.dispatch(oracle)?))
            })
            .collect()
    }

    /// The subgroup size by which the contender's results are to be judged, where they depend on its own.
    fn subgroup_size(&self, contender: &Contender<'_>) -> Option<u32> {
        let uses_subgroups = self.program.validate().is_ok_and(|kernel| kernel.needs.subgroups);
        let own = contender.profile.subgroup_size;
        (uses_subgroups && self.config.subgroup_size.is_none() && own > 0).then_some(own)
    }

    fn dispatch(&self, backend: &dyn VyreBackend) -> Result<OutputBuffers, BackendError> {
        contain(|| backend.dispatch_borrowed(self.program, self.inputs, self.config)).unwrap_or_else(
            |message| Err(BackendError::DispatchFailed { backend: id_of(backend).to_owned(), message }),
        )
    }

    fn decide(&self, op_id: &str, contenders: Vec<Contender<'_>>) -> Result<RouteDecision, BackendError> {
        let mut row = RouteDecision {
            verified: self.oracle.is_some(),
            fingerprint: blake3::Hash::from_bytes(self.program.fingerprint()).to_hex().to_string(),
            size_bucket: dispatch_elements(self.program, self.inputs, self.config).map(size_bucket),
            compiler_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..RouteDecision::default()
        };
        let mut profiles = BTreeMap::new();
        for Contender { id, profile, mut times_ns, rejected, .. } in contenders {
            let backend = id.to_owned();
            profiles.insert(id, profile);
            match rejected {
                Some(reason) => row.rejected.push(RejectedBackend { backend, reason }),
                None => row.observations.push(BackendLatency { backend, latency_ns: median(&mut times_ns) }),
            }
        }
        row.observations.sort_by(|a, b| (a.latency_ns, &a.backend).cmp(&(b.latency_ns, &b.backend)));
        let Some(fastest) = row.observations.first() else { return Err(all_rejected(op_id, &row.rejected)) };
        row.backend = fastest.backend.clone();
        if let Some(profile) = profiles.get(row.backend.as_str()) {
            row.device = profile.device_name.to_owned();
            row.driver = profile.driver_version.to_owned();
        }
        Ok(row)
    }
}

fn contenders<'a>(op_id: &str, backends: &[&'a dyn VyreBackend]) -> Result<Vec<Contender<'a>>, BackendError> {
    if backends.is_empty() {
        return Err(BackendError::new(format!("op `{op_id}` cannot be certified on no backends; give some")));
    }
    let mut seen = BTreeSet::new();
    let contender = |&backend: &&'a dyn VyreBackend| {
        let id = id_of(backend);
        if !seen.insert(id) {
            let message = format!("op `{op_id}` cannot be certified: two backends given have the id `{id}`");
            return Err(BackendError::new(message));
        }
        let profile = contain(|| backend.device_profile()).unwrap_or_default();
        Ok(Contender { backend, id, profile, times_ns: Vec::new(), rejected: None })
    };
    backends.iter().map(contender).collect()
}

fn id_of(backend: &dyn VyreBackend) -> &'static str {
    contain(|| backend.id()).unwrap_or("(its id panics)")
}

fn median(times_ns: &mut [u64]) -> u64 {
    times_ns.sort_unstable();
    times_ns.get(times_ns.len() / 2).copied().unwrap_or(i64::MAX as u64)
}

fn all_rejected(op_id: &str, rejected: &[RejectedBackend]) -> BackendError {
    let reasons: Vec<String> =
        rejected.iter().map(|RejectedBackend { backend, reason }| format!("{backend}: {reason}")).collect();
    BackendError::NoUsableBackend {
        reasons: format!("op `{op_id}` was refused by all; {}", reasons.join("; ")),
    }
}

/// Orders drawn at random; which ones does not matter, only that nobody always goes first.
struct Shuffle(u64);

impl Shuffle {
    fn new() -> Shuffle {
        Shuffle(RandomState::new().hash_one(0))
    }

    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for k in (1..count).rev() {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(k, (self.0 >> 33) as usize % (k + 1));
        }
        order
    }
}
