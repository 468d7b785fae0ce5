//! A contest between compiled pipelines, on memory that it owns.
//!
//! Every candidate runs on copies of the inputs, bound in place; the contents it overwrites are
//! restored before each sample, outside the timed section. A run shorter than twenty steps of the
//! clock is repeated within a sample. In a contest with pauses, longer runs are repeated too, after
//! an untimed one: the first run after a pause mostly measures the pause.

use super::contest::Contest;
use crate::containment::contain;
use crate::judge::Judge;
use crate::messages::quietly;
use crate::{BackendError, Binding, CompiledPipeline, DispatchConfig, VyreBackend, pipeline, process_exit};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_foundation::ir::{Access, DataType, Program};
use vyre_foundation::kernel::{BufferId, Kernel};
use vyre_foundation::launch::{Launch, LaunchArgument};

/// Minimum length of a sample, in steps of the clock, so that a step is at most 5% of it.
const STEPS: u64 = 20;
/// Minimum length of a sample after a pause. Chosen, not measured: forty times the 5 µs that waking
/// a thread takes.
const SAMPLE_NS: u64 = 200_000;
/// Maximum number of runs in a sample, for runs too short for the clock to show at all. Runs of 20
/// ns, less than any dispatch takes, fill the longest sample with this many.
const MOST_RUNS: u64 = 10_000;

/// One way to do the work.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The program: the same for all alternatives that differ only in shape.
    pub program: Program,
    /// How it is compiled and run.
    pub config: DispatchConfig,
}

/// The inputs and limits of a contest.
#[derive(Clone, Copy, Debug)]
pub struct ContestInputs<'a> {
    /// One per read, uniform and read_write buffer, in binding order. Copied, never written to.
    pub inputs: &'a [&'a [u8]],
    /// The lengths of all bound buffers, in binding order; if unset, the inputs determine the
    /// lengths of the outputs.
    pub bound_bytes: Option<&'a [usize]>,
    /// Limit on the total size of all copies, in bytes.
    pub memory_limit: u64,
}

/// Builds a candidate's code.
pub type MakePipeline<'a> = Box<dyn Fn() -> Result<Arc<dyn CompiledPipeline>, BackendError> + 'a>;

/// Memory for one buffer that the candidates bind.
#[derive(Debug)]
pub struct ContestBuffer {
    access: Access,
    element: DataType,
    bytes: Vec<u8>,
    /// Its contents before a run, if a run changes them.
    before: Option<Vec<u8>>,
}

/// Called between two runs with the duration of the first, for a contest that shares the machine
/// with other work. The time spent in it is not charged to the contest. An error ends the contest
/// as if its time were up.
pub type Pause<'a> = &'a dyn Fn(Duration) -> Result<(), String>;

/// One candidate.
struct Contestant<'a> {
    make: MakePipeline<'a>,
    config: DispatchConfig,
    pipeline: Option<Arc<dyn CompiledPipeline>>,
    /// Runs per sample; 0 until calibrated.
    runs: u64,
}

impl Contestant<'_> {
    fn compiled(&mut self) -> Result<Arc<dyn CompiledPipeline>, String> {
        if let Some(pipeline) = &self.pipeline {
            return Ok(pipeline.clone());
        }
        let pipeline = contain(|| (self.make)())?.map_err(|error| error.to_string())?;
        Ok(self.pipeline.insert(pipeline).clone())
    }
}

/// Candidates that are pipelines of one backend; the first is the default.
pub struct PipelineContest<'a> {
    contestants: Vec<Contestant<'a>>,
    buffers: Vec<ContestBuffer>,
    judge: Judge,
    /// The default's results.
    expected: Option<Vec<Vec<u8>>>,
    resolution_ns: u64,
    start: Instant,
    pause: Option<Pause<'a>>,
    paused: Duration,
    ended: bool,
}

