//! Compiled pipelines, and the memory that a dispatch works on.
//!
//! Each default method of [`CompiledPipeline`] calls the simpler method that it extends, overridden
//! or not:
//!
//! ```text
//! dispatch_borrowed_batched → dispatch_borrowed_batched_into → dispatch_borrowed_into ─┐
//! dispatch_persistent_handles_into → dispatch_persistent_handles ──────────────────────┤
//! dispatch_timed, dispatch_bound ──────────────────────────────────────────────────────┤
//!                                                     dispatch ← dispatch_borrowed ←───┘
//! ```

use crate::observability::{LaunchRecord, observe_launch};
use crate::{BackendError, DispatchConfig};
use std::any::Any;
use std::time::{Duration, Instant};
use vyre_foundation::ir::Access;

/// One byte vector per output, in binding order.
pub type OutputBuffers = Vec<Vec<u8>>;

/// An input that outlives the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes in host memory.
    Borrowed(Vec<u8>),
    /// A resident buffer's handle.
    Resident(u64),
}

/// Memory bound to one buffer of a program.
#[derive(Debug)]
pub enum Binding<'a> {
    /// Memory that the kernel only reads: for read and uniform buffers.
    Read(&'a [u8]),
    /// Memory that the kernel reads and writes.
    ReadWrite(&'a mut [u8]),
    /// Memory that the kernel fills: for outputs.
    Write(&'a mut [u8]),
    /// A resident buffer's handle.
    Resident(u64),
}

impl<'a> Binding<'a> {
    /// Host memory for a buffer with this access.
    pub fn new(access: Access, bytes: &'a mut [u8]) -> Binding<'a> {
        match access {
            Access::ReadWrite => Binding::ReadWrite(bytes),
            Access::Output => Binding::Write(bytes),
            Access::Read | Access::Uniform | Access::Workgroup => Binding::Read(bytes),
        }
    }
}

/// One dispatch of a [sequence](crate::VyreBackend::dispatch_sequence): the arguments of
/// [`dispatch_bound`](CompiledPipeline::dispatch_bound).
pub struct SequenceStep<'a, 'm> {
    /// The pipeline.
    pub pipeline: &'a dyn CompiledPipeline,
    /// One binding per buffer.
    pub bindings: &'a mut [Binding<'m>],
    /// The configuration.
    pub config: &'a DispatchConfig,
}

impl std::fmt::Debug for SequenceStep<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequenceStep")
            .field("pipeline", &self.pipeline.id())
            .field("bindings", &self.bindings)
            .field("config", &self.config)
            .finish()
    }
}

/// A series of dispatches that failed part-way.
#[derive(Debug)]
pub struct Failed {
    /// Number of completed dispatches.
    pub done: usize,
    /// The error of the next one.
    pub error: BackendError,
}

/// The result of a timed dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedOutputs {
    /// The outputs.
    pub outputs: OutputBuffers,
    /// Time of the whole call.
    pub wall: Duration,
    /// Time of the kernel, if the device reports it.
    pub device: Option<Duration>,
}

/// A compiled program that can be run repeatedly, from any thread.
pub trait CompiledPipeline: Send + Sync {
    /// The pipeline's id; different programs on one backend never share one.
    fn id(&self) -> &str;

    /// Runs on these inputs: one per read, uniform and read_write buffer, in binding order. Returns
    /// one output per output and read_write buffer, in binding order. Fields set in `config`
    /// override those that the pipeline was compiled with.
    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError>;

