// test interpret
// test run
// Built-in functions of floats.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let v = x[id.x];
    let at = id.x * 16u;
    let a = vec3(v, 2.0, -1.0);
    let b = vec3(0.5, v, 3.0);
    let parts = modf(v);
    let scaled = frexp(v);
    y[at] = clamp(v, -1.0, 1.0) + saturate(v) + fract(v) + sign(v);
    y[at + 1u] = floor(v) + ceil(v) * 10.0 + round(v) * 100.0 + trunc(v) * 1000.0;
    y[at + 2u] = mix(v, 4.0, 0.25) + step(1.0, v) + smoothstep(0.0, 4.0, v);
    y[at + 3u] = fma(v, v, 1.0) + sqrt(abs(v)) + inverseSqrt(abs(v) + 1.0);
    y[at + 4u] = v % 0.75;
    y[at + 5u] = length(a) + distance(a, b) + length(v);
    y[at + 6u] = cross(a, b).y;
    y[at + 7u] = normalize(a).x;
    y[at + 8u] = reflect(a, b).z;
    y[at + 9u] = refract(a, b, 0.5).z;
    y[at + 10u] = faceForward(a, b, a).x;
    y[at + 11u] = parts.fract + parts.whole * 8.0 + scaled.fract + f32(scaled.exp);
    y[at + 12u] = ldexp(v, 3) + quantizeToF16(v * 1.2345);
    y[at + 13u] = radians(v) + degrees(v) + max(v, min(2.0, v * v));
    y[at + 14u] = select(1.0, 2.0, all(a > b)) + select(10.0, 20.0, any(a > b));
    y[at + 15u] = exp2(floor(v)) + atan2(v, 2.0) + tanh(v);
}
// config domain [3, 1, 1]
// input x: f32 = [0.0, 2.5, -1.625]
// input y: f32 = repeat(0, 48)
// output y: f32 = [0.0, 0.0, 1.0, 2.0, 0.0, 6.736068, -0.5, 0.0, 17.0, -1.1961523, 0.0, 0.0, 0.0, 0.0, 21.0, 1.0, 3.5, 2232.0, 4.5585938, 9.365661, 0.25, 10.354102, -8.0, 0.745356, -20.5, -10.899095, -2.5, 19.125, 23.085938, 145.7831, 21.0, 5.8826694, -1.625, -1212.0, -0.21875, 5.5325933, -0.125, 10.190569, 4.375, -0.5878803, 41.375, -0.8139329, -1.625, -8.4375, -15.005859, -91.134, 21.0, -1.3576628]
