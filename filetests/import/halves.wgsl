// test interpret
// test run
// f16 is rounded after every operation; next to other types it takes half a word.
enable f16;
struct Block { scale: f16, offset: f16, count: u32, values: array<f16, 4> }
@group(0) @binding(0) var<storage, read_write> blocks: array<Block>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let k = id.x % blocks[0].count;
    let v = blocks[0].values[k] * blocks[0].scale + blocks[0].offset;
    blocks[1].values[k] = v;
    y[id.x] = v / 3.0h + f16(id.x);
}
// config domain [4, 1, 1]
// input blocks: u32 = [0x42003c01, 4, 0x40003c00, 0x44004200, 0, 0, 0, 0]
// input y: f16 = [0, 0, 0, 0]
// output blocks: u32 = [1107311617, 4, 1073757184, 1140867584, 0, 0, 1157645312, 1191265793]
// output y: f16 = [1.3330078, 2.6679688, 4.0, 5.3359375]
