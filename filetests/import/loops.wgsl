// test cat
// test interpret
// test run
// Loops that count and loops that do not, with `continue`, `break`, `continuing` and `break if`.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = x[id.x];
    var sum = 0u;
    for (var i = 0u; i < n; i++) {
        if (i % 3u == 1u) { continue; }
        if (i > 20u) { break; }
        sum += i;
    }
    for (var i = i32(n); i >= 0; i -= 2) { sum += u32(i) << 8u; }
    for (var i = 1u; i <= n; i += 3u) { sum ^= i; }
    var k = n;
    while (k > 1u) {
        sum += 1u << 20u;
        if (k % 2u == 0u) { k /= 2u; continue; }
        k = 3u * k + 1u;
    }
    var m = 0u;
    loop {
        m += 1u;
        if (m == 2u) { continue; }
        sum += m;
        continuing {
            sum += 1u << 28u;
            break if m >= 4u;
        }
    }
    y[id.x] = sum;
}
// input x: u32 = [0, 1, 7, 30]
// input y: u32 = [0, 0, 0, 0]
// expect cat
//| kernel main(x: read u32[], y: read_write u32[]) over y workgroup 1 {
//|   region "main" {
//|     let sum = 0
//|     let m = 0
//|     let n = x[invocation.x]
//|     for i in 0..n {
//|       if i % 3 == 1 {
//|         continue
//|       }
//|       if i > 20 {
//|         break
//|       }
//|       sum = sum + i
//|     }
//|     for i_3 in i32(n)..-1i32 step -2i32 {
//|       sum = sum + (u32(i_3) << 8)
//|     }
//|     for i_4 in 1..sat_add(n, 1) step 3 {
//|       sum = sum ^ i_4
//|     }
//|     let k = n
//|     while k > 1 {
//|       sum = sum + 1048576
//|       if k % 2 == 0 {
//|         k = k / 2
//|         continue
//|       }
//|       k = 3 * k + 1
//|     }
//|     while true {
//|       m = m + 1
//|       if m == 2 {
//|         sum = sum + 268435456
//|         if m >= 4 {
//|           break
//|         }
//|         continue
//|       }
//|       sum = sum + m
//|       sum = sum + 268435456
//|       if m >= 4 {
//|         break
//|       }
//|     }
//|     y[invocation.x] = sum
//|   }
//| }
// output y: u32 = [1073741832, 1073742089, 1090523162, 1092677793]
