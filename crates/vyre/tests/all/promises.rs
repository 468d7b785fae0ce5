//! Guarantees of the runtime, tested with misbehaving backends and unusual callers.

use crate::planted::{Mood, Planted};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre::Call;
use vyre::catalogue::scan::{ScanKind, scan};
use vyre::catalogue::sort::{self, Key};
use vyre::prelude::*;
use vyre_driver::VyreBackend;
use vyre_driver::pgo::PgoTable;

const COPY: &str = "kernel copy(x: read u32[], y: output u32[]) { y[invocation.x] = x[invocation.x] }";
const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) {
  let i = invocation.x
  y[i] = a * x[i] + y[i]
}";

/// A runtime over only these backends, the first one selected.
fn over(backends: &[&Planted]) -> Runtime {
    let builder = Runtime::builder().backends::<String>([]).without_tables();
    let add = |builder: vyre::RuntimeBuilder, planted: &&Planted| builder.backend(planted.shared());
    backends.iter().fold(builder, add).build().expect("all conform")
}

fn standing(explained: &vyre::Explanation, backend: &str) -> (String, Option<String>) {
    let candidates = &explained.route.candidates;
    let found = candidates.iter().find(|candidate| candidate.backend == backend).expect("a candidate");
    (found.standing.to_owned(), found.refused.clone())
}

#[test]
fn a_call_over_nothing_verifies_nothing() {
    let selected = Planted::new("selected", Mood::Fine).with_capability();
    let other = Planted::new("other", Mood::Fine);
    let runtime = over(&[&selected, &other]);
    other.set(Mood::Idles);
    let copy = runtime.load(COPY).expect("loads");
    for _ in 0..20 {
        copy.call().bind("x", &[0u32; 0]).bind("y", &mut [0u32; 0]).run().expect("runs");
        runtime.settle();
    }
    assert_ne!(standing(&copy.explain(0), "other").0, "verified");
    // Zeros cannot reveal that a backend did nothing either, so other data is generated.
    for _ in 0..20 {
        let mut y = [7u32; 100];
        copy.call().bind("x", &[0u32; 100]).bind("y", &mut y).run().expect("runs");
        runtime.settle();
        assert_eq!(y, [0; 100]);
    }
    assert_eq!(standing(&copy.explain(100), "other").0, "wrong", "{}", copy.explain(100));
}

/// Numbers for which a wrong copy shows.
fn numbers() -> Vec<u32> {
    (1..=500).collect()
}

fn copied(copy: &Routine) -> (Result<Report, BackendError>, bool) {
    let mut y = vec![0u32; 500];
    let report = copy.call().bind("x", &numbers()).bind("y", &mut y).run();
    (report, y == numbers())
}

#[test]
fn a_backend_that_lies_from_the_second_call_on_is_found_within_32_calls() {
    let liar = Planted::new("liar", Mood::Fine).with_capability();
    let steady = Planted::new("steady", Mood::Fine).with_rounds(4);
    let runtime = over(&[&liar, &steady]);
    let copy = runtime.load(COPY).expect("loads");
    assert!(copied(&copy).1);
    liar.set(Mood::Lies);
    let mut wrong = 0;
    for _ in 0..200 {
        let (report, right) = copied(&copy);
        report.expect("some backend runs it");
        runtime.settle();
        wrong += usize::from(!right);
    }
    assert!(wrong <= 32, "{wrong} wrong results");
}

#[test]
fn a_backend_that_was_found_wrong_is_never_used_again() {
    let liar = Planted::new("liar", Mood::LiesFor("copy")).with_capability();
    let steady = Planted::new("steady", Mood::Fine);
    let runtime = over(&[&liar, &steady]);
    let copy = runtime.load(COPY).expect("loads");
    for _ in 0..60 {
        let _ = copied(&copy);
        runtime.settle();
    }
    assert_eq!(standing(&copy.explain(500), "liar").0, "wrong");
    // Nothing else is left now, and the liar also fails: neither makes it a last resort.
    steady.set(Mood::Fails);
    for mood in [Mood::Fails, Mood::LiesFor("copy"), Mood::LosesDevice, Mood::LiesFor("copy")] {
        liar.set(mood);
        for fallback in [Fallback::Forbid, Fallback::Warn, Fallback::Allow] {
            for _ in 0..5 {
                let (x, mut y) = (numbers(), vec![0u32; 500]);
                let call = copy.call().bind("x", &x).bind("y", &mut y).fallback(fallback);
                call.run().expect_err("neither may run it");
                let mut z = vec![0u32; 500];
                let batch = copy.batch().then(copy.call().bind("x", &x).bind("y", &mut y).fallback(fallback));
                let batch = batch.then(copy.call().bind("x", &x).bind("y", &mut z));
                batch.run().expect_err("nor a batch of it");
            }
        }
    }
}

