use crate::Bench;

#[test]
fn programs_are_compared_and_counted() {
    let bench = Bench::new();
    let out_folder = bench.name("failures");
    let usual = ["conform", "--backend", "cpu-ref", "--count", "20", "--seed", "5", "--out", &out_folder];
    let (out, err) = bench.check(&usual, 0);
    assert!(out.starts_with("cpu-ref: 20 programs from seed 5, ") && out.contains(" 0 mismatches"), "{out}");
    assert_eq!(err, "");
    let json = bench.json(&[&usual[..], &["--json", "--jobs", "1"]].concat(), 0);
    assert_eq!((&json["programs"], &json["mismatches"]), (&20.into(), &serde_json::json!([])));
    assert!(json["comparisons"].as_u64() > Some(200), "{json}");
    let few = ["--sample", "2", "--statements", "3", "--json"];
    assert_eq!(bench.json(&[&usual[..], &few].concat(), 0)["comparisons"], 40);
    assert!(!bench.path("failures").exists(), "a folder without failures");
}

#[test]
fn bad_input() {
    Bench::new().refuses(&[
        (&["conform", "--backend", "nope"], 2, "not linked"),
        (&["conform", "--backend", "cpu-ref", "--seconds=-3"], 2, "--seconds"),
        (&["conform"], 2, "--backend"),
    ]);
}
