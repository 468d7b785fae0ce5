use crate::{Bench, INVALID, example, finished};

#[test]
fn a_decision_is_kept_with_its_samples() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let (out, err) = bench.check(&["tune", &saxpy, "--backend", "cpu", "--size", "4K", "--seconds", "5"], 0);
    assert!(out.contains("* ") && out.contains("median of") && err.is_empty(), "{out}{err}");
    let json = bench.json(&["report", "--json"], 0);
    let kept = json["tuner"].as_array().expect("a list");
    // On a machine too busy to finish in time, no decision is made and the output says so.
    assert!(kept.len() == 1 || out.contains("time"), "{out}\n{json}");
}

#[test]
fn a_folder_for_tables_is_enough_to_keep_a_decision() {
    let bench = Bench::new();
    // A kernel whose results depend on its shape has no candidates to compare, so it is decided
    // however busy the machine is.
    let source = "kernel t(y: output u32[64]) workgroup 64 { region \"t\" { y[invocation.x] = local.x } }\n";
    let file = bench.file("own.vyre", source);
    let arguments = ["tune", &file, "--backend", "cpu", "--json"];
    let mut command = bench.command(&arguments);
    command.env_remove("HOME").env("VYRE_TABLES", bench.path("tables"));
    let (out, _) = finished(command.output().expect("it runs"), &arguments, 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let kept = std::path::Path::new(json["kept_in"].as_str().unwrap_or_default());
    assert!(kept.starts_with(bench.path("tables/tuner")) && kept.exists(), "{json}");
}

#[test]
fn the_shapes_of_a_product_are_tuned() {
    let bench = Bench::new();
    let tune = ["tune", "matmul", "--backend", "cpu", "--seconds", "5", "--sizes", "33x24x40"];
    let (out, err) = bench.check(&tune, 0);
    assert!(out.contains("panels 1x4") && out.contains("median of") && err.is_empty(), "{out}{err}");
    let json = bench.json(&["report", "--json"], 0);
    let kept = json["tuner"].as_array().expect("a list");
    assert!(kept.len() == 1 || out.contains("time"), "{out}\n{json}");
}

#[test]
fn json() {
    let bench = Bench::new();
    let arguments =
        ["tune", &example("saxpy.vyre"), "--backend", "cpu", "--seconds", "2", "--dry-run", "--json"];
    let json = bench.json(&arguments, 0);
    assert!(json["report"]["candidates"].as_array().is_some_and(|all| !all.is_empty()), "{json}");
    assert_eq!(json["kept_in"], serde_json::Value::Null);
    assert!(!bench.path(".cache/vyre/tuner").exists());
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let (saxpy, invalid) = (example("saxpy.vyre"), bench.file("invalid.vyre", INVALID));
    bench.refuses(&[
        (&["tune"], 2, "FILE"),
        (&["tune", &invalid], 3, "V001"),
        (&["tune", &saxpy, "--backend", "nope"], 2, "not linked"),
        (&["tune", &saxpy, "--size", "many"], 2, "not a count"),
        (&["tune", &saxpy, "--sizes", "1x2x3"], 2, "--size"),
        (&["tune", "matmul"], 2, "--size"),
        (&["tune", "matmul", "--sizes", "1x2"], 2, "three counts"),
        (&["tune", &saxpy, "--seconds=-1"], 2, "--seconds"),
    ]);
}