#[test]
fn a_named_backend_that_was_found_wrong_gives_way_if_the_caller_allows_another() {
    let liar = Planted::new("liar", Mood::LiesFor("copy")).with_capability();
    let steady = Planted::new("steady", Mood::Fine);
    let runtime = over(&[&liar, &steady]);
    let copy = runtime.load(COPY).expect("loads");
    for _ in 0..60 {
        let _ = copied(&copy);
        runtime.settle();
    }
    assert_eq!(standing(&copy.explain(500), "liar").0, "wrong");
    let run = |fallback: Option<Fallback>| {
        let (x, mut y) = (numbers(), vec![0u32; 500]);
        let call = copy.call().bind("x", &x).bind("y", &mut y).on("liar");
        let report = fallback.into_iter().fold(call, Call::fallback).run();
        report.inspect(|_| assert_eq!(y, x))
    };
    for fallback in [Fallback::Warn, Fallback::Allow] {
        let report = run(Some(fallback)).expect("another backend runs it");
        assert_eq!(report.backend, "steady");
        assert!(report.to_string().contains("`liar` could not"), "{report}");
    }
    for fallback in [None, Some(Fallback::Forbid)] {
        let error = run(fallback).expect_err("only that backend was allowed").to_string();
        assert!(error.contains("its results were wrong"), "{error}");
    }
}

#[test]
fn nothing_that_a_caller_does_wrong_speaks_against_a_backend() {
    let only = Planted::new("only", Mood::Fine).with_rounds(50);
    let runtime = over(&[&only]);
    let saxpy = runtime.load(SAXPY).expect("loads");
    let x = vec![1.0f32; 4096];
    let run = |limit: Option<Duration>| {
        let mut y = vec![0.0f32; 4096];
        let call = saxpy.call().bind("a", 1.0f32).bind("x", &x).bind("y", &mut y);
        limit.into_iter().fold(call, Call::timeout).run()
    };
    run(None).expect("runs");
    only.set(Mood::Hangs);
    for _ in 0..3 {
        let error = run(Some(Duration::from_millis(5))).expect_err("it hangs");
        assert!(matches!(error, BackendError::Timeout { .. }), "{error}");
    }
    only.set(Mood::Fine);
    run(None).expect("the backend is not blamed for a caller's deadline");
    let mut resident = runtime.resident(&x);
    let cell = resident.cell();
    for _ in 0..3 {
        let twice = saxpy.call().bind("a", 1.0f32).bind("x", cell).bind("y", cell).run();
        let Err(BackendError::InvalidProgram { .. }) = twice else { panic!("{twice:?}") };
    }
    assert_eq!(standing(&saxpy.explain(4096), "only").1, None);
}

#[test]
fn one_callers_deadline_does_not_put_off_a_check_that_others_need() {
    let broken = Planted::new("broken", Mood::Fine).with_capability();
    let steady = Planted::new("steady", Mood::Fine).with_rounds(100);
    let runtime = over(&[&broken, &steady]);
    let copy = runtime.load(COPY).expect("loads");
    broken.set(Mood::Fails);
    let (x, mut y) = (numbers(), vec![0u32; 500]);
    let call = copy.call().bind("x", &x).bind("y", &mut y).timeout(Duration::from_millis(10));
    let error = call.run().expect_err("there is no time to check the other backend");
    assert!(matches!(error, BackendError::Timeout { .. }), "{error}");
    let (report, right) = copied(&copy);
    assert_eq!((report.expect("there is time now").backend, right), ("steady", true));
}

