//! Builds the import graph of each crate's modules, and fails on an import cycle of more than two
//! files.
//!
//! A module is a file. An import is a path that begins with `crate`, `self`, `super` or a child
//! module's name, in a `use` or in the code, outside tests. An item that is re-exported (`pub use`)
//! by its folder's `mod.rs` or by `lib.rs` counts as an import of the file that defines it; the
//! re-export itself does not count.

use crate::root;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Print the graphs of these crates in Graphviz format instead of checking
    crates: Vec<String>,
}

/// Path of a module in its crate, as in `["router", "cell"]`; empty for the crate root.
type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    for name in &arguments.crates {
        print!("{}", dot(name, &graph(&read(&root().join("crates").join(name).join("src"))?)));
    }
    if arguments.crates.is_empty() { check() } else { Ok(()) }
}

/// Checks all crates.
pub(crate) fn check() -> Result<(), String> {
    let folder = root().join("crates");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("src")).collect();
    sources.retain(|path| path.is_dir());
    sources.sort();
    let mut faults = Vec::new();
    for source in sources {
        let graph = graph(&read(&source)?);
        println!("{}: {} modules", source.display(), graph.len());
        let shown = source.strip_prefix(root()).unwrap_or(&source).display();
        faults.extend(long_cycle(&graph).map(|cycle| format!("{shown}: {}", joined(&cycle))));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!("import cycles of more than two files:\n{}", faults.join("\n"))),
    }
}

fn joined(cycle: &[Module]) -> String {
    let names: Vec<String> = cycle.iter().map(name).collect();
    names.join(" -> ")
}

fn name(module: &Module) -> String {
    if module.is_empty() { "lib".into() } else { module.join("::") }
}

fn dot(crate_name: &str, graph: &Graph) -> String {
    let mut text = format!("digraph \"{crate_name}\" {{\n");
    for (module, imports) in graph {
        for import in imports {
            let _ = writeln!(text, "  \"{}\" -> \"{}\"", name(module), name(import));
        }
    }
    text + "}\n"
}

/// Reads every module below a `src` folder, without tests and comments.
fn read(source: &Path) -> Result<BTreeMap<Module, String>, String> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![source.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(module) = module_of(source, &path) {
                let text =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                modules.insert(module, without_tests(&text));
            }
        }
    }
    Ok(modules)
}

/// Module path of a file; `None` for test files and files that are not Rust.
fn module_of(source: &Path, path: &Path) -> Option<Module> {
    let inner = path.strip_prefix(source).ok()?.with_extension("");
    let mut module: Module = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_tests = module.iter().any(|part| part == "tests");
    if path.extension().is_none_or(|extension| extension != "rs") || is_tests {
        return None;
    }
    let is_root = matches!(&module[..], [only] if only == "lib" || only == "main");
    if is_root || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Some(module)
}

fn without_tests(text: &str) -> String {
    // A test module in a separate file is declared among the others; one with a body ends the file.
    let product = text.replace("\n#[cfg(test)]\nmod tests;", "\n");
    let product = product.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut kept = String::new();
    for line in product.lines() {
        kept.push_str(line.split("//").next().unwrap_or_default());
        kept.push('\n');
    }
    kept
}

/// Path as written in a module.
struct Named {
    path: Vec<String>,
    passed_on: bool,
}

fn graph(modules: &BTreeMap<Module, String>) -> Graph {
    let named: BTreeMap<&Module, Vec<Named>> =
        modules.iter().map(|(module, text)| (module, paths(text))).collect();
    let crate_ = Crate { modules, exports: exports(modules, &named) };
    let mut graph = Graph::new();
    for (module, named) in named {
        let imports = named.iter().filter_map(|named| {
            let target = crate_.owner(&absolute(modules, module, &named.path)?, 0);
            (!(named.passed_on && target.starts_with(module))).then_some(target)
        });
        graph.insert(module.clone(), imports.filter(|target| target != module).collect());
    }
    graph
}

/// Re-exports of each module: item name to path of origin.
type Exports = BTreeMap<Module, BTreeMap<String, Vec<String>>>;

fn exports(modules: &BTreeMap<Module, String>, named: &BTreeMap<&Module, Vec<Named>>) -> Exports {
    let mut exports = Exports::new();
    for (&module, named) in named {
        for one in named.iter().filter(|one| one.passed_on) {
            let Some(path) = absolute(modules, module, &one.path) else { continue };
            let Some(item) = path.last().cloned() else { continue };
            exports.entry(module.clone()).or_default().insert(item, path);
        }
    }
    exports
}

struct Crate<'a> {
    modules: &'a BTreeMap<Module, String>,
    exports: Exports,
}

/// Limit on chained re-exports; a cycle of `pub use` does not compile.
const MOST_STEPS: usize = 8;

impl Crate<'_> {
    /// Module that defines an item.
    fn owner(&self, path: &[String], steps: usize) -> Module {
        let inside = (0..=path.len()).rev().find(|&parts| self.modules.contains_key(&path[..parts]));
        let module = &path[..inside.unwrap_or(0)];
        let item = path.get(module.len());
        let origin = item.and_then(|item| self.exports.get(module)?.get(item));
        match origin.filter(|origin| origin[..] != *path && steps < MOST_STEPS) {
            Some(origin) => self.owner(origin, steps + 1),
            None => module.to_vec(),
        }
    }
}

