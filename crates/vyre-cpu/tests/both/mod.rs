//! The tests of a binary on the back end that is not this processor's own.

use std::process::Command;

/// Runs the other tests of this binary again with Cranelift, if it is built in and the back end was not chosen from outside.
pub(crate) fn again_with_cranelift() -> Result<(), Box<dyn std::error::Error>> {
    if !cfg!(feature = "cranelift") || std::env::var_os("VYRE_CPU").is_some() {
        println!("SKIP: the feature `cranelift` is not built in, or VYRE_CPU is set");
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(["--skip", "with_cranelift"]).env("VYRE_CPU", "cranelift");
    if std::env::var_os("VYRE_CASES").is_none() {
        again.env("VYRE_CASES", "100");
    }
    let output = again.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}
