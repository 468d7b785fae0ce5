//! Emission of the piece form from the vector form.
//!
//! A vector consists of one or more pieces: eight lanes are two pieces of 16 bytes with 32-bit
//! lanes, or four with 64-bit ones. A `bool` vector is a mask of 32-bit lanes, all ones or all
//! zeros; a scalar `bool` is a byte, 0 or 1. One compiled function processes a range of rows or
//! workgroups; its parameters come in a [`Context`](crate::context::Context).
//!
//! The machine code touches only what the context points to: buffers within their lengths (checked,
//! or proved by the optimizer), the thread's scratch memory, and the workgroup's memory.

mod access;
mod bounds_masks;
mod call;
mod columns;
mod counted_loops;
mod exchange;
mod frame;
mod half_lanes;
mod half_ops;
mod narrow;
mod never_nan;
mod ops;
mod ranges;
mod read_in_loops;
mod records;
mod spaced;
mod spread_lanes;
mod squares;
mod strided;
mod tiles;
mod windows;

use crate::context::{CANCELLED, TRAPPED};
use crate::piece::{
    Block, Builder, F32, F64, I8, I32, I64, IntOrder, StackSlot, Type, Value as Operand, Variable,
};
use crate::source_region::SourceRegion;
use crate::vector::{Calc, Index, Inst, Reg, RegType, Source, Var, VectorCode};
use bounds_masks::{Counted, Guard};
use columns::Window;
use half_lanes::HalfLanes;
use hashbrown::HashMap;
use narrow::Width;
use ranges::Ranges;
use records::{Field, Loaded};
use spread_lanes::{Spread, SpreadLane};
use squares::Square;
use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{BufferId, KernelBody, Place};
use vyre_foundation::types::{DataType, Value, ValueType};
use windows::Column;

pub(crate) use frame::{Layout, SharedBuffer, emit};
pub(crate) use windows::loads_of_records;

/// A vector of consecutive elements of a buffer that the kernel only reads.
#[derive(Clone, Copy)]
struct Neighbours {
    buffer: BufferId,
    element: DataType,
    first: Reg,
}

/// An atomic operation on elements of a buffer.
#[derive(Clone, Copy)]
struct Atomic {
    op: AtomicOp,
    buffer: BufferId,
    ty: ValueType,
}

/// How far the next vector of a row overlaps the current one, so that its stores are aligned.
#[derive(Clone, Copy)]
struct Overlap {
    /// The number of invocations that run again.
    invocations: Variable,
    /// The invocations of the row that follow the current vector.
    left: Operand,
}

/// Machine values of a register: one if it is a scalar, else one per piece.
type Pieces = Vec<Operand>;

struct Emitter<'a> {
    builder: Builder,
    code: &'a VectorCode,
    kernel: &'a KernelBody,
    layout: &'a Layout,
    /// Per buffer: whether stores to it bypass the caches; if empty, none do.
    past_caches: &'a [bool],
    /// In a row of vectors that may overlap: how far the next one does, until a store decides it.
    overlap: Option<Overlap>,
    regs: Vec<Option<Pieces>>,
    vars: Vec<Vec<Variable>>,
    /// Value of each constant register.
    constants: Vec<Option<Value>>,
    /// Per register: whether it never holds a NaN.
    numbers: Vec<bool>,
    /// Value ranges of registers.
    ranges: Ranges,
    /// What is held in 16-bit lanes, and the values of registers in them.
    halves: HalfLanes,
    half_values: Vec<Option<Pieces>>,
    /// For a mask register that compares two floats: the smaller and the greater where it is set.
    ordered: Vec<Option<(Reg, Reg)>>,
    /// Registers read in loops that do not define them. Scalars among them are broadcast where they
    /// are defined.
    in_loops: Vec<bool>,
    broadcasts: Vec<Option<Pieces>>,
    /// Vectors that are a scalar plus the lane number, and masks that keep such vectors within
    /// bounds.
    counted: Vec<Option<Counted>>,
    guards: Vec<Option<Guard>>,
    /// How registers are spread, and the lanes of those that are.
    spread: Vec<Option<Spread>>,
    spread_values: Vec<Option<Vec<SpreadLane>>>,
    /// Pointer and length of each buffer.
    buffers: Vec<(Operand, Operand)>,
    context: Operand,
    cancel: Operand,
    scratch: Operand,
    shared_start: Operand,
    trap: Operand,
    position: [Operand; 3],
    remaining: Option<Operand>,
    group: [Operand; 3],
    grid: [Operand; 3],
    first_lane: Operand,
    /// Targets of `Continue` and `Break`, innermost last.
    loops: Vec<(Block, Block)>,
    end_lanes: Option<Block>,
    end_group: Option<Block>,
    /// Registers that hold consecutive elements.
    neighbours: Vec<Option<Neighbours>>,
    /// Memory of tiles, allocated on first use.
    tiles: Vec<Option<StackSlot>>,
    /// Loads that are fields of records, and what is loaded of each record.
    fields: HashMap<Reg, Field>,
    records: HashMap<usize, Loaded>,
    /// Loads that are columns of windows of records, and the windows that are loaded.
    columns: HashMap<Reg, Column>,
    windows: HashMap<(usize, Width), Window>,
    /// The square of lanes and rows being processed.
    square: Option<Square>,
    /// Stack memory for lanes handled one by one.
    lane_memory: Vec<StackSlot>,
}

