//! The code of a routine on each backend: what was compiled first, what took its place because calls are hot, and what was
//! tuned for one size.
//!
//! **First** comes the cheap schedule, unless earlier runs say that the routine is hot. **Hot**: once its calls took
//! [`HOT_NS`] in all, or are long, it is compiled again with the expensive schedule, in the background; the two are compared
//! in alternating pairs on copies of one call's inputs, and the new one is swapped in only if it gives the same results
//! and wins. **Special**: a hot routine whose uniforms have been the same for long is compiled with their values in place,
//! compared the same way, and used by calls that have those values; every call is checked. **Tuned**: for a shape-free program, each size may have a shape of its own, from the tuner's table; with the
//! tuner on, a size that the table does not have is tuned in the background, and what runs is resized now and then if its
//! throughput asks for it: each change has to win a duel.
//!
//! All of this changes speed, never results. A tuned shape that fails later is taken out of the table, with its reason.

use crate::argument::Memory;
use crate::backend::Backend;
use crate::background::Job;
use crate::meter::Counted;
use crate::routine::{RoutineCore, changes_no_code};
use crate::special::{History, Values, has_values, specialise};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use vyre_driver::router::BackendIndex;
use vyre_driver::tuner::{
    Contest, DefaultPolicy, Duel, Mode, PipelineContest, Resizer, Shape, Trial, TuneLimits, TuneRequest,
    TunerFeedback, TunerProgramKey, Variant, challenge, tune, tuning_key,
};
use vyre_driver::{BackendError, CompiledPipeline, DispatchConfig, Schedule};
use vyre_foundation::ir::Program;

/// Calls that took so long in all make a routine hot.
pub(crate) const HOT_NS: u64 = 20_000_000;
/// What a thread's calls have to take before they are added up to see whether the routine is hot.
const WORTH_ADDING_NS: u64 = HOT_NS / 20;
/// After a lost comparison, so many times as long.
const NEXT_TRY: u64 = 16;
const MOST_TRIES: u32 = 3;
/// More sizes than this of one routine are not tuned.
const MOST_SIZES: usize = 32;
/// What comparing and tuning beside the calls may take.
const LIMITS: TuneLimits = TuneLimits { wall: Duration::from_secs(5), memory_bytes: 512 << 20 };
/// A comparison of long runs may take so many times as long as the first of them, within bounds.
const RUNS_OF_A_COMPARISON: u32 = 24;
const LONGEST_COMPARISON: Duration = Duration::from_secs(60);
/// How long nothing is resized after a resize was tried.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// The rest after a run in the background while there are calls, in times of what the run took; and the longest.
const REST: u32 = 7;
const LONGEST_REST: Duration = Duration::from_millis(100);

