//! The function around the kernel: what is read from the context, the loops over rows, workgroups and vectors of
//! invocations, and where scratch memory lies.

use super::numbers::number_registers;
use super::spread::spread_registers;
use super::{Context, DONE, Emitter, lane_bytes, piece_type, scalar_type, trusted};
use crate::vector::{Frame, Inst, VectorCode};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64, I64X2};
use cranelift_codegen::ir::{AbiParam, Block, BlockArg, Function, InstBuilder, Value as Clif};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::mem::offset_of;
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::KernelBody;

/// Where things lie in the memory of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Per slot: its offset in scratch memory; a vector of invocations finds its own by its first lane.
    pub(super) slots: Vec<u32>,
    /// Per private array: its offset in scratch memory.
    pub(super) arrays: Vec<u32>,
    /// Per buffer: where it is in the workgroup's memory, if it is there.
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
    /// The layout, or `None` if a thread would need more scratch memory than an offset can express.
    pub(crate) fn new(kernel: &KernelBody, code: &VectorCode, workgroup: [u32; 3]) -> Option<Layout> {
        let invocations: u64 = match code.frame {
            Frame::Rows { .. } => u64::from(code.lanes),
            Frame::Groups(_) => {
                let count: u64 = workgroup.iter().map(|&n| u64::from(n)).product();
                count.next_multiple_of(u64::from(code.lanes))
            }
        };
        let mut scratch = 0;
        let mut place = |bytes: u64| {
            let offset = scratch;
            scratch += bytes.next_multiple_of(16);
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
                shared_bytes += (count as usize * element.size()).next_multiple_of(16);
            }
        }
        Some(Layout { slots, arrays, shared, scratch_bytes: scratch as usize, shared_bytes, workgroup })
    }
}

/// Fills `function` with the code of a kernel in vector form.
pub(crate) fn emit(
    function: &mut Function,
    frontend: &mut FunctionBuilderContext,
    isa: &dyn TargetIsa,
    kernel: &KernelBody,
    code: &VectorCode,
    layout: &Layout,
) {
    let pointer = isa.pointer_type();
    function.signature.call_conv = isa.default_call_conv();
    function.signature.params.push(AbiParam::new(pointer));
    function.signature.params.extend([AbiParam::new(I64); 4]);
    function.signature.returns.push(AbiParam::new(I32));
    let x86 = isa.name() == "x64";
    let mut builder = FunctionBuilder::new(function, frontend);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let params: Vec<Clif> = builder.block_params(entry).to_vec();
    let zero = builder.ins().iconst(I32, 0);
    let mut emitter = Emitter {
        x86,
        code,
        kernel,
        layout,
        regs: vec![None; code.regs.len()],
        vars: Vec::new(),
        constants: vec![None; code.regs.len()],
        numbers: number_registers(code),
        ordered: vec![None; code.regs.len()],
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
        lane_memory: Vec::new(),
        caller_signature: None,
        builder,
    };
    emitter.read_context(params[0]);
    emitter.declare_variables();
    match &code.frame {
        Frame::Rows { full, tail } => emitter.rows(&params, full, tail),
        Frame::Groups(body) => emitter.groups(&params, body),
    }
    emitter.finish(DONE);
    emitter.builder.seal_all_blocks();
    emitter.builder.finalize(isa.frontend_config());
}

impl Emitter<'_, '_> {
    fn read_context(&mut self, context: Clif) {
        let field = |this: &mut Self, ty, offset: usize| {
            this.builder.ins().load(ty, trusted(), context, offset as i32)
        };
        self.cancel = field(self, I64, offset_of!(Context, cancel));
        self.scratch = field(self, I64, offset_of!(Context, scratch));
        self.trap = field(self, I64, offset_of!(Context, trap));
        let shared = field(self, I64, offset_of!(Context, shared));
        let entries = field(self, I64, offset_of!(Context, buffers));
        for axis in 0..3 {
            self.grid[axis] = field(self, I32, offset_of!(Context, grid) + 4 * axis);
        }
        // The height of the domain is read where rows are taken apart.
        self.position[1] = field(self, I32, offset_of!(Context, domain) + 4);
        for index in 0..self.kernel.buffers.len() {
            let entry = match self.layout.shared[index] {
                Some(SharedBuffer { offset, count }) => {
                    let data = self.builder.ins().iadd_imm_s(shared, i64::from(offset));
                    (data, self.builder.ins().iconst(I64, i64::from(count)))
                }
                None => {
                    let at = 16 * index as i32;
                    let data = self.builder.ins().load(I64, trusted(), entries, at);
                    (data, self.builder.ins().load(I64, trusted(), entries, at + 8))
                }
            };
            self.buffers.push(entry);
        }
        self.shared_start = shared;
    }

