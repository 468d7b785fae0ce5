//! The piece form: a function in SSA over scalars and pieces of vectors, between the vector form
//! and machine code.
//!
//! A *piece* is the part of a vector that one machine register holds: 16 or 32 bytes of lanes, the
//! same width for every vector of a function ([`Machine::piece_bytes`]). Blocks have parameters; a
//! branch carries arguments. A scalar condition is a byte, 0 or 1; a mask is a piece of integer
//! lanes, all ones or all zeros. The emitter guarantees that every access is to valid memory: none
//! traps, and only atomics need alignment.
//!
//! `build` constructs a function and brings its variables into SSA, `expand` writes out ops that
//! x86-64 has no instruction for, `verify` checks a function, `print` shows one. `clif` and `x64`
//! compile it to machine code.

mod build;
mod expand;
mod print;
#[cfg(any(test, debug_assertions))]
mod verify;

pub(crate) use build::Builder;
#[cfg(any(test, debug_assertions))]
pub(crate) use verify::verify;

use crate::source_region::SourceRegion;
use smallvec::SmallVec;

/// The machine that a function is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Bytes of a piece.
    pub(crate) piece_bytes: u32,
    /// Number of vector registers.
    pub(crate) registers: usize,
    /// Whether it has the instructions of AVX-512 (F, DQ, BW, VL and CD): counts of leading zeros,
    /// every integer op on 64-bit lanes.
    pub(crate) avx512: bool,
    /// Whether it has those of AVX-512 that count bits, which came later (VPOPCNTDQ).
    pub(crate) counts_bits: bool,
}

impl Machine {
    /// A machine with the fewest registers for pieces of this width.
    pub(crate) const fn new(piece_bytes: u32) -> Machine {
        Machine { piece_bytes, registers: 16, avx512: false, counts_bits: false }
    }
}

/// Type of a scalar, or of a lane of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// Type of a value: a scalar or a number of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Type {
    pub(crate) lane: Lane,
    count: u8,
}

pub(crate) const I8: Type = Type::scalar(Lane::I8);
pub(crate) const I32: Type = Type::scalar(Lane::I32);
pub(crate) const I64: Type = Type::scalar(Lane::I64);
pub(crate) const F32: Type = Type::scalar(Lane::F32);
pub(crate) const F64: Type = Type::scalar(Lane::F64);

impl Lane {
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Lane::I8 => 1,
            Lane::I16 => 2,
            Lane::I32 | Lane::F32 => 4,
            Lane::I64 | Lane::F64 => 8,
        }
    }
}

impl Type {
    const fn scalar(lane: Lane) -> Type {
        Type { lane, count: 1 }
    }

    /// Returns the type of a piece of `bytes` bytes.
    pub(crate) const fn piece(lane: Lane, bytes: u32) -> Type {
        Type { lane, count: (bytes / lane.bytes()) as u8 }
    }

    pub(crate) fn lane_type(self) -> Type {
        Type::scalar(self.lane)
    }

    pub(crate) fn lane_count(self) -> u32 {
        self.count.into()
    }

    pub(crate) fn bytes(self) -> u32 {
        self.lane.bytes() * self.lane_count()
    }

    pub(crate) fn is_piece(self) -> bool {
        self.count > 1
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self.lane, Lane::F32 | Lane::F64)
    }

    /// Whether the lanes have 64 bits.
    pub(crate) fn is_wide(self) -> bool {
        self.lane.bytes() == 8
    }

    /// Returns the integer type of the same layout.
    pub(crate) fn bits(self) -> Type {
        let lane = match self.lane {
            Lane::F32 => Lane::I32,
            Lane::F64 => Lane::I64,
            integer => integer,
        };
        Type { lane, ..self }
    }

    /// Returns the result type of comparing two such values: a condition or a mask.
    pub(crate) fn compared(self) -> Type {
        if self.is_piece() { self.bits() } else { I8 }
    }
}

/// A value, defined once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Value(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Block(u32);

/// A mutable variable, while a function is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable(u32);

/// Memory in the function's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackSlot(u32);

