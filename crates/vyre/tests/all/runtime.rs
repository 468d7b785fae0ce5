//! The runtime's public interface, on the embedded backend and on planted ones.

use crate::planted::{Mood, Planted};
use std::sync::Arc;
use std::time::Duration;
use vyre::Reason;
use vyre::prelude::*;
use vyre_driver::bundle::Bundle;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
  let i = invocation.x
  y[i] = a * x[i] + y[i]
}";

fn embedded() -> Runtime {
    Runtime::builder().backends(["cpu"]).without_tables().build().expect("the embedded backend is there")
}

#[test]
fn names_types_and_access_are_checked_with_the_programs_own_names() {
    let saxpy = embedded().load(SAXPY).expect("loads");
    let (x, mut y) = ([1.0f32; 4], [0.0f32; 4]);
    let check = |result: Result<Report, BackendError>, expected: &[&str]| {
        let error = result.expect_err("refused");
        assert!(!error.to_string().contains("invalid program"), "the program is valid: {error}");
        let BackendError::InvalidProgram { diagnostics } = error else { panic!("another kind") };
        let messages: Vec<String> = diagnostics.iter().map(|item| item.message.clone()).collect();
        assert_eq!(messages, expected);
        assert!(diagnostics.iter().all(|item| item.help.is_some()), "{diagnostics}");
    };
    check(
        saxpy.call().bind("a", 2u32).bind("xs", &x).bind("y", &y).run(),
        &[
            "buffer `a` of kernel `saxpy` has elements of f32, not u32",
            "kernel `saxpy` has no buffer `xs` to bind",
            "buffer `y` of kernel `saxpy` is read_write, and what was bound cannot be written",
            "buffer `x` of kernel `saxpy` is not bound",
        ],
    );
    check(
        saxpy.call().bind("a", 2.0f32).bind("a", 3.0f32).bind("x", &x).bind("y", &mut y).run(),
        &["buffer `a` of kernel `saxpy` is bound twice"],
    );
    check(
        saxpy.call().bind("a", &[1.0f32, 2.0]).bind("x", &x).bind("y", &mut y).run(),
        &["buffer `a` was given 8 bytes"],
    );
    #[cfg(target_pointer_width = "64")]
    check(
        saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).domain([2, 1 << 32]).run(),
        &["a domain of 4294967296 invocations on an axis"],
    );
}

#[test]
fn every_element_type_is_bound() {
    let runtime = embedded();
    let check = |element: &str, run: &dyn Fn(Routine)| {
        let source = format!(
            "kernel copy(x: read {element}[], y: output {element}[]) {{ y[invocation.x] = x[invocation.x] }}"
        );
        run(runtime.load(source.as_str()).expect("loads"));
    };
    macro_rules! copies {
        ($($element:literal $rust:ident $value:expr;)*) => { $(
            check($element, &|copy| {
                let (x, mut y) = (vec![$value; 3], vec![<$rust>::default(); 3]);
                copy.call().bind("x", &x).bind("y", &mut y).run().expect($element);
                assert_eq!(x, y, $element);
            });
        )* };
    }
    copies! {
        "u8" u8 200; "i8" i8 -3; "u16" u16 60_000; "i16" i16 -9; "u32" u32 7; "i32" i32 -7; "u64" u64 1 << 60; "i64" i64 -5;
        "f32" f32 1.5; "f64" f64 -2.5; "f16" u16 0x3C00; "bf16" u16 0x3F80; "bool" u8 1;
    }
    check("bool", &|copy| {
        let mut y = [0u8; 2];
        copy.call().bind("x", &[true, false]).bind("y", &mut y).run().expect("runs");
        assert_eq!(y, [1, 0]);
    });
}

#[test]
fn a_program_with_many_buffers_is_called() {
    let names: Vec<String> = (0..12).map(|k| format!("b{k}")).collect();
    let declared: Vec<String> = names.iter().map(|name| format!("{name}: read u32[]")).collect();
    let sum: Vec<String> = names.iter().map(|name| format!("{name}[invocation.x]")).collect();
    let source = format!(
        "kernel k({}, y: output u32[]) {{ y[invocation.x] = {} }}",
        declared.join(", "),
        sum.join(" + ")
    );
    let routine = embedded().load(source.as_str()).expect("loads");
    let (x, mut y) = ([1u32, 2, 3], [0u32; 3]);
    let call = names.iter().fold(routine.call(), |call, name| call.bind(name, &x));
    call.bind("y", &mut y).run().expect("runs");
    assert_eq!(y, [12, 24, 36]);
}

