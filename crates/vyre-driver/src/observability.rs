//! Process-wide counters of the driver's activity; always on.
//!
//! **Attribution.** A launch can pass through several driver-provided methods, one calling the
//! next, with methods of the backend in between. The outermost counts it, once, because it alone
//! knows the outcome of the caller's slots. A thread-local flag marks that a launch is being
//! counted; everything nested inside it on that thread does not count, including [`record_launch`].
//! In a batch each item is counted.
//!
//! **Cost.** Counters are striped: each thread adds to one of a few groups on separate cache lines,
//! so that threads seldom share a line, and a snapshot sums the groups. Sums are exact once the
//! launches have returned.

use crate::trace::{self, TraceSpan};
use crate::{BackendError, DispatchConfig};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The data that one launch moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Total size of the inputs.
    pub input_bytes: u64,
    /// Total size of the outputs.
    pub output_bytes: u64,
    /// Number of outputs.
    pub output_slots: u64,
    /// Number of outputs written into the caller's memory.
    pub output_slots_reused: u64,
    /// Number of outputs that replaced the caller's buffers.
    pub output_slots_moved: u64,
}

impl LaunchRecord {
    /// Counts memory of the caller that a launch only read.
    pub fn read(&mut self, bytes: usize) {
        self.input_bytes += bytes as u64;
    }

    /// Counts memory of the caller that a launch wrote.
    pub fn wrote(&mut self, bytes: usize) {
        self.output_bytes += bytes as u64;
        self.output_slots += 1;
        self.output_slots_reused += 1;
    }
}

macro_rules! counters {
    ($($name:ident $doc:literal;)*) => {
        /// The driver's activity in this process so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DispatchTelemetry { $(#[doc = $doc] pub $name: u64,)* }

        #[repr(align(128))]
        struct Stripe { $($name: AtomicU64,)* }

        static STRIPES: [Stripe; STRIPE_COUNT] = [const { Stripe { $($name: AtomicU64::new(0),)* } }; STRIPE_COUNT];

        /// The counters, summed over all threads. Exact when no launch is running.
        ///
        /// ```
        /// use vyre_driver::observability::{
        ///     LaunchRecord, record_launch, snapshot_dispatch_telemetry,
        /// };
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
            /// The difference from `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &DispatchTelemetry) -> DispatchTelemetry {
                DispatchTelemetry { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    launches "Launches that completed; each item of a batch is one.";
    failed_launches "Launches that ended in an error or a panic.";
    input_bytes "Bytes passed to completed launches.";
    output_bytes "Bytes returned by completed launches.";
    output_slots "Outputs returned by completed launches.";
    output_slots_reused "Outputs written into memory that the caller provided.";
    output_slots_moved "Outputs that replaced memory that the caller provided.";
    compiles "Pipelines created.";
    failed_compiles "Programs that were refused or could not be compiled.";
    pass_through_pipelines "Pipelines created for backends that do not compile.";
    compile_ns "Nanoseconds spent creating pipelines.";
}

/// More stripes would gain little: sharing a line costs tens of nanoseconds and no correctness.
const STRIPE_COUNT: usize = 16;

/// Per-thread launch state, in one struct: in a shared library each thread-local access is a call.
struct Thread {
    /// Whether a driver-provided method is counting the current launch.
    counting: Cell<bool>,
    /// The device time of the last launch; `u64::MAX` if the device reported none.
    device_ns: Cell<u64>,
    /// Whether the device time of the next launch is wanted.
    device_time_wanted: Cell<bool>,
    /// The thread's stripe; `usize::MAX` before it is assigned.
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

/// A small number that is constant for a thread and seldom shared, for striping counters.
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

/// Counts one completed launch, for a pipeline that bypasses the driver's methods. Does nothing
/// inside a driver-provided method on the same thread, which counts the launch itself.
pub fn record_launch(record: LaunchRecord) {
    if !THREAD.with(|thread| thread.counting.get()) {
        add_launch(&record);
    }
}

/// Sets whether this thread's next launches report their device time. It is not measured otherwise,
/// because that slows down most devices.
#[inline]
pub fn want_device_time(wanted: bool) {
    THREAD.with(|thread| thread.device_time_wanted.set(wanted));
}

/// Whether the current launch should report its device time with [`record_device_time`].
#[inline]
pub fn device_time_wanted() -> bool {
    THREAD.with(|thread| thread.device_time_wanted.get())
}

/// Reports the device time of the current launch's kernel. Called by pipelines of devices that
/// measure it, within a dispatch, on the calling thread.
pub fn record_device_time(time: Duration) {
    let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
    THREAD.with(|thread| thread.device_ns.set(nanoseconds));
}

/// Takes the device time of this thread's last launch, if the device reported it.
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

/// Runs one launch and counts it, if this is the outermost such call on the thread. A native
/// pipeline wraps its dispatch methods in this to get spans, traces and failure counts as well. The
/// call's label, if set, replaces the pipeline's id in them.
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
        trace::record(&TraceSpan { name: "vyre.dispatch", subject, began, error });
    }
    result.map(|(value, record)| {
        counting.completed = Some(record);
        value
    })
}

/// Compiles a pipeline and counts it.
pub(crate) fn observe_compile<T>(
    backend: &str,
    make: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let _span = tracing::debug_span!("vyre.compile", backend).entered();
    let start = Instant::now();
    let result = make();
    if trace::now().is_some() {
        let error = result.as_ref().err();
        trace::record(&TraceSpan { name: "vyre.compile", subject: backend, began: start, error });
    }
    let stripe = stripe();
    stripe.compile_ns.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    let counter = if result.is_ok() { &stripe.compiles } else { &stripe.failed_compiles };
    counter.fetch_add(1, Relaxed);
    result
}

/// Counts a pass-through pipeline.
pub(crate) fn count_pass_through() {
    stripe().pass_through_pipelines.fetch_add(1, Relaxed);
}

/// Holds the thread's flag, and counts the launch when it ends: a panic is a failed launch too.
struct Counting {
    completed: Option<LaunchRecord>,
}

impl Counting {
    /// `None` if a launch is already being counted on this thread.
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
