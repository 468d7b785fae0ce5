//! Whether a backend gives the oracle's results for a program, found out on little data beside the calls.
//!
//! **What on**: a sample of the first call that wanted it. The inputs are copied, never the caller's memory itself, and cut
//! to [`CUTS`] elements, [`LARGE_CUT`] where it is only timed; a grid that is still larger is overridden. A resident buffer is not read for this: its sample is
//! generated. If the interpreter takes too long on a cut, a smaller one is tried.
//!
//! **When**: [`verify`] before a backend other than the selected one first runs the program; [`canary`] again and again,
//! on what the oracle gave the first time, so that a backend that begins to answer wrongly is noticed; [`spot_check`], on
//! a few elements, before calls return that another backend may repeat.
//!
//! A backend that does not come back is left behind on a thread of its own.

use crate::argument::Memory;
use crate::backend::Backend;
use crate::dispatch::nanoseconds;
use crate::inputs::example_bytes;
use crate::routine::RoutineCore;
use crate::runtime::Shared;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use vyre_driver::leaving::{self, Inside};
use vyre_driver::router::{BackendIndex, Rejection, Timing};
use vyre_driver::{
    BackendError, CompiledPipeline, DispatchConfig, OutputBuffers, Tolerance, VyreBackend, contain,
    output_difference,
};
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::launch::{Launch, Overrides};
use vyre_reference::CpuRef;

/// At most so many elements per buffer, and invocations; smaller where the interpreter takes too long.
pub(crate) const CUTS: [u32; 3] = [4096, 256, 16];
/// Further sizes at which a verified backend is timed, so that the router can tell fixed from growing cost.
const SMALL_CUT: u32 = 64;
const LARGE_CUT: u32 = 65_536;
/// The larger size is left out if it would take longer than this.
const LARGE_LIMIT: Duration = Duration::from_millis(8);
/// How long the interpreter may take on one cut.
pub(crate) const ORACLE_LIMIT: Duration = Duration::from_secs(2);
/// How long a backend may take to compile and run one check.
const BACKEND_LIMIT: Duration = Duration::from_secs(30);
/// Programs whose fixed buffers are larger than this are not verified.
const MOST_BYTES: usize = 256 << 20;
const TIMED_RUNS: usize = 5;

/// Under `Fallback::Allow`, spot checks may take one part in so many of the time of the calls.
const SPOT_SHARE: u64 = 4;

/// What is kept of a routine to verify it on.
pub(crate) struct Verifier {
    sample: OnceLock<Result<Sample, String>>,
    /// What the oracle gave, by the subgroup size that it is for.
    expected: Mutex<BTreeMap<Option<u32>, Judged>>,
    /// By backend, once it is verified.
    spots: Vec<OnceLock<Spot>>,
}

/// A check small enough to be made before a call returns.
struct Spot {
    expected: Expected,
    /// What it takes.
    cost_ns: AtomicU64,
    /// The share of the calls' time that was not used for it yet.
    saved_ns: AtomicU64,
}

/// The oracle's results, or why there are none.
type Judged = Result<Arc<Expected>, String>;

/// A sample of a call's inputs.
struct Sample(Vec<Input>);

/// What one input starts with.
struct Input {
    start: Vec<u8>,
    /// How many bytes the call gave.
    given: usize,
}

/// A sample cut to what the oracle ran, and its results.
struct Expected {
    cut: Cut,
    /// The outputs, or the code with which the kernel traps.
    outcome: Result<OutputBuffers, u32>,
}

/// What speaks against a backend, or that nothing can be said.
pub(crate) enum Finding {
    /// The interpreter gives nothing to compare with, for this reason.
    Inconclusive(String),
    Wrong(String),
    Failed(String),
}

impl Finding {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Finding::Inconclusive(reason) | Finding::Wrong(reason) | Finding::Failed(reason) => reason,
        }
    }

    pub(crate) fn failed(error: BackendError) -> Finding {
        Finding::Failed(error.to_string())
    }
}

/// Inputs and configuration of a small dispatch.
struct Cut {
    inputs: Vec<Vec<u8>>,
    config: DispatchConfig,
    elements: u64,
}

