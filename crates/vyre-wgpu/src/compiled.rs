//! A kernel compiled for one form of dispatch on one device, and the memory that its dispatches
//! use.
//!
//! [`DispatchMemory`] is everything that one dispatch needs on the device: a buffer per binding,
//! parameters, status, a readback buffer, and the bind group that names them. It is reused for
//! dispatches of the same sizes, so a repeated dispatch creates no object but its command buffer.

use crate::device::{BACKEND_ID, Device, ShaderLanguage};
use crate::emit::{ENTRY, Layout, Traits, own_rounds};
use crate::memory::{READBACK, STORAGE, UNIFORM, failed};
use crate::shader::Shader;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use vyre_driver::native::{Built, Form};
use vyre_driver::{BackendError, Unfinished, within};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::optimize::iteration_bound;

/// Maximum number of idle dispatch memories per variant: as many calls of one kernel can overlap
/// without allocating. Chosen, not measured.
const MOST_IDLE: usize = 4;

/// Size of the status: a word for the outcome and a word for a trap's code.
pub(crate) const STATUS_BYTES: u64 = 8;

/// A compiled kernel.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) device: Arc<Device>,
    pub(crate) layout: Layout,
    pub(crate) pipeline: wgpu::ComputePipeline,
    /// Iteration limit to check at each dispatch; set if the driver limits loops and the kernel
    /// alone does not prove that its loops stay below the limit.
    pub(crate) most_rounds: Option<u64>,
    bindings: wgpu::BindGroupLayout,
    memories: Mutex<Vec<DispatchMemory>>,
}

/// Inputs to the compilation of a variant.
pub(crate) struct Recipe<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) form: Form,
    pub(crate) traits: &'a Traits,
    pub(crate) language: ShaderLanguage,
}

