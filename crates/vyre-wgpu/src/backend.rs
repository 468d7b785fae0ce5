//! The `wgpu` backend and its registration.

use crate::compiled::{Compiled, Recipe};
use crate::device::{Adapter, BACKEND_ID, adapters, known_traits};
use crate::emit::FOLD;
use crate::memory::Resident;
use crate::run::{fold, named, run, run_all};
use crate::self_test::{Findings, examine};
use crate::wgpu_device::{Identity, WgpuDevice};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use vyre_driver::native::{Built, Failed, Form, Job, Native, NativeBackend, NativeDevice};
use vyre_driver::registry::{
    BackendCapability, BackendDevices, BackendPrecedence, BackendRegistration, stamp_of_files,
};
use vyre_driver::{
    BackendError, DeviceClass, DeviceProfile, DeviceTimingQuality, DispatchConfig, default_supported_ops,
};
use vyre_foundation::ir::OpId;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::Launch;
use vyre_foundation::optimize::iteration_bound;

/// Reference this to link the registration below: a static library omits anything unreferenced.
pub static LINKED: u8 = 0;

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(Wgpu::new()?)), supported_ops: default_supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 50 } }
inventory::submit! {
    BackendDevices {
        id: BACKEND_ID,
        names: || Ok(device_names()),
        open: |device| Ok(Box::new(Wgpu::open(device)?)),
        stamp: driver_stamp,
    }
}

/// Stamp of the files through which the Vulkan loader finds drivers. On other platforms drivers
/// come with the system.
fn driver_stamp() -> String {
    let lists = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"].map(std::env::var_os);
    let mut paths: Vec<PathBuf> =
        lists.iter().flatten().flat_map(|list| std::env::split_paths(list).collect::<Vec<_>>()).collect();
    paths.extend(
        ["/usr/share", "/usr/local/share", "/etc"].map(|folder| Path::new(folder).join("vulkan/icd.d")),
    );
    paths.extend(std::env::home_dir().map(|home| home.join(".local/share/vulkan/icd.d")));
    stamp_of_files(&paths)
}

/// Names of the adapters, best first; software adapters are marked.
fn device_names() -> Vec<String> {
    let name = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        let software = if info.device_type == wgpu::DeviceType::Cpu { ", a software adapter" } else { "" };
        format!("{} ({:?}{software})", info.name, info.backend)
    };
    adapters().iter().map(name).collect()
}

/// A GPU, or a processor behind a GPU interface.
///
/// ```
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_wgpu::Wgpu;
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(
///     vec![out],
///     [1, 1, 1],
///     vec![Node::store("out", Expr::u32(0), Expr::u32(9))],
/// );
/// // There may be no adapter on this machine.
/// if let Ok(gpu) = Wgpu::new() {
///     assert_eq!(gpu.dispatch(&program, &[], &DispatchConfig::default())?, [[9, 0, 0, 0]]);
/// }
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct Wgpu {
    native: Native<WgpuDevice>,
}

impl NativeBackend for Wgpu {
    type Device = WgpuDevice;

    fn native(&self) -> &Native<WgpuDevice> {
        &self.native
    }
}

vyre_driver::exit_handlers!();

impl Wgpu {
    /// Opens the best adapter.
    pub fn new() -> Result<Wgpu, BackendError> {
        Wgpu::open(0)
    }

    /// Opens the adapter with this index; 0 is the best.
    pub fn open(device: u32) -> Result<Wgpu, BackendError> {
        Wgpu::open_with(device, Translation::Best)
    }

    /// Like [`open`](Self::open), but wgpu translates the kernels, as it does on every interface
    /// other than Vulkan. The profile reports how the device then treats floats.
    pub fn open_translated(device: u32) -> Result<Wgpu, BackendError> {
        Wgpu::open_with(device, Translation::Wgpu)
    }

    fn open_with(device: u32, translation: Translation) -> Result<Wgpu, BackendError> {
        let all = adapters();
        let adapter = all.get(device as usize).ok_or_else(|| {
            let message = match all.len() {
                0 => "no Vulkan, Metal or DX12 adapter was found on this machine".into(),
                count => format!("there is no `{BACKEND_ID}:{device}`: this machine has {count} adapters"),
            };
            BackendError::new(message)
        })?;
        let adapter = Arc::new(Adapter::new(adapter.clone()));
        let identity = identity((device, translation), &adapter)?;
        end_after_own_threads();
        Ok(Wgpu::on(WgpuDevice::new(adapter, &identity)))
    }

    pub(crate) fn on(gpu: WgpuDevice) -> Wgpu {
        Wgpu { native: Native::new(gpu) }
    }
}

/// Elements per invocation on software adapters, where each workgroup costs microseconds. On
/// llvmpipe, a saxpy of 2^20 elements takes 19.7 ms of device time with one element each and 16.9
/// ms with eight.
const SOFTWARE_ELEMENTS: u32 = 8;

/// Who translates kernels for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Translation {
    /// Vyre if the interface is Vulkan, otherwise wgpu.
    Best,
    Wgpu,
}

fn identity(opened: (u32, Translation), adapter: &Arc<Adapter>) -> Result<Identity, BackendError> {
    static KNOWN: LazyLock<Mutex<HashMap<(u32, Translation), Identity>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(identity) = known.get(&opened) {
        return Ok(*identity);
    }
    let (device, translation) = opened;
    let mut features = adapter.device()?.features;
    if translation == Translation::Wgpu {
        features.remove(wgpu::Features::PASSTHROUGH_SHADERS);
    }
    let findings = examine(adapter, features, known_traits(&adapter.info));
    let id = if device == 0 { BACKEND_ID } else { format!("{BACKEND_ID}:{device}").leak() };
    let profile = profile(id, adapter, &findings)?;
    let identity = Identity { profile, traits: findings.traits, language: findings.language };
    known.insert(opened, identity);
    Ok(identity)
}

