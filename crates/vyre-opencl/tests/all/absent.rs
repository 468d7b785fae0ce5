//! Machines on which something is missing: each case runs in a separate process, since the library
//! is loaded once.

use std::process::Command;
use vyre_driver::registry;
use vyre_opencl::{BACKEND_ID, OpenCl};

/// Opens the backend in another process with this variable set and returns the output.
fn opened_with(variable: &str, value: &str) -> String {
    let this = std::env::current_exe().unwrap_or_default();
    let arguments = ["--exact", "absent::prints_what_opening_gives", "--nocapture"];
    let output = Command::new(this).args(arguments).env(variable, value).output();
    let output = output.unwrap_or_else(|error| panic!("the test does not start again: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Body of the other process.
#[test]
fn prints_what_opening_gives() {
    match OpenCl::new() {
        Ok(_) => println!("opened"),
        Err(error) => println!("refused: {error}"),
    }
    println!("devices: {:?}", OpenCl::device_names());
    println!("registry: {:?}", registry::acquire(BACKEND_ID).err());
}

#[test]
fn a_library_that_does_not_exist_is_named() {
    let text = opened_with("OPENCL_DYLIB_PATH", "/nowhere/libOpenCL.so");
    assert!(text.contains("refused: ") && text.contains("/nowhere/libOpenCL.so"), "{text}");
}

#[test]
fn a_missing_driver_is_reported() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let text = opened_with("OCL_ICD_VENDORS", &format!("{}/", folder.path().display()));
    // Without the library itself, loading it is what fails.
    assert!(text.contains("refused: "), "{text}");
    assert!(text.contains("no platform") || text.contains("does not load"), "{text}");
    Ok(())
}

#[test]
fn a_platform_without_devices_is_named() {
    let text = opened_with("POCL_DEVICES", "none_of_these");
    match OpenCl::device_names() {
        // Devices of other platforms ignore that variable.
        Ok(names) if names.iter().all(|name| name.contains("pthread") || name.contains("cpu")) => {
            assert!(text.contains("refused: ") && text.contains("has no device"), "{text}");
        }
        Ok(names) => println!("SKIP devices of other platforms: {names:?}"),
        Err(missing) => println!("SKIP {missing}"),
    }
}

#[test]
fn pocl_without_its_linker_is_refused() -> std::io::Result<()> {
    let empty = tempfile::tempdir()?;
    let text = opened_with("PATH", &empty.path().display().to_string());
    match OpenCl::device_names() {
        // Other platforms bring their own compilers.
        Ok(names) if names.iter().all(|name| name.contains("pthread") || name.contains("cpu")) => {
            assert!(text.contains("refused: ") && text.contains("`ld`, which is not in PATH"), "{text}");
        }
        Ok(names) => println!("SKIP devices of other platforms: {names:?}"),
        Err(missing) => println!("SKIP {missing}"),
    }
    Ok(())
}

#[test]
fn a_device_that_does_not_exist_is_an_error() {
    let Err(error) = OpenCl::open(1000) else { panic!("there are no thousand devices") };
    assert!(error.to_string().contains("opencl"), "{error}");
}
