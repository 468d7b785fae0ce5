//! Instruction selection from the piece form to machine instructions.
//!
//! Blocks are processed from last to first, and the instructions of a block from its end. So a
//! value folded into a later instruction (an address, a comparison before a branch, a load used as
//! an operand) is not computed separately, and neither is an unused value. Constants are
//! materialised at their uses, most of them as memory operands.
//!
//! A load becomes an operand only if it has no other use, nothing is written in between, and the
//! instruction reads no more bytes than the load does.

/// Pattern of the ops that `Selector::value` selects before it looks at the type, or that the
/// builder expands.
macro_rules! not_by_type {
    () => {
        Op::Param
            | Op::Const(_)
            | Op::LaneNumbers(_)
            | Op::ReverseBits
            | Op::Extend { .. }
            | Op::Bitcast
            | Op::Select
            | Op::AnyTrue
            | Op::AllTrue
            | Op::HighBits
            | Op::Extract(_)
            | Op::Pattern(_)
            | Op::Load(_)
            | Op::LoadHalves(..)
            | Op::LoadNarrow(..)
            | Op::Store(_)
            | Op::StoreHalves(..)
            | Op::StorePast(_)
            | Op::StoreNarrow { .. }
            | Op::StoreMasked { .. }
            | Op::StackAddress(_)
            | Op::AtomicUpdate(_)
            | Op::CompareExchange
            | Op::Call
    };
}

/// Pattern of the other ops that only pieces have, or that `Selector::value` selects for scalars.
macro_rules! not_for_scalars {
    () => {
        Op::ShiftLeftEach
            | Op::ShiftRightEach
            | Op::ShiftRightSignedEach
            | Op::IntMin { .. }
            | Op::IntMax { .. }
            | Op::RotateLeft(_)
            | Op::RotateLeftEach
            | Op::RotateRightEach
            | Op::ToInt { .. }
            | Op::TruncateInt
            | Op::Compare(_)
            | Op::CompareFloats(_)
            | Op::Choose
            | Op::Splat
            | Op::Build
            | Op::SplatLane(_)
            | Op::Widen { .. }
            | Op::WidenFloat { .. }
            | Op::NarrowFloat
            | Op::LowHalves
            | Op::Pack
            | Op::Swap(_)
            | Op::Shuffle(_)
            | Op::ShuffleBytes
            | Op::MoveUpWithin(_)
            | Op::MoveUp
            | Op::Interleave { .. }
            | Op::CarryHalf
    };
}

mod floats;
mod logic;
mod memory;
mod pieces;
mod scalars;

use super::allocate::general;
use super::bytes::{Encodings, Evex, Extent, VEX_REGISTERS, Vex};
use super::instruction::{
    Alu, Base, BlockData, Condition, Inst, InstKind, MachineFunction, MemoryOperand, OperandOrder,
};
use super::op;
use crate::piece::{Block, Edge, End, Function, IntOrder, Op, Type, Value};
use crate::source_region::SourceRegion;
use hashbrown::HashMap;
use regalloc2::{Operand, OperandConstraint, RegClass, VReg};
use smallvec::SmallVec;

/// Origin of a machine block.
#[derive(Clone, Copy)]
enum BlockOrigin {
    Block(Block),
    /// One edge out of a branch; the moves on it are in a separate block.
    Edge(Block, usize),
}

/// Registers of the first five integer arguments.
const ARGUMENTS: [u8; 5] = [7, 6, 2, 1, 8];

