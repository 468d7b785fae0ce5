//! The `cuda` backend and its registration.

use crate::code::{Compiled, build_form};
use crate::context::Context;
use crate::device::{BACKEND_ID, devices};
use crate::library::stamped_files;
use crate::memory::{DeviceMemory, Pinned};
use crate::session::{Session, run, run_all};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vyre_driver::binaries::Binaries;
use vyre_driver::native::{Built, Failed, Form, Job, Native, NativeBackend, NativeDevice};
use vyre_driver::registry::{
    BackendCapability, BackendDevices, BackendPrecedence, BackendRegistration, nth_device, stamp_of_files,
};
use vyre_driver::{BackendError, CacheLimits, DeviceProfile, DispatchConfig, default_supported_ops};
use vyre_foundation::emit::STOPPED;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::launch::Launch;

/// Reference this to link the registration below: a static library omits anything unreferenced.
pub static LINKED: u8 = 0;

inventory::submit! {
    BackendRegistration {
        id: BACKEND_ID,
        factory: || Ok(Box::new(Cuda::new()?)),
        supported_ops: default_supported_ops,
    }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 100 } }
inventory::submit! {
    BackendDevices {
        id: BACKEND_ID,
        names: Cuda::device_names,
        open: |device| Ok(Box::new(Cuda::open(device)?)),
        stamp: || stamp_of_files(&stamped_files()),
    }
}

/// An NVIDIA device.
///
/// ```
/// use vyre_cuda::Cuda;
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(
///     vec![out],
///     [1, 1, 1],
///     vec![Node::store("out", Expr::u32(0), Expr::u32(9))],
/// );
/// match Cuda::new() {
///     Ok(cuda) => {
///         let outputs = cuda.dispatch(&program, &[], &DispatchConfig::default())?;
///         assert_eq!(outputs, [[9, 0, 0, 0]]);
///     }
///     Err(missing) => println!("SKIP {missing}"),
/// }
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct Cuda {
    native: Native<CudaDevice>,
}

impl NativeBackend for Cuda {
    type Device = CudaDevice;

    fn native(&self) -> &Native<CudaDevice> {
        &self.native
    }
}

impl Cuda {
    /// Opens the best device; the error reports what is missing if there is none.
    pub fn new() -> Result<Cuda, BackendError> {
        Cuda::open(0)
    }

    /// Opens the device with this index; 0 is the best.
    pub fn open(device: u32) -> Result<Cuda, BackendError> {
        let (id, found) = nth_device(BACKEND_ID, devices()?, device)?;
        let cuda = CudaDevice {
            context: Arc::new(Context::new(id, found)?),
            binaries: Binaries::of_user(BACKEND_ID),
            idle: Mutex::default(),
            stopper: Mutex::default(),
        };
        end_after_own_threads();
        Ok(Cuda { native: Native::new(cuda) })
    }

    /// Names of the devices, best first.
    pub fn device_names() -> Result<Vec<String>, BackendError> {
        Ok(devices()?.iter().map(|device| device.profile.device_name.to_string()).collect())
    }
}

vyre_driver::exit_handlers!();

/// A device with its context, cached binaries and pooled sessions.
#[derive(Debug)]
pub struct CudaDevice {
    pub(crate) context: Arc<Context>,
    binaries: Binaries,
    /// Idle sessions.
    idle: Mutex<Vec<Session>>,
    /// Stops running kernels: a session for its stream, and a pinned word.
    stopper: Mutex<Option<(Session, Pinned)>>,
}

/// Maximum workgroups of a launch that no deadline can split: as many as a device runs in hours.
const MOST_GROUPS: u128 = 1 << 40;

/// Takes a lock, ignoring poison. Every change is a single step, so the guarded state is consistent
/// even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// A session for the caller's exclusive use, with at least this much memory. The context must
    /// be current.
    pub(crate) fn take_session(&self, bytes: usize) -> Result<Session, BackendError> {
        let idle = lock(&self.idle).pop();
        let mut session = idle.map_or_else(|| Session::new(&self.context), Ok)?;
        if let Err(BackendError::DeviceOutOfMemory { .. }) = session.fit(bytes) {
            // Memory pooled for later calls is needed now.
            session.empty();
            self.give_back();
            session.wait()?;
            if let Err(error) = session.fit(bytes) {
                session.empty();
                self.put_session(session);
                return Err(error);
            }
        }
        Ok(session)
    }

    /// Returns a session whose stream is idle to the pool.
    pub(crate) fn put_session(&self, mut session: Session) {
        session.rest();
        lock(&self.idle).push(session);
    }

    /// Returns the memory of idle sessions to the device.
    fn give_back(&self) {
        for session in lock(&self.idle).iter_mut() {
            session.empty();
            // Memory freed in stream order is available once the stream has reached that point.
            let _ = session.wait();
        }
        self.context.trim();
    }

    /// Runs `work` in a session without memory.
    fn in_session(
        &self,
        work: impl FnOnce(&Session) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let _current = self.context.enter()?;
        let session = self.take_session(0)?;
        let ran = work(&session);
        self.put_session(session);
        ran
    }

    /// Copies from device memory.
    pub(crate) fn read_memory(
        &self,
        memory: &DeviceMemory,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        self.in_session(|session| session.copy_from(memory.pointer + offset as u64, bytes))
    }

    /// Stops the kernel that polls these control words. The context must be current.
    pub(crate) fn stop(&self, control: u64) -> Result<(), BackendError> {
        let mut stopper = lock(&self.stopper);
        if stopper.is_none() {
            let mut word = Pinned::new(&self.context, 4)?;
            word.slice().copy_from_slice(&STOPPED.to_le_bytes());
            *stopper = Some((Session::new(&self.context)?, word));
        }
        let Some((session, word)) = &mut *stopper else { return Ok(()) };
        // From pinned memory, so that the copy engine does it, which no kernel occupies.
        session.copy_to(control, word.slice())
    }
}

