// test cat
// test interpret
// test run
// Binding b of group g becomes 1000 g + b; unused bindings are dropped, and read-only ones are
// `read`.
@group(2) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> a: u32;
@group(1) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(0) var<storage, read> unused: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = x[id.x] * a; }
// input a: u32 = [3]
// input x: u32 = [1, 2]
// input y: u32 = [0, 0]
// expect cat
//| kernel main(@binding(3) a: u32 uniform, @binding(1000) x: read u32[], @binding(2001) y: read_write u32[]) over y workgroup 1 {
//|   region "main" {
//|     y[invocation.x] = x[invocation.x] * a
//|   }
//| }
// output y: u32 = [3, 6]