    /// Like [`dispatch`](Self::dispatch), on borrowed inputs. The default copies them.
    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_outputs(self.id(), config, byte_count(inputs), || self.dispatch(&owned(inputs), config))
    }

    /// Like [`dispatch_borrowed`](Self::dispatch_borrowed), into the caller's slots: an output that
    /// fits the capacity of its slot is written there, any other replaces the slot, and surplus
    /// slots are dropped. After an error the slots are unchanged.
    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(self.id(), config, || {
            let outputs = self.dispatch_borrowed(inputs, config)?;
            Ok(((), write_slots(byte_count(inputs), outputs, slots)))
        })
    }

    /// Runs on each item in order; see
    /// [`dispatch_borrowed_batched_into`](Self::dispatch_borrowed_batched_into).
    fn dispatch_borrowed_batched(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
    ) -> Result<Vec<OutputBuffers>, BackendError> {
        let mut slots = Vec::with_capacity(items.len());
        self.dispatch_borrowed_batched_into(items, config, &mut slots)?;
        Ok(slots)
    }

    /// Runs on each item in order, into the caller's slots. The first error ends the batch; the
    /// items before it are complete.
    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        let mut addresses = Vec::new();
        for (inputs, outputs) in items.iter().zip(slots) {
            observe_launch(self.id(), config, || {
                // An overriding method can treat the slots in any way: their addresses afterwards
                // show what it did.
                addresses.clear();
                addresses.extend(outputs.iter().map(|slot| slot.as_ptr()));
                self.dispatch_borrowed_into(inputs, config, outputs)?;
                let kept =
                    outputs.iter().zip(&addresses).filter(|(slot, old)| slot.as_ptr() == **old).count();
                let record = LaunchRecord {
                    output_slots_reused: kept as u64,
                    output_slots_moved: (outputs.len() - kept) as u64,
                    ..plain_record(byte_count(inputs), outputs)
                };
                Ok(((), record))
            })?;
        }
        Ok(())
    }

    /// Runs on inputs that can be resident on the device. The default accepts only host memory.
    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_outputs(self.id(), config, borrowed_bytes(inputs), || {
            self.dispatch_borrowed(&borrow_all(self.id(), inputs)?, config)
        })
    }

    /// Like [`dispatch_persistent_handles`](Self::dispatch_persistent_handles), into the caller's
    /// slots, by the rules of [`dispatch_borrowed_into`](Self::dispatch_borrowed_into).
    fn dispatch_persistent_handles_into(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(self.id(), config, || {
            let outputs = self.dispatch_persistent_handles(inputs, config)?;
            Ok(((), write_slots(borrowed_bytes(inputs), outputs, slots)))
        })
    }

    /// Runs and measures the time.
    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        let start = Instant::now();
        let run = || self.dispatch_borrowed(inputs, config);
        let outputs = observe_outputs(self.id(), config, byte_count(inputs), run)?;
        Ok(TimedOutputs { outputs, wall: start.elapsed(), device: None })
    }

    /// Runs on memory bound to the program's buffers, one binding per buffer other than workgroup
    /// memory, in binding order. A host backend runs in place; the default copies the results out,
    /// and requires every `Write` to have the length of its output. After an error, memory bound
    /// for writing has unspecified contents.
    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(self.id(), config, || {
            let inputs = bound_inputs(self.id(), bindings)?;
            let input_bytes = byte_count(&inputs);
            let outputs = self.dispatch_borrowed(&inputs, config)?;
            copy_out(self.id(), &outputs, bindings)?;
            let record = plain_record(input_bytes, &outputs);
            Ok(((), LaunchRecord { output_slots_reused: record.output_slots, ..record }))
        })
    }

    /// The pipeline itself, so that the backend that made it can run several in one
    /// [sequence](crate::VyreBackend::dispatch_sequence). The default is `None`.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}

/// Runs a launch and records it with its input bytes.
pub(crate) fn observe_outputs(
    pipeline: &str,
    config: &DispatchConfig,
    input_bytes: u64,
    run: impl FnOnce() -> Result<OutputBuffers, BackendError>,
) -> Result<OutputBuffers, BackendError> {
    observe_launch(pipeline, config, || {
        let outputs = run()?;
        let record = plain_record(input_bytes, &outputs);
        Ok((outputs, record))
    })
}

pub(crate) fn owned(inputs: &[&[u8]]) -> Vec<Vec<u8>> {
    inputs.iter().map(|input| input.to_vec()).collect()
}

pub(crate) fn byte_count<B: AsRef<[u8]>>(buffers: &[B]) -> u64 {
    buffers.iter().map(|buffer| buffer.as_ref().len() as u64).sum()
}

