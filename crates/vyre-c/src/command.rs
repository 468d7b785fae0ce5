//! Locates the `vyre` command that belongs to this library. It probes drivers that could crash the
//! process.
//!
//! An archive has `lib/libvyre_c.so` and `bin/vyre`; a build folder has both in one folder.

use std::path::{Path, PathBuf};
use std::sync::Once;

/// Registers the command's path if it is found relative to the library; `VYRE_HELPER` overrides it.
pub(crate) fn announce() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(command) = own_file().as_deref().and_then(beside) {
            vyre::unstable::opening::set_command([command.into_os_string()]);
        }
    });
}

fn beside(library: &Path) -> Option<PathBuf> {
    let name = format!("vyre{}", std::env::consts::EXE_SUFFIX);
    let folder = library.parent()?;
    let places = [folder.join(&name), folder.join("../bin").join(&name)];
    places.into_iter().find(|path| path.is_file())
}

/// File that this code was loaded from.
#[cfg(unix)]
fn own_file() -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all zeros is a valid value of this struct of numbers and pointers.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is within this library, and the struct is writable.
    let is_found = unsafe { libc::dladdr(announce as *const libc::c_void, &mut found) } != 0;
    if !is_found || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

/// Unknown on this system; `VYRE_HELPER` names the command.
#[cfg(not(unix))]
fn own_file() -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_found_next_to_the_library() {
        let folder = tempfile::tempdir().unwrap();
        let [library, bin] = ["lib", "bin"].map(|name| folder.path().join(name));
        [&library, &bin].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let file = library.join("libvyre_c.so");
        assert_eq!(beside(&file), None);
        std::fs::write(bin.join(format!("vyre{}", std::env::consts::EXE_SUFFIX)), "").unwrap();
        assert!(beside(&file).is_some_and(|found| found.is_file()));
    }

    #[cfg(unix)]
    #[test]
    fn this_code_comes_from_this_test() {
        assert_eq!(own_file(), std::env::current_exe().unwrap().canonicalize().ok());
    }
}
