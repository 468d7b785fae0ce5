// test interpret
// test run cpu-ref cpu opencl
// Signed and unsigned 64-bit integers in one struct become 64-bit words, which support atomics.
struct Counters { total: atomic<u64>, least: atomic<i64>, last: i64 }
@group(0) @binding(0) var<storage, read_write> c: Counters;

@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32) {
    atomicAdd(&c.total, u64(i) << 33u);
    atomicMin(&c.least, 1li - i64(i));
    if (i == 3u) { c.last = c.last * -3li; }
}
// config grid [1, 1, 1]
// input c: u64 = [5, 7, 11]
// output c: u64 = [51539607557, 18446744073709551614, 18446744073709551583]
