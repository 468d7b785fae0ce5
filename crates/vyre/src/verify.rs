//! Whether a backend gives the oracle's results for a routine, found out on little data beside the calls.
//!
//! **What on**: a sample of a call. Its memory is copied before the call runs, never used itself, and cut to [`CUTS`]
//! elements, [`LARGE_CUT`] where it is only timed; a grid that is still larger is overridden, an op is run at a smaller
//! size. If the interpreter takes too long on a cut, a smaller one is tried. **Evidence**: a sample that cannot show a
//! difference, because it is empty or the results are what was there before, is replaced by generated data of its
//! lengths; so is what lies in resident buffers. Memory that a backend has to fill starts out as garbage.
//!
//! **When**: [`verify`] before a backend other than the selected one first runs the routine; [`canary`] again and again,
//! each time on a newer call, so that a backend that begins to answer wrongly is noticed; [`spot_check`], on a few elements,
//! before calls return that another backend may repeat.
//!
//! A backend that does not come back is left behind on a thread of its own, and what may end the process is tried in another
//! one before ([`helper_trial`]).

use crate::argument::Memory;
use crate::catalogue::Plan;
use crate::code;
use crate::core::{Core, Pair, Work};
use crate::helper_trial;
use crate::inputs::example_bytes;
use crate::known_results::{Judged, KnownResult, Lanes, Sample, Spot, Start};
use crate::parameter::Parameter;
use crate::shared::nanoseconds;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::judge::Judge;
use vyre_driver::messages::quietly;
use vyre_driver::process_exit;
use vyre_driver::router::{BackendIndex, Rejection, Timing};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, Unfinished, contain, pipeline,
};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::launch::{Launch, Overrides};
use vyre_reference::CpuRef;

/// At most so many elements per buffer, and invocations; smaller where the interpreter takes too long.
const CUTS: [u32; 3] = [4096, 256, 16];
/// Further sizes at which a verified backend is timed, so that the router can tell fixed from growing cost.
const SMALL_CUT: u32 = 64;
const LARGE_CUT: u32 = 65_536;
/// The larger size is left out if it would take longer than this.
const LARGE_LIMIT: Duration = Duration::from_millis(8);
/// How long the interpreter may take on one cut.
const ORACLE_LIMIT: Duration = Duration::from_secs(2);
/// How long a backend may take to compile and run one check.
const BACKEND_LIMIT: Duration = Duration::from_secs(30);
/// Routines whose fixed buffers are larger than this are not verified.
const MOST_BYTES: usize = 256 << 20;
const TIMED_RUNS: usize = 5;
/// What is in memory that a backend has to fill.
const GARBAGE: u8 = 0xA5;

/// What a check found against a backend.
type Finding = Rejection<String>;

fn failed(error: BackendError) -> Finding {
    Finding::Failed(error.to_string())
}

