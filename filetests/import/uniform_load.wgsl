// test interpret
// test run
// `workgroupUniformLoad` yields a value that barriers can depend on.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> rounds: u32;
var<workgroup> total: array<u32, 4>;

@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32) {
    if (i == 3u) { rounds = 3u; }
    let n = workgroupUniformLoad(&rounds);
    for (var k = 0u; k < n; k++) {
        let other = total[(i + 1u) % 4u];
        workgroupBarrier();
        total[i] = total[i] + other + i;
        workgroupBarrier();
    }
    y[i] = total[i];
}
// config grid [1, 1, 1]
// input y: u32 = [0, 0, 0, 0]
// output y: u32 = [5, 12, 15, 10]
