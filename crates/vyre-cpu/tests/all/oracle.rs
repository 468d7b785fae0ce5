//! Kernels that together exercise every part of the lowering, compared with the interpreter bit for
//! bit.

use vyre_conform::samples::{BARRIERS, DIVERGENT_LOOPS, ELEMENTWISE, MIXED, assert_agrees, assert_traps};
use vyre_cpu::Cpu;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;

fn check(source: &str) -> Result<(), BackendError> {
    let cpu = Cpu::new()?;
    let config = DispatchConfig { subgroup_size: Some(8), ..DispatchConfig::default() };
    [0, 1, 7, 8, 9, 64, 127, 1003]
        .into_iter()
        .try_for_each(|length| assert_agrees(&cpu, source, length, &config))
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
    let ended = Cpu::new()?.dispatch_borrowed(&program, &[], &config);
    assert!(matches!(ended, Err(BackendError::Timeout { .. })), "{ended:?}");
    Ok(())
}

#[test]
fn a_trap_gives_its_code() -> Result<(), BackendError> {
    assert_traps(&Cpu::new()?)
}

/// One pipeline with dispatches of all sizes: some satisfy the assumptions of its code, some do
/// not.
#[test]
fn lengths_and_parameters_that_fit_and_that_do_not() -> Result<(), BackendError> {
    let sources = [
        "kernel guarded(n: u32 uniform, x: read u32[], y: read_write u32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             if i < n { y[i] = x[i] + 3 * y[i] } } }",
        "kernel shifted(n: u32 uniform, x: read u32[], y: read_write u32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             if i >= len(x) { return }
             y[i] = x[i + n] + x[i / 2] + y[i * 2] } }",
        "kernel strided(n: u32 uniform, x: read u32[], y: read_write u32[]) over y workgroup 16 {
           region \"r\" { for i in invocation.x..len(y) step grid_size.x * 16 { y[i] = x[i] * n } } }",
        "kernel rows(n: u32 uniform, x: read u32[], y: read_write u32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             for k in 0..n { y[i] = y[i] + x[i * n + k] } } }",
    ];
    let words = |count: u32| (0..count).flat_map(|k| (k * 7 + 1).to_le_bytes()).collect::<Vec<u8>>();
    for source in sources {
        let program = parse(source)?;
        let config = DispatchConfig::default();
        let Some(pipeline) = Cpu::new()?.compile_native(&program, &config)? else {
            unreachable!("the backend compiles")
        };
        for n in [0, 1, 3, 9, 40, u32::MAX] {
            for (x, y) in [(40, 40), (9, 40), (40, 9), (0, 9), (9, 0), (360, 40), (1, 1), (41, 40)] {
                // A loop of 2^32 rounds is too slow for the interpreter.
                if n == u32::MAX && source.contains("rows") {
                    continue;
                }
                let inputs = [n.to_le_bytes().to_vec(), words(x), words(y)];
                let expected = CpuRef.dispatch(&program, &inputs, &config)?;
                let given = pipeline.dispatch(&inputs, &config)?;
                assert_eq!(given, expected, "n {n}, {x} and {y} elements, {source}");
            }
        }
    }
    Ok(())
}
