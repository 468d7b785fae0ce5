//! Device memory, allocated once and reused.
//!
//! Small buffers have sizes of powers of two, so that one serves many dispatches. Idle buffers are
//! kept up to a limit; beyond it they are released. The contents of a buffer from the pool are
//! unspecified.
//!
//! If the device is the processor itself, resident memory is the host's own ([`HostMemory`]), lent
//! to the device: the host accesses it without a round trip through the driver's threads.

use crate::object::{Context, Memory, no_memory};
use cl3::memory::{CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, create_buffer};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use vyre_driver::BackendError;

/// Maximum bytes of idle buffers: four of 2^24 elements of f32, the largest that `opencl_overhead`
/// measures.
const KEPT_BYTES: usize = 256 << 20;

/// Smallest buffer size, so that the buffers of single values and small tables are interchangeable.
const LEAST_BYTES: usize = 256;

/// Idle buffers, by size.
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
    /// A buffer of at least this many bytes.
    pub(crate) fn take(
        &self,
        backend: &str,
        context: &Context,
        bytes: usize,
    ) -> Result<Pooled, BackendError> {
        // Large buffers are rounded to the mebibyte: a power of two would waste too much.
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

    /// Returns a buffer to the pool. No command may still be using it.
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

/// Allocates memory on the device.
pub(crate) fn device_memory(backend: &str, context: &Context, bytes: usize) -> Result<Memory, BackendError> {
    // SAFETY: the context is alive, and these flags take no host pointer.
    let made = unsafe { create_buffer(context.0, CL_MEM_READ_WRITE, bytes, std::ptr::null_mut()) };
    made.map(Memory).map_err(|code| no_memory(backend, bytes, code))
}

/// Lends host memory to the device.
///
/// # Safety
/// The `bytes` bytes at `pointer` must outlive the memory and all commands that use it, with no
/// other access meanwhile; the device may write to them only if they are writable.
pub(crate) unsafe fn host_memory(
    backend: &str,
    context: &Context,
    pointer: *mut u8,
    bytes: usize,
) -> Result<Memory, BackendError> {
    let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
    // SAFETY: the caller guarantees what the flag requires.
    let made = unsafe { create_buffer(context.0, flags, bytes, pointer.cast::<c_void>()) };
    made.map(Memory).map_err(|code| no_memory(backend, bytes, code))
}

/// Zeroed host memory, aligned for devices.
#[derive(Debug)]
pub(crate) struct HostMemory {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain bytes; the holder of the buffer's lock controls access to them.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// The largest alignment that OpenCL requires, that of its widest vector.
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
        // SAFETY: allocated with this layout, and no other pointer to it remains.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}
