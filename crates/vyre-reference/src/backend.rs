//! The backend `cpu-ref`: the interpreter behind the driver's traits.
//!
//! An oracle: other backends are compared with it, and it runs only when named. Memory is its only
//! limit. It supports everything that validation accepts, and takes the subgroup size from the
//! configuration, so that it can be compared with devices of any subgroup size.

use crate::memory::Budget;
use crate::{BoundBytes, Dispatch, RunError, RunOptions};
use std::sync::LazyLock;
use std::time::Duration;
use vyre_driver::native::{
    BoundArgument, Built, Form, Job, Memory, Native, NativeBackend, NativeDevice, Start,
};
use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
use vyre_driver::{
    BackendError, DeviceClass, DeviceProfile, DispatchConfig, Schedule, default_supported_ops,
};
use vyre_foundation::kernel::Kernel;

/// The id of the interpreter's registration.
pub const BACKEND_ID: &str = "cpu-ref";

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(CpuRef)), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: true } }
// Ranked last: it exists for comparison.
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: u32::MAX - 1 } }

/// The interpreter as a backend.
///
/// ```
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_reference::CpuRef;
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(
///     vec![out],
///     [1, 1, 1],
///     vec![Node::store("out", Expr::u32(0), Expr::u32(9))],
/// );
/// let outputs = CpuRef.dispatch(&program, &[], &DispatchConfig::default())?;
/// assert_eq!(outputs, [[9, 0, 0, 0]]);
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuRef;

impl NativeBackend for CpuRef {
    type Device = Interpreter;

    fn native(&self) -> &Native<Interpreter> {
        static NATIVE: LazyLock<Native<Interpreter>> = LazyLock::new(|| Native::new(Interpreter));
        &NATIVE
    }
}

/// The interpreter as a device: its code is the kernel itself, and it has no resident memory.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter;

impl NativeDevice for Interpreter {
    type Code = ();
    type Memory = ();

    fn id(&self) -> &'static str {
        BACKEND_ID
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile {
            device_name: "vyre reference interpreter",
            driver_version: env!("VYRE_BUILD_ID"),
            device_class: DeviceClass::Cpu,
            supports_subgroup_ops: true,
            has_subgroup_shuffle: true,
            subgroup_size: RunOptions::default().subgroup_size,
            has_shared_memory: true,
            supports_f16: true,
            supports_bf16: true,
            supports_f64: true,
            supports_int64: true,
            supports_atomic64: true,
            supports_narrow_storage: true,
            compute_units: 1,
            strict_float: true,
            ..DeviceProfile::conservative(BACKEND_ID)
        }
    }

    /// The only form: a kernel is interpreted unchanged.
    fn form(&self, kernel: &Kernel, _config: &DispatchConfig) -> Form {
        let unset = DispatchConfig { schedule: Some(Schedule::Off), ..DispatchConfig::default() };
        Form { selective: false, ..Form::new(kernel, &unset) }
    }

    fn build(&self, kernel: &Kernel, _form: Form) -> Result<Built<()>, BackendError> {
        Ok(Built { kernel: kernel.clone(), code: (), bytes: 0 })
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        let defaults = RunOptions::default();
        let options = RunOptions {
            subgroup_size: job.config.subgroup_size.unwrap_or(defaults.subgroup_size),
            timeout: job.config.timeout,
            ..defaults
        };
        let bound =
            job.arguments.iter_mut().map(BoundArgument::take).filter_map(|argument| match argument.memory {
                Memory::Read(bytes) => Some(BoundBytes::Read(bytes)),
                Memory::Write(bytes) => {
                    // The oracle does not rely on a proof that everything is written.
                    let start = if argument.start == Start::Anything { Start::Zero } else { argument.start };
                    start.apply(bytes);
                    Some(BoundBytes::Write(bytes))
                }
                Memory::Resident(()) | Memory::ResidentMut(()) => None,
            });
        let (kernel, budget) = (&*job.variant.kernel, Budget::new(options.memory_limit));
        let dispatch = Dispatch { kernel, launch: job.launch, options: &options, budget };
        match dispatch.execute(bound.collect()) {
            Ok(_) => Ok(None),
            Err(error) => Err(backend_error(kernel.display_name(), job.config, error)),
        }
    }

    /// A run can exceed its memory budget at any time.
    fn may_spoil(&self, _traps: bool, _config: &DispatchConfig) -> bool {
        true
    }

    fn output_limit(&self) -> u64 {
        RunOptions::default().memory_limit
    }
}

fn backend_error(kernel: &str, config: &DispatchConfig, error: RunError) -> BackendError {
    let backend = BACKEND_ID.to_string();
    match error {
        RunError::Launch(diagnostics) => BackendError::InvalidProgram { diagnostics },
        RunError::SubgroupSize(size) => {
            BackendError::UnsupportedFeature { name: format!("a subgroup size of {size}"), backend }
        }
        RunError::Trapped { code } => BackendError::Trapped { kernel: kernel.to_string(), code },
        RunError::Timeout => BackendError::Timeout { backend, limit: config.timeout.unwrap_or_default() },
        RunError::Memory { needed, .. } => {
            BackendError::DeviceOutOfMemory { backend, requested_bytes: needed }
        }
        RunError::NotWritable { .. } | RunError::Diverged(_) => {
            BackendError::DispatchFailed { backend, message: error.to_string() }
        }
    }
}
