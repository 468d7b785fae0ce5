//! Plans: programs that run one after another on shared buffers, as one call.
//!
//! A [`Plan`] lists its buffers, each with a length in bytes and a role, and its steps, each a program with the buffers
//! that it binds. Nothing in it belongs to a backend. [`Plan::compile`] makes a [`CompiledPlan`], which any thread may
//! run any number of times. Intermediate buffers stay on the device where the backend can keep them there, and are
//! reused from one call to the next.
//!
//! A temporary holds anything when a step first sees it, so programs declare temporaries, and outputs that several
//! steps write, as `read_write`, and write every element that is read later.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, VyreBackend, pipeline,
};
use vyre_foundation::ir::{Access, Program};

/// What a buffer of a plan is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The caller gives it.
    Input,
    /// The caller gives it and gets it back changed.
    Updated,
    /// The caller gets it; every element is written.
    Output,
    /// It lives during the call.
    Temporary,
    /// It is part of the plan: sizes and other parameters.
    Constant(Vec<u8>),
}

impl Role {
    /// Whether the caller gives memory for it.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, Role::Input | Role::Updated | Role::Output)
    }
}

/// A buffer of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its length.
    pub bytes: usize,
    /// What it is for.
    pub role: Role,
}

/// The position of a buffer in [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanBufferId(pub usize);

/// One program of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The program.
    pub program: Program,
    /// One buffer per buffer of the program that is not workgroup memory, in binding order.
    pub bindings: Vec<PlanBufferId>,
    /// So many workgroups, instead of covering the program's domain.
    pub grid: Option<[u32; 3]>,
}

/// Programs that run one after another on shared buffers.
///
/// ```
/// use std::sync::Arc;
/// use vyre::catalogue::reduce;
/// use vyre::driver::{DispatchConfig, VyreBackend, registry};
/// use vyre::{DataType, foundation::ir::Combine};
///
/// let backend: Arc<dyn VyreBackend> = registry::acquire("cpu-ref")?.into();
/// let plan = reduce::reduce(Combine::Add, DataType::U32, 5, &backend.device_profile())?;
/// let x: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
/// let sum = plan.compile(backend, &DispatchConfig::default())?.run(&[&x])?;
/// assert_eq!(sum, [15_u32.to_le_bytes()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The catalogue id of the op.
    pub op: &'static str,
    /// The buffers; the caller's come in this order.
    pub buffers: Vec<PlanBuffer>,
    /// The programs, first to last.
    pub steps: Vec<Step>,
}

