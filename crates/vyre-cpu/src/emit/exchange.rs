//! Interaction between lanes: atomics on memory, and exchange within the subgroup, which is the
//! vector.

use super::call::{Passed, Scalars};
use super::{Atomic, Emitter, Pieces, scalar_type};
use crate::piece::{I64, IntOrder, Update, Value as Operand};
use crate::routines::{self, Sharing};
use crate::vector::Reg;
use vyre_foundation::ir::{AtomicOp, Combine, SubgroupOp};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::{Value, ValueType};

impl Emitter<'_> {
    /// Updates lane by lane, lowest first, in the lanes of the mask; other lanes, and those out of
    /// range, yield zero.
    pub(super) fn atomic_called(
        &mut self,
        update: Atomic,
        index: Reg,
        operands: &[Reg],
        mask: Option<Reg>,
    ) -> Pieces {
        let running = self.running_bits(mask);
        let index = self.vector(index);
        self.pass(Passed::Indices, &index);
        for (&operand, passed) in operands.iter().zip([Passed::First, Passed::Second]) {
            let pieces = self.vector(operand);
            self.pass(passed, &pieces);
        }
        let sharing = if self.is_own(update.buffer) { Sharing::Own } else { Sharing::Threads };
        let number = update.buffer.index() as u64;
        let scalars = Scalars { number, index: None, running: Some(running) };
        self.call(routines::atomic(update.op, update.ty, sharing), scalars);
        self.results(update.ty)
    }

    /// Updates the workgroup's memory in all lanes, lowest first, without a loop; returns the old
    /// values as scalars.
    pub(super) fn atomic_all(
        &mut self,
        update: Atomic,
        index: Reg,
        operands: &[Reg],
        checked: bool,
    ) -> Vec<Operand> {
        let indices: Vec<(Operand, u32)> = match self.spread_lanes(index) {
            Some(lanes) => lanes.into_iter().map(|lane| (lane.value, lane.offset)).collect(),
            None => {
                let index = self.vector(index);
                self.wide_lanes(&index).into_iter().map(|index| (index, 0)).collect()
            }
        };
        let mut old_values = Vec::new();
        for (lane, index) in indices.into_iter().enumerate() {
            let operands: Vec<Operand> =
                operands.iter().map(|&operand| self.lane_of_register(operand, lane)).collect();
            old_values.push(self.atomic_at(update, index, &operands, checked));
        }
        old_values
    }

    /// Updates an element from the only invocation of the vector.
    pub(super) fn atomic_alone(
        &mut self,
        update: Atomic,
        index: Reg,
        operands: &[Reg],
        checked: bool,
    ) -> Operand {
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        let operands: Vec<Operand> = operands.iter().map(|&operand| self.scalar(operand)).collect();
        self.atomic_at(update, (index, 0), &operands, checked)
    }

    /// Updates the element at `index + offset`; returns the old value, or zero if that is out of
    /// range.
    fn atomic_at(
        &mut self,
        update: Atomic,
        (index, offset): (Operand, u32),
        operands: &[Operand],
        checked: bool,
    ) -> Operand {
        if !checked {
            let address = self.element_address(update.buffer, index);
            let size = self.kernel.buffer(update.buffer).decl.element.size();
            return self.update(update, (address, offset as i32 * size as i32), operands);
        }
        let index = if offset == 0 { index } else { self.builder.add_const(index, i64::from(offset)) };
        let address = self.element_address(update.buffer, index);
        let inside = self.below(index, self.buffers[update.buffer.index()].1);
        let address = self.address_if(inside, address);
        let old = self.update(update, (address, 0), operands);
        let zero = self.constant_scalar(Value::zero(update.ty));
        self.builder.select(inside, old, zero)
    }

    /// Returns one lane of a register.
    fn lane_of_register(&mut self, reg: Reg, lane: usize) -> Operand {
        let reg_type = self.reg_type(reg);
        let pieces = self.pieces(reg);
        if reg_type.vector { self.scalar_lane(reg_type.ty, &pieces, lane) } else { pieces[0] }
    }

    fn element_address(&mut self, buffer: BufferId, index: Operand) -> Operand {
        let size = self.kernel.buffer(buffer).decl.element.size() as i64;
        let offset = self.builder.times(index, size);
        self.builder.add(self.buffers[buffer.index()].0, offset)
    }

    /// Whether only this thread accesses the buffer.
    pub(super) fn is_own(&self, buffer: BufferId) -> bool {
        self.layout.shared[buffer.index()].is_some()
    }

    /// Emits an update at an address and a displacement.
    fn update(
        &mut self,
        update: Atomic,
        (address, displacement): (Operand, i32),
        operands: &[Operand],
    ) -> Operand {
        if self.is_own(update.buffer) {
            return self.update_own(update, (address, displacement), operands);
        }
        let address = match displacement {
            0 => address,
            more => self.builder.add_const(address, i64::from(more)),
        };
        self.update_shared(update.op, update.ty, address, operands)
    }

    fn update_shared(
        &mut self,
        op: AtomicOp,
        ty: ValueType,
        address: Operand,
        operands: &[Operand],
    ) -> Operand {
        let signed = ty.is_signed_integer();
        let update = match op {
            AtomicOp::Add => Update::Add,
            AtomicOp::Min => {
                if signed {
                    Update::SignedMin
                } else {
                    Update::UnsignedMin
                }
            }
            AtomicOp::Max => {
                if signed {
                    Update::SignedMax
                } else {
                    Update::UnsignedMax
                }
            }
            AtomicOp::And => Update::And,
            AtomicOp::Or => Update::Or,
            AtomicOp::Xor => Update::Xor,
            AtomicOp::Exchange | AtomicOp::Store => Update::Exchange,
            // The processor loads an aligned element atomically.
            AtomicOp::Load => return self.builder.load(scalar_type(ty), address, 0),
            AtomicOp::CompareExchange => {
                return self.builder.compare_exchange(address, operands[0], operands[1]);
            }
        };
        self.builder.atomic_update(update, address, operands[0])
    }

    /// Updates the workgroup's memory, which only this thread accesses: a plain update suffices.
    fn update_own(
        &mut self,
        Atomic { op, ty, .. }: Atomic,
        (address, displacement): (Operand, i32),
        operands: &[Operand],
    ) -> Operand {
        let old = self.builder.load(scalar_type(ty), address, displacement);
        let new = match (op.row().combine, op) {
            (Some(combine), _) => self.scalar_op(combine, &[ty, ty], &[old, operands[0]]),
            (None, AtomicOp::Load) => return old,
            (None, AtomicOp::CompareExchange) => {
                let same = self.builder.compare(IntOrder::Equal, old, operands[0]);
                self.builder.select(same, operands[1], old)
            }
            (None, _) => operands[0],
        };
        self.builder.store(new, address, displacement);
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
            SubgroupOp::Size | SubgroupOp::Id | SubgroupOp::Count => {
                unreachable!("the lowering knows the lanes of the subgroup and its number")
            }
            SubgroupOp::Lane => self.lane_numbers(),
            SubgroupOp::Ballot => {
                let votes = self.present(operands[0], mask);
                let bits = self.mask_bits(&votes);
                let bits = self.builder.extend_unsigned(I64, bits);
                self.broadcast(ValueType::U64, bits)
            }
            SubgroupOp::Broadcast if !self.reg_type(operands[1]).vector => {
                let values = self.present(operands[0], mask);
                let value = self.chosen_lane(&values, operands[1], ty);
                self.broadcast(ty, value)
            }
            SubgroupOp::Broadcast | SubgroupOp::Shuffle => self.shuffle(operands, mask, ty),
            SubgroupOp::Reduce(combine) if is_word(ty) => {
                let values = self.present_or_identity(operands[0], mask, combine, ty);
                self.reduce_words(values, combine, ty)
            }
            SubgroupOp::Inclusive(combine) if is_word(ty) => {
                let values = self.present_or_identity(operands[0], mask, combine, ty);
                self.scan_words(values, combine, ty)
            }
            SubgroupOp::Exclusive(combine) if is_word(ty) => {
                let values = self.present_or_identity(operands[0], mask, combine, ty);
                let inclusive = self.scan_words(values, combine, ty);
                self.moved_up(&inclusive, combine, ty)
            }
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

    /// Returns the lane selected by a scalar, as a scalar; zero if there is no such lane.
    fn chosen_lane(&mut self, values: &[Operand], lane: Reg, ty: ValueType) -> Operand {
        if let Some(lane) = self.constants[lane.0 as usize].and_then(Value::as_u32) {
            return match usize::try_from(lane).ok().filter(|&lane| lane < self.lanes()) {
                Some(lane) => self.scalar_lane(ty, values, lane),
                None => self.constant_scalar(Value::zero(ty)),
            };
        }
        let spilled = self.spill(0, values);
        let lane = self.scalar(lane);
        self.spilled_or_zero(spilled, lane, ty)
    }

    /// Returns a lane of stack memory by number, an `i32`; zero if there is no such lane.
    fn spilled_or_zero(&mut self, spilled: Operand, lane: Operand, ty: ValueType) -> Operand {
        let lane = self.builder.extend_unsigned(I64, lane);
        let limit = self.builder.int(I64, i64::from(self.code.lanes));
        let there = self.below(lane, limit);
        let first = self.builder.int(I64, 0);
        let safe = self.builder.select(there, lane, first);
        let value = self.spilled_lane(ty, spilled, safe);
        let zero = self.constant_scalar(Value::zero(ty));
        self.builder.select(there, value, zero)
    }

    // Integer ops are associative and commutative, so lanes are combined in pairs of growing
    // distance.

    /// Returns a vector with absent lanes set to the identity of the op.
    fn present_or_identity(
        &mut self,
        operand: Reg,
        mask: Option<Reg>,
        combine: Combine,
        ty: ValueType,
    ) -> Pieces {
        let values = self.vector(operand);
        let Some(mask) = mask else { return values };
        let (mask, identity) = (self.vector(mask), self.constant_vector(combine.identity(ty)));
        self.blend(ty, &mask, &values, &identity)
    }

    fn reduce_words(&mut self, values: Pieces, combine: Combine, ty: ValueType) -> Pieces {
        let mut all = values[0];
        for &piece in &values[1..] {
            all = self.combine_words(combine, ty, [all, piece]);
        }
        let mut distance = self.piece_lanes(ty) as u32 / 2;
        while distance > 0 {
            let others = self.builder.swap(all, distance);
            all = self.combine_words(combine, ty, [all, others]);
            distance /= 2;
        }
        vec![all; values.len()]
    }

    fn scan_words(&mut self, values: Pieces, combine: Combine, ty: ValueType) -> Pieces {
        let identity = self.constant_vector(combine.identity(ty))[0];
        let last = self.piece_lanes(ty) as u32 - 1;
        let mut carry: Option<Operand> = None;
        let mut scanned = Vec::new();
        for piece in values {
            let mut sums = piece;
            for distance in [1, 2] {
                let below = self.builder.move_up_within(identity, sums, distance);
                sums = self.combine_words(combine, ty, [below, sums]);
            }
            if last > 3 {
                let below = self.builder.carry_half(identity, sums);
                sums = self.combine_words(combine, ty, [below, sums]);
            }
            if let Some(carry) = carry {
                sums = self.combine_words(combine, ty, [carry, sums]);
            }
            carry = Some(self.builder.splat_lane(sums, last));
            scanned.push(sums);
        }
        scanned
    }

    /// Moves every lane up by one; lane 0 receives the identity of the op.
    fn moved_up(&mut self, pieces: &[Operand], combine: Combine, ty: ValueType) -> Pieces {
        let mut below = self.constant_vector(combine.identity(ty))[0];
        let mut moved = Vec::new();
        for &piece in pieces {
            moved.push(self.builder.move_up(below, piece));
            below = piece;
        }
        moved
    }

    /// Returns a vector with absent lanes set to zero.
    fn present(&mut self, operand: Reg, mask: Option<Reg>) -> Pieces {
        let ty = self.reg_type(operand).ty;
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
        let mut scalars = Vec::new();
        for lane in 0..self.lanes() {
            let from = self.scalar_lane(ValueType::U32, &from, lane);
            scalars.push(self.spilled_or_zero(spilled, from, ty));
        }
        self.vector_of_scalars(ty, &scalars)
    }

    /// Prefix combination: per lane, the present lanes up to it, in lane order.
    fn running_lanes(
        &mut self,
        operand: Reg,
        mask: Option<Reg>,
        ty: ValueType,
        combine: Combine,
    ) -> Vec<Operand> {
        let values = self.vector(operand);
        let mask = mask.map(|mask| self.vector(mask));
        let mut running = vec![self.scalar_lane(ty, &values, 0)];
        for lane in 1..self.lanes() {
            let (before, value) = (running[lane - 1], self.scalar_lane(ty, &values, lane));
            let mut now = self.scalar_op(combine.op(), &[ty, ty], &[before, value]);
            if let Some(mask) = &mask {
                let there = self.scalar_lane(ValueType::Bool, mask, lane);
                now = self.builder.select(there, now, before);
            }
            running.push(now);
        }
        running
    }
}

/// Whether the type is a 32-bit integer.
fn is_word(ty: ValueType) -> bool {
    matches!(ty, ValueType::U32 | ValueType::I32)
}
