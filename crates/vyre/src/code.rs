//! The code of a routine on each backend: compiled first, recompiled when calls are hot,
//! specialised to uniforms, and tuned per size.
//!
//! **First** comes the cheap schedule, unless earlier runs show that the routine is hot. **Hot**:
//! once its calls have taken [`HOT_NS`] in total, or are long, it is recompiled in the background
//! with the expensive schedule. The two are compared in alternating pairs on copies of one call's
//! memory, and the new code is swapped in only if it gives the same results and wins. **Special**:
//! a hot routine whose uniforms have stayed the same is compiled with their values as literals,
//! compared the same way, and used by calls with those values; every call is checked. **Tuned**:
//! for a shape-free program, each size can have its own shape, from the tuner's table. With the
//! tuner on, a size missing from the table is tuned in the background, and the shape in use is
//! resized now and then if its throughput suggests it; each change has to win a duel. The programs
//! of an op's plan are tuned like others, each at its size in the plan.
//!
//! All of this changes speed, never results. A tuned shape that fails later is quarantined in the
//! table, with the reason.

use crate::argument::Bound;
use crate::backend_state::ReadyCode;
use crate::background::{Copies, Purpose};
use crate::catalogue::{Plan, Step};
use crate::inputs::example_bytes;
use crate::meter::StripeCounts;
use crate::routine_core::{Pair, RoutineCore, Work};
use crate::specialised::specialise;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use vyre_driver::tuner::{
    Alternative, ContestInputs, Duel, Mode, PipelineContest, ResizeOutcome, Shape, TuneLimits, TuneRequest,
    Tuner, TunerFeedback, TunerProgramKey, challenge, tune, tuning_key,
};
use vyre_driver::{BackendError, CompiledPipeline, DispatchConfig, Schedule, within};
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchArgument;

/// A routine is hot once its calls have taken this long in total: twenty times what compiling the
/// median kernel takes on `cpu` (0.97 ms), and soon enough for a program that runs for a second.
pub(crate) const HOT_NS: u64 = 20_000_000;
/// Time that a thread's calls must accumulate before the routine's total is added up: the check of
/// one thread's calls is then at most 5% of that late.
const WORTH_ADDING_NS: u64 = HOT_NS / 20;
/// Factor by which the time needed for the next try grows after each lost comparison: 20 ms, 0.3 s
/// and 5 s, so that the tries are a falling share of the calls.
const NEXT_TRY: u64 = 16;
const MOST_TRIES: u32 = 3;
/// Maximum sizes tuned per routine: each keeps its code. Chosen, not measured; sizes below 2^32
/// fall into as many buckets.
const MOST_SIZES: usize = 32;
/// Limits on comparing and tuning alongside calls: half the time and memory that `vyre tune` takes.
const LIMITS: TuneLimits = TuneLimits { wall: Duration::from_secs(5), memory_bytes: 512 << 20 };
/// Rest after a background run while calls are made, as a multiple of the run's time, so that calls
/// have seven eighths of the machine; and its maximum, so that a long run does not stop the work.
const REST: u32 = 7;
const LONGEST_REST: Duration = Duration::from_millis(100);

/// The calls that need code: one, or those of a batch.
pub(crate) struct CodeRequest<'a, 'i, 'm> {
    /// The routine and the backend.
    pub(crate) at: Pair<'a>,
    pub(crate) config: &'a DispatchConfig,
    pub(crate) elements: u64,
    /// The caller's size, for an op.
    pub(crate) size: u32,
    pub(crate) items: &'a [&'i mut [Bound<'m>]],
    pub(crate) mode: Mode,
}

/// Observations of a call.
pub(crate) struct Observed {
    pub(crate) elapsed_ns: u64,
    /// How long the device was idle before the call.
    pub(crate) idle_ns: u64,
    /// Counts up to and including the call.
    pub(crate) counted: StripeCounts,
    /// The shape that it ran at, if not the program's own.
    pub(crate) tuned: Option<Shape>,
}

