//! What the command says and how it ends.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use vyre_driver::{BackendError, ErrorKind};
use vyre_foundation::diagnostics::{Diagnostics, Severity, line_column};
use vyre_foundation::visible;

/// How a subcommand ended; the exit codes stand in the help.
#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    /// What was checked is at fault, and has been told.
    CheckFailed,
    /// The command line or the file system is at fault.
    Usage(String),
    /// The program or the backend is at fault.
    CannotRun(String),
    /// The kernel trapped or ran out of time.
    Stopped(String),
    /// The user ended it.
    Interrupted,
}

impl Ending {
    /// Tells what there is to tell, and gives the exit code.
    pub(crate) fn exit(self) -> u8 {
        let (code, message) = match self {
            Ending::Done => (0, None),
            Ending::CheckFailed => (1, None),
            Ending::Usage(message) => (2, Some(message)),
            Ending::CannotRun(message) => (3, Some(message)),
            Ending::Stopped(message) => (STOPPED, Some(message)),
            Ending::Interrupted => (130, None),
        };
        match message {
            // It names its code itself.
            Some(message) if message.starts_with("error[") => warn(&painted_lines(&message)),
            Some(message) => warn(&format!("{} {message}", painted("error:", Paint::Red))),
            None => {}
        }
        code
    }
}

/// The exit code of a kernel that trapped, failed an assert or ran out of time.
pub(crate) const STOPPED: u8 = 4;

impl From<BackendError> for Ending {
    fn from(error: BackendError) -> Ending {
        let help = error.fix().map(|fix| format!("\n  help: {fix}")).unwrap_or_default();
        let message = format!("error[{}]: {error}{help}", error_name(error.kind()));
        match error {
            BackendError::Trapped { .. }
            | BackendError::Timeout { .. }
            | BackendError::Cancelled { .. }
            | BackendError::AssertFailed { .. } => Ending::Stopped(message),
            BackendError::NotLinked { .. } => Ending::Usage(message),
            BackendError::InvalidProgram { diagnostics } => Ending::CannotRun(diagnostics.to_string()),
            _ => Ending::CannotRun(message),
        }
    }
}

/// What messages call an error of a backend.
pub(crate) fn error_name(kind: &ErrorKind) -> String {
    format!("E{:03}", kind.code)
}

/// Writes to standard output, [safe to show](safe). [`unwritten`] reports a failed write when the command ends.
pub(crate) fn print(text: &str) {
    print_exactly(&safe(text));
}

/// Writes a program's text to standard output: as it is, unless a person looks at it.
pub(crate) fn print_program(text: &str) {
    if std::io::stdout().is_terminal() { print(text) } else { print_exactly(text) }
}

fn print_exactly(text: &str) {
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    if let Err(error) = print_bytes(format!("{text}{newline}").as_bytes()) {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
}

/// The one place where text becomes output: names of files and buffers, what drivers and kernels say, values of variables.
/// Nothing in it steers the terminal but the colours that are set here.
fn safe(text: &str) -> String {
    let colours = [Paint::Red, Paint::Yellow, Paint::Green].map(Paint::start);
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        safe += &visible(&rest[..at]);
        rest = &rest[at..];
        let own = colours.iter().copied().chain([PLAIN]).find(|own| rest.starts_with(own));
        let own = own.filter(|_| wants_colours());
        safe += own.unwrap_or("␛");
        rest = &rest[own.map_or(1, str::len)..];
    }
    safe + &visible(rest)
}

/// Writes to standard output as it is. A reader that went away is no fault of ours.
pub(crate) fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// How a command really ended: what it could not write is an error, whatever else it did.
pub(crate) fn unwritten(ending: Ending) -> Ending {
    match (UNWRITTEN.get(), ending) {
        (Some(error), Ending::Done | Ending::CheckFailed) => {
            Ending::Usage(format!("cannot write to standard output: {error}"))
        }
        (_, ending) => ending,
    }
}

/// Writes to standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", safe(text));
}

/// A colour.
#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Red,
    Yellow,
    Green,
}

/// The text in a colour, where standard error is a terminal and the user has not set `NO_COLOR`.
pub(crate) fn painted(text: &str, paint: Paint) -> String {
    if std::io::stderr().is_terminal() { paint.over(text) } else { text.into() }
}

/// The text in a colour, where standard output is a terminal and the user has not set `NO_COLOR`.
pub(crate) fn painted_out(text: &str, paint: Paint) -> String {
    if std::io::stdout().is_terminal() { paint.over(text) } else { text.into() }
}

/// Ends a colour. These sequences are spelt as nobody else spells them, so that [`safe`] knows its own.
const PLAIN: &str = "\x1b[00;0m";

fn wants_colours() -> bool {
    let is_terminal = std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl Paint {
    fn over(self, text: &str) -> String {
        if wants_colours() { format!("{}{text}{PLAIN}", self.start()) } else { text.into() }
    }

    fn start(self) -> &'static str {
        match self {
            Paint::Red => "\x1b[00;1;31m",
            Paint::Yellow => "\x1b[00;1;33m",
            Paint::Green => "\x1b[00;32m",
        }
    }
}

/// Shows every diagnostic with its place on standard error.
pub(crate) fn show_diagnostics(diagnostics: &Diagnostics, file: &str) {
    if !diagnostics.is_empty() {
        warn(painted_lines(&diagnostics.render(file)).trim_end());
    }
}

/// The text with its `error[…]` and `warning[…]` in colours.
fn painted_lines(text: &str) -> String {
    let paint_line = |line: &str| {
        let (head, rest) = line.split_at(line.find(']').map_or(0, |end| end + 1));
        if head.starts_with("error[") {
            painted(head, Paint::Red) + rest
        } else if head.starts_with("warning[") {
            painted(head, Paint::Yellow) + rest
        } else {
            line.to_string()
        }
    };
    text.lines().map(paint_line).collect::<Vec<_>>().join("\n")
}

/// What a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Form {
    /// What `--json` asks for.
    pub(crate) fn of(json: bool) -> Form {
        if json { Form::Json } else { Form::Text }
    }
}

/// A bar on standard error for work of so many steps; nothing where that is no terminal or the command prints
/// JSON.
pub(crate) fn progress_bar(steps: u64, what: &str, form: Form) -> ProgressBar {
    let shown = form == Form::Text && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style =
        ProgressStyle::with_template(&format!("{{elapsed}} {{wide_bar}} {{pos}}/{{len}} {what} {{msg}}"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The diagnostics as JSON; places count from 1.
pub(crate) fn diagnostics_json(diagnostics: &Diagnostics, source: &str) -> serde_json::Value {
    let item = |item: &vyre_foundation::diagnostics::Diagnostic| {
        let place = item.span.map(|span| line_column(source, span.start));
        let severity = match item.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        serde_json::json!({
            "code": item.code.as_str(),
            "severity": severity,
            "message": item.message,
            "help": item.help,
            "line": place.map(|(line, _)| line),
            "column": place.map(|(_, column)| column),
        })
    };
    diagnostics.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_steers_the_terminal() {
        let hostile = "a\x1b[2J\x1b]0;title\x07b\rc\u{9b}1mn\n\ttab\x1b";
        assert_eq!(safe(hostile), "a␛[2J␛]0;title␇b␍c\u{fffd}1mn\n\ttab␛");
        assert_eq!(safe("plain é 日本"), "plain é 日本");
    }
}