macro_rules! index {
    ($($name:ident)*) => {$(
        impl $name {
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
index! { Value Block Variable StackSlot }

/// An integer comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntOrder {
    Equal,
    NotEqual,
    SignedLess,
    SignedLessOrEqual,
    SignedGreater,
    SignedGreaterOrEqual,
    UnsignedLess,
    UnsignedLessOrEqual,
    UnsignedGreater,
    UnsignedGreaterOrEqual,
}

impl IntOrder {
    /// Returns the order that holds where this one does not.
    pub(crate) fn complement(self) -> IntOrder {
        use IntOrder::*;
        match self {
            Equal => NotEqual,
            NotEqual => Equal,
            SignedLess => SignedGreaterOrEqual,
            SignedLessOrEqual => SignedGreater,
            SignedGreater => SignedLessOrEqual,
            SignedGreaterOrEqual => SignedLess,
            UnsignedLess => UnsignedGreaterOrEqual,
            UnsignedLessOrEqual => UnsignedGreater,
            UnsignedGreater => UnsignedLessOrEqual,
            UnsignedGreaterOrEqual => UnsignedLess,
        }
    }
}

impl IntOrder {
    /// Returns the equivalent order with the operands swapped.
    pub(crate) fn swapped(self) -> IntOrder {
        use IntOrder::*;
        match self {
            Equal => Equal,
            NotEqual => NotEqual,
            SignedLess => SignedGreater,
            SignedLessOrEqual => SignedGreaterOrEqual,
            SignedGreater => SignedLess,
            SignedGreaterOrEqual => SignedLessOrEqual,
            UnsignedLess => UnsignedGreater,
            UnsignedLessOrEqual => UnsignedGreaterOrEqual,
            UnsignedGreater => UnsignedLess,
            UnsignedGreaterOrEqual => UnsignedLessOrEqual,
        }
    }
}

/// A float comparison; with a NaN, only `NotEqual` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatOrder {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
}

/// Rounding mode of a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Nearest,
    Down,
    Up,
    Zero,
}

/// Combination of the old value and the operand of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    SignedMin,
    SignedMax,
    UnsignedMin,
    UnsignedMax,
}

/// Elements narrower than the lanes they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Narrow {
    pub(crate) bytes: u8,
    pub(crate) signed: bool,
}

