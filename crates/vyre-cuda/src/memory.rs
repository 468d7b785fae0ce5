//! Device and pinned host memory, freed on drop.

use crate::api::{DevicePointer, Handle};
use crate::context::Context;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use vyre_driver::BackendError;

/// Device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    pub(crate) pointer: DevicePointer,
    pub(crate) bytes: usize,
    /// The stream in whose order the memory is freed, if it was allocated that way. The memory's
    /// owner also owns the stream.
    stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug)]
struct Stream(Handle);

// SAFETY: any thread can use a stream's handle.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl DeviceMemory {
    /// New memory with unspecified contents. The context must be current.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceMemory, BackendError> {
        DeviceMemory::with(context, bytes, None)
    }

    /// New memory for a session's stream.
    pub(crate) fn on_stream(
        context: &Arc<Context>,
        bytes: usize,
        stream: Handle,
    ) -> Result<DeviceMemory, BackendError> {
        DeviceMemory::with(context, bytes, context.pool.map(|_| Stream(stream)))
    }

    fn with(
        context: &Arc<Context>,
        bytes: usize,
        stream: Option<Stream>,
    ) -> Result<DeviceMemory, BackendError> {
        let api = &context.device.driver.api;
        let (mut pointer, size) = (0, bytes.max(1));
        // SAFETY: the functions write an address; the stream is alive.
        let made = unsafe {
            match (stream, api.allocate_async) {
                (Some(Stream(stream)), Some(allocate)) => allocate(&mut pointer, size, stream),
                _ => (api.memory_allocate)(&mut pointer, size),
            }
        };
        if made != 0 {
            return Err(context.no_memory(made, bytes));
        }
        Ok(DeviceMemory { context: context.clone(), pointer, bytes, stream })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // A lost device's memory is already gone.
        let Ok(_current) = self.context.enter() else { return };
        let api = &self.context.device.driver.api;
        // SAFETY: allocated by the driver, and no other owner of the address remains. Freed in
        // stream order, or after all work on the device, which `cuMemFree` waits for.
        let freed = unsafe {
            match (self.stream, api.free_async) {
                (Some(Stream(stream)), Some(free)) => free(self.pointer, stream),
                _ => (api.memory_free)(self.pointer),
            }
        };
        if let Err(error) = self.context.check(freed, "freeing memory") {
            tracing::debug!(%error, "device memory was not freed");
        }
    }
}

/// Pinned host memory, which the device copies from and to by itself.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<Context>,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns plain bytes.
unsafe impl Send for Pinned {}
// SAFETY: as above; the bytes change only through `&mut`, and by device copies that the holder
// waits for.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// New zeroed memory. The context must be current.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, BackendError> {
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the function writes an address.
        let made = unsafe { (context.device.driver.api.host_allocate)(&mut pointer, bytes.max(1), 0) };
        match NonNull::new(pointer.cast::<u8>()) {
            Some(pointer) if made == 0 => {
                // SAFETY: that many bytes were just allocated.
                unsafe { pointer.as_ptr().write_bytes(0, bytes.max(1)) };
                Ok(Pinned { context: context.clone(), pointer, bytes })
            }
            _ => Err(context.no_memory(made, bytes)),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The bytes. No device copy may be running.
    pub(crate) fn slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is that long and initialised; `&mut` and the requirement above rule
        // out other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: allocated by the driver, and the owner has waited for the copies that use it.
        let _ = unsafe { (self.context.device.driver.api.host_free)(self.pointer.as_ptr().cast()) };
    }
}
