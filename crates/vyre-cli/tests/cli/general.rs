use crate::{Bench, finished};
use std::io::Read;
use std::process::Stdio;

/// The commands that `--help` lists.
fn commands(bench: &Bench) -> Vec<String> {
    let (out, _) = bench.check(&["--help"], 0);
    let listed =
        out.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continuation lines are indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !["", "help"].contains(name)).map(str::to_owned);
    let names: Vec<String> = names.collect();
    assert!(names.len() > 15 && names.iter().any(|name| name == "bench"), "{out}");
    names
}

#[test]
fn every_command_has_help_with_examples() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["--help"], 0);
    assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
    for command in commands(&bench) {
        let (own, _) = bench.check(&[&command, "--help"], 0);
        assert!(own.contains("Example"), "{own}");
    }
    bench.check(&["--version"], 0);
    bench.refuses(&[(&["frobnicate"], 2, "frobnicate"), (&[], 2, "Usage")]);
}

#[test]
fn completions_name_every_command() {
    let bench = Bench::new();
    let commands = commands(&bench);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (out, _) = bench.check(&["completions", shell], 0);
        assert!(commands.iter().all(|command| out.contains(command.as_str())), "{shell}: {out}");
    }
}

#[test]
fn ops_are_listed() {
    let bench = Bench::new();
    let (out, _) = bench.check(&["ops"], 0);
    assert!(out.lines().count() > 50 && out.contains("\nsin  "), "{out}");
    let json = bench.json(&["ops", "popcount", "--json"], 0);
    assert_eq!(json[0]["id"], "primitive.bits.popcount");
    bench.refuses(&[(&["ops", "no such op"], 2, "no such op")]);
    assert_eq!(bench.json(&["ops", "no such op", "--json"], 0), serde_json::json!([]));
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let mut command = Bench::new().command(&["ops"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("readable");
    assert_eq!((child.wait().expect("it ends").code(), err.as_str()), (Some(0), ""));
}

#[test]
fn verbosity_goes_to_standard_error() {
    let bench = Bench::new();
    assert_eq!(bench.check(&["devices"], 0).1, "");
    let (out, err) = bench.check(&["-vv", "devices", "--json"], 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{out}");
    assert!(err.contains("debug vyre_driver::registry") && err.contains("backend refused"), "{err}");
}

#[test]
fn invalid_values_of_variables_are_named() {
    let (bench, arguments) = (Bench::new(), ["ops", "--json"]);
    let mut command = bench.command(&arguments);
    command.env("VYRE_FROZEN", "perhaps").env("VYRE_AUTOTUNER", "off");
    let (_, err) = finished(command.output().expect("it runs"), &arguments, 0);
    assert_eq!(err, "warning: VYRE_FROZEN=\"perhaps\" is ignored: it takes on or off\n");
}
