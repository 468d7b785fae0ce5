//! Execution of dispatches on the processor.
//!
//! A dispatch works in place: the machine code gets pointers to the caller's memory. Small
//! dispatches run on the calling thread; a batch of many small ones is divided among several
//! threads.

use crate::backend::{BACKEND_ID, Processor};
use crate::code::{KernelCode, OPEN, compile, in_vectors, lanes_of, vector_form};
use crate::context::{BufferEntry, CANCELLED, Context, DONE, TRAPPED};
use crate::costs::{COSTS, Choice, Help, Learnt, Taken, now};
use crate::effort::Effort;
use crate::elements::MOST_STRIDE;
use crate::emit::SharedBuffer;
use crate::piece::Machine;
use crate::pool::{share, thread_count};
use crate::resident_memory::ResidentMemory;
use crate::routines::Lanes;
use crate::source_region::MachineCode;
use crate::stores_past_caches::{Comparison, Timed, Way, only_written};
use crate::vector::VectorCode;
use crate::watchdog::{after, watched};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;
use vyre_driver::native::{BoundArgument, Built, Failed, Few, Form, Job, Memory};
use vyre_driver::{BackendError, Cancellation, DispatchConfig, Schedule};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{Def, Kernel, KernelBody, Stmt, StmtKind};
use vyre_foundation::legalise::{Steps, WantedPasses, legalise};
use vyre_foundation::math::expand;
use vyre_foundation::optimize::{self, Target, optimize};

/// Code for one form of a program.
#[derive(Debug)]
pub struct Compiled {
    code: KernelCode,
    /// Per buffer: whether the kernel only writes it.
    only_written: Vec<bool>,
    /// Code whose stores to those buffers bypass the caches, compiled on first use; `None` if
    /// compiling it failed.
    past_caches: OnceLock<Option<KernelCode>>,
    /// Whether that code is the faster one.
    comparison: Comparison,
    /// Measured times of its dispatches.
    learnt: Learnt,
}

impl Compiled {
    /// Selects the code for a dispatch on this memory.
    fn code_for(&self, job: &CpuJob<'_, '_>, entries: &[BufferEntry]) -> (&KernelCode, Option<Timed>) {
        let written = entries.iter().zip(&self.only_written).zip(&job.variant.kernel.buffers);
        let written = written.filter(|((_, only_written), _)| **only_written);
        let bytes =
            written.map(|((entry, _), buffer)| entry.length * buffer.decl.element.size() as u64).sum();
        let (way, timed) = self.comparison.way(bytes);
        if way == Way::Plain {
            return (&self.code, timed);
        }
        let (kernel, form) = (&job.variant.kernel, job.variant.form);
        let past = || code_of(kernel, form, &self.only_written).ok();
        (self.past_caches.get_or_init(past).as_ref().unwrap_or(&self.code), timed)
    }
}

/// A dispatch on the processor.
pub(crate) type CpuJob<'a, 'm> = Job<'a, 'm, Processor>;

/// Longest supported buffer, in elements: if lanes a few elements apart are all in range, no index
/// between them has wrapped past 2^32.
const MOST_ELEMENTS: u64 = u32::MAX as u64 - MOST_STRIDE as u64;

/// Runs a dispatch in place.
pub(crate) fn run(job: CpuJob<'_, '_>) -> Result<(), BackendError> {
    let kernel = &*job.variant.kernel;
    let empty = BufferEntry { data: EMPTY.as_ptr().cast_mut(), length: 0 };
    let mut entries = Few::from_elem(empty, kernel.buffers.len());
    let mut copies = Vec::new();
    for (position, argument) in job.arguments.iter_mut().enumerate() {
        let buffer = kernel.buffer(argument.buffer);
        let length = u64::from(job.launch.lengths[argument.buffer.index()]);
        let data = start(argument);
        if length == 0 {
            continue;
        }
        if length > MOST_ELEMENTS {
            return Err(BackendError::UnsupportedFeature {
                name: format!("buffers of {length} elements ({MOST_ELEMENTS} at most)"),
                backend: BACKEND_ID.into(),
            });
        }
        entries[argument.buffer.index()] = BufferEntry { data, length };
        // Atomics need aligned memory, and a caller's slice can have any alignment.
        if buffer.atomic && !(data as usize).is_multiple_of(buffer.decl.element.size()) {
            let mut copy = aligned_copy(bytes(&argument.memory));
            entries[argument.buffer.index()].data = copy.as_mut_ptr().cast();
            copies.push((position, copy));
        }
    }
    let done = execute(&job, &entries);
    for (position, copy) in copies {
        let target = match &mut job.arguments[position].memory {
            Memory::Write(bytes) => Some(&mut **bytes),
            Memory::ResidentMut(bytes) => Some(&mut ***bytes),
            Memory::Read(_) | Memory::Resident(_) => None,
        };
        if let Some(target) = target {
            for (target, source) in target.chunks_mut(8).zip(copy) {
                target.copy_from_slice(&source.to_ne_bytes()[..target.len()]);
            }
        }
    }
    done
}

