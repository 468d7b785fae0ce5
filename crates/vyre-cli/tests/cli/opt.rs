use crate::{Bench, INVALID, example};

#[test]
fn the_kernel_behind_every_pass() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let after = |out: &str| -> Vec<String> {
        out.lines().filter_map(|line| line.strip_prefix("// after ")).map(str::to_owned).collect()
    };
    let (out, _) = bench.check(&["opt", &saxpy, "--passes", "cse,range,dead", "--print-after"], 0);
    assert_eq!(after(&out), ["cse", "range", "dead"]);
    let (out, _) = bench.check(&["opt", &saxpy, "--passes", "cse,range,dead", "--print-after", "range"], 0);
    assert_eq!(after(&out), ["range"]);
    let (out, _) = bench.check(&["opt", &saxpy, "--schedule", "quick"], 0);
    assert!(
        out.starts_with("kernel saxpy") && out.contains("store y[v0] = ") && out.contains("[in bounds]"),
        "{out}"
    );
}

#[test]
fn json() {
    let json = Bench::new().json(&["opt", &example("saxpy.vyre"), "--passes", "cse,dead", "--json"], 0);
    assert_eq!((&json["steps"][0]["pass"], &json["steps"][1]["pass"]), (&"cse".into(), &"dead".into()));
    assert_eq!(json["kernel"], json["steps"][1]["kernel"]);
}

#[test]
fn bad_input() {
    let bench = Bench::new();
    let (saxpy, invalid) = (example("saxpy.vyre"), bench.file("invalid.vyre", INVALID));
    bench.refuses(&[
        (&["opt", &saxpy, "--passes", "nothing"], 2, "`nothing` is not a pass; the passes are fold, "),
        (&["opt", &saxpy, "--print-after", "nothing"], 2, "`nothing` is not a pass; the passes are fold, "),
        (&["opt", &invalid], 3, "V001"),
    ]);
}