#[test]
fn any_linked_backend_can_be_named_even_the_oracle() {
    let saxpy = embedded().load(SAXPY).expect("loads");
    for backend in ["cpu", "cpu-ref"] {
        let (x, mut y) = ([3.0f32; 2], [1.0f32; 2]);
        let report =
            saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).on(backend).run().expect("runs");
        assert_eq!((report.backend, report.why, y), (backend, Reason::Named, [7.0; 2]));
    }
    let mut y = [1.0f32; 2];
    let error = saxpy.call().bind("a", 2.0f32).bind("x", &[0.0f32; 2]).bind("y", &mut y).on("gone").run();
    assert!(error.expect_err("not linked").to_string().contains("`gone` is not linked"));
}

#[test]
fn resident_buffers_stay_and_move() {
    let first = Planted::new("first", Mood::Fine).with_capability();
    let runtime = Runtime::builder()
        .backends(["cpu"])
        .backend(first.shared())
        .without_tables()
        .build()
        .expect("builds");
    let saxpy = runtime.load(SAXPY).expect("loads");
    let (x, mut y) = (runtime.resident(&[1.0f32, 2.0]), runtime.resident(&[10.0f32, 20.0]));
    assert_eq!(y.backend(), None);
    // The planted backend has no resident buffers, so the call moves on to the one that has.
    saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).run().expect("runs");
    let report = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).run().expect("runs");
    assert_eq!((report.backend, y.backend()), ("cpu", Some("cpu")));
    assert_eq!(y.read().expect("reads"), [14.0, 28.0]);
    y.write(1, &[5.0]).expect("writes");
    let mut one = [0.0];
    y.read_into(1, &mut one).expect("reads");
    assert_eq!(one, [5.0]);
    assert!(y.write(1, &[0.0, 0.0]).is_err() && y.read_into(usize::MAX, &mut one).is_err());
    let lent = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &y).run();
    let fault = lent.expect_err("it was lent for reading").to_string();
    assert!(
        fault.contains("buffer `y` of kernel `saxpy` is read_write, and what was bound cannot be written"),
        "{fault}"
    );
    let cell = y.cell();
    let twice = saxpy.call().bind("a", 2.0f32).bind("x", cell).bind("y", cell).run();
    assert!(twice.expect_err("refused").to_string().contains("bound twice"));
    let other = embedded();
    let foreign = other.load(SAXPY).expect("loads");
    let refused = foreign.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y).run();
    assert!(refused.expect_err("refused").to_string().contains("another runtime"));
}

#[test]
fn threads_share_a_runtime_and_every_call_counts() {
    const THREADS: u64 = 8;
    const CALLS: u64 = 300;
    let runtime = embedded();
    let saxpy = runtime.load(SAXPY).expect("loads");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let saxpy = saxpy.clone();
            scope.spawn(move || {
                let x = vec![thread as f32; 64 << (thread % 3)];
                let mut y = vec![0.0f32; x.len()];
                for _ in 0..CALLS {
                    saxpy.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y).run().expect("runs");
                }
                assert!(y.iter().all(|&value| value == (thread * CALLS) as f32));
            });
        }
    });
    assert_eq!(runtime.calls(), THREADS * CALLS);
    let hints = runtime.hints();
    let [(region, record)] = hints.as_slice() else { panic!("{hints:?}") };
    let digits: String =
        saxpy.program().fingerprint()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((region, record.dispatch_count), (&format!("vyre.program.root@{digits}"), THREADS * CALLS));
}

/// A runtime over a selected planted backend and a second one that always works.
fn with_planted(planted: &Planted) -> Runtime {
    let steady = Planted::new("steady", Mood::Fine).with_rounds(6);
    let built = Runtime::builder().backends::<String>([]).backend(planted.shared()).backend(steady.shared());
    built.without_tables().build().expect("both conform")
}

