//! Checks that every file and item named in ARCHITECTURE.md and in the tour for newcomers exists.
//!
//! A name is text in backticks that ends in `.rs` or `/`, or is `path.rs:item`. Under a heading
//! `### crate`, paths are relative to the crate's `src`; elsewhere to `crates`. A path from the
//! root is taken as well.

use crate::root;
use std::path::{Path, PathBuf};

/// Checks the pages.
pub(crate) fn check() -> Result<(), String> {
    let mut all = Vec::new();
    for page in ["ARCHITECTURE.md", "docs/tour.md"] {
        let text = std::fs::read_to_string(root().join(page)).map_err(|error| format!("{page}: {error}"))?;
        all.extend(missing(page, &text, &root()));
    }
    if all.is_empty() { Ok(()) } else { Err(all.join("\n")) }
}

fn missing(page: &str, text: &str, root: &Path) -> Vec<String> {
    let mut section = None;
    let mut missing = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            section = None;
        }
        if let Some(heading) = line.strip_prefix("### ") {
            section = Some(heading.trim());
        }
        // Every second part is between backticks.
        for name in line.split('`').skip(1).step_by(2) {
            if let Err(what) = look_up(name, section, root) {
                missing.push(format!("{page}:{}: `{name}`: {what}", number + 1));
            }
        }
    }
    missing
}

fn look_up(name: &str, section: Option<&str>, root: &Path) -> Result<(), String> {
    let (path, item) = match name.split_once(".rs:") {
        Some((stem, item)) => (format!("{stem}.rs"), Some(item)),
        None => (name.to_string(), None),
    };
    let names_a_path = path.ends_with(".rs") || path.ends_with('/') || path.ends_with(".py");
    if !names_a_path || path.contains(' ') {
        return Ok(());
    }
    let crates = root.join("crates");
    let within = section.map(|section| crates.join(section).join("src").join(&path));
    let places: Vec<PathBuf> =
        [within, Some(crates.join(&path)), Some(root.join(&path))].into_iter().flatten().collect();
    let Some(found) = places.iter().find(|place| place.exists()) else {
        return Err("there is no such file".into());
    };
    let Some(item) = item else { return Ok(()) };
    let source = std::fs::read_to_string(found).map_err(|error| error.to_string())?;
    if defines(&source, item) { Ok(()) } else { Err(format!("{} defines no {item}", found.display())) }
}

/// Whether a source defines a function, type, constant or module of this name.
fn defines(source: &str, item: &str) -> bool {
    const KEYWORDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];
    let mut words =
        source.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let mut before = "";
    words.any(|word| KEYWORDS.contains(&std::mem::replace(&mut before, word)) && word == item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_exist_are_found() {
        let page = "1. `xtask/src/architecture.rs:missing` and `xtask/src/nowhere.rs`\n\
                    2. `xtask/src/architecture.rs:nothing`\n### vyre\n`call.rs:bind`, `nowhere/`, `words in prose`";
        let found = missing("page", page, &root());
        let expected = ["xtask/src/nowhere.rs", "architecture.rs:nothing", "nowhere/"];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (message, name) in found.iter().zip(expected) {
            assert!(message.contains(name), "{message}");
        }
    }
}