impl Compiled {
    pub(crate) fn build(device: &Arc<Device>, recipe: &Recipe<'_>) -> Result<Built<Compiled>, BackendError> {
        let shader = Shader::new(recipe.kernel, recipe.form, recipe.traits)?;
        let name = recipe.kernel.display_name();
        let storage = shader.layout().bindings.len() + usize::from(shader.layout().status);
        let most = device.limits.max_storage_buffers_per_shader_stage;
        if storage > most as usize {
            let name =
                format!("the {storage} storage buffers of kernel `{name}` (at most {most} on its device)");
            return Err(BackendError::UnsupportedFeature { name, backend: BACKEND_ID.into() });
        }
        let spirv = match recipe.language {
            ShaderLanguage::StrictSpirv(controls) => Some(shader.spirv(controls)?),
            ShaderLanguage::Module => None,
        };
        let shader = Arc::new(shader);
        let made = {
            let (device, shader, name) = (device.clone(), shader.clone(), name.to_string());
            within("compile-wgpu", COMPILE_LIMIT, move || {
                device.watch(|| create(&device, &shader, spirv, &name))
            })
        };
        let (bindings, pipeline) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(fault)) => return Err(device.check().err().unwrap_or_else(|| not_compiled(name, &fault))),
            Err(Unfinished::Late) => {
                device.give_up(&format!("the driver's compiler did not finish kernel `{name}`"));
                let backend = format!("{BACKEND_ID}, compiling kernel `{name}`");
                return Err(BackendError::Timeout { backend, limit: COMPILE_LIMIT });
            }
            Err(unfinished) => return Err(not_compiled(name, &unfinished)),
        };
        if let Some(cache) = &device.cache {
            cache.note_compile();
        }
        let limit = recipe.traits.loop_limit;
        let limit = limit.map(|limit| limit.saturating_sub(own_rounds(&shader.kernel, recipe.form)));
        let proved = |limit: u64| iteration_bound(&shader.kernel).is_some_and(|bound| bound <= limit);
        let code = Compiled {
            device: device.clone(),
            most_rounds: limit.filter(|&limit| !proved(limit)),
            layout: shader.emitted.layout.clone(),
            pipeline,
            bindings,
            memories: Mutex::default(),
        };
        Ok(Built { kernel: shader.kernel.clone(), code, bytes: 0 })
    }

    /// Dispatch memory for these sources, reused or new.
    pub(crate) fn memory(
        &self,
        sources: Vec<BindingSource>,
        readback_bytes: u64,
    ) -> Result<DispatchMemory, BackendError> {
        {
            let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |memory: &DispatchMemory| {
                memory.sources == sources
                    && memory.readback.as_ref().map_or(0, wgpu::Buffer::size) >= readback_bytes
            };
            if let Some(known) = memories.iter().position(fits) {
                return Ok(memories.swap_remove(known));
            }
        }
        self.new_memory(sources, readback_bytes)
    }

    fn new_memory(
        &self,
        sources: Vec<BindingSource>,
        readback_bytes: u64,
    ) -> Result<DispatchMemory, BackendError> {
        let device = &*self.device;
        let take = |bytes: u64, usage| device.pool.take(device, bytes, usage);
        let mut buffers = Vec::with_capacity(sources.len());
        for source in &sources {
            buffers.push(match source {
                BindingSource::Own(bytes) => take(*bytes, STORAGE)?,
                BindingSource::Resident(buffer) => buffer.clone(),
            });
        }
        let parameters = take(u64::from(self.layout.words) * 4, UNIFORM)?;
        let status = if self.layout.status { Some(take(STATUS_BYTES, STORAGE)?) } else { None };
        let readback = if readback_bytes > 0 { Some(take(readback_bytes, READBACK)?) } else { None };
        let all = std::iter::once(&parameters).chain(&buffers).chain(&status);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = all
            .enumerate()
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &self.bindings, entries: &entries };
        let group = device.watch(|| device.device.create_bind_group(&descriptor));
        let group = group.map_err(|fault| device.fault(fault, 0))?;
        Ok(DispatchMemory { sources, buffers, parameters, status, readback, group, written: Vec::new() })
    }

    /// Keeps dispatch memory for reuse.
    pub(crate) fn keep(&self, memory: DispatchMemory) {
        let dropped = {
            let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
            memories.push(memory);
            if memories.len() > MOST_IDLE { Some(memories.remove(0)) } else { None }
        };
        if let Some(memory) = dropped {
            memory.give_back(&self.device);
        }
    }

    /// Keeps the process alive while abandoned work runs, as long as
    /// [`process_exit`](vyre_driver::process_exit) allows: the driver's threads do not survive
    /// process exit.
    fn leave_behind(&self, submission: wgpu::SubmissionIndex) {
        let device = self.device.clone();
        let waiting = move || {
            let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
            // The outcome no longer matters.
            let _ = device.device.poll(wait);
        };
        let _ = within("left-wgpu", Duration::ZERO, waiting);
    }

    /// Waits for work to finish and returns an error if it failed.
    pub(crate) fn wait(
        &self,
        submission: wgpu::SubmissionIndex,
        timeout: Option<Duration>,
    ) -> Result<(), BackendError> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout };
        match self.device.device.poll(wait) {
            Ok(_) => self.device.check(),
            Err(wgpu::PollError::Timeout) => {
                // The work cannot be stopped; the next caller gets a device that is free.
                self.device.give_up("a dispatch ran past its deadline and was abandoned");
                self.leave_behind(submission);
                Err(BackendError::Timeout { backend: BACKEND_ID.into(), limit: timeout.unwrap_or_default() })
            }
            Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) => Err(failed(error.to_string())),
        }
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let memories = self.memories.get_mut().unwrap_or_else(PoisonError::into_inner);
        for memory in memories.drain(..) {
            memory.give_back(&self.device);
        }
    }
}

/// Source of a binding's memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BindingSource {
    /// A buffer of this many bytes, owned by the dispatch memory.
    Own(u64),
    /// A resident buffer.
    Resident(wgpu::Buffer),
}

