//! Runs dispatches.
//!
//! A dispatch writes its inputs, runs, and reads outputs and status back in one submission; a batch
//! is also one submission.

use crate::compiled::{BindingSource, DispatchMemory, STATUS_BYTES};
use crate::device::Device;
use crate::emit::{FOLD, TRAPPED, word};
use crate::memory::{Resident, failed, write_padded};
use crate::wgpu_device::WgpuDevice;
use std::time::Duration;
use vyre_driver::native::{BoundArgument, Failed, Job, Memory, Start};
use vyre_driver::{BackendError, DeviceClass};
use vyre_foundation::kernel::KernelBody;

pub(crate) type WgpuJob<'a, 'm> = Job<'a, 'm, WgpuDevice>;

/// An encoded dispatch.
struct Encoded {
    memory: DispatchMemory,
    /// Outputs in the readback buffer: argument and offset.
    outputs: Vec<(usize, u64)>,
    /// Offset of the status in the readback buffer.
    status: Option<u64>,
    /// Offset of the timestamps in the readback buffer.
    times: Option<u64>,
}

/// Runs one dispatch to completion.
pub(crate) fn run(gpu: &WgpuDevice, mut job: WgpuJob<'_, '_>) -> Result<Option<Duration>, BackendError> {
    let times = if job.timed { times(&job)? } else { None };
    let mut encoded = submit(gpu, std::slice::from_ref(&job), times)?;
    let encoded = encoded.pop().ok_or_else(|| failed("nothing was encoded".into()))?;
    receive(&mut job, encoded)
}

/// Runs dispatches in one submission.
pub(crate) fn run_all(gpu: &WgpuDevice, mut jobs: Vec<WgpuJob<'_, '_>>) -> Result<(), Failed> {
    let encoded = submit(gpu, &jobs, None).map_err(|error| Failed { done: 0, error })?;
    for (done, (job, encoded)) in jobs.iter_mut().zip(encoded).enumerate() {
        receive(job, encoded).map_err(|error| Failed { done, error })?;
    }
    Ok(())
}

/// Resources for timing the kernel; `None` if the device has no timestamps or the grid is empty.
fn times(job: &WgpuJob<'_, '_>) -> Result<Option<Times>, BackendError> {
    let device = &*job.variant.code.device;
    let can = device.features.contains(wgpu::Features::TIMESTAMP_QUERY);
    if can && !job.launch.grid.contains(&0) { Times::new(device).map(Some) } else { Ok(None) }
}

/// Encodes dispatches, submits them together and waits for completion.
fn submit(
    gpu: &WgpuDevice,
    jobs: &[WgpuJob<'_, '_>],
    times: Option<Times>,
) -> Result<Vec<Encoded>, BackendError> {
    let Some(first) = jobs.first() else { return Ok(Vec::new()) };
    let code = &first.variant.code;
    let device = &*code.device;
    jobs.iter().try_for_each(|job| check(gpu, job))?;
    let named = |error| named(&first.variant.kernel, error);
    let bytes = jobs.iter().flat_map(|job| job.arguments.iter()).map(|argument| argument.bytes as u64).sum();
    let submitted = device.watch(|| {
        let mut encoder = device.device.create_command_encoder(&Default::default());
        let encode = |job| encode(job, &mut encoder, times.as_ref());
        let encoded: Vec<Encoded> = jobs.iter().map(encode).collect::<Result<_, _>>()?;
        let submission = device.queue.submit([encoder.finish()]);
        for readback in encoded.iter().filter_map(|encoded| encoded.memory.readback.as_ref()) {
            // A failure surfaces when the mapped range is requested.
            readback.map_async(wgpu::MapMode::Read, .., |_| {});
        }
        Ok::<_, BackendError>((encoded, submission))
    });
    let submitted = submitted.map_err(|fault| named(device.fault(fault, bytes)))?;
    let (encoded, submission) = submitted.map_err(named)?;
    code.wait(submission, first.config.timeout).map_err(named)?;
    Ok(encoded)
}

/// Number of workgroups that llvmpipe runs in a few seconds if each does little.
const MOST_TIMED_GROUPS: u128 = 1 << 22;

