//! Plans: programs that run one after another on shared buffers, as one call.
//!
//! A [`Plan`] lists its buffers, each with a length in bytes and a role, and its steps, each a
//! program with the buffers that it binds. Nothing in it depends on a backend. [`Plan::compile`]
//! makes a [`CompiledPlan`], which any thread can run any number of times. Intermediate buffers
//! stay on the device if the backend can keep them there, and are reused from one call to the next.
//!
//! A temporary has arbitrary contents when a step first sees it. Programs therefore declare
//! temporaries, and outputs that several steps write, as `read_write`, and write every element that
//! is read later.

use crate::argument::argument_error;
use crate::parameter::Parameter;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::observability::{device_time_wanted, record_device_time, take_device_time};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, SequenceStep, VyreBackend,
    pipeline,
};
use vyre_foundation::ir::{Access, BufferDecl, DataType, Name, Program};
use vyre_foundation::kernel::KernelBody;

/// Role of a buffer in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Supplied by the caller.
    Input,
    /// Supplied by the caller and returned changed.
    Updated,
    /// Returned to the caller; every element is written.
    Output,
    /// Lives during the call.
    Temporary,
    /// Part of the plan: sizes and other parameters.
    Constant(Vec<u8>),
}

impl Role {
    /// How a call accesses the caller's memory for it; `None` if the caller supplies none.
    pub(crate) fn access(&self) -> Option<Access> {
        match self {
            Role::Input => Some(Access::Read),
            Role::Updated => Some(Access::ReadWrite),
            Role::Output => Some(Access::Output),
            Role::Temporary | Role::Constant(_) => None,
        }
    }
}

/// A buffer of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Its name, for binding and messages.
    pub name: Name,
    /// The element type for the caller; a program can treat the elements as another type of the
    /// same size.
    pub element: DataType,
    /// The length in bytes.
    pub bytes: usize,
    /// Its role.
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
    /// One plan buffer per buffer of the program other than workgroup memory, in binding order.
    pub bindings: Vec<PlanBufferId>,
    /// The number of workgroups, instead of covering the program's domain.
    pub grid: Option<[u32; 3]>,
}

/// Programs that run one after another on shared buffers.
///
/// ```
/// use std::sync::Arc;
/// use vyre::catalogue::reduce;
/// use vyre::ir::{Combine, DataType};
/// use vyre::unstable::driver::{DispatchConfig, VyreBackend, registry};
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
    /// The buffers; those that the caller binds come in this order.
    pub buffers: Vec<PlanBuffer>,
    /// The programs, first to last.
    pub steps: Vec<Step>,
}

/// Error for parameters that have no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The catalogue id of the op.
    pub op: &'static str,
    /// What does not fit, and what would.
    pub message: String,
}

impl PlanError {
    pub(crate) fn new(op: &'static str, message: impl Into<String>) -> PlanError {
        PlanError { op, message: message.into() }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.message)
    }
}

impl std::error::Error for PlanError {}

impl From<PlanError> for BackendError {
    fn from(error: PlanError) -> BackendError {
        argument_error(error.to_string())
    }
}

impl Plan {
    /// An empty plan for an op.
    pub fn new(op: &'static str) -> Plan {
        Plan { op, buffers: Vec::new(), steps: Vec::new() }
    }

    /// A plan of one program, with the program's buffers: `lengths` gives the number of elements of
    /// those that are not uniforms, `uniforms` the bytes of those that are.
    pub fn of(op: &'static str, program: Program, lengths: &[u32], uniforms: &[&[u8]]) -> Plan {
        let mut plan = Plan::new(op);
        let (mut lengths, mut uniforms) = (lengths.iter().copied(), uniforms.iter());
        let mut decls: Vec<&BufferDecl> = program.buffers().iter().collect();
        decls.sort_by_key(|decl| decl.binding);
        for BufferDecl { name, element, access, .. } in decls {
            let role = match access {
                Access::Workgroup => continue,
                Access::Uniform => Role::Constant(uniforms.next().map_or(Vec::new(), |bytes| bytes.to_vec())),
                Access::Read => Role::Input,
                Access::ReadWrite => Role::Updated,
                Access::Output => Role::Output,
            };
            let length = if *access == Access::Uniform { Some(1) } else { lengths.next() };
            plan.buffer(name.clone(), *element, length.unwrap_or(0), role);
        }
        let bindings: Vec<PlanBufferId> = (0..plan.buffers.len()).map(PlanBufferId).collect();
        plan.step(program, &bindings);
        plan
    }

