//! Builder for functions: appends instructions block by block, and turns variables into values.
//!
//! Each block is written in one go, from [`Builder::begin`] to its end. When a block begins, all
//! jumps to it already exist, unless it was created as a loop head. So a variable that a block does
//! not write has the value its only predecessor ends with, or else gets a block parameter. The
//! arguments of those parameters are resolved when the function is complete; a parameter that
//! receives the same value on every edge is replaced by that value.

use super::{
    Block, BlockData, Edge, End, FloatOrder, Function, I8, I32, I64, Inst, IntOrder, Lane, Machine, Narrow,
    Op, Rounding, StackSlot, Type, Update, Value, Variable,
};
use crate::source_region::SourceRegion;
use smallvec::{SmallVec, smallvec};

pub(crate) struct Builder {
    pub(super) function: Function,
    /// The region of the values to come.
    region: SourceRegion,
    current: Block,
    blocks: Vec<Origin>,
    variables: Vec<VariableData>,
    /// Block parameters for variables, in order of creation.
    merges: Vec<Merge>,
}

/// Incoming control flow of a block.
#[derive(Default)]
struct Origin {
    predecessors: SmallVec<[Block; 2]>,
    /// Whether predecessors can be added after the block begins.
    is_head: bool,
}

struct VariableData {
    ty: Type,
    /// Value at the end of each block, sorted by block.
    values: Vec<(Block, Value)>,
}

/// A block parameter that represents a variable at the start of a block.
struct Merge {
    block: Block,
    variable: Variable,
    param: Value,
    /// Arguments by predecessor.
    incoming: SmallVec<[Value; 4]>,
}

impl Builder {
    /// Starts a function with the given parameters, in its entry block.
    pub(crate) fn new(machine: Machine, params: &[Type]) -> Builder {
        let function = Function {
            machine,
            insts: Vec::with_capacity(1024),
            regions: Vec::with_capacity(1024),
            operands: Vec::with_capacity(2048),
            blocks: Vec::new(),
            zeros: Vec::new(),
            slots: Vec::new(),
            patterns: Vec::new(),
        };
        let mut builder = Builder {
            function,
            region: SourceRegion::default(),
            current: Block(0),
            blocks: Vec::new(),
            variables: Vec::new(),
            merges: Vec::new(),
        };
        let entry = builder.create_block();
        for &ty in params {
            builder.append_param(entry, ty);
        }
        builder.begin(entry);
        builder
    }

    /// Returns the type of a piece with these lanes.
    pub(crate) fn piece(&self, lane: Lane) -> Type {
        Type::piece(lane, self.function.machine.piece_bytes)
    }

    pub(crate) fn ty(&self, value: Value) -> Type {
        self.function.ty(value)
    }

    /// Returns the scalars that a piece was built from, lane by lane, if it was.
    pub(crate) fn built_from(&self, piece: Value) -> Option<Vec<Value>> {
        (self.function.op(piece) == Op::Build).then(|| self.function.operands(piece).to_vec())
    }

    // Blocks.

    /// Returns the block being filled.
    pub(crate) fn current(&self) -> Block {
        self.current
    }

    pub(crate) fn create_block(&mut self) -> Block {
        self.blocks.push(Origin::default());
        self.function.blocks.push(BlockData {
            params: Vec::new(),
            first: 0,
            end: 0,
            ending: None,
            cold: false,
        });
        Block(self.blocks.len() as u32 - 1)
    }

    /// Creates a loop head: a block with back edges from the code it begins.
    pub(crate) fn create_loop(&mut self) -> Block {
        let block = self.create_block();
        self.blocks[block.index()].is_head = true;
        block
    }

    pub(crate) fn set_cold(&mut self, block: Block) {
        self.function.blocks[block.index()].cold = true;
    }

    pub(crate) fn append_param(&mut self, block: Block, ty: Type) -> Value {
        let param = self.define(Op::Param, ty, &[]);
        self.function.blocks[block.index()].params.push(param);
        param
    }

    pub(crate) fn params(&self, block: Block) -> &[Value] {
        &self.function.blocks[block.index()].params
    }

    /// Returns the function's parameters.
    pub(crate) fn entry_params(&self) -> &[Value] {
        self.params(Block(0))
    }

    /// Names the region of the kernel that the following values belong to.
    pub(crate) fn set_region(&mut self, region: SourceRegion) {
        self.region = region;
    }

