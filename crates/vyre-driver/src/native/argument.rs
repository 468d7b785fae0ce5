//! The memory of one buffer in one call.

use super::Device;
use crate::observability::LaunchRecord;
use vyre_foundation::kernel::{BufferId, KernelBody};
use vyre_foundation::launch;
use vyre_foundation::types::Value;

/// A buffer of a call: where its memory is and what that is to hold.
#[derive(Debug)]
pub struct Argument<'a, M> {
    /// The buffer.
    pub buffer: BufferId,
    /// Its memory.
    pub memory: Memory<'a, M>,
    /// How many bytes it has.
    pub bytes: usize,
    /// What it is to hold when the kernel starts.
    pub start: Start<'a>,
}

/// Where the memory of a buffer is. What is to be written is nobody else's.
#[derive(Debug)]
pub enum Memory<'a, M> {
    /// With the caller, to be read.
    Read(&'a [u8]),
    /// With the caller, to be written.
    Write(&'a mut [u8]),
    /// A resident buffer, to be read.
    Resident(&'a M),
    /// A resident buffer, to be written.
    ResidentMut(&'a mut M),
}

/// What memory is to hold when a kernel starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// What it holds.
    Own,
    /// These bytes; it holds something else.
    Copy(&'a [u8]),
    /// Zeros; it holds something else.
    Zero,
    /// Zeros, which it holds.
    Zeroed,
    /// Anything: the kernel writes all of it and reads none.
    Anything,
}

impl Start<'_> {
    /// Brings memory that the kernel works on in place to its start.
    pub fn apply(self, bytes: &mut [u8]) {
        match self {
            Start::Own | Start::Zeroed | Start::Anything => {}
            Start::Copy(source) => bytes.copy_from_slice(source),
            Start::Zero => bytes.fill(0),
        }
    }
}

impl<M> Argument<'_, M> {
    /// Adds what a launch moves here: memory of the caller's, which has what is written.
    pub(super) fn count(&self, record: &mut LaunchRecord) {
        match (&self.memory, self.start) {
            (Memory::Read(_), _) => record.read(self.bytes),
            (Memory::Write(_), Start::Own | Start::Copy(_)) => {
                record.read(self.bytes);
                record.wrote(self.bytes);
            }
            (Memory::Write(_), Start::Zero | Start::Zeroed | Start::Anything) => record.wrote(self.bytes),
            (Memory::Resident(_) | Memory::ResidentMut(_), _) => {}
        }
    }

    /// What the size of a launch is worked out from.
    pub(super) fn for_launch<D: Device<Memory = M>>(&self, device: &D) -> launch::Argument<'_> {
        launch::Argument { length: self.bytes, contents: self.host_bytes(device) }
    }

    /// What the host can see of it before the kernel starts.
    pub(super) fn host_bytes<'s, D: Device<Memory = M>>(&'s self, device: &D) -> Option<&'s [u8]> {
        match (&self.memory, self.start) {
            (Memory::Read(bytes), _) => Some(bytes),
            (Memory::Write(_), Start::Copy(bytes)) => Some(bytes),
            (Memory::Write(bytes), Start::Own) => Some(bytes),
            (Memory::Resident(memory), _) => device.host_bytes(memory),
            (Memory::ResidentMut(memory), Start::Own) => device.host_bytes(memory),
            (Memory::Write(_) | Memory::ResidentMut(_), _) => None,
        }
    }
}

/// An element of a buffer that the kernel only reads, zero out of range; `None` where the host does not see it.
pub(super) fn element<D: Device>(
    device: &D,
    kernel: &KernelBody,
    arguments: &[Argument<'_, D::Memory>],
    id: BufferId,
    index: u32,
) -> Option<Value> {
    let argument = arguments.iter().find(|argument| argument.buffer == id)?;
    let bytes = argument.host_bytes(device)?;
    let element = kernel.buffer(id).decl.element;
    let at = index as usize * element.size();
    let inside = bytes.get(at..).and_then(|rest| rest.get(..element.size()));
    inside.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
}
