//! Where a runtime keeps what it learns, and bundles to carry that to other machines.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use vyre_driver::DeviceProfile;
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::{CertificateTable, default_certificates_path};
use vyre_driver::hints_file::{default_hints_path, load_hints, save_hints};
use vyre_driver::pgo::{PgoTable, default_pgo_path};
use vyre_driver::tables::TableError;
use vyre_driver::tuner::{Mode, Tuner, TunerCache, adapter_fingerprint, default_tuner_folder};
use vyre_foundation::hints::HotPathHints;

/// The environment variable that names a folder for all tables; `off` keeps nothing.
pub const TABLES_VARIABLE: &str = "VYRE_TABLES";

/// The environment variable that limits the cache folder, in MiB.
pub const CACHE_LIMIT_VARIABLE: &str = "VYRE_CACHE_LIMIT";
const CACHE_LIMIT_MIB: u64 = 512;
/// Folders below the cache that are looked into; deeper ones are not vyre's.
const CACHE_DEPTH: usize = 3;

/// The files of a runtime; `None` is kept in memory only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) routes: Option<PathBuf>,
    pub(crate) hints: Option<PathBuf>,
    pub(crate) certificates: Option<PathBuf>,
    /// The folder of the tuner's files, one per adapter.
    pub(crate) tuner: Option<PathBuf>,
}

impl Tables {
    /// What `VYRE_TABLES` names, else the user's own folders.
    pub(crate) fn of_user() -> Tables {
        match std::env::var_os(TABLES_VARIABLE) {
            Some(value) if value == "off" => Tables::default(),
            Some(folder) if !folder.is_empty() => Tables::in_folder(Path::new(&folder)),
            Some(_) | None => Tables {
                routes: default_pgo_path(),
                hints: default_hints_path(),
                certificates: default_certificates_path(),
                tuner: default_tuner_folder(),
            },
        }
    }

    pub(crate) fn in_folder(folder: &Path) -> Tables {
        Tables {
            routes: Some(folder.join("pgo.toml")),
            hints: Some(folder.join("hints.toml")),
            certificates: Some(folder.join("certificates.toml")),
            tuner: Some(folder.join("tuner")),
        }
    }

    /// Adds what the tuner decided for each adapter.
    pub(crate) fn add_tuned(&self, bundle: &mut Bundle) {
        for path in self.tuner_files() {
            let name = path.file_name().and_then(OsStr::to_str).map(str::to_owned);
            let cache = read(&Some(path), TunerCache::load);
            if let Some(name) = name
                && cache.decisions().next().is_some()
            {
                bundle.add_tuned(&name, &cache);
            }
        }
    }

    /// Merges a bundle into the files.
    pub(crate) fn take_in(&self, bundle: &Bundle) {
        self.save_routes(&bundle.routes);
        self.save_certificates(&bundle.certificates);
        let Some(folder) = &self.tuner else { return };
        for (name, decisions) in &bundle.tuned {
            // A bundle must not reach outside the folder.
            if Path::new(name).file_name() != Some(OsStr::new(name)) {
                tracing::warn!(name, "tuned shapes under a name that is no file name are left out");
                continue;
            }
            let mut cache = TunerCache::default();
            decisions.iter().for_each(|(key, shape)| cache.set_shape(key.clone(), *shape));
            write(&Some(folder.join(name)), |path| cache.save(path));
        }
    }

    /// Deletes the files of the cache that were used longest ago until the rest fits the limit.
    pub(crate) fn limit_cache(&self) {
        if let Some(folder) = self.hints.as_deref().and_then(Path::parent) {
            let mebibytes =
                std::env::var(CACHE_LIMIT_VARIABLE).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
            delete_oldest(folder, mebibytes.unwrap_or(CACHE_LIMIT_MIB).saturating_mul(1 << 20));
        }
    }

    fn tuner_files(&self) -> Vec<PathBuf> {
        let Some(entries) = self.tuner.as_ref().and_then(|folder| std::fs::read_dir(folder).ok()) else {
            return Vec::new();
        };
        let tables = entries.flatten().map(|entry| entry.path());
        tables.filter(|path| path.extension() == Some(OsStr::new("toml"))).collect()
    }