    /// Continues in another block, which has not been begun.
    pub(crate) fn begin(&mut self, block: Block) {
        self.current = block;
        let at = self.function.insts.len() as u32;
        let data = &mut self.function.blocks[block.index()];
        (data.first, data.end) = (at, at);
    }

    fn define(&mut self, op: Op, ty: Type, operands: &[Value]) -> Value {
        let first = self.function.operands.len() as u32;
        self.function.operands.extend_from_slice(operands);
        self.function.insts.push(Inst { op, ty, first, count: operands.len() as u16 });
        self.function.regions.push(self.region);
        Value(self.function.insts.len() as u32 - 1)
    }

    pub(super) fn push(&mut self, op: Op, ty: Type, operands: &[Value]) -> Value {
        let value = self.define(op, ty, operands);
        let data = &mut self.function.blocks[self.current.index()];
        data.end = value.0 + 1;
        value
    }

    // Variables.

    pub(crate) fn declare(&mut self, ty: Type) -> Variable {
        self.variables.push(VariableData { ty, values: Vec::new() });
        Variable(self.variables.len() as u32 - 1)
    }

    pub(crate) fn set(&mut self, variable: Variable, value: Value) {
        self.set_in(self.current, variable, value);
    }

    fn set_in(&mut self, block: Block, variable: Variable, value: Value) {
        let values = &mut self.variables[variable.index()].values;
        match values.binary_search_by_key(&block, |&(block, _)| block) {
            Ok(at) => values[at].1 = value,
            Err(at) => values.insert(at, (block, value)),
        }
    }

    pub(crate) fn get(&mut self, variable: Variable) -> Value {
        self.value_in(self.current, variable)
    }

    /// Returns a variable's value at the end of a block, as far as it is written.
    fn value_in(&mut self, block: Block, variable: Variable) -> Value {
        let mut at = block;
        let value = loop {
            let data = &self.variables[variable.index()];
            if let Ok(found) = data.values.binary_search_by_key(&at, |&(block, _)| block) {
                break data.values[found].1;
            }
            let origin = &self.blocks[at.index()];
            if let ([only], false) = (&origin.predecessors[..], origin.is_head) {
                at = *only;
                continue;
            }
            let param = self.define(Op::Param, data.ty, &[]);
            self.merges.push(Merge { block: at, variable, param, incoming: smallvec![] });
            self.set_in(at, variable, param);
            break param;
        };
        if at != block {
            self.set_in(block, variable, value);
        }
        value
    }

    // Ends of blocks.

    fn end(&mut self, end: End) {
        let from = self.current;
        for edge in end.edges() {
            self.blocks[edge.to.index()].predecessors.push(from);
        }
        self.function.blocks[from.index()].ending = Some(end);
    }

    pub(crate) fn jump(&mut self, to: Block, arguments: &[Value]) {
        self.end(End::Jump(Edge { to, arguments: arguments.into() }));
    }

    /// Branches to the first block if the condition holds, else to the second, which is the
    /// likelier one where one is. The blocks differ.
    pub(crate) fn branch(&mut self, condition: Value, yes: (Block, &[Value]), no: (Block, &[Value])) {
        let edges = [yes, no].map(|(to, arguments)| Edge { to, arguments: arguments.into() });
        self.end(End::Branch(condition, edges));
    }

    pub(crate) fn give(&mut self, value: Value) {
        self.end(End::Return(value));
    }

    // Instructions.

    pub(crate) fn constant(&mut self, ty: Type, bits: u64) -> Value {
        let kept = u64::MAX >> (64 - 8 * ty.lane.bytes());
        self.push(Op::Const(bits & kept), ty, &[])
    }

    pub(crate) fn int(&mut self, ty: Type, number: i64) -> Value {
        self.constant(ty, number as u64)
    }

    pub(crate) fn lane_numbers(&mut self, first: u32) -> Value {
        let ty = self.piece(Lane::I32);
        self.push(Op::LaneNumbers(first), ty, &[])
    }

    /// Negates a condition; a comparison gets the complementary order.
    pub(crate) fn negated(&mut self, condition: Value) -> Value {
        if let Op::Compare(order) = self.function.op(condition) {
            let &[a, b] = self.function.operands(condition) else {
                unreachable!("a comparison has two operands")
            };
            return self.compare(order.complement(), a, b);
        }
        self.compare_const(IntOrder::Equal, condition, 0)
    }

