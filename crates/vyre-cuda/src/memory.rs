//! Memory of the device and of the host, each freed when it is dropped.

use crate::api::{DevicePointer, Handle};
use crate::context::Context;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use vyre_driver::BackendError;

/// Memory of the device.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    pub(crate) pointer: DevicePointer,
    pub(crate) bytes: usize,
    /// The stream in whose order it is freed, if it was allocated so. Whoever has the memory has the stream.
    stream: Option<Stream>,
}

#[derive(Clone, Copy, Debug)]
struct Stream(Handle);

// SAFETY: a stream is a handle that any thread may use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl DeviceMemory {
    /// New memory; its contents are unspecified. The context is current.
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
        // Memory of a device that was lost went with it.
        let Ok(_current) = self.context.enter() else { return };
        let api = &self.context.device.driver.api;
        // SAFETY: allocated by the driver, and nobody else has the address. In the order of the stream, or after all work
        // on the device, which `cuMemFree` waits for.
        let freed = unsafe {
            match (self.stream, api.free_async) {
                (Some(Stream(stream)), Some(free)) => free(self.pointer, stream),
                _ => (api.memory_free)(self.pointer),
            }
        };
        if let Err(error) = self.context.check(freed, "freeing memory") {
            tracing::debug!(%error, "memory of the device was not freed");
        }
    }
}

/// Memory of the host that the device copies from and to by itself.
#[derive(Debug)]
pub(crate) struct Pinned {
    context: Arc<Context>,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns plain bytes.
unsafe impl Send for Pinned {}
// SAFETY: as above; they change only through `&mut`, and by copies of the device that whoever has it waits for.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// New memory, zeroed. The context is current.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, BackendError> {
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the function writes an address.
        let made = unsafe { (context.device.driver.api.host_allocate)(&mut pointer, bytes.max(1), 0) };
        match NonNull::new(pointer.cast::<u8>()) {
            Some(pointer) if made == 0 => {
                // SAFETY: that many bytes were allocated just now.
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

    /// The bytes. No copy of the device's is under way.
    pub(crate) fn slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is that long and initialised; `&mut` and the promise above keep others away.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: allocated by the driver, and whoever drops it has waited for the copies that use it.
        let _ = unsafe { (self.context.device.driver.api.host_free)(self.pointer.as_ptr().cast()) };
    }
}
