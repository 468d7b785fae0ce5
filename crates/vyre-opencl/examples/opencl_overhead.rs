//! Cost that vyre adds to a hand-written OpenCL program for the same saxpy, both in one run, end to
//! end.
//!
//! ```text
//! cargo run --release -p vyre-opencl --example opencl_overhead
//! ```
//!
//! The hand-written side compiles its kernel and creates its queue and buffers once. Three forms
//! are compared: `borrowed` keeps its inputs and writes the result elsewhere, `bound` updates the
//! caller's memory in place, `resident` keeps everything on the device and reads the result back.
//! When the data is on the host, the hand-written side runs in two variants, one that copies to
//! device buffers and one with buffers on host memory, and vyre is compared with the faster one, at
//! the fastest of several workgroup sizes. Calls are interleaved in random order; medians are
//! compared.

#![allow(unsafe_code)] // OpenCL is a C interface.

use cl3::command_queue::{
    create_command_queue, enqueue_map_buffer, enqueue_nd_range_kernel, enqueue_read_buffer,
    enqueue_unmap_mem_object, enqueue_write_buffer,
};
use cl3::context::create_context;
use cl3::device::{CL_DEVICE_TYPE_ALL, get_device_ids};
use cl3::error_codes::error_text;
use cl3::event::release_event;
use cl3::kernel::{create_kernel, set_kernel_arg};
use cl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_READ_WRITE, CL_MEM_USE_HOST_PTR, create_buffer, release_mem_object,
};
use cl3::platform::get_platform_ids;
use cl3::program::{build_program, create_program_with_source};
use cl3::types::{
    CL_BLOCKING, CL_NON_BLOCKING, cl_command_queue, cl_context, cl_event, cl_int, cl_kernel, cl_mem,
};
use std::cell::Cell;
use std::error::Error;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use vyre_driver::{Binding, CompiledPipeline, DispatchConfig, VyreBackend};
use vyre_foundation::text::parse;
use vyre_opencl::OpenCl;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region \"blas.saxpy\" {
    let i = invocation.x
    if i < len(y) { y[i] = a * x[i] + y[i] }
  }
}";

const BY_HAND: &str = "__kernel void saxpy(float a, __global const float *x, __global float *y) {
  size_t i = get_global_id(0);
  y[i] = a * x[i] + y[i];
}";

/// Workgroup sizes of the hand-written side; 0 leaves the choice to the driver.
const LOCAL_SIZES: [usize; 4] = [0, 64, 1024, 4096];

const FACTOR: f32 = 0.5;

fn main() -> Result<(), Box<dyn Error>> {
    let opencl = OpenCl::new()?;
    let profile = opencl.device_profile();
    println!("{}, {}", profile.device_name, profile.driver_version);
    let compiled = opencl.compile_native(&parse(SAXPY)?, &DispatchConfig::default())?;
    let vyre = compiled.ok_or("opencl compiles natively")?;
    let hand = HandWritten::new()?;
    for (bits, rounds) in [(10, 1500), (24, 30)] {
        let data = Data::new(1 << bits);
        borrowed(&hand, &*vyre, &data, rounds)?.print(&format!("2^{bits} borrowed"));
        bound(&hand, &*vyre, &data, rounds)?.print(&format!("2^{bits} bound   "));
        resident(&hand, &opencl, &*vyre, &data, rounds)?.print(&format!("2^{bits} resident"));
    }
    Ok(())
}

struct Data {
    x: Vec<u8>,
    y: Vec<u8>,
}

impl Data {
    fn new(count: usize) -> Data {
        let bytes = |scale: f32| (0..count).flat_map(|k| (k as f32 * scale).to_le_bytes()).collect();
        Data { x: bytes(0.25), y: bytes(-0.125) }
    }

    fn count(&self) -> usize {
        self.x.len() / 4
    }
}

/// One contestant: its name and a call.
type Side<'a> = (String, Box<dyn FnMut() -> Result<(), Box<dyn Error>> + 'a>);

