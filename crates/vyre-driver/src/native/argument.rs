//! The memory of one buffer in one call.

use super::NativeDevice;
use crate::observability::LaunchRecord;
use vyre_foundation::kernel::{BufferId, KernelBody};
use vyre_foundation::launch::LaunchArgument;
use vyre_foundation::types::Value;

/// A bound buffer of a call: its memory, and the required contents at kernel start.
#[derive(Debug)]
pub struct BoundArgument<'a, M> {
    /// The buffer.
    pub buffer: BufferId,
    /// Its memory.
    pub memory: Memory<'a, M>,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its required contents at kernel start.
    pub start: Start<'a>,
}

/// The memory of a buffer. Memory to be written is exclusive to the call.
#[derive(Debug)]
pub enum Memory<'a, M> {
    /// The caller's memory, to read.
    Read(&'a [u8]),
    /// The caller's memory, to write.
    Write(&'a mut [u8]),
    /// A resident buffer, to read.
    Resident(&'a M),
    /// A resident buffer, to write.
    ResidentMut(&'a mut M),
}

/// The required contents of memory at kernel start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// Its current contents.
    Own,
    /// These bytes; its current contents differ.
    Copy(&'a [u8]),
    /// Zeros; its current contents are arbitrary.
    Zero,
    /// Zeros, which it already holds.
    Zeroed,
    /// Anything: the kernel writes all of it and reads none.
    Anything,
}

impl Start<'_> {
    /// Initialises memory that the kernel works on in place.
    pub fn apply(self, bytes: &mut [u8]) {
        match self {
            Start::Own | Start::Zeroed | Start::Anything => {}
            Start::Copy(source) => bytes.copy_from_slice(source),
            Start::Zero => bytes.fill(0),
        }
    }
}

impl<'a, M> BoundArgument<'a, M> {
    /// Takes the memory out, for as long as the call lasts; leaves nothing to read in its place.
    pub fn take(&mut self) -> BoundArgument<'a, M> {
        let memory = std::mem::replace(&mut self.memory, Memory::Read(&[]));
        BoundArgument { memory, ..*self }
    }
}

impl<M> BoundArgument<'_, M> {
    /// Adds the bytes that a launch moves from and to the caller's memory for this argument.
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

    /// The argument as the launch computation sees it.
    pub(super) fn for_launch<D: NativeDevice<Memory = M>>(&self, device: &D) -> LaunchArgument<'_> {
        LaunchArgument { length: self.bytes, contents: self.host_bytes(device) }
    }

    /// The contents that the host can read before the kernel starts.
    pub(super) fn host_bytes<'s, D: NativeDevice<Memory = M>>(&'s self, device: &D) -> Option<&'s [u8]> {
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

/// An element of a read-only buffer, zero out of range; `None` if the host cannot read the buffer.
pub(super) fn element<D: NativeDevice>(
    device: &D,
    kernel: &KernelBody,
    arguments: &[BoundArgument<'_, D::Memory>],
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