/// Initialises an argument's memory for the kernel and returns its address. The kernel writes only
/// to buffers it has write access to, so a pointer to read-only memory is only read.
fn start(argument: &mut BoundArgument<'_, ResidentMemory>) -> *mut u8 {
    let start = argument.start;
    let in_place = |bytes: &mut [u8]| {
        start.apply(bytes);
        bytes.as_mut_ptr()
    };
    match &mut argument.memory {
        Memory::Read(bytes) => bytes.as_ptr().cast_mut(),
        Memory::Write(bytes) => in_place(bytes),
        Memory::Resident(bytes) => bytes.as_ptr().cast_mut(),
        Memory::ResidentMut(bytes) => in_place(bytes),
    }
}

fn bytes<'a>(memory: &'a Memory<'_, ResidentMemory>) -> &'a [u8] {
    match memory {
        Memory::Read(bytes) => bytes,
        Memory::Write(bytes) => bytes,
        Memory::Resident(bytes) => bytes,
        Memory::ResidentMut(bytes) => bytes,
    }
}

fn aligned_copy(bytes: &[u8]) -> Vec<u64> {
    let word = |chunk: &[u8]| {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(padded)
    };
    bytes.chunks(8).map(word).collect()
}

/// Target of empty buffers: valid for one element of any type, and never written, since no index is
/// in range.
struct Empty([u64; 16]);
static EMPTY: Empty = Empty([0; 16]);

