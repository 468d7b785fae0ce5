// test cat
// test interpret
// test run
// Vectors, swizzles, splats, and a component with a computed index.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(4)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let v = x[id.x];
    var w = v.wzyx * 2.0 + vec4(1.0);
    w.y = dot(v.xyz, vec3(1.0, 2.0, 3.0));
    w[id.x % 4u] = -v[(id.x + 1u) % 4u];
    w = w.yxwz;
    y[id.x] = w;
}
// input x: f32 = 0..12
// input y: f32 = repeat(0, 12)
// expect cat
//| kernel main(x: read f32[], y: read_write f32[]) over [len(y) / 4, 1, 1] workgroup 4 {
//|   region "main" {
//|     let t = invocation.x * 4
//|     let v_x = x[t]
//|     let v_y = x[t + 1]
//|     let v_z = x[t + 2]
//|     let v_w = x[t + 3]
//|     let w_x = v_w * 2.0 + 1.0
//|     let w_y = v_z * 2.0 + 1.0
//|     let w_z = v_y * 2.0 + 1.0
//|     let w_w = v_x * 2.0 + 1.0
//|     w_y = v_x * 1.0 + v_y * 2.0 + v_z * 3.0
//|     let t_2 = (invocation.x + 1) % 4
//|     let t_3 = invocation.x % 4
//|     let t_4 = -select(t_2 == 0, v_x, select(t_2 == 1, v_y, select(t_2 == 2, v_z, v_w)))
//|     w_x = select(t_3 == 0, t_4, w_x)
//|     w_y = select(t_3 == 1, t_4, w_y)
//|     w_z = select(t_3 == 2, t_4, w_z)
//|     w_w = select(t_3 == 3, t_4, w_w)
//|     let t_5 = w_x
//|     let t_6 = w_y
//|     let t_7 = w_z
//|     let t_8 = w_w
//|     w_x = t_6
//|     w_y = t_5
//|     w_z = t_8
//|     w_w = t_7
//|     let t_9 = invocation.x * 4
//|     y[t_9] = w_x
//|     y[t_9 + 1] = w_y
//|     y[t_9 + 2] = w_z
//|     y[t_9 + 3] = w_w
//|   }
//| }
// output y: f32 = [8.0, -1.0, 1.0, 3.0, -6.0, 15.0, 9.0, 11.0, 56.0, 23.0, 17.0, -11.0]
