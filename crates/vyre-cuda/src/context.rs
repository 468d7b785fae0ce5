//! A device in use: its primary context, which is shared with other users of CUDA in the process,
//! and its errors.
//!
//! The context is current on a thread only during a call here; the previous one is then restored
//! ([`Context::enter`]). An error that breaks the context makes the device lost for the rest of the
//! process: nothing on it is tried again, and opening it reports why.

use crate::api::{Handle, Status};
use crate::device::UsableDevice;
use crate::library::error_text;
use std::marker::PhantomData;
use vyre_driver::BackendError;

/// Driver error codes.
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NOT_READY: Status = 600;

/// Errors that leave a context unusable: hardware faults, faulting kernels, and a driver that is
/// shutting down.
const BREAKING: [Status; 18] =
    [3, 4, 46, 101, 201, 214, 220, 226, 700, 702, 709, 714, 715, 716, 717, 718, 719, 999];

/// A device's context.
pub(crate) struct Context {
    pub(crate) id: &'static str,
    pub(crate) device: &'static UsableDevice,
    handle: Handle,
    /// Pool for memory that is allocated in stream order.
    pub(crate) pool: Option<Handle>,
}

// SAFETY: any thread can make a context current and call the driver's functions.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Bytes that the driver keeps for later allocations: as many as an idle session keeps. Not
/// measured: `cuda` has never run on a device.
pub(crate) const KEPT_BYTES: u64 = 256 << 20;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;

impl Context {
    /// Retains the device's primary context.
    pub(crate) fn new(id: &'static str, device: &'static UsableDevice) -> Result<Context, BackendError> {
        let api = &device.driver.api;
        let mut context = Context { id, device, handle: std::ptr::null_mut(), pool: None };
        context.check_lost()?;
        // SAFETY: the function writes a handle; `Drop` releases it.
        let retained = unsafe { (api.context_retain)(&mut context.handle, device.number) };
        if retained != 0 {
            // Nothing was retained, so nothing is released.
            context.handle = std::ptr::null_mut();
            return Err(context.failed(retained, "making a context"));
        }
        if let (true, Some(default), Some(set)) = (context.has_pools(), api.default_pool, api.pool_set) {
            let (mut pool, mut kept) = (std::ptr::null_mut(), KEPT_BYTES);
            // SAFETY: the first function writes a handle, the second reads the number passed to it.
            unsafe {
                if default(&mut pool, device.number) == 0
                    && set(pool, RELEASE_THRESHOLD, std::ptr::from_mut(&mut kept).cast()) == 0
                {
                    context.pool = Some(pool);
                }
            }
        }
        Ok(context)
    }

    fn has_pools(&self) -> bool {
        let api = &self.device.driver.api;
        self.device.has_pools && api.allocate_async.is_some() && api.free_async.is_some()
    }

    /// Fails if the device was lost.
    pub(crate) fn check_lost(&self) -> Result<(), BackendError> {
        match self.device.lost.get() {
            None => Ok(()),
            Some(reason) => Err(BackendError::DeviceLost {
                backend: self.id.into(),
                message: format!("{reason}; it is not used again in this process"),
            }),
        }
    }

    /// Makes the context current until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Current<'_>, BackendError> {
        self.check_lost()?;
        // SAFETY: the context is retained as long as `self` is.
        let pushed = unsafe { (self.device.driver.api.context_push)(self.handle) };
        self.check(pushed, "making the context current")?;
        Ok(Current { context: self, not_send: PhantomData })
    }

    /// Converts the code of a driver call to a result.
    pub(crate) fn check(&self, code: Status, doing: &str) -> Result<(), BackendError> {
        if code == 0 { Ok(()) } else { Err(self.failed(code, doing)) }
    }

    /// Converts a failed call to an error: the backend, the operation, and the driver's message.
    pub(crate) fn failed(&self, code: Status, doing: &str) -> BackendError {
        let message = format!("{doing}: {} ({code})", error_text(&self.device.driver.api, code));
        if BREAKING.contains(&code) {
            return self.lose(message);
        }
        BackendError::DispatchFailed { backend: self.id.into(), message }
    }

    /// Marks the device as lost.
    pub(crate) fn lose(&self, message: String) -> BackendError {
        tracing::warn!(backend = self.id, message, "the device is lost for this process");
        // The first reason is kept.
        let _ = self.device.lost.set(message.clone());
        BackendError::DeviceLost { backend: self.id.into(), message }
    }

    /// Converts a failed allocation to an error that leaves the device usable.
    pub(crate) fn no_memory(&self, code: Status, bytes: usize) -> BackendError {
        match code {
            OUT_OF_MEMORY => {
                BackendError::DeviceOutOfMemory { backend: self.id.into(), requested_bytes: bytes as u64 }
            }
            _ => self.failed(code, &format!("allocating {bytes} bytes")),
        }
    }

    /// Makes the driver release the memory that it keeps.
    pub(crate) fn trim(&self) {
        if let (Some(pool), Some(trim)) = (self.pool, self.device.driver.api.pool_trim) {
            // SAFETY: the pool belongs to the device. Memory that cannot be released stays.
            let _ = unsafe { trim(pool, 0) };
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: retained by `new`. If the driver refuses, the context is lost anyway.
            let _ = unsafe { (self.device.driver.api.context_release)(self.device.number) };
        }
    }
}

/// Guard that keeps the context current on this thread.
pub(crate) struct Current<'a> {
    context: &'a Context,
    /// The current context is per thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = std::ptr::null_mut();
        // SAFETY: pushed by `enter`, on this thread.
        let _ = unsafe { (self.context.device.driver.api.context_pop)(&mut popped) };
        let _ = self.not_send;
    }
}