/// Medians per side; vyre's is last.
struct Medians(Vec<(String, Duration)>);

impl Medians {
    fn print(&self, form: &str) {
        let Some(((_, vyre), hand)) = self.0.split_last() else { return };
        for (name, median) in hand {
            println!("{form}: {name} {median:.1?}");
        }
        if let Some((name, best)) = hand.iter().min_by_key(|(_, median)| *median) {
            let ratio = vyre.as_secs_f64() / best.as_secs_f64();
            println!("{form}: vyre {vyre:.1?}, {ratio:.3} of hand-written {name}");
        }
    }
}

/// Calls all sides in random order, round by round.
fn measure(mut sides: Vec<Side<'_>>, rounds: usize) -> Result<Medians, Box<dyn Error>> {
    let mut times = vec![Vec::new(); sides.len()];
    let mut order: Vec<usize> = (0..sides.len()).collect();
    let mut state = 1_u32;
    for round in 0..rounds + 3 {
        for k in (1..order.len()).rev() {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            order.swap(k, state as usize % (k + 1));
        }
        for &side in &order {
            let start = Instant::now();
            (sides[side].1)()?;
            // The first rounds warm all sides up.
            if round >= 3 {
                times[side].push(start.elapsed());
            }
        }
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok(Medians(sides.into_iter().zip(times).map(|((name, _), times)| (name, median(times))).collect()))
}

fn borrowed(
    hand: &HandWritten,
    vyre: &dyn CompiledPipeline,
    data: &Data,
    rounds: usize,
) -> Result<Medians, Box<dyn Error>> {
    let (config, a) = (DispatchConfig::default(), FACTOR.to_le_bytes());
    let mut results = vec![data.y.clone(); LOCAL_SIZES.len() * 2];
    let mut slots = Vec::new();
    let mut sides: Vec<Side<'_>> = Vec::new();
    for (k, result) in results.iter_mut().enumerate() {
        let local = LOCAL_SIZES[k / 2];
        if k % 2 == 0 {
            let buffers = [hand.buffer(data.x.len())?, hand.buffer(data.y.len())?];
            let mut call = move || {
                hand.write(&buffers[0], &data.x)?;
                hand.write(&buffers[1], &data.y)?;
                hand.launch(&buffers, data.count(), local)?;
                hand.read(&buffers[1], result)
            };
            sides.push((format!("copied at {local}"), Box::new(move || Ok(call()?))));
        } else {
            // SAFETY: the memory outlives the buffers, which only this side uses.
            let buffers = unsafe { [hand.lent(&data.x)?, hand.lent(result)?] };
            let mut call = move || {
                result.copy_from_slice(&data.y);
                hand.launch_lent(&buffers, data.count(), local)
            };
            sides.push((format!("lent at {local}"), Box::new(move || Ok(call()?))));
        }
    }
    let mut call = || vyre.dispatch_borrowed_into(&[&a, &data.x, &data.y], &config, &mut slots);
    sides.push(("vyre".into(), Box::new(move || Ok(call()?))));
    let medians = measure(sides, rounds)?;
    check(&results, &slots[0])?;
    Ok(medians)
}

fn bound(
    hand: &HandWritten,
    vyre: &dyn CompiledPipeline,
    data: &Data,
    rounds: usize,
) -> Result<Medians, Box<dyn Error>> {
    let (config, a) = (DispatchConfig::default(), FACTOR.to_le_bytes());
    let mut results = vec![data.y.clone(); LOCAL_SIZES.len() * 2];
    let mut own = data.y.clone();
    let mut sides: Vec<Side<'_>> = Vec::new();
    for (k, result) in results.iter_mut().enumerate() {
        let local = LOCAL_SIZES[k / 2];
        if k % 2 == 0 {
            let buffers = [hand.buffer(data.x.len())?, hand.buffer(data.y.len())?];
            let mut call = move || {
                hand.write(&buffers[0], &data.x)?;
                hand.write(&buffers[1], result)?;
                hand.launch(&buffers, data.count(), local)?;
                hand.read(&buffers[1], result)
            };
            sides.push((format!("copied at {local}"), Box::new(move || Ok(call()?))));
        } else {
            // SAFETY: as above.
            let buffers = unsafe { [hand.lent(&data.x)?, hand.lent(result)?] };
            let call = move || hand.launch_lent(&buffers, data.count(), local);
            sides.push((format!("lent at {local}"), Box::new(move || Ok(call()?))));
        }
    }
    let mut call = || {
        let mut bindings = [Binding::Read(&a), Binding::Read(&data.x), Binding::ReadWrite(&mut own)];
        vyre.dispatch_bound(&mut bindings, &config)
    };
    sides.push(("vyre".into(), Box::new(move || Ok(call()?))));
    let medians = measure(sides, rounds)?;
    check(&results, &own)?;
    Ok(medians)
}

fn resident(
    hand: &HandWritten,
    opencl: &OpenCl,
    vyre: &dyn CompiledPipeline,
    data: &Data,
    rounds: usize,
) -> Result<Medians, Box<dyn Error>> {
    let config = DispatchConfig::default();
    let mut results = vec![data.y.clone(); LOCAL_SIZES.len()];
    let mut own = data.y.clone();
    let mut sides: Vec<Side<'_>> = Vec::new();
    for (result, local) in results.iter_mut().zip(LOCAL_SIZES) {
        let buffers = [hand.buffer(data.x.len())?, hand.buffer(data.y.len())?];
        hand.write(&buffers[0], &data.x)?;
        hand.write(&buffers[1], &data.y)?;
        let mut call = move || {
            hand.launch(&buffers, data.count(), local)?;
            hand.read(&buffers[1], result)
        };
        sides.push((format!("at {local}"), Box::new(move || Ok(call()?))));
    }
    let handles = [4, data.x.len(), data.y.len()].map(|bytes| opencl.allocate_resident(bytes));
    let [a, x, y] = handles;
    let handles = [a?, x?, y?];
    for (handle, bytes) in handles.iter().zip([&FACTOR.to_le_bytes()[..], &data.x, &data.y]) {
        opencl.upload_resident(*handle, 0, bytes)?;
    }
    let mut call = || {
        vyre.dispatch_bound(&mut handles.map(Binding::Resident), &config)?;
        opencl.download_resident(handles[2], 0, &mut own)
    };
    sides.push(("vyre".into(), Box::new(move || Ok(call()?))));
    let medians = measure(sides, rounds)?;
    check(&results, &own)?;
    handles.into_iter().try_for_each(|handle| opencl.free_resident(handle))?;
    Ok(medians)
}

fn check(results: &[Vec<u8>], vyre: &[u8]) -> Result<(), Box<dyn Error>> {
    let agree = results.iter().all(|result| result == vyre);
    if agree { Ok(()) } else { Err("the sides do not agree".into()) }
}

/// The equivalent code without vyre.
struct HandWritten {
    context: cl_context,
    queue: cl_command_queue,
    kernel: cl_kernel,
}

struct Buffer {
    memory: cl_mem,
    bytes: usize,
    /// Address at which the host sees it.
    mapped: Cell<cl_mem>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, and every call has waited for its commands.
        let _ = unsafe { release_mem_object(self.memory) };
    }
}

