//! Every command shown in the README and the documentation pages runs as shown.
//!
//! `sh` blocks hold commands, one per line, that must succeed. `console` blocks hold commands after
//! `$ `, followed by their output. A block marked `file=NAME` is written to that file, and
//! `prepare="…"` is run before its block. Everything runs in order in a folder that contains the
//! examples, with `vyre` in `PATH` as for a user; commands that only work through cargo are listed
//! below.

use crate::Bench;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands that are not run here, with the place that covers each.
const RUN_ELSEWHERE: [&str; 5] = [
    // The Python package's tests run its examples.
    "pip install .",
    "python examples/",
    // CI itself.
    "cargo xtask ci",
    // Examples of the `vyre` crate run as tests of that crate.
    "cargo run --release -p vyre --example ",
    // Takes minutes; `vyre bench` has its own tests.
    "cargo run --release -p vyre-cli -- bench",
];
/// Prefix with which the pages run the command from a clone.
const FROM_CLONE: &str = "cargo run --release -p vyre-cli -- ";
/// Long runs are shortened for the test.
const SHORTENED: [(&str, &str); 1] = [("--count 1000", "--count 5")];

struct Block {
    /// Info string of the fence: the language, then options.
    info: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join(page)).expect(page);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(info)) => open = Some(Block { info: info.into(), text: String::new() }),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

fn option<'b>(block: &'b Block, name: &str) -> Option<&'b str> {
    let (_, value) = block.info.split_once(&format!("{name}="))?;
    Some(match value.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?.0,
        None => value.split(' ').next().unwrap_or(value),
    })
}

/// Runs one line of a page in a shell and returns its output.
fn run(bench: &Bench, page: &str, line: &str) -> String {
    let mut line = line.replace(FROM_CLONE, "vyre ");
    for (shown, tested) in SHORTENED {
        line = line.replace(shown, tested);
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_vyre"));
    let folder = binary.parent().expect("a folder").display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &line])
        .current_dir(bench.folder.path())
        .envs([("HOME", bench.folder.path().as_os_str()), ("PATH", path.as_ref())])
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_CACHE_HOME")
        .output()
        .expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{page}: {line}\n{out}\n{err}");
    out.into_owned()
}

fn check_console(bench: &Bench, page: &str, text: &str) {
    for part in text.split("$ ").filter(|part| !part.is_empty()) {
        let (line, expected) = part.split_once('\n').expect("a command and its output");
        assert_eq!(run(bench, page, line), expected, "{page}: {line}");
    }
}

/// Runs a page and returns the number of commands it shows.
fn check_page(page: &str) -> usize {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("examples")).expect("a folder");
    for entry in std::fs::read_dir(root().join("examples")).expect("the examples").flatten() {
        std::fs::copy(entry.path(), bench.path("examples").join(entry.file_name())).expect("copied");
    }
    let mut commands = 0;
    for block in blocks(page) {
        if let Some(name) = option(&block, "file") {
            bench.file(name, &block.text);
        }
        if let Some(line) = option(&block, "prepare") {
            run(&bench, page, line);
        }
        let language = block.info.split(' ').next().unwrap_or_default();
        if language == "console" {
            check_console(&bench, page, &block.text);
            commands += block.text.matches("$ ").count();
        }
        for line in block.text.lines().filter(|line| language == "sh" && !line.is_empty()) {
            commands += 1;
            if !RUN_ELSEWHERE.iter().any(|start| line.starts_with(start)) {
                run(&bench, page, line);
            }
        }
    }
    commands
}

macro_rules! pages {
    ($($name:ident $page:literal $least:literal;)*) => { $(
        #[test]
        fn $name() {
            let commands = check_page($page);
            assert!(commands >= $least, "{} shows {commands} commands, so blocks were not found", $page);
        }
    )* };
}

pages! {
    readme "README.md" 2;
    examples "examples/README.md" 10;
    guide "docs/guide.md" 11;
    tour "docs/tour.md" 14;
    choosing "docs/choosing.md" 8;
    extending "docs/extending.md" 2;
    testing "docs/testing.md" 2;
    command_line "docs/command.md" 4;
    import "docs/import.md" 5;
}
