//! `cargo xtask release --dry-run`: builds and tests everything that a release consists of, and
//! publishes nothing.
//!
//! Writes to `target/dist`: an archive with the stripped command and C libraries, headers, manual
//! pages, completions, examples and licences; the packaged crates, in publishing order; the wheel;
//! the changelog section, the bill of materials, and checksums of everything. It then unpacks the
//! archive in an empty folder and runs it with a PATH without cargo, and installs and runs the
//! wheel in a dedicated environment.

use crate::ci::{cargo, cargo_command, output};
use crate::sbom::Materials;
use crate::{python, root};
use clap::Args;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every backend, and the `cpu` code generator for processors without AVX2.
const FEATURES: &str = "cranelift,cuda,opencl,wgpu";

#[derive(Args)]
pub(crate) struct Arguments {
    /// Build and test everything without publishing; required, since publishing is manual
    /// (docs/releases.md)
    #[arg(long)]
    dry_run: bool,
    /// Features of the command and the C library in addition to the default ones
    #[arg(long, default_value = FEATURES)]
    features: String,
    /// Also compile every packaged crate as it would be downloaded, which takes many minutes
    #[arg(long)]
    verify: bool,
    /// Skip the packages of the crates
    #[arg(long)]
    skip_packages: bool,
    /// Skip the wheel
    #[arg(long)]
    skip_wheel: bool,
}

impl Arguments {
    /// Arguments of a complete dry run.
    pub(crate) fn dry() -> Arguments {
        let features = FEATURES.into();
        Arguments { dry_run: true, features, verify: true, skip_packages: false, skip_wheel: false }
    }
}

