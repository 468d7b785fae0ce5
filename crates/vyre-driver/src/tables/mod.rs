//! What vyre learns and keeps between runs: one mechanism for the files of all tables.
//!
//! A table is a TOML file of rows. Many processes may save to it at once, and any of them may be killed at any
//! moment; what a finished save wrote is never lost:
//! - **Saving** takes the lock file `<file>.lock`, reads what is there, merges (the newest row of a key wins), writes
//!   `<file>.tmp`, flushes it to disk and renames it over the table. Only the holder of the lock touches `<file>.tmp`,
//!   so one that a killed process left behind is simply replaced by the next save.
//!   A large table of routes gets the new rows at its end instead, until they are a quarter of it (`added.rs`).
//! - **Loading** takes no lock: a table is only ever replaced as a whole, and what is added counts once all of it is there.
//! - **A corrupt file** makes loading fail and stays where it is; saving first renames it to `<file>.corrupt-<n>`,
//!   with a warning. A file that cannot be read is left alone by both.
//! - **The schema version** is in the first line, a comment: `# vyre <kind>, schema <n>`. A file without that line has
//!   the current schema.
//! - **Older and newer versions share a folder** and keep their rows: a file with a newer schema is left alone, and what
//!   this version learns is kept beside it in `<file>.schema-<n>`, `n` being its own. Within a schema, fields may be added to
//!   rows that older code can do without: it ignores them, and drops them from what it saves.
//! - **A full table** loses its oldest rows, with a warning.
//! - **Stamps order rows, not clocks**: one that lies ahead of the clock counts as the oldest, or it would keep newer rows out
//!   until its time has come ([`stamp_counts`]).
//! - **Trust.** Tables decide which native code runs, so on Unix a file is read only if it belongs to the user or to
//!   root and nobody else can write it. Elsewhere this is not checked.
//! - **Links.** A table that is a symbolic link is saved where the link leads, lock and temporary file beside the real
//!   file, and the link stays. A link that leads nowhere is an error when saving and a missing file when loading.
//! - **Forgetting** is deleting the file: a save adds and replaces rows, it never removes one.

mod added;
mod file;
#[cfg(test)]
mod fuzz;
mod location;
mod rows;

pub(crate) use file::{Locked, OnDisk, add, load, load_exact, real_path, replace, sibling, update};
pub(crate) use location::{Home, user_file};
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
    /// What the file's first line calls it.
    const KIND: &'static str;
    /// The version of the text form; a change that older code would misread counts it up.
    const SCHEMA: u32 = 1;
    /// The most rows that a file keeps.
    const MAX_ROWS: usize = usize::MAX;
    /// Whether rows may be added at the end of a large file.
    const GROWS: bool = false;

    /// Reads the rows; comments, the first line among them, are TOML's to skip.
    fn parse(text: &str) -> Result<Self, Fault> {
        toml::from_str(text).map_err(Fault::whole)
    }

    /// The rows as TOML, without the first line.
    fn print(&self) -> Result<String, Fault> {
        toml::to_string(self).map_err(Fault::whole)
    }

    /// Merges the rows of another table into these.
    fn add(&mut self, _rows: &Self) -> Result<(), Fault> {
        Err(Fault::whole("nothing is ever added at the end of such a table"))
    }

    /// How many rows there are.
    fn rows(&self) -> usize;

    /// Drops so many of the rows, those that [`oldest`] gives.
    fn drop_oldest(&mut self, count: usize);
}

/// The keys of the oldest rows, from keys and stamps.
pub(crate) fn oldest<Key>(rows: impl Iterator<Item = (Key, u64)>, count: usize) -> Vec<Key> {
    let now = now_ns();
    let mut rows: Vec<(Key, u64)> = rows.collect();
    rows.sort_by_key(|(_, stamp)| stamp_counts(*stamp, now));
    rows.into_iter().take(count).map(|(key, _)| key).collect()
}

/// Why a text is not the table it should be.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The row at fault, where it is one.
    pub(crate) entry: Option<String>,
    /// What is wrong with it.
    pub(crate) reason: String,
}

