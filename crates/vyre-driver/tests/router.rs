//! Who may run, who does, and why: the router's rules one by one. What routing costs is in `router_simulation.rs`.

use vyre_driver::pgo::{
    BackendIdentity, BackendLatency, PgoTable, RejectedBackend, RouteDecision, size_bucket,
};
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::router::{
    BackendIndex, BackendSet, Background, CANARY_PERIOD, Call, Candidate, Conformance, NoRoute, Placement,
    Policy, ProgramRoutes, Reason, Rejection, Router, Timing,
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

/// Where a call goes and why; the call then takes so long.
fn run(program: &ProgramRoutes, call: &Call, elapsed_ns: u64) -> (BackendIndex, Reason) {
    let route = program.route(call).expect("a backend may run it");
    program.finished(&route, elapsed_ns);
    (route.backend, route.reason)
}

fn failure() -> BackendError {
    BackendError::DispatchFailed { backend: "a".into(), message: "gave up".into() }
}

fn fail(program: &ProgramRoutes, call: &Call, error: &BackendError) -> (BackendIndex, Reason) {
    let route = program.route(call).expect("a backend may run it");
    program.failed(&route, error, 10, call.now_ns);
    (route.backend, route.reason)
}

fn fingerprint_text() -> String {
    "07".repeat(32)
}

/// A verified row for the program `op`, fastest first.
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
    table.routes_by_size.entry("op".into()).or_default().insert(bucket, row);
    table
}

#[test]
fn the_selected_backend_runs_before_anything_is_known_and_others_only_once_verified() {
    let router = router();
    let program = router.program(None, [7; 32]);
    assert_eq!(program.key(), format!("fp:{}", fingerprint_text()));
    let route = program.route(&Call::new(SIZE, 0)).unwrap();
    assert_eq!((route.backend, route.reason), (A, Reason::Selected));
    assert_eq!(route.background, Some(Background::Verify(B)));
    program.finished(&route, 1_000_000);
    // However slow the selected one is, an unverified backend stays out.
    for call in 0..100 {
        assert_eq!(run(&program, &Call::new(SIZE, call), 1_000_000).0, A);
    }
    let timings = [64, 4096].map(|elements| Timing { elements, elapsed_ns: elements / 10 });
    program.verified(B, Ok(&timings), 200);
    assert_eq!(run(&program, &Call::new(SIZE, 300), 1_000), (B, Reason::Probe));
    assert_eq!(run(&program, &Call::new(SIZE, 400), 1_000), (B, Reason::Measured));
}

#[test]
fn a_backend_that_is_wrong_for_a_program_is_never_routed_to_for_it() {
    let router = router();
    let (wrong, other) = (router.program(Some("wrong"), [1; 32]), router.program(Some("other"), [2; 32]));
    for program in [&wrong, &other] {
        assert_eq!(run(program, &Call::new(SIZE, 0), 1_000_000).0, A);
    }
    let fast = [Timing { elements: 4096, elapsed_ns: 10 }];
    wrong.verified(B, Err(Rejection::Wrong("bits differ")), 0);
    other.verified(B, Ok(&fast), 0);
    assert_eq!(run(&other, &Call::new(SIZE, 1), 10).0, B);
    for call in 0..1000 {
        let route = wrong.route(&Call::new(SIZE, call * SECOND / 50)).unwrap();
        assert_eq!(route.backend, A);
        // It is tried again later, and is as wrong as before.
        if let Some(Background::Verify(backend)) = route.background {
            let outcome = if backend == B { Err(Rejection::Wrong("bits differ")) } else { Ok(&[][..]) };
            wrong.verified(backend, outcome, call * SECOND / 50);
        }
        wrong.finished(&route, 1_000_000);
    }
    // Not even when the other one fails.
    let now = 10_000 * SECOND;
    fail(&wrong, &Call::new(SIZE, now), &failure());
    let excluded = Call { exclude: BackendSet::default().with(A), ..Call::new(SIZE, now) };
    let NoRoute { refused, verify_first, .. } = wrong.route(&excluded).unwrap_err();
    assert_eq!(verify_first, None);
    assert!(refused[1].reason.contains("bits differ"), "{refused:?}");
}

#[test]
fn a_failure_means_quarantine_then_verification_and_each_one_lasts_longer() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[]), 0);
    let mut now = SECOND;
    for length in [1, 2, 4, 8] {
        program.verified(A, Ok(&[]), now);
        let named = Call { only: Some(A), ..Call::new(SIZE, now) };
        assert_eq!(fail(&program, &named, &failure()), (A, Reason::Named));
        now += length * SECOND - 1;
        let route = program.route(&Call::new(SIZE, now)).unwrap();
        assert_eq!(route.backend, B);
        assert!(!matches!(route.background, Some(Background::Verify(_))), "{route:?}");
        program.finished(&route, 100);
        let explained = program.explain(SIZE, Placement::Host, now);
        assert!(explained.candidates[0].refused.as_ref().unwrap().contains("gave up"), "{explained}");
        now += SECOND;
        for _ in 0..2 * CANARY_PERIOD {
            let route = program.route(&Call::new(SIZE, now)).unwrap();
            assert_eq!(route.backend, B, "time alone does not bring trust back");
            program.finished(&route, 100);
        }
    }
}