/// Supported targets to compile for, where they are installed.
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
    /// Target of this machine.
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
            fs::remove_dir_all(&folder).map_err(with_path(&folder))?;
        }
        fs::create_dir_all(&folder).map_err(with_path(&folder))?;
        let (version, target) = (version.to_string(), target.to_string());
        Ok(Release { arguments, version, target, folder, crates: order(&packages)? })
    }

    /// Name of the archive, without its extension.
    fn name(&self) -> String {
        format!("vyre-{}-{}", self.version, self.target)
    }

    /// Builds the archive with the command, the libraries and their files.
    fn archive(&self) -> Result<(), String> {
        let features = &self.arguments.features;
        let features = if features.is_empty() { String::new() } else { format!(" --features {features}") };
        cargo(&format!("build --profile shipped -p vyre-cli --bin vyre{features}"))?;
        // Without the Rust library, which would prevent link-time optimisation of the others.
        cargo(&format!("rustc --profile shipped -p vyre-c --lib --crate-type cdylib,staticlib{features}"))?;
        let built = target_folder().join("shipped");
        let inside = self.folder.join(self.name());
        let put = |from: &Path, to: &str| {
            let to = inside.join(to);
            fs::create_dir_all(to.parent().unwrap_or(&inside)).map_err(with_path(&to))?;
            fs::copy(from, &to).map_err(with_path(from))?;
            Ok::<PathBuf, String>(to)
        };
        let command = put(&built.join("vyre"), "bin/vyre")?;
        // The compiler strips what it links, but not the static library.
        put(&built.join("libvyre_c.so"), "lib/libvyre_c.so")?;
        let library = put(&built.join("libvyre_c.a"), "lib/libvyre_c.a")?;
        succeed(Command::new("strip").arg("--strip-debug").arg(&library))?;
        let described = inside.join("lib/pkgconfig/vyre.pc");
        fs::create_dir_all(inside.join("lib/pkgconfig")).map_err(with_path(&described))?;
        fs::write(&described, PKG_CONFIG.replace("VERSION", &self.version)).map_err(with_path(&described))?;
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
        fs::create_dir_all(&pages).map_err(with_path(&pages))?;
        succeed(Command::new(&command).arg("man").arg(&pages))?;
        let completions = inside.join("share/completions");
        fs::create_dir_all(&completions).map_err(with_path(&completions))?;
        for (shell, file) in [("bash", "vyre.bash"), ("zsh", "_vyre"), ("fish", "vyre.fish")] {
            let mut complete = Command::new(&command);
            complete.args(["completions", shell]);
            let script = output(complete).ok_or(format!("`vyre completions {shell}` failed"))?;
            fs::write(completions.join(file), script).map_err(with_path(&completions))?;
        }
        let materials = Materials::of(&["vyre-cli", "vyre-c"], &self.arguments.features, &self.target)?;
        let bom = serde_json::to_string_pretty(&materials.bill()).map_err(|error| error.to_string())?;
        fs::write(inside.join("LICENSES-OF-OTHERS"), materials.notices()?).map_err(with_path(&inside))?;
        fs::write(inside.join("sbom.cdx.json"), &bom).map_err(with_path(&inside))?;
        fs::write(self.folder.join(format!("{}.cdx.json", self.name())), &bom).map_err(with_path(&inside))?;
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf"]);
        tar.arg(format!("{}.tar.gz", self.name())).arg(self.name()).current_dir(&self.folder);
        succeed(&mut tar)?;
        fs::remove_dir_all(&inside).map_err(with_path(&inside))
    }

    /// Writes the newest section of the changelog as release notes.
    fn changes(&self) -> Result<(), String> {
        let path = root().join("CHANGELOG.md");
        let text = fs::read_to_string(&path).map_err(with_path(&path))?;
        let section = newest_section(&text).ok_or("CHANGELOG.md has no section")?;
        let notes = format!("# vyre {}\n\n{section}\n", self.version);
        fs::write(self.folder.join("CHANGES.md"), notes).map_err(with_path(&self.folder))
    }

    /// Packages the crates for upload.
    fn packages(&self, verify: bool) -> Result<(), String> {
        let words: Vec<String> = self.crates.iter().map(|name| format!("-p {name}")).collect();
        let verify = if verify { "" } else { " --no-verify" };
        cargo(&format!("package --allow-dirty{verify} {}", words.join(" ")))?;
        let folder = self.folder.join("crates");
        fs::create_dir_all(&folder).map_err(with_path(&folder))?;
        for name in &self.crates {
            let whole = format!("{name}-{}", self.version);
            let from = target_folder().join(format!("package/{whole}.crate"));
            let to = folder.join(format!("{whole}.crate"));
            fs::copy(&from, &to).map_err(with_path(&from))?;
            has(&to, &PACKAGED.map(|file| format!("{whole}/{file}")))?;
            let size = fs::metadata(&to).map_err(with_path(&to))?.len();
            if size > LARGEST_PACKAGE {
                return Err(format!("{whole}.crate has {size} bytes, more than the registry takes"));
            }
        }
        let order: Vec<String> =
            self.crates.iter().map(|name| format!("cargo publish -p {name}\n")).collect();
        fs::write(folder.join("ORDER"), order.concat()).map_err(with_path(&folder))
    }

    /// Builds the wheel, installs it into a dedicated environment and runs a kernel there.
    fn wheel(&self) -> Result<(), String> {
        let wheel = python::wheel()?;
        python::try_wheel(&wheel)?;
        let name = wheel.file_name().ok_or("a wheel without a name")?;
        fs::copy(&wheel, self.folder.join(name)).map_err(with_path(&wheel))?;
        Ok(())
    }

    fn checksums(&self) -> Result<(), String> {
        let mut sums = Command::new("sh");
        sums.args(["-c", "find . -type f ! -name SHA256SUMS | sort | xargs sha256sum > SHA256SUMS"]);
        succeed(sums.current_dir(&self.folder))
    }

    /// Compiles for every other installed target; failures are reported but not fatal.
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

    /// Unpacks the archive in an empty folder and runs it on a PATH without cargo: the README's
    /// first picture, and a C program.
    fn try_archive(&self) -> Result<(), String> {
        let folder = root().join("target/dist-try");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(with_path(&folder))?;
        }
        let (home, tools) = (folder.join("home"), folder.join("path"));
        fs::create_dir_all(&home).map_err(with_path(&home))?;
        fs::create_dir_all(&tools).map_err(with_path(&tools))?;
        let archive = self.folder.join(format!("{}.tar.gz", self.name()));
        succeed(Command::new("tar").arg("-xzf").arg(&archive).current_dir(&folder))?;
        has(&archive, &ARCHIVED.map(|file| format!("{}/{file}", self.name())))?;
        let inside = folder.join(self.name());
        let alone = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(&inside).env_clear().env("PATH", &tools).env("HOME", &home);
            command
        };
        let mut vyre = alone(&inside.join("bin/vyre"));
        succeed(vyre.args(["run", "examples/mandelbrot.vyre", "--out", "mandelbrot.png"]))?;
        let picture = inside.join("mandelbrot.png");
        let bytes = fs::read(&picture).map_err(with_path(&picture))?;
        if !bytes.starts_with(b"\x89PNG") || bytes.len() < 10_000 {
            return Err(format!("{} is no picture", picture.display()));
        }
        let library = inside.join("lib/libvyre_c.a").display().to_string();
        for (compiler, source, linked) in [
            ("cc", "saxpy.c", vec!["-lvyre_c"]),
            ("cc", "saxpy.c", vec![library.as_str(), "-lpthread", "-ldl", "-lm"]),
            ("c++", "ops.cpp", vec!["-std=c++17", "-lvyre_c"]),
        ] {
            let program = folder.join("program");
            let mut build = Command::new(compiler);
            build.arg("-I").arg(inside.join("include")).arg(inside.join("examples").join(source));
            build.arg("-L").arg(inside.join("lib")).args(&linked).arg("-o").arg(&program);
            match build.status() {
                Err(error) => println!("SKIP {source}: {compiler}: {error}"),
                Ok(status) if !status.success() => return Err(format!("{build:?}: {status}")),
                Ok(_) => succeed(alone(&program).env("LD_LIBRARY_PATH", inside.join("lib")))?,
            }
        }
        fs::remove_dir_all(&folder).map_err(with_path(&folder))
    }
}

