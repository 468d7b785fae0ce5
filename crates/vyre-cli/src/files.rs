//! Files that are read whole and written whole: a reader never sees half of one, and neither does an interrupted run.

use crate::output::Ending;
use std::path::{Path, PathBuf};

/// A file's bytes; `-` is standard input.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Ending> {
    let bytes = if is_standard(file) {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    bytes.map_err(|error| Ending::Usage(format!("cannot read `{}`: {error}", file.display())))
}

/// A file's text; `-` is standard input.
pub(crate) fn read_text(file: &Path) -> Result<String, Ending> {
    let text = String::from_utf8(read(file)?);
    text.map_err(|_| Ending::Usage(format!("cannot read `{}`: it is not UTF-8 text", file.display())))
}

/// Writes a file whole; `-` is standard output.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Ending> {
    replace(path, bytes).map_err(|error| Ending::Usage(format!("cannot write `{}`: {error}", path.display())))
}

/// Writes a file under another name, then renames it. What is no regular file (a pipe, a device) is written directly.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if is_standard(path) {
        let mut out = std::io::stdout().lock();
        return std::io::Write::write_all(&mut out, bytes).and_then(|()| std::io::Write::flush(&mut out));
    }
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let written = std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // The error that is told is the first one.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

fn is_standard(path: &Path) -> bool {
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
