//! Diagnostics for user programs.
//!
//! A [`Diagnostic`] has a stable [`Code`], a message in the program's own names, a source span if
//! there is a text, and a help that states an action. All diagnostics of a program are reported
//! together, as [`Diagnostics`]. The codes are rows of one table, [`Code`]; each is built by one
//! function next to the check that finds it.

mod codes;
mod suggest;

pub use codes::Code;
pub(crate) use suggest::closest;

use crate::ir::Span;
use crate::visible;
use std::fmt;
use std::sync::Arc;

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program runs, but probably not as intended.
    Warning,
    /// The program is rejected.
    Error,
}

/// One error or warning about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of problem.
    pub code: Code,
    /// What happened, in the program's own names.
    pub message: String,
    /// How to fix it, if known.
    pub help: Option<String>,
    /// Source span, for a program parsed from text.
    pub span: Option<Span>,
    /// Span and description of its cause, if that is elsewhere in the text.
    pub cause: Option<(Span, &'static str)>,
    /// The help as text edits: spans and their replacements. Empty if unknown.
    pub edits: Vec<(Span, String)>,
}

impl Diagnostic {
    /// A diagnostic without help or span.
    pub fn new(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic { code, message: message.into(), help: None, span: None, cause: None, edits: Vec::new() }
    }

    /// Sets the help.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Sets the span.
    #[must_use]
    pub fn at(mut self, span: Option<Span>) -> Diagnostic {
        self.span = span;
        self
    }

    /// Sets the span and description of the cause.
    #[must_use]
    pub(crate) fn because(mut self, span: Option<Span>, what: &'static str) -> Diagnostic {
        self.cause = span.map(|span| (span, what));
        self
    }

    /// Sets the edits that carry out the help.
    #[must_use]
    pub(crate) fn edit(mut self, edits: impl IntoIterator<Item = (Span, String)>) -> Diagnostic {
        self.edits = edits.into_iter().collect();
        self
    }

    /// The message, with the line and column of its cause.
    pub fn message_in(&self, source: &str) -> String {
        match self.cause {
            Some((span, what)) => {
                let (line, column) = line_column(source, span.start);
                format!("{}: {what} since {line}:{column}", self.message)
            }
            None => self.message.clone(),
        }
    }

    /// The severity of its code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// The diagnostics of one program; cheap to clone. `Display` shows each with its source line if
/// there is a text.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    items: Arc<[Diagnostic]>,
    source: Option<Arc<str>>,
}

impl Diagnostics {
    /// Diagnostics of a program with this text.
    pub fn new(items: Vec<Diagnostic>, source: Option<Arc<str>>) -> Diagnostics {
        Diagnostics { items: items.into(), source }
    }

    /// The diagnostics in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.items.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Renders the diagnostics with their source lines, under the name `file`.
    pub fn render(&self, file: &str) -> String {
        let parts = self.iter().map(|item| render_one(item, self.source.as_deref(), Some(file)));
        parts.collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, item) in self.iter().enumerate() {
            let separator = if k == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", render_one(item, self.source.as_deref(), None).trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl From<Vec<Diagnostic>> for Diagnostics {
    /// Diagnostics from outside the validator, which have no source text.
    fn from(items: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics::new(items, None)
    }
}

impl PartialEq for Diagnostics {
    fn eq(&self, other: &Diagnostics) -> bool {
        self.items == other.items
    }
}

impl Eq for Diagnostics {}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(render_one(self, None, None).trim_end())
    }
}

/// Line and column of a byte position, both from 1; the column counts characters.
pub fn line_column(source: &str, position: u32) -> (usize, usize) {
    let position = source.floor_char_boundary(position as usize);
    let before = &source[..position];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn render_one(item: &Diagnostic, source: Option<&str>, file: Option<&str>) -> String {
    let severity = match item.severity() {
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let message = source.map_or_else(|| item.message.clone(), |source| item.message_in(source));
    let mut text = format!("{severity}[{}]: {message}\n", item.code);
    if let (Some(span), Some(source)) = (item.span, source) {
        text += &render_place(span, source, file);
    }
    if let Some(help) = &item.help {
        text += &format!("  help: {help}\n");
    }
    // The text quotes the program and its file name, so control characters are escaped.
    visible(&text).into_owned()
}

/// Longer lines are cut to this many characters around the span.
const SHOWN_WIDTH: usize = 200;

fn render_place(span: Span, source: &str, file: Option<&str>) -> String {
    let (line, column) = line_column(source, span.start);
    let whole = source.lines().nth(line - 1).unwrap_or("");
    let skipped = if column > SHOWN_WIDTH { column - SHOWN_WIDTH / 2 } else { 0 };
    let mut rest = whole.chars().skip(skipped);
    let mut shown: String = rest.by_ref().take(SHOWN_WIDTH).collect();
    if rest.next().is_some() {
        shown.push('…');
    }
    if skipped > 0 {
        shown.insert(0, '…');
    }
    // Tabs are kept in the indent so that the marker lines up whatever their width.
    let before = column - 1 - skipped + usize::from(skipped > 0);
    let indent: String = shown.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let covered = source
        .get(span.start as usize..span.end as usize)
        .map_or(1, |covered| covered.lines().next().unwrap_or("").chars().take(SHOWN_WIDTH).count())
        .min(shown.chars().count().saturating_sub(before));
    let file = file.map(|file| format!("{file}:")).unwrap_or_default();
    let gutter = " ".repeat(line.to_string().len());
    format!(
        "{gutter}--> {file}{line}:{column}\n{gutter} |\n{line} | {shown}\n{gutter} | {indent}{}\n",
        "^".repeat(covered.max(1))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_under_its_position() {
        let check = |source: &str, span: (u32, u32), expected: [&str; 2]| {
            let text = render_place(Span { start: span.0, end: span.1 }, source, None);
            let lines: Vec<_> = text.lines().skip(2).map(|line| &line[4..]).collect();
            assert_eq!(lines, expected, "{text}");
        };
        check("let x = 1\n", (4, 5), ["let x = 1", "    ^"]);
        check("\tü = 1\n", (4, 8), ["\tü = 1", "\t  ^^^"]);
        check("a", (1, 1), ["a", " ^"]);
        let long = format!("{}here{}", "b".repeat(1000), "c".repeat(1000));
        let shown = format!("…{}here{}…", "b".repeat(99), "c".repeat(97));
        check(&long, (1000, 1004), [&shown, &format!("{}^^^^", " ".repeat(100))]);
        let start = format!("{}…", "b".repeat(200));
        check(&long, (0, 5000), [&start, "^"]);
    }
}
