//! Compiled kernels: machine code in dedicated memory, and the data needed to run it.

use crate::context::EntryPoint;
use crate::effort::Effort;
use crate::emit::{Layout, emit};
use crate::host::{executable, host};
use crate::joined_stores::join_fields;
use crate::lower::{lower, lower_along};
use crate::perf_map;
use crate::piece::Machine;
#[cfg(debug_assertions)]
use crate::piece::verify;
use crate::ragged_rows::is_ragged;
use crate::register_pressure::fits_registers;
use crate::row_reductions::runs_along;
use crate::schedule::{interleave, nested};
use crate::source_region::MachineCode;
use crate::store_forwarding::forward;
use crate::vector::{Calc, Frame, Index, Inst, Reg, VectorCode};
use std::cell::Cell;
use std::sync::LazyLock;
use vyre_foundation::ir::{Name, Op};
use vyre_foundation::kernel::{Def, KernelBody, LocalId, Place, Stmt, StmtKind};

/// Default number of lanes of a vector, and so the subgroup size: one piece of 32 bytes with 32-bit
/// lanes, or two of 16.
pub(crate) const LANES: u32 = 8;

/// Machine code of one kernel at one workgroup size. The memory is executable, never writable at
/// the same time, and released on drop.
#[derive(Debug)]
pub(crate) struct KernelCode {
    memory: memmap2::Mmap,
    pub(crate) layout: Layout,
    pub(crate) by_rows: bool,
    length: usize,
    /// As in [`MachineCode`].
    regions: Vec<(usize, Option<Name>)>,
}

impl KernelCode {
    /// Returns the machine code.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    /// Returns a copy of the machine code, for a listing.
    pub(crate) fn listed(&self) -> MachineCode {
        MachineCode { bytes: self.bytes().to_vec(), regions: self.regions.clone() }
    }

    /// Returns the compiled function.
    pub(crate) fn entry(&self) -> EntryPoint {
        // SAFETY: the memory holds a function that `emit` generated with this signature, from its
        // first byte on, and lives as long as `self`; callers use the pointer only while they hold
        // the code.
        unsafe { std::mem::transmute::<*const u8, EntryPoint>(self.memory.as_ptr()) }
    }
}

/// Compiles a kernel for a workgroup size; stores to the buffers in `past_caches` bypass the
/// caches.
pub(crate) fn compile(
    kernel: &KernelBody,
    workgroup: [u32; 3],
    effort: Effort,
    past_caches: &[bool],
) -> Result<KernelCode, String> {
    let host = host()?;
    let machine = host.compiler.machine();
    let vector_code = vector_form(kernel, workgroup, effort, machine);
    let Some(layout) = Layout::new(kernel, &vector_code, workgroup) else {
        return Err("the workgroup's private memory takes more than 1 GiB".into());
    };
    let function = emit(kernel, &vector_code, &layout, machine, past_caches);
    #[cfg(debug_assertions)]
    verify(&function).unwrap_or_else(|wrong| panic!("{wrong}"));
    let quick = host.compiler.compile(&function, allocation(&vector_code, effort, machine));
    // Single-pass allocation gives every value a stack slot, which can exceed the frame limit.
    let machine_code = match quick.or_else(|_| host.compiler.compile(&function, effort)) {
        // This code was the first to need AVX-512, which failed its check.
        Err(_) if host.compiler.machine() != machine => {
            return compile(kernel, workgroup, effort, past_caches);
        }
        result => result?,
    };
    let memory = executable(&machine_code.bytes).map_err(|error| format!("no memory for code: {error}"))?;
    perf_map::note(kernel, &memory);
    let by_rows = matches!(vector_code.frame, Frame::Rows { .. });
    let regions = vector_code.region_names.named(&machine_code.regions);
    Ok(KernelCode { memory, layout, by_rows, length: machine_code.bytes.len(), regions })
}

/// Effort for register allocation. Where far more values are live than there are registers, nearly
/// all of them spill regardless, and the search for the best few takes time quadratic in their
/// number.
fn allocation(code: &VectorCode, effort: Effort, machine: Machine) -> Effort {
    if fits_registers(code, machine, CROWDED) { effort } else { Effort::Quick }
}

/// Multiple of the register count. 400 values take 0.3 s to allocate, 1,500 take 5 s, or 0.1 s in a
/// single pass.
const CROWDED: usize = 16;

