//! The tests of a binary in the ways that are not this processor's own choice.

use std::process::Command;

/// Runs the other tests of this binary again with Cranelift, if it is built in and the back end was not chosen from outside.
pub(crate) fn again_with_cranelift() -> Result<(), Box<dyn std::error::Error>> {
    if !cfg!(feature = "cranelift") {
        println!("SKIP: the feature `cranelift` is not built in");
        return Ok(());
    }
    again("VYRE_CPU", "cranelift")
}

/// Runs the other tests of this binary again with a variable set, unless it was set from outside.
pub(crate) fn again(variable: &str, value: &str) -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os(variable).is_some() {
        println!("SKIP: {variable} is set");
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(["--skip", "all_of_it"]).env(variable, value);
    if std::env::var_os("VYRE_CASES").is_none() {
        again.env("VYRE_CASES", "100");
    }
    let output = again.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