#[test]
fn what_is_not_the_backends_fault_changes_nothing() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    let trap = BackendError::Trapped { kernel: "k".into(), code: 3 };
    for call in 0..5 {
        assert_eq!(fail(&program, &Call::new(SIZE, call), &trap), (A, Reason::Selected));
    }
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
    fail(&programs[0], &Call::new(SIZE, 0), &full);
    assert_eq!(run(&programs[0], &Call::new(SIZE, 1), 10).0, B);
    assert_eq!(run(&programs[0], &Call::new(SIZE / 2, 1), 10).0, A);
    let lost = BackendError::DeviceLost { backend: "a".into(), message: "reset".into() };
    fail(&programs[0], &Call::new(SIZE / 2, 2), &lost);
    for program in &programs {
        assert_eq!(run(program, &Call::new(SIZE, 3), 10).0, B);
    }
}

#[test]
fn the_last_backend_is_tried_again_rather_than_none() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    assert_eq!(fail(&program, &Call::new(SIZE, 0), &failure()), (A, Reason::Selected));
    // Another one could run if it were verified, so that comes first.
    let none = program.route(&Call::new(SIZE, 1)).unwrap_err();
    assert_eq!(none.verify_first, Some(B));
    assert!(none.to_string().starts_with("no backend may run `op`: a: in quarantine"), "{none}");
    program.verified(B, Err(Rejection::Failed("does not compile")), 2);
    assert_eq!(run(&program, &Call::new(SIZE, 3), 10), (A, Reason::LastResort));
}

#[test]
fn a_call_that_failed_goes_to_the_next_one_and_a_named_one_where_it_was_named() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[]), 0);
    assert_eq!(fail(&program, &Call::new(SIZE, 0), &failure()).0, A);
    let again = Call { exclude: BackendSet::default().with(A), ..Call::new(SIZE, 0) };
    assert_eq!(run(&program, &again, 10), (B, Reason::Fallback));
    let named = Call { only: Some(B), ..Call::new(SIZE, 0) };
    assert_eq!(run(&program, &named, 10), (B, Reason::Named));
    let outside = Call { only: Some(BackendIndex(200)), ..Call::new(SIZE, 1) };
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
        let route = program.route(&Call::new(SIZE, call)).unwrap();
        assert_eq!(router.id(route.backend), "c");
        assert!(!matches!(route.background, Some(Background::Verify(A | B))));
        program.finished(&route, 10);
    }
    let nobody = Router::new(Vec::new(), &PgoTable::default(), Policy::default());
    assert!(nobody.program(None, [1; 32]).route(&Call::new(SIZE, 0)).is_err());
}

/// Where the first call goes under a table with this row.
fn first_route(change: impl FnOnce(&mut RouteDecision)) -> (BackendIndex, Reason) {
    let mut row = row(&[("b", 100), ("a", 200)]);
    change(&mut row);
    let router = router_with(&table(row), Policy::default());
    run(&router.program(Some("op"), [7; 32]), &Call::new(SIZE, 0), 100)
}

#[test]
fn rows_count_if_they_are_verified_and_hold_here() {
    let selected = (A, Reason::Selected);
    assert_eq!(first_route(|_| {}), (B, Reason::Table));
    assert_eq!(first_route(|row| row.verified = false), selected);
    assert_eq!(first_route(|row| row.compiler_version = "0.0.0".into()), selected);
    assert_eq!(first_route(|row| row.fingerprint = "08".repeat(32)), selected);
    assert_eq!(first_route(|row| row.size_bucket = Some(3)), selected);
    // Of the two, only one has another driver now: what is known of the other stays.
    assert_eq!(first_route(|row| row.identities[0].driver = "9".into()), (A, Reason::Table));
    assert_eq!(first_route(|row| row.identities[0].device = "Toy 1".into()), (A, Reason::Table));
    assert_eq!(first_route(|row| row.identities.clear()), selected);
    let rejected = RejectedBackend { backend: "b".into(), reason: "bits differ".into() };
    assert_eq!(first_route(|row| row.rejected.push(rejected)).0, A);
}

