// test interpret
// test run
// Exchanges within a subgroup, with `enable subgroups;`, which naga does not support.
enable subgroups;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(4)
fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) size: u32) {
    let first = i - lane;
    let sum = subgroupAdd(i) - first * min(size, 4u);
    let running = subgroupInclusiveAdd(1u) - lane + subgroupExclusiveAdd(2u) - 2u * lane;
    let other = subgroupShuffleXor(i, 1u) ^ i;
    let ballot = subgroupBallot(lane < 2u);
    let votes = select(0u, 16u, subgroupAny(lane == 0u)) + select(0u, 32u, subgroupAll(size > 0u));
    let same = subgroupBroadcastFirst(lane) + subgroupBroadcast(7u, 0u);
    y[i] = running + votes + same * 64u + select(0u, 4096u, size == 1u || other == 1u)
        + select(0u, 8192u, sum <= 6u) + (ballot.x & 1u) * 16384u + countOneBits(ballot.z | ballot.w);
}
// config grid [1, 1, 1]
// input y: u32 = [0, 0, 0, 0]
// output y: u32 = [29169, 29169, 29169, 29169]
