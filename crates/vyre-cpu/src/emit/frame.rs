//! The function around the kernel: context loads, the loops over rows, workgroups and vectors of
//! invocations, and the layout of scratch memory.

use super::half_lanes::half_registers;
use super::never_nan::number_registers;
use super::ranges::Ranges;
use super::read_in_loops::used_in_loops;
use super::records::fields_of_records;
use super::spread_lanes::spread_registers;
use super::squares::Square;
use super::windows::columns_of_records;
use super::{Emitter, Overlap, lane_bytes, scalar_type};
use crate::context::{Context, DONE};
use crate::piece::{Block, Builder, Function, I32, I64, IntOrder, Machine, Value as Operand};
use crate::stores_past_caches::may_repeat;
use crate::vector::{Frame, Inst, VectorCode};
use hashbrown::HashMap;
use std::mem::offset_of;
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::KernelBody;
use vyre_foundation::types::ValueType;

/// Memory layout of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Per slot: its offset in scratch memory; a vector of invocations adds the offset of its first
    /// lane.
    pub(super) slots: Vec<u32>,
    /// Per private array: its offset in scratch memory.
    pub(super) arrays: Vec<u32>,
    /// Per buffer: its place in the workgroup's memory, if it is there.
    pub(crate) shared: Vec<Option<SharedBuffer>>,
    /// Bytes of scratch memory.
    pub(crate) scratch_bytes: usize,
    /// Bytes of the workgroup's memory.
    pub(crate) shared_bytes: usize,
    pub(super) workgroup: [u32; 3],
}

/// A buffer in the workgroup's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBuffer {
    pub(crate) offset: u32,
    pub(crate) count: u32,
}

impl Layout {
    /// Computes the layout; `None` if a thread would need more scratch memory than an offset can
    /// express.
    pub(crate) fn new(kernel: &KernelBody, code: &VectorCode, workgroup: [u32; 3]) -> Option<Layout> {
        let invocations: u64 = match code.frame {
            Frame::Rows { .. } => u64::from(code.invocations),
            Frame::Groups(_) => {
                let count: u64 = workgroup.iter().map(|&n| u64::from(n)).product();
                count.next_multiple_of(u64::from(code.lanes))
            }
        };
        let mut scratch = 0;
        let mut place = |bytes: u64| {
            let offset = scratch;
            scratch += bytes.next_multiple_of(u64::from(MOST_PIECE_BYTES));
            u32::try_from(offset).ok().filter(|_| scratch <= 1 << 30)
        };
        let slots = code.slots.iter().map(|&ty| place(invocations * u64::from(lane_bytes(ty))));
        let slots = slots.collect::<Option<Vec<u32>>>()?;
        let sized = |array: &vyre_foundation::kernel::PrivateArray| {
            invocations * u64::from(array.count) * u64::from(lane_bytes(array.element))
        };
        let arrays = kernel.arrays.iter().map(|array| place(sized(array)));
        let arrays = arrays.collect::<Option<Vec<u32>>>()?;
        let mut shared_bytes = 0;
        let mut shared = Vec::new();
        for buffer in &kernel.buffers {
            let (count, element) = (buffer.decl.count, buffer.decl.element);
            let place = SharedBuffer { offset: shared_bytes as u32, count };
            shared.push((buffer.decl.access == Access::Workgroup).then_some(place));
            if buffer.decl.access == Access::Workgroup {
                shared_bytes += (count as usize * element.size()).next_multiple_of(MOST_PIECE_BYTES as usize);
            }
        }
        Some(Layout { slots, arrays, shared, scratch_bytes: scratch as usize, shared_bytes, workgroup })
    }
}

/// A block of rows.
struct Rows {
    first: Operand,
    /// Exclusive end.
    last: Operand,
    /// Coordinates of the first row.
    y: Operand,
    z: Operand,
    height: Operand,
}

/// Memory is laid out in multiples of the widest piece.
const MOST_PIECE_BYTES: u32 = 32;

