//! A compiled program, and how a dispatch runs it.
//!
//! Code is made for one [`Form`]: a workgroup size, and what else changes the text. The form that the pipeline was
//! compiled for is made at once, others when a call asks for them, each once.
//!
//! A dispatch takes a queue and a kernel object that nobody else is using ([`Session`]), binds memory, launches, and waits. Where
//! the device works on the host's memory, aligned slices are lent to it and nothing is copied; otherwise memory comes
//! from the pool and is copied in and out. A batch launches several items before it waits.
//!
//! **Deadlines.** A device that shares the host's memory sees the control words change while it runs: a watch raises the
//! flag when the time is up, and the kernel, written to look for it, ends. Another device cannot be interrupted: its
//! dispatch runs to the end and is then reported as late.

use crate::backend::{Core, Timing};
use crate::memory::{Pooled, host_memory};
use crate::object::{Event, KernelObject, Memory, Queue, failed};
use crate::program::{Built, build};
use crate::resident::Resident;
use cl3::command_queue::{
    enqueue_map_buffer, enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_unmap_mem_object,
    enqueue_write_buffer, finish,
};
use cl3::event::{CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_data};
use cl3::kernel::set_kernel_arg;
use cl3::memory::CL_MAP_READ;
use cl3::types::{CL_BLOCKING, CL_NON_BLOCKING, cl_mem, cl_uint};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::observability::{LaunchRecord, observe_launch};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DeviceClass, DispatchConfig, OutputBuffers, Resource, Schedule,
    TimedOutputs, check_shape,
};
use vyre_foundation::emit::{Argument, OPENCL, STOPPED, Settings, TRAPPED, emit, prepare};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{BufferId, Kernel};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::optimize::Assume;

/// A program compiled for a device.
#[derive(Debug)]
pub(crate) struct Pipeline {
    id: String,
    kernel: Kernel,
    config: DispatchConfig,
    core: Arc<Core>,
    /// The buffers that a dispatch binds, in binding order.
    bound: Vec<BufferId>,
    usual: Arc<Variant>,
    others: Mutex<HashMap<Form, Arc<Variant>>>,
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    workgroup: [u32; 3],
    /// Whether only invocations inside the domain run.
    within_domain: bool,
    /// Whether the kernel ends when it is told to.
    stoppable: bool,
    /// Elements per invocation.
    elements: u32,
    schedule: Schedule,
}

/// The code for one form of the program.
#[derive(Debug)]
struct Variant {
    form: Form,
    kernel: Kernel,
    built: Built,
    entry: String,
    text_bytes: u64,
    arguments: Vec<Argument>,
    /// Kernel objects that nobody is using.
    idle: Mutex<Vec<KernelObject>>,
    /// Per buffer: whether it is written everywhere and never read, so that it need not be zeroed.
    covered: Vec<bool>,
    launches: AtomicU32,
}

/// The launch at which a binary is kept on disk. PoCL takes half as long as for compiling to give it out, which is not worth
/// it for a program that runs once.
const KEPT_AT_LAUNCH: u32 = 2;

/// Items of a batch that are under way at a time, and about how many bytes of inputs.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 64 << 20;

/// Invocations per workgroup of a shape-free kernel on a processor, whose drivers run a workgroup as one loop.
const PROCESSOR_WORKGROUP: u32 = 256;

/// The platform whose drivers (seen with 3.1) give wrong results where a barrier stands under a condition.
const BROKEN_CONDITIONS: &str = "Portable Computing Language";

/// What lent memory must be aligned to; allocators give at least that.
const LENT_ALIGNMENT: usize = 16;

impl Pipeline {
    pub(crate) fn new(
        program: &Program,
        config: &DispatchConfig,
        core: Arc<Core>,
    ) -> Result<Pipeline, BackendError> {
        let kernel = program.validate()?;
        if kernel.needs.subgroups {
            let name = "subgroup ops".into();
            return Err(BackendError::UnsupportedFeature { name, backend: core.id.into() });
        }
        let form = form_of(&core, &kernel, config);
        let usual = Arc::new(variant(&core, &kernel, form)?);
        let digest: String = kernel.fingerprint[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Pipeline {
            id: format!("{}:{digest}", core.id),
            bound: kernel.bound_buffers(),
            kernel,
            config: config.clone(),
            core,
            usual,
            others: Mutex::default(),
        })
    }

    /// About how much memory the pipeline takes. What the driver's code takes is unknown; it grows with the text.
    pub(crate) fn bytes(&self) -> u64 {
        16 * self.usual.text_bytes
    }

