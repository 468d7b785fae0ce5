//! Readers of foreign bytes, on mutated inputs: each answers with a value or an error, never with a panic, in bounded memory.
//!
//! `VYRE_FUZZ_COUNT` says how many inputs; `cargo xtask long fuzz` runs ten million each. The same count gives the same inputs.

use crate::npy;
use std::path::Path;
use vyre_conform::choices::next_random;
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::CertificateTable;
use vyre_driver::pgo::PgoTable;
use vyre_driver::pipeline::PipelineReproManifest;
use vyre_driver::tuner::TunerCache;
use vyre_foundation::{text, wire};

/// What a process that reads these inputs takes at most.
const MOST_KIB: u64 = 1 << 20;
const MOST_BYTES: usize = 1 << 12;

/// Bits of grammar that readers look for.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"\"",
    b"\\",
    b"\n",
    b" = ",
    b"let ",
    b"for ",
    b"0..",
    b"kernel ",
    b"fn ",
    b"u32[",
    b"4294967296",
    b"-1",
    b"1e999",
    b"nan",
    b"\xff",
    b"\0",
    b"[[",
    b"schema",
    b"9223372036854775808",
    b"'",
    b"#",
];

fn count() -> u64 {
    std::env::var("VYRE_FUZZ_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

/// One input: a seed with a few changes.
fn mutate(seeds: &[Vec<u8>], state: &mut u64) -> Vec<u8> {
    let pick = |state: &mut u64, most: usize| next_random(state) as usize % most.max(1);
    let mut bytes = seeds[pick(state, seeds.len())].clone();
    for _ in 0..1 + pick(state, 6) {
        let at = pick(state, bytes.len() + 1);
        let end = (at + pick(state, 40)).min(bytes.len());
        match pick(state, 6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy = bytes[at..end].to_vec();
                let to = pick(state, bytes.len() + 1);
                bytes.splice(to..to, copy).for_each(drop);
            }
            3 => bytes.splice(at..at, WORDS[pick(state, WORDS.len())].iter().copied()).for_each(drop),
            4 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << pick(state, 8)),
            _ => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = pick(state, 256) as u8),
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// Runs a reader on mutations of the seeds. A panic shows the input.
fn fuzz(name: &str, seeds: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let mut state = name.bytes().fold(7u64, |state, byte| state.rotate_left(9) ^ u64::from(byte));
    for number in 0..count() {
        let input = mutate(seeds, &mut state);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&input)));
        assert!(done.is_ok(), "{name}, input {number}: {:?}", String::from_utf8_lossy(&input));
    }
    if let Some(peak) = peak_kib() {
        assert!(peak < MOST_KIB, "{name} took {peak} KiB");
    }
}

/// The most memory that this process had, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

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

/// Tables are read from files.
fn fuzz_file(name: &str, seeds: &[Vec<u8>], read: impl Fn(&Path)) {
    // In memory where the system has such a folder: there are millions of files to write.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let folder = folder.expect("a temporary folder");
    let path = folder.path().join("table.toml");
    fuzz(name, seeds, |bytes| {
        std::fs::write(&path, bytes).expect("writable");
        read(&path);
    });
}

const TABLE: &[u8] = b"schema = 3\n\n[routes.\"a b\"]\nbackend = \"cpu\"\nverified = true\nelements = 12\n\n\
    [[routes.\"a b\".observations]]\nbackend = \"cpu\"\nlatency_ns = 1200\n\n\"v1-00\" = [64, 1, 1]\n";
const CERTIFICATE: &[u8] = b"schema = 1\n\n[[certificates]]\nhow = \"in a helper process\"\nstamp = \"x\"\ncertified_at_ns = 5\n\
    passed = [\"u32\"]\nunsupported = []\n\n[certificates.key]\nbackend = \"cpu\"\ndevice = \"d\"\ndriver = \"e\"\n";

#[test]
fn fuzz_tables() {
    let seeds = [TABLE.to_vec(), CERTIFICATE.to_vec(), b"\"v1-00\" = [64, 1, 1]\n".to_vec()];
    fuzz_file("tables", &seeds, |path| {
        drop(PgoTable::load(path));
        drop(TunerCache::load(path));
        drop(CertificateTable::load(path));
    });
}

#[test]
fn fuzz_bundles() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bundle.toml");
    Bundle::new("here").save(&path).expect("writable");
    let seeds = [std::fs::read(&path).expect("readable"), TABLE.to_vec(), CERTIFICATE.to_vec()];
    fuzz_file("bundles", &seeds, |path| drop(Bundle::load(path)));
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