fn call_under_allow(saxpy: &Routine, x: &[f32], y: &mut [f32]) -> Result<Report, BackendError> {
    let call = saxpy.call().bind("a", 2.0f32).bind("x", x).bind("y", y);
    call.fallback(Fallback::Allow).timeout(Duration::from_millis(50)).run()
}

#[test]
fn a_backend_that_goes_bad_midway_is_left_within_20_calls() {
    for mood in [Mood::Fails, Mood::Hangs, Mood::Panics, Mood::LosesDevice, Mood::Lies] {
        let planted = Planted::new("planted", Mood::Fine).with_capability();
        let runtime = with_planted(&planted);
        let saxpy = runtime.load(SAXPY).expect("loads");
        let x = vec![2.0f32; 256];
        let run = || {
            let mut y = vec![1.0f32; 256];
            let outcome = call_under_allow(&saxpy, &x, &mut y);
            (outcome, y.iter().all(|&y| y == 5.0))
        };
        for _ in 0..40 {
            let (outcome, right) = run();
            runtime.settle();
            assert!(right, "{outcome:?}");
        }
        // The other backend is six times slower.
        assert_eq!(run().0.expect("runs").backend, "planted", "{}", saxpy.explain(256));
        planted.set(mood);
        let mut wrong = 0;
        for _ in 0..20 {
            match run() {
                // The deadline was the caller's and has expired: there is no time left to try
                // another backend.
                (Err(BackendError::Timeout { .. }), _) => assert_eq!(mood, Mood::Hangs),
                (Err(error), _) => panic!("{mood:?}: {error}"),
                (Ok(_), right) => wrong += usize::from(!right),
            }
        }
        let (report, right) = run();
        assert_eq!((report.expect("runs").backend, right), ("steady", true), "{mood:?}");
        // Only a check notices a wrong result, and at least one call in 16 is checked; everything
        // else is noticed at once.
        assert!(wrong == 0 || (mood == Mood::Lies && wrong < 16), "{mood:?}: {wrong} wrong results");
        let explained = saxpy.explain(256);
        let refused = explained.route.candidates.iter().find(|candidate| candidate.backend == "planted");
        let refused = refused.is_some_and(|candidate| candidate.refused.is_some());
        // A timed-out backend counts as slow, and is not refused over a limit that a caller chose.
        assert_eq!(refused, mood != Mood::Hangs, "{mood:?}: {explained}");
    }
}

#[test]
fn under_allow_calls_longer_than_a_spot_check_are_never_wrong() {
    let planted = Planted::new("planted", Mood::Fine).with_capability();
    let runtime = with_planted(&planted);
    let saxpy = runtime.load(SAXPY).expect("loads");
    // A spot check covers 64 elements, so that every call pays for one many times over.
    let x = vec![2.0f32; 4096];
    let run = || {
        let mut y = vec![1.0f32; 4096];
        let call = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y);
        let report = call.fallback(Fallback::Allow).run().expect("another backend runs it");
        (report, y.iter().all(|&y| y == 5.0))
    };
    for _ in 0..40 {
        assert!(run().1);
        runtime.settle();
    }
    assert_eq!(run().0.backend, "planted", "{}", saxpy.explain(4096));
    planted.set(Mood::Lies);
    let (report, right) = run();
    assert!(right && report.backend == "steady", "{report}");
    assert!(report.refusals.iter().any(|attempt| attempt.backend == "planted"), "{report}");
    (0..20).for_each(|_| assert!(run().1));
}

#[test]
fn without_permission_a_failure_after_launch_is_the_callers() {
    let planted = Planted::new("planted", Mood::Fine).with_capability();
    let runtime = with_planted(&planted);
    let saxpy = runtime.load(SAXPY).expect("loads");
    planted.set(Mood::Fails);
    let (x, mut y) = ([1.0f32; 2], [1.0f32; 2]);
    let error =
        saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).run().expect_err("not retried");
    assert!(matches!(error, BackendError::DispatchFailed { .. }), "{error}");
    // Without read_write buffers nothing can be lost, and the default falls back.
    let copy =
        runtime.load("kernel copy(x: read f32[], z: output f32[]) { z[invocation.x] = x[invocation.x] }");
    let mut z = [0.0f32; 2];
    let report = copy.expect("loads").call().bind("x", &x).bind("z", &mut z).run().expect("falls back");
    assert_eq!((report.backend, report.refusals[0].backend, z), ("steady", "planted", [1.0; 2]));
}

