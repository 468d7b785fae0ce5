//! Backends for tests: one that does nothing, and some that misbehave. They are not registered.
//!
//! They return as many outputs as the program declares, with the declared length where it is fixed;
//! outputs sized at run time are empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::observability::{LaunchRecord, observe_launch};
use vyre_driver::{BackendError, CompiledPipeline, DispatchConfig, OutputBuffers, VyreBackend};
use vyre_foundation::ir::{BufferDecl, Program};

/// Compiles anything and runs nothing: the cost of a dispatch is the driver's overhead.
#[derive(Debug, Default)]
pub struct NullBackend {
    compiles: AtomicU64,
    dispatches: Arc<AtomicU64>,
}

impl NullBackend {
    /// Number of compile calls.
    pub fn compiles(&self) -> u64 {
        self.compiles.load(Relaxed)
    }

    /// Number of dispatches, including those on its pipelines.
    pub fn dispatches(&self) -> u64 {
        self.dispatches.load(Relaxed)
    }
}

impl VyreBackend for NullBackend {
    fn id(&self) -> &'static str {
        "null"
    }

    fn dispatch(
        &self,
        program: &Program,
        _inputs: &[Vec<u8>],
        _config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.dispatches.fetch_add(1, Relaxed);
        Ok(outputs_of(program, 0))
    }

    fn compile_native(
        &self,
        program: &Program,
        _config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        self.compiles.fetch_add(1, Relaxed);
        let digits: String = program.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("null:{digits}");
        let output_bytes = output_lengths(program).collect();
        Ok(Some(Arc::new(NullPipeline { id, output_bytes, dispatches: self.dispatches.clone() })))
    }
}

struct NullPipeline {
    id: String,
    output_bytes: Vec<usize>,
    dispatches: Arc<AtomicU64>,
}

impl CompiledPipeline for NullPipeline {
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
        let mut outputs = Vec::with_capacity(self.output_bytes.len());
        self.dispatch_borrowed_into(inputs, config, &mut outputs)?;
        Ok(outputs)
    }

    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            self.dispatches.fetch_add(1, Relaxed);
            let mut record = LaunchRecord::default();
            inputs.iter().for_each(|input| record.read(input.len()));
            slots.truncate(self.output_bytes.len());
            for (k, &bytes) in self.output_bytes.iter().enumerate() {
                record.output_slots += 1;
                record.output_bytes += bytes as u64;
                match slots.get_mut(k) {
                    Some(slot) if bytes <= slot.capacity() => {
                        slot.clear();
                        slot.resize(bytes, 0);
                        record.output_slots_reused += 1;
                        continue;
                    }
                    Some(slot) => *slot = vec![0; bytes],
                    None => slots.push(vec![0; bytes]),
                }
                record.output_slots_moved += 1;
            }
            Ok(((), record))
        })
    }
}

/// A way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Compiling returns an error.
    FailsToCompile,
    /// Compiling panics.
    PanicsCompiling,
    /// A dispatch returns an error.
    Fails,
    /// A dispatch blocks until its timeout or, without one, until [`FaultyBackend::release`].
    Hangs,
    /// A dispatch panics.
    Panics,
    /// A dispatch returns wrong bytes.
    Lies,
    /// A dispatch reports a lost device.
    LosesDevice,
    /// A dispatch returns one output too many.
    WrongOutputCount,
}

impl Misbehaviour {
    /// Every way to misbehave.
    pub const ALL: [Misbehaviour; 8] = [
        Misbehaviour::FailsToCompile,
        Misbehaviour::PanicsCompiling,
        Misbehaviour::Fails,
        Misbehaviour::Hangs,
        Misbehaviour::Panics,
        Misbehaviour::Lies,
        Misbehaviour::LosesDevice,
        Misbehaviour::WrongOutputCount,
    ];
}

/// A backend that misbehaves in one way.
#[derive(Debug)]
pub struct FaultyBackend {
    fault: Misbehaviour,
    released: Mutex<bool>,
    wake: Condvar,
}

impl FaultyBackend {
    /// A backend with this fault.
    pub fn new(fault: Misbehaviour) -> FaultyBackend {
        FaultyBackend { fault, released: Mutex::new(false), wake: Condvar::new() }
    }

    /// Ends every hanging dispatch, current and future.
    pub fn release(&self) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    fn hang(&self, timeout: Option<Duration>) -> Result<(), BackendError> {
        let start = Instant::now();
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        while !*released {
            let limit = timeout.unwrap_or(Duration::MAX);
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(BackendError::Timeout { backend: self.id().into(), limit });
            }
            released = match timeout {
                Some(_) => self.wake.wait_timeout(released, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(released).unwrap_or_else(PoisonError::into_inner),
            };
        }
        Ok(())
    }
}

impl VyreBackend for FaultyBackend {
    fn id(&self) -> &'static str {
        "faulty"
    }

    fn dispatch(
        &self,
        program: &Program,
        _inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let backend = || self.id().to_string();
        match self.fault {
            Misbehaviour::FailsToCompile | Misbehaviour::PanicsCompiling => Ok(outputs_of(program, 0)),
            Misbehaviour::Fails => {
                Err(BackendError::DispatchFailed { backend: backend(), message: "as asked".into() })
            }
            Misbehaviour::Hangs => self.hang(config.timeout).map(|()| outputs_of(program, 0)),
            Misbehaviour::Panics => panic!("as asked"),
            Misbehaviour::Lies => Ok(outputs_of(program, 0xA5)),
            Misbehaviour::LosesDevice => {
                Err(BackendError::DeviceLost { backend: backend(), message: "as asked".into() })
            }
            Misbehaviour::WrongOutputCount => {
                let mut outputs = outputs_of(program, 0);
                outputs.push(Vec::new());
                Ok(outputs)
            }
        }
    }

    fn compile_native(
        &self,
        _program: &Program,
        _config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        match self.fault {
            Misbehaviour::FailsToCompile => Err(BackendError::KernelCompileFailed {
                backend: self.id().into(),
                message: "as asked".into(),
            }),
            Misbehaviour::PanicsCompiling => panic!("as asked"),
            Misbehaviour::Fails
            | Misbehaviour::Hangs
            | Misbehaviour::Panics
            | Misbehaviour::Lies
            | Misbehaviour::LosesDevice
            | Misbehaviour::WrongOutputCount => Ok(None),
        }
    }
}

/// The length of each output in bytes, in binding order; 0 if not fixed.
fn output_lengths(program: &Program) -> impl Iterator<Item = usize> {
    let mut outputs: Vec<&BufferDecl> =
        program.buffers().iter().filter(|buffer| buffer.access.is_output()).collect();
    outputs.sort_by_key(|buffer| buffer.binding);
    outputs.into_iter().map(|buffer| buffer.count as usize * buffer.element.size())
}

fn outputs_of(program: &Program, byte: u8) -> OutputBuffers {
    output_lengths(program).map(|bytes| vec![byte; bytes]).collect()
}
