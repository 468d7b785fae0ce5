//! Buffers that persist between dispatches.

use crate::memory::{HostMemory, device_memory, host_memory};
use crate::object::{Context, Memory};
use vyre_driver::BackendError;

/// A resident buffer.
#[derive(Debug)]
pub struct Resident {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    /// The host memory behind `memory`, if the device works on the host's. Declared after it, so
    /// dropped after it.
    host: Option<HostMemory>,
}

/// Where resident buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    Device,
    Host,
}

impl Resident {
    /// A new buffer. Host memory is zeroed; device memory is unspecified.
    pub(crate) fn new(
        backend: &str,
        context: &Context,
        residence: Residence,
        bytes: usize,
    ) -> Result<Resident, BackendError> {
        // OpenCL has no empty buffers.
        let size = bytes.max(1);
        let (memory, host) = match residence {
            Residence::Device => (device_memory(backend, context, size)?, None),
            Residence::Host => {
                let host = HostMemory::new(backend, size)?;
                // SAFETY: `Resident` drops the memory object before the allocation behind it, and
                // both are written only by the holder of exclusive access.
                (unsafe { host_memory(backend, context, host.as_ptr(), size) }?, Some(host))
            }
        };
        Ok(Resident { memory, bytes, host })
    }

    /// The contents, if they are on the host. A kernel that writes to the buffer holds it as
    /// `&mut`.
    pub(crate) fn host_bytes(&self) -> Option<&[u8]> {
        // SAFETY: the memory is that long and initialised, and there are no concurrent writes.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts(host.as_ptr(), self.bytes) })
    }

    /// The contents, for writing.
    pub(crate) fn host_bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above, and there are no concurrent reads.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts_mut(host.as_ptr(), self.bytes) })
    }
}