fn with_path<'p>(path: &'p Path) -> impl Fn(std::io::Error) -> String + 'p {
    move |error| format!("{}: {error}", path.display())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// Cargo's target folder.
fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Files that the archive must contain, besides pages and examples.
const ARCHIVED: [&str; 19] = [
    "bin/vyre",
    "lib/libvyre_c.so",
    "lib/libvyre_c.a",
    "lib/pkgconfig/vyre.pc",
    "include/vyre.h",
    "include/vyre.hpp",
    "share/man/man1/vyre.1",
    "share/man/man1/vyre-run.1",
    "share/completions/vyre.bash",
    "share/completions/_vyre",
    "share/completions/vyre.fish",
    "examples/mandelbrot.vyre",
    "docs/c.md",
    "README.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "LICENSES-OF-OTHERS",
    "sbom.cdx.json",
];

/// pkg-config file for the C libraries, independent of where the archive is unpacked.
const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..
Name: vyre
Description: Compute kernels written once and run on the backend measured fastest
Version: VERSION
Cflags: -I${prefix}/include
Libs: -L${prefix}/lib -lvyre_c
Libs.private: -lpthread -ldl -lm
";

/// Files that every packaged crate must contain.
const PACKAGED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];

/// Maximum package size that crates.io accepts, in bytes.
const LARGEST_PACKAGE: u64 = 10 << 20;

/// Fails if an archive lacks one of these files.
fn has(archive: &Path, files: &[String]) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.arg("-tzf").arg(archive);
    let list = output(tar).ok_or(format!("{} cannot be listed", archive.display()))?;
    match files.iter().find(|file| !list.lines().any(|line| line == **file)) {
        None => Ok(()),
        Some(absent) => Err(format!("{} has no {absent}", archive.display())),
    }
}

/// Names of the files in a folder and its subfolders, sorted.
fn listed(folder: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(with_path(folder))? {
        let entry = entry.map_err(with_path(folder))?;
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

/// Text under the first version heading.
fn newest_section(changelog: &str) -> Option<&str> {
    let (_, behind) = changelog.split_once("\n## ")?;
    let (_, section) = behind.split_once('\n')?;
    Some(section.split("\n## ").next().unwrap_or(section).trim())
}

fn packages() -> Result<Vec<Value>, String> {
    let words = "metadata --no-deps --format-version 1";
    let text = output(cargo_command(words)).ok_or(format!("`cargo {words}` failed"))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata["packages"].as_array().cloned().ok_or("cargo metadata lists no packages".into())
}

fn is_published(package: &Value) -> bool {
    // `publish = false` is an empty list of registries.
    !package["publish"].as_array().is_some_and(Vec::is_empty)
}

/// Published crates in dependency order; fails if one of them cannot be published.
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
        if package["metadata"]["docs"]["rs"]["all-features"] != true {
            return Err(format!("{own} does not say what docs.rs builds"));
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
        // Every package contains the licences.
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