    fn variant(&self, config: &DispatchConfig) -> Result<Arc<Variant>, BackendError> {
        let form = form_of(&self.core, &self.kernel, config);
        if form == self.usual.form {
            return Ok(self.usual.clone());
        }
        check_shape(&self.core.device.profile, &self.kernel, config)?;
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.get(&form) {
            return Ok(known.clone());
        }
        let made = Arc::new(variant(&self.core, &self.kernel, form)?);
        others.insert(form, made.clone());
        Ok(made)
    }

    fn access(&self, id: BufferId) -> Access {
        self.kernel.buffer(id).decl.access
    }

    fn failed(&self, message: String) -> BackendError {
        BackendError::DispatchFailed { backend: self.core.id.into(), message }
    }
}

fn form_of(core: &Core, kernel: &Kernel, config: &DispatchConfig) -> Form {
    let free = kernel.shape_free && config.grid_override.is_none();
    let own = kernel.workgroup_size;
    let processor = core.device.profile.device_class == DeviceClass::Software;
    let workgroup = match config.workgroup_override {
        Some(size) => size,
        None if free && processor && own[1] == 1 && own[2] == 1 => {
            let most = core.device.profile.max_invocations_per_workgroup.max(1);
            [PROCESSOR_WORKGROUP.min(most), 1, 1]
        }
        None => own,
    };
    Form {
        workgroup,
        within_domain: free,
        stoppable: config.timeout.is_some() && core.device.shares_memory,
        elements: if free { config.elements_per_invocation.unwrap_or(1) } else { 1 },
        schedule: config.schedule.unwrap_or(Schedule::Expensive),
    }
}

fn variant(core: &Core, kernel: &Kernel, form: Form) -> Result<Variant, BackendError> {
    let assume =
        Assume { workgroup: Some(form.workgroup), within_domain: form.within_domain, dispatch_checks: false };
    let schedule = form.schedule.passes().with_assumptions(assume).with_coarsening(form.elements);
    let prepared = prepare(kernel, schedule, &OPENCL);
    let settings = Settings { workgroup: form.workgroup, stoppable: form.stoppable };
    let source = emit(&prepared, &OPENCL, &settings);
    if source.conditional_barriers && core.device.profile.driver_version.starts_with(BROKEN_CONDITIONS) {
        let name = "barriers under conditions (this driver, PoCL, runs them wrongly)".into();
        return Err(BackendError::UnsupportedFeature { name, backend: core.id.into() });
    }
    let _span = tracing::debug_span!("opencl build", bytes = source.text.len()).entered();
    let built = build(core, kernel.display_name(), &source.text)?;
    // Made here so that what the driver dislikes is an error of compiling.
    let first = built.kernel(core, &source.entry)?;
    Ok(Variant {
        form,
        covered: prepared.covered_outputs(form.within_domain),
        kernel: prepared,
        built,
        text_bytes: source.text.len() as u64,
        entry: source.entry,
        arguments: source.arguments,
        idle: Mutex::new(vec![first]),
        launches: AtomicU32::new(0),
    })
}

/// Memory of one buffer as the caller gives it.
enum Given<'a> {
    Read(&'a [u8]),
    /// Read and written, or already zero.
    Write(&'a mut [u8]),
    /// Written; reads as zero until then.
    Fill(&'a mut [u8]),
    Resident(&'a Resident),
}

impl Given<'_> {
    fn len(&self) -> usize {
        match self {
            Given::Read(bytes) => bytes.len(),
            Given::Write(bytes) | Given::Fill(bytes) => bytes.len(),
            Given::Resident(resident) => resident.bytes,
        }
    }
}

/// Memory of one buffer as the kernel gets it.
enum Attached<'a> {
    /// The caller's own, written or not.
    Lent {
        memory: Memory,
        written: bool,
        bytes: usize,
    },
    /// From the pool; copied to where the caller wants it.
    Copied {
        pooled: Pooled,
        back: Option<&'a mut [u8]>,
    },
    Resident(&'a Resident),
    /// The element of a uniform buffer, and how many bytes it has.
    Value([u8; 8], usize),
    Empty,
}

/// The control words of one dispatch: the host's own where the device sees them.
struct Control {
    /// Boxed, since the device keeps their address.
    words: Box<[AtomicU32; 2]>,
    memory: ControlMemory,
}

enum ControlMemory {
    Lent(Memory),
    Copied(Pooled),
}

/// A launch under way.
struct Launched<'a> {
    attached: Vec<Attached<'a>>,
    control: Option<Control>,
    event: Option<Event>,
}

/// A queue and a kernel object for one call. When it ends, nothing is under way on the queue any more.
struct Session<'a> {
    core: &'a Core,
    variant: &'a Variant,
    timing: Timing,
    queue: Option<Queue>,
    object: Option<KernelObject>,
}