/// Selects instructions for the machine's vector registers, or the first few of them.
pub(super) fn select(function: &Function, vector_registers: usize) -> MachineFunction {
    let order = function.order();
    let sources = sources(function, &order);
    let mut numbers = Numbers { blocks: vec![u32::MAX; function.block_count()], edges: HashMap::new() };
    for (number, source) in (0..).zip(&sources) {
        match *source {
            BlockOrigin::Block(block) => numbers.blocks[block.index()] = number,
            BlockOrigin::Edge(block, way) => drop(numbers.edges.insert((block, way), number)),
        }
    }
    let mut selector = Selector::new(function, &order);
    selector.has_upper = vector_registers > VEX_REGISTERS.into();
    let mut code = MachineFunction { slots: function.slots.clone(), ..MachineFunction::default() };
    code.blocks.resize_with(sources.len(), BlockData::default);
    for (number, &source) in sources.iter().enumerate().rev() {
        let end = selector.insts.len();
        let data = &mut code.blocks[number];
        let (BlockOrigin::Block(from) | BlockOrigin::Edge(from, _)) = source;
        // Jumps belong to the region that they leave.
        selector.region =
            function.body(from).next_back().map(|last| function.region(last)).unwrap_or_default();
        match source {
            BlockOrigin::Block(block) => selector.block(block, &numbers, data),
            BlockOrigin::Edge(block, way) => {
                selector.edge(&function.ending(block).edges()[way], &numbers, data)
            }
        }
        // Counted from the end until all blocks are selected.
        (data.first, data.end) = (selector.insts.len() as u32, end as u32);
    }
    let total = selector.insts.len() as u32;
    selector.insts.reverse();
    selector.regions.reverse();
    for number in 0..code.blocks.len() {
        let data = &mut code.blocks[number];
        (data.first, data.end) = (total - data.first, total - data.end);
        for after in data.successors.clone() {
            code.blocks[after.index()].predecessors.push(regalloc2::Block::new(number));
        }
    }
    code.insts = selector.insts;
    code.regions = selector.regions;
    code.operands = selector.operands;
    code.register_count = selector.register_count;
    code.constants = selector.constants.bytes;
    code.vector_registers = vector_registers;
    code.stores_past = selector.stores_past;
    code
}

/// Lists the machine blocks, in order. A branch edge gets a separate block if it carries arguments
/// or if its target has other predecessors.
fn sources(function: &Function, order: &[Block]) -> Vec<BlockOrigin> {
    let mut ways_in = vec![0; function.block_count()];
    for &block in order {
        function.ending(block).edges().iter().for_each(|edge| ways_in[edge.to.index()] += 1);
    }
    let mut sources = Vec::with_capacity(order.len() + order.len() / 2);
    for &block in order {
        sources.push(BlockOrigin::Block(block));
        if let End::Branch(_, edges) = function.ending(block) {
            for (way, edge) in edges.iter().enumerate() {
                if !edge.arguments.is_empty() || ways_in[edge.to.index()] > 1 {
                    sources.push(BlockOrigin::Edge(block, way));
                }
            }
        }
    }
    sources
}

/// Numbers of the machine blocks of blocks and of branch edges.
struct Numbers {
    blocks: Vec<u32>,
    edges: HashMap<(Block, usize), u32>,
}

impl Numbers {
    /// Returns the machine block that a branch edge leads to.
    fn way(&self, block: Block, way: usize, edge: &Edge) -> u32 {
        let own = self.edges.get(&(block, way)).copied();
        own.unwrap_or(self.blocks[edge.to.index()])
    }
}

/// Constants placed behind the code.
#[derive(Default)]
struct Constants {
    bytes: Vec<[u8; 32]>,
    numbers: HashMap<[u8; 32], u32>,
}

impl Constants {
    fn number(&mut self, bytes: [u8; 32]) -> u32 {
        *self.numbers.entry(bytes).or_insert_with(|| {
            self.bytes.push(bytes);
            self.bytes.len() as u32 - 1
        })
    }
}

/// An operand in a register or in memory.
#[derive(Clone, Copy)]
enum RegisterOrMemory {
    Register(VReg),
    Memory(MemoryOperand),
}