/// Why there is no plan for some parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The catalogue id of the op.
    pub op: &'static str,
    /// What does not fit, and what would.
    pub message: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.message)
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// An empty plan of an op.
    pub fn new(op: &'static str) -> Plan {
        Plan { op, buffers: Vec::new(), steps: Vec::new() }
    }

    /// Adds a buffer.
    pub fn buffer(&mut self, name: &'static str, bytes: usize, role: Role) -> PlanBufferId {
        self.buffers.push(PlanBuffer { name, bytes, role });
        PlanBufferId(self.buffers.len() - 1)
    }

    /// Adds a buffer that the caller gives.
    pub fn input(&mut self, name: &'static str, bytes: usize) -> PlanBufferId {
        self.buffer(name, bytes, Role::Input)
    }

    /// Adds a buffer that the caller gets.
    pub fn output(&mut self, name: &'static str, bytes: usize) -> PlanBufferId {
        self.buffer(name, bytes, Role::Output)
    }

    /// Adds a buffer that lives during the call.
    pub fn temporary(&mut self, name: &'static str, bytes: usize) -> PlanBufferId {
        self.buffer(name, bytes, Role::Temporary)
    }

    /// Adds a buffer with fixed contents.
    pub fn constant(&mut self, name: &'static str, bytes: &[u8]) -> PlanBufferId {
        self.buffer(name, bytes.len(), Role::Constant(bytes.to_vec()))
    }

    /// Adds a program that covers its own domain.
    pub fn step(&mut self, program: Program, bindings: &[PlanBufferId]) {
        self.steps.push(Step { program, bindings: bindings.to_vec(), grid: None });
    }

    /// Adds a program that runs so many workgroups.
    pub fn step_on(&mut self, grid: [u32; 3], program: Program, bindings: &[PlanBufferId]) {
        self.steps.push(Step { program, bindings: bindings.to_vec(), grid: Some(grid) });
    }

    /// Compiles every program for a backend. Steps with the same program share one pipeline.
    pub fn compile(
        &self,
        backend: Arc<dyn VyreBackend>,
        config: &DispatchConfig,
    ) -> Result<CompiledPlan, BackendError> {
        let mut known: HashMap<PipelineOf, Arc<dyn CompiledPipeline>> = HashMap::new();
        let mut steps = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let key = (step.program.fingerprint(), step.grid);
            let pipeline = match known.get(&key) {
                Some(pipeline) => pipeline.clone(),
                None => {
                    let config = DispatchConfig { grid_override: step.grid, ..config.clone() };
                    let made = pipeline::compile(backend.clone(), &step.program, &config)?;
                    known.insert(key, made.clone());
                    made
                }
            };
            steps.push(CompiledStep { pipeline, bindings: self.bound_accesses(step)? });
        }
        Ok(CompiledPlan {
            op: self.op,
            buffers: self.buffers.clone(),
            steps,
            backend,
            spare: Mutex::default(),
        })
    }

    /// Each binding of a step with the access that its program has.
    fn bound_accesses(&self, step: &Step) -> Result<Vec<(usize, Access)>, BackendError> {
        let kernel = step.program.validate()?;
        let bound = kernel.bound_buffers();
        let known = step.bindings.iter().all(|id| id.0 < self.buffers.len());
        if bound.len() != step.bindings.len() || !known {
            let wanted = bound.len();
            let message = format!(
                "{}: kernel `{}` takes {wanted} buffers of the plan, and the step binds {}",
                self.op,
                kernel.display_name(),
                step.bindings.len()
            );
            return Err(BackendError::new(message));
        }
        let accesses = bound.into_iter().map(|id| kernel.buffer(id).decl.access);
        Ok(step.bindings.iter().map(|id| id.0).zip(accesses).collect())
    }
}

/// What a pipeline is made for: a program's fingerprint and a grid.
type PipelineOf = ([u8; 32], Option<[u32; 3]>);

struct CompiledStep {
    pipeline: Arc<dyn CompiledPipeline>,
    bindings: Vec<(usize, Access)>,
}

/// A plan made ready to run on one backend, again and again, from any thread.
pub struct CompiledPlan {
    op: &'static str,
    buffers: Vec<PlanBuffer>,
    steps: Vec<CompiledStep>,
    backend: Arc<dyn VyreBackend>,
    /// Temporaries of calls that are over, for the next call.
    spare: Mutex<Vec<Vec<Memory>>>,
}

impl fmt::Debug for CompiledPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipelines: Vec<&str> = self.steps.iter().map(|step| step.pipeline.id()).collect();
        f.debug_struct("CompiledPlan").field("op", &self.op).field("pipelines", &pipelines).finish()
    }
}

/// Memory of a temporary.
enum Memory {
    Resident(u64),
    Host(Vec<u8>),
}

/// What a buffer of the plan is bound to during a call.
enum Slot<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Resident(u64),
}

impl CompiledPlan {
    /// The backend that the plan was compiled for.
    pub fn backend(&self) -> &Arc<dyn VyreBackend> {
        &self.backend
    }

    /// The buffers, in the plan's order.
    pub fn buffers(&self) -> &[PlanBuffer] {
        &self.buffers
    }

    /// How many dispatches a call makes.
    pub fn dispatches(&self) -> usize {
        self.steps.len()
    }

    /// Runs on these inputs: one per input and updated buffer, in the plan's order. Gives one output per output and
    /// updated buffer, in that order.
    pub fn run(&self, inputs: &[&[u8]]) -> Result<OutputBuffers, BackendError> {
        self.run_inputs_within(inputs, None)
    }

