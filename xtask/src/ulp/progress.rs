//! Measurements that take long, kept while they run: a run that was ended goes on where it was.

use super::wide::WideTally;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How far the measurement of a function on `f64` has come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// BLAKE3 of the code that is measured.
    pub(super) fingerprint: String,
    /// The points with numbers below this are done.
    pub(super) done: u64,
    pub(super) tally: WideTally,
}

impl Progress {
    /// What is kept of the function's present code; nothing else is of use.
    pub(super) fn read(name: &str, fingerprint: &str) -> Option<Progress> {
        let text = std::fs::read_to_string(path(name)).ok()?;
        let kept: Progress = serde_json::from_str(&text).ok()?;
        (kept.fingerprint == fingerprint).then_some(kept)
    }

    /// Written beside the old one first, so that an end in between loses nothing.
    pub(super) fn write(&self, name: &str) -> Result<(), String> {
        let path = path(name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let json = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let fresh = path.with_extension("new");
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        std::fs::write(&fresh, json).and_then(|()| std::fs::rename(&fresh, &path)).map_err(failed)
    }

    /// The measurement is recorded, and this no longer needed.
    pub(super) fn remove(name: &str) {
        // One that stays behind is read again only for the same code, and is right for it.
        let _ = std::fs::remove_file(path(name));
    }
}

fn path(name: &str) -> PathBuf {
    crate::root().join("target/ulp").join(format!("{name}.json"))
}