/// Path from the crate's root; `None` if it is outside this crate.
fn absolute(modules: &BTreeMap<Module, String>, module: &Module, path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let supers = path.iter().take_while(|part| *part == "super").count();
    let child = [&module[..], std::slice::from_ref(first)].concat();
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => Some([&module[..module.len().checked_sub(supers)?], &path[supers..]].concat()),
        _ if modules.contains_key(&child) => Some([module, path].concat()),
        _ => None,
    }
}

/// All paths of a module: those in `use` items, and those in its code.
fn paths(text: &str) -> Vec<Named> {
    let mut named = Vec::new();
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, passed_on, tree, after)) = next_use(rest) {
        code.push_str(before);
        let mut found = Vec::new();
        expand(&[], tree, &mut found);
        named.extend(found.into_iter().map(|path| Named { path, passed_on }));
        rest = after;
    }
    code.push_str(rest);
    let is_part = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    for word in code.split(|character| !is_part(character)).filter(|word| word.contains("::")) {
        let path = word.split("::").map(str::to_owned).collect();
        named.push(Named { path, passed_on: false });
    }
    named
}

/// Finds the next `use`: the text before it, whether it is a re-export, its tree, and the text
/// after it.
fn next_use(text: &str) -> Option<(&str, bool, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("use ")?;
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        if before.is_empty() || before == "pub" || (before.starts_with("pub(") && before.ends_with(')')) {
            let tree = &text[at + 4..];
            let end = tree.find(';')?;
            return Some((&text[..line], !before.is_empty(), &tree[..end], &tree[end + 1..]));
        }
        from = at + 4;
    }
}

/// Expands a `use` tree into paths.
fn expand(prefix: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let split = |path: &str| -> Vec<String> {
        path.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        found.push([prefix, &split(path)].concat());
        return;
    };
    let prefix = [prefix, &split(head)].concat();
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&prefix, &group[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !group[start..].trim().is_empty() {
        expand(&prefix, &group[start..], found);
    }
}

/// Finds a shortest cycle of three or more files: an import, and an indirect path back to its
/// start.
fn long_cycle(graph: &Graph) -> Option<Vec<Module>> {
    let imports = graph.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    imports.filter_map(|(from, to)| way_back(graph, from, to)).min_by_key(Vec::len)
}

/// Shortest path from `to` back to `from` through a third module.
fn way_back(graph: &Graph, from: &Module, to: &Module) -> Option<Vec<Module>> {
    let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut queue = std::collections::VecDeque::from([to]);
    while let Some(module) = queue.pop_front() {
        for next in graph.get(module).into_iter().flatten() {
            if (module, next) == (to, from) || next == to || came_from.contains_key(next) {
                continue;
            }
            came_from.insert(next, module);
            if next == from {
                let mut cycle = vec![from.clone()];
                let mut at = from;
                while let Some(previous) = came_from.get(at) {
                    cycle.push((*previous).clone());
                    at = previous;
                }
                cycle.reverse();
                return Some([vec![from.clone()], cycle].concat());
            }
            queue.push_back(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(texts: &[(&str, &str)]) -> BTreeMap<Module, String> {
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        texts.iter().map(|(path, text)| (module(path), without_tests(text))).collect()
    }

    fn check(texts: &[(&str, &str)], edges: &[&str], cycle: Option<&str>) {
        let graph = graph(&modules(texts));
        let found: Vec<String> = graph
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| format!("{} {}", name(from), name(to))))
            .collect();
        assert_eq!(found, edges);
        assert_eq!(long_cycle(&graph).map(|cycle| joined(&cycle)), cycle.map(str::to_owned));
    }

    #[test]
    fn imports_are_found_in_every_form() {
        check(
            &[
                ("", "mod a;\n#[cfg(test)]\nmod tests;\nmod b;\npub use a::Thing;\n"),
                ("a", "use crate::b::{self, One,\n  inner::{Two}};\nmod tests {}\n"),
                ("b", "mod inner;\npub(crate) use inner::Two;\n"),
                (
                    "b::inner",
                    "fn f() { super::super::Thing::new() }\n#[cfg(test)]\nmod tests { use crate::a; }\n",
                ),
            ],
            &["a b", "a b::inner", "b::inner a"],
            None,
        );
    }

    #[test]
    fn two_files_may_import_each_other_three_may_not() {
        let pair = [("a", "use crate::b::B;\n"), ("b", "use crate::a::A;\nuse crate::c::C;\n"), ("c", "")];
        check(&pair, &["a b", "b a", "b c"], None);
        let ring = [("a", "use crate::b::B;\n"), ("b", "use crate::c::C;\n"), ("c", "use crate::a::A;\n")];
        check(&ring, &["a b", "b c", "c a"], Some("a -> b -> c -> a"));
    }
}
