//! The routes of one program: the warm path, and what a look beyond the incumbent decides.

use super::cell::{
    Arm, BurstCall, BurstStep, Cell, Cells, LONG_INTERVAL, LONGEST_LOOK_INTERVAL, SHORT_INTERVAL,
    STALE_INTERVAL,
};
use super::fallback::is_the_backends_fault;
use super::standing::{Offence, Standing, State};
use super::statistics::{Snapshot, Verdict};
use super::{
    BackendIndex, Background, Call, Conformance, NoRoute, Placement, Reason, RefusedBackend, Rejection,
    Route, Shared, Timing,
};
use crate::BackendError;
use crate::pgo::{RouteDecision, size_bucket};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

/// A backend that runs a program is checked again after so many calls of one cell.
pub const CANARY_PERIOD: u64 = 16;

/// How much of a program's time its probes may cost.
pub(super) const PROBE_SHARE: f64 = 0.01;
/// What a probe that is expected to pay off may cost at worst, as a part of the program's time.
const PROMISED_SHARE: f64 = 0.1;
/// How much slower than what follows from other sizes a backend may turn out to be.
const SAFETY: f64 = 4.0;
/// A probe that took so many times what was expected may have been warming up.
const SURPRISING: f64 = 1.5;
/// A backend is promising if it is expected to take less than so many times what the incumbent takes.
const PROMISING: f64 = 2.0;
/// One that was seldom called at this size, or never, is taken for slow if it is expected to take so many times as long.
const HOPELESS: f64 = 16.0;
/// Two sizes tell fixed from growing cost if they are at least so many buckets apart; what is nearer may be noise.
const APART: u8 = 3;
/// How far off a single time may be, as a part of it: differences below it say nothing about what grows.
const NOISE: f64 = 0.2;
/// The part of a backend's time that grows with the size even if none seems to: expected, and at worst.
const LEAST_GROWING_PART: f64 = 1.0 / 1024.0;
const LEAST_GROWING_PART_AT_WORST: f64 = 1.0 / 64.0;
/// A backend about as fast as the incumbent is probed so often, then the tie is the incumbent's.
const PROBES_OF_A_TIE: u64 = 20;
/// What the mean must be better by then: 1%.
const WORTH_SWITCHING: f64 = 0.01;
/// After so many calls of a backend, what a probe took beyond three deviations is a hiccup, which any backend has.
const CALLS_BEFORE_HICCUPS: u64 = 2;
/// A probe or canary that was not reported by then is taken for lost.
const LEASE_NS: u64 = 10_000_000_000;
/// Canaries may always take this long in all, and beyond it a share of the program's time.
const CANARY_FREE_NS: f64 = 50e6;
const CANARY_SHARE: f64 = 0.02;
/// Of slow calls beside other work, one in so many counts.
const COUNTED_OF_DISTURBED: u64 = 3;
/// How long a backend that was out of memory for a size is not asked again.
const OUT_OF_MEMORY_NS: u64 = 60_000_000_000;
/// The selected backend is verified only for programs that are called so often; others at once.
const CALLS_BEFORE_VERIFYING_SELECTED: u64 = 16;

/// Why a frozen router refuses a backend.
const NOT_IN_THE_TABLE: &str =
    "routing is frozen, and no verified row of the table has it for this program and size";

/// The routes of one program, shared by threads. See the [module](super) for how it decides.
#[derive(Debug)]
pub struct ProgramRoutes {
    pub(super) shared: Arc<Shared>,
    key: String,
    fingerprint: String,
    pub(super) standings: Box<[Standing]>,
    pub(super) host: Cells,
    /// By the backend that the buffers are resident on.
    resident: Box<[OnceLock<Box<Cells>>]>,
    total_ns: AtomicU64,
    spent_ns: AtomicU64,
    /// Until when the probe under way counts as such; 0 if there is none.
    probe_until_ns: AtomicU64,
    canary_until_ns: AtomicU64,
    canary_spent_ns: AtomicU64,
}

/// Which cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) bucket: u8,
    pub(super) home: Option<BackendIndex>,
    /// Bytes that have to move if the call runs anywhere but at its home.
    pub(super) bytes: u64,
}

impl Place {
    pub(super) fn new(elements: u64, placement: Placement) -> Place {
        let bucket = size_bucket(elements) as u8;
        match placement {
            Placement::Host => Place { bucket, home: None, bytes: 0 },
            Placement::Resident { home, bytes } => Place { bucket, home: Some(home), bytes },
        }
    }
}

/// What a backend's time is expected to be, and from what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) ns: f64,
    /// What it may turn out to be.
    pub(super) at_worst_ns: f64,
    pub(super) basis: Basis,
}

