//! The router's rules one by one: which backends are eligible, which is chosen, and why. The cost
//! of routing is tested by the files of `filetests/routing`.

use std::time::Duration;
use vyre_driver::pgo::{
    BackendIdentity, BackendLatency, PgoTable, RejectedBackend, RouteDecision, row_key, size_bucket,
};
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::router::{
    BackendIndex, BackendSet, Background, CANARY_PERIOD, Candidate, Conformance, NoRoute, Placement, Policy,
    ProgramRoutes, Reason, Rejection, RouteRequest, Router, Timing,
};
use vyre_driver::{BackendError, DeviceProfile};

const A: BackendIndex = BackendIndex(0);
const B: BackendIndex = BackendIndex(1);
const SIZE: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn candidate(id: &'static str, conformance: Conformance) -> Candidate {
    let profile =
        DeviceProfile { device_name: "Toy 3000", driver_version: "1.2", ..DeviceProfile::conservative(id) };
    Candidate::new(&profile, conformance)
}

fn router_with(table: &PgoTable, policy: Policy) -> Router {
    let candidates = ["a", "b"].map(|id| candidate(id, Conformance::Passed));
    Router::new(candidates.to_vec(), table, policy)
}

fn router() -> Router {
    router_with(&PgoTable::default(), Policy::default())
}

/// Routes a call that takes `elapsed_ns`; returns the backend and the reason.
fn run(program: &ProgramRoutes, call: &RouteRequest, elapsed_ns: u64) -> (BackendIndex, Reason) {
    let route = program.route(call).expect("a backend may run it");
    program.finished(&route, elapsed_ns);
    (route.backend, route.reason)
}

fn failure() -> BackendError {
    BackendError::DispatchFailed { backend: "a".into(), message: "gave up".into() }
}

fn fail(program: &ProgramRoutes, call: &RouteRequest, error: &BackendError) -> (BackendIndex, Reason) {
    let route = program.route(call).expect("a backend may run it");
    program.failed(&route, error, 10, call.now_ns);
    (route.backend, route.reason)
}

fn fingerprint_text() -> String {
    "07".repeat(32)
}

/// A verified row for a program with [`fingerprint_text`], fastest first.
fn row(times: &[(&str, u64)]) -> RouteDecision {
    let identity = |&(backend, _): &(&str, u64)| BackendIdentity {
        backend: backend.into(),
        device: "Toy 3000".into(),
        driver: "1.2".into(),
    };
    RouteDecision {
        backend: times[0].0.into(),
        observations: times
            .iter()
            .map(|&(backend, latency_ns)| BackendLatency { backend: backend.into(), latency_ns })
            .collect(),
        verified: true,
        fingerprint: fingerprint_text(),
        size_bucket: Some(size_bucket(SIZE)),
        identities: times.iter().map(identity).collect(),
        compiler_version: COMPILER_VERSION.into(),
        ..RouteDecision::default()
    }
}

fn table(row: RouteDecision) -> PgoTable {
    let mut table = PgoTable::default();
    let bucket = row.size_bucket.unwrap_or_default();
    table.routes_by_size.entry(row_key("op", &row.fingerprint)).or_default().insert(bucket, row);
    table
}

fn excluding(backend: BackendIndex, now_ns: u64) -> RouteRequest {
    RouteRequest { exclude: BackendSet::default().with(backend), ..RouteRequest::new(SIZE, now_ns) }
}

fn naming(backend: BackendIndex, now_ns: u64) -> RouteRequest {
    RouteRequest { only: Some(backend), ..RouteRequest::new(SIZE, now_ns) }
}

#[test]
fn the_selected_backend_runs_before_anything_is_known_and_others_only_once_verified() {
    let router = router();
    let program = router.program(None, [7; 32]);
    assert_eq!(program.key(), format!("fp:{}", fingerprint_text()));
    let route = program.route(&RouteRequest::new(SIZE, 0)).unwrap();
    assert_eq!((route.backend, route.reason), (A, Reason::Selected));
    assert_eq!(route.background, Some(Background::Verify(B)));
    program.finished(&route, 1_000_000);
    // However slow the selected backend is, an unverified one is not used.
    for call in 0..100 {
        assert_eq!(run(&program, &RouteRequest::new(SIZE, call), 1_000_000).0, A);
    }
    let timings = [64, 4096].map(|elements| Timing { elements, elapsed_ns: elements / 10 });
    program.verified(B, Ok(&timings), 200);
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 300), 1_000), (B, Reason::Probe));
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 400), 1_000), (B, Reason::Measured));
}

