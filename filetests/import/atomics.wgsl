// test interpret
// test run
// Every atomic, in storage and in workgroup memory, and a compare-exchange that returns a struct.
struct State { sum: atomic<u32>, low: atomic<i32>, high: atomic<u32>, bits: array<atomic<u32>, 3> }
@group(0) @binding(0) var<storage, read_write> state: State;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> shared_sum: atomic<u32>;

@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) i: u32) {
    atomicAdd(&state.sum, i);
    atomicSub(&state.sum, 1u);
    atomicMin(&state.low, 3 - i32(i));
    atomicMax(&state.high, i * 2u);
    atomicOr(&state.bits[0], 1u << i);
    atomicAnd(&state.bits[1], ~(1u << i));
    atomicXor(&state.bits[2], 3u << i);
    atomicAdd(&shared_sum, i + 1u);
    workgroupBarrier();
    if (i == 0u) {
        let result = atomicCompareExchangeWeak(&shared_sum, 36u, 5u);
        y[0] = result.old_value + select(0u, 100u, result.exchanged);
        y[1] = atomicExchange(&shared_sum, 9u);
        atomicStore(&shared_sum, atomicLoad(&shared_sum) + 1u);
        y[2] = atomicLoad(&shared_sum);
    }
}
// config grid [1, 1, 1]
// input state: u32 = [0, 100, 0, 0, 0xffffffff, 0]
// input y: u32 = [0, 0, 0]
// output state: u32 = [20, 4294967292, 14, 255, 4294967040, 257]
// output y: u32 = [136, 5, 10]