/// Emits the piece form of a kernel for a machine; stores to the buffers in
/// `past_caches` bypass the caches.
pub(crate) fn emit(
    kernel: &KernelBody,
    code: &VectorCode,
    layout: &Layout,
    machine: Machine,
    past_caches: &[bool],
) -> Function {
    let mut builder = Builder::new(machine, &[I64; 5]);
    let params: Vec<Operand> = builder.entry_params().to_vec();
    let zero = builder.int(I32, 0);
    let ranges = Ranges::new(code);
    let columns = columns_of_records(code, machine.piece_bytes);
    let mut emitter = Emitter {
        code,
        kernel,
        layout,
        past_caches,
        overlap: None,
        regs: vec![None; code.regs.len()],
        vars: Vec::new(),
        constants: vec![None; code.regs.len()],
        numbers: number_registers(code),
        halves: half_registers(code, &ranges, &columns, machine.piece_bytes),
        half_values: vec![None; code.regs.len()],
        ranges,
        ordered: vec![None; code.regs.len()],
        in_loops: used_in_loops(code),
        counted: vec![None; code.regs.len()],
        guards: vec![None; code.regs.len()],
        broadcasts: vec![None; code.regs.len()],
        spread: spread_registers(code, &|buffer| layout.shared[buffer.index()].is_some()),
        spread_values: vec![None; code.regs.len()],
        buffers: Vec::new(),
        context: params[0],
        cancel: params[0],
        scratch: params[0],
        shared_start: params[0],
        trap: params[0],
        position: [zero; 3],
        remaining: None,
        group: [zero; 3],
        grid: [zero; 3],
        first_lane: zero,
        loops: Vec::new(),
        end_lanes: None,
        end_group: None,
        neighbours: vec![None; code.regs.len()],
        tiles: Vec::new(),
        fields: fields_of_records(kernel, code),
        records: HashMap::new(),
        columns,
        windows: HashMap::new(),
        square: None,
        lane_memory: Vec::new(),
        builder,
    };
    emitter.read_context(params[0]);
    emitter.declare_variables();
    match &code.frame {
        Frame::Rows { head, full, tail } => emitter.rows(&params, head, full, tail),
        Frame::Groups(body) => emitter.groups(&params, body),
    }
    emitter.finish(DONE);
    emitter.builder.finish()
}