/// Returns the vector form of a kernel.
pub(crate) fn in_vectors(
    kernel: &KernelBody,
    workgroup: [u32; 3],
    effort: Effort,
) -> Result<VectorCode, String> {
    Ok(vector_form(kernel, workgroup, effort, host()?.compiler.machine()))
}

/// Lowers a kernel to vector form and schedules it.
pub(crate) fn vector_form(
    kernel: &KernelBody,
    workgroup: [u32; 3],
    effort: Effort,
    machine: Machine,
) -> VectorCode {
    let mut code = in_lanes(kernel, workgroup, effort, machine);
    forward(&mut code);
    join_fields(&mut code);
    if effort == Effort::Full {
        interleave(&mut code, kernel, machine);
    }
    code
}

/// Lowers a kernel with a suitable number of lanes. A workgroup of one invocation is scalar code,
/// and so is a shape-free kernel of that size whose lanes would be far apart, or one that spends
/// its time in ragged rows ([`is_ragged`]). A kernel that reduces rows to integers runs one
/// invocation at a time, with the iterations of its loops as lanes ([`runs_along`]). Otherwise the
/// first of these rules that applies decides:
///
/// - requested: `VYRE_CPU_LANES` or the workgroup size of a shape-free kernel ([`lanes_of`])
///   specifies the number;
/// - default: the kernel can observe lanes (a subgroup is `LANES` wide), some lanes would always be
///   idle, the compile effort is quick, or the kernel is too long to try;
/// - double, if the default vector is a single piece, on which a core would mostly wait for the
///   last result of each op. Not if lanes go one by one anyway (atomics, tables), if each lane
///   walks along a row, or if most of the live values would spill;
/// - four times the default, if the kernel sums floats in order, is one chain of ops or carries one
///   through its loops, and loads neighbouring elements: each op waits for the one before, so more
///   of them run in parallel;
/// - four times the default, if it loads and stores only neighbouring elements of one or two bytes,
///   of which double the default is a single piece in 16-bit lanes;
/// - double, if the default vector is several pieces, all values fit the registers and lanes do not
///   leave loops one by one.
fn in_lanes(kernel: &KernelBody, workgroup: [u32; 3], effort: Effort, machine: Machine) -> VectorCode {
    let count: u64 = workgroup.iter().map(|&n| u64::from(n)).product();
    if count == 1 && !kernel.shape_free && may_go_alone(kernel) {
        return lower(&alone(kernel), 1, workgroup, effort);
    }
    let requested = forced_lanes().or(lanes_of(kernel, workgroup).filter(|_| kernel.shape_free));
    if requested.is_none() && kernel.shape_free && may_go_alone(kernel) && runs_along(kernel) {
        return lower_along(&alone(kernel), 2 * LANES, workgroup, effort);
    }
    let alone_is_best = requested.is_none() && is_ragged(kernel);
    if (requested == Some(1) || alone_is_best) && kernel.shape_free && may_go_alone(kernel) {
        return lower(&alone(kernel), 1, workgroup, effort);
    }
    let usual = || lower(kernel, LANES, workgroup, effort);
    let fills = kernel.shape_free || count.is_multiple_of(u64::from(2 * LANES));
    if !fills || kernel.needs.subgroups || requested.is_some_and(|lanes| lanes <= LANES) {
        return usual();
    }
    let twice = || lower(kernel, 2 * LANES, workgroup, effort);
    if requested.is_some() {
        return twice();
    }
    let is_one_piece = 4 * LANES <= machine.piece_bytes;
    let (longest, bearable) = if is_one_piece { (4 * LONG, 3) } else { (LONG, 1) };
    let may_pay = effort == Effort::Full
        && statements(&kernel.body) <= longest
        && !(if is_one_piece { has_atomics(&kernel.body) } else { has_open_loops(&kernel.body) });
    if may_pay {
        let wide = twice();
        // Rows a power of two apart share a cache set, which holds about eight lines.
        let is_apart = !wide.tiles.is_empty() || wide.blocks.rows > 1;
        if is_apart || mostly_looks_up(&wide) {
            return usual();
        }
        if fits_registers(&wide, machine, bearable) {
            if is_one_piece && works_on_narrow(&wide) {
                let widest = lower(kernel, 4 * LANES, workgroup, effort);
                // Values in 16-bit lanes take half of the registers that are counted.
                if fits_registers(&widest, machine, 2) {
                    return widest;
                }
            }
            if is_one_piece && (waits_for_sums(kernel) || is_chain(&wide) || carries_chains(&wide)) {
                let widest = lower(kernel, 4 * LANES, workgroup, effort);
                if loads_together(&widest) && fits_registers(&widest, machine, 1) {
                    return widest;
                }
            }
            return wide;
        }
    }
    usual()
}

