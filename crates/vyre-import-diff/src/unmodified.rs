//! Runs an unmodified shader through the wgpu crate on a software adapter.

use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use vyre_foundation::ir::Access;
use vyre_import::{Options, ShaderBinding};

/// A device and a pipeline for the shader.
pub(crate) struct Unmodified {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    /// Lanes per subgroup.
    pub(crate) lanes: u32,
}

fn ready<T>(future: impl Future<Output = T>) -> Result<T, String> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err("wgpu does not answer at once".into()),
    }
}

const WANTED: wgpu::Features = wgpu::Features::SHADER_F64
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS)
    .union(wgpu::Features::SHADER_FLOAT32_ATOMIC)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::SUBGROUP_BARRIER);

impl Unmodified {
    pub(crate) fn new(module: naga::Module, options: &Options) -> Result<Unmodified, String> {
        let descriptor = wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        };
        let instance = wgpu::Instance::new(descriptor);
        let adapters = ready(instance.enumerate_adapters(wgpu::Backends::VULKAN))?;
        let is_software = |adapter: &wgpu::Adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let adapter = adapters.into_iter().find(is_software).ok_or("there is no software adapter")?;
        let lanes = adapter.get_info().subgroup_min_size;
        let wanted = wgpu::DeviceDescriptor {
            required_features: adapter.features() & WANTED,
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = ready(adapter.request_device(&wanted))?.map_err(|error| error.to_string())?;
        let constants: Vec<(&str, f64)> =
            options.set.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let pipeline = watch(&device, || {
            let source = wgpu::ShaderSource::Naga(Cow::Owned(module));
            let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: options.entry.as_deref(),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &constants,
                    ..Default::default()
                },
                cache: None,
            })
        })?;
        Ok(Unmodified { device, queue, pipeline, lanes })
    }

    /// Runs this grid of workgroups; returns the memory of the buffers that the shader writes, and
    /// the time from submission to completion of each round.
    pub(crate) fn run(
        &self,
        bindings: &[(&ShaderBinding, Access)],
        inputs: &[Vec<u8>],
        grid: [u32; 3],
        rounds: usize,
    ) -> Result<(Vec<Vec<u8>>, Vec<Duration>), String> {
        let buffers: Vec<wgpu::Buffer> =
            bindings.iter().zip(inputs).map(|((_, access), bytes)| self.buffer(*access, bytes)).collect();
        let mut times = Vec::new();
        for _ in 0..rounds {
            for ((buffer, bytes), (_, access)) in buffers.iter().zip(inputs).zip(bindings) {
                if *access == Access::ReadWrite {
                    self.queue.write_buffer(buffer, 0, &padded(bytes));
                }
            }
            self.queue.submit([]);
            self.wait()?;
            let start = Instant::now();
            watch(&self.device, || self.submit(bindings, &buffers, grid))?;
            self.wait()?;
            times.push(start.elapsed());
        }
        let written = bindings.iter().zip(&buffers).zip(inputs);
        let written = written.filter(|(((_, access), _), _)| *access == Access::ReadWrite);
        let outputs = written.map(|((_, buffer), bytes)| self.download(buffer, bytes.len()));
        Ok((outputs.collect::<Result<_, _>>()?, times))
    }

    fn buffer(&self, access: Access, bytes: &[u8]) -> wgpu::Buffer {
        let usage = match access {
            Access::Uniform => wgpu::BufferUsages::UNIFORM,
            Access::Read | Access::ReadWrite | Access::Output | Access::Workgroup => {
                wgpu::BufferUsages::STORAGE
            }
        };
        let bytes = padded(bytes);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.len() as u64,
            usage: usage | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&buffer, 0, &bytes);
        buffer
    }

    fn submit(&self, bindings: &[(&ShaderBinding, Access)], buffers: &[wgpu::Buffer], grid: [u32; 3]) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            let groups =
                bindings.iter().filter_map(|(binding, _)| binding.group).max().map_or(0, |group| group + 1);
            for group in 0..groups {
                let own =
                    bindings.iter().zip(buffers).filter(|((binding, _), _)| binding.group == Some(group));
                let entries: Vec<_> = own
                    .map(|((binding, _), buffer)| wgpu::BindGroupEntry {
                        binding: binding.binding.unwrap_or(0),
                        resource: buffer.as_entire_binding(),
                    })
                    .collect();
                let layout = self.pipeline.get_bind_group_layout(group);
                let bound = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: None,
                    layout: &layout,
                    entries: &entries,
                });
                pass.set_bind_group(group, &bound, &[]);
            }
            pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
        }
        self.queue.submit([encoder.finish()]);
    }

    fn download(&self, buffer: &wgpu::Buffer, length: usize) -> Result<Vec<u8>, String> {
        let size = buffer.size();
        let copy = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, size);
        self.queue.submit([encoder.finish()]);
        copy.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait()?;
        let view = copy.get_mapped_range(..).map_err(|error| error.to_string())?;
        Ok(view.iter().copied().take(length).collect())
    }

    fn wait(&self) -> Result<(), String> {
        self.device.poll(wgpu::PollType::wait_indefinitely()).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Pads to 16 bytes: buffers consist of whole words, and uniforms of whole vectors.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
    bytes
}

/// Runs wgpu calls and returns the first error that they report.
fn watch<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> Result<T, String> {
    let filters =
        [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
    let [internal, memory, validation] = filters.map(|filter| device.push_error_scope(filter));
    let done = work();
    let faults = [ready(validation.pop())?, ready(memory.pop())?, ready(internal.pop())?];
    match faults.into_iter().flatten().next() {
        Some(fault) => Err(fault.to_string()),
        None => Ok(done),
    }
}