impl Estimate {
    fn measured(ns: f64, basis: Basis) -> Estimate {
        Estimate { ns, at_worst_ns: ns, basis }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// Calls in this cell.
    Calls,
    /// A verified row, a verification, or calls before a change.
    Earlier,
    /// The time on host memory, and moving the buffers.
    Moved,
    /// Other sizes, this one being the nearest.
    Scaled { from_bucket: u8 },
}

impl ProgramRoutes {
    pub(super) fn new(shared: Arc<Shared>, key: String, fingerprint: String) -> ProgramRoutes {
        let count = shared.backends.len();
        let routes = ProgramRoutes {
            key,
            fingerprint,
            standings: (0..count).map(|_| Standing::default()).collect(),
            host: Cells::new(),
            resident: (0..count).map(|_| OnceLock::new()).collect(),
            total_ns: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            probe_until_ns: AtomicU64::new(0),
            canary_until_ns: AtomicU64::new(0),
            canary_spent_ns: AtomicU64::new(0),
            shared,
        };
        routes.trust_rows();
        routes
    }

    /// The op id, or `fp:` and the fingerprint.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The program's fingerprint in hexadecimal.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Where this call goes. Every route that is given has to be reported: by [`finished`](Self::finished) or
    /// [`failed`](Self::failed).
    pub fn route(&self, call: &Call) -> Result<Route, NoRoute> {
        if let Some(route) = self.warm_route(call) {
            return Ok(route);
        }
        let place = Place::new(call.elements, call.placement);
        self.look(self.cell(place), place, call)
    }

    /// The same, for calls that go where the last one went or where the caller says: a few loads. `None` if
    /// [`route`](Self::route) has to look around.
    pub fn warm_route(&self, call: &Call) -> Option<Route> {
        if !call.exclude.is_empty() {
            return None;
        }
        let place = Place::new(call.elements, call.placement);
        if let Some(backend) = call.only {
            self.standings.get(backend.index())?;
            self.cell(place);
            let reason = Reason::Named;
            return Some(Route { backend, reason, background: None, bucket: place.bucket, home: place.home });
        }
        let cell = self.cells(place.home)?.get(place.bucket)?;
        if cell.calls.load(Relaxed) >= cell.next_look.load(Relaxed) {
            return None;
        }
        let (backend, reason) = cell.choice().filter(|(backend, _)| self.may_run(*backend))?;
        let reason = Reason::from_number(reason);
        Some(Route { backend, reason, background: None, bucket: place.bucket, home: place.home })
    }

    /// Reports that the call is done, and how long it took end to end.
    pub fn finished(&self, route: &Route, elapsed_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        cell.calls.fetch_add(1, Relaxed);
        cell.unsettled_ns.fetch_add(elapsed_ns, Relaxed);
        if route.reason == Reason::Probe {
            self.probe_finished(cell, route, elapsed_ns);
        } else if arm.statistics.add(elapsed_ns) == Verdict::Slowed && cell.incumbent() == Some(route.backend)
        {
            self.forget(cell, route.backend);
        }
    }

    /// The same for a call that shared the machine with work of vyre's own. That such a call was slow says little about its
    /// backend, so of those that were only one in three counts: enough to notice one that really slowed down.
    #[cold]
    pub fn finished_disturbed(&self, route: &Route, elapsed_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        let usual = arm.statistics.snapshot().filter(|seen| seen.recent > 0);
        let slow = usual.is_some_and(|seen| elapsed_ns as f64 > seen.time_ns());
        if !slow || arm.disturbed.fetch_add(1, Relaxed) % COUNTED_OF_DISTURBED == COUNTED_OF_DISTURBED - 1 {
            return self.finished(route, elapsed_ns);
        }
        cell.calls.fetch_add(1, Relaxed);
        cell.unsettled_ns.fetch_add(elapsed_ns, Relaxed);
        arm.statistics.count();
        if route.reason == Reason::Probe {
            let standard = cell.incumbent().and_then(|incumbent| cell.arm(incumbent)?.statistics.snapshot());
            let to_beat_ns = standard.map_or(0, |seen| seen.time_ns() as u64);
            self.spent_ns.fetch_add(elapsed_ns.saturating_sub(to_beat_ns), Relaxed);
            self.probe_until_ns.store(0, Relaxed);
            cell.burst.end();
        }
    }

    /// Reports that the call failed. A failure that is the backend's fault puts it into quarantine: for all programs
    /// if its device is lost, for this size if it was out of memory, else for this program.
    pub fn failed(&self, route: &Route, error: &BackendError, elapsed_ns: u64, now_ns: u64) {
        let Some((cell, arm)) = self.arm_of(route) else { return };
        cell.unsettled_ns.fetch_add(elapsed_ns, Relaxed);
        if route.reason == Reason::Probe {
            self.spent_ns.fetch_add(elapsed_ns, Relaxed);
            self.probe_until_ns.store(0, Relaxed);
            cell.burst.end();
        }
        if !is_the_backends_fault(error) {
            return;
        }
        let reason = error.to_string();
        match error {
            BackendError::DeviceLost { .. } => {
                self.shared.backends[route.backend.index()].device.quarantine(
                    Offence::Failed,
                    &reason,
                    now_ns,
                );
            }
            BackendError::DeviceOutOfMemory { .. } => {
                arm.blocked_until_ns.store(now_ns.saturating_add(OUT_OF_MEMORY_NS), Relaxed);
            }
            _ => self.standings[route.backend.index()].quarantine(Offence::Failed, &reason, now_ns),
        }
        if cell.incumbent() == Some(route.backend) {
            cell.unseat();
        }
    }