/// Operation that computes a value. Operands and result have the instruction's type unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A parameter of a block.
    Param,
    /// These bits in every lane.
    Const(u64),
    /// Consecutive numbers across the lanes, starting with this one.
    LaneNumbers(u32),

    // Integers and floats.
    Add,
    Sub,
    Mul,
    Neg,
    Abs,

    // Integers.
    And,
    Or,
    Xor,
    /// The bits of the first operand that are clear in the second.
    AndNot,
    Not,
    /// Shifts take a scalar `I32` count, modulo the bits of a lane.
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    /// Shifts of pieces with a count per lane, less than the lane's bits.
    ShiftLeftEach,
    ShiftRightEach,
    /// 32-bit lanes; with AVX-512, 64-bit lanes too.
    ShiftRightSignedEach,
    /// Minimum and maximum of pieces of 16-bit and 32-bit lanes; with AVX-512, of 64-bit lanes too.
    IntMin {
        signed: bool,
    },
    IntMax {
        signed: bool,
    },
    /// Division of scalars; the emitter ensures that the machine does not fault.
    Div {
        signed: bool,
    },
    Rem {
        signed: bool,
    },
    /// The upper half of the product: 64-bit scalars, 32-bit and 16-bit lanes.
    MulHigh {
        signed: bool,
    },
    /// Rotation of pieces by a constant count, less than the lane's bits. With AVX-512.
    RotateLeft(u8),
    /// Rotation with a count per lane, modulo the lane's bits. With AVX-512.
    RotateLeftEach,
    RotateRightEach,
    /// Bit counts of scalars; with AVX-512, of 32-bit and 64-bit lanes too.
    CountOnes,
    LeadingZeros,
    /// Trailing zeros and reversal of scalars.
    TrailingZeros,
    ReverseBits,
    /// Extends a narrower scalar.
    Extend {
        signed: bool,
    },
    /// The lower bits of a scalar.
    Reduce,

    // Floats.
    FloatDiv,
    /// The first operand if it is less (greater) than the second, else the second.
    FloatMin,
    FloatMax,
    /// The product of the first two plus the third, rounded once.
    Fma,
    Sqrt,
    Round(Rounding),
    /// A scalar `F32` as `F64`.
    Promote,
    /// A scalar `F64` as `F32`.
    Demote,

    // Between integers and floats: scalars, and pieces of 32-bit lanes.
    FromInt {
        signed: bool,
    },
    /// Rounds towards zero and saturates; a NaN gives 0.
    ToInt {
        signed: bool,
    },
    /// Truncates a scalar float or 32-bit lanes towards zero; out of range, a scalar gives the
    /// least integer, a lane any value.
    TruncateInt,
    /// The same bits as another type.
    Bitcast,

    // Conditions.
    /// Two operands of one type; for the result see [`Type::compared`].
    Compare(IntOrder),
    CompareFloats(FloatOrder),
    /// The second or the third operand, by a condition.
    Select,
    /// Lanes of the second or the third operand, by a mask.
    Choose,
    /// Reduces a mask to a condition.
    AnyTrue,
    AllTrue,
    /// The top bits of 32-bit lanes as a scalar `I32`, lane 0 lowest.
    HighBits,

    // Pieces.
    /// One scalar in every lane.
    Splat,
    /// A scalar for each lane.
    Build,
    Extract(u8),
    /// One lane in all lanes.
    SplatLane(u8),
    /// The lower or upper half of the lanes, in twice the width.
    Widen {
        signed: bool,
        high: bool,
    },
    /// `F32` lanes as `F64`.
    WidenFloat {
        high: bool,
    },
    /// The lanes of two pieces of `F64` as `F32`.
    NarrowFloat,
    /// The lower halves of the lanes of two pieces of `I64`.
    LowHalves,
    /// The lanes of two pieces in half the width; the values must fit.
    Pack,
    /// 32-bit lanes: each receives the lane whose number differs in this bit.
    Swap(u8),
    /// 32-bit lanes of two pieces; four bits per lane select from the lanes of both.
    Shuffle(u32),
    /// Shuffles bytes within each 16-byte group by an [`Op::Pattern`]; each result byte is one of
    /// the 16, or zero.
    ShuffleBytes,
    /// Bytes of [`Function::patterns`].
    Pattern(u32),
    /// 32-bit lanes of the second operand moved up by this many within each 16-byte group; the last
    /// lanes of the first operand's group fill in below.
    MoveUpWithin(u8),
    /// 32-bit lanes of the second operand moved up by one; the last lane of the first operand fills
    /// in below.
    MoveUp,
    /// Lanes of this many bytes, alternately of the first and of the second operand, from the lower
    /// or the upper half of each 16-byte group: 32-bit lanes in groups of 4 or 8 bytes. With 16,
    /// the lower or the upper group of both 32-byte operands.
    Interleave {
        bytes: u8,
        high: bool,
    },
    /// 32-byte pieces of 32-bit lanes: the upper half is the fourth lane of the second operand,
    /// repeated; the lower half is the lower half of the first operand.
    CarryHalf,

    // Memory, at an address and an offset.
    Load(i32),
    /// A piece of 32 bytes from two halves at separate offsets.
    LoadHalves(i32, i32),
    /// Narrower elements, extended to the lanes.
    LoadNarrow(Narrow, i32),
    /// Operands are the value, then the address.
    Store(i32),
    /// The halves of a piece of 32 bytes to separate offsets.
    StoreHalves(i32, i32),
    /// `Store` past the caches: a piece of 32 bytes, with address and offset multiples of 16.
    StorePast(i32),
    /// The low bytes of a scalar or of a piece's lanes.
    StoreNarrow {
        bytes: u8,
        offset: i32,
    },
    /// The low bytes of a piece's lanes, in the lanes of a mask: value, mask, address. Only AVX-512
    /// has it.
    StoreMasked {
        bytes: u8,
        offset: i32,
    },
    StackAddress(StackSlot),
    /// Address and operand; returns the old value.
    AtomicUpdate(Update),
    /// Address, expected and new value; returns the old value.
    CompareExchange,
    /// Calls code that preserves every register: its address, then five register arguments.
    Call,
}