    pub(crate) fn add(&mut self, a: Value, b: Value) -> Value {
        let ty = self.ty(a);
        // For floats, -0.0 + 0.0 differs from -0.0.
        if self.function.op(b) == Op::Const(0) && !ty.is_float() {
            return a;
        }
        self.push(Op::Add, ty, &[a, b])
    }

    /// Subtracts; a constant is added negated, which an address can absorb.
    pub(crate) fn sub(&mut self, a: Value, b: Value) -> Value {
        let ty = self.ty(a);
        match self.function.op(b) {
            Op::Const(bits) if ty == I32 => self.add_const(a, i64::from((bits as i32).wrapping_neg())),
            _ => self.push(Op::Sub, ty, &[a, b]),
        }
    }

    pub(crate) fn add_const(&mut self, value: Value, number: i64) -> Value {
        if number == 0 {
            return value;
        }
        let number = self.int(self.ty(value), number);
        self.add(value, number)
    }

    pub(crate) fn neg(&mut self, value: Value) -> Value {
        let ty = self.ty(value);
        match self.function.op(value) {
            Op::Const(bits) if !ty.is_float() => self.int(ty, (bits as i64).wrapping_neg()),
            _ => self.push(Op::Neg, ty, &[value]),
        }
    }

    /// Multiplies a value by a constant; powers of two become shifts, which an address can absorb.
    pub(crate) fn times(&mut self, value: Value, number: i64) -> Value {
        if number.count_ones() == 1 {
            return self.shift_left_const(value, number.trailing_zeros());
        }
        let number = self.int(self.ty(value), number);
        self.mul(value, number)
    }

    pub(crate) fn shift_left_const(&mut self, value: Value, count: u32) -> Value {
        self.shifted(Op::ShiftLeft, value, count)
    }

    pub(crate) fn shift_right_const(&mut self, value: Value, count: u32) -> Value {
        self.shifted(Op::ShiftRight, value, count)
    }

    fn shifted(&mut self, op: Op, value: Value, count: u32) -> Value {
        if count == 0 || self.function.op(value) == Op::Const(0) {
            return value;
        }
        let count = self.int(I32, count.into());
        self.push(op, self.ty(value), &[value, count])
    }

    pub(crate) fn compare(&mut self, order: IntOrder, a: Value, b: Value) -> Value {
        let ty = self.ty(a).compared();
        self.push(Op::Compare(order), ty, &[a, b])
    }

    pub(crate) fn compare_const(&mut self, order: IntOrder, a: Value, number: i64) -> Value {
        let number = self.int(self.ty(a), number);
        self.compare(order, a, number)
    }

    pub(crate) fn compare_floats(&mut self, order: FloatOrder, a: Value, b: Value) -> Value {
        let ty = self.ty(a).compared();
        self.push(Op::CompareFloats(order), ty, &[a, b])
    }

    pub(crate) fn select(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        self.push(Op::Select, self.ty(yes), &[condition, yes, no])
    }

    pub(crate) fn choose(&mut self, mask: Value, yes: Value, no: Value) -> Value {
        self.push(Op::Choose, self.ty(yes), &[mask, yes, no])
    }

