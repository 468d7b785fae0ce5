//! Saved progress of long measurements, so that an interrupted run resumes where it stopped.

use super::wide::WideTally;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Progress of the measurement of an `f64` function.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// BLAKE3 hash of the measured code.
    pub(super) fingerprint: String,
    /// Points with numbers below this are done.
    pub(super) done: u64,
    pub(super) tally: WideTally,
}

impl Progress {
    /// Reads the saved progress; `None` if it is for other code.
    pub(super) fn read(name: &str, fingerprint: &str) -> Option<Progress> {
        let text = std::fs::read_to_string(path(name)).ok()?;
        let kept: Progress = serde_json::from_str(&text).ok()?;
        (kept.fingerprint == fingerprint).then_some(kept)
    }

    /// Writes to a temporary file first, so that an interruption loses nothing.
    pub(super) fn write(&self, name: &str) -> Result<(), String> {
        let path = path(name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let json = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let fresh = path.with_extension("new");
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        std::fs::write(&fresh, json).and_then(|()| std::fs::rename(&fresh, &path)).map_err(failed)
    }

    /// Removes the progress of a recorded measurement.
    pub(super) fn remove(name: &str) {
        // A leftover file is harmless: it is used only for the same code, and correct for that.
        let _ = std::fs::remove_file(path(name));
    }
}

fn path(name: &str) -> PathBuf {
    crate::root().join("target/ulp").join(format!("{name}.json"))
}