impl Emitter<'_> {
    fn read_context(&mut self, context: Operand) {
        let field = |this: &mut Self, ty, offset: usize| this.builder.load(ty, context, offset as i32);
        self.cancel = field(self, I64, offset_of!(Context, cancel));
        self.scratch = field(self, I64, offset_of!(Context, scratch));
        self.trap = field(self, I64, offset_of!(Context, trap));
        let shared = field(self, I64, offset_of!(Context, shared));
        let entries = field(self, I64, offset_of!(Context, buffers));
        for axis in 0..3 {
            self.grid[axis] = field(self, I32, offset_of!(Context, grid) + 4 * axis);
        }
        // Holds the domain's height until rows are decomposed into y and z.
        self.position[1] = field(self, I32, offset_of!(Context, domain) + 4);
        for index in 0..self.kernel.buffers.len() {
            let entry = match self.layout.shared[index] {
                Some(SharedBuffer { offset, count }) => {
                    let data = self.builder.add_const(shared, i64::from(offset));
                    (data, self.builder.int(I64, i64::from(count)))
                }
                None => {
                    let at = 16 * index as i32;
                    let data = self.builder.load(I64, entries, at);
                    (data, self.builder.load(I64, entries, at + 8))
                }
            };
            self.buffers.push(entry);
        }
        self.shared_start = shared;
    }

    fn declare_variables(&mut self) {
        for (number, reg_type) in self.code.vars.iter().enumerate() {
            let variables = if self.halves.vars[number] {
                self.half_variable_types().into_iter().map(|ty| self.builder.declare(ty)).collect()
            } else if reg_type.vector {
                let piece = self.piece_type(reg_type.ty);
                (0..self.piece_count(reg_type.ty)).map(|_| self.builder.declare(piece)).collect()
            } else {
                vec![self.builder.declare(scalar_type(reg_type.ty))]
            };
            self.vars.push(variables);
        }
    }

    /// A counted loop of the frame: `each` receives the counter and returns the block from which
    /// the loop continues.
    pub(super) fn frame_loop(
        &mut self,
        from: Operand,
        to: Operand,
        each: impl FnOnce(&mut Self, Operand) -> Block,
    ) {
        let (head, body) = (self.builder.create_loop(), self.builder.create_block());
        let exit = self.builder.create_block();
        let number = self.builder.append_param(head, I64);
        self.builder.jump(head, &[from]);
        self.builder.begin(head);
        let more = self.below(number, to);
        self.leave_unless(more, exit, body);
        self.builder.begin(body);
        let after = each(self, number);
        self.builder.begin(after);
        let next = self.builder.add_const(number, 1);
        self.builder.jump(head, &[next]);
        self.builder.begin(exit);
    }

    fn rows(&mut self, params: &[Operand], head: &[Inst], full: &[Inst], tail: &[Inst]) {
        let height = self.position[1];
        let height = self.builder.extend_unsigned(I64, height);
        let (x_from, x_to) = (params[3], params[4]);
        if self.code.blocks.rows > 1 && !full.is_empty() {
            return self.blocks_of_rows(params, height, [head, full, tail]);
        }
        self.frame_loop(params[1], params[2], |this, row| {
            let y = this.builder.rem(false, row, height);
            let z = this.builder.div(false, row, height);
            this.position[1] = this.builder.reduce(I32, y);
            this.position[2] = this.builder.reduce(I32, z);
            this.statements(head);
            if full.is_empty() {
                this.row_of_tails(x_from, x_to, tail)
            } else {
                this.row(x_from, x_to, full, tail)
            }
        });
    }

    /// Processes rows in blocks: within each block, one vector of every row, then the next vector
    /// of every row.
    fn blocks_of_rows(&mut self, params: &[Operand], height: Operand, [head, full, tail]: [&[Inst]; 3]) {
        let lanes = i64::from(self.code.invocations);
        let (blocks, block, exit) =
            (self.builder.create_loop(), self.builder.create_block(), self.builder.create_block());
        let first = self.builder.append_param(blocks, I64);
        self.builder.jump(blocks, &[params[1]]);
        self.builder.begin(blocks);
        let more = self.below(first, params[2]);
        self.leave_unless(more, exit, block);
        self.builder.begin(block);
        let end = self.builder.add_const(first, i64::from(self.code.blocks.rows));
        let is_last = self.below(params[2], end);
        let last = self.builder.select(is_last, params[2], end);
        let y = self.builder.rem(false, first, height);
        let z = self.builder.div(false, first, height);
        let rows = Rows { first, last, y, z, height };
        let (vectors, vector, rest) =
            (self.builder.create_loop(), self.builder.create_block(), self.builder.create_block());
        let (ragged, after) = (self.builder.create_block(), self.builder.create_block());
        let x = self.builder.append_param(vectors, I64);
        self.builder.jump(vectors, &[params[3]]);
        self.builder.begin(vectors);
        let next = self.builder.add_const(x, lanes);
        let fits = self.builder.compare(IntOrder::UnsignedLessOrEqual, next, params[4]);
        self.leave_unless(fits, rest, vector);
        self.builder.begin(vector);
        self.position[0] = self.builder.reduce(I32, x);
        self.vector_of_rows(&rows, head, full);
        self.builder.jump(vectors, &[next]);
        self.builder.begin(rest);
        let some = self.below(x, params[4]);
        self.builder.branch(some, (ragged, &[]), (after, &[]));
        self.builder.begin(ragged);
        let left = self.builder.sub(params[4], x);
        self.remaining = Some(self.builder.reduce(I32, left));
        self.position[0] = self.builder.reduce(I32, x);
        self.vector_of_rows(&rows, &[], tail);
        self.builder.jump(after, &[]);
        self.builder.begin(after);
        self.builder.jump(blocks, &[end]);
        self.builder.begin(exit);
    }

    /// Processes the vector at one position of each row.
    fn vector_of_rows(&mut self, rows: &Rows, head: &[Inst], insts: &[Inst]) {
        let (start, body) = (self.builder.create_loop(), self.builder.create_block());
        let (next, done) = (self.builder.create_block(), self.builder.create_block());
        let [row, y, z] = [I64; 3].map(|ty| self.builder.append_param(start, ty));
        self.builder.jump(start, &[rows.first, rows.y, rows.z]);
        self.builder.begin(start);
        let more = self.below(row, rows.last);
        self.leave_unless(more, done, body);
        self.builder.begin(body);
        if self.has_squares() && self.remaining.is_none() {
            let single = self.builder.create_block();
            self.square_or(single, rows, [row, y, z], start, [head, insts]);
            self.builder.begin(single);
        }
        self.position[1] = self.builder.reduce(I32, y);
        self.position[2] = self.builder.reduce(I32, z);
        self.statements(head);
        self.end_lanes = Some(next);
        if self.statements(insts) {
            self.builder.jump(next, &[]);
        }
        self.builder.begin(next);
        let [row, following] = [row, y].map(|number| self.builder.add_const(number, 1));
        self.next_row(start, [row, following, z], rows.height);
        self.builder.begin(done);
    }

    /// Processes as many rows as a piece has lanes, with their columns transposed, if there are
    /// that many in the block and in the layer, and goes on at `start`; otherwise goes to `single`.
    fn square_or(
        &mut self,
        single: Block,
        rows: &Rows,
        [row, y, z]: [Operand; 3],
        start: Block,
        [head, insts]: [&[Inst]; 2],
    ) {
        let side = self.piece_lanes(ValueType::U32);
        let square = self.builder.create_block();
        let [end, below] = [row, y].map(|number| self.builder.add_const(number, side as i64));
        let fits = self.builder.compare(IntOrder::UnsignedLessOrEqual, end, rows.last);
        let in_layer = self.builder.compare(IntOrder::UnsignedLessOrEqual, below, rows.height);
        let both = self.builder.and(fits, in_layer);
        self.leave_unless(both, single, square);
        self.builder.begin(square);
        self.position[2] = self.builder.reduce(I32, z);
        self.square = Some(Square::default());
        for number in 0..side {
            let y = self.builder.add_const(y, number as i64);
            self.position[1] = self.builder.reduce(I32, y);
            self.statements(head);
            self.statements(insts);
            if let Some(square) = &mut self.square {
                square.row += 1;
            }
        }
        let square = self.square.take();
        self.store_square(square.and_then(|square| square.store));
        self.next_row(start, [end, below, z], rows.height);
    }

    /// Goes on at `start` with the row at `y` of layer `z`, or with the next layer.
    fn next_row(&mut self, start: Block, [row, y, z]: [Operand; 3], height: Operand) {
        let layer = self.builder.add_const(z, 1);
        let is_over = self.builder.compare(IntOrder::Equal, y, height);
        let zero = self.builder.int(I64, 0);
        let y = self.builder.select(is_over, zero, y);
        let z = self.builder.select(is_over, layer, z);
        self.builder.jump(start, &[row, y, z]);
    }

    /// Processes one row: full vectors while they fit, then the rest. Returns the block after it.
    fn row(&mut self, from: Operand, to: Operand, full: &[Inst], tail: &[Inst]) -> Block {
        let lanes = i64::from(self.code.invocations);
        let (head, body, next) =
            (self.builder.create_loop(), self.builder.create_block(), self.builder.create_block());
        let (rest, ragged, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let x = self.builder.append_param(head, I64);
        self.builder.jump(head, &[from]);
        self.builder.begin(head);
        let end = self.builder.add_const(x, lanes);
        let fits = self.builder.compare(IntOrder::UnsignedLessOrEqual, end, to);
        self.leave_unless(fits, rest, body);
        self.builder.begin(body);
        self.position[0] = self.builder.reduce(I32, x);
        self.end_lanes = Some(next);
        let repeats = self.code.invocations == self.code.lanes && may_repeat(self.kernel, self.past_caches);
        let overlap = repeats.then(|| self.overlap_before(end, to));
        self.overlap = overlap;
        if self.statements(full) {
            self.builder.jump(next, &[]);
        }
        self.overlap = None;
        self.builder.begin(next);
        let following = match overlap {
            Some(Overlap { invocations, .. }) => {
                let again = self.builder.get(invocations);
                self.builder.sub(end, again)
            }
            None => end,
        };
        self.builder.jump(head, &[following]);
        self.builder.begin(rest);
        let some = self.below(x, to);
        self.builder.branch(some, (ragged, &[]), (after, &[]));
        self.builder.set_cold(ragged);
        self.builder.begin(ragged);
        let left = self.builder.sub(to, x);
        self.remaining = Some(self.builder.reduce(I32, left));
        self.position[0] = self.builder.reduce(I32, x);
        self.end_lanes = Some(after);
        if self.statements(tail) {
            self.builder.jump(after, &[]);
        }
        after
    }

    /// Starts a vector whose end is `end`, in a row that ends at `to`, without overlap.
    fn overlap_before(&mut self, end: Operand, to: Operand) -> Overlap {
        let invocations = self.builder.declare(I64);
        let none = self.builder.int(I64, 0);
        self.builder.set(invocations, none);
        Overlap { invocations, left: self.builder.sub(to, end) }
    }

    /// Processes one row with every vector treated as the last. Returns the block after it.
    fn row_of_tails(&mut self, from: Operand, to: Operand, tail: &[Inst]) -> Block {
        let (head, body) = (self.builder.create_loop(), self.builder.create_block());
        let (next, after) = (self.builder.create_block(), self.builder.create_block());
        let x = self.builder.append_param(head, I64);
        self.builder.jump(head, &[from]);
        self.builder.begin(head);
        let some = self.below(x, to);
        self.leave_unless(some, after, body);
        self.builder.begin(body);
        let left = self.builder.sub(to, x);
        let lanes = self.builder.int(I64, i64::from(self.code.lanes));
        let few = self.below(left, lanes);
        let left = self.builder.select(few, left, lanes);
        self.remaining = Some(self.builder.reduce(I32, left));
        self.position[0] = self.builder.reduce(I32, x);
        self.end_lanes = Some(next);
        if self.statements(tail) {
            self.builder.jump(next, &[]);
        }
        self.builder.begin(next);
        let end = self.builder.add_const(x, i64::from(self.code.lanes));
        self.builder.jump(head, &[end]);
        after
    }

    fn groups(&mut self, params: &[Operand], body: &[Inst]) {
        let grid = self.grid.map(|axis| self.builder.extend_unsigned(I64, axis));
        self.frame_loop(params[1], params[2], |this, group| {
            let x = this.builder.rem(false, group, grid[0]);
            let row = this.builder.div(false, group, grid[0]);
            let y = this.builder.rem(false, row, grid[1]);
            let z = this.builder.div(false, row, grid[1]);
            this.group = [x, y, z].map(|axis| this.builder.reduce(I32, axis));
            this.zero_shared();
            let after = this.builder.create_block();
            this.end_group = Some(after);
            if this.block(body) {
                this.builder.jump(after, &[]);
            }
            after
        });
    }

    fn zero_shared(&mut self) {
        if self.layout.shared_bytes == 0 {
            return;
        }
        let start = self.shared_start;
        self.zero_memory(start, self.layout.shared_bytes as u64);
    }

    /// Zeroes memory whose size is a multiple of a piece.
    pub(super) fn zero_memory(&mut self, start: Operand, bytes: u64) {
        let zero = self.constant_piece(ValueType::U64, 0);
        let step = self.piece_type(ValueType::U64).bytes();
        if bytes <= 128 {
            for offset in (0..bytes as i32).step_by(step as usize) {
                self.builder.store(zero, start, offset);
            }
            return;
        }
        let first = self.builder.int(I64, 0);
        let count = self.builder.int(I64, (bytes / u64::from(step)) as i64);
        self.frame_loop(first, count, |this, number| {
            let offset = this.builder.times(number, i64::from(step));
            let address = this.builder.add(start, offset);
            this.builder.store(zero, address, 0);
            let after = this.builder.create_block();
            this.builder.jump(after, &[]);
            after
        });
    }

    /// Processes the vectors of invocations of one workgroup in sequence.
    pub(super) fn lanes_loop(&mut self, full: &[Inst], tail: &[Inst]) -> bool {
        let count: u32 = self.layout.workgroup.iter().product();
        let whole = count / self.code.lanes;
        if whole == 1 {
            self.first_lane = self.builder.int(I32, 0);
            self.one_vector(full);
        } else if whole > 1 {
            self.vectors_loop(whole, full);
        }
        if !count.is_multiple_of(self.code.lanes) {
            self.first_lane = self.builder.int(I32, i64::from(whole * self.code.lanes));
            self.one_vector(tail);
        }
        true
    }

    fn one_vector(&mut self, insts: &[Inst]) {
        let after = self.builder.create_block();
        let outer = self.end_lanes.replace(after);
        let loops = std::mem::take(&mut self.loops);
        if self.statements(insts) {
            self.builder.jump(after, &[]);
        }
        self.loops = loops;
        self.end_lanes = outer;
        self.builder.begin(after);
    }

    /// Tested at its end: it runs at least once, so the variables it sets are defined after it.
    fn vectors_loop(&mut self, whole: u32, full: &[Inst]) {
        let (body, exit) = (self.builder.create_loop(), self.builder.create_block());
        let first = self.builder.append_param(body, I32);
        let zero = self.builder.int(I32, 0);
        self.builder.jump(body, &[zero]);
        self.builder.begin(body);
        self.first_lane = first;
        self.one_vector(full);
        let next = self.builder.add_const(first, i64::from(self.code.lanes));
        let limit = i64::from(whole * self.code.lanes);
        let more = self.builder.compare_const(IntOrder::UnsignedLess, next, limit);
        self.builder.branch(more, (body, &[next]), (exit, &[]));
        self.builder.begin(exit);
    }
}
