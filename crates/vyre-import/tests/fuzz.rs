//! Mutated shaders: every input yields a program or a diagnostic. `cargo xtask long fuzz` runs ten
//! million of each.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use vyre_conform::fuzz::fuzz;
use vyre_import::{Options, Source, import, mended};

/// Panics in vyre's own code; panics in naga become diagnostics.
static OWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Silences panics on the threads that read shaders, and records those that are not naga's.
fn watch_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some("vyre-import") {
                return usual(panic);
            }
            let file = panic
                .location()
                .map(|place| format!("{}:{}", place.file(), place.line()))
                .unwrap_or_default();
            if file.contains("vyre-import") || file.contains("vyre-foundation") {
                OWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(file);
            }
        }));
    });
}

fn shaders() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/import");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("filetests").flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).expect("a text"));
    // Without the comments, which hold the tests' expectations.
    let code =
        |text: String| text.lines().filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join("\n");
    texts.map(code).filter(|text| text.len() < 4000).collect()
}

/// Imports and validates a shader; tracks the time of the slowest input.
fn take(source: Source<'_>, slowest: &mut Duration) {
    let start = Instant::now();
    if let Ok(imported) = import(source, &Options::default()) {
        let _ = imported.program.validate();
    }
    *slowest = start.elapsed().max(*slowest);
    let own = OWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert!(own.is_empty(), "a panic of our own at {own:?}");
}

#[test]
fn fuzz_wgsl() {
    watch_panics();
    let seeds: Vec<Vec<u8>> = shaders().into_iter().map(String::into_bytes).collect();
    let mut slowest = Duration::ZERO;
    fuzz("wgsl", &seeds, |bytes| take(Source::Wgsl(&String::from_utf8_lossy(bytes)), &mut slowest));
    println!("wgsl: the slowest input took {slowest:.2?}");
}

#[test]
fn fuzz_spirv() {
    watch_panics();
    let words = |text: &String| {
        let module = naga::front::wgsl::parse_str(&mended(text)).ok()?;
        let mut validator = naga::valid::Validator::new(Default::default(), naga::valid::Capabilities::all());
        let info = validator.validate(&module).ok()?;
        let options =
            naga::back::spv::Options { lang_version: (1, 3), capabilities: None, ..Default::default() };
        naga::back::spv::write_vec(&module, &info, &options, None).ok()
    };
    let bytes = |words: Vec<u32>| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let seeds: Vec<Vec<u8>> = shaders().iter().filter_map(words).map(bytes).collect();
    assert!(seeds.len() > 15, "only {} shaders become words", seeds.len());
    let mut slowest = Duration::ZERO;
    fuzz("spirv", &seeds, |bytes| {
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        take(Source::Spirv(&words), &mut slowest);
    });
    println!("spirv: the slowest input took {slowest:.2?}");
}

#[test]
fn fuzz_glsl() {
    watch_panics();
    let seeds: Vec<Vec<u8>> = [
        "#version 450\nlayout(local_size_x = 4) in;\nlayout(set = 0, binding = 0) buffer D { uint y[]; };\n\
         #define F(x) ((x) * 2u)\nvoid main() { uint i = gl_GlobalInvocationID.x; y[i] = F(y[i]) + 1u; }",
        "#version 450\nlayout(local_size_x = 8) in;\nlayout(set = 0, binding = 0) buffer D { vec4 y[]; };\n\
         shared float t[8];\nvoid main() { uint i = gl_LocalInvocationID.x; t[i] = y[i].x; barrier();\n\
         for (int k = 0; k < 3; k++) { y[i] += vec4(t[k], mix(1.0, 2.0, 0.5), 0.0, length(y[i])); } }",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    let mut slowest = Duration::ZERO;
    fuzz("glsl", &seeds, |bytes| take(Source::Glsl(&String::from_utf8_lossy(bytes)), &mut slowest));
    println!("glsl: the slowest input took {slowest:.2?}");
}
