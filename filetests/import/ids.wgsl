// test interpret
// test run
// Every built-in input, in a struct and on its own.
struct Inputs {
    @builtin(global_invocation_id) global: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
}
@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(2, 3, 2)
fn main(inputs: Inputs, @builtin(local_invocation_index) index: u32, @builtin(num_workgroups) count: vec3<u32>) {
    let at = (inputs.group.x + inputs.group.y * count.x) * 12u + index;
    y[at] = inputs.global.x + inputs.global.y * 10u + inputs.global.z * 100u + inputs.local.y * 1000u + count.y * 10000u;
}
// config grid [2, 1, 1]
// input y: u32 = repeat(0, 24)
// output y: u32 = [10000, 10001, 11010, 11011, 12020, 12021, 10100, 10101, 11110, 11111, 12120, 12121, 10002, 10003, 11012, 11013, 12022, 12023, 10102, 10103, 11112, 11113, 12122, 12123]
