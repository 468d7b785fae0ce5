//! Reports of calls: which backend ran, why, how long it took, and which backends failed.

use std::fmt;
use std::time::Duration;
use vyre_driver::messages::Prints;
use vyre_driver::router::Reason;
use vyre_driver::tuner::Shape;

/// Report of one finished call.
#[derive(Clone, Debug)]
pub struct Report {
    /// The backend that ran it.
    pub backend: &'static str,
    /// Why it was chosen.
    pub why: Reason,
    /// The number of elements that the call covered.
    pub elements: usize,
    /// Duration, including transfers; for calls of a sequence that ran in one launch, a share of
    /// its duration.
    pub wall: Duration,
    /// The kernel's time on the device, if the device can measure it.
    pub device: Option<Duration>,
    /// The shape that its code was tuned to; `None` for the program's own.
    pub tuned: Option<Shape>,
    /// The backends that were tried before and failed; empty if the first one succeeded.
    pub refusals: Vec<Attempt>,
    /// What it printed; `None` if nothing. [`prints`](Self::prints) is easier to use.
    pub printed: Option<Box<Prints>>,
}

impl Report {
    /// What the call printed.
    ///
    /// ```
    /// # use vyre::Runtime;
    /// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let hello =
    ///     runtime.load("kernel hello() over 2 { print(\"hello from {}\", invocation.x) }")?;
    /// let report = hello.call().run()?;
    /// assert_eq!(report.prints().messages[1].text, "hello from 1");
    /// assert!(report.prints().complete);
    /// # Ok::<(), vyre::BackendError>(())
    /// ```
    pub fn prints(&self) -> &Prints {
        static NOTHING: Prints = Prints { messages: Vec::new(), complete: true };
        self.printed.as_deref().unwrap_or(&NOTHING)
    }
}

/// A backend that was tried and failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The backend.
    pub backend: &'static str,
    /// What went wrong.
    pub reason: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements on `{}` in {:?} ({})", self.elements, self.backend, self.wall, self.why)?;
        if let Some(device) = self.device {
            write!(f, ", {device:?} of it on the device")?;
        }
        if let Some(shape) = self.tuned {
            write!(f, ", tuned to {shape}")?;
        }
        for Attempt { backend, reason } in &self.refusals {
            write!(f, "; `{backend}` could not: {reason}")?;
        }
        Ok(())
    }
}
