//! Tuned shapes and hot recompilation through the runtime: results stay the same, bad code is
//! refused, and winners that fail later are dropped.

use std::sync::Arc;
use vyre::ir::Program;
use vyre::prelude::*;
use vyre_driver::tuner::{Mode, Shape, Tuner, adapter_fingerprint, tuning_key};
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, Schedule, VyreBackend, registry};
use vyre_foundation::text;

const STEPS: &str = "kernel steps(x: read_write u32[]) workgroup 64 { region \"steps\" {
  let i = invocation.x
  let value = x[i]
  for k in 0..64 { value = value * 1664525 + (i * 3 + 7) * (i * 3 + 7) + k }
  x[i] = value
} }";

/// The interpreter, except that code compiled in one way is bad.
struct Sly(fn(&DispatchConfig) -> Badness);

enum Badness {
    None,
    Lies,
    Fails,
}

impl VyreBackend for Sly {
    fn id(&self) -> &'static str {
        "sly"
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { strict_float: true, ..DeviceProfile::conservative("sly") }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let badness = (self.0)(config);
        if let Badness::Fails = badness {
            return Err(BackendError::new("as planted"));
        }
        let plain = DispatchConfig { elements_per_invocation: None, ..config.clone() };
        let mut outputs = registry::acquire("cpu-ref")?.dispatch(program, inputs, &plain)?;
        if let (Badness::Lies, Some(byte)) = (badness, outputs.iter_mut().flatten().next()) {
            *byte ^= 1;
        }
        Ok(outputs)
    }
}

fn expected(x: &[u32], calls: usize) -> Vec<u32> {
    let mut x = x.to_vec();
    for _ in 0..calls {
        for (i, value) in x.iter_mut().enumerate() {
            let term = (i as u32).wrapping_mul(3).wrapping_add(7);
            for k in 0..64 {
                *value = value.wrapping_mul(1664525).wrapping_add(term.wrapping_mul(term)).wrapping_add(k);
            }
        }
    }
    x
}

/// Calls the routine until it is hot.
fn run_hot(runtime: &Runtime, routine: &Routine) -> Vec<String> {
    let start: Vec<u32> = (0..1000).collect();
    let mut x = start.clone();
    let (mut calls, mut time) = (0, std::time::Duration::ZERO);
    while time.as_millis() < 25 || calls < 64 {
        time += routine.call().bind("x", &mut x).run().expect("runs").wall;
        calls += 1;
    }
    // Hotness is checked once per fixed number of calls.
    for _ in 0..64 {
        routine.call().bind("x", &mut x).run().expect("runs");
        calls += 1;
    }
    runtime.settle();
    for _ in 0..10 {
        routine.call().bind("x", &mut x).run().expect("runs");
    }
    assert_eq!(x, expected(&start, calls + 10), "results are the same throughout");
    routine.explain(1000).code
}

#[test]
fn a_hot_routine_is_compiled_again_while_it_runs() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let routine = runtime.load(STEPS).expect("loads");
    let notes = run_hot(&runtime, &routine);
    assert!(notes.iter().any(|note| note.starts_with("cpu: the expensive schedule is")), "{notes:?}");
}

#[test]
fn a_bad_recompilation_is_refused() {
    let lies_when_expensive = |config: &DispatchConfig| match config.schedule {
        Some(Schedule::Expensive) => Badness::Lies,
        Some(Schedule::Off | Schedule::Cheap) | None => Badness::None,
    };
    let runtime = Runtime::builder()
        .backends([] as [&str; 0])
        .backend(Arc::new(Sly(lies_when_expensive)))
        .without_tables()
        .build()
        .expect("the planted backend conforms");
    let routine = runtime.load(STEPS).expect("loads");
    let notes = run_hot(&runtime, &routine);
    let refused = "sly: the expensive schedule is not used: output 0 differs from the default's";
    assert!(notes.iter().any(|note| note == refused), "{notes:?}");
}

/// The work of `n` rounds depends on uniforms; with their values known, most of it is decided at
/// compile time.
const SWITCHED: &str = "kernel switched(mode: u32 uniform, n: u32 uniform, x: read_write u32[]) workgroup 64 { region \"r\" {
  let i = invocation.x
  let value = x[i]
  for k in 0..n {
    if mode == 0 { value = value * 3 + k } else { if mode == 1 { value = value ^ (value >> 3) } else { value = value + 1 } }
  }
  x[i] = value
} }";

fn switched(mode: u32, n: u32, x: &mut [u32]) {
    for value in x {
        for k in 0..n {
            *value = match mode {
                0 => value.wrapping_mul(3).wrapping_add(k),
                1 => *value ^ (*value >> 3),
                _ => value.wrapping_add(1),
            };
        }
    }
}

