//! The routes of one program: the warm path, and the search beyond the incumbent.

use super::call::{
    BackendIndex, Background, Conformance, NoRoute, Placement, Reason, RefusedBackend, Rejection, Route,
    RouteRequest, Timing,
};
use super::cell::{Arm, Cell, Cells};
use super::estimate::Estimate;
use super::explain::RouteExplanation;
use super::fallback::excuse;
use super::probing::{
    Probe, ProbeOutcome, ProbeResult, Rival, SHORTEST_REST, WORTH_SWITCHING, decide, judge,
};
use super::shared::RouterState;
use super::statistics::Pace;
use super::trust::{Trust, TrustState};
use crate::BackendError;
use crate::pgo::{ProgramKey, RouteDecision, size_bucket};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

/// Calls of one cell between two canary checks of the backend that runs them. 32: a backend whose
/// results become wrong is left too late on the simulated machines of `filetests/routing`
/// (`going_bad`). 4: looks beyond the incumbent, which are as frequent, cost more than
/// their bound.
pub const CANARY_PERIOD: u64 = 16;

/// Upper bound on the number of calls between two looks beyond the incumbent. 1,024 makes no
/// difference to the simulated machines of `filetests/routing`.
const LONGEST_LOOK_INTERVAL: u64 = 128;
/// Lease of a probe or canary: one that is not reported within it counts as lost. Longer than any
/// call that is worth probing; a thread that ends inside a call holds it for nothing.
const LEASE_NS: u64 = 10_000_000_000;
/// Time that canaries can always take, and the share of the program's time they get on top of it.
/// No free time: wrong results are found too late (`going_bad`). Shares of 0 and 0.2 break no bound
/// there, but with 0 a program that runs for hours would not be checked for most of them.
const CANARY_FREE_NS: f64 = 50e6;
const CANARY_SHARE: f64 = 0.02;
/// One in this many slow calls made while vyre itself was busy counts. 1: a few of them make the
/// router leave the faster backend. 10: one that stays slow is not left (`disturbed_calls`).
const COUNTED_OF_DISTURBED: u64 = 3;
/// How long a backend is blocked at a size for which it was out of memory: long enough for another
/// process to end and free some, and each try costs a failed call.
const OUT_OF_MEMORY_NS: u64 = 60_000_000_000;
/// Calls of a program before its selected backend is verified; other backends are verified at once.
/// 0: the overhead exceeds its bound on simulated machines. 256 breaks no bound.
const CALLS_BEFORE_VERIFYING_SELECTED: u64 = 16;

/// Why a frozen router refuses a backend.
const NOT_IN_THE_TABLE: &str =
    "routing is frozen, and no verified row of the table names it for this program and size";

/// The routes of one program, shared between threads. The [module](super) documents the policy.
#[derive(Debug)]
pub struct ProgramRoutes {
    pub(super) shared: Arc<RouterState>,
    pub(super) program: ProgramKey,
    backends: Box<[ProgramBackend]>,
    host: Cells,
    total_ns: AtomicU64,
    /// Cost of all probes.
    spent_ns: AtomicU64,
    /// When the lease of the current probe expires; 0 if no probe is running.
    probe_until_ns: AtomicU64,
    canary_until_ns: AtomicU64,
    canary_spent_ns: AtomicU64,
    /// The routes of batches, once there has been one.
    batches: OnceLock<Arc<ProgramRoutes>>,
}

/// The state of one backend for one program.
#[derive(Debug, Default)]
struct ProgramBackend {
    /// Shared by the routes of single calls and of batches.
    trust: Arc<Trust>,
    /// Cost of its probes.
    spent_ns: AtomicU64,
    /// The cells for buffers resident on it.
    resident: OnceLock<Box<Cells>>,
}

/// Identifies a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellKey {
    pub(super) bucket: u8,
    pub(super) home: Option<BackendIndex>,
    /// Bytes to transfer if the call runs anywhere but on its home backend.
    bytes: u64,
}

impl CellKey {
    pub(super) fn new(elements: u64, placement: Placement) -> CellKey {
        let bucket = size_bucket(elements) as u8;
        match placement {
            Placement::Host => CellKey { bucket, home: None, bytes: 0 },
            Placement::Resident { home, bytes } => CellKey { bucket, home: Some(home), bytes },
        }
    }

    fn route(self, backend: BackendIndex, reason: Reason, background: Option<Background>) -> Route {
        Route { backend, reason, background, bucket: self.bucket, home: self.home }
    }
}

/// The time that a program's calls took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpent {
    /// Time of all calls.
    pub total_ns: u64,
    /// Time that probes took beyond what the incumbent was expected to take.
    pub probes_ns: u64,
}

/// Requests and reports by callers.
impl ProgramRoutes {
    pub(super) fn new(shared: Arc<RouterState>, program: ProgramKey) -> ProgramRoutes {
        let backends = shared.backends.iter().map(|_| ProgramBackend::default()).collect();
        ProgramRoutes::over(shared, program, backends)
    }

