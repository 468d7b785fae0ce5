//! A single dispatch, on a named backend or routed by the runtime.

use crate::output::Ending;
use crate::quantity;
use crate::source::LoadedProgram;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vyre::unstable::opening::meet_unknown_drivers;
use vyre::{Argument, Explanation, Runtime};
use vyre_driver::pipeline::{self, PipelineReproManifest};
use vyre_driver::{BackendError, DispatchConfig, Unfinished, VyreBackend, registry, within};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::launch::Launch;

/// Backend ID that selects a backend automatically.
pub(crate) const AUTO: &str = "auto";

/// Shape and limits of a dispatch.
#[derive(Debug, clap::Args)]
pub(crate) struct ShapeArguments {
    /// Invocations per workgroup, as 64 or 8,8,1
    #[arg(long, value_name = "SIZE", value_parser = quantity::positive_axes)]
    workgroup: Option<[u32; 3]>,
    /// Number of workgroups, as 64 or 8,8,1
    #[arg(long, value_name = "COUNT", value_parser = quantity::axes)]
    grid: Option<[u32; 3]>,
    /// Number of invocations, as 640x480, instead of the program's domain
    #[arg(long, value_name = "COUNT", value_parser = quantity::axes)]
    domain: Option<[u32; 3]>,
    /// Lanes per subgroup
    #[arg(long)]
    subgroup: Option<u32>,
    /// Time limit of the dispatch
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
    /// Check the program's asserts
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = on_or_off, action = clap::ArgAction::Set)]
    asserts: bool,
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".into()),
    }
}

impl ShapeArguments {
    pub(crate) fn config(&self) -> Result<DispatchConfig, Ending> {
        let timeout = Duration::try_from_secs_f64(self.timeout)
            .map_err(|error| Ending::Usage(format!("--timeout {}: {error}", self.timeout)))?;
        Ok(DispatchConfig {
            workgroup_override: self.workgroup,
            grid_override: self.grid,
            domain_override: self.domain,
            subgroup_size: self.subgroup,
            timeout: Some(timeout),
            // `None` when asserts are checked, so that the configuration equals the default.
            asserts: (!self.asserts).then_some(false),
            ..DispatchConfig::default()
        })
    }
}

/// Result of a dispatch.
pub(crate) struct Dispatched {
    /// One per output and read_write buffer, in binding order.
    pub(crate) outputs: Vec<Vec<u8>>,
    pub(crate) backend: String,
    /// Why this backend was chosen.
    pub(crate) why: String,
    pub(crate) dispatch_ns: u64,
    /// Domain of the dispatch; `None` if a grid was specified.
    pub(crate) domain: Option<[u32; 3]>,
    /// The runtime's explanation of its choice at this size; `None` if the backend was named.
    pub(crate) explanation: Option<Explanation>,
}

/// Runs the program once, on the named backend or routed by the runtime.
///
/// A routed call learns and saves the result, but does not probe unknown drivers: that takes
/// seconds, too long for one call. The timeout covers everything since the [command began](begin),
/// including reading the program and opening drivers.
pub(crate) fn dispatch(
    backend: &str,
    loaded: &LoadedProgram,
    inputs: &[Vec<u8>],
    config: &DispatchConfig,
) -> Result<Dispatched, Ending> {
    let run = Run {
        backend: backend.to_owned(),
        program: loaded.program.clone(),
        memory: BufferContents::of(&loaded.kernel, inputs, config)?,
        config: config.clone(),
        met: Arc::default(),
        began: BEGAN.get().unwrap_or_else(Instant::now),
    };
    let Some(limit) = config.timeout else { return run.dispatch() };
    DEADLINE.set(run.began.checked_add(limit));
    let (backend, met) = (run.backend.clone(), run.met.clone());
    let left = limit.saturating_sub(run.began.elapsed()).saturating_add(GRACE);
    within("run", left, move || run.dispatch()).unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::Late if met.load(Ordering::Relaxed) => BackendError::Timeout { backend, limit }.into(),
            Unfinished::Late => Ending::Stopped(format!(
                "the driver of `{backend}` did not open within the timeout of {limit:?}\n  help: raise --timeout; \
                 `vyre devices` opens every driver ahead of the calls"
            )),
            Unfinished::Panicked(_) | Unfinished::NeverBegun(_) => Ending::CannotRun(unfinished.to_string()),
        })
    })
}

