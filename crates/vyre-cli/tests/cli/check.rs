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
