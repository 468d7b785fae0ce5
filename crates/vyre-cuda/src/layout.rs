//! Layout of a call's buffers in a session's memory.
//!
//! A session has one range of device memory and, unless that is too large, one range of pinned host
//! memory with the same layout: first buffers that are copied in, then those copied in and out,
//! then those copied out. A call therefore takes one copy each way, however many buffers and items
//! it has. Resident buffers are elsewhere, and one-element uniforms are passed as kernel
//! parameters.

use crate::memory::DeviceMemory;
use vyre_driver::native::{BoundArgument, Few, Memory, Start};
use vyre_foundation::emit::EntryArgument;
use vyre_foundation::kernel::BufferId;

/// Alignment of every buffer, the same as that of driver allocations.
const ALIGNMENT: usize = 256;
/// Size of the control words.
pub(crate) const CONTROL_BYTES: usize = 8;

/// The part of the memory that a buffer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    In,
    Both,
    Out,
}

/// An offset within one part of the memory.
#[derive(Clone, Copy, Debug)]
struct Address {
    part: Part,
    offset: usize,
}

/// A buffer as passed to the kernel.
#[derive(Clone, Copy, Debug)]
enum KernelArgument {
    Here(Address),
    Resident(u64),
    /// The element of a uniform buffer.
    Value(u64),
    Empty,
}

/// A buffer that is copied.
struct Copied<'m> {
    address: Address,
    bytes: usize,
    memory: Memory<'m, DeviceMemory>,
    start: Start<'m>,
}

/// Buffers of all items of a call.
#[derive(Default)]
pub(crate) struct Layout<'m> {
    items: Vec<Item>,
    copied: Vec<(usize, Copied<'m>)>,
    lengths: [usize; 3],
}

/// One item of a call.
struct Item {
    buffers: Few<(BufferId, KernelArgument)>,
    /// Resident buffers to zero: address and length.
    fills: Few<(u64, usize)>,
    control: Option<Address>,
}

impl<'m> Layout<'m> {
    /// Adds an item with these buffers. `value` returns the values of uniforms, including resident
    /// ones that have been read back.
    pub(crate) fn add(
        &mut self,
        arguments: &[EntryArgument],
        bound: &mut [BoundArgument<'m, DeviceMemory>],
        value: impl Fn(&BoundArgument<'m, DeviceMemory>) -> u64,
    ) {
        let number = self.items.len();
        let (mut buffers, mut fills) = (Few::new(), Few::new());
        for bound in bound {
            let id = bound.buffer;
            let given = match bound.take() {
                bound if arguments.contains(&EntryArgument::Value(id)) => {
                    KernelArgument::Value(value(&bound))
                }
                BoundArgument { bytes: 0, .. } => KernelArgument::Empty,
                BoundArgument { memory: Memory::Resident(resident), start, .. } => {
                    fills.extend(zeros(resident, start));
                    KernelArgument::Resident(resident.pointer)
                }
                BoundArgument { memory: Memory::ResidentMut(resident), start, .. } => {
                    fills.extend(zeros(resident, start));
                    KernelArgument::Resident(resident.pointer)
                }
                BoundArgument { memory, bytes, start, .. } => {
                    let part = match (&memory, start) {
                        (Memory::Write(_), Start::Own | Start::Copy(_)) => Part::Both,
                        (Memory::Write(_), Start::Zero | Start::Zeroed | Start::Anything) => Part::Out,
                        (Memory::Read(_) | Memory::Resident(_) | Memory::ResidentMut(_), _) => Part::In,
                    };
                    let address = self.address(part, bytes);
                    self.copied.push((number, Copied { address, bytes, memory, start }));
                    KernelArgument::Here(address)
                }
            };
            buffers.push((id, given));
        }
        let control =
            arguments.contains(&EntryArgument::Control).then(|| self.address(Part::Both, CONTROL_BYTES));
        self.items.push(Item { buffers, fills, control });
    }

    fn address(&mut self, part: Part, bytes: usize) -> Address {
        let length = &mut self.lengths[part as usize];
        let offset = *length;
        *length = offset.saturating_add(bytes.max(1)).saturating_add(ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        Address { part, offset }
    }

    fn place(&self, address: Address) -> usize {
        let before: usize = self.lengths[..address.part as usize].iter().sum();
        before + address.offset
    }

    /// Total size.
    pub(crate) fn bytes(&self) -> usize {
        self.lengths.iter().fold(0, |all, part| all.saturating_add(*part))
    }

    /// Range that is copied in.
    pub(crate) fn copied_in(&self) -> std::ops::Range<usize> {
        0..self.lengths[0] + self.lengths[1]
    }

    /// Range that is copied out.
    pub(crate) fn copied_out(&self) -> std::ops::Range<usize> {
        self.lengths[0]..self.bytes()
    }

    /// Address of an item's buffer, or the value passed instead.
    pub(crate) fn argument(&self, item: usize, id: BufferId, base: u64) -> u64 {
        match self.items[item].buffers.iter().find(|(buffer, _)| *buffer == id) {
            Some((_, KernelArgument::Here(address))) => base + self.place(*address) as u64,
            Some((_, KernelArgument::Resident(pointer))) => *pointer,
            Some((_, KernelArgument::Value(value))) => *value,
            Some((_, KernelArgument::Empty)) | None => 0,
        }
    }

    /// Offset of an item's control words, if it has any.
    pub(crate) fn control(&self, item: usize) -> Option<usize> {
        self.items[item].control.map(|address| self.place(address))
    }

    /// Address and length of each range that is zeroed before an item is launched.
    pub(crate) fn fills(&self, item: usize, base: u64) -> impl Iterator<Item = (u64, usize)> {
        let from = self.copied.partition_point(|(number, _)| *number < item);
        let own = self.copied[from..].iter().take_while(move |(number, _)| *number == item);
        let zeroed = move |(_, copied): &(usize, Copied<'_>)| {
            let zero = copied.address.part == Part::Out && copied.start != Start::Anything;
            zero.then(|| (base + self.place(copied.address) as u64, copied.bytes))
        };
        own.filter_map(zeroed).chain(self.items[item].fills.iter().copied())
    }

    /// Copies to make before the call: offset and source.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let inputs = self.copied.iter().filter_map(|(_, copied)| {
            let source: &[u8] = match (&copied.memory, copied.start) {
                (Memory::Read(bytes), _) => bytes,
                (Memory::Write(_), Start::Copy(bytes)) => bytes,
                (Memory::Write(bytes), Start::Own) => bytes,
                (Memory::Write(_) | Memory::Resident(_) | Memory::ResidentMut(_), _) => return None,
            };
            Some((self.place(copied.address), source))
        });
        let controls = self.items.iter().filter_map(|item| item.control);
        inputs.chain(controls.map(|address| (self.place(address), &[0; CONTROL_BYTES][..])))
    }

