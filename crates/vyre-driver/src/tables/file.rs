//! Reads, locks and replaces the files of tables; the [parent module](super) documents the rules.

use super::{InvalidTable, TableError, TableFormat, appended_rows};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Size limit of a table's file: saving drops rows to stay below it, and a larger file is not read.
/// A routing table of this size loads in 1.8 s; a full table of hints takes 10 MB, one of
/// certificates 1.2 MB.
const MAX_BYTES: u64 = 32 << 20;

/// The limit on file names of most file systems.
const MAX_NAME_BYTES: usize = 255;

/// Loads the table in this file, or this version's table beside it; an empty one if there is none.
pub(crate) fn load<T: TableFormat>(path: &Path) -> Result<T, TableError> {
    Ok(read::<T>(path)?.table)
}

/// Like [`load`], for a file that is not shared with other versions.
pub(crate) fn load_exact<T: TableFormat>(path: &Path) -> Result<T, TableError> {
    Ok(read_exact::<T>(path)?.table)
}

/// Changes the table in this file, which need not exist yet. A corrupt file is set aside first.
pub(crate) fn update<T: TableFormat>(path: &Path, change: impl FnOnce(&mut T)) -> Result<(), TableError> {
    let locked = TableLock::acquire(path)?;
    let mut file = locked.read(locked.path())?;
    change(&mut file.table);
    locked.write(&mut file)
}

/// Adds rows to the table in this file, which need not exist yet. A corrupt file is set aside
/// first.
pub(crate) fn add<T: TableFormat>(path: &Path, rows: &T) -> Result<(), TableError> {
    let locked = TableLock::acquire(path)?;
    if locked.append(rows)? {
        return Ok(());
    }
    let mut file: OnDisk<T> = locked.read(locked.path())?;
    file.table.add(rows).map_err(|fault| TableError::malformed(locked.path(), fault))?;
    locked.write(&mut file)
}

/// Replaces a file that is not a shared table, atomically and without a lock; its folder must
/// exist.
pub(crate) fn replace<T: TableFormat>(path: &Path, table: T) -> Result<(), TableError> {
    let mut file = OnDisk { table, path: resolve_link(path)?, text: String::new() };
    let text = file.fit()?;
    replace_text(&file.path, &text, &format!(".{}.tmp", std::process::id()))
}

/// The lock of a table and the files beside it, held until dropped.
pub(crate) struct TableLock {
    path: PathBuf,
    _lock: File,
}

/// A table and its file on disk.
pub(crate) struct OnDisk<T> {
    /// The rows.
    pub(crate) table: T,
    path: PathBuf,
    text: String,
}

impl<T: TableFormat> OnDisk<T> {
    fn empty(path: &Path) -> OnDisk<T> {
        OnDisk { table: T::default(), path: path.to_owned(), text: String::new() }
    }

    /// The table as text, without its oldest rows if it is too large. An error if not even one row
    /// fits.
    pub(crate) fn fit(&mut self) -> Result<String, TableError> {
        let surplus = self.table.rows().saturating_sub(T::MAX_ROWS);
        if surplus > 0 {
            self.table.drop_oldest(surplus);
        }
        loop {
            let body = self.table.print().map_err(|fault| TableError::malformed(&self.path, fault))?;
            let sum = if T::GROWS { appended_rows::sum_of(&body) } else { String::new() };
            let text = format!("# vyre {}, schema {}{sum}\n{body}", T::KIND, T::SCHEMA);
            if text.len() as u64 <= MAX_BYTES {
                return Ok(text);
            }
            // Drop an eighth at a time, so that a table far beyond the limit is not printed
            // hundreds of times.
            let (rows, surplus) = (self.table.rows(), self.table.rows().div_ceil(8));
            if surplus >= rows {
                return Err(TableError::TooLarge { path: self.path.clone(), limit: MAX_BYTES });
            }
            tracing::warn!("table `{}` is full: its {surplus} oldest rows are dropped", self.path.display());
            self.table.drop_oldest(surplus);
        }
    }
}

impl TableLock {
    /// Waits for the lock of the table at `path`; creates its folder if necessary.
    pub(crate) fn acquire(path: &Path) -> Result<TableLock, TableError> {
        let path = resolve_link(path)?;
        create_folder(folder_of(&path))?;
        let lock_path = sibling(&path, ".lock")?;
        let lock = private_options().create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(|error| TableError::system(&lock_path, "open the lock file", &error))?;
        loop {
            match lock.lock() {
                Ok(()) => return Ok(TableLock { path, _lock: lock }),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(TableError::system(&lock_path, "lock", &error)),
            }
        }
    }

    /// The table's file, with links resolved.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the table at `path` for merging; a corrupt file is set aside first and counts as
    /// empty.
    pub(crate) fn read<T: TableFormat>(&self, path: &Path) -> Result<OnDisk<T>, TableError> {
        match read(path) {
            Err(error) if error.is_corrupt() => {
                set_aside(error.path(), &error)?;
                self.read(path)
            }
            other => other,
        }
    }