impl<'a> Session<'a> {
    fn new(core: &'a Core, variant: &'a Variant, timing: Timing) -> Result<Session<'a>, BackendError> {
        let idle = variant.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let object = match idle {
            Some(object) => object,
            None => variant.built.kernel(core, &variant.entry)?,
        };
        let queue = core.take_queue(timing)?;
        Ok(Session { core, variant, timing, queue: Some(queue), object: Some(object) })
    }

    fn queue(&self) -> &Queue {
        self.queue.as_ref().unwrap_or_else(|| unreachable!("a session has a queue until it ends"))
    }

    fn object(&self) -> &KernelObject {
        self.object.as_ref().unwrap_or_else(|| unreachable!("a session has a kernel until it ends"))
    }

    fn wait(&self) -> Result<(), BackendError> {
        finish(self.queue().0).map_err(|code| failed(self.core.id, "running the kernel", code))
    }

    /// Binds memory to the kernel's arguments.
    fn attach<'m>(&self, id: BufferId, given: Given<'m>) -> Result<Attached<'m>, BackendError> {
        let by_value = self.variant.arguments.contains(&Argument::Value(id));
        if by_value {
            return self.value(given);
        }
        if given.len() == 0 {
            return Ok(Attached::Empty);
        }
        let zeroed = !self.variant.covered[id.index()];
        match given {
            Given::Resident(resident) => {
                let filled = self.variant.kernel.buffer(id).decl.access == Access::Output;
                if filled && zeroed {
                    self.core.fill_zero(self.queue(), &resident.memory, resident.bytes)?;
                }
                Ok(Attached::Resident(resident))
            }
            Given::Read(bytes) if self.lends(bytes) => {
                self.lend(bytes.as_ptr().cast_mut(), bytes.len(), false)
            }
            Given::Write(bytes) if self.lends(bytes) => self.lend(bytes.as_mut_ptr(), bytes.len(), true),
            Given::Fill(bytes) if self.lends(bytes) => {
                if zeroed {
                    bytes.fill(0);
                }
                self.lend(bytes.as_mut_ptr(), bytes.len(), true)
            }
            Given::Read(bytes) => {
                let pooled = self.copy_in(bytes)?;
                Ok(Attached::Copied { pooled, back: None })
            }
            Given::Write(bytes) => {
                let pooled = self.copy_in(bytes)?;
                Ok(Attached::Copied { pooled, back: Some(bytes) })
            }
            Given::Fill(bytes) => {
                let pooled = self.core.pool.take(self.core.id, &self.core.context, bytes.len())?;
                if zeroed {
                    self.core.fill_zero(self.queue(), &pooled.memory, bytes.len())?;
                }
                Ok(Attached::Copied { pooled, back: Some(bytes) })
            }
        }
    }

    fn value<'m>(&self, given: Given<'m>) -> Result<Attached<'m>, BackendError> {
        let mut value = [0; 8];
        let length = given.len().min(8);
        match given {
            Given::Read(bytes) => value[..length].copy_from_slice(&bytes[..length]),
            Given::Write(bytes) | Given::Fill(bytes) => value[..length].copy_from_slice(&bytes[..length]),
            Given::Resident(resident) => {
                self.core.read(self.queue(), &resident.memory, 0, &mut value[..length])?;
            }
        }
        Ok(Attached::Value(value, length))
    }

    fn lends(&self, bytes: &[u8]) -> bool {
        self.core.device.shares_memory && (bytes.as_ptr() as usize).is_multiple_of(LENT_ALIGNMENT)
    }

    fn lend<'m>(&self, pointer: *mut u8, bytes: usize, written: bool) -> Result<Attached<'m>, BackendError> {
        // SAFETY: the slice is borrowed for the call, which waits for the device before it returns (`Session::drop` at
        // the latest); the kernel stores only to buffers that are written.
        let memory = unsafe { host_memory(self.core.id, &self.core.context, pointer, bytes) }?;
        Ok(Attached::Lent { memory, written, bytes })
    }

    fn copy_in(&self, bytes: &[u8]) -> Result<Pooled, BackendError> {
        let pooled = self.core.pool.take(self.core.id, &self.core.context, bytes.len())?;
        let (pointer, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: the buffer is at least that long; the slice is only read, and outlives the command, since the session
        // waits for its queue before the call returns.
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
            .map_err(|code| failed(self.core.id, "writing a buffer", code))?;
        Ok(pooled)
    }

    fn control(&self) -> Result<Option<Control>, BackendError> {
        if !self.variant.arguments.contains(&Argument::Control) {
            return Ok(None);
        }
        let words = Box::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let memory = if self.core.device.shares_memory {
            // SAFETY: the words live in the box, which is kept beside the memory and dropped after the device is done.
            // Host and device both touch them, as atomics.
            let lent = unsafe {
                host_memory(self.core.id, &self.core.context, words[0].as_ptr().cast(), size_of_val(&*words))
            };
            ControlMemory::Lent(lent?)
        } else {
            ControlMemory::Copied(self.copy_in(&[0; 8])?)
        };
        Ok(Some(Control { words, memory }))
    }

    /// Puts the kernel on the queue.
    fn launch<'m>(
        &self,
        bound: &[BufferId],
        memory: Vec<Given<'m>>,
        launch: &Launch,
    ) -> Result<Launched<'m>, BackendError> {
        let mut launched = Launched { attached: Vec::new(), control: self.control()?, event: None };
        for (&id, given) in bound.iter().zip(memory) {
            launched.attached.push(self.attach(id, given)?);
        }
        if launch.grid.contains(&0) {
            return Ok(launched);
        }
        for (position, argument) in self.variant.arguments.iter().enumerate() {
            self.set_argument(position, *argument, bound, &launched, launch)?;
        }
        let local = launch.workgroup.map(|size| size as usize);
        let global: [usize; 3] = std::array::from_fn(|axis| launch.grid[axis] as usize * local[axis]);
        // SAFETY: the arguments are set to live objects that are kept until the session has waited; the emitted kernel
        // accesses its memory within the lengths that it was given.
        let event = unsafe {
            enqueue_nd_range_kernel(
                self.queue().0,
                self.object().0,
                3,
                std::ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                std::ptr::null(),
            )
        };
        launched.event =
            Some(Event(event.map_err(|code| failed(self.core.id, "launching the kernel", code))?));
        Ok(launched)
    }

    fn set_argument(
        &self,
        position: usize,
        argument: Argument,
        bound: &[BufferId],
        launched: &Launched<'_>,
        launch: &Launch,
    ) -> Result<(), BackendError> {
        let attached = |id: BufferId| {
            let at = bound.iter().position(|&other| other == id);
            at.and_then(|at| launched.attached.get(at)).unwrap_or(&Attached::Empty)
        };
        let set = |bytes: usize, value: *const c_void| {
            // SAFETY: the value has the size that the kernel's parameter has, and is copied by the call.
            let done = unsafe { set_kernel_arg(self.object().0, position as cl_uint, bytes, value) };
            done.map_err(|code| failed(self.core.id, &format!("setting argument {position}"), code))
        };
        let set_memory = |memory: cl_mem| set(size_of::<cl_mem>(), (&raw const memory).cast());
        let set_number = |number: u32| set(size_of::<u32>(), (&raw const number).cast());
        match argument {
            Argument::Control => match launched.control.as_ref().map(|control| &control.memory) {
                Some(ControlMemory::Lent(memory)) => set_memory(memory.0),
                Some(ControlMemory::Copied(pooled)) => set_memory(pooled.memory.0),
                None => unreachable!("a kernel with control words gets them"),
            },
            Argument::Memory(id) => match attached(id) {
                Attached::Lent { memory, .. } => set_memory(memory.0),
                Attached::Copied { pooled, .. } => set_memory(pooled.memory.0),
                Attached::Resident(resident) => set_memory(resident.memory.0),
                Attached::Value(..) | Attached::Empty => set_memory(self.core.empty.0),
            },
            Argument::Value(id) => match attached(id) {
                Attached::Value(value, length) => set(*length, value.as_ptr().cast()),
                Attached::Lent { .. } | Attached::Copied { .. } | Attached::Resident(_) | Attached::Empty => {
                    unreachable!("a uniform of one element goes by value")
                }
            },
            Argument::Length(id) => set_number(launch.lengths[id.index()]),
            Argument::Last(axis) => {
                set_number(launch.limit.map_or(u32::MAX, |limit| limit[usize::from(axis)].wrapping_sub(1)))
            }
        }
    }

    /// Puts on the queue what brings results to the caller.
    fn collect(&self, launched: &mut Launched<'_>) -> Result<(), BackendError> {
        for attached in &mut launched.attached {
            if let Attached::Copied { pooled, back: Some(target) } = attached {
                self.read_back(&pooled.memory, target)?;
            }
        }
        if let Some(Control { words, memory: ControlMemory::Copied(pooled) }) = &launched.control {
            let (pointer, length) = (words[0].as_ptr(), size_of_val(&**words));
            // SAFETY: the words are as long as what is read, and atomics may be written through a shared reference.
            let target = unsafe { std::slice::from_raw_parts_mut(pointer.cast::<u8>(), length) };
            self.read_back(&pooled.memory, target)?;
        }
        Ok(())
    }

    fn read_back(&self, memory: &Memory, target: &mut [u8]) -> Result<(), BackendError> {
        let (pointer, length) = (target.as_mut_ptr().cast(), target.len());
        // SAFETY: the buffer is at least as long as the slice, which outlives the command, since the session waits for
        // its queue before the call returns.
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
        read.map(|event| drop(Event(event))).map_err(|code| failed(self.core.id, "reading a buffer", code))
    }

    /// Makes the caller see what the device wrote to lent memory. A processor writes to it as the host would; other devices
    /// promise that only for memory that is mapped.
    fn show_lent(&self, launched: &Launched<'_>) -> Result<(), BackendError> {
        if self.core.device.profile.device_class == DeviceClass::Software {
            return Ok(());
        }
        let data = launched.attached.iter().filter_map(|attached| match attached {
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
            // SAFETY: the whole of a live buffer is mapped and unmapped again; the address is the caller's own.
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
                .map_err(|code| failed(self.core.id, "mapping a buffer", code))?;
        }
        self.wait()
    }

    /// How the dispatch ended, after the queue was waited for.
    fn ending(&self, launched: &Launched<'_>, limit: Option<Duration>) -> Result<(), BackendError> {
        let Some(control) = &launched.control else { return Ok(()) };
        match control.words[0].load(Ordering::Acquire) {
            TRAPPED => Err(BackendError::Trapped {
                kernel: self.variant.kernel.display_name().to_string(),
                code: control.words[1].load(Ordering::Relaxed),
            }),
            STOPPED => {
                Err(BackendError::Timeout { backend: self.core.id.into(), limit: limit.unwrap_or_default() })
            }
            _ => Ok(()),
        }
    }

    /// Gives back what came from the pool. The queue has been waited for.
    fn release(&self, launched: Launched<'_>) {
        for attached in launched.attached {
            if let Attached::Copied { pooled, .. } = attached {
                self.core.pool.put(pooled);
            }
        }
        if let Some(Control { memory: ControlMemory::Copied(pooled), .. }) = launched.control {
            self.core.pool.put(pooled);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let Some((queue, object)) = self.queue.take().zip(self.object.take()) else { return };
        // After an error commands may still be under way, on memory that the caller takes back now. A queue that cannot be
        // waited for is not used again.
        if finish(queue.0).is_ok() {
            self.core.put_queue(queue, self.timing);
            self.variant.idle.lock().unwrap_or_else(PoisonError::into_inner).push(object);
        }
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

/// Waits while a watch raises the flag once the time is up.
fn watched(
    control: Option<&Control>,
    limit: Option<Duration>,
    wait: impl FnOnce() -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let (Some(control), Some(limit)) = (control, limit) else { return wait() };
    let finished = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lock = finished.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = finished.1.wait_timeout_while(lock, limit, |done| !*done);
            if waited.is_ok_and(|(done, _)| !*done) {
                // A trap that came first stays.
                let _ = control.words[0].compare_exchange(0, STOPPED, Ordering::Relaxed, Ordering::Relaxed);
            }
        });
        let waited = wait();
        *finished.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        finished.1.notify_all();
        waited
    })
}

