//! Counters of what the driver does, for the whole process; always on.
//!
//! **Who counts.** A launch may pass through several driver-provided methods, one calling the next, with methods of the
//! backend in between. The outermost of them counts, once, because it alone knows what became of the caller's slots.
//! A thread-local mark says that one is counting, and everything inside it on that thread stays silent,
//! [`record_launch`] included. A batch counts each of its items.
//!
//! **What it costs.** Counters are striped: each thread adds to one of a few groups on cache lines of their own, so that
//! threads seldom share a line, and a snapshot sums the groups. Sums are exact once the launches have returned.

use crate::trace::{self, Span};
use crate::{BackendError, DispatchConfig};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What one launch moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Bytes of all inputs.
    pub input_bytes: u64,
    /// Bytes of all outputs.
    pub output_bytes: u64,
    /// How many outputs there were.
    pub output_slots: u64,
    /// How many were written into memory that the caller gave.
    pub output_slots_reused: u64,
    /// How many took the place of what the caller gave.
    pub output_slots_moved: u64,
}

impl LaunchRecord {
    /// Counts memory of the caller's that a launch only read.
    pub fn read(&mut self, bytes: usize) {
        self.input_bytes += bytes as u64;
    }

    /// Counts memory of the caller's that a launch wrote.
    pub fn wrote(&mut self, bytes: usize) {
        self.output_bytes += bytes as u64;
        self.output_slots += 1;
        self.output_slots_reused += 1;
    }
}

macro_rules! counters {
    ($($name:ident $doc:literal;)*) => {
        /// What the driver has done in this process so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DispatchTelemetry { $(#[doc = $doc] pub $name: u64,)* }

        #[repr(align(128))]
        struct Stripe { $($name: AtomicU64,)* }

        static STRIPES: [Stripe; STRIPE_COUNT] = [const { Stripe { $($name: AtomicU64::new(0),)* } }; STRIPE_COUNT];

        /// The counters, summed over all threads. Exact when no launch is under way.
        ///
        /// ```
        /// use vyre_driver::observability::{LaunchRecord, record_launch, snapshot_dispatch_telemetry};
        /// let before = snapshot_dispatch_telemetry();
        /// record_launch(LaunchRecord::default());
        /// assert_eq!(snapshot_dispatch_telemetry().since(&before).launches, 1);
        /// ```
        pub fn snapshot_dispatch_telemetry() -> DispatchTelemetry {
            let mut sum = DispatchTelemetry::default();
            for stripe in &STRIPES {
                $(sum.$name = sum.$name.wrapping_add(stripe.$name.load(Relaxed));)*
            }
            sum
        }

        impl DispatchTelemetry {
            /// What happened since `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &DispatchTelemetry) -> DispatchTelemetry {
                DispatchTelemetry { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// The counters in the text format that Prometheus scrapes.
            pub fn to_prometheus(&self) -> String {
                let mut text = String::new();
                $(write_counter(&mut text, stringify!($name), $doc, self.$name);)*
                text
            }
        }
    };
}

counters! {
    launches "Launches that completed; each item of a batch is one.";
    failed_launches "Launches that ended in an error or a panic.";
    input_bytes "Bytes given to completed launches.";
    output_bytes "Bytes that completed launches gave back.";
    output_slots "Outputs that completed launches gave back.";
    output_slots_reused "Outputs written into memory that the caller gave.";
    output_slots_moved "Outputs that took the place of what the caller gave.";
    compiles "Pipelines that were made.";
    failed_compiles "Programs that were refused or could not be compiled.";
    pass_through_pipelines "Pipelines made for backends that do not compile.";
    compile_ns "Nanoseconds spent making pipelines.";
}

/// More than the cores of most machines would buy nothing: a shared line costs tens of nanoseconds, not correctness.
const STRIPE_COUNT: usize = 16;

/// What a thread keeps of its launches, in one place: in a shared library each way to a thread's own memory is a call.
struct Thread {
    /// Whether a driver-provided method is counting the launch under way.
    counting: Cell<bool>,
    /// What the device said of the last launch; `u64::MAX` if it said nothing.
    device_ns: Cell<u64>,
    /// Whether somebody wants to know it of the next one.
    device_time_wanted: Cell<bool>,
    /// The thread's stripe; `usize::MAX` before it has one.
    stripe: Cell<usize>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            counting: Cell::new(false),
            device_ns: Cell::new(u64::MAX),
            device_time_wanted: Cell::new(false),
            stripe: Cell::new(usize::MAX),
        }
    };
}

/// A small number that stays the same for a thread and is seldom another's, to spread counters by.
#[inline]
pub fn stripe_of_thread() -> usize {
    THREAD.with(|thread| match thread.stripe.get() {
        usize::MAX => first_stripe(thread),
        stripe => stripe,
    })
}

