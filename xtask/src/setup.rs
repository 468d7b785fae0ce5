//! Installs the Debian packages that let the tests cover more backends, and a browser.
//!
//! None of them is needed to build or to pass: without a package the tests that use it print a
//! SKIP.

use std::process::{Command, Stdio};

/// Package and its purpose.
const PACKAGES: [(&str, &str); 4] = [
    ("mesa-vulkan-drivers", "a software Vulkan device for the wgpu backend"),
    ("ocl-icd-libopencl1", "the OpenCL loader"),
    ("pocl-opencl-icd", "an OpenCL device on the processor"),
    ("chromium", "the browser that looks at the page of `vyre report`"),
];

/// Installs missing packages; a failure is only a warning.
pub(crate) fn run() -> Result<(), String> {
    let missing = missing_packages();
    for (package, purpose) in &missing {
        println!("missing: {package} ({purpose})");
    }
    if missing.is_empty() {
        println!("all packages are installed");
        return Ok(());
    }
    let Some(privilege) = privilege() else {
        println!("warning: not root and no sudo without a password: nothing was installed");
        return Ok(());
    };
    let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
    let install = [&["apt-get", "install", "--yes", "--no-install-recommends"], &names[..]].concat();
    for command in [&["apt-get", "update"][..], &install] {
        if !succeeds(&[privilege, command].concat()) {
            println!("warning: `{}` failed; tests that need it will print a SKIP", command.join(" "));
        }
    }
    Ok(())
}

/// Runs the CI step: installs only as root, so that a developer's machine is left alone.
pub(crate) fn install_as_root() -> Result<(), String> {
    let missing = missing_packages();
    if missing.is_empty() || is_root() {
        return run();
    }
    let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
    println!("SKIP not root; `cargo xtask setup` installs {}", names.join(", "));
    Ok(())
}

fn missing_packages() -> Vec<(&'static str, &'static str)> {
    // Without dpkg the packages have other names, and are not installed here.
    if !succeeds(&["dpkg", "--version"]) {
        return Vec::new();
    }
    PACKAGES.into_iter().filter(|(package, _)| !succeeds(&["dpkg", "--status", package])).collect()
}

/// Command prefix that grants root.
fn privilege() -> Option<&'static [&'static str]> {
    if is_root() {
        Some(&[])
    } else if succeeds(&["sudo", "--non-interactive", "true"]) {
        Some(&["sudo", "--non-interactive"])
    } else {
        None
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Whether a command started and succeeded; its output is discarded.
fn succeeds(command: &[&str]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
