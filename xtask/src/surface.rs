//! Public API of the crate `vyre` as a text file, so that changes to it are visible.
//!
//! The text is extracted from rustdoc's pages, in which re-exports are resolved and macros
//! expanded: the list of all items, and for each page the declaration, the inherent methods, the
//! implemented traits, and whether it is `Send` and `Sync`. `vyre::unstable` and hidden items are
//! excluded. The pages change between Rust versions, so the text names its version and is compared
//! only with that.

use crate::ci::{StepOutcome, cargo_command, output};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if the surface differs from the file
    #[arg(long)]
    check: bool,
}

const FILE: &str = "crates/vyre/public-api.txt";

/// Crates whose types are part of the surface; `vyre` with the feature that extends it.
pub(crate) const DOCUMENTED: &str =
    "-p vyre -p vyre-driver -p vyre-foundation -p vyre-import -p vyre-macros --features vyre/import";

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let words = format!("doc {DOCUMENTED} --no-deps --quiet");
    let status = cargo_command(&words).status().map_err(|error| format!("`cargo {words}`: {error}"))?;
    if !status.success() {
        return Err(format!("`cargo {words}`: {status}"));
    }
    if arguments.check {
        return check().map(|_| ());
    }
    let path = crate::root().join(FILE);
    std::fs::write(&path, current()?).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {FILE}");
    Ok(())
}

/// Compares rustdoc's current pages with the file.
pub(crate) fn check() -> Result<StepOutcome, String> {
    let path = crate::root().join(FILE);
    let kept = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let heading = heading()?;
    if !kept.starts_with(&heading) {
        let line = kept.lines().next().unwrap_or_default();
        return Ok(StepOutcome::Skipped(format!("{FILE} begins with `{line}`, and this is another Rust")));
    }
    let current = current()?;
    if current == kept {
        return Ok(StepOutcome::Passed);
    }
    let difference = difference(&kept, &current);
    Err(format!(
        "the public surface of `vyre` changed:\n{difference}if that is meant, run `cargo xtask surface`, and say so in CHANGELOG.md"
    ))
}

/// Lines that are in only one of the two texts, in order, each with its item.
fn difference(before: &str, after: &str) -> String {
    let (old, new) = (about(before), about(after));
    let mut shown = String::new();
    for (mark, lines, others) in [('-', &old, &new), ('+', &new, &old)] {
        let others: BTreeSet<&(&str, &str)> = others.iter().collect();
        for (item, text) in lines.iter().filter(|line| !others.contains(line)) {
            let _ = writeln!(shown, "{mark} {item}: {}", text.trim());
        }
    }
    shown
}

/// Pairs each line with the item that it belongs to.
fn about(text: &str) -> Vec<(&str, &str)> {
    let mut item = "";
    let line = |line| {
        if !str::starts_with(line, ' ') {
            item = line;
        }
        (item, line)
    };
    text.lines().map(line).collect()
}

fn heading() -> Result<String, String> {
    let mut rustc = Command::new("rustc");
    rustc.arg("--version");
    let version = output(rustc).ok_or("`rustc --version` failed")?;
    let minor: Vec<&str> = version.split([' ', '.']).skip(1).take(2).collect();
    Ok(format!("The public surface of the crate `vyre`, from rustdoc of Rust {}.\n", minor.join(".")))
}

fn current() -> Result<String, String> {
    let folder = crate::root().join("target/doc/vyre");
    let mut text = heading()?;
    text += "`cargo xtask surface` writes this file. What is in `vyre::unstable` is not part of it.\n";
    let read = |name: &str| -> Result<String, String> {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let items = items(&read("all.html")?);
    if items.is_empty() {
        return Err("rustdoc's list of all items has another form; xtask/src/surface.rs reads it".into());
    }
    let mut seen = BTreeMap::new();
    let mut modules = BTreeSet::from([String::new()]);
    for Item { path, page } in items {
        let inside = Path::new(&page).parent().map(|folder| format!("{}/", folder.display()));
        modules.extend(inside.filter(|folder| folder != "/"));
        let content = read(&page)?;
        let lines = surface(&content);
        if lines.is_empty() {
            return Err(format!("{page} has no declaration that xtask/src/surface.rs can read"));
        }
        let own = lines.join("\n  ");
        let _ = match seen.get(&own) {
            Some(first) => write!(text, "\nvyre::{path} is vyre::{first}\n"),
            None => write!(text, "\nvyre::{path}\n  {own}\n"),
        };
        seen.entry(own).or_insert(path);
    }
    for module in modules {
        for export in exports(&read(&format!("{module}index.html"))?) {
            let _ = write!(text, "\nvyre::{}{export}\n", module.replace('/', "::"));
        }
    }
    Ok(text)
}

struct Item {
    path: String,
    page: String,
}

/// List of all items, without unstable ones.
fn items(page: &str) -> Vec<Item> {
    let lists = page.split("<ul class=\"all-items\">").skip(1).filter_map(|list| list.split("</ul>").next());
    let links = lists.flat_map(|list| list.split("<a href=\"").skip(1));
    let item = |link: &str| {
        let (page, rest) = link.split_once("\">")?;
        let path = plain(rest.split("</a>").next()?);
        (!path.starts_with("unstable::")).then(|| Item { path, page: page.into() })
    };
    let mut items: Vec<Item> = links.filter_map(item).collect();
    items.sort_by(|a, b| (depth(a), &a.path, &a.page).cmp(&(depth(b), &b.path, &b.page)));
    items
}

/// Depth of a path. An item is listed under its shortest path.
fn depth(item: &Item) -> usize {
    item.path.matches("::").count()
}

/// Part of a page.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Own,
    /// Auto traits: only `Send` and `Sync` are listed, since the others depend on the Rust version.
    Auto,
    /// Items of the standard library, or of another type's page.
    Others,
}

