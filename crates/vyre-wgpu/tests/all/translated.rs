//! Every filetest on a device whose shaders wgpu translates, as on devices that do not accept
//! SPIR-V: the same results, within the bounds that the device then declares.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use vyre_conform::filetest::{Command, FileTest};
use vyre_driver::VyreBackend;
use vyre_wgpu::Wgpu;

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "vyre") {
            files.push(path);
        }
    }
}

#[test]
fn filetests_give_the_same_within_the_declared_bounds() {
    let gpu: Arc<dyn VyreBackend> = match Wgpu::open_translated(0) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => return eprintln!("SKIP wgpu: {error}"),
    };
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests"), &mut files);
    files.sort();
    let mut failures = Vec::new();
    let mut count = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).expect("filetests can be read");
        let test = FileTest::parse(&source).expect("filetests are well-formed");
        let runs = |command: &Command| matches!(command, Command::Run(named) if named.is_empty());
        if test.commands().iter().any(runs) {
            count += 1;
            if let Err(why) = test.check(&Command::Run(Vec::new()), std::slice::from_ref(&gpu)) {
                failures.push(format!("{}: {why}", file.display()));
            }
        }
    }
    assert!(count > 100, "only {count} filetests were found");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}
