//! Tuning a family: several plans for the same work, of which measuring finds the fastest.
//!
//! The members run on generated inputs of their own, held in memory that is bounded before anything is allocated. Each has to
//! give the bits that the first one gives, and the first one, the default, stays unless another wins a duel with it. What was
//! decided is kept in the tuner's file of the device under a name and the member's parameters.

use super::plan::{CompiledPlan, Plan, Role};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vyre_driver::tuner::{self, Contest, FamilyRequest, Progress, TuneLimits, TuneReport, Tuner};
use vyre_driver::{BackendError, Binding, DispatchConfig, VyreBackend, contain};

/// One way to do the work.
#[derive(Clone, Debug)]
pub struct Member {
    /// What reports call it.
    pub name: String,
    /// Its parameters, which tell it from the others in the tuner's file.
    pub parameters: [u32; 3],
    /// What it runs.
    pub plan: Plan,
}

/// What is to be tuned, and on what.
pub struct Family<'a> {
    /// What the decision is kept under.
    pub name: &'a str,
    /// The ways to do the work, the default first.
    pub members: Vec<Member>,
    /// Where.
    pub backend: &'a Arc<dyn VyreBackend>,
    /// What it may take.
    pub limits: TuneLimits,
}

/// Finds the fastest member and remembers it. `progress` is told after every pass.
pub fn tune_family(
    tuner: &Tuner,
    family: Family<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, BackendError> {
    let Family { name, members, backend, limits } = family;
    if members.is_empty() {
        return Err(BackendError::new(format!("the family `{name}` has no members to tune")));
    }
    let bytes = |member: &Member| member.plan.buffers.iter().map(|buffer| buffer.bytes as u64).sum::<u64>();
    let needed = members.iter().map(bytes).max().unwrap_or(0).saturating_mul(2);
    if needed > limits.memory_bytes {
        let limit = limits.memory_bytes;
        return Err(BackendError::new(format!(
            "tuning `{name}` needs {needed} bytes, more than the {limit} it may take"
        )));
    }
    let named = members.iter().map(|member| (member.name.clone(), member.parameters)).collect();
    let mut contest = Plans::new(backend.clone(), members);
    let request = FamilyRequest { key: name, members: named, contest: &mut contest, wall: limits.wall };
    Ok(tuner::tune_family(tuner, request, progress))
}

/// A contest between plans.
struct Plans {
    backend: Arc<dyn VyreBackend>,
    members: Vec<Member>,
    compiled: Vec<Option<CompiledPlan>>,
    /// The bound buffers of the default, filled.
    before: Vec<Vec<u8>>,
    memory: Vec<Vec<u8>>,
    /// Which of them a run writes.
    written: Vec<bool>,
    expected: Option<Vec<Vec<u8>>>,
    start: Instant,
}

impl Plans {
    fn new(backend: Arc<dyn VyreBackend>, members: Vec<Member>) -> Plans {
        let bound = || {
            let buffers = members.first().map_or(&[][..], |member| &member.plan.buffers);
            buffers.iter().filter(|buffer| matches!(buffer.role, Role::Input | Role::Updated | Role::Output))
        };
        let before: Vec<Vec<u8>> = bound().map(|buffer| ordinary_numbers(buffer.bytes)).collect();
        let written = bound().map(|buffer| buffer.role != Role::Input).collect();
        let compiled = members.iter().map(|_| None).collect();
        let memory = before.clone();
        Plans { backend, members, compiled, before, memory, written, expected: None, start: Instant::now() }
    }

    fn run(&mut self, candidate: usize) -> Result<u64, String> {
        let (Some(slot), Some(member)) = (self.compiled.get_mut(candidate), self.members.get(candidate))
        else {
            return Err(format!("there is no member {candidate}"));
        };
        if slot.is_none() {
            let compile = || member.plan.compile(self.backend.clone(), &DispatchConfig::default());
            *slot = Some(contain(compile)?.map_err(|error| error.to_string())?);
        }
        let Some(plan) = slot else { unreachable!("it was compiled just now") };
        for ((memory, before), written) in self.memory.iter_mut().zip(&self.before).zip(&self.written) {
            if *written {
                memory.copy_from_slice(before);
            }
        }
        let mut bindings = Vec::with_capacity(self.memory.len());
        for (memory, written) in self.memory.iter_mut().zip(&self.written) {
            bindings.push(if *written { Binding::ReadWrite(memory) } else { Binding::Read(memory) });
        }
        let began = Instant::now();
        contain(|| plan.run_bound(&mut bindings))?.map_err(|error| error.to_string())?;
        Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Contest for Plans {
    fn measure(&mut self, candidate: usize) -> Result<u64, String> {
        self.run(candidate)
    }

    fn check(&mut self, candidate: usize) -> Result<(), String> {
        self.run(candidate)?;
        let outputs = self.memory.iter().zip(&self.written).filter(|(_, written)| **written);
        let found: Vec<Vec<u8>> = outputs.map(|(memory, _)| memory.clone()).collect();
        match &self.expected {
            None => self.expected = Some(found),
            Some(expected) if *expected != found => {
                return Err("its results are not the default's".to_owned());
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn renew(&mut self, candidate: usize) -> Result<(), String> {
        if let Some(compiled) = self.compiled.get_mut(candidate) {
            *compiled = None;
        }
        Ok(())
    }

    fn elapsed(&mut self) -> Duration {
        self.start.elapsed()
    }
}

/// Small floats in no order; as integers they are in no order either.
fn ordinary_numbers(bytes: usize) -> Vec<u8> {
    let number = |k: u32| ((k.wrapping_mul(2_654_435_761) >> 24) as f32 / 16.0).to_le_bytes();
    (0..).flat_map(number).take(bytes).collect()
}
