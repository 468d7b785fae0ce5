//! Kernels that together exercise every part of the lowering, compared with the interpreter bit for
//! bit.

use std::sync::Arc;
use vyre_conform::samples::{BARRIERS, DIVERGENT_LOOPS, ELEMENTWISE, MIXED, assert_agrees, assert_traps};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::text::parse;
use vyre_opencl::OpenCl;
use vyre_reference::CpuRef;

/// The backend; prints SKIP if it cannot be used.
fn opencl() -> Option<OpenCl> {
    OpenCl::new().map_err(|missing| println!("SKIP {missing}")).ok()
}

fn check(source: &str) -> Result<(), BackendError> {
    let Some(opencl) = opencl() else { return Ok(()) };
    let config = DispatchConfig::default();
    [0, 1, 7, 8, 9, 64, 127, 1003]
        .into_iter()
        .try_for_each(|length| assert_agrees(&opencl, source, length, &config))
}

#[test]
fn elementwise() -> Result<(), BackendError> {
    check(ELEMENTWISE)
}

#[test]
fn divergent_loops() -> Result<(), BackendError> {
    check(DIVERGENT_LOOPS)
}

#[test]
fn barriers_and_workgroup_memory() -> Result<(), BackendError> {
    check(BARRIERS)
}

#[test]
fn functions_arrays_exits_narrow_types_and_atomics() -> Result<(), BackendError> {
    check(MIXED)
}

#[test]
fn a_loop_without_end_meets_its_deadline() -> Result<(), BackendError> {
    let program = parse(
        "kernel spin(out: output u32[1]) workgroup 1 {
           region \"r\" { let k = 1
             while k != 0 { k = k | 1 }
             out[0] = k } }",
    )?;
    let timeout = std::time::Duration::from_millis(20);
    let config = DispatchConfig { timeout: Some(timeout), ..DispatchConfig::default() };
    let Some(opencl) = opencl() else { return Ok(()) };
    let ended = opencl.dispatch_borrowed(&program, &[], &config);
    assert!(matches!(ended, Err(BackendError::Timeout { .. })), "{ended:?}");
    Ok(())
}

/// Checks that the interpreter runs the program and that compiling it for the device reports what
/// the device lacks.
fn refused(source: &str, reason: &str) -> Result<(), BackendError> {
    let program = parse(source)?;
    let Some(opencl) = opencl() else { return Ok(()) };
    CpuRef.dispatch_borrowed(&program, &[], &DispatchConfig::default())?;
    let Err(error) = pipeline::compile(Arc::new(opencl), &program, &DispatchConfig::default()) else {
        // Not the driver with the defect.
        println!("SKIP this device takes {reason}");
        return Ok(());
    };
    assert!(matches!(error, BackendError::UnsupportedFeature { .. }), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
    Ok(())
}

#[test]
fn subgroup_ops_are_refused() -> Result<(), BackendError> {
    refused(
        "kernel k(out: output u32[8]) workgroup 8 {
           region \"r\" { out[invocation.x] = subgroup_reduce_add(local.x) } }",
        "subgroup",
    )
}

#[test]
fn a_trap_gives_its_code() -> Result<(), BackendError> {
    opencl().map_or(Ok(()), |opencl| assert_traps(&opencl))
}
