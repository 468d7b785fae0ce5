// test interpret
// test run
// Write-only storage, which naga does not support.
@group(0) @binding(0) var<storage, write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = id.x + 1u; }
// input y: u32 = [0, 0, 0]
// output y: u32 = [1, 2, 3]