    /// Appends rows to the file if that is sound and much cheaper than rewriting it. Returns
    /// whether it did.
    fn append<T: TableFormat>(&self, rows: &T) -> Result<bool, TableError> {
        let bytes = match read_bytes(&self.path) {
            Ok(Some(bytes)) => bytes,
            // The merging path handles these cases.
            Ok(None) | Err(_) => return Ok(false),
        };
        let own_schema = schema_of::<T>(&String::from_utf8_lossy(first_line(&bytes))) == Some(T::SCHEMA);
        if !T::GROWS || !own_schema || !appended_rows::is_worth_it(&bytes) {
            return Ok(false);
        }
        let part =
            appended_rows::part(&rows.print().map_err(|fault| TableError::malformed(&self.path, fault))?);
        if (bytes.len() + part.len()) as u64 > MAX_BYTES {
            return Ok(false);
        }
        let refuse = |error: io::Error| TableError::system(&self.path, "write", &error);
        let mut file = OpenOptions::new().append(true).open(&self.path).map_err(refuse)?;
        let written = file.write_all(&part).and_then(|()| file.sync_all());
        if written.is_err() {
            // Readers would skip a partial write as well.
            let _ = file.set_len(bytes.len() as u64);
        }
        written.map_err(refuse).map(|()| true)
    }

    /// Atomically replaces the table that [`TableLock::read`] returned.
    pub(crate) fn write<T: TableFormat>(&self, file: &mut OnDisk<T>) -> Result<(), TableError> {
        let text = file.fit()?;
        if text == file.text {
            return Ok(());
        }
        replace_text(&file.path, &text, ".tmp")
    }
}

/// Replaces a file atomically, through a temporary file beside it with this suffix.
fn replace_text(path: &Path, text: &str, suffix: &str) -> Result<(), TableError> {
    let temporary = sibling(path, suffix)?;
    let written = write_new(&temporary, text.as_bytes()).and_then(|()| {
        fs::rename(&temporary, path).map_err(|error| TableError::system(path, "replace", &error))
    });
    if written.is_err() {
        // The file is untouched; the next save removes a temporary file that cannot be removed now.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    sync_folder(folder_of(path))
}

/// The path beside `path` with `suffix` appended to the name; a name that would be too long is
/// replaced by its hash.
pub(crate) fn sibling(path: &Path, suffix: &str) -> Result<PathBuf, TableError> {
    let Some(name) = path.file_name() else {
        let error = io::Error::new(ErrorKind::InvalidInput, "the path names no file");
        return Err(TableError::system(path, "use", &error));
    };
    let mut sibling = OsString::from(name);
    if name.len() + suffix.len() > MAX_NAME_BYTES {
        sibling = blake3::hash(name.as_encoded_bytes()).to_hex().as_str().into();
    }
    sibling.push(suffix);
    Ok(path.with_file_name(sibling))
}

/// Reads the table at `path`, or this version's table beside it if a newer version wrote the file.
fn read<T: TableFormat>(path: &Path) -> Result<OnDisk<T>, TableError> {
    match read_exact(path) {
        Err(TableError::Newer { .. }) => {
            let own = sibling(path, &format!(".schema-{}", T::SCHEMA))?;
            tracing::warn!(
                "table `{}` was written by a newer vyre; this one uses `{}`",
                path.display(),
                own.display()
            );
            read_exact(&own)
        }
        other => other,
    }
}

fn read_exact<T: TableFormat>(path: &Path) -> Result<OnDisk<T>, TableError> {
    let Some(bytes) = read_bytes(path)? else { return Ok(OnDisk::empty(path)) };
    parse_bytes(path, bytes)
}

/// Parses the bytes of a table's file.
pub(super) fn parse_bytes<T: TableFormat>(path: &Path, bytes: Vec<u8>) -> Result<OnDisk<T>, TableError> {
    if let Some(found) = schema_of::<T>(&String::from_utf8_lossy(first_line(&bytes)))
        && found > T::SCHEMA
    {
        return Err(TableError::Newer { path: path.to_owned(), found, known: T::SCHEMA });
    }
    let parse = || {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(InvalidTable::whole);
        let parts = appended_rows::split(&bytes)?;
        let own = text(parts.own)?;
        let mut table = T::parse(&own)?;
        parts.added.iter().try_for_each(|rows| table.add(&T::parse(&text(rows)?)?))?;
        // The text no longer matches the file, because the next write merges the appended parts.
        let text = if parts.added.is_empty() { own } else { String::new() };
        Ok(OnDisk { table, path: path.to_owned(), text })
    };
    parse().map_err(|fault| TableError::malformed(path, fault))
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

fn schema_of<T: TableFormat>(text: &str) -> Option<u32> {
    let version = text.lines().next()?.strip_prefix("# vyre ")?.strip_prefix(T::KIND)?;
    version.strip_prefix(", schema ")?.split(',').next()?.trim_end().parse().ok()
}

/// The file's bytes; `None` if there is no file.
fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, TableError> {
    let refuse = |error: io::Error| TableError::system(path, "read", &error);
    // Check before opening: opening a pipe would block until it has a writer.
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(refuse(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse(error)),
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse(error)),
    };
    trust::check(path, &file.metadata().map_err(refuse)?)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(refuse)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TableError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    Ok(Some(bytes))
}

/// Renames a corrupt file to the first free `<file>.corrupt-<n>`. Only lock holders do so, so a
/// free name stays free.
fn set_aside(path: &Path, why: &TableError) -> Result<(), TableError> {
    for n in 1_u64.. {
        let aside = sibling(path, &format!(".corrupt-{n}"))?;
        match fs::symlink_metadata(&aside) {
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(TableError::system(&aside, "look for", &error)),
        }
        fs::rename(path, &aside).map_err(|error| TableError::system(path, "set aside", &error))?;
        tracing::warn!("{why}; it is now `{}`", aside.display());
        return Ok(());
    }
    unreachable!("a folder does not hold 2^64 files")
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), TableError> {
    let refuse = |error: io::Error| TableError::system(path, "write", &error);
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(refuse(error)),
        Ok(()) | Err(_) => {}
    }
    let mut file = private_options().create_new(true).open(path).map_err(refuse)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(refuse)
}

