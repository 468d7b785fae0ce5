// test cat
// test interpret
// test run
// A float buffer whose bits the shader inspects becomes words, so that NaNs keep their bits.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    y[id.x] = bitcast<u32>(x[id.x]) ^ bitcast<u32>(x[0] * 2.0);
}
// input x: u32 = [0x3f800000, 0x7fc12345, 0x80000000]
// input y: u32 = [0, 0, 0]
// expect cat
//| kernel main(x: read u32[], y: read_write u32[]) over y workgroup 1 {
//|   region "main" {
//|     y[invocation.x] = bitcast_u32(x[invocation.x]) ^ bitcast_u32(bitcast_f32(x[0]) * 2.0)
//|   }
//| }
// output y: u32 = [2139095040, 1069622085, 3221225472]
