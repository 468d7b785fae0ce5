//! Compares the speed of backends on one program, and their results with an oracle's.
//!
//! In each round, every remaining backend runs once, in a new random order, so that a machine that
//! warms up or throttles affects all alike. The first round warms up and is not timed. A backend
//! that fails, panics or is wrong is eliminated. Results are compared after every run, outside the
//! timed section, because a backend can be wrong intermittently.

use super::{
    BackendIdentity, BackendLatency, PGO_TIMED_ITERS, RejectedBackend, RouteDecision, dispatch_elements,
    size_bucket,
};
use crate::containment::{contain, contain_call};
use crate::hex;
use crate::judge::{Judge, outputs_of};
use crate::pipeline::COMPILER_VERSION;
use crate::tuner::Random;
use crate::{BackendError, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;
use vyre_foundation::ir::Program;

/// The program and inputs that the backends run.
pub(super) struct Certification<'a> {
    pub(super) program: &'a Program,
    pub(super) inputs: &'a [&'a [u8]],
    pub(super) config: &'a DispatchConfig,
    /// The oracle, whose results are right by definition; without one, results are not compared.
    pub(super) oracle: Option<&'a dyn VyreBackend>,
}

/// A backend in the certification.
struct Contender<'a> {
    backend: &'a dyn VyreBackend,
    id: &'static str,
    profile: DeviceProfile,
    /// The subgroup size at which the oracle runs, if the results depend on the contender's
    /// subgroup size.
    judged_at: Option<u32>,
    judge: Judge,
    times_ns: Vec<u64>,
    /// Why it was eliminated.
    rejected: Option<String>,
}

impl<'a> Certification<'a> {
    /// Runs the certification; the resulting row has no timestamp yet.
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

    /// Like [`Certification::run`], with a clock in nanoseconds.
    fn run_by(
        &self,
        op_id: &str,
        backends: &[&'a dyn VyreBackend],
        clock: &dyn Fn() -> u64,
    ) -> Result<RouteDecision, BackendError> {
        let mut contenders = self.contenders(op_id, backends)?;
        let expected = self.expected(&contenders)?;
        let outputs = outputs_of(self.program);
        for contender in &contenders {
            // Compile before anything is timed; a backend that cannot compile reports it when it
            // runs.
            let _ = contain(|| contender.backend.compile_native(self.program, self.config));
        }
        // The particular orders do not matter, as long as no backend always goes first.
        let mut random = Random(RandomState::new().hash_one(0));
        let all: Vec<usize> = (0..contenders.len()).collect();
        for round in 0..=PGO_TIMED_ITERS {
            for k in random.order(&all) {
                let contender = &mut contenders[k];
                if contender.rejected.is_some() {
                    continue;
                }
                let before = clock();
                let found = self.dispatch(contender.backend);
                let elapsed = clock().saturating_sub(before).min(i64::MAX as u64);
                if round > 0 {
                    contender.times_ns.push(elapsed);
                }
                contender.rejected = match found {
                    Err(error) => Some(error.to_string()),
                    Ok(found) => expected
                        .get(&contender.judged_at)
                        .and_then(|expected| contender.judge.difference(&outputs, expected, &found)),
                };
            }
        }
        self.decide(op_id, contenders)
    }

    fn contenders(
        &self,
        op_id: &str,
        backends: &[&'a dyn VyreBackend],
    ) -> Result<Vec<Contender<'a>>, BackendError> {
        if backends.is_empty() {
            let message = format!("op `{op_id}` cannot be certified without backends; give at least one");
            return Err(BackendError::new(message));
        }
        let size_matters = self.config.subgroup_size.is_none()
            && self.program.validate().is_ok_and(|kernel| kernel.needs.subgroups);
        let mut seen = BTreeSet::new();
        let contender = |&backend: &&'a dyn VyreBackend| {
            let id = id_of(backend);
            if !seen.insert(id) {
                let message =
                    format!("op `{op_id}` cannot be certified: two backends have the id `{id}`; give one");
                return Err(BackendError::new(message));
            }
            let profile = contain(|| backend.device_profile()).unwrap_or_default();
            let judged_at = (size_matters && profile.subgroup_size > 0).then_some(profile.subgroup_size);
            let judge = Judge::new(&profile, [self.program], self.config);
            Ok(Contender { backend, id, profile, judged_at, judge, times_ns: Vec::new(), rejected: None })
        };
        backends.iter().map(contender).collect()
    }

