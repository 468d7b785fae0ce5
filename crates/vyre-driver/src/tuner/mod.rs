//! Workgroup sizes of programs on one adapter: cached decisions, candidates, and comparisons.
//!
//! [`TunerCache`] holds decisions by key and persists them; [`Tuner`] is the cache of one adapter
//! in use. Decisions affect speed, never results. [`tune`] makes them: [`shapes_for`] lists the
//! shapes that a device supports, [`find_fastest`] runs the contest, [`PipelineContest`] provides
//! its pipelines and memory, and [`Tuner::best_of`] makes the final choice. [`DefaultPolicy`]
//! suggests sizes for long-running kernels from their feedback, and [`Resizer`] keeps it from
//! oscillating.

mod cache;
mod contest;
mod key;
mod pipeline_contest;
mod policy;
mod resize;
mod session;
mod shapes;

pub(crate) use cache::SAMPLES_SUFFIX;
pub use cache::{CandidateSamples, TunerCache};
#[cfg(test)]
pub(crate) use cache::{Decision, DecisionRecord};
pub(crate) use contest::Random;
pub use contest::{Contest, ContestOutcome, Duel, Progress, Stage, Verdict, challenge, find_fastest};
pub use key::{StaticProgramShape, TunerProgramKey};
pub use pipeline_contest::{Alternative, ContestBuffer, ContestInputs, MakePipeline, Pause, PipelineContest};
pub use policy::{DefaultPolicy, TunerFeedback};
pub use resize::{ResizeOutcome, Resizer};
pub use session::{TuneLimits, TuneReport, TuneRequest, TunedCandidate, tune, tune_family, tuning_key};
pub use shapes::{Shape, shapes_for};

use crate::pipeline::DEFAULT_1D_WORKGROUP_SIZE;
use crate::tables::{TableError, UserFolder, user_file};
use crate::{DeviceKey, DeviceProfile};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vyre_foundation::ir::Program;

/// Candidate sizes on the first axis; each divides, or is divided by, every device's subgroup size.
const CANDIDATES: [u32; 6] = [32, 64, 128, 256, 512, 1024];

/// Whether programs are measured to find better sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Measure, and remember the results.
    On,
    /// Use remembered decisions, otherwise the default size.
    #[default]
    OffUseDefault,
}

impl Mode {
    /// `On` if the environment variable `VYRE_AUTOTUNER` is `on`, ignoring case; otherwise off.
    pub fn from_env() -> Mode {
        Mode::from_value(std::env::var_os("VYRE_AUTOTUNER").as_deref())
    }

    fn from_value(value: Option<&OsStr>) -> Mode {
        match value {
            Some(value) if value.eq_ignore_ascii_case("on") => Mode::On,
            Some(_) | None => Mode::OffUseDefault,
        }
    }
}

/// Measures the time of a program at a workgroup size.
pub trait BackendTimer {
    /// Why a candidate could not be measured.
    type Error;

    /// The time in nanoseconds that `program` takes at this workgroup size.
    fn measure_candidate_ns(
        &mut self,
        program: &Program,
        workgroup_size: [u32; 3],
    ) -> Result<u64, Self::Error>;
}

/// A candidate and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningMeasurement {
    /// The candidate.
    pub workgroup_size: [u32; 3],
    /// Its time in nanoseconds.
    pub elapsed_ns: u64,
}

/// The tuning decisions of one adapter, shared between threads.
///
/// ```
/// use vyre_driver::tuner::{Mode, Tuner};
/// let tuner = Tuner::in_memory(Mode::OffUseDefault);
/// assert_eq!(tuner.resolve("saxpy"), Tuner::default_workgroup_size());
/// tuner.record_decision("saxpy", [256, 1, 1]);
/// assert_eq!(tuner.resolve("saxpy"), [256, 1, 1]);
/// ```
#[derive(Debug)]
pub struct Tuner {
    mode: Mode,
    /// `None` keeps decisions in memory only.
    path: Option<PathBuf>,
    cache: RwLock<TunerCache>,
}

impl Tuner {
    /// The tuner of the adapter with this fingerprint, with the decisions of earlier runs. A
    /// corrupt file is set aside and an unusable one is left alone, each with a warning.
    pub fn new(adapter_fp: &str, mode: Mode) -> Tuner {
        match Tuner::cache_path_for_adapter(adapter_fp) {
            Some(path) => Tuner::at(path, mode),
            None => Tuner::in_memory(mode),
        }
    }