/// Machine type of a scalar.
fn scalar_type(ty: ValueType) -> Type {
    match ty {
        ValueType::Bool => I8,
        ValueType::U32 | ValueType::I32 => I32,
        ValueType::U64 | ValueType::I64 => I64,
        ValueType::F32 => F32,
        ValueType::F64 => F64,
    }
}

/// Machine type of one lane of a vector.
fn lane_type(ty: ValueType) -> Type {
    if ty == ValueType::Bool { I32 } else { scalar_type(ty) }
}

impl Emitter<'_> {
    fn lanes(&self) -> usize {
        self.code.lanes as usize
    }

    /// Machine type of a piece of a vector.
    fn piece_type(&self, ty: ValueType) -> Type {
        self.builder.piece(lane_type(ty).lane)
    }

    /// Type of a mask with lanes as wide as those of `ty`.
    fn mask_type(&self, ty: ValueType) -> Type {
        self.piece_type(ty).bits()
    }

    fn piece_lanes(&self, ty: ValueType) -> usize {
        self.piece_type(ty).lane_count() as usize
    }

    /// Byte offsets of a vector's pieces.
    fn piece_offsets(&self, ty: ValueType) -> impl Iterator<Item = i32> + use<> {
        let step = self.piece_type(ty).bytes() as i32;
        (0..self.piece_count(ty) as i32).map(move |k| step * k)
    }

    fn piece_count(&self, ty: ValueType) -> usize {
        self.lanes() / self.piece_lanes(ty)
    }

    fn reg_type(&self, reg: Reg) -> RegType {
        self.code.reg_type(reg)
    }

    /// Returns a register's values as they are: a scalar or pieces.
    fn pieces(&mut self, reg: Reg) -> Pieces {
        if let Some(guard) = self.guards[reg.0 as usize] {
            return if self.reg_type(reg).vector {
                self.guard_mask(guard)
            } else {
                vec![self.guard_holds(guard)]
            };
        }
        match (&self.regs[reg.0 as usize], self.constants[reg.0 as usize]) {
            (Some(pieces), _) => pieces.clone(),
            // Materialised at the use: most constants are used only in vectors.
            (None, Some(value)) => vec![self.constant_scalar(value)],
            (None, None) => unreachable!("register {reg:?} is written before it is read"),
        }
    }

    fn scalar(&mut self, reg: Reg) -> Operand {
        self.pieces(reg)[0]
    }

    /// Returns a register as a vector; a scalar is broadcast.
    fn vector(&mut self, reg: Reg) -> Pieces {
        let reg_type = self.reg_type(reg);
        if reg_type.vector {
            return self.pieces(reg);
        }
        if let Some(value) = self.constants[reg.0 as usize] {
            return self.constant_vector(value);
        }
        if let Some(pieces) = &self.broadcasts[reg.0 as usize] {
            return pieces.clone();
        }
        let scalar = self.scalar(reg);
        self.broadcast(reg_type.ty, scalar)
    }

    fn broadcast(&mut self, ty: ValueType, scalar: Operand) -> Pieces {
        let lane = if ty == ValueType::Bool { self.mask_lane(scalar) } else { scalar };
        let piece = self.builder.splat(self.piece_type(ty), lane);
        vec![piece; self.piece_count(ty)]
    }

    /// Converts a scalar `bool` to a mask lane.
    fn mask_lane(&mut self, condition: Operand) -> Operand {
        let wide = self.builder.extend_unsigned(I32, condition);
        self.builder.neg(wide)
    }

    fn constant_vector(&mut self, value: Value) -> Pieces {
        let ty = value.ty();
        let piece = match value {
            Value::Bool(x) => self.builder.constant(self.piece_type(ty), if x { u64::MAX } else { 0 }),
            other => self.builder.constant(self.piece_type(ty), other.to_bits()),
        };
        vec![piece; self.piece_count(ty)]
    }

    /// A piece with the same bits in every lane.
    fn constant_piece(&mut self, ty: ValueType, bits: u64) -> Operand {
        self.builder.constant(self.piece_type(ty), bits)
    }

    fn constant_scalar(&mut self, value: Value) -> Operand {
        self.builder.constant(scalar_type(value.ty()), value.to_bits())
    }

    fn set_reg(&mut self, reg: Reg, pieces: Pieces) {
        self.regs[reg.0 as usize] = Some(pieces);
    }

    // Instructions.

    /// Emits the kernel's statements into the structure around them, as [`block`](Self::block) does.
    fn statements(&mut self, insts: &[Inst]) -> bool {
        let goes_on = self.block(insts);
        self.builder.set_region(SourceRegion::default());
        goes_on
    }

    /// Emits a list; returns `false` if control does not reach its end.
    fn block(&mut self, insts: &[Inst]) -> bool {
        insts.iter().all(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> bool {
        match inst {
            Inst::Def(reg, calc) => {
                self.builder.set_region(self.code.regions[reg.0 as usize]);
                self.define(*reg, calc);
            }
            Inst::Set(var, reg) => self.set_var(*var, *reg),
            Inst::Keep(slot, reg) => self.keep(*slot, *reg),
            Inst::Store(store) => {
                self.builder.set_region(store.region);
                self.store(store);
            }
            Inst::Tile(step) => self.tile_step(step),
            Inst::Clear { array, mask } => self.clear_array(*array, *mask),
            Inst::If { condition, then, otherwise } => return self.conditional(*condition, then, otherwise),
            Inst::Loop { body, next, rest } => {
                let rounds = if *rest { 1 } else { self.rounds_at_once(&[body, next]) };
                match self.counted_loop(body, next).filter(|_| rounds > 1) {
                    Some(counted) => self.repeat_counted(counted, body, next, rounds),
                    None => self.repeat(body, next, rounds),
                }
            }
            Inst::Break => return self.leave(self.loops.last().map(|&(_, exit)| exit)),
            Inst::Continue => return self.leave(self.loops.last().map(|&(next, _)| next)),
            Inst::Lanes { full, tail } => return self.lanes_loop(full, tail),
            Inst::EndLanes => return self.leave(self.end_lanes),
            Inst::EndGroup => return self.leave(self.end_group),
            Inst::Trap(code) => return self.emit_trap(*code),
        }
        true
    }

    fn leave(&mut self, to: Option<Block>) -> bool {
        let Some(to) = to else { unreachable!("the lowering leaves only what it is in") };
        self.builder.jump(to, &[]);
        false
    }

    fn emit_trap(&mut self, code: u32) -> bool {
        let code = self.builder.int(I32, i64::from(code as i32));
        self.builder.store(code, self.trap, 0);
        self.finish(TRAPPED);
        false
    }

    fn finish(&mut self, status: i32) {
        let status = self.builder.int(I32, i64::from(status));
        self.builder.give(status);
    }

    fn poll(&mut self) {
        let flag = self.builder.load(I8, self.cancel, 0);
        let (stop, go) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(stop);
        self.builder.branch(flag, (stop, &[]), (go, &[]));
        self.builder.begin(stop);
        self.finish(CANCELLED);
        self.builder.begin(go);
    }

    fn set_var(&mut self, var: Var, reg: Reg) {
        if self.halves.vars[var.0 as usize] {
            return self.set_half_variable(var, reg);
        }
        let vector = self.code.vars[var.0 as usize].vector;
        let pieces = if vector { self.vector(reg) } else { self.pieces(reg) };
        let variables = self.vars[var.0 as usize].clone();
        for (variable, piece) in variables.into_iter().zip(pieces) {
            self.builder.set(variable, piece);
        }
    }

    fn conditional(&mut self, condition: Reg, then: &[Inst], otherwise: &[Inst]) -> bool {
        let (yes, no) = (self.builder.create_block(), self.builder.create_block());
        let after = self.builder.create_block();
        if let Some(guard) = self.guards[condition.0 as usize] {
            self.branch_within(guard, yes, no);
        } else {
            let condition = self.scalar(condition);
            if otherwise.last().is_some_and(Inst::leaves) {
                self.leave_unless(condition, no, yes);
            } else {
                self.builder.branch(condition, (yes, &[]), (no, &[]));
            }
        }
        let mut reached = false;
        for (block, insts) in [(yes, then), (no, otherwise)] {
            self.builder.begin(block);
            if self.block(insts) {
                self.builder.jump(after, &[]);
                reached = true;
            }
        }
        if reached {
            self.builder.begin(after);
        }
        reached
    }

    /// Branches to `inside` if the condition holds, else to `outside`. The second target of a
    /// branch is placed next to it, so the continuing path stays contiguous.
    fn leave_unless(&mut self, condition: Operand, outside: Block, inside: Block) {
        let done = self.builder.negated(condition);
        self.builder.branch(done, (outside, &[]), (inside, &[]));
    }

    /// Unroll factor of a loop: a short one would mostly poll its flag and jump.
    fn rounds_at_once(&self, round: &[&[Inst]]) -> usize {
        // A poll and a jump are four instructions; the more often a body is repeated, the less the
        // next repetition saves. 8 changes only one of the benchmarks (`scan_apply`).
        const MOST: usize = 4;
        // With 24, a third of the benchmarks repeats less; with 96, all code together grows by 6%,
        // for loops of which polling is less than a tenth.
        const SIZE: usize = 48;
        let size: Option<usize> = round.iter().map(|block| self.size(block)).sum();
        size.map_or(1, |size| (SIZE / size.max(1)).clamp(1, MOST))
    }

    /// Estimates the machine instructions of a block; `None` if it contains loops or calls.
    fn size(&self, block: &[Inst]) -> Option<usize> {
        let (lanes, words) = (self.lanes(), self.piece_count(ValueType::U32).max(1));
        let size = |inst: &Inst| match inst {
            Inst::Def(reg, calc) => {
                let pieces = if self.reg_type(*reg).vector { words } else { 1 };
                match calc {
                    _ if self.spread[reg.0 as usize].is_some() => Some(lanes),
                    Calc::Atomic { index, .. } if self.spread[index.0 as usize].is_some() => Some(lanes),
                    Calc::Const(_) | Calc::Get(_) | Calc::Len(_) | Calc::Source(_) => Some(0),
                    Calc::Op(op, _) => Some(pieces * (op.row().cost as usize).clamp(1, 8)),
                    Calc::LaneNumbers | Calc::Recall(_) | Calc::Any(_) | Calc::All(_) | Calc::First(_) => {
                        Some(pieces)
                    }
                    Calc::Tile(..) => Some(pieces),
                    Calc::Load { index: Index::Each(_), .. } => Some(4 * lanes),
                    Calc::Load { index: Index::Strided(..), .. } => Some(1 + 6 * pieces),
                    Calc::Load { index: Index::Spaced(..), .. } => Some(2 * lanes),
                    Calc::Load { index: Index::Mostly { .. }, .. } => Some(4 * lanes),
                    Calc::Load { .. } => Some(1 + pieces),
                    Calc::Atomic { .. } if !self.reg_type(*reg).vector => Some(3),
                    Calc::Atomic { .. } | Calc::Subgroup { .. } => None,
                }
            }
            Inst::Store(store) => match store.index {
                Index::Strided(..) | Index::Spaced(..) | Index::Mostly { .. } | Index::Each(_) => None,
                Index::Same(_) | Index::Consecutive(_) => Some(2 + words),
            },
            Inst::If { then, otherwise, .. } => Some(1 + self.size(then)? + self.size(otherwise)?),
            Inst::Set(..) | Inst::Keep(..) | Inst::Break | Inst::Continue | Inst::EndLanes => Some(1),
            Inst::EndGroup | Inst::Trap(_) => Some(2),
            Inst::Loop { .. } | Inst::Lanes { .. } | Inst::Clear { .. } | Inst::Tile(_) => None,
        };
        block.iter().map(size).sum()
    }

    fn repeat(&mut self, body: &[Inst], next: &[Inst], rounds: usize) {
        let (head, exit) = (self.builder.create_loop(), self.builder.create_block());
        self.builder.jump(head, &[]);
        self.builder.begin(head);
        // Polled first, so that an iteration without branches is a single block after it.
        self.poll();
        let goes_on = (0..rounds).all(|_| {
            let step = self.builder.create_block();
            self.loops.push((step, exit));
            if self.block(body) {
                self.builder.jump(step, &[]);
            }
            self.loops.pop();
            self.builder.begin(step);
            self.block(next)
        });
        if goes_on {
            self.builder.jump(head, &[]);
        }
        self.builder.begin(exit);
    }

    fn define(&mut self, reg: Reg, calc: &Calc) {
        if let Some(spread) = self.spread[reg.0 as usize] {
            self.spread_values[reg.0 as usize] = Some(self.spread_out(spread));
            return;
        }
        if self.note_guard(reg, calc) {
            return;
        }
        let reg_type = self.reg_type(reg);
        let pieces = match calc {
            Calc::Const(value) => {
                if reg_type.vector {
                    if self.halves.regs[reg.0 as usize] {
                        self.set_half_constant(reg, *value);
                    }
                    self.constant_vector(*value)
                } else {
                    self.constants[reg.0 as usize] = Some(*value);
                    return;
                }
            }
            Calc::LaneNumbers => self.lane_numbers(),
            Calc::Source(source) => vec![self.source(*source)],
            Calc::Get(var) if self.halves.vars[var.0 as usize] => self.get_half_variable(reg, *var),
            Calc::Get(var) => {
                let variables = self.vars[var.0 as usize].clone();
                variables.into_iter().map(|variable| self.builder.get(variable)).collect()
            }
            Calc::Recall(slot) => self.recall(*slot),
            Calc::Tile(tile, number) => self.load_tile(*tile, *number),
            Calc::Op(op, args) => match self.halves.ops[reg.0 as usize] {
                Some(half_op) => self.half_operation(reg, half_op, args),
                None => {
                    self.note_order(reg, *op, args);
                    self.operation(*op, args, reg_type.vector)
                }
            },
            Calc::Any(mask) => vec![self.any(*mask)],
            Calc::All(mask) => vec![self.all(*mask)],
            Calc::First(vector) => {
                let pieces = self.pieces(*vector);
                vec![self.scalar_lane(reg_type.ty, &pieces, 0)]
            }
            Calc::Load {
                place: Place::Buffer(buffer),
                element,
                index: Index::Consecutive(base),
                checked,
            } if self.halves.regs[reg.0 as usize] => {
                self.load_halves(reg, *buffer, *element, (*base, *checked))
            }
            Calc::Load {
                place: Place::Buffer(buffer),
                element,
                index: Index::Strided(base, stride),
                checked,
            } if self.halves.regs[reg.0 as usize] => {
                self.load_strided_halves(reg, *buffer, *element, (*base, *stride), *checked)
            }
            Calc::Load {
                place: Place::Buffer(buffer), element, index: Index::Spaced(base, stride), ..
            } if self.is_in_square(reg) => self.load_square(reg, *buffer, *element, [*base, *stride]),
            Calc::Load { place: Place::Buffer(buffer), element, index, .. }
                if self.columns.contains_key(&reg) =>
            {
                let column = self.columns[&reg];
                self.load_column(reg, column, (*buffer, *element), *index)
            }
            Calc::Load { place, element, index, checked } => {
                self.note_neighbours(reg, calc);
                self.load(*place, *element, *index, *checked, reg_type)
            }
            Calc::Len(buffer) => {
                let length = self.buffers[buffer.index()].1;
                vec![self.builder.reduce(I32, length)]
            }
            Calc::Atomic { op, buffer, index, operands, checked, .. } if !reg_type.vector => {
                let update = Atomic { op: *op, buffer: *buffer, ty: reg_type.ty };
                vec![self.atomic_alone(update, *index, operands, *checked)]
            }
            Calc::Atomic { op, buffer, index, operands, mask, checked, read } => {
                let update = Atomic { op: *op, buffer: *buffer, ty: reg_type.ty };
                if mask.is_some() || !self.is_own(*buffer) {
                    self.atomic_called(update, *index, operands, *mask)
                } else {
                    let old = self.atomic_all(update, *index, operands, *checked);
                    // An unread result can have any value.
                    if *read {
                        self.vector_of_scalars(reg_type.ty, &old)
                    } else {
                        self.constant_vector(Value::zero(reg_type.ty))
                    }
                }
            }
            Calc::Subgroup { op, operands, mask } => self.subgroup(*op, operands, *mask, reg_type.ty),
        };
        if self.in_loops[reg.0 as usize] && !reg_type.vector {
            self.broadcasts[reg.0 as usize] = Some(self.broadcast(reg_type.ty, pieces[0]));
        }
        self.set_reg(reg, pieces);
    }

    fn source(&mut self, source: Source) -> Operand {
        match source {
            Source::Position(axis) => self.position[usize::from(axis)],
            Source::Remaining => match self.remaining {
                Some(remaining) => remaining,
                None => unreachable!("only the end of a row asks what is left of it"),
            },
            Source::Group(axis) => self.group[usize::from(axis)],
            Source::Grid(axis) => self.grid[usize::from(axis)],
            Source::FirstLane => self.first_lane,
        }
    }

    fn lane_numbers(&mut self) -> Pieces {
        let (count, lanes) = (self.piece_count(ValueType::U32), self.piece_lanes(ValueType::U32));
        (0..count).map(|piece| self.builder.lane_numbers((piece * lanes) as u32)).collect()
    }

    // Masks.

    fn any(&mut self, mask: Reg) -> Operand {
        if !self.reg_type(mask).vector {
            return self.scalar(mask);
        }
        let pieces = self.pieces(mask);
        let joined = self.join(&pieces, |builder, a, b| builder.or(a, b));
        self.builder.any_true(joined)
    }

    fn all(&mut self, mask: Reg) -> Operand {
        if !self.reg_type(mask).vector {
            return self.scalar(mask);
        }
        if let Some(guard) = self.guards[mask.0 as usize] {
            return self.guard_holds(guard);
        }
        let pieces = self.pieces(mask);
        let joined = self.join(&pieces, |builder, a, b| builder.and(a, b));
        self.builder.all_true(joined)
    }

    fn join(
        &mut self,
        pieces: &[Operand],
        with: impl Fn(&mut Builder, Operand, Operand) -> Operand,
    ) -> Operand {
        let mut joined = pieces[0];
        for &piece in &pieces[1..] {
            joined = with(&mut self.builder, joined, piece);
        }
        joined
    }

    /// Packs a mask's lanes into the bits of an `i32`, lane 0 lowest.
    fn mask_bits(&mut self, mask: &[Operand]) -> Operand {
        let mut bits = None;
        for (k, &piece) in mask.iter().enumerate() {
            let part = self.builder.high_bits(piece);
            let part = self.builder.shift_left_const(part, (k * self.piece_lanes(ValueType::U32)) as u32);
            bits = Some(match bits {
                None => part,
                Some(bits) => self.builder.or(bits, part),
            });
        }
        match bits {
            Some(bits) => bits,
            None => unreachable!("a vector has at least one piece"),
        }
    }

    /// Stack memory number `which`, with room for a vector of 64-bit lanes.
    fn lane_memory(&mut self, which: usize) -> StackSlot {
        while self.lane_memory.len() <= which {
            let slot = self.builder.create_slot(8 * self.code.lanes);
            self.lane_memory.push(slot);
        }
        self.lane_memory[which]
    }

    /// Writes a vector to stack memory and returns its address.
    fn spill(&mut self, which: usize, pieces: &[Operand]) -> Operand {
        let slot = self.lane_memory(which);
        let address = self.builder.stack_address(slot);
        self.store_pieces(pieces, address, 0);
        address
    }

    /// Writes pieces contiguously.
    fn store_pieces(&mut self, pieces: &[Operand], address: Operand, offset: i32) {
        let mut offset = offset;
        for &piece in pieces {
            self.builder.store(piece, address, offset);
            offset += self.builder.ty(piece).bytes() as i32;
        }
    }

    /// Reads a vector back from memory.
    fn reload(&mut self, ty: ValueType, address: Operand) -> Pieces {
        let piece = self.piece_type(ty);
        self.piece_offsets(ty).map(|offset| self.builder.load(piece, address, offset)).collect()
    }

    /// Whether `a < b`, as `u64`.
    fn below(&mut self, a: Operand, b: Operand) -> Operand {
        self.builder.compare(IntOrder::UnsignedLess, a, b)
    }
}

/// Bytes of a lane in stack memory, scratch memory and private arrays.
fn lane_bytes(ty: ValueType) -> u32 {
    lane_type(ty).bytes()
}

/// Bytes of an element in a buffer.
fn element_bytes(element: DataType) -> i64 {
    element.size() as i64
}