    fn over(shared: Arc<RouterState>, program: ProgramKey, backends: Box<[ProgramBackend]>) -> ProgramRoutes {
        let routes = ProgramRoutes {
            program,
            backends,
            host: Cells::new(),
            total_ns: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            probe_until_ns: AtomicU64::new(0),
            canary_until_ns: AtomicU64::new(0),
            canary_spent_ns: AtomicU64::new(0),
            batches: OnceLock::new(),
            shared,
        };
        routes.indices().for_each(|backend| routes.trust_rows(backend));
        routes
    }

    /// The routes of batches of the program, by their total number of elements. Batches have
    /// separate timings; what is learnt about a backend's results applies to both.
    pub fn in_batches(&self) -> &Arc<ProgramRoutes> {
        let make = || {
            let key = ProgramKey::new(format!("{} in batches", self.key()), self.fingerprint().to_owned());
            let own = |backend: &ProgramBackend| ProgramBackend {
                trust: backend.trust.clone(),
                ..ProgramBackend::default()
            };
            let backends = self.backends.iter().map(own).collect();
            Arc::new(ProgramRoutes::over(self.shared.clone(), key, backends))
        };
        self.batches.get_or_init(make)
    }

    /// The op id, or `fp:` followed by the fingerprint.
    pub fn key(&self) -> &str {
        &self.program.name
    }