/// The code for a call on a backend, compiled now if necessary.
#[inline(always)]
pub(crate) fn code(request: &CodeRequest<'_, '_, '_>) -> Result<ReadyCode, BackendError> {
    let (side, instance) = (request.at.state(), request.at.backend.instance());
    let known = match is_sized(request) {
        true => side.of_size(instance, request.elements, request.mode, request.items),
        false => side.untuned(instance, request.items),
    };
    known.map_or_else(|| new_code(request), Ok)
}

/// Whether calls of another size can run other code.
#[inline]
fn is_sized(request: &CodeRequest<'_, '_, '_>) -> bool {
    let (core, config) = (request.at.core, request.config);
    match &core.work {
        Work::Program { kernel, .. } => {
            // The tuner must not change a shape set by the configuration, and a batch has many
            // sizes.
            let fixed =
                core.config.workgroup_override.is_some() || core.config.elements_per_invocation.is_some();
            // Only calls over the program's own domain.
            let own = config.grid_override.is_none() && config.domain_override.is_none();
            kernel.shape_free && !fixed && own && request.items.len() == 1
        }
        Work::Op { .. } => true,
    }
}

#[cold]
fn new_code(request: &CodeRequest<'_, '_, '_>) -> Result<ReadyCode, BackendError> {
    match request.at.core.work {
        Work::Program { .. } => settle_size(request)?.map_or_else(|| base(request.at), Ok),
        Work::Op { .. } => new_plan(request),
    }
}

/// The base code of a program on a backend, or its replacement; compiled now if there is none.
pub(crate) fn base(at: Pair<'_>) -> Result<ReadyCode, BackendError> {
    if let Some(base) = at.state().base(at.backend.instance()) {
        return Ok(base);
    }
    let mut policy = at.core.config.code_policy();
    policy.schedule = policy.schedule.or_else(|| Some(first_schedule(at.core)));
    let ready = at.compile(at.core.program(), &policy)?;
    at.state().set_base(ready.clone());
    Ok(ready)
}

/// Cheap, unless the routine is known to be hot or its code cannot change later.
fn first_schedule(core: &RoutineCore) -> Schedule {
    let learns = core.shared.learns() && core.shared.recompiles;
    if !learns || heat(core) >= HOT_NS { Schedule::Expensive } else { Schedule::Cheap }
}

/// Total time of the hottest region's calls; `u64::MAX` if they are long.
fn heat(core: &RoutineCore) -> u64 {
    let hints = &core.shared.hints;
    let heat = |region: &str| if hints.is_hot(region) { u64::MAX } else { total(core, region) };
    core.meters.regions().map(heat).max().unwrap_or(0)
}

fn total(core: &RoutineCore, region: &str) -> u64 {
    core.shared.hints.record_for(region).map_or(0, |record| record.kernel_ns_total)
}

/// The policy for tuned code, which serves frequent calls.
fn tuned_policy(config: &DispatchConfig) -> DispatchConfig {
    let policy = config.code_policy();
    DispatchConfig { schedule: policy.schedule.or(Some(Schedule::Expensive)), ..policy }
}

/// Looks up the tuner's shape for a new size, and requests tuning if there is none.
fn settle_size(request: &CodeRequest<'_, '_, '_>) -> Result<Option<ReadyCode>, BackendError> {
    let CodeRequest { at, elements, mode, .. } = *request;
    let (true, Some(tuner), Ok(live)) = (is_sized(request), at.backend.tuner(), at.backend.live()) else {
        return Ok(None);
    };
    let instance = live.instance;
    if at.state().other_sizes(instance, elements) >= MOST_SIZES {
        return Ok(None);
    }
    let Some((key, domain)) = size_key(request) else { return Ok(None) };
    let default = Shape::of(at.core.kernel(), &at.core.config);
    let shape = tuner.shape_for(&key, default, |shape| shape.refusal(at.backend.profile(), domain));
    let mut code = None;
    if shape != default {
        let policy = tuned_policy(&shape.configure(&at.core.config));
        match compile_in_time(at, policy, request.config.timeout) {
            Ok(ready) => code = Some(ReadyCode { tuned: Some(shape), ..ready }),
            // The code is ready when the next call asks for it.
            Err(late @ BackendError::Timeout { .. }) => return Err(late),
            Err(error) => tuner.quarantine(&key, shape, &error.to_string()),
        }
    }
    at.state().set_size(instance, elements, code.clone(), mode);
    if mode == Mode::On
        && !tuner.has_decided(&key)
        && at.core.shared.learns()
        && let Some(copies) = copies(request)
    {
        later(at, move |at| {
            if tuned(at, at.core.program(), &copies.inputs, &format!("{elements} elements")) {
                at.state().forget_size(elements);
            }
        });
    }
    Ok(code)
}

