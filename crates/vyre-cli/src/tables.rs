//! Table files of learnt data: location, row count and whether they are readable.

use std::path::{Path, PathBuf};
use vyre_driver::certificates::CertificateTable;
use vyre_driver::hints_file::load_hints;
use vyre_driver::pgo::PgoTable;
use vyre_driver::pipeline::PipelineCacheAudit;
use vyre_driver::storage::Storage;
use vyre_driver::tables::TableError;
use vyre_driver::tuner::TunerCache;
use vyre_foundation::hints::HotPathHints;

/// Kind of a table file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum TableKind {
    /// Fastest backend for each op
    Routes,
    /// Regions that take the most time
    Hints,
    /// Fastest workgroup size for each device
    Tuner,
    /// Results of backends on the conformance set
    Certificates,
    /// Hit rates of the cache of compiled programs
    Compiles,
    /// Damaged files that were quarantined
    SetAside,
}

impl TableKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TableKind::Routes => "routes",
            TableKind::Hints => "hints",
            TableKind::Tuner => "tuner",
            TableKind::Certificates => "certificates",
            TableKind::Compiles => "compiles",
            TableKind::SetAside => "set-aside",
        }
    }
}

/// Table file on disk.
pub(crate) struct TableFile {
    pub(crate) kind: TableKind,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Number of rows, or why the file cannot be read. Quarantined files are not read and count 0
    /// rows.
    pub(crate) rows: Result<usize, TableError>,
}

/// Lists every existing table file and the quarantined files beside it.
pub(crate) fn files(places: &Storage) -> Vec<TableFile> {
    let mut files = Vec::new();
    let single = [
        (TableKind::Routes, &places.routes),
        (TableKind::Hints, &places.hints),
        (TableKind::Certificates, &places.certificates),
        (TableKind::Compiles, &places.compiles),
    ];
    for (kind, path) in single.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?))) {
        files.extend(TableFile::at(kind, path.clone()));
        files.extend(set_aside(path));
    }
    for path in places.tuner.as_deref().map(entries).unwrap_or_default() {
        let is_table = path.extension().is_some_and(|extension| extension == "toml");
        let kind = if is_table { TableKind::Tuner } else { TableKind::SetAside };
        if is_table || is_set_aside(&path) {
            files.extend(TableFile::at(kind, path));
        }
    }
    files
}

impl TableFile {
    fn at(kind: TableKind, path: PathBuf) -> Option<TableFile> {
        // A dangling or circular link exists, but cannot be read.
        let bytes = std::fs::symlink_metadata(&path).ok()?.len();
        let bytes = std::fs::metadata(&path).map_or(bytes, |found| found.len());
        let rows = rows(kind, &path);
        Some(TableFile { kind, path, bytes, rows })
    }

    /// Deletes the file and its companions: a tuner's samples, and the copies that incompatible
    /// versions keep beside it.
    pub(crate) fn remove(&self) -> std::io::Result<()> {
        let own = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let belongs = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let rest = name.strip_prefix(&own).unwrap_or_default();
            rest.starts_with(".samples") || rest.starts_with(".schema-")
        };
        for path in self.path.parent().map(entries).unwrap_or_default().iter().filter(|path| belongs(path)) {
            std::fs::remove_file(path)?;
        }
        std::fs::remove_file(&self.path)
    }
}

fn rows(kind: TableKind, path: &Path) -> Result<usize, TableError> {
    match kind {
        TableKind::Routes => {
            let table = PgoTable::load(path)?;
            // The latest row of an op is also among its sizes.
            let any_size = table.routes.values().filter(|row| row.size_bucket.is_none()).count();
            Ok(any_size + table.routes_by_size.values().map(|rows| rows.len()).sum::<usize>())
        }
        TableKind::Hints => {
            let hints = HotPathHints::with_capacity(vyre_driver::hints_file::MAX_REGIONS);
            load_hints(&hints, path)?;
            Ok(hints.len())
        }
        TableKind::Tuner => Ok(TunerCache::load(path)?.keys().count()),
        TableKind::Certificates => Ok(CertificateTable::load(path)?.certificates.len()),
        TableKind::Compiles => Ok(PipelineCacheAudit::load(path)?.1),
        TableKind::SetAside => Ok(0),
    }
}

/// Quarantined files of the table at `path`.
fn set_aside(path: &Path) -> impl Iterator<Item = TableFile> {
    let folder = path.parent().map(entries).unwrap_or_default();
    let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let belongs = move |other: &PathBuf| {
        is_set_aside(other) && other.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own))
    };
    folder.into_iter().filter(belongs).filter_map(|path| TableFile::at(TableKind::SetAside, path))
}

fn is_set_aside(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".corrupt-"))
}

/// Entries of a folder, sorted by name; empty if it cannot be listed.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
