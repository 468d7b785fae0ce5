// test cat
// test interpret
// test run
// set WIDTH=4
// set 7=2.5
// An override sizes the workgroup and its memory; one has an id instead of a name.
override WIDTH: u32;
override HALF: u32 = WIDTH / 2u;
@id(7) override scale: f32 = 1.0;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
var<workgroup> tile: array<f32, WIDTH>;

@compute @workgroup_size(WIDTH)
fn main(@builtin(local_invocation_index) i: u32) {
    tile[i] = f32(i) * scale;
    workgroupBarrier();
    y[i] = tile[(i + HALF) % WIDTH];
}
// config grid [1, 1, 1]
// input y: f32 = [0, 0, 0, 0]
// expect cat
//| kernel main(y: read_write f32[], tile: workgroup f32[4]) over y workgroup 4 {
//|   region "main" {
//|     tile[local.x] = f32(local.x) * 2.5
//|     barrier
//|     y[local.x] = tile[(local.x + 2) % 4]
//|   }
//| }
// output y: f32 = [5.0, 7.5, 0.0, 2.5]