#[test]
fn a_backend_that_is_wrong_for_one_program_runs_another() {
    let router = router();
    let (wrong, other) = (router.program(Some("wrong"), [1; 32]), router.program(Some("other"), [2; 32]));
    for program in [&wrong, &other] {
        assert_eq!(run(program, &RouteRequest::new(SIZE, 0), 1_000_000).0, A);
    }
    wrong.verified(B, Err(&Rejection::Wrong("bits differ".into())), 0);
    other.verified(B, Ok(&[Timing { elements: 4096, elapsed_ns: 10 }]), 0);
    assert_eq!(run(&other, &RouteRequest::new(SIZE, 1), 10).0, B);
    for call in 0..1000 {
        let route = wrong.route(&RouteRequest::new(SIZE, call * SECOND)).unwrap();
        assert_eq!(route.backend, A);
        assert_ne!(route.background, Some(Background::Verify(B)), "nothing would change");
        wrong.finished(&route, 1_000_000);
    }
}

#[test]
fn nothing_brings_back_a_backend_that_was_wrong() {
    type Event = fn(&ProgramRoutes);
    let later: [(&str, Event); 6] = [
        ("nothing", |_| {}),
        ("a failed verification", |program| {
            program.verified(B, Err(&Rejection::Failed("no".into())), SECOND)
        }),
        ("a verification", |program| program.verified(B, Ok(&[]), SECOND)),
        ("a failed canary", |program| program.canary(B, Err(&Rejection::Failed("no".into())), 1, SECOND)),
        ("a canary", |program| program.canary(B, Ok(()), 1, SECOND)),
        ("a failure of the other", |program| {
            fail(program, &RouteRequest::new(SIZE, SECOND), &failure());
        }),
    ];
    for (name, event) in later {
        let router = router();
        let program = router.program(Some("op"), [7; 32]);
        program.verified(B, Ok(&[]), 0);
        let before = program.route(&naming(B, 0)).expect("it may be named");
        program.canary(B, Err(&Rejection::Wrong("bits differ".into())), 1, 0);
        program.failed(&before, &failure(), 10, 0);
        event(&program);
        for now in [2 * SECOND, 10_000 * SECOND] {
            for call in [excluding(A, now), naming(B, now)] {
                let NoRoute { refused, verify_first, .. } = program.route(&call).unwrap_err();
                assert_eq!(verify_first, None, "{name}");
                let reason = &refused.iter().find(|refused| refused.backend == "b").expect("listed").reason;
                assert_eq!(reason, "its results were wrong: bits differ", "{name}");
            }
            assert_ne!(program.route(&RouteRequest::new(SIZE, now)).unwrap().backend, B, "{name}");
        }
    }
}

#[test]
fn wrong_results_are_saved_and_believed_and_failures_are_not() {
    for (rejection, saved) in [
        (Rejection::Wrong("bits differ".into()), &["bits differ"][..]),
        (Rejection::Failed("it did not come back in time".into()), &[]),
    ] {
        let router = router();
        let program = router.program(Some("op"), [7; 32]);
        run(&program, &RouteRequest::new(SIZE, 0), 1_000);
        program.verified(B, Err(&rejection), 0);
        let learnt = router.learned();
        let rows = learnt.routes_by_size.values().flat_map(|rows| rows.values());
        let reasons: Vec<&str> =
            rows.flat_map(|row| &row.rejected).map(|rejected| rejected.reason.as_str()).collect();
        assert_eq!(reasons, saved);
        let next = router_with(&learnt, Policy::default()).program(Some("op"), [7; 32]);
        next.verified(B, Ok(&[]), 0);
        assert_eq!(next.route(&excluding(A, 0)).is_ok(), saved.is_empty(), "{rejection:?}");
    }
}

