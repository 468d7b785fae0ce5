//! `cargo xtask release --dry-run`: all that a release consists of, built and tried, published nowhere.
//!
//! Into `target/dist`: an archive with the stripped command and C libraries, headers, manual pages, completions, examples and
//! licences; the packages of the crates, in the order of publishing; the wheel, where the Python package is there; the
//! changelog's section, the bill of materials, and checksums of everything. The archive is then unpacked in an empty folder
//! and run with a PATH without cargo.

use crate::ci::{cargo, cargo_command, output};
use crate::{python, root, sbom};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build and try everything, and publish nothing. There is no other way: people publish, by docs/releases.md.
    #[arg(long)]
    dry_run: bool,
    /// Features of the command and the C library besides the usual ones.
    #[arg(long, default_value = "opencl,wgpu")]
    features: String,
    /// Also compile every packaged crate as it would be downloaded, which takes many minutes.
    #[arg(long)]
    verify: bool,
    /// Leave the packages of the crates out.
    #[arg(long)]
    skip_packages: bool,
    /// Leave the wheel out.
    #[arg(long)]
    skip_wheel: bool,
}

impl Arguments {
    /// A dry run with everything.
    pub(crate) fn dry() -> Arguments {
        let features = "opencl,wgpu".into();
        Arguments { dry_run: true, features, verify: true, skip_packages: false, skip_wheel: false }
    }
}

/// Targets that users may have, for which the code is compiled where they are installed.
const TARGETS: [&str; 6] = [
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-gnu",
    "x86_64-pc-windows-msvc",
    "x86_64-pc-windows-gnu",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    if !arguments.dry_run {
        return Err("publishing is for people: `cargo xtask release --dry-run`, then docs/releases.md".into());
    }
    let release = Release::new(arguments)?;
    release.archive()?;
    release.changes()?;
    if !arguments.skip_packages {
        release.packages(arguments.verify)?;
    }
    if !arguments.skip_wheel {
        release.wheel()?;
    }
    release.checksums()?;
    release.other_targets();
    release.try_archive()?;
    println!("\nin {}:", release.folder.display());
    listed(&release.folder)?.iter().for_each(|file| println!("  {file}"));
    Ok(())
}

struct Release<'a> {
    arguments: &'a Arguments,
    version: String,
    /// The machine's own target.
    target: String,
    folder: PathBuf,
    crates: Vec<String>,
}