    fn declare_variables(&mut self) {
        for shape in &self.code.vars {
            let variables = if shape.vector {
                let pieces = self.code.lanes as usize / piece_type(shape.ty).lane_count() as usize;
                (0..pieces).map(|_| self.builder.declare_var(piece_type(shape.ty))).collect()
            } else {
                vec![self.builder.declare_var(scalar_type(shape.ty))]
            };
            self.vars.push(variables);
        }
    }

    /// A counted loop of the frame: `each` gets the number and gives the block that control must reach to go on.
    pub(super) fn frame_loop(&mut self, from: Clif, to: Clif, each: impl FnOnce(&mut Self, Clif) -> Block) {
        let (head, body) = (self.builder.create_block(), self.builder.create_block());
        let exit = self.builder.create_block();
        let number = self.builder.append_block_param(head, I64);
        self.builder.ins().jump(head, &[BlockArg::Value(from)]);
        self.builder.switch_to_block(head);
        let more = self.below(number, to);
        self.leave_unless(more, exit, body);
        self.builder.switch_to_block(body);
        let after = each(self, number);
        self.builder.switch_to_block(after);
        let next = self.builder.ins().iadd_imm_s(number, 1);
        self.builder.ins().jump(head, &[BlockArg::Value(next)]);
        self.builder.switch_to_block(exit);
    }

    fn rows(&mut self, params: &[Clif], full: &[Inst], tail: &[Inst]) {
        let height = self.position[1];
        let height = self.builder.ins().uextend(I64, height);
        let (x_from, x_to) = (params[3], params[4]);
        self.frame_loop(params[1], params[2], |this, row| {
            let y = this.builder.ins().urem(row, height);
            let z = this.builder.ins().udiv(row, height);
            this.position[1] = this.builder.ins().ireduce(I32, y);
            this.position[2] = this.builder.ins().ireduce(I32, z);
            if full.is_empty() {
                this.row_of_tails(x_from, x_to, tail)
            } else {
                this.row(x_from, x_to, full, tail)
            }
        });
    }

    /// One row: full vectors as long as they fit, then what is left. Gives the block after it.
    fn row(&mut self, from: Clif, to: Clif, full: &[Inst], tail: &[Inst]) -> Block {
        let lanes = i64::from(self.code.lanes);
        let (head, body, next) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let (rest, ragged, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let x = self.builder.append_block_param(head, I64);
        self.builder.ins().jump(head, &[BlockArg::Value(from)]);
        self.builder.switch_to_block(head);
        let end = self.builder.ins().iadd_imm_s(x, lanes);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, to);
        self.leave_unless(fits, rest, body);
        self.builder.switch_to_block(body);
        self.position[0] = self.builder.ins().ireduce(I32, x);
        self.end_lanes = Some(next);
        if self.block(full) {
            self.builder.ins().jump(next, &[]);
        }
        self.builder.switch_to_block(next);
        self.builder.ins().jump(head, &[BlockArg::Value(end)]);
        self.builder.switch_to_block(rest);
        let some = self.below(x, to);
        self.builder.ins().brif(some, ragged, &[], after, &[]);
        self.builder.switch_to_block(ragged);
        self.builder.set_cold_block(ragged);
        let left = self.builder.ins().isub(to, x);
        self.remaining = Some(self.builder.ins().ireduce(I32, left));
        self.position[0] = self.builder.ins().ireduce(I32, x);
        self.end_lanes = Some(after);
        if self.block(tail) {
            self.builder.ins().jump(after, &[]);
        }
        after
    }

