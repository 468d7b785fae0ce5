//! The memory of a dispatch: bound buffers and workgroup memory, accessed by element.
//!
//! The out-of-range rules are implemented here: a load outside gives `None`, a store outside does
//! nothing.

use crate::RunError;
use vyre_foundation::kernel::{BufferId, KernelBody};
use vyre_foundation::types::{DataType, Value};

/// Memory budget of a run, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limit: u64,
    taken: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget { limit, taken: 0 }
    }

    /// Reserves bytes before they are allocated.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), RunError> {
        self.check(bytes)?;
        self.taken += bytes;
        Ok(())
    }

    /// Checks that this many bytes fit the budget.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), RunError> {
        let needed = self.taken.saturating_add(bytes);
        if needed > self.limit { Err(RunError::Memory { needed, limit: self.limit }) } else { Ok(()) }
    }
}

/// Caller memory bound to one buffer; need not be aligned.
#[derive(Debug)]
pub enum BoundBytes<'a> {
    /// For `read` and `uniform` buffers.
    Read(&'a [u8]),
    /// For `read_write` buffers, which keep their contents, and `output` buffers, which are zeroed
    /// first.
    Write(&'a mut [u8]),
}

impl BoundBytes<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            BoundBytes::Read(bytes) => bytes,
            BoundBytes::Write(bytes) => bytes,
        }
    }
}

/// All buffers of a running kernel, in declaration order.
#[derive(Debug)]
pub(crate) struct Buffers<'a> {
    buffers: Vec<Buffer<'a>>,
}

#[derive(Debug)]
struct Buffer<'a> {
    element: DataType,
    length: u32,
    bytes: Bytes<'a>,
}

#[derive(Debug)]
enum Bytes<'a> {
    BoundBytes(BoundBytes<'a>),
    Group(Vec<u8>),
}

impl<'a> Buffers<'a> {
    /// Buffers with these lengths in elements; `bound` has one entry per buffer in declaration
    /// order, `None` for workgroup memory.
    pub(crate) fn new(
        kernel: &KernelBody,
        lengths: &[u32],
        bound: impl Iterator<Item = Option<BoundBytes<'a>>>,
    ) -> Buffers<'a> {
        let buffers = kernel.buffers.iter().zip(lengths).zip(bound).map(|((buffer, &length), bound)| {
            let element = buffer.decl.element;
            let group_memory = || Bytes::Group(vec![0; length as usize * element.size()]);
            Buffer { element, length, bytes: bound.map_or_else(group_memory, Bytes::BoundBytes) }
        });
        Buffers { buffers: buffers.collect() }
    }

    /// Zeroes the workgroup memory, as at the start of every workgroup.
    pub(crate) fn start_group(&mut self) {
        for buffer in &mut self.buffers {
            if let Bytes::Group(bytes) = &mut buffer.bytes {
                bytes.fill(0);
            }
        }
    }

    /// Number of elements in a buffer.
    pub(crate) fn length(&self, id: BufferId) -> u32 {
        self.buffers[id.index()].length
    }

    /// An element, widened; `None` out of range.
    pub(crate) fn load(&self, id: BufferId, index: u32) -> Option<Value> {
        let buffer = &self.buffers[id.index()];
        let bytes = match &buffer.bytes {
            Bytes::BoundBytes(bound) => bound.bytes(),
            Bytes::Group(bytes) => bytes,
        };
        load_element(buffer.element, bytes, index)
    }

    /// Writes an element, narrowed; does nothing and returns `false` out of range.
    pub(crate) fn store(&mut self, id: BufferId, index: u32, value: Value) -> bool {
        let buffer = &mut self.buffers[id.index()];
        let bytes = match &mut buffer.bytes {
            Bytes::BoundBytes(BoundBytes::Write(bytes)) => bytes,
            Bytes::Group(bytes) => &mut **bytes,
            Bytes::BoundBytes(BoundBytes::Read(_)) => {
                unreachable!("validated: only writable buffers are stored to")
            }
        };
        store_element(buffer.element, bytes, index, value)
    }
}

/// Element `index` of an array of `element`s; `None` out of range.
pub(crate) fn load_element(element: DataType, bytes: &[u8], index: u32) -> Option<Value> {
    element.load(bytes.get(element_range(element, index)?)?)
}

/// Writes element `index` of an array of `element`s; does nothing and returns `false` out of range.
pub(crate) fn store_element(element: DataType, bytes: &mut [u8], index: u32, value: Value) -> bool {
    let Some(bytes) = element_range(element, index).and_then(|range| bytes.get_mut(range)) else {
        return false;
    };
    element.store(value, bytes)
}

/// Byte range of an element; `None` if it exceeds the address space.
fn element_range(element: DataType, index: u32) -> Option<std::ops::Range<usize>> {
    let start = (index as usize).checked_mul(element.size())?;
    Some(start..start.checked_add(element.size())?)
}
