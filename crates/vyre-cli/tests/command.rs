//! The binary from outside: what it prints where, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn vyre(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vyre")).args(arguments).output().expect("the binary starts")
}

/// Runs the binary, checks the exit code, and gives standard output and standard error.
fn check(arguments: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = vyre(arguments);
    let (out, err) =
        (String::from_utf8_lossy(&stdout).to_string(), String::from_utf8_lossy(&stderr).to_string());
    assert_eq!(status.code(), Some(code), "vyre {}\n{out}\n{err}", arguments.join(" "));
    (out, err)
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("the folder is writable");
    path.display().to_string()
}

const TRAP: &str = "kernel t(y: output u32[1]) { region \"t\" { trap 7 } }";

#[test]
fn run_takes_inputs_from_the_command_line_and_the_file() {
    let saxpy = example("saxpy.vyre").display().to_string();
    let (out, err) =
        check(&["run", &saxpy, "--in", "a=3", "--in", "x=1,2,nan", "--in", "y=[0.5, -0.0, 1]"], 0);
    assert_eq!((out.as_str(), err.as_str()), ("y: f32[3] = [3.5, 6.0, nan]\n", ""));
    let (out, _) = check(&["run", &saxpy], 0);
    assert_eq!(out, "y: f32[5] = [12.0, 24.0, nan, -0.0, inf]\n");
    let (out, _) = check(&["run", &saxpy, "--in", "x=rand:f32:100", "--in", "y=zero 100"], 0);
    assert!(out.starts_with("y: f32[100] = [") && out.ends_with(" …\n"), "{out}");
    assert_eq!(out, check(&["run", &saxpy, "--in", "x=rand:f32:100", "--in", "y=zero 100"], 0).0);
}

#[test]
fn run_prints_json() {
    let saxpy = example("saxpy.vyre").display().to_string();
    let (out, _) = check(&["run", &saxpy, "--backend", "cpu-ref", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(json["backend"], "cpu-ref");
    assert_eq!(json["outputs"][0]["values"], serde_json::json!([12.0, 24.0, "nan", -0.0, "inf"]));
}

#[test]
fn run_tells_whose_fault_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saxpy = example("saxpy.vyre").display().to_string();
    let trap = file(folder.path(), "trap.vyre", TRAP);
    let invalid =
        file(folder.path(), "invalid.vyre", "kernel t(y: output u32[1]) { region \"t\" { y[0] = z } }");
    let expected = [
        (vec!["run", "no-such-file.vyre"], 2, "no-such-file.vyre"),
        (vec!["run", &saxpy, "--in", "q=1"], 2, "a, x, y"),
        (vec!["run", &saxpy, "--in", "x=oops"], 2, "`oops` is not a value of f32"),
        (vec!["run", &saxpy, "--in", "x"], 2, "name=data"),
        (vec!["run", &saxpy, "--backend", "nope"], 2, "cpu-ref"),
        (vec!["run", &saxpy, "--timeout=-1"], 2, "--timeout"),
        (vec!["run", &saxpy, "--in", "a=1,2"], 3, "D002"),
        (vec!["run", &invalid], 3, "invalid.vyre:1:50"),
        (vec!["run", &trap], 4, "trapped with code 7"),
        (vec!["frobnicate"], 2, "frobnicate"),
    ];
    for (arguments, code, message) in expected {
        let (out, err) = check(&arguments, code);
        assert!(err.contains(message) && out.is_empty(), "{arguments:?}: {out}{err}");
        assert!(!err.contains('\x1b'), "colours on something that is no terminal: {err}");
    }
}

#[test]
fn check_shows_faults_with_their_places() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bad =
        file(folder.path(), "bad.vyre", "kernel t(y: output u32[1]) {\n  region \"t\" { y[0] = z + w }\n}\n");
    let saxpy = example("saxpy.vyre").display().to_string();
    let (out, err) = check(&["check", &saxpy, &bad], 1);
    assert!(out.contains("saxpy.vyre: valid\n") && out.contains("bad.vyre: not valid\n"), "{out}");
    assert!(
        err.contains("error[V001]") && err.contains("bad.vyre:2:23") && err.contains("bad.vyre:2:27"),
        "{err}"
    );
    let (out, err) = check(&["check", &bad, "--json"], 1);
    let json: serde_json::Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(err, "");
    assert_eq!(json[0]["valid"], false);
    assert_eq!(json[0]["diagnostics"][1]["code"], "V001");
    assert_eq!(
        (json[0]["diagnostics"][1]["line"].as_u64(), json[0]["diagnostics"][1]["column"].as_u64()),
        (Some(2), Some(27))
    );
    check(&["check"], 2);
    check(&["check", "no-such-file.vyre"], 2);
}

#[test]
fn explain_knows_every_code() {
    let (out, _) = check(&["explain", "v015"], 0);
    assert!(out.starts_with("V015: barrier in divergent control flow\n"), "{out}");
    let (all, _) = check(&["explain"], 0);
    assert!(all.contains("V001") && all.contains("D005"), "{all}");
    let (json, _) = check(&["explain", "W001", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    assert_eq!(json[0]["code"], "W001");
    let (_, err) = check(&["explain", "V999"], 2);
    assert!(err.contains("V999"), "{err}");
}

#[test]
fn conform_compares_and_reports() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out_folder = folder.path().join("failures").display().to_string();
    let common = ["conform", "--backend", "cpu-ref", "--count", "20", "--seed", "5", "--out", &out_folder];
    let (out, err) = check(&common, 0);
    assert!(out.starts_with("cpu-ref: 20 programs from seed 5, ") && out.contains(" 0 mismatches"), "{out}");
    assert_eq!(err, "");
    let (out, _) = check(&[&common[..], &["--json", "--jobs", "1"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&out).expect("valid JSON");
    assert_eq!(json["programs"], 20);
    assert!(json["comparisons"].as_u64() > Some(200), "{json}");
    assert_eq!(json["mismatches"], serde_json::json!([]));
    assert!(!Path::new(&out_folder).exists(), "a folder without failures");
    let (_, err) = check(&["conform", "--backend", "nope"], 2);
    assert!(err.contains("not linked"), "{err}");
    check(&["conform", "--backend", "cpu-ref", "--seconds=-3"], 2);
}

#[test]
fn help_and_completions() {
    let (out, _) = check(&["--help"], 0);
    assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
    for command in ["check", "run", "conform", "explain"] {
        let (out, _) = check(&[command, "--help"], 0);
        assert!(out.contains("Example"), "{out}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let (out, _) = check(&["completions", shell], 0);
        assert!(out.contains("conform"), "{out}");
    }
    check(&["--version"], 0);
}

#[test]
fn opt_shows_the_kernel_behind_every_pass() {
    let saxpy = example("saxpy.vyre").display().to_string();
    let (out, _) = check(&["opt", &saxpy, "--passes", "cse,range,dead", "--print-after"], 0);
    let passes: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("// after ")).collect();
    assert_eq!(passes, ["cse", "range", "dead"]);
    let (out, _) = check(&["opt", &saxpy, "--schedule", "quick"], 0);
    assert!(
        out.starts_with("kernel saxpy") && out.contains("store y[v0] = ") && out.contains("[in bounds]"),
        "{out}"
    );
    let (_, err) = check(&["opt", &saxpy, "--passes", "nothing"], 2);
    assert!(err.contains("`nothing` is no pass; there are fold, "), "{err}");
}