impl Release<'_> {
    fn new(arguments: &Arguments) -> Result<Release<'_>, String> {
        let packages = packages()?;
        let version = packages.iter().find(|package| package["name"] == "vyre");
        let version =
            version.and_then(|package| package["version"].as_str()).ok_or("there is no package vyre")?;
        let mut rustc = Command::new("rustc");
        rustc.arg("-vV");
        let about = output(rustc).ok_or("`rustc -vV` failed")?;
        let target =
            about.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
        let folder = root().join("target/dist");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(told(&folder))?;
        }
        fs::create_dir_all(&folder).map_err(told(&folder))?;
        let (version, target) = (version.to_string(), target.to_string());
        Ok(Release { arguments, version, target, folder, crates: order(&packages)? })
    }

    /// What an archive is called, without its ending.
    fn name(&self) -> String {
        format!("vyre-{}-{}", self.version, self.target)
    }

    /// The command, the libraries and what belongs to them, as one archive.
    fn archive(&self) -> Result<(), String> {
        let features = &self.arguments.features;
        let features = if features.is_empty() { String::new() } else { format!(" --features {features}") };
        cargo(&format!("build --release -p vyre-cli --bin vyre{features}"))?;
        cargo(&format!("build --release -p vyre-c --lib{features}"))?;
        let built = root().join("target/release");
        let inside = self.folder.join(self.name());
        let put = |from: &Path, to: &str| {
            let to = inside.join(to);
            fs::create_dir_all(to.parent().unwrap_or(&inside)).map_err(told(&to))?;
            fs::copy(from, &to).map_err(told(from))?;
            Ok::<PathBuf, String>(to)
        };
        let command = put(&built.join("vyre"), "bin/vyre")?;
        strip(&["--strip-all"], &command)?;
        strip(&["--strip-unneeded"], &put(&built.join("libvyre_c.so"), "lib/libvyre_c.so")?)?;
        strip(&["--strip-debug"], &put(&built.join("libvyre_c.a"), "lib/libvyre_c.a")?)?;
        for header in ["vyre.h", "vyre.hpp"] {
            put(&root().join("crates/vyre-c/include").join(header), &format!("include/{header}"))?;
        }
        for example in ["saxpy.c", "ops.cpp"] {
            put(&root().join("crates/vyre-c/examples").join(example), &format!("examples/{example}"))?;
        }
        for page in ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            put(&root().join(page), page)?;
        }
        for example in listed(&root().join("examples"))? {
            put(&root().join("examples").join(&example), &format!("examples/{example}"))?;
        }
        for page in listed(&root().join("docs"))?.iter().filter(|page| page.ends_with(".md")) {
            put(&root().join("docs").join(page), &format!("docs/{page}"))?;
        }
        let pages = inside.join("share/man/man1");
        fs::create_dir_all(&pages).map_err(told(&pages))?;
        succeed(Command::new(&command).arg("man").arg(&pages))?;
        let completions = inside.join("share/completions");
        fs::create_dir_all(&completions).map_err(told(&completions))?;
        for (shell, file) in [("bash", "vyre.bash"), ("zsh", "_vyre"), ("fish", "vyre.fish")] {
            let mut complete = Command::new(&command);
            complete.args(["completions", shell]);
            let script = output(complete).ok_or(format!("`vyre completions {shell}` failed"))?;
            fs::write(completions.join(file), script).map_err(told(&completions))?;
        }
        let bom = sbom::of("vyre-cli", &self.arguments.features, &self.target)?;
        let bom = serde_json::to_string_pretty(&bom).map_err(|error| error.to_string())?;
        fs::write(inside.join("sbom.cdx.json"), &bom).map_err(told(&inside))?;
        fs::write(self.folder.join(format!("{}.cdx.json", self.name())), &bom).map_err(told(&inside))?;
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"]);
        tar.arg(format!("{}.tar.gz", self.name())).arg(self.name()).current_dir(&self.folder);
        succeed(&mut tar)?;
        fs::remove_dir_all(&inside).map_err(told(&inside))
    }

    /// The newest section of the changelog, as the notes of the release.
    fn changes(&self) -> Result<(), String> {
        let path = root().join("CHANGELOG.md");
        let text = fs::read_to_string(&path).map_err(told(&path))?;
        let section = newest_section(&text).ok_or("CHANGELOG.md has no section")?;
        let notes = format!("# vyre {}\n\n{section}\n", self.version);
        fs::write(self.folder.join("CHANGES.md"), notes).map_err(told(&self.folder))
    }

    /// The crates as they are uploaded.
    fn packages(&self, verify: bool) -> Result<(), String> {
        let words: Vec<String> = self.crates.iter().map(|name| format!("-p {name}")).collect();
        let verify = if verify { "" } else { " --no-verify" };
        cargo(&format!("package --allow-dirty{verify} {}", words.join(" ")))?;
        let folder = self.folder.join("crates");
        fs::create_dir_all(&folder).map_err(told(&folder))?;
        for name in &self.crates {
            let file = format!("{name}-{}.crate", self.version);
            let from = root().join("target/package").join(&file);
            fs::copy(&from, folder.join(&file)).map_err(told(&from))?;
        }
        let order: Vec<String> =
            self.crates.iter().map(|name| format!("cargo publish -p {name}\n")).collect();
        fs::write(folder.join("ORDER"), order.concat()).map_err(told(&folder))
    }

    /// The wheel; nothing where there is no Python package.
    fn wheel(&self) -> Result<(), String> {
        if !root().join("pyproject.toml").exists() {
            println!("SKIP wheel: there is no Python package");
            return Ok(());
        }
        python::wheel()?;
        let wheels = root().join("target/wheels");
        for wheel in
            listed(&wheels)?.iter().filter(|name| name.starts_with(&format!("vyre-{}", self.version)))
        {
            fs::copy(wheels.join(wheel), self.folder.join(wheel)).map_err(told(&wheels))?;
        }
        Ok(())
    }

    fn checksums(&self) -> Result<(), String> {
        let mut sums = Command::new("sh");
        sums.args(["-c", "find . -type f ! -name SHA256SUMS | sort | xargs sha256sum > SHA256SUMS"]);
        succeed(sums.current_dir(&self.folder))
    }

    /// Compiles for every other target that is installed; what does not is told, and fails nothing.
    fn other_targets(&self) {
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "list", "--installed"]);
        let installed = output(rustup).unwrap_or_default();
        for target in TARGETS {
            let outcome = match installed.lines().any(|line| line == target) {
                false => "unknown: the target is not installed here".to_string(),
                true => match cargo(&format!("check --quiet -p vyre -p vyre-cli --target {target}")) {
                    Ok(_) => "compiles".to_string(),
                    Err(problem) => format!("does not compile: {problem}"),
                },
            };
            println!("{target}: {outcome}");
        }
    }

    /// The archive in an empty folder, on a PATH without cargo: the README's first picture, and a program in C.
    fn try_archive(&self) -> Result<(), String> {
        let folder = root().join("target/dist-try");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(told(&folder))?;
        }
        let (home, tools) = (folder.join("home"), folder.join("path"));
        fs::create_dir_all(&home).map_err(told(&home))?;
        fs::create_dir_all(&tools).map_err(told(&tools))?;
        let archive = self.folder.join(format!("{}.tar.gz", self.name()));
        succeed(Command::new("tar").arg("-xzf").arg(&archive).current_dir(&folder))?;
        let inside = folder.join(self.name());
        let alone = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(&inside).env_clear().env("PATH", &tools).env("HOME", &home);
            command
        };
        let mut vyre = alone(&inside.join("bin/vyre"));
        succeed(vyre.args(["run", "examples/mandelbrot.vyre", "--out", "mandelbrot.png"]))?;
        let picture = inside.join("mandelbrot.png");
        let bytes = fs::read(&picture).map_err(told(&picture))?;
        if !bytes.starts_with(b"\x89PNG") || bytes.len() < 10_000 {
            return Err(format!("{} is no picture", picture.display()));
        }
        let mut cc = Command::new("cc");
        cc.arg("-I").arg(inside.join("include")).arg(root().join("crates/vyre-c/examples/saxpy.c"));
        cc.arg("-L").arg(inside.join("lib")).args(["-lvyre_c", "-o"]).arg(folder.join("saxpy"));
        match cc.status() {
            Err(error) => println!("SKIP a program in C: {error}"),
            Ok(status) if !status.success() => return Err(format!("cc: {status}")),
            Ok(_) => succeed(alone(&folder.join("saxpy")).env("LD_LIBRARY_PATH", inside.join("lib")))?,
        }
        fs::remove_dir_all(&folder).map_err(told(&folder))
    }
}