impl Empty {
    const fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// Form of a call with this configuration. The workgroup size of a shape-free kernel has no
/// meaning, but a requested size with as many invocations as a vector can have lanes selects that
/// lane count, so that a tuner can try each.
pub(crate) fn form_of(kernel: &KernelBody, config: &DispatchConfig) -> Form {
    let form = Form { elements: 1, ..Form::new(kernel, config) };
    // A grid counts workgroups of the program's declared size.
    let workgroup = match (form.within_domain, config.workgroup_override) {
        (true, Some(asked)) if lanes_of(kernel, asked).is_some() => asked,
        (true, Some(_) | None) => OPEN,
        (false, Some(_) | None) => form.workgroup,
    };
    Form { workgroup, ..form }
}

/// Compile effort, by the optimizer's schedule.
fn effort(form: Form) -> Effort {
    match form.schedule {
        Schedule::Off => Effort::Quick,
        // Routing of a program's first calls depends on the speed of this code, so it gets full
        // register allocation.
        Schedule::Cheap | Schedule::Expensive => Effort::Full,
    }
}

/// Legal forms of kernels for vectorisation.
const WANTED: WantedPasses =
    WantedPasses { steps: Steps::Constant, nan_stores: true, half_floats: true, exits: false };

fn passes(form: Form) -> optimize::Schedule {
    // Vector lanes divide one by one.
    form.passes().with_target(Target { slow_division: true, ..Target::default() })
}

/// Compiles an optimized kernel; stores to the buffers in `past_caches` bypass the caches.
fn code_of(kernel: &Kernel, form: Form, past_caches: &[bool]) -> Result<KernelCode, String> {
    compile(&legalise(kernel, &WANTED), form.workgroup, effort(form), past_caches)
}

pub(crate) fn build(kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
    let invocations: u64 = form.workgroup.iter().map(|&n| u64::from(n)).product();
    if !kernel.shape_free && invocations > 65_536 {
        return Err(BackendError::UnsupportedFeature {
            name: format!("workgroups of {invocations} invocations (65,536 at most)"),
            backend: BACKEND_ID.into(),
        });
    }
    let optimized = optimize(expand(kernel), &passes(form));
    let code = code_of(&optimized, form, &[]).map_err(|reason| no_code(kernel, &reason))?;
    let bytes = code.bytes().len() as u64;
    let _span = tracing::debug_span!("cpu code", bytes).entered();
    let learnt = Learnt::new(block_cost(&optimized.body).max(1));
    let only_written = only_written(&optimized);
    let (past_caches, comparison) = (OnceLock::new(), Comparison::default());
    let compiled = Compiled { code, only_written, past_caches, comparison, learnt };
    Ok(Built { kernel: optimized, code: compiled, bytes })
}

/// Returns the vector form of a program at its declared workgroup size as text, from which `cpu`
/// generates machine code.
pub fn vector_listing(program: &Program, config: &DispatchConfig) -> Result<String, BackendError> {
    vector_code(program, config).map(|(_, code)| code.to_string())
}

/// Returns [`vector_listing`] for a processor with vector registers of this many bytes.
pub fn vector_listing_for(
    program: &Program,
    config: &DispatchConfig,
    register_bytes: u32,
) -> Result<String, BackendError> {
    let (legal, form) = legal_form(program, config)?;
    Ok(vector_form(&legal, form.workgroup, effort(form), Machine::new(register_bytes)).to_string())
}

/// Returns the legalised kernel of a program and its vector form.
pub(crate) fn vector_code(
    program: &Program,
    config: &DispatchConfig,
) -> Result<(Kernel, VectorCode), BackendError> {
    let (legal, form) = legal_form(program, config)?;
    let code = in_vectors(&legal, form.workgroup, effort(form)).map_err(|reason| no_code(&legal, &reason))?;
    Ok((legal, code))
}

fn legal_form(program: &Program, config: &DispatchConfig) -> Result<(Kernel, Form), BackendError> {
    let kernel = program.validate()?;
    let form = form_of(&kernel, config);
    Ok((legalise(&optimize(expand(&kernel), &passes(form)), &WANTED), form))
}

fn no_code(kernel: &Kernel, reason: &str) -> BackendError {
    BackendError::KernelCompileFailed {
        backend: BACKEND_ID.into(),
        message: format!("kernel `{}`: {reason}", kernel.display_name()),
    }
}

/// Returns the machine code of a program at its declared workgroup size, for a disassembler; it
/// starts with its only function.
pub fn machine_code(program: &Program, config: &DispatchConfig) -> Result<MachineCode, BackendError> {
    let kernel = program.validate()?;
    let made = build(&kernel, form_of(&kernel, config))?;
    Ok(made.code.code.listed())
}

/// Estimates the time of a block per invocation, in sixteenths of a nanosecond; loops count as
/// eight iterations.
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
        StmtKind::If { then, otherwise, .. } => {
            block_cost(then).saturating_add(block_cost(otherwise)).saturating_add(2)
        }
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

// Execution.

/// Minimum work per shared piece, in nanoseconds. Taking a piece is one atomic operation on a
/// shared cache line, which is then a small part of the time. A dispatch with a deadline checks the
/// clock, which takes 23 ns, between pieces of at most `TIMED_PIECE_NS`: a thousandth of the work.
const PIECE_NS: u64 = 4_000;
const TIMED_PIECE_NS: u64 = 20_000;
/// Maximum number of pieces handed out at once, far below what the pool's counter holds.
const MOST_PIECES: u64 = 1 << 20;
/// Rows are cut at multiples of this many elements: whole vectors, and at least a cache line of
/// any element, so that threads rarely write to one line.
const ROW_STEP: u64 = 64;

/// Execution plan of a dispatch.
struct Sharing {
    invocations: u64,
    help: Help,
    /// Number of pieces it is cut into.
    pieces: u64,
    /// Whether it is timed.
    measured: bool,
}

/// A dispatch in progress, as seen by its pieces.
struct Run<'a> {
    code: &'a KernelCode,
    learnt: &'a Learnt,
    workgroup: [u32; 3],
    entries: &'a [BufferEntry],
    grid: [u32; 4],
    domain: [u32; 4],
    cancel: &'a AtomicBool,
    /// The status that ended the dispatch, and above it the code of its trap: one word, so that a
    /// piece that is cancelled because of a trap cannot change its code.
    ending: AtomicU64,
    deadline: Option<Instant>,
}

