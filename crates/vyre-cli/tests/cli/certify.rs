use crate::{Bench, INVALID, example};

#[test]
fn routes_are_measured_and_kept() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let certify = ["certify", &saxpy, "--backend", "cpu,cpu-ref"];
    let (out, err) = bench.check(&[&certify[..], &["--sizes", "16,1K"]].concat(), 0);
    assert!(
        out.contains("saxpy, 2^4 elements and up: ") && out.contains("saxpy, 2^10 elements and up: "),
        "{out}"
    );
    assert!(out.contains("\nkept in ") && err.is_empty(), "{out}{err}");
    assert_eq!(bench.json(&["cache", "ls", "--json"], 0)[0]["rows"], 2);
}

#[test]
fn json() {
    let bench = Bench::new();
    let json =
        bench.json(&["certify", &example("saxpy.vyre"), "--backend", "cpu-ref", "--dry-run", "--json"], 0);
    let route = &json["routes"][0];
    assert_eq!((&route["op"], &route["decision"]["verified"]), (&"saxpy".into(), &true.into()));
    assert_eq!(
        (&route["decision"]["backend"], &json["kept_in"]),
        (&"cpu-ref".into(), &serde_json::Value::Null)
    );
    assert!(!bench.path(".config/vyre/pgo.toml").exists());
}

#[test]
fn a_report_of_one_backend() {
    let bench = Bench::new();
    let file = bench.name("report.json");
    let (out, _) = bench.check(&["certify", "--backend", "cpu-ref", "--report", &file], 0);
    assert!(out.contains("passed the conformance set"), "{out}");
    let text = std::fs::read_to_string(&file).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["backend"], &report["generated"]), (&"cpu-ref".into(), &200.into()));
    assert!(report["certificate"]["passed"].as_array().is_some_and(|passed| passed.len() > 20), "{report}");
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let (saxpy, invalid) = (example("saxpy.vyre"), bench.file("invalid.vyre", INVALID));
    let bare = bench.file("bare.vyre", "kernel b(x: read_write f32[4]) { region \"r\" { x[0] = 1.0 } }");
    bench.refuses(&[
        (&["certify"], 2, "FILES"),
        (&["certify", "--report", "x.json"], 2, "--backend"),
        (&["certify", &invalid], 3, "V001"),
        (&["certify", &saxpy, "--backend", "nope"], 2, "not linked"),
        (&["certify", &saxpy, "--sizes", "many"], 2, "not a count"),
        (&["certify", &bare, "--sizes", "8"], 2, "`x` has no input"),
    ]);
}

#[test]
fn an_oracle_is_never_routed_to() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["certify", &example("saxpy.vyre"), "--backend", "cpu-ref"], 0);
    assert!(!out.contains("kept in"), "{out}");
    assert!(!bench.path(".config/vyre/pgo.toml").exists());
}
