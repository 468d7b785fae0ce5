//! The build script of crates whose code affects results or speed: it sets `VYRE_BUILD_ID` to the
//! crate's version and a hash of its sources, so that measurements made with other sources are not
//! reused.

use std::io;
use std::path::{Path, PathBuf};

fn main() {
    let version = env("CARGO_PKG_VERSION");
    let folders = folders(&env("CARGO_PKG_NAME"), Path::new(&env("CARGO_MANIFEST_DIR")));
    // Naming a folder that does not exist, as for a published crate, would rerun this script at
    // every build.
    for folder in folders.iter().filter(|folder| folder.exists()) {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rustc-env=VYRE_BUILD_ID={}", build_id(&version, &folders));
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("cargo sets {name} for build scripts: {error}"))
}

/// The folders with a crate's code. The driver's include those of the foundation, which lowers and
/// optimizes its programs.
fn folders(package: &str, root: &Path) -> Vec<PathBuf> {
    let foundation = (package == "vyre-driver").then_some("../vyre-foundation/src");
    ["src"].into_iter().chain(foundation).map(|folder| root.join(folder)).collect()
}

/// The version and a hash of all files in these folders; for a published crate, which has no
/// neighbouring folders, the version alone.
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

    /// Names and contents, sorted by name, so that neither the location of the sources nor the
    /// order in which the system lists them matters.
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
