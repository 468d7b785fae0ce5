//! Sequences: dispatches submitted to a device together, each of which can read what earlier ones
//! write.
//!
//! All dispatches of a run are planned before the first is executed. A new run starts where that
//! would be too early: after a dispatch that can trap, because nothing runs after a trap, and where
//! a uniform buffer is resident and written by an earlier dispatch. Deadlines and device times
//! require single dispatches.

use super::{Pipeline, kept, run_jobs};
use crate::native::argument::{BoundArgument, Memory};
use crate::native::plan::LaunchPlan;
use crate::native::resident::{Held, InstanceState, Locked, merged};
use crate::native::{Few, Job, NativeDevice, Variant};
use crate::observability::{LaunchRecord, device_time_wanted, observe_launch};
use crate::{BackendError, Binding, DispatchConfig, Failed, SequenceStep};
use std::borrow::Cow;
use std::sync::Arc;
use vyre_foundation::ir::Access;
use vyre_foundation::launch::Launch;

/// Runs dispatches in order, with as many per submission as the device accepts.
pub(in crate::native) fn run<D: NativeDevice>(
    shared: &Arc<InstanceState<D>>,
    steps: &mut [SequenceStep<'_, '_>],
) -> Result<(), Failed> {
    let mut done = 0;
    while done < steps.len() {
        let joined = JoinedDispatches::of(shared, &steps[done..]);
        let count = joined.pipelines.len().max(1);
        let ran = match &mut steps[done..done + count] {
            [SequenceStep { pipeline, bindings, config }] => {
                pipeline.dispatch_bound(bindings, config).map_err(|error| Failed { done: 0, error })
            }
            together => joined.run(together),
        };
        ran.map_err(|failed| Failed { done: done + failed.done, ..failed })?;
        done += count;
    }
    Ok(())
}

/// Dispatches that run as one.
struct JoinedDispatches<'a, D: NativeDevice> {
    pipelines: Vec<&'a Pipeline<D>>,
    held: Vec<Held<D::Memory>>,
}

/// A dispatch that is ready to run.
struct Planned<'m, D: NativeDevice> {
    variant: Arc<Variant<D::Code>>,
    launch: Launch,
    arguments: Few<BoundArgument<'m, D::Memory>>,
    record: LaunchRecord,
}

impl<'a, D: NativeDevice> JoinedDispatches<'a, D> {
    /// Takes as many of the first steps as can run together.
    fn of(shared: &Arc<InstanceState<D>>, steps: &[SequenceStep<'a, '_>]) -> JoinedDispatches<'a, D> {
        let mut joined = JoinedDispatches { pipelines: Vec::new(), held: Vec::new() };
        let most = if device_time_wanted() { 1 } else { shared.device.sequence_steps() };
        if most < 2 {
            return joined;
        }
        for step in steps.iter().take(most) {
            let made = step.pipeline.as_any().and_then(|made| made.downcast_ref::<Pipeline<D>>());
            let Some(pipeline) = made.filter(|made| Arc::ptr_eq(&made.shared, shared)) else { break };
            let checked = pipeline.check_bindings(step.bindings);
            let mut held = Few::new();
            let holding =
                checked.and_then(|_| shared.residents.hold(pipeline.residents(step.bindings), &mut held));
            // A refused dispatch reports its error when it runs alone.
            if holding.is_err()
                || step.config.merged(&pipeline.config).timeout.is_some()
                || joined.is_early(pipeline, step.bindings)
            {
                break;
            }
            joined.pipelines.push(pipeline);
            joined.held.extend(held);
            if pipeline.traps {
                break;
            }
        }
        joined
    }

    /// Whether a uniform buffer's element is unknown until the dispatches so far have run.
    fn is_early(&self, pipeline: &Pipeline<D>, bindings: &[Binding<'_>]) -> bool {
        pipeline.bound.iter().zip(bindings).any(|(&id, binding)| match binding {
            Binding::Resident(handle) if pipeline.access(id) == Access::Uniform => {
                self.held.iter().any(|held| held.writes(*handle))
            }
            Binding::Resident(_) | Binding::Read(_) | Binding::ReadWrite(_) | Binding::Write(_) => false,
        })
    }

    fn run(self, steps: &mut [SequenceStep<'_, '_>]) -> Result<(), Failed> {
        let JoinedDispatches { pipelines, held } = self;
        let Some(device) = pipelines.first().map(|pipeline| pipeline.device()) else { return Ok(()) };
        let held = merged(held);
        let locked: Vec<Locked<'_, D::Memory>> = held.iter().map(Held::lock).collect();
        let called: Vec<&DispatchConfig> = steps.iter().map(|step| step.config).collect();
        let configs: Vec<Cow<'_, DispatchConfig>> =
            called.iter().zip(&pipelines).map(|(config, pipeline)| config.merged(&pipeline.config)).collect();
        let mut failure = None;
        let each = pipelines.iter().zip(steps).zip(&configs);
        let planned = each.map_while(|((pipeline, step), config)| {
            kept(pipeline.planned(step.bindings, &locked, config), &mut failure)
        });
        let mut planned: Vec<Planned<'_, D>> = planned.collect();
        let records: Vec<LaunchRecord> = planned.iter().map(|planned| planned.record).collect();
        let jobs = planned.iter_mut().zip(&configs).map(|(planned, config)| Job {
            variant: &*planned.variant,
            launch: &planned.launch,
            arguments: &mut planned.arguments,
            config,
            timed: false,
        });
        let done = run_jobs(device, jobs.collect(), &mut failure);
        let mut each = pipelines.iter().zip(called).zip(records);
        for ((pipeline, config), record) in each.by_ref().take(done) {
            let observed = observe_launch(&pipeline.id, config, || Ok(((), record)));
            observed.map_err(|error| Failed { done, error })?;
        }
        let Some(error) = failure else { return Ok(()) };
        let id = pipelines.get(done).map_or(device.id(), |pipeline| &pipeline.id);
        let ended = observe_launch(id, &DispatchConfig::default(), || Err(error));
        ended.map_err(|error| Failed { done, error })
    }
}

impl<D: NativeDevice> Pipeline<D> {
    /// Plans a dispatch on bound memory; its resident buffers are shared with other dispatches.
    fn planned<'m>(
        &self,
        bindings: &'m mut [Binding<'_>],
        locked: &'m [Locked<'_, D::Memory>],
        config: &DispatchConfig,
    ) -> Result<Planned<'m, D>, BackendError> {
        let resident = |handle| match locked.iter().find_map(|locked| locked.shared(handle)) {
            Some((memory, bytes)) => (Memory::Resident(memory), bytes),
            None => unreachable!("every resident buffer of a sequence is held"),
        };
        let bound = self.bound.iter().zip(bindings);
        let mut arguments: Few<BoundArgument<'_, D::Memory>> =
            bound.map(|(&buffer, binding)| self.bind(buffer, binding, resident)).collect();
        let mut record = LaunchRecord::default();
        arguments.iter().for_each(|argument| argument.count(&mut record));
        let mut plan = LaunchPlan::default();
        let variant = self.plan(&mut plan, &arguments, config)?;
        plan.settle_starts(&mut arguments);
        Ok(Planned { variant, launch: plan.launch, arguments, record })
    }
}