    /// Reports the outcome of a verification: how long small runs took, or what speaks against the backend.
    pub fn verified(&self, backend: BackendIndex, outcome: Result<&[Timing], Rejection<'_>>, now_ns: u64) {
        let Some(standing) = self.standings.get(backend.index()) else { return };
        match outcome {
            Ok(timings) => {
                for timing in timings {
                    let cell = self.cell(Place::new(timing.elements, Placement::Host));
                    if let Some(arm) = cell.arm(backend) {
                        arm.statistics.tell(timing.elapsed_ns);
                    }
                }
                standing.verify();
            }
            Err(rejection) => reject(standing, rejection, now_ns),
        }
        for (_, cell) in self.all_cells() {
            cell.look_now();
        }
    }

    /// Reports the outcome of a canary, and how long it took.
    pub fn canary(
        &self,
        backend: BackendIndex,
        outcome: Result<(), Rejection<'_>>,
        spent_ns: u64,
        now_ns: u64,
    ) {
        self.canary_spent_ns.fetch_add(spent_ns, Relaxed);
        self.canary_until_ns.store(0, Relaxed);
        if let (Err(rejection), Some(standing)) = (outcome, self.standings.get(backend.index())) {
            reject(standing, rejection, now_ns);
        }
    }

    /// The time of all calls, and how much of it probes took beyond what the incumbent was expected to take.
    pub fn time_spent(&self) -> TimeSpent {
        let unsettled: u64 = self.all_cells().map(|(_, cell)| cell.unsettled_ns.load(Relaxed)).sum();
        TimeSpent {
            total_ns: self.total_ns.load(Relaxed).saturating_add(unsettled),
            probes_ns: self.spent_ns.load(Relaxed),
        }
    }

    /// How many calls were done, at all sizes.
    pub fn calls(&self) -> u64 {
        self.all_cells().map(|(_, cell)| cell.calls.load(Relaxed)).sum()
    }
}

/// What a program's calls took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpent {
    /// All calls.
    pub total_ns: u64,
    /// What probes took beyond what the incumbent was expected to take.
    pub probes_ns: u64,
}

fn reject(standing: &Standing, rejection: Rejection<'_>, now_ns: u64) {
    match rejection {
        Rejection::Wrong(reason) => standing.quarantine(Offence::Wrong, reason, now_ns),
        Rejection::Failed(reason) => standing.quarantine(Offence::Failed, reason, now_ns),
    }
}

/// Looking beyond the incumbent: now and then, and whenever something changed.
impl ProgramRoutes {
    #[cold]
    fn look(&self, cell: &Cell, place: Place, call: &Call) -> Result<Route, NoRoute> {
        let route = |backend, reason, background| Route {
            backend,
            reason,
            background,
            bucket: place.bucket,
            home: place.home,
        };
        self.settle(cell);
        self.expire(call.now_ns);
        let Some((incumbent, reason)) = self.seat(cell, place, call) else {
            let last = self.last_resort(call).ok_or_else(|| self.no_route(place, call))?;
            return Ok(route(last, Reason::LastResort, None));
        };
        if !call.exclude.is_empty() {
            return Ok(route(incumbent, Reason::Fallback, None));
        }
        let number = cell.calls.load(Relaxed);
        let interval = cell.look_interval.load(Relaxed).max(number.clamp(1, CANARY_PERIOD));
        cell.next_look.store(number + interval, Relaxed);
        let probe = self.probe(cell, place, incumbent, call);
        let background = self.background(cell, incumbent, call.now_ns);
        // At first every call may change what is known, later every sixteenth. While looks find nothing to do, because budgets
        // are used up, they become fewer: a look takes as long as the routing of many calls.
        let idle = probe.is_none() && background.is_none() && !self.affords_canary();
        cell.look_interval.store(if idle { (2 * interval).min(LONGEST_LOOK_INTERVAL) } else { 0 }, Relaxed);
        let (backend, reason) = probe.map_or((incumbent, reason), |backend| (backend, Reason::Probe));
        Ok(route(backend, reason, background))
    }

    /// Adds a cell's time to the program's.
    fn settle(&self, cell: &Cell) {
        self.total_ns.fetch_add(cell.unsettled_ns.swap(0, Relaxed), Relaxed);
    }

    /// Ends quarantines and claims whose time is up.
    fn expire(&self, now_ns: u64) {
        for (standing, backend) in self.standings.iter().zip(&self.shared.backends) {
            standing.expire(now_ns);
            backend.device.expire(now_ns);
        }
    }