/// Compiles the program for a backend, on a separate thread if the time is limited and a driver is
/// involved.
fn compile_in_time(
    at: Pair<'_>,
    policy: DispatchConfig,
    limit: Option<Duration>,
) -> Result<ReadyCode, BackendError> {
    let Some(limit) = limit.filter(|_| at.backend.is_driven) else {
        return at.compile(at.core.program(), &policy);
    };
    let (core, backend) = (at.core.clone(), at.backend.clone());
    let made = within("tuned", limit, move || {
        Pair { core: &core, backend: &backend }.compile(core.program(), &policy)
    });
    made.unwrap_or_else(|unfinished| Err(unfinished.of_backend(at.backend.id, limit)))
}

/// The tuner's key for a call, and its domain; `None` if the tuner would run the call over another
/// size.
fn size_key(request: &CodeRequest<'_, '_, '_>) -> Option<(TunerProgramKey, [u32; 3])> {
    let core = request.at.core;
    let inputs: Vec<LaunchArgument<'_>> =
        core.inputs(request.items.first()?).map(|(_, memory)| memory.argument()).collect();
    let (key, domain) = tuning_key(core.program(), core.kernel(), &inputs, &core.config).ok()?;
    let elements = domain.iter().fold(1u64, |all, &axis| all.saturating_mul(axis.into()));
    (elements == request.elements).then_some((key, domain))
}

/// Copies of a call's inputs, if they are in host memory and the limit on copies leaves room for
/// them.
fn copies(request: &CodeRequest<'_, '_, '_>) -> Option<Copies> {
    let ([item], core) = (request.items, request.at.core) else { return None };
    let bytes = core.inputs(item).map(|(_, memory)| memory.len()).sum();
    let copy = || core.inputs(item).map(|(_, memory)| memory.bytes().map(<[u8]>::to_vec)).collect();
    core.shared.background.keep(item.iter().map(Bound::len).collect(), bytes, copy)
}

/// Takes a failed tuned shape out of use; the next call gets the next best.
#[cold]
pub(crate) fn drop_tuned(request: &CodeRequest<'_, '_, '_>, shape: Shape, error: &BackendError) {
    let at = request.at;
    if let (Work::Program { .. }, Some(tuner)) = (&at.core.work, at.backend.tuner())
        && let Some((key, _)) = size_key(request)
    {
        tuner.quarantine(&key, shape, &error.to_string());
    }
    at.note(&format!(": shape {shape} is no longer used: {error}"));
    at.state().forget_size(request.elements);
}

/// The plan for a size, with its programs at their tuned shapes; requests tuning if it is on.
fn new_plan(request: &CodeRequest<'_, '_, '_>) -> Result<ReadyCode, BackendError> {
    let CodeRequest { at, elements, mode, .. } = *request;
    let live = at.backend.live()?;
    let plan = at.core.plan(at.backend, request.size)?;
    let config = |step: &Step| match tuned_step(at, &plan, step) {
        Some((_, shape)) => tuned_policy(&shape.configure(&at.core.config)),
        None => at.core.config.code_policy(),
    };
    let made = plan.compile_with(live.driver, config);
    let made = made.inspect_err(|error| at.look_for_loss(error, live.instance))?;
    let code = ReadyCode { instance: live.instance, pipeline: Arc::new(made), schedule: None, tuned: None };
    at.state().set_plan(elements, code.clone(), mode);
    if mode == Mode::On && at.core.shared.learns() {
        later(at, move |at| tune_plan(at, &plan, elements));
    }
    Ok(code)
}