    /// Copies to make after the call for the first items: offset and target.
    pub(crate) fn targets(&mut self, items: usize) -> impl Iterator<Item = (usize, &mut [u8])> {
        let before = [0, self.lengths[0], self.lengths[0] + self.lengths[1]];
        self.copied.iter_mut().filter(move |(item, _)| *item < items).filter_map(move |(_, copied)| {
            match &mut copied.memory {
                Memory::Write(bytes) => {
                    Some((before[copied.address.part as usize] + copied.address.offset, &mut **bytes))
                }
                Memory::Read(_) | Memory::Resident(_) | Memory::ResidentMut(_) => None,
            }
        })
    }
}

/// Address and length of a resident buffer that starts as zeros.
fn zeros(resident: &DeviceMemory, start: Start<'_>) -> Option<(u64, usize)> {
    matches!(start, Start::Zero | Start::Zeroed).then_some((resident.pointer, resident.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound<'m>(
        id: u32,
        memory: Memory<'m, DeviceMemory>,
        bytes: usize,
        start: Start<'m>,
    ) -> BoundArgument<'m, DeviceMemory> {
        BoundArgument { buffer: BufferId(id), memory, bytes, start }
    }

    #[test]
    fn one_range_goes_in_and_one_comes_out() {
        let (read, mut both, mut zero, mut any) = ([1_u8; 300], [2_u8; 4], [3_u8; 5], [4_u8; 6]);
        let mut layout = Layout::default();
        let arguments = [EntryArgument::Control, EntryArgument::Value(BufferId(5))];
        let mut buffers = [
            bound(0, Memory::Write(&mut any), 6, Start::Anything),
            bound(1, Memory::Read(&read), 300, Start::Own),
            bound(2, Memory::Write(&mut both), 4, Start::Own),
            bound(3, Memory::Write(&mut zero), 5, Start::Zero),
            bound(4, Memory::Read(&[]), 0, Start::Own),
            bound(5, Memory::Read(&[7]), 1, Start::Own),
        ];
        layout.add(&arguments, &mut buffers, |_| 7);
        assert_eq!((layout.copied_in(), layout.copied_out()), (0..1024, 512..1536));
        let places: Vec<u64> = (0..6).map(|id| layout.argument(0, BufferId(id), 1 << 20)).collect();
        let at = |offset: u64| (1 << 20) + offset;
        assert_eq!(places, [at(1024), at(0), at(512), at(1280), 0, 7]);
        assert_eq!(layout.control(0), Some(768));
        assert_eq!(layout.fills(0, 1 << 20).collect::<Vec<_>>(), [(at(1280), 5)]);
        let sources: Vec<(usize, usize)> = layout.sources().map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(sources, [(0, 300), (512, 4), (768, 8)]);
        let targets: Vec<(usize, usize)> = layout.targets(1).map(|(at, bytes)| (at, bytes.len())).collect();
        assert_eq!(targets, [(1024, 6), (512, 4), (1280, 5)]);
        assert_eq!(layout.targets(0).count(), 0);
    }
}
