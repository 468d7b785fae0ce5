//! First contact with drivers through helper processes: the binary itself, and stand-ins that crash
//! or hang.
#![cfg(feature = "wgpu")]

use crate::{Bench, example};
use std::process::Stdio;

fn vyre() -> &'static str {
    env!("CARGO_BIN_EXE_vyre")
}

/// Runs the command with this helper; returns the exit code and the combined output.
fn run_with(bench: &Bench, (helper, seconds): (&str, &str), arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = bench.command(arguments);
    command.env("VYRE_HELPER", helper).env("VYRE_HELPER_LIMIT", seconds);
    let output = command.output().expect("the binary starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn certificates(bench: &Bench) -> String {
    std::fs::read_to_string(bench.path(".cache/vyre/certificates.toml")).unwrap_or_default()
}

#[test]
fn the_binary_certifies_in_a_helper_process_and_the_next_one_remembers() {
    let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
    let (code, text) = run_with(&bench, (vyre(), "300"), &["run", &saxpy, "--backend", "wgpu"]);
    assert_eq!(code, Some(0), "{text}");
    let kept = certificates(&bench);
    assert!(kept.contains("in a helper process") && kept.contains("\"wgpu\""), "{kept}");
    // The certificate exists, so this helper is never started.
    let (code, text) = run_with(&bench, ("/bin/false", "300"), &["run", &saxpy, "--backend", "wgpu"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(certificates(&bench), kept);
}

#[cfg(unix)]
mod drivers_that_go_wrong {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Wraps the real helper in a script that then crashes or hangs, as a bad driver would.
    fn stand_in(bench: &Bench, then: &str) -> String {
        let script = format!("#!/bin/sh\n{} \"$@\" > /dev/null\n{then}\n", vyre());
        let path = bench.file("helper", script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    fn check(then: &str, seconds: &str, reason: &str) -> (Bench, String) {
        let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
        let helper = stand_in(&bench, then);
        let (code, text) = run_with(&bench, (&helper, seconds), &["run", &saxpy, "--backend", "wgpu"]);
        assert!(code.is_some_and(|code| code != 0) && text.contains(reason), "{code:?}: {text}");
        // The embedded backend needs no helper.
        let (code, text) = run_with(&bench, (&helper, seconds), &["run", &saxpy, "--backend", "cpu"]);
        assert_eq!(code, Some(0), "{text}");
        (bench, saxpy)
    }

    #[test]
    fn a_driver_that_crashes_is_refused_with_that_reason() {
        let reason = "ended a helper process";
        let (bench, saxpy) = check("kill -SEGV $$", "300", reason);
        // The refusal is persisted, and every command that opens drivers honours it.
        let (_, listed) = run_with(&bench, ("/bin/false", "300"), &["devices"]);
        assert!(listed.contains(reason), "{listed}");
        for command in ["tune", "certify"] {
            let (code, text) =
                run_with(&bench, ("/bin/false", "300"), &[command, &saxpy, "--backend", "wgpu"]);
            assert!(code != Some(0) && text.contains(reason), "{command}: {code:?}: {text}");
        }
    }

    #[test]
    fn a_driver_that_hangs_is_refused_with_that_reason() {
        let (bench, _) = check("exec sleep 600", "2", "did not answer a helper process within 2s");
        assert!(!certificates(&bench).contains("did not answer"), "it is asked again the next time");
    }
}

#[test]
fn a_helper_ends_with_whoever_asked_it() {
    let bench = Bench::new();
    let mut helper = bench.command(&["conformance-helper", "cpu"]);
    let mut helper = helper.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    drop(helper.stdin.take());
    assert_eq!(helper.wait().expect("it ends").code(), Some(1));
}