/// Refuses a grid with a deadline that would keep a software adapter busy long past it: a running
/// dispatch cannot be stopped, and an abandoned one takes processors from everything that follows.
fn check_groups(gpu: &WgpuDevice, job: &WgpuJob<'_, '_>) -> Result<(), BackendError> {
    let grid = job.launch.grid;
    let groups: u128 = grid.iter().map(|&groups| u128::from(groups)).product();
    let software = gpu.profile.device_class == DeviceClass::Software;
    if groups <= MOST_TIMED_GROUPS || !software || job.config.timeout.is_none() {
        return Ok(());
    }
    Err(gpu.unsupported(format!(
        "a grid of {grid:?} workgroups under a deadline (at most {MOST_TIMED_GROUPS} in all on its device)"
    )))
}

/// Refuses buffers that are too large, buffers of a lost device, and loops that could exceed the
/// driver's iteration limit: the driver would end them early and continue.
fn check(gpu: &WgpuDevice, job: &WgpuJob<'_, '_>) -> Result<(), BackendError> {
    let (code, kernel) = (&job.variant.code, &*job.variant.kernel);
    check_groups(gpu, job)?;
    let most = code.device.limits.max_storage_buffer_binding_size;
    for argument in job.arguments.iter() {
        if argument.bytes as u64 > most {
            let (name, bytes) = (&kernel.buffer(argument.buffer).decl.name, argument.bytes);
            let name = format!("the {bytes} bytes of buffer `{name}` (at most {most} on its device)");
            return Err(gpu.unsupported(name));
        }
        resident(argument).map_or(Ok(()), |resident| resident.device.check())?;
    }
    let Some(most) = code.most_rounds.filter(|_| !job.launch.grid.contains(&0)) else { return Ok(()) };
    match job.launch.iteration_bound(kernel, &mut |id, index| job.element(gpu, id, index)) {
        Some(bound) if bound <= most => Ok(()),
        Some(_) | None => Err(gpu.unsupported(format!(
            "the loops of kernel `{}`: its driver ends an invocation's loops after {} rounds in all, and these are \
             not proved to take fewer",
            kernel.display_name(),
            gpu.traits.loop_limit.unwrap_or_default()
        ))),
    }
}

fn resident<'a>(argument: &'a BoundArgument<'_, Resident>) -> Option<&'a Resident> {
    match &argument.memory {
        Memory::Resident(resident) => Some(resident),
        Memory::ResidentMut(resident) => Some(resident),
        Memory::Read(_) | Memory::Write(_) => None,
    }
}

/// Bytes to upload for a buffer, if any.
fn source<'a>(argument: &'a BoundArgument<'_, Resident>) -> Option<&'a [u8]> {
    match (&argument.memory, argument.start) {
        (Memory::Read(bytes), _) => Some(bytes),
        (Memory::Write(_), Start::Copy(bytes)) => Some(bytes),
        (Memory::Write(bytes), Start::Own) => Some(bytes),
        (Memory::Write(_) | Memory::Resident(_) | Memory::ResidentMut(_), _) => None,
    }
}

fn is_returned(argument: &BoundArgument<'_, Resident>) -> bool {
    matches!(argument.memory, Memory::Write(_))
}

/// Writes inputs and parameters, and encodes the dispatch.
fn encode(
    job: &WgpuJob<'_, '_>,
    encoder: &mut wgpu::CommandEncoder,
    times: Option<&Times>,
) -> Result<Encoded, BackendError> {
    let code = &job.variant.code;
    let sources = code.layout.bindings.iter().filter_map(|&id| job.argument(id)).map(|argument| {
        let own = BindingSource::Own(argument.bytes as u64);
        resident(argument).map_or(own, |resident| BindingSource::Resident(resident.buffer.clone()))
    });
    let returned = job.arguments.iter().filter(|argument| is_returned(argument));
    let output_bytes: u64 = returned.map(|argument| padded(argument.bytes)).sum();
    let status_bytes = if code.layout.status { STATUS_BYTES } else { 0 };
    // Timestamps are aligned to eight bytes.
    let times_at = (output_bytes + status_bytes).next_multiple_of(8);
    let mut memory = code.memory(sources.collect(), times_at + times.map_or(0, |_| TIME_BYTES))?;
    let groups = groups(job);
    write(job, groups, encoder, &mut memory);
    if !job.launch.grid.contains(&0) {
        let timestamp_writes = times.map(|times| wgpu::ComputePassTimestampWrites {
            query_set: &times.queries,
            beginning_of_pass_write_index: Some(0),
            end_of_pass_write_index: Some(1),
        });
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        let mut pass = encoder.begin_compute_pass(&descriptor);
        pass.set_pipeline(&code.pipeline);
        pass.set_bind_group(0, &memory.group, &[]);
        let [x, y, z] = groups;
        pass.dispatch_workgroups(x, y, z);
    }
    let (outputs, status) = read_back(job, encoder, &memory);
    if let (Some(times), Some(readback)) = (times, &memory.readback) {
        encoder.resolve_query_set(&times.queries, 0..2, &times.resolved, 0);
        encoder.copy_buffer_to_buffer(&times.resolved, 0, readback, times_at, TIME_BYTES);
    }
    Ok(Encoded { memory, outputs, status, times: times.map(|_| times_at) })
}

