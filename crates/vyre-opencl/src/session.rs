//! One call on a device: binds memory, launches the kernel and waits for it.
//!
//! A [`Session`] has exclusive use of a queue and of a kernel's entries. If the device works on the
//! host's memory, aligned slices are lent to it and nothing is copied; otherwise memory comes from
//! the pool and is copied in and out.
//!
//! **Deadlines.** A device that shares the host's memory sees the control words change while it
//! runs: a watchdog raises the flag when the time is up, and the kernel polls the flag and ends.
//! Other devices cannot be interrupted. On those, a shape-free kernel runs in slices of its grid
//! ([`slices`](crate::slices)), and no slice starts once the time is up; any other kernel runs to
//! completion and is then reported as late. Large grids run in slices on every device: even if each
//! workgroup ends at once, a driver still goes through all of them.

use crate::compiled::{Compiled, Entries};
use crate::gate::{EntryKind, LaunchKind, LaunchPermit};
use crate::memory::{Pooled, host_memory};
use crate::object::{Event, KernelObject, Memory, Queue, failed, lock};
use crate::opencl_device::{OpenClDevice, QueueTiming};
use crate::resident::Resident;
use crate::slices::{Part, Slices, groups_per_slice};
use cl3::command_queue::{
    enqueue_map_buffer, enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_unmap_mem_object,
    enqueue_write_buffer, finish,
};
use cl3::event::{CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_data};
use cl3::kernel::set_kernel_arg;
use cl3::memory::CL_MAP_READ;
use cl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_mem, cl_uint};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use vyre_driver::native::{BoundArgument, Memory as Given, Start, Variant};
use vyre_driver::{BackendError, DeviceClass};
use vyre_foundation::emit::{EntryArgument, STOPPED, TRAPPED};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::launch::Launch;

/// Required alignment of lent memory; allocators guarantee at least this.
const LENT_ALIGNMENT: usize = 16;

/// Number of invocations from which the part inside the domain is launched separately from the
/// rest: a launch has a fixed cost, and PoCL takes 73 µs for one of 2^10 invocations
/// (docs/opencl.md). The bound itself is chosen, not measured.
const LARGE_DISPATCH: usize = 1 << 14;

/// Memory of one buffer as passed to the kernel.
enum Attached<'a> {
    /// The caller's own memory.
    Lent {
        memory: Memory,
        written: bool,
        bytes: usize,
    },
    /// Memory from the pool, copied back to the caller if `back` is set.
    Copied {
        pooled: Pooled,
        back: Option<&'a mut [u8]>,
    },
    Resident(&'a Resident),
    /// The element of a uniform buffer, and its size in bytes.
    Value([u8; 8], usize),
    Empty,
}

/// Control words of one dispatch: the host's own if the device can see them.
struct Control {
    /// Boxed because the device keeps the address.
    words: Box<[AtomicU32; 2]>,
    memory: ControlMemory,
}

enum ControlMemory {
    Lent(Memory),
    Copied(Pooled),
}

/// A launch in progress.
pub(crate) struct Launched<'a> {
    attached: Vec<(BufferId, Attached<'a>)>,
    control: Option<Control>,
    events: Vec<Event>,
    /// Whether the deadline passed before everything was launched.
    late: bool,
}

/// One argument of one entry.
struct ArgumentPlace<'a> {
    object: &'a KernelObject,
    position: usize,
    argument: EntryArgument,
}

/// Queue and kernel entries for one call. When it is dropped, the queue is idle.
pub(crate) struct Session<'a> {
    opencl: &'a OpenClDevice,
    variant: &'a Variant<Compiled>,
    timing: QueueTiming,
    queue: Option<Queue>,
    entries: Option<Entries>,
    /// Dropped last, after waiting for the queue.
    pass: RefCell<Option<LaunchPermit<'a>>>,
}

