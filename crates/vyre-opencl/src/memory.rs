//! Device memory: made once, used again.
//!
//! Buffers come in sizes of powers of two, so that one serves many dispatches. What is not in use is kept up to a limit;
//! beyond it buffers are released. The contents of a buffer from the pool are unspecified.
//!
//! Where the device is the processor itself, memory that stays is the host's own ([`HostMemory`]), lent to the device: the
//! host reads and writes it without asking the driver, which would take a round trip through the driver's threads.

use crate::object::{Context, Memory, no_memory};
use cl3::memory::{CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, create_buffer};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use vyre_driver::BackendError;

/// Unused buffers are kept up to so many bytes.
const KEPT_BYTES: usize = 256 << 20;

/// The smallest size that is kept apart.
const LEAST_BYTES: usize = 256;

/// Buffers that no dispatch is using, by size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    by_size: HashMap<usize, Vec<Memory>>,
    bytes: usize,
}

/// A buffer from the pool.
#[derive(Debug)]
pub(crate) struct Pooled {
    pub(crate) memory: Memory,
    size: usize,
}

impl Pool {
    /// A buffer of at least so many bytes.
    pub(crate) fn take(
        &self,
        backend: &str,
        context: &Context,
        bytes: usize,
    ) -> Result<Pooled, BackendError> {
        // Large buffers are exact to the mebibyte: rounding them up to a power of two would waste what matters.
        let size = match bytes {
            0..LEAST_BYTES => LEAST_BYTES,
            LEAST_BYTES..0x10_0000 => bytes.next_power_of_two(),
            _ => bytes.checked_next_multiple_of(1 << 20).unwrap_or(bytes),
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = idle.by_size.get_mut(&size).and_then(Vec::pop) {
            idle.bytes -= size;
            return Ok(Pooled { memory, size });
        }
        drop(idle);
        let made = device_memory(backend, context, size).or_else(|_| {
            self.clear();
            device_memory(backend, context, size)
        });
        Ok(Pooled { memory: made?, size })
    }

    /// Gives a buffer back. No command may be using it any more.
    pub(crate) fn put(&self, pooled: Pooled) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + pooled.size <= KEPT_BYTES {
            idle.bytes += pooled.size;
            idle.by_size.entry(pooled.size).or_default().push(pooled.memory);
        }
    }

    fn clear(&self) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Idle::default();
    }
}

/// New memory on the device.
pub(crate) fn device_memory(backend: &str, context: &Context, bytes: usize) -> Result<Memory, BackendError> {
    // SAFETY: the context is alive, and no host pointer goes with these flags.
    let made = unsafe { create_buffer(context.0, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) };
    made.map(Memory).map_err(|code| no_memory(backend, bytes, code))
}

/// The host's memory, lent to the device.
///
/// # Safety
/// The `bytes` bytes at `pointer` outlive the memory and all commands that use it, and nobody else touches them
/// meanwhile; the device writes to them only if they may be written.
pub(crate) unsafe fn host_memory(
    backend: &str,
    context: &Context,
    pointer: *mut u8,
    bytes: usize,
) -> Result<Memory, BackendError> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
    // SAFETY: the caller's promise is what the flag asks for.
    let made = unsafe { create_buffer(context.0, flags, bytes, pointer.cast::<c_void>()) };
    made.map(Memory).map_err(|code| no_memory(backend, bytes, code))
}

/// Zeroed memory of the host, aligned as devices like it.
#[derive(Debug)]
pub(crate) struct HostMemory {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain bytes; who may touch them when is the business of whoever holds the buffer's lock.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// The largest alignment that OpenCL asks for, that of its widest vector.
const HOST_ALIGNMENT: usize = 128;

impl HostMemory {
    pub(crate) fn new(backend: &str, bytes: usize) -> Result<HostMemory, BackendError> {
        let missing =
            || BackendError::DeviceOutOfMemory { backend: backend.into(), requested_bytes: bytes as u64 };
        let layout = Layout::from_size_align(bytes.max(1), HOST_ALIGNMENT).map_err(|_| missing())?;
        // SAFETY: the layout is not empty.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(missing)?;
        Ok(HostMemory { pointer, layout })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has the pointer any more.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}
