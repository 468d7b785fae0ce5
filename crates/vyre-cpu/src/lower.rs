//! Lowers a kernel to its vector form: SPMD on SIMD.
//!
//! Invocations become lanes. Uniform values become scalars; ids become *affine* values, a scalar
//! plus a multiple of the lane number, so that accesses to neighbouring elements are wide;
//! everything else is a vector. Uniform control flow stays control flow. Divergent control flow
//! becomes masks: a lane runs a statement if it is in the mask `exec`.
//!
//! **Masks.** `exec` is absent where all lanes of the vector run. A divergent `if` narrows it for
//! each side. A divergent exit masks its lanes off: a `break` from the loop's live mask, a
//! `continue` from the current iteration, a `return` from every enclosing loop and from the body.
//! After a statement that can mask lanes off, `exec` is recomputed from the mask of its block.
//!
//! **Barriers.** A statement that contains a barrier runs once per workgroup, with scalar control
//! flow; the code between barriers becomes a loop over the group's vectors of invocations
//! ([`Inst::Lanes`]). A varying value or local that is live across such a boundary is kept in
//! memory per vector; a uniform one is a scalar variable. Each vector of invocations starts with
//! the uniform variables as they were before the loop, and all vectors leave the same values in
//! them.

use crate::along::{Reduced, reduced};
use crate::borders::{Supposed, has_borders};
use crate::crossing::{Parts, Portable, Rows};
use crate::divergence::{Item, LocalFacts, Marks, annotate, local_facts, values_read};
use crate::effort::Effort;
use crate::rows::{blocks_of_rows, head_of_row};
use crate::tiles::{Walk, Walks, compared, mirrored, walks};
use crate::vector::{
    Blocks, Calc, Frame, Index, Inst, Reg, Shape, Slot, Source, Span, Store, TILE, Tile, TileStep, Var,
    VectorCode,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use vyre_foundation::ir::{Builtin, Op, SubgroupOp};
use vyre_foundation::kernel::{BufferId, Def, KernelBody, LocalId, Place, Stmt, StmtKind, ValueId};
use vyre_foundation::ops::eval;
use vyre_foundation::types::{DataType, Value, ValueType};

/// Lowers a kernel to vectors of `lanes` lanes, for one workgroup size.
pub(crate) fn lower(kernel: &KernelBody, lanes: u32, workgroup: [u32; 3], effort: Effort) -> VectorCode {
    lower_with(kernel, [lanes, lanes], workgroup, effort)
}

/// Lowers a kernel in which every value is uniform to one invocation at a time, with vectors of
/// `lanes` iterations in loops that are reductions.
pub(crate) fn lower_along(
    kernel: &KernelBody,
    lanes: u32,
    workgroup: [u32; 3],
    effort: Effort,
) -> VectorCode {
    lower_with(kernel, [1, lanes], workgroup, effort)
}

/// Lowers a kernel with this many invocations at once, and vectors of this many lanes.
fn lower_with(
    kernel: &KernelBody,
    [lanes, widest]: [u32; 2],
    workgroup: [u32; 3],
    effort: Effort,
) -> VectorCode {
    let items = annotate(kernel);
    let locals = local_facts(kernel, &items);
    let mut lowering = Lowering::new(kernel, lanes, workgroup, locals);
    lowering.read = values_read(kernel);
    lowering.along = (widest > lanes).then_some(widest);
    if effort == Effort::Quick {
        lowering.copies = COPIES;
    }
    let mut inner = None;
    let mut blocks = Blocks { rows: 1, loads: Vec::new(), store: None };
    let frame = if kernel.shape_free {
        let mut full = match lanes > 1 && has_borders(&items, kernel) {
            true => lowering.inner_and_border(&items, &mut inner),
            false => lowering.vector_of_lanes(&items, None),
        };
        // Vectors of one lane are always full.
        let mut tail = match lanes {
            1 => Vec::new(),
            _ => lowering.vector_of_lanes(&items, Some(Tail::Row)),
        };
        let is_long = effort == Effort::Quick && full.len() > SHORT && inner.is_none();
        if lanes > 1 && (is_heavy(&full) || is_long) {
            full.clear();
        }
        blocks = blocks_of_rows(kernel, &lowering.regs, &full);
        let each = if full.is_empty() { &mut tail } else { &mut full };
        let head = head_of_row(kernel, &lowering.regs, each);
        Frame::Rows { head, full, tail }
    } else {
        lowering.find_crossing(&items);
        Frame::Groups(lowering.whole_group(&items))
    };
    let Lowering { regs, vars, slots, tiles, .. } = lowering;
    VectorCode { lanes: widest, invocations: lanes, regs, vars, slots, tiles, frame, blocks, inner }
}

/// Longest code, in instructions, that a quick compilation duplicates for full vectors without
/// masks.
const SHORT: usize = 32;

/// Whether masks cost this code less than compiling a second copy: it is long and straight-line,
/// with few memory accesses.
fn is_heavy(insts: &[Inst]) -> bool {
    const LONG: usize = 160;
    const ACCESSES: usize = 8;
    let accesses = insts.iter().filter(|inst| {
        matches!(
            inst,
            Inst::Store(_)
                | Inst::Def(
                    _,
                    Calc::Load {
                        index: Index::Consecutive(_)
                            | Index::Strided(..)
                            | Index::Spaced(..)
                            | Index::Mostly { .. }
                            | Index::Each(_),
                        ..
                    }
                )
        )
    });
    let straight = insts.iter().all(|inst| matches!(inst, Inst::Def(..) | Inst::Set(..) | Inst::Store(_)));
    insts.len() > LONG && straight && accesses.count() <= ACCESSES
}

/// Representation of a kernel value in a vector of lanes.
#[derive(Clone, Copy, Debug)]
enum Shaped {
    /// A scalar.
    Uniform(Reg),
    /// Lane k has the scalar plus k times the constant stride, wrapping; a 32-bit integer.
    Affine { base: Reg, stride: u32 },
    /// Lane k has the scalar plus k times a `u32` known only at dispatch, wrapping; a 32-bit
    /// integer.
    Spaced { base: Reg, stride: Reg },
    /// A vector.
    Varying(Reg),
}

/// A last vector that is not full.
#[derive(Clone, Copy)]
enum Tail {
    /// The end of a row; the frame holds the number of lanes left.
    Row,
    /// The end of a workgroup, with this many lanes.
    Group(u32),
}

/// Storage of a local or of a value that crosses parts.
#[derive(Clone, Copy, Debug)]
enum Home {
    Var(Var),
    Slot(Slot),
}

/// A loop being lowered.
struct LoopState {
    number: usize,
    /// Lanes still in the loop; `None` if all leave together.
    live: Option<Var>,
    /// Lanes that skip the rest of the iteration.
    skipped: Option<Var>,
}

/// Counter of a loop.
struct Rounds {
    position: Var,
    step: Reg,
    test: RoundTest,
}

/// Test for a further iteration of a counted loop.
enum RoundTest {
    /// The counter, which increments by one, is below the end.
    Below(Reg),
    /// A flag set by the previous iteration: whether its counter was short of the end minus the
    /// step.
    Flag { more: Var, order: Op, reduced: Reg },
}

/// A counted loop whose counter is a `u32` that starts at `base` in lane 0 and `stride` higher in
/// each next lane.
#[derive(Clone, Copy)]
struct Across {
    base: Reg,
    stride: u32,
    to: Reg,
    step: Reg,
}

/// Affine values that a bounding op keeps affine, provided the conditions hold.
struct Kept {
    base: Reg,
    stride: u32,
    conditions: Vec<Reg>,
}

/// Result of a comparison in all lanes and iterations of a loop, provided `when` holds.
#[derive(Clone, Copy)]
struct Outcome {
    holds: Reg,
    when: Reg,
}

/// Iterations run a tile at a time.
#[derive(Clone, Copy)]
struct Tiled {
    position: Var,
    to: Reg,
    /// Distance between the counters of neighbouring lanes; `None` if they are equal.
    stride: Option<Reg>,
}

/// Tiles in use while iterations run on them.
#[derive(Default)]
struct InTiles {
    /// Keyed by the loaded value.
    loads: HashMap<ValueId, Tile>,
    stores: HashMap<BufferId, Tile>,
    /// Number of the iteration within the tile.
    number: Option<Reg>,
}

/// A counted loop with step one whose lane k runs from `from` to `to`, both plus k times `stride`.
#[derive(Clone, Copy)]
struct Abreast {
    from: Reg,
    to: Reg,
    stride: Reg,
}

struct Lowering<'k> {
    kernel: &'k KernelBody,
    lanes: u32,
    workgroup: [u32; 3],
    regs: Vec<Shape>,
    vars: Vec<Shape>,
    slots: Vec<ValueType>,
    tiles: Vec<DataType>,
    /// Tiles of the current loop.
    in_tiles: InTiles,
    constants: HashMap<Reg, Value>,
    /// Scalars that are multiples of the lane count.
    aligned: HashSet<Reg>,
    /// Masks that never include every lane.
    partial: HashSet<Reg>,
    local_facts: LocalFacts,
    local_homes: Vec<Option<Home>>,
    /// Values used in a different part of the workgroup's work from the one that defines them.
    crossing: HashMap<ValueId, Home>,
    /// Locals used in more than one part.
    crossing_locals: Vec<bool>,
    /// Representation of each value in the current part. Values used outside their defining part
    /// are in `crossing`.
    values: Vec<Option<Shaped>>,
    out: Vec<Inst>,
    /// Mask of the running lanes; `None` if all run.
    exec: Option<Reg>,
    /// `exec` as narrowed only by exits from the innermost loop.
    loop_exec: Option<Reg>,
    /// `exec` as narrowed only by returns.
    all_exec: Option<Reg>,
    loops: Vec<LoopState>,
    loops_started: usize,
    /// Lanes that have finished this run of statements.
    returned: Option<Var>,
    /// Lanes that stay off in later stretches of the workgroup's work: first those that returned,
    /// then, for each loop of the workgroup, those that skip the rest of an iteration.
    off: Vec<Option<Slot>>,
    lane_numbers: Option<Reg>,
    /// Definitions of values that a part of the workgroup's work recomputes instead of keeping.
    portable: Portable<'k>,
    /// Values recomputed in the open blocks, in order.
    recomputed: Vec<ValueId>,
    /// Workgroup locals that this vector of invocations holds in variables, with their slots.
    borrowed: Vec<(Var, Slot)>,
    /// Per value: whether some statement reads it.
    read: Vec<bool>,
    /// Per value: whether it is the number of an invocation on an axis.
    numbers: Vec<bool>,
    /// Mask of a last, partial vector; it includes at least one lane.
    tail: Option<Reg>,
    /// Number of enclosing branches that are emitted twice, with masks and without.
    copies: u32,
    /// Vectors whose lanes are usually consecutive: the value of lane 0, and the condition for it.
    mostly: HashMap<Reg, (Reg, Reg)>,
    /// Comparisons whose outcome is known in the current loop.
    decided: BTreeMap<ValueId, Outcome>,
    /// Assumptions about all lanes, while emitting code for vectors away from borders.
    supposed: Option<Supposed>,
    /// Lanes of loops whose iterations are the lanes, if there are any.
    along: Option<u32>,
}

const MASK: Shape = Shape { ty: ValueType::Bool, vector: true };
const CONDITION: Shape = Shape { ty: ValueType::Bool, vector: false };

/// Per value: whether it is the number of an invocation on an axis.
fn invocation_numbers(kernel: &KernelBody) -> Vec<bool> {
    fn visit(block: &[Stmt], numbers: &mut [bool]) {
        for stmt in block {
            if let StmtKind::Def(value, Def::Builtin(Builtin::InvocationId | Builtin::LocalId, _)) = stmt.kind
            {
                numbers[value.index()] = true;
            }
            stmt.kind.blocks().into_iter().for_each(|nested| visit(nested, numbers));
        }
    }
    let mut numbers = vec![false; kernel.values.len()];
    visit(&kernel.body, &mut numbers);
    numbers
}