/// Keeps a sample of a call that is about to run, to verify on. A call over nothing shows nothing.
#[cold]
pub(crate) fn sample(core: &Core, size: u32, elements: u64, memory: &[Memory<'_>]) {
    if elements > 0 {
        core.evidence.offer(sample_of(core, size, memory));
    }
}

fn sample_of(core: &Core, size: u32, memory: &[Memory<'_>]) -> Sample {
    let most = CUTS[0] as usize;
    let start = |(parameter, memory): (&Parameter, &Memory<'_>)| {
        let given = memory.len();
        let length = if parameter.count > 0 { given } else { given.min(most * parameter.size) };
        let shown = memory.bytes().filter(|_| parameter.access.is_input() && length <= MOST_BYTES);
        Start { bytes: shown.map_or(Vec::new(), |bytes| bytes[..length].to_vec()), given }
    };
    Sample { size, buffers: core.parameters.iter().zip(memory).map(start).collect() }
}

/// What a small call holds where the call that it is made of is not looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// What the call held.
    Sampled,
    /// Numbers of all kinds; single values stay, since they are mostly sizes.
    Generated,
}

/// A call of the sample's kind over at most so many elements and invocations. `grown`: over as many as that, for timing.
fn exhibit(
    Pair { core, backend }: Pair<'_>,
    sample: &Sample,
    most: u32,
    grown: bool,
    contents: Contents,
) -> Result<KnownResult, String> {
    let mut config = DispatchConfig { timeout: None, ..core.config.clone() };
    let fill = |(parameter, start): (&Parameter, &Start), bytes: usize| {
        if !parameter.access.is_input() {
            return vec![GARBAGE; bytes];
        }
        let single = parameter.access == Access::Uniform && parameter.count == 1;
        match contents {
            Contents::Sampled if !start.bytes.is_empty() => {
                start.bytes.iter().copied().cycle().take(bytes).collect()
            }
            Contents::Generated if single && !start.bytes.is_empty() => start.bytes.clone(),
            Contents::Sampled | Contents::Generated => {
                example_bytes(parameter.element, bytes / parameter.size, &parameter.name)
            }
        }
    };
    let buffers = || core.parameters.iter().zip(&sample.buffers);
    let (kernel, lengths, plan, size) = match &core.work {
        Work::Program { kernel, .. } => {
            let open = buffers().filter(|(parameter, _)| parameter.count == 0);
            let longest = open.map(|(parameter, start)| start.given / parameter.size).max().unwrap_or(0);
            let times = if grown { (most as usize).div_ceil(longest.max(1)).max(1) } else { 1 };
            let length = |(parameter, start): (&Parameter, &Start)| match parameter.count {
                0 => start.given.saturating_mul(times).min(most as usize * parameter.size),
                _ => start.given,
            };
            (Some(kernel), buffers().map(length).collect::<Vec<usize>>(), None, 0)
        }
        Work::Op { .. } => {
            let size = if grown { most } else { most.min(sample.size) };
            let plan = core.plan(backend, size).map_err(|error| error.to_string())?;
            (None, plan.bound().map(|buffer| buffer.bytes).collect(), Some(plan), size)
        }
    };
    if lengths.iter().fold(0, |all: usize, &length| all.saturating_add(length)) > MOST_BYTES {
        return Err(format!("its buffers take more than {} MiB, too much to verify", MOST_BYTES >> 20));
    }
    let memory: Vec<Vec<u8>> = buffers().zip(&lengths).map(|(buffer, &bytes)| fill(buffer, bytes)).collect();
    if let Some(kernel) = kernel {
        config.grid_override = smaller_grid(kernel, &memory, &core.config, most)?;
    }
    let bound = |position: usize| memory.get(position).map_or(0.into(), |bytes| bytes[..].into());
    let elements = core.elements(size, bound, &config);
    Ok(KnownResult { memory, config, elements, plan })
}

/// A grid of at most so many invocations, or of one workgroup, if a call on this memory has more.
fn smaller_grid(
    kernel: &KernelBody,
    memory: &[Vec<u8>],
    config: &DispatchConfig,
    most: u32,
) -> Result<Option<[u32; 3]>, String> {
    let overrides = Overrides { grid: None, ..config.overrides() };
    let bound: Vec<&[u8]> = memory.iter().map(Vec::as_slice).collect();
    let launch = Launch::from_bound(kernel, &bound, overrides).map_err(|faults| faults.to_string())?;
    let per_group: u64 = launch.workgroup.iter().map(|&axis| u64::from(axis)).product();
    let groups = |grid: [u32; 3]| grid.iter().fold(1u64, |all, &axis| all.saturating_mul(axis.into()));
    let wanted = (u64::from(most) / per_group).max(1);
    // A launch that covers its last workgroup only in part is no larger than its domain.
    if groups(launch.grid) <= u64::from(most).div_ceil(per_group).max(1) {
        return Ok(None);
    }
    let mut grid = launch.grid;
    while groups(grid) > wanted {
        let Some(largest) = grid.iter_mut().max() else { break };
        *largest = (*largest / 2).max(1);
    }
    Ok(Some(grid))
}

/// Runs a small call on copies, and gives what is in the buffers that it writes.
fn run(
    core: &Core,
    pipeline: &dyn CompiledPipeline,
    exhibit: &KnownResult,
    config: &DispatchConfig,
) -> Result<OutputBuffers, BackendError> {
    let mut memory = exhibit.memory.clone();
    quietly(|| pipeline.dispatch_bound(&mut bindings(core, &mut memory), config))?;
    let written = core.parameters.iter().zip(memory).filter(|(parameter, _)| parameter.access.is_output());
    Ok(written.map(|(_, bytes)| bytes).collect())
}

fn bindings<'m>(core: &Core, memory: &'m mut [Vec<u8>]) -> Vec<Binding<'m>> {
    let bind = |(parameter, bytes): (&Parameter, &'m mut Vec<u8>)| Binding::new(parameter.access, bytes);
    core.parameters.iter().zip(memory).map(bind).collect()
}