impl Verifier {
    pub(crate) fn new(backends: usize) -> Verifier {
        Verifier {
            sample: OnceLock::new(),
            expected: Mutex::default(),
            spots: (0..backends).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Keeps a sample of a call's inputs, if there is none yet.
    pub(crate) fn sample(&self, core: &RoutineCore, memory: &[Memory<'_>]) {
        self.sample.get_or_init(|| Sample::of(core, memory));
    }

    /// What the oracle gives for the subgroup size of a device.
    fn expected(&self, core: &RoutineCore, backend: &Backend) -> Judged {
        let mut known = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let judged = known.entry(subgroup_size(core, backend)).or_insert_with_key(|&size| {
            let sample = self.sample.get().ok_or("no call has been seen to take a sample from")?;
            let sample = sample.as_ref().map_err(String::clone)?;
            Ok(Arc::new(ask_oracle(core, sample, &CUTS, size)?))
        });
        judged.clone()
    }

    /// Makes the spot check of a backend that was just verified, if the interpreter is quick enough for it.
    fn make_spot(&self, core: &RoutineCore, backend: &Backend, pipeline: &dyn CompiledPipeline) {
        let (Some(slot), Some(Ok(sample))) = (self.spots.get(backend.position), self.sample.get()) else {
            return;
        };
        let Ok(expected) = ask_oracle(core, sample, &[SMALL_CUT], subgroup_size(core, backend)) else {
            return;
        };
        let began = Instant::now();
        if compare(core, pipeline, &expected, None).is_ok() {
            let cost_ns = AtomicU64::new(nanoseconds(began.elapsed()));
            slot.get_or_init(|| Spot { expected, cost_ns, saved_ns: AtomicU64::new(0) });
        }
    }
}

/// The subgroup size that the oracle has to use to be comparable, where it matters.
fn subgroup_size(core: &RoutineCore, backend: &Backend) -> Option<u32> {
    let size = backend.profile.subgroup_size;
    let matters = core.kernel.needs.subgroups && core.config.subgroup_size.is_none() && size > 0;
    matters.then_some(size)
}

impl Sample {
    fn of(core: &RoutineCore, memory: &[Memory<'_>]) -> Result<Sample, String> {
        let most = CUTS[0] as usize;
        let mut inputs = Vec::new();
        let mut total = 0usize;
        for (parameter, memory) in core.parameters.iter().zip(memory) {
            let length =
                if parameter.count > 0 { memory.len() } else { memory.len().min(most * parameter.size) };
            total = total.saturating_add(length);
            if total > MOST_BYTES {
                return Err(format!(
                    "its buffers take more than {} MiB, too much to verify",
                    MOST_BYTES >> 20
                ));
            }
            if !parameter.access.is_input() {
                continue;
            }
            let start = match memory {
                Memory::Nothing => Vec::new(),
                Memory::Number(bytes, length) => bytes[..*length].to_vec(),
                Memory::Read(bytes) => bytes[..length].to_vec(),
                Memory::Write(bytes) => bytes[..length].to_vec(),
                Memory::Resident(_) => {
                    example_bytes(parameter.element, length / parameter.size, &parameter.name)
                }
            };
            inputs.push(Input { start, given: memory.len() });
        }
        Ok(Sample(inputs))
    }

    /// The call with its inputs repeated until the longest has so many elements, for timing only.
    fn grown(&self, core: &RoutineCore, elements: u32) -> Result<Cut, String> {
        let given = || core.parameters.iter().filter(|parameter| parameter.access.is_input()).zip(&self.0);
        let sized = given().filter(|(parameter, _)| parameter.count == 0);
        let longest = sized.map(|(parameter, input)| input.given / parameter.size).max().unwrap_or(0);
        let times = (elements as usize).div_ceil(longest.max(1)).max(1);
        let repeat = |(parameter, Input { start, given }): (&crate::routine::Parameter, &Input)| {
            let length = if parameter.count > 0 { start.len() } else { given.saturating_mul(times) };
            let start = start.clone();
            Input { start, given: length }
        };
        Sample(given().map(repeat).collect()).cut(core, elements)
    }

    /// The call cut to so many elements and invocations; beyond what is kept of an input it is repeated.
    fn cut(&self, core: &RoutineCore, most: u32) -> Result<Cut, String> {
        let given = core.parameters.iter().filter(|parameter| parameter.access.is_input());
        let shorten = |(parameter, Input { start, given }): (&crate::routine::Parameter, &Input)| {
            let length =
                if parameter.count > 0 { start.len() } else { (*given).min(most as usize * parameter.size) };
            start.iter().copied().cycle().take(length).collect()
        };
        let inputs: Vec<Vec<u8>> = given.zip(&self.0).map(shorten).collect();
        let lengths: Vec<usize> = inputs.iter().map(Vec::len).collect();
        let mut config = core.config.clone();
        let overrides = |grid| Overrides { workgroup: core.config.workgroup_override, grid };
        let launch = Launch::from_inputs(&core.kernel, &lengths, overrides(None))
            .map_err(|faults| faults.to_string())?;
        config.grid_override = smaller_grid(&launch, most);
        let launch = Launch::from_inputs(&core.kernel, &lengths, overrides(config.grid_override))
            .map_err(|faults| faults.to_string())?;
        let elements = match config.grid_override {
            Some(_) => launch.invocations(),
            None => domain_of(&core.kernel, &launch),
        };
        Ok(Cut { inputs, config, elements })
    }
}

/// A grid of at most so many invocations, or of one workgroup, if the launch has more.
fn smaller_grid(launch: &Launch, most: u32) -> Option<[u32; 3]> {
    let per_group: u64 = launch.workgroup.iter().map(|&axis| u64::from(axis)).product();
    let groups = |grid: [u32; 3]| grid.iter().fold(1u64, |all, &axis| all.saturating_mul(axis.into()));
    let wanted = (u64::from(most) / per_group).max(1);
    // A launch that covers its last workgroup only in part is no larger than its domain.
    if groups(launch.grid) <= u64::from(most).div_ceil(per_group).max(1) {
        return None;
    }
    let mut grid = launch.grid;
    while groups(grid) > wanted {
        let Some(largest) = grid.iter_mut().max() else { break };
        *largest = (*largest / 2).max(1);
    }
    Some(grid)
}

fn domain_of(kernel: &KernelBody, launch: &Launch) -> u64 {
    use vyre_foundation::kernel::KernelDomain;
    match kernel.domain {
        KernelDomain::Counts(counts) => {
            counts.iter().fold(1, |all: u64, &axis| all.saturating_mul(axis.into()))
        }
        KernelDomain::LenOf(buffer) => launch.lengths.get(buffer.index()).map_or(0, |&length| length.into()),
    }
}

/// The largest cut that the interpreter gets through in time, and what it gives.
fn ask_oracle(
    core: &RoutineCore,
    sample: &Sample,
    cuts: &[u32],
    subgroup_size: Option<u32>,
) -> Result<Expected, String> {
    let mut failure = String::new();
    for &most in cuts {
        let cut = sample.cut(core, most)?;
        let config = DispatchConfig {
            timeout: Some(ORACLE_LIMIT),
            subgroup_size: cut.config.subgroup_size.or(subgroup_size),
            ..cut.config.clone()
        };
        let inputs: Vec<&[u8]> = cut.inputs.iter().map(Vec::as_slice).collect();
        match CpuRef.dispatch_borrowed(&core.program, &inputs, &config) {
            Ok(outputs) => return Ok(Expected { cut, outcome: Ok(outputs) }),
            Err(BackendError::Trapped { code, .. }) => return Ok(Expected { cut, outcome: Err(code) }),
            Err(error @ BackendError::Timeout { .. }) => failure = error.to_string(),
            Err(error) => return Err(format!("the interpreter could not run it: {error}")),
        }
    }
    Err(format!("the interpreter was too slow on {} elements: {failure}", cuts.last().unwrap_or(&0)))
}

/// Verifies the routine on a backend, and tells the router.
pub(crate) fn verify(core: &Arc<RoutineCore>, index: BackendIndex) {
    let checked = core.clone();
    let outcome = within_limit(&core.shared, index, move |backend| {
        let core = &*checked;
        let expected = core.verifier.expected(core, backend).map_err(Finding::Inconclusive)?;
        let pipeline = core.pipeline(backend, &DispatchConfig::default()).map_err(Finding::failed)?;
        compare(core, &*pipeline, &expected, Some(BACKEND_LIMIT))?;
        core.verifier.make_spot(core, backend, &*pipeline);
        timings(core, &*pipeline, &expected).map_err(Finding::failed)
    });
    let tell = |outcome: Result<&[Timing], Rejection<'_>>| {
        core.all_routes().for_each(|routes| routes.verified(index, outcome, core.shared.now_ns()));
    };
    let finding = match outcome {
        Ok(timings) => return tell(Ok(&timings)),
        Err(finding) => finding,
    };
    let (kernel, backend) = (core.kernel.display_name(), core.shared.router.id(index));
    let rejection = match &finding {
        Finding::Wrong(reason) => Rejection::Wrong(reason),
        Finding::Failed(reason) => Rejection::Failed(reason),
        // The selected backend runs on the strength of the conformance set; nothing is known against it.
        Finding::Inconclusive(_) if core.shared.router.selected() == Some(index) => return,
        Finding::Inconclusive(reason) => Rejection::Failed(reason),
    };
    tracing::info!(kernel, backend, reason = finding.reason(), "the backend is not used for this kernel");
    tell(Err(rejection));
}

/// Checks that a backend still gives what the oracle gave, and tells the router. The error says what it gave instead.
pub(crate) fn canary(core: &Arc<RoutineCore>, index: BackendIndex) -> Result<(), String> {
    let began = Instant::now();
    let checked = core.clone();
    let outcome = within_limit(&core.shared, index, move |backend| {
        let core = &*checked;
        let expected = core.verifier.expected(core, backend).map_err(Finding::Inconclusive)?;
        let pipeline = core.pipeline(backend, &DispatchConfig::default()).map_err(Finding::failed)?;
        compare(core, &*pipeline, &expected, Some(BACKEND_LIMIT))
    });
    tell_canary(core, index, outcome, began.elapsed())
}

/// Before a call returns that another backend may repeat: checks on a few elements that the backend still gives what the
/// oracle gave, if that takes no more than its share of the calls' time. Runs on the caller's thread, because starting
/// another takes longer than most checks. The error says what it gave instead.
pub(crate) fn spot_check(
    core: &Arc<RoutineCore>,
    backend: &Arc<Backend>,
    limit: Option<Duration>,
    elapsed: Duration,
) -> Result<(), String> {
    let Some(spot) = core.verifier.spots.get(backend.position).and_then(OnceLock::get) else { return Ok(()) };
    let share = nanoseconds(elapsed) / SPOT_SHARE;
    let saved = spot.saved_ns.fetch_add(share, Relaxed).saturating_add(share);
    if saved < spot.cost_ns.load(Relaxed) {
        return Ok(());
    }
    spot.saved_ns.store(0, Relaxed);
    let began = Instant::now();
    let outcome = contain(|| {
        let pipeline = core.pipeline(backend, &DispatchConfig::default()).map_err(Finding::failed)?;
        compare(core, &*pipeline, &spot.expected, limit)
    })
    .unwrap_or_else(|message| Err(Finding::Failed(message)));
    let took = began.elapsed();
    // Whatever else the machine does only ever makes it slower.
    spot.cost_ns.fetch_min(nanoseconds(took), Relaxed);
    if outcome.is_ok() {
        return Ok(());
    }
    tell_canary(core, BackendIndex(backend.position as u8), outcome, took)
}

/// Tells the router what a check came to. The error says what speaks against the backend.
fn tell_canary(
    core: &RoutineCore,
    index: BackendIndex,
    outcome: Result<(), Finding>,
    took: Duration,
) -> Result<(), String> {
    let rejection = match &outcome {
        Ok(()) | Err(Finding::Inconclusive(_)) => Ok(()),
        Err(Finding::Wrong(reason)) => Err(Rejection::Wrong(reason)),
        Err(Finding::Failed(reason)) => Err(Rejection::Failed(reason)),
    };
    let now_ns = core.shared.now_ns();
    core.all_routes().for_each(|routes| routes.canary(index, rejection, nanoseconds(took), now_ns));
    match outcome {
        Err(finding @ (Finding::Wrong(_) | Finding::Failed(_))) => Err(finding.reason().to_owned()),
        Ok(()) | Err(Finding::Inconclusive(_)) => Ok(()),
    }
}

/// Runs a check on a thread of its own, which is left behind if the backend does not come back.
pub(crate) fn within_limit<T: Send + 'static>(
    shared: &Shared,
    index: BackendIndex,
    check: impl FnOnce(&Arc<Backend>) -> Result<T, Finding> + Send + 'static,
) -> Result<T, Finding> {
    let Some(backend) = shared.backends.get(index.index()).cloned() else {
        return Err(Finding::Failed("it is not part of the runtime".into()));
    };
    let (sender, receiver) = channel();
    let named = thread::Builder::new().name(format!("vyre-verify-{}", backend.id));
    let started = named.spawn(move || {
        let _inside = Inside::enter();
        let outcome = contain(|| check(&backend));
        // Whoever waited may be gone.
        let _ = sender.send(outcome.unwrap_or_else(|message| Err(Finding::Failed(message))));
    });
    if let Err(error) = started {
        return Err(Finding::Inconclusive(format!("there was no thread to check it on: {error}")));
    }
    receiver
        .recv_timeout(BACKEND_LIMIT)
        .unwrap_or_else(|_| Err(Finding::Failed(format!("it did not come back within {BACKEND_LIMIT:?}"))))
}

fn compare(
    core: &RoutineCore,
    pipeline: &dyn CompiledPipeline,
    expected: &Expected,
    limit: Option<Duration>,
) -> Result<(), Finding> {
    let Expected { cut, outcome } = expected;
    let inputs: Vec<&[u8]> = cut.inputs.iter().map(Vec::as_slice).collect();
    let config = DispatchConfig { timeout: limit, ..cut.config.clone() };
    leaving::rest();
    let found = pipeline.dispatch_borrowed(&inputs, &config);
    let ulps = config.ulp_budget.map_or(0, u64::from);
    let tolerance = Tolerance { ulps, zero_sign: ulps > 0, ..Tolerance::default() };
    match (outcome, found) {
        (Ok(expected), Ok(found)) => match output_difference(&core.program, expected, &found, tolerance) {
            None => Ok(()),
            Some(difference) => Err(Finding::Wrong(difference)),
        },
        (Err(expected), Err(BackendError::Trapped { code, .. })) if code == *expected => Ok(()),
        (Err(code), Ok(_)) => {
            Err(Finding::Wrong(format!("it did not trap, the interpreter did with code {code}")))
        }
        (_, Err(error @ BackendError::Trapped { .. })) => Err(Finding::Wrong(error.to_string())),
        (_, Err(error)) => Err(Finding::failed(error)),
    }
}

/// How long the backend takes at three sizes, so far as the program has sizes, without a deadline, which some backends pay for. Nothing for a kernel
/// that traps.
fn timings(
    core: &RoutineCore,
    pipeline: &dyn CompiledPipeline,
    expected: &Expected,
) -> Result<Vec<Timing>, BackendError> {
    let mut timings = Vec::new();
    if expected.outcome.is_err() {
        return Ok(timings);
    }
    let Some(Ok(sample)) = core.verifier.sample.get() else { return Ok(timings) };
    if let Ok(small) = sample.cut(core, SMALL_CUT)
        && small.elements < expected.cut.elements
    {
        timings.push(timing(pipeline, &small)?);
    }
    let mut last = timing(pipeline, &expected.cut)?;
    timings.push(last);
    for elements in [CUTS[0], LARGE_CUT] {
        let growth = u64::from(elements) / last.elements.max(1);
        if growth > 1
            && last.elapsed_ns.saturating_mul(growth) < nanoseconds(LARGE_LIMIT)
            && let Ok(large) = sample.grown(core, elements)
            && large.elements > last.elements
        {
            last = timing(pipeline, &large)?;
            timings.push(last);
        }
    }
    Ok(timings)
}

fn timing(pipeline: &dyn CompiledPipeline, cut: &Cut) -> Result<Timing, BackendError> {
    let inputs: Vec<&[u8]> = cut.inputs.iter().map(Vec::as_slice).collect();
    let mut slots = OutputBuffers::new();
    let mut times = [0; TIMED_RUNS];
    // The first run warms up.
    pipeline.dispatch_borrowed_into(&inputs, &cut.config, &mut slots)?;
    for time in &mut times {
        leaving::rest();
        let began = Instant::now();
        pipeline.dispatch_borrowed_into(&inputs, &cut.config, &mut slots)?;
        *time = nanoseconds(began.elapsed());
    }
    // The calls go on meanwhile and only ever make it slower.
    let elapsed_ns = times.into_iter().min().unwrap_or(u64::MAX);
    Ok(Timing { elements: cut.elements, elapsed_ns })
}
