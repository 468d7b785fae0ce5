//! Persistent tables: one mechanism for the files of everything vyre learns between runs.
//!
//! A table is a TOML file of rows. Many processes can save to it concurrently, and any of them can
//! be killed at any moment; the result of a completed save is never lost:
//! - **Saving** takes the lock file `<file>.lock`, reads the table, merges (the newest row of a key
//!   wins), writes `<file>.tmp`, flushes it to disk and renames it over the table. Only the lock
//!   holder touches `<file>.tmp`, so the next save replaces one that a killed process left behind.
//!   New rows of a large routing table are appended instead, until they amount to a quarter of it
//!   (`appended_rows.rs`).
//! - **Loading** takes no lock: a table is replaced atomically, and appended rows count only once
//!   they are complete.
//! - **A corrupt file** makes loading fail and stays unchanged; saving first renames it to
//!   `<file>.corrupt-<n>`, with a warning. Neither touches a file that cannot be read.
//! - **The schema version** is in the first line, a comment: `# vyre <kind>, schema <n>`. A file
//!   without that line has the current schema.
//! - **Older and newer versions share a folder** and keep their rows: a file with a newer schema is
//!   left alone, and this version keeps its rows beside it in `<file>.schema-<n>`, where `n` is its
//!   schema. Within a schema, optional fields can be added to rows: older code ignores them, and
//!   drops them when it saves.
//! - **A full table** loses its oldest rows, with a warning.
//! - **Timestamps only order rows**: a timestamp ahead of the clock counts as the oldest; otherwise
//!   it would keep newer rows out until its time has come ([`stamp_counts`]).
//! - **Trust.** Tables decide which native code runs, so on Unix a file is read only if it belongs
//!   to the user or to root and no other user can write it. Other systems have no such check.
//! - **Links.** A table that is a symbolic link is saved at the link's target, with the lock and
//!   temporary file beside the target, and the link stays. A dangling link is an error when saving
//!   and a missing file when loading.
//! - **Forgetting** means deleting the file: a save adds and replaces rows; it removes none, except
//!   from a full table.

mod appended_rows;
mod file;
mod location;
mod rows;

pub(crate) use file::{OnDisk, TableLock, add, load, load_exact, real_path, replace, sibling, update};
pub(crate) use location::{UserFolder, user_file};
pub(crate) use rows::{Row, Rows};

use crate::BackendError;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The text form of one kind of table.
pub(crate) trait TableFormat: Default + Serialize + DeserializeOwned {
    /// The table's name in the first line of the file.
    const KIND: &'static str;
    /// The version of the text form; incremented by changes that older code would misread.
    const SCHEMA: u32 = 1;
    /// Maximum number of rows in a file.
    const MAX_ROWS: usize = usize::MAX;
    /// Whether rows can be appended to a large file.
    const GROWS: bool = false;

    /// Parses the rows; TOML skips comments, including the first line.
    fn parse(text: &str) -> Result<Self, InvalidTable> {
        toml::from_str(text).map_err(InvalidTable::whole)
    }

    /// The rows as TOML, without the first line.
    fn print(&self) -> Result<String, InvalidTable> {
        toml::to_string(self).map_err(InvalidTable::whole)
    }

    /// Merges the rows of another table into this one.
    fn add(&mut self, _rows: &Self) -> Result<(), InvalidTable> {
        Err(InvalidTable::whole("nothing is ever added at the end of such a table"))
    }

    /// Number of rows.
    fn rows(&self) -> usize;

    /// Drops `count` rows, those that [`oldest`] returns.
    fn drop_oldest(&mut self, count: usize);
}

/// The keys of the oldest rows, given keys and timestamps.
pub(crate) fn oldest<Key>(rows: impl Iterator<Item = (Key, u64)>, count: usize) -> Vec<Key> {
    let now = now_ns();
    let mut rows: Vec<(Key, u64)> = rows.collect();
    rows.sort_by_key(|(_, stamp)| stamp_counts(*stamp, now));
    rows.into_iter().take(count).map(|(key, _)| key).collect()
}

/// Why a text is not a valid table.
#[derive(Debug)]
pub(crate) struct InvalidTable {
    /// The row at fault, if it is a single one.
    pub(crate) entry: Option<String>,
    /// What is wrong with it.
    pub(crate) reason: String,
}

impl InvalidTable {
    /// A fault of the text as a whole.
    pub(crate) fn whole(reason: impl fmt::Display) -> InvalidTable {
        InvalidTable { entry: None, reason: reason.to_string() }
    }
}

