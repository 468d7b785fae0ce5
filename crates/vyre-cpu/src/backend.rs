//! The backend and its registration.

use crate::code::{LANES, host};
use crate::machine;
use crate::pipeline::Pipeline;
use crate::pool::thread_count;
use crate::resident::Residents;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use vyre_driver::pipeline::PipelineCacheSnapshot;
use vyre_driver::registry::{BackendCapability, BackendPrecedence, BackendRegistration};
use vyre_driver::{
    BackendError, CompiledPipeline, DeviceClass, DeviceProfile, DispatchConfig, VyreBackend,
    default_supported_ops,
};
use vyre_foundation::ir::{Op, OpId, Program};

/// The id under which the backend is registered.
pub const BACKEND_ID: &str = "cpu";

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(Cpu::new()?)), supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 100 } }

/// The processor, reached directly.
///
/// ```
/// use vyre_cpu::Cpu;
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(9))]);
/// let outputs = Cpu::new()?.dispatch(&program, &[], &DispatchConfig::default())?;
/// assert_eq!(outputs, [[9, 0, 0, 0]]);
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct Cpu {
    residents: Arc<Residents>,
    compiled: AtomicU64,
}

impl Cpu {
    /// The backend, unless this processor has no compiler.
    pub fn new() -> Result<Cpu, BackendError> {
        match host() {
            Ok(_) => Ok(Cpu { residents: Arc::default(), compiled: AtomicU64::new(0) }),
            Err(reason) => Err(BackendError::UnsupportedFeature {
                name: format!("compiling for this processor ({reason})"),
                backend: BACKEND_ID.into(),
            }),
        }
    }

    fn compile(&self, program: &Program, config: &DispatchConfig) -> Result<Pipeline, BackendError> {
        let pipeline = Pipeline::new(program, config, self.residents.clone())?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        Ok(pipeline)
    }
}

impl VyreBackend for Cpu {
    fn id(&self) -> &'static str {
        BACKEND_ID
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.compile(program, config)?.dispatch(inputs, &DispatchConfig::default())
    }

    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.compile(program, config)?.dispatch_borrowed(inputs, &DispatchConfig::default())
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        Ok(Some(Arc::new(self.compile(program, config)?)))
    }

    fn pipeline_cache_snapshot(&self) -> Option<PipelineCacheSnapshot> {
        // Nothing is kept: every request compiles.
        Some(PipelineCacheSnapshot { hits: 0, misses: self.compiled.load(Ordering::Relaxed) })
    }

    fn device_profile(&self) -> DeviceProfile {
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

    fn allocate_resident(&self, bytes: usize) -> Result<u64, BackendError> {
        self.residents.allocate(bytes)
    }

    fn upload_resident(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.residents.upload(handle, offset, bytes)
    }

    fn download_resident(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.residents.download(handle, offset, bytes)
    }

    fn free_resident(&self, handle: u64) -> Result<(), BackendError> {
        self.residents.free(handle)
    }
}

/// Every op, but `fma` only where the processor fuses it.
fn supported_ops() -> &'static HashSet<OpId> {
    static OPS: LazyLock<HashSet<OpId>> = LazyLock::new(|| {
        let mut ops = default_supported_ops().clone();
        #[cfg(target_arch = "x86_64")]
        if !std::arch::is_x86_feature_detected!("fma") {
            ops.remove(&Op::Fma.id());
        }
        ops
    });
    &OPS
}
