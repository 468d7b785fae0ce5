//! OpenCL's objects, each released when it is dropped, and its error codes as errors.

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

        // SAFETY: OpenCL objects may be used from any thread; the one exception, setting a kernel's arguments, is done
        // only by whoever took the kernel out of its pool.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object was made by OpenCL, and this is its only owner.
                // A driver that refuses has lost the object anyway; there is nobody to tell.
                let _ = unsafe { $release(self.0) };
            }
        }
    )* };
}

objects! {
    /// A context: what a device's objects belong to.
    Context(cl_context) released by context::release_context;
    /// An in-order queue of commands.
    Queue(cl_command_queue) released by command_queue::release_command_queue;
    /// A program: source or binary, and what was built of it.
    Program(cl_program) released by program::release_program;
    /// A kernel of a program, with its arguments.
    KernelObject(cl_kernel) released by kernel::release_kernel;
    /// Memory of the device, or of the host lent to it.
    Memory(cl_mem) released by memory::release_mem_object;
    /// A command under way.
    Event(cl_event) released by event::release_event;
}

/// A failed call as an error: who, what was being done, and what OpenCL said.
pub(crate) fn failed(backend: &str, doing: &str, code: cl_int) -> BackendError {
    let message = format!("{doing}: {} ({code})", error_text(code));
    match code {
        CL_DEVICE_NOT_AVAILABLE => BackendError::DeviceLost { backend: backend.into(), message },
        _ => BackendError::DispatchFailed { backend: backend.into(), message },
    }
}

/// A failed allocation as an error.
pub(crate) fn no_memory(backend: &str, bytes: usize, code: cl_int) -> BackendError {
    match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY | CL_OUT_OF_RESOURCES => {
            BackendError::DeviceOutOfMemory { backend: backend.into(), requested_bytes: bytes as u64 }
        }
        _ => failed(backend, &format!("making a buffer of {bytes} bytes"), code),
    }
}

/// Takes a lock. What it guards holds together even if a holder panicked: each change is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