struct Selector<'f> {
    function: &'f Function,
    /// Per value: number of uses.
    uses: Vec<u32>,
    /// Per value: whether a selected instruction reads it.
    needed: Vec<bool>,
    registers: Vec<VReg>,
    register_count: usize,
    /// Per value: the block that computes it, and the number of writes before it in that block.
    moments: Vec<(u32, u32)>,
    now: (u32, u32),
    /// Per block: number of writes.
    writes: Vec<u32>,
    constants: Constants,
    /// Whether there are registers that only EVEX reaches.
    has_upper: bool,
    /// Whether any store bypasses the caches.
    stores_past: bool,
    operands: Vec<Operand>,
    /// Instructions of the value being selected, in order.
    current: Vec<Inst>,
    /// The region of that value.
    region: SourceRegion,
    /// All selected instructions, last first, and the region of each.
    insts: Vec<Inst>,
    regions: Vec<SourceRegion>,
}

impl<'f> Selector<'f> {
    fn new(function: &'f Function, order: &[Block]) -> Selector<'f> {
        let count = function.value_count();
        let mut selector = Selector {
            function,
            uses: vec![0; count],
            needed: vec![false; count],
            registers: vec![VReg::invalid(); count],
            register_count: 0,
            moments: vec![(u32::MAX, 0); count],
            now: (0, 0),
            writes: vec![0; function.block_count()],
            constants: Constants::default(),
            has_upper: false,
            stores_past: false,
            operands: Vec::with_capacity(4 * count),
            current: Vec::new(),
            region: SourceRegion::default(),
            insts: Vec::with_capacity(2 * count),
            regions: Vec::with_capacity(2 * count),
        };
        for &block in order {
            let mut writes = 0;
            for value in function.body(block) {
                function.operands(value).iter().for_each(|operand| selector.uses[operand.index()] += 1);
                writes += u32::from(function.op(value).has_effect());
                selector.moments[value.index()] = (block.index() as u32, writes);
            }
            selector.writes[block.index()] = writes;
            let end = function.ending(block);
            let arguments = end.edges().iter().flat_map(|edge| &edge.arguments);
            arguments.copied().chain(end.operand()).for_each(|value| selector.uses[value.index()] += 1);
        }
        selector
    }

    // Blocks.

    fn block(&mut self, block: Block, numbers: &Numbers, data: &mut BlockData) {
        let contents = self.function.block(block);
        data.cold = contents.cold;
        self.now = (block.index() as u32, u32::MAX);
        match self.function.ending(block) {
            End::Jump(edge) => self.edge(edge, numbers, data),
            End::Branch(condition, edges) => {
                let condition = self.flags(*condition);
                let ways = [0, 1].map(|way| numbers.way(block, way, &edges[way]));
                data.successors = ways.iter().map(|&way| regalloc2::Block::new(way as usize)).collect();
                self.push(InstKind::Branch(condition, ways[0], ways[1]), &[]);
            }
            End::Return(value) => {
                let value = self.register(*value);
                self.push(InstKind::Return, &[Operand::reg_fixed_use(value, general(0))]);
            }
        }
        self.take();
        for value in self.function.body(block).rev() {
            if self.function.op(value).has_effect() || self.needed[value.index()] {
                self.now = self.moments[value.index()];
                self.region = self.function.region(value);
                self.value(value);
                self.take();
            }
        }
        let params: Vec<VReg> = contents.params.iter().map(|&param| self.home(param)).collect();
        if block == self.function.entry() {
            let arrive =
                params.iter().zip(ARGUMENTS).map(|(&param, at)| Operand::reg_fixed_def(param, general(at)));
            let arrive: Vec<Operand> = arrive.collect();
            self.push(InstKind::Arguments, &arrive);
            self.take();
        } else {
            data.params = params;
        }
    }

    fn edge(&mut self, edge: &Edge, numbers: &Numbers, data: &mut BlockData) {
        let to = numbers.blocks[edge.to.index()];
        self.now = (u32::MAX, u32::MAX);
        data.cold |= self.function.block(edge.to).cold;
        data.arguments = edge.arguments.iter().map(|&value| self.register(value)).collect();
        data.successors.push(regalloc2::Block::new(to as usize));
        self.push(InstKind::Jump(to), &[]);
        self.take();
    }

    /// Puts the current instructions before everything selected so far.
    fn take(&mut self) {
        self.regions.resize(self.insts.len() + self.current.len(), self.region);
        self.insts.extend(self.current.drain(..).rev());
    }

    // Values.

    fn op(&self, value: Value) -> Op {
        self.function.op(value)
    }

    fn ty(&self, value: Value) -> Type {
        self.function.ty(value)
    }

    fn args<const N: usize>(&self, value: Value) -> [Value; N] {
        match self.function.operands(value).try_into() {
            Ok(args) => args,
            Err(_) => unreachable!("{:?} has {N} operands", self.op(value)),
        }
    }

    /// Follows values that share a register to the one that defines it.
    fn same(&self, value: Value) -> Value {
        let mut value = value;
        loop {
            let from = match self.op(value) {
                // Scalars are zero-extended in their registers.
                Op::Extend { signed: false } => self.args::<1>(value)[0],
                Op::Bitcast if self.is_vector(value) == self.is_vector(self.args::<1>(value)[0]) => {
                    self.args::<1>(value)[0]
                }
                Op::Extract(0) if self.is_vector(value) => self.args::<1>(value)[0],
                _ => return value,
            };
            value = from;
        }
    }

    /// Whether the value is in a vector register.
    fn is_vector(&self, value: Value) -> bool {
        let ty = self.ty(value);
        ty.is_piece() || ty.is_float()
    }

    fn fresh(&mut self, class: RegClass) -> VReg {
        self.register_count += 1;
        VReg::new(self.register_count - 1, class)
    }

    fn vector(&mut self) -> VReg {
        self.fresh(RegClass::Float)
    }

    fn general(&mut self) -> VReg {
        self.fresh(RegClass::Int)
    }

    /// Returns the register that a value is computed into.
    fn home(&mut self, value: Value) -> VReg {
        if self.registers[value.index()] == VReg::invalid() {
            let class = if self.is_vector(value) { RegClass::Float } else { RegClass::Int };
            self.registers[value.index()] = self.fresh(class);
        }
        self.registers[value.index()]
    }

    /// Returns a register with the value; materialises constants and stack addresses.
    fn register(&mut self, value: Value) -> VReg {
        let value = self.same(value);
        match self.op(value) {
            Op::Const(bits) if !self.is_vector(value) => {
                let to = self.general();
                self.number(to, bits as i64);
                to
            }
            Op::StackAddress(slot) => {
                let to = self.general();
                let memory = MemoryOperand { base: Base::Slot(slot), index: None, displacement: 0 };
                self.push_with(InstKind::Lea, true, &[Operand::reg_def(to)], Some(memory), None);
                to
            }
            _ => match self.constant_bytes(value) {
                Some(bytes) => self.vector_constant(bytes),
                None => {
                    self.needed[value.index()] = true;
                    self.home(value)
                }
            },
        }
    }

    fn number(&mut self, to: VReg, number: i64) {
        self.push_with(InstKind::Number, true, &[Operand::reg_def(to)], None, Some(number));
    }

    /// Memory image of a constant: the lane's bits repeated, a pattern, or lane numbers. `None` if
    /// the value is not a constant.
    fn constant_bytes(&self, value: Value) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        match self.op(value) {
            Op::Const(bits) => {
                let lane = self.ty(value).lane.bytes() as usize;
                bytes.chunks_mut(lane).for_each(|chunk| chunk.copy_from_slice(&bits.to_le_bytes()[..lane]));
            }
            Op::Pattern(number) => bytes = self.function.patterns[number as usize],
            Op::LaneNumbers(first) => {
                let lanes = bytes.chunks_mut(4).zip(first..);
                lanes.for_each(|(chunk, number)| chunk.copy_from_slice(&number.to_le_bytes()));
            }
            _ => return None,
        }
        Some(bytes)
    }

