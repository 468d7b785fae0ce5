//! Tuning real pipelines of a toy backend: the shapes that are tried, the memory used, and the
//! handling of winners that fail.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use vyre_driver::tuner::{CandidateSamples, Mode, Shape, TuneLimits, TuneRequest, Tuner, tune, tuning_key};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceProfile, DispatchConfig, OutputBuffers, VyreBackend,
};
use vyre_foundation::ir::Program;
use vyre_foundation::text;

/// Adds one to every byte and records the shapes it is asked for. Returns wrong results at one
/// workgroup size.
struct Adder {
    profile: DeviceProfile,
    lies_at: u32,
    asked: Arc<Mutex<Vec<Shape>>>,
}

struct AdderPipeline {
    lies: bool,
}

impl VyreBackend for Adder {
    fn id(&self) -> &'static str {
        "adder"
    }

    fn dispatch(
        &self,
        _: &Program,
        _: &[Vec<u8>],
        _: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        Err(BackendError::new("only its pipelines run"))
    }

    fn device_profile(&self) -> DeviceProfile {
        self.profile
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let kernel = program.validate()?;
        let shape = Shape::of(&kernel, config);
        self.asked.lock().unwrap().push(shape);
        Ok(Some(Arc::new(AdderPipeline { lies: shape.workgroup_size[0] == self.lies_at })))
    }
}

impl CompiledPipeline for AdderPipeline {
    fn id(&self) -> &str {
        "adder"
    }

    fn dispatch(&self, _: &[Vec<u8>], _: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        Err(BackendError::new("runs in place only"))
    }

    fn dispatch_bound(&self, bindings: &mut [Binding<'_>], _: &DispatchConfig) -> Result<(), BackendError> {
        for binding in bindings {
            if let Binding::ReadWrite(bytes) = binding {
                bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                if let Some(first) = bytes.first_mut().filter(|_| self.lies) {
                    *first ^= 1;
                }
            }
        }
        Ok(())
    }
}

const SOURCE: &str = "kernel add(x: read_write u8[]) workgroup 64 { region \"add\" { \
     x[invocation.x] = x[invocation.x] + 1 } }";

fn program() -> Program {
    text::parse(SOURCE).unwrap()
}

fn adder(profile: DeviceProfile) -> (Arc<dyn VyreBackend>, Arc<Mutex<Vec<Shape>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    (Arc::new(Adder { profile, lies_at: 128, asked: asked.clone() }), asked)
}

#[test]
fn candidates_are_within_limits_checked_and_run_on_copies() {
    let profile = DeviceProfile {
        max_workgroup_size: [256, 1, 1],
        max_workgroups_per_dimension: 100,
        ..DeviceProfile::conservative("adder")
    };
    let (backend, asked) = adder(profile);
    let (program, config) = (program(), DispatchConfig::default());
    let input = vec![7u8; 12_800];
    let tuner = Tuner::in_memory(Mode::On);
    let request = TuneRequest {
        backend,
        program: &program,
        config: &config,
        inputs: &[&input],
        limits: TuneLimits::default(),
        pause: None,
    };
    let mut stages = Vec::new();
    let report = tune(&tuner, &request, &mut |progress| stages.push(progress.stage)).unwrap();
    assert!(input.iter().all(|&byte| byte == 7), "the caller's memory is not touched");
    assert!(stages.len() > 10);
    // 12,800 elements in at most 100 groups need at least 128 elements per group; the default of 64
    // exceeds the limit.
    for shape in &asked.lock().unwrap()[1..] {
        assert!(shape.workgroup_size[0] * shape.elements_per_invocation >= 128, "{shape}");
        assert!(shape.workgroup_size[0] <= 256);
    }
    let liars: Vec<&str> = report
        .candidates
        .iter()
        .filter(|candidate| candidate.failed.is_some())
        .map(|candidate| candidate.name.as_str())
        .collect();
    assert_eq!(liars, ["128x1x1", "128x1x1 by 2", "128x1x1 by 4", "128x1x1 by 8"], "{report}");
    assert_ne!(report.shape().unwrap().workgroup_size[0], 128);
    let kernel = program.validate().unwrap();
    let (key, _) = tuning_key(&program, &kernel, &[input.len()], &DispatchConfig::default()).unwrap();
    assert!(tuner.has_decided(&key));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["key"], key.as_str());
}

