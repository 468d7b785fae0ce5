use crate::{Bench, INVALID, example};

#[test]
fn faults_are_shown_with_their_places() {
    let bench = Bench::new();
    let bad = bench.file("bad.vyre", INVALID);
    let (out, err) = bench.check(&["check", &example("saxpy.vyre"), &bad], 1);
    assert!(out.contains("saxpy.vyre: valid\n") && out.contains("bad.vyre: not valid\n"), "{out}");
    assert!(
        err.contains("error[V001]") && err.contains("bad.vyre:2:23") && err.contains("bad.vyre:2:27"),
        "{err}"
    );
    let (out, _) = bench.check_input(&["check", "-"], "kernel k() { region \"r\" {} }", 0);
    assert_eq!(out, "-: valid\n");
}

#[test]
fn a_body_needs_no_region() {
    let bench = Bench::new();
    let bare = "kernel twice(x: read f32[], y: output f32[] len_of x) {\n  let i = invocation.x\n  y[i] = x[i] + x[i]\n}\n";
    let file = bench.file("bare.vyre", bare);
    assert_eq!(bench.check(&["check", &file], 0).0, format!("{file}: valid\n"));
    assert_eq!(bench.check(&["run", &file, "--in", "x=1,2"], 0).0, "y: f32[2] = [2.0, 4.0]\n");
    let fault = bench.file("fault.vyre", bare.replace("x[i] + x[i]", "x[i] + 1"));
    let (_, err) = bench.check(&["check", &fault], 1);
    assert!(err.contains("fault.vyre:3:10"), "{err}");
}

#[test]
fn json() {
    let bench = Bench::new();
    let json = bench.json(&["check", &bench.file("bad.vyre", INVALID), "--json"], 1);
    let second = &json[0]["diagnostics"][1];
    assert_eq!((&json[0]["valid"], &second["code"]), (&false.into(), &"V001".into()));
    assert_eq!((second["line"].as_u64(), second["column"].as_u64()), (Some(2), Some(27)));
}

#[test]
fn bad_arguments() {
    Bench::new()
        .refuses(&[(&["check"], 2, "FILES"), (&["check", "no-such-file.vyre"], 2, "no-such-file.vyre")]);
}
