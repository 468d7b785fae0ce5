//! Buffers that stay on the device between dispatches.

use crate::memory::device_memory;
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
}

/// The resident buffers of one backend instance, by handle. Handles are never used again.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    buffers: RwLock<HashMap<u64, Arc<Resident>>>,
    last: AtomicU64,
}

impl Residents {
    /// A new buffer with its handle; its contents are unspecified.
    pub(crate) fn allocate(
        &self,
        backend: &str,
        context: &Context,
        bytes: usize,
    ) -> Result<(u64, Arc<Resident>), BackendError> {
        // OpenCL has no empty buffers.
        let memory = device_memory(backend, context, bytes.max(1))?;
        let resident = Arc::new(Resident { memory, bytes, lock: Mutex::default() });
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