#[test]
fn a_failure_means_quarantine_then_verification_and_each_one_lasts_longer() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[]), 0);
    let mut now = SECOND;
    for length in [1, 2, 4, 8] {
        program.verified(A, Ok(&[]), now);
        let named = RouteRequest { only: Some(A), ..RouteRequest::new(SIZE, now) };
        assert_eq!(fail(&program, &named, &failure()), (A, Reason::Named));
        now += length * SECOND - 1;
        let route = program.route(&RouteRequest::new(SIZE, now)).unwrap();
        assert_eq!(route.backend, B);
        assert!(!matches!(route.background, Some(Background::Verify(_))), "{route:?}");
        program.finished(&route, 100);
        let explained = program.explain(SIZE, Placement::Host, now);
        assert!(explained.candidates[0].refused.as_ref().unwrap().contains("gave up"), "{explained}");
        now += SECOND;
        for _ in 0..2 * CANARY_PERIOD {
            let route = program.route(&RouteRequest::new(SIZE, now)).unwrap();
            assert_eq!(route.backend, B, "time alone does not bring trust back");
            program.finished(&route, 100);
        }
    }
}

#[test]
fn what_is_not_the_backends_fault_puts_nothing_aside() {
    let trap = BackendError::Trapped { kernel: "k".into(), code: 3 };
    let invalid = BackendError::InvalidProgram { diagnostics: Default::default() };
    let limit = Duration::from_nanos(10);
    let late = BackendError::Timeout { backend: "a".into(), limit };
    for error in [trap, invalid, late] {
        let router = router();
        let program = router.program(Some("op"), [7; 32]);
        program.verified(B, Ok(&[]), 0);
        for call in 0..5 {
            assert_eq!(fail(&program, &RouteRequest::new(SIZE, call), &error).0, A, "{error}");
        }
        assert_eq!(program.explain(SIZE, Placement::Host, 5).candidates[0].refused, None, "{error}");
    }
}

/// A deadline shorter than the backend's usual time yields no measurement.
#[test]
fn short_deadlines_do_not_make_a_backend_look_fast() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    let late = BackendError::Timeout { backend: "a".into(), limit: Duration::from_nanos(10) };
    for call in 0..50 {
        run(&program, &RouteRequest::new(SIZE, call), 1_000);
        fail(&program, &RouteRequest::new(SIZE, call), &late);
    }
    let explained = program.explain(SIZE, Placement::Host, 50);
    assert_eq!((explained.candidates[0].estimate_ns, explained.calls), (Some(1_000), 50), "{explained}");
}

/// A probe that might not complete in time would turn a call that works into one that fails.
#[test]
fn calls_with_a_deadline_do_not_probe_a_backend_that_has_missed_it() {
    const LIMIT_NS: u64 = 50_000_000;
    let late = BackendError::Timeout { backend: "a".into(), limit: Duration::from_nanos(LIMIT_NS) };
    for limit_ns in [LIMIT_NS, u64::MAX] {
        let router = router();
        let program = router.program(Some("op"), [7; 32]);
        program.verified(B, Ok(&[Timing { elements: SIZE, elapsed_ns: 60_000 }]), 0);
        let call = |now_ns| RouteRequest { limit_ns, ..RouteRequest::new(SIZE, now_ns) };
        for now_ns in 0..40 {
            let route = program.route(&call(now_ns)).unwrap();
            program.finished(&route, if route.backend == A { 10_000 } else { 60_000 });
        }
        let mut missed = Vec::new();
        for number in 0..400 {
            let route = program.route(&call(40 + number)).unwrap();
            match route.backend {
                A => {
                    missed.push(number);
                    program.failed(&route, &late, LIMIT_NS, 40 + number);
                }
                _ => program.finished(&route, 60_000),
            }
        }
        let is_limited = limit_ns == LIMIT_NS;
        assert_eq!(missed.last().is_some_and(|&last| last < 20), is_limited, "{missed:?}");
    }
}

/// A report about a lost device instance: neither the backend's standing nor its estimate changes,
/// and a probe that ends this way makes room for the next.
#[test]
fn an_abandoned_call_says_nothing_of_its_backend() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    run(&program, &RouteRequest::new(SIZE, 0), 1_000_000);
    program.verified(B, Ok(&[Timing { elements: SIZE, elapsed_ns: 1_000 }]), 0);
    let mut probes = 0;
    for now in 1..10 {
        let route = program.route(&RouteRequest::new(SIZE, now)).unwrap();
        match route.reason {
            Reason::Probe => program.abandoned(&route, 5),
            _ => program.finished(&route, 1_000_000),
        }
        probes += u64::from(route.reason == Reason::Probe);
        let explained = program.explain(SIZE, Placement::Host, now);
        let candidate = &explained.candidates[1];
        assert_eq!((&candidate.refused, candidate.estimate_ns, candidate.calls), (&None, Some(1_000), 0));
    }
    assert!(probes > 1, "{probes}");
}