impl Pipeline {
    /// Runs on memory bound to every buffer, in binding order; gives the kernel's time if it was asked for.
    fn run(
        &self,
        memory: Vec<Given<'_>>,
        config: &DispatchConfig,
        timing: Timing,
    ) -> Result<Option<Duration>, BackendError> {
        let variant = self.variant(config)?;
        let launch = self.launch_of(&variant, &memory, config)?;
        let session = Session::new(&self.core, &variant, timing)?;
        let started = Instant::now();
        let mut launched = session.launch(&self.bound, memory, &launch)?;
        session.collect(&mut launched)?;
        watched(launched.control.as_ref(), config.timeout, || session.wait())?;
        session.show_lent(&launched)?;
        session.ending(&launched, config.timeout)?;
        let late = config.timeout.filter(|limit| !variant.form.stoppable && started.elapsed() > *limit);
        if let Some(limit) = late {
            return Err(BackendError::Timeout { backend: self.core.id.into(), limit });
        }
        let device = launched.event.as_ref().filter(|_| timing == Timing::On).and_then(duration_of);
        session.release(launched);
        if variant.launches.fetch_add(1, Ordering::Relaxed) + 1 == KEPT_AT_LAUNCH {
            variant.built.keep(&self.core);
        }
        Ok(device)
    }

