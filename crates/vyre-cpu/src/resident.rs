//! Buffers that stay with the backend between dispatches.

use crate::backend::BACKEND_ID;
use crate::pipeline::Few;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use vyre_driver::BackendError;

/// A resident buffer: locked by a dispatch as long as it works on it.
pub(crate) type Resident = Arc<Mutex<Vec<u8>>>;

/// The resident buffers of one backend instance, by handle. Handles are never used again.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    buffers: RwLock<HashMap<u64, Resident>>,
    last: AtomicU64,
}

impl Residents {
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, BackendError> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(bytes).map_err(|_| BackendError::DeviceOutOfMemory {
            backend: BACKEND_ID.into(),
            requested_bytes: bytes as u64,
        })?;
        memory.resize(bytes, 0);
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        buffers.insert(handle, Arc::new(Mutex::new(memory)));
        Ok(handle)
    }

    fn get(&self, handle: u64) -> Result<Resident, BackendError> {
        find(&self.buffers.read().unwrap_or_else(PoisonError::into_inner), handle)
    }

    /// The buffers of these handles; to be locked in this order, which is to be the order of the handles.
    pub(crate) fn all(&self, handles: &[u64]) -> Result<Few<(u64, Resident)>, BackendError> {
        if handles.is_empty() {
            return Ok(Few::new());
        }
        let buffers = self.buffers.read().unwrap_or_else(PoisonError::into_inner);
        handles.iter().map(|&handle| Ok((handle, find(&buffers, handle)?))).collect()
    }

    pub(crate) fn upload(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let resident = self.get(handle)?;
        let mut memory = resident.lock().unwrap_or_else(PoisonError::into_inner);
        range(&mut memory, offset, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn download(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let resident = self.get(handle)?;
        let mut memory = resident.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.copy_from_slice(range(&mut memory, offset, bytes.len())?);
        Ok(())
    }

    pub(crate) fn free(&self, handle: u64) -> Result<(), BackendError> {
        let mut buffers = self.buffers.write().unwrap_or_else(PoisonError::into_inner);
        let known = buffers.remove(&handle);
        known.map(drop).ok_or_else(|| failed(format!("there is no resident buffer {handle} to free")))
    }
}

fn find(buffers: &HashMap<u64, Resident>, handle: u64) -> Result<Resident, BackendError> {
    buffers.get(&handle).cloned().ok_or_else(|| {
        failed(format!("there is no resident buffer {handle}; it was freed, or is another backend's"))
    })
}

fn range(memory: &mut [u8], offset: usize, length: usize) -> Result<&mut [u8], BackendError> {
    let total = memory.len();
    let end = offset.checked_add(length).filter(|&end| end <= total);
    let Some(end) = end else {
        return Err(failed(format!(
            "{length} bytes from {offset} on do not lie in a buffer of {total} bytes"
        )));
    };
    Ok(&mut memory[offset..end])
}

fn failed(message: String) -> BackendError {
    BackendError::DispatchFailed { backend: BACKEND_ID.into(), message }
}