#[test]
fn a_lost_device_is_lost_for_all_programs_and_a_full_one_for_that_size() {
    let router = router();
    let programs = [1, 2].map(|k| router.program(None, [k; 32]));
    for program in &programs {
        program.verified(A, Ok(&[]), 0);
        program.verified(B, Ok(&[]), 0);
    }
    let full = BackendError::DeviceOutOfMemory { backend: "a".into(), requested_bytes: 1 << 40 };
    fail(&programs[0], &RouteRequest::new(SIZE, 0), &full);
    assert_eq!(run(&programs[0], &RouteRequest::new(SIZE, 1), 10).0, B);
    assert_eq!(run(&programs[0], &RouteRequest::new(SIZE / 2, 1), 10).0, A);
    let lost = BackendError::DeviceLost { backend: "a".into(), message: "reset".into() };
    fail(&programs[0], &RouteRequest::new(SIZE / 2, 2), &lost);
    for program in &programs {
        assert_eq!(run(program, &RouteRequest::new(SIZE, 3), 10).0, B);
    }
}

#[test]
fn the_last_backend_is_tried_again_rather_than_none() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    assert_eq!(fail(&program, &RouteRequest::new(SIZE, 0), &failure()), (A, Reason::Selected));
    // Another backend could run if it were verified, so verification comes first.
    let none = program.route(&RouteRequest::new(SIZE, 1)).unwrap_err();
    assert_eq!(none.verify_first, Some(B));
    assert!(none.to_string().starts_with("no backend may run `op`: a: in quarantine"), "{none}");
    program.verified(B, Err(&Rejection::Failed("does not compile".into())), 2);
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 3), 10), (A, Reason::LastResort));
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 4), 10), (A, Reason::Measured), "it ran");
}

/// Nothing verifies the backend here, as if every verification were inconclusive.
#[test]
fn the_only_backend_is_never_shut_out() {
    let lost = BackendError::DeviceLost { backend: "a".into(), message: "reset".into() };
    let full = BackendError::DeviceOutOfMemory { backend: "a".into(), requested_bytes: 1 << 40 };
    for error in [failure(), lost, full] {
        let only = vec![candidate("a", Conformance::Passed)];
        let router = Router::new(only, &PgoTable::default(), Policy::default());
        let program = router.program(Some("op"), [7; 32]);
        assert_eq!(fail(&program, &RouteRequest::new(SIZE, 0), &error), (A, Reason::Selected));
        for now in [1, 2 * SECOND, 10_000 * SECOND] {
            assert_eq!(fail(&program, &RouteRequest::new(SIZE, now), &error).0, A, "{error}");
            assert_eq!(run(&program, &RouteRequest::new(SIZE, now), 10).0, A, "{error}");
            assert_ne!(run(&program, &RouteRequest::new(SIZE, now), 10).1, Reason::LastResort, "{error}");
        }
    }
}

/// An inconclusive verification does not count against a backend, but calls do not wait for a
/// repeat either.
#[test]
fn an_inconclusive_verification_is_no_offence_and_not_repeated_at_once() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    assert_eq!(fail(&program, &RouteRequest::new(SIZE, 0), &failure()).0, A);
    assert_eq!(program.route(&RouteRequest::new(SIZE, 1)).unwrap_err().verify_first, Some(B));
    program.verified(B, Err(&Rejection::Inconclusive("the interpreter is too slow".into())), 2);
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 3), 10), (A, Reason::LastResort));
    let verifies = |now_ns: u64| {
        let mut calls = 0..4 * CANARY_PERIOD;
        calls.any(|_| {
            let route = program.route(&RouteRequest::new(SIZE, now_ns)).unwrap();
            program.finished(&route, 10);
            assert_eq!(route.backend, A);
            route.background == Some(Background::Verify(B))
        })
    };
    assert_eq!([10, 100].map(|seconds| verifies(seconds * SECOND)), [false, true]);
}

#[test]
fn a_frozen_router_lifts_quarantines_as_well() {
    let router = router_with(&table(row(&[("b", 100)])), Policy { frozen: true });
    let program = router.program(Some("op"), [7; 32]);
    let mut now = 0;
    for length in [1, 2, 4] {
        assert_eq!(fail(&program, &RouteRequest::new(SIZE, now), &failure()), (B, Reason::Frozen));
        assert!(program.route(&RouteRequest::new(SIZE, now + length * SECOND - 1)).is_err());
        now += length * SECOND;
    }
    assert_eq!(run(&program, &RouteRequest::new(SIZE, now), 100), (B, Reason::Frozen));
}

