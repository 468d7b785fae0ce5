//! One pipeline for every backend that compiles.
//!
//! A backend is a [`Device`]: a compiler ([`build`](Device::build)), a launcher ([`run`](Device::run)) and, if it likes,
//! memory that stays ([`allocate`](Device::allocate)). A type that holds a [`Native`] of it and says so
//! ([`NativeBackend`]) is a [`VyreBackend`](crate::VyreBackend); everything else is here, once:
//!
//! ```text
//! program ─▶ admission ─▶ Form ─▶ build ─▶ Variant       one per form, made when a call first asks for it
//! call ─▶ arguments ─▶ plan (form, launch, dispatch checks) ─▶ starts (coverage) ─▶ Job ─▶ run ─▶ slots, record
//! ```
//!
//! A thread keeps the plans of its last calls: one with the same shape, lengths and uniforms is not planned again.
//!
//! Every buffer of a call is one [`Argument`] from the moment it is bound to the launch: memory, how long it is, and what
//! it is to hold when the kernel starts. Resident buffers are locked in the order of their handles for the length of a
//! call, for all readers together or for one writer; handles are unique in the process, so that one of another backend
//! instance is refused.

mod argument;
mod backend;
mod code_cache;
mod pipeline;
mod plan;
mod resident;
mod slots;

pub use crate::Failed;
pub use argument::{Argument, Memory, Start};
pub use backend::{Native, NativeBackend};

use crate::{BackendError, CacheLimits, DeviceProfile, DispatchConfig, Schedule, default_supported_ops};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::time::Duration;
use vyre_foundation::kernel::{BufferId, Coverage, Kernel, KernelBody};
use vyre_foundation::launch::Launch;
use vyre_foundation::ops::OpId;
use vyre_foundation::optimize::{self, Assume};
use vyre_foundation::types::Value;

/// A list that lies on the stack as long as it is short, so that a usual call allocates nothing.
pub type Few<T> = SmallVec<[T; 8]>;

/// What a backend brings: see the module's text. Only what has no default is required.
pub trait Device: Send + Sync + Sized + 'static {
    /// What a kernel is compiled to.
    type Code: Send + Sync;
    /// A resident buffer.
    type Memory: Send + Sync;

    /// The id of the backend that it belongs to.
    fn id(&self) -> &'static str;

    /// What is known of the device.
    fn profile(&self) -> DeviceProfile;

    /// The table ops that it runs.
    fn supported_ops(&self) -> &HashSet<OpId> {
        default_supported_ops()
    }

    /// Refuses what the driver's admission does not know of.
    fn admit(&self, _kernel: &Kernel, _config: &DispatchConfig) -> Result<(), BackendError> {
        Ok(())
    }

    /// What the code for such calls depends on.
    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        Form::new(kernel, config)
    }

    /// Elements per invocation of a shape-free kernel, unless the caller says. Asked once per program.
    fn usual_elements(&self, _kernel: &Kernel) -> u32 {
        1
    }

    /// The form that a launch of this size needs, or why the device cannot run it.
    fn form_of_launch(&self, form: Form, _launch: &Launch) -> Result<Form, BackendError> {
        Ok(form)
    }

    /// Compiles a kernel for one form.
    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Self::Code>, BackendError>;

    /// Whether code is of no use any more, because its device was lost.
    fn is_stale(&self, _code: &Self::Code) -> bool {
        false
    }

    /// Runs to the end; gives the kernel's time on the device, where it can be told and [`Job::timed`] asks for it.
    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError>;

    /// Runs jobs as if one after the other: the first that fails ends it, and those before it are done.
    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        for (done, job) in jobs.into_iter().enumerate() {
            self.run(job).map_err(|error| Failed { done, error })?;
        }
        Ok(())
    }

    /// How many items of a batch [`run_all`](Self::run_all) is given at most.
    fn batch_items(&self) -> usize {
        1
    }

    /// How many dispatches of a sequence [`run_all`](Self::run_all) is given at most. Only for a device that shows the host no
    /// [bytes](Self::host_bytes) of its resident buffers. In such jobs a resident buffer is always [`Memory::Resident`], written
    /// or not, since several jobs have it; nobody else has a buffer that one of them writes. Running out of memory must be
    /// noticed before the first is launched.
    fn sequence_steps(&self) -> usize {
        1
    }

    /// Whether a run that fails may have written to the caller's memory, if the kernel has traps or not.
    fn may_spoil(&self, traps: bool, config: &DispatchConfig) -> bool {
        traps || config.timeout.is_some()
    }

    /// How many bytes all outputs of a call may take together.
    fn output_limit(&self) -> u64 {
        u64::MAX
    }

    /// How many pipelines the backend keeps, if it keeps any.
    fn cache_limits(&self) -> Option<CacheLimits> {
        None
    }

    /// A resident buffer of so many zero bytes.
    fn allocate(&self, _bytes: usize) -> Result<Self::Memory, BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Writes to a resident buffer from `offset` on; the range lies within it and is not empty.
    fn write(&self, _memory: &mut Self::Memory, _offset: usize, _bytes: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// Reads from a resident buffer from `offset` on; the range lies within it and is not empty.
    fn read(&self, _memory: &Self::Memory, _offset: usize, _bytes: &mut [u8]) -> Result<(), BackendError> {
        Err(BackendError::no_resident_buffers(self.id()))
    }

    /// The contents of a resident buffer, where the host has them at hand.
    fn host_bytes<'m>(&self, _memory: &'m Self::Memory) -> Option<&'m [u8]> {
        None
    }
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The workgroup size.
    pub workgroup: [u32; 3],
    /// Whether only invocations inside the domain run.
    pub within_domain: bool,
    /// Whether each dispatch brings that domain.
    pub given_domain: bool,
    /// Whether it runs only dispatches that meet the kernel's requirements.
    pub selective: bool,
    /// Whether the kernel ends when it is told to.
    pub stoppable: bool,
    /// Whether the grid is laid over the device's axes otherwise than over its own.
    pub folded: bool,
    /// Elements per invocation.
    pub elements: u32,
    /// The optimizer's effort.
    pub schedule: Schedule,
}

