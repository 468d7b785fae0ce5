use crate::{Bench, INVALID, example};

#[test]
fn codes() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["explain", "v015"], 0);
    assert!(out.starts_with("V015: barrier in divergent control flow\n"), "{out}");
    let (out, _) = bench.check(&["explain", "E008"], 0);
    assert!(out.starts_with("E008: Timeout\n"), "{out}");
    let (all, _) = bench.check(&["explain"], 0);
    assert!(all.contains("V001") && all.contains("D005") && all.contains("E001"), "{all}");
    assert_eq!(bench.json(&["explain", "W001", "--json"], 0)[0]["code"], "W001");
    bench.refuses(&[(&["explain", "V999"], 2, "V999")]);
}

#[test]
fn operations_and_programs() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let (out, _) = bench.check(&["explain", "sin"], 0);
    assert!(out.starts_with("primitive.math.sin: ") && out.contains("units in the last place"), "{out}");
    assert_eq!(bench.json(&["explain", "primitive.math.add", "--json"], 0)["loose_ulp"], 0);
    for (name, id) in [
        ("atomic_load", "primitive.atomic.load"),
        ("subgroup_id", "primitive.subgroup.id"),
        ("primitive.workgroup.broadcast", "primitive.workgroup.broadcast"),
    ] {
        let (out, _) = bench.check(&["explain", name], 0);
        assert!(out.starts_with(&format!("{id}: ")) && out.contains("backends  cpu"), "{out}");
    }
    let (out, _) = bench.check(&["explain", &saxpy], 0);
    assert!(out.contains("kernel    saxpy\n") && out.contains("saxpy at 1048576 elements"), "{out}");
    let json = bench.json(&["explain", &saxpy, "--elements", "64K", "--json"], 0);
    assert_eq!((&json["shape_free"], &json["elements"]), (&true.into(), &65536.into()));
    assert!(json["explanation"]["selection"][0]["backend"].is_string(), "{json}");
    let (out, _) = bench.check(&["explain", "scan.inclusive"], 0);
    assert!(out.starts_with("scan.inclusive: "), "{out}");
    let invalid = bench.file("invalid.vyre", INVALID);
    bench.refuses(&[(&["explain", &invalid], 3, "V001")]);
}

#[test]
fn code_says_what_is_checked_and_how_lanes_reach_memory() {
    let bench = Bench::new();
    let gather = "kernel k(i: read u32[], x: read f32[], y: output f32[] len_of i) over i {\n\
        y[invocation.x] = x[i[invocation.x]]\n}";
    let file = bench.file("gather.vyre", gather);
    let (out, _) = bench.check(&["explain", &file, "--code"], 0);
    assert!(out.contains("1 of 3 indices are checked") && out.contains("x: lane by lane"), "{out}");
    let (out, _) = bench.check(&["explain", &file, "--code", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(json["code"]["unchecked"], false);
    assert_eq!(json["code"]["accesses"].as_array().map(Vec::len), Some(3));
}
