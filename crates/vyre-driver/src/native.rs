//! One pipeline implementation for every backend that compiles.
//!
//! A backend is a [`NativeDevice`]: a compiler ([`build`](NativeDevice::build)), a launcher
//! ([`run`](NativeDevice::run)) and, optionally, resident memory
//! ([`allocate`](NativeDevice::allocate)). A type that holds a [`Native`] and implements
//! [`NativeBackend`] is a [`VyreBackend`](crate::VyreBackend). Everything else is implemented here:
//!
//! ```text
//! program ─▶ admission ─▶ Form ─▶ build ─▶ Variant     one per form, made at its first call
//! call ─▶ arguments ─▶ plan (form, launch, dispatch checks) ─▶ starts (coverage)
//!      ─▶ Job ─▶ run ─▶ slots, record
//! ```
//!
//! Each thread caches the plans of its last calls, so a call with the same shape, lengths and
//! uniforms is not planned again.
//!
//! Every buffer of a call is one [`BoundArgument`] from binding to launch: its memory, its length,
//! and its required contents at kernel start. Resident buffers are locked in handle order for the
//! duration of a call, shared for readers and exclusive for a writer. Handles are unique in the
//! process, so a handle from another backend instance is refused.

mod argument;
mod backend;
mod code_cache;
mod pipeline;
mod plan;
mod resident;
mod slots;

pub use crate::Failed;
pub use argument::{BoundArgument, Memory, Start};
pub use backend::{Native, NativeBackend};

use crate::{BackendError, CacheLimits, DeviceProfile, DispatchConfig, Schedule, default_supported_ops};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::time::Duration;
use vyre_foundation::kernel::{BufferId, Coverage, Doubts, Kernel, KernelBody};
use vyre_foundation::launch::Launch;
use vyre_foundation::ops::OpId;
use vyre_foundation::optimize::{self, Assume};
use vyre_foundation::types::Value;

/// A list that is stored inline while it is short, so that a typical call does not allocate.
pub type Few<T> = SmallVec<[T; 8]>;

/// The interface that a backend implements; see the module documentation. Only the methods without
/// a default are required.
pub trait NativeDevice: Send + Sync + Sized + 'static {
    /// The compiled form of a kernel.
    type Code: Send + Sync;
    /// A resident buffer.
    type Memory: Send + Sync;

    /// The id of its backend.
    fn id(&self) -> &'static str;

    /// The device's profile.
    fn profile(&self) -> DeviceProfile;

    /// The table ops that it supports.
    fn supported_ops(&self) -> &HashSet<OpId> {
        default_supported_ops()
    }

    /// Refuses kernels for reasons that the driver's admission does not check.
    fn admit(&self, _kernel: &Kernel, _config: &DispatchConfig) -> Result<(), BackendError> {
        Ok(())
    }

    /// The form of the code for such calls.
    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        Form::new(kernel, config)
    }

    /// Elements per invocation of a shape-free kernel if the caller does not specify it. Called
    /// once per program.
    fn usual_elements(&self, _kernel: &Kernel) -> u32 {
        1
    }

    /// The form that a launch of this size needs, or why the device cannot run it.
    fn form_of_launch(&self, form: Form, _launch: &Launch) -> Result<Form, BackendError> {
        Ok(form)
    }

    /// Compiles a kernel for one form.
    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Self::Code>, BackendError>;

    /// Whether the code is unusable because its device was lost.
    fn is_stale(&self, _code: &Self::Code) -> bool {
        false
    }

    /// Runs a job to completion. Returns the kernel's time on the device if it is available and
    /// [`Job::timed`] is set.
    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError>;

    /// Runs jobs in order. Stops at the first failure; the jobs before it are complete.
    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        for (done, job) in jobs.into_iter().enumerate() {
            self.run(job).map_err(|error| Failed { done, error })?;
        }
        Ok(())
    }

    /// Maximum number of batch items per call of [`run_all`](Self::run_all).
    fn batch_items(&self) -> usize {
        1
    }

    /// Maximum number of dispatches of a sequence per call of [`run_all`](Self::run_all). Only for
    /// a device that does not expose the [bytes](Self::host_bytes) of its resident buffers to the
    /// host. In such jobs a resident buffer is always [`Memory::Resident`], written or not, because
    /// several jobs share it; a buffer that one of them writes is locked against all other calls.
    /// The device must detect that memory is exhausted before the first launch.
    fn sequence_steps(&self) -> usize {
        1
    }

    /// Whether a failed run may have written to the caller's memory; `traps` is whether the kernel
    /// has traps.
    fn may_spoil(&self, traps: bool, config: &DispatchConfig) -> bool {
        traps || config.timeout.is_some()
    }

    /// Maximum total size of a call's outputs, in bytes.
    fn output_limit(&self) -> u64 {
        u64::MAX
    }

    /// Limits of the backend's pipeline cache; `None` if it has none.
    fn cache_limits(&self) -> Option<CacheLimits> {
        None
    }

    /// Allocates a zeroed resident buffer of this size.
    fn allocate(&self, _bytes: usize) -> Result<Self::Memory, BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Writes to a resident buffer at `offset`; the range is within the buffer and not empty.
    fn write(&self, _memory: &mut Self::Memory, _offset: usize, _bytes: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Reads from a resident buffer at `offset`; the range is within the buffer and not empty.
    fn read(&self, _memory: &Self::Memory, _offset: usize, _bytes: &mut [u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// The contents of a resident buffer, if the host can access them directly.
    fn host_bytes<'m>(&self, _memory: &'m Self::Memory) -> Option<&'m [u8]> {
        None
    }
}

