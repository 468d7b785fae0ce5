//! A trace file of compiles and launches, for `chrome://tracing` and Perfetto. Off unless started.
//!
//! The file is a JSON array with one event per line. Each event is written in one piece when it
//! ends, and the viewers accept an array that is truncated after any line, so the trace of a
//! process that dies can still be opened.

use crate::BackendError;
use crate::observability::stripe_of_thread;
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The environment variable with the path of the trace file.
pub const TRACE_VARIABLE: &str = "VYRE_TRACE";

static ON: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);

struct Trace {
    file: File,
    path: PathBuf,
    start: Instant,
}

/// Starts a trace in a new file, replacing an existing one. An error if a trace is already running.
pub fn start(path: &Path) -> io::Result<()> {
    let mut trace = lock();
    if let Some(running) = &*trace {
        let message = format!("a trace is being written to {} already", running.path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    let mut file = File::create(path)?;
    file.write_all(b"[\n")?;
    *trace = Some(Trace { file, path: path.into(), start: Instant::now() });
    ON.store(true, Relaxed);
    Ok(())
}

/// Starts a trace in the file specified by `VYRE_TRACE`. Returns whether one is specified.
pub fn start_from_env() -> io::Result<bool> {
    match std::env::var_os(TRACE_VARIABLE) {
        Some(path) if !path.is_empty() => start(Path::new(&path)).map(|()| true),
        Some(_) | None => Ok(false),
    }
}

/// Ends the trace, if one is running.
pub fn stop() -> io::Result<()> {
    ON.store(false, Relaxed);
    let Some(mut trace) = lock().take() else { return Ok(()) };
    let last = TraceSpan { name: "vyre.trace.end", subject: "", began: Instant::now(), error: None };
    trace.write(&last, b"\n]\n")
}

/// An operation with a duration.
pub(crate) struct TraceSpan<'a> {
    /// The operation.
    pub(crate) name: &'static str,
    /// What it was applied to.
    pub(crate) subject: &'a str,
    /// When it began.
    pub(crate) began: Instant,
    /// Its error, if it failed.
    pub(crate) error: Option<&'a BackendError>,
}

/// The time, if a trace is running.
pub(crate) fn now() -> Option<Instant> {
    ON.load(Relaxed).then(Instant::now)
}

/// Records a span that ends now.
pub(crate) fn record(span: &TraceSpan<'_>) {
    let mut guard = lock();
    let Some(trace) = &mut *guard else { return };
    if let Err(error) = trace.write(span, b",\n") {
        ON.store(false, Relaxed);
        tracing::warn!(path = %trace.path.display(), %error, "the trace ends here: it could not be written");
        *guard = None;
    }
}

impl Trace {
    fn write(&mut self, span: &TraceSpan<'_>, separator: &[u8]) -> io::Result<()> {
        let micros = |from: Instant, to: Instant| to.saturating_duration_since(from).as_nanos() as f64 / 1e3;
        // Times are in microseconds since the start of the trace.
        let mut event = json!({
            "name": span.name, "cat": "vyre", "ph": "X", "pid": std::process::id(), "tid": stripe_of_thread(),
            "ts": micros(self.start, span.began), "dur": micros(span.began, Instant::now()),
            "args": { "subject": span.subject },
        });
        if let Some(error) = span.error {
            event["args"]["error"] = error.to_string().into();
        }
        let mut line = serde_json::to_vec(&event)?;
        line.extend_from_slice(separator);
        self.file.write_all(&line)
    }
}

fn lock() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}
