// test interpret
// test run
// Four bytes in a word: separately, together, and in dot products.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let w = x[id.x];
    y[id.x] = (pack4xU8(unpack4xU8(w) + vec4(1u)) ^ pack4xU8Clamp(unpack4xU8(w) * 2u))
        + (pack4xI8(unpack4xI8(w) - vec4(1)) ^ pack4xI8Clamp(unpack4xI8(w) * 2)) * 3u + dot4U8Packed(w, 0x01020304u) * 65536u + u32(dot4I8Packed(w, 0xff020304u));
}
// input x: u32 = [0, 0x80ff7f01, 0x12345678]
// input y: u32 = [0, 0, 0]
// output y: u32 = [16843006, 2147386117, 3670768857]
