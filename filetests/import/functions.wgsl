// test cat
// test interpret
// test run
// Functions that return early, out of loops, and write through pointers.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

fn shape(v: f32) -> f32 {
    if (v < 0.0) { return -1.0; }
    if (v > 2.0) { return v * 10.0; }
    let w = v * v;
    return w + 0.25;
}

fn find(limit: f32) -> u32 {
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            if (x[i] + x[j] > limit) { return i * 10u + j; }
        }
    }
    return 99u;
}

fn twist(a: ptr<function, vec2<f32>>, by: f32) -> vec2<f32> {
    let old = *a;
    *a = vec2(old.y, old.x * by);
    (*a).x += 1.0;
    return old + *a;
}

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var v = vec2(x[id.x], 3.0);
    let t = twist(&v, 2.0);
    y[id.x] = shape(x[id.x]) + f32(find(x[id.x])) * 100.0 + v.x + v.y * 0.5 + t.x * t.y;
}
// input x: f32 = [1.0, -2.0, 3.0, 1.5]
// input y: f32 = [0, 0, 0, 0]
// expect cat
//| kernel main(x: read f32[], y: read_write f32[]) over y workgroup 1 {
//|   region "main" {
//|     let v_x = x[invocation.x]
//|     let v_y = 3.0
//|     let t = v_x
//|     let t_2 = v_y
//|     let t_3 = v_y
//|     let t_4 = v_x * 2.0
//|     v_x = t_3
//|     v_y = t_4
//|     v_x = v_x + 1.0
//|     let t_5 = t + v_x
//|     let t_6 = t_2 + v_y
//|     let v = x[invocation.x]
//|     let shape = 0.0
//|     if v < 0.0 {
//|       shape = -1.0
//|     } else if v > 2.0 {
//|       shape = v * 10.0
//|     } else {
//|       let w = v * v
//|       shape = w + 0.25
//|     }
//|     let limit = x[invocation.x]
//|     let find = 0
//|     let returned = false
//|     for once in 0..1 {
//|       for i in 0..4 {
//|         for j_2 in 0..4 {
//|           if x[i] + x[j_2] > limit {
//|             find = i * 10 + j_2
//|             returned = true
//|             break
//|           }
//|         }
//|         if returned {
//|           break
//|         }
//|       }
//|       if returned {
//|         break
//|       }
//|       find = 99
//|       returned = true
//|       break
//|     }
//|     y[invocation.x] = shape + f32(find) * 100.0 + v_x + v_y * 0.5 + t_5 * t_6
//|   }
//| }
// output y: f32 = [31.25, -1.0, 300.0, 41.0]
