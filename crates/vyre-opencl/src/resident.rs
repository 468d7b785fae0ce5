//! Buffers that stay on the device between dispatches.

use crate::memory::{HostMemory, device_memory, host_memory};
use crate::object::{Context, Memory};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use vyre_driver::BackendError;

/// A resident buffer. Whoever works on it holds the lock.
#[derive(Debug)]
pub(crate) struct Resident {
    pub(crate) memory: Memory,
    pub(crate) bytes: usize,
    pub(crate) lock: Mutex<()>,
    /// What the memory is, where the device works on the host's. It outlives the memory above.
    host: Option<HostMemory>,
}

/// Where resident buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Device,
    Host,
}

/// The resident buffers of one backend instance, by handle. Handles are never used again.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    buffers: RwLock<HashMap<u64, Arc<Resident>>>,
    last: AtomicU64,
}

impl Residents {
    /// A new buffer with its handle; its contents are unspecified, unless it is the host's: then they are zero.
    pub(crate) fn allocate(
        &self,
        backend: &str,
        context: &Context,
        home: Home,
        bytes: usize,
    ) -> Result<(u64, Arc<Resident>), BackendError> {
        // OpenCL has no empty buffers.
        let size = bytes.max(1);
        let (memory, host) = match home {
            Home::Device => (device_memory(backend, context, size)?, None),
            Home::Host => {
                let host = HostMemory::new(backend, size)?;
                // SAFETY: `Resident` drops the memory before what it lies in; who uses either holds the lock.
                (unsafe { host_memory(backend, context, host.as_ptr(), size) }?, Some(host))
            }
        };
        let resident = Arc::new(Resident { memory, bytes, lock: Mutex::default(), host });
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        buffers.insert(handle, resident.clone());
        Ok((handle, resident))
    }

    pub(crate) fn get(&self, backend: &str, handle: u64) -> Result<Arc<Resident>, BackendError> {
        let buffers = self.buffers.read().unwrap_or_else(PoisonError::into_inner);
        buffers.get(&handle).cloned().ok_or_else(|| missing(backend, handle))
    }

    pub(crate) fn free(&self, backend: &str, handle: u64) -> Result<(), BackendError> {
        let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        buffers.remove(&handle).map(drop).ok_or_else(|| missing(backend, handle))
    }
}

impl Resident {
    /// The contents, if the host has them. Whoever calls this holds the lock, and no kernel is under way on the buffer.
    pub(crate) fn host_bytes(&self) -> Option<&[u8]> {
        // SAFETY: the memory is that long and initialised; with the lock held, nobody writes to it.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts(host.as_ptr(), self.bytes) })
    }

    /// The contents, to be written; otherwise as [`host_bytes`](Self::host_bytes).
    #[allow(clippy::mut_from_ref)] // The lock that the caller holds makes it the only one.
    pub(crate) fn host_bytes_mut(&self) -> Option<&mut [u8]> {
        // SAFETY: as above; with the lock held, nobody else reads or writes it.
        self.host.as_ref().map(|host| unsafe { std::slice::from_raw_parts_mut(host.as_ptr(), self.bytes) })
    }

    /// That so many bytes from `offset` on lie in the buffer.
    pub(crate) fn check_range(
        &self,
        backend: &str,
        offset: usize,
        length: usize,
    ) -> Result<(), BackendError> {
        if offset.checked_add(length).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let total = self.bytes;
        Err(BackendError::DispatchFailed {
            backend: backend.into(),
            message: format!("{length} bytes from {offset} on do not lie in a buffer of {total} bytes"),
        })
    }
}

fn missing(backend: &str, handle: u64) -> BackendError {
    BackendError::DispatchFailed {
        backend: backend.into(),
        message: format!("there is no resident buffer {handle}; it was freed, or is another backend's"),
    }
}
