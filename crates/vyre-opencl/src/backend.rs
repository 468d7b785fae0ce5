//! The backend and its registration.

use crate::binaries::Binaries;
use crate::device::{Device, devices, interned};
use crate::memory::{Pool, device_memory};
use crate::object::{Context, Event, Memory, Queue, failed, lock};
use crate::resident::{Home, Resident};
use crate::run::{run, run_all};
use crate::variant::{Compiled, build_form, form_of};
use cl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_fill_buffer, enqueue_read_buffer,
    enqueue_write_buffer, finish,
};
use cl3::context::create_context;
use cl3::types::{CL_BLOCKING, cl_command_queue_properties};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;
use vyre_driver::leaving;
use vyre_driver::native::{Built, Device as NativeDevice, Failed, Form, Job, Native, NativeBackend};
use vyre_driver::registry::{
    BackendCapability, BackendDevices, BackendPrecedence, BackendRegistration, stamp_of_files,
};
use vyre_driver::{
    BackendError, CacheLimits, DeviceClass, DeviceProfile, DispatchConfig, default_supported_ops,
};
use vyre_foundation::ir::OpId;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::ops::SubgroupOp;

/// The id under which the backend is registered.
pub const BACKEND_ID: &str = "opencl";

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(OpenCl::new()?)), supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 300 } }
inventory::submit! {
    BackendDevices {
        id: BACKEND_ID,
        names: OpenCl::device_names,
        open: |device| Ok(Box::new(OpenCl::open(device)?)),
        stamp: driver_stamp,
    }
}

/// What the loader finds drivers by.
fn driver_stamp() -> String {
    let named = ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"].map(std::env::var_os).into_iter().flatten();
    let paths: Vec<PathBuf> =
        named.map(PathBuf::from).chain([PathBuf::from("/etc/OpenCL/vendors")]).collect();
    stamp_of_files(&paths)
}

/// A device reached through OpenCL.
///
/// ```
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_opencl::OpenCl;
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(vec![out], [1, 1, 1], vec![Node::store("out", Expr::u32(0), Expr::u32(9))]);
/// match OpenCl::new() {
///     Ok(opencl) => assert_eq!(opencl.dispatch(&program, &[], &DispatchConfig::default())?, [[9, 0, 0, 0]]),
///     Err(missing) => println!("SKIP {missing}"),
/// }
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct OpenCl {
    native: Native<Core>,
}

impl NativeBackend for OpenCl {
    type Device = Core;

    fn native(&self) -> &Native<Core> {
        &self.native
    }
}

/// A device and what goes with it.
#[derive(Debug)]
pub struct Core {
    pub(crate) id: &'static str,
    pub(crate) device: Device,
    pub(crate) context: Context,
    pub(crate) pool: Pool,
    pub(crate) binaries: Binaries,
    /// What a buffer without elements is bound to.
    pub(crate) empty: Memory,
    /// Queues that nobody is using: plain ones, and ones that take times.
    queues: [Mutex<Vec<Queue>>; 2],
}

/// Whether a queue's commands can be asked how long they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    Off,
    On,
}

impl OpenCl {
    /// The best device there is; an error that says what is missing if there is none.
    pub fn new() -> Result<OpenCl, BackendError> {
        OpenCl::open(0)
    }

    /// The device at this place, the best being 0.
    pub fn open(device: u32) -> Result<OpenCl, BackendError> {
        let all = devices()?;
        let Some(found) = all.get(device as usize) else {
            let count = all.len();
            return Err(BackendError::new(format!(
                "backend `{BACKEND_ID}` has {count} devices, so `{BACKEND_ID}:{device}` does not exist: use a number \
                 below {count}"
            )));
        };
        let id = if device == 0 { BACKEND_ID } else { interned(format!("{BACKEND_ID}:{device}")) };
        let native = Native::new(Core::new(id, *found)?);
        end_after_own_threads();
        Ok(OpenCl { native })
    }

    /// The devices' names, best first.
    pub fn device_names() -> Result<Vec<String>, BackendError> {
        Ok(devices()?.iter().map(|device| device.profile.device_name.to_string()).collect())
    }
}

unsafe extern "C" {
    /// The C library's: what is registered last is called first when the process exits.
    safe fn atexit(call: extern "C" fn()) -> std::ffi::c_int;
}

