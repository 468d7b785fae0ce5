//! Kernels that between them use every part of the lowering, compared with the interpreter by bits.

use std::sync::Arc;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::parse;
use vyre_foundation::types::DataType;
use vyre_opencl::OpenCl;
use vyre_reference::CpuRef;

/// Deterministic bytes for every input of a kernel; run-time sized buffers get `length` elements.
fn inputs(kernel: &Kernel, length: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let bound = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
    let given = bound.filter(|decl| decl.access.is_input());
    given
        .map(|decl| {
            let count = if decl.count > 0 { decl.count as usize } else { length };
            let element = |number: u64| match decl.element {
                DataType::F32 => ((number as f32 / 1e9) - 0.5).to_le_bytes().to_vec(),
                other => number.to_le_bytes()[..other.size()].to_vec(),
            };
            (0..count).flat_map(|_| element(next())).collect()
        })
        .collect()
}

/// The backend; where it cannot be used, a line that says so.
fn opencl() -> Option<OpenCl> {
    OpenCl::new().map_err(|missing| println!("SKIP {missing}")).ok()
}

fn check(source: &str) -> Result<(), BackendError> {
    let program = parse(source)?;
    let Some(opencl) = opencl() else { return Ok(()) };
    for length in [0, 1, 7, 8, 9, 64, 127, 1003] {
        let inputs = inputs(&program.validate()?, length);
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let config = DispatchConfig::default();
        let expected = CpuRef.dispatch_borrowed(&program, &borrowed, &config)?;
        let given = opencl.dispatch_borrowed(&program, &borrowed, &DispatchConfig::default())?;
        assert_eq!(given, expected, "{length} elements of {source}");
    }
    Ok(())
}

#[test]
fn elementwise() -> Result<(), BackendError> {
    check(
        "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
           region \"r\" { let i = invocation.x
             if i < len(y) { y[i] = a * x[i] + y[i] } } }",
    )
}

#[test]
fn divergent_loops() -> Result<(), BackendError> {
    check(
        "kernel mandelbrot(out: output u32[4096]) over [64, 64, 1] workgroup 64 {
           region \"r\" {
             let cx = f32(invocation.x) * 0.046875 - 2.0
             let cy = f32(invocation.y) * 0.0375 - 1.2
             let zx = 0.0
             let zy = 0.0
             let n = 0
             while n < 64 && zx * zx + zy * zy < 4.0 {
               let t = zx * zx - zy * zy + cx
               zy = 2.0 * zx * zy + cy
               zx = t
               n += 1
             }
             out[invocation.y * 64 + invocation.x] = n
           } }",
    )
}

#[test]
fn barriers_and_workgroup_memory() -> Result<(), BackendError> {
    check(
        "kernel reduce(x: read u32[], out: output u32[], tile: workgroup u32[100]) over x workgroup 100 {
           region \"r\" {
             let l = local.x
             tile[l] = x[invocation.x]
             barrier
             let s = 64
             while s > 0 {
               if l < s { tile[l] = tile[l] + tile[l + s] }
               barrier
               s = s >> 1
             }
             if l == 0 { out[workgroup.x] = tile[0] }
           } }",
    )
}

#[test]
fn functions_arrays_exits_narrow_types_and_atomics() -> Result<(), BackendError> {
    check(
        "fn settle(x: f32, n: u32) -> f32 {
           let r = x
           let k = 0
           while k < n {
             r = r * 0.5 + 1.0
             if r > 1.9 { break }
             k += 1
           }
           r
         }
         kernel mixed(x: read f32[], idx: read u32[], h: read_write u32[], y: output f32[] len_of x,
                      z: output u8[] len_of x, w: output f16[] len_of x, q: output i64[] len_of x)
                over x workgroup 64 {
           region \"r\" {
             let i = invocation.x
             array t: f32[4]
             t[i % 4] = x[i]
             let v = settle(x[i], idx[i] % 7)
             for j in 0..(idx[i] % 5) {
               if x[i] > 1.0 { continue }
               v = v + t[j % 6]
               if v > 3.0 { return }
             }
             y[i] = min(v, x[idx[i] % 1500])
             z[i] = idx[i] >> 3
             w[i] = x[i] * 1000.0
             q[i] = i64(idx[i]) * i64(idx[i]) / i64(i)
             atomic_add(h, idx[i] % 16, 1)
           } }",
    )
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

/// The program is one that the interpreter runs and the device does not: compiling says what the device lacks.
fn refused(source: &str, reason: &str) -> Result<(), BackendError> {
    let program = parse(source)?;
    let Some(opencl) = opencl() else { return Ok(()) };
    CpuRef.dispatch_borrowed(&program, &[], &DispatchConfig::default())?;
    let Err(error) = pipeline::compile(Arc::new(opencl), &program, &DispatchConfig::default()) else {
        // Another driver than the one with the fault.
        println!("SKIP this device takes {reason}");
        return Ok(());
    };
    assert!(matches!(error, BackendError::UnsupportedFeature { .. }), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
    Ok(())
}

#[test]
fn barriers_under_conditions_are_refused_where_they_go_wrong() -> Result<(), BackendError> {
    refused(
        "kernel k(out: output u32[8], tile: workgroup u32[8]) workgroup 8 {
           region \"r\" { if workgroup.x == 0 {
             tile[local.x] = local.x
             barrier
             out[local.x] = tile[7 - local.x] } } }",
        "barriers under conditions",
    )
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
    let program = parse(
        "kernel check(x: read u32[]) over x workgroup 64 {
           region \"r\" { if x[invocation.x] == 5 { trap 7 } } }",
    )?;
    let bytes = |value: u32| [1, 2, value, 4].map(u32::to_le_bytes).concat();
    let Some(opencl) = opencl() else { return Ok(()) };
    let run = |value: u32| opencl.dispatch(&program, &[bytes(value)], &DispatchConfig::default());
    assert_eq!(run(3)?, [[0_u8; 0]; 0]);
    assert!(matches!(run(5), Err(BackendError::Trapped { code: 7, .. })));
    Ok(())
}