/// The record of a launch whose outputs went to no slots.
pub(crate) fn plain_record(input_bytes: u64, outputs: &[Vec<u8>]) -> LaunchRecord {
    LaunchRecord {
        input_bytes,
        output_bytes: byte_count(outputs),
        output_slots: outputs.len() as u64,
        ..LaunchRecord::default()
    }
}

/// Moves outputs into the caller's slots, keeping every allocation that is large enough; for
/// pipelines that fill slots themselves. Returns the record of the launch.
pub fn write_slots(input_bytes: u64, outputs: OutputBuffers, slots: &mut OutputBuffers) -> LaunchRecord {
    let mut record = plain_record(input_bytes, &outputs);
    slots.truncate(outputs.len());
    for (k, output) in outputs.into_iter().enumerate() {
        let moved = write_slot(slots, k, output);
        record.output_slots_reused += u64::from(!moved);
        record.output_slots_moved += u64::from(moved);
    }
    record
}

/// Writes an output into the slot with its number, or replaces or adds the slot if it does not fit.
/// Returns whether the slot was replaced or added.
pub(crate) fn write_slot(slots: &mut OutputBuffers, number: usize, output: Vec<u8>) -> bool {
    match slots.get_mut(number) {
        Some(slot) if output.len() <= slot.capacity() => {
            slot.clear();
            slot.extend_from_slice(&output);
            return false;
        }
        Some(slot) => *slot = output,
        None => slots.push(output),
    }
    true
}

/// The total size of the inputs that are not on the device.
fn borrowed_bytes(inputs: &[Resource]) -> u64 {
    let bytes = |input: &Resource| match input {
        Resource::Borrowed(bytes) => bytes.len() as u64,
        Resource::Resident(_) => 0,
    };
    inputs.iter().map(bytes).sum()
}

fn borrow_all<'a>(pipeline: &str, inputs: &'a [Resource]) -> Result<Vec<&'a [u8]>, BackendError> {
    let borrow = |input: &'a Resource| match input {
        Resource::Borrowed(bytes) => Ok(&bytes[..]),
        Resource::Resident(_) => Err(BackendError::no_resident_buffers(pipeline)),
    };
    inputs.iter().map(borrow).collect()
}

fn bound_inputs<'a>(pipeline: &str, bindings: &'a [Binding<'_>]) -> Result<Vec<&'a [u8]>, BackendError> {
    let mut inputs = Vec::with_capacity(bindings.len());
    for binding in bindings {
        match binding {
            Binding::Read(bytes) => inputs.push(*bytes),
            Binding::ReadWrite(bytes) => inputs.push(&**bytes),
            Binding::Write(_) => {}
            Binding::Resident(_) => return Err(BackendError::no_resident_buffers(pipeline)),
        }
    }
    Ok(inputs)
}

/// Copies outputs into the memory bound for writing; an error if the sizes differ.
pub fn copy_out(
    pipeline: &str,
    outputs: &[Vec<u8>],
    bindings: &mut [Binding<'_>],
) -> Result<(), BackendError> {
    let failed = |message| BackendError::failed(pipeline, message);
    let mut targets: Vec<&mut [u8]> = bindings
        .iter_mut()
        .filter_map(|binding| match binding {
            Binding::ReadWrite(bytes) | Binding::Write(bytes) => Some(&mut **bytes),
            Binding::Read(_) | Binding::Resident(_) => None,
        })
        .collect();
    if targets.len() != outputs.len() {
        let (bound, given) = (targets.len(), outputs.len());
        return Err(failed(format!("{bound} buffers are bound for writing, but {given} outputs came back")));
    }
    // Check all lengths before writing anything.
    for (k, (target, output)) in targets.iter().zip(outputs).enumerate() {
        if target.len() != output.len() {
            let (bound, given) = (target.len(), output.len());
            return Err(failed(format!("output {k} has {given} bytes, the memory bound for it has {bound}")));
        }
    }
    for (target, output) in targets.iter_mut().zip(outputs) {
        target.copy_from_slice(output);
    }
    Ok(())
}