    /// The program's fingerprint in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.program.fingerprint
    }

    /// Chooses the backend for a call. Every route must be reported with
    /// [`finished`](Self::finished), [`failed`](Self::failed) or [`abandoned`](Self::abandoned).
    pub fn route(&self, call: &RouteRequest) -> Result<Route, NoRoute> {
        if let Some(route) = self.warm_route(call) {
            return Ok(route);
        }
        let key = CellKey::new(call.elements, call.placement);
        match call.only.filter(|named| call.exclude.is_empty() && named.index() < self.backends.len()) {
            Some(_) => Err(self.no_route(key, call)),
            None => self.look(self.cell(key), key, call),
        }
    }

    /// The fast path of [`route`](Self::route): a few loads for a call that goes to the incumbent
    /// or to the backend the caller named. `None` if the full search is needed.
    #[inline]
    pub fn warm_route(&self, call: &RouteRequest) -> Option<Route> {
        if !call.exclude.is_empty() {
            return None;
        }
        let key = CellKey::new(call.elements, call.placement);
        if let Some(backend) = call.only {
            self.may_be_named(backend).then(|| self.cell(key))?;
            return Some(key.route(backend, Reason::Named, None));
        }
        let cell = self.cells(key.home)?.get(key.bucket)?;
        if cell.calls() >= cell.next_look.load(Relaxed) {
            return None;
        }
        let (backend, reason) = cell.choice().filter(|(backend, _)| self.may_run(*backend))?;
        Some(key.route(backend, Reason::from_number(reason), None))
    }

    /// Reports that the call completed, and its end-to-end time.
    #[inline]
    pub fn finished(&self, route: &Route, elapsed_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        self.took(cell, arm, route, elapsed_ns);
        if route.reason == Reason::LastResort {
            self.ran_again(arm, route.backend);
        }
    }

    /// Reports a call that shared the machine with vyre's own background work. A slow time says
    /// little about the backend then, so only one in three slow calls counts: enough to notice a
    /// real slowdown.
    #[cold]
    pub fn finished_disturbed(&self, route: &Route, elapsed_ns: u64) {
        let Some((_, arm)) = self.arm_of(route) else { return };
        let slow = usual_ns(arm).is_some_and(|usual_ns| elapsed_ns as f64 > usual_ns);
        if !slow || arm.disturbed.fetch_add(1, Relaxed) % COUNTED_OF_DISTURBED == COUNTED_OF_DISTURBED - 1 {
            return self.finished(route, elapsed_ns);
        }
        self.finished_untimed(route, elapsed_ns);
        if route.reason == Reason::LastResort {
            self.ran_again(arm, route.backend);
        }
    }

    /// Reports a call whose time says nothing about its backend, such as a share of a sequence's
    /// time: the call is counted, and nothing is learnt from it.
    #[cold]
    pub fn finished_untimed(&self, route: &Route, elapsed_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        cell.count();
        arm.statistics.count();
        self.abandoned(route, elapsed_ns);
    }

    /// The usual time of such calls on the route's backend; `None` before the first.
    pub fn usual_ns(&self, route: &Route) -> Option<f64> {
        self.arm_of(route).and_then(|(_, arm)| usual_ns(arm))
    }

    /// Reports that the call ended in a way that says nothing about its backend, such as a failure
    /// on a device instance that was lost and has since been reopened.
    #[cold]
    pub fn abandoned(&self, route: &Route, elapsed_ns: u64) {
        let Some((cell, _)) = self.arm_of(route) else { return };
        cell.add_time(elapsed_ns);
        if route.reason == Reason::Probe {
            let incumbent = cell.incumbent().and_then(|incumbent| cell.arm(incumbent)?.statistics.pace());
            let to_beat_ns = incumbent.map_or(0, |pace| pace.time_ns() as u64);
            self.spend(route.backend, elapsed_ns as i64 - to_beat_ns as i64);
            self.probe_until_ns.store(0, Relaxed);
            cell.end_burst();
        }
    }

    /// Reports that the call failed. If the backend is at fault, it is quarantined: for all
    /// programs if its device is lost, for this size if it was out of memory, otherwise for this
    /// program. A call that exceeded the caller's deadline counts as a slow call.
    #[cold]
    pub fn failed(&self, route: &Route, error: &BackendError, elapsed_ns: u64, now_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        let slow = usual_ns(arm).is_none_or(|usual_ns| elapsed_ns as f64 > usual_ns);
        if slow && matches!(error, BackendError::Timeout { .. }) {
            return self.took(cell, arm, route, elapsed_ns);
        }
        self.abandoned(route, elapsed_ns);
        if excuse(error).is_some() {
            return;
        }
        let (own, shared) =
            (&self.backends[route.backend.index()], &self.shared.backends[route.backend.index()]);
        match error {
            BackendError::DeviceLost { .. } => shared.device.quarantine(&error.to_string(), now_ns),
            BackendError::DeviceOutOfMemory { .. } => {
                arm.blocked_until_ns.store(now_ns.saturating_add(OUT_OF_MEMORY_NS), Relaxed);
            }
            _ => own.trust.quarantine(&error.to_string(), now_ns),
        }
        if cell.incumbent() == Some(route.backend) {
            cell.unseat();
        }
    }

    /// Reports the outcome of a verification: the times of small runs, or why the backend was
    /// rejected.
    pub fn verified(&self, backend: BackendIndex, outcome: Result<&[Timing], &Rejection>, now_ns: u64) {
        match outcome {
            Ok(timings) if self.shared.conforms(backend) => {
                for timing in timings {
                    let cell = self.cell(CellKey::new(timing.elements, Placement::Host));
                    if let Some(arm) = cell.arm(backend) {
                        arm.statistics.tell(timing.elapsed_ns);
                    }
                }
                self.backends[backend.index()].trust.verify();
            }
            Ok(_) => {}
            Err(rejection) => self.reject(backend, rejection, now_ns),
        }
        self.look_everywhere();
    }

    /// Reports the outcome of a canary, and how long it took.
    pub fn canary(&self, backend: BackendIndex, outcome: Result<(), &Rejection>, spent_ns: u64, now_ns: u64) {
        self.canary_spent_ns.fetch_add(spent_ns, Relaxed);
        self.canary_until_ns.store(0, Relaxed);
        if let Err(rejection) = outcome {
            self.reject(backend, rejection, now_ns);
        }
    }

    /// Explains where calls of this size go. Has no effect on routing.
    pub fn explain(&self, elements: u64, placement: Placement, now_ns: u64) -> RouteExplanation {
        RouteExplanation::new(self, elements, placement, now_ns)
    }

    /// The time of all calls, and how much of it probes took beyond the incumbent's expected time.
    pub fn time_spent(&self) -> TimeSpent {
        let unsettled: u64 = self.all_cells().map(|(_, cell)| cell.unsettled_ns()).sum();
        TimeSpent {
            total_ns: self.total_ns.load(Relaxed).saturating_add(unsettled),
            probes_ns: self.spent_ns.load(Relaxed),
        }
    }

    /// The number of completed calls, at all sizes.
    pub fn calls(&self) -> u64 {
        self.all_cells().map(|(_, cell)| cell.calls()).sum()
    }

    /// Applies the table's rows about a pending backend once its identity is known.
    pub(super) fn met(&self, backend: BackendIndex) {
        self.trust_rows(backend);
        for (bucket, cell) in self.host.all() {
            self.tell_row(cell, bucket, backend);
        }
        self.look_everywhere();
    }
}

/// Effects of reports.
impl ProgramRoutes {
    /// Counts a call and its time.
    #[inline]
    fn took(&self, cell: &Cell, arm: &Arm, route: &Route, elapsed_ns: u64) {
        cell.count();
        cell.add_time(elapsed_ns);
        if route.reason == Reason::Probe {
            return self.probe_finished(cell, arm, route, elapsed_ns);
        }
        let pace = arm.statistics.add(elapsed_ns);
        if (pace.has_changed() || cell.is_beaten(pace.level)) && cell.incumbent() == Some(route.backend) {
            match pace.has_changed() {
                true => self.forget(cell, route.backend),
                false => cell.look_now(),
            }
        }
    }