impl Op {
    /// Whether the op has an effect besides its value.
    pub(crate) fn has_effect(self) -> bool {
        matches!(
            self,
            Op::Store(_)
                | Op::StoreHalves(..)
                | Op::StorePast(_)
                | Op::StoreNarrow { .. }
                | Op::StoreMasked { .. }
                | Op::AtomicUpdate(_)
                | Op::CompareExchange
                | Op::Call
        )
    }
}

/// An instruction; its operands are a range of [`Function::operands`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub(crate) op: Op,
    pub(crate) ty: Type,
    first: u32,
    count: u16,
}

/// A jump to a block, with arguments for its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) to: Block,
    pub(crate) arguments: SmallVec<[Value; 4]>,
}

/// Terminator of a block.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Jump(Edge),
    /// Goes to the first edge if the condition holds, else to the second, which is the likelier one
    /// where one is.
    Branch(Value, [Edge; 2]),
    Return(Value),
}

impl End {
    pub(crate) fn edges(&self) -> &[Edge] {
        match self {
            End::Jump(edge) => std::slice::from_ref(edge),
            End::Branch(_, edges) => edges,
            End::Return(_) => &[],
        }
    }

    fn edges_mut(&mut self) -> &mut [Edge] {
        match self {
            End::Jump(edge) => std::slice::from_mut(edge),
            End::Branch(_, edges) => edges,
            End::Return(_) => &mut [],
        }
    }

    /// Returns the value read besides the arguments.
    pub(crate) fn operand(&self) -> Option<Value> {
        match self {
            End::Jump(_) => None,
            End::Branch(value, _) | End::Return(value) => Some(*value),
        }
    }
}

/// A basic block.
#[derive(Debug)]
pub(crate) struct BlockData {
    pub(crate) params: Vec<Value>,
    /// Range of its instructions by number; block parameters within the range are not part of it.
    first: u32,
    end: u32,
    /// Terminator; `None` if the block was never written, which only an unreachable block can be.
    pub(crate) ending: Option<End>,
    /// Whether it rarely runs.
    pub(crate) cold: bool,
}

/// A complete function. The parameters of its first block are the arguments.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) machine: Machine,
    insts: Vec<Inst>,
    /// The region of the kernel that each value belongs to.
    regions: Vec<SourceRegion>,
    operands: Vec<Value>,
    blocks: Vec<BlockData>,
    /// Zeros for variables read before they are written; defined before everything else.
    pub(crate) zeros: Vec<Value>,
    /// Sizes of the stack slots.
    pub(crate) slots: Vec<u32>,
    /// Byte shuffles; 16-byte pieces use the first half.
    pub(crate) patterns: Vec<[u8; 32]>,
}

impl Function {
    pub(crate) fn inst(&self, value: Value) -> &Inst {
        &self.insts[value.index()]
    }

    pub(crate) fn op(&self, value: Value) -> Op {
        self.inst(value).op
    }

    pub(crate) fn region(&self, value: Value) -> SourceRegion {
        self.regions[value.index()]
    }

    pub(crate) fn ty(&self, value: Value) -> Type {
        self.inst(value).ty
    }

    pub(crate) fn operands(&self, value: Value) -> &[Value] {
        let inst = self.inst(value);
        &self.operands[inst.first as usize..][..usize::from(inst.count)]
    }

    pub(crate) fn value_count(&self) -> usize {
        self.insts.len()
    }

    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn entry(&self) -> Block {
        Block(0)
    }

