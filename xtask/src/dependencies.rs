//! Checks every dependency against `deny.toml`: licences, duplicate crates, wildcard versions and
//! sources.
//!
//! Works on the output of `cargo metadata` for the whole graph, with all features and targets, so
//! that it needs no additional tool. If `cargo-deny` is installed, it runs as well.

use crate::ci::{StepOutcome, cargo, cargo_command, output};
use crate::root;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Part of `deny.toml` that is checked here; cargo-deny checks the rest.
#[derive(Deserialize)]
struct Policy {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// Crate allowed in a second version: `name@version`, with the version as short as is unique.
#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    spec: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for a package of this workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    /// `None` for the default registry and for a path.
    registry: Option<String>,
    path: Option<String>,
    source: Option<String>,
}

/// Runs the CI step.
pub(crate) fn check() -> Result<StepOutcome, String> {
    let text =
        std::fs::read_to_string(root().join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let words = "metadata --all-features --locked --format-version 1";
    let metadata = output(cargo_command(words)).ok_or(format!("`cargo {words}` failed"))?;
    let packages = judge(&text, &metadata)?;
    println!(
        "{packages} packages have allowed licences, one version each but for the listed ones, and one source"
    );
    match output(cargo_command("deny --version")) {
        Some(_) => cargo("deny check licenses bans sources"),
        None => Ok(StepOutcome::Passed),
    }
}

/// Returns the number of packages checked, or all faults.
fn judge(policy: &str, metadata: &str) -> Result<usize, String> {
    let policy: Policy = toml::from_str(policy).map_err(|error| format!("deny.toml: {error}"))?;
    let metadata: Metadata =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let (own, foreign): (Vec<Package>, Vec<Package>) =
        metadata.packages.into_iter().partition(|package| package.source.is_none());
    let mut faults = licences(&policy.licenses.allow, &foreign);
    faults.extend(doubled(&policy.bans.skip, &foreign));
    faults.extend(wildcards(&own));
    faults.extend(sources(&own, &foreign));
    if faults.is_empty() { Ok(foreign.len()) } else { Err(faults.join("\n")) }
}

fn licences(allowed: &BTreeSet<String>, packages: &[Package]) -> Vec<String> {
    let fault = |package: &Package| {
        let name = format!("{} {}", package.name, package.version);
        match package.license.as_deref().map(|text| Expression::permits(text, allowed)) {
            None => Some(format!("{name} names no licence")),
            Some(Err(error)) => Some(format!("{name}: {error}")),
            Some(Ok(false)) => {
                Some(format!("{name}: `{}` is not allowed", package.license.as_deref().unwrap_or_default()))
            }
            Some(Ok(true)) => None,
        }
    };
    packages.iter().filter_map(fault).collect()
}

fn doubled(skips: &[Skip], packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let skipped = |name: &str, version: &str| skips.iter().any(|skip| skip.matches(name, version));
    let mut faults = Vec::new();
    for (name, versions) in &versions {
        let counted: Vec<&str> = versions.iter().copied().filter(|version| !skipped(name, version)).collect();
        if counted.len() > 1 {
            faults.push(format!("{name} occurs {} times: {}", counted.len(), counted.join(", ")));
        }
    }
    let doubled = |skip: &&Skip| {
        !versions.iter().any(|(name, versions)| {
            versions.len() > 1 && versions.iter().any(|version| skip.matches(name, version))
        })
    };
    faults.extend(
        skips
            .iter()
            .filter(doubled)
            .map(|skip| format!("deny.toml: `{}` needs no exception any more", skip.spec)),
    );
    faults
}

impl Skip {
    fn matches(&self, name: &str, version: &str) -> bool {
        let Some((skipped, prefix)) = self.spec.split_once('@') else { return self.spec == name };
        let rest = version.strip_prefix(prefix);
        skipped == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

fn wildcards(own: &[Package]) -> Vec<String> {
    let dependencies =
        own.iter().flat_map(|package| package.dependencies.iter().map(move |one| (package, one)));
    dependencies
        .filter(|(_, dependency)| dependency.req == "*" && dependency.path.is_none())
        .map(|(package, dependency)| format!("{} takes any version of {}", package.name, dependency.name))
        .collect()
}

/// Checks that all packages come from the default registry.
fn sources(own: &[Package], foreign: &[Package]) -> Vec<String> {
    let plain = |dependency: &&Dependency| dependency.path.is_none() && dependency.registry.is_none();
    let dependencies = || own.iter().flat_map(|package| &package.dependencies);
    let Some(default) = dependencies()
        .filter(plain)
        .find_map(|dependency| dependency.source.as_deref().filter(|source| source.starts_with("registry+")))
    else {
        return vec!["no dependency is from the default registry".into()];
    };
    let other = |package: &&Package| package.source.as_deref() != Some(default);
    let fault = |package: &Package| {
        let source = package.source.as_deref().unwrap_or_default();
        format!("{} {} is from {source}, not from the default registry", package.name, package.version)
    };
    foreign.iter().filter(other).map(fault).collect()
}

/// Parser of licence expressions: `OR` of `AND`s of names and parentheses. The old form `A/B` means
/// `A OR B`.
struct Expression<'a> {
    tokens: Vec<&'a str>,
    next: usize,
    allowed: &'a BTreeSet<String>,
}

impl<'a> Expression<'a> {
    /// Whether the expression can be satisfied with the allowed licences.
    fn permits(text: &'a str, allowed: &'a BTreeSet<String>) -> Result<bool, String> {
        let mut expression = Expression { tokens: tokens(text), next: 0, allowed };
        let permitted = expression.either()?;
        match expression.tokens.get(expression.next) {
            None => Ok(permitted),
            Some(token) => Err(format!("`{text}` is no licence expression at `{token}`")),
        }
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.tokens.get(self.next) == Some(&token);
        self.next += usize::from(found);
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut permitted = self.both()?;
        while self.takes("OR") || self.takes("/") {
            permitted |= self.both()?;
        }
        Ok(permitted)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut permitted = self.one()?;
        while self.takes("AND") {
            permitted &= self.one()?;
        }
        Ok(permitted)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.takes("(") {
            let permitted = self.either()?;
            return if self.takes(")") { Ok(permitted) } else { Err("a parenthesis is not closed".into()) };
        }
        let name = *self.tokens.get(self.next).ok_or("a licence expression ends too early")?;
        self.next += 1;
        if self.takes("WITH") {
            let exception = *self.tokens.get(self.next).ok_or("`WITH` names no exception")?;
            self.next += 1;
            return Ok(self.allowed.contains(&format!("{name} WITH {exception}")));
        }
        Ok(self.allowed.contains(name))
    }
}

fn tokens(text: &str) -> Vec<&str> {
    let marks = |character: char| matches!(character, '(' | ')' | '/');
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(at) = rest.find(marks) {
            tokens.extend([&rest[..at], &rest[at..=at]].into_iter().filter(|token| !token.is_empty()));
            rest = &rest[at + 1..];
        }
        tokens.extend(Some(rest).filter(|rest| !rest.is_empty()));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions() {
        let allowed = BTreeSet::from(["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned));
        let check = |text: &str, expected: Result<bool, ()>| {
            assert_eq!(Expression::permits(text, &allowed).map_err(drop), expected, "{text}");
        };
        check("MIT", Ok(true));
        check("GPL-3.0", Ok(false));
        check("Apache-2.0 OR MIT", Ok(true));
        check("Apache-2.0/MIT", Ok(true));
        check("(GPL-3.0 OR MIT) AND Zlib", Ok(true));
        check("GPL-3.0 OR MIT AND BSD-3-Clause", Ok(false));
        check("Apache-2.0 WITH LLVM-exception", Ok(true));
        check("MIT WITH LLVM-exception", Ok(false));
        check("(MIT", Err(()));
        check("MIT)", Err(()));
        check("MIT OR", Err(()));
        check("", Err(()));
    }

    const POLICY: &str = r#"
        [licenses]
        allow = ["MIT"]
        [bans]
        skip = [{ crate = "twice@1", reason = "on its way" }]
    "#;

    /// Metadata with packages `name version licence source`, and a workspace package that depends
    /// on `plain`.
    fn metadata(packages: &[[&str; 4]], requirement: &str) -> String {
        let foreign = packages.iter().map(|[name, version, license, source]| {
            serde_json::json!({
                "name": name, "version": version, "license": license, "source": source, "dependencies": []
            })
        });
        let dependency =
            serde_json::json!({ "name": "plain", "req": requirement, "source": "registry+default" });
        let own = serde_json::json!({ "name": "own", "version": "0.1.0", "dependencies": [dependency] });
        let packages: Vec<_> = foreign.chain([own]).collect();
        serde_json::json!({ "packages": packages }).to_string()
    }

    #[test]
    fn every_kind_of_fault_is_found() {
        let good = ["plain", "1.0.0", "MIT", "registry+default"];
        let twice =
            [["twice", "1.2.0", "MIT", "registry+default"], ["twice", "2.0.0", "MIT", "registry+default"]];
        let check = |extra: &[[&str; 4]], requirement: &str, expected: Result<usize, &str>| {
            let packages: Vec<_> = [good].iter().chain(extra).copied().collect();
            let found = judge(POLICY, &metadata(&packages, requirement));
            match expected {
                Ok(count) => assert_eq!(found, Ok(count)),
                Err(part) => {
                    assert!(found.clone().is_err_and(|text| text.contains(part)), "{found:?}: {part}")
                }
            }
        };
        check(&twice, "1", Ok(3));
        check(&twice, "*", Err("own takes any version of plain"));
        check(&[], "1", Err("`twice@1` needs no exception any more"));
        let and = |more: [&'static str; 4]| [twice[0], twice[1], more];
        check(&and(["plain", "1.1.0", "MIT", "registry+default"]), "1", Err("plain occurs 2 times"));
        check(
            &and(["closed", "1.0.0", "SSPL-1.0", "registry+default"]),
            "1",
            Err("`SSPL-1.0` is not allowed"),
        );
        check(&and(["other", "1.0.0", "MIT", "git+somewhere"]), "1", Err("is from git+somewhere"));
    }
}
