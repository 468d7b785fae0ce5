//! Tuning one program, or a family of ways to do one thing, on one backend, start to end: shapes worth trying, the contest, what is remembered, a report.

use super::contest::{Contest, Outcome, Progress, Verdict, find_fastest};
use super::shapes::{Shape, shapes_for};
use super::trial::{Pause, PipelineContest, Variant};
use super::{CandidateSamples, StaticProgramShape, Tuner, TunerProgramKey};
use crate::{BackendError, DispatchConfig, VyreBackend};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::launch::{Launch, Overrides};

/// What tuning may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneLimits {
    /// Time, on the clock on the wall, without pauses.
    pub wall: Duration,
    /// Memory, for copies of the buffers.
    pub memory_bytes: u64,
}

impl Default for TuneLimits {
    fn default() -> TuneLimits {
        TuneLimits { wall: Duration::from_secs(10), memory_bytes: 1 << 30 }
    }
}

/// What is to be tuned, and on what.
#[derive(Clone)]
pub struct TuneRequest<'a> {
    /// The backend.
    pub backend: Arc<dyn VyreBackend>,
    /// The program, which at its own shape is the default.
    pub program: &'a Program,
    /// How it is run.
    pub config: &'a DispatchConfig,
    /// What it is run on: one per read, uniform and read_write buffer, in binding order. Copied, never written to.
    pub inputs: &'a [&'a [u8]],
    /// Other programs for the same work, with names: the rest of its family.
    pub family: &'a [(String, Program)],
    /// What it may take.
    pub limits: TuneLimits,
    /// What is done between two runs.
    pub pause: Option<Pause<'a>>,
}

/// What tuning found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuneReport {
    /// The key that the decision is kept under.
    pub key: String,
    /// The position of the winner among the candidates; 0 is the default.
    pub winner: usize,
    /// Why.
    pub reason: String,
    /// The winner's time over the default's, by the median pair of their duel; 1 if the default stays.
    pub ratio: f64,
    /// All candidates, the default first.
    pub candidates: Vec<TunedCandidate>,
}

/// What was found of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedCandidate {
    /// Its shape, or its name in the family.
    pub name: String,
    /// Its shape; of a family's member, its parameters in place of a workgroup size.
    pub shape: Shape,
    /// Its median time.
    pub median_ns: Option<u64>,
    /// How often it was timed.
    pub samples: usize,
    /// Why it is out, if it failed or gave other results.
    pub failed: Option<String>,
}

