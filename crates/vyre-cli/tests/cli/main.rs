//! Black-box tests of the binary: what it prints where, and its exit codes. One module per
//! subcommand, each with good input, bad input and `--json`.

mod bench;
mod cache;
mod certify;
mod check;
mod conform;
mod devices;
mod docs;
mod doctor;
mod emit;
mod explain;
mod fmt;
mod general;
mod helper;
#[cfg(feature = "import")]
mod import;
mod lsp;
mod names;
mod opt;
mod replay;
mod report;
mod run;
mod tune;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A separate folder for one test, with its files and the user's folders as the command sees them.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the folder, as an argument.
    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file and returns its path as an argument.
    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), contents).expect("the folder is writable");
        self.name(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vyre"));
        command.args(arguments).stdin(Stdio::null()).env("HOME", self.folder.path());
        for variable in [
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "XDG_RUNTIME_DIR",
            "VYRE_TABLES",
            "VYRE_BACKENDS",
            "VYRE_AUTOTUNER",
        ] {
            command.env_remove(variable);
        }
        // Drivers' compiler caches are shared by all tests; starting cold, first contact would take
        // most of a test's time.
        let caches = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver-caches");
        command.env("POCL_CACHE_DIR", caches.join("pocl")).env("MESA_SHADER_CACHE_DIR", caches.join("mesa"));
        command
    }

    /// Runs the binary, checks the exit code, and returns standard output and standard error.
    fn check(&self, arguments: &[&str], code: i32) -> (String, String) {
        finished(self.command(arguments).output().expect("the binary starts"), arguments, code)
    }

    /// Like [`check`](Self::check), with the given standard input.
    fn check_input(&self, arguments: &[&str], input: &str, code: i32) -> (String, String) {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut stdin, input.as_bytes()).expect("it reads its input");
        drop(stdin);
        finished(child.wait_with_output().expect("it ends"), arguments, code)
    }

    /// Parses the JSON that the binary prints; standard error must be empty.
    fn json(&self, arguments: &[&str], code: i32) -> serde_json::Value {
        let (out, err) = self.check(arguments, code);
        assert_eq!(err, "", "{arguments:?}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{out}"))
    }

    /// Checks that each argument list exits with the code and the message on standard error, and
    /// prints nothing on standard output.
    fn refuses(&self, cases: &[(&[&str], i32, &str)]) {
        for (arguments, code, message) in cases {
            let (out, err) = self.check(arguments, *code);
            assert!(err.contains(message) && out.is_empty(), "{arguments:?}: {out}{err}");
            assert!(!err.contains('\x1b'), "colours on something that is no terminal: {err}");
            assert!(!err.contains("panicked"), "{arguments:?}: {err}");
        }
    }
}

fn finished(output: Output, arguments: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = output;
    let (out, err) =
        (String::from_utf8_lossy(&stdout).to_string(), String::from_utf8_lossy(&stderr).to_string());
    assert_eq!(status.code(), Some(code), "vyre {}\n{out}\n{err}", arguments.join(" "));
    (out, err)
}

/// A file in the folder of examples.
fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.display().to_string()
}

const INVALID: &str = "kernel t(y: output u32[1]) {\n  region \"t\" { y[0] = z + w }\n}\n";
