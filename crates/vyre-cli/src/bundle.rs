//! Bundles of learnt data: the user's tables in one portable file.

use crate::output::{OutputFormat, print};
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::CertificateTable;
use vyre_driver::pgo::PgoTable;
use vyre_driver::storage::Storage;
use vyre_driver::tables::TableError;
use vyre_driver::tuner::TunerCache;

/// Collects the rows of the user's tables.
pub(crate) fn gather(places: &Storage, origin: &str) -> Result<Bundle, TableError> {
    let mut bundle = Bundle::new(origin);
    if let Some(path) = &places.routes {
        bundle.routes = PgoTable::load(path)?;
    }
    if let Some(path) = &places.certificates {
        bundle.certificates = CertificateTable::load(path)?;
    }
    for path in places.tuner_files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bundle.add_tuned(&name, &TunerCache::load(&path)?);
    }
    Ok(bundle)
}

/// Prints a summary of a bundle.
pub(crate) fn show(bundle: &Bundle, done: &str, format: OutputFormat) {
    let routes: usize = bundle.routes.routes_by_size.values().map(|rows| rows.len()).sum();
    let certificates = bundle.certificates.certificates.len();
    let tuned: usize = bundle.tuned.values().map(|decisions| decisions.len()).sum();
    match format {
        OutputFormat::Json => print(
            &serde_json::json!({
                "origin": bundle.origin, "routes": routes, "certificates": certificates, "tuned": tuned,
            })
            .to_string(),
        ),
        OutputFormat::Text => {
            print(&format!("{routes} routes, {certificates} certificates, {tuned} tuned shapes {done}"))
        }
    }
}
