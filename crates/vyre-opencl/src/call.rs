//! What a call brings: inputs, and memory for every buffer.

use crate::object::lock;
use crate::resident::Resident;
use std::sync::{Arc, MutexGuard};
use vyre_driver::Binding;
use vyre_driver::observability::LaunchRecord;
use vyre_foundation::launch::Argument;

/// An input of a call.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    Host(&'a [u8]),
    Resident(&'a Resident),
}

impl Input<'_> {
    /// What a launch sees of it.
    pub(crate) fn argument(&self) -> Argument<'_> {
        match self {
            Input::Host(bytes) => (*bytes).into(),
            Input::Resident(resident) => Argument { length: resident.bytes, contents: resident.host_bytes() },
        }
    }
}

pub(crate) fn host_inputs<'a>(inputs: &[&'a [u8]]) -> Vec<Input<'a>> {
    inputs.iter().map(|input| Input::Host(input)).collect()
}

/// What a call on inputs moved.
pub(crate) fn record_of(inputs: &[Input<'_>], outputs: &[Vec<u8>]) -> LaunchRecord {
    let host_bytes = |input: &Input<'_>| match input {
        Input::Host(bytes) => bytes.len() as u64,
        Input::Resident(_) => 0,
    };
    LaunchRecord {
        input_bytes: inputs.iter().map(host_bytes).sum(),
        output_bytes: outputs.iter().map(|output| output.len() as u64).sum(),
        output_slots: outputs.len() as u64,
        ..LaunchRecord::default()
    }
}

/// Memory of one buffer as the caller gives it.
pub(crate) enum Given<'a> {
    Read(&'a [u8]),
    /// Read and written, or already zero.
    Write(&'a mut [u8]),
    /// Written; reads as zero until then.
    Fill(&'a mut [u8]),
    Resident(&'a Resident),
}

impl Given<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Given::Read(bytes) => bytes.len(),
            Given::Write(bytes) | Given::Fill(bytes) => bytes.len(),
            Given::Resident(resident) => resident.bytes,
        }
    }
}

impl<'a> Given<'a> {
    /// The memory of a binding; `resident` is what its handle stands for.
    pub(crate) fn bound(binding: &'a mut Binding<'_>, resident: impl FnOnce() -> &'a Resident) -> Given<'a> {
        match binding {
            Binding::Read(bytes) => Given::Read(bytes),
            Binding::ReadWrite(bytes) => Given::Write(bytes),
            Binding::Write(bytes) => Given::Fill(bytes),
            Binding::Resident(_) => Given::Resident(resident()),
        }
    }

    /// What the host can see of it now.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Given::Read(bytes) => Some(bytes),
            Given::Write(bytes) | Given::Fill(bytes) => Some(bytes),
            Given::Resident(resident) => resident.host_bytes(),
        }
    }

    /// Adds what a launch moves here.
    pub(crate) fn count(&self, record: &mut LaunchRecord) {
        let bytes = self.len() as u64;
        match self {
            Given::Read(_) => record.input_bytes += bytes,
            Given::Write(_) | Given::Fill(_) => {
                if let Given::Write(_) = self {
                    record.input_bytes += bytes;
                }
                record.output_bytes += bytes;
                record.output_slots += 1;
                record.output_slots_reused += 1;
            }
            Given::Resident(_) => {}
        }
    }
}

/// The locks of all resident buffers of a call, taken in the order of their handles, so that two calls never wait for
/// each other.
pub(crate) fn lock_all(residents: &[(u64, Arc<Resident>)]) -> Vec<MutexGuard<'_, ()>> {
    let mut ordered: Vec<&(u64, Arc<Resident>)> = residents.iter().collect();
    ordered.sort_by_key(|(handle, _)| *handle);
    ordered.dedup_by_key(|(handle, _)| *handle);
    ordered.iter().map(|(_, held)| lock(&held.lock)).collect()
}