    /// Adds a buffer of `length` elements.
    pub fn buffer(
        &mut self,
        name: impl Into<Name>,
        element: DataType,
        length: u32,
        role: Role,
    ) -> PlanBufferId {
        let bytes = element.size().saturating_mul(length as usize);
        self.buffers.push(PlanBuffer { name: name.into(), element, bytes, role });
        PlanBufferId(self.buffers.len() - 1)
    }

    /// Adds a buffer that the caller supplies.
    pub fn input(&mut self, name: &'static str, element: DataType, length: u32) -> PlanBufferId {
        self.buffer(name, element, length, Role::Input)
    }

    /// Adds a buffer that is returned to the caller.
    pub fn output(&mut self, name: &'static str, element: DataType, length: u32) -> PlanBufferId {
        self.buffer(name, element, length, Role::Output)
    }

    /// Adds a buffer that lives during the call.
    pub fn temporary(&mut self, name: &'static str, element: DataType, length: u32) -> PlanBufferId {
        self.buffer(name, element, length, Role::Temporary)
    }

    /// Adds a buffer with fixed contents.
    pub fn constant(&mut self, name: &'static str, bytes: &[u8]) -> PlanBufferId {
        self.buffer(name, DataType::U8, bytes.len() as u32, Role::Constant(bytes.to_vec()))
    }

    /// Adds a program that covers its own domain.
    pub fn step(&mut self, program: Program, bindings: &[PlanBufferId]) {
        self.steps.push(Step { program, bindings: bindings.to_vec(), grid: None });
    }

    /// Adds a program that runs a grid of this many workgroups.
    pub fn step_on(&mut self, grid: [u32; 3], program: Program, bindings: &[PlanBufferId]) {
        self.steps.push(Step { program, bindings: bindings.to_vec(), grid: Some(grid) });
    }

    /// The buffers for which the caller supplies memory, in order.
    pub(crate) fn bound(&self) -> impl Iterator<Item = &PlanBuffer> {
        self.buffers.iter().filter(|buffer| buffer.role.access().is_some())
    }

    /// The programs, first to last.
    pub(crate) fn programs(&self) -> Vec<&Program> {
        self.steps.iter().map(|step| &step.program).collect()
    }

    /// The lengths of the buffers that a step's program reads, in binding order.
    pub(crate) fn input_lengths(&self, step: &Step, kernel: &KernelBody) -> Vec<usize> {
        let bound = kernel.bound_buffers().into_iter().zip(&step.bindings);
        let read = bound.filter(|(id, _)| kernel.buffer(*id).decl.access.is_input());
        read.map(|(_, buffer)| self.buffers.get(buffer.0).map_or(0, |buffer| buffer.bytes)).collect()
    }

