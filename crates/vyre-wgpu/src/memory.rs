//! Device memory: a pool of buffers, and resident buffers that persist between dispatches.

use crate::device::{Adapter, BACKEND_ID, Device};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use vyre_driver::BackendError;

/// Usage of the pool's storage buffers.
pub(crate) const STORAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_DST).union(wgpu::BufferUsages::COPY_SRC);
/// Usage of parameter buffers.
pub(crate) const UNIFORM: wgpu::BufferUsages =
    wgpu::BufferUsages::UNIFORM.union(wgpu::BufferUsages::COPY_DST);
/// Usage of readback buffers.
pub(crate) const READBACK: wgpu::BufferUsages =
    wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::COPY_DST);

/// Maximum bytes of idle buffers in the pool; beyond it, returned buffers are freed. Chosen, not
/// measured.
const MOST_IDLE_BYTES: u64 = 512 << 20;

/// Idle buffers, by usage and size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    buffers: HashMap<(wgpu::BufferUsages, u64), Vec<wgpu::Buffer>>,
    bytes: u64,
}

impl Pool {
    /// A non-empty buffer of at least this many bytes. Its contents are unspecified.
    pub(crate) fn take(
        &self,
        device: &Device,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, BackendError> {
        let size = size_class(bytes).min(device.limits.max_buffer_size.max(bytes));
        {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(buffer) = idle.buffers.get_mut(&(usage, size)).and_then(Vec::pop) {
                idle.bytes -= size;
                return Ok(buffer);
            }
        }
        device.buffer(size, usage)
    }

    pub(crate) fn give_back(&self, buffer: wgpu::Buffer) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + buffer.size() <= MOST_IDLE_BYTES {
            idle.bytes += buffer.size();
            idle.buffers.entry((buffer.usage(), buffer.size())).or_default().push(buffer);
        }
    }
}

/// Rounds a size up by about an eighth at most, so that buffers of similar sizes are
/// interchangeable and little is wasted.
fn size_class(bytes: u64) -> u64 {
    let bytes = bytes.max(16);
    let step = (bytes.next_power_of_two() / 16).max(16);
    bytes.next_multiple_of(step)
}

/// A buffer that a caller holds by handle.
#[derive(Debug)]
pub struct Resident {
    pub(crate) device: Arc<Device>,
    pub(crate) buffer: wgpu::Buffer,
    /// Requested size; the buffer can be larger.
    pub(crate) bytes: usize,
}

impl Resident {
    /// A zeroed buffer.
    pub(crate) fn new(adapter: &Adapter, bytes: usize) -> Result<Resident, BackendError> {
        let device = adapter.device()?;
        let limit = device.limits.max_storage_buffer_binding_size;
        if bytes as u64 > limit {
            let name = format!("a resident buffer of {bytes} bytes (at most {limit} on its device)");
            return Err(BackendError::UnsupportedFeature { name, backend: BACKEND_ID.into() });
        }
        // Wgpu zeroes new memory.
        let buffer = device.buffer((bytes as u64).next_multiple_of(4).max(16), STORAGE)?;
        Ok(Resident { device, buffer, bytes })
    }

    pub(crate) fn upload(&self, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.device.check()?;
        let end = offset + bytes.len();
        if offset.is_multiple_of(4) && (end.is_multiple_of(4) || end == self.bytes) {
            return self.write(offset, bytes);
        }
        // Devices write whole words, so the surrounding bytes are read first.
        let (start, stop) = (offset / 4 * 4, end.next_multiple_of(4));
        let mut words = vec![0; stop - start];
        self.read(start, &mut words)?;
        words[offset - start..end - start].copy_from_slice(bytes);
        self.write(start, &words)
    }

    pub(crate) fn download(&self, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.device.check()?;
        let end = offset + bytes.len();
        let (start, stop) = (offset / 4 * 4, end.next_multiple_of(4));
        let mut words = vec![0; stop - start];
        self.read(start, &mut words)?;
        bytes.copy_from_slice(&words[offset - start..end - start]);
        Ok(())
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let device = &self.device;
        let done = device.watch(|| {
            write_padded(device, &self.buffer, offset as u64, bytes);
            device.queue.submit([])
        });
        done.map(drop).map_err(|fault| device.fault(fault, bytes.len() as u64))
    }

    /// Reads whole words.
    fn read(&self, offset: usize, words: &mut [u8]) -> Result<(), BackendError> {
        let device = &self.device;
        let size = words.len() as u64;
        let staging = device.buffer(size, READBACK)?;
        let submitted = device.watch(|| {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&self.buffer, offset as u64, &staging, 0, size);
            let index = device.queue.submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Read, .., |_| {});
            index
        });
        let index = submitted.map_err(|fault| device.fault(fault, size))?;
        let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
        device.device.poll(wait).map_err(|error| failed(error.to_string()))?;
        device.check()?;
        let view = staging.get_mapped_range(..).map_err(|error| failed(error.to_string()))?;
        words.copy_from_slice(&view);
        Ok(())
    }
}

/// Writes bytes, padding the last word with zeros.
pub(crate) fn write_padded(device: &Device, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
    let whole = bytes.len() / 4 * 4;
    let (words, rest) = bytes.split_at(whole);
    if !words.is_empty() {
        device.queue.write_buffer(buffer, offset, words);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        device.queue.write_buffer(buffer, offset + whole as u64, &last);
    }
}

pub(crate) fn failed(message: String) -> BackendError {
    BackendError::DispatchFailed { backend: BACKEND_ID.into(), message }
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn size_classes_hold_what_they_are_asked_for() {
        for bytes in (0..5000).chain([1 << 20, (1 << 20) + 1, (1 << 32) + 5]) {
            let size = size_class(bytes);
            assert!(size >= bytes && size.is_multiple_of(16) && size_class(size) == size, "{bytes}");
            assert!(size <= bytes.max(16) + (bytes / 8).max(16), "{bytes} takes {size}");
        }
    }
}
