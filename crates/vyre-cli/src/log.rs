//! `tracing` events of the libraries on standard error: kernel prints, warnings, and more with
//! `-v`.
//!
//! A minimal subscriber: level, target, message, fields. Spans are not shown; `--trace` records
//! them.

use crate::output::{Paint, painted, warn};
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Shows warnings, and one level more for each `-v`: info, debug, trace.
pub(crate) fn listen(verbosity: u8) {
    let level = match verbosity {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        3.. => Level::TRACE,
    };
    // Only a second subscriber in one process is refused, and this is the first.
    let _ = tracing::subscriber::set_global_default(Listener { level });
}

/// Target of kernel prints.
const PRINTED: &str = "vyre::print";

struct Listener {
    level: Level,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && (metadata.level() <= &self.level || metadata.target() == PRINTED)
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.max(Level::INFO).into())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        if metadata.target() == PRINTED && *metadata.level() == Level::INFO {
            return warn(&line.message);
        }
        let head = match *metadata.level() {
            Level::ERROR => painted("error:", Paint::Red),
            Level::WARN => painted("warning:", Paint::Yellow),
            level => format!("{} {}:", level.as_str().to_lowercase(), metadata.target()),
        };
        warn(&format!("{head} {}{}", line.message, line.fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Ok(()) = (match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        }) else {
            unreachable!("writing to a String does not fail")
        };
    }
}
