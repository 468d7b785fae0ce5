//! Linked backends that are wrong for one program, and shapes tuned for large grids. Each test
//! prints SKIP on machines or builds without those backends.

use vyre::prelude::*;
use vyre_driver::tuner::{Mode, Shape, TuneLimits, TuneRequest, Tuner, adapter_fingerprint, tune};
use vyre_driver::{DispatchConfig, registry};
use vyre_foundation::text;

/// More rounds than some drivers allow a loop; those silently cut it short.
const LONG_LOOP: &str = "kernel long_loop(x: read_write u32[]) { region \"r\" {
  let i = invocation.x
  let value = x[i]
  let k = 0
  while k < 100000 { value = value * 1664525 + 1013904223; k = k + 1 }
  x[i] = value
} }";

fn long_loop(mut value: u32) -> u32 {
    for _ in 0..100_000 {
        value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }
    value
}

/// A runtime over those of these backends that are available.
fn real(backends: &[&str]) -> Runtime {
    let builder = Runtime::builder().backends(backends.iter().copied()).without_tables().helper(None);
    builder.meet_drivers_first().build().expect("the embedded backend is there")
}

#[test]
fn a_backend_that_is_wrong_for_a_long_loop_is_never_routed_to_for_it() {
    for id in ["wgpu", "opencl"] {
        let runtime = real(&["cpu", id]);
        if !runtime.backends().any(|own| own == id) {
            println!("SKIP: there is no usable backend `{id}` here: {:?}", runtime.refused());
            continue;
        }
        let routine = runtime.load(LONG_LOOP).expect("loads");
        let expected: Vec<u32> = (0..16).map(long_loop).collect();
        let call = |backend: Option<&'static str>| {
            let mut x: Vec<u32> = (0..16).collect();
            let call = routine.call().bind("x", &mut x);
            let outcome = backend.into_iter().fold(call, |call, backend| call.on(backend)).run();
            outcome.map(|report| (report.backend, x == expected))
        };
        let mut routed = Vec::new();
        for _ in 0..60 {
            let (backend, right) = call(None).expect("the embedded backend runs it");
            assert!(right, "{id}: a routed call was wrong\n{}", routine.explain(16));
            routed.push(backend);
            runtime.settle();
        }
        let right_when_named = call(Some(id)).is_ok_and(|(_, right)| right);
        assert!(right_when_named || routed.iter().all(|&backend| backend == "cpu"), "{id}: {routed:?}");
        println!(
            "{id}: {}",
            if right_when_named {
                "runs the loop rightly"
            } else {
                "is wrong for the loop, and was never used"
            }
        );
    }
}

#[test]
fn a_shape_tuned_for_a_large_grid_works_in_the_next_process() {
    // With 64 invocations each, this takes more workgroups on one axis than WebGPU and many drivers
    // allow.
    const ELEMENTS: usize = 1 << 24;
    let source = "kernel add(x: read_write u32[]) workgroup 64 { region \"r\" { x[invocation.x] += 1 } }";
    let program = text::parse(source).expect("parses");
    let input = vec![0u8; 4 * ELEMENTS];
    for id in ["cpu", "wgpu", "opencl"] {
        let Ok(backend) = registry::acquire(id) else {
            println!("SKIP: there is no usable backend `{id}` here");
            continue;
        };
        let (folder, profile) = (tempfile::tempdir().expect("a folder"), backend.device_profile());
        let groups = profile.max_workgroups_per_dimension;
        let tuner = Tuner::in_folder(&folder.path().join("tuner"), &adapter_fingerprint(&profile), Mode::On);
        // A limited grid would refuse shapes with too few elements per group; the tuner must not
        // try them.
        let request = TuneRequest {
            backend: backend.into(),
            program: &program,
            config: &DispatchConfig::default(),
            inputs: &[&input],
            limits: TuneLimits { wall: std::time::Duration::from_secs(3), ..TuneLimits::default() },
            pause: None,
        };
        let report = tune(&tuner, &request, &mut |_| {}).expect("there are candidates");
        for candidate in report.candidates.iter().skip(1) {
            let Shape { workgroup_size: [x, ..], elements_per_invocation } = candidate.shape;
            let needed = ELEMENTS.div_ceil((x * elements_per_invocation) as usize);
            assert!(
                groups == 0 || needed <= groups as usize,
                "{id} tried {}: {needed} groups",
                candidate.name
            );
        }
        // The next process uses the stored shape, also one that needs a large grid.
        let shape =
            Shape { workgroup_size: [256, 1, 1], elements_per_invocation: if id == "cpu" { 1 } else { 4 } };
        let kernel = program.validate().expect("is valid");
        let (key, _) =
            vyre_driver::tuner::tuning_key(&program, &kernel, &[input.len()], &DispatchConfig::default())
                .expect("has a key");
        tuner.record_shape(&key, shape);
        tuner.persist().expect("is saved");
        let runtime = Runtime::builder().backends([id]).tables_in(folder.path()).helper(None).build();
        let runtime = runtime.expect("it was there just now");
        let mut x = vec![5u32; ELEMENTS];
        let routine = runtime.load(&program).expect("loads");
        let report = routine.call().bind("x", &mut x).run().expect("runs");
        assert_eq!(report.tuned, Some(shape), "{id}: {report}");
        assert!(x.iter().all(|&value| value == 6), "{id}");
    }
}

#[test]
fn devices_that_can_tell_say_how_long_a_kernel_ran() {
    let runtime = real(&["cpu", "wgpu", "opencl"]);
    let double =
        runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] *= 2.0 }").expect("loads");
    for backend in runtime.backends() {
        let mut x = vec![1.0f32; 1 << 16];
        let report = double.call().bind("x", &mut x).on(backend).device_time().run().expect("runs");
        assert_eq!(report.device.is_some(), backend != "cpu", "{report}");
        assert!(report.device.is_none_or(|device| device <= report.wall), "{report}");
        // Without a request, at least one call in sixteen measures device time for the hints.
        let mut call = || double.call().bind("x", &mut x).on(backend).run().expect("runs").device.is_some();
        let told = (0..32).filter(|_| call()).count();
        assert!(backend == "cpu" || told > 0, "{told} of 32 calls on {backend}");
    }
}