    pub(crate) fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block.index()]
    }

    /// Returns the terminator of a reachable block.
    pub(crate) fn ending(&self, block: Block) -> &End {
        match &self.block(block).ending {
            Some(end) => end,
            None => unreachable!("{block:?} was written"),
        }
    }

    /// Returns the instructions of a block, in order.
    pub(crate) fn body(&self, block: Block) -> impl DoubleEndedIterator<Item = Value> + '_ {
        let data = self.block(block);
        (data.first..data.end).map(Value).filter(|&value| self.op(value) != Op::Param)
    }

    /// Lists the reachable blocks: each after a predecessor, and after all of them except along
    /// back edges; the second edge of a branch directly follows it where possible.
    pub(crate) fn order(&self) -> Vec<Block> {
        let mut seen = vec![false; self.blocks.len()];
        let mut ended = Vec::with_capacity(self.blocks.len());
        let mut open = vec![(Block(0), 0)];
        seen[0] = true;
        while let Some((block, next)) = open.pop() {
            match self.ending(block).edges().get(next) {
                Some(&Edge { to, .. }) => {
                    open.push((block, next + 1));
                    if !std::mem::replace(&mut seen[to.index()], true) {
                        open.push((to, 0));
                    }
                }
                None => ended.push(block),
            }
        }
        ended.reverse();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down from the first parameter, adding the count to a variable; another variable is
    /// not written in the loop.
    fn sum_of_countdown() -> Function {
        let mut builder = Builder::new(Machine::new(16), &[I64, I64]);
        let &[from, other] = builder.entry_params() else { unreachable!("two parameters") };
        let (count, sum, kept) = (builder.declare(I64), builder.declare(I64), builder.declare(I64));
        let zero = builder.int(I64, 0);
        builder.set(count, from);
        builder.set(sum, zero);
        builder.set(kept, other);
        let (head, body, exit) = (builder.create_loop(), builder.create_block(), builder.create_block());
        builder.jump(head, &[]);
        builder.begin(head);
        let now = builder.get(count);
        let done = builder.compare_const(IntOrder::Equal, now, 0);
        builder.branch(done, (exit, &[]), (body, &[]));
        builder.begin(body);
        let before = builder.get(sum);
        let more = builder.add(before, now);
        builder.set(sum, more);
        let less = builder.add_const(now, -1);
        builder.set(count, less);
        builder.jump(head, &[]);
        builder.begin(exit);
        let (result, kept) = (builder.get(sum), builder.get(kept));
        let total = builder.add(result, kept);
        let total = builder.reduce(I32, total);
        builder.give(total);
        builder.finish()
    }

    #[test]
    fn variables_become_parameters_only_where_ways_meet_with_different_values() {
        let text = sum_of_countdown().to_string();
        assert_eq!(
            text,
            "\
b0(v0: i64, v1: i64):
  v2: i64 = Const(0)
  jump b1(v0, v2)
b1(v3: i64, v6: i64):
  v4: i64 = Const(0)
  v5: i8 = Compare(Equal) v3 v4
  branch v5 b3() else b2()
b2():
  v7: i64 = Add v6 v3
  v8: i64 = Const(18446744073709551615)
  v9: i64 = Add v3 v8
  jump b1(v9, v7)
b3():
  v11: i64 = Add v6 v1
  v12: i32 = Reduce v11
  return v12
"
        );
    }

    #[test]
    fn the_verifier_takes_what_the_builder_makes_and_nothing_out_of_place() {
        let mut function = sum_of_countdown();
        assert_eq!(verify(&function), Ok(()));
        let wide = function.insts[11].ty;
        function.insts[11].ty = I32;
        assert!(verify(&function).is_err_and(|wrong| wrong.starts_with("v11: Add does not take")));
        function.insts[11].ty = wide;
        let first = function.insts[11].first as usize;
        function.operands[first] = Value(7);
        assert!(verify(&function).is_err_and(|wrong| wrong.starts_with("v11 uses v7 before it is defined")));
    }

    #[test]
    fn what_is_read_before_it_is_written_is_zero() {
        let mut builder = Builder::new(Machine::new(16), &[I64]);
        let variable = builder.declare(I32);
        let value = builder.get(variable);
        builder.give(value);
        let function = builder.finish();
        assert_eq!(verify(&function), Ok(()));
        assert_eq!(function.to_string(), "  v1: i32 = zero\nb0(v0: i64):\n  return v1\n");
    }
}