    /// Clears the quarantine and blocks of a backend that ran as a last resort.
    #[cold]
    fn ran_again(&self, arm: &Arm, backend: BackendIndex) {
        self.backends[backend.index()].trust.recover();
        self.shared.backends[backend.index()].device.recover();
        arm.blocked_until_ns.store(0, Relaxed);
    }

    fn reject(&self, backend: BackendIndex, rejection: &Rejection, now_ns: u64) {
        let Some(own) = self.backends.get(backend.index()) else { return };
        match rejection {
            Rejection::Wrong(reason) => own.trust.reject(reason),
            Rejection::Failed(reason) => own.trust.quarantine(reason, now_ns),
            Rejection::Inconclusive(_) => own.trust.release(now_ns),
        }
    }

    #[cold]
    fn probe_finished(&self, cell: &Cell, arm: &Arm, route: &Route, elapsed_ns: u64) {
        self.probe_until_ns.store(0, Relaxed);
        let rival = cell.incumbent().filter(|&incumbent| incumbent != route.backend);
        let Some(incumbent) = rival.and_then(|rival| cell.arm(rival)?.statistics.pace()) else {
            // It became the incumbent while this call ran.
            arm.statistics.add(elapsed_ns);
            return;
        };
        let key = CellKey { bucket: route.bucket, home: route.home, bytes: 0 };
        let result = judge(&Probe {
            elapsed_ns,
            burst: cell.burst(),
            expected_ns: self.estimate(key, route.backend).map_or(f64::INFINITY, |expected| expected.ns),
            before: arm.statistics.pace(),
            incumbent,
            rested: arm.rested(),
            first_ns: arm.first_probe_ns.load(Relaxed),
        });
        if cell.burst().calls == 0 {
            arm.first_probe_ns.store(elapsed_ns, Relaxed);
        }
        arm.statistics.count();
        self.apply(cell, arm, route.backend, result);
    }

    /// Applies the result of a probe.
    fn apply(&self, cell: &Cell, arm: &Arm, backend: BackendIndex, result: ProbeResult) {
        self.spend(backend, result.price_ns);
        let number = cell.calls();
        match result.outcome {
            ProbeOutcome::WarmingUp(burst) => cell.go_on(backend, burst),
            ProbeOutcome::Ahead(pace, burst) => {
                arm.statistics.store(pace);
                cell.go_on(backend, burst);
            }
            ProbeOutcome::TakesOver(pace) => {
                arm.statistics.store(pace);
                cell.end_burst();
                if let Some(loser) = cell.incumbent().and_then(|incumbent| cell.arm(incumbent)) {
                    loser.rest(number, SHORTEST_REST);
                }
                cell.choose(backend, Reason::Measured as u8);
            }
            ProbeOutcome::Rests(pace, calls) => {
                arm.statistics.store(pace);
                cell.end_burst();
                arm.rest(number, calls);
                cell.next_look.fetch_min(number + calls, Relaxed);
            }
        }
    }

    /// Adds to the cost of probes; a probe that was faster than the incumbent earns some of it
    /// back.
    fn spend(&self, backend: BackendIndex, price_ns: i64) {
        for spent_ns in [&self.spent_ns, &self.backends[backend.index()].spent_ns] {
            let spent = |spent: u64| Some(spent.saturating_add_signed(price_ns));
            // The closure always returns `Some`, so the update cannot fail.
            let _ = spent_ns.fetch_update(Relaxed, Relaxed, spent);
        }
    }

    /// Restarts the statistics of a cell whose incumbent became slower or faster: its level moves
    /// to its recent times, and the levels of the others are in doubt until their next call.
    #[cold]
    fn forget(&self, cell: &Cell, incumbent: BackendIndex) {
        for (backend, arm) in self.indices().zip(&cell.arms) {
            if let Some(pace) = arm.statistics.pace() {
                arm.statistics.store(if backend == incumbent { pace.restarted() } else { pace.in_doubt() });
            }
            arm.rest(0, 0);
        }
        cell.end_burst();
        cell.look_now();
    }

    fn look_everywhere(&self) {
        for (_, cell) in self.all_cells() {
            cell.look_now();
        }
    }
}

/// The usual time of a backend's calls; `None` before the first.
fn usual_ns(arm: &Arm) -> Option<f64> {
    arm.statistics.pace().filter(|pace| pace.recent > 0).map(|pace| pace.time_ns())
}