#[test]
fn a_backend_that_is_wrong_for_one_program_is_never_routed_to_for_it() {
    // It is the faster backend, so only its wrong results count against it.
    let liar = Planted::new("a-liar", Mood::LiesFor("victim"));
    let slow = Planted::new("slow", Mood::Fine).with_capability().with_rounds(4);
    let built = Runtime::builder().backends::<String>([]).backend(liar.shared()).backend(slow.shared());
    let runtime = built.without_tables().build().expect("both conform");
    let source = |name: &str| {
        format!("kernel {name}(x: read_write u32[]) {{ x[invocation.x] = x[invocation.x] * 3 + 1 }}")
    };
    for (name, expected) in [("victim", false), ("other", true)] {
        let routine = runtime.load(source(name).as_str()).expect("loads");
        let mut ran = false;
        for _ in 0..150 {
            let mut x = vec![5u32; 2000];
            let report = routine.call().bind("x", &mut x).run().expect("runs");
            runtime.settle();
            ran |= report.backend == "a-liar";
            assert!(x.iter().all(|&value| value == 16), "{name} on {}", report.backend);
        }
        assert_eq!(ran, expected, "{name}: {}", routine.explain(2000));
    }
}

#[test]
fn a_backend_that_slows_down_is_left() {
    let planted = Planted::new("planted", Mood::Fine).with_capability();
    let steady = Planted::new("steady", Mood::Fine).with_rounds(2);
    let built = Runtime::builder().backends::<String>([]).backend(planted.shared()).backend(steady.shared());
    let runtime = built.without_tables().build().expect("both conform");
    let routine = runtime.load("kernel k(x: read_write u32[]) { x[invocation.x] += 1 }").expect("loads");
    let mut x = vec![0u32; 4096];
    let mut run = || {
        let report = routine.call().bind("x", &mut x).run().expect("runs");
        runtime.settle();
        (report.backend, report.why)
    };
    for _ in 0..60 {
        run();
    }
    planted.set_rounds(12);
    // It takes at most 20 calls on a quiet machine, as the simulations show, and longer where other
    // work adds noise.
    let left = (0..500).any(|_| run() == ("steady", Reason::Measured));
    assert!(left, "{}", routine.explain(4096));
}

#[test]
fn a_backend_that_does_not_conform_is_refused_with_its_reason() {
    for mood in [Mood::Fails, Mood::Lies, Mood::Panics] {
        let planted = Planted::new("planted", mood);
        let steady = Planted::new("steady", Mood::Fine);
        let built =
            Runtime::builder().backends::<String>([]).backend(planted.shared()).backend(steady.shared());
        let runtime = built.without_tables().build().expect("one conforms");
        assert_eq!(runtime.backends().collect::<Vec<_>>(), ["steady"]);
        let refused = runtime.refused();
        assert!(
            refused[0].backend == "planted" && refused[0].reason.contains("conformance set"),
            "{refused:?}"
        );
    }
    let alone =
        Runtime::builder().backends::<String>([]).backend(Planted::new("planted", Mood::Lies).shared());
    assert!(alone.without_tables().build().expect_err("none is left").to_string().contains("planted"));
}

#[test]
fn what_is_learnt_serves_the_next_run_and_a_frozen_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || Runtime::builder().backends(["cpu"]).tables_in(folder.path());
    let call = |runtime: &Runtime, elements: usize| {
        let (x, mut y) = (vec![1.0f32; elements], vec![0.0f32; elements]);
        let saxpy = runtime.load(SAXPY).expect("loads");
        saxpy.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y).run()
    };
    let first = build().build().expect("builds");
    for _ in 0..40 {
        call(&first, 1000).expect("runs");
        first.settle();
    }
    drop(first);
    let next = build().build().expect("builds");
    assert_eq!(next.hints()[0].1.dispatch_count, 40);
    let frozen = build().frozen().build().expect("builds");
    let report = call(&frozen, 1000).expect("the table has a row");
    assert_eq!(report.why, Reason::Frozen);
    let error = call(&frozen, 100_000).expect_err("the table has no row");
    assert!(error.to_string().contains("saxpy"), "{error}");
}