/// Options for writing files that only the user can read and write.
fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// The target of a table that is a symbolic link; the path itself if the link dangles.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    resolve_link(path).unwrap_or_else(|_| path.to_owned())
}

/// The target of a table that is a symbolic link, so that saving keeps the link and all its users
/// share a lock.
fn resolve_link(path: &Path) -> Result<PathBuf, TableError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return fs::canonicalize(path).map_err(|error| TableError::system(path, "follow the link", &error));
    }
    Ok(path.to_owned())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Creates the folder and its missing parents, flushing each one's parent to disk.
fn create_folder(folder: &Path) -> Result<(), TableError> {
    let refuse = |error: &io::Error| TableError::system(folder, "make the folder", error);
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(refuse(&ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(refuse(&error)),
    }
    let missing: Vec<&Path> = folder.ancestors().take_while(|&above| !folder_exists(above)).collect();
    for made in missing.into_iter().rev() {
        match fs::create_dir(made) {
            Ok(()) => sync_folder(folder_of(made))?,
            // Another process created it first.
            Err(_) if folder_exists(made) => {}
            Err(error) => return Err(refuse(&error)),
        }
    }
    Ok(())
}

/// Whether the folder exists; the empty parent of a relative path is the current folder.
fn folder_exists(folder: &Path) -> bool {
    folder.as_os_str().is_empty() || folder.is_dir()
}

/// Flushes renames and new names to disk, if the system supports that.
fn sync_folder(folder: &Path) -> Result<(), TableError> {
    // A folder that is writable but not readable cannot be opened, nor can any folder on Windows.
    let Ok(opened) = File::open(folder) else { return Ok(()) };
    match opened.sync_all() {
        Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Err(TableError::system(folder, "flush to disk", &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(unix)]
mod trust {
    //! Whether only the user or root can have written a file.

    use super::{TableError, private_options};
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::OnceLock;

    const ROOT: u32 = 0;
    const WRITABLE_BY_OTHERS: u32 = 0o022;

    pub(super) fn check(path: &Path, found: &Metadata) -> Result<(), TableError> {
        let refuse = |reason: String| Err(TableError::Untrusted { path: path.to_owned(), reason });
        if found.mode() & WRITABLE_BY_OTHERS != 0 {
            return refuse(format!("its mode {:03o} lets others write it", found.mode() & 0o777));
        }
        if found.uid() == ROOT {
            return Ok(());
        }
        match own_user() {
            Some(own) if own == found.uid() => Ok(()),
            Some(own) => refuse(format!("it belongs to user {}, this process to user {own}", found.uid())),
            None => refuse("the user of this process cannot be determined".to_owned()),
        }
    }

    /// The user that this process creates files as: the owner of a file it has just created. The
    /// standard library has no safe call for it.
    fn own_user() -> Option<u32> {
        static OWN: OnceLock<Option<u32>> = OnceLock::new();
        *OWN.get_or_init(|| {
            let folder = std::env::temp_dir();
            let made = (0..16).find_map(|n| {
                let path = folder.join(format!("vyre-owner-{}-{n}", std::process::id()));
                let file = private_options().create_new(true).open(&path).ok()?;
                let owner = file.metadata().ok().map(|made| made.uid());
                let _ = fs::remove_file(&path);
                owner
            });
            // Linux only: a fallback for a machine whose temporary folder is not writable.
            made.or_else(|| fs::metadata("/proc/self").ok().map(|found| found.uid()))
        })
    }
}

#[cfg(not(unix))]
mod trust {
    //! No checks: the standard library has no file ownership here.

    pub(super) fn check(_: &std::path::Path, _: &std::fs::Metadata) -> Result<(), super::TableError> {
        Ok(())
    }
}
