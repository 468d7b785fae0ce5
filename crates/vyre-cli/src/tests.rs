//! Fuzz tests of the command's readers of untrusted bytes: programs, arrays and manifests. Those of
//! tables are in `vyre-driver`.

use crate::npy;
use std::path::Path;
use vyre_conform::fuzz::fuzz;
use vyre_driver::pipeline::PipelineReproManifest;
use vyre_foundation::{text, wire};

fn examples() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("examples").flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "vyre"));
    paths.sort();
    paths.iter().flat_map(std::fs::read).collect()
}

fn programs() -> Vec<vyre_foundation::ir::Program> {
    examples().iter().filter_map(|source| text::parse(&String::from_utf8_lossy(source)).ok()).collect()
}

#[test]
fn fuzz_text() {
    fuzz("text", &examples(), |bytes| {
        if let Ok(program) = text::parse(&String::from_utf8_lossy(bytes)) {
            let printed = text::print(&program);
            assert_eq!(text::parse(&printed).as_ref(), Ok(&program));
            let _ = program.validate();
        }
    });
}

#[test]
fn fuzz_wire() {
    let seeds: Vec<Vec<u8>> = programs().iter().map(wire::encode).collect();
    fuzz("wire", &seeds, |bytes| {
        if let Ok(program) = wire::decode(bytes) {
            assert_eq!(wire::encode(&program), bytes);
            let _ = program.validate();
        }
    });
}

#[test]
fn fuzz_npy() {
    let array = |element, shape: &[u64], bytes: &[u8]| npy::write(element, shape, bytes);
    use vyre_foundation::ir::DataType;
    let seeds = [
        array(DataType::F32, &[2, 2], &[0; 16]),
        array(DataType::U8, &[3], &[1, 2, 3]),
        array(DataType::I64, &[], &[0; 8]),
    ];
    fuzz("npy", &seeds, |bytes| drop(npy::read(bytes)));
}

#[test]
fn fuzz_manifests() {
    let config = vyre_driver::DispatchConfig::default();
    let manifests = programs().into_iter().take(4).filter_map(|program| {
        let manifest = crate::dispatch::manifest("cpu-ref", &program.in_regions(), &config).ok()?;
        manifest.to_json().ok().map(String::into_bytes)
    });
    let seeds: Vec<Vec<u8>> = manifests.collect();
    assert!(!seeds.is_empty());
    fuzz("manifests", &seeds, |bytes| {
        if let Ok(manifest) = PipelineReproManifest::from_json(&String::from_utf8_lossy(bytes)) {
            let _ = manifest.program();
        }
    });
}