#[test]
fn a_kernel_with_a_fixed_shape_keeps_it_and_failures_are_not_retried() {
    let (config, input) = (DispatchConfig::default(), vec![7u8; 12_800]);
    let tuner = Tuner::in_memory(Mode::On);
    let asked_for = |source: &str| {
        let (backend, asked) = adder(DeviceProfile::conservative("adder"));
        let program = text::parse(source).unwrap();
        let limits = TuneLimits::default();
        let request = TuneRequest {
            backend,
            program: &program,
            config: &config,
            inputs: &[&input],
            limits,
            pause: None,
        };
        tune(&tuner, &request, &mut |_| {}).unwrap();
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        asked.dedup();
        asked
    };
    let own = "kernel own(x: read_write u8[]) workgroup 64 { region \"own\" { \
         x[invocation.x] = local.x } }";
    assert_eq!(asked_for(own).len(), 1);
    let failed = Shape { workgroup_size: [256, 1, 1], elements_per_invocation: 2 };
    let (key, _) =
        tuning_key(&program(), &program().validate().unwrap(), &[input.len()], &DispatchConfig::default())
            .unwrap();
    tuner.quarantine(&key, failed, "it failed");
    let asked = asked_for(SOURCE);
    assert_eq!((asked.len(), asked.contains(&failed)), (23, false));
}

/// A runtime that tunes alongside its calls can stop at any run: then nothing is decided, and no
/// candidate is blamed.
#[test]
fn tuning_that_is_ended_decides_nothing() {
    let (program, config, input) = (program(), DispatchConfig::default(), vec![7u8; 12_800]);
    let (key, _) =
        tuning_key(&program, &program.validate().unwrap(), &[input.len()], &DispatchConfig::default())
            .unwrap();
    for last in [1, 2, 5, 30] {
        let (backend, _) = adder(DeviceProfile::conservative("adder"));
        let runs = Cell::new(0);
        let pause = |_| {
            runs.set(runs.get() + 1);
            if runs.get() < last { Ok(()) } else { Err("the end".to_owned()) }
        };
        let request = TuneRequest {
            backend,
            program: &program,
            config: &config,
            inputs: &[&input],
            limits: TuneLimits::default(),
            pause: Some(&pause),
        };
        let tuner = Tuner::in_memory(Mode::On);
        let report = tune(&tuner, &request, &mut |_| {}).unwrap();
        let blamed = report.candidates.iter().filter_map(|candidate| candidate.failed.as_ref());
        assert!(blamed.into_iter().all(|reason| !reason.contains("the end")), "after run {last}: {report}");
        assert!(!tuner.has_decided(&key), "after run {last}: {report}");
    }
}

#[test]
fn more_memory_than_allowed_is_refused_before_anything_runs() {
    let (backend, asked) = adder(DeviceProfile::conservative("adder"));
    let limits = TuneLimits { memory_bytes: 1000, ..TuneLimits::default() };
    let request = TuneRequest {
        backend,
        program: &program(),
        config: &DispatchConfig::default(),
        inputs: &[&[0; 400]],
        limits,
        pause: None,
    };
    let error = tune(&Tuner::in_memory(Mode::On), &request, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("1200 bytes"), "{error}");
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn a_winner_that_fails_later_falls_to_the_next_in_the_next_process_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let shape = |x, elements_per_invocation| Shape { workgroup_size: [x, 1, 1], elements_per_invocation };
    let (default, winner, second) = (shape(64, 1), shape(256, 4), shape(128, 1));
    let program = program();
    let kernel = program.validate().unwrap();
    let (key, domain) = tuning_key(&program, &kernel, &[1 << 24], &DispatchConfig::default()).unwrap();
    assert_eq!(domain, [1 << 24, 1, 1]);
    let times = [(default, 100_000), (winner, 80_000), (second, 90_000), (shape(512, 1), 99_500)];
    let samples = times.map(|(shape, ns)| CandidateSamples {
        workgroup_size: shape.workgroup_size,
        elements_per_invocation: Some(shape.elements_per_invocation),
        samples_ns: vec![ns; 3],
        ..CandidateSamples::default()
    });
    let tuner = Tuner::at(&path, Mode::On);
    assert_eq!(tuner.shape_for(&key, default, |_| None), default, "nothing is decided yet");
    tuner.record_samples(key.as_str(), samples.to_vec());
    tuner.record_shape(&key, winner);
    tuner.persist().unwrap();

    let tuner = Tuner::at(&path, Mode::OffUseDefault);
    assert_eq!(tuner.shape_for(&key, default, |_| None), winner);
    // A device with a smaller grid than the one it was tuned on.
    let limit =
        DeviceProfile { max_workgroups_per_dimension: 65_535, ..DeviceProfile::conservative("adder") };
    assert_eq!(tuner.shape_for(&key, default, |shape| shape.refusal(&limit, domain)), winner);
    let small = DeviceProfile { max_invocations_per_workgroup: 128, ..limit };
    let fits =
        |shape: Shape| shape.refusal(&DeviceProfile { max_workgroups_per_dimension: 0, ..small }, domain);
    assert_eq!(tuner.shape_for(&key, default, fits), second);
    assert_eq!(tuner.shape_for(&key, default, |shape| shape.refusal(&small, domain)), default);

    tuner.quarantine(&key, winner, "the driver gave up");
    let tuner = Tuner::at(&path, Mode::OffUseDefault);
    assert_eq!(tuner.shape_for(&key, default, |_| None), second);
    tuner.quarantine(&key, second, "as well");
    assert_eq!(tuner.shape_for(&key, default, |_| None), default, "what was hardly faster is not tried");
}