    /// The parameters of a call.
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let parameter = |buffer: &PlanBuffer| {
            Some(Parameter::new(buffer.name.clone(), buffer.role.access()?, buffer.element, 0))
        };
        self.buffers.iter().filter_map(parameter).collect()
    }

    /// Compiles every program for a backend.
    pub fn compile(
        &self,
        backend: Arc<dyn VyreBackend>,
        config: &DispatchConfig,
    ) -> Result<CompiledPlan, BackendError> {
        self.compile_with(backend, |_| config.clone())
    }

    /// Compiles the plan into a pipeline.
    pub(crate) fn pipeline(
        &self,
        backend: Arc<dyn VyreBackend>,
        config: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        Ok(Arc::new(self.compile(backend, config)?))
    }

    /// Compiles every program for a backend, each with its own configuration.
    pub(crate) fn compile_with(
        &self,
        backend: Arc<dyn VyreBackend>,
        config: impl Fn(&Step) -> DispatchConfig,
    ) -> Result<CompiledPlan, BackendError> {
        let mut steps: Vec<CompiledStep> = Vec::with_capacity(self.steps.len());
        for (number, step) in self.steps.iter().enumerate() {
            let same = |other: &Step| other.program == step.program && other.grid == step.grid;
            let known = self.steps[..number].iter().position(same);
            let pipeline = match known.and_then(|known| steps.get(known)) {
                Some(step) => step.pipeline.clone(),
                None => {
                    let config = DispatchConfig { grid_override: step.grid, ..config(step) };
                    pipeline::compile(backend.clone(), &step.program, &config)?
                }
            };
            steps.push(CompiledStep { pipeline, bindings: self.bound_accesses(step)? });
        }
        let (id, buffers) = (format!("{}:{}", backend.id(), self.op), self.buffers.clone());
        Ok(CompiledPlan { id, op: self.op, buffers, steps, backend, spare: Mutex::default() })
    }

    /// Each binding of a step with its program's access. A step must bind a buffer that it writes
    /// only once.
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
        let bindings: Vec<(usize, Access)> = step.bindings.iter().map(|id| id.0).zip(accesses).collect();
        for &(buffer, _) in bindings.iter().filter(|(_, access)| access.is_output()) {
            let fault = |what| {
                Err(BackendError::new(format!("{}: buffer `{}` {what}", self.op, self.buffers[buffer].name)))
            };
            if bindings.iter().filter(|(other, _)| *other == buffer).count() > 1 {
                return fault("is bound twice in a step that writes it");
            }
            if matches!(self.buffers[buffer].role, Role::Input | Role::Constant(_)) {
                return fault("is an input, and a step writes it");
            }
        }
        Ok(bindings)
    }
}

struct CompiledStep {
    pipeline: Arc<dyn CompiledPipeline>,
    bindings: Vec<(usize, Access)>,
}

/// A plan compiled for one backend, which any thread can run repeatedly.
pub struct CompiledPlan {
    id: String,
    op: &'static str,
    buffers: Vec<PlanBuffer>,
    steps: Vec<CompiledStep>,
    backend: Arc<dyn VyreBackend>,
    /// Temporaries of finished calls, for reuse.
    spare: Mutex<Vec<Vec<TemporaryMemory>>>,
}

impl fmt::Debug for CompiledPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipelines: Vec<&str> = self.steps.iter().map(|step| step.pipeline.id()).collect();
        f.debug_struct("CompiledPlan").field("op", &self.op).field("pipelines", &pipelines).finish()
    }
}

/// Memory of a temporary.
enum TemporaryMemory {
    Resident(u64),
    Host(Vec<u8>),
}

/// Calls of plans with more buffers than this, or more in a step, allocate. Sorts, which have the
/// most in the catalogue, have more than 12.
const INLINE: usize = 32;

impl CompiledPlan {
    /// The backend that the plan was compiled for.
    pub fn backend(&self) -> &Arc<dyn VyreBackend> {
        &self.backend
    }

    /// The buffers, in the plan's order.
    pub fn buffers(&self) -> &[PlanBuffer] {
        &self.buffers
    }

    /// The number of dispatches per call.
    pub fn dispatches(&self) -> usize {
        self.steps.len()
    }

    /// Runs on these inputs: one per input and updated buffer, in the plan's order. Returns one
    /// output per output and updated buffer, in the same order.
    pub fn run(&self, inputs: &[&[u8]]) -> Result<OutputBuffers, BackendError> {
        self.dispatch_borrowed(inputs, &DispatchConfig::default())
    }