/// Calls the routine with the same uniforms until it is specialised for them or refused, and
/// returns the notes.
fn run_with_constant_uniforms(runtime: &Runtime, n: u32) -> Vec<String> {
    let routine = runtime.load(SWITCHED).expect("loads");
    let (mut x, mut expected): (Vec<u32>, Vec<u32>) = ((0..512).collect(), (0..512).collect());
    let mut run = |mode: u32, n: u32| {
        routine.call().bind("mode", mode).bind("n", n).bind("x", &mut x).run().expect("runs");
        switched(mode, n, &mut expected);
        assert_eq!(x, expected, "mode {mode}, {n} rounds");
    };
    let decided =
        || routine.explain(512).code.iter().any(|note| note.contains("uniforms that stay the same"));
    for _ in 0..100_000 {
        run(1, n);
        if decided() {
            break;
        }
    }
    runtime.settle();
    // Calls with other values do not use the specialised code, and those with the usual values
    // still do.
    for mode in [0, 2, 1, 0, 1, 3] {
        run(mode, n);
        run(mode, n + 1);
    }
    routine.explain(512).code
}

#[test]
fn uniforms_that_stay_the_same_are_compiled_in_and_other_values_are_noticed() {
    let runtime = Runtime::builder().backends(["cpu"]).without_tables().build().expect("cpu is there");
    let notes = run_with_constant_uniforms(&runtime, 64);
    let note = notes.iter().find(|note| note.contains("code for uniforms that stay the same"));
    assert!(note.is_some_and(|note| note.starts_with("cpu: ")), "{notes:?}");
}

#[test]
fn special_code_that_is_wrong_is_refused() {
    // The specialised program is the one that does not load its uniforms.
    let lies_when_special = Special;
    let runtime = Runtime::builder()
        .backends([] as [&str; 0])
        .backend(Arc::new(lies_when_special))
        .without_tables()
        .build()
        .expect("the planted backend conforms");
    let notes = run_with_constant_uniforms(&runtime, 4);
    let refused =
        "special: code for uniforms that stay the same is not used: output 0 differs from the default's";
    assert!(notes.iter().any(|note| note == refused), "{notes:?}");
}

/// The interpreter, except that it is wrong for `switched` once its uniforms are no longer read.
struct Special;

impl VyreBackend for Special {
    fn id(&self) -> &'static str {
        "special"
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { strict_float: true, ..DeviceProfile::conservative("special") }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let mut outputs = registry::acquire("cpu-ref")?.dispatch(program, inputs, config)?;
        let ours = program.name().is_some_and(|name| **name == *"switched");
        if ours
            && !text::print(program).contains("mode ==")
            && let Some(byte) = outputs[0].first_mut()
        {
            *byte ^= 1;
        }
        Ok(outputs)
    }
}

const WINNER: Shape = Shape { workgroup_size: [256, 1, 1], elements_per_invocation: 1 };

fn runtime_with(folder: &std::path::Path, sly: Sly) -> Runtime {
    Runtime::builder()
        .backends([] as [&str; 0])
        .backend(Arc::new(sly))
        .tables_in(folder)
        .build()
        .expect("the planted backend conforms")
}

/// A folder whose table records the winner's shape as the best for `STEPS` on 1000 elements.
fn tuned_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let program = text::parse(STEPS).expect("parses");
    let kernel = program.validate().expect("is valid");
    let (key, _) = tuning_key(&program, &kernel, &[4000], &DispatchConfig::default()).expect("has a key");
    let profile = Sly(|_| Badness::None).device_profile();
    let tuner = Tuner::in_folder(&folder.path().join("tuner"), &adapter_fingerprint(&profile), Mode::On);
    tuner.record_shape(&key, WINNER);
    tuner.persist().expect("is saved");
    folder
}

#[test]
fn what_an_earlier_run_tuned_is_used_at_that_size() {
    let folder = tuned_folder();
    let runtime = runtime_with(folder.path(), Sly(|_| Badness::None));
    let routine = runtime.load(STEPS).expect("loads");
    let mut x: Vec<u32> = (0..1000).collect();
    let report = routine.call().bind("x", &mut x).run().expect("runs");
    assert_eq!(report.tuned, Some(WINNER));
    assert_eq!(x, expected(&(0..1000).collect::<Vec<_>>(), 1));
    assert!(report.to_string().contains("tuned to 256x1x1"), "{report}");
    let mut other: Vec<u32> = (0..999).collect();
    assert_eq!(routine.call().bind("x", &mut other).run().expect("runs").tuned, None);
}

/// The interpreter; at the winner's size it is faster, and off by a unit in the last place.
struct FastButOff;

