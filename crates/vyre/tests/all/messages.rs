//! Messages that programs print and assert, through the runtime.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use vyre::prelude::*;
use vyre_driver::{DispatchConfig, VyreBackend, messages, pipeline};
use vyre_foundation::text;
use vyre_reference::CpuRef;

/// A backend with only the required methods, which counts its dispatches.
#[derive(Default)]
struct Foreign {
    dispatches: AtomicUsize,
}

impl VyreBackend for Foreign {
    fn id(&self) -> &'static str {
        "foreign"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.dispatches.fetch_add(1, Relaxed);
        CpuRef.dispatch(program, inputs, config)
    }
}

fn runtime() -> Runtime {
    Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is linked")
}

fn texts(report: &Report) -> Vec<&str> {
    report.prints().messages.iter().map(|message| &*message.text).collect()
}

#[test]
fn every_path_of_a_call_prints() {
    let runtime = runtime();
    let text = "kernel twice(x: read u32[], y: read_write u32[]) {
        let i = invocation.x
        y[i] = 2 * x[i]
        print(\"{} -> {}\", i, y[i])
    }";
    let twice = runtime.load(text).expect("loads");
    let expected = ["0 -> 6", "1 -> 8"];
    let (x, mut y) = ([3_u32, 4], [0_u32; 2]);
    for backend in ["cpu", "cpu-ref"] {
        let report = twice.call().bind("x", &x).bind("y", &mut y).on(backend).run().expect("runs");
        assert_eq!((texts(&report), report.prints().complete), (expected.to_vec(), true), "{backend}");
    }
    let limited = twice.call().bind("x", &x).bind("y", &mut y).timeout(std::time::Duration::from_secs(60));
    assert_eq!(texts(&limited.run().expect("runs")), expected);
    let (resident, mut out) = (runtime.resident(&x), runtime.resident(&[0_u32; 2]));
    let report = twice.call().bind("x", &resident).bind("y", &mut out).run().expect("runs");
    assert_eq!((texts(&report), out.read().expect("read")), (expected.to_vec(), vec![6, 8]));
    let mut rows = [[0_u32; 2]; 2];
    let mut batch = twice.batch();
    batch.extend(rows.iter_mut().map(|row| twice.call().bind("x", &x).bind("y", row)));
    let report = batch.run().expect("runs").expect("two calls");
    assert_eq!(texts(&report), [expected, expected].concat());
}

#[test]
fn all_messages_are_reported_where_a_call_can_run_again() {
    let runtime = runtime();
    let check = |text: &str, fallback: Fallback, complete: bool| {
        let routine = runtime.load(text).expect("loads");
        let mut y = vec![1_u32; 5000];
        let report = routine.call().bind("y", &mut y).fallback(fallback).run().expect("runs");
        assert_eq!(report.prints().complete, complete, "{text}");
        assert_eq!(y[4999], 2, "{text}");
        let kept = texts(&report);
        if complete {
            let expected: Vec<String> = (0..5000).map(|i| format!("{i}: {}", i * i)).collect();
            assert_eq!(kept, expected, "{text}");
        } else {
            assert_eq!(kept.len(), 1024, "{text}");
        }
    };
    let print = "print(\"{}: {}\", i, i * i)";
    let written = format!("kernel w(y: output u32[5000]) {{ let i = invocation.x {print} y[i] = 2 }}");
    let written = written.replace(" print", "; print").replace(") y[i]", "); y[i]");
    let stored = written.replace("output u32[5000]", "read_write u32[]");
    let updated = stored.replace("y[i] = 2", "y[i] += 1");
    check(&written, Fallback::Forbid, true);
    check(&stored, Fallback::Forbid, true);
    check(&updated, Fallback::Forbid, false);
    check(&updated, Fallback::Allow, true);
}

