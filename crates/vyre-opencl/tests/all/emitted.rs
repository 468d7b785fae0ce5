//! The driver's compiler accepts every text that a filetest expects from `emit opencl`.

use cl3::context::create_context;
use cl3::device::{CL_DEVICE_TYPE_ALL, get_device_ids};
use cl3::platform::get_platform_ids;
use cl3::program::{CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_data};
use std::path::Path;
use std::ptr::{null, null_mut};
use vyre_conform::filetest::{Command, FileTest};
use vyre_opencl::OpenCl;

#[test]
fn the_driver_compiles_what_the_filetests_expect() -> Result<(), String> {
    if let Err(missing) = OpenCl::new() {
        println!("SKIP {missing}");
        return Ok(());
    }
    let says = |code: i32| cl3::error_codes::error_text(code).to_string();
    let platform = *get_platform_ids().map_err(says)?.first().ok_or("no platform")?;
    let device = *get_device_ids(platform, CL_DEVICE_TYPE_ALL).map_err(says)?.first().ok_or("no device")?;
    let context = create_context(&[device], null(), None, null_mut()).map_err(says)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/emit");
    let mut compiled = 0;
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let source = std::fs::read_to_string(entry.path()).map_err(|error| error.to_string())?;
        let test = FileTest::parse(&source)?;
        for command in test.commands() {
            let Command::Emit(words) = command else { continue };
            if words.first().map(|word| &**word) != Some("opencl") {
                continue;
            }
            let text = test.emitted(&words)?;
            let program = create_program_with_source(context, &[&text]).map_err(says)?;
            if let Err(code) = build_program(program, &[device], c"-cl-std=CL1.2 -Werror", None, null_mut()) {
                let log = get_program_build_data(program, device, CL_PROGRAM_BUILD_LOG).unwrap_or_default();
                let log = String::from_utf8_lossy(&log).into_owned();
                return Err(format!("{}: {}\n{log}\n{text}", entry.path().display(), says(code)));
            }
            compiled += 1;
        }
    }
    assert!(compiled > 0, "no filetest emits OpenCL C");
    Ok(())
}
