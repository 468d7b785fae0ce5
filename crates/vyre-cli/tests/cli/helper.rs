//! First contact with drivers by helper processes: the binary itself, and stand-ins that crash and hang.

use crate::{Bench, example};

fn vyre() -> &'static str {
    env!("CARGO_BIN_EXE_vyre")
}

/// Runs with this helper, and gives exit code, output and messages.
fn run_with(bench: &Bench, (helper, seconds): (&str, &str), arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = bench.command(arguments);
    command.env("VYRE_HELPER", helper).env("VYRE_HELPER_LIMIT", seconds).env("VYRE_BACKENDS", "cpu");
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
    let (code, text) = run_with(&bench, (vyre(), "300"), &["run", &saxpy]);
    assert_eq!(code, Some(0), "{text}");
    let kept = certificates(&bench);
    assert!(kept.contains("in a helper process") && kept.contains("\"cpu\""), "{kept}");
    // This helper would have the backend refused; it is not asked, because the certificate is there.
    let (code, text) = run_with(&bench, ("/bin/false", "300"), &["run", &saxpy]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(certificates(&bench), kept);
}

#[cfg(unix)]
mod drivers_that_go_wrong {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// The real helper, in a process that a bad driver ends or never lets go.
    fn stand_in(bench: &Bench, then: &str) -> String {
        let script = format!("#!/bin/sh\n{} \"$@\" > /dev/null\n{then}\n", vyre());
        let path = bench.file("helper", script);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    fn check(then: &str, seconds: &str, reason: &str) {
        let (bench, saxpy) = (Bench::new(), example("saxpy.vyre"));
        let helper = stand_in(&bench, then);
        let (code, text) = run_with(&bench, (&helper, seconds), &["run", &saxpy]);
        assert!(code.is_some_and(|code| code != 0) && text.contains(reason), "{code:?}: {text}");
        // The refusal is remembered, and every command that opens drivers goes by it.
        let (_, listed) = run_with(&bench, ("/bin/false", "300"), &["devices"]);
        assert!(listed.contains(reason), "{listed}");
        for command in ["tune", "certify"] {
            let (code, text) =
                run_with(&bench, ("/bin/false", "300"), &[command, &saxpy, "--backend", "cpu"]);
            assert!(code != Some(0) && text.contains(reason), "{command}: {code:?}: {text}");
        }
    }

    #[test]
    fn a_driver_that_crashes_is_refused_with_that_reason() {
        check("kill -SEGV $$", "300", "ended a helper process");
    }

    #[test]
    fn a_driver_that_hangs_is_refused_with_that_reason() {
        check("exec sleep 600", "2", "did not answer a helper process within 2s");
    }
}
