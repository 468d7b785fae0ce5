//! The build script of the crates whose code decides what programs do: it sets `VYRE_BUILD_ID` to
//! the crate's version and a hash of its sources, so that what was measured with other sources is
//! not used with these.

use std::io;
use std::path::{Path, PathBuf};

fn main() {
    let version = env("CARGO_PKG_VERSION");
    let folders = folders(&env("CARGO_PKG_NAME"), Path::new(&env("CARGO_MANIFEST_DIR")));
    // A folder that is not there, as beside a published crate, would have this run at every build.
    for folder in folders.iter().filter(|folder| folder.exists()) {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rustc-env=VYRE_BUILD_ID={}", build_id(&version, &folders));
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("cargo sets {name} for build scripts: {error}"))
}

/// Where a crate's code is. What lowers and optimizes programs for the driver is the foundation's.
fn folders(package: &str, root: &Path) -> Vec<PathBuf> {
    let foundation = (package == "vyre-driver").then_some("../vyre-foundation/src");
    ["src"].into_iter().chain(foundation).map(|folder| root.join(folder)).collect()
}

/// The version, and a hash of all files in these folders; of a published crate, which has no
/// neighbours, the version alone.
pub(crate) fn build_id(version: &str, folders: &[PathBuf]) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    match folders.iter().try_for_each(|folder| hash.folder(folder)) {
        Ok(()) => format!("{version}+{:016x}", hash.0),
        Err(_) => version.to_owned(),
    }
}

/// FNV-1a with 64 bits.
struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Names and contents, in the order of the names: where the sources are, and how they are
    /// listed, makes no difference.
    fn folder(&mut self, folder: &Path) -> io::Result<()> {
        let entries: Result<Vec<_>, _> = std::fs::read_dir(folder)?.collect();
        let mut entries = entries?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            self.bytes(entry.file_name().as_encoded_bytes());
            if entry.file_type()?.is_dir() {
                self.folder(&entry.path())?;
            } else {
                self.bytes(&std::fs::read(entry.path())?);
            }
        }
        Ok(())
    }
}
