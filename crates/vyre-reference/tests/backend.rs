//! `cpu-ref` behind the driver's traits.

use std::time::Duration;
use vyre_driver::observability::snapshot_dispatch_telemetry;
use vyre_driver::registry::{acquire, acquire_preferred_dispatch_backend, backend_dispatches};
use vyre_driver::{BackendError, Binding, CompiledPipeline, DispatchConfig, VyreBackend};
use vyre_foundation::ir::Program;
use vyre_foundation::text::parse;
use vyre_reference::{BACKEND_ID, CpuRef};

fn program(text: &str) -> Program {
    parse(text).expect("the test's text is well formed")
}

fn compiled(text: &str, config: &DispatchConfig) -> std::sync::Arc<dyn CompiledPipeline> {
    let pipeline = CpuRef.compile_native(&program(text), config).expect("the test's program is valid");
    pipeline.expect("cpu-ref compiles")
}

const INCREMENT: &str = "kernel increment(x: read u32[], y: output u32[]) {
  region \"increment\" { y[invocation.x] = x[invocation.x] + 1 }
}";

/// Outputs the workgroup size, the number of workgroups and the subgroup size.
const SHAPE: &str = "kernel shape(y: output u32[3]) over 1 workgroup 4 {
  region \"shape\" {
    let lanes = subgroup_size()
    if invocation.x == 0 {
      y[0] = workgroup_size.x
      y[1] = grid_size.x
      y[2] = lanes
    }
  }
}";

const ENDLESS: &str = "kernel endless(y: output u32[1]) { region \"endless\" { while true { y[0] = 1 } } }";

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[test]
fn it_is_linked_as_an_oracle() {
    assert!(backend_dispatches(BACKEND_ID));
    assert_eq!(acquire(BACKEND_ID).expect("it is linked").id(), BACKEND_ID);
    let refused = acquire_preferred_dispatch_backend().err().map(|error| error.to_string());
    assert!(refused.is_some_and(|message| message.contains(BACKEND_ID)), "an oracle is never selected");
}

#[test]
fn the_configuration_reaches_the_interpreter() {
    let pipeline =
        compiled(SHAPE, &DispatchConfig { workgroup_override: Some([8, 1, 1]), ..DispatchConfig::default() });
    let check = |config: DispatchConfig, expected: [u32; 3]| {
        let outputs = pipeline.dispatch(&[], &config).expect("the configuration is possible");
        assert_eq!(words(&outputs[0]), expected, "{config:?}");
    };
    let unset = DispatchConfig::default;
    check(unset(), [8, 1, 32]);
    check(DispatchConfig { grid_override: Some([3, 1, 1]), ..unset() }, [8, 3, 32]);
    check(DispatchConfig { workgroup_override: Some([2, 1, 1]), ..unset() }, [2, 1, 32]);
    check(DispatchConfig { subgroup_size: Some(4), ..unset() }, [8, 1, 4]);
}

#[test]
fn errors_are_typed() {
    let unset = DispatchConfig::default;
    let run = |text: &str, inputs: &[Vec<u8>], config: DispatchConfig| {
        CpuRef.dispatch(&program(text), inputs, &config).expect_err("the dispatch cannot succeed")
    };
    let trap = "kernel stop(y: output u32[1]) { region \"stop\" { trap 7 } }";
    assert_eq!(run(trap, &[], unset()), BackendError::Trapped { kernel: "stop".into(), code: 7 });
    let limit = Duration::from_millis(5);
    let timeout = BackendError::Timeout { backend: BACKEND_ID.into(), limit };
    assert_eq!(run(ENDLESS, &[], DispatchConfig { timeout: Some(limit), ..unset() }), timeout);
    let message = |text, inputs: &[Vec<u8>], config| run(text, inputs, config).to_string();
    assert!(message(INCREMENT, &[], unset()).contains("D001"));
    assert!(message(INCREMENT, &[vec![0; 3]], unset()).contains("D002"));
    let small = DispatchConfig { max_output_bytes: Some(7), ..unset() };
    assert!(message(INCREMENT, &[vec![0; 8]], small).contains("max_output_bytes"));
    let lanes = |size| DispatchConfig { subgroup_size: Some(size), ..unset() };
    assert!(message(SHAPE, &[], lanes(0)).contains("subgroup size of 0"));
    assert!(message(SHAPE, &[], lanes(65)).contains("subgroup size of 65"));
    let huge = "kernel huge(y: output f64[4000000000]) { region \"huge\" { y[0] = 1.0f64 } }";
    assert!(matches!(run(huge, &[], unset()), BackendError::DeviceOutOfMemory { .. }));
    let invalid = "kernel invalid(y: output u32[1]) { region \"invalid\" { y[0] = nothing } }";
    assert!(message(invalid, &[], unset()).contains("V001"));
}

#[test]
fn bound_memory_is_used_in_place() {
    let pipeline = compiled(INCREMENT, &DispatchConfig::default());
    // Offset by one byte, so that nothing is aligned.
    let (input, mut output) = ([0, 1, 0, 0, 0, 2, 0, 0, 0], [9u8; 9]);
    let mut bindings = [Binding::Read(&input[1..]), Binding::Write(&mut output[1..])];
    let before = snapshot_dispatch_telemetry();
    pipeline.dispatch_bound(&mut bindings, &DispatchConfig::default()).expect("the memory fits");
    let counted = snapshot_dispatch_telemetry().since(&before);
    assert_eq!(output, [9, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert!(counted.launches >= 1 && counted.output_slots_reused >= 1);
}

#[test]
fn an_output_reads_zero_in_memory_that_was_used_before() {
    let pipeline = compiled(
        "kernel accumulate(y: output u32[]) { region \"accumulate\" { y[invocation.x] = y[invocation.x] + 1 } }",
        &DispatchConfig::default(),
    );
    let mut output = [255u8; 8];
    pipeline
        .dispatch_bound(&mut [Binding::Write(&mut output)], &DispatchConfig::default())
        .expect("the memory fits");
    assert_eq!(words(&output), [1, 1]);
}

#[test]
fn bindings_that_do_not_fit_are_refused() {
    let pipeline = compiled(INCREMENT, &DispatchConfig::default());
    let refused = |bindings: &mut [Binding<'_>]| {
        let result = pipeline.dispatch_bound(bindings, &DispatchConfig::default());
        result.expect_err("the memory does not fit").to_string()
    };
    assert!(refused(&mut [Binding::Read(&[0; 4])]).contains("D001"));
    assert!(refused(&mut [Binding::Read(&[0; 4]), Binding::Read(&[0; 4])]).contains("`y`"));
    assert!(refused(&mut [Binding::Read(&[0; 4]), Binding::Resident(1)]).contains("resident"));
}

#[test]
fn pipelines_of_different_programs_have_different_ids() {
    let config = DispatchConfig::default();
    let (one, other) = (compiled(INCREMENT, &config), compiled(SHAPE, &config));
    assert!(one.id().starts_with("cpu-ref:") && one.id() != other.id());
    assert_eq!(one.id(), compiled(INCREMENT, &config).id());
}
