//! Ready-made ops called through the runtime: routed as a whole, verified as a whole, and refused
//! with a reason.

use std::sync::Arc;
use vyre::catalogue::matmul::{Sizes, matmul_tuned};
use vyre::catalogue::scan::{ScanKind, compact, scan};
use vyre::catalogue::sort::{self, Key};
use vyre::{BackendError, DataType, DispatchConfig, Program, Runtime};
use vyre_driver::VyreBackend;
use vyre_reference::CpuRef;

/// The interpreter, except that it sorts incorrectly.
struct Missorting;

impl VyreBackend for Missorting {
    fn id(&self) -> &'static str {
        "missorting"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let mut outputs = CpuRef.dispatch(program, inputs, config)?;
        if program.name().is_some_and(|name| name.starts_with("sort"))
            && let Some(byte) = outputs.last_mut().and_then(|output| output.last_mut())
        {
            *byte ^= 1;
        }
        Ok(outputs)
    }
}

/// A runtime on `cpu` alone: certifying drivers takes seconds.
fn runtime() -> Runtime {
    let builder = Runtime::builder().without_tables().backends(["cpu"]);
    builder.build().expect("the embedded backend is there")
}

/// Unsorted numbers.
fn numbers(count: u32) -> Vec<u32> {
    (0..count).map(|k| k.wrapping_mul(2_654_435_761) >> 8).collect()
}

#[test]
fn ops_of_several_programs_run_by_one_call_at_any_size() -> Result<(), BackendError> {
    let runtime = runtime();
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device))?;
    let sums = runtime.load_op(|size, device| scan(ScanKind::Inclusive, DataType::U32, size, device))?;
    let kept = runtime.load_op(|size, device| Ok(compact(DataType::U32, size, device)))?;
    for size in [0, 1, 7, 1000, 20_000] {
        let x = numbers(size as u32);
        let mut sorted = vec![0_u32; x.len()];
        let report = sort.call(size).bind("keys", &x).bind("sorted", &mut sorted).run()?;
        let mut expected = x.clone();
        expected.sort_unstable();
        assert!(sorted == expected && report.elements == size, "{report}");

        let mut y = vec![0_u32; x.len()];
        sums.call(size).bind("x", &x).bind("y", &mut y).run()?;
        let running = x.iter().scan(0_u32, |sum, x| {
            *sum = sum.wrapping_add(*x);
            Some(*sum)
        });
        assert!(running.eq(y), "sums of {size}");

        let keep: Vec<u32> = x.iter().map(|x| x % 3).collect();
        let (mut y, mut count) = (vec![0_u32; x.len()], [0_u32]);
        kept.call(size)
            .bind("x", &x)
            .bind("keep", &keep)
            .bind("y", &mut y)
            .bind("count", &mut count)
            .run()?;
        let wanted: Vec<u32> = x.iter().copied().filter(|x| x % 3 != 0).collect();
        assert!(y[..wanted.len()] == wanted && count == [wanted.len() as u32], "{size} elements");
    }
    runtime.settle();
    Ok(())
}

#[test]
fn every_backend_may_be_named() -> Result<(), BackendError> {
    let runtime = Runtime::builder().without_tables().helper(None).meet_drivers_first().build()?;
    let sort = runtime.load_op(|size, device| sort::keys(Key::F32, size, device))?;
    let keys: Vec<f32> = numbers(3000).into_iter().map(|x| x as f32 - 8e6).collect();
    let mut expected = keys.clone();
    expected.sort_by(f32::total_cmp);
    for backend in runtime.backends().chain(["cpu-ref"]) {
        let mut sorted = vec![0.0_f32; keys.len()];
        let report = sort.call(3000).bind("keys", &keys).bind("sorted", &mut sorted).on(backend).run()?;
        assert!(sorted == expected && report.backend == backend, "{report}");
    }
    Ok(())
}

#[test]
fn a_family_takes_the_shape_that_was_found_for_the_device() -> Result<(), BackendError> {
    let product = runtime()
        .load_op(|rows, device| matmul_tuned(Sizes { rows, depth: 3, columns: 2 }, device, device.tuner()))?;
    let (a, b, mut c) = ([1.0_f32; 12], [0.5_f32; 6], [0.0_f32; 8]);
    product.call(4).bind("a", &a).bind("b", &b).bind("c", &mut c).run()?;
    assert_eq!(c, [1.5; 8]);
    Ok(())
}

#[test]
fn mistakes_of_the_caller_are_reported_at_once() -> Result<(), BackendError> {
    let runtime = runtime();
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device))?;
    let (keys, mut sorted) = ([2_u32, 1], [0_u32; 2]);
    let faults =
        sort.call(2).bind("key", &keys).bind("sorted", &keys).run().expect_err("three faults").to_string();
    for part in [
        "no buffer `key`",
        "it has: keys, sorted",
        "cannot be written",
        "`keys` of op `sort.keys` is not bound",
    ] {
        assert!(faults.contains(part), "{part} in\n{faults}");
    }
    let fault = sort.call(3).bind("keys", &keys).bind("sorted", &mut sorted).run().expect_err("too short");
    assert!(fault.to_string().contains("takes 12 bytes at this size, not 8"), "{fault}");
    #[cfg(target_pointer_width = "64")]
    {
        let large = sort.call(1 << 32).bind("keys", &keys).bind("sorted", &mut sorted).run();
        let fault = large.expect_err("no buffer is so long").to_string();
        assert!(fault.contains("op `sort.keys` was called at size 4294967296"), "{fault}");
    }
    // None of this counts against a backend.
    sort.call(2).bind("keys", &keys).bind("sorted", &mut sorted).run()?;
    assert_eq!(sorted, [1, 2]);
    Ok(())
}

#[test]
fn a_backend_that_gets_an_op_wrong_is_not_used_for_it() -> Result<(), BackendError> {
    let builder = Runtime::builder().without_tables().backends(["cpu"]);
    let runtime = builder.backend(Arc::new(Missorting)).build()?;
    let (x, mut y) = (numbers(500), vec![0_u32; 500]);
    let sums = runtime.load_op(|size, device| scan(ScanKind::Exclusive, DataType::U32, size, device))?;
    sums.call(500).bind("x", &x).bind("y", &mut y).run()?;
    let sort = runtime.load_op(|size, device| sort::keys(Key::U32, size, device))?;
    let report = sort.call(500).bind("keys", &x).bind("sorted", &mut y).run()?;
    assert!(report.backend == "cpu" && y.is_sorted(), "{report}");
    runtime.settle();
    let (sums, sort) = (sums.explain(500).to_string(), sort.explain(500).to_string());
    assert!(sort.contains("`sorted["), "{sort}");
    assert!(!sums.contains("`y["), "{sums}");
    Ok(())
}

#[test]
fn an_argument_that_does_not_fit_is_reported_once() -> vyre::Result<()> {
    let runtime = runtime();
    let text = String::from("kernel scale(a: f32 uniform, y: read_write f32[]) { y[invocation.x] *= a }");
    let scale = runtime.load(&text)?;
    let told = scale.call().bind("a", 2.0).bind("y", &mut [1.0_f32]).run().expect_err("2.0 is f64");
    assert_eq!(told.to_string().matches("error[").count(), 1, "{told}");
    assert_eq!(format!("{told:?}"), told.to_string());
    let mut y = [3.0_f32];
    runtime.load_program(scale.program().clone())?.call().bind("a", 2.0_f32).bind("y", &mut y).run()?;
    assert_eq!(y, [6.0]);
    Ok(())
}
