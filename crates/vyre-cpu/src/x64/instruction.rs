//! Machine instructions whose operands are virtual registers.

use super::bytes::Vex;
use crate::piece::StackSlot;
use regalloc2::{Operand, VReg};
use smallvec::SmallVec;

/// Bytes of a piece.
pub(crate) const PIECE_BYTES: u32 = 32;

/// A condition on the flags, by its number in the opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Below = 2,
    NotBelow = 3,
    Equal = 4,
    NotEqual = 5,
    NotAbove = 6,
    Above = 7,
    Less = 12,
    NotLess = 13,
    NotGreater = 14,
    Greater = 15,
}

impl Condition {
    pub(super) fn negated(self) -> Condition {
        match self {
            Condition::Below => Condition::NotBelow,
            Condition::NotBelow => Condition::Below,
            Condition::Equal => Condition::NotEqual,
            Condition::NotEqual => Condition::Equal,
            Condition::NotAbove => Condition::Above,
            Condition::Above => Condition::NotAbove,
            Condition::Less => Condition::NotLess,
            Condition::NotLess => Condition::Less,
            Condition::NotGreater => Condition::Greater,
            Condition::Greater => Condition::NotGreater,
        }
    }
}

/// Two-operand arithmetic, by its number in the opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Compare = 7,
}

/// Which operands a vector instruction has, in the order of [`Inst::operands`]; a memory operand may stand for the last
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Result, two operands.
    Three,
    /// Result, an operand.
    Two,
    /// Result in the place that could be memory, an operand.
    TwoReversed,
    /// What is stored; the memory operand is where.
    Store,
    /// Result, an operand; the number continues the opcode.
    Shift(u8),
    /// Result, two operands, the mask (before the last operand).
    Blend,
    /// Result, which is the first operand; two more.
    MultiplyAdd,
    /// No result, two operands.
    Test,
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Vector(Vex, Shape),
    /// A vector register of zeros.
    Zero,
    /// Result, which is the first operand; the second instead if the condition holds. In vector registers.
    FloatIf(Condition),

    /// Result, which is the first operand (a comparison has no result), and the second or the immediate.
    Alu(Alu),
    /// An operand or the immediate combined with memory.
    AluToMemory(Alu),
    /// A byte of memory compared with zero.
    TestByte,
    Test,
    Lea,
    Number,
    Copy32,
    SignExtend32,
    Load {
        bytes: u8,
        signed: bool,
    },
    Store {
        bytes: u8,
    },
    Multiply,
    MultiplyNumber,
    /// The number continues the opcode: 4 left, 5 right, 7 right and signed.
    ShiftNumber(u8),
    /// 2 inverts, 3 negates.
    Unary(u8),
    /// Bits counted, by opcode.
    Count(u8),
    Divide {
        signed: bool,
    },
    MultiplyHigh {
        signed: bool,
    },
    SetIf(Condition),
    MoveIf(Condition),

    ExchangeAdd,
    Exchange,
    CompareExchange,
    /// Tries until nobody was in between: an arithmetic op, or a minimum or maximum by the condition that keeps the old one.
    Retry(Retry),

    /// The function's parameters arrive.
    Arguments,
    Call,
    Jump(u32),
    /// Under the condition to the first block, else to the second.
    Branch(Condition, u32, u32),
    Return,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Combine(Alu),
    KeepIf(Condition),
}

/// Where a memory operand starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Register(VReg),
    Constant(u32),
    Slot(StackSlot),
}

/// A memory operand. Its registers are the last ones of the instruction's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) base: Base,
    pub(super) index: Option<(VReg, u8)>,
    pub(super) displacement: i32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Inst {
    pub(super) kind: Kind,
    /// Whether it works on 64 bits, or on all 256 of a vector register.
    pub(super) wide: bool,
    pub(super) memory: Option<Memory>,
    pub(super) immediate: Option<i64>,
    /// A stretch of [`Code::operands`].
    pub(super) first: u32,
    pub(super) count: u8,
}

/// A function in machine instructions. Block 0 is its start; blocks are numbered so that each comes after those that lead to
/// it, loops apart.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) insts: Vec<Inst>,
    pub(super) operands: Vec<Operand>,
    pub(super) blocks: Vec<BlockData>,
    pub(super) register_count: usize,
    pub(super) slots: Vec<u32>,
    pub(super) constants: Vec<[u8; 32]>,
    /// Whether something is stored past the caches.
    pub(super) stores_past: bool,
}

#[derive(Debug, Default)]
pub(super) struct BlockData {
    /// Its instructions.
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) params: Vec<VReg>,
    /// What goes to the parameters of the only block after it.
    pub(super) arguments: Vec<VReg>,
    pub(super) successors: SmallVec<[regalloc2::Block; 2]>,
    pub(super) predecessors: SmallVec<[regalloc2::Block; 2]>,
    pub(super) cold: bool,
}

impl Code {
    pub(super) fn operands(&self, inst: &Inst) -> &[Operand] {
        &self.operands[inst.first as usize..][..usize::from(inst.count)]
    }
}
