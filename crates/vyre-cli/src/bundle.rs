//! What was learnt, between the user's tables and one file to carry elsewhere.

use crate::output::{Form, print};
use crate::tables::{Kind, Places};
use std::path::Path;
use vyre_driver::bundle::Bundle;
use vyre_driver::certificates::CertificateTable;
use vyre_driver::pgo::PgoTable;
use vyre_driver::tables::TableError;
use vyre_driver::tuner::TunerCache;

/// Everything in the user's tables.
pub(crate) fn gather(places: &Places, origin: &str) -> Result<Bundle, TableError> {
    let mut bundle = Bundle::new(origin);
    if let Some(path) = &places.routes {
        bundle.routes = PgoTable::load(path)?;
    }
    if let Some(path) = &places.certificates {
        bundle.certificates = CertificateTable::load(path)?;
    }
    for file in places.files().iter().filter(|file| file.kind == Kind::Tuner) {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bundle.add_tuned(&name, &TunerCache::load(&file.path)?);
    }
    Ok(bundle)
}

/// Adds everything in the bundle to the user's tables; of two rows for one thing the newer stays.
pub(crate) fn scatter(places: &Places, bundle: &Bundle) -> Result<(), TableError> {
    if let Some(path) = &places.routes {
        bundle.routes.save(path)?;
    }
    if let Some(path) = &places.certificates {
        bundle.certificates.save(path)?;
    }
    for (name, decisions) in bundle.tuned.iter().filter(|(name, _)| is_plain_name(name)) {
        let Some(folder) = &places.tuner else { continue };
        let path = folder.join(name);
        let known = TunerCache::load(&path)?;
        let mut added = TunerCache::default();
        // A decision from here was measured here, and stays.
        for (key, shape) in decisions.iter().filter(|(key, _)| known.get(key).is_none()) {
            added.set_shape(key.as_str(), *shape);
        }
        added.save(&path)?;
    }
    Ok(())
}

/// Whether a name from a file leads nowhere but into the folder it is joined to.
fn is_plain_name(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|plain| plain == name) && name.ends_with(".toml")
}

/// Tells what is in a bundle.
pub(crate) fn show(bundle: &Bundle, done: &str, form: Form) {
    let routes: usize = bundle.routes.routes_by_size.values().map(|rows| rows.len()).sum();
    let certificates = bundle.certificates.certificates.len();
    let tuned: usize = bundle.tuned.values().map(|decisions| decisions.len()).sum();
    match form {
        Form::Json => print(
            &serde_json::json!({
                "origin": bundle.origin, "routes": routes, "certificates": certificates, "tuned": tuned,
            })
            .to_string(),
        ),
        Form::Text => {
            print(&format!("{routes} routes, {certificates} certificates, {tuned} tuned shapes {done}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_plain_name;

    #[test]
    fn names_stay_in_their_folder() {
        assert!(is_plain_name("cpu-host.toml"));
        for name in ["", ".", "..", "../x.toml", "/x.toml", "a/b.toml", "x", "x.toml/", "a/../x.toml"] {
            assert!(!is_plain_name(name), "{name}");
        }
    }
}
