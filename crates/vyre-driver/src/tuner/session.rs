//! Tuning of one program, or of a family of implementations, on one backend: candidate shapes, the
//! contest, the stored decision, a report.

use super::contest::{Contest, ContestOutcome, Duel, Progress, Verdict, find_fastest};
use super::pipeline_contest::{Alternative, ContestInputs, Pause, PipelineContest};
use super::shapes::{Shape, longest_line, shapes_for};
use super::{BackendTimer, CandidateSamples, StaticProgramShape, Tuner, TunerProgramKey};
use crate::{BackendError, DispatchConfig, VyreBackend};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::launch::{Launch, LaunchArgument, Overrides};

/// Resource limits of tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneLimits {
    /// Wall-clock time, excluding pauses.
    pub wall: Duration,
    /// Memory for copies of the buffers.
    pub memory_bytes: u64,
}

impl Default for TuneLimits {
    // Chosen, not measured: a contest that runs out of time decides nothing.
    fn default() -> TuneLimits {
        TuneLimits { wall: Duration::from_secs(10), memory_bytes: 1 << 30 }
    }
}

/// A program to tune, and its inputs.
#[derive(Clone)]
pub struct TuneRequest<'a> {
    /// The backend.
    pub backend: Arc<dyn VyreBackend>,
    /// The program, which at its declared shape is the default.
    pub program: &'a Program,
    /// The configuration of its runs.
    pub config: &'a DispatchConfig,
    /// Its inputs: one per read, uniform and read_write buffer, in binding order. Copied, never
    /// written to.
    pub inputs: &'a [&'a [u8]],
    /// Resource limits.
    pub limits: TuneLimits,
    /// Called between two runs.
    pub pause: Option<Pause<'a>>,
}

/// The result of tuning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuneReport {
    /// The key of the decision.
    pub key: String,
    /// The index of the winner among the candidates; 0 is the default.
    pub winner: usize,
    /// Why it won.
    pub reason: String,
    /// The winner's time divided by the default's, for the median pair of their duel; 1 if the
    /// default stays.
    pub ratio: f64,
    /// All candidates, the default first.
    pub candidates: Vec<TunedCandidate>,
}

/// The result of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedCandidate {
    /// Its shape, or its name in the family.
    pub name: String,
    /// Its shape; for a member of a family, its parameters as the workgroup size.
    pub shape: Shape,
    /// Its median time.
    pub median_ns: Option<u64>,
    /// Number of timed runs.
    pub samples: usize,
    /// Why it was eliminated, if it failed or gave different results.
    pub failed: Option<String>,
}

impl TuneReport {
    /// The winning shape.
    pub fn shape(&self) -> Option<Shape> {
        self.candidates.get(self.winner).map(|candidate| candidate.shape)
    }
}

impl fmt::Display for TuneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, candidate) in self.candidates.iter().enumerate() {
            let mark = if position == self.winner { '*' } else { ' ' };
            write!(f, "{mark} {:<16}", candidate.name)?;
            match (candidate.median_ns, &candidate.failed) {
                (_, Some(reason)) => writeln!(f, " out: {reason}")?,
                (Some(ns), None) => {
                    writeln!(f, " {:>12.3} µs, median of {}", ns as f64 / 1e3, candidate.samples)?;
                }
                (None, None) => writeln!(f, " not timed")?,
            }
        }
        write!(f, "{}", self.reason)
    }
}

/// The key of a decision for calls of this program with this configuration, on these inputs or on
/// inputs of these lengths, and the domain that it covers.
pub fn tuning_key<'a, A: Into<LaunchArgument<'a>> + Copy>(
    program: &Program,
    kernel: &KernelBody,
    inputs: &[A],
    config: &DispatchConfig,
) -> Result<(TunerProgramKey, [u32; 3]), BackendError> {
    let overrides = Overrides { domain: config.domain_override, ..Overrides::default() };
    let launch = Launch::from_inputs(kernel, inputs, overrides)?;
    let outputs = kernel.bound_buffers().into_iter().filter(|&id| kernel.buffer(id).decl.access.is_output());
    let output_bytes = outputs.map(|id| launch.bytes(kernel, id) as u64).sum();
    let shape = StaticProgramShape::new(program, Some(launch.grid), output_bytes);
    let whole = |k: usize| launch.grid[k].saturating_mul(launch.workgroup[k]);
    let domain = launch.limit.unwrap_or_else(|| std::array::from_fn(whole));
    Ok((TunerProgramKey::of_calls(program, shape, config), domain))
}

