//! Certificates: which backends passed the conformance set, on which device, driver and compiler
//! version; stored between runs.
//!
//! A certificate is valid for exactly its key. A change of anything in it, such as the driver or
//! the set itself, requires a new one.

use crate::DeviceKey;
use crate::tables::{self, TableError, TableFormat, now_ns, stamp_after, stamp_counts};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Maximum number of rows in a file; the oldest are dropped. A machine needs one per device, driver
/// and build of vyre. 1,024 rows with 60 programs each take 1.2 MB and load in 23 ms.
pub const MAX_CERTIFICATES: usize = 1024;

/// The scope of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CertificateKey {
    /// The backend's id.
    pub backend: String,
    /// Its device; empty for a backend that could not be opened.
    pub device: String,
    /// Its driver and driver version.
    pub driver: String,
    /// The version of vyre.
    pub compiler_version: String,
    /// A digest of the set of programs.
    pub conformance_set: String,
}

impl CertificateKey {
    /// The key of a backend on a device, with this compiler version.
    pub fn new(profile: &crate::DeviceProfile, conformance_set: &str) -> CertificateKey {
        let DeviceKey { backend, device, driver, build } = DeviceKey::new(profile);
        let [backend, device, driver, compiler_version] = [backend, device, driver, build].map(Into::into);
        CertificateKey { backend, device, driver, compiler_version, conformance_set: conformance_set.into() }
    }
}

/// A backend's result on the conformance set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The scope of the certificate.
    pub key: CertificateKey,
    /// The first failure; none if it passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The programs that gave the oracle's results.
    pub passed: Vec<String>,
    /// The programs that the backend does not support.
    pub unsupported: Vec<String>,
    /// How it was determined: in a helper process, or in this one and why.
    pub how: String,
    /// A stamp of the installed drivers; see [`driver_stamp`](crate::registry::driver_stamp).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stamp: String,
    /// The origin of the row; empty if it was made here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// When it was made, in nanoseconds since 1970.
    pub certified_at_ns: u64,
}

/// Certificates by key.
///
/// ```
/// use vyre_driver::certificates::{Certificate, CertificateKey, CertificateTable};
/// use vyre_driver::DeviceProfile;
/// let key = CertificateKey::new(&DeviceProfile::conservative("toy"), "set 1");
/// let mut table = CertificateTable::default();
/// table.insert(Certificate { key: key.clone(), ..Default::default() });
/// assert!(table.get(&key).is_some_and(|row| row.failure.is_none()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateTable {
    /// The certificates, oldest first.
    #[serde(default)]
    pub certificates: Vec<Certificate>,
}

impl CertificateTable {
    /// The certificate with exactly this key.
    pub fn get(&self, key: &CertificateKey) -> Option<&Certificate> {
        self.certificates.iter().find(|row| row.key == *key)
    }

    /// Adds a certificate, stamped now, replacing one with the same key.
    pub fn insert(&mut self, mut certificate: Certificate) {
        let previous = self.certificates.iter().map(|row| row.certified_at_ns).max();
        certificate.certified_at_ns = stamp_after(previous);
        self.merge(certificate);
    }

    /// Adds a certificate with its existing timestamp; of two with the same key the newer stays.
    pub fn merge(&mut self, certificate: Certificate) {
        let now = now_ns();
        let age = |row: &Certificate| stamp_counts(row.certified_at_ns, now);
        match self.certificates.iter_mut().find(|row| row.key == certificate.key) {
            Some(row) if age(row) > age(&certificate) => {}
            Some(row) => *row = certificate,
            None => self.certificates.push(certificate),
        }
        self.certificates.sort_by_key(age);
    }

    /// Loads the table in this file; an empty one if there is no such file.
    pub fn load(path: &Path) -> Result<CertificateTable, TableError> {
        tables::load(path)
    }

    /// Merges the rows into the file; of two with the same key the newer stays. A corrupt file is
    /// set aside first.
    pub fn save(&self, path: &Path) -> Result<(), TableError> {
        tables::update(path, |file: &mut CertificateTable| {
            self.certificates.iter().for_each(|row| file.merge(row.clone()));
        })
    }
}

impl TableFormat for CertificateTable {
    const KIND: &'static str = "certificates";
    const MAX_ROWS: usize = MAX_CERTIFICATES;

    fn rows(&self) -> usize {
        self.certificates.len()
    }

    fn drop_oldest(&mut self, count: usize) {
        let keys = self.certificates.iter().map(|row| (row.key.clone(), row.certified_at_ns));
        let old = tables::oldest(keys, count);
        self.certificates.retain(|row| !old.contains(&row.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: &str, certified_at_ns: u64) -> Certificate {
        let key = CertificateKey { device: device.into(), ..CertificateKey::default() };
        Certificate { key, certified_at_ns, ..Certificate::default() }
    }

    #[test]
    fn the_newer_row_stays_and_the_oldest_make_room() {
        let mut table = CertificateTable::default();
        table.merge(row("a", 5));
        table.merge(Certificate { failure: Some("old".into()), ..row("a", 4) });
        assert_eq!(table.certificates, [row("a", 5)]);
        table.merge(Certificate { failure: Some("new".into()), ..row("a", 6) });
        assert_eq!(table.get(&row("a", 0).key).and_then(|row| row.failure.as_deref()), Some("new"));
        (0..MAX_CERTIFICATES as u64).for_each(|k| table.merge(row(&k.to_string(), 10 + k)));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("certificates.toml");
        table.save(&path).expect("saved");
        let saved = CertificateTable::load(&path).expect("loaded");
        assert_eq!(saved.certificates.len(), MAX_CERTIFICATES);
        assert!(saved.get(&row("a", 0).key).is_none() && saved.get(&row("0", 0).key).is_some());
    }

    #[test]
    fn rows_survive_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("certificates.toml");
        let mut table = CertificateTable::default();
        table.insert(Certificate {
            failure: Some("\"quotes\"\nand lines".into()),
            passed: vec!["a".into()],
            ..row("x", 0)
        });
        table.save(&path).expect("saved");
        assert_eq!(CertificateTable::load(&path).expect("loaded"), table);
        CertificateTable { certificates: vec![row("y", 3)] }.save(&path).expect("saved");
        assert_eq!(CertificateTable::load(&path).expect("loaded").certificates.len(), 2);
    }
}