    /// The same, in this time.
    pub(crate) fn run_inputs_within(
        &self,
        inputs: &[&[u8]],
        limit: Option<Duration>,
    ) -> Result<OutputBuffers, BackendError> {
        let wanted = self.buffers.iter().filter(|b| matches!(b.role, Role::Input | Role::Updated)).count();
        if inputs.len() != wanted {
            let given = inputs.len();
            return Err(BackendError::new(format!("{} takes {wanted} inputs, {given} were given", self.op)));
        }
        let mut given = inputs.iter();
        let mut outputs = Vec::new();
        for buffer in &self.buffers {
            match buffer.role {
                Role::Input => drop(given.next()),
                Role::Updated => outputs.push(given.next().map_or_else(Vec::new, |input| input.to_vec())),
                Role::Output => outputs.push(vec![0; buffer.bytes]),
                Role::Temporary | Role::Constant(_) => {}
            }
        }
        let mut given = inputs.iter();
        let mut writable = outputs.iter_mut();
        let mut bindings = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            let input = if buffer.role == Role::Output { None } else { given.as_slice().first() };
            match (&buffer.role, input) {
                (Role::Input, Some(input)) => bindings.push(Binding::Read(input)),
                (Role::Updated | Role::Output, _) => {
                    bindings.extend(writable.next().map(|output| Binding::ReadWrite(output)));
                }
                (Role::Input | Role::Temporary | Role::Constant(_), _) => {}
            }
            if matches!(buffer.role, Role::Input | Role::Updated) {
                given.next();
            }
        }
        self.run_within(&mut bindings, limit)?;
        drop(bindings);
        Ok(outputs)
    }

    /// Runs on bound memory: one binding per input, updated and output buffer, in the plan's order. Updated and output
    /// buffers take `ReadWrite` or `Write` memory alike. After an error, memory given for writing has unspecified
    /// contents.
    pub fn run_bound(&self, bindings: &mut [Binding<'_>]) -> Result<(), BackendError> {
        self.run_within(bindings, None)
    }

    /// Like [`run_bound`](Self::run_bound), all steps in this time.
    pub(crate) fn run_within(
        &self,
        bindings: &mut [Binding<'_>],
        limit: Option<Duration>,
    ) -> Result<(), BackendError> {
        self.check(bindings)?;
        let mut temporaries = self.take_temporaries()?;
        let done = self.run_steps(bindings, &mut temporaries, limit);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(temporaries);
        done
    }

    fn check(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        let bound: Vec<&PlanBuffer> = self.buffers.iter().filter(|buffer| buffer.role.is_bound()).collect();
        if bound.len() != bindings.len() {
            let (wanted, given) = (bound.len(), bindings.len());
            return Err(BackendError::new(format!("{} takes {wanted} buffers, {given} were given", self.op)));
        }
        for (buffer, binding) in bound.iter().zip(bindings) {
            let (length, writable) = match binding {
                Binding::Read(bytes) => (bytes.len(), false),
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => (bytes.len(), true),
                Binding::Resident(_) => (buffer.bytes, true),
            };
            let (op, name, bytes) = (self.op, buffer.name, buffer.bytes);
            if length != bytes {
                return Err(BackendError::new(format!(
                    "{op}: buffer `{name}` was given {length} bytes; this plan is for {bytes}"
                )));
            }
            if !writable && buffer.role != Role::Input {
                return Err(BackendError::new(format!("{op}: buffer `{name}` needs memory to write to")));
            }
        }
        Ok(())
    }

    /// Memory for every temporary, in the plan's order: that of an earlier call, or new.
    fn take_temporaries(&self) -> Result<Vec<Memory>, BackendError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(spare) = spare {
            return Ok(spare);
        }
        let temporaries = self.buffers.iter().filter(|buffer| buffer.role == Role::Temporary);
        let mut made = Vec::new();
        for buffer in temporaries {
            match self.backend.allocate_resident(buffer.bytes) {
                Ok(handle) => made.push(Memory::Resident(handle)),
                Err(BackendError::UnsupportedFeature { .. }) => {
                    made.push(Memory::Host(vec![0; buffer.bytes]))
                }
                Err(error) => {
                    self.free(&made);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    fn free(&self, temporaries: &[Memory]) {
        for temporary in temporaries {
            if let Memory::Resident(handle) = temporary {
                // The backend that lost a buffer has already said so to whoever used it.
                let _ = self.backend.free_resident(*handle);
            }
        }
    }

    fn run_steps(
        &self,
        bindings: &mut [Binding<'_>],
        temporaries: &mut [Memory],
        limit: Option<Duration>,
    ) -> Result<(), BackendError> {
        let began = Instant::now();
        let mut bindings = bindings.iter_mut();
        let mut temporaries = temporaries.iter_mut();
        let mut slots: Vec<Slot<'_>> = Vec::with_capacity(self.buffers.len());
        for buffer in &self.buffers {
            let slot = match &buffer.role {
                Role::Constant(bytes) => Some(Slot::Read(bytes)),
                Role::Temporary => temporaries.next().map(|memory| match memory {
                    Memory::Resident(handle) => Slot::Resident(*handle),
                    Memory::Host(bytes) => Slot::Write(bytes),
                }),
                Role::Input | Role::Updated | Role::Output => bindings.next().map(|binding| match binding {
                    Binding::Read(bytes) => Slot::Read(bytes),
                    Binding::ReadWrite(bytes) | Binding::Write(bytes) => Slot::Write(bytes),
                    Binding::Resident(handle) => Slot::Resident(*handle),
                }),
            };
            slots.extend(slot);
        }
        let mut config = DispatchConfig::default();
        for step in &self.steps {
            config.timeout = limit.map(|limit| limit.saturating_sub(began.elapsed()));
            let mut bound = self.bind(step, &mut slots)?;
            step.pipeline.dispatch_bound(&mut bound, &config)?;
        }
        Ok(())
    }

    /// The bindings of one step. A buffer that is written is bound once.
    fn bind<'s>(
        &self,
        step: &CompiledStep,
        slots: &'s mut [Slot<'_>],
    ) -> Result<Vec<Binding<'s>>, BackendError> {
        let mut bound: Vec<Option<Binding<'s>>> = Vec::with_capacity(step.bindings.len());
        bound.resize_with(step.bindings.len(), || None);
        for (number, slot) in slots.iter_mut().enumerate() {
            let mut places = step.bindings.iter().enumerate().filter(|(_, (buffer, _))| *buffer == number);
            let Some((place, &(_, access))) = places.next() else { continue };
            if access.is_output() {
                bound[place] = writable(slot, access);
                if places.next().is_some() {
                    return Err(self.fault(number, "is bound twice in a step that writes it"));
                }
                continue;
            }
            let slot: &'s Slot<'_> = slot;
            bound[place] = Some(readable(slot));
            for (place, &(_, access)) in places {
                if access.is_output() {
                    return Err(self.fault(number, "is bound twice in a step that writes it"));
                }
                bound[place] = Some(readable(slot));
            }
        }
        let read_only = step.bindings.iter().zip(&bound).find(|(_, bound)| bound.is_none());
        match read_only {
            Some(((buffer, _), _)) => Err(self.fault(*buffer, "is an input, and a step writes it")),
            None => Ok(bound.into_iter().flatten().collect()),
        }
    }

    fn fault(&self, buffer: usize, what: &str) -> BackendError {
        BackendError::new(format!("{}: buffer `{}` {what}", self.op, self.buffers[buffer].name))
    }
}

fn readable<'s>(slot: &'s Slot<'_>) -> Binding<'s> {
    match slot {
        Slot::Read(bytes) => Binding::Read(bytes),
        Slot::Write(bytes) => Binding::Read(bytes),
        Slot::Resident(handle) => Binding::Resident(*handle),
    }
}

fn writable<'s>(slot: &'s mut Slot<'_>, access: Access) -> Option<Binding<'s>> {
    match slot {
        Slot::Read(_) => None,
        Slot::Write(bytes) => Some(match access {
            Access::Output => Binding::Write(bytes),
            Access::Read | Access::ReadWrite | Access::Uniform | Access::Workgroup => {
                Binding::ReadWrite(bytes)
            }
        }),
        Slot::Resident(handle) => Some(Binding::Resident(*handle)),
    }
}

impl Drop for CompiledPlan {
    fn drop(&mut self) {
        let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        spare.iter().for_each(|temporaries| self.free(temporaries));
    }
}