    fn vector_constant(&mut self, bytes: [u8; 32]) -> VReg {
        let to = self.vector();
        if bytes == [0; 32] {
            self.push(InstKind::Zero, &[Operand::reg_def(to)]);
        } else {
            let memory = self.constant_memory(bytes);
            self.push_with(
                InstKind::Vector(op::LOAD, OperandOrder::Two),
                true,
                &[Operand::reg_def(to)],
                Some(memory),
                None,
            );
        }
        to
    }

    fn constant_memory(&mut self, bytes: [u8; 32]) -> MemoryOperand {
        MemoryOperand { base: Base::Constant(self.constants.number(bytes)), index: None, displacement: 0 }
    }

    /// Returns a constant that fits an immediate, extended as the instruction does.
    fn small(&self, value: Value) -> Option<i64> {
        let same = self.same(value);
        let Op::Const(bits) = self.op(same) else { return None };
        if self.is_vector(same) {
            return None;
        }
        let number = if self.ty(value).is_wide() { bits as i64 } else { i64::from(bits as u32 as i32) };
        i32::try_from(number).is_ok().then_some(number)
    }

    // Instructions.

    fn push(&mut self, kind: InstKind, operands: &[Operand]) {
        self.push_with(kind, false, operands, None, None);
    }

    fn push_with(
        &mut self,
        kind: InstKind,
        wide: bool,
        operands: &[Operand],
        memory: Option<MemoryOperand>,
        immediate: Option<i64>,
    ) {
        let first = self.operands.len();
        self.operands.extend_from_slice(operands);
        if let Some(memory) = memory {
            self.operands.extend(memory_registers(&memory).into_iter().map(Operand::reg_use));
        }
        if let InstKind::Vector(Vex { form: Encodings::Vex, .. }, _) = kind
            && self.has_upper
        {
            self.operands[first..].iter_mut().for_each(|operand| *operand = within_vex(*operand));
        }
        let count = (self.operands.len() - first) as u8;
        self.current.push(Inst { kind, wide, memory, immediate, first: first as u32, count });
    }

