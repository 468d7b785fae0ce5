//! Checks whether a backend gives the oracle's results for a routine, on little data, alongside
//! calls.
//!
//! **Data**: a sample of a call. Its memory is copied before the call runs, never used directly,
//! and cut to [`CUTS`] elements, or [`LARGE_CUT`] where it is only timed. A grid that is still
//! larger is overridden; an op is run at a smaller size. If the interpreter takes too long on a
//! cut, a smaller one is tried. **Evidence**: a sample that cannot show a difference, because it is
//! empty or its results equal the previous contents, is replaced by generated data of the same
//! lengths; so are the contents of resident buffers. Memory that a backend has to fill starts out
//! as garbage.
//!
//! **When**: [`verify`] before a backend other than the selected one first runs the routine;
//! [`canary`] repeatedly, each time on a newer call, to detect a backend that starts giving wrong
//! results; [`spot_check`], on a few elements, before a call returns that another backend may
//! repeat.
//!
//! A backend that does not return is abandoned on its thread. What could crash the process is tried
//! in a helper process first ([`helper_trial`]).

use crate::argument::Bound;
use crate::catalogue::Plan;
use crate::code;
use crate::helper_trial;
use crate::inputs::example_bytes;
use crate::known_results::{BufferSample, CallSample, KnownResult, Lanes, SmallCall, Spot};
use crate::parameter::Parameter;
use crate::routine_core::{Pair, RoutineCore, Work};
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

/// Maximum elements per buffer, and invocations; smaller where the interpreter takes too long. At
/// 0.18 µs for a round of a short loop, 4,096 invocations can have 2,700 rounds each within
/// [`ORACLE_LIMIT`], 16 invocations 690,000.
const CUTS: [u32; 3] = [4096, 256, 16];
/// Further sizes at which a verified backend is timed, so that the router can separate fixed from
/// growing cost: 64 times smaller and 16 times larger than the largest cut.
const SMALL_CUT: u32 = 64;
const LARGE_CUT: u32 = 65_536;
/// The large size is skipped if it would take longer than this, so that its six runs
/// add at most 50 ms to a verification.
const LARGE_LIMIT: Duration = Duration::from_millis(8);
/// Time limit for the interpreter on one cut; all cuts together take at most 6 s of the background.
const ORACLE_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for a backend to compile and run one check: half of what the background
/// thread allows a job to take.
const BACKEND_LIMIT: Duration = Duration::from_secs(30);
/// Routines whose buffers, after cutting, take more than this are not verified: it bounds what the
/// copies for the interpreter and the backend occupy. Chosen, not measured.
const MOST_BYTES: usize = 256 << 20;
/// Timed runs at each size, of which the fastest counts: a verified backend is only estimated from
/// them, and its first calls replace the estimate.
const TIMED_RUNS: usize = 5;
/// Initial contents of memory that a backend has to fill.
const GARBAGE: u8 = 0xA5;

fn failed(error: BackendError) -> Rejection {
    Rejection::Failed(error.to_string())
}

