// test cat
// test interpret
// test run
// The second operand of `&&` and `||` is always evaluated, unless it reads memory that the first
// guards.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    var n = 0u;
    if (i > 0u && i < 3u || i == 4u) { n += 1u; }
    if (i < arrayLength(&x) && x[i] > 10u) { n += 2u; }
    y[i] = n;
}
// input x: u32 = [5, 15, 25]
// input y: u32 = [0, 0, 0, 0, 0]
// expect cat
//| kernel main(x: read u32[], y: read_write u32[]) over y workgroup 1 {
//|   region "main" {
//|     let n = 0
//|     let v = false
//|     if invocation.x > 0 && invocation.x < 3 || invocation.x == 4 {
//|       n = n + 1
//|     }
//|     if invocation.x < len(x) {
//|       v = x[invocation.x] > 10
//|     } else {
//|       v = false
//|     }
//|     if v {
//|       n = n + 2
//|     }
//|     y[invocation.x] = n
//|   }
//| }
// output y: u32 = [0, 3, 3, 0, 1]