/// Workgroup size of a shape-free kernel that leaves the lane count open.
pub(crate) const OPEN: [u32; 3] = [64, 1, 1];

/// Returns the lane count that the workgroup size of a shape-free kernel requests, if it does.
pub(crate) fn lanes_of(kernel: &KernelBody, workgroup: [u32; 3]) -> Option<u32> {
    let [lanes, 1, 1] = workgroup else { return None };
    let alone = lanes == 1 && may_go_alone(kernel) && loads_apart(&kernel.body, kernel, false);
    (alone || lanes == LANES || lanes == 2 * LANES).then_some(lanes)
}

/// Whether invocations can run one at a time.
fn may_go_alone(kernel: &KernelBody) -> bool {
    !kernel.needs.subgroups
}

/// Whether a loop loads from varying indices. If those are not consecutive either, each lane takes
/// a separate load, and one invocation at a time can be as fast.
fn loads_apart(block: &[Stmt], kernel: &KernelBody, in_loop: bool) -> bool {
    block.iter().any(|stmt| {
        let varies = match &stmt.kind {
            StmtKind::Def(_, Def::Load { index, .. }) => !kernel.values[index.index()].uniform,
            _ => false,
        };
        let in_loop = in_loop || matches!(stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_));
        (varies && in_loop) || stmt.kind.blocks().into_iter().any(|block| loads_apart(block, kernel, in_loop))
    })
}

/// `VYRE_CPU_LANES=1`, `8` or `16` overrides the choice, for tests and comparisons.
fn forced_lanes() -> Option<u32> {
    static FORCED: LazyLock<Option<u32>> = LazyLock::new(|| {
        let text = std::env::var("VYRE_CPU_LANES").ok()?;
        text.parse().ok().filter(|&lanes| lanes == 1 || lanes == LANES || lanes == 2 * LANES)
    });
    *FORCED
}

/// Longer kernels, in statements, have enough independent work in vectors of the default width, so
/// wider ones are not tried. Where the default is a single piece, the limit is four times this;
/// there it admits all benchmarks, the longest of which (`black_scholes`, `options_f64`) have 241
/// to 500.
const LONG: usize = 250;

fn statements(block: &[Stmt]) -> usize {
    block.iter().map(|stmt| 1 + stmt.kind.blocks().map(statements).iter().sum::<usize>()).sum()
}

/// Specialises a kernel for workgroups of one invocation, in which every value is uniform.
fn alone(kernel: &KernelBody) -> KernelBody {
    let mut kernel = kernel.clone();
    kernel.values.iter_mut().for_each(|value| value.uniform = true);
    kernel
}

/// Whether each iteration of a short loop waits for the previous one: it reads a float variable and
/// sets it to a sum or product.
fn waits_for_sums(kernel: &KernelBody) -> bool {
    fn block(kernel: &KernelBody, stmts: &[Stmt]) -> bool {
        stmts.iter().any(|stmt| match &stmt.kind {
            StmtKind::For { body, .. } if !has_loops(body) => sums(kernel, body),
            kind => kind.blocks().into_iter().any(|nested| block(kernel, nested)),
        })
    }
    block(kernel, &kernel.body)
}

/// Whether a straight-line body carries floats from one iteration to the next, with a few ops each.
fn sums(kernel: &KernelBody, body: &[Stmt]) -> bool {
    // With 4, `gram` has 16 lanes instead of 32, with 0 `columns` too; from 8 on, all benchmarks
    // have the same code.
    const FEW: usize = 12;
    let is_straight = body.iter().all(|stmt| matches!(stmt.kind, StmtKind::Def(..) | StmtKind::Set(..)));
    let ops = body.iter().filter(|stmt| matches!(stmt.kind, StmtKind::Def(_, Def::Op(..)))).count();
    let is_set = |local: LocalId| {
        body.iter().any(|stmt| matches!(stmt.kind, StmtKind::Set(other, _) if other == local))
    };
    is_straight
        && ops <= FEW
        && body.iter().any(|stmt| match stmt.kind {
            StmtKind::Def(value, Def::Get(local)) => kernel.ty(value).is_float() && is_set(local),
            _ => false,
        })
}