/// The code of a routine, by backend.
pub(crate) struct Forms {
    slots: Vec<RwLock<Slot>>,
    tries: Vec<AtomicU32>,
    resizers: Vec<Mutex<Resizer>>,
    uniforms: Vec<History>,
    /// What became of recompilations and tuning, for explanations.
    notes: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Slot {
    base: Option<Ready>,
    /// For calls with these values of its uniforms.
    special: Option<(Values, Ready)>,
    sizes: Vec<SizeForm>,
}

impl Slot {
    /// The code for a call at the program's own shape; `None` if there is none yet.
    fn untuned(&self, instance: u64, memory: &[Memory<'_>]) -> Option<Code> {
        let base = self.base.as_ref().filter(|base| base.instance == instance);
        let special = self
            .special
            .as_ref()
            .filter(|(values, special)| special.instance == instance && has_values(values, memory));
        let ready = special.map(|(_, special)| special).or(base)?;
        Some(Code { pipeline: ready.pipeline.clone(), tuned: None })
    }

    /// The code for a call whose shape is open; `None` if its size was not met before.
    fn tunable(&self, instance: u64, wanted: &Wanted<'_, '_>) -> Option<Code> {
        let same = |size: &&SizeForm| size.elements == wanted.elements && size.instance == instance;
        let known = |size: &&SizeForm| size.asked || wanted.mode == Mode::OffUseDefault;
        match &self.sizes.iter().find(same).filter(known)?.tuned {
            Some((shape, pipeline)) => Some(Code { pipeline: pipeline.clone(), tuned: Some(*shape) }),
            None => self.untuned(instance, wanted.memory),
        }
    }
}

/// A pipeline, and the backend instance that it belongs to.
#[derive(Clone)]
struct Ready {
    instance: u64,
    pipeline: Arc<dyn CompiledPipeline>,
    schedule: Option<Schedule>,
}

/// What is known of one size.
struct SizeForm {
    instance: u64,
    elements: u64,
    /// `None`: the default shape.
    tuned: Option<(Shape, Arc<dyn CompiledPipeline>)>,
    /// Whether tuning was asked for.
    asked: bool,
}

/// The code for a call.
pub(crate) struct Code {
    pub(crate) pipeline: Arc<dyn CompiledPipeline>,
    /// The shape that it was tuned to.
    pub(crate) tuned: Option<Shape>,
}

/// A call that code is wanted for.
pub(crate) struct Wanted<'a, 'm> {
    pub(crate) config: &'a DispatchConfig,
    pub(crate) elements: u64,
    pub(crate) memory: &'a [Memory<'m>],
    pub(crate) mode: Mode,
}

/// What a call was like.
pub(crate) struct Observed {
    pub(crate) elapsed_ns: u64,
    /// What was counted up to it.
    pub(crate) counted: Counted,
    /// The shape that it ran at, if not the program's own.
    pub(crate) tuned: Option<Shape>,
}

/// Another shape to try.
pub(crate) struct Resize {
    key: TunerProgramKey,
    elements: u64,
    in_use: Shape,
    shape: Shape,
    inputs: Vec<Vec<u8>>,
}

impl Forms {
    pub(crate) fn new(backends: usize) -> Forms {
        Forms {
            slots: (0..backends).map(|_| RwLock::default()).collect(),
            tries: (0..backends).map(|_| AtomicU32::new(0)).collect(),
            resizers: (0..backends)
                .map(|_| Mutex::new(Resizer::new(DefaultPolicy::default(), COOL_DOWN)))
                .collect(),
            uniforms: (0..backends).map(|_| History::default()).collect(),
            notes: Mutex::default(),
        }
    }

    /// What became of recompilations and tuning.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, note: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < 2 * MOST_SIZES {
            notes.push(note);
        }
    }
}

impl RoutineCore {
    /// The code for a call on a backend, compiled now if it was not before.
    pub(crate) fn code(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        wanted: &Wanted<'_, '_>,
    ) -> Result<Code, BackendError> {
        let instance = backend.instance();
        let is_open = self.tunable(wanted.config) && wanted.config.grid_override.is_none();
        if let Some(slot) = self.forms.slots.get(backend.position).filter(|_| changes_no_code(wanted.config))
        {
            let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
            let code = match is_open {
                true => slot.tunable(instance, wanted),
                false => slot.untuned(instance, wanted.memory),
            };
            if let Some(code) = code {
                return Ok(code);
            }
        }
        let tuned = if is_open { self.settle_size(backend, wanted) } else { None };
        match tuned {
            Some((shape, pipeline)) => Ok(Code { pipeline, tuned: Some(shape) }),
            None => Ok(Code { pipeline: self.pipeline(backend, wanted.config)?, tuned: None }),
        }
    }

    /// Whether the program's shape is open.
    fn tunable(&self, config: &DispatchConfig) -> bool {
        self.kernel.shape_free && changes_no_code(config)
    }

    /// The first code for a backend, or what took its place; compiled now if there is none. `config` is the call's own.
    pub(crate) fn pipeline(
        &self,
        backend: &Arc<Backend>,
        config: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        let instance = backend.instance();
        let slot = self.forms.slots.get(backend.position).filter(|_| changes_no_code(config));
        if let Some(slot) = slot
            && let Some(base) = &slot.read().unwrap_or_else(PoisonError::into_inner).base
            && base.instance == instance
        {
            return Ok(base.pipeline.clone());
        }
        let mut policy = config.over(&self.config).code_policy();
        policy.schedule = policy.schedule.or_else(|| Some(self.first_schedule()));
        let pipeline = self.compile(backend, &policy)?;
        if let Some(slot) = slot {
            let base = Ready { instance, pipeline: pipeline.clone(), schedule: policy.schedule };
            slot.write().unwrap_or_else(PoisonError::into_inner).base = Some(base);
        }
        Ok(pipeline)
    }

    /// Cheap, unless the routine is known to be hot, or nothing may change later.
    fn first_schedule(&self) -> Schedule {
        let learns = self.shared.learns() && self.shared.recompiles;
        if !learns || self.heat() >= HOT_NS { Schedule::Expensive } else { Schedule::Cheap }
    }