    fn launch_of(
        &self,
        variant: &Variant,
        memory: &[Given<'_>],
        config: &DispatchConfig,
    ) -> Result<Launch, BackendError> {
        let lengths: Vec<usize> = memory.iter().map(Given::len).collect();
        let overrides = Overrides { workgroup: Some(variant.form.workgroup), grid: config.grid_override };
        Ok(Launch::from_bound(&variant.kernel, &lengths, overrides)?)
    }

    /// One vector per output: zeros, or a copy of what the caller gave to be changed.
    fn fresh_outputs(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let lengths: Vec<usize> = inputs.iter().map(Input::len).collect();
        let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
        let launch = Launch::from_inputs(&self.kernel, &lengths, overrides)?;
        let written = || self.bound.iter().filter(|&&id| self.access(id).is_output());
        let total = written().map(|&id| launch.bytes(&self.kernel, id)).fold(0, usize::saturating_add);
        if let Some(most) = config.max_output_bytes.filter(|&most| total > most) {
            return Err(self.failed(format!(
                "the outputs take {total} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
            )));
        }
        let mut given = inputs.iter();
        let mut outputs = Vec::new();
        for &id in &self.bound {
            let input = if self.access(id).is_input() { given.next() } else { None };
            match (self.access(id), input) {
                (Access::ReadWrite, Some(Input::Host(bytes))) => outputs.push(bytes.to_vec()),
                (Access::ReadWrite, Some(Input::Resident(resident))) => {
                    let mut copy = self.zeroed(resident.bytes)?;
                    self.core.download(resident, 0, &mut copy)?;
                    outputs.push(copy);
                }
                (Access::Output, _) => outputs.push(self.zeroed(launch.bytes(&self.kernel, id))?),
                (Access::Read | Access::Uniform | Access::Workgroup | Access::ReadWrite, _) => {}
            }
        }
        Ok(outputs)
    }

    fn zeroed(&self, bytes: usize) -> Result<Vec<u8>, BackendError> {
        // `vec![0; n]` gets zero pages from the system, but ends the process where there are none; so ask first.
        let mut probe = Vec::<u8>::new();
        probe.try_reserve_exact(bytes).map_err(|_| BackendError::DeviceOutOfMemory {
            backend: self.core.id.into(),
            requested_bytes: bytes as u64,
        })?;
        drop(probe);
        Ok(vec![0; bytes])
    }

    /// The memory of a call: inputs to read, outputs to write.
    fn given<'m>(&self, inputs: &[Input<'m>], outputs: &'m mut OutputBuffers) -> Vec<Given<'m>> {
        let (mut inputs, mut outputs) = (inputs.iter(), outputs.iter_mut());
        let bind = |&id: &BufferId| {
            let input = if self.access(id).is_input() { inputs.next() } else { None };
            let output = if self.access(id).is_output() { outputs.next() } else { None };
            match (input, output) {
                (_, Some(output)) => Given::Write(output),
                (Some(Input::Host(bytes)), None) => Given::Read(bytes),
                (Some(Input::Resident(resident)), None) => Given::Resident(resident),
                (None, None) => unreachable!("every bound buffer is an input or an output"),
            }
        };
        self.bound.iter().map(bind).collect()
    }