    pub(crate) fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.push(Op::Fma, self.ty(a), &[a, b, c])
    }

    pub(crate) fn round(&mut self, to: Rounding, a: Value) -> Value {
        self.push(Op::Round(to), self.ty(a), &[a])
    }

    pub(crate) fn int_min(&mut self, signed: bool, a: Value, b: Value) -> Value {
        self.push(Op::IntMin { signed }, self.ty(a), &[a, b])
    }

    pub(crate) fn int_max(&mut self, signed: bool, a: Value, b: Value) -> Value {
        self.push(Op::IntMax { signed }, self.ty(a), &[a, b])
    }

    /// Truncates a piece of singles towards zero; all must fit an `i32`.
    pub(crate) fn truncate_pieces(&mut self, a: Value) -> Value {
        let ty = self.piece(Lane::I32);
        self.push(Op::TruncateInt, ty, &[a])
    }

    pub(crate) fn div(&mut self, signed: bool, a: Value, b: Value) -> Value {
        self.push(Op::Div { signed }, self.ty(a), &[a, b])
    }

    pub(crate) fn rem(&mut self, signed: bool, a: Value, b: Value) -> Value {
        self.push(Op::Rem { signed }, self.ty(a), &[a, b])
    }

    pub(crate) fn mul_high(&mut self, signed: bool, a: Value, b: Value) -> Value {
        self.push(Op::MulHigh { signed }, self.ty(a), &[a, b])
    }

    pub(crate) fn extend(&mut self, signed: bool, to: Type, a: Value) -> Value {
        if let (Op::Const(bits), false) = (self.function.op(a), signed) {
            return self.constant(to, bits);
        }
        self.push(Op::Extend { signed }, to, &[a])
    }

    pub(crate) fn extend_unsigned(&mut self, to: Type, a: Value) -> Value {
        self.extend(false, to, a)
    }

    pub(crate) fn any_true(&mut self, mask: Value) -> Value {
        self.push(Op::AnyTrue, I8, &[mask])
    }

    pub(crate) fn all_true(&mut self, mask: Value) -> Value {
        self.push(Op::AllTrue, I8, &[mask])
    }

    pub(crate) fn high_bits(&mut self, mask: Value) -> Value {
        self.push(Op::HighBits, I32, &[mask])
    }

    pub(crate) fn build(&mut self, ty: Type, lanes: &[Value]) -> Value {
        self.push(Op::Build, ty, lanes)
    }

    pub(crate) fn extract(&mut self, piece: Value, lane: usize) -> Value {
        let ty = self.ty(piece).lane_type();
        self.push(Op::Extract(lane as u8), ty, &[piece])
    }

    pub(crate) fn splat_lane(&mut self, piece: Value, lane: u32) -> Value {
        self.push(Op::SplatLane(lane as u8), self.ty(piece), &[piece])
    }

    pub(crate) fn swap(&mut self, piece: Value, bit: u32) -> Value {
        self.push(Op::Swap(bit as u8), self.ty(piece), &[piece])
    }

    pub(crate) fn move_up_within(&mut self, below: Value, piece: Value, by: u8) -> Value {
        self.push(Op::MoveUpWithin(by), self.ty(piece), &[below, piece])
    }

    pub(crate) fn interleave(&mut self, bytes: u8, high: bool, a: Value, b: Value) -> Value {
        self.push(Op::Interleave { bytes, high }, self.ty(a), &[a, b])
    }

    /// Transposes a square: lane k of result r is lane r of piece k. The pieces have 32-bit lanes,
    /// which are taken as lanes of `bytes` bytes.
    pub(crate) fn transpose(&mut self, bytes: u8, pieces: &[Value]) -> Vec<Value> {
        let mut pieces = pieces.to_vec();
        let (mut width, mut distance) = (bytes, 1);
        while distance < pieces.len() {
            for first in (0..pieces.len()).filter(|at| at & distance == 0) {
                let [a, b] = [pieces[first], pieces[first + distance]];
                pieces[first] = self.interleave(width, false, a, b);
                pieces[first + distance] = self.interleave(width, true, a, b);
            }
            (width, distance) = (2 * width, 2 * distance);
        }
        // Four lanes of a group come out in the order 0, 2, 1, 3.
        let place = |result: usize| match bytes {
            4 => result & !3 | (result & 1) << 1 | (result >> 1) & 1,
            _ => result,
        };
        (0..pieces.len()).map(|result| pieces[place(result)]).collect()
    }

    /// Builds a piece of 32-bit lanes, each taken from a lane of some piece.
    pub(crate) fn gather_lanes(&mut self, places: &[(Value, u8)]) -> Value {
        let count = places.len() as u32;
        let mut from: SmallVec<[Value; 8]> = SmallVec::new();
        for (piece, _) in places {
            if !from.contains(piece) {
                from.push(*piece);
            }
        }
        let mut others = from[1..].iter().copied();
        let first = others.next().unwrap_or(from[0]);
        let of_two = places.iter().map(|&(piece, lane)| match piece {
            piece if piece == from[0] => u32::from(lane),
            piece if piece == first => u32::from(lane) + count,
            _ => 0,
        });
        let mut gathered = self.shuffle(from[0], first, of_two);
        for other in others {
            let order = (0..).zip(places).map(
                |(here, &(piece, lane))| {
                    if piece == other { u32::from(lane) + count } else { here }
                },
            );
            gathered = self.shuffle(gathered, other, order);
        }
        gathered
    }

    fn shuffle(&mut self, a: Value, b: Value, order: impl Iterator<Item = u32> + Clone) -> Value {
        if order.clone().eq(0..self.ty(a).lane_count()) {
            return a;
        }
        let order = (0..).zip(order).fold(0, |order, (lane, from)| order | from << (4 * lane));
        self.push(Op::Shuffle(order), self.ty(a), &[a, b])
    }

    /// Shuffles bytes within each 16-byte group; a pattern byte above 127 yields zero.
    pub(crate) fn shuffle_bytes(&mut self, piece: Value, pattern: [u8; 32]) -> Value {
        let ty = self.piece(Lane::I8);
        let known = self.function.patterns.iter().position(|known| *known == pattern);
        let number = known.unwrap_or_else(|| {
            self.function.patterns.push(pattern);
            self.function.patterns.len() - 1
        });
        let pattern = self.push(Op::Pattern(number as u32), ty, &[]);
        let bytes = self.bitcast(ty, piece);
        self.push(Op::ShuffleBytes, ty, &[bytes, pattern])
    }

    /// Loads a piece of bytes, each 16-byte group from a separate offset.
    pub(crate) fn load_halves(&mut self, address: Value, offsets: &[i32]) -> Value {
        let ty = self.piece(Lane::I8);
        match *offsets {
            [low, high] => self.push(Op::LoadHalves(low, high), ty, &[address]),
            _ => self.load(ty, address, offsets[0]),
        }
    }

    /// Widens the lower and the upper half of 32-bit or 16-bit lanes to twice the width.
    pub(crate) fn widen(&mut self, signed: bool, piece: Value) -> [Value; 2] {
        [false, true].map(|high| self.widen_half(signed, high, piece))
    }

    pub(crate) fn widen_half(&mut self, signed: bool, high: bool, piece: Value) -> Value {
        let to = if self.ty(piece).lane == Lane::I16 { Lane::I32 } else { Lane::I64 };
        let ty = self.piece(to);
        self.push(Op::Widen { signed, high }, ty, &[piece])
    }

    pub(crate) fn widen_float(&mut self, piece: Value) -> [Value; 2] {
        let ty = self.piece(Lane::F64);
        [false, true].map(|high| self.push(Op::WidenFloat { high }, ty, &[piece]))
    }

    pub(crate) fn narrow_float(&mut self, low: Value, high: Value) -> Value {
        let ty = self.piece(Lane::F32);
        self.push(Op::NarrowFloat, ty, &[low, high])
    }

    pub(crate) fn low_halves(&mut self, low: Value, high: Value) -> Value {
        let ty = self.piece(Lane::I32);
        self.push(Op::LowHalves, ty, &[low, high])
    }

    pub(crate) fn pack(&mut self, low: Value, high: Value) -> Value {
        let to = if self.ty(low).lane == Lane::I32 { Lane::I16 } else { Lane::I8 };
        let ty = self.piece(to);
        self.push(Op::Pack, ty, &[low, high])
    }

    // Memory.

    pub(crate) fn create_slot(&mut self, bytes: u32) -> StackSlot {
        self.function.slots.push(bytes);
        StackSlot(self.function.slots.len() as u32 - 1)
    }

    pub(crate) fn stack_address(&mut self, slot: StackSlot) -> Value {
        self.push(Op::StackAddress(slot), I64, &[])
    }

    pub(crate) fn load(&mut self, ty: Type, address: Value, offset: i32) -> Value {
        self.push(Op::Load(offset), ty, &[address])
    }

    pub(crate) fn load_narrow(&mut self, ty: Type, from: Narrow, address: Value, offset: i32) -> Value {
        self.push(Op::LoadNarrow(from, offset), ty, &[address])
    }

    pub(crate) fn store(&mut self, value: Value, address: Value, offset: i32) {
        self.push(Op::Store(offset), I8, &[value, address]);
    }

    /// Stores the halves of a piece of 32 bytes to separate offsets.
    pub(crate) fn store_halves(&mut self, piece: Value, address: Value, [low, high]: [i32; 2]) {
        self.push(Op::StoreHalves(low, high), I8, &[piece, address]);
    }

    /// Stores a piece past the caches where the machine supports it; the address and the offset are
    /// multiples of 16.
    pub(crate) fn store_past(&mut self, value: Value, address: Value, offset: i32) {
        let op = if self.ty(value).bytes() == 32 { Op::StorePast(offset) } else { Op::Store(offset) };
        self.push(op, I8, &[value, address]);
    }

    pub(crate) fn store_narrow(&mut self, bytes: u8, value: Value, address: Value, offset: i32) {
        self.push(Op::StoreNarrow { bytes, offset }, I8, &[value, address]);
    }

    /// Whether the machine stores some lanes of a piece in one go.
    pub(crate) fn stores_masked(&self) -> bool {
        self.function.machine.avx512
    }

    /// Stores the low bytes of the lanes of a mask, as wide as the lanes.
    pub(crate) fn store_masked(&mut self, bytes: u8, [value, mask]: [Value; 2], address: Value, offset: i32) {
        self.push(Op::StoreMasked { bytes, offset }, I8, &[value, mask, address]);
    }

    /// Loads `count` pieces of 32-bit lanes from consecutive narrower elements. With 16-byte
    /// pieces, bytes are loaded for two pieces at once, since the machine loads eight at a time.
    pub(crate) fn load_narrow_pieces(&mut self, from: Narrow, count: usize, address: Value) -> Vec<Value> {
        let words = self.piece(Lane::I32);
        if from.bytes == 1 && words.bytes() == 16 {
            let halves = self.piece(Lane::I16);
            let pairs = 0..count as i32 / 2;
            return pairs
                .flat_map(|pair| {
                    let eight = self.load_narrow(halves, from, address, 8 * pair);
                    self.widen(from.signed, eight)
                })
                .collect();
        }
        let step = words.lane_count() as i32 * i32::from(from.bytes);
        (0..count as i32).map(|k| self.load_narrow(words, from, address, step * k)).collect()
    }

    /// Stores the low bytes of all lanes of pieces of 32-bit lanes contiguously; the lanes' other
    /// bits are zero.
    pub(crate) fn store_narrow_pieces(&mut self, bytes: u8, pieces: &[Value], address: Value) {
        let words = self.piece(Lane::I32);
        if words.bytes() > 16 {
            let step = words.lane_count() as i32 * i32::from(bytes);
            for (k, &piece) in pieces.iter().enumerate() {
                self.store_narrow(bytes, piece, address, step * k as i32);
            }
            return;
        }
        for (k, pair) in pieces.chunks(2).enumerate() {
            let halves = self.pack(pair[0], pair[1]);
            if bytes == 2 {
                self.store(halves, address, 16 * k as i32);
                continue;
            }
            let packed = self.pack(halves, halves);
            let longs = self.bitcast(self.piece(Lane::I64), packed);
            let eight = self.extract(longs, 0);
            self.store(eight, address, 8 * k as i32);
        }
    }

    /// Stores the low bytes of 16-bit lanes contiguously; the lanes' other bits are zero.
    pub(crate) fn store_half_pieces(&mut self, pieces: &[Value], address: Value) {
        let lanes = self.piece(Lane::I16).lane_count() as i32;
        if lanes > 8 {
            for (k, &piece) in pieces.iter().enumerate() {
                self.store_narrow(1, piece, address, lanes * k as i32);
            }
            return;
        }
        for (k, pair) in pieces.chunks(2).enumerate() {
            let packed = self.pack(pair[0], pair[pair.len() - 1]);
            if let [_, _] = pair {
                self.store(packed, address, 16 * k as i32);
                continue;
            }
            let longs = self.bitcast(self.piece(Lane::I64), packed);
            let eight = self.extract(longs, 0);
            self.store(eight, address, 16 * k as i32);
        }
    }

    pub(crate) fn atomic_update(&mut self, update: Update, address: Value, operand: Value) -> Value {
        self.push(Op::AtomicUpdate(update), self.ty(operand), &[address, operand])
    }

    pub(crate) fn compare_exchange(&mut self, address: Value, expected: Value, new: Value) -> Value {
        self.push(Op::CompareExchange, self.ty(expected), &[address, expected, new])
    }

    /// Calls code that preserves every register.
    pub(crate) fn call(&mut self, code: Value, arguments: [Value; 5]) {
        let [a, b, c, d, e] = arguments;
        self.push(Op::Call, I8, &[code, a, b, c, d, e]);
    }

    // Completion.

    /// Returns the function with its variables resolved to values.
    pub(crate) fn finish(mut self) -> Function {
        self.fill_merges();
        let same_as = self.drop_trivial_merges();
        for merge in &self.merges {
            self.function.blocks[merge.block.index()].params.push(merge.param);
            for (&from, &value) in self.blocks[merge.block.index()].predecessors.iter().zip(&merge.incoming) {
                let Some(end) = &mut self.function.blocks[from.index()].ending else { continue };
                let edge = end.edges_mut().iter_mut().find(|edge| edge.to == merge.block);
                edge.into_iter().for_each(|edge| edge.arguments.push(value));
            }
        }
        let replace = |value: &mut Value| *value = same_as[value.index()];
        self.function.operands.iter_mut().for_each(replace);
        for end in self.function.blocks.iter_mut().filter_map(|block| block.ending.as_mut()) {
            end.edges_mut().iter_mut().flat_map(|edge| &mut edge.arguments).for_each(replace);
            if let End::Branch(value, _) | End::Return(value) = end {
                replace(value);
            }
        }
        self.function
    }

    /// Resolves the arguments of parameters for variables, which can create further parameters.
    fn fill_merges(&mut self) {
        let mut at = 0;
        while let Some(&Merge { block, variable, .. }) = self.merges.get(at) {
            let predecessors = self.blocks[block.index()].predecessors.clone();
            let incoming = predecessors.iter().map(|&from| self.value_in(from, variable)).collect();
            self.merges[at].incoming = incoming;
            at += 1;
        }
    }

    /// Drops parameters that have only one possible value; returns the replacement of each value.
    fn drop_trivial_merges(&mut self) -> Vec<Value> {
        let mut same_as: Vec<Value> = (0..self.function.insts.len() as u32).map(Value).collect();
        let mut merges = std::mem::take(&mut self.merges);
        loop {
            let before = merges.len();
            merges.retain(|merge| {
                let mut others = merge
                    .incoming
                    .iter()
                    .map(|&value| resolved(&mut same_as, value))
                    .filter(|&value| value != merge.param);
                let first = others.next();
                match first {
                    Some(first) if others.all(|other| other == first) => same_as[merge.param.index()] = first,
                    Some(_) => return true,
                    None => {
                        // Read before any write.
                        self.function.insts[merge.param.index()].op = Op::Const(0);
                        self.function.zeros.push(merge.param);
                    }
                }
                false
            });
            if merges.len() == before {
                break;
            }
        }
        self.merges = merges;
        for number in 0..same_as.len() {
            same_as[number] = resolved(&mut same_as, Value(number as u32));
        }
        same_as
    }
}