/// Keeps a sample of a call that is about to run, to verify on. A call over no elements shows
/// nothing.
#[cold]
pub(crate) fn sample(core: &RoutineCore, size: u32, elements: u64, memory: &[Bound<'_>]) {
    if elements > 0 {
        core.evidence.offer(sample_of(core, size, memory));
    }
}

fn sample_of(core: &RoutineCore, size: u32, memory: &[Bound<'_>]) -> CallSample {
    let most = CUTS[0] as usize;
    let start = |(parameter, memory): (&Parameter, &Bound<'_>)| {
        let given = memory.len();
        let length = if parameter.count > 0 { given } else { given.min(most * parameter.size) };
        let shown = memory.bytes().filter(|_| parameter.access.is_input() && length <= MOST_BYTES);
        BufferSample { bytes: shown.map_or(Vec::new(), |bytes| bytes[..length].to_vec()), given }
    };
    CallSample { size, buffers: core.parameters.iter().zip(memory).map(start).collect() }
}

/// Contents of the buffers of a small call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// The contents of the sampled call.
    Sampled,
    /// Numbers of all kinds; single values are kept, since most are sizes.
    Generated,
}

/// A call like the sample, over at most `most` elements and invocations; with `grown`, over that
/// many, for timing.
fn small_call(
    Pair { core, backend }: Pair<'_>,
    sample: &CallSample,
    most: u32,
    grown: bool,
    contents: Contents,
) -> Result<SmallCall, String> {
    let mut config = DispatchConfig { timeout: None, ..core.config.clone() };
    let fill = |(parameter, start): (&Parameter, &BufferSample), bytes: usize| {
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
            let length = |(parameter, start): (&Parameter, &BufferSample)| match parameter.count {
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
    Ok(SmallCall { memory, config, elements, plan })
}

/// A grid of at most `most` invocations, or of one workgroup; `None` if a call on this memory has
/// no more.
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

/// Runs a small call on copies, and returns the buffers that it writes.
fn run(
    core: &RoutineCore,
    pipeline: &dyn CompiledPipeline,
    small_call: &SmallCall,
    config: &DispatchConfig,
) -> Result<OutputBuffers, BackendError> {
    let mut memory = small_call.memory.clone();
    quietly(|| pipeline.dispatch_bound(&mut bindings(core, &mut memory), config))?;
    let written = core.parameters.iter().zip(memory).filter(|(parameter, _)| parameter.access.is_output());
    Ok(written.map(|(_, bytes)| bytes).collect())
}

fn bindings<'m>(core: &RoutineCore, memory: &'m mut [Vec<u8>]) -> Vec<Binding<'m>> {
    let bind = |(parameter, bytes): (&Parameter, &'m mut Vec<u8>)| Binding::new(parameter.access, bytes);
    core.parameters.iter().zip(memory).map(bind).collect()
}

/// The interpreter's result for a call of the sample in use, at the largest cut that finishes in
/// time.
fn known_result(at: Pair<'_>) -> Result<Arc<KnownResult>, String> {
    let (lanes, used) = (lanes(at), at.core.evidence.used());
    let Some(sample) = used.sample else {
        return Err("no call so far has changed its outputs".into());
    };
    if let Some(known) = used.known.get(&lanes) {
        return known.clone();
    }
    let known = ask_oracle(at, &sample, &CUTS).map(Arc::new);
    at.core.evidence.keep(&sample, lanes, known.clone());
    known
}

fn lanes(Pair { core, backend }: Pair<'_>) -> Lanes {
    let size = backend.profile().subgroup_size;
    let subgroups = match &core.work {
        Work::Program { kernel, .. } => kernel.needs.subgroups,
        Work::Op { .. } => true,
    };
    (subgroups && core.config.subgroup_size.is_none() && size > 0).then_some(size)
}

/// The largest of these cuts that the interpreter finishes in time, with its result; on generated
/// data if the sample's own shows nothing.
fn ask_oracle(at: Pair<'_>, sample: &CallSample, cuts: &[u32]) -> Result<KnownResult, String> {
    let sampled = interpret(at, sample, cuts, Contents::Sampled)?;
    if shows_something(at.core, &sampled) {
        return Ok(sampled);
    }
    match interpret(at, sample, cuts, Contents::Generated) {
        Ok(generated) if shows_something(at.core, &generated) => Ok(generated),
        // A backend that leaves memory unchanged is detected where there is an output to fill.
        _ if at.core.parameters.iter().any(|parameter| parameter.access == Access::Output) => Ok(sampled),
        Ok(_) | Err(_) => Err("it left its outputs unchanged on all data that was tried".into()),
    }
}

/// Whether a backend that does nothing, or writes all zeros, would be detected.
fn shows_something(core: &RoutineCore, known: &KnownResult) -> bool {
    let Ok(outputs) = &known.outcome else { return true };
    let written = core.parameters.iter().zip(&known.small_call.memory);
    let mut written = written.filter(|(parameter, _)| parameter.access.is_output()).zip(outputs);
    written.any(|((parameter, before), after)| match parameter.access {
        Access::ReadWrite => before != after,
        Access::Read | Access::Uniform | Access::Workgroup | Access::Output => after.iter().any(|&b| b != 0),
    })
}

fn interpret(
    at: Pair<'_>,
    sample: &CallSample,
    cuts: &[u32],
    contents: Contents,
) -> Result<KnownResult, String> {
    let mut failure = String::new();
    for &most in cuts {
        let small_call = small_call(at, sample, most, false, contents)?;
        let subgroup_size = small_call.config.subgroup_size.or(lanes(at));
        let config =
            DispatchConfig { timeout: Some(ORACLE_LIMIT), subgroup_size, ..small_call.config.clone() };
        let oracle = match &small_call.plan {
            None => pipeline::compile(Arc::new(CpuRef), at.core.program(), &config),
            Some(plan) => plan.pipeline(Arc::new(CpuRef), &config),
        };
        let oracle = oracle.map_err(|error| error.to_string())?;
        match run(at.core, &*oracle, &small_call, &config) {
            Ok(outputs) => return Ok(KnownResult { small_call, outcome: Ok(outputs) }),
            Err(BackendError::Trapped { code, .. }) => {
                return Ok(KnownResult { small_call, outcome: Err(code) });
            }
            Err(error @ BackendError::Timeout { .. }) => failure = error.to_string(),
            Err(error) => return Err(format!("the interpreter could not run it: {error}")),
        }
    }
    Err(format!("the interpreter was too slow on {} elements: {failure}", cuts.last().unwrap_or(&0)))
}

/// The code that a small call runs on a backend: the base code, or a plan of its size.
fn code_for(at: Pair<'_>, small_call: &SmallCall) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    match &small_call.plan {
        None => code::base(at).map(|ready| ready.pipeline),
        Some(plan) => plan.pipeline(at.backend.live()?.driver, &at.core.config.code_policy()),
    }
}

fn compare(at: Pair<'_>, known: &KnownResult, limit: Option<Duration>) -> Result<(), Rejection> {
    let Pair { core, backend } = at;
    let KnownResult { small_call, outcome } = known;
    let pipeline = code_for(at, small_call).map_err(failed)?;
    process_exit::rest();
    let found =
        run(core, &*pipeline, small_call, &DispatchConfig { timeout: limit, ..small_call.config.clone() });
    match (outcome, found) {
        (Ok(expected), Ok(found)) => {
            let programs = small_call.plan.as_ref().map(Plan::programs);
            let programs = programs.unwrap_or_else(|| vec![core.program()]);
            let judge = Judge::new(backend.profile(), programs, &core.config);
            let difference = judge.difference(&core.outputs(), expected, &found);
            difference.map_or(Ok(()), |difference| Err(Rejection::Wrong(difference)))
        }
        (Err(expected), Err(BackendError::Trapped { code, .. })) if code == *expected => Ok(()),
        (Err(code), Ok(_)) => {
            Err(Rejection::Wrong(format!("it did not trap, the interpreter did with code {code}")))
        }
        (_, Err(error @ BackendError::Trapped { .. })) => Err(Rejection::Wrong(error.to_string())),
        (_, Err(error)) => Err(failed(error)),
    }
}

/// Verifies the routine on a backend and reports the outcome to the router, unless that has been
/// done by the time it is this caller's turn. If the limit is shorter than the verification, the
/// caller continues without an outcome, and the verification goes on for later ones.
pub(crate) fn verify(core: &Arc<RoutineCore>, index: BackendIndex, limit: Duration) {
    let Some(backend) = core.shared.backends.get(index.index()) else { return };
    let Some(turn) = core.state(backend).verifying.take(limit.min(BACKEND_LIMIT)) else {
        if limit >= BACKEND_LIMIT {
            report(core, index, &Err(Rejection::Failed("an earlier check of it has not returned".into())));
        }
        return;
    };
    if !core.routes.lacks_verification(index, core.shared.now_ns()) {
        return;
    }
    core.evidence.renew();
    let began = Instant::now();
    let outcome = within(core, index, limit, move |at| {
        let _turn = turn;
        let outcome = verified(at);
        // By then a caller that waited this long has reported that it does not return.
        if began.elapsed() < BACKEND_LIMIT {
            report(at.core, index, &outcome);
        }
        Ok(())
    });
    if let Err(rejection) = outcome
        && (limit >= BACKEND_LIMIT || !matches!(rejection, Rejection::Inconclusive(_)))
    {
        report(core, index, &Err(rejection));
    }
}

fn verified(at: Pair<'_>) -> Result<Vec<Timing>, Rejection> {
    helper_trial::survives(at).map_err(failed)?;
    let known = known_result(at).map_err(Rejection::Inconclusive)?;
    compare(at, &known, Some(BACKEND_LIMIT))?;
    make_spot(at);
    timings(at, &known).map_err(failed)
}

/// Reports the outcome of a verification to the router.
fn report(core: &RoutineCore, index: BackendIndex, outcome: &Result<Vec<Timing>, Rejection>) {
    let outcome = outcome.as_ref().map(Vec::as_slice);
    if let Err(rejection) = outcome {
        let (routine, backend) = (core.name(), core.shared.router.id(index));
        tracing::info!(routine, backend, ?rejection, "the backend is not used for this");
    }
    core.routes.verified(index, outcome, core.shared.now_ns());
}

/// Checks that a backend still gives the oracle's results, and reports the outcome to the router.
/// The error describes the difference. With `newest`, checks on the newest call, which the
/// interpreter has to run first.
pub(crate) fn canary(
    core: &Arc<RoutineCore>,
    index: BackendIndex,
    newest: bool,
    limit: Duration,
) -> Result<(), String> {
    if newest {
        core.evidence.renew();
    }
    let began = Instant::now();
    let outcome = within(core, index, limit, |at| {
        helper_trial::survives(at).map_err(failed)?;
        let known = known_result(at).map_err(Rejection::Inconclusive)?;
        compare(at, &known, Some(BACKEND_LIMIT))
    });
    tell(core, index, outcome, began.elapsed())
}

/// Spot check, before a call returns that another backend may repeat: compares a few elements with
/// the oracle's results, if that fits in the check's share of the calls' time and in the time left
/// to this one. Runs on the caller's thread, because starting another takes longer than most
/// checks. The error describes the difference.
pub(crate) fn spot_check(at: Pair<'_>, left: Option<Duration>, elapsed: Duration) -> Result<(), String> {
    let spot = at.state().spot.get();
    let Some(spot) = spot.filter(|spot| spot.is_due(nanoseconds(elapsed), left)) else { return Ok(()) };
    let began = Instant::now();
    let outcome = contain(|| compare(at, &spot.known, left));
    let took = began.elapsed();
    spot.took(nanoseconds(took));
    match outcome.unwrap_or_else(|message| Err(Rejection::Failed(message))) {
        Ok(()) => Ok(()),
        outcome => tell(at.core, BackendIndex(at.backend.position as u8), outcome, took),
    }
}

/// Creates the spot check of a backend that was just verified, if the interpreter is fast enough.
fn make_spot(at: Pair<'_>) {
    let Some(sample) = at.core.evidence.used().sample else { return };
    if let Ok(known) = ask_oracle(at, &sample, &[SMALL_CUT]) {
        let began = Instant::now();
        if compare(at, &known, Some(BACKEND_LIMIT)).is_ok() {
            at.state().spot.get_or_init(|| Spot::new(known, nanoseconds(began.elapsed())));
        }
    }
}

/// Reports the outcome of a check to the router. The error gives the evidence against the backend.
fn tell(
    core: &RoutineCore,
    index: BackendIndex,
    outcome: Result<(), Rejection>,
    took: Duration,
) -> Result<(), String> {
    // A check that ran out of time proves nothing.
    let verdict = match &outcome {
        Ok(()) | Err(Rejection::Inconclusive(_)) => Ok(()),
        Err(rejection) => Err(rejection),
    };
    core.routes.canary(index, verdict, nanoseconds(took), core.shared.now_ns());
    match outcome {
        Err(Rejection::Wrong(reason) | Rejection::Failed(reason)) => Err(reason),
        Ok(()) | Err(Rejection::Inconclusive(_)) => Ok(()),
    }
}

/// Runs a check on a separate thread, which is abandoned if the backend does not return. A check
/// with less time than a backend is allowed is inconclusive once that time is up.
fn within<T: Send + 'static>(
    core: &Arc<RoutineCore>,
    index: BackendIndex,
    limit: Duration,
    check: impl FnOnce(Pair<'_>) -> Result<T, Rejection> + Send + 'static,
) -> Result<T, Rejection> {
    let (core, backend) = (core.clone(), core.shared.backends.get(index.index()).cloned());
    let Some(backend) = backend else {
        return Err(Rejection::Failed("it is not part of the runtime".into()));
    };
    let name = format!("verify-{}", backend.id);
    let checked = vyre_driver::within(&name, limit.min(BACKEND_LIMIT), move || {
        check(Pair { core: &core, backend: &backend })
    });
    checked.unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::Late if limit < BACKEND_LIMIT => {
                Rejection::Inconclusive(format!("it was not checked within {limit:?}"))
            }
            Unfinished::Late => Rejection::Failed(format!("it did not return within {BACKEND_LIMIT:?}")),
            Unfinished::Panicked(message) => Rejection::Failed(message),
            Unfinished::NeverBegun(_) => {
                Rejection::Inconclusive("no thread could be started to check it".into())
            }
        })
    })
}

