//! A device as a backend.

use super::NativeDevice;
use super::code_cache::compiled;
use super::pipeline::{Pipeline, sequence};
use super::resident::{InstanceState, Residents};
use crate::admission::check_device;
use crate::containment::contain_call;
use crate::pipeline::PipelineCacheSnapshot;
use crate::{
    BackendError, Cached, CompiledPipeline, DeviceProfile, DispatchConfig, Failed, PipelineCache,
    PipelineKey, SequenceStep, VyreBackend, next_backend_instance,
};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::ops::OpId;

/// A backend instance on a device.
pub struct Native<D: NativeDevice>(Arc<BackendInstance<D>>);

/// The state of a backend instance; shared with threads that still compile for calls that have
/// ended.
struct BackendInstance<D: NativeDevice> {
    shared: Arc<InstanceState<D>>,
    number: u64,
    compiled: AtomicU64,
    pipelines: Option<PipelineCache>,
}

/// A type that is a backend through the [`Native`] that it holds.
pub trait NativeBackend: Send + Sync {
    /// Its device.
    type Device: NativeDevice;

    /// The backend instance.
    fn native(&self) -> &Native<Self::Device>;
}

impl<D: NativeDevice> Native<D> {
    /// Creates an instance on the device.
    pub fn new(device: D) -> Native<D> {
        Native(Arc::new(BackendInstance {
            number: next_backend_instance(),
            compiled: AtomicU64::new(0),
            pipelines: device.cache_limits().map(PipelineCache::new),
            shared: Arc::new(InstanceState { residents: Residents::new(device.id()), device }),
        }))
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.0.shared.device
    }

    fn pipeline(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        match self.0.kept(program, config) {
            Some(kept) => Ok(kept),
            None => self.in_time(program, config, BackendInstance::pipeline),
        }
    }

    /// Compiles a program unless it is cached, and dispatches it within the remaining time.
    fn dispatched(
        &self,
        program: &Program,
        config: &DispatchConfig,
        dispatch: impl FnOnce(&dyn CompiledPipeline, &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError>,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let began = Instant::now();
        let pipeline = self.pipeline(program, config)?;
        dispatch(&*pipeline, &config.after(began.elapsed())).map_err(|error| error.of_call(config.timeout))
    }

    /// Compiles a program within the configured time limit.
    fn in_time<T: Send + 'static>(
        &self,
        program: &Program,
        config: &DispatchConfig,
        compile: fn(&BackendInstance<D>, &Program, &DispatchConfig) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let Some(limit) = config.timeout else { return compile(&self.0, program, config) };
        let (instance, program, config) = (self.0.clone(), program.clone(), config.clone());
        compiled(self.device().id(), limit, move || compile(&instance, &program, &config))
    }
}

impl<D: NativeDevice> BackendInstance<D> {
    /// Admits and compiles a program. Programs can arrive without having passed the driver's
    /// admission.
    fn compile(&self, program: &Program, config: &DispatchConfig) -> Result<Pipeline<D>, BackendError> {
        let (device, kernel) = (&self.shared.device, program.validate()?);
        let profile = device.profile();
        check_device((device.id(), device.supported_ops()), &profile, &kernel, config)?;
        device.admit(&kernel, config)?;
        let pipeline = Pipeline::new(self.shared.clone(), kernel, profile, config)?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        Ok(pipeline)
    }

    fn key(&self, program: &Program, config: &DispatchConfig) -> PipelineKey {
        PipelineKey::new(self.number, &self.shared.device.profile(), program, config)
    }

    /// The pipeline, if it is cached.
    fn kept(&self, program: &Program, config: &DispatchConfig) -> Option<Arc<dyn CompiledPipeline>> {
        self.pipelines.as_ref()?.get(&self.key(program, config))
    }

    fn pipeline(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        let Some(pipelines) = &self.pipelines else { return Ok(Arc::new(self.compile(program, config)?)) };
        pipelines.get_or_compile(&self.key(program, config), || {
            let pipeline = self.compile(program, &config.code_policy())?;
            let bytes = pipeline.bytes();
            Ok(Cached { pipeline: Arc::new(pipeline), bytes })
        })
    }
}

impl<D: NativeDevice + fmt::Debug> fmt::Debug for Native<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native").field("device", self.device()).finish_non_exhaustive()
    }
}

impl<B: NativeBackend> VyreBackend for B {
    fn id(&self) -> &'static str {
        self.native().device().id()
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.native().dispatched(program, config, |pipeline, config| pipeline.dispatch(inputs, config))
    }

    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.native()
            .dispatched(program, config, |pipeline, config| pipeline.dispatch_borrowed(inputs, config))
    }

    fn has_same_code(&self, kernel: &Kernel, one: &DispatchConfig, other: &DispatchConfig) -> bool {
        let device = self.native().device();
        device.form(kernel, one) == device.form(kernel, other)
    }

    fn compile_native(
        &self,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let native = self.native();
        if native.0.pipelines.is_none() || *config == config.code_policy() {
            return native.pipeline(program, config).map(Some);
        }
        // Settings that do not affect the code belong to this pipeline alone.
        Ok(Some(Arc::new(native.in_time(program, config, BackendInstance::compile)?)))
    }

    fn pipeline_cache_snapshot(&self) -> Option<PipelineCacheSnapshot> {
        let native = self.native();
        // Without a cache, every request compiles.
        let misses = native.0.compiled.load(Ordering::Relaxed);
        let none = PipelineCacheSnapshot { hits: 0, misses };
        Some(native.0.pipelines.as_ref().map_or(none, PipelineCache::snapshot))
    }

    fn device_profile(&self) -> DeviceProfile {
        self.native().device().profile()
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        self.native().device().supported_ops()
    }

    fn allocate_resident(&self, bytes: usize) -> Result<u64, BackendError> {
        let native = self.native();
        let memory = contain_call(self.id(), || native.device().allocate(bytes))?;
        Ok(native.0.shared.residents.add(memory, bytes))
    }

    fn upload_resident(&self, handle: u64, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let native = self.native();
        native.0.shared.residents.within(handle, (offset, bytes.len()), |memory| {
            let mut memory = memory.write().unwrap_or_else(PoisonError::into_inner);
            contain_call(self.id(), || native.device().write(&mut memory, offset, bytes))
        })
    }

    fn download_resident(&self, handle: u64, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        let native = self.native();
        native.0.shared.residents.within(handle, (offset, bytes.len()), |memory| {
            let memory = memory.read().unwrap_or_else(PoisonError::into_inner);
            contain_call(self.id(), || native.device().read(&memory, offset, bytes))
        })
    }

    fn free_resident(&self, handle: u64) -> Result<(), BackendError> {
        self.native().0.shared.residents.remove(handle)
    }

    fn dispatch_sequence(&self, steps: &mut [SequenceStep<'_, '_>]) -> Result<(), Failed> {
        sequence::run(&self.native().0.shared, steps)
    }

    fn sequence_steps(&self) -> usize {
        self.native().device().sequence_steps()
    }
}