/// The tuner's key and shape for a step whose shape is open.
fn tuned_step(at: Pair<'_>, plan: &Plan, step: &Step) -> Option<(TunerProgramKey, Shape)> {
    let (kernel, tuner) = (step.program.validate().ok()?, at.backend.tuner()?);
    if !kernel.shape_free || step.grid.is_some() {
        return None;
    }
    let lengths = plan.input_lengths(step, &kernel);
    let (key, domain) = tuning_key(&step.program, &kernel, &lengths, &at.core.config).ok()?;
    let default = Shape::of(&kernel, &DispatchConfig::default());
    let shape = tuner.shape_for(&key, default, |shape| shape.refusal(at.backend.profile(), domain));
    Some((key, shape))
}

/// Tunes each program of a plan once, on generated data; the next call of that size uses the
/// result.
fn tune_plan(at: Pair<'_>, plan: &Plan, elements: u64) {
    let mut changed = false;
    let mut seen: HashMap<String, ()> = HashMap::new();
    for step in &plan.steps {
        let (Some(tuner), Some((key, _))) = (at.backend.tuner(), tuned_step(at, plan, step)) else {
            continue;
        };
        if tuner.has_decided(&key) || seen.insert(key.as_str().to_owned(), ()).is_some() {
            continue;
        }
        let Ok(kernel) = step.program.validate() else { continue };
        let given = kernel.bound_buffers().into_iter().map(|id| &kernel.buffer(id).decl);
        let given = given.filter(|decl| decl.access.is_input());
        let lengths = plan.input_lengths(step, &kernel);
        let inputs: Vec<Vec<u8>> = given
            .zip(lengths)
            .map(|(decl, bytes)| example_bytes(decl.element, bytes / decl.element.size(), &decl.name))
            .collect();
        let what = format!("{} in {elements} elements", kernel.display_name());
        changed |= tuned(at, &step.program, &inputs, &what);
    }
    if changed {
        at.state().forget_size(elements);
    }
}

/// Tunes a program on a backend. Returns whether a better shape was found.
fn tuned(at: Pair<'_>, program: &Program, inputs: &[Vec<u8>], size: &str) -> bool {
    let (Some(tuner), Ok(live)) = (at.backend.tuner(), at.backend.live()) else { return false };
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let request = TuneRequest {
        backend: live.driver,
        program,
        config: &tuned_policy(&at.core.config),
        inputs: &borrowed,
        limits: LIMITS,
        pause: Some(&|took| pause(at.core, took)),
    };
    let (found, reason) = match tune(tuner, &request, &mut |_| {}).inspect(|_| keep(tuner)) {
        Ok(report) => (report.winner > 0, report.reason),
        Err(error) => (false, format!("not tuned: {error}")),
    };
    at.note(&format!(" at {size}: {reason}"));
    found
}

/// Saves the tuner's results for the next process.
fn keep(tuner: &Tuner) {
    if let Err(error) = tuner.persist() {
        tracing::warn!(%error, "the result of tuning is not saved");
    }
}

/// Periodic check whether to try other code.
#[cold]
pub(crate) fn consider(request: &CodeRequest<'_, '_, '_>, seen: &Observed) {
    let RoutineCore { work, shared, .. } = &**request.at.core;
    // Only programs over their own domain are compared.
    let compared = matches!(work, Work::Program { .. }) && request.config.domain_override.is_none();
    if !compared || !shared.learns() {
        return;
    }
    if shared.recompiles {
        // Adding up all threads' counts takes as long as several calls, so it waits until there is
        // something to add.
        if seen.counted.nanoseconds >= WORTH_ADDING_NS {
            consider_heat(request);
        }
        consider_values(request);
    }
    consider_size(request, seen);
}