/// Times the backend at up to four sizes, as far as the routine has sizes, without a deadline,
/// which would slow some backends down. Empty for a kernel that traps.
fn timings(at: Pair<'_>, known: &KnownResult) -> Result<Vec<Timing>, BackendError> {
    let mut timings = Vec::new();
    let Some(sample) = at.core.evidence.used().sample.filter(|_| known.outcome.is_ok()) else {
        return Ok(timings);
    };
    let of = |most, grown| small_call(at, &sample, most, grown, Contents::Sampled);
    if let Ok(small) = of(SMALL_CUT, false)
        && small.elements < known.small_call.elements
    {
        timings.push(timing(at, &small)?);
    }
    let mut last = timing(at, &known.small_call)?;
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

fn timing(at: Pair<'_>, small_call: &SmallCall) -> Result<Timing, BackendError> {
    let pipeline = code_for(at, small_call)?;
    let mut memory = small_call.memory.clone();
    let mut bindings = bindings(at.core, &mut memory);
    let mut least = u64::MAX;
    for round in 0..=TIMED_RUNS {
        process_exit::rest();
        let began = Instant::now();
        quietly(|| pipeline.dispatch_bound(&mut bindings, &small_call.config))?;
        // The first run warms up. Concurrent calls only ever make a run slower, so the minimum
        // counts.
        least = if round == 0 { u64::MAX } else { least.min(nanoseconds(began.elapsed())) };
    }
    Ok(Timing { elements: small_call.elements, elapsed_ns: least })
}
