use crate::Bench;

const SHADER: &str = "\
override N: u32 = 2;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(1) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = x[id.x] * f32(N); }
}
@compute @workgroup_size(64) fn fill(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 7.0; }
";

#[test]
fn a_shader_becomes_a_program() {
    let bench = Bench::new();
    let (shader, program) = (bench.file("shader.wgsl", SHADER), bench.name("scale.vyre"));
    let (out, _) = bench.check(&["import", &shader, "--entry", "scale", "--set", "N=5"], 0);
    assert!(
        out.starts_with("kernel scale(x: read f32[], @binding(1000) y: read_write f32[]) over y"),
        "{out}"
    );
    assert!(out.contains("x[invocation.x] * 5.0"), "{out}");
    bench.check(&["import", &shader, "--entry", "scale", "--out", &program], 0);
    let (out, _) = bench.check(&["run", &program, "--in", "x=1,2", "--in", "y=0,0"], 0);
    assert_eq!(out, "y: f32[2] = [2.0, 4.0]\n");
    let json = bench.json(&["import", &shader, "--entry", "fill", "--json"], 0);
    assert_eq!((&json["name"], &json["buffers"][0]["binding"]), (&"fill".into(), &1000.into()));
}

#[test]
fn commands_take_shaders() {
    let bench = Bench::new();
    let shader = bench.file("shader.wgsl", SHADER);
    let inputs = ["--entry", "scale", "--in", "x=1,2,3", "--in", "y=0,0,0"];
    let (out, _) = bench.check(&[&["run", &shader, "--set", "N=3"], &inputs[..]].concat(), 0);
    assert_eq!(out, "y: f32[3] = [3.0, 6.0, 9.0]\n");
    bench.check(&["check", &shader, "--entry", "fill"], 0);
    let (out, _) = bench.check(&["emit", &shader, "--entry", "fill", "--target", "opencl"], 0);
    assert!(out.contains("__kernel"), "{out}");
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let shader = bench.file("shader.wgsl", SHADER);
    let broken = bench.file("broken.wgsl", "@compute fn main( {");
    let words = bench.file("words.spv", "not words at all");
    let plain = bench.file("plain.vyre", "kernel nothing(y: output u32[1]) { y[0] = 1 }");
    bench.refuses(&[
        (&["import", &shader], 3, "`scale`, `fill`"),
        (&["import", &shader, "--entry", "blur"], 3, "S003"),
        (&["import", &shader, "--entry", "scale", "--set", "M=1"], 3, "no override `M`"),
        (&["import", &shader, "--entry", "scale", "--set", "N=x"], 2, "`x` is not a number"),
        (&["import", &broken], 3, "broken.wgsl:1:"),
        (&["import", &words], 3, "S001"),
        (&["run", &plain, "--entry", "nothing"], 2, "is not a shader"),
        (&["import", "no-such.wgsl"], 2, "no-such"),
    ]);
}
