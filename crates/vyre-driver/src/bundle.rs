//! What was learnt, in one file to carry elsewhere: certificates, routes and tuned shapes, with where they come from.
//!
//! A row is valid only for the device, driver and compiler version that it names, so a bundle helps machines that are alike
//! and does nothing on others. Importing merges: of two rows for one key the newer stays, and what comes from a bundle says
//! so in its `origin`.

use crate::certificates::CertificateTable;
use crate::pgo::PgoTable;
use crate::pipeline::COMPILER_VERSION;
use crate::tables::{self, Fault, Locked, OnDisk, TableError, TableFormat, stamp_after};
use crate::tuner::{Shape, TunerCache};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

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
    pub tuned: BTreeMap<String, BTreeMap<String, Shape>>,
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
        tables::load(path)
    }

    /// Writes the bundle, in place of what is there.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        let locked = Locked::acquire(path)?;
        let mut file: OnDisk<Bundle> = locked.read(locked.path())?;
        file.table = self.clone();
        locked.write(locked.path(), &file)
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

    /// Takes in the tuner's decisions for one adapter, under the name of its file.
    pub fn add_tuned(&mut self, file_name: &str, cache: &TunerCache) {
        let decisions = cache.decisions().map(|(key, shape)| (key.to_owned(), shape)).collect();
        self.tuned.insert(file_name.to_owned(), decisions);
    }
}

impl TableFormat for Bundle {
    const KIND: &'static str = "bundle";
    const SCHEMA: u32 = 1;

    fn parse(text: &str) -> Result<Bundle, Fault> {
        toml::from_str(text).map_err(Fault::whole)
    }

    fn print(&self) -> Result<String, Fault> {
        toml::to_string(self).map_err(Fault::whole)
    }
}