/// The search beyond the incumbent: at intervals, and whenever something changed.
impl ProgramRoutes {
    #[cold]
    fn look(&self, cell: &Cell, key: CellKey, call: &RouteRequest) -> Result<Route, NoRoute> {
        self.settle(cell);
        self.expire(call.now_ns);
        let Some((incumbent, reason)) = self.seat(cell, key, call) else {
            let last = self.last_resort(call).ok_or_else(|| self.no_route(key, call))?;
            return Ok(key.route(last, Reason::LastResort, None));
        };
        if !call.exclude.is_empty() {
            return Ok(key.route(incumbent, Reason::Fallback, None));
        }
        let number = cell.calls();
        let interval = cell.look_interval.load(Relaxed).max(number.clamp(1, CANARY_PERIOD));
        cell.next_look.store(number + interval, Relaxed);
        let probe = self.probe(cell, key, incumbent, call);
        cell.expect_rival(self.nearest_rival(cell, key, incumbent, call));
        // A call over no elements shows nothing.
        let background = if call.elements > 0 { self.background(cell, incumbent, call.now_ns) } else { None };
        // The interval grows with the calls of the cell, from every call up to every sixteenth.
        // While looks find nothing to do because the budgets are used up, it doubles each time: one
        // look takes as long as routing many calls.
        let idle = probe.is_none() && background.is_none() && !self.affords_canary();
        cell.look_interval.store(if idle { (2 * interval).min(LONGEST_LOOK_INTERVAL) } else { 0 }, Relaxed);
        let (backend, reason) = probe.map_or((incumbent, reason), |backend| (backend, Reason::Probe));
        Ok(key.route(backend, reason, background))
    }

    /// Adds a cell's pending time to the program's total.
    pub(super) fn settle(&self, cell: &Cell) {
        self.total_ns.fetch_add(cell.settle(), Relaxed);
    }

    /// Ends quarantines and claims that have expired. A frozen router verifies nothing, so it
    /// restores a backend's verified state.
    fn expire(&self, now_ns: u64) {
        for (own, shared) in self.backends.iter().zip(&self.shared.backends) {
            if own.trust.expire(now_ns) && self.shared.policy.frozen {
                own.trust.recover();
            }
            shared.device.expire(now_ns);
        }
    }

    /// The incumbent and the reason for it: the current one if it may still run, otherwise the best
    /// eligible backend.
    fn seat(&self, cell: &Cell, key: CellKey, call: &RouteRequest) -> Option<(BackendIndex, Reason)> {
        let may =
            |&backend: &BackendIndex| !call.exclude.contains(backend) && self.eligible(cell, backend, call);
        let row = self.row(key);
        if self.shared.policy.frozen {
            let backend = self.row_order(row?).find(may)?;
            cell.choose(backend, Reason::Frozen as u8);
            return Some((backend, Reason::Frozen));
        }
        let pace = |backend: BackendIndex| cell.arm(backend).and_then(|arm| arm.statistics.pace());
        let backend = cell.incumbent().filter(may).or_else(|| {
            let known = row.is_some()
                || self.indices().any(|backend| pace(backend).is_some_and(|pace| pace.recent > 0));
            let level = |backend: &BackendIndex| pace(*backend).map_or(f64::INFINITY, |pace| pace.level);
            let fastest = self.indices().filter(may).min_by(|a, b| level(a).total_cmp(&level(b)));
            if known { fastest } else { self.indices().find(may) }
        })?;
        let reason = match pace(backend) {
            Some(_) if cell.arm(backend).is_some_and(|arm| arm.statistics.calls() > 0) => Reason::Measured,
            Some(_) if row.is_some() => Reason::Table,
            Some(_) | None => Reason::Selected,
        };
        if call.exclude.is_empty() {
            cell.choose(backend, reason as u8);
        }
        Some((backend, reason))
    }

    /// The backend to probe with this call, if the probing rules allow one: the one with the lowest
    /// expected price.
    fn probe(
        &self,
        cell: &Cell,
        key: CellKey,
        incumbent: BackendIndex,
        call: &RouteRequest,
    ) -> Option<BackendIndex> {
        if self.shared.policy.frozen {
            return None;
        }
        let next = cell.take_burst_next();
        let others = self.indices().filter(|&other| other != incumbent && self.eligible(cell, other, call));
        let probed = others.filter_map(|backend| {
            let rival = self.rival(cell, key, backend, (incumbent, next), call.limit_ns);
            decide(&rival).probes.then(|| (rival.price_ns(), backend))
        });
        let (_, backend) = probed.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        if next != Some(backend) {
            cell.end_burst();
        }
        take_lease(&self.probe_until_ns, call.now_ns).then_some(backend)
    }

    /// The lowest level above the incumbent's that a rival is expected to have. Rivals below it
    /// have been considered in this look.
    fn nearest_rival(&self, cell: &Cell, key: CellKey, incumbent: BackendIndex, call: &RouteRequest) -> f64 {
        let level = cell.arm(incumbent).and_then(|arm| arm.statistics.pace()).map_or(0.0, |pace| pace.level);
        let others = self.indices().filter(|&other| other != incumbent && self.eligible(cell, other, call));
        let expected = others.filter_map(|other| self.estimate(key, other));
        let levels = expected.map(|estimate| estimate.ns.ln() + WORTH_SWITCHING);
        levels.filter(|&rival| rival > level).fold(f64::INFINITY, f64::min)
    }

