//! Hot-path hints on disk, so that the hints of one run serve the next.
//!
//! A row is a region's record and its timestamp; the newest row of a region wins, so of several
//! processes that ran a region the last to save prevails. A file keeps the [`MAX_REGIONS`] newest
//! rows, so that regions of deleted programs do not accumulate.

use crate::tables::{self, Row, Rows, TableError, now_ns, oldest, saturated, stamp_after, stamp_counts};
use serde::{Deserialize, Serialize};
use std::path::Path;
use vyre_foundation::hints::{HotPathHints, RegionRecord};

/// Maximum number of regions in a file: a full one takes 10 MB and loads in 0.9 s. [`HotPathHints`]
/// holds 256 regions by default, so a file has room for those of 256 runs with different programs.
pub const MAX_REGIONS: usize = 65_536;

/// Adds the records in this file to `hints`, the most recently recorded last. A missing file adds
/// nothing. On an error nothing is added and the file is left alone.
///
/// ```
/// use vyre_driver::hints_file::{load_hints, save_hints};
/// use vyre_foundation::hints::HotPathHints;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("hints.toml");
/// let hints = HotPathHints::default();
/// hints.record("blas.saxpy", 1_500, 4096);
/// save_hints(&hints, &path)?;
///
/// let next = HotPathHints::default();
/// load_hints(&next, &path)?;
/// assert_eq!(next.records(), hints.records());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load_hints(hints: &HotPathHints, path: &Path) -> Result<(), TableError> {
    let file: Rows<Saved> = tables::load(path)?;
    let rows = file.0.iter().map(|(region, saved)| ((region, saved), saved.saved_at_ns));
    for (region, saved) in oldest(rows, usize::MAX) {
        hints.absorb(region, saved.record);
    }
    Ok(())
}

/// Saves the records, replacing those of the same regions. A corrupt file is set aside first.
pub fn save_hints(hints: &HotPathHints, path: &Path) -> Result<(), TableError> {
    tables::update(path, |file: &mut Rows<Saved>| {
        let now = now_ns();
        let counted = file.0.values().map(|saved| stamp_counts(saved.saved_at_ns, now));
        let mut saved_at_ns = counted.max().unwrap_or(0);
        for (region, record) in hints.records() {
            // One timestamp per row, so that the order of the rows is the order in which the
            // regions were recorded.
            saved_at_ns = stamp_after(Some(saved_at_ns));
            file.0.insert(region, Saved { record, saved_at_ns });
        }
    })
}

/// A row of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    #[serde(flatten, with = "SavedRecord")]
    record: RegionRecord,
    saved_at_ns: u64,
}

/// The serialized form of a record.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RegionRecord")]
struct SavedRecord {
    #[serde(serialize_with = "saturated")]
    dispatch_count: u64,
    #[serde(serialize_with = "saturated")]
    kernel_ns_total: u64,
    #[serde(serialize_with = "saturated")]
    kernel_ns_max: u64,
    #[serde(serialize_with = "saturated")]
    bytes_total: u64,
}

impl Row for Saved {
    const KIND: &'static str = "hints";
    const MAX_ROWS: usize = MAX_REGIONS;

    fn stamp(&self) -> u64 {
        self.saved_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TableFormat;

    #[test]
    fn the_oldest_rows_make_room() {
        let row = |saved_at_ns: u64| Saved { record: RegionRecord::default(), saved_at_ns };
        let rows = (0..MAX_REGIONS as u64 + 3).map(|k| (format!("region {k}"), row(1_000_000 - k)));
        let mut table = Rows(rows.collect());
        table.drop_oldest(3);
        assert_eq!(table.0.len(), MAX_REGIONS);
        assert!(!table.0.contains_key(&format!("region {}", MAX_REGIONS + 2)));
        assert!(table.0.contains_key(&format!("region {}", MAX_REGIONS - 1)));
    }

    #[test]
    fn the_largest_numbers_fit_the_file() {
        let row = |number: u64| {
            let record = RegionRecord {
                dispatch_count: number,
                kernel_ns_total: number,
                kernel_ns_max: number,
                bytes_total: number,
            };
            Rows([(String::new(), Saved { record, saved_at_ns: i64::MAX as u64 })].into())
        };
        let text = row(u64::MAX).print().expect("prints");
        assert_eq!(Rows::parse(&text).expect("parses"), row(i64::MAX as u64));
    }
}
