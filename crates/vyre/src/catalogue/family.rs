//! Tuning a family: several plans for the same work, measured to find the fastest.
//!
//! The members run on generated inputs, in memory that is bounded before anything is allocated.
//! Each has to give the same bits as the first, the default, which stays unless another wins a duel
//! with it. The decision is kept in the device's tuner file, under a name, as the member's
//! parameters.

use super::plan::{Plan, PlanBuffer};
use std::sync::Arc;
use vyre_driver::judge::Judge;
use vyre_driver::tuner::{
    self, ContestBuffer, MakePipeline, PipelineContest, Progress, TuneLimits, TuneReport, Tuner,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};

/// One way to do the work.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name in reports.
    pub name: String,
    /// Its parameters, which identify it in the tuner's file.
    pub parameters: [u32; 3],
    /// The plan that it runs.
    pub plan: Plan,
}

/// A family to tune, with the backend and limits.
pub struct Family<'a> {
    /// The name under which the decision is kept.
    pub name: &'a str,
    /// The ways to do the work, the default first.
    pub members: Vec<Member>,
    /// The backend to tune on.
    pub backend: &'a Arc<dyn VyreBackend>,
    /// Limits on time and memory.
    pub limits: TuneLimits,
}

/// Finds the fastest member and records it. `progress` is called after every pass.
pub fn tune_family(
    tuner: &Tuner,
    family: Family<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, BackendError> {
    let Family { name, members, backend, limits } = family;
    let Some(default) = members.first() else {
        return Err(BackendError::new(format!("the family `{name}` has no members to tune")));
    };
    let bytes = |member: &Member| member.plan.buffers.iter().map(|buffer| buffer.bytes as u64).sum::<u64>();
    let needed = members.iter().map(bytes).max().unwrap_or(0).saturating_mul(2);
    if needed > limits.memory_bytes {
        let limit = limits.memory_bytes;
        return Err(BackendError::new(format!(
            "tuning `{name}` needs {needed} bytes, more than the {limit} it may take"
        )));
    }
    let named = members.iter().map(|member| (member.name.clone(), member.parameters)).collect();
    let buffer = |buffer: &PlanBuffer| {
        Some(ContestBuffer::new(buffer.role.access()?, buffer.element, ordinary_numbers(buffer.bytes)))
    };
    let buffers = default.plan.buffers.iter().filter_map(buffer).collect();
    let candidate = |member: Member| {
        let config = DispatchConfig::default();
        let make: MakePipeline<'_> = Box::new(move || member.plan.pipeline(backend.clone(), &config));
        (make, DispatchConfig::default())
    };
    let candidates = members.into_iter().map(candidate).collect();
    let mut contest = PipelineContest::over(candidates, buffers, Judge::default());
    Ok(tuner::tune_family(tuner, name, named, &mut contest, limits.wall, progress))
}

/// Small floats in no order; as integers they are in no order either.
fn ordinary_numbers(bytes: usize) -> Vec<u8> {
    let number = |k: u32| ((k.wrapping_mul(2_654_435_761) >> 24) as f32 / 16.0).to_le_bytes();
    (0..).flat_map(number).take(bytes).collect()
}
