//! Functions of libcuda and NVRTC that the backend calls, as tables that are filled when a library
//! is loaded.
//!
//! A library that lacks a required function is refused, with the function's name; callers check for
//! optional ones. Symbol names are those of the version whose signature is used here. Handles are
//! opaque addresses or numbers.

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Result code of a driver function.
pub(crate) type Status = c_int;
/// Number of a device.
pub(crate) type DeviceNumber = c_int;
/// An address in device memory.
pub(crate) type DevicePointer = u64;
/// An opaque handle.
pub(crate) type Handle = *mut c_void;

macro_rules! functions {
    ($(#[$doc:meta])* $table:ident {
        required { $($field:ident = $symbol:literal: fn($($argument:ty),*);)* }
        optional { $($option:ident = $option_symbol:literal: fn($($option_argument:ty),*);)* }
    }) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "system" fn($($argument),*) -> Status,)*
            $(pub(crate) $option: Option<unsafe extern "system" fn($($option_argument),*) -> Status>,)*
        }

        impl $table {
            /// Looks up all functions; fails with the name of the first required one that is
            /// missing.
            pub(crate) fn of(library: &Library) -> Result<$table, &'static str> {
                // SAFETY: each name has the signature that NVIDIA's headers declare for it.
                unsafe {
                    Ok($table {
                        $($field: *library.get($symbol).map_err(|_| shown($symbol))?,)*
                        $($option: library.get($option_symbol).ok().map(|symbol| *symbol),)*
                    })
                }
            }
        }
    };
}

/// Name of a symbol without its terminating zero.
fn shown(symbol: &'static [u8]) -> &'static str {
    std::str::from_utf8(symbol).map_or("?", |name| name.trim_end_matches('\0'))
}

functions! {
    /// Functions of the driver.
    Driver {
        required {
            init = b"cuInit\0": fn(c_uint);
            driver_version = b"cuDriverGetVersion\0": fn(*mut c_int);
            device_count = b"cuDeviceGetCount\0": fn(*mut c_int);
            device = b"cuDeviceGet\0": fn(*mut DeviceNumber, c_int);
            device_name = b"cuDeviceGetName\0": fn(*mut c_char, c_int, DeviceNumber);
            device_memory = b"cuDeviceTotalMem_v2\0": fn(*mut usize, DeviceNumber);
            device_attribute = b"cuDeviceGetAttribute\0": fn(*mut c_int, c_int, DeviceNumber);
            context_retain = b"cuDevicePrimaryCtxRetain\0": fn(*mut Handle, DeviceNumber);
            context_release = b"cuDevicePrimaryCtxRelease_v2\0": fn(DeviceNumber);
            context_push = b"cuCtxPushCurrent_v2\0": fn(Handle);
            context_pop = b"cuCtxPopCurrent_v2\0": fn(*mut Handle);
            module_load = b"cuModuleLoadData\0": fn(*mut Handle, *const c_void);
            module_unload = b"cuModuleUnload\0": fn(Handle);
            module_function = b"cuModuleGetFunction\0": fn(*mut Handle, Handle, *const c_char);
            launch = b"cuLaunchKernel\0": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
            memory_allocate = b"cuMemAlloc_v2\0": fn(*mut DevicePointer, usize);
            memory_free = b"cuMemFree_v2\0": fn(DevicePointer);
            host_allocate = b"cuMemHostAlloc\0": fn(*mut *mut c_void, usize, c_uint);
            host_free = b"cuMemFreeHost\0": fn(*mut c_void);
            copy_in = b"cuMemcpyHtoDAsync_v2\0": fn(DevicePointer, *const c_void, usize, Handle);
            copy_out = b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, DevicePointer, usize, Handle);
            fill = b"cuMemsetD8Async\0": fn(DevicePointer, u8, usize, Handle);
            stream_create = b"cuStreamCreate\0": fn(*mut Handle, c_uint);
            stream_destroy = b"cuStreamDestroy_v2\0": fn(Handle);
            stream_wait = b"cuStreamSynchronize\0": fn(Handle);
            stream_query = b"cuStreamQuery\0": fn(Handle);
            event_create = b"cuEventCreate\0": fn(*mut Handle, c_uint);
            event_destroy = b"cuEventDestroy_v2\0": fn(Handle);
            event_record = b"cuEventRecord\0": fn(Handle, Handle);
            event_elapsed = b"cuEventElapsedTime\0": fn(*mut f32, Handle, Handle);
            error_name = b"cuGetErrorName\0": fn(Status, *mut *const c_char);
            error_text = b"cuGetErrorString\0": fn(Status, *mut *const c_char);
        }
        optional {
            allocate_async = b"cuMemAllocAsync\0": fn(*mut DevicePointer, usize, Handle);
            free_async = b"cuMemFreeAsync\0": fn(DevicePointer, Handle);
            default_pool = b"cuDeviceGetDefaultMemPool\0": fn(*mut Handle, DeviceNumber);
            pool_set = b"cuMemPoolSetAttribute\0": fn(Handle, c_int, *mut c_void);
            pool_trim = b"cuMemPoolTrimTo\0": fn(Handle, usize);
            capture_begin = b"cuStreamBeginCapture_v2\0": fn(Handle, c_int);
            capture_end = b"cuStreamEndCapture\0": fn(Handle, *mut Handle);
            graph_instantiate = b"cuGraphInstantiateWithFlags\0": fn(*mut Handle, Handle, u64);
            graph_launch = b"cuGraphLaunch\0": fn(Handle, Handle);
            graph_destroy = b"cuGraphDestroy\0": fn(Handle);
            graph_exec_destroy = b"cuGraphExecDestroy\0": fn(Handle);
        }
    }
}

functions! {
    /// Functions of the compiler.
    Nvrtc {
        required {
            version = b"nvrtcVersion\0": fn(*mut c_int, *mut c_int);
            create = b"nvrtcCreateProgram\0": fn(*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
            destroy = b"nvrtcDestroyProgram\0": fn(*mut Handle);
            compile = b"nvrtcCompileProgram\0": fn(Handle, c_int, *const *const c_char);
            log_size = b"nvrtcGetProgramLogSize\0": fn(Handle, *mut usize);
            log = b"nvrtcGetProgramLog\0": fn(Handle, *mut c_char);
            cubin_size = b"nvrtcGetCUBINSize\0": fn(Handle, *mut usize);
            cubin = b"nvrtcGetCUBIN\0": fn(Handle, *mut c_char);
        }
        optional {
            arch_count = b"nvrtcGetNumSupportedArchs\0": fn(*mut c_int);
            archs = b"nvrtcGetSupportedArchs\0": fn(*mut c_int);
        }
    }
}
