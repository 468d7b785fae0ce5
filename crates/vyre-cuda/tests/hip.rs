//! clang compiles the HIP text of every filetest and example for AMD devices, without contraction.
//! `VYRE_HIP_CLANG` names clang; `cargo xtask cuda` sets it.

use std::path::{Path, PathBuf};
use std::process::Command;
use vyre_conform::filetest::FileTest;

const ARGUMENTS: [&str; 10] = [
    "-x",
    "hip",
    "--cuda-device-only",
    "--offload-arch=gfx1030",
    "-nogpulib",
    "-nogpuinc",
    // HIP contracts by default, and the pragma in the text does not stop every version of clang
    // from doing so.
    "-ffp-contract=off",
    "-O1",
    "-S",
    "-o-",
];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "vyre") {
            found.push(path);
        }
    }
}

#[test]
fn clang_compiles_every_text_without_contraction() -> Result<(), String> {
    let Some(clang) = std::env::var_os("VYRE_HIP_CLANG") else {
        println!("SKIP no clang; `cargo xtask cuda` looks for one");
        return Ok(());
    };
    let says = |error: std::io::Error| error.to_string();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    ["filetests/emit", "filetests/kernels", "filetests/semantics", "examples"]
        .iter()
        .for_each(|folder| files(&root.join(folder), &mut paths));
    paths.sort();
    let folder = tempfile::tempdir().map_err(says)?;
    let (mut compiled, mut faults) = (0, Vec::new());
    for path in &paths {
        let source = std::fs::read_to_string(path).map_err(says)?;
        // Programs that are refused, or use subgroup ops, have no text.
        let Ok(text) = FileTest::parse(&source).and_then(|test| test.emitted(&["hip".into()])) else {
            continue;
        };
        let file = folder.path().join("kernel.hip");
        std::fs::write(&file, &text).map_err(says)?;
        let output =
            Command::new(&clang).args(ARGUMENTS).arg("-emit-llvm").arg(&file).output().map_err(says)?;
        let code = String::from_utf8_lossy(&output.stdout);
        let loose = ["llvm.fmuladd", " contract ", " fast ", " afn ", " reassoc "];
        let loose: Vec<&str> = loose.into_iter().filter(|mark| code.contains(mark)).collect();
        let own_root = code.contains("@llvm.sqrt.");
        if !output.status.success() || !loose.is_empty() || own_root {
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            faults.push(format!("{}: {loose:?} {own_root} {log}\n{text}", path.display()));
        }
        compiled += 1;
        // Generating machine code takes longer, so only the texts written for it go through that.
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hip_")) {
            let output = Command::new(&clang).args(ARGUMENTS).arg(&file).output().map_err(says)?;
            if !output.status.success() {
                faults.push(format!("{}: no machine code", path.display()));
            }
        }
    }
    assert!(compiled > 80, "only {compiled} texts");
    if faults.is_empty() { Ok(()) } else { Err(format!("{} of {compiled}\n{}", faults.len(), faults[0])) }
}