    fn outputs(
        &self,
        inputs: &[Input<'_>],
        config: &DispatchConfig,
        timing: Timing,
    ) -> Result<(OutputBuffers, Option<Duration>), BackendError> {
        let mut outputs = self.fresh_outputs(inputs, config)?;
        let memory = self.given(inputs, &mut outputs);
        let device = self.run(memory, config, timing)?;
        Ok((outputs, device))
    }
}

/// An input of a call.
#[derive(Clone, Copy)]
enum Input<'a> {
    Host(&'a [u8]),
    Resident(&'a Resident),
}

impl Input<'_> {
    fn len(&self) -> usize {
        match self {
            Input::Host(bytes) => bytes.len(),
            Input::Resident(resident) => resident.bytes,
        }
    }
}

fn host_inputs<'a>(inputs: &[&'a [u8]]) -> Vec<Input<'a>> {
    inputs.iter().map(|input| Input::Host(input)).collect()
}

fn record_of(inputs: &[Input<'_>], outputs: &[Vec<u8>]) -> LaunchRecord {
    let host_bytes = |input: &Input<'_>| match input {
        Input::Host(bytes) => bytes.len() as u64,
        Input::Resident(_) => 0,
    };
    LaunchRecord {
        input_bytes: inputs.iter().map(host_bytes).sum(),
        output_bytes: outputs.iter().map(|output| output.len() as u64).sum(),
        output_slots: outputs.len() as u64,
        ..LaunchRecord::default()
    }
}

