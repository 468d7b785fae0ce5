//! Policies as data: simulated machines in `filetests/routing` and `filetests/tuning`, each with
//! bounds that must hold and the results that the policy reaches, so that a change of policy reads
//! as a diff of these files.
//!
//! `VYRE_BLESS=1` rewrites the results in the files; bounds are never blessed. All times come from
//! a model and a seeded generator, so every run is identical.

mod file;
mod random;
mod routing;
mod tuning;

use file::Section;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

/// Runs a section of a file: its results, and the broken bounds.
type Runner = fn(&Section) -> Result<(Vec<String>, Vec<String>), String>;

/// Every rule of probing, in alphabetical order.
const RULES: [&str; 8] =
    ["affordable", "burst", "costly", "faster", "resting", "risky", "unknown", "untimed"];

fn main() {
    let arguments = Arguments::from_args();
    let bless = std::env::var("VYRE_BLESS").is_ok_and(|value| value == "1");
    let mut trials = Vec::new();
    for (folder, runner) in [("routing", route as Runner), ("tuning", tune as Runner)] {
        for path in files(folder) {
            let name = format!("{folder}/{}", path.file_stem().unwrap_or_default().display());
            match sections(&path) {
                Err(message) => trials.push(Trial::test(name, || Err(message.into()))),
                Ok(_) if bless => trials.push(Trial::test(name, move || Ok(rewrite(&path, runner)?))),
                Ok(sections) => trials.extend(sections.into_iter().map(|section| {
                    Trial::test(format!("{name}::{}", section.name), move || check(&section, runner))
                })),
            }
        }
    }
    trials.push(Trial::test("every rule of probing decides in some file", || Ok(every_rule()?)));
    libtest_mimic::run(&arguments, trials).exit();
}

fn route(section: &Section) -> Result<(Vec<String>, Vec<String>), String> {
    Ok(routing::Case::parse(section)?.run())
}

fn tune(section: &Section) -> Result<(Vec<String>, Vec<String>), String> {
    Ok(tuning::Case::parse(section)?.run())
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn sections(path: &Path) -> Result<Vec<Section>, String> {
    file::sections(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))
}

fn check(section: &Section, runner: Runner) -> Result<(), Failed> {
    let (results, broken) = runner(section)?;
    let (expected, actual) = (section.results.join("\n"), results.join("\n"));
    if !broken.is_empty() {
        return Err(format!("{}\nresults:\n{actual}", broken.join("\n")).into());
    }
    if expected != actual {
        let difference = format!("expected:\n{expected}\nactual:\n{actual}");
        return Err(format!("{difference}\nVYRE_BLESS=1 writes the actual results").into());
    }
    Ok(())
}

fn rewrite(path: &Path, runner: Runner) -> Result<(), String> {
    let (source, mut all) = (read(path)?, Vec::new());
    for section in file::sections(&source)? {
        let (results, broken) = runner(&section)?;
        for bound in broken {
            eprintln!("{}, {}: {bound}", path.display(), section.name);
        }
        all.push(results);
    }
    let text = file::with_results(&source, &all);
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks that the results of the routing files show every rule.
fn every_rule() -> Result<(), String> {
    let mut met = std::collections::BTreeSet::new();
    for path in files("routing") {
        for result in sections(&path)?.iter().flat_map(|section| &section.results) {
            let (_, rules) = result.split_once("; rules ").unwrap_or_default();
            met.extend(rules.split(' ').filter(|rule| !rule.is_empty()).map(str::to_owned));
        }
    }
    let met: Vec<String> = met.into_iter().collect();
    if met == RULES { Ok(()) } else { Err(format!("the files show {met:?}")) }
}