// SAFETY: the entries point to memory that the dispatch has borrowed for its duration; threads can
// access it concurrently because only race-free kernels have a defined result, and all accesses
// stay in bounds.
unsafe impl Sync for Run<'_> {}

fn execute(job: &CpuJob<'_, '_>, entries: &[BufferEntry]) -> Result<(), BackendError> {
    let CpuJob { launch, config, variant, .. } = job;
    let ((code, timed), learnt) = (variant.code.code_for(job, entries), &variant.code.learnt);
    let domain = launch.limit.unwrap_or_else(|| {
        // The whole grid, saturating at the `u32` limit per axis.
        std::array::from_fn(|axis| launch.grid[axis].saturating_mul(launch.workgroup[axis]))
    });
    if launch.grid.contains(&0) || (code.by_rows && domain.contains(&0)) {
        return Ok(());
    }
    let (own, deadline) = (AtomicBool::new(false), config.timeout.map(after));
    // The caller's cancellation flag is used only if there is a timeout.
    let cancel = config.cancellation.as_ref().filter(|_| deadline.is_some()).map_or(&own, Cancellation::flag);
    let pad = |axes: [u32; 3]| [axes[0], axes[1], axes[2], 0];
    let run = Run {
        code,
        learnt,
        workgroup: variant.form.workgroup,
        entries,
        grid: pad(launch.grid),
        domain: pad(domain),
        cancel,
        ending: AtomicU64::new(RUNNING),
        deadline,
    };
    let begun = timed.map(|timed| (timed, Instant::now()));
    match config.timeout {
        None => run.all(),
        Some(timeout) => watched(cancel, timeout, || run.all()),
    }
    let ending = run.ending.load(Ordering::Relaxed);
    if let Some((timed, begun)) = begun.filter(|_| ending == RUNNING) {
        variant.code.comparison.took(timed, begun.elapsed());
    }
    match ending as i32 {
        TRAPPED => Err(BackendError::Trapped {
            kernel: variant.kernel.display_name().to_string(),
            code: (ending >> 32) as u32,
        }),
        CANCELLED if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
            Err(BackendError::Cancelled { name: format!("kernel `{}`", variant.kernel.display_name()) })
        }
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
        if !self.code.by_rows {
            let groups = self.grid[..3].iter().fold(1, |all: u64, &n| all.saturating_mul(n.into()));
            let per_group: u64 = self.workgroup.iter().map(|&n| u64::from(n)).product();
            let plan = self.plan_of(groups, per_group);
            return self.share(plan, groups, 1, |this, from, to| this.piece([from, to, 0, 0]));
        }
        let rows = y.saturating_mul(z);
        let plan = self.plan_of(rows, x);
        if rows >= plan.pieces {
            self.share(plan, rows, 1, |this, from, to| this.piece([from, to, 0, x]));
        } else if x >= plan.pieces.saturating_mul(ROW_STEP) || rows == 1 {
            // Long rows are cut, at multiples of a cache line of bytes.
            self.share(plan, x, ROW_STEP, |this, from, to| this.piece([0, rows, from, to]));
        } else {
            // There are too few rows for the pieces, and strips across all rows would be too long.
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

    /// Plans `times` times `invocations` invocations. If the product overflows, they are never all
    /// run, and the pieces are as small as possible.
    fn plan_of(&self, times: u64, invocations: u64) -> Sharing {
        match times.checked_mul(invocations) {
            Some(all) => self.plan(all),
            None => Sharing { pieces: u64::MAX, measured: false, ..self.plan(u64::MAX) },
        }
    }

    /// Plans a number of invocations.
    fn plan(&self, invocations: u64) -> Sharing {
        let Choice { help, work, timed: measured } = self.learnt.choose(invocations, &COSTS);
        let threads = thread_count() as u64;
        let shared = match help {
            Help::Nobody => 1,
            Help::Awake | Help::Everybody => {
                (work / PIECE_NS).clamp(threads, 8 * threads).next_multiple_of(threads)
            }
        };
        let timed = self.deadline.map_or(1, |_| work / TIMED_PIECE_NS);
        Sharing { invocations, help, pieces: shared.max(timed), measured }
    }

    fn share(&self, plan: Sharing, total: u64, step: u64, run: impl Fn(&Self, u64, u64) + Sync) {
        if plan.pieces == 1 && !plan.measured {
            return run(self, 0, total);
        }
        let size = total.div_ceil(plan.pieces.max(1)).next_multiple_of(step).max(1);
        let count = total.div_ceil(size);
        let (begun, mut spent, mut done) = (now(), 0, 0);
        // A dispatch that ends early skips later rounds; the remaining pieces of the current round
        // are still counted off.
        while done < count && self.ending.load(Ordering::Relaxed) == RUNNING {
            let round = (count - done).min(MOST_PIECES);
            spent += share(round as usize, plan.help, &|piece| {
                let from = (done + piece as u64).saturating_mul(size);
                run(self, from, from.saturating_add(size).min(total));
            });
            done += round;
        }
        if plan.measured && self.ending.load(Ordering::Relaxed) == RUNNING {
            let Sharing { invocations, help, .. } = plan;
            self.learnt.took(Taken { invocations, help, elapsed: now() - begun, spent });
        }
    }

    fn piece(&self, [a, b, c, d]: [u64; 4]) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.cancel.store(true, Ordering::Relaxed);
        }
        if self.cancel.load(Ordering::Relaxed) {
            return self.end(CANCELLED, 0);
        }
        let layout = &self.code.layout;
        with_scratch(layout.scratch_bytes, layout.shared_bytes, |scratch, shared| {
            let mut trap = 0;
            let own = (layout.shared_bytes > 0).then(|| self.entries_on_this_thread(shared));
            let entries = own.as_deref().unwrap_or(self.entries);
            let mut context = Context {
                cancel: self.cancel.as_ptr().cast(),
                scratch,
                shared,
                trap: &mut trap,
                grid: self.grid,
                domain: self.domain,
                buffers: entries.as_ptr(),
                lanes: Lanes::new(),
            };
            // SAFETY: the context matches what the code was compiled for: an entry per buffer with
            // memory for its length, scratch and shared memory of the layout's sizes, all alive for
            // the call.
            let status = unsafe { (self.code.entry())(&mut context, a, b, c, d) };
            if status != DONE {
                self.end(status, trap);
            }
        });
    }

    /// Returns the buffer entries, with the workgroup's buffers replaced by this thread's own.
    fn entries_on_this_thread(&self, shared: *mut u8) -> Few<BufferEntry> {
        let mut entries: Few<BufferEntry> = self.entries.iter().copied().collect();
        for (entry, place) in entries.iter_mut().zip(&self.code.layout.shared) {
            if let Some(SharedBuffer { offset, count }) = *place {
                // SAFETY: the layout places all of the workgroup's buffers within memory of its
                // size.
                let data = unsafe { shared.add(offset as usize) };
                *entry = BufferEntry { data, length: u64::from(count) };
            }
        }
        entries
    }

    /// Records the first status that is not a success as the dispatch's, with the code of its trap;
    /// the other pieces stop soon after.
    fn end(&self, status: i32, trap: u32) {
        let ending = u64::from(trap) << 32 | u64::from(status as u32);
        if self.ending.compare_exchange(RUNNING, ending, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

/// No piece has ended the dispatch.
const RUNNING: u64 = DONE as u64;

/// Runs a call with this thread's scratch and shared memory.
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
        // SAFETY: the vector holds both ranges, the first rounded up to whole words.
        let second = unsafe { base.add(scratch.next_multiple_of(16)) };
        run(base, second);
    });
}