    /// The inputs of the probing decision for a backend; `next` is the backend that has the next
    /// call of a burst.
    pub(super) fn rival(
        &self,
        cell: &Cell,
        key: CellKey,
        backend: BackendIndex,
        (incumbent, next): (BackendIndex, Option<BackendIndex>),
        limit_ns: u64,
    ) -> Rival {
        let estimate = self.estimate(key, backend);
        let pace = cell.arm(backend).and_then(|arm| arm.statistics.pace());
        let expected_ns = estimate.map_or(f64::INFINITY, |estimate| estimate.ns);
        let at_worst_ns = estimate.map_or(f64::INFINITY, |estimate| estimate.at_worst_ns);
        let at_most_ns = pace.map_or(at_worst_ns, |pace| pace.at_most_ns().max(at_worst_ns));
        Rival {
            in_burst: next == Some(backend),
            in_time: limit_ns == u64::MAX || at_most_ns < limit_ns as f64,
            incumbent: cell.arm(incumbent).and_then(|arm| arm.statistics.pace()),
            expected_ns,
            at_worst_ns,
            likely_ns: pace.map_or(expected_ns, |pace| pace.likely_ns()),
            rests: cell.arm(backend).map_or(0, |arm| arm.rests(cell.calls())),
            rested: cell.arm(backend).map_or(0, Arm::rested),
            total_ns: self.total_ns.load(Relaxed) as f64,
            spent_ns: self.spent_ns.load(Relaxed) as f64,
            own_ns: self.backends[backend.index()].spent_ns.load(Relaxed) as f64,
            rivals: self.backends.len().saturating_sub(1).max(1) as f64,
        }
    }

    /// A verification or a canary, if one is due.
    fn background(&self, cell: &Cell, incumbent: BackendIndex, now_ns: u64) -> Option<Background> {
        let number = cell.calls();
        if !self.shared.policy.frozen {
            let wanted = |&backend: &BackendIndex| {
                let selected = self.shared.selected() == Some(backend);
                let early = selected && number < CALLS_BEFORE_VERIFYING_SELECTED;
                !early && self.lacks_verification(backend, now_ns) && self.trust(backend).claim(now_ns)
            };
            if let Some(backend) = self.indices().find(wanted) {
                return Some(Background::Verify(backend));
            }
        }
        let verified = self.trust(incumbent).state() == TrustState::Verified;
        if !verified || number < cell.canary_due.load(Relaxed) {
            return None;
        }
        if !self.affords_canary() || !take_lease(&self.canary_until_ns, now_ns) {
            return None;
        }
        cell.canary_due.store(number + CANARY_PERIOD, Relaxed);
        Some(Background::Canary(incumbent))
    }

    fn affords_canary(&self) -> bool {
        let limit = CANARY_FREE_NS + CANARY_SHARE * self.total_ns.load(Relaxed) as f64;
        self.canary_spent_ns.load(Relaxed) as f64 <= limit
    }
}

/// Takes the lease if it is free or has expired.
fn take_lease(until_ns: &AtomicU64, now_ns: u64) -> bool {
    let taken = until_ns.load(Relaxed);
    let free = taken == 0 || now_ns >= taken;
    let end = now_ns.saturating_add(LEASE_NS);
    free && until_ns.compare_exchange(taken, end, AcqRel, Relaxed).is_ok()
}

/// Eligibility.
impl ProgramRoutes {
    /// Whether the backend may run this program; reads atomics only.
    #[inline]
    fn may_run(&self, backend: BackendIndex) -> bool {
        let (Some(own), Some(shared)) =
            (self.backends.get(backend.index()), self.shared.backends.get(backend.index()))
        else {
            return false;
        };
        if shared.device.state() == TrustState::Quarantined {
            return false;
        }
        match own.trust.state() {
            TrustState::Verified => true,
            TrustState::Quarantined | TrustState::Wrong => false,
            TrustState::Unverified | TrustState::Verifying => {
                self.shared.selected() == Some(backend)
                    && !own.trust.is_doubted()
                    && !self.shared.policy.frozen
            }
        }
    }

    /// Whether a caller may name the backend: it must be listed, not pending, and not known to be
    /// wrong.
    fn may_be_named(&self, backend: BackendIndex) -> bool {
        let (own, shared) = (self.backends.get(backend.index()), self.shared.backends.get(backend.index()));
        own.is_some_and(|own| own.trust.state() != TrustState::Wrong)
            && shared.is_some_and(|shared| shared.candidate().conformance != Conformance::Pending)
    }

