//! Unfavourable environments: no adapter, or a cache folder that is unusable or holds foreign data.
//! The environment is read once per process, so each case runs this test again in a separate one.

use std::path::Path;
use std::process::{Command, Output};
use vyre_driver::registry::acquire;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;
use vyre_wgpu::Wgpu;

/// Marks the process as the one under test.
const INSIDE: &str = "VYRE_TEST_INSIDE";

/// Runs a test of this file again in another environment.
fn again(test: &str, environment: &[(&str, &Path)]) -> Output {
    let program = std::env::current_exe().expect("tests have a path");
    let mut command = Command::new(program);
    command.args(["--exact", &format!("surroundings::{test}"), "--nocapture"]).env(INSIDE, "1");
    command.envs(environment.iter().copied()).output().expect("tests can be run")
}

fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

const DOUBLE: &str = "kernel double(x: read u32[], y: output u32[]) over x workgroup 64 {
  region \"r\" { y[invocation.x] = x[invocation.x] * 2 } }";

fn doubles(backend: &dyn VyreBackend) -> Result<(), BackendError> {
    let x: Vec<u8> = (0..100_u32).flat_map(u32::to_le_bytes).collect();
    let expected: Vec<u8> = (0..100_u32).flat_map(|k| (2 * k).to_le_bytes()).collect();
    assert_eq!(backend.dispatch_borrowed(&parse(DOUBLE)?, &[&x], &DispatchConfig::default())?, [expected]);
    Ok(())
}

#[test]
fn without_an_adapter_the_registry_says_so_and_the_rest_works() -> Result<(), BackendError> {
    if !inside() {
        let nothing = Path::new("/nonexistent");
        let name = "without_an_adapter_the_registry_says_so_and_the_rest_works";
        let drivers = [("VK_DRIVER_FILES", nothing), ("VK_ICD_FILENAMES", nothing)];
        assert_passed(&again(name, &drivers));
        return Ok(());
    }
    let Err(error) = acquire("wgpu") else {
        eprintln!("SKIP: there is an adapter that needs no Vulkan driver");
        return Ok(());
    };
    let message = error.to_string();
    assert!(message.contains("adapter") && !message.contains('\n'), "{message}");
    assert!(acquire("wgpu:1").is_err());
    doubles(&CpuRef)
}

#[test]
fn the_drivers_cache_may_hold_anything() -> Result<(), BackendError> {
    if inside() {
        return Wgpu::new().map_or(Ok(()), |gpu| doubles(&gpu));
    }
    if let Err(error) = Wgpu::new() {
        eprintln!("SKIP wgpu: {error}");
        return Ok(());
    }
    let root = std::env::temp_dir().join(format!("vyre-wgpu-cache-{}", std::process::id()));
    let run = |cache: &Path| {
        assert_passed(&again("the_drivers_cache_may_hold_anything", &[("XDG_CACHE_HOME", cache)]));
    };
    let files = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder.join("vyre/wgpu")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    run(&root);
    for file in files(&root) {
        let kept = std::fs::read(&file).expect("it was written");
        let torn = kept[..kept.len() / 2].to_vec();
        // Data of another device: the header names its vendor and device within the first bytes.
        let mut foreign = kept.clone();
        foreign.iter_mut().take(48).for_each(|byte| *byte ^= 0x5A);
        let mut damaged = kept.clone();
        damaged.iter_mut().skip(32).for_each(|byte| *byte ^= 0xFF);
        for contents in [torn, foreign, damaged, Vec::new(), vec![0xAB; 100_000]] {
            std::fs::write(&file, contents).expect("it can be written");
            run(&root);
        }
        // A folder at the path of the file, which can be neither read nor replaced.
        std::fs::remove_file(&file).expect("it can be removed");
        std::fs::create_dir_all(file.join("inside")).expect("folders can be made");
        run(&root);
    }
    // No folder can be created below a file.
    let blocked = root.join("file");
    std::fs::write(&blocked, b"").expect("it can be written");
    run(&blocked);
    std::fs::remove_dir_all(&root).expect("it can be removed");
    Ok(())
}
