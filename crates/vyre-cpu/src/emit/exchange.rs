//! What lanes do to each other: atomics on memory, and exchange within the subgroup, which is the vector.

use super::{Emitter, Pieces, scalar_type, trusted};
use crate::vector::Reg;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Value as Clif};
use vyre_foundation::ir::{AtomicOp, Combine, SubgroupOp};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::{Value, ValueType};

impl Emitter<'_, '_> {
    /// Lane by lane, lowest first; lanes that do not run or are out of range give zero.
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        buffer: BufferId,
        index: Reg,
        operands: &[Reg],
        mask: Option<Reg>,
        ty: ValueType,
    ) -> Pieces {
        let bits = self.running_bits(mask);
        let index = self.vector(index);
        let indices = self.spill(0, &index);
        let zeros = self.constant_vector(Value::zero(ty));
        let results = self.spill(1, &zeros);
        let mut spilled = Vec::new();
        for (k, &operand) in operands.iter().enumerate() {
            let pieces = self.vector(operand);
            spilled.push(self.spill(2 + k, &pieces));
        }
        let size = self.kernel.buffer(buffer).decl.element.size() as i64;
        self.for_each_bit(bits, |this, lane| {
            let index = this.take_lane(ValueType::U32, indices, lane);
            let index = this.builder.ins().uextend(I64, index);
            let (data, length) = this.buffers[buffer.index()];
            let inside = this.below(index, length);
            let (yes, after) = (this.builder.create_block(), this.builder.create_block());
            this.builder.ins().brif(inside, yes, &[], after, &[]);
            this.builder.switch_to_block(yes);
            let offset = this.builder.ins().imul_imm_s(index, size);
            let address = this.builder.ins().iadd(data, offset);
            let operands: Vec<Clif> = spilled.iter().map(|&at| this.take_lane(ty, at, lane)).collect();
            let old = if this.layout.shared[buffer.index()].is_some() {
                this.update_own(op, ty, address, &operands)
            } else {
                this.update_shared(op, ty, address, &operands)
            };
            this.put_lane(ty, results, lane, old);
            this.builder.ins().jump(after, &[]);
            this.builder.switch_to_block(after);
        });
        self.reload(ty, results)
    }

    fn update_shared(&mut self, op: AtomicOp, ty: ValueType, address: Clif, operands: &[Clif]) -> Clif {
        let signed = ty.is_signed_integer();
        let update = match op {
            AtomicOp::Add => AtomicRmwOp::Add,
            AtomicOp::Min => {
                if signed {
                    AtomicRmwOp::Smin
                } else {
                    AtomicRmwOp::Umin
                }
            }
            AtomicOp::Max => {
                if signed {
                    AtomicRmwOp::Smax
                } else {
                    AtomicRmwOp::Umax
                }
            }
            AtomicOp::And => AtomicRmwOp::And,
            AtomicOp::Or => AtomicRmwOp::Or,
            AtomicOp::Xor => AtomicRmwOp::Xor,
            AtomicOp::Exchange => AtomicRmwOp::Xchg,
            AtomicOp::CompareExchange => {
                return self.builder.ins().atomic_cas(aligned(), address, operands[0], operands[1]);
            }
        };
        self.builder.ins().atomic_rmw(scalar_type(ty), aligned(), update, address, operands[0])
    }

    /// The workgroup's memory is this thread's alone: a plain update does.
    fn update_own(&mut self, op: AtomicOp, ty: ValueType, address: Clif, operands: &[Clif]) -> Clif {
        let old = self.builder.ins().load(scalar_type(ty), trusted(), address, 0);
        let new = match (op.row().combine, op) {
            (Some(combine), _) => self.scalar_op(combine, &[ty, ty], &[old, operands[0]]),
            (None, AtomicOp::CompareExchange) => {
                let same =
                    self.builder.ins().icmp(cranelift_codegen::ir::condcodes::IntCC::Equal, old, operands[0]);
                self.builder.ins().select(same, operands[1], old)
            }
            (None, _) => operands[0],
        };
        self.builder.ins().store(trusted(), new, address, 0);
        old
    }

    pub(super) fn subgroup(
        &mut self,
        op: SubgroupOp,
        operands: &[Reg],
        mask: Option<Reg>,
        ty: ValueType,
    ) -> Pieces {
        match op {
            SubgroupOp::Size => unreachable!("the lowering knows the number of lanes"),
            SubgroupOp::Lane => self.lane_numbers(),
            SubgroupOp::Ballot => {
                let votes = self.present(operands[0], mask);
                let bits = self.mask_bits(&votes);
                let bits = self.builder.ins().uextend(I64, bits);
                self.broadcast(ValueType::U64, bits)
            }
            SubgroupOp::Broadcast | SubgroupOp::Shuffle => self.shuffle(operands, mask, ty),
            SubgroupOp::Reduce(combine) => {
                let running = self.running_lanes(operands[0], mask, ty, combine);
                let last = running[self.lanes() - 1];
                self.broadcast(ty, last)
            }
            SubgroupOp::Inclusive(combine) => {
                let running = self.running_lanes(operands[0], mask, ty, combine);
                self.vector_of_scalars(ty, &running)
            }
            SubgroupOp::Exclusive(combine) => {
                let mut running = self.running_lanes(operands[0], mask, ty, combine);
                let identity = self.constant_scalar(combine.identity(ty));
                running.rotate_right(1);
                running[0] = identity;
                self.vector_of_scalars(ty, &running)
            }
        }
    }

    /// A vector in which absent lanes are zero.
    fn present(&mut self, operand: Reg, mask: Option<Reg>) -> Pieces {
        let ty = self.shape(operand).ty;
        let pieces = self.vector(operand);
        match mask {
            None => pieces,
            Some(mask) => {
                let mask = self.vector(mask);
                self.keep_lanes(ty, pieces, &mask)
            }
        }
    }

    fn shuffle(&mut self, operands: &[Reg], mask: Option<Reg>, ty: ValueType) -> Pieces {
        let values = self.present(operands[0], mask);
        let spilled = self.spill(0, &values);
        let from = self.vector(operands[1]);
        let lanes = i64::from(self.code.lanes);
        let mut scalars = Vec::new();
        for lane in 0..self.lanes() {
            let from = self.scalar_lane(ValueType::U32, &from, lane);
            let from = self.builder.ins().uextend(I64, from);
            let limit = self.builder.ins().iconst(I64, lanes);
            let there = self.below(from, limit);
            let first = self.builder.ins().iconst(I64, 0);
            let safe = self.builder.ins().select(there, from, first);
            let value = self.take_lane(ty, spilled, safe);
            let zero = self.constant_scalar(Value::zero(ty));
            scalars.push(self.builder.ins().select(there, value, zero));
        }
        self.vector_of_scalars(ty, &scalars)
    }

    /// Per lane, the present lanes up to it combined in lane order.
    fn running_lanes(
        &mut self,
        operand: Reg,
        mask: Option<Reg>,
        ty: ValueType,
        combine: Combine,
    ) -> Vec<Clif> {
        let values = self.vector(operand);
        let mask = mask.map(|mask| self.vector(mask));
        let mut running = vec![self.scalar_lane(ty, &values, 0)];
        for lane in 1..self.lanes() {
            let (before, value) = (running[lane - 1], self.scalar_lane(ty, &values, lane));
            let mut now = self.scalar_op(combine.op(), &[ty, ty], &[before, value]);
            if let Some(mask) = &mask {
                let there = self.scalar_lane(ValueType::Bool, mask, lane);
                now = self.builder.ins().select(there, now, before);
            }
            running.push(now);
        }
        running
    }
}

fn aligned() -> MemFlagsData {
    let mut flags = trusted();
    flags.set_aligned();
    flags
}
