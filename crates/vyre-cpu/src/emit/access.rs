//! Memory accesses: wide where lanes are consecutive, single where they are not, and the rules for
//! out-of-range indices.
//!
//! A wide access needs all its lanes in range (and running, for a store); otherwise lanes go one by
//! one, in cold code. A private array interleaves its elements by lane, so that all lanes at one
//! index are consecutive.

use super::call::{Passed, Scalars};
use super::narrow::{Width, narrow};
use super::ranges::Range;
use super::{Emitter, Neighbours, Overlap, Pieces, element_bytes, lane_bytes, lane_type, scalar_type};
use crate::piece::{Block, I8, I32, I64, IntOrder, Lane, Narrow, Value as Operand};
use crate::routines;
use crate::vector::{Calc, Index, Reg, RegType, Store, VectorSlot};
use vyre_foundation::ir::Access;
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, Value, ValueType};

impl Emitter<'_> {
    /// Records a register that is loaded from consecutive elements.
    pub(super) fn note_neighbours(&mut self, reg: Reg, calc: &Calc) {
        if let Calc::Load {
            place: Place::Buffer(buffer),
            element: element @ (DataType::U8 | DataType::U16 | DataType::U32),
            index: Index::Consecutive(first),
            checked: false,
        } = calc
            && matches!(self.kernel.buffer(*buffer).decl.access, Access::Read | Access::Uniform)
        {
            let neighbours = Neighbours { buffer: *buffer, element: *element, first: *first };
            self.neighbours[reg.0 as usize] = Some(neighbours);
        }
    }

    pub(super) fn load(
        &mut self,
        place: Place,
        element: DataType,
        index: Index,
        checked: bool,
        reg_type: RegType,
    ) -> Pieces {
        match (place, index) {
            (Place::Buffer(buffer), Index::Same(index)) => {
                let index = self.scalar(index);
                let index = self.builder.extend_unsigned(I64, index);
                vec![self.load_one(buffer, element, index, checked)]
            }
            (Place::Buffer(buffer), Index::Consecutive(base)) => {
                self.load_wide(buffer, element, base, checked)
            }
            (Place::Buffer(buffer), Index::Strided(base, stride)) => {
                self.load_strided(buffer, element, (base, stride), checked)
            }
            (Place::Buffer(buffer), Index::Spaced(base, stride)) => {
                self.load_spaced(buffer, element, [base, stride], checked)
            }
            (Place::Buffer(buffer), Index::Mostly { each, base, when }) => {
                self.load_mostly(buffer, element, [each, base, when], checked)
            }
            (Place::Buffer(buffer), Index::Each(index)) => match self.neighbours[index.0 as usize] {
                Some(from) if !checked => self.look_up(buffer, element, from),
                Some(from) => self.look_up_checked(buffer, element, index, from),
                None => {
                    let index = self.vector(index);
                    self.gather(buffer, element, &index, checked)
                }
            },
            (Place::Array(array), Index::Same(index)) if !reg_type.vector => {
                vec![self.load_array_one(array.0, index, reg_type.ty, checked)]
            }
            (Place::Array(array), Index::Same(index)) => self.load_array_row(array.0, index, reg_type.ty),
            (Place::Array(array), Index::Consecutive(base)) => {
                let index = self.consecutive(base);
                self.gather_array(array.0, &index, reg_type.ty)
            }
            (Place::Array(array), Index::Strided(base, stride)) => {
                let index = self.strided(base, stride);
                self.gather_array(array.0, &index, reg_type.ty)
            }
            (Place::Array(array), Index::Spaced(base, stride)) => {
                let index = self.spaced(base, stride);
                self.gather_array(array.0, &index, reg_type.ty)
            }
            (Place::Array(array), Index::Mostly { each: index, .. } | Index::Each(index)) => {
                let index = self.vector(index);
                self.gather_array(array.0, &index, reg_type.ty)
            }
        }
    }

    /// Returns the vector `base + lane number`.
    fn consecutive(&mut self, base: Reg) -> Pieces {
        let base = self.vector(base);
        let numbers = self.lane_numbers();
        base.into_iter().zip(numbers).map(|(a, b)| self.builder.add(a, b)).collect()
    }

    pub(super) fn address(&mut self, buffer: BufferId, element: DataType, index: Operand) -> Operand {
        let (data, _) = self.buffers[buffer.index()];
        let offset = self.builder.times(index, element_bytes(element));
        self.builder.add(data, offset)
    }

    /// Loads one element at a 64-bit index, as a scalar.
    fn load_one(&mut self, buffer: BufferId, element: DataType, index: Operand, checked: bool) -> Operand {
        if !checked {
            let address = self.address(buffer, element, index);
            return self.load_element(element, address);
        }
        let (_, length) = self.buffers[buffer.index()];
        let inside = self.below(index, length);
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let loaded = self.builder.append_param(after, scalar_type(element.value_type()));
        self.builder.set_cold(slow);
        self.leave_unless(inside, slow, fast);
        self.builder.begin(fast);
        let address = self.address(buffer, element, index);
        let value = self.load_element(element, address);
        self.builder.jump(after, &[value]);
        self.builder.begin(slow);
        let zero = self.constant_scalar(Value::zero(element.value_type()));
        self.builder.jump(after, &[zero]);
        self.builder.begin(after);
        loaded
    }

    pub(super) fn load_element(&mut self, element: DataType, address: Operand) -> Operand {
        if let Some(narrow) = narrow(element) {
            return self.builder.load_narrow(I32, narrow, address, 0);
        }
        match element {
            DataType::Bool => {
                let byte = self.builder.load(I8, address, 0);
                self.builder.compare_const(IntOrder::NotEqual, byte, 0)
            }
            DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => unreachable!("they are narrow"),
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                self.builder.load(scalar_type(element.value_type()), address, 0)
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are read as their bits"),
        }
    }

    pub(super) fn store_element(&mut self, element: DataType, value: Operand, address: Operand) {
        if let Some(narrow) = narrow(element) {
            return self.builder.store_narrow(narrow.bytes, value, address, 0);
        }
        match element {
            DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => unreachable!("they are narrow"),
            DataType::Bool
            | DataType::U32
            | DataType::I32
            | DataType::U64
            | DataType::I64
            | DataType::F32
            | DataType::F64 => self.builder.store(value, address, 0),
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are written as their bits"),
        };
    }

    /// Converts a scalar to a vector lane.
    pub(super) fn lane_of(&mut self, ty: ValueType, scalar: Operand) -> Operand {
        if ty == ValueType::Bool { self.mask_lane(scalar) } else { scalar }
    }

    /// Loads a lane from stack memory as a scalar.
    pub(super) fn spilled_lane(&mut self, ty: ValueType, address: Operand, lane: Operand) -> Operand {
        let offset = self.builder.times(lane, i64::from(lane_bytes(ty)));
        let address = self.builder.add(address, offset);
        let value = self.builder.load(lane_type(ty), address, 0);
        if ty == ValueType::Bool { self.builder.compare_const(IntOrder::NotEqual, value, 0) } else { value }
    }

    fn load_wide(&mut self, buffer: BufferId, element: DataType, base: Reg, checked: bool) -> Pieces {
        self.load_wide_as(buffer, element, base, checked, Width::Full)
    }

    /// Loads consecutive elements into lanes of 32 or 64 bits, or into half lanes.
    pub(super) fn load_wide_as(
        &mut self,
        buffer: BufferId,
        element: DataType,
        base: Reg,
        checked: bool,
        width: Width,
    ) -> Pieces {
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        let wide = |this: &mut Self| {
            let address = this.address(buffer, element, index);
            match width {
                Width::Full => this.wide_pieces(element, address),
                Width::Half => this.half_pieces(element, address),
            }
        };
        if !checked {
            return wide(self);
        }
        let ty = element.value_type();
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        let inside = self.all_inside(buffer, index);
        self.builder.branch(inside, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        let pieces = wide(self);
        for &piece in &pieces {
            self.builder.append_param(after, self.builder.ty(piece));
        }
        self.builder.jump(after, &pieces);
        self.builder.begin(slow);
        let running = self.running_bits(None);
        let scalars = Scalars { number: buffer.index() as u64, index: Some(index), running: Some(running) };
        self.call(routines::load_neighbours(element), scalars);
        let mut pieces = self.results(ty);
        if width == Width::Half {
            pieces = self.lower_halves(&pieces);
        }
        self.builder.jump(after, &pieces);
        self.builder.begin(after);
        self.builder.params(after).to_vec()
    }

    /// Loads elements at arbitrary indices that are consecutive in most vectors.
    fn load_mostly(
        &mut self,
        buffer: BufferId,
        element: DataType,
        [each, base, when]: [Reg; 3],
        checked: bool,
    ) -> Pieces {
        let ty = element.value_type();
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        for _ in 0..self.piece_count(ty) {
            self.builder.append_param(after, self.piece_type(ty));
        }
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        let mut is_fast = self.scalar(when);
        if checked {
            let inside = self.all_inside(buffer, index);
            is_fast = self.builder.and(is_fast, inside);
        }
        self.builder.branch(is_fast, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        let address = self.address(buffer, element, index);
        let pieces = self.wide_pieces(element, address);
        self.builder.jump(after, &pieces);
        self.builder.begin(slow);
        let each = self.vector(each);
        let pieces = self.gather(buffer, element, &each, checked);
        self.builder.jump(after, &pieces);
        self.builder.begin(after);
        self.builder.params(after).to_vec()
    }

    /// Whether a whole vector starting at a 64-bit index is in range.
    fn all_inside(&mut self, buffer: BufferId, index: Operand) -> Operand {
        let (_, length) = self.buffers[buffer.index()];
        let end = self.builder.add_const(index, i64::from(self.code.lanes));
        self.builder.compare(IntOrder::UnsignedLessOrEqual, end, length)
    }

    fn wide_pieces(&mut self, element: DataType, address: Operand) -> Pieces {
        if let Some(narrow) = narrow(element) {
            let count = self.piece_count(ValueType::U32);
            return self.builder.load_narrow_pieces(narrow, count, address);
        }
        match element {
            DataType::Bool => {
                let words = self.wide_pieces(DataType::U8, address);
                let zero = self.constant_piece(ValueType::U32, 0);
                words.into_iter().map(|word| self.builder.compare(IntOrder::NotEqual, word, zero)).collect()
            }
            DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 => unreachable!("they are narrow"),
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                self.reload(element.value_type(), address)
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are read as their bits"),
        }
    }

    pub(super) fn store_wide_pieces(&mut self, store: &Store, pieces: &[Operand], address: Operand) {
        if let Some(lanes) = self.lanes_to_store(store.element, pieces) {
            let bytes = element_bytes(store.element);
            for (number, lane) in lanes.into_iter().enumerate() {
                let address = self.builder.add_const(address, bytes * number as i64);
                self.store_element(store.element, lane, address);
            }
            return;
        }
        let range = self.ranges.integer(store.value);
        match store.element {
            DataType::Bool => self.store_narrow(pieces, 1, 1, address),
            DataType::U8 | DataType::I8 if range.is_some_and(Range::is_byte) => {
                self.builder.store_narrow_pieces(1, pieces, address);
            }
            DataType::U16 | DataType::I16 if range.is_some_and(Range::is_half) => {
                self.builder.store_narrow_pieces(2, pieces, address);
            }
            DataType::U8 | DataType::I8 => self.store_narrow(pieces, 0xFF, 1, address),
            DataType::U16 | DataType::I16 => self.store_narrow(pieces, 0xFFFF, 2, address),
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F32 | DataType::F64 => {
                self.store_pieces(pieces, address, 0);
            }
            DataType::F16 | DataType::Bf16 => unreachable!("half floats are written as their bits"),
        }
    }

    /// Returns narrow elements that were loaded lane by lane, as scalars: storing them costs less
    /// than collecting them in a vector.
    fn lanes_to_store(&self, element: DataType, pieces: &[Operand]) -> Option<Vec<Operand>> {
        narrow(element)?;
        let lanes: Option<Vec<Vec<Operand>>> =
            pieces.iter().map(|&piece| self.builder.built_from(piece)).collect();
        lanes.map(|lanes| lanes.concat())
    }

    /// Stores the low `bytes` bytes of each 32-bit lane, masked by `kept`.
    fn store_narrow(&mut self, pieces: &[Operand], kept: u64, bytes: u8, address: Operand) {
        let kept = self.constant_piece(ValueType::U32, kept);
        let pieces: Pieces = pieces.iter().map(|&piece| self.builder.and(piece, kept)).collect();
        self.builder.store_narrow_pieces(bytes, &pieces, address);
    }

    /// Loads elements at arbitrary indices. An out-of-range lane reads element 0 and discards it.
    pub(super) fn gather(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: &[Operand],
        checked: bool,
    ) -> Pieces {
        let ty = element.value_type();
        let mut index = index.to_vec();
        let mut inside = Vec::new();
        if checked {
            let (_, length) = self.buffers[buffer.index()];
            let length = self.builder.reduce(I32, length);
            let length = self.builder.splat(self.piece_type(ValueType::U32), length);
            for piece in &mut index {
                let ok = self.builder.compare(IntOrder::UnsignedLess, *piece, length);
                *piece = self.builder.and(*piece, ok);
                inside.push(ok);
            }
        }
        let indices = self.wide_lanes(&index);
        let pieces = self.load_lanes(buffer, element, &indices);
        if checked { self.keep_lanes(ty, pieces, &inside) } else { pieces }
    }

    /// Loads elements at indices that are themselves consecutive elements. The indices are reloaded
    /// lane by lane, which costs less than extracting them from a vector.
    fn look_up(&mut self, buffer: BufferId, element: DataType, from: Neighbours) -> Pieces {
        let ty = element.value_type();
        let first = self.scalar(from.first);
        let first = self.builder.extend_unsigned(I64, first);
        let start = self.address(from.buffer, from.element, first);
        let bytes = element_bytes(from.element);
        self.collect_lanes(ty, |this, lane| {
            let offset = lane as i32 * bytes as i32;
            let narrow = Narrow { bytes: bytes as u8, signed: false };
            let index = this.builder.load_narrow(I64, narrow, start, offset);
            let address = this.address(buffer, element, index);
            let value = this.load_element(element, address);
            this.lane_of(ty, value)
        })
    }

    /// The same for indices that can be out of range: one test covers all lanes.
    fn look_up_checked(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: Reg,
        from: Neighbours,
    ) -> Pieces {
        let ty = element.value_type();
        let index = self.vector(index);
        let (_, length) = self.buffers[buffer.index()];
        let length = self.builder.reduce(I32, length);
        let length = self.builder.splat(self.piece_type(ValueType::U32), length);
        let inside: Pieces =
            index.iter().map(|&piece| self.builder.compare(IntOrder::UnsignedLess, piece, length)).collect();
        let all = inside.into_iter().reduce(|all, next| self.builder.and(all, next));
        let Some(all) = all else { unreachable!("a vector has a piece") };
        let all = self.builder.all_true(all);
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold(slow);
        for _ in 0..self.piece_count(ty) {
            self.builder.append_param(after, self.piece_type(ty));
        }
        self.builder.branch(all, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        let pieces = self.look_up(buffer, element, from);
        self.builder.jump(after, &pieces);
        self.builder.begin(slow);
        let pieces = self.gather(buffer, element, &index, true);
        self.builder.jump(after, &pieces);
        self.builder.begin(after);
        self.builder.params(after).to_vec()
    }

    /// Loads one element per lane at 64-bit indices that are in range.
    pub(super) fn load_lanes(&mut self, buffer: BufferId, element: DataType, indices: &[Operand]) -> Pieces {
        let ty = element.value_type();
        self.collect_lanes(ty, |this, lane| {
            let address = this.address(buffer, element, indices[lane]);
            let value = this.load_element(element, address);
            this.lane_of(ty, value)
        })
    }

    /// Extracts the lanes of a vector of `u32`, each as 64 bits. Two lanes are extracted together,
    /// at the cost of one.
    pub(super) fn wide_lanes(&mut self, pieces: &[Operand]) -> Vec<Operand> {
        let mut lanes = Vec::with_capacity(self.lanes());
        for &piece in pieces {
            let pairs = self.builder.bitcast(self.builder.piece(Lane::I64), piece);
            for pair in 0..self.piece_lanes(ValueType::U64) {
                let both = self.builder.extract(pairs, pair);
                let low = self.builder.reduce(I32, both);
                lanes.push(self.builder.extend_unsigned(I64, low));
                lanes.push(self.builder.shift_right_const(both, 32));
            }
        }
        lanes
    }

    /// Builds a vector lane by lane.
    pub(super) fn collect_lanes(
        &mut self,
        ty: ValueType,
        mut lane_value: impl FnMut(&mut Self, usize) -> Operand,
    ) -> Pieces {
        let lanes = self.piece_lanes(ty);
        let mut pieces = Vec::new();
        for piece in 0..self.piece_count(ty) {
            let values: Pieces = (0..lanes).map(|lane| lane_value(self, piece * lanes + lane)).collect();
            pieces.push(self.builder.build(self.piece_type(ty), &values));
        }
        pieces
    }

    /// Keeps the lanes of the mask and zeroes the others.
    pub(super) fn keep_lanes(&mut self, ty: ValueType, pieces: Pieces, mask: &[Operand]) -> Pieces {
        let mask = self.native_mask(ty, mask);
        pieces
            .into_iter()
            .zip(mask)
            .map(|(piece, mask)| {
                let bits = self.builder.bitcast(self.mask_type(ty), piece);
                let kept = self.builder.and(bits, mask);
                self.builder.bitcast(self.piece_type(ty), kept)
            })
            .collect()
    }

    // Stores.

    pub(super) fn store(&mut self, store: &Store) {
        match store.place {
            Place::Buffer(buffer) => self.store_buffer(buffer, store),
            Place::Array(array) => match store.index {
                Index::Same(index) if self.code.invocations == 1 => {
                    self.store_array_one(array.0, index, store);
                }
                Index::Same(index) => self.store_array_row(array.0, index, store),
                Index::Consecutive(base) => {
                    let index = self.consecutive(base);
                    self.scatter_array(array.0, &index, store);
                }
                Index::Strided(base, stride) => {
                    let index = self.strided(base, stride);
                    self.scatter_array(array.0, &index, store);
                }
                Index::Spaced(base, stride) => {
                    let index = self.spaced(base, stride);
                    self.scatter_array(array.0, &index, store);
                }
                Index::Mostly { each: index, .. } | Index::Each(index) => {
                    let index = self.vector(index);
                    self.scatter_array(array.0, &index, store);
                }
            },
        }
    }

    fn store_buffer(&mut self, buffer: BufferId, store: &Store) {
        match store.index {
            Index::Same(index) if !self.reg_type(store.value).vector => self.store_same(buffer, index, store),
            Index::Same(index) => {
                let index = self.vector(index);
                self.scatter(buffer, &index, store);
            }
            Index::Consecutive(base) => self.store_wide(buffer, base, store),
            Index::Strided(base, stride) => self.store_strided(buffer, base, stride, store),
            Index::Spaced(base, stride) => self.store_spaced(buffer, [base, stride], store),
            Index::Mostly { each: index, .. } | Index::Each(index) => {
                let index = self.vector(index);
                self.scatter(buffer, &index, store);
            }
        }
    }

    /// Stores one element, the same from every running lane.
    fn store_same(&mut self, buffer: BufferId, index: Reg, store: &Store) {
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        let mut condition = store.mask.map(|mask| self.any(mask));
        if store.checked {
            let inside = self.below(index, self.buffers[buffer.index()].1);
            condition = Some(match condition {
                None => inside,
                Some(running) => self.builder.and(running, inside),
            });
        }
        let value = self.scalar(store.value);
        self.only_if(condition, |this| {
            let address = this.address(buffer, store.element, index);
            this.store_element(store.element, value, address);
        });
    }

    /// Runs `then` under a condition, or unconditionally if there is none.
    fn only_if(&mut self, condition: Option<Operand>, then: impl FnOnce(&mut Self)) {
        let Some(condition) = condition else { return then(self) };
        let (yes, after) = (self.builder.create_block(), self.builder.create_block());
        self.builder.branch(condition, (yes, &[]), (after, &[]));
        self.builder.begin(yes);
        then(self);
        self.builder.jump(after, &[]);
        self.builder.begin(after);
    }

    fn store_wide(&mut self, buffer: BufferId, base: Reg, store: &Store) {
        let index = self.scalar(base);
        let index = self.builder.extend_unsigned(I64, index);
        let pieces = self.vector(store.value);
        // A data-dependent mask is usually mixed; a guard or the end of a row rarely is.
        let is_mask =
            store.mask.is_some_and(|mask| self.guards[mask.0 as usize].is_none()) && self.remaining.is_none();
        let is_masked = is_mask && self.builder.stores_masked();
        let whole = store.mask.filter(|_| !is_masked);
        let mut condition = whole.map(|mask| self.all(mask));
        if store.checked {
            let inside = self.all_inside(buffer, index);
            condition = Some(match condition {
                None => inside,
                Some(all) => self.builder.and(all, inside),
            });
        }
        let wide = |this: &mut Self| {
            let address = this.address(buffer, store.element, index);
            if let Some(mask) = store.mask.filter(|_| is_masked) {
                return this.store_masked(store, mask, address);
            }
            // Data rewritten in a loop is better kept in the caches.
            if this.past_caches.get(buffer.index()) == Some(&true) && this.loops.is_empty() {
                return this.store_past_caches(store.element, &pieces, address);
            }
            if !this.store_halves(store, address) {
                this.store_wide_pieces(store, &pieces, address);
            }
        };
        let Some(condition) = condition else { return wide(self) };
        let (fast, slow, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        if store.checked || !is_mask {
            self.builder.set_cold(slow);
        }
        self.builder.branch(condition, (fast, &[]), (slow, &[]));
        self.builder.begin(fast);
        wide(self);
        self.builder.jump(after, &[]);
        self.builder.begin(slow);
        if !store.checked && is_mask {
            let running = self.running_bits(store.mask);
            self.store_some(buffer, store.element, index, &pieces, running);
        } else {
            self.store_border(buffer, index, store, after);
        }
        self.builder.jump(after, &[]);
        self.builder.begin(after);
    }

    /// Stores to consecutive elements from a 64-bit index on where some lanes do not run or are out
    /// of range; goes to `after` on a path of its own where all are in range.
    fn store_border(&mut self, buffer: BufferId, index: Operand, store: &Store, after: Block) {
        if let Some(mask) = store.mask.filter(|_| self.builder.stores_masked()) {
            let (some, outside) = (self.builder.create_block(), self.builder.create_block());
            self.builder.set_cold(some);
            self.builder.set_cold(outside);
            let inside = self.all_inside(buffer, index);
            self.builder.branch(inside, (some, &[]), (outside, &[]));
            self.builder.begin(some);
            let address = self.address(buffer, store.element, index);
            self.store_masked(store, mask, address);
            self.builder.jump(after, &[]);
            self.builder.begin(outside);
        }
        let pieces = self.vector(store.value);
        let running = self.running_bits(store.mask);
        self.pass(Passed::First, &pieces);
        let scalars = Scalars { number: buffer.index() as u64, index: Some(index), running: Some(running) };
        self.call(routines::store_neighbours(store.element), scalars);
    }

    /// Stores to consecutive elements in the lanes of a mask.
    fn store_masked(&mut self, store: &Store, mask: Reg, address: Operand) {
        let bytes = element_bytes(store.element) as u8;
        let (pieces, masks) = match self.masked_halves(store, mask) {
            Some(halves) => halves,
            None => {
                let ty = store.element.value_type();
                let (pieces, mask) = (self.vector(store.value), self.vector(mask));
                let masks = self.native_mask(ty, &mask);
                if ty == ValueType::Bool {
                    let one = self.constant_piece(ValueType::U32, 1);
                    (pieces.iter().map(|&piece| self.builder.and(piece, one)).collect(), masks)
                } else {
                    (pieces, masks)
                }
            }
        };
        let mut offset = 0;
        for (piece, mask) in pieces.into_iter().zip(masks) {
            self.builder.store_masked(bytes, [piece, mask], address, offset);
            offset += self.builder.ty(piece).lane_count() as i32 * i32::from(bytes);
        }
    }

    /// Stores to consecutive elements from a 64-bit index on, in the running lanes. A
    /// data-dependent mask is usually mixed, so this is branch-free: inactive lanes write to memory
    /// that is never read.
    fn store_some(
        &mut self,
        buffer: BufferId,
        element: DataType,
        index: Operand,
        pieces: &[Operand],
        running: Operand,
    ) {
        let first = self.address(buffer, element, index);
        for lane in 0..self.lanes() {
            let address = self.builder.add_const(first, lane as i64 * element_bytes(element));
            let bit = self.builder.int(I32, 1 << lane);
            let bit = self.builder.and(running, bit);
            let runs = self.builder.compare_const(IntOrder::NotEqual, bit, 0);
            let address = self.address_if(runs, address);
            let value = self.scalar_lane(element.value_type(), pieces, lane);
            self.store_element(element, value, address);
        }
    }

    /// Stores whole pieces that are not read soon, bypassing the caches if the address is aligned.
    /// If it is not, the next vector of the row overlaps this one so far that its address is, where
    /// that is allowed and nothing decided it yet.
    fn store_past_caches(&mut self, element: DataType, pieces: &[Operand], address: Operand) {
        let (past, plain, after) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        let fifteen = self.builder.int(I64, 15);
        let beyond = self.builder.and(address, fifteen);
        let is_aligned = self.builder.compare_const(IntOrder::Equal, beyond, 0);
        self.builder.branch(is_aligned, (past, &[]), (plain, &[]));
        self.builder.begin(plain);
        self.store_pieces(pieces, address, 0);
        if let Some(overlap) = self.overlap.take() {
            self.overlap_by(overlap, beyond, element);
        }
        self.builder.jump(after, &[]);
        self.builder.begin(past);
        let mut offset = 0;
        for &piece in pieces {
            self.builder.store_past(piece, address, offset);
            offset += self.builder.ty(piece).bytes() as i32;
        }
        self.builder.jump(after, &[]);
        self.builder.begin(after);
    }

    /// Makes the next vector overlap this one by as many elements as fit into `beyond` bytes, if
    /// they fill them and the rest of the row is long enough.
    fn overlap_by(&mut self, overlap: Overlap, beyond: Operand, element: DataType) {
        let size = element_bytes(element);
        let elements = self.builder.shift_right_const(beyond, size.trailing_zeros());
        let part = self.builder.int(I64, size - 1);
        let part = self.builder.and(beyond, part);
        let fills = self.builder.compare_const(IntOrder::Equal, part, 0);
        let shortest = self.builder.int(I64, LONG_ROW * self.lanes() as i64);
        let is_long = self.builder.compare(IntOrder::UnsignedLess, shortest, overlap.left);
        let none = self.builder.int(I64, 0);
        let elements = self.builder.select(fills, elements, none);
        let elements = self.builder.select(is_long, elements, none);
        self.builder.set(overlap.invocations, elements);
    }

    /// Stores elements at arbitrary indices, lowest lane first, in lanes that run and are in range.
    pub(super) fn scatter(&mut self, buffer: BufferId, index: &[Operand], store: &Store) {
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

    /// Returns the running lanes as a bit mask.
    pub(super) fn running_bits(&mut self, mask: Option<Reg>) -> Operand {
        match mask {
            Some(mask) => {
                let mask = self.vector(mask);
                self.mask_bits(&mask)
            }
            None => {
                let every = (1 << self.lanes()) - 1;
                self.builder.int(I32, every)
            }
        }
    }

    /// Stores all lanes in sequence, without a loop; out-of-range lanes write to memory that is
    /// never read.
    fn scatter_all(&mut self, buffer: BufferId, index: &[Operand], values: &[Operand], store: &Store) {
        let indices = self.wide_lanes(index);
        self.store_lanes(buffer, indices, values, store);
    }

    /// Stores all lanes at 64-bit indices, in sequence.
    pub(super) fn store_lanes(
        &mut self,
        buffer: BufferId,
        indices: Vec<Operand>,
        values: &[Operand],
        store: &Store,
    ) {
        let (ty, element) = (store.element.value_type(), store.element);
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

    /// Returns the address if the condition holds, else that of stack memory which is never read.
    pub(super) fn address_if(&mut self, condition: Operand, address: Operand) -> Operand {
        let slot = self.lane_memory(UNREAD);
        let unread = self.builder.stack_address(slot);
        self.builder.select(condition, address, unread)
    }

    /// Extracts one lane of a vector as a scalar.
    pub(super) fn scalar_lane(&mut self, ty: ValueType, pieces: &[Operand], lane: usize) -> Operand {
        let lanes = self.piece_lanes(ty);
        let value = self.builder.extract(pieces[lane / lanes], lane % lanes);
        if ty == ValueType::Bool { self.builder.compare_const(IntOrder::NotEqual, value, 0) } else { value }
    }

    /// Builds a vector from scalars.
    pub(super) fn vector_of_scalars(&mut self, ty: ValueType, scalars: &[Operand]) -> Pieces {
        self.collect_lanes(ty, |this, lane| this.lane_of(ty, scalars[lane]))
    }

    // Private arrays.

    /// Address of the array for this vector of invocations.
    fn array_start(&mut self, array: u32) -> Operand {
        let info = &self.kernel.arrays[array as usize];
        let bytes = i64::from(info.count) * i64::from(lane_bytes(info.element));
        let first = self.builder.extend_unsigned(I64, self.first_lane);
        let own = self.builder.times(first, bytes);
        let base = self.builder.add_const(self.scratch, i64::from(self.layout.arrays[array as usize]));
        self.builder.add(base, own)
    }

    fn array_count(&mut self, array: u32) -> Operand {
        let count = i64::from(self.kernel.arrays[array as usize].count);
        self.builder.int(I64, count)
    }

    fn row_bytes(&self, ty: ValueType) -> i64 {
        i64::from(lane_bytes(ty)) * i64::from(self.code.invocations)
    }

    /// Loads an element of the array of a single invocation.
    fn load_array_one(&mut self, array: u32, index: Reg, ty: ValueType, checked: bool) -> Operand {
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        if !checked {
            let start = self.array_start(array);
            return self.spilled_lane(ty, start, index);
        }
        let count = self.array_count(array);
        let inside = self.below(index, count);
        let first = self.builder.int(I64, 0);
        let safe = self.builder.select(inside, index, first);
        let start = self.array_start(array);
        let value = self.spilled_lane(ty, start, safe);
        let zero = self.constant_scalar(Value::zero(ty));
        self.builder.select(inside, value, zero)
    }

    /// Stores an element of the array of a single invocation.
    fn store_array_one(&mut self, array: u32, index: Reg, store: &Store) {
        let ty = store.element.value_type();
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        let offset = self.builder.times(index, self.row_bytes(ty));
        let start = self.array_start(array);
        let mut address = self.builder.add(start, offset);
        if store.checked {
            let count = self.array_count(array);
            let inside = self.below(index, count);
            address = self.address_if(inside, address);
        }
        let value = self.scalar(store.value);
        let lane = self.lane_of(ty, value);
        self.builder.store(lane, address, 0);
    }

    fn load_array_row(&mut self, array: u32, index: Reg, ty: ValueType) -> Pieces {
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        let count = self.array_count(array);
        let inside = self.below(index, count);
        let first = self.builder.int(I64, 0);
        let safe = self.builder.select(inside, index, first);
        let row = self.row_bytes(ty);
        let offset = self.builder.times(safe, row);
        let start = self.array_start(array);
        let address = self.builder.add(start, offset);
        let pieces = self.reload(ty, address);
        let mask = self.broadcast(ValueType::Bool, inside);
        self.keep_lanes(ty, pieces, &mask)
    }

    fn store_array_row(&mut self, array: u32, index: Reg, store: &Store) {
        let ty = store.element.value_type();
        let index = self.scalar(index);
        let index = self.builder.extend_unsigned(I64, index);
        let count = self.array_count(array);
        let inside = self.below(index, count);
        let start = self.array_start(array);
        let values = self.vector(store.value);
        self.only_if(Some(inside), |this| {
            let row = this.row_bytes(ty);
            let offset = this.builder.times(index, row);
            let address = this.builder.add(start, offset);
            this.blend_to_memory(ty, address, &values, store.mask);
        });
    }

    /// Writes a vector to thread-private memory, in the lanes of the mask.
    fn blend_to_memory(&mut self, ty: ValueType, address: Operand, values: &[Operand], mask: Option<Reg>) {
        let mut values = values.to_vec();
        if let Some(mask) = mask {
            let old = self.reload(ty, address);
            let mask = self.vector(mask);
            values = self.blend(ty, &mask, &values, &old);
        }
        self.store_pieces(&values, address, 0);
    }

    fn lane_address(&mut self, start: Operand, ty: ValueType, index: Operand, lane: Operand) -> Operand {
        let row = self.row_bytes(ty);
        let row = self.builder.times(index, row);
        let column = self.builder.times(lane, i64::from(lane_bytes(ty)));
        let address = self.builder.add(start, row);
        self.builder.add(address, column)
    }

    fn gather_array(&mut self, array: u32, index: &[Operand], ty: ValueType) -> Pieces {
        let start = self.array_start(array);
        let count = u64::from(self.kernel.arrays[array as usize].count);
        let count = self.constant_piece(ValueType::U32, count);
        let mut safe = Vec::new();
        let mut inside = Vec::new();
        for &piece in index {
            let ok = self.builder.compare(IntOrder::UnsignedLess, piece, count);
            safe.push(self.builder.and(piece, ok));
            inside.push(ok);
        }
        let indices = self.wide_lanes(&safe);
        let pieces = self.collect_lanes(ty, |this, lane| {
            let column = this.builder.int(I64, lane as i64);
            let address = this.lane_address(start, ty, indices[lane], column);
            this.builder.load(lane_type(ty), address, 0)
        });
        self.keep_lanes(ty, pieces, &inside)
    }

    fn scatter_array(&mut self, array: u32, index: &[Operand], store: &Store) {
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

    fn scatter_array_all(
        &mut self,
        array: u32,
        start: Operand,
        index: &[Operand],
        values: &[Operand],
        ty: ValueType,
    ) {
        let count = self.array_count(array);
        let lanes = self.piece_lanes(ty);
        let indices = self.wide_lanes(index);
        for (lane, index) in indices.into_iter().enumerate() {
            let inside = self.below(index, count);
            let column = self.builder.int(I64, lane as i64);
            let address = self.lane_address(start, ty, index, column);
            let address = self.address_if(inside, address);
            let value = self.builder.extract(values[lane / lanes], lane % lanes);
            self.builder.store(value, address, 0);
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
        let (first, last) = (self.builder.int(I64, 0), self.array_count(array));
        self.frame_loop(first, last, |this, number| {
            let offset = this.builder.times(number, row);
            let address = this.builder.add(start, offset);
            this.blend_to_memory(ty, address, &zeros, mask);
            let after = this.builder.create_block();
            this.builder.jump(after, &[]);
            after
        });
    }

    // Values that cross barriers.

    fn slot_address(&mut self, slot: VectorSlot) -> Operand {
        let ty = self.code.slots[slot.0 as usize];
        let first = self.builder.extend_unsigned(I64, self.first_lane);
        let own = self.builder.times(first, i64::from(lane_bytes(ty)));
        let base = self.builder.add_const(self.scratch, i64::from(self.layout.slots[slot.0 as usize]));
        self.builder.add(base, own)
    }

    pub(super) fn keep(&mut self, slot: VectorSlot, reg: Reg) {
        let address = self.slot_address(slot);
        let pieces = self.vector(reg);
        self.store_pieces(&pieces, address, 0);
    }

    pub(super) fn recall(&mut self, slot: VectorSlot) -> Pieces {
        let address = self.slot_address(slot);
        self.reload(self.code.slots[slot.0 as usize], address)
    }
}

/// Stack memory for lanes that must not write to their target; never read.
const UNREAD: usize = 5;

/// Vectors that must follow in a row for one to overlap the next: what runs twice is then less than
/// a tenth.
const LONG_ROW: i64 = 4;
