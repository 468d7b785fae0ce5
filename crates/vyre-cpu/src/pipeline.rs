//! A compiled program, and how a dispatch runs it.
//!
//! Code is made for the shape that the program declares; another shape (an overridden workgroup size or grid) gets code
//! of its own, made once. Code relies on what most dispatches satisfy (`KernelBody::requires`: guards and indices that
//! lengths and parameters decide); one that does not gets code with all checks. A dispatch works in place: the machine code gets pointers to the caller's memory. Small
//! dispatches run on the calling thread.

use crate::backend::BACKEND_ID;
use crate::code::{Code, Effort, compile, listing};
use crate::costs::{COSTS, Choice, Help, Learnt, Taken, now};
use crate::coverage::{Coverage, coverage};
use crate::emit::{BufferEntry, CANCELLED, Context, DONE, SharedBuffer, TRAPPED};
use crate::pool::{Cancel, share, thread_count};
use crate::resident::{Resident, Residents};
use crate::routines::Lanes;
use crate::watchdog::watched;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::observability::{LaunchRecord, observe_launch};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, Resource, Schedule, write_slots,
};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{BufferId, Def, Kernel, KernelBody, Requirement, Stmt, StmtKind};
use vyre_foundation::launch::{Launch, Overrides};
use vyre_foundation::math::expand;
use vyre_foundation::optimize::{self, Assume, Target, optimize};
use vyre_foundation::types::Value;

/// A program compiled for the processor.
#[derive(Debug)]
pub(crate) struct Pipeline {
    id: String,
    kernel: Kernel,
    config: DispatchConfig,
    residents: Arc<Residents>,
    /// The buffers that a dispatch binds, in binding order.
    bound: Vec<BufferId>,
    usual: Arc<Variant>,
    others: Mutex<HashMap<Form, Arc<Variant>>>,
}

/// What code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// The workgroup size; all the same for a shape-free kernel.
    workgroup: [u32; 3],
    /// Whether only invocations inside the domain run.
    within_domain: bool,
    /// Whether it runs only dispatches that meet its requirements.
    selective: bool,
}

/// The code for one form of the program.
#[derive(Debug)]
struct Variant {
    form: Form,
    code: Code,
    /// What a dispatch must satisfy to run it.
    requires: Vec<Requirement>,
    /// How long its dispatches take.
    learnt: Learnt,
    /// Per buffer: when it is written everywhere and never read, so that it need not be zeroed.
    coverage: Vec<Coverage>,
}

impl Pipeline {
    pub(crate) fn new(
        program: &Program,
        config: &DispatchConfig,
        residents: Arc<Residents>,
    ) -> Result<Pipeline, BackendError> {
        let kernel = program.validate()?;
        let form = form_of(&kernel, config);
        let usual = Arc::new(variant(&kernel, form, config)?);
        let digest: String = kernel.fingerprint[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Pipeline {
            id: format!("{BACKEND_ID}:{digest}"),
            bound: kernel.bound_buffers(),
            kernel,
            config: config.clone(),
            residents,
            usual,
            others: Mutex::default(),
        })
    }