    /// One row, every vector of it as if it were the last. Gives the block after it.
    fn row_of_tails(&mut self, from: Clif, to: Clif, tail: &[Inst]) -> Block {
        let (head, body) = (self.builder.create_block(), self.builder.create_block());
        let (next, after) = (self.builder.create_block(), self.builder.create_block());
        let x = self.builder.append_block_param(head, I64);
        self.builder.ins().jump(head, &[BlockArg::Value(from)]);
        self.builder.switch_to_block(head);
        let some = self.below(x, to);
        self.leave_unless(some, after, body);
        self.builder.switch_to_block(body);
        let left = self.builder.ins().isub(to, x);
        let lanes = self.builder.ins().iconst(I64, i64::from(self.code.lanes));
        let few = self.below(left, lanes);
        let left = self.builder.ins().select(few, left, lanes);
        self.remaining = Some(self.builder.ins().ireduce(I32, left));
        self.position[0] = self.builder.ins().ireduce(I32, x);
        self.end_lanes = Some(next);
        if self.block(tail) {
            self.builder.ins().jump(next, &[]);
        }
        self.builder.switch_to_block(next);
        let end = self.builder.ins().iadd_imm_s(x, i64::from(self.code.lanes));
        self.builder.ins().jump(head, &[BlockArg::Value(end)]);
        after
    }

    fn groups(&mut self, params: &[Clif], body: &[Inst]) {
        let grid = self.grid.map(|axis| self.builder.ins().uextend(I64, axis));
        self.frame_loop(params[1], params[2], |this, group| {
            let x = this.builder.ins().urem(group, grid[0]);
            let row = this.builder.ins().udiv(group, grid[0]);
            let y = this.builder.ins().urem(row, grid[1]);
            let z = this.builder.ins().udiv(row, grid[1]);
            this.group = [x, y, z].map(|axis| this.builder.ins().ireduce(I32, axis));
            this.zero_shared();
            let after = this.builder.create_block();
            this.end_group = Some(after);
            if this.block(body) {
                this.builder.ins().jump(after, &[]);
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

    /// Zeroes a stretch of memory whose length is a multiple of 16.
    pub(super) fn zero_memory(&mut self, start: Clif, bytes: u64) {
        let zero = self.constant_piece(I64X2, 0);
        if bytes <= 128 {
            for offset in (0..bytes as i32).step_by(16) {
                self.builder.ins().store(trusted(), zero, start, offset);
            }
            return;
        }
        let first = self.builder.ins().iconst(I64, 0);
        let count = self.builder.ins().iconst(I64, (bytes / 16) as i64);
        self.frame_loop(first, count, |this, number| {
            let offset = this.builder.ins().ishl_imm_u(number, 4);
            let address = this.builder.ins().iadd(start, offset);
            this.builder.ins().store(trusted(), zero, address, 0);
            let after = this.builder.create_block();
            this.builder.ins().jump(after, &[]);
            after
        });
    }

    /// The vectors of invocations of one workgroup, one after the other.
    pub(super) fn lanes_loop(&mut self, full: &[Inst], tail: &[Inst]) -> bool {
        let count: u32 = self.layout.workgroup.iter().product();
        let whole = count / self.code.lanes;
        if whole == 1 {
            self.first_lane = self.builder.ins().iconst(I32, 0);
            self.one_vector(full);
        } else if whole > 1 {
            self.vectors_loop(whole, full);
        }
        if !count.is_multiple_of(self.code.lanes) {
            self.first_lane = self.builder.ins().iconst(I32, i64::from(whole * self.code.lanes));
            self.one_vector(tail);
        }
        true
    }

    fn one_vector(&mut self, insts: &[Inst]) {
        let after = self.builder.create_block();
        let outer = self.end_lanes.replace(after);
        let loops = std::mem::take(&mut self.loops);
        if self.block(insts) {
            self.builder.ins().jump(after, &[]);
        }
        self.loops = loops;
        self.end_lanes = outer;
        self.builder.switch_to_block(after);
    }

    /// Tested at its end: it runs at least once, so what it leaves in variables is there after it.
    fn vectors_loop(&mut self, whole: u32, full: &[Inst]) {
        let (body, exit) = (self.builder.create_block(), self.builder.create_block());
        let first = self.builder.append_block_param(body, I32);
        let zero = self.builder.ins().iconst(I32, 0);
        self.builder.ins().jump(body, &[BlockArg::Value(zero)]);
        self.builder.switch_to_block(body);
        self.first_lane = first;
        self.one_vector(full);
        let next = self.builder.ins().iadd_imm_s(first, i64::from(self.code.lanes));
        let limit = i64::from(whole * self.code.lanes);
        let more = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThan, next, limit);
        self.builder.ins().brif(more, body, &[BlockArg::Value(next)], exit, &[]);
        self.builder.switch_to_block(exit);
    }
}
