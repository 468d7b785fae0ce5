// test cat
// test interpret
// test run
// A struct of mixed types becomes words; its tail is an array sized by the buffer.
struct Item { weight: f32, id: u32, place: vec2<i32> }
struct Items { count: u32, scale: f32, items: array<Item> }
@group(0) @binding(0) var<storage, read_write> data: Items;

@compute @workgroup_size(2)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= min(data.count, arrayLength(&data.items))) { return; }
    var item = data.items[id.x];
    item.weight *= data.scale;
    item.place = item.place.yx - vec2(1, -1);
    item.id += u32(item.place.x);
    data.items[id.x] = item;
}
// config domain [2, 1, 1]
// input data: u32 = [3, 0x40000000, 0x3f800000, 7, 5, 0xfffffffe, 0x40490fdb, 8, 0, 4, 9, 9, 9, 9, 1, 1]
// expect cat
//| kernel main(data: read_write u32[]) over [sat_sub(len(data), 2) / 4, 1, 1] workgroup 2 {
//|   region "main" {
//|     let t = data[0]
//|     let t_2 = sat_sub(len(data), 2) / 4
//|     if invocation.x >= min(t, t_2) {
//|       return
//|     }
//|     let t_3 = invocation.x * 4
//|     let item_weight = bitcast_f32(data[t_3 + 2])
//|     let item_id = data[t_3 + 3]
//|     let item_place_x = bitcast_i32(data[t_3 + 4])
//|     let item_place_y = bitcast_i32(data[t_3 + 5])
//|     item_weight = item_weight * bitcast_f32(data[1])
//|     let t_4 = item_place_x
//|     let t_5 = item_place_y
//|     item_place_x = t_5 - 1i32
//|     item_place_y = t_4 - -1i32
//|     item_id = item_id + u32(item_place_x)
//|     let t_6 = invocation.x * 4
//|     data[t_6 + 2] = bitcast_u32(item_weight)
//|     data[t_6 + 3] = item_id
//|     data[t_6 + 4] = bitcast_u32(item_place_x)
//|     data[t_6 + 5] = bitcast_u32(item_place_y)
//|   }
//| }
// output data: u32 = [3, 1073741824, 1073741824, 4, 4294967293, 6, 1086918619, 11, 3, 1, 9, 9, 9, 9, 1, 1]