    /// How long the hottest region's calls took in all; without end if they are long.
    fn heat(&self) -> u64 {
        let hints = &self.shared.hints;
        let heat = |region: &str| {
            if hints.is_hot(region) {
                return u64::MAX;
            }
            hints.record_for(region).map_or(0, |record| record.kernel_ns_total)
        };
        self.meters.regions().map(heat).max().unwrap_or(0)
    }

    /// Looks up what the tuner has for a size that was not met before, and asks for tuning if it has nothing.
    #[cold]
    fn settle_size(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        wanted: &Wanted<'_, '_>,
    ) -> Option<(Shape, Arc<dyn CompiledPipeline>)> {
        let slot = self.forms.slots.get(backend.position)?;
        let tuner = self.shared.tuners.get(backend.position)?;
        let instance = backend.instance();
        let here = |size: &&SizeForm| size.instance == instance && size.elements != wanted.elements;
        let others = slot.read().unwrap_or_else(PoisonError::into_inner).sizes.iter().filter(here).count();
        if others >= MOST_SIZES {
            return None;
        }
        let (key, domain) = self.tuning_key(wanted)?;
        let default = Shape::of(&self.kernel, &self.config);
        let shape = tuner.shape_for(&key, default, |shape| shape.refusal(&backend.profile, domain));
        let mut tuned = None;
        if shape != default {
            match self.compile(backend, &tuned_policy(&shape.configure(&self.config))) {
                Ok(pipeline) => tuned = Some((shape, pipeline)),
                Err(error) => tuner.quarantine(&key, shape, &error.to_string()),
            }
        }
        let ask = wanted.mode == Mode::On && !tuner.has_decided(&key) && self.shared.learns();
        let (elements, asked) = (wanted.elements, wanted.mode == Mode::On);
        {
            let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
            slot.sizes.retain(|size| here(&size));
            slot.sizes.push(SizeForm { instance, elements, tuned: tuned.clone(), asked });
        }
        if ask && let Some(inputs) = self.copy_inputs(wanted.memory) {
            let (core, index) = (self.clone(), BackendIndex(backend.position as u8));
            self.shared.background.push(Job::Tune { core, index, elements, inputs });
        }
        tuned
    }

    /// The tuner's key for a call, and its domain; `None` for a call that the tuner would run over another size.
    fn tuning_key(&self, wanted: &Wanted<'_, '_>) -> Option<(TunerProgramKey, [u32; 3])> {
        let given = self.parameters.iter().zip(wanted.memory);
        let lengths: Vec<usize> = given
            .filter(|(parameter, _)| parameter.access.is_input())
            .map(|(_, memory)| memory.len())
            .collect();
        let (key, domain) = tuning_key(&self.program, &self.kernel, &lengths).ok()?;
        let elements = domain.iter().fold(1u64, |all, &axis| all.saturating_mul(axis.into()));
        (elements == wanted.elements).then_some((key, domain))
    }