#[test]
fn a_call_that_failed_goes_to_the_next_one_and_a_named_one_where_it_was_named() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[]), 0);
    assert_eq!(fail(&program, &RouteRequest::new(SIZE, 0), &failure()).0, A);
    let again = RouteRequest { exclude: BackendSet::default().with(A), ..RouteRequest::new(SIZE, 0) };
    assert_eq!(run(&program, &again, 10), (B, Reason::Fallback));
    let named = RouteRequest { only: Some(B), ..RouteRequest::new(SIZE, 0) };
    assert_eq!(run(&program, &named, 10), (B, Reason::Named));
    let outside = RouteRequest { only: Some(BackendIndex(200)), ..RouteRequest::new(SIZE, 1) };
    assert_eq!(run(&program, &outside, 10).0, B, "what is not there cannot be named");
}

#[test]
fn only_conforming_backends_are_used() {
    let candidates = vec![
        candidate("a", Conformance::Failed("adds wrongly".into())),
        candidate("b", Conformance::Unknown),
        candidate("c", Conformance::Passed),
    ];
    let router = Router::new(candidates, &PgoTable::default(), Policy::default());
    assert_eq!(router.selected(), router.index_of("c"));
    let program = router.program(None, [1; 32]);
    for call in 0..200 {
        let route = program.route(&RouteRequest::new(SIZE, call)).unwrap();
        assert_eq!(router.id(route.backend), "c");
        assert!(!matches!(route.background, Some(Background::Verify(A | B))));
        program.finished(&route, 10);
    }
    let nobody = Router::new(Vec::new(), &PgoTable::default(), Policy::default());
    assert!(nobody.program(None, [1; 32]).route(&RouteRequest::new(SIZE, 0)).is_err());
}

/// Route of the first call under a table with this row.
fn first_route(change: impl FnOnce(&mut RouteDecision)) -> (BackendIndex, Reason) {
    let mut row = row(&[("b", 100), ("a", 200)]);
    change(&mut row);
    let router = router_with(&table(row), Policy::default());
    run(&router.program(Some("op"), [7; 32]), &RouteRequest::new(SIZE, 0), 100)
}

#[test]
fn rows_count_if_they_are_verified_and_hold_here() {
    let selected = (A, Reason::Selected);
    assert_eq!(first_route(|_| {}), (B, Reason::Table));
    assert_eq!(first_route(|row| row.verified = false), selected);
    assert_eq!(first_route(|row| row.compiler_version = "0.0.0".into()), selected);
    assert_eq!(first_route(|row| row.fingerprint = "08".repeat(32)), selected);
    assert_eq!(first_route(|row| row.size_bucket = Some(3)), selected);
    // Only one of the two has a different driver now: the data about the other stays valid.
    assert_eq!(first_route(|row| row.identities[0].driver = "9".into()), (A, Reason::Table));
    assert_eq!(first_route(|row| row.identities[0].device = "Toy 1".into()), (A, Reason::Table));
    assert_eq!(first_route(|row| row.identities.clear()), selected);
    let rejected = RejectedBackend { backend: "b".into(), reason: "bits differ".into() };
    assert_eq!(first_route(|row| row.rejected.push(rejected)).0, A);
    // The row of a backend that does not conform is ignored.
    let candidates = ["a", "b"].map(|id| match id {
        "b" => candidate(id, Conformance::Failed("adds wrongly".into())),
        _ => candidate(id, Conformance::Passed),
    });
    let router = Router::new(candidates.to_vec(), &table(row(&[("b", 100), ("a", 200)])), Policy::default());
    assert_eq!(run(&router.program(Some("op"), [7; 32]), &RouteRequest::new(SIZE, 0), 100).0, A);
}

#[test]
fn rows_are_found_under_the_programs_key_then_under_its_name() {
    let named = |fingerprint: &str| PgoTable {
        routes: [("op".to_owned(), RouteDecision { fingerprint: fingerprint.into(), ..row(&[("b", 100)]) })]
            .into(),
        ..PgoTable::default()
    };
    let mut both = named(&fingerprint_text());
    both.merge(&table(row(&[("a", 50), ("b", 100)])));
    for (table, expected) in [
        (named(&fingerprint_text()), (B, Reason::Table)),
        (named("of another program"), (A, Reason::Selected)),
        (both, (A, Reason::Table)),
    ] {
        let router = router_with(&table, Policy::default());
        assert_eq!(run(&router.program(Some("op"), [7; 32]), &RouteRequest::new(SIZE, 0), 100), expected);
    }
}

