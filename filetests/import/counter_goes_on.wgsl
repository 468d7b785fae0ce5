// test interpret
// test run
// A variable that an inner loop counts with keeps its value into the next round of the outer loop.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0u;
    var i = 0u;
    for (var j = 1u; j <= 3u; j++) {
        for (; i < j * 2u; i++) { sum = sum * 10u + i; }
    }
    var last = 0u;
    for (last = 3u; last < 9u; last += 2u) { sum += 1000000u; }
    y[id.x] = sum + last;
}
// input y: u32 = [0]
// output y: u32 = [3012354]