fn told<'p>(path: &'p Path) -> impl Fn(std::io::Error) -> String + 'p {
    move |error| format!("{}: {error}", path.display())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

fn strip(how: &[&str], file: &Path) -> Result<(), String> {
    succeed(Command::new("strip").args(how).arg(file))
}

/// The names of the files in a folder and below it, in order.
fn listed(folder: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(told(folder))? {
        let entry = entry.map_err(told(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            names.extend(listed(&entry.path())?.into_iter().map(|below| format!("{name}/{below}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The text under the first heading of a version.
fn newest_section(changelog: &str) -> Option<&str> {
    let (_, behind) = changelog.split_once("\n## ")?;
    let (_, section) = behind.split_once('\n')?;
    Some(section.split("\n## ").next().unwrap_or(section).trim())
}

fn packages() -> Result<Vec<Value>, String> {
    let words = "metadata --no-deps --format-version 1";
    let text = output(cargo_command(words)).ok_or(format!("`cargo {words}` failed"))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"].as_array().cloned().ok_or("cargo metadata tells of no packages".into())
}

fn is_published(package: &Value) -> bool {
    // `publish = false` is an empty list of registries.
    !package["publish"].as_array().is_some_and(Vec::is_empty)
}

/// The crates that are published, each behind those that it depends on; or what keeps one of them from being published.
fn order(packages: &[Value]) -> Result<Vec<String>, String> {
    let name = |package: &Value| package["name"].as_str().unwrap_or_default().to_string();
    let published: Vec<&Value> = packages.iter().filter(|package| is_published(package)).collect();
    let names: Vec<String> = published.iter().map(|package| name(package)).collect();
    let mut waiting: Vec<(String, Vec<String>)> = Vec::new();
    for package in &published {
        let own = name(package);
        for field in ["description", "license", "readme", "rust_version"] {
            if package[field].as_str().is_none_or(str::is_empty) {
                return Err(format!("{own} has no {field}"));
            }
        }
        let mut needs = Vec::new();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (needed, is_dev) = (name(dependency), dependency["kind"] == "dev");
            if dependency["path"].is_null() {
                continue;
            }
            if is_dev && dependency["req"] != "*" {
                return Err(format!("{own} needs {needed} for tests by a version: give its path alone"));
            }
            if !is_dev && dependency["req"] == "*" {
                return Err(format!("{own} needs {needed} without a version"));
            }
            if !is_dev && !names.contains(&needed) {
                return Err(format!("{own} is published and needs {needed}, which is not"));
            }
            needs.extend((!is_dev).then_some(needed));
        }
        waiting.push((own, needs));
    }
    let mut ordered: Vec<String> = Vec::new();
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|(_, needs)| needs.iter().all(|need| ordered.contains(need)));
        let ready = ready.ok_or_else(|| format!("these need one another: {waiting:?}"))?;
        ordered.push(waiting.remove(ready).0);
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_that_users_depend_on_can_be_published() {
        let packages = packages().unwrap();
        let ordered = order(&packages).unwrap();
        for name in ["vyre", "vyre-cli", "vyre-foundation", "vyre-macros"] {
            assert!(ordered.iter().any(|known| known == name), "{name}");
        }
        // Licences are in every package.
        for package in packages.iter().filter(|package| is_published(package)) {
            let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
            for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
                assert!(manifest.with_file_name(licence).exists(), "{}: {licence}", package["name"]);
            }
        }
        let page = fs::read_to_string(root().join("docs/releases.md")).unwrap();
        for name in &ordered {
            assert!(page.contains(&format!("`{name}`")), "docs/releases.md does not name {name}");
        }
    }

    #[test]
    fn the_newest_section_is_the_first() {
        let text = "# Changelog\n\nAbout.\n\n## Unreleased\n\n### Added\n\n- A.\n\n## 0.1.0\n\n- B.\n";
        assert_eq!(newest_section(text), Some("### Added\n\n- A."));
    }
}