impl VyreBackend for FastButOff {
    fn id(&self) -> &'static str {
        "off"
    }

    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile { strict_float: true, ..DeviceProfile::conservative("off") }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let is_winner = config.workgroup_override == Some(WINNER.workgroup_size);
        let plain = DispatchConfig { elements_per_invocation: None, ..config.clone() };
        let interpreter = registry::acquire("cpu-ref")?;
        if !is_winner {
            (0..4).try_for_each(|_| interpreter.dispatch(program, inputs, &plain).map(drop))?;
        }
        let mut outputs = interpreter.dispatch(program, inputs, &plain)?;
        if is_winner {
            outputs.iter_mut().for_each(|output| output[0] ^= 1);
        }
        Ok(outputs)
    }
}

#[test]
fn a_shape_tuned_under_a_budget_does_not_serve_strict_calls() {
    let scale = "kernel scale(x: read_write f32[]) { x[invocation.x] = x[invocation.x] * 1.5 }";
    let folder = tempfile::tempdir().expect("a folder");
    let budget = DispatchConfig { ulp_budget: Some(2), ..DispatchConfig::default() };
    for _process in 0..2 {
        let builder = Runtime::builder().backends([] as [&str; 0]).tables_in(folder.path());
        let runtime = builder.backend(Arc::new(FastButOff)).build().expect("it conforms");
        let (strict, loose) = (runtime.load(scale), runtime.load_with(scale, &budget));
        let (strict, loose) = (strict.expect("loads"), loose.expect("loads"));
        let run = |routine: &Routine| {
            let mut x = [1.0f32; 300];
            let report = routine.call().bind("x", &mut x).tuning(Mode::On).run().expect("runs");
            runtime.settle();
            (report.tuned.map(|shape| shape.workgroup_size), x[0].to_bits())
        };
        for _ in 0..3 {
            run(&loose);
            assert_eq!(run(&strict).1, 1.5f32.to_bits());
        }
        let (tuned, bits) = run(&loose);
        assert_eq!((tuned, bits), (Some(WINNER.workgroup_size), 1.5f32.to_bits() ^ 1));
    }
}

#[test]
fn a_tuned_shape_that_fails_is_left_for_good() {
    let folder = tuned_folder();
    let fails_when_tuned = |config: &DispatchConfig| match config.workgroup_override {
        Some([256, 1, 1]) => Badness::Fails,
        Some(_) | None => Badness::None,
    };
    let runtime = runtime_with(folder.path(), Sly(fails_when_tuned));
    let routine = runtime.load(STEPS).expect("loads");
    let mut x: Vec<u32> = (0..1000).collect();
    routine.call().bind("x", &mut x).run().expect_err("the tuned shape fails");
    let mut x: Vec<u32> = (0..1000).collect();
    let report = routine.call().bind("x", &mut x).run().expect("the default runs");
    assert_eq!(report.tuned, None);
    let notes = routine.explain(1000).code;
    assert!(notes.iter().any(|note| note.contains("256x1x1 is no longer used: as planted")), "{notes:?}");
}

#[test]
fn a_size_is_tuned_in_the_background_when_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime_with(folder.path(), Sly(|_| Badness::None));
    let routine = runtime.load(STEPS).expect("loads");
    let mut x: Vec<u32> = (0..100).collect();
    for _ in 0..3 {
        routine.call().bind("x", &mut x).tuning(Mode::On).run().expect("runs");
    }
    runtime.settle();
    let notes = routine.explain(100).code;
    // If calls take long, hot code and other sizes can have been tried as well.
    let is_outcome = |note: &&String| note.starts_with("sly at 100 elements: ") && !note.contains("resized");
    assert_eq!(notes.iter().filter(is_outcome).count(), 1, "{notes:?}");
    routine.call().bind("x", &mut x).tuning(Mode::On).run().expect("runs");
    assert_eq!(x, expected(&(0..100).collect::<Vec<_>>(), 4));
}

#[test]
fn what_runs_slowly_is_resized_only_after_a_duel_and_never_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime_with(folder.path(), Sly(|_| Badness::None));
    let routine = runtime.load(STEPS).expect("loads");
    // The interpreter processes far less than one element per microsecond, which calls for larger
    // workgroups.
    let mut x: Vec<u32> = (0..200).collect();
    for _ in 0..64 {
        routine.call().bind("x", &mut x).tuning(Mode::On).run().expect("runs");
        runtime.settle();
    }
    assert_eq!(x, expected(&(0..200).collect::<Vec<_>>(), 64));
    let notes = routine.explain(200).code;
    let resizes = notes.iter().filter(|note| note.contains("resized from")).count();
    assert!((1..=4).contains(&resizes), "{notes:?}");
}
