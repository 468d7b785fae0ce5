//! The backend and its registration.

use crate::code::LANES;
use crate::host::host;
use crate::machine;
use crate::pipeline::{Compiled, build, form_of, run, run_all};
use crate::pool::thread_count;
use crate::resident_memory::ResidentMemory;
use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;
use vyre_driver::native::{Built, Failed, Form, Job, Native, NativeBackend, NativeDevice};
use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DispatchConfig, default_supported_ops};
use vyre_foundation::ir::{Op, OpId};
use vyre_foundation::kernel::Kernel;

/// Id under which the backend is registered.
pub const BACKEND_ID: &str = "cpu";

/// Referring to this links the registration below: a static library omits what nothing refers to.
pub static LINKED: u8 = 0;

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(Cpu::new()?)), supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 100 } }

/// The backend that runs kernels directly on the processor.
///
/// ```
/// use vyre_cpu::Cpu;
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let store = Node::store("out", Expr::u32(0), Expr::u32(9));
/// let program = Program::wrapped(vec![out], [1, 1, 1], vec![store]);
/// let outputs = Cpu::new()?.dispatch(&program, &[], &DispatchConfig::default())?;
/// assert_eq!(outputs, [[9, 0, 0, 0]]);
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct Cpu {
    native: Native<Processor>,
}

/// The processor as a device. Resident buffers are ordinary memory.
#[derive(Clone, Copy, Debug)]
pub struct Processor;

impl Cpu {
    /// Creates the backend; fails if no compiler supports this processor.
    pub fn new() -> Result<Cpu, BackendError> {
        match host() {
            Ok(_) => Ok(Cpu { native: Native::new(Processor) }),
            Err(reason) => Err(BackendError::UnsupportedFeature {
                name: format!("compiling for this processor ({reason})"),
                backend: BACKEND_ID.into(),
            }),
        }
    }
}

impl NativeBackend for Cpu {
    type Device = Processor;

    fn native(&self) -> &Native<Processor> {
        &self.native
    }
}

impl NativeDevice for Processor {
    type Code = Compiled;
    type Memory = ResidentMemory;

    fn id(&self) -> &'static str {
        BACKEND_ID
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile {
            device_name: machine::name(),
            driver_version: env!("VYRE_BUILD_ID"),
            device_class: DeviceClass::Cpu,
            supports_subgroup_ops: true,
            has_subgroup_shuffle: true,
            subgroup_size: LANES,
            has_shared_memory: true,
            max_shared_memory_bytes: 1 << 30,
            supports_f16: true,
            supports_bf16: true,
            supports_f64: true,
            supports_int64: true,
            supports_atomic64: true,
            supports_narrow_storage: true,
            max_workgroup_size: [65_536; 3],
            max_invocations_per_workgroup: 65_536,
            max_storage_buffer_binding_size: isize::MAX as u64,
            compute_units: thread_count() as u32,
            mem_bw_gbps: machine::bandwidth(),
            strict_float: true,
            ..DeviceProfile::conservative(BACKEND_ID)
        }
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        supported_ops()
    }

    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        form_of(kernel, config)
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
        build(kernel, form)
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        run(job).map(|()| None)
    }

    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        run_all(jobs)
    }

    fn batch_items(&self) -> usize {
        usize::MAX
    }

    fn allocate(&self, bytes: usize) -> Result<ResidentMemory, BackendError> {
        ResidentMemory::zeroed(bytes).ok_or(BackendError::DeviceOutOfMemory {
            backend: BACKEND_ID.into(),
            requested_bytes: bytes as u64,
        })
    }

    fn write(&self, memory: &mut ResidentMemory, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, memory: &ResidentMemory, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        bytes.copy_from_slice(&memory[offset..offset + bytes.len()]);
        Ok(())
    }

    fn host_bytes<'m>(&self, memory: &'m ResidentMemory) -> Option<&'m [u8]> {
        Some(memory)
    }
}

/// Every op, except `fma` if the processor does not fuse it.
fn supported_ops() -> &'static HashSet<OpId> {
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("fma") {
        static OTHERS: LazyLock<HashSet<OpId>> = LazyLock::new(|| {
            let mut ops = default_supported_ops().clone();
            ops.remove(&Op::Fma.id());
            ops
        });
        return &OTHERS;
    }
    default_supported_ops()
}
