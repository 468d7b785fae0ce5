//! State of a routine on one backend: the code in use and its rivals, and the checks of its
//! results.

use crate::argument::Bound;
use crate::known_results::Spot;
use crate::specialised::{History, Values, has_values};
use crate::turn::Turn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use vyre_driver::tuner::{DefaultPolicy, Mode, Resizer, Shape};
use vyre_driver::{CompiledPipeline, Schedule};

/// Cool-down after a resize was tried, since the duel takes time from calls. Chosen, not measured:
/// each lost duel doubles it, so that it only limits the first few.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// Maximum plans kept per op, by size; each keeps its intermediate buffers, which for a sort are as
/// large as its inputs. Chosen, not measured.
const MOST_PLANS: usize = 8;

/// Shares of a call's time are in units of 1/`WHOLE`.
const WHOLE: u64 = 1 << 16;

/// One routine on one backend.
pub(crate) struct BackendState {
    in_use: RwLock<InUse>,
    /// How often other code was tried because the routine is hot.
    pub(crate) tries: AtomicU32,
    resizer: Mutex<Resizer>,
    pub(crate) uniforms: History,
    /// Share of a call's time that its device was working, in units of 1/[`WHOLE`], as last
    /// measured.
    device_share: AtomicU64,
    /// Set once the backend is verified.
    pub(crate) spot: OnceLock<Spot>,
    /// The backend instance on which a call with a deadline has run.
    run: AtomicU64,
    /// Held by the first such run.
    pub(crate) turn: Arc<Turn>,
    /// Held by a verification.
    pub(crate) verifying: Arc<Turn>,
}

/// The code of a routine on a backend.
#[derive(Default)]
struct InUse {
    /// For calls at the program's own shape.
    base: Option<ReadyCode>,
    /// For those of them with these uniform values.
    special: Option<(Values, ReadyCode)>,
    /// For calls of one size.
    sizes: Vec<SizeCode>,
}

/// State of one size.
struct SizeCode {
    instance: u64,
    elements: u64,
    /// `None`: the untuned code.
    code: Option<ReadyCode>,
    /// Whether tuning was requested.
    asked: bool,
}

/// The code for a call.
#[derive(Clone)]
pub(crate) struct ReadyCode {
    pub(crate) instance: u64,
    pub(crate) pipeline: Arc<dyn CompiledPipeline>,
    /// The shape it was tuned to.
    pub(crate) tuned: Option<Shape>,
    /// The optimizer's schedule.
    pub(crate) schedule: Option<Schedule>,
}

impl InUse {
    /// The code at the program's own shape, specialised to the values of these calls if there is
    /// such code.
    #[inline]
    fn untuned(&self, instance: u64, items: &[&mut [Bound<'_>]]) -> Option<ReadyCode> {
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
            verifying: Arc::default(),
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
    pub(crate) fn untuned(&self, instance: u64, items: &[&mut [Bound<'_>]]) -> Option<ReadyCode> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner).untuned(instance, items)
    }

    /// The code for calls over this many elements; `None` for a size not seen before.
    #[inline]
    pub(crate) fn of_size(
        &self,
        instance: u64,
        elements: u64,
        mode: Mode,
        items: &[&mut [Bound<'_>]],
    ) -> Option<ReadyCode> {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let same = |size: &&SizeCode| size.elements == elements && size.instance == instance;
        let known = |size: &&SizeCode| size.asked || mode == Mode::OffUseDefault;
        match &in_use.sizes.iter().find(same).filter(known)?.code {
            Some(code) => Some(code.clone()),
            None => in_use.untuned(instance, items),
        }
    }

    /// The code at the program's own shape, for any uniform values.
    pub(crate) fn base(&self, instance: u64) -> Option<ReadyCode> {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        in_use.base.clone().filter(|base| base.instance == instance)
    }

    /// Installs the code for the program's own shape.
    pub(crate) fn set_base(&self, ready: ReadyCode) {
        self.change(|in_use| in_use.base.replace(ready));
    }

    /// Installs the code for calls with these values.
    pub(crate) fn set_special(&self, values: Values, ready: ReadyCode) {
        self.change(|in_use| in_use.special.replace((values, ready)));
    }

    /// Number of other sizes known.
    pub(crate) fn other_sizes(&self, instance: u64, elements: u64) -> usize {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let other = |size: &&SizeCode| size.instance == instance && size.elements != elements;
        in_use.sizes.iter().filter(other).count()
    }

    /// Records the code for a size.
    pub(crate) fn set_size(&self, instance: u64, elements: u64, code: Option<ReadyCode>, mode: Mode) {
        let form = SizeCode { instance, elements, code, asked: mode == Mode::On };
        self.change(|in_use| {
            let old = |size: &mut SizeCode| size.instance != instance || size.elements == elements;
            let dropped: Vec<SizeCode> = in_use.sizes.extract_if(.., old).collect();
            in_use.sizes.push(form);
            dropped
        });
    }

    /// Records the plan for a size, evicting the oldest.
    pub(crate) fn set_plan(&self, elements: u64, code: ReadyCode, mode: Mode) {
        self.set_size(code.instance, elements, Some(code), mode);
        self.change(|in_use| {
            let surplus = in_use.sizes.len().saturating_sub(MOST_PLANS);
            in_use.sizes.drain(..surplus).collect::<Vec<_>>()
        });
    }

    /// Forgets a size, so that the next call decides its code again.
    pub(crate) fn forget_size(&self, elements: u64) {
        self.change(|in_use| {
            in_use.sizes.extract_if(.., |size| size.elements == elements).collect::<Vec<_>>()
        });
    }

    /// Device time of a call: the reported time, else the last measured share of the elapsed time.
    #[inline]
    pub(crate) fn device_ns(&self, elapsed_ns: u64, measured_ns: Option<u64>) -> u64 {
        if let Some(measured_ns) = measured_ns {
            let share = u128::from(measured_ns) * u128::from(WHOLE) / u128::from(elapsed_ns.max(1));
            self.device_share.store(share.min(WHOLE.into()) as u64, Relaxed);
            return measured_ns;
        }
        match self.device_share.load(Relaxed) {
            WHOLE => elapsed_ns,
            share => (elapsed_ns / WHOLE) * share + (elapsed_ns % WHOLE) * share / WHOLE,
        }
    }

    pub(crate) fn resizer(&self) -> MutexGuard<'_, Resizer> {
        self.resizer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the code in use. Dropping replaced code runs a backend's destructor, outside the
    /// lock.
    fn change<Dropped>(&self, change: impl FnOnce(&mut InUse) -> Dropped) {
        let dropped = change(&mut self.in_use.write().unwrap_or_else(PoisonError::into_inner));
        drop(dropped);
    }
}
