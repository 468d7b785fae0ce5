//! Cost that vyre adds to hand-written wgpu code for the same saxpy, both in one run, end to end:
//! inputs written, outputs read back.
//!
//! ```text
//! cargo run --release -p vyre-wgpu --example overhead
//! ```
//!
//! The hand-written side keeps its pipeline, buffers, bind group and staging buffer; every call
//! writes all inputs and reads the result into its own memory. Calls alternate in random order;
//! medians are compared.

use naga::{
    AddressSpace, ArraySize, BinaryOperator, Binding, Block, BuiltIn, EntryPoint, Expression, Function,
    FunctionArgument, GlobalVariable, Handle, Module, Range, ResourceBinding, Scalar, ShaderStage, Span,
    Statement, StorageAccess, Type, TypeInner, VectorSize,
};
use std::borrow::Cow;
use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use vyre_driver::{CompiledPipeline, DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_wgpu::Wgpu;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region \"blas.saxpy\" {
    let i = invocation.x
    if i < len(y) { y[i] = a * x[i] + y[i] }
  }
}";

fn main() -> Result<(), Box<dyn Error>> {
    let gpu = Wgpu::new()?;
    let profile = gpu.device_profile();
    println!("{} ({:?}), {}", profile.device_name, profile.device_class, profile.driver_version);
    let compiled = gpu.compile_native(&parse(SAXPY)?, &DispatchConfig::default())?;
    let vyre = compiled.ok_or("wgpu compiles natively")?;
    for (bits, rounds) in [(10, 400), (20, 40)] {
        let count = 1_usize << bits;
        let hand = HandWritten::new(count)?;
        let (hand_time, vyre_time) = compare(&hand, &*vyre, count, rounds)?;
        let ratio = vyre_time.as_secs_f64() / hand_time.as_secs_f64();
        println!("2^{bits}: hand-written {hand_time:.1?}, vyre {vyre_time:.1?}, ratio {ratio:.3}");
    }
    Ok(())
}

/// Medians of both sides, after checking that they agree.
fn compare(
    hand: &HandWritten,
    vyre: &dyn CompiledPipeline,
    count: usize,
    rounds: usize,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let bytes =
        |scale: f32| -> Vec<u8> { (0..count).flat_map(|k| (k as f32 * scale).to_le_bytes()).collect() };
    let (a, x, y) = (1.5_f32.to_le_bytes(), bytes(0.25), bytes(-0.125));
    let config = DispatchConfig::default();
    let mut result = Vec::new();
    let mut slots = Vec::new();
    let mut by_hand = || hand.run(&a, &x, &y, &mut result);
    let mut by_vyre = || vyre.dispatch_borrowed_into(&[&a, &x, &y], &config, &mut slots);
    let mut times = [Vec::new(), Vec::new()];
    let mut state = 1_u32;
    for round in 0..rounds + 3 {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        for side in if state.is_multiple_of(2) { [0, 1] } else { [1, 0] } {
            let start = Instant::now();
            if side == 0 {
                by_hand()?
            } else {
                by_vyre()?
            }
            // The first rounds warm both sides up.
            if round >= 3 {
                times[side].push(start.elapsed());
            }
        }
    }
    if slots != [result] {
        return Err("the two sides do not agree".into());
    }
    let [hand, vyre] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    Ok((hand, vyre))
}

/// The equivalent code without vyre.
struct HandWritten {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    buffers: [wgpu::Buffer; 3],
    staging: wgpu::Buffer,
    count: usize,
}

impl HandWritten {
    fn new(count: usize) -> Result<HandWritten, Box<dyn Error>> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = ready(instance.request_adapter(&Default::default()))?;
        let adapter = adapter?;
        let descriptor = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
        let (device, queue) = ready(adapter.request_device(&descriptor))??;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Naga(Cow::Owned(saxpy_module())),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = |size: usize, usage| {
            let size = size as u64;
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let (to, from) = (wgpu::BufferUsages::COPY_DST, wgpu::BufferUsages::COPY_SRC);
        let storage = wgpu::BufferUsages::STORAGE | to | from;
        let buffers = [
            buffer(4, wgpu::BufferUsages::UNIFORM | to),
            buffer(count * 4, storage),
            buffer(count * 4, storage),
        ];
        let staging = buffer(count * 4, wgpu::BufferUsages::MAP_READ | to);
        let entries = [0, 1, 2].map(|k: u32| wgpu::BindGroupEntry {
            binding: k,
            resource: buffers[k as usize].as_entire_binding(),
        });
        let layout = pipeline.get_bind_group_layout(0);
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let group = device.create_bind_group(&descriptor);
        Ok(HandWritten { device, queue, pipeline, group, buffers, staging, count })
    }