#[test]
fn the_only_backend_is_tried_again_after_its_quarantine() {
    let only = Planted::new("only", Mood::Fine);
    let runtime = over(&[&only]);
    let copy = runtime.load(COPY).expect("loads");
    assert!(copied(&copy).1);
    for mood in [Mood::Fails, Mood::Panics, Mood::LosesDevice] {
        only.set(mood);
        copied(&copy).0.expect_err("it fails");
        only.set(Mood::Fine);
        let began = Instant::now();
        // Quarantines double with each strike: one, two and four seconds here.
        while !copied(&copy).1 {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", copy.explain(500));
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_was_verified_under_a_budget_does_not_serve_strict_calls() {
    let strict = Planted::new("strict", Mood::Fine).with_capability().with_rounds(8);
    let off = Planted::new("off", Mood::Fine);
    let folder = tempfile::tempdir().expect("a folder");
    for _process in 0..2 {
        let builder = Runtime::builder().backends::<String>([]).tables_in(folder.path());
        let runtime = builder.backend(strict.shared()).backend(Arc::new(OffByOne(off.clone()))).build();
        let runtime = runtime.expect("both conform");
        let saxpy = runtime.load(SAXPY).expect("loads");
        let budget = DispatchConfig { ulp_budget: Some(2), ..DispatchConfig::default() };
        let loose = runtime.load_with(SAXPY, &budget).expect("loads");
        let run = |routine: &Routine, config: &DispatchConfig| {
            let (x, mut y) = (vec![1.5f32; 600], vec![0.25f32; 600]);
            let call = routine.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y).config(config);
            (call.run().expect("runs").backend, y[599].to_bits())
        };
        let mut loosely = Vec::new();
        for _ in 0..150 {
            assert_eq!(run(&saxpy, &DispatchConfig::default()), ("strict", 3.25f32.to_bits()));
            loosely.push(run(&loose, &DispatchConfig::default()).0);
            loosely.push(run(&saxpy, &budget).0);
            runtime.settle();
        }
        assert!(loosely.contains(&"off"), "{}", loose.explain(600));
    }
}

/// Conforms, except that the results of `saxpy` are off by one unit in the last place.
struct OffByOne(Planted);

impl VyreBackend for OffByOne {
    fn id(&self) -> &'static str {
        "off"
    }
    fn device_profile(&self) -> vyre::DeviceProfile {
        vyre::DeviceProfile { backend: "off", ..self.0.device_profile() }
    }
    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let mut outputs = self.0.dispatch(program, inputs, config)?;
        if program.name().is_some_and(|name| **name == *"saxpy") {
            outputs.iter_mut().for_each(|output| output.chunks_exact_mut(4).for_each(|bits| bits[0] ^= 1));
        }
        Ok(outputs)
    }
}

#[test]
fn a_device_that_is_not_strict_is_judged_by_its_bounds_in_every_program() {
    let strict = Planted::new("strict", Mood::Fine).with_capability().with_rounds(8);
    let loose = Planted::contracting("loose");
    let runtime = over(&[&strict, &loose]);
    let saxpy = runtime.load(SAXPY).expect("loads");
    let mut ran = Vec::new();
    for _ in 0..150 {
        let (x, mut y) = (vec![1.5f32; 600], vec![0.25f32; 600]);
        let call = saxpy.call().bind("a", 2.0f32).bind("x", &x).bind("y", &mut y);
        ran.push(call.run().expect("runs").backend);
        runtime.settle();
    }
    assert!(ran.contains(&"loose"), "{}", saxpy.explain(600));
    // Integers have no tolerance: results have to match bit for bit.
    let copy = runtime.load(COPY).expect("loads");
    (0..40).for_each(|_| assert!(copied(&copy).1));
}

#[test]
fn a_timeout_is_not_kept_as_a_rejection() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = |planted: &Planted, other: &Planted| {
        let builder = Runtime::builder().backends::<String>([]).tables_in(folder.path());
        builder.backend(planted.shared()).backend(other.shared()).build().expect("both conform")
    };
    let (fine, failing) =
        (Planted::new("fine", Mood::Fine).with_capability(), Planted::new("failing", Mood::Fine));
    {
        let runtime = build(&fine, &failing);
        failing.set(Mood::Fails);
        let copy = runtime.load(COPY).expect("loads");
        for _ in 0..40 {
            assert!(copied(&copy).1);
            runtime.settle();
        }
    }
    let table = PgoTable::load(&folder.path().join("pgo.toml")).expect("a table");
    let rows = table.routes.values().chain(table.routes_by_size.values().flat_map(|rows| rows.values()));
    let rejected: Vec<_> = rows.flat_map(|row| &row.rejected).collect();
    assert!(rejected.is_empty(), "{rejected:?}");
}