    pub(crate) fn load_routes(&self) -> PgoTable {
        read(&self.routes, PgoTable::load)
    }

    /// The tuner of a device, with what earlier runs found.
    pub(crate) fn tuner(&self, profile: &DeviceProfile, mode: Mode) -> Tuner {
        match &self.tuner {
            Some(folder) => Tuner::in_folder(folder, &adapter_fingerprint(profile), mode),
            None => Tuner::in_memory(mode),
        }
    }

    pub(crate) fn load_certificates(&self) -> CertificateTable {
        read(&self.certificates, CertificateTable::load)
    }

    pub(crate) fn load_hints(&self, hints: &HotPathHints) {
        read(&self.hints, |path| load_hints(hints, path));
    }

    pub(crate) fn save_certificates(&self, table: &CertificateTable) {
        if !table.certificates.is_empty() {
            write(&self.certificates, |path| table.save(path));
        }
    }

    pub(crate) fn save_routes(&self, table: &PgoTable) {
        if *table != PgoTable::default() {
            write(&self.routes, |path| table.save(path));
        }
    }

    pub(crate) fn save_hints(&self, hints: &HotPathHints) {
        if !hints.is_empty() {
            write(&self.hints, |path| save_hints(hints, path));
        }
    }
}

/// A table that cannot be read is left alone, with a warning: a program must not fail for what it could learn again.
fn read<T: Default>(path: &Option<PathBuf>, load: impl FnOnce(&Path) -> Result<T, TableError>) -> T {
    let Some(path) = path else { return T::default() };
    load(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "a table is not used");
        T::default()
    })
}

fn write(path: &Option<PathBuf>, save: impl FnOnce(&Path) -> Result<(), TableError>) {
    let Some(path) = path else { return };
    if let Err(error) = save(path) {
        tracing::warn!(%error, "a table is not kept");
    }
}

fn delete_oldest(folder: &Path, limit: u64) {
    let mut files = Vec::new();
    collect(folder, CACHE_DEPTH, &mut files);
    let mut total: u64 = files.iter().map(|file: &CacheFile| file.bytes).sum();
    files.sort_by_key(|file| file.changed);
    for file in files {
        if total <= limit {
            return;
        }
        // A file that cannot be deleted, or is gone already, is somebody else's to care for.
        if std::fs::remove_file(&file.path).is_ok() {
            total -= file.bytes;
            tracing::info!(file = %file.path.display(), "deleted to keep the cache within its limit");
        }
    }
}

struct CacheFile {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

/// The files below a folder. Links are not followed, and lock files stay: another process may hold them.
fn collect(folder: &Path, depth: usize, files: &mut Vec<CacheFile>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
        if found.is_dir() && depth > 0 {
            collect(&path, depth - 1, files);
        } else if found.is_file() && path.extension() != Some(OsStr::new("lock")) {
            let changed = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            files.push(CacheFile { path, bytes: found.len(), changed });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_of_the_cache_make_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: usize, age: u64| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(&path, vec![0; bytes]).expect("written");
            let changed = SystemTime::now() - std::time::Duration::from_secs(age);
            std::fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(changed))
                .expect("dated");
        };
        file("old.toml", 100, 300);
        file("wgpu/older.bin", 100, 400);
        file("hints.toml.lock", 100, 900);
        file("new.toml", 100, 10);
        let left = || {
            let mut files = Vec::new();
            collect(folder.path(), CACHE_DEPTH, &mut files);
            let mut names: Vec<_> =
                files.iter().filter_map(|file| file.path.file_name()?.to_str()).map(str::to_owned).collect();
            names.sort();
            names
        };
        delete_oldest(folder.path(), 300);
        assert_eq!(left(), ["new.toml", "old.toml", "older.bin"]);
        delete_oldest(folder.path(), 200);
        assert_eq!(left(), ["new.toml", "old.toml"]);
        delete_oldest(folder.path(), 0);
        assert!(left().is_empty() && folder.path().join("hints.toml.lock").exists());
    }
}
