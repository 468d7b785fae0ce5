//! Memory: wide accesses where lanes are neighbours, single ones where they are not, and the rules for indices out of
//! range.
//!
//! A wide access needs all its lanes in range (and running, for a store); otherwise lanes go one by one, in cold code.
//! A private array has its elements laid out lane by lane, so that all lanes at one index are neighbours.

use super::call::{Passed, Scalars};
use super::{Emitter, Pieces, element_bytes, lane_bytes, lane_type, piece_type, scalar_type, trusted};
use crate::routines;
use crate::vector::{Index, Reg, Shape, Slot, Store};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{BlockArg, InstBuilder, MemFlagsData, Value as Clif};
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, Value, ValueType};

impl Emitter<'_, '_> {
    pub(super) fn load(
        &mut self,
        place: Place,
        element: DataType,
        index: Index,
        checked: bool,
        shape: Shape,
    ) -> Pieces {
        match (place, index) {
            (Place::Buffer(buffer), Index::Same(index)) => {
                let index = self.scalar(index);
                let index = self.builder.ins().uextend(I64, index);
                vec![self.load_one(buffer, element, index, checked)]
            }
            (Place::Buffer(buffer), Index::Consecutive(base)) => {
                self.load_wide(buffer, element, base, checked)
            }
            (Place::Buffer(buffer), Index::Each(index)) => {
                let index = self.vector(index);
                self.gather(buffer, element, &index, checked)
            }
            (Place::Array(array), Index::Same(index)) => self.load_array_row(array.0, index, shape.ty),
            (Place::Array(array), Index::Consecutive(base)) => {
                let index = self.consecutive(base);
                self.gather_array(array.0, &index, shape.ty)
            }
            (Place::Array(array), Index::Each(index)) => {
                let index = self.vector(index);
                self.gather_array(array.0, &index, shape.ty)
            }
        }
    }

    /// The vector `base + lane number`.
    fn consecutive(&mut self, base: Reg) -> Pieces {
        let base = self.vector(base);
        let numbers = self.lane_numbers();
        base.into_iter().zip(numbers).map(|(a, b)| self.builder.ins().iadd(a, b)).collect()
    }

    pub(super) fn address(&mut self, buffer: BufferId, element: DataType, index: Clif) -> Clif {
        let (data, _) = self.buffers[buffer.index()];
        let offset = self.times(index, element_bytes(element));
        self.builder.ins().iadd(data, offset)
    }

    /// One element at a 64-bit index, as a scalar.
    fn load_one(&mut self, buffer: BufferId, element: DataType, index: Clif, checked: bool) -> Clif {
        if !checked {
            let address = self.address(buffer, element, index);
            return self.load_element(element, address);
        }
        let (_, length) = self.buffers[buffer.index()];
        let inside = self.below(index, length);
        let first = self.builder.ins().iconst(I64, 0);
        let safe = self.builder.ins().select(inside, index, first);
        let address = self.address(buffer, element, safe);
        let value = self.load_element(element, address);
        let zero = self.constant_scalar(Value::zero(element.value_type()));
        self.builder.ins().select(inside, value, zero)
    }

    fn load_element(&mut self, element: DataType, address: Clif) -> Clif {
        let flags = trusted();
        match element {
            DataType::Bool => {
                let byte = self.builder.ins().load(I8, flags, address, 0);
                self.builder.ins().icmp_imm_s(IntCC::NotEqual, byte, 0)
            }
            DataType::U8 => self.builder.ins().uload8(I32, flags, address, 0),
            DataType::I8 => self.builder.ins().sload8(I32, flags, address, 0),
            DataType::U16 => self.builder.ins().uload16(I32, flags, address, 0),
            DataType::I16 => self.builder.ins().sload16(I32, flags, address, 0),
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                self.builder.ins().load(scalar_type(element.value_type()), flags, address, 0)
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are read as their bits"),
        }
    }

    fn store_element(&mut self, element: DataType, value: Clif, address: Clif) {
        let flags = trusted();
        match element {
            DataType::U8 | DataType::I8 => self.builder.ins().istore8(flags, value, address, 0),
            DataType::U16 | DataType::I16 => self.builder.ins().istore16(flags, value, address, 0),
            DataType::Bool
            | DataType::U32
            | DataType::I32
            | DataType::U64
            | DataType::I64
            | DataType::F32
            | DataType::F64 => self.builder.ins().store(flags, value, address, 0),
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are written as their bits"),
        };
    }