#[test]
fn a_frozen_router_goes_by_the_table_alone() {
    let frozen = Policy { frozen: true };
    let router = router_with(&table(row(&[("b", 100), ("a", 200)])), frozen);
    let program = router.program(Some("op"), [7; 32]);
    for call in 0..500 {
        // However slow it is now.
        assert_eq!(run(&program, &Call::new(SIZE, call), 1_000_000), (B, Reason::Frozen));
    }
    assert_eq!(program.time_spent().probes_ns, 0);
    let none = program.route(&Call::new(SIZE / 2, 0)).unwrap_err();
    assert_eq!(none.verify_first, None);
    assert!(none.to_string().contains("frozen"), "{none}");
    fail(&program, &Call::new(SIZE, 600), &failure());
    assert_eq!(run(&program, &Call::new(SIZE, 601), 10), (A, Reason::Frozen), "the next in the row");
    assert!(router.program(Some("unknown"), [7; 32]).route(&Call::new(SIZE, 0)).is_err());
}

#[test]
fn what_was_learnt_is_saved_as_verified_rows_and_serves_the_next_process() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(B, Ok(&[Timing { elements: SIZE, elapsed_ns: 50 }]), 0);
    for call in 0..100 {
        let route = program.route(&Call::new(SIZE, call)).unwrap();
        program.finished(&route, if route.backend == B { 50_000 } else { 90_000 });
        if let Some(Background::Verify(backend)) = route.background {
            program.verified(backend, Ok(&[]), call);
        }
    }
    // A program that only ran unverified has no row.
    assert_eq!(run(&router.program(Some("unverified"), [1; 32]), &Call::new(SIZE, 0), 10).0, A);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgo.toml");
    router.learned().save(&path).unwrap();
    let table = PgoTable::load(&path).unwrap();
    assert_eq!(table.routes.keys().collect::<Vec<_>>(), ["op"]);
    let learnt = &table.routes_by_size["op"][&size_bucket(SIZE)];
    assert_eq!((learnt.backend.as_str(), learnt.verified, learnt.device.as_str()), ("b", true, "Toy 3000"));
    let next = router_with(&table, Policy { frozen: true });
    let program = next.program(Some("op"), [7; 32]);
    assert_eq!(run(&program, &Call::new(SIZE, 0), 50_000), (B, Reason::Frozen));
}

#[test]
fn an_unverified_row_never_replaces_a_verified_one_of_the_same_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgo.toml");
    let verified = RouteDecision { certified_at_ns: 5, ..row(&[("b", 100)]) };
    let newer = |fingerprint: &str| {
        let row = row(&[("a", 1)]);
        RouteDecision { verified: false, fingerprint: fingerprint.into(), certified_at_ns: 9, ..row }
    };
    let bucket = size_bucket(SIZE);
    let backend = || PgoTable::load(&path).unwrap().routes_by_size["op"][&bucket].backend.clone();
    table(verified.clone()).save(&path).unwrap();
    table(newer(&fingerprint_text())).save(&path).unwrap();
    assert_eq!(backend(), "b");
    table(newer("another program")).save(&path).unwrap();
    assert_eq!(backend(), "a");
    table(newer(&fingerprint_text())).save(&path).unwrap();
    table(verified).save(&path).unwrap();
    assert_eq!(backend(), "b", "a verified row replaces an unverified one, even a newer one");
}

#[test]
fn resident_buffers_are_a_case_of_their_own() {
    let router = router();
    let program = router.program(Some("op"), [7; 32]);
    program.verified(A, Ok(&[]), 0);
    program.verified(B, Ok(&[]), 0);
    // On host memory the first is faster; at home on the second, that one is.
    let resident = |now_ns| Call {
        placement: Placement::Resident { home: B, bytes: 1 << 22 },
        ..Call::new(SIZE, now_ns)
    };
    let time = |call: &Call, backend| match (call.placement, backend) {
        (Placement::Host, A) => 100_000,
        (Placement::Host, _) => 400_000,
        (Placement::Resident { .. }, A) => 900_000,
        (Placement::Resident { .. }, _) => 50_000,
    };
    let settle = |call: &dyn Fn(u64) -> Call| {
        for now in 0..5_000 {
            let call = call(now);
            let route = program.route(&call).unwrap();
            program.finished(&route, time(&call, route.backend));
        }
        program.explain(SIZE, call(0).placement, 0)
    };
    let named = |now| Call { only: Some(B), ..resident(now) };
    let host = settle(&|now| Call::new(SIZE, now));
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
        run(&program, &Call::new(SIZE, call), 2_000_000);
    }
    program.verified(B, Err(Rejection::Wrong("output 0 differs first at element 3")), 50);
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
    assert_eq!(json["candidates"][1]["standing"], "quarantined");
    assert_eq!(json["candidates"][0]["calls"], 20);
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
                    let route = program.route(&Call::new(SIZE, round)).unwrap();
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