/// Latency of an op on floats, in ops on integers: 3 or 4 cycles on current processors. With 2,
/// `polynomial` does not count as a chain.
const FLOATS: usize = 3;

/// Latency of a vector op, in ops on integers.
fn latency(code: &VectorCode, reg: Reg, op: Op) -> usize {
    let least = if code.reg_type(reg).ty.is_float() { FLOATS } else { 1 };
    least.max(usize::from(op.row().cost))
}

/// Whether straight-line code is little more than one chain of ops, such as a polynomial: a core's
/// window is too short to find independent ops in later vectors.
fn is_chain(code: &VectorCode) -> bool {
    // With 0, saxpy has 32 lanes, which memory does not feed. From 6 to 24, only `polynomial`
    // counts as a chain.
    const LONG: usize = 12;
    let Frame::Rows { full, .. } = &code.frame else { return false };
    let (mut depths, mut ops) = (vec![0; code.regs.len()], 0);
    for inst in full {
        match inst {
            Inst::Def(reg, Calc::Op(op, args)) if code.reg_type(*reg).vector => {
                let before = args.iter().map(|arg| depths[arg.0 as usize]).max().unwrap_or(0);
                depths[reg.0 as usize] = before + latency(code, *reg, *op);
                ops += 1;
            }
            Inst::Def(..) | Inst::Set(..) | Inst::Store(_) => {}
            _ => return false,
        }
    }
    ops >= LONG && depths.into_iter().max().unwrap_or(0) >= 2 * ops
}

/// Whether every innermost loop of vector ops [carries a chain](carries_chain).
fn carries_chains(code: &VectorCode) -> bool {
    fn innermost<'c>(insts: &'c [Inst], found: &mut Vec<&'c [Inst]>) {
        for inst in insts {
            let before = found.len();
            nested(inst).into_iter().for_each(|insts| innermost(insts, found));
            match inst {
                Inst::Loop { body, .. } if found.len() == before => found.push(body),
                _ => {}
            }
        }
    }
    let Frame::Rows { full, .. } = &code.frame else { return false };
    let mut loops = Vec::new();
    innermost(full, &mut loops);
    loops.retain(|body| {
        let is_vector = |reg: &Reg| code.reg_type(*reg).vector;
        body.iter().any(|inst| matches!(inst, Inst::Def(reg, Calc::Op(..)) if is_vector(reg)))
    });
    !loops.is_empty() && loops.into_iter().all(|body| carries_chain(code, body))
}

/// Whether each iteration of a counted loop mostly waits for the one before, as in a generator of
/// random numbers. A core starts about two ops on floats or three on integers per cycle, so of two
/// pieces, the ops take a cycle or two thirds of one each; the chain has to take half as long
/// again.
fn carries_chain(code: &VectorCode, body: &[Inst]) -> bool {
    // Latency since the start of the iteration, of what depends on the iteration before.
    let mut regs: Vec<Option<usize>> = vec![None; code.regs.len()];
    let mut vars: Vec<Option<usize>> = vec![None; code.vars.len()];
    for inst in body {
        if let Inst::Set(var, _) = inst {
            vars[var.0 as usize] = Some(0);
        }
    }
    let (mut floats, mut integers) = (0, 0);
    for inst in body {
        match inst {
            Inst::Def(_, Calc::Any(_) | Calc::All(_) | Calc::Atomic { .. } | Calc::Subgroup { .. }) => {
                return false;
            }
            Inst::Def(reg, Calc::Get(var)) if code.reg_type(*reg).vector => {
                regs[reg.0 as usize] = vars[var.0 as usize];
            }
            Inst::Def(reg, Calc::Op(op, args)) if code.reg_type(*reg).vector => {
                let before = args.iter().filter_map(|arg| regs[arg.0 as usize]).max();
                let latency = latency(code, *reg, *op);
                regs[reg.0 as usize] = before.map(|before| before + latency);
                let all = if code.reg_type(*reg).ty.is_float() { &mut floats } else { &mut integers };
                *all += usize::from(op.row().cost).max(1);
            }
            Inst::Set(var, reg) => vars[var.0 as usize] = regs[reg.0 as usize],
            Inst::If { then, otherwise, .. } if then.is_empty() && matches!(otherwise[..], [Inst::Break]) => {
            }
            Inst::Def(..) => {}
            _ => return false,
        }
    }
    let chain = vars.into_iter().flatten().max().unwrap_or(0);
    2 * chain >= 3 * floats + 2 * integers
}

