//! Memory for the outputs of a call, in the caller's slots or in separate buffers.
//!
//! The rules are those of
//! [`dispatch_borrowed_into`](crate::CompiledPipeline::dispatch_borrowed_into). A slot with enough
//! capacity is written in place, unless a failed call could leave it half-written. In that case, or
//! without enough capacity, the output goes to a separate buffer until the call completes.

use super::Few;
use crate::dispatch::write_slot;
use crate::observability::LaunchRecord;
use crate::{BackendError, OutputBuffers};

/// The outputs of a running call.
pub(super) struct Outputs {
    outputs: Few<OutputMemory>,
}

enum OutputMemory {
    /// In the slot, whose length was `before`.
    Slot { bytes: usize, before: usize },
    /// In a separate buffer.
    Fresh(Vec<u8>),
}

impl Outputs {
    /// Allocates outputs of these sizes.
    pub(super) fn new(
        backend: &'static str,
        sizes: &[usize],
        slots: &mut OutputBuffers,
        in_place: bool,
    ) -> Result<Outputs, BackendError> {
        let mut outputs = Outputs { outputs: Few::new() };
        for (k, &bytes) in sizes.iter().enumerate() {
            let output = match slots.get_mut(k).filter(|slot| in_place && slot.capacity() >= bytes) {
                Some(slot) => {
                    let before = slot.len();
                    if before < bytes {
                        slot.resize(bytes, 0);
                    }
                    OutputMemory::Slot { bytes, before }
                }
                None => match zeroed(backend, bytes) {
                    Ok(fresh) => OutputMemory::Fresh(fresh),
                    Err(error) => {
                        outputs.drop_in(slots);
                        return Err(error);
                    }
                },
            };
            outputs.outputs.push(output);
        }
        Ok(outputs)
    }

    /// The memory of each output, and whether it is known to be zero.
    pub(super) fn memory<'a>(
        &'a mut self,
        slots: &'a mut OutputBuffers,
    ) -> impl Iterator<Item = (&'a mut [u8], bool)> {
        let mut slots = slots.iter_mut();
        self.outputs.iter_mut().map(move |output| {
            let slot = slots.next();
            match (output, slot) {
                (OutputMemory::Slot { bytes, .. }, Some(slot)) => (&mut slot[..*bytes], false),
                (OutputMemory::Slot { .. }, None) => unreachable!("an output in a slot has one"),
                (OutputMemory::Fresh(fresh), _) => (&mut fresh[..], true),
            }
        })
    }

    /// Publishes the outputs in the slots, and returns the record of the launch.
    pub(super) fn finish(self, input_bytes: u64, slots: &mut OutputBuffers) -> LaunchRecord {
        let mut record = LaunchRecord { input_bytes, ..LaunchRecord::default() };
        slots.truncate(self.outputs.len());
        for (k, output) in self.outputs.into_iter().enumerate() {
            let (bytes, moved) = match output {
                OutputMemory::Slot { bytes, .. } => {
                    slots[k].truncate(bytes);
                    (bytes, false)
                }
                OutputMemory::Fresh(fresh) => (fresh.len(), write_slot(slots, k, fresh)),
            };
            record.output_bytes += bytes as u64;
            record.output_slots += 1;
            record.output_slots_reused += u64::from(!moved);
            record.output_slots_moved += u64::from(moved);
        }
        record
    }

    /// Restores the slots after a failed call.
    pub(super) fn drop_in(self, slots: &mut OutputBuffers) {
        for (output, slot) in self.outputs.into_iter().zip(slots) {
            if let OutputMemory::Slot { before, .. } = output {
                slot.truncate(before);
            }
        }
    }
}

fn zeroed(backend: &'static str, bytes: usize) -> Result<Vec<u8>, BackendError> {
    // `vec![0; n]` gets zero pages from the system but aborts the process if memory is exhausted,
    // so check with a fallible reservation first.
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| BackendError::DeviceOutOfMemory {
        backend: backend.into(),
        requested_bytes: bytes as u64,
    })?;
    drop(probe);
    Ok(vec![0; bytes])
}