#[test]
fn an_explanation_has_text_and_json() {
    let runtime = embedded();
    let saxpy = runtime.load(SAXPY).expect("loads");
    let (x, mut y) = ([1.0f32; 8], [1.0f32; 8]);
    saxpy.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y).run().expect("runs");
    let explanation = saxpy.explain(8);
    let text = explanation.to_string();
    assert!(text.contains("runs on `cpu`") && text.contains("capability"), "{text}");
    assert!(explanation.to_json().contains("\"capability_score\""));
}

#[test]
fn a_runtime_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Runtime>();
    shared::<Routine>();
    shared::<Resident<f32>>();
    shared::<Arc<Report>>();
}

#[test]
fn a_bundle_carries_what_was_learnt_with_its_origin() {
    let (here, there) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let path = here.path().join("tables.bundle");
    let call = |runtime: &Runtime| {
        let mut x = vec![1u32; 5000];
        let routine = runtime.load("kernel k(x: read_write u32[]) { x[invocation.x] += 1 }").expect("loads");
        routine.call().bind("x", &mut x).run()
    };
    let first = Runtime::builder().backends(["cpu"]).tables_in(here.path()).build().expect("builds");
    for _ in 0..40 {
        call(&first).expect("runs");
        first.settle();
    }
    first.export(&path, "build machine").expect("exports");
    let bundle = Bundle::load(&path).expect("a bundle");
    let rows: Vec<&String> = bundle.routes.routes_by_size.keys().collect();
    assert!(matches!(&rows[..], [key] if key.starts_with("k@")), "{rows:?}");
    assert_eq!(bundle.certificates.certificates.len(), 1);
    for folder in [Some(there.path()), None] {
        let builder = Runtime::builder().backends(["cpu"]);
        let builder =
            folder.map_or_else(|| Runtime::builder().without_tables(), |folder| builder.tables_in(folder));
        let frozen =
            builder.backends(["cpu"]).import(&path).expect("a bundle").frozen().build().expect("builds");
        call(&frozen).expect("the bundle has a row for this size");
    }
    let kept = vyre_driver::pgo::PgoTable::load(&there.path().join("pgo.toml")).expect("a table");
    let origins: Vec<&str> =
        kept.routes_by_size.values().flat_map(|rows| rows.values()).map(|row| &*row.origin).collect();
    assert!(!origins.is_empty() && origins.iter().all(|origin| *origin == "build machine"), "{origins:?}");
    let unread = Runtime::builder().import(here.path().join("none")).err();
    assert!(matches!(unread, Some(BackendError::TableFailed { .. })), "{unread:?}");
}

#[test]
fn a_worker_carries_a_bundle_and_says_who_certified_it() {
    let (here, there) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let path = here.path().join("fleet.bundle");
    let text = "kernel k(x: read_write u32[]) { x[invocation.x] += 1 }";
    let call = |runtime: &Runtime| {
        let mut x = vec![1u32; 5000];
        runtime.load(text).expect("loads").call().bind("x", &mut x).run()
    };
    let first = Runtime::builder().backends(["cpu"]).tables_in(here.path()).build().expect("builds");
    for _ in 0..40 {
        call(&first).expect("runs");
        first.settle();
    }
    let other = "kernel other(x: read_write u32[]) { x[invocation.x] += 2 }";
    let [ours, others] = [text, other].map(|text| first.load(text).expect("loads").program().clone());
    first.export_of(&path, "lab", &[others]).expect("exports");
    let none = Bundle::load(&path).expect("a bundle");
    assert!(none.routes.routes_by_size.is_empty() && none.routes.routes.is_empty());
    first.export_of(&path, "lab", &[ours]).expect("exports");
    let mut bundle = Bundle::load(&path).expect("a bundle");
    assert_eq!(bundle.routes.routes_by_size.len(), 1);

    let worker = || Runtime::builder().backends(["cpu"]).tables_in(there.path()).frozen().carry(&path);
    let taken = worker().build().expect("builds");
    call(&taken).expect("the bundle has a row for this size");
    assert_eq!(taken.certified()[0].origin.as_deref(), Some("lab"));
    assert!(!there.path().join("pgo.toml").exists(), "a bundle that is carried is not kept");

    // On another processor the bundle does not apply, and the worker certifies itself.
    std::fs::remove_file(there.path().join("certificates.toml"))
        .expect("the certificate was used, so it is kept");
    bundle.certificates.certificates[0].key.device = "another processor".into();
    bundle.save(&path).expect("saves");
    let misfit = worker().build().expect("builds");
    let said = misfit.certified()[0].to_string();
    let device = misfit.certified()[0].device.clone();
    let why = format!("certified here; \"lab\" certifies it for device another processor, not {device}");
    assert_eq!(said, format!("cpu on {device}: {why}"));

    for damage in ["", "not a table", "[certificates]\n"] {
        std::fs::write(&path, damage).expect("writes");
        assert!(worker().build().is_err(), "{damage:?}");
    }
    std::fs::remove_file(&path).expect("removes");
    let missing = worker().build().map(drop).expect_err("there is no such file").to_string();
    assert!(missing.contains("bundle") && missing.contains("fleet.bundle"), "{missing}");
}

