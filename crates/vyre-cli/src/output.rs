//! Output of the command: messages, colours, progress and exit codes.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use vyre_driver::{BackendError, ErrorKind};
use vyre_foundation::diagnostics::{Diagnostics, Severity, line_column};
use vyre_foundation::visible;

/// Outcome of a subcommand; the help lists the exit codes.
#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    /// The checked item has faults, which have been reported.
    CheckFailed,
    /// Error in the command line or the file system.
    Usage(String),
    /// Error in the program or the backend.
    CannotRun(String),
    /// The kernel trapped or timed out.
    Stopped(String),
    /// Interrupted by the user.
    Interrupted,
}

impl Ending {
    /// Prints the message, if any, and returns the exit code.
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
            // The message includes its code.
            Some(message) if message.starts_with("error[") => warn(&painted_lines(&message)),
            Some(message) => warn(&format!("{} {message}", painted("error:", Paint::Red))),
            None => {}
        }
        code
    }
}

/// Exit code for a kernel that trapped, failed an assert or timed out.
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

/// Code of a backend error as shown in messages.
pub(crate) fn error_name(kind: &ErrorKind) -> String {
    format!("E{:03}", kind.code)
}

/// Writes to standard output, [sanitized](safe). [`unwritten`] reports a failed write when the
/// command ends.
pub(crate) fn print(text: &str) {
    print_exactly(&safe(text));
}

/// Writes a program's text to standard output: verbatim, or sanitized on a terminal.
pub(crate) fn print_program(text: &str) {
    if std::io::stdout().is_terminal() { print(text) } else { print_exactly(text) }
}

fn print_exactly(text: &str) {
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    if let Err(error) = print_bytes(format!("{text}{newline}").as_bytes()) {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
}

/// Sanitizes text for output: names of files and buffers, messages of drivers and kernels, values
/// of variables. Only the colour sequences defined here reach the terminal as control sequences.
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

/// Writes bytes verbatim to standard output. A closed pipe is not an error.
pub(crate) fn print_bytes(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Replaces the outcome with an error if standard output could not be written.
pub(crate) fn unwritten(ending: Ending) -> Ending {
    match (UNWRITTEN.get(), ending) {
        (Some(error), Ending::Done | Ending::CheckFailed) => {
            Ending::Usage(format!("cannot write to standard output: {error}"))
        }
        (_, ending) => ending,
    }
}

/// Writes to standard error, [sanitized](safe).
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", safe(text));
}

/// Colour of a message.
#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Red,
    Yellow,
    Green,
}

/// Colours text for standard error, if that is a terminal and `NO_COLOR` is not set.
pub(crate) fn painted(text: &str, paint: Paint) -> String {
    if std::io::stderr().is_terminal() { paint.over(text) } else { text.into() }
}

/// Colours text for standard output, if that is a terminal and `NO_COLOR` is not set.
pub(crate) fn painted_out(text: &str, paint: Paint) -> String {
    if std::io::stdout().is_terminal() { paint.over(text) } else { text.into() }
}

/// Resets the colour. The sequences have an unusual spelling, so that [`safe`] recognises its own.
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

/// Prints every diagnostic with its position to standard error.
pub(crate) fn show_diagnostics(diagnostics: &Diagnostics, file: &str) {
    if !diagnostics.is_empty() {
        warn(painted_lines(&diagnostics.render(file)).trim_end());
    }
}

/// Colours the `error[…]` and `warning[…]` prefixes.
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

/// Output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Json,
}

impl OutputFormat {
    /// Format selected by `--json`.
    pub(crate) fn of(json: bool) -> OutputFormat {
        if json { OutputFormat::Json } else { OutputFormat::Text }
    }
}

/// Progress bar on standard error; hidden if that is not a terminal or the command prints JSON.
pub(crate) fn progress_bar(steps: u64, what: &str, format: OutputFormat) -> ProgressBar {
    let shown = format == OutputFormat::Text && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style =
        ProgressStyle::with_template(&format!("{{elapsed}} {{wide_bar}} {{pos}}/{{len}} {what} {{msg}}"));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Diagnostics as JSON; lines and columns count from 1.
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
