use crate::{Bench, example};

#[test]
fn a_run_is_done_again() {
    let bench = Bench::new();
    let manifest = bench.name("saxpy.json");
    bench.check(&["run", &example("saxpy.vyre"), "--backend", "cpu-ref", "--manifest", &manifest], 0);
    let inputs = ["--in", "a=2", "--in", "x=1,2", "--in", "y=3,4"];
    let again = [&["replay", &manifest], &inputs[..]].concat();
    assert_eq!(bench.check(&again, 0), ("y: f32[2] = [5.0, 8.0]\n".into(), String::new()));
    let json = bench.json(&[&again[..], &["--json"]].concat(), 0);
    assert_eq!((&json["backend"], &json["differences"]), (&"cpu-ref".into(), &serde_json::json!([])));
    let (out, err) = bench.check(&[&again[..], &["--backend", "cpu"]].concat(), 0);
    assert!(out.starts_with("y: f32[2] = [5.0, 8.0]") && err.contains("backend: `cpu` now"), "{out}{err}");
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let manifest = bench.name("saxpy.json");
    bench.check(&["run", &example("saxpy.vyre"), "--manifest", &manifest], 0);
    let text = std::fs::read_to_string(&manifest).expect("written");
    let edited = bench.file("edited.json", text.replace("\"program_digest\": \"", "\"program_digest\": \"0"));
    let (other, broken) = (bench.file("other.json", "{\"schema\": \"x\"}"), bench.file("broken.json", "{"));
    bench.refuses(&[
        (&["replay", "no-such.json"], 2, "no-such.json"),
        (&["replay", &broken], 2, "not the JSON"),
        (&["replay", &other], 2, "has schema `x`"),
        (&["replay", &edited], 2, "edited or damaged"),
        (&["replay", &manifest], 2, "has no input"),
    ]);
}