#[test]
fn a_frozen_router_goes_by_the_table_alone() {
    let frozen = Policy { frozen: true };
    let router = router_with(&table(row(&[("b", 100), ("a", 200)])), frozen);
    let program = router.program(Some("op"), [7; 32]);
    for call in 0..500 {
        // However slow the backend becomes.
        assert_eq!(run(&program, &RouteRequest::new(SIZE, call), 1_000_000), (B, Reason::Frozen));
    }
    assert_eq!(program.time_spent().probes_ns, 0);
    let none = program.route(&RouteRequest::new(SIZE / 2, 0)).unwrap_err();
    assert_eq!(none.verify_first, None);
    assert!(none.to_string().contains("frozen"), "{none}");
    fail(&program, &RouteRequest::new(SIZE, 600), &failure());
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 601), 10), (A, Reason::Frozen), "the next in the row");
    assert!(router.program(Some("unknown"), [7; 32]).route(&RouteRequest::new(SIZE, 0)).is_err());
}

#[test]
fn what_was_learnt_is_saved_as_verified_rows_and_serves_the_next_process() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[Timing { elements: SIZE, elapsed_ns: 50 }]), 0);
    for call in 0..100 {
        let route = program.route(&RouteRequest::new(SIZE, call)).unwrap();
        program.finished(&route, if route.backend == B { 50_000 } else { 90_000 });
        if let Some(Background::Verify(backend)) = route.background {
            program.verified(backend, Ok(&[]), call);
        }
    }
    // A program that has only run unverified has no row.
    assert_eq!(run(&router.program(Some("unverified"), [1; 32]), &RouteRequest::new(SIZE, 0), 10).0, A);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgo.toml");
    router.learned().save(&path).unwrap();
    let table = PgoTable::load(&path).unwrap();
    let key = row_key("op", &fingerprint_text());
    assert_eq!(table.routes_by_size.keys().collect::<Vec<_>>(), [&key]);
    let learnt = &table.routes_by_size[&key][&size_bucket(SIZE)];
    assert_eq!((learnt.backend.as_str(), learnt.verified, learnt.device.as_str()), ("b", true, "Toy 3000"));
    let next = router_with(&table, Policy { frozen: true });
    let program = next.program(Some("op"), [7; 32]);
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 0), 50_000), (B, Reason::Frozen));
}

#[test]
fn programs_of_one_name_have_rows_of_their_own() {
    let router = router();
    let programs = [7, 8].map(|k| router.program(Some("op"), [k; 32]));
    for (program, fastest) in programs.iter().zip([A, B]) {
        program.verified(A, Ok(&[]), 0);
        program.verified(B, Ok(&[]), 0);
        for call in 0..20 {
            for backend in [A, B] {
                run(program, &naming(backend, call), if backend == fastest { 50 } else { 90 });
            }
        }
    }
    let next = router_with(&router.learned(), Policy { frozen: true });
    for (k, fastest) in [(7, A), (8, B)] {
        assert_eq!(
            run(&next.program(Some("op"), [k; 32]), &RouteRequest::new(SIZE, 0), 50),
            (fastest, Reason::Frozen)
        );
    }
}

/// A router that learns about one backend keeps the table's data about the others.
#[test]
fn learned_rows_keep_what_was_certified_of_other_backends() {
    let rejected = RejectedBackend { backend: "c".into(), reason: "bits differ".into() };
    let mut certified = row(&[("b", 10), ("a", 200), ("c", 300)]);
    certified.observations.pop();
    certified.rejected.push(rejected.clone());
    let certified = table(certified);
    let candidates = ["a", "b", "c"].map(|id| candidate(id, Conformance::Passed));
    let router = Router::new(candidates.to_vec(), &certified, Policy::default());
    let program = router.program(Some("op"), [7; 32]);
    for call in 0..20 {
        run(&program, &naming(A, call), 50);
    }
    let mut saved = certified.clone();
    saved.merge(&router.learned());
    for table in [router.learned(), saved] {
        let learnt = &table.routes_by_size[&row_key("op", &fingerprint_text())][&size_bucket(SIZE)];
        let seen: Vec<(&str, u64)> =
            learnt.observations.iter().map(|seen| (seen.backend.as_str(), seen.latency_ns)).collect();
        assert!(matches!(seen[..], [("b", 10), ("a", 49..=51)]), "{seen:?}");
        assert_eq!(
            (&learnt.backend[..], learnt.verified, &learnt.rejected[..]),
            ("b", true, &[rejected.clone()][..])
        );
        assert!(["a", "b", "c"].iter().all(|id| learnt.identity_of(id) == Some(("Toy 3000", "1.2"))));
    }
}