/// What the interpreter gives for a call of the sample in use, at the largest cut that it gets through in time.
fn judged(at: Pair<'_>) -> Result<Arc<Judged>, String> {
    let (lanes, used) = (lanes(at), at.core.evidence.used());
    let Some(sample) = used.sample else {
        return Err("no call that shows something has been seen".into());
    };
    if let Some(known) = used.judged.get(&lanes) {
        return known.clone();
    }
    let judged = ask_oracle(at, &sample, &CUTS).map(Arc::new);
    at.core.evidence.keep(&sample, lanes, judged.clone());
    judged
}

fn lanes(Pair { core, backend }: Pair<'_>) -> Lanes {
    let size = backend.profile().subgroup_size;
    let subgroups = match &core.work {
        Work::Program { kernel, .. } => kernel.needs.subgroups,
        Work::Op { .. } => true,
    };
    (subgroups && core.config.subgroup_size.is_none() && size > 0).then_some(size)
}

/// The largest of these cuts that the interpreter gets through in time, and what it gives; on generated data where the
/// sample's own shows nothing.
fn ask_oracle(at: Pair<'_>, sample: &Sample, cuts: &[u32]) -> Result<Judged, String> {
    let sampled = interpret(at, sample, cuts, Contents::Sampled)?;
    if shows_something(at.core, &sampled) {
        return Ok(sampled);
    }
    match interpret(at, sample, cuts, Contents::Generated) {
        Ok(generated) if shows_something(at.core, &generated) => Ok(generated),
        // Whoever leaves memory as it was is found out where there is some to fill.
        _ if at.core.parameters.iter().any(|parameter| parameter.access == Access::Output) => Ok(sampled),
        Ok(_) | Err(_) => Err("its results are what was there before, on all data that was tried".into()),
    }
}

/// Whether a backend that does nothing, or all zeros, would be found out.
fn shows_something(core: &Core, judged: &Judged) -> bool {
    let Ok(outputs) = &judged.outcome else { return true };
    let written = core.parameters.iter().zip(&judged.exhibit.memory);
    let mut written = written.filter(|(parameter, _)| parameter.access.is_output()).zip(outputs);
    written.any(|((parameter, before), after)| match parameter.access {
        Access::ReadWrite => before != after,
        Access::Read | Access::Uniform | Access::Workgroup | Access::Output => after.iter().any(|&b| b != 0),
    })
}

fn interpret(at: Pair<'_>, sample: &Sample, cuts: &[u32], contents: Contents) -> Result<Judged, String> {
    let mut failure = String::new();
    for &most in cuts {
        let exhibit = exhibit(at, sample, most, false, contents)?;
        let subgroup_size = exhibit.config.subgroup_size.or(lanes(at));
        let config = DispatchConfig { timeout: Some(ORACLE_LIMIT), subgroup_size, ..exhibit.config.clone() };
        let oracle = match &exhibit.plan {
            None => pipeline::compile(Arc::new(CpuRef), at.core.program(), &config),
            Some(plan) => plan.pipeline(Arc::new(CpuRef), &config),
        };
        let oracle = oracle.map_err(|error| error.to_string())?;
        match run(at.core, &*oracle, &exhibit, &config) {
            Ok(outputs) => return Ok(Judged { exhibit, outcome: Ok(outputs) }),
            Err(BackendError::Trapped { code, .. }) => return Ok(Judged { exhibit, outcome: Err(code) }),
            Err(error @ BackendError::Timeout { .. }) => failure = error.to_string(),
            Err(error) => return Err(format!("the interpreter could not run it: {error}")),
        }
    }
    Err(format!("the interpreter was too slow on {} elements: {failure}", cuts.last().unwrap_or(&0)))
}

/// The code that a small call runs on a backend: that of its calls, or a plan of its size.
fn code_for(at: Pair<'_>, exhibit: &KnownResult) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    match &exhibit.plan {
        None => code::base(at).map(|ready| ready.pipeline),
        Some(plan) => plan.pipeline(at.backend.live()?.driver, &at.core.config.code_policy()),
    }
}