/// Profile of an adapter: what it reports and what the self-test found. Names live as long as the
/// process, one set per adapter.
fn profile(id: &'static str, adapter: &Adapter, findings: &Findings) -> Result<DeviceProfile, BackendError> {
    let info = &adapter.info;
    let device = adapter.device()?;
    let (limits, features) = (&device.limits, device.features);
    let has = |feature: wgpu::Features| features.contains(feature);
    let subgroups = has(wgpu::Features::SUBGROUP) && findings.traits.subgroup_size > 0;
    let int64 = has(wgpu::Features::SHADER_INT64);
    Ok(DeviceProfile {
        device_name: info.name.clone().leak(),
        driver_version: format!(
            "{} {} ({:?}), vyre-wgpu {}",
            info.driver,
            info.driver_info,
            info.backend,
            env!("VYRE_BUILD_ID")
        )
        .leak(),
        device_class: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => DeviceClass::Discrete,
            wgpu::DeviceType::Cpu => DeviceClass::Software,
            wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => {
                DeviceClass::Integrated
            }
        },
        supports_subgroup_ops: subgroups,
        has_subgroup_shuffle: subgroups,
        subgroup_size: if subgroups { findings.traits.subgroup_size } else { 0 },
        has_shared_memory: true,
        max_shared_memory_bytes: limits.max_compute_workgroup_storage_size,
        // Elements of one or two bytes are handled as parts of words, which every device supports.
        supports_f16: true,
        supports_bf16: true,
        supports_narrow_storage: true,
        // The bits of an f64 are handled as a 64-bit integer.
        supports_f64: has(wgpu::Features::SHADER_F64) && int64,
        supports_int64: int64,
        supports_atomic64: int64 && has(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS),
        max_workgroup_size: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ],
        max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
        // A grid that exceeds the device's axes is folded.
        max_workgroups_per_dimension: u32::MAX,
        max_storage_buffer_binding_size: limits.max_storage_buffer_binding_size,
        timing_quality: if has(wgpu::Features::TIMESTAMP_QUERY) {
            DeviceTimingQuality::DeviceTimestamps
        } else {
            DeviceTimingQuality::HostEnqueueWait
        },
        supports_device_timestamps: has(wgpu::Features::TIMESTAMP_QUERY),
        strict_float: findings.strict,
        float_departures: findings.departures,
        ..DeviceProfile::conservative(id)
    })
}

impl NativeDevice for WgpuDevice {
    type Code = Compiled;
    type Memory = Resident;

    fn id(&self) -> &'static str {
        self.id
    }

    fn profile(&self) -> DeviceProfile {
        self.profile
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        &self.supported
    }

    fn admit(&self, kernel: &Kernel, config: &DispatchConfig) -> Result<(), BackendError> {
        let own = self.profile.subgroup_size;
        match config.subgroup_size.filter(|&size| kernel.needs.subgroups && size != own) {
            Some(size) => Err(self.unsupported(format!("subgroups of {size} lanes (its device has {own})"))),
            None => Ok(()),
        }
    }

    /// Elements per invocation. If the driver limits an invocation's loops, one invocation runs the
    /// loops of several elements only if they are proved short.
    fn usual_elements(&self, kernel: &Kernel) -> u32 {
        if self.profile.device_class != DeviceClass::Software {
            return 1;
        }
        // Every region gets a loop over the elements, which starts one iteration more than there
        // are elements.
        let short = |limit: u64| {
            let each = iteration_bound(kernel).and_then(|bound| bound.checked_add(kernel.body.len() as u64));
            let all = each.and_then(|each| each.checked_mul(u64::from(SOFTWARE_ELEMENTS) + 1));
            all.is_some_and(|all| all <= limit)
        };
        if self.traits.loop_limit.is_none_or(short) { SOFTWARE_ELEMENTS } else { 1 }
    }

    /// Folds a grid that exceeds the device's axes.
    fn form_of_launch(&self, form: Form, launch: &Launch) -> Result<Form, BackendError> {
        if launch.grid.iter().all(|&groups| groups <= FOLD) {
            return Ok(form);
        }
        let most = self.adapter.device()?.limits.max_compute_workgroups_per_dimension;
        let folded = launch.grid.iter().any(|&groups| groups > most);
        if folded && fold(launch.grid).is_none() {
            let grid = launch.grid;
            return Err(self.unsupported(format!("a grid of {grid:?} workgroups, more than 2^32 in all")));
        }
        Ok(Form { folded, ..form })
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
        if let Some(limit) = self.left_behind(kernel) {
            return Err(named(kernel, BackendError::Timeout { backend: self.id.into(), limit }));
        }
        let recipe = Recipe { kernel, form, traits: &self.traits, language: self.language };
        Compiled::build(&self.adapter.device()?, &recipe).inspect_err(|error| {
            if let BackendError::Timeout { limit, .. } = error {
                self.leave_behind(kernel, *limit);
            }
        })
    }

    fn is_stale(&self, code: &Compiled) -> bool {
        code.device.is_lost()
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        run(self, job)
    }

    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        run_all(self, jobs)
    }

    fn batch_items(&self) -> usize {
        usize::MAX
    }

    /// Results reach the caller's memory only after success.
    fn may_spoil(&self, _traps: bool, _config: &DispatchConfig) -> bool {
        false
    }

    fn allocate(&self, bytes: usize) -> Result<Resident, BackendError> {
        Resident::new(&self.adapter, bytes)
    }

    fn write(&self, resident: &mut Resident, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        resident.upload(offset, bytes)
    }

    fn read(&self, resident: &Resident, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        resident.download(offset, bytes)
    }
}
