//! Logic of three operands in one instruction, with AVX-512.
//!
//! `vpternlogd` computes any function of three bits, given as a table: the result for each
//! combination of the bits of its first, second and third operand. A tree of bitwise ops on at most
//! three different values is one such function; the ops in it are folded if nothing else uses their
//! results. A choice by a mask is bitwise too, since the bits of a mask's lane are all alike.

use super::super::instruction::{InstKind, OperandOrder};
use super::{Selector, op};
use crate::piece::{Op, Value};
use regalloc2::{Operand, VReg};
use smallvec::SmallVec;

/// Tables of the operands themselves, on which the op itself computes the table of the op.
pub(super) const FIRST: u8 = 0xF0;
pub(super) const SECOND: u8 = 0xCC;
pub(super) const THIRD: u8 = 0xAA;
const OPERANDS: [u8; 3] = [FIRST, SECOND, THIRD];

/// Values that a tree reads.
type Leaves = SmallVec<[Value; 3]>;

impl Selector<'_> {
    /// Selects the tree of bitwise ops that ends in this value, if one instruction replaces at
    /// least two, or a choice between two values.
    pub(super) fn logic_of_three(&mut self, value: Value, to: VReg) -> bool {
        let mut leaves = self.with_leaves_of(&[], value);
        let mut folded: SmallVec<[Value; 8]> = SmallVec::from_slice(&[value]);
        // Folds one op at a time, as long as three leaves suffice.
        while let Some((at, op)) = self.foldable(&leaves) {
            leaves.remove(at);
            let more = self.with_leaves_of(&leaves, op);
            if more.len() > 3 {
                leaves.push(op);
                break;
            }
            leaves = more;
            folded.push(op);
        }
        if folded.len() < 2 && !self.is_choice_of_two(value) {
            return false;
        }
        let any = leaves.first().copied().unwrap_or(self.bitwise_operands(value)[0]);
        while leaves.len() < 2 {
            leaves.push(any);
        }
        leaves.sort_by_key(|&leaf| (self.in_memory(leaf).is_some(), self.uses[leaf.index()] > 1));
        let Some(table) = self.table(value, &folded, &leaves) else { return false };
        match leaves[..] {
            [a, b] => self.logic_of_both(to, [a, b], table),
            _ => self.select_logic(to, table, [leaves[0], leaves[1], leaves[2]]),
        }
        true
    }

    /// Whether it chooses between two values, neither of which is zero.
    fn is_choice_of_two(&self, value: Value) -> bool {
        let operands = self.function.operands(value);
        self.op(value) == Op::Choose && !operands[1..].iter().any(|&operand| self.is_zero(operand))
    }

    /// Adds the operands of a bitwise op to the leaves, except constants of all zeros or ones.
    fn with_leaves_of(&self, leaves: &[Value], value: Value) -> Leaves {
        let mut leaves = Leaves::from_slice(leaves);
        for leaf in self.bitwise_operands(value) {
            if !leaves.contains(&leaf) && self.plain_table(leaf).is_none() {
                leaves.push(leaf);
            }
        }
        leaves
    }

    /// Returns the table of a constant that is all zeros or all ones.
    fn plain_table(&self, value: Value) -> Option<u8> {
        let Op::Const(bits) = self.op(value) else { return None };
        let ones = u64::MAX >> (64 - 8 * self.ty(value).lane.bytes());
        match bits {
            0 => Some(0),
            bits if bits == ones => Some(0xFF),
            _ => None,
        }
    }

    /// Returns a leaf that is a bitwise op without other uses, at the same place in the program.
    fn foldable(&self, leaves: &[Value]) -> Option<(usize, Value)> {
        let (block, _) = self.now;
        leaves.iter().copied().enumerate().find(|&(_, leaf)| {
            self.is_bitwise(leaf) && self.uses[leaf.index()] == 1 && self.moments[leaf.index()].0 == block
        })
    }

    fn is_bitwise(&self, value: Value) -> bool {
        self.ty(value).is_piece()
            && matches!(self.op(value), Op::And | Op::Or | Op::Xor | Op::AndNot | Op::Not | Op::Choose)
    }

    /// Returns the operands of a bitwise op, past casts that nothing else uses.
    fn bitwise_operands(&self, value: Value) -> SmallVec<[Value; 3]> {
        let source = |&operand: &Value| {
            let mut operand = operand;
            while self.op(operand) == Op::Bitcast && self.uses[operand.index()] == 1 {
                let [from] = self.args(operand);
                if !self.is_vector(from) {
                    break;
                }
                operand = from;
            }
            operand
        };
        self.function.operands(value).iter().map(source).collect()
    }

    /// A function of two operands, for which there can be a shorter instruction.
    fn logic_of_both(&mut self, to: VReg, [a, b]: [Value; 2], table: u8) {
        const ONLY_FIRST: u8 = FIRST & !SECOND;
        const ONLY_SECOND: u8 = SECOND & !FIRST;
        let (vex, a, b) = match table {
            _ if table == FIRST & SECOND => (op::AND_BITS, a, b),
            _ if table == FIRST | SECOND => (op::OR_BITS, a, b),
            _ if table == FIRST ^ SECOND => (op::XOR_BITS, a, b),
            ONLY_FIRST => (op::AND_NOT_BITS, b, a),
            ONLY_SECOND => (op::AND_NOT_BITS, a, b),
            _ => return self.select_logic(to, table, [a, b, b]),
        };
        let a = self.register(a);
        let b = self.place(b);
        self.three_to(to, vex, true, a, b, None);
    }

    /// The result takes the place of the first operand; the third can be in memory.
    fn select_logic(&mut self, to: VReg, table: u8, leaves: [Value; 3]) {
        let [first, second, third] = leaves;
        let (first, second) = (self.register(first), self.register(second));
        let third = self.place(third);
        let operands = [Operand::reg_reuse_def(to, 1), Operand::reg_use(first), Operand::reg_use(second)];
        self.push_place(
            InstKind::Vector(op::LOGIC, OperandOrder::InPlace),
            true,
            &operands,
            third,
            Some(table.into()),
        );
    }

    /// Computes the table of a value from those of its operands; `None` if it is neither one of the
    /// leaves nor computed from them by bitwise ops.
    fn table(&self, value: Value, folded: &[Value], leaves: &[Value]) -> Option<u8> {
        if let Some(table) = self.plain_table(value) {
            return Some(table);
        }
        if !folded.contains(&value) {
            return leaves.iter().position(|&leaf| leaf == value).map(|at| OPERANDS[at]);
        }
        let operands = self.bitwise_operands(value);
        let tables = operands.iter().map(|&operand| self.table(operand, folded, leaves));
        let tables: SmallVec<[u8; 3]> = tables.collect::<Option<_>>()?;
        Some(match (self.op(value), &tables[..]) {
            (Op::And, [a, b]) => a & b,
            (Op::Or, [a, b]) => a | b,
            (Op::Xor, [a, b]) => a ^ b,
            (Op::AndNot, [a, b]) => a & !b,
            (Op::Not, [a]) => !a,
            (Op::Choose, [mask, yes, no]) => mask & yes | !mask & no,
            _ => return None,
        })
    }
}