impl Fault {
    /// A fault of the text as a whole.
    pub(crate) fn whole(reason: impl fmt::Display) -> Fault {
        Fault { entry: None, reason: reason.to_string() }
    }
}

/// Why a table could not be loaded or saved. The file is as it was, or set aside whole; only after a failure to flush the
/// folder is it the new one, which a loss of power may still undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableError {
    /// The system refused.
    System {
        /// The file or folder that it is about.
        path: PathBuf,
        /// What was being done to it.
        doing: &'static str,
        /// What kind of refusal.
        kind: io::ErrorKind,
        /// The system's own words.
        reason: String,
    },
    /// The text is not such a table.
    Malformed {
        /// The table's file.
        path: PathBuf,
        /// The row at fault, where it is one.
        entry: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer vyre wrote the file.
    Newer {
        /// The table's file.
        path: PathBuf,
        /// The schema it has.
        found: u32,
        /// The schema this vyre knows.
        known: u32,
    },
    /// Somebody else could have written the file.
    Untrusted {
        /// The table's file.
        path: PathBuf,
        /// Why it is not trusted.
        reason: String,
    },
    /// There is more in the file, or in the table, than a table may hold.
    TooLarge {
        /// The table's file.
        path: PathBuf,
        /// The most bytes that a table's file may have.
        limit: u64,
    },
}

impl TableError {
    pub(crate) fn system(path: &Path, doing: &'static str, error: &io::Error) -> TableError {
        TableError::System { path: path.to_owned(), doing, kind: error.kind(), reason: error.to_string() }
    }

    fn malformed(path: &Path, fault: Fault) -> TableError {
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

    /// What to do about it.
    pub fn fix(&self) -> &'static str {
        match self {
            TableError::System {
                kind: io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, ..
            } => "free some space on the disk, or give another path",
            TableError::System { .. } => "make the path readable and writable, or give another one",
            TableError::Malformed { .. } => "repair the entry, or move the file away to start afresh",
            TableError::Newer { .. } => "use the newer vyre, or move the file away to start afresh",
            TableError::Untrusted { .. } => "own the file yourself and take others' write permission away",
            TableError::TooLarge { .. } => "move the file away to start afresh",
        }
    }

    /// Whether the file's content is at fault, so that a save would set it aside.
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

/// How far a stamp may be ahead of the clock: rows that are made at once get stamps one after the other.
const AHEAD_NS: u64 = 1_000_000_000;

/// Writes a number that may be larger than TOML's integers are; sums that reach those stop meaning anything anyway.
pub(crate) fn saturated<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64((*number).min(i64::MAX as u64))
}

/// The time in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // TOML integers are i64; that lasts until the year 2262.
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// What a stamp counts for at this time: itself, or nothing if it lies ahead of the clock.
pub(crate) fn stamp_counts(stamp: u64, now: u64) -> u64 {
    if stamp <= now.saturating_add(AHEAD_NS) { stamp } else { 0 }
}

/// When a row is made, for ordering rows of one key: now, and later than `previous`, the stamp of the row that it replaces,
/// unless that one does not count.
pub(crate) fn stamp_after(previous: Option<u64>) -> u64 {
    let now = now_ns();
    now.max(previous.map_or(0, |stamp| stamp_counts(stamp, now).saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_later_than_the_one_it_follows() {
        let now = stamp_after(None);
        assert!(now > 1_700_000_000_000_000_000);
        let next = stamp_after(Some(now + AHEAD_NS / 2));
        assert_eq!(next, now + AHEAD_NS / 2 + 1);
        assert_eq!(stamp_counts(next, now), next);
    }

    #[test]
    fn a_stamp_ahead_of_the_clock_holds_nothing_up() {
        let now = now_ns();
        for ahead in [now + 60 * AHEAD_NS, i64::MAX as u64, u64::MAX] {
            assert_eq!(stamp_counts(ahead, now), 0);
            assert!((now..now + 60 * AHEAD_NS).contains(&stamp_after(Some(ahead))));
        }
        assert_eq!(oldest([("b", 2), ("ahead", u64::MAX), ("a", 1)].into_iter(), 2), ["ahead", "a"]);
    }
}
