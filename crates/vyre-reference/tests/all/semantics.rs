//! docs/semantics.md and filetests/semantics/ match: every rule's file exists, and every file has
//! its rule.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_page_names_exactly_the_files_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/semantics.md")).expect("the page is there");
    let folder = std::fs::read_dir(root.join("filetests/semantics")).expect("the folder is there");
    let files: BTreeSet<String> = folder
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "vyre"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    // Rules end with their files: only names in backticks, in parentheses.
    let mut named = BTreeSet::new();
    for (_, rest) in page.match_indices('(').map(|(at, _)| page.split_at(at + 1)) {
        let Some((inside, _)) = rest.split_once(')') else { continue };
        let names: Option<Vec<&str>> = inside
            .split(',')
            .map(|name| name.trim().strip_prefix('`').and_then(|name| name.strip_suffix('`')))
            .collect();
        named.extend(names.into_iter().flatten().map(String::from));
    }
    let missing: Vec<_> = files.difference(&named).collect();
    assert!(missing.is_empty(), "files that no rule names: {missing:?}");
    let is_name = |name: &&String| {
        name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains(['/', '.', ' ', '`'])
    };
    let absent: Vec<_> = named.difference(&files).filter(is_name).collect();
    assert!(absent.is_empty(), "rules name files that are not there: {absent:?}");
}
