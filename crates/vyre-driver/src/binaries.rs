//! An on-disk cache of driver-compiled code, with a separate folder per backend under
//! `$XDG_CACHE_HOME/vyre`, otherwise `$HOME/.cache/vyre`.
//!
//! A file's name is a hash of everything that the binary depends on. A file holds a magic number, a
//! checksum and the binary; a damaged file, or one that the driver refuses, is removed and rebuilt.
//! Files are written under a temporary name and renamed, so that no reader sees a partial file.
//! Beyond a size limit the least recently used files are deleted.
//!
//! No failure here is an error for the caller: without the folder, every process compiles for
//! itself.

use crate::storage::{CacheFile, delete_oldest, files_in};
use crate::tables::{UserFolder, user_file};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The magic number of a file; its version changes with the layout.
const MARK: &[u8] = b"vyre binary 2\n";

/// Size limit of the folder: 200 of the largest binaries seen (0.6 MB).
const MOST_BYTES: u64 = 128 << 20;

/// Size limit of a binary; larger ones are not stored. The largest CUBIN seen has 0.6 MB.
const LARGEST_FILE: u64 = 16 << 20;

/// The folder of a backend's stored binaries; `None` stores nothing.
#[derive(Debug)]
pub struct Binaries {
    folder: Option<PathBuf>,
}

impl Binaries {
    /// The user's folder for this backend.
    pub fn of_user(backend: &str) -> Binaries {
        Binaries { folder: user_file(UserFolder::Cache, backend) }
    }

    /// Uses this folder.
    pub fn at(folder: &Path) -> Binaries {
        Binaries { folder: Some(folder.to_owned()) }
    }

    fn path(&self, key: &blake3::Hash) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}.bin", key.to_hex())))
    }

    /// Loads the binary with this key. A damaged one is removed.
    pub fn load(&self, key: &blake3::Hash) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let size = fs::metadata(&path).ok()?.len();
        let content = if size <= 2 * LARGEST_FILE { fs::read(&path).ok()? } else { Vec::new() };
        let Some(binary) = unpack(content) else {
            tracing::warn!(file = %path.display(), "a cached binary is damaged; compiling it again");
            self.remove(key);
            return None;
        };
        // Update the time of last use, which determines the order of eviction. If it cannot be set,
        // files are evicted by age.
        if let Ok(file) = fs::File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(binary)
    }

    /// Removes the binary with this key.
    pub fn remove(&self, key: &blake3::Hash) {
        if let Some(path) = self.path(key) {
            // If it cannot be removed, it is loaded and refused again next time.
            let _ = fs::remove_file(path);
        }
    }

    /// Stores a binary; a failure is not an error.
    pub fn store(&self, key: &blake3::Hash, binary: &[u8]) {
        let Some((folder, path)) = self.folder.as_ref().zip(self.path(key)) else { return };
        if binary.len() as u64 > LARGEST_FILE {
            return;
        }
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let (process, write_number) = (std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
        let temporary = folder.join(format!("{}.{process}.{write_number}.tmp", key.to_hex()));
        let written = write(folder, &temporary, binary).and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&temporary);
            tracing::debug!(file = %path.display(), %error, "a binary was not cached");
            return;
        }
        // Go down to three quarters, so that not every store has to evict.
        let files = files_in(folder).into_iter().filter_map(|path| CacheFile::of(vec![path]));
        delete_oldest(files.collect(), MOST_BYTES, MOST_BYTES / 4 * 3);
    }
}

fn write(folder: &Path, temporary: &Path, binary: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = fs::File::create(temporary)?;
    file.write_all(MARK)?;
    file.write_all(blake3::hash(binary).as_bytes())?;
    file.write_all(binary)?;
    // Without this a system crash could leave the name without the contents. The checksum would
    // detect that too, but recompiling costs more than the wait here.
    file.sync_data()
}

fn unpack(mut content: Vec<u8>) -> Option<Vec<u8>> {
    let rest = content.strip_prefix(MARK)?;
    let (sum, binary) = rest.split_first_chunk::<32>()?;
    if blake3::hash(binary) != *sum {
        return None;
    }
    content.drain(..MARK.len() + 32);
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_is_damaged_goes() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let binaries = Binaries::at(&folder.path().join("deeper"));
        let key = blake3::hash(b"key");
        assert_eq!(binaries.load(&key), None);
        binaries.store(&key, b"code");
        assert_eq!(binaries.load(&key).as_deref(), Some(&b"code"[..]));
        let path = binaries.path(&key).unwrap_or_default();
        let whole = fs::read(&path)?;
        let mut flipped = whole.clone();
        flipped[whole.len() - 1] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &whole[..5], &[], &flipped] {
            fs::write(&path, damaged)?;
            assert_eq!(binaries.load(&key), None);
            assert!(!path.exists());
        }
        Ok(())
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("file");
        fs::write(&file, "")?;
        let binaries = Binaries::at(&file);
        binaries.store(&blake3::hash(b"key"), b"code");
        assert_eq!(binaries.load(&blake3::hash(b"key")), None);
        Ok(())
    }
}