impl<'k> Lowering<'k> {
    fn new(kernel: &'k KernelBody, lanes: u32, workgroup: [u32; 3], local_facts: LocalFacts) -> Lowering<'k> {
        Lowering {
            kernel,
            lanes,
            workgroup,
            regs: Vec::new(),
            vars: Vec::new(),
            slots: Vec::new(),
            tiles: Vec::new(),
            in_tiles: InTiles::default(),
            constants: HashMap::new(),
            aligned: HashSet::new(),
            partial: HashSet::new(),
            local_facts,
            local_homes: vec![None; kernel.locals.len()],
            crossing: HashMap::new(),
            crossing_locals: vec![false; kernel.locals.len()],
            values: vec![None; kernel.values.len()],
            out: Vec::new(),
            exec: None,
            loop_exec: None,
            all_exec: None,
            loops: Vec::new(),
            loops_started: 0,
            returned: None,
            off: Vec::new(),
            lane_numbers: None,
            portable: Portable::default(),
            recomputed: Vec::new(),
            borrowed: Vec::new(),
            read: Vec::new(),
            numbers: invocation_numbers(kernel),
            tail: None,
            copies: 0,
            mostly: HashMap::new(),
            decided: BTreeMap::new(),
            supposed: None,
            along: None,
        }
    }

    // Building blocks.

    fn reg(&mut self, shape: Shape) -> Reg {
        self.regs.push(shape);
        Reg(self.regs.len() as u32 - 1)
    }

    fn var(&mut self, shape: Shape) -> Var {
        self.vars.push(shape);
        Var(self.vars.len() as u32 - 1)
    }

    fn def(&mut self, shape: Shape, calc: Calc) -> Reg {
        let reg = self.reg(shape);
        if let Calc::Const(value) = calc {
            self.constants.insert(reg, value);
        }
        if let Some(supposed) = &mut self.supposed {
            supposed.note(self.kernel, reg, shape, &calc);
        }
        self.out.push(Inst::Def(reg, calc));
        reg
    }

    fn scalar(&mut self, ty: ValueType, calc: Calc) -> Reg {
        self.def(Shape { ty, vector: false }, calc)
    }

    fn constant(&mut self, value: Value) -> Reg {
        self.scalar(value.ty(), Calc::Const(value))
    }

    /// Emits an op; the result is a vector if an operand is.
    fn op(&mut self, op: Op, args: &[Reg]) -> Reg {
        if let Some(known) = self.folded(op, args) {
            return known;
        }
        let types: Vec<ValueType> = args.iter().map(|arg| self.regs[arg.0 as usize].ty).collect();
        let Some(ty) = op.row().signature.result(&types) else {
            unreachable!("the kernel's types fit: {op:?} on {types:?}")
        };
        let vector = args.iter().any(|arg| self.regs[arg.0 as usize].vector);
        self.def(Shape { ty, vector }, Calc::Op(op, args.to_vec()))
    }

    /// Folds an op on constants or an addition of zero; lanes that start at the constant 0 produce
    /// these.
    fn folded(&mut self, op: Op, args: &[Reg]) -> Option<Reg> {
        let known = |this: &Self, reg: Reg| {
            if this.regs[reg.0 as usize].vector { None } else { this.constants.get(&reg).copied() }
        };
        if let &[a, b] = args
            && op == Op::Add
        {
            let is_nothing = |value: Option<Value>| matches!(value, Some(Value::U32(0) | Value::I32(0)));
            if is_nothing(known(self, a)) {
                return Some(b);
            }
            if is_nothing(known(self, b)) {
                return Some(a);
            }
        }
        let values = args.iter().map(|&arg| known(self, arg)).collect::<Option<Vec<Value>>>()?;
        let value = eval(op, &values)?;
        Some(self.constant(value))
    }

    fn lane_numbers(&mut self) -> Reg {
        match self.lane_numbers {
            Some(reg) => reg,
            None => {
                let reg = self.def(Shape { ty: ValueType::U32, vector: true }, Calc::LaneNumbers);
                self.lane_numbers = Some(reg);
                reg
            }
        }
    }

    fn get(&mut self, var: Var) -> Reg {
        let shape = self.vars[var.0 as usize];
        self.def(shape, Calc::Get(var))
    }

    /// Runs `fill` with an empty instruction list and returns what it emitted.
    fn nested(&mut self, fill: impl FnOnce(&mut Self)) -> Vec<Inst> {
        let outer = std::mem::take(&mut self.out);
        let (lane_numbers, recomputed) = (self.lane_numbers, self.recomputed.len());
        fill(self);
        // Registers defined inside are not visible afterwards. The kernel's own values already
        // respect that scoping.
        self.lane_numbers = lane_numbers;
        for value in self.recomputed.drain(recomputed..) {
            self.values[value.index()] = None;
        }
        std::mem::replace(&mut self.out, outer)
    }

    /// Returns a value as a register of either shape; affine and spaced values become vectors.
    fn register(&mut self, shaped: Shaped) -> Reg {
        match shaped {
            Shaped::Uniform(reg) | Shaped::Varying(reg) => reg,
            Shaped::Affine { base, stride: 1 } => {
                let steps = self.lane_numbers();
                self.stepped(base, steps)
            }
            Shaped::Affine { base, stride } => {
                let stride = self.constant(Value::U32(stride));
                self.register(Shaped::Spaced { base, stride })
            }
            Shaped::Spaced { base, stride } => {
                let numbers = self.lane_numbers();
                let steps = self.op(Op::Mul, &[numbers, stride]);
                self.stepped(base, steps)
            }
        }
    }

    /// Adds per-lane steps to a scalar.
    fn stepped(&mut self, base: Reg, mut steps: Reg) -> Reg {
        let ty = self.regs[base.0 as usize].ty;
        if ty != ValueType::U32 {
            steps = self.op(Op::cast(ty), &[steps]);
        }
        self.op(Op::Add, &[base, steps])
    }

    fn value(&mut self, value: ValueId) -> Shaped {
        if let Some(shaped) = self.values[value.index()] {
            return shaped;
        }
        match self.crossing.get(&value) {
            Some(&Home::Var(var)) => return Shaped::Uniform(self.get(var)),
            Some(&Home::Slot(slot)) => return Shaped::Varying(self.recall(slot)),
            None => {}
        }
        let Some(def) = self.portable.def(value) else {
            unreachable!("{value:?} is defined before it is used")
        };
        let shaped = self.calculate(value, def);
        self.values[value.index()] = Some(shaped);
        self.recomputed.push(value);
        shaped
    }

    fn recall(&mut self, slot: Slot) -> Reg {
        let shape = Shape { ty: self.slots[slot.0 as usize], vector: true };
        self.def(shape, Calc::Recall(slot))
    }

    fn operand(&mut self, value: ValueId) -> Reg {
        let shaped = self.value(value);
        self.register(shaped)
    }

    fn define(&mut self, value: ValueId, shaped: Shaped) {
        self.values[value.index()] = Some(shaped);
        match self.crossing.get(&value).copied() {
            None => {}
            Some(Home::Var(var)) => {
                let reg = self.register(shaped);
                self.out.push(Inst::Set(var, reg));
            }
            Some(Home::Slot(slot)) => {
                let reg = self.register(shaped);
                self.out.push(Inst::Keep(slot, reg));
            }
        }
    }

    fn shaped(&self, reg: Reg) -> Shaped {
        if self.regs[reg.0 as usize].vector { Shaped::Varying(reg) } else { Shaped::Uniform(reg) }
    }

    // Masks.

    fn narrowed(&mut self, mask: Option<Reg>, condition: Reg) -> Reg {
        match mask {
            None => condition,
            Some(mask) => self.op(Op::And, &[mask, condition]),
        }
    }

    /// Returns the mask as a register even where all lanes run.
    fn full_mask(&mut self, mask: Option<Reg>) -> Reg {
        match mask {
            Some(mask) => mask,
            None => self.def(MASK, Calc::Const(Value::Bool(true))),
        }
    }

    fn strike(&mut self, var: Var, lanes: Reg) {
        let old = self.get(var);
        let kept = self.op(Op::Not, &[lanes]);
        let new = self.op(Op::And, &[old, kept]);
        self.out.push(Inst::Set(var, new));
    }

    fn mark(&mut self, var: Var, lanes: Reg) {
        let old = self.get(var);
        let new = self.op(Op::Or, &[old, lanes]);
        self.out.push(Inst::Set(var, new));
    }

    /// Narrows a block's mask to the lanes still running.
    fn still_running(&mut self, block: Option<Reg>) -> Option<Reg> {
        let mut mask = block;
        match self.loops.last() {
            Some(LoopState { live, skipped, .. }) => {
                let (live, skipped) = (*live, *skipped);
                if let Some(live) = live {
                    let live = self.get(live);
                    mask = Some(self.narrowed(mask, live));
                }
                if let Some(skipped) = skipped {
                    let skipped = self.get(skipped);
                    let kept = self.op(Op::Not, &[skipped]);
                    mask = Some(self.narrowed(mask, kept));
                }
            }
            None => {
                if let Some(returned) = self.returned {
                    let returned = self.get(returned);
                    let kept = self.op(Op::Not, &[returned]);
                    mask = Some(self.narrowed(mask, kept));
                }
            }
        }
        mask
    }

    fn any(&mut self, mask: Reg) -> Reg {
        self.def(CONDITION, Calc::Any(mask))
    }

    // One vector of invocations.

    /// Lowers all of `items` for one vector of invocations.
    fn vector_of_lanes(&mut self, items: &[Item<'k>], tail: Option<Tail>) -> Vec<Inst> {
        let (loops_started, homes) = (self.loops_started, self.local_homes.clone());
        let values = std::mem::replace(&mut self.values, vec![None; self.kernel.values.len()]);
        let insts = self.nested(|this| {
            this.exec = tail.map(|tail| {
                let numbers = this.lane_numbers();
                let count = match tail {
                    Tail::Row => this.scalar(ValueType::U32, Calc::Source(Source::Remaining)),
                    Tail::Group(count) => this.constant(Value::U32(count)),
                };
                this.op(Op::Lt, &[numbers, count])
            });
            this.tail = this.exec;
            this.borrow_locals(items);
            this.start_returned(items);
            (this.loop_exec, this.all_exec) = (this.exec, this.exec);
            this.block(items);
            this.return_locals();
        });
        self.exec = None;
        self.returned = None;
        self.borrowed.clear();
        // The full and the partial form contain the same loops and declare separate variables.
        self.loops_started = loops_started;
        self.local_homes = homes;
        self.values = values;
        insts
    }

    /// Emits code for vectors whose lanes are all on one side of every border, and code for the
    /// rest; `condition` selects the first.
    fn inner_and_border(&mut self, items: &[Item<'k>], condition: &mut Option<Reg>) -> Vec<Inst> {
        self.supposed = Some(Supposed::new());
        let mut inner = self.vector_of_lanes(items, None);
        let supposed = self.supposed.take().unwrap_or_default();
        if !supposed.pays {
            return self.vector_of_lanes(items, None);
        }
        let mut insts = supposed.taken_out_of(&mut inner);
        let all = self.nested(|this| {
            let both =
                |all: Option<Reg>, next: &Reg| Some(all.map_or(*next, |all| this.op(Op::And, &[all, *next])));
            *condition = supposed.conditions.iter().fold(None, both);
        });
        insts.extend(all);
        let otherwise = self.vector_of_lanes(items, None);
        match *condition {
            Some(condition) => insts.push(Inst::If { condition, then: inner, otherwise }),
            None => unreachable!("what pays has a condition"),
        }
        insts
    }

    /// Returns the result of an op for vectors away from borders, if a condition for that can be
    /// computed: the value stays within bounds, a remainder reduces every lane by as much as lane
    /// 0, or a comparison has one outcome.
    fn supposed_op(&mut self, op: Op, args: &[Shaped]) -> Option<Shaped> {
        let supposed = self.supposed.as_ref()?;
        let is_known = |shaped: &Shaped| match *shaped {
            Shaped::Uniform(reg) | Shaped::Affine { base: reg, .. } => supposed.is_known(reg),
            Shaped::Spaced { .. } | Shaped::Varying(_) => false,
        };
        if !args.iter().all(is_known) {
            return None;
        }
        let kept = self.kept_inside(op, args);
        let pays = kept.is_some();
        let (shaped, conditions) = match kept {
            Some(Kept { base, stride, conditions }) => (Shaped::Affine { base, stride }, conditions),
            None => self.one_outcome(op, args)?,
        };
        if let Some(supposed) = &mut self.supposed {
            supposed.conditions.extend(conditions);
            supposed.pays |= pays;
        }
        Some(shaped)
    }

    /// Returns the operand of a bounding op where the op changes no lane, or changes all lanes by
    /// the same amount.
    fn kept_inside(&mut self, op: Op, args: &[Shaped]) -> Option<Kept> {
        let (base, stride, bounds) = match *args {
            [Shaped::Affine { base, stride }, Shaped::Uniform(bound)] => (base, stride, [bound, bound]),
            [Shaped::Affine { base, stride }, Shaped::Uniform(low), Shaped::Uniform(high)] => {
                (base, stride, [low, high])
            }
            [Shaped::Uniform(bound), Shaped::Affine { base, stride }] => (base, stride, [bound, bound]),
            _ => return None,
        };
        let steps = self.steps(stride)?;
        let ty = self.regs[base.0 as usize].ty;
        if op == Op::Rem {
            let is_first = matches!(args[0], Shaped::Affine { .. });
            // A vector rarely fits within one period of only a few lanes.
            let is_short = self.constants.get(&bounds[0]).is_some_and(|&by| !is_long(by, self.lanes));
            if ty != ValueType::U32 || !is_first || is_short {
                return None;
            }
            let rest = self.op(Op::Rem, &[base, bounds[0]]);
            let [first, start, end] = [base, rest, bounds[0]].map(|reg| self.op(Op::ToI64, &[reg]));
            let most = self.constant(Value::I64(most(ty)));
            let conditions =
                vec![self.last_is(Op::Le, first, steps, most), self.last_is(Op::Lt, start, steps, end)];
            return Some(Kept { base: rest, stride, conditions });
        }
        let is_order = (op == Op::Clamp && args.len() == 3) || matches!(op, Op::Min | Op::Max);
        if !is_order {
            return None;
        }
        let [first, low, high] = [base, bounds[0], bounds[1]].map(|reg| self.op(Op::ToI64, &[reg]));
        let end = if op == Op::Max { self.constant(Value::I64(most(ty))) } else { high };
        let mut conditions = vec![self.last_is(Op::Le, first, steps, end)];
        if op != Op::Min {
            conditions.push(self.op(Op::Le, &[low, first]));
        }
        Some(Kept { base, stride, conditions })
    }

    /// Returns the outcome of a comparison that is the same in all lanes, with the conditions for
    /// it.
    fn one_outcome(&mut self, op: Op, args: &[Shaped]) -> Option<(Shaped, Vec<Reg>)> {
        let (op, base, stride, bound) = match *args {
            [Shaped::Affine { base, stride }, Shaped::Uniform(bound)] => (op, base, stride, bound),
            [Shaped::Uniform(bound), Shaped::Affine { base, stride }] => (mirrored(op)?, base, stride, bound),
            _ => return None,
        };
        let steps = self.steps(stride)?;
        mirrored(op)?;
        let ty = self.regs[base.0 as usize].ty;
        let [first, bound] = [base, bound].map(|reg| self.op(Op::ToI64, &[reg]));
        let most = self.constant(Value::I64(most(ty)));
        let no_wrap = self.last_is(Op::Le, first, steps, most);
        let steps = self.constant(Value::I64(steps));
        let last = self.op(Op::Add, &[first, steps]);
        let outcomes = [first, last].map(|lane| self.op(op, &[lane, bound]));
        let apart = self.op(Op::Xor, &outcomes);
        let one = self.op(Op::Not, &[apart]);
        Some((Shaped::Uniform(outcomes[0]), vec![no_wrap, one]))
    }

    /// Distance from the first lane to the last, if positive and at most 2^16.
    fn steps(&self, stride: u32) -> Option<i64> {
        let steps = i64::from(self.lanes - 1) * i64::from(stride as i32);
        (1..=1 << 16).contains(&steps).then_some(steps)
    }

    /// Compares the last lane with a bound.
    fn last_is(&mut self, order: Op, first: Reg, steps: i64, bound: Reg) -> Reg {
        let steps = self.constant(Value::I64(steps));
        let last = self.op(Op::Add, &[first, steps]);
        self.op(order, &[last, bound])
    }

    /// Loads the workgroup's varying locals that `items` use into variables of this vector of
    /// invocations.
    fn borrow_locals(&mut self, items: &[Item<'k>]) {
        let mut used = Vec::new();
        locals_used(items, &mut used);
        for local in used {
            if let Some(Home::Slot(slot)) = self.local_homes[local.index()] {
                let value = self.recall(slot);
                let var = self.var(Shape { ty: self.slots[slot.0 as usize], vector: true });
                self.out.push(Inst::Set(var, value));
                self.local_homes[local.index()] = Some(Home::Var(var));
                self.borrowed.push((var, slot));
            }
        }
    }

    /// Writes borrowed locals back to their slots for the other parts of the workgroup's work.
    fn return_locals(&mut self) {
        for (var, slot) in self.borrowed.clone() {
            let value = self.get(var);
            self.out.push(Inst::Keep(slot, value));
        }
    }

    /// Ends this vector of invocations.
    fn end_lanes(&mut self) -> Vec<Inst> {
        self.nested(|this| {
            this.return_locals();
            this.out.push(Inst::EndLanes);
        })
    }

    /// Sets up the mask of finished lanes, and removes from `exec` those that finished in earlier
    /// stretches.
    fn start_returned(&mut self, items: &[Item<'k>]) {
        let slots: Vec<Slot> = self.off.iter().copied().flatten().collect();
        if slots.is_empty() && !items.iter().any(|item| item.marks.kills) {
            return;
        }
        let mut done = self.def(MASK, Calc::Const(Value::Bool(false)));
        for slot in slots {
            let off = self.recall(slot);
            done = self.op(Op::Or, &[done, off]);
            let on = self.op(Op::Not, &[off]);
            self.exec = Some(self.narrowed(self.exec, on));
        }
        let var = self.var(MASK);
        self.out.push(Inst::Set(var, done));
        self.returned = Some(var);
    }

    /// Marks lanes as finished with this run of statements, and with later ones if there is a slot.
    fn done(&mut self, lanes: Reg, slot: Option<Slot>) {
        if let Some(returned) = self.returned {
            self.mark(returned, lanes);
        }
        if let Some(slot) = slot {
            let before = self.recall(slot);
            let now = self.op(Op::Or, &[before, lanes]);
            self.out.push(Inst::Keep(slot, now));
        }
    }

    fn block(&mut self, items: &[Item<'k>]) {
        let block_exec = self.exec;
        for (number, item) in items.iter().enumerate() {
            self.item(item);
            if item.marks.kills && number + 1 < items.len() {
                self.exec = self.still_running(block_exec);
                self.end_if_none(block_exec);
            }
        }
    }

    /// Ends the vector of invocations once no lane runs. Only applies where the block contains
    /// every lane that has not returned.
    fn end_if_none(&mut self, block_exec: Option<Reg>) {
        if self.loops.is_empty()
            && block_exec == self.all_exec
            && let Some(exec) = self.exec
        {
            let any = self.any(exec);
            let otherwise = self.end_lanes();
            self.out.push(Inst::If { condition: any, then: Vec::new(), otherwise });
            (self.loop_exec, self.all_exec) = (self.exec, self.exec);
        }
    }

    fn item(&mut self, item: &Item<'k>) {
        match &item.stmt.kind {
            StmtKind::Def(value, def) => {
                let shaped = self.calculate(*value, def);
                self.define(*value, shaped);
            }
            StmtKind::Set(local, value) => self.set_local(*local, *value),
            StmtKind::Clear(array) => self.out.push(Inst::Clear { array: array.0, mask: self.exec }),
            StmtKind::Store { place, index, value, in_bounds } => {
                self.store(*place, *index, *value, *in_bounds);
            }
            StmtKind::If { condition, .. } => self.conditional(item, *condition),
            StmtKind::For { .. } => self.counted(item),
            StmtKind::Loop(_) => self.looped(item),
            StmtKind::Break => self.leave_loop(item.marks),
            StmtKind::Continue => self.skip_round(item.marks),
            StmtKind::Return => self.end_invocation(item.marks),
            StmtKind::Region { .. } => self.block(&item.blocks[0]),
            StmtKind::Trap(code) => self.trap(*code),
            StmtKind::Barrier => unreachable!("a barrier is met between vectors, not in one"),
        }
    }

    fn trap(&mut self, code: u32) {
        // The mask can be empty if the enclosing branch was too cheap to test.
        match self.exec {
            None => self.out.push(Inst::Trap(code)),
            Some(mask) => {
                let condition = self.any(mask);
                self.out.push(Inst::If { condition, then: vec![Inst::Trap(code)], otherwise: Vec::new() });
            }
        }
    }

    // Locals.

    fn local_home(&mut self, local: LocalId) -> Home {
        if let Some(home) = self.local_homes[local.index()] {
            return home;
        }
        let ty = self.kernel.locals[local.index()].ty;
        let uniform = self.local_facts.uniform[local.index()];
        let home = if self.crossing_locals[local.index()] && !uniform {
            self.slots.push(ty);
            Home::Slot(Slot(self.slots.len() as u32 - 1))
        } else {
            Home::Var(self.var(Shape { ty, vector: !uniform }))
        };
        self.local_homes[local.index()] = Some(home);
        home
    }

    fn read_local(&mut self, local: LocalId) -> Reg {
        match self.local_home(local) {
            Home::Var(var) => self.get(var),
            Home::Slot(slot) => self.recall(slot),
        }
    }

    fn set_local(&mut self, local: LocalId, value: ValueId) {
        let home = self.local_home(local);
        let mut value = self.operand(value);
        if !self.local_facts.uniform[local.index()]
            && let Some(exec) = self.exec
            && !self.may_overwrite(local, exec)
        {
            let old = self.read_local(local);
            value = self.op(Op::Select, &[exec, value, old]);
        }
        self.out.push(match home {
            Home::Var(var) => Inst::Set(var, value),
            Home::Slot(slot) => Inst::Keep(slot, value),
        });
    }

    /// Whether the inactive lanes have no further use for this local.
    fn may_overwrite(&self, local: LocalId, exec: Reg) -> bool {
        let number = self.loops.last().map_or(0, |state| state.number);
        self.loop_exec == Some(exec) && self.local_facts.lost_outside(local, number)
    }

    // Control flow.

    fn conditional(&mut self, item: &Item<'k>, condition: ValueId) {
        let (then, otherwise) = (&item.blocks[0], &item.blocks[1]);
        let condition = match self.value(condition) {
            Shaped::Uniform(condition) => {
                let then = self.branch(then, self.exec);
                let otherwise = self.branch(otherwise, self.exec);
                self.out.push(Inst::If { condition, then, otherwise });
                return;
            }
            Shaped::Varying(condition) => condition,
            Shaped::Affine { .. } | Shaped::Spaced { .. } => unreachable!("a condition is bool"),
        };
        let may_be_all = !self.partial.contains(&condition) || !otherwise.is_empty();
        if self.exec.is_none() && may_be_all && self.copies < COPIES && is_worth_copies(then, otherwise) {
            return self.three_ways(then, otherwise, condition);
        }
        let exec = self.exec;
        if !then.is_empty() {
            let mask = self.narrowed(exec, condition);
            self.masked(then, mask);
        }
        if !otherwise.is_empty() {
            let condition = self.op(Op::Not, &[condition]);
            let mask = self.narrowed(exec, condition);
            self.masked(otherwise, mask);
        }
        self.exec = exec;
    }

    /// A divergent `if` where all lanes run: most vectors take one side as a whole and need no
    /// masks.
    fn three_ways(&mut self, then: &[Item<'k>], otherwise: &[Item<'k>], condition: Reg) {
        self.copies += 1;
        let loops_started = self.loops_started;
        let all_then = self.branch(then, None);
        let all_otherwise = self.branch(otherwise, None);
        // The masked copy contains the same loops.
        self.loops_started = loops_started;
        let apart = self.nested(|this| {
            this.in_mask(then, condition);
            if !otherwise.is_empty() {
                let mask = this.op(Op::Not, &[condition]);
                this.in_mask(otherwise, mask);
            }
        });
        self.copies -= 1;
        let all = self.def(CONDITION, Calc::All(condition));
        let mixed = self.nested(|this| {
            let any = this.any(condition);
            this.out.push(Inst::If { condition: any, then: apart, otherwise: all_otherwise });
        });
        self.out.push(Inst::If { condition: all, then: all_then, otherwise: mixed });
    }

    /// Lowers statements under a mask without a branch around them.
    fn in_mask(&mut self, items: &[Item<'k>], mask: Reg) {
        let outer = self.exec.replace(mask);
        self.block(items);
        self.exec = outer;
    }

    fn branch(&mut self, items: &[Item<'k>], exec: Option<Reg>) -> Vec<Inst> {
        let outer = (self.exec, self.loop_exec, self.all_exec);
        let insts = self.nested(|this| {
            this.exec = exec;
            this.block(items);
        });
        (self.exec, self.loop_exec, self.all_exec) = outer;
        insts
    }

    /// One side of a divergent `if`: branched over where no lane takes it, unless it costs less
    /// than the test.
    fn masked(&mut self, items: &[Item<'k>], mask: Reg) {
        if is_cheap(items) {
            return self.in_mask(items, mask);
        }
        let then = self.branch(items, Some(mask));
        let condition = self.any(mask);
        self.out.push(Inst::If { condition, then, otherwise: Vec::new() });
    }

    fn leave_loop(&mut self, marks: Marks) {
        if !marks.divergent {
            return self.out.push(Inst::Break);
        }
        let lanes = self.full_mask(self.exec);
        let live = self.loops.last().and_then(|state| state.live);
        let Some(live) = live else { unreachable!("a loop that lanes leave alone has a mask") };
        self.strike(live, lanes);
    }

    fn skip_round(&mut self, marks: Marks) {
        if !marks.divergent {
            return self.out.push(Inst::Continue);
        }
        let lanes = self.full_mask(self.exec);
        match self.loops.last().map(|state| state.skipped) {
            Some(Some(skipped)) => self.mark(skipped, lanes),
            Some(None) => unreachable!("a loop whose rounds lanes skip has a mask"),
            // The loop belongs to the workgroup, and no barrier follows in this iteration.
            None => {
                let slot = self.off.last().copied().flatten();
                self.done(lanes, slot);
            }
        }
    }

    fn end_invocation(&mut self, marks: Marks) {
        if !marks.divergent {
            let end = self.end_lanes();
            return self.out.extend(end);
        }
        let lanes = self.full_mask(self.exec);
        let live: Vec<Var> = self.loops.iter().filter_map(|state| state.live).collect();
        for var in live {
            self.strike(var, lanes);
        }
        let slot = self.off.first().copied().flatten();
        self.done(lanes, slot);
    }

    fn looped(&mut self, item: &Item<'k>) {
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |_| None);
        self.out.push(Inst::Loop { body, next: Vec::new(), rest: false });
    }

    /// Numbers the loop and, if lanes leave it separately, sets up its live mask.
    fn start_loop(&mut self, item: &Item<'k>) -> LoopState {
        self.loops_started += 1;
        let number = self.loops_started;
        let live = item.marks.divergent_loop.then(|| {
            let var = self.var(MASK);
            let mask = self.full_mask(self.exec);
            self.out.push(Inst::Set(var, mask));
            var
        });
        let skipped = item.marks.skips.then(|| self.var(MASK));
        LoopState { number, live, skipped }
    }

    /// Lowers a loop's body. `head` runs at the start of each iteration and can return a condition
    /// that narrows the live lanes.
    fn loop_body(
        &mut self,
        item: &Item<'k>,
        state: LoopState,
        head: impl FnOnce(&mut Self) -> Option<Reg>,
    ) -> Vec<Inst> {
        let (outer_exec, outer_loop_exec) = (self.exec, self.loop_exec);
        let (live, skipped) = (state.live, state.skipped);
        self.loops.push(state);
        let body = self.nested(|this| {
            let goes_on = head(this);
            if let Some(live) = live {
                let mut mask = this.get(live);
                if let Some(condition) = goes_on {
                    mask = this.op(Op::And, &[mask, condition]);
                    this.out.push(Inst::Set(live, mask));
                }
                this.exec = Some(mask);
                // A loop that starts with a condition tests the mask there.
                if leading_condition(&item.blocks[0]).is_none() {
                    this.break_unless_any(mask);
                }
            } else if let Some(condition) = goes_on {
                this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
            }
            if let Some(skipped) = skipped {
                let none = this.def(MASK, Calc::Const(Value::Bool(false)));
                this.out.push(Inst::Set(skipped, none));
            }
            this.loop_exec = this.exec;
            this.round(&item.blocks[0], live);
        });
        self.loops.pop();
        (self.exec, self.loop_exec) = (outer_exec, outer_loop_exec);
        body
    }

    fn break_unless_any(&mut self, mask: Reg) {
        let condition = self.any(mask);
        self.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
    }

    /// Lowers the statements of an iteration. The condition of a divergent `while` narrows the live
    /// lanes directly.
    fn round(&mut self, items: &[Item<'k>], live: Option<Var>) {
        let (Some(live), Some((at, condition))) = (live, leading_condition(items)) else {
            return self.block(items);
        };
        for item in &items[..at] {
            self.item(item);
        }
        let condition = self.operand(condition);
        let before = self.get(live);
        let mask = self.op(Op::And, &[before, condition]);
        self.out.push(Inst::Set(live, mask));
        (self.exec, self.loop_exec) = (Some(mask), Some(mask));
        self.break_unless_any(mask);
        self.block(&items[at + 1..]);
    }

    fn counted(&mut self, item: &Item<'k>) {
        let StmtKind::For { counter, from, to, step, .. } = &item.stmt.kind else {
            unreachable!("only called for counted loops")
        };
        if let Some(across) = self.across(item, [*from, *to, *step]) {
            return self.counted_across(item, *counter, across);
        }
        if let Some(abreast) = self.abreast(item, [*from, *to, *step]) {
            return self.counted_abreast(item, *counter, abreast);
        }
        let bounds = [*from, *to, *step].map(|bound| self.operand(bound));
        let is_simple = self.constants.get(&bounds[2]) == Some(&Value::one(self.kernel.ty(*from)))
            && bounds.iter().all(|bound| !self.regs[bound.0 as usize].vector);
        if !is_simple {
            return self.rounds(item, *counter, bounds);
        }
        if let Some(lanes) = self.along
            && let StmtKind::For { body, .. } = &item.stmt.kind
            && let Some(locals) = reduced(self.kernel, body, *counter)
        {
            return self.counted_along(item, *counter, bounds, (lanes, locals));
        }
        let outcomes = self.outcomes(item, *counter, bounds);
        let Some(condition) =
            outcomes.values().map(|outcome| outcome.when).reduce(|all, next| self.op(Op::And, &[all, next]))
        else {
            return self.simple_rounds(item, *counter, bounds);
        };
        let loops_started = self.loops_started;
        let then = self.nested(|this| {
            this.decided = outcomes;
            this.simple_rounds(item, *counter, bounds);
            this.decided.clear();
        });
        // The same loop, for vectors that meet a border in some iteration.
        self.loops_started = loops_started;
        self.copies += 1;
        let otherwise = self.nested(|this| this.simple_rounds(item, *counter, bounds));
        self.copies -= 1;
        self.out.push(Inst::If { condition, then, otherwise });
    }

    /// Finds comparisons, such as border guards, that have one outcome in all lanes and iterations
    /// of a loop, and the conditions for that.
    fn outcomes(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        bounds: [Reg; 3],
    ) -> BTreeMap<ValueId, Outcome> {
        let mut found = BTreeMap::new();
        if self.exec.is_some() || self.lanes == 1 || !self.decided.is_empty() || self.copies >= COPIES {
            return found;
        }
        let compared = compared(&item.blocks[0], counter, self.kernel);
        let definitions = compared.definitions;
        let at = Shaped::Uniform(bounds[0]);
        for (value, op, [x, y]) in compared.found {
            let sides = [x, y].map(|side| self.in_round(&definitions, side, counter, at));
            let [Some(x), Some(y)] = sides else { continue };
            if let Some(outcome) = self.outcome(op, [x, y], bounds) {
                found.insert(value, outcome);
            }
        }
        found
    }

    /// Returns the outcome of a comparison in the first iteration, if its varying side only
    /// increases, by one per lane and per iteration.
    fn outcome(&mut self, op: Op, sides: [Shaped; 2], [from, to, _]: [Reg; 3]) -> Option<Outcome> {
        let [Shaped::Affine { base, stride: 1 }, Shaped::Uniform(bound)] = sides else { return None };
        let ty = self.regs[base.0 as usize].ty;
        let [first, bound, from, to] = [base, bound, from, to].map(|reg| self.op(Op::ToI64, &[reg]));
        let rounds = self.op(Op::Sub, &[to, from]);
        let others = self.constant(Value::I64(i64::from(self.lanes) - 2));
        let reach = self.op(Op::Add, &[rounds, others]);
        let last = self.op(Op::Add, &[first, reach]);
        let most = self.constant(Value::I64(most(ty)));
        let no_wrap = self.op(Op::Le, &[last, most]);
        let outcomes = [first, last].map(|lane| self.op(op, &[lane, bound]));
        let apart = self.op(Op::Xor, &outcomes);
        let one = self.op(Op::Not, &[apart]);
        Some(Outcome { holds: outcomes[0], when: self.op(Op::And, &[no_wrap, one]) })
    }

    /// A loop with scalar bounds and a step of one.
    fn simple_rounds(&mut self, item: &Item<'k>, counter: ValueId, mut bounds: [Reg; 3]) {
        let is_word = self.regs[bounds[0].0 as usize].ty == ValueType::U32;
        if is_word && let Some(walks) = self.walks(item, counter, Shaped::Uniform(bounds[0])) {
            let position = self.var(Shape { ty: ValueType::U32, vector: false });
            self.out.push(Inst::Set(position, bounds[0]));
            let tiled = Tiled { position, to: bounds[1], stride: None };
            self.rounds_in_tiles(item, counter, &walks, tiled);
            bounds[0] = self.get(position);
        }
        self.rounds(item, counter, bounds);
    }

    /// A loop whose iterations are the lanes while there are enough of them; the others follow one
    /// by one.
    fn counted_along(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        [from, to, step]: [Reg; 3],
        (lanes, locals): (u32, Vec<Reduced>),
    ) {
        let position = self.var(Shape { ty: ValueType::U32, vector: false });
        self.out.push(Inst::Set(position, from));
        let homes: Vec<Home> = locals.iter().map(|reduced| self.local_home(reduced.local)).collect();
        let partial: Vec<Var> = locals
            .iter()
            .map(|&Reduced { local, combine }| {
                let ty = self.kernel.locals[local.index()].ty;
                let identity = self.def(Shape { ty, vector: true }, Calc::Const(combine.identity(ty)));
                let var = self.var(Shape { ty, vector: true });
                self.out.push(Inst::Set(var, identity));
                var
            })
            .collect();
        for (reduced, &var) in locals.iter().zip(&partial) {
            self.local_homes[reduced.local.index()] = Some(Home::Var(var));
            self.local_facts.uniform[reduced.local.index()] = false;
        }
        let invocations = std::mem::replace(&mut self.lanes, lanes);
        self.vectors_along(item, counter, to, position);
        self.lanes = invocations;
        for ((&Reduced { local, combine }, &var), &home) in locals.iter().zip(&partial).zip(&homes) {
            self.local_homes[local.index()] = Some(home);
            self.local_facts.uniform[local.index()] = true;
            let ty = self.kernel.locals[local.index()].ty;
            let calc =
                Calc::Subgroup { op: SubgroupOp::Reduce(combine), operands: vec![self.get(var)], mask: None };
            let all = self.def(Shape { ty, vector: true }, calc);
            let all = self.scalar(ty, Calc::First(all));
            let before = self.read_local(local);
            let after = self.op(combine.op(), &[before, all]);
            if let Home::Var(var) = home {
                self.out.push(Inst::Set(var, after));
            }
        }
        let from = self.get(position);
        self.rounds(item, counter, [from, to, step]);
        if let Some(Inst::Loop { rest, .. }) = self.out.last_mut() {
            *rest = true;
        }
    }

    /// Iterations in vectors.
    fn vectors_along(&mut self, item: &Item<'k>, counter: ValueId, to: Reg, position: Var) {
        let loops_started = self.loops_started;
        self.loops_started += 1;
        let state = LoopState { number: self.loops_started, live: None, skipped: None };
        let lanes = self.lanes;
        let body = self.loop_body(item, state, |this| {
            let base = this.get(position);
            this.define(counter, Shaped::Affine { base, stride: 1 });
            let (some, left) = (this.op(Op::Lt, &[base, to]), this.op(Op::Sub, &[to, base]));
            let size = this.constant(Value::U32(lanes));
            let enough = this.op(Op::Ge, &[left, size]);
            Some(this.op(Op::And, &[some, enough]))
        });
        let next = self.nested(|this| this.count_up(position, lanes));
        self.out.push(Inst::Loop { body, next, rest: false });
        // The remaining iterations belong to the same loop.
        self.loops_started = loops_started;
    }

    fn rounds(&mut self, item: &Item<'k>, counter: ValueId, bounds: [Reg; 3]) {
        let rounds = self.start_rounds(bounds);
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let current = this.get(rounds.position);
            let shaped = this.shaped(current);
            this.define(counter, shaped);
            Some(this.has_round(&rounds, current))
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest: false });
    }

    /// Recognises a loop with an affine counter: lanes start at a constant distance and share step
    /// and end.
    fn across(&mut self, item: &Item<'k>, [from, to, step]: [ValueId; 3]) -> Option<Across> {
        if self.kernel.ty(from) != ValueType::U32 || item.blocks[0].iter().any(has_exits) {
            return None;
        }
        let Shaped::Affine { base, stride } = self.value(from) else { return None };
        let (Shaped::Uniform(to), Shaped::Uniform(step)) = (self.value(to), self.value(step)) else {
            return None;
        };
        Some(Across { base, stride, to, step })
    }

    /// While the last lane has an iteration, all lanes do, so those iterations need no mask. The
    /// rest run under masks.
    fn counted_across(&mut self, item: &Item<'k>, counter: ValueId, across: Across) {
        let start = self.op(Op::ToU64, &[across.base]);
        let position = self.var(Shape { ty: ValueType::U64, vector: false });
        self.out.push(Inst::Set(position, start));
        if self.exec.is_none() {
            self.rounds_of_all(item, counter, across, position);
        }
        let position = self.get(position);
        self.rounds_of_some(item, counter, across, [start, position]);
    }

    /// Iterations that every lane has. Positions are exact: they stay below 2^33.
    fn rounds_of_all(&mut self, item: &Item<'k>, counter: ValueId, across: Across, position: Var) {
        let Across { stride, to, step, .. } = across;
        let (to, step) = (self.op(Op::ToU64, &[to]), self.op(Op::ToU64, &[step]));
        let reach = self.constant(Value::U64(u64::from(stride) * u64::from(self.lanes - 1)));
        let loops_started = self.loops_started;
        self.loops_started += 1;
        let state = LoopState { number: self.loops_started, live: None, skipped: None };
        let body = self.loop_body(item, state, |this| {
            let current = this.get(position);
            let base = this.op(Op::ToU32, &[current]);
            this.define(counter, Shaped::Affine { base, stride });
            let last = this.op(Op::Add, &[current, reach]);
            Some(this.op(Op::Lt, &[last, to]))
        });
        let next = self.nested(|this| {
            let current = this.get(position);
            let following = this.op(Op::Add, &[current, step]);
            this.out.push(Inst::Set(position, following));
        });
        self.out.push(Inst::Loop { body, next, rest: false });
        // The masked iterations belong to the same loop.
        self.loops_started = loops_started;
    }

    /// Iterations under masks, starting at `position`. The tests avoid wrapped counters, since a
    /// counter past 2^32 would look small: the loop's first iteration compares the start value with
    /// the end; each later one compares the previous value, which has not wrapped, with the end
    /// minus the step.
    fn rounds_of_some(
        &mut self,
        item: &Item<'k>,
        counter: ValueId,
        across: Across,
        [start, position]: [Reg; 2],
    ) {
        let Across { base, stride, to, step } = across;
        let reduced = self.op(Op::SatSub, &[to, step]);
        let here = self.op(Op::ToU32, &[position]);
        let before = self.op(Op::Sub, &[here, step]);
        let at_start = self.op(Op::Eq, &[start, position]);
        let (asked, limit) =
            (self.op(Op::Select, &[at_start, base, before]), self.op(Op::Select, &[at_start, to, reduced]));
        let u32 = Shape { ty: ValueType::U32, vector: false };
        let [position, asked, limit] = [here, asked, limit].map(|start| {
            let var = self.var(u32);
            self.out.push(Inst::Set(var, start));
            var
        });
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let base = this.get(position);
            this.define(counter, Shaped::Affine { base, stride });
            let base = this.get(asked);
            let asked = this.register(Shaped::Affine { base, stride });
            let limit = this.get(limit);
            Some(this.op(Op::Lt, &[asked, limit]))
        });
        let next = self.nested(|this| {
            let current = this.get(position);
            this.out.push(Inst::Set(asked, current));
            this.out.push(Inst::Set(limit, reduced));
            let following = this.op(Op::Add, &[current, step]);
            this.out.push(Inst::Set(position, following));
        });
        self.out.push(Inst::Loop { body, next, rest: true });
    }

    /// Recognises a loop whose starts and ends have the same stride across lanes, so that all lanes
    /// have the same number of iterations: rows of equal length.
    fn abreast(&mut self, item: &Item<'k>, [from, to, step]: [ValueId; 3]) -> Option<Abreast> {
        if self.kernel.ty(from) != ValueType::U32 || item.blocks[0].iter().any(has_exits) {
            return None;
        }
        let Shaped::Uniform(step) = self.value(step) else { return None };
        if self.constants.get(&step) != Some(&Value::U32(1)) {
            return None;
        }
        let (from, stride, to) = match (self.value(from), self.value(to)) {
            (Shaped::Spaced { base, stride }, Shaped::Spaced { base: to, stride: same })
                if stride == same =>
            {
                (base, stride, to)
            }
            (Shaped::Affine { base, stride }, Shaped::Affine { base: to, stride: same })
                if stride == same =>
            {
                (base, self.constant(Value::U32(stride)), to)
            }
            _ => return None,
        };
        Some(Abreast { from, to, stride })
    }

    /// Runs the same number of iterations in all lanes unless a lane's counter wraps; remaining
    /// iterations run under masks.
    fn counted_abreast(&mut self, item: &Item<'k>, counter: ValueId, abreast: Abreast) {
        let Abreast { from, to, stride } = abreast;
        let position = self.var(Shape { ty: ValueType::U32, vector: false });
        self.out.push(Inst::Set(position, from));
        if self.exec.is_none() {
            let [first, end, apart] = [from, to, stride].map(|reg| self.op(Op::ToU64, &[reg]));
            let others = self.constant(Value::U64(u64::from(self.lanes - 1)));
            let reach = self.op(Op::Mul, &[apart, others]);
            let farthest = self.op(Op::Max, &[first, end]);
            let farthest = self.op(Op::Add, &[farthest, reach]);
            let most = self.constant(Value::U64(u32::MAX.into()));
            let no_wrap = self.op(Op::Le, &[farthest, most]);
            // If a lane's counter wraps, the end equals the start and no unmasked iteration runs.
            let end = self.op(Op::Select, &[no_wrap, to, from]);
            if let Some(walks) = self.walks(item, counter, Shaped::Spaced { base: from, stride }) {
                let tiled = Tiled { position, to: end, stride: Some(stride) };
                self.rounds_in_tiles(item, counter, &walks, tiled);
            }
            self.rounds_abreast(item, counter, Abreast { from, to: end, stride }, position);
        }
        let base = self.get(position);
        let rest = self.exec.is_none();
        let start = self.register(Shaped::Spaced { base, stride });
        let end = self.register(Shaped::Spaced { base: to, stride });
        let step = self.constant(Value::U32(1));
        let rounds = self.start_rounds([start, end, step]);
        let state = self.start_loop(item);
        let body = self.loop_body(item, state, |this| {
            let current = this.get(rounds.position);
            this.define(counter, Shaped::Varying(current));
            Some(this.has_round(&rounds, current))
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest });
    }

    /// Iterations of all lanes together.
    fn rounds_abreast(&mut self, item: &Item<'k>, counter: ValueId, abreast: Abreast, position: Var) {
        let Abreast { to, stride, .. } = abreast;
        let loops_started = self.loops_started;
        self.loops_started += 1;
        let state = LoopState { number: self.loops_started, live: None, skipped: None };
        let body = self.loop_body(item, state, |this| {
            let base = this.get(position);
            this.define(counter, Shaped::Spaced { base, stride });
            Some(this.op(Op::Lt, &[base, to]))
        });
        let next = self.nested(|this| {
            let current = this.get(position);
            let one = this.constant(Value::U32(1));
            let following = this.op(Op::Add, &[current, one]);
            this.out.push(Inst::Set(position, following));
        });
        self.out.push(Inst::Loop { body, next, rest: false });
        // The masked iterations belong to the same loop.
        self.loops_started = loops_started;
    }

    /// Finds the accesses of a loop with which each lane walks along a separate row.
    fn walks(&mut self, item: &Item<'k>, counter: ValueId, at: Shaped) -> Option<Walks<'k>> {
        if self.exec.is_some() || self.lanes == 1 || self.in_tiles.number.is_some() {
            return None;
        }
        let mut walks = walks(&item.blocks[0], counter)?;
        // A dry run: the emitted code is dropped.
        let mut found = Vec::new();
        self.nested(|this| {
            let is_row = |walk: &&Walk| this.span(&walks, walk, counter, at).is_some();
            found = walks.walks.iter().filter(is_row).copied().collect();
        });
        walks.walks = found;
        (!walks.walks.is_empty()).then_some(walks)
    }

    /// Returns the position of an access in each lane in one iteration, if the lanes are far apart.
    fn span(&mut self, walks: &Walks<'k>, walk: &Walk, counter: ValueId, at: Shaped) -> Option<Span> {
        const LINE: u64 = 64;
        let bytes = self.kernel.buffer(walk.buffer).decl.element.size() as u64;
        // A cache line holds many small elements and is reread often before it is evicted.
        if bytes < 4 {
            return None;
        }
        let index = match self.in_round(&walks.definitions, walk.index, counter, at)? {
            Shaped::Spaced { base, stride } => [base, stride],
            Shaped::Affine { base, stride } if u64::from(stride) * bytes >= LINE => {
                [base, self.constant(Value::U32(stride))]
            }
            Shaped::Affine { .. } | Shaped::Uniform(_) | Shaped::Varying(_) => return None,
        };
        Some(Span { buffer: walk.buffer, index })
    }

    /// Computes a value of the loop body for one iteration, outside the loop.
    fn in_round(
        &mut self,
        definitions: &HashMap<ValueId, &'k Def>,
        value: ValueId,
        counter: ValueId,
        at: Shaped,
    ) -> Option<Shaped> {
        if value == counter {
            return Some(at);
        }
        let Some(def) = definitions.get(&value) else { return Some(self.value(value)) };
        let Def::Op(op, operands) = def else { return None };
        let args: Option<Vec<Shaped>> =
            operands.iter().map(|&operand| self.in_round(definitions, operand, counter, at)).collect();
        Some(self.calculated(*op, &args?))
    }

    /// Runs iterations on tiles of copied rows while a full tile is left; the others follow.
    fn rounds_in_tiles(&mut self, item: &Item<'k>, counter: ValueId, walks: &Walks<'k>, tiled: Tiled) {
        let Tiled { position, to, stride } = tiled;
        let shaped = |base: Reg| match stride {
            None => Shaped::Uniform(base),
            Some(stride) => Shaped::Spaced { base, stride },
        };
        let loops_started = self.loops_started;
        self.loops_started += 1;
        let state = LoopState { number: self.loops_started, live: None, skipped: None };
        let body = self.nested(|this| {
            let current = this.get(position);
            let size = this.constant(Value::U32(TILE));
            let left = this.op(Op::Sub, &[to, current]);
            let (some, enough) = (this.op(Op::Lt, &[current, to]), this.op(Op::Ge, &[left, size]));
            let condition = this.op(Op::And, &[some, enough]);
            this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
            let flushed = this.fill_tiles(walks, counter, shaped(current));
            let number = this.var(Shape { ty: ValueType::U32, vector: false });
            let zero = this.constant(Value::U32(0));
            this.out.push(Inst::Set(number, zero));
            let body = this.loop_body(item, state, |this| {
                let round = this.get(number);
                this.in_tiles.number = Some(round);
                let base = this.op(Op::Add, &[current, round]);
                this.define(counter, shaped(base));
                Some(this.op(Op::Lt, &[round, size]))
            });
            let next = this.nested(|this| this.count_up(number, 1));
            this.in_tiles = InTiles::default();
            this.out.push(Inst::Loop { body, next, rest: false });
            this.out.extend(flushed);
        });
        let next = self.nested(|this| this.count_up(position, TILE));
        self.out.push(Inst::Loop { body, next, rest: false });
        // The remaining iterations belong to the same loop.
        self.loops_started = loops_started;
    }

    /// Copies in what the iterations read, and returns the instructions that copy out what they
    /// write.
    fn fill_tiles(&mut self, walks: &Walks<'k>, counter: ValueId, at: Shaped) -> Vec<Inst> {
        let mut flushed = Vec::new();
        for walk in &walks.walks {
            let Some(span) = self.span(walks, walk, counter, at) else { continue };
            let tile = Tile(self.tiles.len() as u32);
            self.tiles.push(self.kernel.buffer(walk.buffer).decl.element);
            match walk.loaded {
                Some(value) => {
                    self.in_tiles.loads.insert(value, tile);
                    self.out.push(Inst::Tile(TileStep::Fill(tile, span)));
                }
                None => {
                    self.in_tiles.stores.insert(walk.buffer, tile);
                    flushed.push(Inst::Tile(TileStep::Flush(tile, span)));
                }
            }
        }
        flushed
    }

    fn count_up(&mut self, var: Var, by: u32) {
        let (current, by) = (self.get(var), self.constant(Value::U32(by)));
        let following = self.op(Op::Add, &[current, by]);
        self.out.push(Inst::Set(var, following));
    }

    /// Sets up the counter of a loop from its bounds.
    fn start_rounds(&mut self, bounds @ [from, to, step]: [Reg; 3]) -> Rounds {
        let shapes = bounds.map(|reg| self.regs[reg.0 as usize]);
        let ty = shapes[0].ty;
        // The counter is a vector only if lanes have different starts or steps.
        let position = self.var(Shape { ty, vector: shapes[0].vector || shapes[2].vector });
        self.out.push(Inst::Set(position, from));
        let test = match self.constants.get(&step).copied() {
            Some(value) if value == Value::one(ty) => RoundTest::Below(to),
            Some(value) => {
                let down = matches!(value, Value::I32(i32::MIN..=-1) | Value::I64(i64::MIN..=-1));
                let order = if down { Op::Gt } else { Op::Lt };
                // No iteration follows once the counter reaches the end minus the step; the
                // subtraction saturates.
                let reduced = self.op(Op::SatSub, &[to, step]);
                let first = self.op(order, &[from, to]);
                let more = self.var(self.regs[first.0 as usize]);
                self.out.push(Inst::Set(more, first));
                RoundTest::Flag { more, order, reduced }
            }
            None => unreachable!("other steps than constants were counted in rounds"),
        };
        Rounds { position, step, test }
    }

    fn has_round(&mut self, rounds: &Rounds, current: Reg) -> Reg {
        match rounds.test {
            RoundTest::Below(to) => self.op(Op::Lt, &[current, to]),
            RoundTest::Flag { more, .. } => self.get(more),
        }
    }

    fn next_round(&mut self, rounds: &Rounds) {
        let current = self.get(rounds.position);
        match rounds.test {
            RoundTest::Below(_) => {}
            RoundTest::Flag { more, order, reduced } => {
                let goes_on = self.op(order, &[current, reduced]);
                self.out.push(Inst::Set(more, goes_on));
            }
        }
        let following = self.op(Op::Add, &[current, rounds.step]);
        self.out.push(Inst::Set(rounds.position, following));
    }

    // Values.

    fn calculate(&mut self, value: ValueId, def: &Def) -> Shaped {
        let ty = self.kernel.ty(value);
        match def {
            Def::Const(constant) => Shaped::Uniform(self.constant(*constant)),
            Def::Get(local) => {
                let reg = self.read_local(*local);
                self.shaped(reg)
            }
            Def::Op(op, operands) => match self.decided.get(&value) {
                Some(outcome) => Shaped::Uniform(outcome.holds),
                None => self.calculate_op(*op, operands),
            },
            Def::Load { place, index, in_bounds } => {
                if let (Some(&tile), Some(number)) = (self.in_tiles.loads.get(&value), self.in_tiles.number) {
                    return Shaped::Varying(self.def(Shape { ty, vector: true }, Calc::Tile(tile, number)));
                }
                let loaded = self.load(*place, *index, *in_bounds);
                self.as_uniform(value, loaded)
            }
            Def::Len(buffer) => Shaped::Uniform(self.scalar(ty, Calc::Len(*buffer))),
            Def::Builtin(builtin, axis) => self.builtin(*builtin, *axis),
            Def::Atomic { op, buffer, index, operands, in_bounds } => {
                let index = self.operand(*index);
                let mut operands: Vec<Reg> = operands.iter().map(|&operand| self.operand(operand)).collect();
                if operands.is_empty() {
                    // The lane-by-lane routine always takes an operand, even if unused.
                    operands.push(self.constant(Value::zero(ty)));
                }
                let (mask, checked, read) = (self.exec, !in_bounds, self.read[value.index()]);
                let calc = Calc::Atomic { op: *op, buffer: *buffer, index, operands, mask, checked, read };
                let reg = self.def(Shape { ty, vector: self.lanes > 1 }, calc);
                self.shaped(reg)
            }
            Def::Subgroup(SubgroupOp::Size, _) => Shaped::Uniform(self.constant(Value::U32(self.lanes))),
            Def::Subgroup(SubgroupOp::Id, _) => {
                let first = self.first_lane();
                let lanes = self.constant(Value::U32(self.lanes));
                Shaped::Uniform(self.op(Op::Div, &[first, lanes]))
            }
            Def::Subgroup(SubgroupOp::Count, _) => {
                let invocations: u32 = self.workgroup.iter().product();
                Shaped::Uniform(self.constant(Value::U32(invocations.div_ceil(self.lanes))))
            }
            Def::Subgroup(op, operands) => {
                let operands = operands.iter().map(|&operand| self.operand(operand)).collect();
                let calc = Calc::Subgroup { op: *op, operands, mask: self.exec };
                Shaped::Varying(self.def(Shape { ty, vector: true }, calc))
            }
        }
    }

    /// A private array has one element per lane. Where the kernel proves that all are equal, lane 0
    /// is read: it always exists, and an array is uniform only if all lanes wrote it together.
    fn as_uniform(&mut self, value: ValueId, shaped: Shaped) -> Shaped {
        let info = self.kernel.values[value.index()];
        match shaped {
            Shaped::Varying(reg) if info.uniform && self.along.is_none() => {
                Shaped::Uniform(self.scalar(info.ty, Calc::First(reg)))
            }
            Shaped::Varying(_) | Shaped::Uniform(_) | Shaped::Affine { .. } | Shaped::Spaced { .. } => shaped,
        }
    }

    fn calculate_op(&mut self, op: Op, operands: &[ValueId]) -> Shaped {
        let shaped: Vec<Shaped> = operands.iter().map(|&operand| self.value(operand)).collect();
        self.calculated(op, &shaped)
    }

    /// Lowers an op on shaped operands.
    fn calculated(&mut self, op: Op, shaped: &[Shaped]) -> Shaped {
        if let Some(affine) = self.affine_op(op, shaped) {
            return affine;
        }
        if let Some(spaced) = self.spaced_op(op, shaped) {
            return spaced;
        }
        if let Some(supposed) = self.supposed_op(op, shaped) {
            return supposed;
        }
        if let Some(compared) = self.aligned_comparison(op, shaped) {
            return compared;
        }
        let args: Vec<Reg> = shaped.iter().map(|&shaped| self.register(shaped)).collect();
        let reg = self.op(op, &args);
        if let Some(mostly) = self.mostly_op(op, shaped, &args) {
            self.mostly.insert(reg, mostly);
        }
        self.shaped(reg)
    }

    /// Recognises results whose lanes are usually consecutive: returns the value of lane 0 and the
    /// condition for it. Values kept inside bounds qualify, as do their sums with a scalar.
    fn mostly_op(&mut self, op: Op, shaped: &[Shaped], args: &[Reg]) -> Option<(Reg, Reg)> {
        let known = |this: &Self, at: usize| this.mostly.get(args.get(at)?).copied();
        match op {
            Op::Min | Op::Max | Op::Clamp | Op::Rem => {
                let kept = self.kept_inside(op, shaped).filter(|kept| kept.stride == 1)?;
                let mut conditions = kept.conditions.into_iter();
                let first = conditions.next()?;
                Some((kept.base, conditions.fold(first, |all, next| self.op(Op::And, &[all, next]))))
            }
            Op::Add | Op::Sub if matches!(shaped[1], Shaped::Uniform(_)) => {
                let (base, when) = known(self, 0)?;
                Some((self.op(op, &[base, args[1]]), when))
            }
            Op::Add if matches!(shaped[0], Shaped::Uniform(_)) => {
                let (base, when) = known(self, 1)?;
                Some((self.op(op, &[args[0], base]), when))
            }
            Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => {
                let (base, when) = known(self, 0)?;
                Some((self.op(op, &[base]), when))
            }
            _ => None,
        }
    }

    /// Ops that keep a value affine; arithmetic wraps, so they are exact.
    fn affine_op(&mut self, op: Op, args: &[Shaped]) -> Option<Shaped> {
        use Shaped::{Affine, Uniform};
        match (op, args) {
            (Op::Add, &[Affine { base, stride }, Uniform(other)])
            | (Op::Add, &[Uniform(other), Affine { base, stride }]) => {
                Some(Affine { base: self.op(Op::Add, &[base, other]), stride })
            }
            (Op::Add, &[Affine { base, stride }, Affine { base: other, stride: step }]) => {
                Some(Affine { base: self.op(Op::Add, &[base, other]), stride: stride.wrapping_add(step) })
            }
            (Op::Sub, &[Affine { base, stride }, Uniform(other)]) => {
                Some(Affine { base: self.op(Op::Sub, &[base, other]), stride })
            }
            (Op::Sub, &[Uniform(other), Affine { base, stride }]) => {
                Some(Affine { base: self.op(Op::Sub, &[other, base]), stride: stride.wrapping_neg() })
            }
            (Op::Mul, &[Affine { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Affine { base, stride }]) => {
                let factor = self.constants.get(&other)?.to_bits() as u32;
                Some(Affine { base: self.op(Op::Mul, &[base, other]), stride: stride.wrapping_mul(factor) })
            }
            (Op::Shl, &[Affine { base, stride }, Uniform(count)]) => {
                let places = self.constants.get(&count)?.as_u32()?;
                Some(Affine { base: self.op(Op::Shl, &[base, count]), stride: stride.wrapping_shl(places) })
            }
            (Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32, &[Affine { base, stride }]) => {
                Some(Affine { base: self.op(op, &[base]), stride })
            }
            _ => None,
        }
    }

    /// Ops that keep lanes evenly spaced by a scalar known only at dispatch; arithmetic wraps, so
    /// they are exact.
    fn spaced_op(&mut self, op: Op, args: &[Shaped]) -> Option<Shaped> {
        use Shaped::{Affine, Spaced, Uniform};
        let (base, stride) = match (op, args) {
            (Op::Mul, &[Affine { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Affine { base, stride }]) => {
                let stride = self.constant(Value::U32(stride));
                (self.op(Op::Mul, &[base, other]), self.times(stride, other))
            }
            (Op::Mul, &[Spaced { base, stride }, Uniform(other)])
            | (Op::Mul, &[Uniform(other), Spaced { base, stride }]) => {
                (self.op(Op::Mul, &[base, other]), self.times(stride, other))
            }
            (Op::Add, &[Spaced { base, stride }, Uniform(other)])
            | (Op::Add, &[Uniform(other), Spaced { base, stride }]) => {
                (self.op(Op::Add, &[base, other]), stride)
            }
            (Op::Sub, &[Spaced { base, stride }, Uniform(other)]) => {
                (self.op(Op::Sub, &[base, other]), stride)
            }
            (Op::Add | Op::Sub, &[Spaced { base, stride }, Affine { base: other, stride: step }]) => {
                let step = self.constant(Value::U32(step));
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::Add | Op::Sub, &[Affine { base, stride }, Spaced { base: other, stride: step }]) => {
                let stride = self.constant(Value::U32(stride));
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::Add | Op::Sub, &[Spaced { base, stride }, Spaced { base: other, stride: step }]) => {
                (self.op(op, &[base, other]), self.op(op, &[stride, step]))
            }
            (Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32, &[Spaced { base, stride }]) => {
                (self.op(op, &[base]), stride)
            }
            _ => return None,
        };
        Some(Spaced { base, stride })
    }

    /// Multiplies a stride by a scalar of any 32-bit type.
    fn times(&mut self, stride: Reg, by: Reg) -> Reg {
        let by = match self.regs[by.0 as usize].ty {
            ValueType::U32 => by,
            _ => self.op(Op::ToU32, &[by]),
        };
        if self.constants.get(&stride) == Some(&Value::U32(1)) {
            return by;
        }
        self.op(Op::Mul, &[stride, by])
    }

    /// Compares consecutive lanes that start at a multiple of the lane count with a constant. If
    /// the constant is a multiple as well, all lanes are on one side of it; if it is less than one
    /// vector, the lanes are never all below it. Tree reductions are full of these comparisons.
    fn aligned_comparison(&mut self, op: Op, args: &[Shaped]) -> Option<Shaped> {
        use Shaped::{Affine, Uniform};
        let (order, base, bound) = match (op, args) {
            (Op::Lt | Op::Ge, &[Affine { base, stride: 1 }, Uniform(bound)]) => (op, base, bound),
            (Op::Gt, &[Uniform(bound), Affine { base, stride: 1 }]) => (Op::Lt, base, bound),
            (Op::Le, &[Uniform(bound), Affine { base, stride: 1 }]) => (Op::Ge, base, bound),
            _ => return None,
        };
        let Some(&Value::U32(limit)) = self.constants.get(&bound) else { return None };
        if !self.aligned.contains(&base) {
            return None;
        }
        if limit.is_multiple_of(self.lanes) {
            return Some(Uniform(self.op(order, &[base, bound])));
        }
        let lanes = self.register(Affine { base, stride: 1 });
        let compared = self.op(order, &[lanes, bound]);
        if order == Op::Lt && limit < self.lanes {
            self.partial.insert(compared);
        }
        Some(Shaped::Varying(compared))
    }

    fn builtin(&mut self, builtin: Builtin, axis: u8) -> Shaped {
        let u32 = ValueType::U32;
        let size = self.workgroup[usize::from(axis)];
        match builtin {
            Builtin::InvocationId if self.kernel.shape_free => {
                let base = self.scalar(u32, Calc::Source(Source::Position(axis)));
                let is_one = axis > 0 || self.lanes == 1;
                if is_one { Shaped::Uniform(base) } else { Shaped::Affine { base, stride: 1 } }
            }
            Builtin::InvocationId => {
                let group = self.scalar(u32, Calc::Source(Source::Group(axis)));
                let size = self.constant(Value::U32(size));
                let first = self.op(Op::Mul, &[group, size]);
                match self.local_id(axis) {
                    Shaped::Affine { base, stride } => {
                        let aligned = self.workgroup[usize::from(axis)].is_multiple_of(self.lanes);
                        let base = self.op(Op::Add, &[base, first]);
                        if aligned {
                            self.aligned.insert(base);
                        }
                        Shaped::Affine { base, stride }
                    }
                    Shaped::Uniform(local) => Shaped::Uniform(self.op(Op::Add, &[local, first])),
                    Shaped::Varying(local) => Shaped::Varying(self.op(Op::Add, &[local, first])),
                    Shaped::Spaced { .. } => unreachable!("local ids are neighbours"),
                }
            }
            Builtin::LocalId => self.local_id(axis),
            Builtin::WorkgroupId => Shaped::Uniform(self.scalar(u32, Calc::Source(Source::Group(axis)))),
            Builtin::GridSize => Shaped::Uniform(self.scalar(u32, Calc::Source(Source::Grid(axis)))),
            Builtin::WorkgroupSize => Shaped::Uniform(self.constant(Value::U32(size))),
        }
    }

    fn layout_of_rows(&self) -> Rows {
        let [x, y, z] = self.workgroup;
        Rows { workgroup: self.workgroup, within: (y == 1 && z == 1) || x.is_multiple_of(self.lanes) }
    }

    /// Linear local id of the vector's lane 0; constant 0 if the workgroup fits in one vector.
    fn first_lane(&mut self) -> Reg {
        let alone = self.workgroup.iter().map(|&n| u64::from(n)).product::<u64>() <= u64::from(self.lanes);
        match alone {
            true => self.constant(Value::U32(0)),
            false => self.scalar(ValueType::U32, Calc::Source(Source::FirstLane)),
        }
    }

    /// Local id derived from the linear one: affine or scalar where a vector of lanes stays within
    /// a row.
    fn local_id(&mut self, axis: u8) -> Shaped {
        let [x, y, z] = self.workgroup;
        if self.workgroup[usize::from(axis)] == 1 {
            return Shaped::Uniform(self.constant(Value::U32(0)));
        }
        let first = self.first_lane();
        let within_row = self.layout_of_rows().within;
        let linear = if within_row {
            first
        } else {
            let numbers = self.lane_numbers();
            self.op(Op::Add, &[first, numbers])
        };
        let (below, size) = match axis {
            0 => (1, x),
            1 => (x, y),
            _ => (x * y, z),
        };
        let quotient = self.divided(linear, below, Op::Div);
        let last_axis = (below * size) as u64 == u64::from(x) * u64::from(y) * u64::from(z);
        let id = if last_axis { quotient } else { self.divided(quotient, size, Op::Rem) };
        if within_row && axis == 0 {
            self.aligned.insert(id);
            return Shaped::Affine { base: id, stride: 1 };
        }
        self.shaped(id)
    }

    fn divided(&mut self, value: Reg, divisor: u32, op: Op) -> Reg {
        if divisor == 1 && op == Op::Div {
            return value;
        }
        if divisor.is_power_of_two() {
            let (op, operand) =
                if op == Op::Div { (Op::Shr, divisor.trailing_zeros()) } else { (Op::And, divisor - 1) };
            let operand = self.constant(Value::U32(operand));
            return self.op(op, &[value, operand]);
        }
        let divisor = self.constant(Value::U32(divisor));
        self.op(op, &[value, divisor])
    }

    // Memory.

    fn index(&mut self, place: Place, index: ValueId) -> Index {
        match (self.value(index), place) {
            (Shaped::Uniform(reg), _) => Index::Same(reg),
            (Shaped::Affine { base, stride: 1 }, _) => Index::Consecutive(base),
            (Shaped::Affine { base, stride }, Place::Buffer(_)) if is_short(stride) => {
                Index::Strided(base, stride as i32)
            }
            (Shaped::Affine { base, stride }, Place::Buffer(_)) => {
                Index::Spaced(base, self.constant(Value::U32(stride)))
            }
            (Shaped::Spaced { base, stride }, Place::Buffer(_)) => Index::Spaced(base, stride),
            (Shaped::Varying(each), Place::Buffer(_)) => match self.mostly.get(&each) {
                Some(&(base, when)) => Index::Mostly { each, base, when },
                None => Index::Each(each),
            },
            (shaped @ (Shaped::Affine { .. } | Shaped::Spaced { .. } | Shaped::Varying(_)), _) => {
                Index::Each(self.register(shaped))
            }
        }
    }

    fn load(&mut self, place: Place, index: ValueId, in_bounds: bool) -> Shaped {
        let index = self.index(place, index);
        let element = self.kernel.element(place);
        let ty = element.value_type();
        // A private array has one element per lane even where the index is uniform.
        let vector = match place {
            Place::Buffer(_) => !matches!(index, Index::Same(_)),
            Place::Array(_) => self.lanes > 1,
        };
        // A bounds proof covers only lanes that run. For a uniform index it holds if at least one
        // lane runs, which is certain only at the outermost level.
        let proved = match index {
            Index::Same(_) => self.exec == self.tail,
            Index::Consecutive(_)
            | Index::Strided(..)
            | Index::Spaced(..)
            | Index::Mostly { .. }
            | Index::Each(_) => self.exec.is_none(),
        };
        let checked = !in_bounds || !(proved || self.exec.is_none());
        let loaded = self.def(Shape { ty, vector }, Calc::Load { place, element, index, checked });
        self.shaped(loaded)
    }

    fn store(&mut self, place: Place, index: ValueId, value: ValueId, in_bounds: bool) {
        if let Place::Buffer(buffer) = place
            && let Some(&tile) = self.in_tiles.stores.get(&buffer)
            && let Some(number) = self.in_tiles.number
        {
            let value = self.operand(value);
            return self.out.push(Inst::Tile(TileStep::Put { tile, number, value }));
        }
        let is_own_number = self.numbers[index.index()];
        let index = self.index(place, index);
        let value = self.operand(value);
        let element = self.kernel.element(place);
        // The proof covers only lanes that run. If lane 0 does not, its index can have wrapped, and
        // the elements of the others are not where it says, unless it is the lane's own number.
        let by_first_lane = match index {
            Index::Same(_) | Index::Each(_) => false,
            Index::Consecutive(_) | Index::Strided(..) | Index::Spaced(..) | Index::Mostly { .. } => true,
        };
        let first_lane_runs = self.exec.is_none() || self.exec == self.tail;
        let (mask, checked) =
            (self.exec, !in_bounds || (by_first_lane && !first_lane_runs && !is_own_number));
        self.out.push(Inst::Store(Store { place, element, index, value, more: Vec::new(), mask, checked }));
    }

    // Workgroups.

    /// Finds the values and locals that are live across parts of the workgroup's work.
    fn find_crossing(&mut self, items: &[Item<'k>]) {
        self.portable = Portable::find(self.kernel, items, self.layout_of_rows());
        let mut parts = Parts::new(&self.portable);
        parts.group(items);
        let (locals, crossing) = (parts.locals, parts.crossing);
        for (local, used_in) in locals {
            if used_in.len() > 1 {
                self.crossing_locals[local.index()] = true;
                self.local_home(local);
            }
        }
        let mut crossing: Vec<ValueId> = crossing.into_iter().collect();
        crossing.sort_unstable();
        for value in crossing {
            let info = self.kernel.values[value.index()];
            let home = if info.uniform {
                Home::Var(self.var(Shape { ty: info.ty, vector: false }))
            } else {
                self.slots.push(info.ty);
                Home::Slot(Slot(self.slots.len() as u32 - 1))
            };
            self.crossing.insert(value, home);
        }
    }

    /// Lowers the whole work of one workgroup.
    fn whole_group(&mut self, items: &[Item<'k>]) -> Vec<Inst> {
        self.nested(|this| {
            let kept = items.iter().any(|item| item.is_group_level() && item.marks.kills);
            let slot = kept.then(|| this.no_lanes());
            this.off.push(slot);
            let body = this.group(items);
            this.out.extend(body);
        })
    }

    /// Allocates a slot for a mask, initially empty.
    fn no_lanes(&mut self) -> Slot {
        self.slots.push(ValueType::Bool);
        let slot = Slot(self.slots.len() as u32 - 1);
        self.empty(slot);
        slot
    }

    fn empty(&mut self, slot: Slot) {
        let [full, tail] = [(); 2].map(|()| {
            self.nested(|this| {
                let none = this.def(MASK, Calc::Const(Value::Bool(false)));
                this.out.push(Inst::Keep(slot, none));
            })
        });
        self.out.push(Inst::Lanes { full, tail });
    }

    /// Lowers the body of a loop that the workgroup runs together.
    fn group_rounds(&mut self, item: &Item<'k>) -> Vec<Inst> {
        self.nested(|this| {
            let slot = item.marks.skips.then(|| this.no_lanes());
            this.off.push(slot);
            let body = this.group(&item.blocks[0]);
            this.out.extend(body);
            this.off.pop();
        })
    }

    /// Lowers statements with barriers once, and the stretches between them per vector of lanes.
    fn group(&mut self, items: &[Item<'k>]) -> Vec<Inst> {
        self.nested(|this| {
            let mut rest = items;
            while !rest.is_empty() {
                let stretch = rest.iter().position(|item| item.is_group_level()).unwrap_or(rest.len());
                if stretch > 0 {
                    this.stretch(&rest[..stretch]);
                }
                if let Some(item) = rest.get(stretch) {
                    this.group_item(item);
                }
                rest = &rest[(stretch + 1).min(rest.len())..];
            }
        })
    }

    /// A stretch without barriers: a loop over the group's vectors of invocations.
    fn stretch(&mut self, items: &[Item<'k>]) {
        let count: u32 = self.workgroup.iter().product();
        let (whole, rest) = (count / self.lanes, count % self.lanes);
        // Each vector of lanes starts with the uniform variables as they were before the first.
        let mut written = Vec::new();
        self.uniform_homes_written(items, &mut written);
        let before: Vec<(Var, Reg)> = written.into_iter().map(|var| (var, self.get(var))).collect();
        let reset = |mut insts: Vec<Inst>| {
            insts.splice(0..0, before.iter().map(|&(var, reg)| Inst::Set(var, reg)));
            insts
        };
        let (mut full, mut tail) = (Vec::new(), Vec::new());
        let loops_started = self.loops_started;
        if whole > 0 {
            full = reset(self.vector_of_lanes(items, None));
        }
        if rest > 0 {
            tail = reset(self.vector_of_lanes(items, Some(Tail::Group(rest))));
        }
        self.loops_started = loops_started + loops_in(items);
        self.out.push(Inst::Lanes { full, tail });
    }

    /// Collects the variables of uniform locals that a stretch writes.
    fn uniform_homes_written(&mut self, items: &[Item<'k>], found: &mut Vec<Var>) {
        for item in items {
            if let StmtKind::Set(local, _) = &item.stmt.kind
                && self.crossing_locals[local.index()]
                && let Home::Var(var) = self.local_home(*local)
                && !found.contains(&var)
            {
                found.push(var);
            }
            for block in &item.blocks {
                self.uniform_homes_written(block, found);
            }
        }
    }

    fn group_item(&mut self, item: &Item<'k>) {
        match &item.stmt.kind {
            StmtKind::If { condition, .. } => {
                let condition = self.operand(*condition);
                let then = self.group(&item.blocks[0]);
                let otherwise = self.group(&item.blocks[1]);
                self.out.push(Inst::If { condition, then, otherwise });
            }
            StmtKind::For { .. } => self.group_counted(item),
            StmtKind::Loop(_) => {
                self.loops_started += 1;
                let body = self.group_rounds(item);
                self.out.push(Inst::Loop { body, next: Vec::new(), rest: false });
            }
            StmtKind::Break => self.out.push(Inst::Break),
            StmtKind::Continue => self.out.push(Inst::Continue),
            StmtKind::Return => self.out.push(Inst::EndGroup),
            // All vectors of the previous stretch have run by the time the next one starts.
            StmtKind::Barrier => {}
            StmtKind::Region { .. } => {
                unreachable!("regions that the workgroup runs together were taken apart")
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Trap(_) => unreachable!("it holds no barrier and no exit"),
        }
    }

    fn group_counted(&mut self, item: &Item<'k>) {
        let StmtKind::For { counter, from, to, step, .. } = &item.stmt.kind else {
            unreachable!("only called for counted loops")
        };
        let bounds = [*from, *to, *step].map(|bound| self.operand(bound));
        let rounds = self.start_rounds(bounds);
        self.loops_started += 1;
        let counter = *counter;
        let body = self.nested(|this| {
            let current = this.get(rounds.position);
            let condition = this.has_round(&rounds, current);
            this.out.push(Inst::If { condition, then: Vec::new(), otherwise: vec![Inst::Break] });
            this.define(counter, Shaped::Uniform(current));
            let body = this.group_rounds(item);
            this.out.extend(body);
        });
        let next = self.nested(|this| this.next_round(&rounds));
        self.out.push(Inst::Loop { body, next, rest: false });
    }
}

/// Whether lanes at this stride can share a few wide loads.
fn is_short(stride: u32) -> bool {
    const MOST: u32 = 7;
    (2..=MOST).contains(&(stride as i32).unsigned_abs()) || stride == u32::MAX
}

/// Whether a divisor spans several vectors.
fn is_long(divisor: Value, lanes: u32) -> bool {
    divisor.as_u32().is_some_and(|divisor| divisor >= 4 * lanes)
}

/// Greatest value of a 32-bit integer type.
fn most(ty: ValueType) -> i64 {
    if ty == ValueType::U32 { u32::MAX.into() } else { i32::MAX.into() }
}

/// Whether a side of an `if` costs less than a test and a branch: a few ops and writes of locals.
fn is_cheap(items: &[Item<'_>]) -> bool {
    const FEW: usize = 12;
    items.len() <= FEW
        && items.iter().all(|item| match &item.stmt.kind {
            StmtKind::Def(_, Def::Const(_) | Def::Get(_) | Def::Op(..) | Def::Len(_) | Def::Builtin(..))
            | StmtKind::Set(..)
            | StmtKind::Break
            | StmtKind::Continue => true,
            StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..))
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::If { .. }
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => false,
        })
}

/// Maximum nesting depth of duplicated branches; the code doubles at each level.
const COPIES: u32 = 2;

/// Whether the sides of an `if` benefit from a copy without masks: they access memory and are
/// short.
fn is_worth_copies(then: &[Item<'_>], otherwise: &[Item<'_>]) -> bool {
    const MOST: usize = 96;
    let touches = |item: &Item<'_>| touches_memory(item);
    let sides = || then.iter().chain(otherwise);
    sides().any(touches) && sides().map(size).sum::<usize>() <= MOST
}

fn touches_memory(item: &Item<'_>) -> bool {
    matches!(item.stmt.kind, StmtKind::Store { .. } | StmtKind::Def(_, Def::Load { .. } | Def::Atomic { .. }))
        || item.blocks.iter().flatten().any(touches_memory)
}

fn size(item: &Item<'_>) -> usize {
    1 + item.blocks.iter().flatten().map(size).sum::<usize>()
}

/// The test at the start of a `while` iteration: its position and the condition to continue.
fn leading_condition(items: &[Item<'_>]) -> Option<(usize, ValueId)> {
    let at = items.iter().position(|item| !matches!(item.stmt.kind, StmtKind::Def(..)))?;
    let StmtKind::If { condition, then, otherwise } = &items[at].stmt.kind else { return None };
    let breaks = then.is_empty() && matches!(otherwise[..], [Stmt { kind: StmtKind::Break, .. }]);
    breaks.then_some((at, *condition))
}

/// Whether a statement can leave a loop, an iteration or the invocation.
fn has_exits(item: &Item<'_>) -> bool {
    matches!(item.stmt.kind, StmtKind::Break | StmtKind::Continue | StmtKind::Return)
        || item.blocks.iter().flatten().any(has_exits)
}

/// Collects the locals that statements read or write, each once.
fn locals_used(items: &[Item<'_>], found: &mut Vec<LocalId>) {
    for item in items {
        if let StmtKind::Set(local, _) | StmtKind::Def(_, Def::Get(local)) = &item.stmt.kind
            && !found.contains(local)
        {
            found.push(*local);
        }
        for block in &item.blocks {
            locals_used(block, found);
        }
    }
}

fn loops_in(items: &[Item<'_>]) -> usize {
    items
        .iter()
        .map(|item| {
            let own = usize::from(matches!(item.stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_)));
            own + item.blocks.iter().map(|block| loops_in(block)).sum::<usize>()
        })
        .sum()
}
