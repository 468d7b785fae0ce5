//! Code for one form of a program.
//!
//! A dispatch that meets what the optimizer relied on ([`KernelBody::requires`](vyre_foundation::kernel::KernelBody)) runs
//! selective code, which checks less; any other runs code with all checks.

use crate::backend::Core;
use crate::object::{KernelObject, lock};
use crate::program::{Built, build};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, DispatchConfig, Schedule};
use vyre_foundation::emit::{Argument, OPENCL, Settings, emit, prepare};
use vyre_foundation::kernel::{Kernel, KernelDomain};
use vyre_foundation::optimize::Assume;

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) workgroup: [u32; 3],
    /// Whether only invocations inside the domain run.
    pub(crate) within_domain: bool,
    /// Whether each dispatch brings that domain.
    pub(crate) given_domain: bool,
    /// Whether it runs only dispatches that meet its requirements.
    pub(crate) selective: bool,
    /// Whether the kernel ends when it is told to.
    pub(crate) stoppable: bool,
    /// Elements per invocation.
    pub(crate) elements: u32,
    pub(crate) schedule: Schedule,
}

/// The code for one form of the program.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) form: Form,
    pub(crate) kernel: Kernel,
    pub(crate) built: Built,
    entry: String,
    whole_entry: Option<String>,
    pub(crate) text_bytes: u64,
    pub(crate) arguments: Vec<Argument>,
    /// Entries that nobody is using.
    idle: Mutex<Vec<Entries>>,
    /// Per buffer: whether it is written everywhere and never read, so that it need not be zeroed.
    pub(crate) covered: Vec<bool>,
    launches: AtomicU32,
}

/// The entries of a kernel, for one call at a time: OpenCL keeps a launch's arguments in them.
#[derive(Debug)]
pub(crate) struct Entries {
    /// Runs any grid.
    pub(crate) any: KernelObject,
    /// Runs workgroups that lie inside the domain.
    pub(crate) whole: Option<KernelObject>,
}

/// The launch at which a binary is kept on disk. PoCL takes half as long as for compiling to give it out, which is not worth
/// it for a program that runs once.
const KEPT_AT_LAUNCH: u32 = 2;

/// Invocations per workgroup of a shape-free kernel on a processor, whose drivers run a workgroup as one loop and take
/// some time for each: PoCL (3.1) runs a saxpy of 2^24 elements in 4.96 ms with 64, 4.65 ms with 256, 4.35 ms with 1024
/// and 4.37 ms with 4096 of them.
const PROCESSOR_WORKGROUP: u32 = 1024;

/// So many workgroups for each unit let units that are faster do more.
const WORKGROUPS_PER_UNIT: u32 = 8;

/// The form that a dispatch has if it meets the requirements.
pub(crate) fn form_of(core: &Core, kernel: &Kernel, config: &DispatchConfig) -> Form {
    let within_domain = kernel.shape_free && config.grid_override.is_none();
    let own = kernel.workgroup_size;
    let processor = core.device.profile.device_class == DeviceClass::Software;
    let workgroup = match config.workgroup_override {
        Some(size) => size,
        None if within_domain && processor && own[1] == 1 && own[2] == 1 => {
            [processor_workgroup(&core.device.profile, kernel, config), 1, 1]
        }
        None => own,
    };
    Form {
        workgroup,
        within_domain,
        given_domain: within_domain && config.gives_domain(),
        selective: true,
        stoppable: config.timeout.is_some() && core.device.shares_memory,
        elements: if within_domain { config.elements_per_invocation.unwrap_or(1) } else { 1 },
        schedule: config.schedule.unwrap_or(Schedule::Expensive),
    }
}

fn processor_workgroup(profile: &DeviceProfile, kernel: &Kernel, config: &DispatchConfig) -> u32 {
    let most = PROCESSOR_WORKGROUP.min(profile.max_invocations_per_workgroup).max(1);
    let domain = match &kernel.domain {
        _ if config.gives_domain() => config.domain_override,
        KernelDomain::Counts(counts) => Some(*counts),
        KernelDomain::LenOf(_) | KernelDomain::Axes(_) | KernelDomain::Given => None,
    };
    match domain {
        None => most,
        // A small domain is still shared among all units.
        Some(counts) => {
            let rows = counts[1].saturating_mul(counts[2]);
            let shares = (profile.compute_units.max(1) * WORKGROUPS_PER_UNIT).div_ceil(rows.max(1));
            counts[0].div_ceil(shares).next_power_of_two().clamp(64.min(most), most)
        }
    }
}

impl Variant {
    pub(crate) fn new(core: &Core, kernel: &Kernel, form: Form) -> Result<Variant, BackendError> {
        let assume = Assume {
            workgroup: Some(form.workgroup),
            within_domain: form.within_domain,
            dispatch_checks: form.selective,
        };
        let schedule = form.schedule.passes().with_assumptions(assume).with_coarsening(form.elements);
        let given = form.given_domain.then(|| kernel.over_given_domain());
        let prepared = prepare(given.as_ref().unwrap_or(kernel), schedule, &OPENCL);
        let settings = Settings { workgroup: form.workgroup, stoppable: form.stoppable };
        let source = emit(&prepared, &OPENCL, &settings);
        let _span = tracing::debug_span!("opencl build", bytes = source.text.len()).entered();
        let variant = Variant {
            form,
            covered: prepared.covered_outputs(form.within_domain),
            kernel: prepared,
            built: build(core, kernel.display_name(), &source.text)?,
            text_bytes: source.text.len() as u64,
            entry: source.entry,
            whole_entry: source.whole_entry,
            arguments: source.arguments,
            idle: Mutex::default(),
            launches: AtomicU32::new(0),
        };
        // Made here so that what the driver dislikes is an error of compiling.
        let entries = variant.take_entries(core)?;
        variant.put_entries(entries);
        Ok(variant)
    }

    /// Entries for the caller alone.
    pub(crate) fn take_entries(&self, core: &Core) -> Result<Entries, BackendError> {
        if let Some(idle) = lock(&self.idle).pop() {
            return Ok(idle);
        }
        let any = self.built.kernel(core, &self.entry)?;
        let whole = self.whole_entry.as_ref().map(|entry| self.built.kernel(core, entry)).transpose()?;
        Ok(Entries { any, whole })
    }

    /// Gives entries back.
    pub(crate) fn put_entries(&self, entries: Entries) {
        lock(&self.idle).push(entries);
    }

    /// Whether a dispatch may end before its kernel is done: by a trap, or because it is told to.
    pub(crate) fn ends_early(&self) -> bool {
        self.arguments.contains(&Argument::Control)
    }

    /// Counts a launch; a program that runs again is kept on disk.
    pub(crate) fn launched(&self, core: &Core) {
        if self.launches.fetch_add(1, Ordering::Relaxed) + 1 == KEPT_AT_LAUNCH {
            self.built.keep(core);
        }
    }
}
