//! The helper process: `vyre` itself, which opens drivers and tries programs that this process
//! might not survive.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vyre_driver::process_exit;

/// The environment variable that names the helper's executable.
pub const HELPER_VARIABLE: &str = "VYRE_HELPER";
/// The environment variable that limits the helper's time, in seconds.
pub const HELPER_LIMIT_VARIABLE: &str = "VYRE_HELPER_LIMIT";
/// The hidden subcommand of `vyre` that runs the helper.
pub const HELPER_SUBCOMMAND: &str = "conformance-helper";

/// A helper process to ask.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    /// The command that starts it, before its arguments.
    pub(crate) command: Option<Vec<OsString>>,
    /// The time limit.
    pub(crate) limit: Duration,
}

/// How a helper ended.
pub(crate) enum Answer {
    Text(String),
    /// Terminated by a signal.
    Crash(String),
}

impl Helper {
    /// The helper that was found, with a limit of a minute unless the environment sets another.
    pub(crate) fn usual() -> Helper {
        let seconds = std::env::var(HELPER_LIMIT_VARIABLE).ok().and_then(|value| value.trim().parse().ok());
        Helper { command: find(), limit: Duration::from_secs(seconds.unwrap_or(60)) }
    }

    /// Asks a helper, whose input stays open until it ends. `None` if there is no helper or it
    /// cannot be started. An error if it gave no answer, which says little about the driver.
    pub(crate) fn ask(&self, arguments: &[&str], input: &[u8]) -> Result<Option<Answer>, String> {
        let Some([executable, words @ ..]) = self.command.as_deref() else { return Ok(None) };
        let mut command = Command::new(executable);
        command.args(words).arg(HELPER_SUBCOMMAND).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(helper = ?executable, %error, "the helper process cannot be started");
                return Ok(None);
            }
        };
        let (mut open, input) = (child.stdin.take(), input.to_vec());
        // Written on a thread, because a process that reads nothing blocks the writer. The thread
        // returns the input, which stays open until its handle is dropped.
        let written = thread::spawn(move || {
            // A helper that does not read all of it shows that in its answer.
            open.iter_mut().for_each(|open| drop(open.write_all(&input).and_then(|()| open.flush())));
            open
        });
        let answer = wait(&mut child, self.limit);
        drop(written);
        answer.map(Some)
    }
}

static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts `vyre` where it is not a separate executable, as in `python -m
/// vyre`. The first call counts, for the whole process.
pub fn set_command(words: impl IntoIterator<Item = OsString>) {
    COMMAND.get_or_init(|| words.into_iter().collect());
}

/// The command set by [`set_command`].
pub fn command() -> Option<&'static [OsString]> {
    COMMAND.get().map(Vec::as_slice)
}

/// The command that starts the helper: the one named by `VYRE_HELPER`, else that of
/// [`set_command`], else `vyre` beside this executable or, for tests and examples in a build
/// folder, one folder up.
fn find() -> Option<Vec<OsString>> {
    if let Some(named) = std::env::var_os(HELPER_VARIABLE).filter(|named| !named.is_empty()) {
        return Some(vec![named]);
    }
    if let Some(words) = command() {
        return Some(words.to_vec());
    }
    let own = std::env::current_exe().ok()?;
    let name = format!("vyre{EXE_SUFFIX}");
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(&name)).find(|path| path.is_file());
    found.map(|path| vec![path.into_os_string()])
}

/// Waits for the child's output, or its crash; a child that takes too long is killed.
fn wait(child: &mut Child, limit: Duration) -> Result<Answer, String> {
    let Some(mut output) = child.stdout.take() else { return Err("its output is not there".into()) };
    let (sender, receiver) = channel();
    // Abandoned if a process that the helper started outlives it and keeps the output open.
    thread::spawn(move || {
        let mut text = String::new();
        // A child that dies closes its output; its status is checked below.
        let _ = output.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let answer = process_exit::outside(|| receiver.recv_timeout(limit));
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    match (answer, status) {
        (Err(_), _) => Err(format!(
            "its driver did not answer a helper process within {limit:?}; {HELPER_LIMIT_VARIABLE} sets a longer limit"
        )),
        (Ok(_), Err(error)) => Err(format!("the helper process cannot be waited for: {error}")),
        (Ok(text), Ok(status)) if status.success() => Ok(Answer::Text(text)),
        // A driver crashes by a signal; anything that ends otherwise is not a helper of this build.
        (Ok(_), Ok(status)) if status.code().is_some() => Ok(Answer::Text(String::new())),
        (Ok(_), Ok(status)) => Ok(Answer::Crash(format!(
            "its driver ended a helper process ({status}); run `vyre cache clear certificates` to try it again"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn a_process_that_reads_nothing_is_left_at_its_limit() {
        let command = ["/bin/sh", "-c", "exec tail -f /dev/null"].map(Into::into).to_vec();
        let limit = std::time::Duration::from_millis(50);
        let helper = super::Helper { command: Some(command), limit };
        // More than a pipe holds.
        let answer = helper.ask(&["toy", "--program"], &vec![0; 4 << 20]);
        assert!(answer.is_err_and(|reason| reason.contains("did not answer a helper process within 50ms")));
    }
}