/// The locks of all resident buffers of a call, taken in the order of their handles, so that two calls never wait for
/// each other.
fn lock_all(residents: &[(u64, Arc<Resident>)]) -> Vec<MutexGuard<'_, ()>> {
    let mut ordered: Vec<&(u64, Arc<Resident>)> = residents.iter().collect();
    ordered.sort_by_key(|(handle, _)| *handle);
    ordered.dedup_by_key(|(handle, _)| *handle);
    ordered.iter().map(|(_, held)| held.lock.lock().unwrap_or_else(PoisonError::into_inner)).collect()
}

impl CompiledPipeline for Pipeline {
    fn id(&self) -> &str {
        &self.id
    }

    fn dispatch(&self, inputs: &[Vec<u8>], config: &DispatchConfig) -> Result<OutputBuffers, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(&borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, || {
            let inputs = host_inputs(inputs);
            let (outputs, _) = self.outputs(&inputs, &config.merged(&self.config), Timing::Off)?;
            let record = record_of(&inputs, &outputs);
            Ok((outputs, record))
        })
    }

    fn dispatch_timed(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<TimedOutputs, BackendError> {
        observe_launch(&self.id, || {
            let start = Instant::now();
            let inputs = host_inputs(inputs);
            let (outputs, device) = self.outputs(&inputs, &config.merged(&self.config), Timing::On)?;
            let record = record_of(&inputs, &outputs);
            Ok((TimedOutputs { outputs, wall: start.elapsed(), device }, record))
        })
    }

    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        let config = config.merged(&self.config);
        if config.timeout.is_some() {
            // A deadline is each item's own.
            let each = items.iter().zip(slots);
            return each
                .into_iter()
                .try_for_each(|(item, slots)| self.dispatch_borrowed_into(item, &config, slots));
        }
        let mut rest = items.iter().zip(slots).peekable();
        while rest.peek().is_some() {
            let mut batch = Vec::new();
            let mut bytes = 0;
            while let Some((item, slots)) = rest.next_if(|_| batch.len() < BATCH && bytes < BATCH_BYTES) {
                bytes += item.iter().map(|input| input.len()).sum::<usize>();
                batch.push((host_inputs(item), slots));
            }
            self.run_batch(batch, &config)?;
        }
        Ok(())
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, || {
            let mut held = Vec::new();
            for input in inputs {
                if let Resource::Resident(handle) = input {
                    held.push((*handle, self.core.residents.get(self.core.id, *handle)?));
                }
            }
            let _guards = lock_all(&held);
            let mut residents = held.iter();
            let mut next = || residents.next().map(|(_, resident)| &**resident);
            let inputs: Vec<Input<'_>> = inputs
                .iter()
                .map(|input| match input {
                    Resource::Borrowed(bytes) => Input::Host(bytes),
                    Resource::Resident(_) => {
                        Input::Resident(next().unwrap_or_else(|| unreachable!("one was held per handle")))
                    }
                })
                .collect();
            let (outputs, _) = self.outputs(&inputs, &config.merged(&self.config), Timing::Off)?;
            let record = record_of(&inputs, &outputs);
            Ok((outputs, record))
        })
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, || {
            self.check_bindings(bindings)?;
            let mut held = Vec::new();
            for binding in bindings.iter() {
                if let Binding::Resident(handle) = binding {
                    held.push((*handle, self.core.residents.get(self.core.id, *handle)?));
                }
            }
            let _guards = lock_all(&held);
            let mut residents = held.iter();
            let mut record = LaunchRecord::default();
            let memory: Vec<Given<'_>> = bindings
                .iter_mut()
                .map(|binding| match binding {
                    Binding::Read(bytes) => Given::Read(bytes),
                    Binding::ReadWrite(bytes) => Given::Write(bytes),
                    Binding::Write(bytes) => Given::Fill(bytes),
                    Binding::Resident(_) => match residents.next() {
                        Some((_, resident)) => Given::Resident(resident),
                        None => unreachable!("one was held per handle"),
                    },
                })
                .collect();
            for given in &memory {
                count(&mut record, given);
            }
            self.run(memory, &config.merged(&self.config), Timing::Off)?;
            Ok(((), record))
        })
    }
}