fn has_loops(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| {
        let is_loop = matches!(stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_));
        is_loop || stmt.kind.blocks().into_iter().any(has_loops)
    })
}

/// Whether all lanes load the same or neighbouring elements.
fn loads_together(code: &VectorCode) -> bool {
    fn block(insts: &[Inst]) -> bool {
        insts.iter().all(|inst| {
            let is_together = match inst {
                Inst::Def(_, Calc::Load { index, place, .. }) => {
                    matches!(place, Place::Buffer(_))
                        && matches!(index, Index::Same(_) | Index::Consecutive(_))
                }
                Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. } | Calc::Tile(..))
                | Inst::Tile(_) => false,
                _ => true,
            };
            is_together && nested(inst).into_iter().all(|insts| block(insts))
        })
    }
    match &code.frame {
        Frame::Rows { full, .. } => !full.is_empty() && block(full),
        Frame::Groups(_) => false,
    }
}

/// Whether vectors away from borders access only neighbouring elements of one or two bytes.
fn works_on_narrow(code: &VectorCode) -> bool {
    fn block(code: &VectorCode, insts: &[Inst], found: &Cell<bool>) -> bool {
        let access = |place: &Place, index: &Index, size: usize| match (place, index) {
            (Place::Buffer(_), Index::Same(_)) => true,
            (Place::Buffer(_), Index::Consecutive(_)) => {
                found.set(true);
                size <= 2
            }
            _ => false,
        };
        insts.iter().all(|inst| match inst {
            Inst::Def(_, Calc::Load { place, element, index, .. }) => access(place, index, element.size()),
            Inst::Store(store) => access(&store.place, &store.index, store.element.size()),
            Inst::Def(_, Calc::Atomic { .. } | Calc::Subgroup { .. } | Calc::Tile(..))
            | Inst::Tile(_)
            | Inst::Clear { .. } => false,
            Inst::If { condition, then, .. } if code.inner == Some(*condition) => block(code, then, found),
            _ => nested(inst).into_iter().all(|insts| block(code, insts, found)),
        })
    }
    let Frame::Rows { full, .. } = &code.frame else { return false };
    let found = Cell::new(false);
    block(code, full, &found) && found.get()
}

/// Whether vectors load from arbitrary indices more often than they compute. Each lane then takes a
/// scalar register.
fn mostly_looks_up(code: &VectorCode) -> bool {
    let blocks: Vec<&Vec<Inst>> = match &code.frame {
        Frame::Rows { full, tail, .. } => vec![if full.is_empty() { tail } else { full }],
        Frame::Groups(body) => vec![body],
    };
    let (mut loads, mut ops) = (0, 0);
    count_vectors(code, &blocks, &mut loads, &mut ops);
    loads > ops
}

fn count_vectors(code: &VectorCode, blocks: &[&Vec<Inst>], loads: &mut usize, ops: &mut usize) {
    for inst in blocks.iter().copied().flatten() {
        match inst {
            Inst::Def(_, Calc::Load { index: Index::Each(_), .. }) => *loads += 1,
            Inst::Def(reg, Calc::Op(..)) if code.reg_type(*reg).vector => *ops += 1,
            _ => {}
        }
        count_vectors(code, &nested(inst), loads, ops);
    }
}

fn has_atomics(block: &[Stmt]) -> bool {
    let is_atomic = |kind: &StmtKind| matches!(kind, StmtKind::Def(_, Def::Atomic { .. }));
    block.iter().any(|stmt| is_atomic(&stmt.kind) || stmt.kind.blocks().into_iter().any(has_atomics))
}

/// Whether there is a loop that only a `break` ends.
fn has_open_loops(block: &[Stmt]) -> bool {
    let is_open = |kind: &StmtKind| matches!(kind, StmtKind::Loop(_));
    block.iter().any(|stmt| is_open(&stmt.kind) || stmt.kind.blocks().into_iter().any(has_open_loops))
}