/// The parameters that code is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The workgroup size.
    pub workgroup: [u32; 3],
    /// Whether only invocations inside the domain run.
    pub within_domain: bool,
    /// Whether each dispatch supplies that domain.
    pub given_domain: bool,
    /// Whether it runs only dispatches that complete the kernel's proof.
    pub selective: bool,
    /// The accesses that the proof leaves out, because a dispatch did not prove them.
    pub doubtful: Doubts,
    /// Whether the kernel can be stopped.
    pub stoppable: bool,
    /// Whether the grid is folded onto the device's axes.
    pub folded: bool,
    /// Elements per invocation.
    pub elements: u32,
    /// The optimizer's effort.
    pub schedule: Schedule,
}

impl Form {
    /// The form that the configuration specifies, with dispatch checks on and the other options
    /// off.
    pub fn new(kernel: &KernelBody, config: &DispatchConfig) -> Form {
        let within_domain = kernel.shape_free && config.grid_override.is_none();
        Form {
            workgroup: config.workgroup_override.unwrap_or(kernel.workgroup_size),
            within_domain,
            given_domain: within_domain && config.gives_domain(),
            selective: true,
            doubtful: Doubts::NONE,
            stoppable: false,
            folded: false,
            elements: if within_domain { config.elements_per_invocation.unwrap_or(1) } else { 1 },
            schedule: config.schedule.unwrap_or(Schedule::Expensive),
        }
    }

    /// The kernel to compile: independent of its domain if each dispatch supplies one.
    pub fn kernel(&self, kernel: &Kernel) -> Kernel {
        if self.given_domain { kernel.over_given_domain() } else { kernel.clone() }
    }

    /// The assumptions that the optimizer can make.
    pub fn assume(&self) -> Assume {
        Assume {
            workgroup: Some(self.workgroup),
            within_domain: self.within_domain,
            dispatch_checks: self.selective,
            doubtful: self.doubtful,
        }
    }

    /// The optimizer's passes.
    pub fn passes(&self) -> optimize::Schedule {
        self.schedule.passes().with_assumptions(self.assume()).with_coarsening(self.elements)
    }
}

/// The result of [`NativeDevice::build`].
#[derive(Debug)]
pub struct Built<C> {
    /// The optimized kernel that was compiled.
    pub kernel: Kernel,
    /// The code.
    pub code: C,
    /// Approximate memory use.
    pub bytes: u64,
}

/// The code for one form of a program.
#[derive(Debug)]
pub struct Variant<C> {
    /// The form.
    pub form: Form,
    /// The kernel as compiled.
    pub kernel: Kernel,
    /// The code.
    pub code: C,
    bytes: u64,
    /// Per buffer: when it is fully written and never read, so that it need not be zeroed.
    coverage: Vec<Coverage>,
}

/// One dispatch that is ready to run.
pub struct Job<'a, 'm, D: NativeDevice> {
    /// The code.
    pub variant: &'a Variant<D::Code>,
    /// The size of the launch.
    pub launch: &'a Launch,
    /// The memory of every bound buffer, in binding order.
    pub arguments: &'a mut [BoundArgument<'m, D::Memory>],
    /// The configuration.
    pub config: &'a DispatchConfig,
    /// Whether to measure the kernel's time on the device.
    pub timed: bool,
}

impl<D: NativeDevice> std::fmt::Debug for Job<'_, '_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("launch", &self.launch).finish_non_exhaustive()
    }
}

impl<'m, D: NativeDevice> Job<'_, 'm, D> {
    /// The argument of a bound buffer.
    pub fn argument(&self, id: BufferId) -> Option<&BoundArgument<'m, D::Memory>> {
        self.arguments.iter().find(|argument| argument.buffer == id)
    }

    /// An element of a read-only buffer, zero out of range; `None` if the host cannot read the
    /// buffer.
    pub fn element(&self, device: &D, id: BufferId, index: u32) -> Option<Value> {
        argument::element(device, &self.variant.kernel, self.arguments, id, index)
    }
}
