// test interpret
// test run
// Products with matrices of three rows, whose columns have a stride of 16 bytes, transposition,
// determinant, and a column with a computed index.
struct Uniforms { m: mat3x3<f32>, n: mat2x4<f32> }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let v = u.m * vec3(1.0, 2.0, 3.0);
    let w = vec3(1.0, 2.0, 3.0) * u.m;
    let p = u.n * mat2x2(1.0, 2.0, 3.0, 4.0);
    var q = transpose(u.m);
    q[id.x][1] = 7.0;
    y[0] = v.x; y[1] = v.y; y[2] = v.z;
    y[3] = w.x; y[4] = w.y; y[5] = w.z;
    y[6] = p[0].w; y[7] = p[1].x;
    y[8] = determinant(u.m);
    y[9] = q[0].y; y[10] = q[1].x; y[11] = q[2][id.x + 1u];
}
// config domain [1, 1, 1]
// input u: f32 = [1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8]
// input y: f32 = repeat(0, 12)
// output y: f32 = [30.0, 36.0, 45.0, 14.0, 32.0, 53.0, 20.0, 23.0, -3.0, 7.0, 2.0, 6.0]
