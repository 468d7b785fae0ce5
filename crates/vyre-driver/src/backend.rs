//! The backend trait: the interface of a device that runs programs.

use crate::dispatch::{CompiledPipeline, Failed, SequenceStep, byte_count, observe_outputs, owned};
use crate::pipeline::PipelineCacheSnapshot;
use crate::{BackendError, DeviceProfile, DispatchConfig};
use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::ops::{OpId, all_op_ids};

/// A backend, which runs programs on a device.
///
/// Only [`id`](Self::id) and [`dispatch`](Self::dispatch) are required; everything else has a
/// correct default that a fast backend overrides. A wrapper around a backend forwards every method.
///
/// ```
/// use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::Program;
///
/// /// Gives back its inputs, whatever the program.
/// struct Echo;
///
/// impl VyreBackend for Echo {
///     fn id(&self) -> &'static str {
///         "echo"
///     }
///     fn dispatch(
///         &self,
///         _program: &Program,
///         inputs: &[Vec<u8>],
///         _config: &DispatchConfig,
///     ) -> Result<Vec<Vec<u8>>, BackendError> {
///         Ok(inputs.to_vec())
///     }
/// }
///
/// let outputs = Echo.dispatch_borrowed(&Program::empty(), &[b"abc"], &DispatchConfig::default())?;
/// assert_eq!(outputs, [b"abc".to_vec()]);
/// # Ok::<(), BackendError>(())
/// ```
pub trait VyreBackend: Send + Sync {
    /// The id under which the backend is registered and its results are stored.
    fn id(&self) -> &'static str;

    /// Runs the program on these inputs: one per read, uniform and read_write buffer, in binding
    /// order. Returns one output per output and read_write buffer, in binding order.
    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError>;

    /// Like [`dispatch`](Self::dispatch), on borrowed inputs. The default copies them.
    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        observe_outputs(self.id(), config, byte_count(inputs), || {
            self.dispatch(program, &owned(inputs), config)
        })
    }

    /// Compiles the program, if this backend compiles. The pipeline merges each call's
    /// configuration over `config` itself, with [`DispatchConfig::over`]. `None` means that every
    /// dispatch goes through this trait.
    fn compile_native(
        &self,
        _program: &Program,
        _config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        Ok(None)
    }

    /// Hits and misses of the backend's pipeline cache, if it has one.
    fn pipeline_cache_snapshot(&self) -> Option<PipelineCacheSnapshot> {
        None
    }

    /// The device's profile.
    fn device_profile(&self) -> DeviceProfile {
        DeviceProfile::conservative(self.id())
    }

    /// The table ops that the backend supports.
    fn supported_ops(&self) -> &HashSet<OpId> {
        default_supported_ops()
    }

    /// Whether calls with these two configurations run the same code, so that comparing them is
    /// pointless.
    fn has_same_code(&self, _kernel: &Kernel, _one: &DispatchConfig, _other: &DispatchConfig) -> bool {
        false
    }

    /// The Rust type behind the trait, for messages that distinguish two backends with one id.
    fn implementation(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Allocates a zeroed resident buffer of this size on the device.
    fn allocate_resident(&self, _bytes: usize) -> Result<u64, BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Writes bytes into a resident buffer at `offset`.
    fn upload_resident(&self, _handle: u64, _offset: usize, _bytes: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Reads `bytes` from a resident buffer at `offset`.
    fn download_resident(&self, _handle: u64, _offset: usize, _bytes: &mut [u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Frees a resident buffer.
    fn free_resident(&self, _handle: u64) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Runs dispatches of this backend's pipelines in order, each seeing what earlier ones wrote.
    /// Stops at the first failure; the dispatches before it are complete. Memory and resident
    /// buffers that the rest write have unspecified contents, except that a dispatch that fails
    /// with `UnsupportedFeature` or `DeviceOutOfMemory` did not begin, nor did those after it. The
    /// default waits for each.
    fn dispatch_sequence(&self, steps: &mut [SequenceStep<'_, '_>]) -> Result<(), Failed> {
        for (done, step) in steps.iter_mut().enumerate() {
            let ran = step.pipeline.dispatch_bound(step.bindings, step.config);
            ran.map_err(|error| Failed { done, error })?;
        }
        Ok(())
    }

    /// Number of dispatches of a sequence that the device accepts at once; 1 if each is waited for.
    fn sequence_steps(&self) -> usize {
        1
    }
}

/// The default supported ops: every row of the op table.
pub fn default_supported_ops() -> &'static HashSet<OpId> {
    static ALL: LazyLock<HashSet<OpId>> = LazyLock::new(|| all_op_ids().collect());
    &ALL
}