    /// The incumbent and why it is: the present one if it may still run, else the best of those that may.
    fn seat(&self, cell: &Cell, place: Place, call: &Call) -> Option<(BackendIndex, Reason)> {
        let may =
            |&backend: &BackendIndex| !call.exclude.contains(backend) && self.eligible(cell, backend, call);
        let live = |backend: BackendIndex| cell.arm(backend).and_then(|arm| arm.statistics.snapshot());
        let row = self.row(place);
        if self.shared.policy.frozen {
            let backend = self.row_order(row?).find(may)?;
            cell.choose(backend, Reason::Frozen as u8);
            return Some((backend, Reason::Frozen));
        }
        let measured = |backend| live(backend).is_some_and(|seen| seen.recent > 0);
        let backend = cell.incumbent().filter(may).or_else(|| {
            let known = row.is_some() || self.indices().any(measured);
            let level = |backend: &BackendIndex| live(*backend).map_or(f64::INFINITY, |seen| seen.level);
            let fastest = self.indices().filter(may).min_by(|a, b| level(a).total_cmp(&level(b)));
            if known { fastest } else { self.indices().find(may) }
        })?;
        let reason = match live(backend) {
            Some(seen) if seen.calls > 0 => Reason::Measured,
            Some(_) if row.is_some() => Reason::Table,
            Some(_) | None => Reason::Selected,
        };
        if call.exclude.is_empty() {
            cell.choose(backend, reason as u8);
        }
        Some((backend, reason))
    }

    /// Another backend for this call, if its time is worth knowing and within the budget.
    fn probe(&self, cell: &Cell, place: Place, incumbent: BackendIndex, call: &Call) -> Option<BackendIndex> {
        if self.shared.policy.frozen {
            return None;
        }
        let standard = cell.arm(incumbent)?.statistics.snapshot().filter(|seen| seen.recent > 0)?;
        if let Some(backend) = cell.burst.take_next()
            && backend != incumbent
            && self.eligible(cell, backend, call)
        {
            return take_lease(&self.probe_until_ns, call.now_ns).then_some(backend);
        }
        cell.burst.end();
        let others = self.indices().filter(|&other| other != incumbent && self.eligible(cell, other, call));
        let priced = others.filter_map(|backend| {
            let estimate = self.estimate(place, backend, incumbent)?;
            Some((self.price(cell, backend, estimate, (incumbent, &standard))?, backend))
        });
        let (_, backend) = priced.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        take_lease(&self.probe_until_ns, call.now_ns).then_some(backend)
    }

    /// What probing a backend is expected to cost beyond a call of the incumbent, or at best; `None` if it is not due, not worth
    /// it or beyond the budget.
    fn price(
        &self,
        cell: &Cell,
        backend: BackendIndex,
        estimate: Estimate,
        (incumbent, standard): (BackendIndex, &Snapshot),
    ) -> Option<f64> {
        let (arm, number, best_ns) = (cell.arm(backend)?, cell.calls.load(Relaxed), standard.time_ns());
        let price = estimate.ns - best_ns;
        if price < 0.0 {
            cell.next_look.fetch_min(number + 2, Relaxed);
        }
        let due = price < 0.0 || number >= arm.due.load(Relaxed);
        // One call may have been slow for reasons of its own, unless the difference is beyond that.
        let sure = standard.recent > 1 || estimate.ns < best_ns / 2.0;
        let (total, spent) = (self.total_ns.load(Relaxed) as f64, self.spent_ns.load(Relaxed) as f64);
        // What was faster than the incumbent when both were at their best, and slower when it was last called, may have had to
        // share the machine: once that is over, staying costs more than asking again.
        let at_best_ns = |arm: &Arm| arm.statistics.lowest_ns().unwrap_or(f64::INFINITY);
        let fallen = at_best_ns(arm) < at_best_ns(cell.arm(incumbent)?) && price > 0.0;
        // Asking again whether what is known to be slow still is leaves half of the budget to sizes that are new.
        let slow = match estimate.basis {
            Basis::Calls if !fallen && arm.statistics.is_sure() => PROMISING,
            Basis::Calls | Basis::Earlier | Basis::Moved | Basis::Scaled { .. } => HOPELESS,
        };
        let known_slow = estimate.ns > slow * best_ns;
        let limit = PROBE_SHARE * if known_slow { total / 2.0 } else { total };
        // A backend that is known to be slow is not asked again at the price of all that the budget gives.
        let reasonable = estimate.basis != Basis::Calls || price <= limit / 4.0;
        // What is expected to be far slower has to leave room for what may be faster.
        let budgeted = if estimate.ns > SAFETY * best_ns && !fallen { SAFETY * price } else { price };
        // An estimate from other sizes may be far off; even so, a probe takes no longer than all calls before it.
        let bearable = estimate.at_worst_ns - best_ns <= total;
        // What other sizes say is faster may be tried once also when earlier probes took more than their budget, if little is
        // lost should it not be.
        let is_new = arm.statistics.snapshot().is_none_or(|seen| seen.calls == 0);
        let promised = price < 0.0 && is_new && estimate.at_worst_ns - best_ns <= PROMISED_SHARE * total;
        // One that has probably been faster here costs nothing.
        let seen = arm.statistics.snapshot().filter(|seen| seen.recent > 1);
        let faster =
            seen.is_some_and(|seen| standard.level - seen.level > seen.error().hypot(standard.error()));
        let affordable = spent + budgeted <= limit || promised || faster;
        // Once the incumbent has slowed down, staying is the greater risk.
        let leaving = price < 0.0 && cell.shaken.load(Relaxed);
        let worth = due && sure && reasonable && (leaving || (bearable && affordable));
        worth.then_some(if fallen { at_best_ns(arm) - best_ns } else { price })
    }

