//! Runtimes, and the version of the library.

use crate::command;
use crate::handles::{self, Use};
use crate::status::{FunctionError, VYRE_ABI, guarded, vyre_status};
use crate::text;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use vyre::{DataType, Message, OpRoutine, Runtime};

/// The version of the interface that this header declares; `vyre_runtime_new` checks it.
pub const VYRE_ABI_VERSION: u32 = 1;

/// Opens backends and runs kernels. Use one for the whole program, from any number of threads.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct vyre_runtime(pub *mut c_void);

/// Options for a runtime. Set all to zero first (`vyre_runtime_options options = {0};`): zero
/// selects the default.
#[repr(C)]
pub struct vyre_runtime_options {
    /// The backends to use, separated by commas, as in "cpu,wgpu"; null for all.
    pub backends: *const c_char,
    /// The folder of the tables, which hold what vyre measured; null for the user's folders.
    pub tables: *const c_char,
    /// Nonzero keeps the tables in memory only.
    pub without_tables: u32,
    /// Nonzero routes by verified rows of the routing table only.
    pub frozen: u32,
    /// Receives what kernels print, on the thread that made the call; null discards it. It must not
    /// make calls itself.
    pub print: Option<unsafe extern "C" fn(message: *const c_char, context: *mut c_void)>,
    /// Passed to `print` unchanged.
    pub context: *mut c_void,
}

/// Ready-made ops by their row in the table of ops, their element type, and their sizes other than
/// that of a call.
pub(crate) type Ops = Mutex<HashMap<(usize, DataType, [u32; 2]), OpRoutine>>;

/// Runtime, and the ready-made ops loaded into it.
pub(crate) struct HeldRuntime {
    pub(crate) runtime: Runtime,
    pub(crate) ops: Ops,
}

/// The caller's function that receives kernel prints.
struct Listener {
    print: unsafe extern "C" fn(*const c_char, *mut c_void),
    context: *mut c_void,
}

// SAFETY: `print` is documented to be called on any thread that makes a call, so the caller allows
// its context to be used there.
unsafe impl Send for Listener {}
// SAFETY: as above.
unsafe impl Sync for Listener {}

impl Listener {
    fn hear(&self, message: &Message) {
        // SAFETY: the caller supplied both together.
        unsafe { (self.print)(text::visible(&message.text).as_ptr(), self.context) };
    }
}

/// Looks up the runtime of a handle.
pub(crate) fn found(runtime: vyre_runtime) -> Result<Use, FunctionError> {
    if runtime.0.is_null() {
        return Err(FunctionError::null("the runtime"));
    }
    handles::find(runtime.0 as usize).ok_or_else(|| FunctionError::handle("runtime"))
}

pub(crate) fn held(used: &Use) -> Result<&HeldRuntime, FunctionError> {
    used.get().ok_or_else(|| FunctionError::handle("runtime"))
}

/// The version of the library, such as "0.2.0". Do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero byte"),
        };
    VERSION.as_ptr()
}

/// The interface version of the library; a header with another `VYRE_ABI_VERSION` is incompatible.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_abi_version() -> u32 {
    VYRE_ABI_VERSION
}

/// Creates a runtime; `vyre_runtime_new` calls this with the header's version. It opens every
/// available backend and checks its results.
///
/// # Safety
/// `options` is null or points to options whose strings end with a zero byte; `runtime` is null or
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_runtime_open(
    abi: u32,
    options: *const vyre_runtime_options,
    runtime: *mut vyre_runtime,
) -> vyre_status {
    guarded(|| {
        if abi != VYRE_ABI_VERSION {
            let message = format!(
                "the header has version {abi} of the interface, the library version {VYRE_ABI_VERSION}"
            );
            return Err(FunctionError::new(VYRE_ABI, message));
        }
        if runtime.is_null() {
            return Err(FunctionError::null("`runtime`"));
        }
        // SAFETY: by contract.
        let builder = match unsafe { options.as_ref() } {
            // SAFETY: by contract.
            Some(options) => unsafe { built(options) }?,
            None => Runtime::builder(),
        };
        command::announce();
        let held = HeldRuntime { runtime: builder.build()?, ops: Ops::default() };
        let handle = handles::insert(held)?;
        // SAFETY: by contract.
        unsafe { *runtime = vyre_runtime(handle as *mut c_void) };
        Ok(())
    })
}

/// Converts the options to a builder.
///
/// # Safety
/// The strings of the options are null or C strings.
unsafe fn built(options: &vyre_runtime_options) -> Result<vyre::RuntimeBuilder, FunctionError> {
    let mut builder = Runtime::builder();
    // SAFETY: by contract, here and below.
    let taken =
        |text: *const c_char, what| unsafe { (!text.is_null()).then(|| text::taken(text, what)).transpose() };
    if let Some(backends) = taken(options.backends, "`backends`")? {
        builder = builder.backends(backends.split(',').map(str::trim).filter(|id| !id.is_empty()));
    }
    if let Some(folder) = taken(options.tables, "`tables`")? {
        builder = builder.tables_in(folder);
    }
    if options.without_tables != 0 {
        builder = builder.without_tables();
    }
    if options.frozen != 0 {
        builder = builder.frozen();
    }
    if let Some(print) = options.print {
        let listener = Listener { print, context: options.context };
        builder = builder.on_print(move |message| listener.hear(message));
    }
    Ok(builder)
}

/// Frees a runtime and saves its tables. Routines and arrays made with it stay usable until they
/// are freed themselves. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_runtime_free(runtime: vyre_runtime) -> vyre_status {
    guarded(|| {
        if runtime.0.is_null() {
            return Ok(());
        }
        held(&found(runtime)?)?;
        if handles::free(runtime.0 as usize) { Ok(()) } else { Err(FunctionError::handle("runtime")) }
    })
}

/// Waits until all background work is done: opening and certifying drivers, verifying results,
/// comparing code.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_runtime_settle(runtime: vyre_runtime) -> vyre_status {
    guarded(|| {
        held(&found(runtime)?)?.runtime.settle();
        Ok(())
    })
}

/// Returns the backends that calls are routed to, one per line, followed by those that are not
/// used, with the reason. Free the string with `vyre_text_free`.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_runtime_backends(runtime: vyre_runtime, text: *mut *mut c_char) -> vyre_status {
    guarded(|| {
        let used = found(runtime)?;
        let runtime = &held(&used)?.runtime;
        let refused = runtime.refused();
        let mut lines: Vec<String> = runtime.backends().map(str::to_owned).collect();
        lines.extend(refused.iter().map(|refused| format!("not {}: {}", refused.backend, refused.reason)));
        if text.is_null() {
            return Err(FunctionError::null("`text`"));
        }
        // SAFETY: by contract.
        unsafe { text::give(text, &lines.join("\n")) }
    })
}
