//! Compiles and runs C and C++ programs against the headers: the examples, the program in
//! docs/c.md, and programs that misuse the interface.
//!
//! `VYRE_C_RUNNER` names a wrapper to run each program under, such as `valgrind`; `cargo xtask long
//! valgrind` sets it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How to build a program.
#[derive(Clone, Copy)]
struct Build {
    compiler: &'static str,
    standard: &'static str,
    is_static: bool,
}

const C: Build = Build { compiler: "cc", standard: "-std=c99", is_static: false };
const CPP: Build = Build { compiler: "c++", standard: "-std=c++17", is_static: false };

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Directory in which cargo places the libraries that tests link against.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    test.parent().expect("it is in a folder").to_path_buf()
}

/// Builds a program against the headers and the library; prints SKIP and returns `None` if there is
/// no compiler.
fn build(build: Build, source: &Path, folder: &TempDir) -> Option<PathBuf> {
    let program = folder.path().join("program");
    let mut command = Command::new(build.compiler);
    command.args([build.standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g", "-I"]);
    command.arg(here().join("include")).arg(source).arg("-o").arg(&program);
    if build.is_static {
        command.arg(libraries().join("libvyre_c.a")).args(["-lpthread", "-ldl", "-lm"]);
    } else {
        command.arg("-L").arg(libraries()).args(["-lvyre_c", "-lpthread"]);
    }
    match command.output() {
        Err(error) => {
            println!("SKIP {}: {error}", build.compiler);
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

/// Runs a program isolated from the user's environment and returns its output.
fn run(program: &Path, folder: &TempDir) -> String {
    let runner = std::env::var("VYRE_C_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace().map(Path::new).chain([program]);
    let mut command = Command::new(words.next().expect("at least the program"));
    command.args(words).env("LD_LIBRARY_PATH", libraries()).env("XDG_CACHE_HOME", folder.path());
    command.env("HOME", folder.path()).env_remove("VYRE_BACKENDS");
    let output = command.output().expect("it was just built");
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{}: {}\n{said}", program.display(), output.status);
    said
}

/// Builds and runs a program and returns its output, which is empty if there is no compiler.
fn check(how: Build, source: &Path) -> String {
    let folder = TempDir::new().expect("a folder for the program");
    build(how, source, &folder).map(|program| run(&program, &folder)).unwrap_or_default()
}

#[test]
fn saxpy_from_c() {
    let said = check(C, &here().join("examples/saxpy.c"));
    assert!(said.is_empty() || said.contains("y[999] = 1998.5"), "{said}");
}

#[test]
fn saxpy_from_c_with_the_static_library() {
    let said = check(Build { is_static: true, ..C }, &here().join("examples/saxpy.c"));
    assert!(said.is_empty() || said.contains("y[999] = 1998.5"), "{said}");
}

/// The only call returns while other threads are still opening drivers for the first time; process
/// exit waits for those threads.
#[test]
fn a_short_program_ends_well() {
    let built = TempDir::new().expect("a folder for the program");
    let Some(program) = build(C, &here().join("examples/saxpy.c"), &built) else { return };
    for _ in 0..8 {
        let folder = TempDir::new().expect("a folder for its caches");
        let began = Instant::now();
        assert!(run(&program, &folder).contains("y[999] = 1998.5"));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

#[test]
fn ops_and_arrays_from_cpp() {
    check(CPP, &here().join("examples/ops.cpp"));
}

#[test]
fn the_header_is_cpp_as_well() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("both.cpp");
    std::fs::write(&source, "#include \"vyre.h\"\n#include \"vyre.hpp\"\nint main() { return vyre_abi_version() - VYRE_ABI_VERSION; }\n").unwrap();
    check(CPP, &source);
}

#[test]
fn misuse_is_reported() {
    check(C, &here().join("tests/programs/misuse.c"));
}

#[test]
fn threads_share_and_free() {
    check(Build { standard: "-std=gnu99", ..C }, &here().join("tests/programs/threads.c"));
}

#[test]
fn the_programs_of_the_page_run() {
    let page = std::fs::read_to_string(here().join("../../docs/c.md")).unwrap();
    let blocks = |language: &str| -> Vec<String> {
        let fence = format!("```{language}\n");
        page.split(&fence)
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap_or_default().to_string())
            .collect()
    };
    let (c, cpp) = (blocks("c"), blocks("cpp"));
    assert!(!c.is_empty() && !cpp.is_empty());
    for (how, name, programs) in [(C, "page.c", c), (CPP, "page.cpp", cpp)] {
        for program in programs.iter().filter(|text| text.contains("main(")) {
            let folder = TempDir::new().unwrap();
            let source = folder.path().join(name);
            std::fs::write(&source, program).unwrap();
            check(how, &source);
        }
    }
}
