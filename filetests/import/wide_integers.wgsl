// test interpret
// test run cpu-ref cpu opencl
// 64-bit integers next to other types in one struct.
struct Mixed { small: u32, big: u64, signed_big: i64 }
@group(0) @binding(0) var<storage, read_write> m: Mixed;

@compute @workgroup_size(1)
fn main() {
    m.big = m.big * 3lu + u64(m.small);
    m.signed_big = m.signed_big - 5li;
    m.small = u32(m.big >> 32u);
}
// config grid [1, 1, 1]
// input m: u32 = [7, 0, 0x80000000, 1, 2, 0]
// output m: u32 = [4, 0, 2147483655, 4, 4294967293, 4294967295]
