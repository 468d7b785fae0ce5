//! A software bill of materials, in CycloneDX 1.5, of what a package is built from.

use crate::ci::{cargo_command, output};
use crate::root;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

/// Everything that is linked into a package with these features, on the machine's own target. What only builds or tests is
/// left out.
pub(crate) fn of(package: &str, features: &str, target: &str) -> Result<Value, String> {
    let words = format!(
        "metadata --format-version 1 --filter-platform {target} --features {}",
        features
            .split(',')
            .filter(|f| !f.is_empty())
            .map(|f| format!("{package}/{f}"))
            .collect::<Vec<_>>()
            .join(",")
    );
    let words = words.trim_end_matches("--features ").trim();
    let text = output(cargo_command(words)).ok_or(format!("`cargo {words}` failed"))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    let checksums = checksums()?;
    let packages: HashMap<&str, &Value> = list(&metadata["packages"])
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let root = list(&metadata["packages"]).iter().find(|found| found["name"] == package);
    let root = root.and_then(|root| root["id"].as_str()).ok_or(format!("there is no package {package}"))?;
    let ids = linked(&metadata, root);
    let components: Vec<Value> = ids
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, &checksums))
        .collect();
    let main = packages.get(root).map(|package| component(package, &checksums)).unwrap_or_default();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": main, "properties": [{ "name": "target", "value": target }] },
        "components": components,
    }))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The packages that a package links, itself included, in the order of their ids.
fn linked<'m>(metadata: &'m Value, root: &'m str) -> BTreeSet<&'m str> {
    let nodes: HashMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let (mut found, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let Some(node) = nodes.get(id) else { continue };
        // A dependency of the usual kind has no name for it.
        let usual = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        open.extend(list(&node["deps"]).iter().filter(usual).filter_map(|dep| dep["pkg"].as_str()));
    }
    found
}

/// The checksums that `Cargo.lock` has, by name and version.
fn checksums() -> Result<HashMap<(String, String), String>, String> {
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

fn component(package: &Value, checksums: &HashMap<(String, String), String>) -> Value {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_string();
    let (name, version) = (text("name"), text("version"));
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": if name == "vyre-cli" { "application" } else { "library" },
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{ "expression": text("license") }],
        "purl": purl,
    });
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}