// Batches.

/// Runs dispatches in sequence, or on all threads, which are woken once.
pub(crate) fn run_all(jobs: Vec<CpuJob<'_, '_>>) -> Result<(), Failed> {
    let pieces = batch_pieces(&jobs);
    if pieces > 1 {
        return at_once(jobs, pieces);
    }
    jobs.into_iter().enumerate().try_for_each(|(done, job)| run(job).map_err(|error| Failed { done, error }))
}

/// Number of pieces a batch is cut into. One means that the dispatches run in sequence: there is
/// little work, or they are few and each is shared out separately.
fn batch_pieces(jobs: &[CpuJob<'_, '_>]) -> usize {
    let threads = thread_count();
    if threads == 1 || jobs.len() < 2 {
        return 1;
    }
    let costs = || jobs.iter().map(|job| job.variant.code.learnt.estimate(job.launch.invocations()));
    let worth_waking = COSTS.worth_waking();
    if jobs.len() < 4 * threads && costs().any(|cost| cost >= worth_waking) {
        return 1;
    }
    let total = costs().fold(0, u64::saturating_add);
    (total / (worth_waking / 2)).clamp(1, jobs.len().min(8 * threads) as u64) as usize
}

/// Runs dispatches on all threads, which take them in order and none after a failed one: all before
/// it are done.
fn at_once(jobs: Vec<CpuJob<'_, '_>>, pieces: usize) -> Result<(), Failed> {
    #[cfg(test)]
    tests::BATCHES_SHARED.set(tests::BATCHES_SHARED.get() + 1);
    let size = jobs.len().div_ceil(pieces);
    let jobs: Vec<Mutex<Option<CpuJob<'_, '_>>>> =
        jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let failures: Vec<OnceLock<BackendError>> = jobs.iter().map(|_| OnceLock::new()).collect();
    let first_failed = AtomicUsize::new(usize::MAX);
    share(jobs.len().div_ceil(size), Help::Everybody, &|piece| {
        for (number, job) in jobs.iter().enumerate().skip(piece * size).take(size) {
            if first_failed.load(Ordering::Relaxed) < number {
                return;
            }
            let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Err(error)) = job.map(run) {
                first_failed.fetch_min(number, Ordering::Relaxed);
                failures[number].get_or_init(|| error);
            }
        }
    });
    let first =
        failures.into_iter().enumerate().find_map(|(done, failure)| Some((done, failure.into_inner()?)));
    first.map_or(Ok(()), |(done, error)| Err(Failed { done, error }))
}