#[test]
fn a_sequence_checks_all_calls_before_the_first_runs() {
    let runtime = embedded();
    let add = runtime
        .load("kernel add(x: read_write u32[], n: u32 uniform) { x[invocation.x] += n }")
        .expect("loads");
    let mut x = [1u32; 4];
    let mut resident = runtime.resident(&[1u32; 4]);
    let refused = runtime
        .sequence()
        .then(add.call().bind("x", &mut x).bind("n", 1u32))
        .then(add.call().bind("x", &mut resident).bind("m", 1u32))
        .run();
    assert!(refused.is_err());
    assert_eq!((x, resident.read().expect("reads")), ([1; 4], vec![1; 4]));
}

#[test]
fn a_batch_gives_every_call_its_own_results() {
    let runtime = embedded();
    let saxpy = runtime.load(SAXPY).expect("loads");
    let other = runtime.load("kernel k(x: read_write u32[]) { x[invocation.x] += 1 }").expect("loads");
    assert!(saxpy.batch().run().expect("there is nothing to do").is_none());
    for (backend, fallback) in
        [(None, Fallback::Warn), (Some("cpu"), Fallback::Allow), (Some("cpu-ref"), Fallback::Forbid)]
    {
        let xs: Vec<Vec<f32>> = (0..9).map(|k| vec![k as f32; 10 + k]).collect();
        let mut ys: Vec<Vec<f32>> = xs.iter().map(|x| vec![1.0; x.len()]).collect();
        let mut batch = saxpy.batch();
        batch.extend(xs.iter().zip(&mut ys).map(|(x, y)| {
            let call = saxpy.call().bind("a", 2.0f32).bind("x", x).bind("y", y).fallback(fallback);
            backend.into_iter().fold(call, |call, backend| call.on(backend))
        }));
        let report = batch.run().expect("runs").expect("a report");
        assert_eq!((report.elements, report.backend), (126, backend.unwrap_or("cpu")));
        for (k, y) in ys.iter().enumerate() {
            assert!(y.iter().all(|&y| y == 2.0 * k as f32 + 1.0), "{k}: {y:?}");
        }
    }
    let (mut resident, mut host) = (runtime.resident(&[1u32; 4]), [5u32; 3]);
    let batch = other.batch().then(other.call().bind("x", &mut resident));
    let batch = batch.then(other.call().bind("x", &mut host));
    assert_eq!(batch.run().expect("runs").map(|report| report.elements), Some(7));
    assert_eq!((resident.read().expect("reads"), host), (vec![2; 4], [6; 3]));
    let (x, mut y, mut z) = ([1.0f32; 2], [1.0f32; 2], [1u32; 2]);
    let good = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y);
    let mixed = saxpy.batch().then(good).then(other.call().bind("x", &mut z)).run();
    assert!(mixed.expect_err("refused").to_string().contains("something else"));
    let good = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y);
    assert!(saxpy.batch().then(good).then(saxpy.call().bind("a", 2.0f32)).run().is_err());
    assert_eq!((y, z), ([1.0; 2], [1; 2]), "nothing runs unless all of it is right");
}