    /// Emits an instruction that changes registers before its last use of the memory operand.
    fn push_keeping_address(
        &mut self,
        kind: InstKind,
        wide: bool,
        operands: &[Operand],
        memory: MemoryOperand,
    ) {
        let registers = memory_registers(&memory).into_iter().map(Operand::reg_use_at_end);
        let all: SmallVec<[Operand; 6]> = operands.iter().copied().chain(registers).collect();
        self.push_with(kind, wide, &all, None, None);
        if let Some(inst) = self.current.last_mut() {
            inst.memory = Some(memory);
        }
    }

    fn push_place(
        &mut self,
        kind: InstKind,
        wide: bool,
        operands: &[Operand],
        place: RegisterOrMemory,
        immediate: Option<i64>,
    ) {
        match place {
            RegisterOrMemory::Memory(memory) => self.push_with(kind, wide, operands, Some(memory), immediate),
            RegisterOrMemory::Register(register) => {
                let mut all: SmallVec<[Operand; 6]> = operands.into();
                all.push(Operand::reg_use(register));
                self.push_with(kind, wide, &all, None, immediate);
            }
        }
    }

    /// Computes a value that is needed or has an effect.
    fn value(&mut self, value: Value) {
        let (op, ty) = (self.op(value), self.ty(value));
        match op {
            Op::Param | Op::StackAddress(_) | Op::LaneNumbers(_) | Op::Pattern(_) => {}
            Op::Const(_) => unreachable!("constants are made where they are used"),
            Op::Load(offset) => self.load(value, offset),
            Op::LoadNarrow(narrow, offset) => self.load_narrow(value, narrow, offset),
            Op::LoadHalves(low, high) => self.load_halves(value, [low, high]),
            Op::Store(offset) => self.store(value, offset),
            Op::StoreHalves(low, high) => self.store_in_halves(value, [low, high], op::STORE),
            Op::StorePast(offset) => self.store_past(value, offset),
            Op::StoreNarrow { bytes, offset } => self.store_narrow(value, bytes, offset),
            Op::StoreMasked { bytes, offset } => self.store_masked(value, bytes, offset),
            Op::AtomicUpdate(update) => self.atomic_update(value, update),
            Op::CompareExchange => self.compare_exchange(value),
            Op::Call => self.call(value),
            Op::Bitcast => self.between_classes(value),
            Op::Select => self.select(value),
            _ if ty.is_piece() => self.piece(value),
            Op::AnyTrue | Op::AllTrue | Op::Compare(_) => {
                let to = self.home(value);
                let condition = self.flags(value);
                self.push(InstKind::SetIf(condition), &[Operand::reg_def(to)]);
            }
            Op::HighBits | Op::Extract(_) => self.taken_from_piece(value),
            _ if ty.is_float() => self.float(value),
            Op::CompareFloats(order) => self.compare_floats(value, order),
            Op::TruncateInt => self.truncate(value),
            _ => self.scalar(value),
        }
    }

