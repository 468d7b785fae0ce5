//! Every file under `filetests/` and `examples/`, with one test per command.
//!
//! `VYRE_BLESS=1` rewrites the expectations in the files. `VYRE_REQUIRE_BACKENDS=a,b` turns the
//! absence of a listed backend into a failure; otherwise tests of an absent backend are counted as
//! ignored, and each is named on standard error.

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vyre_conform::filetest::{Command, FileTest};
// Linking a backend's crate registers it.
use vyre_driver::registry::{acquire, registered_backends};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::diagnostics::{Code, Diagnostics};
use vyre_foundation::ir::Program;
use vyre_opencl as _;
use vyre_reference as _;

/// Every linked backend: the instance, or why it cannot be used.
type Backends = BTreeMap<String, Result<Arc<dyn VyreBackend>, String>>;

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["filetests", "examples"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let backends = backends();
    let bless = std::env::var("VYRE_BLESS").is_ok_and(|value| value == "1");
    let mut trials = required(&backends);
    if !bless {
        let texts: Vec<String> = files.iter().flat_map(std::fs::read_to_string).collect();
        trials.push(Trial::test("every diagnostic code has a filetest", move || Ok(every_code(&texts)?)));
    }
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string().replace('\\', "/");
        if bless {
            trials.push(Trial::test(name, move || Ok(rewrite(&file)?)));
        } else {
            trials.extend(trials_of(&name, &file, &backends));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "vyre" || extension == "wgsl") {
            files.push(path);
        }
    }
}

/// Codes that no filetest covers: those that need files too large to keep are covered by
/// `tests/all/large.rs`, and the one for calls from Rust by `crates/vyre/tests/all/runtime.rs`.
const WITHOUT_FILE: [Code; 4] =
    [Code::SizeUnknown, Code::TextTooLarge, Code::TooManyElements, Code::Argument];

fn every_code(texts: &[String]) -> Result<(), String> {
    let expects = |text: &String, code: Code| {
        text.lines().any(|line| {
            let rest = line.strip_prefix("// error ").or(line.strip_prefix("// warning "));
            rest.is_some_and(|rest| rest.split(' ').next() == Some(code.as_str()))
        })
    };
    let missing = Code::ALL.iter().filter(|code| !WITHOUT_FILE.contains(code));
    let missing = missing.filter(|&&code| !texts.iter().any(|text| expects(text, code)));
    let missing: Vec<&str> = missing.map(|code| code.as_str()).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("no file expects {}", missing.join(", "))) }
}

fn backends() -> Backends {
    let open = |id: &str| acquire(id).map(Arc::from).map_err(|error| error.to_string());
    registered_backends().iter().map(|backend| (backend.id.to_string(), open(backend.id))).collect()
}

fn required(backends: &Backends) -> Vec<Trial> {
    let required = std::env::var("VYRE_REQUIRE_BACKENDS").unwrap_or_default();
    let ids = required.split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.map(|id| {
        let state = match backends.get(id) {
            Some(Ok(_)) => Ok(()),
            Some(Err(reason)) => Err(Failed::from(reason)),
            None => Err(Failed::from("not linked")),
        };
        Trial::test(format!("backend {id} is present"), || state)
    })
    .collect()
}

fn read(file: &Path) -> Result<FileTest, String> {
    let source = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let is_shader = file.extension().is_some_and(|extension| extension == "wgsl");
    let reader = if is_shader { import } else { vyre_foundation::text::parse };
    Ok(FileTest::parse_with(&source, reader)?.with_emitter(emitted))
}

/// What the `cpu` and `wgpu` backends generate, the same on every machine.
fn emitted(target: &str, program: &Program, config: &DispatchConfig) -> Result<String, String> {
    let text = match target {
        "vector" => vyre_cpu::vector_listing_for(program, config, AVX2_BYTES),
        "wgsl" => vyre_wgpu::wgsl(program, config),
        _ => vyre_wgpu::spirv(program, config).map(|bytes| listing(&bytes)),
    };
    text.map_err(|error| error.to_string())
}

/// Register width that vector listings assume.
const AVX2_BYTES: u32 = 32;

/// The instructions of a SPIR-V module, one per line: name and operand words. Debug names are left
/// out.
fn listing(bytes: &[u8]) -> String {
    let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    // The header is five words.
    let mut rest = words.get(5..).unwrap_or_default();
    let mut lines = String::new();
    while let Some((first, _)) = rest.split_first() {
        let count = (*first >> 16).max(1) as usize;
        let (instruction, behind) = rest.split_at(count.min(rest.len()));
        rest = behind;
        let name = match spirv::Op::from_u32(first & 0xffff) {
            Some(spirv::Op::Name | spirv::Op::MemberName) => continue,
            Some(op) => format!("{op:?}"),
            None => format!("unknown {}", first & 0xffff),
        };
        let operands: String = instruction[1..].iter().map(|word| format!(" {word}")).collect();
        lines += &format!("{name}{operands}\n");
    }
    lines
}

/// Imports a shader; `// entry NAME` selects the entry point and `// set NAME=VALUE` sets
/// overrides.
fn import(source: &str) -> Result<Program, Diagnostics> {
    let mut options = vyre_import::Options::default();
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("// entry ") {
            options.entry = Some(name.trim().into());
        }
        if let Some((name, value)) = line.strip_prefix("// set ").and_then(|rest| rest.split_once('=')) {
            options.set.extend(value.trim().parse().ok().map(|value| (name.trim().to_string(), value)));
        }
    }
    Ok(vyre_import::import(vyre_import::Source::Wgsl(source), &options)?.program)
}

fn rewrite(file: &Path) -> Result<(), String> {
    let blessed = read(file)?.blessed()?;
    std::fs::write(file, blessed).map_err(|error| format!("{}: {error}", file.display()))
}

fn trials_of(name: &str, file: &Path, backends: &Backends) -> Vec<Trial> {
    let test = match read(file) {
        Ok(test) => Arc::new(test),
        Err(message) => return vec![Trial::test(name.to_string(), || Err(message.into()))],
    };
    let mut trials = Vec::new();
    for command in test.commands() {
        match &command {
            Command::Run(named) => {
                let all = || backends.keys().cloned().collect();
                let ids: Vec<String> = if named.is_empty() { all() } else { named.clone() };
                trials.extend(ids.iter().map(|id| run_trial(name, id, &test, backends)));
            }
            Command::Cat
            | Command::Wire
            | Command::Validate
            | Command::Interpret
            | Command::Optimize(_)
            | Command::Bounds(_)
            | Command::Legalise(_)
            | Command::Emit(_)
            | Command::Elementwise => {
                let (test, title) = (Arc::clone(&test), format!("{name}::{command}"));
                trials.push(Trial::test(title, move || Ok(test.check(&command, &[])?)));
            }
        }
    }
    trials
}

fn run_trial(name: &str, id: &str, test: &Arc<FileTest>, backends: &Backends) -> Trial {
    let title = format!("{name}::run {id}");
    match backends.get(id) {
        Some(Ok(backend)) => {
            let (test, backend) = (Arc::clone(test), Arc::clone(backend));
            Trial::test(title, move || Ok(test.check(&Command::Run(Vec::new()), &[backend])?))
        }
        Some(Err(reason)) => skipped(title, reason),
        None => skipped(title, "not linked"),
    }
}

fn skipped(title: String, reason: &str) -> Trial {
    eprintln!("SKIP {title}: {reason}");
    Trial::test(title, || Ok(())).with_ignored_flag(true)
}
