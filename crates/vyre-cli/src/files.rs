//! Whole-file reads and atomic writes: neither a reader nor an interrupted run ever sees a partial
//! file.

use crate::output::{Ending, print_bytes};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of a file that is read whole: larger than any program or table.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file; `-` is standard input.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Ending> {
    let bytes = if is_standard(file) {
        read_within(std::io::stdin().lock(), MOST_BYTES)
    } else {
        std::fs::File::open(file).and_then(|file| read_within(file, MOST_BYTES))
    };
    bytes.map_err(|error| Ending::Usage(format!("cannot read `{}`: {error}", file.display())))
}

/// Reads to the end; fails beyond `most` bytes.
pub(crate) fn read_within(source: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a file as text; `-` is standard input.
pub(crate) fn read_text(file: &Path) -> Result<String, Ending> {
    let text = String::from_utf8(read(file)?);
    text.map_err(|_| Ending::Usage(format!("cannot read `{}`: it is not UTF-8 text", file.display())))
}

/// Writes a file atomically; `-` is standard output.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Ending> {
    replace(path, bytes).map_err(|error| Ending::Usage(format!("cannot write `{}`: {error}", path.display())))
}

/// Fails if a file could not be written here later; leaves nothing behind.
pub(crate) fn check_writable(path: &Path) -> Result<(), Ending> {
    if is_standard(path) || std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    let unfinished = unfinished(path);
    let tried = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(std::io::Error::from(std::io::ErrorKind::IsADirectory)),
        Ok(_) | Err(_) => std::fs::write(&unfinished, b"").and_then(|()| std::fs::remove_file(&unfinished)),
    };
    tried.map_err(|error| Ending::Usage(format!("cannot write `{}`: {error}", path.display())))
}

fn unfinished(path: &Path) -> PathBuf {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    PathBuf::from(unfinished)
}

/// Writes a file under a temporary name, then renames it. Pipes and devices are written directly.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if is_standard(path) {
        return print_bytes(bytes);
    }
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let unfinished = unfinished(path);
    let written = std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // The first error is the one reported.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Splits `name=rest`, where the rest can be a file name that is not UTF-8; `None` without a `=`.
pub(crate) fn split_name(argument: &OsStr) -> Option<(String, OsString)> {
    if let Some(text) = argument.to_str() {
        return text.split_once('=').map(|(name, rest)| (name.trim().to_owned(), rest.trim().into()));
    }
    let bytes = bytes_of(argument)?;
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    let name = String::from_utf8(bytes[..at].to_vec()).ok()?;
    Some((name.trim().to_owned(), from_bytes(&bytes[at + 1..])))
}

/// File name without a leading `@`.
pub(crate) fn without_mark(file: &OsStr) -> PathBuf {
    let bare = bytes_of(file).and_then(|bytes| bytes.strip_prefix(b"@"));
    bare.map_or_else(|| PathBuf::from(file), |bare| PathBuf::from(from_bytes(bare)))
}

#[cfg(unix)]
fn bytes_of(text: &OsStr) -> Option<&[u8]> {
    Some(std::os::unix::ffi::OsStrExt::as_bytes(text))
}

#[cfg(unix)]
fn from_bytes(bytes: &[u8]) -> OsString {
    <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes).to_owned()
}

/// File names are byte strings only on Unix.
#[cfg(not(unix))]
fn bytes_of(_: &OsStr) -> Option<&[u8]> {
    None
}

#[cfg(not(unix))]
fn from_bytes(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.bin");
        for bytes in [&b"one"[..], b"two"] {
            write(&path, bytes).expect("writable");
            assert_eq!(read(&path).expect("readable"), bytes);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
        assert!(write(&folder.path().join("no/such/folder"), b"x").is_err());
        assert!(read(&folder.path().join("b")).is_err());
    }
}
