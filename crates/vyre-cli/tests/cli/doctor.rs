use crate::Bench;

#[test]
fn a_healthy_machine() {
    let (out, _) = Bench::new().check(&["doctor", "--programs", "2"], 0);
    assert!(out.starts_with("ok      vyre: ") && out.contains("backend cpu-ref"), "{out}");
}

#[test]
fn a_damaged_table_is_found() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path(".config/vyre")).expect("a folder");
    bench.file(".config/vyre/pgo.toml", "not [ a table");
    let json = bench.json(&["doctor", "--programs", "0", "--json"], 1);
    let broken: Vec<&serde_json::Value> =
        json.as_array().expect("a list").iter().filter(|check| check["verdict"] == "broken").collect();
    assert_eq!(broken.len(), 1, "{json}");
    assert_eq!(broken[0]["check"], "table routes");
    bench.refuses(&[(&["doctor", "--programs", "x"], 2, "--programs")]);
}