fn count(record: &mut LaunchRecord, given: &Given<'_>) {
    let bytes = given.len() as u64;
    match given {
        Given::Read(_) => record.input_bytes += bytes,
        Given::Write(_) | Given::Fill(_) => {
            if let Given::Write(_) = given {
                record.input_bytes += bytes;
            }
            record.output_bytes += bytes;
            record.output_slots += 1;
            record.output_slots_reused += 1;
        }
        Given::Resident(_) => {}
    }
}

impl Pipeline {
    /// Every buffer has memory, what the kernel writes is writable, and nothing that it writes is bound twice.
    fn check_bindings(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        let mut residents: Vec<(u64, bool)> = Vec::new();
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            let access = self.access(id);
            let fits = match binding {
                Binding::Read(_) => !access.is_output(),
                Binding::ReadWrite(_) => access == Access::ReadWrite,
                Binding::Write(_) => access == Access::Output,
                Binding::Resident(handle) => {
                    residents.push((*handle, access.is_output()));
                    true
                }
            };
            if !fits {
                let name = &self.kernel.buffer(id).decl.name;
                return Err(self.failed(format!(
                    "buffer `{name}` is {access} and was bound otherwise; bind Read for read and uniform buffers, \
                     ReadWrite for read_write, Write for output"
                )));
            }
        }
        residents.sort_unstable();
        let shared = residents.windows(2).find(|pair| pair[0].0 == pair[1].0 && (pair[0].1 || pair[1].1));
        match shared {
            Some(pair) => Err(self
                .failed(format!("resident buffer {} is bound twice, and the kernel writes it", pair[0].0))),
            None => Ok(()),
        }
    }

    /// Launches all items, then waits for all. An error leaves the slots of its item and of those behind it alone.
    fn run_batch(
        &self,
        batch: Vec<(Vec<Input<'_>>, &mut OutputBuffers)>,
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let variant = self.variant(config)?;
        let mut outputs = Vec::with_capacity(batch.len());
        let mut failure = None;
        for (inputs, _) in &batch {
            match self.fresh_outputs(inputs, config) {
                Ok(fresh) => outputs.push(fresh),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let done = {
            let session = Session::new(&self.core, &variant, Timing::Off)?;
            let mut launched = Vec::with_capacity(batch.len());
            for ((inputs, _), outputs) in batch.iter().zip(&mut outputs) {
                match self.launch_item(&session, inputs, outputs, config) {
                    Ok(item) => launched.push(item),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            session.wait()?;
            let mut done = 0;
            for item in launched {
                let ended = session.show_lent(&item).and_then(|()| session.ending(&item, None));
                session.release(item);
                if let Err(error) = ended {
                    failure = Some(error);
                    break;
                }
                done += 1;
            }
            done
        };
        for ((inputs, slots), outputs) in batch.into_iter().zip(outputs).take(done) {
            observe_launch(&self.id, || {
                let record = record_of(&inputs, &outputs);
                Ok(((), write_slots(record, outputs, slots)))
            })?;
        }
        failure.map_or(Ok(()), Err)
    }

    fn launch_item<'m>(
        &self,
        session: &Session<'_>,
        inputs: &[Input<'m>],
        outputs: &'m mut OutputBuffers,
        config: &DispatchConfig,
    ) -> Result<Launched<'m>, BackendError> {
        let memory = self.given(inputs, outputs);
        let launch = self.launch_of(session.variant, &memory, config)?;
        let mut launched = session.launch(&self.bound, memory, &launch)?;
        session.collect(&mut launched)?;
        Ok(launched)
    }
}

/// Puts outputs into the caller's slots, keeping every allocation that is large enough.
fn write_slots(mut record: LaunchRecord, outputs: OutputBuffers, slots: &mut OutputBuffers) -> LaunchRecord {
    slots.truncate(outputs.len());
    for (k, output) in outputs.into_iter().enumerate() {
        match slots.get_mut(k) {
            Some(slot) if output.len() <= slot.capacity() => {
                slot.clear();
                slot.extend_from_slice(&output);
                record.output_slots_reused += 1;
                continue;
            }
            Some(slot) => *slot = output,
            None => slots.push(output),
        }
        record.output_slots_moved += 1;
    }
    record
}