    /// Runs on bound memory: one binding per input, updated and output buffer, in the plan's order.
    /// Updated and output buffers accept both `ReadWrite` and `Write` memory. After an error,
    /// memory bound for writing has unspecified contents.
    pub fn run_bound(&self, bindings: &mut [Binding<'_>]) -> Result<(), BackendError> {
        self.dispatch_bound(bindings, &DispatchConfig::default())
    }

    fn check(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        let bound = || self.buffers.iter().filter_map(|buffer| Some((buffer, buffer.role.access()?)));
        if bound().count() != bindings.len() {
            let (wanted, given) = (bound().count(), bindings.len());
            return Err(argument_error(format!(
                "op `{}` takes {wanted} buffers, {given} were given",
                self.op
            )));
        }
        for ((buffer, access), binding) in bound().zip(bindings) {
            let (length, writable) = match binding {
                Binding::Read(bytes) => (bytes.len(), false),
                Binding::ReadWrite(bytes) | Binding::Write(bytes) => (bytes.len(), true),
                Binding::Resident(_) => (buffer.bytes, true),
            };
            self.check_length(buffer, length)?;
            if !writable && access != Access::Read {
                let (op, name) = (self.op, &buffer.name);
                return Err(argument_error(format!("buffer `{name}` of op `{op}` needs memory to write to")));
            }
        }
        Ok(())
    }

    /// Fails unless the memory of a call has the lengths of the plan's buffers. A binding does not
    /// show the length of a resident buffer, so whoever binds one asks.
    pub(crate) fn check_lengths(&self, lengths: impl Iterator<Item = usize>) -> Result<(), BackendError> {
        let bound = self.buffers.iter().filter(|buffer| buffer.role.access().is_some());
        bound.zip(lengths).try_for_each(|(buffer, length)| self.check_length(buffer, length))
    }

    fn check_length(&self, buffer: &PlanBuffer, length: usize) -> Result<(), BackendError> {
        let (op, PlanBuffer { name, bytes, .. }) = (self.op, buffer);
        if length == *bytes {
            return Ok(());
        }
        let message = format!("buffer `{name}` of op `{op}` takes {bytes} bytes at this size, not {length}");
        Err(argument_error(message))
    }

    /// Memory for every temporary, in the plan's order: reused from an earlier call, or new.
    fn take_temporaries(&self) -> Result<Vec<TemporaryMemory>, BackendError> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(spare) = spare {
            return Ok(spare);
        }
        let temporaries = self.buffers.iter().filter(|buffer| buffer.role == Role::Temporary);
        let mut made = Vec::new();
        for buffer in temporaries {
            match self.backend.allocate_resident(buffer.bytes) {
                Ok(handle) => made.push(TemporaryMemory::Resident(handle)),
                Err(BackendError::UnsupportedFeature { .. }) => {
                    made.push(TemporaryMemory::Host(vec![0; buffer.bytes]))
                }
                Err(error) => {
                    self.free(&made);
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    fn free(&self, temporaries: &[TemporaryMemory]) {
        for temporary in temporaries {
            if let TemporaryMemory::Resident(handle) = temporary {
                // A backend that lost a buffer has already reported that to its user.
                let _ = self.backend.free_resident(*handle);
            }
        }
    }

    fn run_steps(
        &self,
        bindings: &mut [Binding<'_>],
        temporaries: &mut [TemporaryMemory],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let began = Instant::now();
        let (mut bindings, mut temporaries) = (bindings.iter_mut(), temporaries.iter_mut());
        let mut memory: SmallVec<[Binding<'_>; INLINE]> = SmallVec::new();
        for buffer in &self.buffers {
            memory.extend(match &buffer.role {
                Role::Constant(bytes) => Some(Binding::Read(bytes)),
                Role::Temporary => temporaries.next().map(|temporary| match temporary {
                    TemporaryMemory::Resident(handle) => Binding::Resident(*handle),
                    TemporaryMemory::Host(bytes) => Binding::ReadWrite(bytes),
                }),
                Role::Input | Role::Updated | Role::Output => bindings.next().map(|binding| match binding {
                    Binding::Read(bytes) => Binding::Read(bytes),
                    Binding::ReadWrite(bytes) | Binding::Write(bytes) => Binding::ReadWrite(bytes),
                    Binding::Resident(handle) => Binding::Resident(*handle),
                }),
            });
        }
        let mut device = Some(Duration::ZERO);
        let mut step_config = DispatchConfig { label: config.label.clone(), ..DispatchConfig::default() };
        // Deadlines and device times apply to single dispatches.
        let alone = config.timeout.is_some() || device_time_wanted();
        let most = if alone { 1 } else { self.backend.sequence_steps() };
        let mut rest = &self.steps[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(together(rest, &memory, most));
            step_config.timeout = config.timeout.map(|limit| limit.saturating_sub(began.elapsed()));
            let mut bound = bind(now, &mut memory);
            match (now, &mut bound[..]) {
                ([step], [bound]) => step.pipeline.dispatch_bound(bound, &step_config)?,
                (steps, bound) => {
                    let joined = steps.iter().zip(bound).map(|(step, bindings)| SequenceStep {
                        pipeline: &*step.pipeline,
                        bindings,
                        config: &step_config,
                    });
                    let mut joined: Vec<SequenceStep<'_, '_>> = joined.collect();
                    self.backend.dispatch_sequence(&mut joined).map_err(|failed| failed.error)?;
                }
            }
            device = device.zip(take_device_time()).map(|(all, step)| all + step);
            rest = later;
        }
        if let Some(device) = device.filter(|_| !self.steps.is_empty()) {
            record_device_time(device);
        }
        Ok(())
    }
}

impl CompiledPipeline for CompiledPlan {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let given = self.buffers.iter().filter(|b| matches!(b.role, Role::Input | Role::Updated)).count();
        if inputs.len() != given {
            let found = inputs.len();
            return Err(argument_error(format!("op `{}` takes {given} inputs, {found} were given", self.op)));
        }
        let mut copies: Vec<(Access, Vec<u8>)> = Vec::new();
        let mut given = inputs.iter();
        for buffer in &self.buffers {
            if let Some(access) = buffer.role.access() {
                let input = if access.is_input() { given.next().map(|input| input.to_vec()) } else { None };
                copies.push((access, input.unwrap_or_else(|| vec![0; buffer.bytes])));
            }
        }
        let mut bindings: Vec<Binding<'_>> =
            copies.iter_mut().map(|(_, bytes)| Binding::ReadWrite(bytes)).collect();
        self.dispatch_bound(&mut bindings, config)?;
        drop(bindings);
        Ok(copies.into_iter().filter(|(access, _)| access.is_output()).map(|(_, bytes)| bytes).collect())
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        self.check(bindings)?;
        let mut temporaries = self.take_temporaries()?;
        let done = self.run_steps(bindings, &mut temporaries, config);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(temporaries);
        done
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// How many of the first steps can be bound at once: host memory that one of them writes is bound
/// by no other.
fn together(steps: &[CompiledStep], memory: &[Binding<'_>], most: usize) -> usize {
    let is_apart = |&(number, step): &(usize, &CompiledStep)| {
        step.bindings.iter().all(|(buffer, access)| {
            let before = steps[..number].iter().flat_map(|step| &step.bindings);
            let mut before = before.filter(|(other, _)| other == buffer);
            let on_host = matches!(memory[*buffer], Binding::ReadWrite(_) | Binding::Write(_));
            !on_host || before.all(|(_, other)| !access.is_output() && !other.is_output())
        })
    };
    steps.iter().enumerate().take(most).take_while(is_apart).count().max(1)
}

type StepBindings<'s> = SmallVec<[Binding<'s>; INLINE]>;

/// The bindings of steps. A step binds what it writes once, and never an input: compilation checked
/// that.
fn bind<'s>(steps: &[CompiledStep], memory: &'s mut [Binding<'_>]) -> SmallVec<[StepBindings<'s>; 1]> {
    let empty = |step: &CompiledStep| step.bindings.iter().map(|_| Binding::Read(&[])).collect();
    let mut bound: SmallVec<[StepBindings<'s>; 1]> = steps.iter().map(empty).collect();
    for (number, buffer_memory) in memory.iter_mut().enumerate() {
        let places = steps.iter().zip(&mut bound).flat_map(|(step, bound)| step.bindings.iter().zip(bound));
        let mut places = places.filter(|((buffer, _), _)| *buffer == number).peekable();
        let written = places.peek().map(|((_, access), _)| *access).filter(|access| access.is_output());
        match (buffer_memory, written) {
            // Host memory that a step writes is bound once.
            (Binding::ReadWrite(bytes) | Binding::Write(bytes), Some(access)) => {
                if let Some((_, place)) = places.next() {
                    *place = Binding::new(access, bytes);
                }
            }
            (Binding::Resident(handle), _) => {
                places.for_each(|(_, place)| *place = Binding::Resident(*handle));
            }
            (Binding::Read(bytes), _) => places.for_each(|(_, place)| *place = Binding::Read(bytes)),
            (Binding::ReadWrite(bytes) | Binding::Write(bytes), None) => {
                let bytes: &'s [u8] = bytes;
                places.for_each(|(_, place)| *place = Binding::Read(bytes));
            }
        }
    }
    bound
}

impl Drop for CompiledPlan {
    fn drop(&mut self) {
        let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        spare.iter().for_each(|temporaries| self.free(temporaries));
    }
}