    /// A scalar as a lane of a vector.
    fn lane_of(&mut self, ty: ValueType, scalar: Clif) -> Clif {
        if ty == ValueType::Bool { self.mask_lane(scalar) } else { scalar }
    }

    /// A lane read from stack memory, as a scalar.
    pub(super) fn spilled_lane(&mut self, ty: ValueType, address: Clif, lane: Clif) -> Clif {
        let offset = self.times(lane, i64::from(lane_bytes(ty)));
        let address = self.builder.ins().iadd(address, offset);
        let value = self.builder.ins().load(lane_type(ty), trusted(), address, 0);
        if ty == ValueType::Bool { self.builder.ins().icmp_imm_s(IntCC::NotEqual, value, 0) } else { value }
    }

    fn load_wide(&mut self, buffer: BufferId, element: DataType, base: Reg, checked: bool) -> Pieces {
        let index = self.scalar(base);
        let index = self.builder.ins().uextend(I64, index);
        if !checked {
            let address = self.address(buffer, element, index);
            return self.wide_pieces(element, address);
        }
        let ty = element.value_type();
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(slow);
        let inside = self.all_inside(buffer, index);
        self.builder.ins().brif(inside, fast, &[], slow, &[]);
        for _ in 0..self.piece_count(ty) {
            self.builder.append_block_param(after, piece_type(ty));
        }
        self.builder.switch_to_block(fast);
        let address = self.address(buffer, element, index);
        let pieces = self.wide_pieces(element, address);
        self.jump_with(after, &pieces);
        self.builder.switch_to_block(slow);
        let running = self.running_bits(None);
        let scalars = Scalars { number: buffer.index() as u64, index: Some(index), running: Some(running) };
        self.call(routines::load_neighbours(element), scalars);
        let pieces = self.results(ty);
        self.jump_with(after, &pieces);
        self.builder.switch_to_block(after);
        self.builder.block_params(after).to_vec()
    }

    fn jump_with(&mut self, to: cranelift_codegen::ir::Block, pieces: &[Clif]) {
        let args: Vec<BlockArg> = pieces.iter().map(|&piece| BlockArg::Value(piece)).collect();
        self.builder.ins().jump(to, &args);
    }