#[test]
fn batches_have_times_of_their_own_and_share_what_is_known_of_results() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    let batches = program.in_batches();
    program.verified(B, Ok(&[]), 0);
    for call in 0..20 {
        run(&program, &naming(B, call), 10);
        run(batches, &naming(B, call), 90);
    }
    assert_eq!((program.in_batches().calls(), router.programs().len()), (20, 2));
    let learnt = router.learned();
    for (name, latency_ns) in [("op", 10), ("op in batches", 90)] {
        let rows = &learnt.routes_by_size[&row_key(name, &fingerprint_text())];
        assert_eq!(
            rows[&size_bucket(SIZE)].observations,
            [BackendLatency { backend: "b".into(), latency_ns }]
        );
    }
    batches.canary(B, Err(&Rejection::Wrong("bits differ".into())), 1, 0);
    assert!(program.route(&naming(B, 30)).is_err());
}

#[test]
fn a_pending_backend_runs_nothing_until_it_is_reported() {
    let known = vec![candidate("a", Conformance::Passed), Candidate::pending("b")];
    let router = Router::new(known, &table(row(&[("b", 10), ("a", 200)])), Policy::default());
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[]), 0);
    for call in 0..40 {
        assert_eq!(run(&program, &RouteRequest::new(SIZE, call), 200).0, A);
    }
    for call in [naming(B, 40), excluding(A, 40)] {
        let none = program.route(&call).unwrap_err();
        assert_eq!(none.verify_first, None);
        assert!(none.to_string().contains("b: its driver is being checked"), "{none}");
    }
    router.met(B, candidate("another id", Conformance::Passed));
    assert_eq!(router.selected(), Some(A));
    assert_eq!(router.candidates().nth(1), Some(&candidate("b", Conformance::Passed)));
    // The table's row applies from now on: the backend is verified, and expected to be faster.
    assert_eq!(run(&program, &RouteRequest::new(SIZE, 41), 10), (B, Reason::Probe));
    assert_eq!(run(&program, &naming(B, 42), 10), (B, Reason::Named));
    assert_eq!(router.program(Some("new"), [1; 32]).route(&RouteRequest::new(SIZE, 43)).unwrap().backend, A);
}

#[test]
fn what_became_of_meeting_a_backend_decides_what_it_may_do() {
    for (conformance, selected) in [
        (Conformance::Passed, Some(A)),
        (Conformance::Failed("adds wrongly".into()), None),
        (Conformance::Unknown, None),
    ] {
        let router = Router::new(vec![Candidate::pending("a")], &PgoTable::default(), Policy::default());
        let program = router.program(Some("op"), [7; 32]);
        assert_eq!(router.selected(), None);
        assert_eq!(program.route(&RouteRequest::new(SIZE, 0)).unwrap_err().verify_first, None);
        router.met(A, candidate("a", conformance));
        router.met(A, candidate("a", Conformance::Unknown));
        router.met(BackendIndex(9), candidate("a", Conformance::Passed));
        assert_eq!(router.selected(), selected);
        assert_eq!(program.route(&RouteRequest::new(SIZE, 1)).ok().map(|route| route.backend), selected);
    }
}