fn compare(at: Pair<'_>, judged: &Judged, limit: Option<Duration>) -> Result<(), Finding> {
    let Pair { core, backend } = at;
    let Judged { exhibit, outcome } = judged;
    let pipeline = code_for(at, exhibit).map_err(failed)?;
    process_exit::rest();
    let found = run(core, &*pipeline, exhibit, &DispatchConfig { timeout: limit, ..exhibit.config.clone() });
    match (outcome, found) {
        (Ok(expected), Ok(found)) => {
            let programs = exhibit.plan.as_ref().map(Plan::programs);
            let programs = programs.unwrap_or_else(|| vec![core.program()]);
            let judge = Judge::new(backend.profile(), programs, &core.config);
            let difference = judge.difference(&core.outputs(), expected, &found);
            difference.map_or(Ok(()), |difference| Err(Finding::Wrong(difference)))
        }
        (Err(expected), Err(BackendError::Trapped { code, .. })) if code == *expected => Ok(()),
        (Err(code), Ok(_)) => {
            Err(Finding::Wrong(format!("it did not trap, the interpreter did with code {code}")))
        }
        (_, Err(error @ BackendError::Trapped { .. })) => Err(Finding::Wrong(error.to_string())),
        (_, Err(error)) => Err(failed(error)),
    }
}

/// Verifies the routine on a backend, and tells the router.
pub(crate) fn verify(core: &Arc<Core>, index: BackendIndex, limit: Duration) {
    core.evidence.renew();
    let outcome = within(core, index, limit, |at| {
        let judged = judged(at).map_err(Finding::Inconclusive)?;
        compare(at, &judged, Some(BACKEND_LIMIT))?;
        make_spot(at);
        timings(at, &judged).map_err(failed)
    });
    let now_ns = core.shared.now_ns();
    let rejection = match &outcome {
        Ok(timings) => return core.routes.verified(index, Ok(timings), now_ns),
        Err(finding) => finding.as_ref(),
    };
    let (routine, backend) = (core.name(), core.shared.router.id(index));
    tracing::info!(routine, backend, ?rejection, "the backend is not used for this");
    core.routes.verified(index, Err(rejection), now_ns);
}

/// Checks that a backend still gives what the oracle gives, and tells the router. The error says what it gave instead.
/// `newest`: on the newest call, for which the interpreter has to be asked first.
pub(crate) fn canary(
    core: &Arc<Core>,
    index: BackendIndex,
    newest: bool,
    limit: Duration,
) -> Result<(), String> {
    if newest {
        core.evidence.renew();
    }
    let began = Instant::now();
    let outcome = within(core, index, limit, |at| {
        let judged = judged(at).map_err(Finding::Inconclusive)?;
        compare(at, &judged, Some(BACKEND_LIMIT))
    });
    tell(core, index, outcome, began.elapsed())
}

/// Before a call returns that another backend may repeat: checks on a few elements that the backend still gives what the
/// oracle gave, if that takes no more than its share of the calls' time and what is left of this one's. Runs on the
/// caller's thread, because starting another takes longer than most checks. The error says what it gave instead.
pub(crate) fn spot_check(at: Pair<'_>, left: Option<Duration>, elapsed: Duration) -> Result<(), String> {
    let spot = at.side().spot.get();
    let Some(spot) = spot.filter(|spot| spot.is_due(nanoseconds(elapsed), left)) else { return Ok(()) };
    let began = Instant::now();
    let outcome = contain(|| compare(at, &spot.judged, left));
    let took = began.elapsed();
    spot.took(nanoseconds(took));
    match outcome.unwrap_or_else(|message| Err(Finding::Failed(message))) {
        Ok(()) => Ok(()),
        outcome => tell(at.core, BackendIndex(at.backend.position as u8), outcome, took),
    }
}

/// Makes the spot check of a backend that was just verified, if the interpreter is quick enough for it.
fn make_spot(at: Pair<'_>) {
    let Some(sample) = at.core.evidence.used().sample else { return };
    if let Ok(judged) = ask_oracle(at, &sample, &[SMALL_CUT]) {
        let began = Instant::now();
        if compare(at, &judged, Some(BACKEND_LIMIT)).is_ok() {
            at.side().spot.get_or_init(|| Spot::new(judged, nanoseconds(began.elapsed())));
        }
    }
}

