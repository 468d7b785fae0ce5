//! The `vyre` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    silence_device_selection();
    ExitCode::from(vyre_cli::run(std::env::args_os()))
}

/// Silences Mesa's device selection layer where there is no display session. Without a display it
/// has no preferred GPU to look up, and complains on standard error in every command that
/// enumerates devices.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn silence_device_selection() {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: this runs first in `main`, so no other thread reads the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
