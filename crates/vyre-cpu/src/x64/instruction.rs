//! Machine instructions on virtual registers.

use super::bytes::Vex;
use crate::piece::StackSlot;
use crate::source_region::SourceRegion;
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

/// Operands of a vector instruction, in the order of [`Inst::operands`]; a memory operand can
/// replace the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandOrder {
    /// Result, two operands.
    Three,
    /// Result, an operand.
    Two,
    /// Result in the position that can be memory, an operand.
    TwoReversed,
    /// The stored value; the memory operand is the target.
    Store,
    /// Result, an operand; the number is the opcode extension.
    Shift(u8),
    /// Result, two operands, the mask (before the last operand).
    Blend,
    /// Result, which is the first operand; two more.
    InPlace,
    /// No result, two operands.
    Test,
}

/// Operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstKind {
    Vector(Vex, OperandOrder),
    /// Stores the lanes of a mask: the value, the mask; how the mask becomes one of a mask
    /// register, and the store.
    StoreMasked(Vex, Vex),
    /// Zeroes a vector register.
    Zero,
    /// Result, which is the first operand, replaced by the second if the condition holds. In vector
    /// registers.
    FloatIf(Condition),

    /// Result, which is the first operand (a comparison has no result), and the second or the
    /// immediate.
    Alu(Alu),
    /// Combines memory with an operand or the immediate.
    AluToMemory(Alu),
    /// Compares a byte of memory with zero.
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
    /// The number is the opcode extension: 4 left, 5 right, 7 right signed.
    ShiftNumber(u8),
    /// 2 inverts, 3 negates.
    Unary(u8),
    /// Bit counts, by opcode.
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
    /// Retries until no other thread intervened: an arithmetic op, or a minimum or maximum by the
    /// condition that keeps the old value.
    Retry(Retry),

    /// Defines the function's parameters.
    Arguments,
    Call,
    Jump(u32),
    /// Goes to the first block if the condition holds, else to the second.
    Branch(Condition, u32, u32),
    Return,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Combine(Alu),
    KeepIf(Condition),
}

/// Base of a memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Register(VReg),
    Constant(u32),
    Slot(StackSlot),
}

/// A memory operand. Its registers are the last of the instruction's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryOperand {
    pub(super) base: Base,
    pub(super) index: Option<(VReg, u8)>,
    pub(super) displacement: i32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Inst {
    pub(super) kind: InstKind,
    /// Whether it operates on 64 bits, or on all 256 of a vector register.
    pub(super) wide: bool,
    pub(super) memory: Option<MemoryOperand>,
    pub(super) immediate: Option<i64>,
    /// Range of [`MachineFunction::operands`].
    pub(super) first: u32,
    pub(super) count: u8,
}

/// A function in machine instructions. Block 0 is its entry; each block is numbered after its
/// predecessors, except along back edges.
#[derive(Debug, Default)]
pub(super) struct MachineFunction {
    pub(super) insts: Vec<Inst>,
    /// The region of the kernel that each instruction belongs to.
    pub(super) regions: Vec<SourceRegion>,
    pub(super) operands: Vec<Operand>,
    pub(super) blocks: Vec<BlockData>,
    pub(super) register_count: usize,
    pub(super) slots: Vec<u32>,
    pub(super) constants: Vec<[u8; 32]>,
    /// Number of vector registers.
    pub(super) vector_registers: usize,
    /// Whether any store bypasses the caches.
    pub(super) stores_past: bool,
}

#[derive(Debug, Default)]
pub(super) struct BlockData {
    /// Range of its instructions.
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) params: Vec<VReg>,
    /// Arguments for the parameters of its only successor.
    pub(super) arguments: Vec<VReg>,
    pub(super) successors: SmallVec<[regalloc2::Block; 2]>,
    pub(super) predecessors: SmallVec<[regalloc2::Block; 2]>,
    pub(super) cold: bool,
}

impl MachineFunction {
    pub(super) fn operands(&self, inst: &Inst) -> &[Operand] {
        &self.operands[inst.first as usize..][..usize::from(inst.count)]
    }
}