/// Tells the router what a check came to. The error says what speaks against the backend.
fn tell(
    core: &Core,
    index: BackendIndex,
    outcome: Result<(), Finding>,
    took: Duration,
) -> Result<(), String> {
    // A check that was given no time says nothing.
    let told = match &outcome {
        Ok(()) | Err(Finding::Inconclusive(_)) => Ok(()),
        Err(finding) => Err(finding.as_ref()),
    };
    core.routes.canary(index, told, nanoseconds(took), core.shared.now_ns());
    match outcome {
        Err(Finding::Wrong(reason) | Finding::Failed(reason)) => Err(reason),
        Ok(()) | Err(Finding::Inconclusive(_)) => Ok(()),
    }
}

/// Runs a check on a thread of its own, which is left behind if the backend does not come back. A check that has less time
/// than a backend may take is inconclusive once that is over.
fn within<T: Send + 'static>(
    core: &Arc<Core>,
    index: BackendIndex,
    limit: Duration,
    check: impl FnOnce(Pair<'_>) -> Result<T, Finding> + Send + 'static,
) -> Result<T, Finding> {
    let (core, backend) = (core.clone(), core.shared.backends.get(index.index()).cloned());
    let Some(backend) = backend else {
        return Err(Finding::Failed("it is not part of the runtime".into()));
    };
    let check = {
        let backend = backend.clone();
        move || {
            let at = Pair { core: &core, backend: &backend };
            helper_trial::survives(at).map_err(failed)?;
            check(at)
        }
    };
    let checked = vyre_driver::within(&format!("verify-{}", backend.id), limit.min(BACKEND_LIMIT), check);
    checked.unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::Late if limit < BACKEND_LIMIT => {
                Finding::Inconclusive(format!("it was not checked within {limit:?}"))
            }
            Unfinished::Late => Finding::Failed(format!("it did not come back within {BACKEND_LIMIT:?}")),
            Unfinished::Panicked(message) => Finding::Failed(message),
            Unfinished::NeverBegun(_) => Finding::Inconclusive("there was no thread to check it on".into()),
        })
    })
}

/// How long the backend takes at three sizes, so far as the routine has sizes, without a deadline, which some backends pay
/// for. Nothing for a kernel that traps.
fn timings(at: Pair<'_>, judged: &Judged) -> Result<Vec<Timing>, BackendError> {
    let mut timings = Vec::new();
    let Some(sample) = at.core.evidence.used().sample.filter(|_| judged.outcome.is_ok()) else {
        return Ok(timings);
    };
    let of = |most, grown| exhibit(at, &sample, most, grown, Contents::Sampled);
    if let Ok(small) = of(SMALL_CUT, false)
        && small.elements < judged.exhibit.elements
    {
        timings.push(timing(at, &small)?);
    }
    let mut last = timing(at, &judged.exhibit)?;
    timings.push(last);
    for elements in [CUTS[0], LARGE_CUT] {
        let growth = u64::from(elements) / last.elements.max(1);
        if growth > 1
            && last.elapsed_ns.saturating_mul(growth) < nanoseconds(LARGE_LIMIT)
            && let Ok(large) = of(elements, true)
            && large.elements > last.elements
        {
            last = timing(at, &large)?;
            timings.push(last);
        }
    }
    Ok(timings)
}

fn timing(at: Pair<'_>, exhibit: &KnownResult) -> Result<Timing, BackendError> {
    let pipeline = code_for(at, exhibit)?;
    let mut memory = exhibit.memory.clone();
    let mut bindings = bindings(at.core, &mut memory);
    let mut least = u64::MAX;
    for round in 0..=TIMED_RUNS {
        process_exit::rest();
        let began = Instant::now();
        quietly(|| pipeline.dispatch_bound(&mut bindings, &exhibit.config))?;
        // The first run warms up. The calls go on meanwhile and only ever make it slower.
        least = if round == 0 { u64::MAX } else { least.min(nanoseconds(began.elapsed())) };
    }
    Ok(Timing { elements: exhibit.elements, elapsed_ns: least })
}