/// Requests a recompilation if the routine has become hot on the backend.
fn consider_heat(request: &CodeRequest<'_, '_, '_>) {
    let Pair { core, backend } = request.at;
    let side = request.at.state();
    let tried = side.tries.load(Relaxed);
    let cheap = side.base(backend.instance()).is_some_and(|base| base.schedule == Some(Schedule::Cheap));
    if tried >= MOST_TRIES || !cheap || core.config.schedule.is_some() {
        return;
    }
    core.meters.drain(&core.shared.hints);
    let needed = HOT_NS.saturating_mul(NEXT_TRY.saturating_pow(tried));
    let all = || core.meters.regions().map(|region| total(core, region)).max().unwrap_or(0);
    if heat(core) < needed || (tried > 0 && all() < needed) {
        return;
    }
    if side.tries.compare_exchange(tried, tried + 1, Relaxed, Relaxed).is_ok()
        && let Some(copies) = copies(request)
    {
        later(request.at, move |at| {
            if let Some(new) = challenged(at, at.core.program(), &copies, "the expensive schedule")
                // The code is useless if the device was lost meanwhile.
                && at.state().base(new.instance).is_some()
            {
                at.state().set_base(new);
            }
        });
    }
}

/// Requests special code if the routine is hot and its uniforms have stayed the same.
fn consider_values(request: &CodeRequest<'_, '_, '_>) {
    let (core, uniforms) = (request.at.core, &request.at.state().uniforms);
    let Some(item) = request.items.first().filter(|item| uniforms.look(&core.parameters, item)) else {
        return;
    };
    core.meters.drain(&core.shared.hints);
    if item.is_empty() || heat(core) < HOT_NS {
        return;
    }
    if let Some(values) = uniforms.take()
        && let Some(special) = specialise(core.program(), &core.parameters, &values)
        && let Some(copies) = copies(request)
    {
        later(request.at, move |at| {
            let what = "code for uniforms that stay the same";
            if let Some(new) = challenged(at, &special, &copies, what) {
                at.state().set_special(values, new);
            }
        });
    }
}

/// With the tuner on, requests a comparison with another workgroup size if the observation suggests
/// one.
fn consider_size(request: &CodeRequest<'_, '_, '_>, seen: &Observed) {
    if request.mode != Mode::On || !is_sized(request) {
        return;
    }
    let CodeRequest { at, elements, .. } = *request;
    let in_use = seen.tuned.unwrap_or_else(|| Shape::of(at.core.kernel(), &at.core.config));
    let microseconds = (seen.elapsed_ns as f64 / 1e3).max(1e-3);
    let feedback = TunerFeedback {
        wall_time_us: seen.elapsed_ns / 1000,
        idle_us: seen.idle_ns / 1000,
        observed_workgroup_size_x: in_use.workgroup_size[0],
        observed_throughput_per_us: elements as f64 / microseconds,
        ..TunerFeedback::default()
    };
    let now = Duration::from_nanos(at.core.shared.now_ns());
    let Some(x) = at.state().resizer().suggest(&feedback, now) else { return };
    let [_, y, z] = in_use.workgroup_size;
    let shape = Shape { workgroup_size: [x, y, z], ..in_use };
    if let Some((key, domain)) = size_key(request)
        && shape.refusal(at.backend.profile(), domain).is_none()
        && let Some(copies) = copies(request)
    {
        later(at, move |at| try_size(at, (&key, elements), [in_use, shape], &copies));
    }
}

