//! Several calls of one program in one go.
//!
//! A batch is routed as one: what it takes on a backend is learnt apart from what single calls take, by the number of
//! elements in all, because a device that is slow to start does better on many calls at once. It goes to the backend's
//! batched dispatch, which submits all of them together where the device can; where memory is used in place, and where
//! buffers are resident, the calls follow one another.

use crate::argument::Memory;
use crate::call::Call;
use crate::dispatch;
use crate::report::Report;
use crate::routine::RoutineCore;
use std::sync::Arc;
use vyre_driver::{BackendError, DeviceClass, Fallback};
use vyre_foundation::ir::Access;
use vyre_foundation::launch::{Launch, Overrides};

/// Calls of one program that run in one go, from [`Routine::batch`](crate::Routine::batch). How they run (backend, fallback,
/// timeout, configuration) is what the first of them says. Every call is checked before anything runs.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut rows = vec![vec![1.0f32; 100]; 8];
/// let mut batch = double.batch();
/// batch.extend(rows.iter_mut().map(|row| double.call().bind("x", row)));
/// let report = batch.run()?;
/// assert_eq!(report.map(|report| report.elements), Some(800));
/// assert!(rows.iter().flatten().all(|&x| x == 2.0));
/// # Ok::<(), BackendError>(())
/// ```
#[must_use = "a batch does nothing until it is run"]
pub struct Batch<'a> {
    core: &'a Arc<RoutineCore>,
    calls: Vec<Call<'a>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(core: &'a Arc<RoutineCore>) -> Batch<'a> {
        Batch { core, calls: Vec::new() }
    }

    /// Adds a call of the batch's program.
    pub fn then(mut self, call: Call<'a>) -> Batch<'a> {
        self.calls.push(call);
        self
    }

    /// Runs the calls and waits for them; the report is of all of them together, and there is none for no calls. After an
    /// error memory given for writing has unspecified contents, as after a call's.
    pub fn run(mut self) -> Result<Option<Report>, BackendError> {
        for call in &mut self.calls {
            if !call.is_of(self.core) {
                return Err(BackendError::new(format!(
                    "a batch of `{}` was given a call of another program; use a sequence",
                    self.core.kernel.display_name()
                )));
            }
            call.check()?;
        }
        let Some(first) = self.calls.first_mut() else { return Ok(None) };
        let options = std::mem::take(&mut first.options);
        let mut items: Vec<&mut [Memory<'_>]> = self.calls.iter_mut().map(Call::bound).collect();
        dispatch::run_batch(self.core, &mut items, &options).map(Some)
    }
}

impl<'a> Extend<Call<'a>> for Batch<'a> {
    fn extend<I: IntoIterator<Item = Call<'a>>>(&mut self, calls: I) {
        self.calls.extend(calls);
    }
}

/// Whether the calls of a batch run one after the other on the memory they were given, rather than all at once on copies.
pub(crate) fn runs_in_place(
    core: &RoutineCore,
    items: &[&mut [Memory<'_>]],
    class: DeviceClass,
    fallback: Fallback,
) -> bool {
    let resident = |item: &&mut [Memory<'_>]| item.iter().any(|memory| matches!(memory, Memory::Resident(_)));
    // A batch on copies leaves the caller's memory alone if it fails, which is what `Allow` needs.
    let host = class == DeviceClass::Cpu && fallback != Fallback::Allow;
    host || items.iter().any(resident) || !items.iter().all(|item| is_sized_by_inputs(core, item))
}

/// Whether the outputs that were given are as long as the inputs make them.
fn is_sized_by_inputs(core: &RoutineCore, item: &[Memory<'_>]) -> bool {
    let given = || core.parameters.iter().zip(item);
    let lengths: Vec<usize> = given()
        .filter(|(parameter, _)| parameter.access.is_input())
        .map(|(_, memory)| memory.len())
        .collect();
    let Ok(launch) = Launch::from_inputs(&core.kernel, &lengths, Overrides::default()) else { return false };
    let bound = core.kernel.bound_buffers();
    given().zip(bound).all(|((_, memory), id)| launch.bytes(&core.kernel, id) == memory.len())
}

/// The inputs of a call, where they lie.
pub(crate) fn inputs_of<'m>(core: &RoutineCore, item: &'m [Memory<'_>]) -> Vec<&'m [u8]> {
    let given = core.parameters.iter().zip(item).filter(|(parameter, _)| parameter.access.is_input());
    given
        .map(|(_, memory)| match memory {
            Memory::Number(bytes, length) => &bytes[..*length],
            Memory::Read(bytes) => bytes,
            Memory::Write(bytes) => &**bytes,
            Memory::Nothing | Memory::Resident(_) => unreachable!("such calls run in place"),
        })
        .collect()
}

/// Copies a call's outputs to where its caller wants them.
pub(crate) fn copy_outputs(
    core: &RoutineCore,
    item: &mut [Memory<'_>],
    outputs: &[Vec<u8>],
) -> Result<(), String> {
    let written = |access: Access| matches!(access, Access::ReadWrite | Access::Output);
    let targets = core.parameters.iter().zip(item).filter_map(|(parameter, memory)| match memory {
        Memory::Write(bytes) if written(parameter.access) => Some(&mut **bytes),
        Memory::Write(_) | Memory::Nothing | Memory::Number(..) | Memory::Read(_) | Memory::Resident(_) => {
            None
        }
    });
    let mut outputs = outputs.iter();
    for target in targets {
        match outputs.next() {
            Some(output) if output.len() == target.len() => target.copy_from_slice(output),
            Some(output) => {
                return Err(format!(
                    "an output has {} bytes, the memory bound for it {}",
                    output.len(),
                    target.len()
                ));
            }
            None => return Err("it gave fewer outputs than the program has".to_owned()),
        }
    }
    Ok(())
}
