//! Kernels that together exercise every part of a lowering, and comparisons with the interpreter,
//! for a backend's first tests.

use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::parse;
use vyre_foundation::types::DataType;
use vyre_reference::CpuRef;

/// A guarded saxpy.
pub const ELEMENTWISE: &str =
    "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region \"r\" { let i = invocation.x
    if i < len(y) { y[i] = a * x[i] + y[i] } } }";

/// Loops whose trip count differs between invocations.
pub const DIVERGENT_LOOPS: &str = "kernel mandelbrot(out: output u32[4096]) over [64, 64, 1] workgroup 64 {
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
  } }";

/// Workgroup memory, and barriers in a loop.
pub const BARRIERS: &str =
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
  } }";

/// Functions, arrays, exits, narrow types and atomics.
pub const MIXED: &str = "fn settle(x: f32, n: u32) -> f32 {
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
  } }";

/// Traps with code 7 if an element is 5.
pub const TRAP: &str = "kernel check(x: read u32[]) over x workgroup 64 {
  region \"r\" { if x[invocation.x] == 5 { trap 7 } } }";

/// Deterministic bytes for every input of a kernel; buffers sized at run time get `length`
/// elements.
pub fn inputs(kernel: &Kernel, length: usize) -> Vec<Vec<u8>> {
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

/// Panics unless the backend gives the interpreter's bits for `length` elements.
pub fn assert_agrees(
    backend: &dyn VyreBackend,
    source: &str,
    length: usize,
    config: &DispatchConfig,
) -> Result<(), BackendError> {
    let program = parse(source)?;
    let inputs = inputs(&program.validate()?, length);
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let expected = CpuRef.dispatch_borrowed(&program, &borrowed, config)?;
    let given = backend.dispatch_borrowed(&program, &borrowed, config)?;
    assert_eq!(given, expected, "{length} elements of {source}");
    Ok(())
}

/// Panics unless the backend traps exactly when the kernel does, repeatedly.
pub fn assert_traps(backend: &dyn VyreBackend) -> Result<(), BackendError> {
    let program = parse(TRAP)?;
    let bytes = |value: u32| [1, 2, value, 4].map(u32::to_le_bytes).concat();
    let run = |value: u32| backend.dispatch(&program, &[bytes(value)], &DispatchConfig::default());
    assert_eq!(run(3)?, [[0_u8; 0]; 0]);
    assert!(matches!(run(5), Err(BackendError::Trapped { code: 7, .. })));
    assert_eq!(run(3)?, [[0_u8; 0]; 0]);
    Ok(())
}