#[test]
fn under_allow_a_caller_waits_no_longer_than_its_limit_for_a_check() {
    let planted = Planted::new("planted", Mood::Fine).with_capability();
    let steady = Planted::new("steady", Mood::Fine).with_rounds(6);
    let runtime = over(&[&planted, &steady]);
    let copy = runtime.load(COPY).expect("loads");
    let x = vec![7u32; 6000];
    let run = |limit: Duration| {
        let mut y = vec![0u32; 6000];
        let call = copy.call().bind("x", &x).bind("y", &mut y).fallback(Fallback::Allow).timeout(limit);
        let began = Instant::now();
        (call.run().map(drop), began.elapsed())
    };
    for _ in 0..40 {
        run(Duration::from_secs(60)).0.expect("runs");
        runtime.settle();
    }
    // Checks use fewer elements than the call; from now on they wait for their whole deadline.
    planted.set(Mood::HangsBelow(4 * 6000));
    for _ in 0..20 {
        let (_, took) = run(Duration::from_secs(2));
        assert!(took < Duration::from_secs(20), "a call with a limit of 2 s took {took:?}");
    }
}

#[test]
fn ops_have_what_programs_have() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device)).expect("loads");
    let wrong = sort.call(3).bind("keys", &[2.0f32, 3.0, -1.0]).bind("sorted", &mut [0u32; 3]).run();
    let fault = wrong.expect_err("floats are no u32").to_string();
    assert!(fault.contains("buffer `keys` of op `sort.keys` has elements of u32, not f32"), "{fault}");

    let (keys, mut sorted) = (runtime.resident(&[3u32, 1, 2]), runtime.resident(&[0u32; 3]));
    sort.call(3).bind("keys", &keys).bind("sorted", &mut sorted).run().expect("runs on resident buffers");
    assert_eq!(sorted.read().expect("reads"), [1, 2, 3]);

    let sums = runtime.load_op(|size, device| scan(ScanKind::Inclusive, DataType::U32, size, device));
    let sums = sums.expect("loads");
    let mut running = runtime.resident(&[0u32; 3]);
    let cell = sorted.cell();
    let sequence = runtime.sequence().then(sort.call(3).bind("keys", &keys).bind("sorted", cell));
    let reports = sequence.then(sums.call(3).bind("x", cell).bind("y", &mut running)).run().expect("runs");
    assert_eq!((reports.len(), running.read().expect("reads")), (2, vec![1, 3, 6]));

    let inputs = [vec![9u32, 8], vec![5, 7]];
    let mut outputs = [vec![0u32; 2], vec![0; 2]];
    let mut batch = sort.batch();
    let calls = inputs.iter().zip(&mut outputs);
    batch.extend(calls.map(|(keys, sorted)| sort.call(2).bind("keys", keys).bind("sorted", sorted)));
    batch.run().expect("runs");
    assert_eq!(outputs, [vec![8, 9], vec![5, 7]]);

    let hints = runtime.hints();
    let calls =
        |op: &str| hints.iter().find(|(key, _)| key.starts_with(op)).map(|(_, record)| record.dispatch_count);
    assert_eq!((calls("sort.keys@"), calls("scan.inclusive@")), (Some(4), Some(1)), "{hints:?}");
    let report = sort
        .call(3)
        .bind("keys", &keys)
        .bind("sorted", &mut sorted)
        .config(&DispatchConfig { schedule: Some(vyre::Schedule::Cheap), ..DispatchConfig::default() });
    report.run().expect("a call of an op takes a configuration");
}