fn says(code: cl_int) -> String {
    error_text(code).to_string()
}

fn done(event: cl_event) -> Result<(), String> {
    // SAFETY: the caller owns the event.
    unsafe { release_event(event) }.map_err(says)
}

impl HandWritten {
    fn new() -> Result<HandWritten, Box<dyn Error>> {
        let platform = *get_platform_ids().map_err(says)?.first().ok_or("no platform")?;
        let device =
            *get_device_ids(platform, CL_DEVICE_TYPE_ALL).map_err(says)?.first().ok_or("no device")?;
        let context = create_context(&[device], null(), None, null_mut()).map_err(says)?;
        // SAFETY: the device belongs to the context.
        let queue = unsafe { create_command_queue(context, device, 0) }.map_err(says)?;
        let program = create_program_with_source(context, &[BY_HAND]).map_err(says)?;
        build_program(program, &[device], c"-cl-std=CL1.2", None, null_mut()).map_err(says)?;
        let kernel = create_kernel(program, c"saxpy").map_err(says)?;
        Ok(HandWritten { context, queue, kernel })
    }

    fn buffer(&self, bytes: usize) -> Result<Buffer, String> {
        // SAFETY: these flags take no host pointer.
        let memory = unsafe { create_buffer(self.context, CL_MEM_READ_WRITE, bytes, null_mut()) };
        Ok(Buffer { memory: memory.map_err(says)?, bytes, mapped: Cell::new(null_mut()) })
    }