#[cold]
fn first_stripe(thread: &Thread) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let stripe = NEXT.fetch_add(1, Relaxed) % usize::MAX;
    thread.stripe.set(stripe);
    stripe
}

#[inline]
fn stripe() -> &'static Stripe {
    &STRIPES[stripe_of_thread() % STRIPE_COUNT]
}

/// Counts one completed launch, for a pipeline that does not go through the driver's own methods. Does nothing inside a
/// driver-provided method on the same thread: that one counts.
pub fn record_launch(record: LaunchRecord) {
    if !THREAD.with(|thread| thread.counting.get()) {
        add_launch(&record);
    }
}

/// Says whether this thread's next launches are to tell how long they ran on the device. A device is not asked otherwise,
/// because most take longer with it.
#[inline]
pub fn want_device_time(wanted: bool) {
    THREAD.with(|thread| thread.device_time_wanted.set(wanted));
}

/// Whether the launch under way is to tell how long it runs on the device, by [`record_device_time`].
#[inline]
pub fn device_time_wanted() -> bool {
    THREAD.with(|thread| thread.device_time_wanted.get())
}

/// Tells how long the kernel of the launch under way ran on the device: for pipelines of devices that can tell, from within
/// a dispatch, on the thread that called it.
pub fn record_device_time(time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
    THREAD.with(|thread| thread.device_ns.set(nanoseconds));
}

/// How long the kernel of this thread's last launch ran on the device, if the device told. Taken once.
#[inline]
pub fn take_device_time() -> Option<Duration> {
    let nanoseconds = THREAD.with(|thread| thread.device_ns.replace(u64::MAX));
    (nanoseconds != u64::MAX).then(|| Duration::from_nanos(nanoseconds))
}

fn add_launch(record: &LaunchRecord) {
    let stripe = stripe();
    stripe.launches.fetch_add(1, Relaxed);
    let add = |counter: &AtomicU64, amount: u64| {
        if amount > 0 {
            counter.fetch_add(amount, Relaxed);
        }
    };
    add(&stripe.input_bytes, record.input_bytes);
    add(&stripe.output_bytes, record.output_bytes);
    add(&stripe.output_slots, record.output_slots);
    add(&stripe.output_slots_reused, record.output_slots_reused);
    add(&stripe.output_slots_moved, record.output_slots_moved);
}

/// Runs one launch and counts it, if this is the outermost such call on the thread. A native pipeline wraps its own
/// dispatch methods in this to get spans, traces and counts of failures too. What the call is labelled with stands in them
/// for the pipeline's id.
pub fn observe_launch<T>(
    pipeline: &str,
    config: &DispatchConfig,
    run: impl FnOnce() -> Result<(T, LaunchRecord), BackendError>,
) -> Result<T, BackendError> {
    let Some(mut counting) = Counting::start() else {
        return run().map(|(value, _)| value);
    };
    let subject = config.label.as_deref().unwrap_or(pipeline);
    let _span = tracing::trace_span!("vyre.dispatch", pipeline = subject).entered();
    let began = trace::now();
    let result = run();
    if let Some(began) = began {
        let error = result.as_ref().err();
        trace::record(&Span { name: "vyre.dispatch", subject, began, error });
    }
    result.map(|(value, record)| {
        counting.completed = Some(record);
        value
    })
}

/// Makes a pipeline and counts it.
pub(crate) fn observe_compile<T>(
    backend: &str,
    make: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let _span = tracing::debug_span!("vyre.compile", backend).entered();
    let start = Instant::now();
    let result = make();
    if trace::now().is_some() {
        let error = result.as_ref().err();
        trace::record(&Span { name: "vyre.compile", subject: backend, began: start, error });
    }
    let stripe = stripe();
    stripe.compile_ns.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    let counter = if result.is_ok() { &stripe.compiles } else { &stripe.failed_compiles };
    counter.fetch_add(1, Relaxed);
    result
}

/// Counts a pipeline that calls its backend each time.
pub(crate) fn count_pass_through() {
    stripe().pass_through_pipelines.fetch_add(1, Relaxed);
}

/// Holds the thread's mark, and counts when the launch has ended, however it did: a panic is a failed launch too.
struct Counting {
    completed: Option<LaunchRecord>,
}

impl Counting {
    /// `None` if a launch is being counted on this thread already.
    fn start() -> Option<Counting> {
        let counted = THREAD.with(|thread| thread.counting.replace(true));
        if counted { None } else { Some(Counting { completed: None }) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.counting.set(false));
        match &self.completed {
            Some(record) => add_launch(record),
            None => {
                stripe().failed_launches.fetch_add(1, Relaxed);
            }
        }
    }
}

fn write_counter(text: &mut String, name: &str, help: &str, value: u64) {
    let metric = format!("vyre_{name}_total");
    *text += &format!("# HELP {metric} {help}\n# TYPE {metric} counter\n{metric} {value}\n");
}
