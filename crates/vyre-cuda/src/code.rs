//! Compiled code for one form of a program.

use crate::api::Handle;
use crate::compiler::compile;
use crate::context::Context;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vyre_driver::BackendError;
use vyre_driver::binaries::Binaries;
use vyre_driver::native::{Built, Form};
use vyre_foundation::emit::{CUDA, EntryArgument, Settings, emit, prepare};
use vyre_foundation::kernel::Kernel;

/// Compiled code for one form of a program.
#[derive(Debug)]
pub struct Compiled {
    module: Module,
    /// The kernel's function in the module.
    pub(crate) function: Function,
    pub(crate) arguments: Vec<EntryArgument>,
    /// Number that is unique in this process: handles of unloaded code are reused.
    pub(crate) number: u64,
}

/// A function of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function(pub(crate) Handle);

// SAFETY: any thread can launch the function.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A loaded module.
#[derive(Debug)]
struct Module {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: any thread can use the module's handle.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Module, BackendError> {
        let _current = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: device code encodes its own length; NVRTC generated it, or it was cached with its
        // checksum.
        let loaded =
            unsafe { (context.device.driver.api.module_load)(&mut handle, cubin.as_ptr().cast::<c_void>()) };
        context.check(loaded, "loading code")?;
        Ok(Module { context: context.clone(), handle })
    }

    fn function(&self, entry: &str) -> Result<Function, BackendError> {
        let _current = self.context.enter()?;
        let entry = CString::new(entry).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        let api = &self.context.device.driver.api;
        // SAFETY: the module is alive, and the name is zero-terminated.
        let found = unsafe { (api.module_function)(&mut function, self.handle, entry.as_ptr()) };
        self.context.check(found, "finding the kernel in its code")?;
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: loaded by `load`; no launch is running, since a call holds its code until it
        // ends.
        let _ = unsafe { (self.context.device.driver.api.module_unload)(self.handle) };
    }
}

/// Compiles a kernel, or loads its code from the cache.
pub(crate) fn build_form(
    context: &Arc<Context>,
    binaries: &Binaries,
    kernel: &Kernel,
    form: Form,
) -> Result<Built<Compiled>, BackendError> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    context.check_lost()?;
    let prepared = prepare(kernel, form.passes(), &CUDA);
    let settings = Settings { workgroup: form.workgroup, stoppable: form.stoppable, folded: form.folded };
    let source = emit(&prepared, &CUDA, &settings);
    let _span = tracing::debug_span!("cuda build", bytes = source.text.len()).entered();
    let load = |cubin: &[u8]| {
        let module = Module::load(context, cubin)?;
        let function = module.function(&source.entry)?;
        Ok((module, function, cubin.len()))
    };
    let named = (context.id, kernel.display_name(), source.text.as_str());
    let (module, function, bytes) = compile(context.device, binaries, named, load)?;
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let code = Compiled { module, function, arguments: source.arguments, number };
    // The driver keeps a copy.
    Ok(Built { kernel: prepared, code, bytes: 2 * bytes as u64 })
}

impl Compiled {
    /// Whether the code was loaded in this context.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.module.context, context)
    }
}