    /// The oracle's outputs by subgroup size: subgroup results depend on it, so the oracle runs
    /// once for each size among the contenders. Empty without an oracle.
    fn expected(
        &self,
        contenders: &[Contender<'_>],
    ) -> Result<BTreeMap<Option<u32>, OutputBuffers>, BackendError> {
        let Some(oracle) = self.oracle else { return Ok(BTreeMap::new()) };
        let sizes: BTreeSet<Option<u32>> = contenders.iter().map(|contender| contender.judged_at).collect();
        sizes
            .into_iter()
            .map(|size| {
                let config = DispatchConfig {
                    subgroup_size: self.config.subgroup_size.or(size),
                    ..self.config.clone()
                };
                Ok((size, Certification { config: &config, ..*self }.dispatch(oracle)?))
            })
            .collect()
    }

    fn dispatch(&self, backend: &dyn VyreBackend) -> Result<OutputBuffers, BackendError> {
        contain_call(id_of(backend), || backend.dispatch_borrowed(self.program, self.inputs, self.config))
    }

    fn decide(&self, op_id: &str, contenders: Vec<Contender<'_>>) -> Result<RouteDecision, BackendError> {
        let mut row = RouteDecision {
            verified: self.oracle.is_some(),
            fingerprint: hex::encode(&self.program.fingerprint()),
            size_bucket: dispatch_elements(self.program, self.inputs, self.config).map(size_bucket),
            compiler_version: COMPILER_VERSION.to_owned(),
            ..RouteDecision::default()
        };
        for Contender { id, profile, mut times_ns, rejected, .. } in contenders {
            let backend = id.to_owned();
            row.identities.push(BackendIdentity::new(id, profile.device_name, profile.driver_version));
            match rejected {
                Some(reason) => row.rejected.push(RejectedBackend { backend, reason }),
                None => row.observations.push(BackendLatency { backend, latency_ns: median(&mut times_ns) }),
            }
        }
        if row.observations.is_empty() {
            return Err(all_rejected(op_id, &row.rejected));
        }
        row.identities.sort_by(|a, b| a.backend.cmp(&b.backend));
        row.put_fastest_first();
        Ok(row)
    }
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
        reasons: format!("op `{op_id}` was rejected on every backend; {}", reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    /// Time that advances only when a backend advances it.
    type Clock = Arc<AtomicU64>;

    /// Takes the listed times, one per call, by a simulated clock; an `Err` fails.
    struct Scripted {
        id: &'static str,
        clock: Clock,
        script: Mutex<Vec<Result<u64, &'static str>>>,
    }

    impl Scripted {
        fn new(
            id: &'static str,
            clock: &Clock,
            times: [Result<u64, &'static str>; 1 + PGO_TIMED_ITERS],
        ) -> Scripted {
            Scripted { id, clock: clock.clone(), script: Mutex::new(times.into_iter().rev().collect()) }
        }

        /// Takes the same time on every call.
        fn steady(id: &'static str, clock: &Clock, time: u64) -> Scripted {
            Scripted::new(id, clock, [Ok(time); 1 + PGO_TIMED_ITERS])
        }
    }

    impl VyreBackend for Scripted {
        fn id(&self) -> &'static str {
            self.id
        }

        fn dispatch(
            &self,
            _: &Program,
            _: &[Vec<u8>],
            _: &DispatchConfig,
        ) -> Result<OutputBuffers, BackendError> {
            let next = self.script.lock().unwrap().pop().expect("called more often than scripted");
            self.clock.fetch_add(next.map_err(BackendError::new)?, Ordering::Relaxed);
            Ok(Vec::new())
        }
    }

    fn run(clock: &Clock, backends: &[&dyn VyreBackend]) -> Result<RouteDecision, BackendError> {
        let (program, config) = (Program::empty(), DispatchConfig::default());
        let certification = Certification { program: &program, inputs: &[], config: &config, oracle: None };
        // Resets at every reading, so that no script makes it overflow.
        certification.run_by("op", backends, &|| clock.swap(0, Ordering::Relaxed))
    }

    fn observed(row: &RouteDecision) -> Vec<(&str, u64)> {
        row.observations.iter().map(|seen| (seen.backend.as_str(), seen.latency_ns)).collect()
    }

    #[test]
    fn the_median_of_the_timed_runs_counts() {
        let clock = Clock::default();
        let noisy = Scripted::new("noisy", &clock, [9_000_000, 5, 1, 9_000, 4, 6, 7, 3].map(Ok));
        let row = run(&clock, &[&noisy]).unwrap();
        assert_eq!(observed(&row), [("noisy", 5)]);
    }

    #[test]
    fn the_fastest_comes_first_and_equals_by_id() {
        let clock = Clock::default();
        let [c, a, b] =
            [("c", 10), ("a", 20), ("b", 10)].map(|(id, time)| Scripted::steady(id, &clock, time));
        let row = run(&clock, &[&c, &a, &b]).unwrap();
        assert_eq!(observed(&row), [("b", 10), ("c", 10), ("a", 20)]);
        assert_eq!((row.backend.as_str(), row.verified), ("b", false));
    }

    #[test]
    fn a_latency_stops_at_the_largest_integer_of_toml() {
        let clock = Clock::default();
        let row = run(&clock, &[&Scripted::steady("slow", &clock, i64::MAX as u64 + 5)]).unwrap();
        assert_eq!(observed(&row), [("slow", i64::MAX as u64)]);
    }

    #[test]
    fn one_late_failure_is_enough() {
        let clock = Clock::default();
        let mut times = [Ok(1); 1 + PGO_TIMED_ITERS];
        times[PGO_TIMED_ITERS] = Err("gave up");
        let fast = Scripted::new("fast", &clock, times);
        let row = run(&clock, &[&fast, &Scripted::steady("slow", &clock, 10)]).unwrap();
        assert_eq!(row.backend, "slow");
        assert_eq!(row.rejected, [RejectedBackend { backend: "fast".into(), reason: "gave up".into() }]);
    }

    #[test]
    fn orders_are_permutations_and_differ() {
        let mut random = Random(7);
        let orders: BTreeSet<Vec<usize>> = (0..200).map(|_| random.order(&[0, 1, 2])).collect();
        assert_eq!(orders.len(), 6, "{orders:?}");
        assert_eq!(random.order(&[]), [0; 0]);
    }
}