impl<'a> PipelineContest<'a> {
    /// Creates a contest of these alternatives on copies of the inputs. Refused before anything is
    /// allocated if the copies exceed the memory limit.
    pub fn new(
        backend: Arc<dyn VyreBackend>,
        alternatives: Vec<Alternative>,
        given: &ContestInputs<'_>,
    ) -> Result<PipelineContest<'a>, BackendError> {
        let Some(default) = alternatives.first() else {
            return Err(BackendError::new("there is nothing to tune: give at least the default"));
        };
        let buffers = buffers_for(default, given)?;
        let judge = Judge::new(&backend.device_profile(), [&default.program], &default.config);
        let candidate = |Alternative { program, config }| {
            let (backend, policy) = (backend.clone(), DispatchConfig::clone(&config));
            let make: MakePipeline<'a> =
                Box::new(move || pipeline::compile(backend.clone(), &program, &policy));
            (make, config)
        };
        Ok(PipelineContest::over(alternatives.into_iter().map(candidate).collect(), buffers, judge))
    }

    /// Creates a contest of any pipelines, each with the configuration of its runs, on this memory.
    pub fn over(
        candidates: Vec<(MakePipeline<'a>, DispatchConfig)>,
        buffers: Vec<ContestBuffer>,
        judge: Judge,
    ) -> PipelineContest<'a> {
        let contestant = |(make, config)| Contestant { make, config, pipeline: None, runs: 0 };
        PipelineContest {
            contestants: candidates.into_iter().map(contestant).collect(),
            buffers,
            judge,
            expected: None,
            resolution_ns: clock_resolution_ns(),
            start: Instant::now(),
            pause: None,
            paused: Duration::ZERO,
            ended: false,
        }
    }

    /// Makes the contest pause after every run, so that it can share the machine.
    #[must_use]
    pub fn pausing(self, pause: Option<Pause<'a>>) -> PipelineContest<'a> {
        PipelineContest { pause, ..self }
    }

    /// Seeds the contest with existing pipelines.
    #[must_use]
    pub fn with_pipelines(mut self, pipelines: Vec<Arc<dyn CompiledPipeline>>) -> PipelineContest<'a> {
        for (contestant, pipeline) in self.contestants.iter_mut().zip(pipelines) {
            contestant.pipeline = Some(pipeline);
        }
        self
    }

    fn restore(&mut self) {
        for buffer in &mut self.buffers {
            if let Some(before) = &buffer.before {
                buffer.bytes.copy_from_slice(before);
            }
        }
    }

    /// Runs the candidate `runs` times and returns the total time.
    fn run(&mut self, candidate: usize, runs: u64) -> Result<u64, String> {
        let contestant = self.contestants.get_mut(candidate);
        let contestant = contestant.ok_or_else(|| format!("there is no candidate {candidate}"))?;
        let (pipeline, config) = (contestant.compiled()?, &contestant.config);
        let mut bindings: Vec<Binding<'_>> =
            self.buffers.iter_mut().map(|buffer| Binding::new(buffer.access, &mut buffer.bytes)).collect();
        let start = Instant::now();
        for _ in 0..runs {
            let dispatched = contain(|| quietly(|| pipeline.dispatch_bound(&mut bindings, config)))?;
            dispatched.map_err(|error| error.to_string())?;
        }
        Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Contest for PipelineContest<'_> {
    fn measure(&mut self, candidate: usize) -> Result<u64, String> {
        process_exit::rest();
        let began = Instant::now();
        self.restore();
        let known = self.contestants.get(candidate).map_or(0, |contestant| contestant.runs);
        if self.pause.is_some() && known > 1 {
            self.run(candidate, 1)?;
            self.restore();
        }
        let elapsed = self.run(candidate, known.max(1))?;
        if known == 0 {
            let least_ns = if self.pause.is_some() { SAMPLE_NS } else { STEPS * self.resolution_ns };
            let wanted = least_ns.div_ceil(elapsed.max(1));
            self.contestants[candidate].runs = wanted.clamp(1, MOST_RUNS);
        }
        if let Some(pause) = self.pause {
            let (took, pausing) = (began.elapsed(), Instant::now());
            self.ended |= pause(took).is_err();
            self.paused += pausing.elapsed();
        }
        Ok(elapsed / known.max(1))
    }

    fn check(&mut self, candidate: usize) -> Result<(), String> {
        process_exit::rest();
        self.restore();
        self.run(candidate, 1)?;
        let written = || self.buffers.iter().filter(|buffer| buffer.before.is_some());
        let Some(expected) = &self.expected else {
            self.expected = Some(written().map(|buffer| buffer.bytes.clone()).collect());
            return Ok(());
        };
        let wrong = |(expected, buffer): (&Vec<u8>, &ContestBuffer)| {
            self.judge.first_wrong(buffer.element, expected, &buffer.bytes).is_some()
        };
        let differing = expected.iter().zip(written()).position(wrong);
        differing.map_or(Ok(()), |output| Err(format!("output {output} differs from the default's")))
    }

    fn renew(&mut self, candidate: usize) -> Result<(), String> {
        let Some(contestant) = self.contestants.get_mut(candidate) else { return Ok(()) };
        contestant.pipeline = None;
        contestant.compiled().map(drop)
    }

    fn elapsed(&mut self) -> Duration {
        if self.ended { Duration::MAX } else { self.start.elapsed().saturating_sub(self.paused) }
    }
}

