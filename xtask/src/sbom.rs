//! Software bill of materials in CycloneDX 1.5, and third-party licences.

use crate::ci::{cargo_command, output};
use crate::root;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Packages linked into a release.
pub(crate) struct Materials {
    /// The requested packages, followed by everything they link, without duplicates, as cargo
    /// describes them.
    packages: Vec<Value>,
    checksums: HashMap<Id, String>,
    target: String,
}

impl Materials {
    /// Collects everything that is linked into these packages with these features on this target.
    /// Build and test dependencies are excluded.
    pub(crate) fn of(packages: &[&str], features: &str, target: &str) -> Result<Materials, String> {
        let mut wanted: BTreeSet<Id> = BTreeSet::new();
        for package in packages {
            wanted.extend(linked(package, features, target)?);
        }
        let words = format!("metadata --format-version 1 --all-features --filter-platform {target}");
        let text = output(cargo_command(&words)).ok_or(format!("`cargo {words}` failed"))?;
        let metadata: Value =
            serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        let rows = metadata["packages"].as_array().into_iter().flatten();
        let known: HashMap<Id, &Value> = rows.filter_map(|row| Some((id(row)?, row))).collect();
        let described = |id: &Id| {
            let row = known.get(id).map(|row| (*row).clone());
            row.ok_or_else(|| format!("cargo metadata knows no {} {}", id.0, id.1))
        };
        let mut found = wanted.iter().map(described).collect::<Result<Vec<Value>, String>>()?;
        // The requested packages come first; the stable sort keeps the order of the others.
        found.sort_by_key(|row| {
            packages.iter().position(|package| row["name"] == **package).unwrap_or(packages.len())
        });
        Ok(Materials { packages: found, checksums: checksums()?, target: target.into() })
    }

    /// Bill of materials of the first package.
    pub(crate) fn bill(&self) -> Value {
        let mut components = self.packages.iter().map(|package| component(package, &self.checksums));
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "component": components.next(),
                "properties": [{ "name": "target", "value": self.target }],
            },
            "components": components.collect::<Vec<Value>>(),
        })
    }

    /// Third-party licences, each text once, under the names of all packages that use it.
    pub(crate) fn notices(&self) -> Result<String, String> {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for package in self.packages.iter().filter(|package| !package["source"].is_null()) {
            let (name, version) = id(package).unwrap_or_default();
            let title = format!("{name} {version} ({})", license(package));
            let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
            let found = licence_texts(manifest.parent().unwrap_or(manifest))?;
            texts.entry(found).or_default().push(title);
        }
        let shown = texts.into_iter().map(|(text, titles)| format!("{}\n\n{text}\n", titles.join("\n")));
        Ok(shown.collect::<Vec<String>>().join("----------\n\n"))
    }
}

/// Concatenates the licence texts in a package's folder.
fn licence_texts(folder: &Path) -> Result<String, String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(with_path)? {
        let path = entry.map_err(with_path)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "UNLICENSE", "NOTICE"];
        if path.is_file() && is_licence.iter().any(|start| name.starts_with(start)) {
            files.push(path);
        }
    }
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).map_err(with_path));
    Ok(texts.collect::<Result<Vec<String>, String>>()?.join("\n"))
}

/// Licence of a package in SPDX form: older crates write a slash for `OR`.
fn license(package: &Value) -> String {
    let text = package["license"].as_str().unwrap_or_default();
    text.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// Name and version of a package.
type Id = (String, String);

fn id(package: &Value) -> Option<Id> {
    Some((package["name"].as_str()?.into(), package["version"].as_str()?.into()))
}

/// Packages that a package links, including itself, sorted by name.
fn linked(package: &str, features: &str, target: &str) -> Result<BTreeSet<Id>, String> {
    let words = format!("tree -p {package} --target {target} -e normal,no-proc-macro --prefix none");
    let mut command = cargo_command(&words);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    let text = output(command).ok_or(format!("`cargo {words}` failed"))?;
    let row = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_string(), rest.split(' ').next()?.to_string()))
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Checksums in `Cargo.lock`, by name and version.
fn checksums() -> Result<HashMap<Id, String>, String> {
    let text =
        std::fs::read_to_string(root().join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let lock: toml::Table = text.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let row = |package: &toml::Value| {
        let field = |name: &str| package.get(name).and_then(toml::Value::as_str).map(str::to_owned);
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    Ok(packages.iter().filter_map(row).collect())
}

fn component(package: &Value, checksums: &HashMap<Id, String>) -> Value {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_string();
    let (name, version) = (text("name"), text("version"));
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": if name == "vyre-cli" { "application" } else { "library" },
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{ "expression": license(package) }],
        "purl": purl,
    });
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}