    /// Like [`Tuner::new`], with the adapter's file in this folder.
    pub fn in_folder(folder: &Path, adapter_fp: &str, mode: Mode) -> Tuner {
        Tuner::at(folder.join(file_name(adapter_fp)), mode)
    }

    /// Like [`Tuner::new`], with the decisions in this file.
    pub fn at(path: impl Into<PathBuf>, mode: Mode) -> Tuner {
        let path = path.into();
        let cache = TunerCache::load_or_set_aside(&path).unwrap_or_else(|error| {
            tracing::warn!("starting without earlier tuning decisions: {error}");
            TunerCache::default()
        });
        Tuner { mode, path: Some(path), cache: RwLock::new(cache) }
    }

    /// An empty tuner that keeps its decisions in memory only.
    pub fn in_memory(mode: Mode) -> Tuner {
        Tuner { mode, path: None, cache: RwLock::default() }
    }

    /// Adopts decisions made elsewhere for this adapter, unless a newer one was made here. Writes
    /// nothing to disk.
    pub fn take_in(&self, carried: &TunerCache) {
        let mut cache = self.write();
        for (key, shape) in carried.decisions() {
            let decided_at_ns = carried.decided_at_ns(key);
            let newer = cache.shape(key).is_none() || decided_at_ns > cache.decided_at_ns(key);
            if newer && !cache.is_quarantined(key, shape) {
                cache.set_decided(key, shape, decided_at_ns);
            }
        }
    }

    /// The file of the adapter with this fingerprint, below `$XDG_CACHE_HOME` or `$HOME/.cache`;
    /// `None`, with a warning, if the user has neither. Different fingerprints always have
    /// different files.
    pub fn cache_path_for_adapter(adapter_fp: &str) -> Option<PathBuf> {
        user_file(UserFolder::Cache, "tuner").map(|folder| folder.join(file_name(adapter_fp)))
    }

    /// Whether programs are measured.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The file of the decisions; `None` if they stay in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The size for a program without a decision.
    pub fn default_workgroup_size() -> [u32; 3] {
        DEFAULT_1D_WORKGROUP_SIZE
    }

    /// The candidate sizes on the first axis for a device with this limit; the limit itself if it
    /// is below all of them.
    pub fn candidates_for(&self, max_invocations: u32) -> Vec<u32> {
        let fitting: Vec<u32> = CANDIDATES.into_iter().filter(|&size| size <= max_invocations).collect();
        match max_invocations {
            0 => Vec::new(),
            limit if fitting.is_empty() => vec![limit],
            _ => fitting,
        }
    }

    /// The size decided for this key, otherwise the default.
    pub fn resolve(&self, key: &str) -> [u32; 3] {
        self.read().get(key).unwrap_or_else(Tuner::default_workgroup_size)
    }

    /// The size decided for this program and shape, otherwise the default.
    pub fn resolve_key(&self, key: &TunerProgramKey) -> [u32; 3] {
        self.resolve(key.as_str())
    }

    /// Records a decision for this key. The next [`Tuner::persist`] saves it.
    pub fn record_decision(&self, key: impl Into<String>, workgroup_size: [u32; 3]) {
        self.write().set(key, workgroup_size);
    }

    /// Records a decision for this program and shape. The next [`Tuner::persist`] saves it.
    pub fn record_key_decision(&self, key: &TunerProgramKey, workgroup_size: [u32; 3]) {
        self.write().set_key(key, workgroup_size);
    }

    /// Records a complete shape for this program and shape. The next [`Tuner::persist`] saves it.
    pub fn record_shape(&self, key: &TunerProgramKey, shape: Shape) {
        self.write().set_shape(key.as_str(), shape);
    }

    /// Whether there is a decision for this program and shape.
    pub fn has_decided(&self, key: &TunerProgramKey) -> bool {
        self.read().get_key(key).is_some()
    }