#[test]
fn a_batch_is_repeated_elsewhere_if_its_backend_fails() {
    let planted = Planted::new("planted", Mood::Fine).with_capability();
    let runtime = with_planted(&planted);
    let saxpy = runtime.load(SAXPY).expect("loads");
    let x = [2.0f32; 8];
    let run = |fallback| {
        let (mut one, mut two) = ([1.0f32; 8], [3.0f32; 8]);
        let first = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut one).fallback(fallback);
        let second = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut two);
        let outcome = saxpy.batch().then(first).then(second).run();
        outcome.map(|report| (report.map(|report| report.backend), one[7], two[0]))
    };
    assert_eq!(run(Fallback::Allow).expect("runs"), (Some("planted"), 5.0, 7.0));
    planted.set(Mood::Fails);
    assert_eq!(run(Fallback::Allow).expect("falls back"), (Some("steady"), 5.0, 7.0));
}

/// A minimal executor: polls one future until it is ready, parked in between.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(outcome) => return outcome,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_pending_call_can_be_awaited() {
    let runtime = embedded();
    let saxpy = runtime.load(SAXPY).expect("loads");
    let run = |x: Vec<f32>| {
        let y = vec![1.0f32; x.len()];
        saxpy.start_with((x, y), |call, (x, y)| call.bind("a", 2.0f32).bind("x", &*x).bind("y", y))
    };
    let both = async {
        let (first, second) = (run(vec![1.0; 1000]), run(vec![2.0; 10]));
        (first.await, second.await)
    };
    let (((_, one), first), ((_, two), second)) = block_on(both);
    assert_eq!((one[999], two[9]), (3.0, 5.0));
    assert_eq!(first.expect("runs").elements + second.expect("runs").elements, 1010);
    let (_, refused) = saxpy.start_with((), |call, ()| call.bind("b", 1.0f32)).wait();
    assert!(refused.expect_err("refused").to_string().contains("no buffer `b`"));
    let (x, mut y) = ([3.0f32; 4], [0.0f32; 4]);
    vyre::scope(|scope| {
        let call = saxpy.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y);
        assert_eq!(block_on(call.start(scope)).expect("runs").elements, 4);
    });
    assert_eq!(y, x);
}

#[test]
fn a_pending_call_can_be_cancelled() {
    let runtime = embedded();
    let endless = "kernel endless(x: read_write u32[]) { while x[0] == 0u32 { x[1] = x[1] + 1u32 } }";
    let (endless, saxpy) = (runtime.load(endless).expect("loads"), runtime.load(SAXPY).expect("loads"));
    let minutes = Duration::from_secs(600);
    // Every thread of the pool is busy, so the last call waits, and ends as soon as it is
    // cancelled.
    let running: Vec<_> = (0..8)
        .map(|_| endless.start_with(vec![0u32; 2], move |call, x| call.bind("x", x).timeout(minutes)))
        .collect();
    let waiting = saxpy.start_with((), |call, ()| call);
    waiting.cancel();
    let (_, outcome) = waiting.wait();
    assert!(matches!(outcome, Err(BackendError::Cancelled { .. })), "{outcome:?}");
    // A running call is interrupted, and its memory is returned.
    running.iter().for_each(vyre::Pending::cancel);
    for call in running {
        let (memory, outcome) = call.wait();
        assert_eq!(memory.len(), 2);
        assert!(matches!(outcome, Err(BackendError::Cancelled { .. })), "{outcome:?}");
    }
    // Cancelling does not count against a backend.
    assert!(endless.explain(2).to_string().contains("cpu"));
    let (mut x, mut y) = ([1.0f32; 8], [0.0f32; 8]);
    vyre::scope(|scope| {
        let first = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).start(scope);
        first.wait().expect("runs");
    });
    x[0] = y[0];
    assert_eq!(x[0], 2.0);
}

#[test]
fn a_folder_that_takes_no_tables_is_an_error_of_save() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let runtime = Runtime::builder().backends(["cpu"]).tables_in(file.path()).build().expect("builds");
    let routine = runtime.load(SAXPY).expect("loads");
    let (x, mut y) = ([1.0f32; 8], [0.0f32; 8]);
    routine.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).run().expect("runs");
    let error = runtime.save().expect_err("a file is no folder");
    assert!(matches!(error, BackendError::TableFailed { .. }), "{error}");
}
