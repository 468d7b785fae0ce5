//! Joint launches: calls of a sequence that a device runs as one.
//!
//! Neighbours join if the router sends them to the same backend without a lookup, and if that
//! backend [takes](vyre_driver::VyreBackend::sequence_steps) several dispatches at once. A call
//! runs alone if it needs a deadline, device timing, its printed output, or a fallback that saves
//! its memory, and whenever the router wants to look, verify or probe. Durations are learnt from
//! calls that run alone.

use crate::argument::Bound;
use crate::backend::{Backend, OpenDriver};
use crate::backend_state::ReadyCode;
use crate::call;
use crate::code;
use crate::dispatch::{LaunchOutcome, RoutedCall};
use crate::held_buffers::{Bindings, HeldBuffers};
use crate::options::CallOptions;
use crate::report::Report;
use crate::routine_core::Work;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use std::sync::Arc;
use std::time::Duration;
use vyre_driver::observability::want_device_time;
use vyre_driver::router::fallback::{ChosenBy, FallbackDecision, decide, default_policy};
use vyre_driver::router::{BackendIndex, Route};
use vyre_driver::{BackendError, Failed, Fallback, SequenceStep, contain};

/// Runs checked calls in order. The first error ends the run; the calls before it are done.
pub(crate) fn run(calls: &mut [call::Call<'_>]) -> Result<Vec<Report>, BackendError> {
    let mut reports = Vec::with_capacity(calls.len());
    while let Some(rest) = calls.get_mut(reports.len()..).filter(|rest| !rest.is_empty()) {
        let joined = JoinedCalls::of(rest).map_or(Ok(false), |joined| joined.run(&mut reports))?;
        // The next call does not join, or what it needs, such as memory, may suffice for it alone.
        if !joined && let Some(alone) = calls.get_mut(reports.len()) {
            reports.push(alone.run_bound()?);
        }
    }
    Ok(reports)
}

/// Neighbours that run as one, and their backend.
struct JoinedCalls<'c, 'm> {
    backend: &'c Arc<Backend>,
    live: OpenDriver,
    parts: Vec<Part<'c, 'm>>,
}

/// One of them, ready to run.
struct Part<'c, 'm> {
    call: RoutedCall<'c>,
    memory: &'c mut [Bound<'m>],
    route: Route,
    code: ReadyCode,
}

impl<'c, 'm> JoinedCalls<'c, 'm> {
    /// As many of the first calls as can join; `None` if fewer than two.
    fn of(calls: &'c mut [call::Call<'m>]) -> Option<JoinedCalls<'c, 'm>> {
        if calls.len() < 2 {
            return None;
        }
        let mut calls = calls.iter_mut();
        let (backend, part) = Part::of(calls.next()?)?;
        let live = backend.live().ok().filter(|live| live.instance == part.code.instance)?;
        let most = backend.sequence_steps();
        let mut joined = JoinedCalls { backend, live, parts: vec![part] };
        for call in calls.take(most - 1) {
            match Part::of(call) {
                Some((other, part))
                    if Arc::ptr_eq(other, backend) && part.code.instance == joined.live.instance =>
                {
                    joined.parts.push(part);
                }
                Some(_) | None => break,
            }
        }
        (joined.parts.len() > 1).then_some(joined)
    }

    /// Runs them and adds the reports of those that finished. False if some did not, and the next
    /// can run alone.
    fn run(self, reports: &mut Vec<Report>) -> Result<bool, BackendError> {
        let JoinedCalls { backend, live, mut parts } = self;
        let shared = &parts[0].call.core.shared;
        let calls = parts.iter().map(|part| (part.call.core.parameters.as_slice(), &*part.memory));
        // A call whose buffers cannot be held reports the error when it runs alone.
        let Ok(held) = HeldBuffers::take(calls, backend, live.instance) else { return Ok(false) };
        let bound = parts.iter_mut().map(|Part { call, memory, code, .. }| {
            let mut bindings = Bindings::new();
            held.bind(&call.core.parameters, memory, &mut bindings);
            (&*code.pipeline, bindings, &call.core.config)
        });
        let mut bound: Vec<_> = bound.collect();
        let steps = bound.iter_mut().map(|(pipeline, bindings, config)| SequenceStep {
            pipeline: *pipeline,
            bindings,
            config,
        });
        let mut steps: Vec<SequenceStep<'_, '_>> = steps.collect();
        want_device_time(false);
        let began = shared.clock.raw();
        let outcome = contain(|| live.driver.dispatch_sequence(&mut steps)).unwrap_or_else(|message| {
            Err(Failed { done: 0, error: BackendError::failed(backend.id, message) })
        });
        let elapsed_ns = shared.clock.delta_as_nanos(began, shared.clock.raw());
        drop(bound);
        drop(held);
        let (done, error) = match outcome {
            Ok(()) => (parts.len(), None),
            Err(Failed { done, error }) => (done, Some(error)),
        };
        let shares = shares(elapsed_ns, &parts[..done.min(parts.len())]);
        let mut parts = parts.into_iter();
        for (share_ns, part) in shares.into_iter().zip(parts.by_ref()) {
            reports.push(part.finished(backend, share_ns));
        }
        let mut rest: Vec<Part<'_, '_>> = parts.collect();
        let Some(error) = error.filter(|_| !rest.is_empty()) else { return Ok(true) };
        let began = !matches!(
            error,
            BackendError::UnsupportedFeature { .. } | BackendError::DeviceOutOfMemory { .. }
        );
        let again = !began || rest.iter_mut().all(|part| part.may_run_again(&error));
        for (number, part) in rest.into_iter().enumerate() {
            match began && number == 0 {
                true => part.failed(backend, &error, elapsed_ns),
                false => part.call.routes.abandoned(&part.route, 0),
            }
        }
        if again {
            tracing::warn!(backend = backend.id, %error, "calls of a sequence could not run as one; they run alone");
            return Ok(false);
        }
        Err(error)
    }
}