/// The libraries that were loaded register their own ends as they are loaded, so this one is called before them.
fn end_after_own_threads() {
    if atexit(leaving::wait_outside) != 0 {
        tracing::debug!("the process may end while a driver is at work");
    }
}

impl Core {
    fn new(id: &'static str, mut device: Device) -> Result<Core, BackendError> {
        device.profile.backend = id;
        let context = create_context(&[device.id], std::ptr::null(), None, std::ptr::null_mut())
            .map(Context)
            .map_err(|code| failed(id, "making a context", code))?;
        let empty = device_memory(id, &context, 64)?;
        Ok(Core {
            id,
            device,
            context,
            empty,
            pool: Pool::default(),
            binaries: Binaries::of_user(),
            queues: Default::default(),
        })
    }

    /// Where resident buffers lie: with the host, if the device is the processor itself and sees what the host writes.
    fn home(&self) -> Home {
        let processor = self.device.profile.device_class == DeviceClass::Software;
        if processor && self.device.shares_memory { Home::Host } else { Home::Device }
    }

    /// A queue for the caller alone.
    pub(crate) fn take_queue(&self, timing: Timing) -> Result<Queue, BackendError> {
        let idle = lock(&self.queues[timing as usize]).pop();
        if let Some(queue) = idle {
            return Ok(queue);
        }
        let properties: cl_command_queue_properties = match timing {
            Timing::Off => 0,
            Timing::On => CL_QUEUE_PROFILING_ENABLE,
        };
        // SAFETY: the device is the context's own.
        let made = unsafe { create_command_queue(self.context.0, self.device.id, properties) };
        made.map(Queue).map_err(|code| failed(self.id, "making a queue", code))
    }

    /// Gives a queue back on which nothing is under way.
    pub(crate) fn put_queue(&self, queue: Queue, timing: Timing) {
        lock(&self.queues[timing as usize]).push(queue);
    }

    /// Runs commands on a queue and waits for them.
    fn on_queue(&self, run: impl FnOnce(&Queue) -> Result<(), BackendError>) -> Result<(), BackendError> {
        let queue = self.take_queue(Timing::Off)?;
        let ran = run(&queue);
        let ended = finish(queue.0).map_err(|code| failed(self.id, "waiting for the device", code));
        self.put_queue(queue, Timing::Off);
        ran.and(ended)
    }

    /// Makes the first bytes of a buffer zero. The queue's later commands see that.
    pub(crate) fn fill_zero(&self, queue: &Queue, memory: &Memory, bytes: usize) -> Result<(), BackendError> {
        let zero = [0_u8];
        // SAFETY: both objects are alive, the range lies in the buffer, and the pattern is copied by the call.
        let filled = unsafe {
            enqueue_fill_buffer(queue.0, memory.0, zero.as_ptr().cast(), 1, 0, bytes, 0, std::ptr::null())
        };
        filled.map(|event| drop(Event(event))).map_err(|code| failed(self.id, "clearing a buffer", code))
    }

    /// Copies a part of a resident buffer to the host.
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

    /// Makes a resident buffer zero for later commands of the queue.
    pub(crate) fn clear_resident(&self, queue: &Queue, resident: &mut Resident) -> Result<(), BackendError> {
        if let Some(host) = resident.host_bytes_mut() {
            host.fill(0);
            return Ok(());
        }
        self.fill_zero(queue, &resident.memory, resident.bytes.max(1))
    }

    /// Reads from a buffer and waits for that.
    fn read(
        &self,
        queue: &Queue,
        memory: &Memory,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        let (pointer, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the range lies in the buffer, and the call returns when the slice is filled.
        let read = unsafe {
            enqueue_read_buffer(queue.0, memory.0, CL_BLOCKING, offset, length, pointer, 0, std::ptr::null())
        };
        read.map(|event| drop(Event(event))).map_err(|code| failed(self.id, "reading a buffer", code))
    }
}

impl NativeDevice for Core {
    type Code = Compiled;
    type Memory = Resident;

    fn id(&self) -> &'static str {
        self.id
    }

