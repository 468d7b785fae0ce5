use crate::Bench;

#[test]
fn linked_backends_are_listed() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["devices", "--limits"], 0);
    assert!(out.contains("cpu-ref    not selected: it is an oracle"), "{out}");
    assert!(out.contains(" selected: ") && out.contains("  invocations per group "), "{out}");
    bench.refuses(&[(&["devices", "extra"], 2, "extra")]);
}

#[test]
fn json() {
    let bench = Bench::new();
    // Helper processes certify backends that are listed for the first time.
    let json = bench.json(&["devices", "--json"], 0);
    assert_eq!(json[0]["certified"], true);
    let of = |id: &str| json.as_array().and_then(|all| all.iter().find(|device| device["id"] == id)).cloned();
    assert_eq!(of("cpu-ref").expect("linked")["state"], "refused");
    assert_eq!(json[0]["state"], "selected");
    let cpu = of("cpu").expect("linked");
    assert_eq!((&cpu["strict"], &cpu["profile"]["backend"]), (&true.into(), &"cpu".into()));
}