impl<'a> Session<'a> {
    /// Takes a queue and entries from their pools.
    pub(crate) fn new(
        opencl: &'a OpenClDevice,
        variant: &'a Variant<Compiled>,
        timing: QueueTiming,
    ) -> Result<Session<'a>, BackendError> {
        let entries = variant.code.take_entries(opencl)?;
        let queue = opencl.take_queue(timing)?;
        let pass = RefCell::new(None);
        Ok(Session { opencl, variant, timing, queue: Some(queue), entries: Some(entries), pass })
    }

    fn queue(&self) -> &Queue {
        self.queue.as_ref().unwrap_or_else(|| unreachable!("a session has a queue until it ends"))
    }

    fn entries(&self) -> &Entries {
        self.entries.as_ref().unwrap_or_else(|| unreachable!("a session has a kernel until it ends"))
    }

    /// Waits for everything on the queue.
    pub(crate) fn wait(&self) -> Result<(), BackendError> {
        finish(self.queue().0).map_err(|code| failed(self.opencl.id, "running the kernel", code))
    }

    /// Attaches memory to an argument of the kernel.
    fn attach<'m>(&self, bound: BoundArgument<'m, Resident>) -> Result<Attached<'m>, BackendError> {
        if self.variant.code.arguments.contains(&EntryArgument::Value(bound.buffer)) {
            return self.value(&bound);
        }
        if bound.bytes == 0 {
            return Ok(Attached::Empty);
        }
        match bound.memory {
            Given::Resident(resident) => Ok(Attached::Resident(resident)),
            Given::ResidentMut(resident) => {
                if matches!(bound.start, Start::Zero | Start::Zeroed) {
                    self.opencl.clear_resident(self.queue(), resident)?;
                }
                Ok(Attached::Resident(resident))
            }
            Given::Read(bytes) if self.lends(bytes) => {
                self.lend(bytes.as_ptr().cast_mut(), bytes.len(), false)
            }
            Given::Write(bytes) if self.lends(bytes) => {
                bound.start.apply(bytes);
                self.lend(bytes.as_mut_ptr(), bytes.len(), true)
            }
            Given::Read(bytes) => Ok(Attached::Copied { pooled: self.copy_in(bytes)?, back: None }),
            Given::Write(bytes) => {
                let pooled = self.copy_of(bytes, bound.start)?;
                Ok(Attached::Copied { pooled, back: Some(bytes) })
            }
        }
    }

    /// Device memory with a buffer's initial contents.
    fn copy_of(&self, bytes: &[u8], start: Start<'_>) -> Result<Pooled, BackendError> {
        match start {
            Start::Own => return self.copy_in(bytes),
            Start::Copy(source) => return self.copy_in(source),
            Start::Zero | Start::Zeroed | Start::Anything => {}
        }
        let pooled = self.opencl.pool.take(self.opencl.id, &self.opencl.context, bytes.len())?;
        if start != Start::Anything {
            self.opencl.fill_zero(self.queue(), &pooled.memory, bytes.len())?;
        }
        Ok(pooled)
    }

    fn value<'m>(&self, bound: &BoundArgument<'_, Resident>) -> Result<Attached<'m>, BackendError> {
        let mut value = [0; 8];
        let length = bound.bytes.min(8);
        match &bound.memory {
            Given::Read(bytes) => value[..length].copy_from_slice(&bytes[..length]),
            Given::Write(bytes) => value[..length].copy_from_slice(&bytes[..length]),
            Given::Resident(resident) => self.opencl.download(resident, 0, &mut value[..length])?,
            Given::ResidentMut(resident) => self.opencl.download(resident, 0, &mut value[..length])?,
        }
        Ok(Attached::Value(value, length))
    }

    fn lends(&self, bytes: &[u8]) -> bool {
        self.opencl.device.shares_memory && (bytes.as_ptr() as usize).is_multiple_of(LENT_ALIGNMENT)
    }

    fn lend<'m>(&self, pointer: *mut u8, bytes: usize, written: bool) -> Result<Attached<'m>, BackendError> {
        // SAFETY: the slice is borrowed for the call, which waits for the device before it returns
        // (in `Session::drop` at the latest); the kernel stores only to buffers that are written.
        let memory = unsafe { host_memory(self.opencl.id, &self.opencl.context, pointer, bytes) }?;
        Ok(Attached::Lent { memory, written, bytes })
    }

    fn copy_in(&self, bytes: &[u8]) -> Result<Pooled, BackendError> {
        let pooled = self.opencl.pool.take(self.opencl.id, &self.opencl.context, bytes.len())?;
        let (pointer, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: the buffer is at least that long; the slice is only read, and outlives the
        // command, since the session waits for its queue before the call returns.
        let written = unsafe {
            let memory = pooled.memory.0;
            enqueue_write_buffer(
                self.queue().0,
                memory,
                CL_NON_BLOCKING,
                0,
                length,
                pointer,
                0,
                std::ptr::null(),
            )
        };
        written
            .map(|event| drop(Event(event)))
            .map_err(|code| failed(self.opencl.id, "writing a buffer", code))?;
        Ok(pooled)
    }

    fn control(&self) -> Result<Option<Control>, BackendError> {
        if !self.variant.code.arguments.contains(&EntryArgument::Control) {
            return Ok(None);
        }
        let words = Box::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let memory = if self.opencl.device.shares_memory {
            // SAFETY: the words live in the box, which is stored next to the memory and dropped
            // after the device is done. Host and device both access them as atomics.
            let lent = unsafe {
                host_memory(
                    self.opencl.id,
                    &self.opencl.context,
                    words[0].as_ptr().cast(),
                    size_of_val(&*words),
                )
            };
            ControlMemory::Lent(lent?)
        } else {
            ControlMemory::Copied(self.copy_in(&[0; 8])?)
        };
        Ok(Some(Control { words, memory }))
    }

    /// Enqueues the kernel. Nothing is launched after `deadline`.
    pub(crate) fn launch<'m>(
        &self,
        arguments: &mut [BoundArgument<'m, Resident>],
        launch: &Launch,
        deadline: Option<Instant>,
    ) -> Result<Launched<'m>, BackendError> {
        let control = self.control()?;
        let mut launched = Launched { attached: Vec::new(), control, events: Vec::new(), late: false };
        for bound in arguments {
            launched.attached.push((bound.buffer, self.attach(bound.take())?));
        }
        if launch.grid.contains(&0) {
            return Ok(launched);
        }
        let most = match deadline {
            None => u128::MAX,
            Some(_) => groups_per_slice(launch, self.variant.form.stoppable),
        };
        let slices: Vec<Slices> =
            self.parts(launch).into_iter().map(|part| Slices::new(part, launch.workgroup, most)).collect();
        self.admit(slices.iter().flat_map(Slices::kinds))?;
        for part in slices.into_iter().flatten() {
            if let Some(deadline) = deadline {
                // Earlier launches finish before the clock is read.
                let left = deadline.saturating_duration_since(Instant::now());
                watched(&launched, Some(left), || self.wait())?;
                if Instant::now() >= deadline {
                    launched.late = true;
                    break;
                }
            }
            for (position, argument) in self.variant.code.arguments.iter().enumerate() {
                let place = ArgumentPlace { object: self.object(part.entry), position, argument: *argument };
                self.set_argument(place, &launched, launch)?;
            }
            launched.events.push(self.enqueue(&part, launch)?);
        }
        Ok(launched)
    }

    /// Parts in which a dispatch is launched: the workgroups inside the domain, if there are many,
    /// and the rest.
    fn parts(&self, launch: &Launch) -> Vec<Part> {
        let local = launch.workgroup.map(|size| size as usize);
        let size: [usize; 3] = std::array::from_fn(|axis| launch.grid[axis] as usize * local[axis]);
        let all = Part { entry: EntryKind::Any, offset: [0; 3], size };
        let (Some(_), Some(limit)) = (&self.entries().whole, launch.limit) else { return vec![all] };
        let inside: [usize; 3] = std::array::from_fn(|axis| limit[axis] as usize / local[axis] * local[axis]);
        let part = Part { entry: EntryKind::Whole, offset: [0; 3], size: inside };
        if inside == size {
            return vec![part];
        }
        if inside[1..] != size[1..]
            || inside.iter().fold(1, |all: usize, &axis| all.saturating_mul(axis)) < LARGE_DISPATCH
        {
            return vec![all];
        }
        let [x, y, z] = size;
        vec![part, Part { entry: EntryKind::Any, offset: [inside[0], 0, 0], size: [x - inside[0], y, z] }]
    }

    fn object(&self, entry: EntryKind) -> &KernelObject {
        let Entries { any, whole } = self.entries();
        match entry {
            EntryKind::Any => any,
            EntryKind::Whole => {
                whole.as_ref().unwrap_or_else(|| unreachable!("a part has the entry it names"))
            }
        }
    }

    /// Waits until launches of these kinds are allowed, if the program's launches must be
    /// serialised.
    fn admit(&self, kinds: impl Iterator<Item = LaunchKind> + Clone) -> Result<(), BackendError> {
        let Some(gate) = &self.variant.code.built.gate else { return Ok(()) };
        let mut pass = self.pass.borrow_mut();
        if let Some(held) = &*pass {
            if kinds.clone().all(|kind| held.admits(&kind)) {
                return Ok(());
            }
            // The batch continues with another pass, so launches under this one must finish first.
            self.wait()?;
            *pass = None;
        }
        *pass = Some(gate.pass(kinds));
        Ok(())
    }

    fn enqueue(&self, part: &Part, launch: &Launch) -> Result<Event, BackendError> {
        let local = launch.workgroup.map(|size| size as usize);
        let offset = if part.offset == [0; 3] { std::ptr::null() } else { part.offset.as_ptr() };
        // SAFETY: the arguments are set to live objects that are kept until the session has waited;
        // the emitted kernel accesses its memory within the lengths passed to it.
        let event = unsafe {
            enqueue_nd_range_kernel(
                self.queue().0,
                self.object(part.entry).0,
                3,
                offset,
                part.size.as_ptr(),
                local.as_ptr(),
                0,
                std::ptr::null(),
            )
        };
        let event = event.map(Event).map_err(|code| failed(self.opencl.id, "launching the kernel", code))?;
        if let Some(pass) = &mut *self.pass.borrow_mut() {
            pass.launched(&part.kind());
        }
        Ok(event)
    }

    fn set_argument(
        &self,
        ArgumentPlace { object, position, argument }: ArgumentPlace<'_>,
        launched: &Launched<'_>,
        launch: &Launch,
    ) -> Result<(), BackendError> {
        let attached = |id: BufferId| {
            let found = launched.attached.iter().find(|(buffer, _)| *buffer == id);
            found.map_or(&Attached::Empty, |(_, attached)| attached)
        };
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: the value has the size of the kernel's parameter, and the call copies it.
            let done = unsafe { set_kernel_arg(object.0, position as cl_uint, bytes, value) };
            done.map_err(|code| failed(self.opencl.id, &format!("setting argument {position}"), code))
        };
        let set_memory = |memory: cl_mem| set(size_of::<cl_mem>(), (&raw const memory).cast());
        let set_number = |number: u32| set(size_of::<u32>(), (&raw const number).cast());
        match argument {
            EntryArgument::Control => match launched.control.as_ref().map(|control| &control.memory) {
                Some(ControlMemory::Lent(memory)) => set_memory(memory.0),
                Some(ControlMemory::Copied(pooled)) => set_memory(pooled.memory.0),
                None => unreachable!("a kernel with control words gets them"),
            },
            EntryArgument::Memory(id) => match attached(id) {
                Attached::Lent { memory, .. } => set_memory(memory.0),
                Attached::Copied { pooled, .. } => set_memory(pooled.memory.0),
                Attached::Resident(resident) => set_memory(resident.memory.0),
                Attached::Value(..) | Attached::Empty => set_memory(self.opencl.empty.0),
            },
            EntryArgument::Value(id) => match attached(id) {
                Attached::Value(value, length) => set(*length, value.as_ptr().cast()),
                Attached::Lent { .. } | Attached::Copied { .. } | Attached::Resident(_) | Attached::Empty => {
                    unreachable!("a uniform of one element goes by value")
                }
            },
            EntryArgument::Length(id) => set_number(launch.lengths[id.index()]),
            EntryArgument::Last(axis) => {
                set_number(launch.limit.map_or(u32::MAX, |limit| limit[usize::from(axis)].wrapping_sub(1)))
            }
            EntryArgument::FirstGroup | EntryArgument::Grid(_) => unreachable!("launches have offsets here"),
        }
    }

    /// Enqueues the copies of results to the caller.
    pub(crate) fn collect(&self, launched: &mut Launched<'_>) -> Result<(), BackendError> {
        for (_, attached) in &mut launched.attached {
            if let Attached::Copied { pooled, back: Some(target) } = attached {
                self.read_back(&pooled.memory, target)?;
            }
        }
        if let Some(Control { words, memory: ControlMemory::Copied(pooled) }) = &launched.control {
            let (pointer, length) = (words[0].as_ptr(), size_of_val(&**words));
            // SAFETY: the words are as long as the read, and atomics can be written through a
            // shared reference.
            let target = unsafe { std::slice::from_raw_parts_mut(pointer.cast::<u8>(), length) };
            self.read_back(&pooled.memory, target)?;
        }
        Ok(())
    }

    fn read_back(&self, memory: &Memory, target: &mut [u8]) -> Result<(), BackendError> {
        let (pointer, length) = (target.as_mut_ptr().cast(), target.len());
        // SAFETY: the buffer is at least as long as the slice, which outlives the command, since
        // the session waits for its queue before the call returns.
        let read = unsafe {
            enqueue_read_buffer(
                self.queue().0,
                memory.0,
                CL_NON_BLOCKING,
                0,
                length,
                pointer,
                0,
                std::ptr::null(),
            )
        };
        read.map(|event| drop(Event(event))).map_err(|code| failed(self.opencl.id, "reading a buffer", code))
    }

    /// Makes the device's writes to lent memory visible to the caller. A processor writes to it as
    /// the host would; other devices guarantee visibility only for mapped memory.
    pub(crate) fn show_lent(&self, launched: &Launched<'_>) -> Result<(), BackendError> {
        if self.opencl.device.profile.device_class == DeviceClass::Software {
            return Ok(());
        }
        let data = launched.attached.iter().filter_map(|(_, attached)| match attached {
            Attached::Lent { memory, written: true, bytes } => Some((memory, *bytes)),
            _ => None,
        });
        let control = launched.control.iter().filter_map(|control| match &control.memory {
            ControlMemory::Lent(memory) => Some((memory, size_of_val(&*control.words))),
            ControlMemory::Copied(_) => None,
        });
        for (memory, bytes) in data.chain(control) {
            let mut mapped: cl_mem = std::ptr::null_mut();
            let none = std::ptr::null();
            // SAFETY: the whole of a live buffer is mapped and then unmapped; the address is the
            // caller's own.
            let done = unsafe {
                enqueue_map_buffer(
                    self.queue().0,
                    memory.0,
                    CL_BLOCKING,
                    CL_MAP_READ,
                    0,
                    bytes,
                    &mut mapped,
                    0,
                    none,
                )
                .map(|event| drop(Event(event)))
                .and_then(|()| enqueue_unmap_mem_object(self.queue().0, memory.0, mapped, 0, none))
            };
            done.map(|event| drop(Event(event)))
                .map_err(|code| failed(self.opencl.id, "mapping a buffer", code))?;
        }
        self.wait()
    }

    /// Outcome of the dispatch, once the queue has been waited for.
    pub(crate) fn ending(
        &self,
        launched: &Launched<'_>,
        limit: Option<Duration>,
    ) -> Result<(), BackendError> {
        let timeout =
            || BackendError::Timeout { backend: self.opencl.id.into(), limit: limit.unwrap_or_default() };
        if launched.late {
            return Err(timeout());
        }
        let Some(control) = &launched.control else { return Ok(()) };
        match control.words[0].load(Ordering::Acquire) {
            TRAPPED => Err(BackendError::Trapped {
                kernel: self.variant.kernel.display_name().to_string(),
                code: control.words[1].load(Ordering::Relaxed),
            }),
            STOPPED => Err(timeout()),
            _ => Ok(()),
        }
    }

    /// Returns memory to the pool. The queue must have been waited for.
    pub(crate) fn release(&self, launched: Launched<'_>) {
        for (_, attached) in launched.attached {
            if let Attached::Copied { pooled, .. } = attached {
                self.opencl.pool.put(pooled);
            }
        }
        if let Some(Control { memory: ControlMemory::Copied(pooled), .. }) = launched.control {
            self.opencl.pool.put(pooled);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let Some((queue, entries)) = self.queue.take().zip(self.entries.take()) else { return };
        // After an error, commands can still be running on memory that the caller is about to take
        // back. A queue that cannot be waited for is not reused.
        if finish(queue.0).is_ok() {
            self.opencl.put_queue(queue, self.timing);
            self.variant.code.put_entries(entries);
        }
    }
}