    fn profile(&self) -> DeviceProfile {
        self.device.profile
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        supported_ops()
    }

    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        form_of(self, kernel, config)
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
        build_form(self, kernel, form)
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        run(self, job)
    }

    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        run_all(self, jobs)
    }

    fn batch_items(&self) -> usize {
        32
    }

    fn cache_limits(&self) -> Option<CacheLimits> {
        Some(CacheLimits::default())
    }

    fn allocate(&self, bytes: usize) -> Result<Resident, BackendError> {
        let home = self.home();
        let mut resident = Resident::new(self.id, &self.context, home, bytes)?;
        if home == Home::Device {
            self.on_queue(|queue| self.clear_resident(queue, &mut resident))?;
        }
        Ok(resident)
    }

    fn write(&self, resident: &mut Resident, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        if let Some(host) = resident.host_bytes_mut() {
            host[offset..offset + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        self.on_queue(|queue| {
            let (pointer, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
            // SAFETY: the range lies in the buffer, and the call returns when the slice is copied; it is only read.
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

    fn read(&self, resident: &Resident, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.download(resident, offset, bytes)
    }

    fn host_bytes<'m>(&self, resident: &'m Resident) -> Option<&'m [u8]> {
        resident.host_bytes()
    }
}

/// Every op but those of subgroups: OpenCL leaves their order of lanes to the device.
fn supported_ops() -> &'static HashSet<OpId> {
    static OPS: LazyLock<HashSet<OpId>> = LazyLock::new(|| {
        let mut ops = default_supported_ops().clone();
        for op in SubgroupOp::all() {
            ops.remove(&op.id());
        }
        ops
    });
    &OPS
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;
    use vyre_driver::{CompiledPipeline, pipeline};
    use vyre_foundation::text::parse;

    /// The best device; where there is none, a line that says so.
    pub(crate) fn core() -> Result<Option<Core>, BackendError> {
        match devices() {
            Ok(all) => all.first().map(|device| Core::new(BACKEND_ID, *device)).transpose(),
            Err(missing) => {
                println!("SKIP {missing}");
                Ok(None)
            }
        }
    }

    /// A program on a device as it would be with memory of its own.
    fn apart(source: &str) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let Some(mut core) = core()? else { return Ok(None) };
        core.device.shares_memory = false;
        let opencl = Arc::new(OpenCl { native: Native::new(core) });
        pipeline::compile(opencl, &parse(source)?, &DispatchConfig::default()).map(Some)
    }

    #[test]
    fn a_device_with_memory_of_its_own_gets_copies() -> Result<(), BackendError> {
        let source =
            "kernel add(a: u32 uniform, x: read u32[], y: output u32[], z: read_write u32[]) over x {
          region \"r\" { let i = invocation.x
            if x[i] != 3 { y[i] = x[i] + a }
            z[i] = z[i] + x[i] } }";
        let Some(add) = apart(source)? else { return Ok(()) };
        let numbers = |k: u32| (0..100_003).flat_map(|i: u32| (i * k).to_le_bytes()).collect::<Vec<u8>>();
        let inputs = [5_u32.to_le_bytes().to_vec(), numbers(1), numbers(7)];
        let mut sums: Vec<u8> = (0..100_003_u32).flat_map(|i| (i + 5).to_le_bytes()).collect();
        sums[12..16].fill(0);
        for timeout in [None, Some(Duration::from_secs(60))] {
            let config = DispatchConfig { timeout, ..DispatchConfig::default() };
            assert!(add.dispatch(&inputs, &config)? == [sums.clone(), numbers(8)], "timeout {timeout:?}");
        }
        Ok(())
    }

    #[test]
    fn slices_stop_at_the_deadline() -> Result<(), BackendError> {
        // Many seconds in one piece, a tenth of one for each slice.
        let source = "kernel long(out: output u32[]) over [65536, 64, 1] {
          region \"r\" { let k = invocation.x
            for j in 0..4000 { k = k * 1664525 + j }
            out[invocation.x] = k } }";
        let source = source.replace("u32[]", "u32[65536]");
        let Some(long) = apart(&source)? else { return Ok(()) };
        let config = DispatchConfig { timeout: Some(Duration::from_millis(1)), ..DispatchConfig::default() };
        let ended = long.dispatch(&[], &config);
        assert!(matches!(ended, Err(BackendError::Timeout { .. })), "{ended:?}");
        Ok(())
    }
}
