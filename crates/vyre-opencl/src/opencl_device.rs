//! A device with its context, queues and memory, and the commands that copy bytes.

use crate::device::{BACKEND_ID, UsableDevice};
use crate::memory::{Pool, device_memory};
use crate::object::{Context, Event, Memory, Queue, failed, lock};
use crate::resident::{Residence, Resident};
use cl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_fill_buffer, enqueue_read_buffer,
    enqueue_write_buffer, finish,
};
use cl3::context::create_context;
use cl3::types::{CL_BLOCKING, cl_command_queue_properties};
use std::sync::Mutex;
use vyre_driver::binaries::Binaries;
use vyre_driver::{BackendError, DeviceClass};

/// A device with its context, queues and memory.
#[derive(Debug)]
pub struct OpenClDevice {
    pub(crate) id: &'static str,
    pub(crate) device: UsableDevice,
    pub(crate) context: Context,
    pub(crate) pool: Pool,
    pub(crate) binaries: Binaries,
    /// Bound in place of a buffer without elements.
    pub(crate) empty: Memory,
    /// Idle queues: plain ones, and ones that record times.
    queues: [Mutex<Vec<Queue>>; 2],
}

/// Whether a queue records how long its commands ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueTiming {
    Off,
    On,
}

impl OpenClDevice {
    pub(crate) fn new(id: &'static str, mut device: UsableDevice) -> Result<OpenClDevice, BackendError> {
        device.profile.backend = id;
        let context = create_context(&[device.id], std::ptr::null(), None, std::ptr::null_mut())
            .map(Context)
            .map_err(|code| failed(id, "making a context", code))?;
        let empty = device_memory(id, &context, 64)?;
        Ok(OpenClDevice {
            id,
            device,
            context,
            empty,
            pool: Pool::default(),
            binaries: Binaries::of_user(BACKEND_ID),
            queues: Default::default(),
        })
    }

    /// Where resident buffers are: on the host if the device is the processor itself and sees the
    /// host's writes.
    pub(crate) fn residence(&self) -> Residence {
        let processor = self.device.profile.device_class == DeviceClass::Software;
        if processor && self.device.shares_memory { Residence::Host } else { Residence::Device }
    }

    /// A queue for the caller's exclusive use.
    pub(crate) fn take_queue(&self, timing: QueueTiming) -> Result<Queue, BackendError> {
        let idle = lock(&self.queues[timing as usize]).pop();
        if let Some(queue) = idle {
            return Ok(queue);
        }
        let properties: cl_command_queue_properties = match timing {
            QueueTiming::Off => 0,
            QueueTiming::On => CL_QUEUE_PROFILING_ENABLE,
        };
        // SAFETY: the device belongs to the context.
        let made = unsafe { create_command_queue(self.context.0, self.device.id, properties) };
        made.map(Queue).map_err(|code| failed(self.id, "making a queue", code))
    }

    /// Returns an idle queue to the pool.
    pub(crate) fn put_queue(&self, queue: Queue, timing: QueueTiming) {
        lock(&self.queues[timing as usize]).push(queue);
    }

    /// Runs commands on a queue and waits for them.
    pub(crate) fn on_queue(
        &self,
        run: impl FnOnce(&Queue) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let queue = self.take_queue(QueueTiming::Off)?;
        let ran = run(&queue);
        let ended = finish(queue.0).map_err(|code| failed(self.id, "waiting for the device", code));
        self.put_queue(queue, QueueTiming::Off);
        ran.and(ended)
    }

    /// Zeroes the first bytes of a buffer for later commands of the queue.
    pub(crate) fn fill_zero(&self, queue: &Queue, memory: &Memory, bytes: usize) -> Result<(), BackendError> {
        let zero = [0_u8];
        // SAFETY: both objects are alive, the range is within the buffer, and the call copies the
        // pattern.
        let filled = unsafe {
            enqueue_fill_buffer(queue.0, memory.0, zero.as_ptr().cast(), 1, 0, bytes, 0, std::ptr::null())
        };
        filled.map(|event| drop(Event(event))).map_err(|code| failed(self.id, "clearing a buffer", code))
    }

    /// Copies part of a resident buffer to the host.
    pub(crate) fn download(
        &self,
        resident: &Resident,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        match resident.host_bytes() {
            Some(host) => {
                bytes.copy_from_slice(&host[offset..offset + bytes.len()]);
                Ok(())
            }
            None => self.on_queue(|queue| self.read(queue, &resident.memory, offset, bytes)),
        }
    }

    /// Zeroes a resident buffer for later commands of the queue.
    pub(crate) fn clear_resident(&self, queue: &Queue, resident: &mut Resident) -> Result<(), BackendError> {
        if let Some(host) = resident.host_bytes_mut() {
            host.fill(0);
            return Ok(());
        }
        self.fill_zero(queue, &resident.memory, resident.bytes.max(1))
    }

    /// Reads from a buffer and waits for the result.
    fn read(
        &self,
        queue: &Queue,
        memory: &Memory,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        let (pointer, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the range is within the buffer, and the call returns when the slice is filled.
        let read = unsafe {
            enqueue_read_buffer(queue.0, memory.0, CL_BLOCKING, offset, length, pointer, 0, std::ptr::null())
        };
        read.map(|event| drop(Event(event))).map_err(|code| failed(self.id, "reading a buffer", code))
    }

    /// Copies into part of a resident buffer in device memory.
    pub(crate) fn upload(
        &self,
        resident: &Resident,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        self.on_queue(|queue| {
            let (pointer, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
            // SAFETY: the range is within the buffer, and the call returns when the slice is
            // copied; it is only read.
            let written = unsafe {
                let memory = resident.memory.0;
                enqueue_write_buffer(
                    queue.0,
                    memory,
                    CL_BLOCKING,
                    offset,
                    length,
                    pointer,
                    0,
                    std::ptr::null(),
                )
            };
            written.map(|event| drop(Event(event))).map_err(|code| failed(self.id, "writing a buffer", code))
        })
    }
}