/// Compares a shape with the one in use, and adopts it if it gives the same results and wins.
fn try_size(
    at: Pair<'_>,
    (key, elements): (&TunerProgramKey, u64),
    [in_use, shape]: [Shape; 2],
    copies: &Copies,
) {
    let alternative = |shape: Shape| Alternative {
        program: at.core.program().clone(),
        config: tuned_policy(&shape.configure(&at.core.config)),
    };
    let outcome = compare(at, vec![alternative(in_use), alternative(shape)], Vec::new(), copies);
    let trial = if outcome.is_ok() { ResizeOutcome::Won } else { ResizeOutcome::Lost };
    at.state().resizer().tried(in_use.workgroup_size[0], shape.workgroup_size[0], trial);
    let note = match (outcome, at.backend.tuner()) {
        (Ok(duel), Some(tuner)) => {
            tuner.record_shape(key, shape);
            keep(tuner);
            at.state().forget_size(elements);
            format!("resized from {in_use} to {shape}, {:.1}% faster", 100.0 * (1.0 - duel.ratio))
        }
        (Ok(_), None) => return,
        (Err(reason), _) => format!("not resized from {in_use} to {shape}: {reason}"),
    };
    at.note(&format!(" at {elements} elements: {note}"));
}

/// The program compiled with the expensive schedule, if it can replace the code in use. A note
/// gives the reason either way.
fn challenged(at: Pair<'_>, program: &Program, copies: &Copies, what: &str) -> Option<ReadyCode> {
    let outcome = challenge_base(at, program, copies);
    at.note(&match &outcome {
        Ok((Duel { pairs, wins, ratio, .. }, _)) => {
            let percent = 100.0 * (1.0 - ratio);
            format!(": {what} is in use: {percent:.1}% faster, it won {wins} of {pairs} pairs")
        }
        Err(reason) => format!(": {what} is not used: {reason}"),
    });
    outcome.ok().map(|(_, new)| new)
}

fn challenge_base(at: Pair<'_>, program: &Program, copies: &Copies) -> Result<(Duel, ReadyCode), String> {
    let base = at.state().base(at.backend.instance()).ok_or("there is no code to compare with")?;
    let config = at.core.config.code_policy();
    let policy = DispatchConfig { schedule: Some(Schedule::Expensive), ..config.clone() };
    let new = at.compile(program, &policy).map_err(|error| error.to_string())?;
    let in_use = Alternative { program: at.core.program().clone(), config };
    let alternatives = vec![in_use, Alternative { program: program.clone(), config: policy }];
    let duel = compare(at, alternatives, vec![base.pipeline, new.pipeline.clone()], copies)?;
    Ok((duel, ReadyCode { instance: base.instance, ..new }))
}

/// Compares the second alternative with the first, alongside calls; `compiled` pipelines are not
/// compiled again.
fn compare(
    at: Pair<'_>,
    alternatives: Vec<Alternative>,
    compiled: Vec<Arc<dyn CompiledPipeline>>,
    copies: &Copies,
) -> Result<Duel, String> {
    let inputs: Vec<&[u8]> = copies.inputs.iter().map(Vec::as_slice).collect();
    let given = ContestInputs {
        inputs: &inputs,
        bound_bytes: Some(&copies.bound_bytes),
        memory_limit: LIMITS.memory_bytes,
    };
    let made = at.backend.live().and_then(|live| PipelineContest::new(live.driver, alternatives, &given));
    let contest = made.map_err(|error| error.to_string())?.with_pipelines(compiled);
    let pause = |took| pause(at.core, took);
    challenge(&mut contest.pausing(Some(&pause)), LIMITS.wall)
}

/// Queues work on speed in the background.
fn later(at: Pair<'_>, work: impl FnOnce(Pair<'_>) + Send + 'static) {
    let (core, backend) = (at.core.clone(), at.backend.clone());
    let work = move || work(Pair { core: &core, backend: &backend });
    at.core.shared.background.push(Purpose::Speed, work);
}

/// Pauses between two background runs: result checks go first, and while calls are made they get
/// most of the machine's time.
fn pause(core: &RoutineCore, took: Duration) -> Result<(), String> {
    let jobs = &core.shared.background;
    jobs.let_checks_pass()?;
    if core.shared.is_called() {
        jobs.rest((REST * took).min(LONGEST_REST));
    }
    Ok(())
}
