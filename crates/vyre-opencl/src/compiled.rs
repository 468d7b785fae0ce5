//! Compiled code for one form of a program.

use crate::device::UsableDevice;
use crate::object::{KernelObject, lock};
use crate::opencl_device::OpenClDevice;
use crate::program::{BuiltProgram, build};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use vyre_driver::native::{Built, Form};
use vyre_driver::{BackendError, DeviceClass, DispatchConfig};
use vyre_foundation::emit::{EntryArgument, OPENCL, Settings, emit, prepare};
use vyre_foundation::kernel::{Kernel, KernelBody, KernelDomain, Stmt, StmtKind};

/// Compiled code for one form of a program.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) built: BuiltProgram,
    entry: String,
    whole_entry: Option<String>,
    pub(crate) arguments: Vec<EntryArgument>,
    /// Idle entries.
    idle: Mutex<Vec<Entries>>,
    launches: AtomicU32,
}

/// Entries of a kernel, for one call at a time: OpenCL stores a launch's arguments in them.
#[derive(Debug)]
pub(crate) struct Entries {
    /// Runs any grid.
    pub(crate) any: KernelObject,
    /// Runs workgroups that are entirely inside the domain.
    pub(crate) whole: Option<KernelObject>,
}

/// The launch at which a binary is saved to disk. PoCL takes half as long to return a binary as to
/// compile it, which does not pay for a program that runs once.
const KEPT_AT_LAUNCH: u32 = 2;

/// Invocations per workgroup of a shape-free kernel on a processor, where drivers run a workgroup
/// as one loop with a fixed cost. PoCL (3.1) runs a saxpy of 2^24 elements in 4.96 ms with 64, 4.65
/// ms with 256, 4.35 ms with 1024 and 4.37 ms with 4096 invocations.
const PROCESSOR_WORKGROUP: u32 = 1024;

/// Workgroups per compute unit: enough for faster units to take on more of them. Chosen, not
/// measured.
const WORKGROUPS_PER_UNIT: u32 = 8;

/// Form of a dispatch that completes the proof.
pub(crate) fn form_of(opencl: &OpenClDevice, kernel: &Kernel, config: &DispatchConfig) -> Form {
    let form = Form::new(kernel, config);
    let own = kernel.workgroup_size;
    let processor = opencl.device.profile.device_class == DeviceClass::Software;
    let workgroup = match config.workgroup_override {
        Some(size) => size,
        None if form.within_domain && processor && own[1] == 1 && own[2] == 1 => {
            [processor_workgroup(&opencl.device, kernel, config), 1, 1]
        }
        None => own,
    };
    Form { workgroup, stoppable: config.timeout.is_some() && opencl.device.shares_memory, ..form }
}

fn processor_workgroup(device: &UsableDevice, kernel: &Kernel, config: &DispatchConfig) -> u32 {
    let profile = &device.profile;
    let most = PROCESSOR_WORKGROUP
        .min(profile.max_invocations_per_workgroup)
        .min(most_at_once(device, kernel))
        .max(1);
    let domain = match &kernel.domain {
        _ if config.gives_domain() => config.domain_override,
        KernelDomain::Counts(counts) => Some(*counts),
        KernelDomain::LenOf(_) | KernelDomain::Axes(_) | KernelDomain::Given => None,
    };
    match domain {
        None => most,
        // A small domain is still divided among all units.
        Some(counts) => {
            let rows = counts[1].saturating_mul(counts[2]);
            let shares = (profile.compute_units.max(1) * WORKGROUPS_PER_UNIT).div_ceil(rows.max(1));
            counts[0].div_ceil(shares).min(most).next_power_of_two().clamp(64.min(most), most)
        }
    }
}

/// Bytes of an invocation's private memory that the driver keeps for a whole workgroup: arrays, and
/// values that can live across barriers.
fn private_bytes(kernel: &KernelBody) -> u64 {
    let arrays = kernel
        .arrays
        .iter()
        .map(|array| u64::from(array.count) * 8.min(u64::from(array.element.bits().max(32)) / 8));
    let crossing = if has_barrier(&kernel.body) { kernel.values.len() + kernel.locals.len() } else { 0 };
    arrays.fold(8 * crossing as u64, u64::saturating_add)
}

fn has_barrier(block: &[Stmt]) -> bool {
    let is_barrier = |stmt: &Stmt| matches!(stmt.kind, StmtKind::Barrier);
    block.iter().any(|stmt| is_barrier(stmt) || stmt.kind.blocks().into_iter().any(has_barrier))
}

/// Number of invocations whose private memory fits at the same time.
fn most_at_once(device: &UsableDevice, kernel: &KernelBody) -> u32 {
    let most = device.private_limit.map_or(u64::MAX, |limit| limit / private_bytes(kernel).max(1));
    u32::try_from(most).unwrap_or(u32::MAX)
}

/// Refuses workgroups whose private memory would overflow a stack.
fn check_private(
    opencl: &OpenClDevice,
    kernel: &KernelBody,
    workgroup: [u32; 3],
) -> Result<(), BackendError> {
    let invocations = workgroup.iter().fold(1, |all: u64, &axis| all.saturating_mul(axis.into()));
    if invocations <= most_at_once(&opencl.device, kernel).into() {
        return Ok(());
    }
    let (bytes, limit) = (private_bytes(kernel), opencl.device.private_limit.unwrap_or(0));
    let name = format!(
        "the private memory of kernel `{}`: {bytes} bytes for each of {invocations} invocations (at most {limit} for a workgroup on its device)",
        kernel.display_name()
    );
    Err(BackendError::UnsupportedFeature { name, backend: opencl.id.into() })
}

/// Compiles a kernel.
pub(crate) fn build_form(
    opencl: &OpenClDevice,
    kernel: &Kernel,
    form: Form,
) -> Result<Built<Compiled>, BackendError> {
    check_private(opencl, kernel, form.workgroup)?;
    let prepared = prepare(kernel, form.passes(), &OPENCL);
    let settings = Settings { workgroup: form.workgroup, stoppable: form.stoppable, folded: false };
    let source = emit(&prepared, &OPENCL, &settings);
    let _span = tracing::debug_span!("opencl build", bytes = source.text.len()).entered();
    let code = Compiled {
        built: build(opencl, kernel.display_name(), &source.text)?,
        entry: source.entry,
        whole_entry: source.whole_entry,
        arguments: source.arguments,
        idle: Mutex::default(),
        launches: AtomicU32::new(0),
    };
    // Created here so that the driver's objections are compile errors.
    let entries = code.take_entries(opencl)?;
    code.put_entries(entries);
    // The size of the driver's code is unknown; it grows with the text.
    Ok(Built { kernel: prepared, code, bytes: 16 * source.text.len() as u64 })
}

impl Compiled {
    /// Entries for the caller's exclusive use.
    pub(crate) fn take_entries(&self, opencl: &OpenClDevice) -> Result<Entries, BackendError> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let any = self.built.kernel(opencl, &self.entry)?;
        let whole = self.whole_entry.as_ref().map(|entry| self.built.kernel(opencl, entry)).transpose()?;
        Ok(Entries { any, whole })
    }

    /// Returns entries to the pool.
    pub(crate) fn put_entries(&self, entries: Entries) {
        lock(&self.idle).push(entries);
    }

    /// Counts a launch; a program that runs again is saved to disk.
    pub(crate) fn launched(&self, opencl: &OpenClDevice) {
        if self.launches.fetch_add(1, Ordering::Relaxed) + 1 == KEPT_AT_LAUNCH {
            self.built.keep(opencl);
        }
    }
}