    /// Whether a whole vector from a 64-bit index on is in range.
    fn all_inside(&mut self, buffer: BufferId, index: Clif) -> Clif {
        let (_, length) = self.buffers[buffer.index()];
        let end = self.builder.ins().iadd_imm_s(index, i64::from(self.code.lanes));
        self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, length)
    }

    fn wide_pieces(&mut self, element: DataType, address: Clif) -> Pieces {
        let flags = trusted();
        match element {
            DataType::Bool => {
                let words = self.wide_pieces(DataType::U8, address);
                let zero = self.constant_piece(I32X4, 0);
                words.into_iter().map(|word| self.builder.ins().icmp(IntCC::NotEqual, word, zero)).collect()
            }
            DataType::U8 => self.by_eights(|this, offset| {
                let half = this.builder.ins().uload8x8(flags, address, offset);
                [this.builder.ins().uwiden_low(half), this.builder.ins().uwiden_high(half)]
            }),
            DataType::I8 => self.by_eights(|this, offset| {
                let half = this.builder.ins().sload8x8(flags, address, offset);
                [this.builder.ins().swiden_low(half), this.builder.ins().swiden_high(half)]
            }),
            DataType::U16 => {
                let offsets = (0..self.piece_count(ValueType::U32) as i32).map(|k| 8 * k);
                offsets.map(|offset| self.builder.ins().uload16x4(flags, address, offset)).collect()
            }
            DataType::I16 => {
                let offsets = (0..self.piece_count(ValueType::U32) as i32).map(|k| 8 * k);
                offsets.map(|offset| self.builder.ins().sload16x4(flags, address, offset)).collect()
            }
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                self.reload(element.value_type(), address)
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are read as their bits"),
        }
    }

    /// Pieces of 32-bit lanes made two at a time, from eight narrow elements each.
    fn by_eights(&mut self, mut make: impl FnMut(&mut Self, i32) -> [Clif; 2]) -> Pieces {
        (0..self.lanes() as i32 / 8).flat_map(|k| make(self, 8 * k)).collect()
    }

    fn store_wide_pieces(&mut self, element: DataType, pieces: &[Clif], address: Clif) {
        let flags = trusted();
        match element {
            DataType::Bool => self.store_bytes(pieces, 1, address),
            DataType::U8 | DataType::I8 => self.store_bytes(pieces, 0xFF, address),
            DataType::U16 | DataType::I16 => {
                for (k, pair) in pieces.chunks(2).enumerate() {
                    let half = self.narrowed(pair, 0xFFFF);
                    self.builder.ins().store(flags, half, address, 16 * k as i32);
                }
            }
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                for (k, &piece) in pieces.iter().enumerate() {
                    self.builder.ins().store(flags, piece, address, 16 * k as i32);
                }
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are written as their bits"),
        }
    }

    /// Two pieces of 32-bit lanes as one of 16-bit lanes, the bits of `kept` only.
    fn narrowed(&mut self, pair: &[Clif], kept: u64) -> Clif {
        let kept = self.constant_piece(I32X4, kept);
        let low = self.builder.ins().band(pair[0], kept);
        let high = self.builder.ins().band(pair[1], kept);
        self.builder.ins().unarrow(low, high)
    }

    fn store_bytes(&mut self, pieces: &[Clif], kept: u64, address: Clif) {
        for (k, pair) in pieces.chunks(2).enumerate() {
            let half = self.narrowed(pair, kept);
            let bytes = self.builder.ins().unarrow(half, half);
            let words = self.builder.ins().bitcast(I64X2, little(), bytes);
            let eight = self.builder.ins().extractlane(words, 0);
            self.builder.ins().store(trusted(), eight, address, 8 * k as i32);
        }
    }

    /// Elements at any indices. Out of range, element 0 is read and its bits dropped.
    fn gather(&mut self, buffer: BufferId, element: DataType, index: &[Clif], checked: bool) -> Pieces {
        let ty = element.value_type();
        let mut index = index.to_vec();
        let mut inside = Vec::new();
        if checked {
            let (_, length) = self.buffers[buffer.index()];
            let length = self.builder.ins().ireduce(I32, length);
            let length = self.builder.ins().splat(I32X4, length);
            for piece in &mut index {
                let ok = self.builder.ins().icmp(IntCC::UnsignedLessThan, *piece, length);
                *piece = self.builder.ins().band(*piece, ok);
                inside.push(ok);
            }
        }
        let indices = self.wide_lanes(&index);
        let pieces = self.collect_lanes(ty, |this, lane| {
            let address = this.address(buffer, element, indices[lane]);
            let value = this.load_element(element, address);
            this.lane_of(ty, value)
        });
        if checked { self.keep_lanes(ty, pieces, &inside) } else { pieces }
    }

    /// The lanes of a vector of `u32`, each as 64 bits. Two lanes leave a vector together, which costs as much as one.
    pub(super) fn wide_lanes(&mut self, pieces: &[Clif]) -> Vec<Clif> {
        let mut lanes = Vec::with_capacity(self.lanes());
        for &piece in pieces {
            let pairs = self.builder.ins().bitcast(I64X2, little(), piece);
            for pair in 0..2 {
                let both = self.builder.ins().extractlane(pairs, pair);
                let low = self.builder.ins().ireduce(I32, both);
                lanes.push(self.builder.ins().uextend(I64, low));
                lanes.push(self.builder.ins().ushr_imm_u(both, 32));
            }
        }
        lanes
    }

    /// A vector made lane by lane.
    fn collect_lanes(
        &mut self,
        ty: ValueType,
        mut lane_value: impl FnMut(&mut Self, usize) -> Clif,
    ) -> Pieces {
        let lanes = self.piece_lanes(ty);
        let mut pieces = Vec::new();
        for piece in 0..self.piece_count(ty) {
            let first = lane_value(self, piece * lanes);
            let mut vector = self.builder.ins().scalar_to_vector(piece_type(ty), first);
            for lane in 1..lanes {
                let value = lane_value(self, piece * lanes + lane);
                vector = self.builder.ins().insertlane(vector, value, lane as u8);
            }
            pieces.push(vector);
        }
        pieces
    }

    /// The lanes of the mask; the others become zero.
    pub(super) fn keep_lanes(&mut self, ty: ValueType, pieces: Pieces, mask: &[Clif]) -> Pieces {
        let mask = self.native_mask(ty, mask);
        pieces
            .into_iter()
            .zip(mask)
            .map(|(piece, mask)| {
                let bits = self.builder.ins().bitcast(mask_type(ty), little(), piece);
                let kept = self.builder.ins().band(bits, mask);
                self.builder.ins().bitcast(piece_type(ty), little(), kept)
            })
            .collect()
    }

    // Stores.

    pub(super) fn store(&mut self, store: &Store) {
        match store.place {
            Place::Buffer(buffer) => self.store_buffer(buffer, store),
            Place::Array(array) => match store.index {
                Index::Same(index) => self.store_array_row(array.0, index, store),
                Index::Consecutive(base) => {
                    let index = self.consecutive(base);
                    self.scatter_array(array.0, &index, store);
                }
                Index::Each(index) => {
                    let index = self.vector(index);
                    self.scatter_array(array.0, &index, store);
                }
            },
        }
    }

    fn store_buffer(&mut self, buffer: BufferId, store: &Store) {
        match store.index {
            Index::Same(index) if !self.shape(store.value).vector => self.store_same(buffer, index, store),
            Index::Same(index) => {
                let index = self.vector(index);
                self.scatter(buffer, &index, store);
            }
            Index::Consecutive(base) => self.store_wide(buffer, base, store),
            Index::Each(index) => {
                let index = self.vector(index);
                self.scatter(buffer, &index, store);
            }
        }
    }

    /// One element, the same from every lane that runs.
    fn store_same(&mut self, buffer: BufferId, index: Reg, store: &Store) {
        let index = self.scalar(index);
        let index = self.builder.ins().uextend(I64, index);
        let mut condition = store.mask.map(|mask| self.any(mask));
        if store.checked {
            let inside = self.below(index, self.buffers[buffer.index()].1);
            condition = Some(match condition {
                None => inside,
                Some(running) => self.builder.ins().band(running, inside),
            });
        }
        let value = self.scalar(store.value);
        self.only_if(condition, |this| {
            let address = this.address(buffer, store.element, index);
            this.store_element(store.element, value, address);
        });
    }

    /// Runs `then` under a condition, or always if there is none.
    fn only_if(&mut self, condition: Option<Clif>, then: impl FnOnce(&mut Self)) {
        let Some(condition) = condition else { return then(self) };
        let (yes, after) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(condition, yes, &[], after, &[]);
        self.builder.switch_to_block(yes);
        then(self);
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(after);
    }

    fn store_wide(&mut self, buffer: BufferId, base: Reg, store: &Store) {
        let index = self.scalar(base);
        let index = self.builder.ins().uextend(I64, index);
        let pieces = self.vector(store.value);
        let mut condition = store.mask.map(|mask| self.all(mask));
        if store.checked {
            let inside = self.all_inside(buffer, index);
            condition = Some(match condition {
                None => inside,
                Some(all) => self.builder.ins().band(all, inside),
            });
        }
        let wide = |this: &mut Self| {
            let address = this.address(buffer, store.element, index);
            this.store_wide_pieces(store.element, &pieces, address);
        };
        let Some(condition) = condition else { return wide(self) };
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(slow);
        self.builder.ins().brif(condition, fast, &[], slow, &[]);
        self.builder.switch_to_block(fast);
        wide(self);
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(slow);
        self.pass(Passed::First, &pieces);
        let running = self.running_bits(store.mask);
        let scalars = Scalars { number: buffer.index() as u64, index: Some(index), running: Some(running) };
        self.call(routines::store_neighbours(store.element), scalars);
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(after);
    }

    /// Elements at any indices, lowest lane first, in the lanes that run and are in range.
    fn scatter(&mut self, buffer: BufferId, index: &[Clif], store: &Store) {
        let values = self.vector(store.value);
        if store.mask.is_none() {
            return self.scatter_all(buffer, index, &values, store);
        }
        let running = self.running_bits(store.mask);
        self.pass(Passed::Indices, index);
        self.pass(Passed::First, &values);
        let scalars = Scalars { number: buffer.index() as u64, index: None, running: Some(running) };
        self.call(routines::store_each(store.element), scalars);
    }

    /// The lanes that run, as bits.
    pub(super) fn running_bits(&mut self, mask: Option<Reg>) -> Clif {
        match mask {
            Some(mask) => {
                let mask = self.vector(mask);
                self.mask_bits(&mask)
            }
            None => {
                let every = (1 << self.lanes()) - 1;
                self.builder.ins().iconst(I32, every)
            }
        }
    }

    /// All lanes, one after the other without a loop; what is out of range goes where nobody looks.
    fn scatter_all(&mut self, buffer: BufferId, index: &[Clif], values: &[Clif], store: &Store) {
        let (ty, element) = (store.element.value_type(), store.element);
        let indices = self.wide_lanes(index);
        for (lane, index) in indices.into_iter().enumerate() {
            let mut address = self.address(buffer, element, index);
            if store.checked {
                let inside = self.below(index, self.buffers[buffer.index()].1);
                address = self.address_if(inside, address);
            }
            let value = self.scalar_lane(ty, values, lane);
            self.store_element(element, value, address);
        }
    }

    /// The address under a condition, else that of stack memory which is never read.
    pub(super) fn address_if(&mut self, condition: Clif, address: Clif) -> Clif {
        let slot = self.lane_memory(UNREAD);
        let unread = self.builder.ins().stack_addr(I64, slot, 0);
        self.builder.ins().select(condition, address, unread)
    }

    /// One lane of a vector, as a scalar.
    pub(super) fn scalar_lane(&mut self, ty: ValueType, pieces: &[Clif], lane: usize) -> Clif {
        let lanes = self.piece_lanes(ty);
        let value = self.builder.ins().extractlane(pieces[lane / lanes], (lane % lanes) as u8);
        if ty == ValueType::Bool { self.builder.ins().icmp_imm_s(IntCC::NotEqual, value, 0) } else { value }
    }

    /// A vector from scalars.
    pub(super) fn vector_of_scalars(&mut self, ty: ValueType, scalars: &[Clif]) -> Pieces {
        self.collect_lanes(ty, |this, lane| this.lane_of(ty, scalars[lane]))
    }

    // Private arrays.

    /// Where this vector of invocations has the array.
    fn array_start(&mut self, array: u32) -> Clif {
        let info = &self.kernel.arrays[array as usize];
        let bytes = i64::from(info.count) * i64::from(lane_bytes(info.element));
        let first = self.builder.ins().uextend(I64, self.first_lane);
        let own = self.times(first, bytes);
        let base = self.builder.ins().iadd_imm_s(self.scratch, i64::from(self.layout.arrays[array as usize]));
        self.builder.ins().iadd(base, own)
    }

    fn array_count(&mut self, array: u32) -> Clif {
        let count = i64::from(self.kernel.arrays[array as usize].count);
        self.builder.ins().iconst(I64, count)
    }

    fn row_bytes(&self, ty: ValueType) -> i64 {
        i64::from(lane_bytes(ty)) * i64::from(self.code.lanes)
    }

    fn load_array_row(&mut self, array: u32, index: Reg, ty: ValueType) -> Pieces {
        let index = self.scalar(index);
        let index = self.builder.ins().uextend(I64, index);
        let count = self.array_count(array);
        let inside = self.below(index, count);
        let first = self.builder.ins().iconst(I64, 0);
        let safe = self.builder.ins().select(inside, index, first);
        let row = self.row_bytes(ty);
        let offset = self.times(safe, row);
        let start = self.array_start(array);
        let address = self.builder.ins().iadd(start, offset);
        let pieces = self.reload(ty, address);
        let mask = self.broadcast(ValueType::Bool, inside);
        self.keep_lanes(ty, pieces, &mask)
    }

    fn store_array_row(&mut self, array: u32, index: Reg, store: &Store) {
        let ty = store.element.value_type();
        let index = self.scalar(index);
        let index = self.builder.ins().uextend(I64, index);
        let count = self.array_count(array);
        let inside = self.below(index, count);
        let start = self.array_start(array);
        let values = self.vector(store.value);
        self.only_if(Some(inside), |this| {
            let row = this.row_bytes(ty);
            let offset = this.times(index, row);
            let address = this.builder.ins().iadd(start, offset);
            this.blend_to_memory(ty, address, &values, store.mask);
        });
    }

    /// Writes a vector to memory of this thread alone, in the lanes of the mask.
    fn blend_to_memory(&mut self, ty: ValueType, address: Clif, values: &[Clif], mask: Option<Reg>) {
        let mut values = values.to_vec();
        if let Some(mask) = mask {
            let old = self.reload(ty, address);
            let mask = self.vector(mask);
            values = self.blend(ty, &mask, &values, &old);
        }
        for (k, &piece) in values.iter().enumerate() {
            self.builder.ins().store(trusted(), piece, address, 16 * k as i32);
        }
    }

    fn lane_address(&mut self, start: Clif, ty: ValueType, index: Clif, lane: Clif) -> Clif {
        let row = self.row_bytes(ty);
        let row = self.times(index, row);
        let column = self.times(lane, i64::from(lane_bytes(ty)));
        let address = self.builder.ins().iadd(start, row);
        self.builder.ins().iadd(address, column)
    }

    fn gather_array(&mut self, array: u32, index: &[Clif], ty: ValueType) -> Pieces {
        let start = self.array_start(array);
        let count = u64::from(self.kernel.arrays[array as usize].count);
        let count = self.constant_piece(I32X4, count);
        let mut safe = Vec::new();
        let mut inside = Vec::new();
        for &piece in index {
            let ok = self.builder.ins().icmp(IntCC::UnsignedLessThan, piece, count);
            safe.push(self.builder.ins().band(piece, ok));
            inside.push(ok);
        }
        let indices = self.wide_lanes(&safe);
        let pieces = self.collect_lanes(ty, |this, lane| {
            let column = this.builder.ins().iconst(I64, lane as i64);
            let address = this.lane_address(start, ty, indices[lane], column);
            this.builder.ins().load(lane_type(ty), trusted(), address, 0)
        });
        self.keep_lanes(ty, pieces, &inside)
    }

    fn scatter_array(&mut self, array: u32, index: &[Clif], store: &Store) {
        let ty = store.element.value_type();
        let start = self.array_start(array);
        let values = self.vector(store.value);
        if store.mask.is_none() {
            return self.scatter_array_all(array, start, index, &values, ty);
        }
        let running = self.running_bits(store.mask);
        self.pass(Passed::Indices, index);
        self.pass(Passed::First, &values);
        let number = u64::from(self.kernel.arrays[array as usize].count);
        let scalars = Scalars { number, index: Some(start), running: Some(running) };
        self.call(routines::store_array(ty, self.code.lanes), scalars);
    }

    fn scatter_array_all(&mut self, array: u32, start: Clif, index: &[Clif], values: &[Clif], ty: ValueType) {
        let count = self.array_count(array);
        let lanes = self.piece_lanes(ty);
        let indices = self.wide_lanes(index);
        for (lane, index) in indices.into_iter().enumerate() {
            let inside = self.below(index, count);
            let column = self.builder.ins().iconst(I64, lane as i64);
            let address = self.lane_address(start, ty, index, column);
            let address = self.address_if(inside, address);
            let value = self.builder.ins().extractlane(values[lane / lanes], (lane % lanes) as u8);
            self.builder.ins().store(trusted(), value, address, 0);
        }
    }

    pub(super) fn clear_array(&mut self, array: u32, mask: Option<Reg>) {
        let info = &self.kernel.arrays[array as usize];
        let (ty, count) = (info.element, info.count);
        let start = self.array_start(array);
        let row = self.row_bytes(ty);
        if mask.is_none() {
            return self.zero_memory(start, row as u64 * u64::from(count));
        }
        let zeros = self.constant_vector(Value::zero(ty));
        let (first, last) = (self.builder.ins().iconst(I64, 0), self.array_count(array));
        self.frame_loop(first, last, |this, number| {
            let offset = this.times(number, row);
            let address = this.builder.ins().iadd(start, offset);
            this.blend_to_memory(ty, address, &zeros, mask);
            let after = this.builder.create_block();
            this.builder.ins().jump(after, &[]);
            after
        });
    }

    // What crosses barriers.

    fn slot_address(&mut self, slot: Slot) -> Clif {
        let ty = self.code.slots[slot.0 as usize];
        let first = self.builder.ins().uextend(I64, self.first_lane);
        let own = self.times(first, i64::from(lane_bytes(ty)));
        let base = self.builder.ins().iadd_imm_s(self.scratch, i64::from(self.layout.slots[slot.0 as usize]));
        self.builder.ins().iadd(base, own)
    }

    pub(super) fn keep(&mut self, slot: Slot, reg: Reg) {
        let address = self.slot_address(slot);
        let pieces = self.vector(reg);
        for (k, &piece) in pieces.iter().enumerate() {
            self.builder.ins().store(trusted(), piece, address, 16 * k as i32);
        }
    }

    pub(super) fn recall(&mut self, slot: Slot) -> Pieces {
        let address = self.slot_address(slot);
        self.reload(self.code.slots[slot.0 as usize], address)
    }
}

/// The stack memory that is written where a lane has nowhere to write.
const UNREAD: usize = 5;

/// The type of a mask with lanes as wide as those of `ty`.
pub(super) fn mask_type(ty: ValueType) -> cranelift_codegen::ir::Type {
    if lane_bytes(ty) == 8 { I64X2 } else { I32X4 }
}

/// Vectors are reinterpreted in memory order, which is the same on every machine that is supported.
pub(super) fn little() -> MemFlagsData {
    let mut flags = MemFlagsData::new();
    flags.set_endianness(cranelift_codegen::ir::Endianness::Little);
    flags
}