impl Form {
    /// What the configuration asks for, checked dispatches, nothing special.
    pub fn new(kernel: &KernelBody, config: &DispatchConfig) -> Form {
        let within_domain = kernel.shape_free && config.grid_override.is_none();
        Form {
            workgroup: config.workgroup_override.unwrap_or(kernel.workgroup_size),
            within_domain,
            given_domain: within_domain && config.gives_domain(),
            selective: true,
            stoppable: false,
            folded: false,
            elements: if within_domain { config.elements_per_invocation.unwrap_or(1) } else { 1 },
            schedule: config.schedule.unwrap_or(Schedule::Expensive),
        }
    }

    /// The kernel to compile: one that knows nothing of its domain, where each dispatch brings that.
    pub fn kernel(&self, kernel: &Kernel) -> Kernel {
        if self.given_domain { kernel.over_given_domain() } else { kernel.clone() }
    }

    /// What the optimizer may rely on.
    pub fn assume(&self) -> Assume {
        Assume {
            workgroup: Some(self.workgroup),
            within_domain: self.within_domain,
            dispatch_checks: self.selective,
        }
    }

    /// The optimizer's passes.
    pub fn passes(&self) -> optimize::Schedule {
        self.schedule.passes().with_assumptions(self.assume()).with_coarsening(self.elements)
    }
}

/// What a device made of a kernel.
#[derive(Debug)]
pub struct Built<C> {
    /// The kernel as it was compiled, optimized.
    pub kernel: Kernel,
    /// The code.
    pub code: C,
    /// About how much memory it takes.
    pub bytes: u64,
}

/// The code for one form of a program.
#[derive(Debug)]
pub struct Variant<C> {
    /// The form.
    pub form: Form,
    /// The kernel as it was compiled.
    pub kernel: Kernel,
    /// The code.
    pub code: C,
    bytes: u64,
    /// Per buffer: when it is written everywhere and never read, so that it need not be zeroed.
    coverage: Vec<Coverage>,
}

/// One dispatch, ready to run.
pub struct Job<'a, 'm, D: Device> {
    /// The code.
    pub variant: &'a Variant<D::Code>,
    /// How large it is.
    pub launch: &'a Launch,
    /// The memory of every bound buffer, in binding order.
    pub arguments: Few<Argument<'m, D::Memory>>,
    /// The configuration.
    pub config: &'a DispatchConfig,
    /// Whether somebody wants to know how long the kernel runs on the device.
    pub timed: bool,
}

impl<D: Device> std::fmt::Debug for Job<'_, '_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("launch", &self.launch).finish_non_exhaustive()
    }
}

impl<'m, D: Device> Job<'_, 'm, D> {
    /// The argument of a bound buffer.
    pub fn argument(&self, id: BufferId) -> Option<&Argument<'m, D::Memory>> {
        self.arguments.iter().find(|argument| argument.buffer == id)
    }

    /// An element of a buffer that the kernel only reads, zero out of range; `None` where the host does not see it.
    pub fn element(&self, device: &D, id: BufferId, index: u32) -> Option<Value> {
        argument::element(device, &self.variant.kernel, &self.arguments, id, index)
    }
}
