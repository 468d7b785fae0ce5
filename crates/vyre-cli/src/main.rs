//! The `vyre` command as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    silence_device_selection();
    ExitCode::from(vyre_cli::run(std::env::args_os()))
}

/// Where nobody is logged in on a display there is none to prefer a GPU for; Mesa's layer that asks for one would complain
/// about that on standard error of every command that looks for devices.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn silence_device_selection() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: this is the first thing that the process does, so no other thread reads the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