#[test]
fn the_lengths_of_an_ops_buffers_are_checked_wherever_they_are() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device)).expect("loads");
    let refused = |keys: usize, sorted: usize| {
        let (keys, mut sorted) = (vec![7u32; keys], vec![9u32; sorted]);
        let (there, mut out) = (runtime.resident(&keys), runtime.resident(&sorted));
        let resident = sort.call(4).bind("keys", &there).bind("sorted", &mut out).run().err();
        assert_eq!(out.read().expect("reads"), sorted, "nothing was written");
        let host = sort.call(4).bind("keys", &keys).bind("sorted", &mut sorted).run().err();
        let [resident, host] = [resident, host].map(|error| error.map(|error| error.to_string()));
        assert_eq!(resident, host);
        host.unwrap_or_default()
    };
    assert!(refused(3, 4).contains("buffer `keys` of op `sort.keys` takes 16 bytes at this size, not 12"));
    assert!(refused(4, 5).contains("buffer `sorted` of op `sort.keys` takes 16 bytes at this size, not 20"));
    let (few, many, mut a, mut b) = ([2u32, 1], [5u32, 4, 3], [0u32; 2], [0u32; 3]);
    let batch = sort.batch().then(sort.call(2).bind("keys", &few).bind("sorted", &mut a));
    let error = batch.then(sort.call(3).bind("keys", &many).bind("sorted", &mut b)).run();
    let error = error.expect_err("a batch has one size").to_string();
    assert!(error.contains("calls at sizes 2 and 3; use a sequence"), "{error}");
    assert_eq!((a, b), ([0; 2], [0; 3]), "every call is checked before anything runs");
}

#[test]
fn ops_of_different_types_are_known_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let builder = Runtime::builder().backends(["cpu"]).tables_in(folder.path());
        let runtime = builder.build().expect("cpu is there");
        let words = runtime.load_op(|size, device| sort::keys(Key::U32, size, device)).expect("loads");
        let floats = runtime.load_op(|size, device| sort::keys(Key::F32, size, device)).expect("loads");
        for _ in 0..40 {
            words.call(3).bind("keys", &[3u32, 1, 2]).bind("sorted", &mut [0u32; 3]).run().expect("runs");
            floats.call(3).bind("keys", &[3f32, 1., 2.]).bind("sorted", &mut [0f32; 3]).run().expect("runs");
            runtime.settle();
        }
    }
    let table = PgoTable::load(&folder.path().join("pgo.toml")).expect("a table");
    let rows: Vec<&String> = table.routes_by_size.keys().filter(|key| key.contains("sort.keys")).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
}

#[test]
fn hints_of_earlier_runs_decide_the_first_schedule() {
    let folder = tempfile::tempdir().expect("a folder");
    let watching = Arc::new(Watching::default());
    let first_schedule = || {
        let builder = Runtime::builder().backends::<String>([]).tables_in(folder.path());
        let runtime = builder.backend(watching.clone()).build().expect("conforms");
        let copy = runtime.load(COPY).expect("loads");
        watching.schedules.lock().expect("lock").clear();
        assert!(copied(&copy).1);
        let first = watching.schedules.lock().expect("lock").first().copied().flatten();
        // A total of twenty milliseconds makes a region hot.
        let mut time = Duration::ZERO;
        while time < Duration::from_millis(25) {
            time += copied(&copy).0.expect("runs").wall;
        }
        runtime.settle();
        first
    };
    use vyre::Schedule;
    assert_eq!(first_schedule(), Some(Schedule::Cheap));
    assert_eq!(first_schedule(), Some(Schedule::Expensive));
}

/// The interpreter, recording the way in which it was asked to compile.
#[derive(Default)]
struct Watching {
    schedules: std::sync::Mutex<Vec<Option<vyre::Schedule>>>,
}

impl VyreBackend for Watching {
    fn id(&self) -> &'static str {
        "watching"
    }
    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        vyre_driver::registry::acquire("cpu-ref")?.dispatch(program, inputs, config)
    }
    fn compile_native(
        &self,
        _: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn vyre_driver::CompiledPipeline>>, BackendError> {
        self.schedules.lock().expect("lock").push(config.schedule);
        Ok(None)
    }
}

#[test]
fn kinds_of_use_are_measured_apart() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let kind = |name: &str| DispatchConfig { profile: Some(name.into()), ..DispatchConfig::default() };
    let batch = runtime.load_with(COPY, &kind("nightly batch")).expect("loads");
    let live = runtime.load(COPY).expect("loads");
    (0..10).for_each(|_| assert!(copied(&batch).1));
    assert_eq!((batch.explain(500).route.calls, live.explain(500).route.calls), (10, 0));
}
