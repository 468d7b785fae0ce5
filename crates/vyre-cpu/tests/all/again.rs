//! Runs the other tests again in configurations that this processor does not choose by default.

use std::process::Command;
use vyre_cpu::Cpu;
use vyre_driver::VyreBackend;

const OTHERS: [&str; 9] = [
    "bounds::",
    "differential::",
    "division::",
    "in_place::",
    "oracle::",
    "regions::",
    "shapes::",
    "small::",
    "threads::",
];

#[test]
fn all_of_it_with_cranelift() -> Result<(), Box<dyn std::error::Error>> {
    if !cfg!(feature = "cranelift") {
        println!("SKIP: the feature `cranelift` is not built in");
        return Ok(());
    }
    again(("VYRE_CPU", "cranelift"), &OTHERS)
}

#[test]
fn all_of_it_with_avx2() -> Result<(), Box<dyn std::error::Error>> {
    let name = Cpu::new()?.device_profile().device_name;
    if !name.contains("AVX-512") {
        println!("SKIP: the other tests do not use AVX-512 ({name})");
        return Ok(());
    }
    again(("VYRE_CPU", "avx2"), &OTHERS)
}

#[test]
fn all_of_it_stored_past_the_caches() -> Result<(), Box<dyn std::error::Error>> {
    again(("VYRE_CPU_PAST_CACHES", "always"), &["differential::", "shapes::"])
}

/// Runs these tests in another process with a variable set, unless it is already set.
fn again((variable, value): (&str, &str), tests: &[&str]) -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os(variable).is_some() {
        println!("SKIP: {variable} is set");
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(tests).env(variable, value);
    if std::env::var_os("VYRE_CASES").is_none() {
        again.env("VYRE_CASES", "100");
    }
    let output = again.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains(" 0 passed"), "{text}");
    Ok(())
}
