//! Lines of code of each crate, without tests, comments and blank lines, to show how a change
//! affects the size of the tree.
//!
//! Counts the `.rs` files below `src/`. Tests are files named `tests.rs`, folders named `tests`,
//! and items behind `#[cfg(test)]`. The difference from the baseline in `xtask/lines-baseline.txt`
//! is printed beside each count.

use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run() -> Result<(), String> {
    let path = root().join("xtask/lines-baseline.txt");
    let baseline = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut total = 0;
    for folder in ["crates", "."] {
        for package in packages(&root().join(folder))? {
            let lines = lines_below(&package.join("src"))?;
            let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
            println!("{name:<18} {lines:>6} {:>+7}", change(&baseline, &name, lines));
            total += lines;
        }
    }
    println!("{:<18} {total:>6} {:>+7}", "all", change(&baseline, "all", total));
    Ok(())
}

/// Difference from the baseline.
fn change(baseline: &str, name: &str, lines: usize) -> i64 {
    let row = baseline.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == name);
    let before = row.and_then(|(_, count)| count.trim().parse::<i64>().ok()).unwrap_or(0);
    lines as i64 - before
}

/// Packages directly in a folder, sorted by name.
fn packages(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found: Vec<PathBuf> = entries(folder)?
        .into_iter()
        .filter(|path| path.join("Cargo.toml").is_file() && path.join("src").is_dir())
        .collect();
    found.sort();
    Ok(found)
}

fn lines_below(folder: &Path) -> Result<usize, String> {
    let mut lines = 0;
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "tests" {
            lines += lines_below(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            lines += lines_of(&text);
        }
    }
    Ok(lines)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let with_path = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::read_dir(folder)
        .map_err(with_path)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(with_path))
        .collect()
}

/// Counts the lines of code in a file. An item behind `#[cfg(test)]` ends where a line with its
/// indentation closes it, as rustfmt formats it.
fn lines_of(text: &str) -> usize {
    let mut count = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim();
        if code.starts_with("#[cfg(") && code.contains("test") && !code.contains("doctest") {
            let indentation = line.len() - line.trim_start().len();
            let ends = |line: &str| {
                line.len() - line.trim_start().len() == indentation && line.trim_end().ends_with(['}', ';'])
            };
            let _ = lines.by_ref().find(|line| ends(line));
        } else if !code.is_empty() && !code.starts_with("//") {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::lines_of;

    #[test]
    fn tests_comments_and_blanks_do_not_count() {
        let text = "//! Doc.\n\nuse a;\n\n/// Doc.\nfn f() {\n    // Why.\n    g()\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\n#[cfg(all(test, unix))]\nmod more;\nfn h() {}\n";
        assert_eq!(lines_of(text), 5);
    }
}