impl TuneReport {
    /// The shape that won.
    pub fn shape(&self) -> Option<Shape> {
        self.candidates.get(self.winner).map(|candidate| candidate.shape)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
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

/// What a decision for this program on inputs of these lengths is kept under, and the domain that it is for.
pub fn tuning_key(
    program: &Program,
    kernel: &KernelBody,
    input_bytes: &[usize],
) -> Result<(TunerProgramKey, [u32; 3]), BackendError> {
    let launch = Launch::from_inputs(kernel, input_bytes, Overrides::default())?;
    let outputs = kernel.bound_buffers().into_iter().filter(|&id| kernel.buffer(id).decl.access.is_output());
    let output_bytes = outputs.map(|id| launch.bytes(kernel, id) as u64).sum();
    let shape = StaticProgramShape::new(program, Some(launch.grid), output_bytes);
    let whole = |k: usize| launch.grid[k].saturating_mul(launch.workgroup[k]);
    let domain = launch.limit.unwrap_or_else(|| std::array::from_fn(whole));
    Ok((TunerProgramKey::from_program(program, shape), domain))
}

/// Finds the fastest way to run the program, and remembers it with all samples. The default stays unless another way
/// won a duel with it. An error if nothing could be tried.
pub fn tune(
    tuner: &Tuner,
    request: &TuneRequest<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, BackendError> {
    let kernel = request.program.validate()?;
    let lengths: Vec<usize> = request.inputs.iter().map(|input| input.len()).collect();
    let (key, domain) = tuning_key(request.program, &kernel, &lengths)?;
    let default = Shape::of(&kernel, request.config);
    let fixed = request.config.grid_override.is_some();
    let profile = request.backend.device_profile();
    let shapes = if fixed { vec![default] } else { shapes_for(&kernel, &profile, domain, default) };
    let variants = variants(request, &shapes, default);
    let all: Vec<(String, Shape)> = variants
        .iter()
        .map(|variant| {
            let own = Shape { workgroup_size: variant.program.workgroup_size(), elements_per_invocation: 1 };
            let shape = Shape {
                workgroup_size: variant.config.workgroup_override.unwrap_or(own.workgroup_size),
                elements_per_invocation: variant.config.elements_per_invocation.unwrap_or(1),
            };
            (variant.name.clone(), shape)
        })
        .collect();
    let memory = request.limits.memory_bytes;
    let contest = PipelineContest::new(request.backend.clone(), variants, request.inputs, memory)?;
    let mut contest = contest.pausing(request.pause);
    let outcome = find_fastest(&mut contest, all.len(), request.limits.wall, progress);
    remember(tuner, key.as_str(), &all, &outcome);
    if let (Some((_, shape)), true) = (all.get(outcome.winner), outcome.decides()) {
        tuner.record_shape(&key, *shape);
    }
    Ok(report(key.as_str(), all, outcome))
}

fn variants(request: &TuneRequest<'_>, shapes: &[Shape], default: Shape) -> Vec<Variant> {
    let of_shape = |&shape: &Shape| Variant {
        name: shape.to_string(),
        program: request.program.clone(),
        // The default is what runs without tuning, to the letter.
        config: if shape == default { request.config.clone() } else { shape.configure(request.config) },
    };
    let of_family = |(name, program): &(String, Program)| Variant {
        name: name.clone(),
        program: program.clone(),
        config: request.config.clone(),
    };
    shapes.iter().map(of_shape).chain(request.family.iter().map(of_family)).collect()
}

/// A family of ways to do the same work, which the caller can run.
pub struct FamilyRequest<'a> {
    /// What the decision is kept under.
    pub key: &'a str,
    /// Each member's name and its parameters; the first is the default.
    pub members: Vec<(String, [u32; 3])>,
    /// Runs them.
    pub contest: &'a mut dyn Contest,
    /// How long it may take.
    pub wall: Duration,
}

/// Finds the fastest member of a family and remembers its parameters. `progress` is told after every pass.
pub fn tune_family(
    tuner: &Tuner,
    request: FamilyRequest<'_>,
    progress: &mut dyn FnMut(Progress),
) -> TuneReport {
    let FamilyRequest { key, members, contest, wall } = request;
    let outcome = find_fastest(contest, members.len(), wall, progress);
    let shape = |parameters| Shape { workgroup_size: parameters, elements_per_invocation: 1 };
    let all: Vec<(String, Shape)> =
        members.into_iter().map(|(name, parameters)| (name, shape(parameters))).collect();
    remember(tuner, key, &all, &outcome);
    if let (Some((_, shape)), true) = (all.get(outcome.winner), outcome.decides()) {
        tuner.record_decision(key, shape.workgroup_size);
    }
    report(key, all, outcome)
}

fn remember(tuner: &Tuner, key: &str, all: &[(String, Shape)], outcome: &Outcome) {
    if !outcome.decides() {
        return;
    }
    let samples = all.iter().enumerate().map(|(position, (_, shape))| CandidateSamples {
        workgroup_size: shape.workgroup_size,
        elements_per_invocation: (shape.elements_per_invocation > 1).then_some(shape.elements_per_invocation),
        quarantined: failure(outcome, position),
        samples_ns: outcome.samples.get(position).cloned().unwrap_or_default(),
    });
    tuner.record_samples(key, samples.collect());
}

fn failure(outcome: &Outcome, position: usize) -> Option<String> {
    let failed = outcome.failed.iter().find(|(candidate, _)| *candidate == position);
    failed.map(|(_, reason)| reason.clone())
}

fn report(key: &str, all: Vec<(String, Shape)>, outcome: Outcome) -> TuneReport {
    let name = |candidate: usize| all.get(candidate).map_or("", |(name, _)| name.as_str());
    let (reason, ratio) = match &outcome.verdict {
        Verdict::Won(duel) => (
            format!(
                "{} is {:.1}% faster than the default: it won {} of {} pairs",
                name(outcome.winner),
                100.0 * (1.0 - duel.ratio),
                duel.wins,
                duel.pairs
            ),
            duel.ratio,
        ),
        Verdict::Kept { leader, duel } => (
            format!(
                "the default stays: {} won only {} of {} pairs against it, at {:.3} of its time",
                name(*leader),
                duel.wins,
                duel.pairs,
                duel.ratio
            ),
            1.0,
        ),
        Verdict::DefaultLeads => ("the default stays: nothing was faster".to_owned(), 1.0),
        Verdict::NoRivals => ("the default stays: there was nothing to compare it with".to_owned(), 1.0),
        Verdict::OutOfTime => ("the default stays: the time was up".to_owned(), 1.0),
    };
    let candidate = |(position, (name, shape)): (usize, &(String, Shape))| {
        let samples_ns = outcome.samples.get(position).cloned().unwrap_or_default();
        let samples = CandidateSamples { samples_ns, ..CandidateSamples::default() };
        TunedCandidate {
            name: name.clone(),
            shape: *shape,
            median_ns: samples.median_ns(),
            samples: samples.samples_ns.len(),
            failed: failure(&outcome, position),
        }
    };
    let candidates = all.iter().enumerate().map(candidate).collect();
    TuneReport { key: key.to_owned(), winner: outcome.winner, reason, ratio, candidates }
}
