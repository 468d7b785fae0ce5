//! Origin of the certificates of a runtime's backends, for a worker to report.
//!
//! A worker that loads a bundle has nothing to certify if its device, driver and build of vyre are
//! those of the machine that made the bundle. If one of them differs, the worker certifies the
//! backend itself, and reports which.

use std::fmt;
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::{Certificate, CertificateKey};

/// A backend that passed the conformance set, and who certified it: an item of
/// [`Runtime::certified`](crate::Runtime::certified).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Certified {
    /// The backend's id.
    pub backend: String,
    /// Its device.
    pub device: String,
    /// Its driver, with its version.
    pub driver: String,
    /// The origin of the bundle that the certificate came in; `None` if it was issued on this
    /// machine.
    pub origin: Option<String>,
    /// Why a bundle's certificate for this backend does not apply here.
    pub instead_of: Option<String>,
}

impl Certified {
    pub(crate) fn new(certificate: &Certificate, bundles: &[Bundle]) -> Certified {
        let key = &certificate.key;
        let origin = Some(certificate.origin.clone()).filter(|origin| !origin.is_empty());
        let instead_of = match origin {
            Some(_) => None,
            None => bundles.iter().find_map(|bundle| misfit(key, bundle)),
        };
        Certified {
            backend: key.backend.clone(),
            device: key.device.clone(),
            driver: key.driver.clone(),
            origin,
            instead_of,
        }
    }
}

impl fmt::Display for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Certified { backend, device, origin, instead_of, .. } = self;
        match (origin, instead_of) {
            (Some(origin), _) => write!(f, "{backend} on {device}: certified by \"{origin}\""),
            (None, Some(why)) => write!(f, "{backend} on {device}: certified here; {why}"),
            (None, None) => write!(f, "{backend} on {device}: certified here"),
        }
    }
}

/// How the bundle's closest certificate for this backend differs.
fn misfit(key: &CertificateKey, bundle: &Bundle) -> Option<String> {
    let rows = bundle.certificates.certificates.iter().map(|row| &row.key);
    let alike = |other: &&CertificateKey| {
        [
            other.compiler_version == key.compiler_version,
            other.device == key.device,
            other.driver == key.driver,
        ]
    };
    let other = rows.filter(|other| other.backend == key.backend).max_by_key(alike)?;
    let different =
        |what: &str, ours: &str, theirs: &str| format!("certifies it for {what} {theirs}, not {ours}");
    let why =
        if other.compiler_version != key.compiler_version || other.conformance_set != key.conformance_set {
            "certifies it for another build of vyre".to_owned()
        } else if other.device != key.device {
            different("device", &key.device, &other.device)
        } else if other.driver != key.driver {
            different("driver", &key.driver, &other.driver)
        } else {
            "has a certificate that does not apply: it failed there, or other drivers are installed here"
                .to_owned()
        };
    Some(format!("\"{}\" {why}", bundle.origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vyre_driver::certificates::CertificateTable;

    fn key(device: &str, driver: &str, build: &str) -> CertificateKey {
        CertificateKey {
            backend: "cpu".into(),
            device: device.into(),
            driver: driver.into(),
            compiler_version: build.into(),
            conformance_set: "set".into(),
        }
    }

    #[test]
    fn a_worker_says_what_differs() {
        let certificate =
            |key, origin: &str| Certificate { key, origin: origin.into(), ..Certificate::default() };
        let own = certificate(key("Zen 3", "1", "a"), "");
        let check = |rows: &[CertificateKey], expected: &str| {
            let certificates = rows.iter().map(|key| certificate(key.clone(), "lab")).collect();
            let bundle = Bundle { certificates: CertificateTable { certificates }, ..Bundle::new("lab") };
            assert_eq!(
                Certified::new(&own, &[bundle]).to_string(),
                format!("cpu on Zen 3: certified here{expected}")
            );
        };
        check(&[], "");
        check(&[key("Zen 4", "1", "a")], "; \"lab\" certifies it for device Zen 4, not Zen 3");
        check(
            &[key("Zen 4", "1", "a"), key("Zen 3", "2", "a")],
            "; \"lab\" certifies it for driver 2, not 1",
        );
        check(&[key("Zen 3", "1", "b")], "; \"lab\" certifies it for another build of vyre");
        let taken = Certified::new(&certificate(key("Zen 3", "1", "a"), "lab"), &[]);
        assert_eq!(taken.to_string(), "cpu on Zen 3: certified by \"lab\"");
    }
}