const _: () = assert!(size_of::<AtomicBool>() == 1, "the emitted code reads the flag as a byte");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Cpu;
    use std::cell::Cell;
    use std::sync::Arc;
    use vyre_driver::{CompiledPipeline, OutputBuffers, pipeline};
    use vyre_foundation::text::parse;

    thread_local! {
        /// Number of batches of this thread that were offered to all threads. Items are not
        /// counted: on a busy machine one can seem to take long enough to be shared out by itself.
        pub(super) static BATCHES_SHARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Runs a batch, and the same items one by one; returns how often the batch engaged the thread
    /// pool.
    fn check(pipeline: &dyn CompiledPipeline, items: &[Vec<u8>]) -> usize {
        let inputs: Vec<[&[u8]; 1]> = items.iter().map(|item| [item.as_slice()]).collect();
        let borrowed: Vec<&[&[u8]]> = inputs.iter().map(|item| item.as_slice()).collect();
        let config = DispatchConfig::default();
        let before = BATCHES_SHARED.get();
        let batch = pipeline.dispatch_borrowed_batched(&borrowed, &config);
        let single: Result<Vec<OutputBuffers>, _> =
            borrowed.iter().map(|item| pipeline.dispatch_borrowed(item, &config)).collect();
        assert_eq!(batch, single);
        BATCHES_SHARED.get() - before
    }

    fn compiled(source: &str) -> Arc<dyn CompiledPipeline> {
        let program = parse(source).expect("the text is a program");
        let cpu = Arc::new(Cpu::new().expect("there is a processor"));
        pipeline::compile(cpu, &program, &DispatchConfig::default()).expect("it compiles")
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
        // The estimated work exceeds the highest cost of waking a thread.
        assert_eq!(check(&*pipeline, &items), usize::from(thread_count() > 1));
        let small: Vec<Vec<u8>> = (0..2_u32).map(|seed| seed.to_le_bytes().to_vec()).collect();
        assert_eq!(check(&*compiled(source), &small), 0, "two small items are not worth a thread");
    }

    #[test]
    fn pieces_that_a_trap_cancels_keep_its_code() {
        let source = "kernel check(n: u32 uniform, x: read u32[], y: output u32[] len_of x) over y { region \"check\" {
            if x[invocation.x] == 77 { trap 5 }
            for k in 0..n { y[invocation.x] = y[invocation.x] * 3 + k }
        } }";
        let pipeline = compiled(source);
        let count = 200_u32.to_le_bytes();
        let items: Vec<u8> = (0..1 << 14).flat_map(|k: u32| (k % 1000).to_le_bytes()).collect();
        for _ in 0..500 {
            let ended = pipeline.dispatch_borrowed(&[&count, &items], &DispatchConfig::default());
            assert!(matches!(ended, Err(BackendError::Trapped { code: 5, .. })), "{ended:?}");
        }
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