/// Follows replacements to the final value, with path compression.
fn resolved(same_as: &mut [Value], value: Value) -> Value {
    let mut last = value;
    while same_as[last.index()] != last {
        let next = same_as[last.index()];
        same_as[last.index()] = same_as[next.index()];
        last = next;
    }
    last
}

macro_rules! instructions {
    (two { $($two:ident $two_op:expr;)* } one { $($one:ident $one_op:expr;)* } to { $($to:ident $to_op:expr;)* }) => {
        impl Builder {
            $(pub(crate) fn $two(&mut self, a: Value, b: Value) -> Value {
                self.push($two_op, self.ty(a), &[a, b])
            })*
            $(pub(crate) fn $one(&mut self, a: Value) -> Value {
                self.push($one_op, self.ty(a), &[a])
            })*
            $(pub(crate) fn $to(&mut self, to: Type, a: Value) -> Value {
                self.push($to_op, to, &[a])
            })*
        }
    };
}

instructions! {
    two {
        mul Op::Mul;
        and Op::And;
        or Op::Or;
        xor Op::Xor;
        and_not Op::AndNot;
        shift_left Op::ShiftLeft;
        shift_right Op::ShiftRight;
        shift_left_each Op::ShiftLeftEach;
        shift_right_each Op::ShiftRightEach;
        float_div Op::FloatDiv;
        float_min Op::FloatMin;
        float_max Op::FloatMax;
        move_up Op::MoveUp;
        carry_half Op::CarryHalf;
    }
    one {
        not Op::Not;
        sqrt Op::Sqrt;
        leading_zeros Op::LeadingZeros;
        trailing_zeros Op::TrailingZeros;
    }
    to {
        reduce Op::Reduce;
        bitcast Op::Bitcast;
        splat Op::Splat;
        promote Op::Promote;
        demote Op::Demote;
    }
}