    /// The shape to run at: the decided one if it is usable; otherwise the fastest usable shape
    /// that was clearly faster than the default when measured; otherwise the default. `refusal`
    /// returns why the device cannot run a shape now.
    pub fn shape_for(
        &self,
        key: &TunerProgramKey,
        default: Shape,
        refusal: impl Fn(Shape) -> Option<String>,
    ) -> Shape {
        let cache = self.read();
        let candidates = cache.samples(key.as_str());
        let quarantined = |shape: Shape| cache.is_quarantined(key.as_str(), shape);
        let usable = |shape: &Shape| *shape == default || (!quarantined(*shape) && refusal(*shape).is_none());
        let Some(decided) = cache.shape(key.as_str()) else { return default };
        if usable(&decided) {
            return decided;
        }
        let time = |shape: Shape| {
            candidates
                .iter()
                .find(|candidate| candidate.shape() == shape)
                .and_then(CandidateSamples::median_ns)
        };
        // Clearly faster: by 2%, twice what a duel requires, since these times had none.
        let Some(limit) = time(default).map(|ns| ns - ns / 50) else { return default };
        let rest = candidates.iter().map(CandidateSamples::shape).filter(usable);
        let faster = rest.filter_map(|shape| Some((time(shape).filter(|&ns| ns < limit)?, shape)));
        faster.min().map_or(default, |(_, shape)| shape)
    }

    /// Quarantines a shape for this program and shape, at once and for all later processes.
    pub fn quarantine(&self, key: &TunerProgramKey, shape: Shape, reason: &str) {
        self.write().quarantine(key.as_str(), shape, reason);
        if let Err(error) = self.persist() {
            tracing::warn!(%error, "the failure of shape {shape} was not recorded for later processes");
        }
    }

    /// Whether a shape is quarantined for this key.
    pub(super) fn is_quarantined(&self, key: &str, shape: Shape) -> bool {
        self.read().is_quarantined(key, shape)
    }

    /// Records a shape and the samples behind the decision.
    pub(super) fn decide(&self, key: &str, shape: Shape, samples: Vec<CandidateSamples>) {
        let mut cache = self.write();
        cache.set_samples(key, samples);
        cache.set_shape(key, shape);
    }

    /// Records the samples behind the decision for this key.
    pub fn record_samples(&self, key: impl Into<String>, candidates: Vec<CandidateSamples>) {
        self.write().set_samples(key, candidates);
    }

    /// Adds the decisions to the adapter's file; does nothing for a tuner in memory.
    pub fn persist(&self) -> Result<(), TableError> {
        let Some(path) = &self.path else { return Ok(()) };
        // Save a clone, so that disk I/O never blocks a lookup.
        let cache = self.read().clone();
        cache.save(path)
    }

    /// The fastest of the candidates, each measured once in the given order; the first wins a tie.
    /// `None` without candidates. Stops at the first candidate that cannot be measured.
    pub fn best_of<E>(
        &self,
        program: &Program,
        candidates: impl IntoIterator<Item = [u32; 3]>,
        timer: &mut impl BackendTimer<Error = E>,
    ) -> Result<Option<TuningMeasurement>, E> {
        let mut best: Option<TuningMeasurement> = None;
        for workgroup_size in candidates {
            let elapsed_ns = timer.measure_candidate_ns(program, workgroup_size)?;
            if best.is_none_or(|best| elapsed_ns < best.elapsed_ns) {
                best = Some(TuningMeasurement { workgroup_size, elapsed_ns });
            }
        }
        Ok(best)
    }

