// test interpret
// test run
// Numbers packed into words and back, and bit functions.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let w = x[id.x];
    let at = id.x * 12u;
    y[at] = pack4x8unorm(unpack4x8unorm(w));
    y[at + 1u] = pack4x8snorm(unpack4x8snorm(w));
    y[at + 2u] = pack2x16unorm(unpack2x16unorm(w));
    y[at + 3u] = pack2x16snorm(unpack2x16snorm(w));
    y[at + 4u] = pack2x16float(unpack2x16float(w));
    y[at + 5u] = reverseBits(w);
    y[at + 6u] = insertBits(w, w, 28u, 9u);
    y[at + 7u] = insertBits(w, 5u, 4u, 6u) ^ extractBits(w, 8u, 16u);
    y[at + 8u] = u32(extractBits(i32(w), 8u, 16u));
    y[at + 9u] = firstLeadingBit(w) + firstTrailingBit(w) * 100u;
    y[at + 10u] = u32(firstLeadingBit(i32(w)) + firstTrailingBit(i32(w)));
    y[at + 11u] = countOneBits(w) + countLeadingZeros(w) * 100u + countTrailingZeros(w) * 10000u + reverseBits(w) % 7u;
    z[id.x] = unpack4x8snorm(w).y + unpack2x16unorm(w).x + unpack2x16float(w & 0x3fff3fffu).y;
}
// config domain [3, 1, 1]
// input x: u32 = [0, 0x80ff7f01, 0x12345678]
// input y: u32 = repeat(0, 36)
// input z: f32 = [0, 0, 0]
// output y: u32 = [0, 0, 0, 0, 0, 0, 0, 80, 0, 4294967195, 4294967294, 323200, 2164227841, 2181005057, 2164227841, 2164227841, 2164227584, 2164195073, 285179649, 2164228910, 4294967167, 31, 30, 22, 305419896, 305419896, 305419896, 305419896, 305419896, 510274632, 2184468088, 305422350, 13398, 328, 31, 30313]
// output z: f32 = [0.0, 1.4961319, 1.0156963]
