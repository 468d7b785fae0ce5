//! Hot-path hints on disk, so that one run's hints serve the next.
//!
//! A row is a region's record and when it was saved; the newest row of a region wins, so of processes that ran one region
//! the last to save is believed. Regions of programs that no longer exist would pile up, so a file keeps the
//! [`MAX_REGIONS`] newest rows.

use crate::tables::{self, Fault, Home, Locked, OnDisk, TableError, TableFormat, stamp_after, user_file};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vyre_foundation::hints::{HotPathHints, RegionRecord};

/// The most regions that a file keeps.
pub const MAX_REGIONS: usize = 65_536;

/// The user's own hints: `vyre/hints.toml` in `$XDG_CACHE_HOME`, else in `$HOME/.cache`. `None`, with a warning, if the
/// user has neither: hints then stay in memory.
pub fn default_hints_path() -> Option<PathBuf> {
    user_file(Home::Cache, "hints.toml")
}

/// Adds the records in this file to `hints`, the most recently recorded last. No file: nothing is added. On an error
/// nothing is added and the file is left alone.
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
    let file: HintsTable = tables::load(path)?;
    for (region, row) in file.oldest_first() {
        hints.absorb(region, row.record());
    }
    Ok(())
}

/// Puts the records in the file, replacing those of the same regions. A corrupt file is set aside first.
pub fn save_hints(hints: &HotPathHints, path: &Path) -> Result<(), TableError> {
    let locked = Locked::acquire(path)?;
    let mut file: OnDisk<HintsTable> = locked.read(locked.path())?;
    let saved = file.table.0.values().map(|row| row.saved_at_ns).max();
    let mut saved_at_ns = stamp_after(saved);
    for (region, record) in hints.records() {
        file.table.0.insert(region, Row::new(record, saved_at_ns));
        // One stamp per row, so that the order of the rows is the order in which the regions were recorded.
        saved_at_ns = stamp_after(Some(saved_at_ns));
    }
    file.table.drop_oldest();
    locked.write(locked.path(), &file)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    dispatch_count: u64,
    kernel_ns_total: u64,
    kernel_ns_max: u64,
    bytes_total: u64,
    saved_at_ns: u64,
}

impl Row {
    fn new(record: RegionRecord, saved_at_ns: u64) -> Row {
        // TOML has no larger integers; sums that reach this stop meaning anything anyway.
        let fit = |number: u64| number.min(i64::MAX as u64);
        Row {
            dispatch_count: fit(record.dispatch_count),
            kernel_ns_total: fit(record.kernel_ns_total),
            kernel_ns_max: fit(record.kernel_ns_max),
            bytes_total: fit(record.bytes_total),
            saved_at_ns,
        }
    }

    fn record(self) -> RegionRecord {
        RegionRecord {
            dispatch_count: self.dispatch_count,
            kernel_ns_total: self.kernel_ns_total,
            kernel_ns_max: self.kernel_ns_max,
            bytes_total: self.bytes_total,
        }
    }
}

#[derive(Default)]
struct HintsTable(BTreeMap<String, Row>);

impl HintsTable {
    fn oldest_first(&self) -> Vec<(&str, Row)> {
        let mut rows: Vec<(&str, Row)> = self.0.iter().map(|(region, row)| (region.as_str(), *row)).collect();
        rows.sort_by_key(|(_, row)| row.saved_at_ns);
        rows
    }

    fn drop_oldest(&mut self) {
        let surplus = self.0.len().saturating_sub(MAX_REGIONS);
        let old: Vec<String> =
            self.oldest_first().into_iter().take(surplus).map(|(region, _)| region.to_owned()).collect();
        for region in old {
            self.0.remove(&region);
        }
    }
}

impl TableFormat for HintsTable {
    const KIND: &'static str = "hints";
    const SCHEMA: u32 = 1;

    fn parse(text: &str) -> Result<HintsTable, Fault> {
        toml::from_str(text).map(HintsTable).map_err(Fault::whole)
    }

    fn print(&self) -> Result<String, Fault> {
        toml::to_string(&self.0).map_err(Fault::whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rows_make_room() {
        let row = |saved_at_ns: u64| Row::new(RegionRecord::default(), saved_at_ns);
        let rows = (0..MAX_REGIONS as u64 + 3).map(|k| (format!("region {k}"), row(1_000_000 - k)));
        let mut table = HintsTable(rows.collect());
        table.drop_oldest();
        assert_eq!(table.0.len(), MAX_REGIONS);
        assert!(!table.0.contains_key(&format!("region {}", MAX_REGIONS + 2)));
        assert!(table.0.contains_key(&format!("region {}", MAX_REGIONS - 1)));
    }

    #[test]
    fn the_largest_numbers_fit_the_file() {
        let full = RegionRecord {
            dispatch_count: u64::MAX,
            kernel_ns_total: u64::MAX,
            kernel_ns_max: u64::MAX,
            bytes_total: u64::MAX,
        };
        let table = HintsTable([(String::new(), Row::new(full, i64::MAX as u64))].into());
        let text = table.print().expect("prints");
        assert_eq!(HintsTable::parse(&text).expect("parses").0, table.0);
    }
}
