//! Names that are not UTF-8 work wherever a file is named, and terminal control characters are
//! always escaped.
#![cfg(unix)]

use crate::Bench;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const KERNEL: &str = "kernel k(x: read u32[4], y: output u32[4]) {\n  region \"r\" { y[invocation.x] = x[invocation.x] + 1 }\n}\n";

/// The name prefixed with a byte that is invalid UTF-8 and with BEL.
fn odd(name: &str) -> OsString {
    OsStr::from_bytes(&[b"\xff\x07".as_slice(), name.as_bytes()].concat()).to_owned()
}

/// Runs the command with `{name}` in the arguments replaced by the path of the file with that odd
/// name.
fn run(bench: &Bench, arguments: &[&str]) -> (Option<i32>, Vec<u8>) {
    let mut command = bench.command(&[]);
    for argument in arguments {
        match argument.split_once('{') {
            Some((before, name)) => {
                let path = bench.folder.path().join(odd(name.trim_end_matches('}')));
                command.arg([OsStr::new(before), path.as_os_str()].concat_os());
            }
            None => {
                command.arg(argument);
            }
        }
    }
    command.env("VYRE_TABLES", bench.folder.path().join(odd("tables")));
    let output = command.output().expect("the binary starts");
    (output.status.code(), [output.stdout, output.stderr].concat())
}

trait Concat {
    fn concat_os(&self) -> OsString;
}

impl Concat for [&OsStr; 2] {
    fn concat_os(&self) -> OsString {
        let mut all = self[0].to_owned();
        all.push(self[1]);
        all
    }
}

#[test]
fn files_may_have_any_name() {
    let bench = Bench::new();
    let place = |name: &str| -> PathBuf { bench.folder.path().join(odd(name)) };
    std::fs::write(place("k.vyre"), KERNEL).expect("written");
    std::fs::write(place("x.bin"), [7u8; 16]).expect("written");
    let commands: &[&[&str]] = &[
        &["check", "{k.vyre}"],
        &["fmt", "--check", "{k.vyre}"],
        &["opt", "{k.vyre}"],
        &["explain", "{k.vyre}"],
        &["emit", "{k.vyre}", "--target", "opencl", "--out", "{k.cl}"],
        &["run", "{k.vyre}", "--backend", "cpu", "--in", "x=@{x.bin}", "--out", "y={y.npy}"],
        &["run", "{k.vyre}", "--backend", "cpu", "--in", "x=@{x.bin}", "--out", "{y.bin}"],
        &[
            "run",
            "{k.vyre}",
            "--backend",
            "cpu",
            "--in",
            "x=1,2,3,4",
            "--manifest",
            "{m.json}",
            "--trace",
            "{t.json}",
        ],
        &["replay", "{m.json}", "--in", "x=1,2,3,4"],
        &["certify", "{k.vyre}", "--backend", "cpu", "--in", "x={y.npy}"],
        &["tune", "{k.vyre}", "--backend", "cpu", "--in", "x=1,2,3,4"],
        &["cache", "ls"],
        &["cache", "verify"],
        &["cache", "export", "{bundle.toml}"],
        &["cache", "import", "{bundle.toml}"],
        &["report", "--out", "{page.html}"],
    ];
    for arguments in commands {
        let (code, said) = run(&bench, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&said));
        assert!(!said.contains(&7), "{arguments:?} rings the bell");
    }
    for made in ["k.cl", "y.npy", "y.bin", "m.json", "t.json", "bundle.toml", "page.html", "tables"] {
        assert!(place(made).exists(), "{made}");
    }
    let page = std::fs::read(place("page.html")).expect("a page");
    assert!(!page.contains(&7) && !page.contains(&0x1b), "the page has control characters");
}

#[test]
fn nothing_from_outside_steers_a_terminal() {
    let bench = Bench::new();
    let hostile = "\x1b[2J\x1b]0;owned\x07\r";
    let kernel = bench.file(
        "bad.vyre",
        format!("kernel k(y: output u32[4]) {{ y[0] = /* {hostile} */ zz }} // {hostile}\n"),
    );
    let missing = bench.name(&format!("no{hostile}"));
    let cases: Vec<Vec<&str>> = vec![
        vec!["check", &kernel],
        vec!["run", &kernel],
        vec!["run", &missing],
        vec!["run", &kernel, "--backend", hostile],
        vec!["run", "examples/saxpy.vyre", "--in", hostile],
        vec![hostile],
        vec!["explain", hostile],
        vec!["cache", "clear", hostile],
        vec!["replay", &missing],
    ];
    for arguments in cases {
        let mut command = bench.command(&arguments);
        let output = command.env("VYRE_AUTOTUNER", hostile).output().expect("the binary starts");
        let said = [output.stdout, output.stderr].concat();
        let steers = said.iter().any(|byte| matches!(byte, 0..=8 | 11..=31 | 127));
        assert!(!steers, "{arguments:?}: {:?}", String::from_utf8_lossy(&said));
    }
}