/// How late a call can return and still count as within its deadline: on a busy machine, the thread
/// that waits for it may not run at once. Chosen, not measured.
const GRACE: Duration = Duration::from_millis(50);

thread_local! {
    /// Start of the command.
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Deadline of the command's dispatch; `None` if the limit exceeds the clock's range.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the clock of the command on this thread; the dispatch's timeout counts from here.
pub(crate) fn begin() {
    BEGAN.set(Some(Instant::now()));
}

/// Takes the time left of the last dispatch's limit, if it had one, for other waits on a driver.
pub(crate) fn left() -> Option<Duration> {
    DEADLINE.take().map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Dispatch with everything it needs.
struct Run {
    backend: String,
    program: Program,
    memory: BufferContents,
    config: DispatchConfig,
    /// Whether the drivers are open.
    met: Arc<AtomicBool>,
    /// When the timeout started to count.
    began: Instant,
}

impl Run {
    fn dispatch(self) -> Result<Dispatched, Ending> {
        let Run { backend, program, mut memory, config, met, began } = self;
        let routed = backend == AUTO;
        let runtime = if routed {
            Runtime::builder().known_drivers_only()
        } else {
            meet_unknown_drivers(&[&backend]);
            Runtime::builder().named_only()
        };
        let runtime = runtime.build()?;
        met.store(true, Ordering::Relaxed);
        let routine = runtime.load_with(&program, &config)?;
        let mut call = routine.call();
        for (name, access, bytes) in &mut memory.buffers {
            let argument =
                if access.is_output() { Argument::bytes_mut(bytes) } else { Argument::bytes(bytes) };
            call = call.bind(name, argument);
        }
        if let Some(left) = config.after(began.elapsed()).timeout {
            call = call.timeout(left);
        }
        let report = if routed { call.run() } else { call.on(&backend).run() };
        let report = report.map_err(|error| error.of_call(config.timeout))?;
        Ok(Dispatched {
            backend: report.backend.into(),
            why: report.why.to_string(),
            dispatch_ns: nanoseconds(report.wall),
            domain: memory.domain,
            explanation: routed.then(|| routine.explain(report.elements)),
            outputs: memory.outputs(),
        })
    }
}

/// Memory for every buffer of a kernel, in binding order: inputs copied, outputs zeroed.
struct BufferContents {
    buffers: Vec<(String, Access, Vec<u8>)>,
    domain: Option<[u32; 3]>,
}

impl BufferContents {
    fn of(
        kernel: &KernelBody,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<BufferContents, Ending> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let launch =
            Launch::from_inputs(kernel, &borrowed, config.overrides()).map_err(BackendError::from)?;
        let mut inputs = inputs.iter();
        let mut buffers = Vec::new();
        for id in kernel.bound_buffers() {
            let decl = &kernel.buffer(id).decl;
            let input = if decl.access.is_input() { inputs.next() } else { None };
            let contents = match input {
                Some(input) => input.clone(),
                None => zeroed(launch.bytes(kernel, id))?,
            };
            buffers.push((decl.name.to_string(), decl.access, contents));
        }
        Ok(BufferContents { buffers, domain: launch.domain })
    }

    fn outputs(self) -> Vec<Vec<u8>> {
        self.buffers
            .into_iter()
            .filter(|(_, access, _)| access.is_output())
            .map(|(_, _, bytes)| bytes)
            .collect()
    }
}

fn zeroed(size: usize) -> Result<Vec<u8>, Ending> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(size)
        .map_err(|_| Ending::CannotRun(format!("there is no memory for an output of {size} bytes")))?;
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Opens a backend; [`AUTO`] is the preferred one.
pub(crate) fn open(id: &str) -> Result<Arc<dyn VyreBackend>, Ending> {
    meet_unknown_drivers(if id == AUTO { &[] } else { std::slice::from_ref(&id) });
    let backend =
        if id == AUTO { registry::acquire_preferred_dispatch_backend()? } else { registry::acquire(id)? };
    Ok(backend.into())
}

/// Builds the manifest for repeating a dispatch on this backend.
pub(crate) fn manifest(
    backend: &str,
    program: &Program,
    config: &DispatchConfig,
) -> Result<PipelineReproManifest, Ending> {
    let backend: Arc<dyn VyreBackend> = registry::acquire(backend)?.into();
    Ok(pipeline::prewarm(backend, program, config)?.manifest)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
