// test interpret
// test run
// Division and remainder by zero, shifts beyond the width, and conversions.
@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<i32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = a[id.x];
    let z = b[id.x];
    let at = id.x * 8u;
    y[at] = x / z;
    y[at + 1u] = x % z;
    y[at + 2u] = x << u32(z);
    y[at + 3u] = x >> u32(z);
    y[at + 4u] = i32(f32(x) * 0.75);
    y[at + 5u] = i32(u32(x) / 3u);
    y[at + 6u] = ~x ^ (x | z) & 12;
    y[at + 7u] = select(-x, abs(z), x < z);
}
// config domain [4, 1, 1]
// input a: i32 = [7, -7, -2147483648, 2147483647]
// input b: i32 = [2, 0, -1, 33]
// input y: i32 = repeat(0, 32)
// output y: i32 = [3, 1, 28, 1, 5, 2, -4, -7, -7, 0, -7, -7, -5, 1431655763, 14, 0, -2147483648, 0, 0, -1, -1610612736, 715827882, 2147483635, 1, 65075262, 1, -2, 1073741823, 1610612736, 715827882, -2147483636, -2147483647]