impl ContestBuffer {
    /// Memory for a buffer with this access and element type, with these contents before every run.
    pub fn new(access: Access, element: DataType, bytes: Vec<u8>) -> ContestBuffer {
        let before = access.is_output().then(|| bytes.clone());
        ContestBuffer { access, element, bytes, before }
    }
}

/// Memory for every buffer of the default, filled from the inputs.
fn buffers_for(default: &Alternative, given: &ContestInputs<'_>) -> Result<Vec<ContestBuffer>, BackendError> {
    let kernel = default.program.validate()?;
    let ContestInputs { inputs, memory_limit, .. } = *given;
    let overrides = default.config.overrides();
    let launch = match given.bound_bytes {
        Some(lengths) => Launch::from_bound(&kernel, &bound_arguments(&kernel, inputs, lengths), overrides)?,
        None => Launch::from_inputs(&kernel, inputs, overrides)?,
    };
    let buffers = kernel.bound_buffers();
    let needed: u64 = buffers
        .iter()
        .map(|&id| {
            let copies = if kernel.buffer(id).decl.access.is_output() { 3 } else { 1 };
            copies * launch.bytes(&kernel, id) as u64
        })
        .sum();
    if needed > memory_limit {
        let message = format!(
            "tuning needs {needed} bytes for copies of the buffers, more than its limit of {memory_limit}; \
             raise the limit, or tune on smaller inputs"
        );
        return Err(BackendError::new(message));
    }
    let mut inputs = inputs.iter();
    let buffer = |id| {
        let (access, element) = (kernel.buffer(id).decl.access, kernel.buffer(id).decl.element);
        let given = if access.is_input() { inputs.next().map(|input| input.to_vec()) } else { None };
        let bytes = given.unwrap_or_else(|| vec![0; launch.bytes(&kernel, id)]);
        ContestBuffer::new(access, element, bytes)
    };
    Ok(buffers.into_iter().map(buffer).collect())
}

/// The bound arguments, with the contents of the inputs.
fn bound_arguments<'a>(kernel: &Kernel, inputs: &[&'a [u8]], lengths: &[usize]) -> Vec<LaunchArgument<'a>> {
    let mut inputs = inputs.iter();
    let argument = |(id, &length): (BufferId, &usize)| {
        let input = if kernel.buffer(id).decl.access.is_input() { inputs.next() } else { None };
        LaunchArgument { length, contents: input.copied() }
    };
    kernel.bound_buffers().into_iter().zip(lengths).map(argument).collect()
}

/// The smallest step of the clock.
fn clock_resolution_ns() -> u64 {
    let step = || {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed().as_nanos();
            if elapsed > 0 {
                return u64::try_from(elapsed).unwrap_or(u64::MAX);
            }
        }
    };
    (0..32).map(|_| step()).min().unwrap_or(1)
}
