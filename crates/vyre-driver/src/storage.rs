//! Storage of everything that is learnt: the locations of all tables, and loading and saving.
//!
//! A table that cannot be read or written is left alone, with a warning: a program must not fail
//! because of something it can learn again. Callers that need the errors use the tables directly.

use crate::DeviceProfile;
use crate::bundle::Bundle;
use crate::certificates::CertificateTable;
use crate::hints_file::{load_hints, save_hints};
use crate::pgo::PgoTable;
use crate::pipeline::PipelineCacheAudit;
use crate::tables::{TableError, UserFolder, sibling, user_file};
use crate::tuner::{self, Mode, Tuner, TunerCache, adapter_fingerprint};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use vyre_foundation::hints::HotPathHints;

/// The environment variable with a folder for all tables; `off` disables storage.
pub const TABLES_VARIABLE: &str = "VYRE_TABLES";

/// The environment variable that limits the size of reproducible files, in MiB.
pub const CACHE_LIMIT_VARIABLE: &str = "VYRE_CACHE_LIMIT";
/// The limit without that variable: four full folders of binaries ([`binaries`](crate::binaries),
/// 128 MiB each).
const CACHE_LIMIT_MIB: u64 = 512;

/// The files of all tables; a table whose path is `None` stays in memory.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// The fastest backend for each program.
    pub routes: Option<PathBuf>,
    /// The regions that take the most time.
    pub hints: Option<PathBuf>,
    /// The backends' results on the conformance set.
    pub certificates: Option<PathBuf>,
    /// Hit rates of the pipeline cache.
    pub compiles: Option<PathBuf>,
    /// The folder of the tuner's files, one per adapter.
    pub tuner: Option<PathBuf>,
    /// vyre's folder below which backends store compiled code; `None` if the user specified a
    /// folder.
    pub cache: Option<PathBuf>,
}

impl Storage {
    /// The locations from `VYRE_TABLES`, otherwise in the user's folders.
    pub fn of_user() -> Storage {
        match std::env::var_os(TABLES_VARIABLE) {
            Some(value) if value == "off" => Storage::default(),
            Some(folder) if !folder.is_empty() => Storage::in_folder(Path::new(&folder)),
            Some(_) | None => Storage { cache: user_file(UserFolder::Cache, ""), ..Storage::at(user_file) },
        }
    }

    /// Everything in one folder.
    pub fn in_folder(folder: &Path) -> Storage {
        Storage::at(|_, name| Some(folder.join(name)))
    }

    fn at(place: impl Fn(UserFolder, &str) -> Option<PathBuf>) -> Storage {
        Storage {
            routes: place(UserFolder::Config, "pgo.toml"),
            hints: place(UserFolder::Cache, "hints.toml"),
            certificates: place(UserFolder::Cache, "certificates.toml"),
            compiles: place(UserFolder::Cache, "compiles.toml"),
            tuner: place(UserFolder::Cache, "tuner"),
            cache: None,
        }
    }

    /// The tuner's existing files, by name.
    pub fn tuner_files(&self) -> Vec<PathBuf> {
        let all = self.tuner.as_deref().map(files_in).unwrap_or_default();
        all.into_iter().filter(|path| path.extension() == Some(OsStr::new("toml"))).collect()
    }

    /// The tuner of a device, with the results of earlier runs.
    pub fn tuner(&self, profile: &DeviceProfile, mode: Mode) -> Tuner {
        match &self.tuner {
            Some(folder) => Tuner::in_folder(folder, &adapter_fingerprint(profile), mode),
            None => Tuner::in_memory(mode),
        }
    }

    /// Loads the routes.
    pub fn load_routes(&self) -> PgoTable {
        read(&self.routes, PgoTable::load)
    }

    /// Loads the certificates.
    pub fn load_certificates(&self) -> CertificateTable {
        read(&self.certificates, CertificateTable::load)
    }

    /// Adds the stored hints to these.
    pub fn load_hints(&self, hints: &HotPathHints) {
        read(&self.hints, |path| load_hints(hints, path));
    }

    /// Adds these routes to the table.
    pub fn save_routes(&self, table: &PgoTable) -> Result<(), TableError> {
        if *table == PgoTable::default() { Ok(()) } else { write(&self.routes, |path| table.save(path)) }
    }

    /// Adds these certificates to the table; a failure is only a warning.
    pub fn save_certificates(&self, table: &CertificateTable) {
        if !table.certificates.is_empty()
            && let Err(error) = write(&self.certificates, |path| table.save(path))
        {
            tracing::warn!(%error, "a table was not saved");
        }
    }

    /// Adds these hints to the table.
    pub fn save_hints(&self, hints: &HotPathHints) -> Result<(), TableError> {
        if hints.is_empty() { Ok(()) } else { write(&self.hints, |path| save_hints(hints, path)) }
    }

    /// Adds the counts of a pipeline cache to the table.
    pub fn save_compiles(&self, audit: &PipelineCacheAudit) -> Result<(), TableError> {
        write(&self.compiles, |path| audit.save(path))
    }

