//! A device in use: its primary context, which other users of CUDA in the process share, and how its errors are told.
//!
//! The context is current on a thread only during a call here, whatever was current before ([`Context::enter`]). An error
//! that breaks the context makes the device lost for the rest of the process: nothing on it is tried again, and opening
//! it says why.

use crate::api::{Code, Handle};
use crate::device::Device;
use crate::library::error_text;
use std::marker::PhantomData;
use vyre_driver::BackendError;

/// Codes of the driver.
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_READY: Code = 600;

/// Errors after which a context is of no use: of the device's hardware, of a kernel that did what must not be, and of a
/// driver that is shutting down.
const BREAKING: [Code; 18] =
    [3, 4, 46, 101, 201, 214, 220, 226, 700, 702, 709, 714, 715, 716, 717, 718, 719, 999];

/// A device's context.
pub(crate) struct Context {
    pub(crate) id: &'static str,
    pub(crate) device: &'static Device,
    handle: Handle,
    /// Where memory that is allocated in the order of a stream comes from.
    pub(crate) pool: Option<Handle>,
}

// SAFETY: a context is a handle that any thread may make current, and the driver's functions may be called by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Bytes that the driver keeps for the next allocation.
pub(crate) const KEPT_BYTES: u64 = 256 << 20;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;

impl Context {
    /// Takes the device's primary context into use.
    pub(crate) fn new(id: &'static str, device: &'static Device) -> Result<Context, BackendError> {
        let api = &device.driver.api;
        let mut context = Context { id, device, handle: std::ptr::null_mut(), pool: None };
        context.check_lost()?;
        // SAFETY: the function writes a handle; `Drop` gives it back.
        let retained = unsafe { (api.context_retain)(&mut context.handle, device.number) };
        if retained != 0 {
            // Nothing was retained, so nothing is given back.
            context.handle = std::ptr::null_mut();
            return Err(context.failed(retained, "making a context"));
        }
        if let (true, Some(default), Some(set)) = (context.has_pools(), api.default_pool, api.pool_set) {
            let (mut pool, mut kept) = (std::ptr::null_mut(), KEPT_BYTES);
            // SAFETY: the first function writes a handle, the second reads the number that it is given.
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

    /// An error if the device was lost.
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

    /// What came of a call, as a result.
    pub(crate) fn check(&self, code: Code, doing: &str) -> Result<(), BackendError> {
        if code == 0 { Ok(()) } else { Err(self.failed(code, doing)) }
    }

    /// A failed call as an error: who, what was being done, and what the driver said.
    pub(crate) fn failed(&self, code: Code, doing: &str) -> BackendError {
        let message = format!("{doing}: {} ({code})", error_text(&self.device.driver.api, code));
        if BREAKING.contains(&code) {
            return self.lose(message);
        }
        BackendError::DispatchFailed { backend: self.id.into(), message }
    }

    /// Gives the device up.
    pub(crate) fn lose(&self, message: String) -> BackendError {
        tracing::warn!(backend = self.id, message, "the device is lost for this process");
        // The first reason stays.
        let _ = self.device.lost.set(message.clone());
        BackendError::DeviceLost { backend: self.id.into(), message }
    }

    /// A failed allocation as an error, after which other calls go on.
    pub(crate) fn no_memory(&self, code: Code, bytes: usize) -> BackendError {
        match code {
            OUT_OF_MEMORY => {
                BackendError::DeviceOutOfMemory { backend: self.id.into(), requested_bytes: bytes as u64 }
            }
            _ => self.failed(code, &format!("allocating {bytes} bytes")),
        }
    }

    /// Has the driver give back what it keeps.
    pub(crate) fn trim(&self) {
        if let (Some(pool), Some(trim)) = (self.pool, self.device.driver.api.pool_trim) {
            // SAFETY: the pool is the device's own. What cannot be given back stays.
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
            // SAFETY: retained by `new`. A driver that refuses has lost it anyway.
            let _ = unsafe { (self.device.driver.api.context_release)(self.device.number) };
        }
    }
}

/// The context is current on this thread.
pub(crate) struct Current<'a> {
    context: &'a Context,
    /// What is current belongs to the thread.
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