    fn probe_finished(&self, cell: &Cell, route: &Route, elapsed_ns: u64) {
        let backend = route.backend;
        self.probe_until_ns.store(0, Relaxed);
        let snapshot = |backend| cell.arm(backend).and_then(|arm: &Arm| arm.statistics.snapshot());
        let Some(arm) = cell.arm(backend) else { return };
        let rival = cell.incumbent().filter(|&incumbent| incumbent != backend);
        let Some((incumbent, standard)) = rival.and_then(|rival| Some((rival, snapshot(rival)?))) else {
            // It took over while this call ran.
            cell.shaken.store(false, Relaxed);
            arm.statistics.add(elapsed_ns);
            return;
        };
        let before = snapshot(backend);
        let known = before.filter(|seen| seen.recent >= CALLS_BEFORE_HICCUPS);
        let usual_ns = known.map_or(u64::MAX, |seen| seen.at_most_ns() as u64);
        let to_beat_ns = standard.time_ns();
        let price = elapsed_ns.min(usual_ns).saturating_sub(to_beat_ns as u64);
        let spent = self.spent_ns.fetch_add(price, Relaxed).saturating_add(price);
        let place = Place { bucket: route.bucket, home: route.home, bytes: 0 };
        let expected_ns =
            self.estimate(place, backend, incumbent).map_or(f64::INFINITY, |expected| expected.ns);
        // At a size that is new to it, a backend that should be about as fast may have more to warm up than the budget has room for.
        let is_new = before.is_none_or(|seen| seen.recent == 0);
        let budget_ns = PROBE_SHARE * self.time_spent().total_ns as f64 - spent as f64;
        let surprising = elapsed_ns as f64 > SURPRISING * expected_ns;
        let may_be_cold = surprising && is_new && expected_ns < PROMISING * to_beat_ns;
        let step = cell.burst.add(BurstCall { backend, elapsed_ns, to_beat_ns, budget_ns, may_be_cold });
        if step == BurstStep::Warming {
            arm.statistics.count();
            return cell.look_now();
        }
        if arm.interval.load(Relaxed) >= STALE_INTERVAL {
            arm.statistics.grow_stale();
        }
        let counted_ns = if let BurstStep::Over { usual_ns } = step { usual_ns } else { elapsed_ns };
        arm.statistics.add_seldom(counted_ns, standard.level);
        let Some(seen) = snapshot(backend) else { return };
        let number = cell.calls.load(Relaxed);
        if beats(&seen, &standard) {
            cell.burst.end();
            cell.shaken.store(false, Relaxed);
            cell.choose(backend, Reason::Measured as u8);
            if let Some(loser) = cell.arm(incumbent) {
                loser.interval.store(CANARY_PERIOD, Relaxed);
                loser.due.store(number + CANARY_PERIOD, Relaxed);
            }
            return;
        }
        if step == BurstStep::Winning {
            arm.interval.store(SHORT_INTERVAL, Relaxed);
            return cell.look_now();
        }
        let doubled = arm.interval.load(Relaxed).saturating_mul(2).clamp(CANARY_PERIOD, LONG_INTERVAL);
        let undecided = seen.surely_slower_by(&standard) <= 0.0 && seen.recent < PROBES_OF_A_TIE;
        // One probe may have met a hiccup; as long as it is not clear that the other is slower, staying is the greater risk.
        if !undecided {
            cell.shaken.store(false, Relaxed);
        }
        let interval = if undecided { SHORT_INTERVAL } else { doubled };
        arm.interval.store(interval, Relaxed);
        arm.due.store(number + interval, Relaxed);
        cell.next_look.fetch_min(number + interval, Relaxed);
    }

    /// The incumbent slowed down: its level is where it is now, the others may have moved along or not, and the next calls
    /// find out.
    #[cold]
    fn forget(&self, cell: &Cell, incumbent: BackendIndex) {
        let moved = cell.arm(incumbent).map_or(0.0, |arm| arm.statistics.restart());
        for (backend, arm) in self.indices().zip(&cell.arms) {
            if backend != incumbent {
                arm.statistics.doubt(moved);
            }
            arm.due.store(0, Relaxed);
            arm.interval.store(0, Relaxed);
        }
        cell.shaken.store(true, Relaxed);
        cell.burst.end();
        cell.look_now();
    }