    /// Copies of a call's inputs, if they are in host memory and not too large.
    fn copy_inputs(&self, memory: &[Memory<'_>]) -> Option<Vec<Vec<u8>>> {
        let total: usize = memory.iter().map(Memory::len).sum();
        if total as u64 > LIMITS.memory_bytes / 3 {
            return None;
        }
        let inputs = self.parameters.iter().zip(memory).filter(|(parameter, _)| parameter.access.is_input());
        inputs
            .map(|(_, memory)| match memory {
                Memory::Number(bytes, length) => bytes.get(..*length).map(<[u8]>::to_vec),
                Memory::Read(bytes) => Some(bytes.to_vec()),
                Memory::Write(bytes) => Some(bytes.to_vec()),
                Memory::Nothing | Memory::Resident(_) => None,
            })
            .collect()
    }

    /// A tuned shape failed: it is taken out of use, and the next call gets the next best.
    pub(crate) fn drop_tuned(
        &self,
        backend: &Backend,
        wanted: &Wanted<'_, '_>,
        shape: Shape,
        error: &BackendError,
    ) {
        let (Some(slot), Some(tuner)) =
            (self.forms.slots.get(backend.position), self.shared.tuners.get(backend.position))
        else {
            return;
        };
        if let Some((key, _)) = self.tuning_key(wanted) {
            tuner.quarantine(&key, shape, &error.to_string());
        }
        self.forms.note(format!("{}: shape {shape} is out of use: {error}", backend.id));
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        slot.sizes.retain(|size| size.elements != wanted.elements);
    }

    /// Now and then: whether other code is worth a try.
    #[cold]
    pub(crate) fn consider(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        wanted: &Wanted<'_, '_>,
        seen: &Observed,
    ) {
        // Adding up what all threads counted takes as long as several calls; it can wait until there is something to add.
        if seen.counted.nanoseconds >= WORTH_ADDING_NS {
            self.consider_heat(backend, wanted);
        }
        self.consider_values(backend, wanted);
        self.consider_size(backend, wanted, seen);
    }

    /// Asks for a recompilation if the routine has become hot on the backend.
    fn consider_heat(self: &Arc<Self>, backend: &Arc<Backend>, wanted: &Wanted<'_, '_>) {
        let Some(tries) = self.forms.tries.get(backend.position) else { return };
        let tried = tries.load(Relaxed);
        if !self.shared.recompiles
            || tried >= MOST_TRIES
            || !changes_no_code(wanted.config)
            || !self.shared.learns()
        {
            return;
        }
        if self.base(backend).is_none_or(|base| base.schedule != Some(Schedule::Cheap)) {
            return;
        }
        self.meters.drain(&self.shared.hints);
        let needed = HOT_NS.saturating_mul(NEXT_TRY.saturating_pow(tried));
        if self.heat() < needed || (tried > 0 && self.total_heat() < needed) {
            return;
        }
        if tries.compare_exchange(tried, tried + 1, Relaxed, Relaxed).is_ok()
            && let Some(inputs) = self.copy_inputs(wanted.memory)
        {
            let (core, index) = (self.clone(), BackendIndex(backend.position as u8));
            self.shared.background.push(Job::Recompile { core, index, inputs });
        }
    }

    /// Asks for special code if the routine is hot and its uniforms have been the same for long.
    fn consider_values(self: &Arc<Self>, backend: &Arc<Backend>, wanted: &Wanted<'_, '_>) {
        let may = self.shared.recompiles && changes_no_code(wanted.config) && self.shared.learns();
        let Some(history) = self.forms.uniforms.get(backend.position).filter(|_| may) else { return };
        if !history.look(&self.parameters, wanted.memory) {
            return;
        }
        self.meters.drain(&self.shared.hints);
        if self.heat() >= HOT_NS
            && let Some(values) = history.take()
            && let Some(inputs) = self.copy_inputs(wanted.memory)
        {
            let (core, index) = (self.clone(), BackendIndex(backend.position as u8));
            self.shared.background.push(Job::Specialise { core, index, values, inputs });
        }
    }

    /// With the tuner on: asks for a comparison with another workgroup size, if what was observed suggests one.
    fn consider_size(self: &Arc<Self>, backend: &Arc<Backend>, wanted: &Wanted<'_, '_>, seen: &Observed) {
        let Some(resizer) = self.forms.resizers.get(backend.position) else { return };
        if wanted.mode != Mode::On || !self.tunable(wanted.config) || !self.shared.learns() {
            return;
        }
        let in_use = seen.tuned.unwrap_or_else(|| Shape::of(&self.kernel, &self.config));
        let microseconds = (seen.elapsed_ns as f64 / 1e3).max(1e-3);
        let feedback = TunerFeedback {
            wall_time_us: seen.elapsed_ns / 1000,
            observed_workgroup_size_x: in_use.workgroup_size[0],
            observed_throughput_per_us: wanted.elements as f64 / microseconds,
            ..TunerFeedback::default()
        };
        let now = Duration::from_nanos(self.shared.now_ns());
        let suggested = resizer.lock().unwrap_or_else(PoisonError::into_inner).suggest(&feedback, now);
        let Some(x) = suggested else { return };
        let [_, y, z] = in_use.workgroup_size;
        let shape = Shape { workgroup_size: [x, y, z], ..in_use };
        if let Some((key, domain)) = self.tuning_key(wanted)
            && shape.refusal(&backend.profile, domain).is_none()
            && let Some(inputs) = self.copy_inputs(wanted.memory)
        {
            let (core, index) = (self.clone(), BackendIndex(backend.position as u8));
            let resize = Resize { key, elements: wanted.elements, in_use, shape, inputs };
            self.shared.background.push(Job::Resize { core, index, resize });
        }
    }

    fn total_heat(&self) -> u64 {
        let total =
            |region: &str| self.shared.hints.record_for(region).map_or(0, |record| record.kernel_ns_total);
        self.meters.regions().map(total).max().unwrap_or(0)
    }

    fn base(&self, backend: &Backend) -> Option<Ready> {
        let slot = self.forms.slots.get(backend.position)?;
        let base = slot.read().unwrap_or_else(PoisonError::into_inner).base.clone();
        base.filter(|base| base.instance == backend.instance())
    }
}

/// Tuned code is for calls that are made often.
fn tuned_policy(config: &DispatchConfig) -> DispatchConfig {
    let policy = config.code_policy();
    DispatchConfig { schedule: policy.schedule.or(Some(Schedule::Expensive)), ..policy }
}

/// Tunes a routine at one size, on copies of a call's inputs; the next call uses what was found.
pub(crate) fn tune_beside(core: &RoutineCore, index: BackendIndex, elements: u64, inputs: &[Vec<u8>]) {
    let position = index.index();
    let (Some(backend), Some(tuner), Some(slot)) = (
        core.shared.backends.get(position),
        core.shared.tuners.get(position),
        core.forms.slots.get(position),
    ) else {
        return;
    };
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let request = TuneRequest {
        backend: backend.driver(),
        program: &core.program,
        config: &tuned_policy(&core.config),
        inputs: &borrowed,
        family: &[],
        limits: LIMITS,
        pause: Some(&|took| pause(core, took)),
    };
    match tune(tuner, &request, &mut |_| {}) {
        Ok(report) => {
            core.forms.note(format!("{} at {elements} elements: {}", backend.id, report.reason));
            if let Err(error) = tuner.persist() {
                tracing::warn!(%error, "what tuning found is not kept");
            }
            if report.winner > 0 {
                let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
                slot.sizes.retain(|size| size.elements != elements);
            }
        }
        Err(error) => core.forms.note(format!("{} at {elements} elements: not tuned: {error}", backend.id)),
    }
}

/// Compares a shape with the one in use, and decides for it if it gives the same results and wins.
pub(crate) fn resize_beside(core: &RoutineCore, index: BackendIndex, resize: &Resize) {
    let position = index.index();
    let (Some(backend), Some(tuner), Some(slot), Some(resizer)) = (
        core.shared.backends.get(position),
        core.shared.tuners.get(position),
        core.forms.slots.get(position),
        core.forms.resizers.get(position),
    ) else {
        return;
    };
    let Resize { key, elements, in_use, shape, inputs } = resize;
    let variant = |shape: &Shape| Variant {
        name: shape.to_string(),
        program: core.program.clone(),
        config: tuned_policy(&shape.configure(&core.config)),
    };
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let variants = vec![variant(in_use), variant(shape)];
    let outcome = PipelineContest::new(backend.driver(), variants, &borrowed, LIMITS.memory_bytes)
        .map_err(|error| error.to_string())
        .and_then(|contest| compare(core, contest));
    let trial = if outcome.is_ok() { Trial::Won } else { Trial::Lost };
    let (from, to) = (in_use.workgroup_size[0], shape.workgroup_size[0]);
    resizer.lock().unwrap_or_else(PoisonError::into_inner).tried(from, to, trial);
    let note = match outcome {
        Ok(duel) => {
            tuner.record_shape(key, *shape);
            slot.write()
                .unwrap_or_else(PoisonError::into_inner)
                .sizes
                .retain(|size| size.elements != *elements);
            format!("resized from {in_use} to {shape}, {:.1}% faster", 100.0 * (1.0 - duel.ratio))
        }
        Err(reason) => format!("not resized from {in_use} to {shape}: {reason}"),
    };
    core.forms.note(format!("{} at {elements} elements: {note}", backend.id));
}

/// Compiles a routine again with the expensive schedule, and swaps that in if it is right and faster.
pub(crate) fn recompile_beside(core: &RoutineCore, index: BackendIndex, inputs: &[Vec<u8>]) {
    let Some(backend) = core.shared.backends.get(index.index()) else { return };
    let challenged = challenged(core, backend, &core.program, inputs);
    noted(core, backend, "the expensive schedule", &challenged);
    if let (Ok((_, new)), Some(slot)) = (challenged, core.forms.slots.get(backend.position)) {
        let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
        // A device that was lost meanwhile has no use for it.
        if slot.base.as_ref().is_some_and(|now| now.instance == new.instance) {
            slot.base = Some(new);
        }
    }
}

/// Compiles a routine with these values of its uniforms in place, and uses that for calls that have them if it is right and
/// faster.
pub(crate) fn specialise_beside(
    core: &RoutineCore,
    index: BackendIndex,
    values: &Values,
    inputs: &[Vec<u8>],
) {
    let Some(backend) = core.shared.backends.get(index.index()) else { return };
    let Some(program) = specialise(&core.program, &core.parameters, values) else { return };
    let challenged = challenged(core, backend, &program, inputs);
    noted(core, backend, "code for uniforms that stay the same", &challenged);
    if let (Ok((_, new)), Some(slot)) = (challenged, core.forms.slots.get(backend.position)) {
        slot.write().unwrap_or_else(PoisonError::into_inner).special = Some((values.clone(), new));
    }
}

fn noted(core: &RoutineCore, backend: &Backend, what: &str, outcome: &Result<(Duel, Ready), String>) {
    let note = match outcome {
        Ok((Duel { pairs, wins, ratio, .. }, _)) => {
            format!("{what} is in use: {:.1}% faster, it won {wins} of {pairs} pairs", 100.0 * (1.0 - ratio))
        }
        Err(reason) => format!("{what} is not used: {reason}"),
    };
    tracing::debug!(kernel = core.kernel.display_name(), backend = backend.id, note);
    core.forms.note(format!("{}: {note}", backend.id));
}

/// Compares the routine's code with what the expensive schedule makes of this program. Gives it if it wins.
fn challenged(
    core: &RoutineCore,
    backend: &Arc<Backend>,
    program: &Program,
    inputs: &[Vec<u8>],
) -> Result<(Duel, Ready), String> {
    let base = core.base(backend).ok_or("there is no code to compare with")?;
    let policy = DispatchConfig { schedule: Some(Schedule::Expensive), ..core.config.code_policy() };
    let new = core.compile_program(backend, program, &policy).map_err(|error| error.to_string())?;
    let variant = |name: &str, program: &Program, config: DispatchConfig| Variant {
        name: name.to_owned(),
        program: program.clone(),
        config,
    };
    let variants =
        vec![variant("in use", &core.program, core.config.code_policy()), variant("new", program, policy)];
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let contest = PipelineContest::new(backend.driver(), variants, &borrowed, LIMITS.memory_bytes)
        .map_err(|error| error.to_string())?;
    let contest = contest.with_pipelines(vec![base.pipeline, new.clone()]);
    let duel = compare(core, contest)?;
    let schedule = Some(Schedule::Expensive);
    Ok((duel, Ready { instance: base.instance, pipeline: new, schedule }))
}

/// Compares the second candidate with the first, beside the calls.
fn compare(core: &RoutineCore, contest: PipelineContest<'_>) -> Result<Duel, String> {
    let pause = |took| pause(core, took);
    challenge(&mut Limited { contest: contest.pausing(Some(&pause)), limit: LIMITS.wall })
}

/// What is done between two runs beside the calls: checks of results go first, and while there are calls they have the machine
/// most of the time.
fn pause(core: &RoutineCore, took: Duration) -> Result<(), String> {
    let jobs = &core.shared.background;
    jobs.let_checks_pass()?;
    if core.shared.is_called() {
        jobs.rest((REST * took).min(LONGEST_REST));
    }
    Ok(())
}

/// A comparison that takes no longer than it may.
struct Limited<'a> {
    contest: PipelineContest<'a>,
    limit: Duration,
}

impl Contest for Limited<'_> {
    fn measure(&mut self, candidate: usize) -> Result<u64, String> {
        let before = self.elapsed();
        if before > self.limit {
            return Err("the time was up".to_owned());
        }
        let measured = self.contest.measure(candidate);
        let took = self.elapsed().saturating_sub(before);
        self.limit = self.limit.max(took.saturating_mul(RUNS_OF_A_COMPARISON).min(LONGEST_COMPARISON));
        measured
    }

    fn check(&mut self, candidate: usize) -> Result<(), String> {
        self.contest.check(candidate)
    }

    fn renew(&mut self, candidate: usize) -> Result<(), String> {
        self.contest.renew(candidate)
    }

    fn elapsed(&mut self) -> Duration {
        self.contest.elapsed()
    }
}