impl<'c, 'm> Part<'c, 'm> {
    /// A call that can join others, and its backend.
    fn of(call: &'c mut call::Call<'m>) -> Option<(&'c Arc<Backend>, Part<'c, 'm>)> {
        let (core, memory, options) = call.parts();
        let (shared, config) = (&core.shared, &core.config);
        if !shared.backends.iter().any(|backend| backend.sequence_steps() > 1) {
            return None;
        }
        let plain = matches!(core.work, Work::Program { .. })
            && !core.speaks
            && !options.device_time
            && config.timeout.is_none()
            && !options.is_configured();
        let named = if plain { named(options, shared) } else { None }?;
        let chosen_by = if options.backend.is_some() { ChosenBy::Caller } else { ChosenBy::Router };
        let fallback = config.fallback.unwrap_or_else(|| default_policy(chosen_by));
        if fallback == Fallback::Allow {
            return None;
        }
        let items = [memory];
        let call = RoutedCall::new(core, &items, options, config, fallback);
        let route = call.warm_route(&items, named)?;
        let backend = shared.chosen(&route);
        if backend.sequence_steps() < 2 || (backend.is_driven && shared.background.is_forked()) {
            return None;
        }
        let code = code::code(&call.request(backend, &items)).ok()?;
        let [memory] = items;
        Some((backend, Part { call, memory, route, code }))
    }

    fn finished(self, backend: &Arc<Backend>, share_ns: u64) -> Report {
        let Part { call, memory, route, code } = self;
        call.routes.finished_untimed(&route, share_ns);
        call.learn((backend, code.tuned), &[memory], share_ns, None);
        let elapsed = Duration::from_nanos(share_ns);
        call.report(
            backend,
            Some(&route),
            LaunchOutcome { elapsed, device: None, tuned: code.tuned },
            Vec::new(),
        )
    }

    /// Whether the memory is unchanged, though the call may have run, and another backend can do
    /// the work.
    fn may_run_again(&mut self, error: &BackendError) -> bool {
        let (call, items) = (&self.call, [&mut *self.memory]);
        let phase = Snapshot::take(&call.core.parameters, &items, call.fallback).phase();
        !matches!(decide(call.fallback, phase, error), FallbackDecision::Fail(_))
    }

    fn failed(self, backend: &Arc<Backend>, error: &BackendError, elapsed_ns: u64) {
        let Part { call, memory, route, code } = self;
        call.blame((backend, code.tuned), &[memory], error);
        call.failed((backend, code.instance), &route, error, elapsed_ns);
    }
}

/// The backend named by the caller, if any; `None` for one that calls are not routed to or that is
/// not opened yet.
fn named(options: &CallOptions<'_>, shared: &Shared) -> Option<Option<BackendIndex>> {
    let Some(id) = options.backend else { return Some(None) };
    let index = shared.router.index_of(id)?;
    shared.backends.get(index.index()).filter(|backend| backend.is_met()).map(|_| Some(index))
}

/// Splits the total time over the calls: by what each takes alone if all of that is known, else
/// evenly.
fn shares(elapsed_ns: u64, parts: &[Part<'_, '_>]) -> Vec<u64> {
    let usual: Option<Vec<f64>> = parts.iter().map(|part| part.call.routes.usual_ns(&part.route)).collect();
    let usual = usual.unwrap_or_else(|| vec![1.0; parts.len()]);
    let whole: f64 = usual.iter().sum::<f64>().max(1.0);
    usual.iter().map(|each| (elapsed_ns as f64 * (each / whole)) as u64).collect()
}