    /// Moves the bits to a register of the other class.
    fn between_classes(&mut self, value: Value) {
        let [from] = self.args(value);
        let (to, wide) = (self.home(value), self.ty(value).is_wide());
        let from = self.register(from);
        self.transfer(to, from, wide);
    }

    /// Moves 32 or 64 bits between a general and a vector register.
    fn transfer(&mut self, to: VReg, from: VReg, wide: bool) {
        let (vex, shape) = match to.class() {
            RegClass::Int => (op::TO_GENERAL, OperandOrder::TwoReversed),
            RegClass::Float | RegClass::Vector => (op::FROM_GENERAL, OperandOrder::Two),
        };
        let operands = [Operand::reg_def(to), Operand::reg_use(from)];
        self.push(InstKind::Vector(with_width(vex, wide), shape), &operands);
    }

    fn select(&mut self, value: Value) {
        let [condition, yes, no] = self.args(value);
        let to = self.home(value);
        let (yes, no) = (self.register(yes), self.register(no));
        let condition = self.flags(condition);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(no), Operand::reg_use(yes)];
        let kind =
            if self.is_vector(value) { InstKind::FloatIf(condition) } else { InstKind::MoveIf(condition) };
        self.push_with(kind, self.ty(value).is_wide(), &operands, None, None);
    }

    /// Sets the flags for a condition, and returns the flag condition under which it holds.
    fn flags(&mut self, condition: Value) -> Condition {
        let condition = self.same(condition);
        match self.op(condition) {
            Op::Compare(order) if !self.is_vector(condition) => {
                let [a, b] = self.args(condition);
                if self.small(a).is_some() && self.small(b).is_none() {
                    self.compare(order.swapped(), b, a)
                } else {
                    self.compare(order, a, b)
                }
            }
            Op::CompareFloats(order) if let Some(holds) = self.float_flags(condition, order) => holds,
            Op::AnyTrue => {
                let [mask] = self.args(condition);
                let mask = self.register(mask);
                let operands = [Operand::reg_use(mask), Operand::reg_use(mask)];
                self.push_with(InstKind::Vector(op::TEST, OperandOrder::Test), true, &operands, None, None);
                Condition::NotEqual
            }
            Op::AllTrue => {
                let [mask] = self.args(condition);
                let mask = self.register(mask);
                let ones = self.constant_memory([255; 32]);
                let operands = [Operand::reg_use(mask)];
                self.push_with(
                    InstKind::Vector(op::TEST, OperandOrder::Test),
                    true,
                    &operands,
                    Some(ones),
                    None,
                );
                Condition::Below
            }
            Op::Load(offset) if self.ty(condition).bytes() == 1 && self.is_foldable(condition) => {
                let [address] = self.args(condition);
                let memory = self.address(address, offset);
                self.push_with(InstKind::TestByte, false, &[], Some(memory), None);
                Condition::NotEqual
            }
            _ => {
                let condition = self.register(condition);
                self.push(InstKind::Test, &[Operand::reg_use(condition)]);
                Condition::NotEqual
            }
        }
    }

    fn compare(&mut self, order: IntOrder, a: Value, b: Value) -> Condition {
        let wide = self.ty(a).is_wide();
        let equality = matches!(order, IntOrder::Equal | IntOrder::NotEqual);
        if equality && self.small(b) == Some(0) {
            // A condition compared with zero is that condition or its negation.
            let inner = self.same(a);
            let is_condition = self.ty(a).bytes() == 1
                && matches!(
                    self.op(inner),
                    Op::Compare(_) | Op::CompareFloats(_) | Op::AnyTrue | Op::AllTrue
                );
            if is_condition {
                let holds = self.flags(inner);
                return if order == IntOrder::Equal { holds.negated() } else { holds };
            }
            let a = self.register(a);
            self.push_with(InstKind::Test, wide, &[Operand::reg_use(a)], None, None);
            return condition_of(order);
        }
        let first = self.register(a);
        match self.small(b) {
            Some(number) => {
                let operands = [Operand::reg_use(first)];
                self.push_with(InstKind::Alu(Alu::Compare), wide, &operands, None, Some(number));
            }
            None => {
                let b = self.scalar_place(b);
                self.push_place(InstKind::Alu(Alu::Compare), wide, &[Operand::reg_use(first)], b, None);
            }
        }
        condition_of(order)
    }
}