/// Why a table could not be loaded or saved. The file is unchanged, or set aside whole. The
/// exception is a failure to flush the folder: the file is then the new one, but a power loss can
/// still undo that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The operating system reported an error.
    System {
        /// The file or folder concerned.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The kind of error.
        kind: io::ErrorKind,
        /// The system's message.
        reason: String,
    },
    /// The text is not a valid table.
    Malformed {
        /// The table's file.
        path: PathBuf,
        /// The row at fault, if it is a single one.
        entry: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version of vyre wrote the file.
    Newer {
        /// The table's file.
        path: PathBuf,
        /// The file's schema.
        found: u32,
        /// The schema that this version supports.
        known: u32,
    },
    /// Another user could have written the file.
    Untrusted {
        /// The table's file.
        path: PathBuf,
        /// Why it is not trusted.
        reason: String,
    },
    /// The file, or the table, exceeds the size limit.
    TooLarge {
        /// The table's file.
        path: PathBuf,
        /// Maximum size of a table's file in bytes.
        limit: u64,
    },
}

impl TableError {
    pub(crate) fn system(path: &Path, doing: &'static str, error: &io::Error) -> TableError {
        TableError::System { path: path.to_owned(), doing, kind: error.kind(), reason: error.to_string() }
    }

    fn malformed(path: &Path, fault: InvalidTable) -> TableError {
        TableError::Malformed { path: path.to_owned(), entry: fault.entry, reason: fault.reason }
    }

    /// The file that the error is about.
    pub fn path(&self) -> &Path {
        match self {
            TableError::System { path, .. }
            | TableError::Malformed { path, .. }
            | TableError::Newer { path, .. }
            | TableError::Untrusted { path, .. }
            | TableError::TooLarge { path, .. } => path,
        }
    }

    /// How to fix it.
    pub fn fix(&self) -> &'static str {
        match self {
            TableError::System {
                kind: io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, ..
            } => "free some space on the disk, or give another path",
            TableError::System { .. } => "make the path readable and writable, or give another one",
            TableError::Malformed { .. } => "repair the entry, or move the file away to start afresh",
            TableError::Newer { .. } => "use the newer vyre, or move the file away to start afresh",
            TableError::Untrusted { .. } => {
                "make yourself the owner of the file, and remove write permission for others"
            }
            TableError::TooLarge { .. } => "move the file away to start afresh",
        }
    }

    /// Whether the file's contents are at fault, so that a save would set it aside.
    pub(crate) fn is_corrupt(&self) -> bool {
        match self {
            TableError::Malformed { .. } | TableError::TooLarge { .. } => true,
            TableError::System { .. } | TableError::Newer { .. } | TableError::Untrusted { .. } => false,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path().display();
        match self {
            TableError::System { doing, reason, .. } => write!(f, "cannot {doing} `{file}`: {reason}")?,
            TableError::Malformed { entry: Some(entry), reason, .. } => {
                write!(f, "table `{file}` is malformed at entry {entry:?}: {reason}")?;
            }
            TableError::Malformed { entry: None, reason, .. } => {
                write!(f, "table `{file}` is malformed: {}", reason.trim_end())?;
            }
            TableError::Newer { found, known, .. } => {
                write!(f, "table `{file}` has schema {found}, this vyre knows schemas up to {known}")?;
            }
            TableError::Untrusted { reason, .. } => write!(f, "table `{file}` is not trusted: {reason}")?,
            TableError::TooLarge { limit, .. } => {
                write!(f, "table `{file}` is larger than the {limit} bytes that a table may have")?;
            }
        }
        write!(f, "; {}", self.fix())
    }
}

impl std::error::Error for TableError {}

impl From<TableError> for BackendError {
    fn from(error: TableError) -> BackendError {
        BackendError::TableFailed { message: error.to_string() }
    }
}

/// Tolerance for timestamps ahead of the clock: rows made at the same time get consecutive
/// timestamps, in nanoseconds, so that a second has room for any number of rows.
const AHEAD_NS: u64 = 1_000_000_000;

/// Serializes a number, saturated to the largest TOML integer; sums of that size have no meaning
/// anyway.
pub(crate) fn saturated<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64((*number).min(i64::MAX as u64))
}

/// The time in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // TOML integers are i64, which lasts until the year 2262.
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// The effective value of a timestamp: itself, or 0 if it is ahead of the clock.
pub(crate) fn stamp_counts(stamp: u64, now: u64) -> u64 {
    if stamp <= now.saturating_add(AHEAD_NS) { stamp } else { 0 }
}

/// The timestamp of a new row: now, and later than `previous`, the timestamp of the row that it
/// replaces, unless that one is ahead of the clock.
pub(crate) fn stamp_after(previous: Option<u64>) -> u64 {
    let now = now_ns();
    now.max(previous.map_or(0, |stamp| stamp_counts(stamp, now).saturating_add(1)))
}

#[cfg(test)]
mod tests;