#[test]
fn resident_buffers_are_a_case_of_their_own() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(A, Ok(&[]), 0);
    program.verified(B, Ok(&[]), 0);
    // On host memory the first backend is faster; on memory resident on the second, the second is.
    let resident = |now_ns| RouteRequest {
        placement: Placement::Resident { home: B, bytes: 1 << 22 },
        ..RouteRequest::new(SIZE, now_ns)
    };
    let time = |call: &RouteRequest, backend| match (call.placement, backend) {
        (Placement::Host, A) => 100_000,
        (Placement::Host, _) => 400_000,
        (Placement::Resident { .. }, A) => 900_000,
        (Placement::Resident { .. }, _) => 50_000,
    };
    let settle = |call: &dyn Fn(u64) -> RouteRequest| {
        for now in 0..5_000 {
            let call = call(now);
            let route = program.route(&call).unwrap();
            program.finished(&route, time(&call, route.backend));
        }
        program.explain(SIZE, call(0).placement, 0)
    };
    let named = |now| RouteRequest { only: Some(B), ..resident(now) };
    let host = settle(&|now| RouteRequest::new(SIZE, now));
    assert_eq!((host.backend.as_deref(), host.resident_on.as_deref()), (Some("a"), None));
    settle(&named);
    let at_home = settle(&resident);
    assert_eq!((at_home.backend.as_deref(), at_home.resident_on.as_deref()), (Some("b"), Some("b")));
}

#[test]
fn explanations_are_text_and_json() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    let before = program.explain(SIZE, Placement::Host, 0);
    assert_eq!((before.backend.as_deref(), before.calls), (None, 0));
    for call in 0..20 {
        run(&program, &RouteRequest::new(SIZE, call), 2_000_000);
    }
    program.verified(B, Err(&Rejection::Wrong("output 0 differs first at element 3".into())), 50);
    let explained = program.explain(SIZE, Placement::Host, 60);
    let text = explained.to_string();
    for part in [
        "op at 1048576 elements (2^20)",
        "runs on `a`: it was the fastest",
        "2.000 ms",
        "element 3",
        "probes cost",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&explained.to_json().unwrap()).unwrap();
    assert_eq!(json["backend"], "a");
    assert_eq!(json["reason"], "Measured");
    assert_eq!(json["candidates"][1]["standing"], "wrong");
    assert_eq!(json["candidates"][0]["calls"], 20);
}

#[test]
fn explanations_name_the_rule_of_probing() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    run(&program, &RouteRequest::new(SIZE, 0), 2_000_000);
    program.verified(B, Ok(&[]), 0);
    let text = program.explain(SIZE, Placement::Host, 1).to_string();
    let expected =
        "b            verified; not probed (unknown: there is no estimate of how long it would take)";
    assert!(text.contains(expected), "{text}");
    program.verified(B, Ok(&[Timing { elements: SIZE, elapsed_ns: 1_000 }]), 1);
    let explained = program.explain(SIZE, Placement::Host, 2);
    assert!(
        explained.to_string().contains("; probed next (faster: it is expected to be faster)"),
        "{explained}"
    );
    let json: serde_json::Value = serde_json::from_str(&explained.to_json().unwrap()).unwrap();
    assert_eq!(json["candidates"][0]["probing"], serde_json::Value::Null);
    assert_eq!(json["candidates"][1]["probing"]["rule"], "faster");
}

#[test]
fn many_threads_count_exactly_and_probe_one_at_a_time() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 5_000;
    let router = router();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let program = router.program(Some("op"), [7; 32]);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let route = program.route(&RouteRequest::new(SIZE, round)).unwrap();
                    program.finished(&route, 1_000);
                    if let Some(Background::Verify(backend)) = route.background {
                        program.verified(backend, Ok(&[Timing { elements: 4096, elapsed_ns: 20 }]), round);
                    }
                }
            });
        }
    });
    let program = router.program(Some("op"), [7; 32]);
    assert_eq!(program.calls(), THREADS * ROUNDS);
    assert_eq!(program.time_spent().total_ns, THREADS * ROUNDS * 1_000);
    assert_eq!(router.programs().len(), 1);
}

/// A call's share of a sequence's time is counted as spent, but is no measurement of the call
/// alone.
#[test]
fn shares_of_a_sequence_are_counted_and_teach_nothing() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    let call = RouteRequest::new(SIZE, 0);
    let route = program.route(&call).expect("a backend may run it");
    assert_eq!(program.usual_ns(&route), None);
    program.finished(&route, 1000);
    let usual = program.usual_ns(&route);
    assert!(usual.is_some_and(|usual| (990.0..1010.0).contains(&usual)), "{usual:?}");
    for _ in 0..50 {
        program.finished_untimed(&route, 1_000_000);
    }
    assert_eq!((program.usual_ns(&route), program.calls()), (usual, 51));
    assert_eq!(program.time_spent().total_ns, 50_001_000);
    // The next call is due to probe.
    assert_eq!(program.warm_route(&call), None);
}