    /// # Safety
    /// The memory outlives the buffer, and nothing else uses it while a command does.
    unsafe fn lent(&self, bytes: &[u8]) -> Result<Buffer, String> {
        let (flags, pointer) = (CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes.as_ptr().cast_mut().cast());
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { create_buffer(self.context, flags, bytes.len(), pointer) };
        Ok(Buffer { memory: memory.map_err(says)?, bytes: bytes.len(), mapped: Cell::new(null_mut()) })
    }

    fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), String> {
        let (pointer, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: the buffer is as long as the slice, which outlives the call's last command.
        let event = unsafe {
            enqueue_write_buffer(self.queue, buffer.memory, CL_NON_BLOCKING, 0, length, pointer, 0, null())
        };
        done(event.map_err(says)?)
    }

    fn launch(&self, [x, y]: &[Buffer; 2], count: usize, local: usize) -> Result<(), String> {
        let a = FACTOR;
        let local = local.min(count);
        // SAFETY: the arguments have the parameters' types, and the buffers have `count` elements.
        let event = unsafe {
            set_kernel_arg(self.kernel, 0, size_of::<f32>(), (&raw const a).cast()).map_err(says)?;
            for (position, buffer) in [(1, x), (2, y)] {
                let memory = (&raw const buffer.memory).cast();
                set_kernel_arg(self.kernel, position, size_of::<cl_mem>(), memory).map_err(says)?;
            }
            let local = if local == 0 { null() } else { &raw const local };
            enqueue_nd_range_kernel(self.queue, self.kernel, 1, null(), &raw const count, local, 0, null())
        };
        done(event.map_err(says)?)
    }

    fn read(&self, buffer: &Buffer, bytes: &mut [u8]) -> Result<(), String> {
        let (pointer, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the buffer is as long as the slice, and the call returns once the slice is
        // filled.
        let event = unsafe {
            enqueue_read_buffer(self.queue, buffer.memory, CL_BLOCKING, 0, length, pointer, 0, null())
        };
        done(event.map_err(says)?)
    }

    /// Lends the host's memory to the device for one launch: the host has it mapped at all other
    /// times.
    fn launch_lent(&self, buffers: &[Buffer; 2], count: usize, local: usize) -> Result<(), String> {
        let Buffer { memory, bytes, mapped } = &buffers[1];
        if !mapped.get().is_null() {
            // SAFETY: the previous call mapped it.
            let event = unsafe { enqueue_unmap_mem_object(self.queue, *memory, mapped.get(), 0, null()) };
            done(event.map_err(says)?)?;
        }
        self.launch(buffers, count, local)?;
        let (flags, mut at) = (CL_MAP_READ | CL_MAP_WRITE, null_mut());
        // SAFETY: the whole of a live buffer is mapped.
        let event = unsafe {
            enqueue_map_buffer(self.queue, *memory, CL_BLOCKING, flags, 0, *bytes, &mut at, 0, null())
        };
        mapped.set(at);
        done(event.map_err(says)?)
    }
}