    fn run(
        &self,
        a: &[u8],
        x: &[u8],
        y: &[u8],
        result: &mut Vec<u8>,
    ) -> Result<(), vyre_driver::BackendError> {
        let failed = |error: &dyn Error| vyre_driver::BackendError::new(error.to_string());
        for (buffer, bytes) in self.buffers.iter().zip([a, x, y]) {
            self.queue.write_buffer(buffer, 0, bytes);
        }
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &self.group, &[]);
            pass.dispatch_workgroups((self.count as u32).div_ceil(64), 1, 1);
        }
        encoder.copy_buffer_to_buffer(&self.buffers[2], 0, &self.staging, 0, self.staging.size());
        let submission_index = Some(self.queue.submit([encoder.finish()]));
        self.staging.map_async(wgpu::MapMode::Read, .., |_| {});
        let wait = wgpu::PollType::Wait { submission_index, timeout: None };
        self.device.poll(wait).map_err(|error| failed(&error))?;
        result.clear();
        result.extend_from_slice(&self.staging.get_mapped_range(..).map_err(|error| failed(&error))?);
        self.staging.unmap();
        Ok(())
    }
}

fn ready<T>(future: impl Future<Output = T>) -> Result<T, &'static str> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err("wgpu's futures are ready at once outside browsers"),
    }
}

/// `let i = global_id.x; if (i < arrayLength(&y)) { y[i] = a * x[i] + y[i]; }`
fn saxpy_module() -> Module {
    let mut module = Module::default();
    let ty = |module: &mut Module, inner| module.types.insert(Type { name: None, inner }, Span::UNDEFINED);
    let float = ty(&mut module, TypeInner::Scalar(Scalar::F32));
    let array = ty(&mut module, TypeInner::Array { base: float, size: ArraySize::Dynamic, stride: 4 });
    let id = ty(&mut module, TypeInner::Vector { size: VectorSize::Tri, scalar: Scalar::U32 });
    let storage = |access| AddressSpace::Storage { access };
    let globals = [
        (AddressSpace::Uniform, float),
        (storage(StorageAccess::LOAD), array),
        (storage(StorageAccess::LOAD | StorageAccess::STORE), array),
    ];
    let mut function = Function::default();
    let mut pointers = Vec::new();
    for (binding, (space, ty)) in globals.into_iter().enumerate() {
        let binding = Some(ResourceBinding { group: 0, binding: binding as u32 });
        let memory_decorations = naga::MemoryDecorations::empty();
        let variable = GlobalVariable { name: None, space, binding, ty, init: None, memory_decorations };
        let variable = module.global_variables.append(variable, Span::UNDEFINED);
        pointers.push(function.expressions.append(Expression::GlobalVariable(variable), Span::UNDEFINED));
    }
    let binding = Some(Binding::BuiltIn(BuiltIn::GlobalInvocationId));
    function.arguments.push(FunctionArgument { name: None, ty: id, binding });
    let id = function.expressions.append(Expression::FunctionArgument(0), Span::UNDEFINED);

    let mut block = Block::new();
    let emit = |function: &mut Function, block: &mut Block, expression| -> Handle<Expression> {
        let handle = function.expressions.append(expression, Span::UNDEFINED);
        block.push(Statement::Emit(Range::new_from_bounds(handle, handle)), Span::UNDEFINED);
        handle
    };
    let index = emit(&mut function, &mut block, Expression::AccessIndex { base: id, index: 0 });
    let length = emit(&mut function, &mut block, Expression::ArrayLength(pointers[2]));
    let less = Expression::Binary { op: BinaryOperator::Less, left: index, right: length };
    let condition = emit(&mut function, &mut block, less);
    let mut accept = Block::new();
    let body = &mut accept;
    let x = emit(&mut function, body, Expression::Access { base: pointers[1], index });
    let y = emit(&mut function, body, Expression::Access { base: pointers[2], index });
    let [a, x, old] =
        [pointers[0], x, y].map(|pointer| emit(&mut function, body, Expression::Load { pointer }));
    let product = Expression::Binary { op: BinaryOperator::Multiply, left: a, right: x };
    let product = emit(&mut function, body, product);
    let value = Expression::Binary { op: BinaryOperator::Add, left: product, right: old };
    let value = emit(&mut function, body, value);
    body.push(Statement::Store { pointer: y, value }, Span::UNDEFINED);
    block.push(Statement::If { condition, accept, reject: Block::new() }, Span::UNDEFINED);
    function.body = block;
    module.entry_points.push(EntryPoint {
        name: "main".into(),
        stage: ShaderStage::Compute,
        early_depth_test: None,
        workgroup_size: [64, 1, 1],
        workgroup_size_overrides: None,
        function,
        mesh_info: None,
        task_payload: None,
        incoming_ray_payload: None,
    });
    module
}