    /// Adds the tuner's decisions for each adapter to the bundle.
    pub fn add_tuned(&self, bundle: &mut Bundle) {
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

    /// Merges a bundle into the tables; of two rows for one key the newer stays.
    pub fn take_in(&self, bundle: &Bundle) {
        self.import(bundle).into_iter().for_each(|error| tracing::warn!(%error, "a table was not saved"));
    }

    /// Like [`Storage::take_in`], and returns the errors.
    pub fn import(&self, bundle: &Bundle) -> Vec<TableError> {
        let routes = self.routes.as_deref().map(|path| bundle.routes.save(path));
        let certificates = self.certificates.as_deref().map(|path| bundle.certificates.save(path));
        // A bundle must not write outside the folder.
        let names = bundle.tuned.keys().filter(|name| is_plain_name(name));
        let tuned = names.filter_map(|name| {
            let folder = self.tuner.as_deref()?;
            Some(bundle.tuned_cache(name).save(&folder.join(name)))
        });
        routes.into_iter().chain(certificates).chain(tuned).filter_map(Result::err).collect()
    }

    /// Deletes reproducible files, least recently modified first, until the rest fits the limit.
    pub fn limit_cache(&self) {
        let mebibytes =
            std::env::var(CACHE_LIMIT_VARIABLE).ok().and_then(|limit| limit.trim().parse::<u64>().ok());
        let limit = mebibytes.unwrap_or(CACHE_LIMIT_MIB).saturating_mul(1 << 20);
        delete_oldest(self.makeable_files(), limit, limit);
    }

    /// The reproducible files that belong to vyre: the tuner's, one per adapter and build, and
    /// compiled code. The other tables are one file each and limit themselves; any other file in a
    /// folder that the user specified is the user's.
    fn makeable_files(&self) -> Vec<CacheFile> {
        let own = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(tuner::is_file_name);
        let tuned = self.tuner_files().into_iter().filter(own).filter_map(|path| {
            // The samples are deleted together with the decisions.
            let samples = sibling(&path, tuner::SAMPLES_SUFFIX).ok()?;
            CacheFile::of(vec![path, samples])
        });
        let folders = self.cache.iter().flat_map(|cache| ["wgpu", "opencl"].map(|name| cache.join(name)));
        let compiled =
            folders.flat_map(|folder| files_in(&folder)).filter_map(|path| CacheFile::of(vec![path]));
        tuned.chain(compiled).collect()
    }
}

fn read<T: Default>(path: &Option<PathBuf>, load: impl FnOnce(&Path) -> Result<T, TableError>) -> T {
    let Some(path) = path else { return T::default() };
    load(path).unwrap_or_else(|error| {
        tracing::warn!(%error, "a table is not used");
        T::default()
    })
}

fn write(
    path: &Option<PathBuf>,
    save: impl FnOnce(&Path) -> Result<(), TableError>,
) -> Result<(), TableError> {
    path.as_deref().map_or(Ok(()), save)
}

/// Whether a name from a file stays within the folder that it is joined to.
fn is_plain_name(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|plain| plain == name) && name.ends_with(".toml")
}

/// The files in a folder, by name; none if it cannot be listed. Does not follow links.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Files that are deleted together.
pub(crate) struct CacheFile {
    paths: Vec<PathBuf>,
    bytes: u64,
    changed: SystemTime,
}

impl CacheFile {
    pub(crate) fn of(paths: Vec<PathBuf>) -> Option<CacheFile> {
        let found: Vec<fs::Metadata> = paths.iter().filter_map(|path| fs::metadata(path).ok()).collect();
        let changed = found.iter().filter_map(|found| found.modified().ok()).max()?;
        Some(CacheFile { paths, bytes: found.iter().map(fs::Metadata::len).sum(), changed })
    }
}

/// If files exceed the limit, deletes the least recently modified until the rest takes at most
/// `keep` bytes.
pub(crate) fn delete_oldest(mut files: Vec<CacheFile>, limit: u64, keep: u64) {
    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    files.sort_by_key(|file| file.changed);
    let wanted = if total <= limit { limit } else { keep };
    for file in files {
        if total <= wanted {
            return;
        }
        total -= file.bytes;
        for path in file.paths {
            // Ignore files that cannot be deleted or are already gone.
            if fs::remove_file(&path).is_ok() {
                tracing::info!(file = %path.display(), "deleted to keep the cache within its limit");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_made_again_makes_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = Storage::in_folder(folder.path());
        let file = |name: &str, age: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(&path, [0; 100]).expect("written");
            let changed = SystemTime::now() - std::time::Duration::from_secs(age);
            fs::File::options()
                .append(true)
                .open(&path)
                .and_then(|file| file.set_modified(changed))
                .expect("dated");
            path
        };
        let kept: Vec<PathBuf> =
            ["photo.png", "pgo.toml", "tuner/mine.toml", "tuner/notes.txt", "wgpu/x", "deep/er/still/x"]
                .map(|name| file(name, 900))
                .into();
        let tuner = |adapter: &str| format!("tuner/{}", tuner::file_name(adapter));
        let (old, new) = (file(&tuner("old"), 300), file(&tuner("new"), 10));
        let samples = file(&format!("{}.samples", tuner("old")), 400);
        delete_oldest(places.makeable_files(), 300, 300);
        assert!(old.exists() && new.exists() && samples.exists(), "they are just within the limit");
        delete_oldest(places.makeable_files(), 299, 299);
        assert!(!old.exists() && !samples.exists() && new.exists());
        delete_oldest(places.makeable_files(), 0, 0);
        assert!(!new.exists());
        assert_eq!(kept.iter().find(|path| !path.exists()), None);
        let own = Storage { cache: Some(folder.path().to_owned()), ..places };
        delete_oldest(own.makeable_files(), 0, 0);
        assert!(!folder.path().join("wgpu/x").exists(), "compiled code in a folder of vyre's own");
    }

    #[test]
    fn names_stay_in_their_folder() {
        assert!(is_plain_name("cpu-host.toml"));
        for name in ["", ".", "..", "../x.toml", "/x.toml", "a/b.toml", "x", "x.toml/", "a/../x.toml"] {
            assert!(!is_plain_name(name), "{name}");
        }
    }
}
