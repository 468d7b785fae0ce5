//! What is known of a routine on one backend: the code in use and its rivals, and what its results are checked with.

use crate::argument::Memory;
use crate::known_results::Spot;
use crate::specialised::{History, Values, has_values};
use crate::turn::Turn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use vyre_driver::tuner::{DefaultPolicy, Mode, Resizer, Shape};
use vyre_driver::{CompiledPipeline, Schedule};

/// How long nothing is resized after a resize was tried.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// So many plans of an op are kept, by size; each keeps its intermediate buffers.
const MOST_PLANS: usize = 8;

/// Shares of a call's time are in parts of this.
const WHOLE: u64 = 1 << 16;

/// One routine on one backend.
pub(crate) struct BackendState {
    in_use: RwLock<InUse>,
    /// How often other code was tried because the routine is hot.
    pub(crate) tries: AtomicU32,
    resizer: Mutex<Resizer>,
    pub(crate) uniforms: History,
    /// The part of a call's time that its device was at work, in parts of [`WHOLE`], when it was last asked.
    device_share: AtomicU64,
    /// Once the backend is verified.
    pub(crate) spot: OnceLock<Spot>,
    /// The instance of the backend that a call with a deadline has run on.
    run: AtomicU64,
    /// Whose turn the first such run is.
    pub(crate) turn: Arc<Turn>,
}

/// The code of a routine on a backend.
#[derive(Default)]
struct InUse {
    /// For calls at the program's own shape.
    base: Option<Code>,
    /// For those of them that have these values of their uniforms.
    special: Option<(Values, Code)>,
    /// For calls of one size.
    sizes: Vec<SizeForm>,
}

/// What is known of one size.
struct SizeForm {
    instance: u64,
    elements: u64,
    /// `None`: as at any other size.
    code: Option<Code>,
    /// Whether tuning was asked for.
    asked: bool,
}

/// The code for a call.
#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) instance: u64,
    pub(crate) pipeline: Arc<dyn CompiledPipeline>,
    /// The shape that it was tuned to.
    pub(crate) tuned: Option<Shape>,
    /// What the optimizer did for it.
    pub(crate) schedule: Option<Schedule>,
}

impl InUse {
    /// The code at the program's own shape, special to the values of these calls where there is such.
    fn untuned(&self, instance: u64, items: &[&mut [Memory<'_>]]) -> Option<Code> {
        let special = self.special.as_ref().filter(|(values, special)| {
            special.instance == instance && items.iter().all(|item| has_values(values, item))
        });
        let base = || self.base.as_ref().filter(|base| base.instance == instance);
        special.map(|(_, special)| special).or_else(base).cloned()
    }
}

impl BackendState {
    pub(crate) fn new() -> BackendState {
        BackendState {
            in_use: RwLock::default(),
            tries: AtomicU32::new(0),
            resizer: Mutex::new(Resizer::new(DefaultPolicy::default(), COOL_DOWN)),
            uniforms: History::default(),
            device_share: AtomicU64::new(WHOLE),
            spot: OnceLock::new(),
            run: AtomicU64::new(0),
            turn: Arc::default(),
        }
    }

    /// Whether the routine has run on this instance of the backend under a deadline.
    #[inline]
    pub(crate) fn has_run(&self, instance: u64) -> bool {
        self.run.load(Relaxed) == instance
    }

    pub(crate) fn set_run(&self, instance: u64) {
        self.run.store(instance, Relaxed);
    }

    /// The code at the program's own shape; `None` if there is none yet.
    pub(crate) fn untuned(&self, instance: u64, items: &[&mut [Memory<'_>]]) -> Option<Code> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner).untuned(instance, items)
    }

    /// The code for calls over so many elements; `None` if that size was not met before.
    pub(crate) fn of_size(
        &self,
        instance: u64,
        elements: u64,
        mode: Mode,
        items: &[&mut [Memory<'_>]],
    ) -> Option<Code> {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let same = |size: &&SizeForm| size.elements == elements && size.instance == instance;
        let known = |size: &&SizeForm| size.asked || mode == Mode::OffUseDefault;
        match &in_use.sizes.iter().find(same).filter(known)?.code {
            Some(code) => Some(code.clone()),
            None => in_use.untuned(instance, items),
        }
    }

    /// The code at the program's own shape, whatever a call's uniforms are.
    pub(crate) fn base(&self, instance: u64) -> Option<Code> {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        in_use.base.clone().filter(|base| base.instance == instance)
    }

    /// Puts code in use at the program's own shape.
    pub(crate) fn set_base(&self, ready: Code) {
        self.change(|in_use| in_use.base.replace(ready));
    }

    /// Puts code in use for calls with these values.
    pub(crate) fn set_special(&self, values: Values, ready: Code) {
        self.change(|in_use| in_use.special.replace((values, ready)));
    }

    /// How many other sizes are known.
    pub(crate) fn other_sizes(&self, instance: u64, elements: u64) -> usize {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let other = |size: &&SizeForm| size.instance == instance && size.elements != elements;
        in_use.sizes.iter().filter(other).count()
    }

    /// Remembers what a size runs on.
    pub(crate) fn set_size(&self, instance: u64, elements: u64, code: Option<Code>, mode: Mode) {
        let form = SizeForm { instance, elements, code, asked: mode == Mode::On };
        self.change(|in_use| {
            let old = |size: &mut SizeForm| size.instance != instance || size.elements == elements;
            let dropped: Vec<SizeForm> = in_use.sizes.extract_if(.., old).collect();
            in_use.sizes.push(form);
            dropped
        });
    }

    /// Remembers the plan of a size; the one made longest ago makes room.
    pub(crate) fn set_plan(&self, elements: u64, code: Code, mode: Mode) {
        self.set_size(code.instance, elements, Some(code), mode);
        self.change(|in_use| {
            let surplus = in_use.sizes.len().saturating_sub(MOST_PLANS);
            in_use.sizes.drain(..surplus).collect::<Vec<_>>()
        });
    }

    /// Leaves it to the next call what a size runs on.
    pub(crate) fn forget_size(&self, elements: u64) {
        self.change(|in_use| {
            in_use.sizes.extract_if(.., |size| size.elements == elements).collect::<Vec<_>>()
        });
    }

    /// How long the device worked on a call: what it said, else the share that it had when it was last asked.
    #[inline]
    pub(crate) fn device_ns(&self, elapsed_ns: u64, told_ns: Option<u64>) -> u64 {
        if let Some(told_ns) = told_ns {
            let share = u128::from(told_ns) * u128::from(WHOLE) / u128::from(elapsed_ns.max(1));
            self.device_share.store(share.min(WHOLE.into()) as u64, Relaxed);
            return told_ns;
        }
        match self.device_share.load(Relaxed) {
            WHOLE => elapsed_ns,
            share => (elapsed_ns / WHOLE) * share + (elapsed_ns % WHOLE) * share / WHOLE,
        }
    }

    pub(crate) fn resizer(&self) -> MutexGuard<'_, Resizer> {
        self.resizer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is in use. What that puts out of use has a backend's destructor, which runs outside the lock.
    fn change<Dropped>(&self, change: impl FnOnce(&mut InUse) -> Dropped) {
        let dropped = change(&mut self.in_use.write().unwrap_or_else(PoisonError::into_inner));
        drop(dropped);
    }
}