    fn eligible(&self, cell: &Cell, backend: BackendIndex, call: &RouteRequest) -> bool {
        let blocked = cell.arm(backend).is_some_and(|arm| arm.blocked_until_ns.load(Relaxed) > call.now_ns);
        !blocked && self.may_run(backend)
    }

    /// Whether a verification is all that the backend lacks.
    pub fn lacks_verification(&self, backend: BackendIndex, now_ns: u64) -> bool {
        self.shared.conforms(backend)
            && self.shared.backends[backend.index()].device.state() != TrustState::Quarantined
            && self.trust(backend).is_verifiable(now_ns)
    }

    /// Whether the backend was verified at some time or is the selected one, and was never found
    /// wrong.
    fn is_known_right(&self, backend: BackendIndex) -> bool {
        let trust = self.trust(backend);
        let right = trust.was_verified() || self.shared.selected() == Some(backend);
        right && trust.state() != TrustState::Wrong
    }

    /// A backend that failed or ran out of memory, for when no other is left and none can be
    /// verified first.
    fn last_resort(&self, call: &RouteRequest) -> Option<BackendIndex> {
        if self.shared.policy.frozen || self.verify_first(call).is_some() {
            return None;
        }
        let mut rest = self.indices().filter(|&backend| !call.exclude.contains(backend));
        rest.find(|&backend| self.is_known_right(backend))
    }

    /// The first backend that could run once verified. Skips backends known to be right, which can
    /// be a last resort instead.
    fn verify_first(&self, call: &RouteRequest) -> Option<BackendIndex> {
        let lacking = |&backend: &BackendIndex| {
            !call.exclude.contains(backend)
                && self.lacks_verification(backend, call.now_ns)
                && !self.is_known_right(backend)
        };
        self.indices().find(lacking)
    }

    fn no_route(&self, key: CellKey, call: &RouteRequest) -> NoRoute {
        let asked = self.indices().filter(|&backend| call.only.is_none_or(|named| named == backend));
        let refused = asked.map(|backend| {
            let reason = if call.exclude.contains(backend) {
                "it was tried for this call and failed".to_owned()
            } else {
                self.refusal(backend, key, call.now_ns).unwrap_or_else(|| NOT_IN_THE_TABLE.to_owned())
            };
            RefusedBackend { backend: self.shared.candidate(backend).id.clone(), reason }
        });
        let verifies = !self.shared.policy.frozen && call.only.is_none();
        NoRoute {
            program: self.program.name.clone(),
            refused: refused.collect(),
            verify_first: self.verify_first(call).filter(|_| verifies),
        }
    }

    /// Why the backend may not run, as text; `None` if it may.
    pub(super) fn refusal(&self, backend: BackendIndex, key: CellKey, now_ns: u64) -> Option<String> {
        let (device, trust) = (&self.shared.backends[backend.index()].device, self.trust(backend));
        let seconds = |trust: &Trust| trust.until_ns().saturating_sub(now_ns) / 1_000_000_000;
        if device.state() == TrustState::Quarantined {
            return Some(format!(
                "its device is lost, next try in {} s: {}",
                seconds(device),
                device.reason()
            ));
        }
        let blocked = self.cell(key).arm(backend).map_or(0, |arm| arm.blocked_until_ns.load(Relaxed));
        if blocked > now_ns {
            return Some("it was out of memory at this size".to_owned());
        }
        match (trust.state(), &self.shared.candidate(backend).conformance) {
            (TrustState::Wrong, _) => Some(format!("its results were wrong: {}", trust.reason())),
            (TrustState::Quarantined, _) => {
                Some(format!("in quarantine, next try in {} s: {}", seconds(trust), trust.reason()))
            }
            _ if self.may_run(backend) => None,
            (_, Conformance::Failed(reason)) => Some(format!("it failed the conformance set: {reason}")),
            (_, Conformance::Unknown) => Some("it has not been run on the conformance set".to_owned()),
            (_, Conformance::Pending) => Some("its driver is being checked".to_owned()),
            (_, Conformance::Passed) if self.shared.policy.frozen => Some(NOT_IN_THE_TABLE.to_owned()),
            (_, Conformance::Passed) if trust.is_doubted() => {
                Some(format!("not verified again since its quarantine: {}", trust.reason()))
            }
            (_, Conformance::Passed) => Some("its results for this program are not verified yet".to_owned()),
        }
    }
}

/// Lookups.
impl ProgramRoutes {
    pub(super) fn indices(&self) -> impl Iterator<Item = BackendIndex> + use<> {
        (0..self.backends.len()).map(|position| BackendIndex(position as u8))
    }

    /// The routes of batches, once there has been one.
    pub(super) fn batches(&self) -> Option<&Arc<ProgramRoutes>> {
        self.batches.get()
    }

    pub(super) fn trust(&self, backend: BackendIndex) -> &Trust {
        &self.backends[backend.index()].trust
    }

