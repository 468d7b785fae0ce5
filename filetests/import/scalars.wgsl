// test cat
// test interpret
// test run
// Scalar arithmetic, lets and vars, and a domain taken from the first written buffer.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i >= arrayLength(&y)) { return; }
    var a = x[i] * 2.0;
    a += 1.0;
    a = a / (a - 0.5);
    y[i] = a;
}
// input x: f32 = [1.0, 2.0, -3.5, 0.0]
// input y: f32 = [0.0, 0.0, 0.0, 0.0]
// expect cat
//| kernel main(x: read f32[], y: read_write f32[]) over y workgroup 64 {
//|   region "main" {
//|     if invocation.x >= len(y) {
//|       return
//|     }
//|     let a = x[invocation.x] * 2.0
//|     a = a + 1.0
//|     a = a / (a - 0.5)
//|     y[invocation.x] = a
//|   }
//| }
// output y: f32 = [1.2, 1.1111112, 0.9230769, 2.0]