/// Workgroups along the device's axes.
fn groups(job: &WgpuJob<'_, '_>) -> [u32; 3] {
    let folded = if job.variant.form.folded { fold(job.launch.grid) } else { None };
    folded.unwrap_or(job.launch.grid)
}

/// Uploads inputs and parameters, and zeroes buffers that must start as zero.
fn write(
    job: &WgpuJob<'_, '_>,
    groups: [u32; 3],
    encoder: &mut wgpu::CommandEncoder,
    memory: &mut DispatchMemory,
) {
    let (device, layout) = (&*job.variant.code.device, &job.variant.code.layout);
    let parameters = parameters(job, groups);
    if memory.written != parameters {
        device.queue.write_buffer(&memory.parameters, 0, &parameters);
        memory.written = parameters;
    }
    for &(id, word) in &layout.packed {
        let Some(argument) = job.argument(id) else { continue };
        if let Some(resident) = resident(argument) {
            let (at, size) = (u64::from(word) * 4, padded(argument.bytes));
            encoder.copy_buffer_to_buffer(&resident.buffer, 0, &memory.parameters, at, size);
            memory.written.clear();
        }
    }
    for (buffer, &id) in memory.buffers.iter().zip(&layout.bindings) {
        let Some(argument) = job.argument(id) else { continue };
        if let Some(bytes) = source(argument) {
            write_padded(device, buffer, 0, bytes);
        } else if matches!(argument.start, Start::Zero | Start::Zeroed) && argument.bytes > 0 {
            encoder.clear_buffer(buffer, 0, Some(padded(argument.bytes)));
        }
    }
    if let Some(status) = &memory.status {
        encoder.clear_buffer(status, 0, None);
    }
}

/// Encodes the copies of outputs and status to the readback buffer; returns their offsets.
fn read_back(
    job: &WgpuJob<'_, '_>,
    encoder: &mut wgpu::CommandEncoder,
    memory: &DispatchMemory,
) -> (Vec<(usize, u64)>, Option<u64>) {
    let mut outputs = Vec::new();
    let mut at = 0;
    for (position, argument) in job.arguments.iter().enumerate().filter(|(_, argument)| is_returned(argument))
    {
        let binding = job.variant.code.layout.bindings.iter().position(|&bound| bound == argument.buffer);
        let binding = binding.unwrap_or_else(|| unreachable!("what is returned has a binding"));
        let size = padded(argument.bytes);
        if let (Some(readback), 1..) = (&memory.readback, size) {
            encoder.copy_buffer_to_buffer(&memory.buffers[binding], 0, readback, at, size);
        }
        outputs.push((position, at));
        at += size;
    }
    let status = memory.status.as_ref().zip(memory.readback.as_ref()).map(|(status, readback)| {
        encoder.copy_buffer_to_buffer(status, 0, readback, at, STATUS_BYTES);
        at
    });
    (outputs, status)
}

