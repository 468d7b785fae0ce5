//! What a call came to: which backend ran it, why that one, how long it took, and who could not.

use std::fmt;
use std::time::Duration;
use vyre_driver::messages::Prints;
use vyre_driver::router::Reason;
use vyre_driver::tuner::Shape;

/// What is known of one finished call.
#[derive(Clone, Debug)]
pub struct Report {
    /// The backend that ran it.
    pub backend: &'static str,
    /// Why that one.
    pub why: Reason,
    /// How many elements the call was over.
    pub elements: usize,
    /// How long it took, transfers included; of calls of a sequence that ran in one launch, a share of that.
    pub wall: Duration,
    /// How long the kernel ran on the device, where the device can tell.
    pub device: Option<Duration>,
    /// The shape that its code was tuned to; none for the program's own.
    pub tuned: Option<Shape>,
    /// The backends that were tried before and could not; empty where the first one could.
    pub refusals: Vec<Attempt>,
    /// What it printed; none where it printed nothing. [`prints`](Self::prints) reads better.
    pub printed: Option<Box<Prints>>,
}

impl Report {
    /// What the call printed.
    ///
    /// ```
    /// # use vyre::Runtime;
    /// # let runtime = Runtime::builder().backends(["cpu"]).without_tables().build()?;
    /// let hello = runtime.load("kernel hello() over 2 { print(\"hello from {}\", invocation.x) }")?;
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

/// A backend that was tried and could not.
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