#[test]
fn a_failed_assert_reports_the_lowest_invocation_and_the_number_of_failures() {
    let runtime = runtime();
    let text = "kernel half(x: read u32[], y: output u32[]) over y {\n  let i = invocation.x\n  \
        assert(x[i] % 2 == 0, \"{} is odd\", x[i])\n  y[i] = x[i] / 2\n}";
    let half = runtime.load(text).expect("loads");
    let x: Vec<u32> = (0..100_000).map(|i| if i < 5 { 0 } else { i }).collect();
    let mut y = vec![0_u32; x.len()];
    for backend in ["cpu", "cpu-ref"] {
        let error = half.call().bind("x", &x).bind("y", &mut y).on(backend).run().expect_err("odd numbers");
        assert_eq!(
            error.to_string(),
            "kernel `half`: assert failed at 3:3 in invocation (5, 0, 0): 5 is odd (49998 asserts failed)"
        );
        assert_eq!(error.code(), 13);
    }
    let report = half.call().bind("x", &x).bind("y", &mut y).asserts(false).run().expect("no asserts");
    assert_eq!((y[99_999], texts(&report).len()), (49_999, 0));
    let unchecked = DispatchConfig { asserts: Some(false), ..DispatchConfig::default() };
    let half = runtime.load_with(text, &unchecked).expect("loads");
    half.call().bind("x", &x).bind("y", &mut y).run().expect("no asserts");
    half.call().bind("x", &x).bind("y", &mut y).asserts(true).run().expect_err("asserts again");
}

#[test]
fn a_backend_of_two_methods_prints_and_what_vyre_runs_for_itself_does_not() {
    let foreign = Arc::new(Foreign::default());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let runtime = Runtime::builder()
        .backends(["cpu"])
        .backend(foreign.clone())
        .without_tables()
        .tuning(vyre::tuner::Mode::On)
        .on_print(move |message| hears.lock().expect("no panic").push(message.text.clone()))
        .build()
        .expect("both conform");
    let text = "kernel k(x: read u32[], y: output u32[]) { let i = invocation.x; y[i] = x[i] + 1; \
        assert(y[i] > 1, \"never\"); print(\"{}\", y[i]) }";
    let routine = runtime.load(text).expect("loads");
    let before = foreign.dispatches.load(Relaxed);
    let (x, mut y) = ([7_u32, 8], [0_u32; 2]);
    for _ in 0..40 {
        routine.call().bind("x", &x).bind("y", &mut y).run().expect("runs");
        runtime.settle();
    }
    assert!(foreign.dispatches.load(Relaxed) > before, "it was verified");
    assert_eq!(*heard.lock().expect("no panic"), ["8", "9"].repeat(40));
    let report = routine.call().bind("x", &x).bind("y", &mut y).on("foreign").run().expect("runs");
    assert_eq!((texts(&report), report.backend, y), (vec!["8", "9"], "foreign", [8, 9]));
}

#[test]
fn a_pipeline_keeps_inputs_and_outputs_and_names_the_programs_own_buffers() {
    let program = text::parse(
        "kernel k(@binding(4294967295) x: read u32[], @binding(7) y: read_write u32[]) over x { region \"r\" {
            print(\"{}\", x[invocation.x])
            y[invocation.x] += x[invocation.x]
        } }",
    )
    .expect("parses");
    let config = DispatchConfig { max_output_bytes: Some(8), ..DispatchConfig::default() };
    let pipeline = pipeline::compile(Arc::new(CpuRef), &program, &config).expect("compiles");
    let bytes = |numbers: [u32; 2]| numbers.map(u32::to_le_bytes).concat();
    let inputs = [bytes([10, 20]), bytes([1, 2])];
    let (outputs, prints) = messages::listen(|| pipeline.dispatch(&inputs, &DispatchConfig::default()));
    assert_eq!(outputs.expect("runs"), [bytes([11, 22])]);
    assert_eq!(prints.messages.len(), 2);
    let quiet = messages::quietly(|| messages::listen(|| ()).1);
    assert!(quiet.messages.is_empty());
    let error = pipeline.dispatch(&inputs[..1], &config).expect_err("an input is missing").to_string();
    assert!(error.contains("D001") && !error.contains("messages"), "{error}");
}
