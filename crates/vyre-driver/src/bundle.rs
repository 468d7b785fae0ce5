//! What was learnt, in one file to carry elsewhere: certificates, routes and tuned shapes, with where they come from.
//!
//! A row is valid only for the device, driver and compiler version that it names, so a bundle helps machines that are alike
//! and does nothing on others. Importing merges: of two rows for one key the newer stays, and what comes from a bundle says
//! so in its `origin`.

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
    /// Where it comes from, in the words of whoever made it.
    pub origin: String,
    /// The version of vyre that made it.
    pub compiler_version: String,
    /// When, in nanoseconds since 1970.
    pub created_at_ns: u64,
    /// How backends did on the conformance set.
    #[serde(default)]
    pub certificates: CertificateTable,
    /// Which backend is fastest for what.
    #[serde(default)]
    pub routes: PgoTable,
    /// Tuned shapes by adapter file, then by key.
    #[serde(default)]
    pub tuned: BTreeMap<String, BTreeMap<String, TunedShape>>,
}

/// A decision of the tuner, and when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedShape {
    /// The decision.
    #[serde(flatten)]
    pub shape: Shape,
    /// When it was taken, in nanoseconds since 1970; 0, which counts as oldest, in bundles of versions that did not say.
    #[serde(default)]
    pub decided_at_ns: u64,
}

impl Bundle {
    /// An empty bundle, made now.
    pub fn new(origin: impl Into<String>) -> Bundle {
        Bundle {
            origin: origin.into(),
            compiler_version: COMPILER_VERSION.into(),
            created_at_ns: stamp_after(None),
            ..Bundle::default()
        }
    }

    /// The bundle in this file.
    pub fn load(path: &Path) -> Result<Bundle, TableError> {
        if !path.exists() {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(TableError::system(path, "read", &error));
        }
        tables::load_exact(path)
    }

    /// Writes the bundle, in place of what is there; makes no folder and leaves no other file.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        if let Err(newer @ TableError::Newer { .. }) = tables::load_exact::<Bundle>(path) {
            return Err(newer);
        }
        tables::replace(path, self.clone())
    }

    /// The same with the bundle's origin on every row that has none of its own.
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

    /// Takes in the tuner's decisions for one adapter, under the name of its file. Shapes that must not be used stay here.
    pub fn add_tuned(&mut self, file_name: &str, cache: &TunerCache) {
        let usable = cache.decisions().filter(|(key, shape)| !cache.is_quarantined(key, *shape));
        let decision = |(key, shape): (&str, Shape)| {
            (key.to_owned(), TunedShape { shape, decided_at_ns: cache.decided_at_ns(key) })
        };
        self.tuned.insert(file_name.to_owned(), usable.map(decision).collect());
    }

    /// The tuner's decisions for this device, as they were taken.
    pub fn tuned_for(&self, profile: &DeviceProfile) -> TunerCache {
        self.tuned_cache(&file_name(&adapter_fingerprint(profile)))
    }

    /// Keeps only the routes of these programs.
    pub fn keep_routes_of(&mut self, programs: &[Program]) {
        let fingerprints: Vec<String> =
            programs.iter().map(|program| hex::encode(&program.fingerprint())).collect();
        // A key ends with the first digits of the fingerprint; names may have anything in them.
        let is_of = |key: &str| {
            let digits = key.rsplit_once('@').map(|(_, digits)| digits);
            digits.is_some_and(|digits| fingerprints.iter().any(|whole| whole.starts_with(digits)))
        };
        self.routes.routes.clear();
        self.routes.routes_by_size.retain(|key, _| is_of(key));
    }

    /// The tuner's decisions for the adapter with this file, as they were taken.
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

    // The routes are what a bundle can be full of: certificates and decisions are few and short beside them.
    fn rows(&self) -> usize {
        self.routes.rows()
    }

    fn drop_oldest(&mut self, count: usize) {
        self.routes.drop_oldest(count);
    }
}
