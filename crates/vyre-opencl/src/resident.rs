//! Buffers that stay on the device between dispatches.

use crate::memory::{HostMemory, device_memory, host_memory};
use crate::object::{Context, Memory};
use vyre_driver::BackendError;

/// A resident buffer.
#[derive(Debug)]
pub struct Resident {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    /// What the memory is, where the device works on the host's. It outlives the memory above.
    host: Option<HostMemory>,
}

/// Where resident buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Device,
    Host,
}

impl Resident {
    /// A new buffer; its contents are unspecified, unless it is the host's: then they are zero.
    pub(crate) fn new(
        backend: &str,
        context: &Context,
        home: Home,
        bytes: usize,
    ) -> Result<Resident, BackendError> {
        // OpenCL has no empty buffers.
        let size = bytes.max(1);
        let (memory, host) = match home {
            Home::Device => (device_memory(backend, context, size)?, None),
            Home::Host => {
                let host = HostMemory::new(backend, size)?;
                // SAFETY: `Resident` drops the memory before what it lies in, and who has it alone writes to either.
                (unsafe { host_memory(backend, context, host.as_ptr(), size) }?, Some(host))
            }
        };
        Ok(Resident { memory, bytes, host })
    }

    /// The contents, if the host has them. A kernel that writes to the buffer has it as `&mut`.
    pub(crate) fn host_bytes(&self) -> Option<&[u8]> {
        // SAFETY: the memory is that long and initialised, and nobody writes to it.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts(host.as_ptr(), self.bytes) })
    }

    /// The contents, to be written.
    pub(crate) fn host_bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above, and nobody else reads it.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts_mut(host.as_ptr(), self.bytes) })
    }
}