    #[inline]
    fn arm_of(&self, route: &Route) -> Option<(&Cell, &Arm)> {
        let cell = self.cells(route.home)?.get(route.bucket)?;
        Some((cell, cell.arm(route.backend)?))
    }

    /// The cells for buffers at this home; `None` if there was no call with buffers there.
    #[inline]
    fn cells(&self, home: Option<BackendIndex>) -> Option<&Cells> {
        match home {
            None => Some(&self.host),
            Some(home) => self.backends.get(home.index())?.resident.get().map(|cells| &**cells),
        }
    }

    /// The cell of a call, created from the table's rows on first use. Buffers on an unlisted
    /// backend count as host memory.
    pub(super) fn cell(&self, key: CellKey) -> &Cell {
        let home = key.home.and_then(|home| self.backends.get(home.index()));
        let cells = home.map_or(&self.host, |home| home.resident.get_or_init(|| Box::new(Cells::new())));
        cells.get_or_make(key.bucket, || {
            let cell = Cell::new(self.backends.len());
            if key.home.is_none() {
                self.indices().for_each(|backend| self.tell_row(&cell, key.bucket, backend));
            }
            cell
        })
    }

    fn all_cells(&self) -> impl Iterator<Item = (u8, &Cell)> {
        let resident = self.backends.iter().filter_map(|backend| backend.resident.get());
        self.host.all().chain(resident.flat_map(|cells| cells.all()))
    }

    /// The pace of a backend on host memory at about this size, and the number of its calls.
    pub(super) fn on_host(&self, bucket: u8, backend: BackendIndex) -> Option<(Pace, u64)> {
        let statistics = &self.host.get(bucket)?.arm(backend)?.statistics;
        Some((statistics.pace()?, statistics.calls()))
    }

    /// The size buckets that have had calls.
    pub(super) fn buckets(&self) -> impl Iterator<Item = u8> {
        self.all_cells().filter(|(_, cell)| cell.calls() > 0).map(|(bucket, _)| bucket)
    }

    /// The verified row for this program at this size, for buffers in host memory.
    pub(super) fn row(&self, key: CellKey) -> Option<&RouteDecision> {
        let rows = self.shared.table.rows_at(&self.program, key.bucket.into());
        let mut rows = rows.filter(|_| key.home.is_none());
        rows.find(|row| self.row_order(row).next().is_some())
    }

    /// The backends that a row observed, fastest first.
    fn row_order<'a>(&'a self, row: &'a RouteDecision) -> impl Iterator<Item = BackendIndex> + 'a {
        let observed = row.observations.iter().filter_map(|seen| self.shared.index_of(&seen.backend));
        observed.filter(|&backend| self.shared.holds(row, backend))
    }

    /// Seeds a backend's time from the row of this size.
    fn tell_row(&self, cell: &Cell, bucket: u8, backend: BackendIndex) {
        let rows = self.shared.table.rows_at(&self.program, bucket.into());
        let id = &self.shared.candidate(backend).id;
        let mut seen = rows
            .filter(|row| self.shared.holds(row, backend))
            .filter_map(|row| row.observations.iter().find(|seen| seen.backend == *id));
        if let (Some(seen), Some(arm)) = (seen.next(), cell.arm(backend)) {
            arm.statistics.tell(seen.latency_ns);
        }
    }

    /// Adopts the verified rows' findings about a backend's results. One rejection outweighs any
    /// number of matches.
    fn trust_rows(&self, backend: BackendIndex) {
        let (id, trust) = (&self.shared.candidate(backend).id, self.trust(backend));
        let rows = self.shared.table.rows_of(&self.program).map(|(_, row)| row);
        for row in rows.filter(|row| self.shared.holds(row, backend)) {
            if let Some(rejected) = row.rejected.iter().find(|rejected| rejected.backend == *id) {
                trust.reject(&rejected.reason);
            } else if row.observations.iter().any(|seen| seen.backend == *id) {
                trust.verify();
            }
        }
    }

    /// The backend's expected time for a call.
    pub(super) fn estimate(&self, key: CellKey, backend: BackendIndex) -> Option<Estimate> {
        let here = Estimate::new(self.cells(key.home)?, key.bucket, backend);
        here.or_else(|| {
            key.home?;
            Some(Estimate::new(&self.host, key.bucket, backend)?.moved(self.moving_ns(key, backend)))
        })
    }

    /// The time to transfer a call's resident buffers to the backend and back.
    fn moving_ns(&self, key: CellKey, backend: BackendIndex) -> f64 {
        let Some(home) = key.home.filter(|&home| home != backend) else { return 0.0 };
        let backends = [home, backend].into_iter().filter_map(|end| self.shared.backends.get(end.index()));
        let ns_per_kib: u64 = backends.map(|backend| backend.transfer_ns_per_kib.load(Relaxed)).sum();
        2.0 * key.bytes as f64 / 1024.0 * ns_per_kib as f64
    }
}
