//! The back end for x86-64 with AVX2: pieces of 32 bytes, in vector registers of 256 bits.
//!
//! `select` turns the piece form into the instructions of [`Code`], whose operands are virtual registers; `allocate` gives
//! out registers; `frame` says how the stack looks and writes what stands around the code; `encode` writes the bytes, by
//! `bytes`.
//!
//! Scalars are kept zero-extended to their registers' full width, conditions as 0 or 1. A kernel keeps to the System V
//! convention: five arguments, the result in `eax`, and the upper halves of the vector registers cleared at its end.

mod allocate;
mod bytes;
mod encode;
mod frame;
mod select;
#[cfg(test)]
mod tests;

use crate::code::Effort;
use crate::piece::{Function, StackSlot};
use bytes::Vex;
use regalloc2::{Operand, VReg};
use smallvec::SmallVec;

/// Bytes of a piece.
pub(crate) const PIECE_BYTES: u32 = 32;

/// A kernel whose code would be larger is refused.
const MOST_CODE_BYTES: usize = 32 << 20;

/// Why this processor does not run what is made here; `None` if it does.
pub(crate) fn missing() -> Option<&'static str> {
    macro_rules! all_of {
        ($($feature:tt)*) => {
            $(if !std::arch::is_x86_feature_detected!($feature) { return Some($feature); })*
        };
    }
    all_of!("avx2" "fma" "bmi1" "bmi2" "lzcnt" "popcnt");
    None
}

/// The machine code of a function.
pub(crate) fn compile(function: &Function, effort: Effort) -> Result<Vec<u8>, String> {
    let code = select::select(function);
    let bytes = allocate::allocated(&code, effort, |allocation| encode::encode(&code, allocation))??;
    if bytes.len() > MOST_CODE_BYTES {
        return Err(format!("the kernel's machine code takes more than {} MiB", MOST_CODE_BYTES >> 20));
    }
    Ok(bytes)
}

pub(crate) use frame::caller_code;

/// A condition on the flags, by its number in the opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
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
    fn negated(self) -> Condition {
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
enum Alu {
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
enum Shape {
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
enum Kind {
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
enum Retry {
    Combine(Alu),
    KeepIf(Condition),
}

/// Where a memory operand starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Register(VReg),
    Constant(u32),
    Slot(StackSlot),
}

/// A memory operand. Its registers are the last ones of the instruction's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    base: Base,
    index: Option<(VReg, u8)>,
    displacement: i32,
}

#[derive(Clone, Copy, Debug)]
struct Inst {
    kind: Kind,
    /// Whether it works on 64 bits, or on all 256 of a vector register.
    wide: bool,
    memory: Option<Memory>,
    immediate: Option<i64>,
    /// A stretch of [`Code::operands`].
    first: u32,
    count: u8,
}

/// A function in machine instructions. Block 0 is its start; blocks are numbered so that each comes after those that lead to
/// it, loops apart.
#[derive(Debug, Default)]
struct Code {
    insts: Vec<Inst>,
    operands: Vec<Operand>,
    blocks: Vec<BlockData>,
    register_count: usize,
    slots: Vec<u32>,
    constants: Vec<[u8; 32]>,
}

#[derive(Debug, Default)]
struct BlockData {
    /// Its instructions.
    first: u32,
    end: u32,
    params: Vec<VReg>,
    /// What goes to the parameters of the only block after it.
    arguments: Vec<VReg>,
    successors: SmallVec<[regalloc2::Block; 2]>,
    predecessors: SmallVec<[regalloc2::Block; 2]>,
    cold: bool,
}

impl Code {
    fn operands(&self, inst: &Inst) -> &[Operand] {
        &self.operands[inst.first as usize..][..usize::from(inst.count)]
    }
}