impl Launched<'_> {
    /// How long the kernel ran, if the queue records times.
    pub(crate) fn device_time(&self) -> Option<Duration> {
        self.events.iter().map(duration_of).sum()
    }
}

fn duration_of(event: &Event) -> Option<Duration> {
    let at = |what| {
        let bytes = get_event_profiling_data(event.0, what).ok()?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (start, end) = (at(CL_PROFILING_COMMAND_START)?, at(CL_PROFILING_COMMAND_END)?);
    Some(Duration::from_nanos(end.saturating_sub(start)))
}

/// Waits while a watchdog raises the flag once the time is up.
pub(crate) fn watched(
    launched: &Launched<'_>,
    limit: Option<Duration>,
    wait: impl FnOnce() -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let (Some(control), Some(limit)) = (&launched.control, limit) else { return wait() };
    let finished = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let held = lock(&finished.0);
            let waited = finished.1.wait_timeout_while(held, limit, |done| !*done);
            if waited.is_ok_and(|(done, _)| !*done) {
                // An earlier trap is kept.
                let _ = control.words[0].compare_exchange(0, STOPPED, Ordering::Relaxed, Ordering::Relaxed);
            }
        });
        let waited = wait();
        *lock(&finished.0) = true;
        finished.1.notify_all();
        waited
    })
}