/// Bytes of the parameters.
fn parameters(job: &WgpuJob<'_, '_>, groups: [u32; 3]) -> Vec<u8> {
    let layout = &job.variant.code.layout;
    let mut words = vec![0_u32; layout.words as usize];
    let limit = job.launch.limit.unwrap_or([u32::MAX; 3]);
    words[word::LIMIT as usize..][..3].copy_from_slice(&limit);
    words[word::GRID as usize..][..3].copy_from_slice(&job.launch.grid);
    words[word::ROW as usize] = groups[0];
    for &(id, word) in &layout.lengths {
        words[word as usize] = job.launch.lengths[id.index()];
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for &(id, word) in &layout.packed {
        if let Some(given) = job.argument(id).and_then(source) {
            bytes[word as usize * 4..][..given.len()].copy_from_slice(given);
        }
    }
    bytes
}

/// Copies the outputs of a finished dispatch to the caller, unless it failed; returns the device
/// time if it was measured.
fn receive(job: &mut WgpuJob<'_, '_>, encoded: Encoded) -> Result<Option<Duration>, BackendError> {
    let Encoded { memory, outputs, status, times } = encoded;
    let view = match &memory.readback {
        Some(readback) => Some(readback.get_mapped_range(..).map_err(|error| failed(error.to_string()))?),
        None => None,
    };
    let bytes = view.as_deref().unwrap_or_default();
    let word = |at: u64| {
        let bytes = bytes.get(at as usize..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let outcome = match status.map(|at| (word(at), word(at + 4))) {
        Some((TRAPPED, code)) => {
            Err(BackendError::Trapped { kernel: job.variant.kernel.display_name().to_string(), code })
        }
        Some(_) | None => Ok(times.map(|at| {
            let tick = |at: u64| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
            let ticks = tick(at + 8).saturating_sub(tick(at));
            Duration::from_nanos((ticks as f64 * f64::from(job.variant.code.device.tick)) as u64)
        })),
    };
    for (position, at) in outputs.into_iter().filter(|_| outcome.is_ok()) {
        let found = bytes.get(at as usize..).unwrap_or_default();
        if let Memory::Write(target) = &mut job.arguments[position].memory
            && let Some(found) = found.get(..target.len())
        {
            target.copy_from_slice(found);
        }
    }
    drop(view);
    if let Some(readback) = &memory.readback {
        readback.unmap();
    }
    job.variant.code.keep(memory);
    outcome
}

/// Adds the kernel's name to an error.
pub(crate) fn named(kernel: &KernelBody, error: BackendError) -> BackendError {
    let kernel = format!("kernel `{}`", kernel.display_name());
    let place = |backend: String| format!("{backend}, {kernel}");
    match error {
        BackendError::DispatchFailed { backend, message } => {
            BackendError::DispatchFailed { backend, message: format!("{kernel}: {message}") }
        }
        BackendError::DeviceLost { backend, message } => {
            BackendError::DeviceLost { backend, message: format!("{kernel}: {message}") }
        }
        BackendError::Timeout { backend, limit } => BackendError::Timeout { backend: place(backend), limit },
        BackendError::DeviceOutOfMemory { backend, requested_bytes } => {
            BackendError::DeviceOutOfMemory { backend: place(backend), requested_bytes }
        }
        other => other,
    }
}

/// Size of two eight-byte timestamps.
const TIME_BYTES: u64 = 16;

/// Resources for timing a kernel on the device.
struct Times {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

impl Times {
    fn new(device: &Device) -> Result<Times, BackendError> {
        let ty = wgpu::QueryType::Timestamp;
        let descriptor = wgpu::QuerySetDescriptor { label: None, ty, count: 2 };
        let queries = device.watch(|| device.device.create_query_set(&descriptor));
        let queries = queries.map_err(|fault| device.fault(fault, TIME_BYTES))?;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        Ok(Times { queries, resolved: device.buffer(TIME_BYTES, usage)? })
    }
}

/// Lays out a grid that exceeds the device's axes in rows and planes of [`FOLD`]; `None` if it is
/// too large even for that.
pub(crate) fn fold(grid: [u32; 3]) -> Option<[u32; 3]> {
    let total: u128 = grid.iter().map(|&groups| u128::from(groups)).product();
    let rows = total.div_ceil(FOLD.into());
    let planes = rows.div_ceil(FOLD.into());
    let height = rows.min(FOLD.into());
    // The kernel counts workgroups in 32 bits, including those past the end.
    let padded = u128::from(FOLD) * height * planes;
    (padded <= 1 << 32).then_some([FOLD, height as u32, planes as u32])
}

/// Rounds up to whole words: devices copy no less.
fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_grids_hold_all_workgroups() {
        for grid in [[65_536, 1, 1], [1 << 24, 1, 1], [70_000, 70, 3], [1 << 31, 1, 1]] {
            let [x, y, z] = fold(grid).expect("it fits");
            let total = |[x, y, z]: [u32; 3]| u64::from(x) * u64::from(y) * u64::from(z);
            assert!(total([x, y, z]) >= total(grid) && [x, y, z].iter().all(|&n| n <= 65_535), "{grid:?}");
        }
        assert_eq!(fold([u32::MAX, 3, 1]), None);
    }
}
