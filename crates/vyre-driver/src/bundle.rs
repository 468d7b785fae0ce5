//! A portable file of what was learnt: certificates, routes and tuned shapes, with their origin.
//!
//! A row is valid only for the device, driver and compiler version that it names, so a bundle helps
//! similar machines and has no effect on others. Importing merges: of two rows for one key the
//! newer stays, and imported rows carry the bundle's `origin`.

use crate::DeviceProfile;
use crate::certificates::CertificateTable;
use crate::hex;
use crate::pgo::PgoTable;
use crate::pipeline::COMPILER_VERSION;
use crate::tables::{self, TableError, TableFormat, stamp_after};
use crate::tuner::{Shape, TunerCache, adapter_fingerprint, file_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use vyre_foundation::ir::Program;

/// Tables in one file.
///
/// ```
/// use vyre_driver::bundle::Bundle;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tables.bundle");
/// let bundle = Bundle::new("build machine 7");
/// bundle.save(&path)?;
/// assert_eq!(Bundle::load(&path)?, bundle);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Its origin, as described by its creator.
    pub origin: String,
    /// The version of vyre that made it.
    pub compiler_version: String,
    /// When it was made, in nanoseconds since 1970.
    pub created_at_ns: u64,
    /// The backends' results on the conformance set.
    #[serde(default)]
    pub certificates: CertificateTable,
    /// The fastest backend for each program.
    #[serde(default)]
    pub routes: PgoTable,
    /// Tuned shapes by adapter file, then by key.
    #[serde(default)]
    pub tuned: BTreeMap<String, BTreeMap<String, TunedShape>>,
}

/// A decision of the tuner with its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedShape {
    /// The decision.
    #[serde(flatten)]
    pub shape: Shape,
    /// When it was made, in nanoseconds since 1970; 0, which counts as oldest, if the bundle does
    /// not say.
    #[serde(default)]
    pub decided_at_ns: u64,
}

impl Bundle {
    /// An empty bundle, stamped now.
    pub fn new(origin: impl Into<String>) -> Bundle {
        Bundle {
            origin: origin.into(),
            compiler_version: COMPILER_VERSION.into(),
            created_at_ns: stamp_after(None),
            ..Bundle::default()
        }
    }

    /// Loads the bundle in this file.
    pub fn load(path: &Path) -> Result<Bundle, TableError> {
        if !path.exists() {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(TableError::system(path, "read", &error));
        }
        tables::load_exact(path)
    }

    /// Writes the bundle, replacing an existing file; creates no folder and leaves no other file.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        if let Err(newer @ TableError::Newer { .. }) = tables::load_exact::<Bundle>(path) {
            return Err(newer);
        }
        tables::replace(path, self.clone())
    }

    /// Sets the bundle's origin on every row that has none.
    #[must_use]
    pub fn with_origins(mut self) -> Bundle {
        let rows = self.routes.routes.values_mut();
        let sized = self.routes.routes_by_size.values_mut().flat_map(BTreeMap::values_mut);
        let origins = rows.chain(sized).map(|row| &mut row.origin);
        let certified = self.certificates.certificates.iter_mut().map(|row| &mut row.origin);
        for origin in origins.chain(certified).filter(|origin| origin.is_empty()) {
            origin.clone_from(&self.origin);
        }
        self
    }

    /// Adds the tuner's decisions for one adapter, under the name of its file. Quarantined shapes
    /// are left out.
    pub fn add_tuned(&mut self, file_name: &str, cache: &TunerCache) {
        let usable = cache.decisions().filter(|(key, shape)| !cache.is_quarantined(key, *shape));
        let decision = |(key, shape): (&str, Shape)| {
            (key.to_owned(), TunedShape { shape, decided_at_ns: cache.decided_at_ns(key) })
        };
        self.tuned.insert(file_name.to_owned(), usable.map(decision).collect());
    }

    /// The tuner's decisions for this device, with their timestamps.
    pub fn tuned_for(&self, profile: &DeviceProfile) -> TunerCache {
        self.tuned_cache(&file_name(&adapter_fingerprint(profile)))
    }

    /// Keeps only the routes of these programs.
    pub fn keep_routes_of(&mut self, programs: &[Program]) {
        let fingerprints: Vec<String> =
            programs.iter().map(|program| hex::encode(&program.fingerprint())).collect();
        // A key ends with the first digits of the fingerprint; the name before it can contain
        // anything.
        let is_of = |key: &str| {
            let digits = key.rsplit_once('@').map(|(_, digits)| digits);
            digits.is_some_and(|digits| fingerprints.iter().any(|whole| whole.starts_with(digits)))
        };
        self.routes.routes.clear();
        self.routes.routes_by_size.retain(|key, _| is_of(key));
    }

    /// The tuner's decisions for the adapter with this file, with their timestamps.
    pub fn tuned_cache(&self, file_name: &str) -> TunerCache {
        let mut cache = TunerCache::default();
        for (key, tuned) in self.tuned.get(file_name).into_iter().flatten() {
            cache.set_decided(key, tuned.shape, tuned.decided_at_ns);
        }
        cache
    }
}

impl TableFormat for Bundle {
    const KIND: &'static str = "bundle";

    // Only routes can fill a bundle: certificates and decisions are few and short in comparison.
    fn rows(&self) -> usize {
        self.routes.rows()
    }

    fn drop_oldest(&mut self, count: usize) {
        self.routes.drop_oldest(count);
    }
}