/// Device memory of one dispatch.
#[derive(Debug)]
pub(crate) struct DispatchMemory {
    sources: Vec<BindingSource>,
    /// The buffer of each binding.
    pub(crate) buffers: Vec<wgpu::Buffer>,
    pub(crate) parameters: wgpu::Buffer,
    pub(crate) status: Option<wgpu::Buffer>,
    pub(crate) readback: Option<wgpu::Buffer>,
    pub(crate) group: wgpu::BindGroup,
    /// Contents of the parameters; empty if unknown.
    pub(crate) written: Vec<u8>,
}

impl DispatchMemory {
    fn give_back(self, device: &Device) {
        let own = self.buffers.into_iter().zip(self.sources);
        let own =
            own.filter_map(|(buffer, source)| matches!(source, BindingSource::Own(_)).then_some(buffer));
        for buffer in own.chain([self.parameters]).chain(self.status).chain(self.readback) {
            device.pool.give_back(buffer);
        }
    }
}

/// Time limit for the driver's compiler. It cannot be stopped, so one that takes longer is
/// abandoned. Chosen for drivers whose time doubles with the depth of an expression (docs/wgpu.md),
/// not measured.
const COMPILE_LIMIT: Duration = Duration::from_secs(120);

fn not_compiled(name: &str, why: &dyn std::fmt::Display) -> BackendError {
    let message = format!("kernel `{name}`: {why}");
    BackendError::KernelCompileFailed { backend: BACKEND_ID.into(), message }
}

/// Compiles a shader with the driver.
fn create(
    device: &Device,
    shader: &Shader,
    spirv: Option<Vec<u32>>,
    name: &str,
) -> (wgpu::BindGroupLayout, wgpu::ComputePipeline) {
    let bindings = bind_group_layout(device, shader);
    let module = shader_module(device, shader, spirv, name);
    let layout = device.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&bindings)],
        immediate_size: 0,
    });
    let pipeline = device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(name),
        layout: Some(&layout),
        module: &module,
        entry_point: Some(ENTRY),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Kernels zero their own workgroup memory.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: device.cache.as_ref().map(|cache| &cache.cache),
    });
    (bindings, pipeline)
}

fn bind_group_layout(device: &Device, shader: &Shader) -> wgpu::BindGroupLayout {
    let layout = shader.layout();
    let storage = |read_only: bool| wgpu::BufferBindingType::Storage { read_only };
    let buffers = layout.bindings.iter().map(|&id| storage(!shader.kernel.buffer(id).stored));
    let status = layout.status.then(|| storage(false));
    let kinds = std::iter::once(wgpu::BufferBindingType::Uniform).chain(buffers).chain(status);
    let entries: Vec<wgpu::BindGroupLayoutEntry> = kinds
        .enumerate()
        .map(|(binding, ty)| wgpu::BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        })
        .collect();
    device
        .device
        .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

fn shader_module(
    device: &Device,
    shader: &Shader,
    spirv: Option<Vec<u32>>,
    name: &str,
) -> wgpu::ShaderModule {
    let [x, y, z] = shader.emitted.workgroup;
    match spirv {
        Some(words) => {
            let entry = wgpu::PassthroughShaderEntryPoint { name: ENTRY.into(), workgroup_size: (x, y, z) };
            let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
                label: Some(name),
                entry_points: Cow::Borrowed(std::slice::from_ref(&entry)),
                spirv: Some(Cow::Owned(words)),
                ..Default::default()
            };
            // SAFETY: naga validated and wrote the module, and only decorations were added; its
            // interface matches the layout; every access is in range by construction (`emit`), and
            // loops end by the kernel's rules.
            unsafe { device.device.create_shader_module_passthrough(descriptor) }
        }
        None => {
            let source = wgpu::ShaderSource::Naga(Cow::Owned(shader.emitted.module.clone()));
            let checks =
                wgpu::ShaderRuntimeChecks { int_div_checks: true, ..wgpu::ShaderRuntimeChecks::unchecked() };
            let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source };
            // SAFETY: as above: accesses are in range by construction, and loops end by the
            // kernel's rules.
            unsafe { device.device.create_shader_module_trusted(descriptor, checks) }
        }
    }
}