/// Extracts the declaration, inherent methods and implemented traits of a page, one per line. Links
/// are ignored: rustdoc creates them only if the other crate's pages exist already, and it
/// documents several crates in parallel.
fn surface(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut part, mut indent) = (Part::Own, None);
    let mut rest = page.split_once("id=\"main-content\"").map_or("", |(_, rest)| rest);
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let tag = rest.split('>').next().unwrap_or_default();
        let take = |end: &str| rest.split(end).next().unwrap_or_default();
        if tag == "<pre class=\"rust item-decl\"" && part == Part::Own {
            lines.extend(plain(take("</pre>")).lines().map(|line| line.trim_end().to_owned()));
        } else if tag.starts_with("<h2 ") {
            part = match attribute(tag, "id").unwrap_or_default() {
                "synthetic-implementations" => Part::Auto,
                id if id.starts_with("blanket-") || id.starts_with("deref-methods") => Part::Others,
                "aliased-type" => Part::Others,
                _ => Part::Own,
            };
        } else if tag.starts_with("<section ") {
            indent = match attribute(tag, "class").unwrap_or_default() {
                "impl" => Some(""),
                "method" | "associatedconstant" | "associatedtype" => Some("  "),
                _ => None,
            };
        } else if tag == "<h3 class=\"code-header\"" || tag == "<h4 class=\"code-header\"" {
            let line = indent.map(|indent| (indent, one_line(&plain(take(&tag.replace('<', "</")[..4])))));
            let is_listed = |line: &str| match part {
                Part::Own => true,
                Part::Auto => [" Send for ", " Sync for ", " !Send for ", " !Sync for "]
                    .iter()
                    .any(|auto| line.contains(auto)),
                Part::Others => false,
            };
            lines.extend(
                line.filter(|(_, line)| is_listed(line)).map(|(indent, line)| format!("{indent}{line}")),
            );
        }
        rest = &rest[1..];
    }
    lines
}

/// Re-exports that rustdoc lists as such, because the items are documented elsewhere.
fn exports(page: &str) -> Vec<String> {
    let rows = page.split("<dt id=\"reexport.").skip(1).filter_map(|row| row.split("</code>").next());
    rows.filter_map(|row| row.split_once("<code>")).map(|(_, code)| one_line(&plain(code))).collect()
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let (_, value) = tag.split_once(&format!(" {name}=\""))?;
    value.split('"').next()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(").replace(", )", ")")
}

/// Text of HTML, without the summaries that fold long declarations.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut parts = html.split("<summary");
    text += &without_tags(parts.next().unwrap_or_default());
    for part in parts {
        text += &without_tags(part.split_once("</summary>").map_or("", |(_, rest)| rest));
    }
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];
    entities.iter().fold(text, |text, (entity, character)| text.replace(entity, character))
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut parts = html.split('<');
    text += parts.next().unwrap_or_default();
    parts.for_each(|part| text += part.split_once('>').map_or("", |(_, rest)| rest));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<section id=\"main-content\"><pre class=\"rust item-decl\"><code>pub struct Two&lt;T&gt; {\n<details><summary>Show \
        fields</summary>    pub a: T,\n    pub b: <a title=\"enum vyre_driver::Mode\">Mode</a>,\n</details>}</code></pre>\
        <h2 id=\"implementations\">Implementations</h2><section id=\"impl\" class=\"impl\"><h3 class=\"code-header\">impl&lt;T&gt; \
        Two&lt;T&gt;</h3></section><section id=\"method.x\" class=\"method\"><h4 class=\"code-header\">pub fn <a>x</a>(\n    \
        &amp;self,\n    at: usize,\n) -&gt; T</h4></section><h2 id=\"trait-implementations\"></h2><section class=\"impl\"><h3 \
        class=\"code-header\">impl Clone for Two</h3></section><section class=\"method trait-impl\"><h4 class=\"code-header\">fn \
        clone(&amp;self)</h4></section><h2 id=\"synthetic-implementations\"></h2><section class=\"impl\"><h3 \
        class=\"code-header\">impl Freeze for Two</h3></section><section class=\"impl\"><h3 class=\"code-header\">impl !Send for \
        Two</h3></section><h2 id=\"blanket-implementations\"></h2><section class=\"impl\"><h3 class=\"code-header\">impl Any for \
        Two</h3></section>";

    #[test]
    fn a_page_is_read() {
        let lines = surface(PAGE);
        let expected = [
            "pub struct Two<T> {",
            "    pub a: T,",
            "    pub b: Mode,",
            "}",
            "impl<T> Two<T>",
            "  pub fn x(&self, at: usize) -> T",
            "impl Clone for Two",
            "impl !Send for Two",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_list_of_items_is_read_without_what_is_unstable() {
        let page = "<ul class=\"all-items\"><li><a href=\"a/struct.B.html\">a::B</a></li><li><a href=\"struct.A.html\">A</a></li></ul>\
            <h3>Functions</h3><ul class=\"all-items\"><li><a href=\"unstable/fn.c.html\">unstable::c</a></li></ul>";
        let found: Vec<(String, String)> =
            items(page).into_iter().map(|item| (item.path, item.page)).collect();
        let expected = [("A", "struct.A.html"), ("a::B", "a/struct.B.html")];
        assert_eq!(found, expected.map(|(path, page)| (path.to_owned(), page.to_owned())));
    }

    #[test]
    fn a_difference_shows_what_went_and_what_came() {
        let (before, after) = ("a\n  new\n  len\n\nb\n  len\n", "a\n  new\n\nb\n  len\n  fill\n");
        assert_eq!(difference(before, after), "- a: len\n+ b: fill\n");
        assert_eq!(difference(before, before), "");
    }
}
