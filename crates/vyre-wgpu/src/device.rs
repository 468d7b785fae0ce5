//! Adapters and devices.
//!
//! A backend instance represents an [`Adapter`]. The [`Device`] on it can be lost (reset, removed,
//! abandoned after a timeout), and the next call then opens another one. Objects created on a
//! device keep it alive and become unusable with it.
//!
//! Wgpu reports errors through error scopes, which are per thread: every fallible call runs inside
//! [`Device::watch`], and errors reported elsewhere are logged. Nothing reaches wgpu's own handler,
//! which panics.

use crate::driver_cache::DriverCache;
use crate::emit::Traits;
use crate::memory::Pool;
use crate::spirv::FloatControls;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use vyre_driver::BackendError;

/// Id under which the backend is registered.
pub const BACKEND_ID: &str = "wgpu";

/// Features that vyre uses if the adapter has them.
const WANTED: wgpu::Features = wgpu::Features::SHADER_F64
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::PIPELINE_CACHE)
    .union(wgpu::Features::TIMESTAMP_QUERY)
    .union(wgpu::Features::PASSTHROUGH_SHADERS);

/// How shaders are passed to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShaderLanguage {
    /// SPIR-V written by vyre, decorated to be strict.
    StrictSpirv(FloatControls),
    /// Naga's module; its float arithmetic is up to wgpu and the driver.
    Module,
}

/// All adapters of the machine, best first: real GPUs before processors behind a GPU interface.
pub(crate) fn adapters() -> &'static [wgpu::Adapter] {
    static ADAPTERS: LazyLock<Vec<wgpu::Adapter>> = LazyLock::new(|| {
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        let descriptor = wgpu::InstanceDescriptor {
            backends,
            // Validation layers are for debugging drivers; debug builds would look for them.
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        };
        let instance = wgpu::Instance::new(descriptor);
        let mut found = ready(instance.enumerate_adapters(backends)).unwrap_or_default();
        found.sort_by_key(|adapter| rank(adapter.get_info().device_type));
        found
    });
    &ADAPTERS
}

fn rank(kind: wgpu::DeviceType) -> u32 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Polls one of wgpu's futures once. Outside browsers they are ready immediately.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Driver properties that no interface reports; each was observed on a real driver.
pub(crate) fn known_traits(info: &wgpu::AdapterInfo) -> Traits {
    // Mesa's llvmpipe ends loops after 65,535 iterations, and its code generator folds x - x, x * 0
    // and x + 0.
    let llvmpipe = info.driver == "llvmpipe";
    let fixed_size = info.subgroup_min_size == info.subgroup_max_size && info.subgroup_max_size <= 64;
    Traits {
        fused_fma: false,
        folds_floats: llvmpipe,
        rewrites_floats: false,
        inlines_uniforms: llvmpipe,
        miscounts_exits: llvmpipe,
        confuses_zeros: llvmpipe,
        subgroup_size: if fixed_size { info.subgroup_max_size } else { 0 },
        loop_limit: llvmpipe.then_some(65_535),
        // Llvmpipe has room for 80, of which its own rewriting takes a few.
        nesting_limit: llvmpipe.then_some(72),
    }
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    pub(crate) features: wgpu::Features,
    /// Nanoseconds per tick of timestamps.
    pub(crate) tick: f32,
    pub(crate) pool: Pool,
    /// The driver's pipeline cache, if it has one.
    pub(crate) cache: Option<DriverCache>,
    lost: Arc<Loss>,
}

#[derive(Debug, Default)]
struct Loss {
    happened: AtomicBool,
    reason: Mutex<String>,
}

impl Loss {
    fn set(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        self.happened.store(true, Ordering::Release);
    }
}

impl Device {
    pub(crate) fn open(adapter: &wgpu::Adapter) -> Result<Device, BackendError> {
        let features = adapter.features() & WANTED;
        let limits = adapter.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("vyre"),
            required_features: features,
            required_limits: limits.clone(),
            ..Default::default()
        };
        let name = adapter.get_info().name;
        let unusable = |why: String| BackendError::new(format!("adapter `{name}` provides no device: {why}"));
        let opened = ready(adapter.request_device(&descriptor));
        let (device, queue) = opened
            .ok_or_else(|| unusable("the request does not finish".into()))?
            .map_err(|error| unusable(error.to_string()))?;
        device.on_uncaptured_error(Arc::new(|error| tracing::error!("wgpu: {error}")));
        let lost = Arc::new(Loss::default());
        let loss = lost.clone();
        device.set_device_lost_callback(move |reason, message| loss.set(format!("{reason:?}: {message}")));
        let tick = queue.get_timestamp_period();
        let pool = Pool::default();
        let cache = DriverCache::open(&device, features, &adapter.get_info());
        Ok(Device { device, queue, limits, features, tick, pool, cache, lost })
    }

    /// Marks the device as unusable; the next call opens another one.
    pub(crate) fn give_up(&self, reason: &str) {
        self.lost.set(reason.into());
    }

    /// Fails once the device is lost.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if !self.is_lost() {
            return Ok(());
        }
        let message = self.lost.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(BackendError::DeviceLost { backend: BACKEND_ID.into(), message })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.happened.load(Ordering::Acquire)
    }

    /// Runs wgpu calls and returns the first error that they report.
    pub(crate) fn watch<T>(&self, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let filters =
            [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
        let [internal, memory, validation] = filters.map(|filter| self.device.push_error_scope(filter));
        let done = work();
        // Innermost scope first.
        let faults = [ready(validation.pop()), ready(memory.pop()), ready(internal.pop())];
        match faults.into_iter().flatten().flatten().next() {
            Some(fault) => Err(fault),
            None => Ok(done),
        }
    }

    /// A new buffer, zeroed.
    pub(crate) fn buffer(&self, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, BackendError> {
        if bytes > self.limits.max_buffer_size {
            let limit = self.limits.max_buffer_size;
            let name = format!("a buffer of {bytes} bytes (at most {limit} on its device)");
            return Err(BackendError::UnsupportedFeature { name, backend: BACKEND_ID.into() });
        }
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        self.watch(|| self.device.create_buffer(&descriptor)).map_err(|fault| self.fault(fault, bytes))
    }

    /// Translates an error that wgpu reported into the caller's error.
    pub(crate) fn fault(&self, fault: wgpu::Error, requested_bytes: u64) -> BackendError {
        if let Err(lost) = self.check() {
            return lost;
        }
        match fault {
            wgpu::Error::OutOfMemory { .. } => {
                BackendError::DeviceOutOfMemory { backend: BACKEND_ID.into(), requested_bytes }
            }
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                BackendError::DispatchFailed { backend: BACKEND_ID.into(), message: description }
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_lost() {
            // Dropping the last handle waits for the work, which might never end.
            let (device, queue) = (self.device.clone(), self.queue.clone());
            std::thread::spawn(move || drop((device, queue)));
        }
    }
}

/// An adapter and its device, which is opened on demand.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) info: wgpu::AdapterInfo,
    current: Mutex<Option<Arc<Device>>>,
}

impl Adapter {
    pub(crate) fn new(adapter: wgpu::Adapter) -> Adapter {
        Adapter { info: adapter.get_info(), adapter, current: Mutex::default() }
    }

    /// The current device, or a new one if it was lost.
    pub(crate) fn device(&self) -> Result<Arc<Device>, BackendError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = current.as_ref().filter(|device| !device.is_lost()) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device::open(&self.adapter)?);
        *current = Some(device.clone());
        Ok(device)
    }
}