    // A panic cannot have left a row half-written, so a poisoned lock is safe to use.
    fn read(&self) -> RwLockReadGuard<'_, TunerCache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, TunerCache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The scope of tuning decisions: the backend, its device and driver, and this version of vyre.
pub fn adapter_fingerprint(profile: &DeviceProfile) -> String {
    let DeviceKey { backend, device, driver, build } = DeviceKey::new(profile);
    format!("{backend}/{device}/{driver}/{build}")
}

/// A file name for any string: its readable part, then its hash. The hash keeps names distinct on
/// case-insensitive file systems and prevents reserved device names on Windows.
pub(crate) fn file_name(adapter_fp: &str) -> String {
    let readable = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let start: String = adapter_fp.chars().take(48).map(readable).collect();
    format!("{start}-{}.toml", blake3::hash(adapter_fp.as_bytes()).to_hex())
}

/// Whether a file name has the form that [`file_name`] produces.
pub(crate) fn is_file_name(name: &str) -> bool {
    let hash = name.strip_suffix(".toml").and_then(|stem| stem.rsplit_once('-')).map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_the_word_on_turns_the_tuner_on() {
        for (value, expected) in [
            (Some("on"), Mode::On),
            (Some("ON"), Mode::On),
            (Some("oN"), Mode::On),
            (Some("off"), Mode::OffUseDefault),
            (Some("1"), Mode::OffUseDefault),
            (Some(" on"), Mode::OffUseDefault),
            (Some(""), Mode::OffUseDefault),
            (None, Mode::OffUseDefault),
        ] {
            assert_eq!(Mode::from_value(value.map(OsStr::new)), expected, "{value:?}");
        }
    }

    #[test]
    fn what_is_taken_in_replaces_what_is_older_and_is_not_kept() {
        let shape = |size: u32| Shape { workgroup_size: [size, 1, 1], elements_per_invocation: 1 };
        let (tuner, mut carried) = (Tuner::in_memory(Mode::OffUseDefault), TunerCache::default());
        let mut own = tuner.write();
        own.set_decided("older", shape(32), 10);
        own.set_decided("newer", shape(32), 30);
        own.quarantine("failed", shape(64), "it failed here");
        drop(own);
        ["older", "newer", "failed", "fresh"]
            .into_iter()
            .for_each(|key| carried.set_decided(key, shape(64), 20));
        tuner.take_in(&carried);
        let sizes = ["older", "newer", "failed", "fresh"].map(|key| tuner.resolve(key)[0]);
        assert_eq!(sizes, [64, 32, Tuner::default_workgroup_size()[0], 64]);
    }

    #[test]
    fn every_adapter_has_its_own_safe_file_name() {
        let long = "x".repeat(10_000);
        let names = [
            "",
            ".",
            "..",
            "../../etc/passwd",
            "/abs",
            "a/b",
            "a\\b",
            "a:b",
            "a-b",
            "A-b",
            "CON",
            "nul",
            "\0",
        ];
        let others = ["é", "日本", "a\nb", "con.toml", "a ", "a", &long, &long[1..]];
        let given: Vec<&str> = names.into_iter().chain(others).collect();
        let made: BTreeSet<String> = given.iter().map(|adapter| file_name(adapter).to_lowercase()).collect();
        assert_eq!(made.len(), given.len(), "{made:#?}");
        for name in made {
            assert!(name.len() <= 200, "room is left for the files beside it: {name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'));
            assert_eq!(name.matches('.').count(), 1, "{name}");
        }
    }

    #[test]
    fn candidates_fit_the_limit() {
        let tuner = Tuner::in_memory(Mode::On);
        for (limit, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (31, vec![31]),
            (32, vec![32]),
            (256, vec![32, 64, 128, 256]),
            (1000, vec![32, 64, 128, 256, 512]),
            (u32::MAX, CANDIDATES.to_vec()),
        ] {
            assert_eq!(tuner.candidates_for(limit), expected, "limit {limit}");
        }
    }

    /// Answers from a list; the size on the first axis counts the calls.
    struct Listed(Vec<Result<u64, &'static str>>);

    impl BackendTimer for Listed {
        type Error = &'static str;

        fn measure_candidate_ns(&mut self, _: &Program, size: [u32; 3]) -> Result<u64, &'static str> {
            self.0[size[0] as usize - 1]
        }
    }

    fn check_best_of(
        times: Vec<Result<u64, &'static str>>,
        expected: Result<Option<(u32, u64)>, &'static str>,
    ) {
        let candidates = (1..=times.len() as u32).map(|x| [x, 1, 1]);
        let best = Tuner::in_memory(Mode::On).best_of(&Program::empty(), candidates, &mut Listed(times));
        assert_eq!(best.map(|best| best.map(|best| (best.workgroup_size[0], best.elapsed_ns))), expected);
    }

    #[test]
    fn the_fastest_candidate_wins_and_the_first_of_equals() {
        check_best_of(vec![], Ok(None));
        check_best_of(vec![Ok(u64::MAX)], Ok(Some((1, u64::MAX))));
        check_best_of(vec![Ok(9), Ok(5), Ok(5), Ok(7)], Ok(Some((2, 5))));
        check_best_of(vec![Ok(9), Err("lost"), Ok(1)], Err("lost"));
    }
}
