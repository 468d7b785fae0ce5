// test cat
// test interpret
// test run
// A sum in workgroup memory, with an array of structs there.
struct Cell { value: f32, seen: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> cells: array<Cell, 8>;

@compute @workgroup_size(8)
fn main(@builtin(local_invocation_id) local: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>) {
    let i = local.x;
    cells[i] = Cell(x[group.x * 8u + i], 1u);
    workgroupBarrier();
    for (var stride = 4u; stride > 0u; stride >>= 1u) {
        if (i < stride) {
            cells[i].value += cells[i + stride].value;
            cells[i].seen += cells[i + stride].seen;
        }
        workgroupBarrier();
    }
    if (i == 0u) { y[group.x] = cells[0].value + 1000.0 * f32(cells[0].seen); }
}
// config grid [2, 1, 1]
// input x: f32 = 0..16
// input y: f32 = [0, 0]
// expect cat
//| kernel main(x: read f32[], y: read_write f32[], cells_u32: workgroup u32[8], cells_f32: workgroup f32[8]) over y workgroup 8 {
//|   region "main" {
//|     let stride = 4
//|     cells_f32[local.x] = x[workgroup.x * 8 + local.x]
//|     cells_u32[local.x] = 1
//|     barrier
//|     while stride > 0 {
//|       if local.x < stride {
//|         cells_f32[local.x] = cells_f32[local.x] + cells_f32[local.x + stride]
//|         cells_u32[local.x] = cells_u32[local.x] + cells_u32[local.x + stride]
//|       }
//|       barrier
//|       stride = stride >> 1
//|     }
//|     if local.x == 0 {
//|       y[workgroup.x] = cells_f32[0] + 1000.0 * f32(cells_u32[0])
//|     }
//|   }
//| }
// output y: f32 = [8028.0, 8092.0]
