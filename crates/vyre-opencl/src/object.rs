//! OpenCL objects that are released on drop, and OpenCL error codes as errors.

use cl3::error_codes::{
    CL_DEVICE_NOT_AVAILABLE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES,
    error_text,
};
use cl3::types::{cl_command_queue, cl_context, cl_event, cl_int, cl_kernel, cl_mem, cl_program};
use cl3::{command_queue, context, event, kernel, memory, program};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vyre_driver::BackendError;

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident($raw:ty) released by $release:path;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(crate) $raw);

        // SAFETY: OpenCL objects can be used from any thread; the one exception, setting a kernel's
        // arguments, is done only by the caller that took the kernel from its pool.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object was created by OpenCL, and this is its only owner. If the
                // driver refuses, the object is lost anyway and there is no one to report it to.
                let _ = unsafe { $release(self.0) };
            }
        }
    )* };
}

objects! {
    /// A context, which owns a device's objects.
    Context(cl_context) released by context::release_context;
    /// An in-order queue of commands.
    Queue(cl_command_queue) released by command_queue::release_command_queue;
    /// A program: source or binary, and the code built from it.
    Program(cl_program) released by program::release_program;
    /// A kernel of a program, with its arguments.
    KernelObject(cl_kernel) released by kernel::release_kernel;
    /// Device memory, or host memory lent to the device.
    Memory(cl_mem) released by memory::release_mem_object;
    /// The event of an enqueued command.
    Event(cl_event) released by event::release_event;
}

/// Converts a failed call to an error: the backend, the operation, and OpenCL's message.
pub(crate) fn failed(backend: &str, doing: &str, code: cl_int) -> BackendError {
    let message = format!("{doing}: {} ({code})", error_text(code));
    match code {
        CL_DEVICE_NOT_AVAILABLE => BackendError::DeviceLost { backend: backend.into(), message },
        _ => BackendError::DispatchFailed { backend: backend.into(), message },
    }
}

/// Converts a failed allocation to an error.
pub(crate) fn no_memory(backend: &str, bytes: usize, code: cl_int) -> BackendError {
    match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_OUT_OF_RESOURCES => {
            BackendError::DeviceOutOfMemory { backend: backend.into(), requested_bytes: bytes as u64 }
        }
        _ => failed(backend, &format!("creating a buffer of {bytes} bytes"), code),
    }
}

/// Takes a lock, ignoring poison. Every change is a single step, so the guarded state is consistent
/// even if a holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