impl NativeDevice for CudaDevice {
    type Code = Compiled;
    type Memory = DeviceMemory;

    fn id(&self) -> &'static str {
        self.context.id
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile { backend: self.context.id, ..self.context.device.profile }
    }

    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        let timed = config.timeout.is_some();
        Form { stoppable: timed, folded: timed, ..Form::new(kernel, config) }
    }

    fn form_of_launch(&self, form: Form, launch: &Launch) -> Result<Form, BackendError> {
        let groups = launch.grid.iter().fold(1, |all: u128, &axis| all * u128::from(axis));
        let most = self.context.device.most_groups;
        let fits = (0..3).all(|axis| u64::from(launch.grid[axis]) <= most[axis]);
        if groups > MOST_GROUPS {
            let name = format!("a grid of {:?} workgroups (at most {MOST_GROUPS} in all)", launch.grid);
            return Err(BackendError::UnsupportedFeature { name, backend: self.context.id.into() });
        }
        Ok(Form { folded: form.folded || !fits, ..form })
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
        build_form(&self.context, &self.binaries, kernel, form)
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        run(self, job)
    }

    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        run_all(self, jobs)
    }

    fn batch_items(&self) -> usize {
        64
    }

    fn sequence_steps(&self) -> usize {
        64
    }

    /// Results reach the caller's memory only after success.
    fn may_spoil(&self, _traps: bool, _config: &DispatchConfig) -> bool {
        false
    }

    fn cache_limits(&self) -> Option<CacheLimits> {
        Some(CacheLimits::default())
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceMemory, BackendError> {
        let current = self.context.enter()?;
        let made = match DeviceMemory::new(&self.context, bytes) {
            Err(BackendError::DeviceOutOfMemory { .. }) => {
                self.give_back();
                DeviceMemory::new(&self.context, bytes)
            }
            other => other,
        };
        let memory = made?;
        drop(current);
        self.in_session(|session| session.clear(memory.pointer, bytes.max(1)))?;
        Ok(memory)
    }

    fn write(&self, memory: &mut DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        self.in_session(|session| session.copy_to(memory.pointer + offset as u64, bytes))
    }

    fn read(&self, memory: &DeviceMemory, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.read_memory(memory, offset, bytes)
    }
}