    /// The code for a dispatch.
    fn variant(
        &self,
        config: &DispatchConfig,
        launch: &Launch,
        memory: &[Memory<'_>],
    ) -> Result<Arc<Variant>, BackendError> {
        let form = form_of(&self.kernel, config);
        let variant = self.of_form(form, config)?;
        // A dispatch that runs nothing needs no other code for it.
        if launch.grid.contains(&0)
            || launch.satisfies(&variant.requires, &mut |id, index| self.element(memory, id, index))
        {
            return Ok(variant);
        }
        self.of_form(Form { selective: false, ..form }, config)
    }

    fn of_form(&self, form: Form, config: &DispatchConfig) -> Result<Arc<Variant>, BackendError> {
        if form == self.usual.form {
            return Ok(self.usual.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.get(&form) {
            return Ok(known.clone());
        }
        let made = Arc::new(variant(&self.kernel, form, config)?);
        others.insert(form, made.clone());
        Ok(made)
    }

    /// An element of a buffer that the kernel only reads; zero out of range.
    fn element(&self, memory: &[Memory<'_>], id: BufferId, index: u32) -> Option<Value> {
        let element = self.buffer(id).decl.element;
        let bytes = memory.get(self.bound.iter().position(|&bound| bound == id)?)?.bytes();
        let at = index as usize * element.size();
        let inside = bytes.get(at..).and_then(|rest| rest.get(..element.size()));
        inside.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
    }

    fn buffer(&self, id: BufferId) -> &vyre_foundation::kernel::KernelBuffer {
        self.kernel.buffer(id)
    }

    /// Runs on memory that is bound to every buffer, in binding order.
    fn run(&self, memory: &mut [Memory<'_>], config: &DispatchConfig) -> Result<(), BackendError> {
        let lengths: Few<usize> = memory.iter().map(|memory| memory.bytes().len()).collect();
        let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
        // A thread's next dispatch uses the memory of its last one.
        let mut launch = LAST_LAUNCH.take().unwrap_or_default();
        launch.fit_bound(&self.kernel, &self.bound, &lengths, overrides)?;
        let done = self.run_launch(&launch, memory, config);
        LAST_LAUNCH.set(Some(launch));
        done
    }

    fn run_launch(
        &self,
        launch: &Launch,
        memory: &mut [Memory<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let variant = self.variant(config, launch, memory)?;
        self.zero_outputs(&variant, launch, memory);
        let empty = BufferEntry { data: EMPTY.as_ptr().cast_mut(), length: 0 };
        let mut entries: Few<BufferEntry> = self.kernel.buffers.iter().map(|_| empty).collect();
        let mut copies = Vec::new();
        for (position, &id) in self.bound.iter().enumerate() {
            let length = u64::from(launch.lengths[id.index()]);
            let data = memory[position].pointer();
            if length == 0 {
                continue;
            }
            entries[id.index()] = BufferEntry { data, length };
            // Atomics need aligned memory; a caller's slice may lie anywhere.
            let buffer = self.buffer(id);
            if buffer.atomic && !(data as usize).is_multiple_of(buffer.decl.element.size()) {
                let mut copy = aligned_copy(memory[position].bytes());
                entries[id.index()].data = copy.as_mut_ptr().cast();
                copies.push((position, copy));
            }
        }
        let done = execute(&self.kernel, &variant, &entries, launch, config);
        for (position, copy) in copies {
            if let Some(target) = memory[position].writable() {
                for (target, source) in target.chunks_mut(8).zip(copy) {
                    target.copy_from_slice(&source.to_ne_bytes()[..target.len()]);
                }
            }
        }
        done
    }

    /// Zeroes what reads as zero until it is written, unless the kernel writes all of it and reads none.
    fn zero_outputs(&self, variant: &Variant, launch: &Launch, memory: &mut [Memory<'_>]) {
        for (position, &id) in self.bound.iter().enumerate() {
            if !matches!(memory[position], Memory::Fill(_)) {
                continue;
            }
            let covered = variant.coverage[id.index()]
                .holds(id, launch, &mut |buffer, index| self.element(memory, buffer, index));
            if !covered {
                memory[position].bytes_mut().fill(0);
            }
        }
    }

    fn outputs(
        &self,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<(OutputBuffers, LaunchRecord), BackendError> {
        let lengths: Few<usize> = inputs.iter().map(|input| input.len()).collect();
        let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
        let launch = Launch::from_inputs(&self.kernel, &lengths, overrides)?;
        let mut outputs = self.fresh_outputs(inputs, &launch, config)?;
        let mut given = inputs.iter();
        let mut fresh = outputs.iter_mut();
        let mut memory: Few<Memory<'_>> = SmallVec::new();
        for &id in &self.bound {
            let access = self.buffer(id).decl.access;
            let input = if access.is_input() { given.next() } else { None };
            let output = if access.is_output() { fresh.next() } else { None };
            memory.push(match (input, output) {
                (_, Some(output)) => Memory::Write(output),
                (Some(input), None) => Memory::Read(input),
                (None, None) => unreachable!("every bound buffer is an input or an output"),
            });
        }
        self.run(&mut memory, config)?;
        drop(memory);
        let record = LaunchRecord {
            input_bytes: lengths.iter().map(|&length| length as u64).sum(),
            output_bytes: outputs.iter().map(|output| output.len() as u64).sum(),
            output_slots: outputs.len() as u64,
            ..LaunchRecord::default()
        };
        Ok((outputs, record))
    }

    /// One vector per output: zeros, or a copy of what the caller gave to be changed.
    fn fresh_outputs(
        &self,
        inputs: &[&[u8]],
        launch: &Launch,
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        let written = || self.bound.iter().filter(|&&id| self.buffer(id).decl.access.is_output());
        let total = written().map(|&id| launch.bytes(&self.kernel, id)).fold(0, usize::saturating_add);
        if let Some(most) = config.max_output_bytes.filter(|&most| total > most) {
            return Err(failed(format!(
                "the outputs take {total} bytes, and `max_output_bytes` allows {most}; raise it or split the work"
            )));
        }
        let mut given = inputs.iter();
        let mut outputs = Vec::new();
        for &id in &self.bound {
            let access = self.buffer(id).decl.access;
            let input = if access.is_input() { given.next() } else { None };
            match (access, input) {
                (Access::ReadWrite, Some(input)) => outputs.push(input.to_vec()),
                (Access::Output, _) => outputs.push(zeroed(launch.bytes(&self.kernel, id))?),
                (Access::Read | Access::Uniform | Access::Workgroup | Access::ReadWrite, _) => {}
            }
        }
        Ok(outputs)
    }
}

fn zeroed(bytes: usize) -> Result<Vec<u8>, BackendError> {
    // `vec![0; n]` gets zero pages from the system, but ends the process where there are none; so ask first.
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| BackendError::DeviceOutOfMemory {
        backend: BACKEND_ID.into(),
        requested_bytes: bytes as u64,
    })?;
    drop(probe);
    Ok(vec![0; bytes])
}

fn aligned_copy(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(padded)
    };
    bytes.chunks(8).map(word).collect()
}

thread_local! {
    static LAST_LAUNCH: Cell<Option<Launch>> = const { Cell::new(None) };
}

/// A list that lies on the stack as long as it is short, so that a usual dispatch allocates nothing.
pub(crate) type Few<T> = SmallVec<[T; 8]>;

/// What an empty buffer points to: good for one element of any type, and never written, since no index is in range.
struct Empty([u64; 16]);
static EMPTY: Empty = Empty([0; 16]);

impl Empty {
    const fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// Memory of one buffer during a dispatch.
enum Memory<'a> {
    Read(&'a [u8]),
    /// Read and written, or already zero.
    Write(&'a mut [u8]),
    /// Written; reads as zero until then.
    Fill(&'a mut [u8]),
}

impl Memory<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Read(bytes) => bytes,
            Memory::Write(bytes) | Memory::Fill(bytes) => bytes,
        }
    }

    fn writable(&mut self) -> Option<&mut [u8]> {
        match self {
            Memory::Read(_) => None,
            Memory::Write(bytes) | Memory::Fill(bytes) => Some(bytes),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.writable().unwrap_or(&mut [])
    }

    /// The kernel writes only to buffers that it may write to, so a pointer to read-only memory is only read.
    fn pointer(&mut self) -> *mut u8 {
        match self {
            Memory::Read(bytes) => bytes.as_ptr().cast_mut(),
            Memory::Write(bytes) | Memory::Fill(bytes) => bytes.as_mut_ptr(),
        }
    }
}

fn form_of(kernel: &KernelBody, config: &DispatchConfig) -> Form {
    let within_domain = kernel.shape_free && config.grid_override.is_none();
    let workgroup = if kernel.shape_free {
        kernel.workgroup_size
    } else {
        config.workgroup_override.unwrap_or(kernel.workgroup_size)
    };
    Form { workgroup, within_domain, selective: true }
}

/// What is not worth the optimizer's time is not worth the compiler's.
fn effort(config: &DispatchConfig) -> Effort {
    match config.schedule {
        Some(Schedule::Off) => Effort::Quick,
        // A program's first calls are routed by how fast this code is, so it is worth its registers.
        Some(Schedule::Cheap | Schedule::Expensive) | None => Effort::Full,
    }
}

fn schedule(form: Form, config: &DispatchConfig) -> optimize::Schedule {
    let passes = config.schedule.unwrap_or(Schedule::Expensive).passes();
    let assume = Assume {
        workgroup: Some(form.workgroup),
        within_domain: form.within_domain,
        dispatch_checks: form.selective,
    };
    // Lanes divide one by one.
    let target = Target { slow_division: true, ..Target::default() };
    passes.with_target(target).with_assumptions(assume)
}

fn variant(kernel: &Kernel, form: Form, config: &DispatchConfig) -> Result<Variant, BackendError> {
    let invocations: u64 = form.workgroup.iter().map(|&n| u64::from(n)).product();
    if !kernel.shape_free && invocations > 65_536 {
        return Err(BackendError::UnsupportedFeature {
            name: format!("workgroups of {invocations} invocations (65,536 at most)"),
            backend: BACKEND_ID.into(),
        });
    }
    let optimized = optimize(expand(kernel), &schedule(form, config));
    let code =
        compile(&optimized, form.workgroup, effort(config)).map_err(|reason| no_code(kernel, &reason))?;
    let _span = tracing::debug_span!("cpu code", bytes = code.bytes().len()).entered();
    let coverage = coverage(&optimized);
    let requires = optimized.requires.clone();
    let learnt = Learnt::new(block_cost(&optimized.body).max(1));
    Ok(Variant { form, code, requires, learnt, coverage })
}

/// The vector form of a program at its own workgroup size, as text: what `cpu` makes machine code from.
pub fn vector_listing(program: &Program, config: &DispatchConfig) -> Result<String, BackendError> {
    let kernel = program.validate()?;
    let form = form_of(&kernel, config);
    let optimized = optimize(expand(&kernel), &schedule(form, config));
    listing(&optimized, form.workgroup, effort(config)).map_err(|reason| no_code(&kernel, &reason))
}

fn no_code(kernel: &Kernel, reason: &str) -> BackendError {
    BackendError::KernelCompileFailed {
        backend: BACKEND_ID.into(),
        message: format!("kernel `{}`: {reason}", kernel.display_name()),
    }
}

/// The machine code of a program at its own workgroup size, for a disassembler; it starts with its only function.
pub fn machine_code(program: &Program, config: &DispatchConfig) -> Result<Vec<u8>, BackendError> {
    let kernel = program.validate()?;
    let made = variant(&kernel, form_of(&kernel, config), config)?;
    Ok(made.code.bytes().to_vec())
}

/// A guess at the time of a block per invocation, in sixteenths of a nanosecond; loops count as eight rounds.
fn block_cost(block: &[Stmt]) -> u64 {
    let cost = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Def(_, def) => match def {
            Def::Const(_) | Def::Get(_) | Def::Len(_) | Def::Builtin(..) => 0,
            Def::Op(op, _) => 2 * u64::from(op.row().cost),
            Def::Load { .. } => 6,
            Def::Atomic { .. } => 160,
            Def::Subgroup(..) => 40,
        },
        StmtKind::Store { .. } => 6,
        StmtKind::If { then, otherwise, .. } => 2 + block_cost(then).saturating_add(block_cost(otherwise)),
        StmtKind::For { body, .. } | StmtKind::Loop(body) => block_cost(body).saturating_mul(8),
        StmtKind::Region { body, .. } => block_cost(body),
        StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Trap(_) => 1,
    };
    block.iter().map(cost).fold(0, u64::saturating_add)
}

// Running.

/// A piece of shared work takes about so many nanoseconds at least, so that handing it out does not show; a dispatch with a
/// deadline looks at the clock between pieces of at most so many.
const PIECE_NS: u64 = 4_000;
const TIMED_PIECE_NS: u64 = 20_000;
/// So many pieces are handed out in one go.
const MOST_PIECES: u64 = 1 << 20;
/// Rows are cut at multiples of so many elements.
const ROW_STEP: u64 = 64;

/// How a dispatch is run.
struct Sharing {
    invocations: u64,
    help: Help,
    /// Into how many pieces it is cut.
    pieces: u64,
    /// Whether its time is taken.
    measured: bool,
}

/// A dispatch under way, as its pieces see it.
struct Run<'a> {
    variant: &'a Variant,
    entries: &'a [BufferEntry],
    grid: [u32; 4],
    domain: [u32; 4],
    cancel: &'a Cancel,
    status: AtomicU32,
    trap: AtomicU32,
    deadline: Option<Instant>,
}

// SAFETY: the entries point to memory that the dispatch has borrowed for its duration; the kernel's threads may touch it
// together because kernels without races are the only ones with a defined result, and all accesses stay in bounds.
unsafe impl Sync for Run<'_> {}

fn execute(
    kernel: &KernelBody,
    variant: &Variant,
    entries: &[BufferEntry],
    launch: &Launch,
    config: &DispatchConfig,
) -> Result<(), BackendError> {
    let domain = launch.limit.unwrap_or_else(|| {
        // The whole grid; an axis of 2^32 invocations wraps to 0 only if it is refused by the launch.
        std::array::from_fn(|axis| launch.grid[axis].saturating_mul(launch.workgroup[axis]))
    });
    if launch.grid.contains(&0) || (variant.code.by_rows && domain.contains(&0)) {
        return Ok(());
    }
    let cancel = Cancel::default();
    let pad = |axes: [u32; 3]| [axes[0], axes[1], axes[2], 0];
    let run = Run {
        variant,
        entries,
        grid: pad(launch.grid),
        domain: pad(domain),
        cancel: &cancel,
        status: AtomicU32::new(DONE as u32),
        trap: AtomicU32::new(0),
        deadline: config.timeout.map(|timeout| Instant::now() + timeout.min(Duration::from_secs(1 << 30))),
    };
    match config.timeout {
        None => run.all(),
        Some(timeout) => watched(&cancel.0, timeout, || run.all()),
    }
    match run.status.load(Ordering::Relaxed) as i32 {
        TRAPPED => Err(BackendError::Trapped {
            kernel: kernel.display_name().to_string(),
            code: run.trap.load(Ordering::Relaxed),
        }),
        CANCELLED => Err(BackendError::Timeout {
            backend: BACKEND_ID.into(),
            limit: config.timeout.unwrap_or_default(),
        }),
        _ => Ok(()),
    }
}

impl Run<'_> {
    fn all(&self) {
        let [x, y, z] = [0, 1, 2].map(|axis| u64::from(self.domain[axis]));
        if !self.variant.code.by_rows {
            let groups = self.grid[..3].iter().fold(1, |all: u64, &n| all.saturating_mul(n.into()));
            let per_group: u64 = self.variant.form.workgroup.iter().map(|&n| u64::from(n)).product();
            let plan = self.plan_of(groups, per_group);
            return self.share(plan, groups, 1, |this, from, to| this.piece([from, to, 0, 0]));
        }
        let rows = y.saturating_mul(z);
        let plan = self.plan_of(rows, x);
        if rows >= plan.pieces {
            self.share(plan, rows, 1, |this, from, to| this.piece([from, to, 0, x]));
        } else if x >= plan.pieces.saturating_mul(ROW_STEP) || rows == 1 {
            // Long rows are cut; borders lie at multiples of a cache line of bytes.
            self.share(plan, x, ROW_STEP, |this, from, to| this.piece([0, rows, from, to]));
        } else {
            // Rows are too few for the pieces, and strips across all of them too long.
            let strips = plan.pieces.div_ceil(rows).max(self.plan(x).pieces).min(x.div_ceil(ROW_STEP)).max(1);
            let width = x.div_ceil(strips).next_multiple_of(ROW_STEP);
            let strips = x.div_ceil(width);
            self.share(plan, rows.saturating_mul(strips), 1, |this, from, to| {
                for strip in from..to {
                    let (row, at) = (strip / strips, strip % strips * width);
                    this.piece([row, row + 1, at, (at + width).min(x)]);
                }
            });
        }
    }

    /// How so many times as many invocations are run. More than can be counted are never all run: their pieces are as small
    /// as can be.
    fn plan_of(&self, times: u64, invocations: u64) -> Sharing {
        match times.checked_mul(invocations) {
            Some(all) => self.plan(all),
            None => Sharing { pieces: u64::MAX, measured: false, ..self.plan(u64::MAX) },
        }
    }

    /// How so many invocations are run.
    fn plan(&self, invocations: u64) -> Sharing {
        let learnt = &self.variant.learnt;
        let work = learnt.estimate(invocations);
        let Choice { help, counts } = learnt.help_for(invocations, work, &COSTS);
        let threads = thread_count() as u64;
        let shared = match help {
            Help::Nobody => 1,
            Help::Awake | Help::Everybody => {
                (work / PIECE_NS).clamp(threads, 8 * threads).next_multiple_of(threads)
            }
        };
        let timed = self.deadline.map_or(1, |_| work / TIMED_PIECE_NS);
        let measured = counts && learnt.wants(invocations, work);
        Sharing { invocations, help, pieces: shared.max(timed), measured }
    }

    fn share(&self, plan: Sharing, total: u64, step: u64, run: impl Fn(&Self, u64, u64) + Sync) {
        if plan.pieces == 1 && !plan.measured {
            return run(self, 0, total);
        }
        let size = total.div_ceil(plan.pieces.max(1)).next_multiple_of(step).max(1);
        let count = total.div_ceil(size);
        let (begun, mut spent, mut done) = (now(), 0, 0);
        // A dispatch that ends early leaves the other pieces of a round, which are counted through, and the other rounds.
        while done < count && self.status.load(Ordering::Relaxed) == DONE as u32 {
            let round = (count - done).min(MOST_PIECES);
            spent += share(round as usize, plan.help, &|piece| {
                let from = (done + piece as u64).saturating_mul(size);
                run(self, from, from.saturating_add(size).min(total));
            });
            done += round;
        }
        if plan.measured && self.status.load(Ordering::Relaxed) == DONE as u32 {
            let Sharing { invocations, help, .. } = plan;
            self.variant.learnt.took(Taken { invocations, help, elapsed: now() - begun, spent });
        }
    }

    fn piece(&self, [a, b, c, d]: [u64; 4]) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.cancel.0.store(true, Ordering::Relaxed);
        }
        if self.cancel.0.load(Ordering::Relaxed) {
            return self.end(CANCELLED);
        }
        let layout = &self.variant.code.layout;
        with_scratch(layout.scratch_bytes, layout.shared_bytes, |scratch, shared| {
            let mut trap = 0;
            let entries = self.entries_on_this_thread(shared);
            let mut context = Context {
                cancel: self.cancel.0.as_ptr().cast(),
                scratch,
                shared,
                trap: &mut trap,
                grid: self.grid,
                domain: self.domain,
                buffers: entries.as_ptr(),
                lanes: Lanes::new(),
            };
            // SAFETY: the context is what the code was made for: an entry per buffer with memory for its length, scratch
            // and shared memory of the layout's sizes, all alive for the call.
            let status = unsafe { (self.variant.code.entry())(&mut context, a, b, c, d) };
            if status != DONE {
                self.trap.store(trap, Ordering::Relaxed);
                self.end(status);
            }
        });
    }

    /// The buffers with those of the workgroup, which every thread has for itself.
    fn entries_on_this_thread(&self, shared: *mut u8) -> Few<BufferEntry> {
        let mut entries: Few<BufferEntry> = self.entries.iter().copied().collect();
        for (entry, place) in entries.iter_mut().zip(&self.variant.code.layout.shared) {
            if let Some(SharedBuffer { offset, count }) = *place {
                // SAFETY: the layout has all of the workgroup's buffers within the memory of its size.
                let data = unsafe { shared.add(offset as usize) };
                *entry = BufferEntry { data, length: u64::from(count) };
            }
        }
        entries
    }

    /// The first end that is not a success is the dispatch's; the other pieces stop soon.
    fn end(&self, status: i32) {
        let first =
            self.status.compare_exchange(DONE as u32, status as u32, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.cancel.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Memory of this thread for the length of a call.
fn with_scratch(scratch: usize, shared: usize, run: impl FnOnce(*mut u8, *mut u8)) {
    thread_local! {
        static MEMORY: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    }
    if scratch + shared == 0 {
        return run(std::ptr::null_mut(), std::ptr::null_mut());
    }
    MEMORY.with_borrow_mut(|memory| {
        let words = scratch.div_ceil(16) + shared.div_ceil(16);
        if memory.len() < words {
            memory.resize(words, 0);
        }
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector holds both stretches, the first rounded up to whole words.
        let second = unsafe { base.add(scratch.next_multiple_of(16)) };
        run(base, second);
    });
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
        observe_launch(&self.id, config, || self.outputs(inputs, &config.merged(&self.config)))
    }

    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        slots.resize_with(items.len(), Vec::new);
        let merged = config.merged(&self.config);
        let pieces = self.batch_pieces(items, &merged);
        if pieces > 1 {
            return self.batched_at_once(items, &merged, slots, pieces);
        }
        let mut each = items.iter().zip(slots);
        each.try_for_each(|(item, slots)| self.dispatch_borrowed_into(item, config, slots))
    }

    fn dispatch_persistent_handles(
        &self,
        inputs: &[Resource],
        config: &DispatchConfig,
    ) -> Result<OutputBuffers, BackendError> {
        observe_launch(&self.id, config, || {
            let mut handles: Vec<u64> = inputs
                .iter()
                .filter_map(|input| match input {
                    Resource::Borrowed(_) => None,
                    Resource::Resident(handle) => Some(*handle),
                })
                .collect();
            handles.sort_unstable();
            handles.dedup();
            let held = self.residents.all(&handles)?;
            let guards: Vec<(u64, MutexGuard<'_, Vec<u8>>)> = held.iter().map(locked).collect();
            let resident = |handle: u64| guards.iter().find(|(held, _)| *held == handle);
            let borrowed: Vec<&[u8]> = inputs
                .iter()
                .map(|input| match input {
                    Resource::Borrowed(bytes) => bytes.as_slice(),
                    Resource::Resident(handle) => resident(*handle).map_or(&[][..], |(_, bytes)| bytes),
                })
                .collect();
            self.outputs(&borrowed, &config.merged(&self.config))
        })
    }

    fn dispatch_bound(
        &self,
        bindings: &mut [Binding<'_>],
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        observe_launch(&self.id, config, || {
            let config = config.merged(&self.config);
            let mut record = LaunchRecord::default();
            self.check_bindings(bindings)?;
            let residents = self.lock_order(bindings)?;
            let mut guards: Few<(u64, MutexGuard<'_, Vec<u8>>)> = residents.iter().map(locked).collect();
            let mut memory: Few<Memory<'_>> = SmallVec::new();
            for (binding, &id) in bindings.iter_mut().zip(&self.bound) {
                memory.push(match binding {
                    Binding::Read(bytes) => Memory::Read(bytes),
                    Binding::ReadWrite(bytes) => Memory::Write(bytes),
                    Binding::Write(bytes) => Memory::Fill(bytes),
                    Binding::Resident(handle) => self.resident_memory(id, *handle, &mut guards),
                });
            }
            for memory in &memory {
                count(&mut record, memory);
            }
            self.run(&mut memory, &config)?;
            Ok(((), record))
        })
    }
}

// Batches.
impl Pipeline {
    /// Into how many pieces of several items a batch is cut: one if its items run one after the other, since there is little
    /// to do, or they are few and each is shared out by itself, or each has a deadline of its own.
    fn batch_pieces(&self, items: &[&[&[u8]]], config: &DispatchConfig) -> usize {
        let threads = thread_count();
        if config.timeout.is_some() || threads == 1 || items.len() < 2 {
            return 1;
        }
        let costs = || items.iter().map(|inputs| self.estimate(inputs, config));
        let worth_waking = COSTS.worth_waking();
        if items.len() < 4 * threads && costs().any(|cost| cost >= worth_waking) {
            return 1;
        }
        let total = costs().fold(0, u64::saturating_add);
        (total / (worth_waking / 2)).clamp(1, items.len().min(8 * threads) as u64) as usize
    }

    /// Roughly how many nanoseconds an item takes on one thread; none if it will be refused.
    fn estimate(&self, inputs: &[&[u8]], config: &DispatchConfig) -> u64 {
        let lengths: Few<usize> = inputs.iter().map(|input| input.len()).collect();
        let overrides = Overrides { workgroup: config.workgroup_override, grid: config.grid_override };
        Launch::from_inputs(&self.kernel, &lengths, overrides).map_or(0, |launch| {
            let axes = launch.grid.iter().chain(&launch.workgroup);
            let invocations = axes.map(|&n| u64::from(n)).fold(1, u64::saturating_mul);
            self.usual.learnt.estimate(invocations)
        })
    }

    /// Items on all threads, which are woken once. Threads take items in order, and none after one that failed: all before
    /// that are done, and what others made of later ones is dropped.
    fn batched_at_once(
        &self,
        items: &[&[&[u8]]],
        config: &DispatchConfig,
        slots: &mut [OutputBuffers],
        pieces: usize,
    ) -> Result<(), BackendError> {
        let results: Vec<OnceLock<Result<OutputBuffers, BackendError>>> =
            items.iter().map(|_| OnceLock::new()).collect();
        let first_failed = AtomicUsize::new(usize::MAX);
        let size = items.len().div_ceil(pieces);
        share(items.len().div_ceil(size), Help::Everybody, &|piece| {
            for (item, inputs) in items.iter().enumerate().skip(piece * size).take(size) {
                if first_failed.load(Ordering::Relaxed) < item {
                    return;
                }
                let result = self.outputs(inputs, config).map(|(outputs, _)| outputs);
                if result.is_err() {
                    first_failed.fetch_min(item, Ordering::Relaxed);
                }
                results[item].get_or_init(|| result);
            }
        });
        for ((result, inputs), slots) in results.into_iter().zip(items).zip(slots) {
            let Some(result) = result.into_inner() else {
                unreachable!("an item is left out only after one that failed")
            };
            observe_launch(&self.id, config, || {
                let input_bytes = inputs.iter().map(|input| input.len() as u64).sum();
                Ok(((), write_slots(input_bytes, result?, slots)))
            })?;
        }
        Ok(())
    }
}

impl Pipeline {
    /// Every buffer has memory, and what the kernel writes is writable.
    fn check_bindings(&self, bindings: &[Binding<'_>]) -> Result<(), BackendError> {
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            let decl = &self.buffer(id).decl;
            let fits = match binding {
                Binding::Read(_) => !decl.access.is_output(),
                Binding::ReadWrite(_) => decl.access == Access::ReadWrite,
                Binding::Write(_) => decl.access == Access::Output,
                Binding::Resident(_) => true,
            };
            if !fits {
                return Err(failed(format!(
                    "buffer `{}` is {} and was bound otherwise; bind Read for read and uniform buffers, ReadWrite for \
                     read_write, Write for output",
                    decl.name, decl.access
                )));
            }
        }
        Ok(())
    }

    /// The resident buffers of a call in the order of their handles, so that two calls never wait for each other. One that
    /// the kernel writes cannot be bound twice.
    fn lock_order(&self, bindings: &[Binding<'_>]) -> Result<Few<(u64, Resident)>, BackendError> {
        let mut found: Few<(u64, bool)> = SmallVec::new();
        for (binding, &id) in bindings.iter().zip(&self.bound) {
            if let Binding::Resident(handle) = binding {
                found.push((*handle, self.buffer(id).decl.access.is_output()));
            }
        }
        found.sort_unstable();
        let shared = found.windows(2).find(|pair| pair[0].0 == pair[1].0 && (pair[0].1 || pair[1].1));
        if let Some(pair) = shared {
            let message = format!("resident buffer {} is bound twice, and the kernel writes it", pair[0].0);
            return Err(failed(message));
        }
        let mut handles: Few<u64> = found.into_iter().map(|(handle, _)| handle).collect();
        handles.dedup();
        self.residents.all(&handles)
    }

    fn resident_memory<'a>(
        &self,
        id: BufferId,
        handle: u64,
        guards: &mut [(u64, MutexGuard<'_, Vec<u8>>)],
    ) -> Memory<'a> {
        let Some((_, guard)) = guards.iter_mut().find(|(held, _)| *held == handle) else {
            unreachable!("every resident buffer of the call was locked")
        };
        let (data, length) = (guard.as_mut_ptr(), guard.len());
        // SAFETY: the guard lives until the call is over and its memory does not move. A buffer that is written is bound
        // once (`lock_order`), so a mutable slice is the only one; the others are only read.
        unsafe {
            match self.buffer(id).decl.access {
                Access::ReadWrite => Memory::Write(std::slice::from_raw_parts_mut(data, length)),
                Access::Output => Memory::Fill(std::slice::from_raw_parts_mut(data, length)),
                Access::Read | Access::Uniform | Access::Workgroup => {
                    Memory::Read(std::slice::from_raw_parts(data, length))
                }
            }
        }
    }
}

/// A resident buffer, for this call alone.
fn locked((handle, held): &(u64, Resident)) -> (u64, MutexGuard<'_, Vec<u8>>) {
    (*handle, held.lock().unwrap_or_else(PoisonError::into_inner))
}

fn count(record: &mut LaunchRecord, memory: &Memory<'_>) {
    let bytes = memory.bytes().len();
    match memory {
        Memory::Read(_) => record.read(bytes),
        Memory::Write(_) => {
            record.read(bytes);
            record.wrote(bytes);
        }
        Memory::Fill(_) => record.wrote(bytes),
    }
}

fn failed(message: String) -> BackendError {
    BackendError::DispatchFailed { backend: BACKEND_ID.into(), message }
}

const _: () = assert!(size_of::<AtomicBool>() == 1, "the emitted code reads the flag as a byte");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::times_shared;
    use vyre_foundation::text::parse;

    /// Runs a batch, and the same items one by one; gives how often each asked for the threads.
    fn check(pipeline: &Pipeline, items: &[Vec<u8>]) -> [usize; 2] {
        let inputs: Vec<[&[u8]; 1]> = items.iter().map(|item| [item.as_slice()]).collect();
        let borrowed: Vec<&[&[u8]]> = inputs.iter().map(|item| item.as_slice()).collect();
        let config = DispatchConfig::default();
        let before = times_shared();
        let batch = pipeline.dispatch_borrowed_batched(&borrowed, &config);
        let between = times_shared();
        let single: Result<Vec<OutputBuffers>, _> =
            borrowed.iter().map(|item| pipeline.dispatch_borrowed(item, &config)).collect();
        assert_eq!(batch, single);
        [between - before, times_shared() - between]
    }

    fn compiled(source: &str) -> Pipeline {
        let program = parse(source).expect("the text is a program");
        Pipeline::new(&program, &DispatchConfig::default(), Arc::default()).expect("it compiles")
    }

    #[test]
    fn a_batch_of_small_items_wakes_the_threads_once() {
        let source = "kernel mix(x: read u32[], y: output u32[] len_of x) over y { region \"mix\" {
            let h = x[invocation.x]
            for k in 0..20 { h = (h ^ (h >> 15)) * 0x2c1b3c6d }
            y[invocation.x] = h
        } }";
        let pipeline = compiled(source);
        let item = |seed: u32| (0..256).flat_map(|k| (seed + k).to_le_bytes()).collect();
        let items: Vec<Vec<u8>> = (0..1000).map(item).collect();
        // By the guess there is more to do than the slowest start of a thread is worth.
        assert_eq!(check(&pipeline, &items)[0], usize::from(thread_count() > 1));
        let small: Vec<Vec<u8>> = (0..2_u32).map(|seed| seed.to_le_bytes().to_vec()).collect();
        assert_eq!(check(&compiled(source), &small), [0, 0], "two small items are not worth a thread");
    }

    #[test]
    fn items_before_one_that_fails_are_done() {
        let source = "kernel check(x: read u32[], y: output u32[] len_of x) over y { region \"check\" {
            let v = x[invocation.x]
            if v == 77 { trap 5 }
            for k in 0..200 { y[invocation.x] = y[invocation.x] + v }
        } }";
        let pipeline = compiled(source);
        let items: Vec<Vec<u8>> = (0..400_u32).map(|seed| seed.to_le_bytes().repeat(64)).collect();
        let inputs: Vec<[&[u8]; 1]> = items.iter().map(|item| [item.as_slice()]).collect();
        let borrowed: Vec<&[&[u8]]> = inputs.iter().map(|item| item.as_slice()).collect();
        let mut slots = vec![vec![vec![9_u8; 3]]; items.len()];
        let ended =
            pipeline.dispatch_borrowed_batched_into(&borrowed, &DispatchConfig::default(), &mut slots);
        assert!(matches!(ended, Err(BackendError::Trapped { code: 5, .. })), "{ended:?}");
        for (seed, slot) in slots.iter().enumerate() {
            let expected = if seed < 77 { (200 * seed as u32).to_le_bytes().repeat(64) } else { vec![9; 3] };
            assert_eq!(slot[0], expected, "{seed}");
        }
    }
}