    /// A verification or a canary, if one is due.
    fn background(&self, cell: &Cell, incumbent: BackendIndex, now_ns: u64) -> Option<Background> {
        let number = cell.calls.load(Relaxed);
        if !self.shared.policy.frozen {
            let wanted = |&backend: &BackendIndex| {
                let selected = self.shared.selected == Some(backend);
                let early = selected && number < CALLS_BEFORE_VERIFYING_SELECTED;
                !early && self.verifiable(backend) && self.standings[backend.index()].claim(now_ns)
            };
            if let Some(backend) = self.indices().find(wanted) {
                return Some(Background::Verify(backend));
            }
        }
        let verified = self.standings[incumbent.index()].state() == State::Verified;
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

/// Whether a backend does better than the incumbent: surely, or probably after enough calls.
fn beats(seen: &Snapshot, incumbent: &Snapshot) -> bool {
    let faster_by = incumbent.level - seen.level;
    let error = seen.error().hypot(incumbent.error());
    let (surely, probably) = (faster_by > 2.5 * error, faster_by > error.max(WORTH_SWITCHING));
    surely || (seen.recent >= PROBES_OF_A_TIE && probably)
}

/// Takes the one place there is, until it is given back or the lease runs out.
fn take_lease(until_ns: &AtomicU64, now_ns: u64) -> bool {
    let taken = until_ns.load(Relaxed);
    let free = taken == 0 || now_ns >= taken;
    let end = now_ns.saturating_add(LEASE_NS);
    free && until_ns.compare_exchange(taken, end, AcqRel, Relaxed).is_ok()
}

/// Who may run.
impl ProgramRoutes {
    /// Whether the backend may run this program, by atomics alone.
    pub(super) fn may_run(&self, backend: BackendIndex) -> bool {
        let (Some(standing), Some(shared)) =
            (self.standings.get(backend.index()), self.shared.backends.get(backend.index()))
        else {
            return false;
        };
        if shared.device.state() == State::Quarantined {
            return false;
        }
        match standing.state() {
            State::Verified => true,
            State::Quarantined => false,
            State::Unverified | State::Verifying => {
                self.shared.selected == Some(backend) && standing.is_clean() && !self.shared.policy.frozen
            }
        }
    }

    fn eligible(&self, cell: &Cell, backend: BackendIndex, call: &Call) -> bool {
        let blocked = cell.arm(backend).is_some_and(|arm| arm.blocked_until_ns.load(Relaxed) > call.now_ns);
        !blocked && self.may_run(backend)
    }

    /// Whether the backend lacks nothing but a verification.
    fn verifiable(&self, backend: BackendIndex) -> bool {
        let shared = &self.shared.backends[backend.index()];
        shared.candidate.conformance == Conformance::Passed
            && shared.device.state() != State::Quarantined
            && matches!(self.standings[backend.index()].state(), State::Unverified | State::Verifying)
    }

    /// A backend that failed before, or is out of memory, where no other is left and none can be verified first.
    fn last_resort(&self, call: &Call) -> Option<BackendIndex> {
        if self.shared.policy.frozen || self.verify_first(call).is_some() {
            return None;
        }
        let mut rest = self.indices().filter(|&backend| !call.exclude.contains(backend));
        rest.find(|&backend| {
            let standing = &self.standings[backend.index()];
            let known_right = standing.was_verified() || self.shared.selected == Some(backend);
            known_right && standing.offence() != Offence::Wrong
        })
    }

    /// The first that could run if it were verified, and was not found wrong before.
    fn verify_first(&self, call: &Call) -> Option<BackendIndex> {
        let untried = |&backend: &BackendIndex| {
            !call.exclude.contains(backend)
                && self.verifiable(backend)
                && self.standings[backend.index()].offence() != Offence::Wrong
        };
        self.indices().find(untried)
    }

    fn no_route(&self, place: Place, call: &Call) -> NoRoute {
        let refused = self.indices().map(|backend| {
            let reason = if call.exclude.contains(backend) {
                "it was tried for this call and failed".to_owned()
            } else {
                self.refusal(backend, place, call.now_ns).unwrap_or_else(|| NOT_IN_THE_TABLE.to_owned())
            };
            RefusedBackend { backend: self.shared.backends[backend.index()].candidate.id.clone(), reason }
        });
        NoRoute {
            program: self.key.clone(),
            refused: refused.collect(),
            verify_first: self.verify_first(call).filter(|_| !self.shared.policy.frozen),
        }
    }

    /// Why the backend may not run, in words.
    pub(super) fn refusal(&self, backend: BackendIndex, place: Place, now_ns: u64) -> Option<String> {
        let (shared, standing) = (&self.shared.backends[backend.index()], &self.standings[backend.index()]);
        if shared.device.state() == State::Quarantined {
            let seconds = shared.device.until_ns().saturating_sub(now_ns) / 1_000_000_000;
            return Some(format!("its device is lost, next try in {seconds} s: {}", shared.device.reason()));
        }
        let blocked = self.cell(place).arm(backend).map_or(0, |arm| arm.blocked_until_ns.load(Relaxed));
        if blocked > now_ns {
            return Some("it was out of memory at this size".to_owned());
        }
        if standing.state() == State::Quarantined {
            let seconds = standing.until_ns().saturating_sub(now_ns) / 1_000_000_000;
            return Some(format!("in quarantine, next try in {seconds} s: {}", standing.reason()));
        }
        if self.may_run(backend) {
            return None;
        }
        Some(match &shared.candidate.conformance {
            _ if self.shared.policy.frozen => NOT_IN_THE_TABLE.to_owned(),
            Conformance::Failed(reason) => format!("it failed the conformance set: {reason}"),
            Conformance::Unknown => "it was not tried on the conformance set".to_owned(),
            Conformance::Passed if !standing.is_clean() => {
                format!("not verified again since its quarantine: {}", standing.reason())
            }
            Conformance::Passed => "its results for this program are not verified yet".to_owned(),
        })
    }
}

/// What is known.
impl ProgramRoutes {
    pub(super) fn indices(&self) -> impl Iterator<Item = BackendIndex> + use<> {
        (0..self.standings.len()).map(|position| BackendIndex(position as u8))
    }

    fn arm_of(&self, route: &Route) -> Option<(&Cell, &Arm)> {
        let cell = self.cells(route.home)?.get(route.bucket)?;
        Some((cell, cell.arm(route.backend)?))
    }

    /// The cells with buffers in this place; `None` if there was no call with buffers there.
    fn cells(&self, home: Option<BackendIndex>) -> Option<&Cells> {
        match home {
            None => Some(&self.host),
            Some(home) => self.resident.get(home.index())?.get().map(|cells| &**cells),
        }
    }

    /// The cell of a call, made from the table's rows if it is the first. Buffers on a backend that is not in the list
    /// count as in host memory.
    pub(super) fn cell(&self, place: Place) -> &Cell {
        let slot = place.home.and_then(|home| self.resident.get(home.index()));
        let cells = slot.map_or(&self.host, |slot| slot.get_or_init(|| Box::new(Cells::new())));
        cells.get_or_make(place.bucket, || self.new_cell(place))
    }

    fn new_cell(&self, place: Place) -> Cell {
        let cell = Cell::new(self.standings.len());
        for observation in self.row(place).map_or(&[][..], |row| &row.observations) {
            if let Some(arm) = self.index_of(&observation.backend).and_then(|backend| cell.arm(backend)) {
                arm.statistics.tell(observation.latency_ns);
            }
        }
        cell
    }

    pub(super) fn all_cells(&self) -> impl Iterator<Item = (u8, &Cell)> {
        let resident = self.resident.iter().filter_map(|cells| cells.get());
        self.host.all().chain(resident.flat_map(|cells| cells.all()))
    }

    /// The verified row for this program at this size, for buffers in host memory.
    pub(super) fn row(&self, place: Place) -> Option<&RouteDecision> {
        let row = self.shared.table.route_for(&self.key, 1 << place.bucket)?;
        (place.home.is_none() && row.fingerprint == self.fingerprint).then_some(row)
    }

    /// The backends of a row, the fastest first.
    fn row_order<'a>(&'a self, row: &'a RouteDecision) -> impl Iterator<Item = BackendIndex> + 'a {
        row.observations.iter().filter_map(|observation| self.index_of(&observation.backend))
    }

    /// The verified rows of this program, of all sizes.
    fn own_rows(&self) -> impl Iterator<Item = &RouteDecision> {
        let table = &self.shared.table;
        let sized = table.routes_by_size.get(&self.key).into_iter().flat_map(|rows| rows.values());
        sized.chain(table.routes.get(&self.key)).filter(|row| row.fingerprint == self.fingerprint)
    }

    /// Takes over what verified rows say of this program's results. One rejection outweighs any number of matches.
    fn trust_rows(&self) {
        for backend in self.own_rows().flat_map(|row| self.row_order(row)) {
            self.standings[backend.index()].verify();
        }
        for rejected in self.own_rows().flat_map(|row| &row.rejected) {
            if let Some(backend) = self.index_of(&rejected.backend) {
                self.standings[backend.index()].quarantine(Offence::Wrong, &rejected.reason, 0);
            }
        }
    }

    pub(super) fn index_of(&self, id: &str) -> Option<BackendIndex> {
        let position = self.shared.backends.iter().position(|backend| backend.candidate.id == id)?;
        Some(BackendIndex(position as u8))
    }

    /// What the backend's time for a call is expected to be.
    pub(super) fn estimate(
        &self,
        place: Place,
        backend: BackendIndex,
        incumbent: BackendIndex,
    ) -> Option<Estimate> {
        let here = self.cells(place.home)?;
        // Worked out only where it is needed: looking at all sizes costs as much as routing many calls.
        let scaled = || from_other_sizes(here, place.bucket, backend, incumbent);
        if let Some(seen) = seen_at(here, place.bucket, backend) {
            // A single call that took longer than other sizes allow may have been a hiccup; where they promise a gain, it
            // does not rule the backend out.
            let best_ns = seen_at(here, place.bucket, incumbent).map_or(0.0, |best| best.time_ns());
            let promising =
                |scaled: &Estimate| seen.time_ns() > scaled.at_worst_ns && scaled.ns < SAFETY * best_ns;
            let single = seen.recent == 1 && seen.time_ns() > SAFETY * best_ns;
            if let Some(scaled) = single.then(scaled).flatten().filter(promising) {
                return Some(scaled);
            }
            let basis = if seen.recent > 0 { Basis::Calls } else { Basis::Earlier };
            return Some(Estimate::measured(seen.time_ns(), basis));
        }
        let moving = self.moving_ns(place, backend);
        if place.home.is_some()
            && let Some(seen) = seen_at(&self.host, place.bucket, backend)
        {
            return Some(Estimate::measured(seen.time_ns() + moving, Basis::Moved));
        }
        let on_host = || {
            let Estimate { ns, at_worst_ns, basis } =
                from_other_sizes(&self.host, place.bucket, backend, incumbent)?;
            Some(Estimate { ns: ns + moving, at_worst_ns: at_worst_ns + moving, basis })
        };
        scaled().or_else(|| place.home.and_then(|_| on_host()))
    }

    /// What moving a call's resident buffers to the backend and back takes.
    fn moving_ns(&self, place: Place, backend: BackendIndex) -> f64 {
        let Some(home) = place.home.filter(|&home| home != backend) else { return 0.0 };
        let rate = |backend: BackendIndex| {
            self.shared
                .backends
                .get(backend.index())
                .map_or(0, |backend| backend.transfer_ns_per_kib.load(Relaxed))
        };
        2.0 * place.bytes as f64 / 1024.0 * (rate(home) + rate(backend)) as f64
    }
}

fn seen_at(cells: &Cells, bucket: u8, backend: BackendIndex) -> Option<Snapshot> {
    cells.get(bucket)?.arm(backend)?.statistics.snapshot()
}

/// The backend's time from other sizes: on the line between the nearest smaller and the nearest larger one, or beyond the
/// smaller ones as fixed and growing cost.
fn from_other_sizes(
    cells: &Cells,
    bucket: u8,
    backend: BackendIndex,
    incumbent: BackendIndex,
) -> Option<Estimate> {
    let known = |(own, cell): (u8, &Cell)| Some((own, cell.arm(backend)?.statistics.snapshot()?.time_ns()));
    let larger = cells.all().filter(|&(own, _)| own > bucket).find_map(known);
    let Some((near, near_ns)) = cells.all().rev().filter(|&(own, _)| own < bucket).find_map(known) else {
        // Fewer elements take no longer than more.
        return larger.map(|(from_bucket, ns)| Estimate::measured(ns, Basis::Scaled { from_bucket }));
    };
    let basis = Basis::Scaled { from_bucket: near };
    let beyond = elements(bucket) - elements(near);
    if let Some((far, far_ns)) = larger {
        let between = near_ns + (far_ns - near_ns) * beyond / (elements(far) - elements(near));
        return Some(Estimate { ns: between, at_worst_ns: far_ns.max(SAFETY * between), basis });
    }
    let in_proportion = near_ns / elements(near);
    let straight = |noise: f64, least: f64| {
        let smaller = cells.all().filter(|&(own, _)| own + APART <= near).filter_map(known);
        let slopes = smaller
            .map(|(far, far_ns)| (near_ns - far_ns + noise * near_ns) / (elements(near) - elements(far)));
        // Of two slopes that noise has made different, the lower one; without another size all of the time may grow.
        let per_element = slopes.fold(in_proportion, f64::min).max(least * in_proportion);
        near_ns + per_element * beyond
    };
    let ns = straight(-NOISE, LEAST_GROWING_PART);
    let at_worst_ns = straight(NOISE, LEAST_GROWING_PART_AT_WORST).max(SAFETY * ns);
    Some(Estimate { ns, at_worst_ns: at_worst_ns * beyond_size(cells, incumbent, near, bucket), basis })
}

/// By how much the incumbent's own time grew faster than the size from one bucket to another; so may another's.
fn beyond_size(cells: &Cells, incumbent: BackendIndex, from: u8, to: u8) -> f64 {
    let incumbent_at = |bucket| cells.get(bucket)?.arm(incumbent)?.statistics.lowest_ns();
    let growth = incumbent_at(to).zip(incumbent_at(from)).map_or(1.0, |(large, small)| large / small);
    (growth * elements(from) / elements(to)).max(1.0)
}

fn elements(bucket: u8) -> f64 {
    f64::from(bucket).exp2()
}