/// Finds the fastest way to run the program, and stores it with all samples. The default stays
/// unless another candidate won a duel against it. Returns an error if nothing could be tried.
pub fn tune(
    tuner: &Tuner,
    request: &TuneRequest<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, BackendError> {
    let kernel = request.program.validate()?;
    let (key, domain) = tuning_key(request.program, &kernel, request.inputs, request.config)?;
    let default = Shape::of(&kernel, request.config);
    let profile = request.backend.device_profile();
    let mut shapes = vec![default];
    // Results of other kernels depend on their shape, and an explicit grid is the caller's choice.
    if kernel.shape_free && request.config.grid_override.is_none() {
        let lines = tuner.candidates_for(longest_line(&profile));
        shapes = shapes_for(&lines, &profile, domain, default);
        shapes.retain(|&shape| shape == default || !tuner.is_quarantined(key.as_str(), shape));
    }
    // The default is exactly what runs without tuning.
    let config = |shape: Shape| match shape == default {
        true => request.config.clone(),
        false => shape.configure(request.config),
    };
    let mut seen: Vec<DispatchConfig> = Vec::new();
    shapes.retain(|&shape| {
        let config = config(shape);
        let is_new = !seen.iter().any(|other| request.backend.has_same_code(&kernel, other, &config));
        seen.push(config);
        is_new
    });
    let alternative =
        |&shape: &Shape| Alternative { program: request.program.clone(), config: config(shape) };
    let alternatives = shapes.iter().map(alternative).collect();
    let all: Vec<(String, Shape)> = shapes.iter().map(|shape| (shape.to_string(), *shape)).collect();
    let (inputs, memory_limit) = (request.inputs, request.limits.memory_bytes);
    let given = ContestInputs { inputs, bound_bytes: None, memory_limit };
    let contest = PipelineContest::new(request.backend.clone(), alternatives, &given)?;
    let mut contest = contest.pausing(request.pause);
    let outcome = find_fastest(&mut contest, all.len(), request.limits.wall, progress);
    Ok(conclude(tuner, key.as_str(), (request.program, all), outcome))
}

/// Finds the fastest member of a family and stores its parameters. Calls `progress` at every step.
pub fn tune_family(
    tuner: &Tuner,
    key: &str,
    members: Vec<(String, [u32; 3])>,
    contest: &mut dyn Contest,
    wall: Duration,
    progress: &mut dyn FnMut(Progress),
) -> TuneReport {
    let outcome = find_fastest(contest, members.len(), wall, progress);
    let shape = |parameters| Shape { workgroup_size: parameters, elements_per_invocation: 1 };
    let all: Vec<(String, Shape)> =
        members.into_iter().map(|(name, parameters)| (name, shape(parameters))).collect();
    // The members are separate programs.
    conclude(tuner, key, (&Program::empty(), all), outcome)
}

/// Makes the final choice, and stores it with all samples unless the contest ran out of time.
fn conclude(
    tuner: &Tuner,
    key: &str,
    (program, all): (&Program, Vec<(String, Shape)>),
    outcome: ContestOutcome,
) -> TuneReport {
    let failure = |position: usize| outcome.failed.iter().find(|(candidate, _)| *candidate == position);
    let sampled = |(position, (_, shape)): (usize, &(String, Shape))| CandidateSamples {
        workgroup_size: shape.workgroup_size,
        elements_per_invocation: (shape.elements_per_invocation > 1).then_some(shape.elements_per_invocation),
        quarantined: failure(position).map(|(_, reason)| reason.clone()),
        samples_ns: outcome.samples.get(position).cloned().unwrap_or_default(),
    };
    let samples: Vec<CandidateSamples> = all.iter().enumerate().map(sampled).collect();
    let winner = pick(tuner, program, &samples, &outcome);
    let (reason, ratio) = reason(&all, &outcome);
    let tuned = |((name, shape), samples): (&(String, Shape), &CandidateSamples)| TunedCandidate {
        name: name.clone(),
        shape: *shape,
        median_ns: samples.median_ns(),
        samples: samples.samples_ns.len(),
        failed: samples.quarantined.clone(),
    };
    let candidates = all.iter().zip(&samples).map(tuned).collect();
    if let (Some((_, shape)), true) = (all.get(winner), outcome.decides()) {
        tuner.decide(key, *shape, samples);
    }
    TuneReport { key: key.to_owned(), winner, reason, ratio, candidates }
}

/// The faster of the default and the winner of the duel, by the times of that duel.
fn pick(tuner: &Tuner, program: &Program, samples: &[CandidateSamples], outcome: &ContestOutcome) -> usize {
    let default_ns = samples.first().and_then(CandidateSamples::median_ns).unwrap_or(0).max(1);
    let mut finalists = vec![(0, default_ns)];
    if let Verdict::Won(duel) = &outcome.verdict {
        finalists.push((outcome.winner, (default_ns as f64 * duel.ratio) as u64));
    }
    let size = |(candidate, _): &(usize, u64)| samples.get(*candidate).map(|shape| shape.workgroup_size);
    let sizes: Vec<[u32; 3]> = finalists.iter().filter_map(size).collect();
    let mut timer = DuelTimes(finalists.iter().map(|(_, ns)| *ns).collect());
    let Ok(best) = tuner.best_of(program, sizes, &mut timer);
    let best = best.and_then(|best| finalists.iter().find(|(_, ns)| *ns == best.elapsed_ns));
    best.map_or(0, |(candidate, _)| *candidate)
}

/// The times of the finalists in their duel, in the order of the requests: shapes of one size can
/// differ in elements per invocation.
struct DuelTimes(VecDeque<u64>);

impl BackendTimer for DuelTimes {
    type Error = Infallible;

    fn measure_candidate_ns(&mut self, _: &Program, _: [u32; 3]) -> Result<u64, Infallible> {
        Ok(self.0.pop_front().unwrap_or(u64::MAX))
    }
}

/// Why the winner won, and its time divided by the default's.
fn reason(all: &[(String, Shape)], outcome: &ContestOutcome) -> (String, f64) {
    let name = |candidate: usize| all.get(candidate).map_or("", |(name, _)| name.as_str());
    match &outcome.verdict {
        Verdict::Won(Duel { pairs, wins, ratio, .. }) => {
            let (name, percent) = (name(outcome.winner), 100.0 * (1.0 - ratio));
            (
                format!("{name} is {percent:.1}% faster than the default: it won {wins} of {pairs} pairs"),
                *ratio,
            )
        }
        Verdict::Kept { leader, duel: Duel { pairs, wins, ratio, .. } } => {
            let name = name(*leader);
            let against =
                format!("{name} won only {wins} of {pairs} pairs against it, at {ratio:.3} of its time");
            (format!("the default stays: {against}"), 1.0)
        }
        Verdict::DefaultLeads => ("the default stays: nothing was faster".to_owned(), 1.0),
        Verdict::NoRivals => ("the default stays: there was nothing to compare it with".to_owned(), 1.0),
        Verdict::OutOfTime => ("the default stays: the time was up".to_owned(), 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_pick_is_what_the_duel_found() {
        let check = |default_ns: &[u64], verdict: Verdict, expected: usize| {
            // All have one size: they differ in elements per invocation.
            let sampled = |samples_ns: &[u64]| CandidateSamples {
                workgroup_size: [64, 1, 1],
                samples_ns: samples_ns.to_vec(),
                ..CandidateSamples::default()
            };
            let samples = [sampled(default_ns), sampled(&[1]), sampled(&[1])];
            let outcome = ContestOutcome { winner: 2, verdict, samples: Vec::new(), failed: Vec::new() };
            let tuner = Tuner::in_memory(crate::tuner::Mode::On);
            assert_eq!(pick(&tuner, &Program::empty(), &samples, &outcome), expected, "{outcome:?}");
        };
        let duel = |ratio| Duel { pairs: 7, wins: 7, ratio, won: ratio < 1.0 };
        check(&[100, 101], Verdict::Won(duel(0.8)), 2);
        check(&[1], Verdict::Won(duel(0.98)), 2);
        check(&[], Verdict::Won(duel(0.5)), 2);
        check(&[100], Verdict::Kept { leader: 2, duel: duel(1.1) }, 0);
        check(&[100], Verdict::OutOfTime, 0);
    }
}