/// Limits a vector operand to the registers that VEX reaches.
fn within_vex(operand: Operand) -> Operand {
    match operand.class() {
        RegClass::Int => operand,
        RegClass::Float | RegClass::Vector => {
            let limit = OperandConstraint::Limit(VEX_REGISTERS.into());
            Operand::new(operand.vreg(), limit, operand.kind(), operand.pos())
        }
    }
}

fn memory_registers(memory: &MemoryOperand) -> SmallVec<[VReg; 2]> {
    let base = match memory.base {
        Base::Register(base) => Some(base),
        Base::Constant(_) | Base::Slot(_) => None,
    };
    base.into_iter().chain(memory.index.map(|(index, _)| index)).collect()
}

fn condition_of(order: IntOrder) -> Condition {
    match order {
        IntOrder::Equal => Condition::Equal,
        IntOrder::NotEqual => Condition::NotEqual,
        IntOrder::SignedLess => Condition::Less,
        IntOrder::SignedLessOrEqual => Condition::NotGreater,
        IntOrder::SignedGreater => Condition::Greater,
        IntOrder::SignedGreaterOrEqual => Condition::NotLess,
        IntOrder::UnsignedLess => Condition::Below,
        IntOrder::UnsignedLessOrEqual => Condition::NotAbove,
        IntOrder::UnsignedGreater => Condition::Above,
        IntOrder::UnsignedGreaterOrEqual => Condition::NotBelow,
    }
}

/// Derives a float instruction for a type: packed or scalar, single or double.
fn typed(vex: Vex, ty: Type) -> Vex {
    let prefix = match (ty.is_piece(), ty.is_wide()) {
        (true, false) => 0,
        (true, true) => 1,
        (false, false) => 2,
        (false, true) => 3,
    };
    in_lanes(Vex { prefix, ..vex }, ty)
}

/// Derives an instruction for a type that only EVEX has in its fields: packed or scalar, in lanes
/// of 32 or 64 bits.
fn in_lanes(vex: Vex, ty: Type) -> Vex {
    let memory = if ty.is_piece() { Extent::Whole } else { Extent::Bytes(ty.bytes() as u8) };
    let evex = Evex { wide: ty.is_wide(), memory };
    let form = match vex.form {
        Encodings::Vex => Encodings::Vex,
        Encodings::Both(_) => Encodings::Both(evex),
        Encodings::Evex(_) => Encodings::Evex(evex),
    };
    Vex { form, ..vex }
}

/// Derives an instruction whose bit W tells the width, in both encodings.
fn with_width(vex: Vex, wide: bool) -> Vex {
    let of_width = |evex: Evex| match evex.memory {
        Extent::Bytes(_) => Evex { wide, memory: Extent::Bytes(if wide { 8 } else { 4 }) },
        Extent::Whole | Extent::Half | Extent::Quarter => Evex { wide, ..evex },
    };
    let form = match vex.form {
        Encodings::Vex => Encodings::Vex,
        Encodings::Both(evex) => Encodings::Both(of_width(evex)),
        Encodings::Evex(evex) => Encodings::Evex(of_width(evex)),
    };
    Vex { wide, form, ..vex }
}
