//! The vocabulary of the text form, shared by parser and printer.

use crate::ir::{Access, BufferDecl, Builtin, Expr, MAX_EXPR_DEPTH};
use crate::ops::{AtomicOp, Op, Spelling, SubgroupOp, WorkgroupOp};
use crate::types::ValueType;
use hashbrown::HashMap;
use std::sync::LazyLock;

/// Reserved words; a name spelt like one is written in backticks.
pub(super) const KEYWORDS: [&str; 20] = [
    "fn", "kernel", "let", "array", "if", "else", "for", "while", "break", "continue", "return", "barrier",
    "region", "trap", "true", "false", "inf", "nan", "inf_f64", "nan_f64",
];

/// Words that start a statement.
pub(super) const STATEMENT_WORDS: [&str; 11] =
    ["let", "array", "if", "for", "while", "break", "continue", "return", "barrier", "region", "trap"];

/// Words that start a statement when a parenthesis follows, and are names everywhere else.
pub(super) const MESSAGE_WORDS: [&str; 2] = ["print", "assert"];

/// Axes with letters; others are written as numbers.
pub(super) const AXES: [&str; 3] = ["x", "y", "z"];

/// Limit on the operand stack: a printed tree has at most one op and one parenthesis per level.
pub(super) const MAX_PENDING: usize = 2 * MAX_EXPR_DEPTH + 4;

/// What a name before a parenthesis means when it is not a function of the program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Callee {
    /// A table op on its operands.
    Op(Op),
    /// `atomic_add(buffer, index, value)` and similar.
    Atomic(AtomicOp),
    /// `subgroup_ballot(value)` and similar.
    Subgroup(SubgroupOp),
    /// `workgroup_broadcast(value)` and similar.
    Workgroup(WorkgroupOp),
    /// `len(buffer)`.
    Len,
    /// `f32_bits(0x7fc00001)`: a literal given as bits.
    Bits(ValueType),
}

/// An infix op; higher precedence binds tighter, all associate to the left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Infix {
    pub(super) op: Op,
    pub(super) precedence: u8,
}

/// The second spelling of `and`: looser than comparisons, for conditions.
pub(super) const LOGICAL_AND: (&str, Infix) = ("&&", Infix { op: Op::And, precedence: 3 });
/// The second spelling of `or`: looser than comparisons, for conditions.
pub(super) const LOGICAL_OR: (&str, Infix) = ("||", Infix { op: Op::Or, precedence: 2 });

// Lookup by spelling, each table derived once from the op tables. The one with every callee is the
// largest by far, and a text without calls does not need it.

static CALLEES: LazyLock<HashMap<String, Callee>> = LazyLock::new(|| {
    let ops = Op::ALL.iter().map(|op| (op.row().name.to_string(), Callee::Op(*op)));
    let atomics = AtomicOp::ALL.iter().map(|op| (atomic_name(*op), Callee::Atomic(*op)));
    let subgroups = SubgroupOp::all().map(|op| (subgroup_name(op), Callee::Subgroup(op)));
    let workgroups = WorkgroupOp::ALL.iter().map(|op| (workgroup_name(*op), Callee::Workgroup(*op)));
    let others = [
        ("len".to_string(), Callee::Len),
        ("f32_bits".to_string(), Callee::Bits(ValueType::F32)),
        ("f64_bits".to_string(), Callee::Bits(ValueType::F64)),
    ];
    ops.chain(atomics).chain(subgroups).chain(workgroups).chain(others).collect()
});

static INFIX: LazyLock<HashMap<&'static str, Infix>> = LazyLock::new(|| {
    let table = Op::ALL.iter().filter_map(|&op| match op.row().spelling {
        Spelling::Infix(symbol, precedence) => Some((symbol, Infix { op, precedence })),
        Spelling::Prefix(_) | Spelling::Call => None,
    });
    table.chain([LOGICAL_AND, LOGICAL_OR]).collect()
});

static PREFIX: LazyLock<HashMap<&'static str, Op>> = LazyLock::new(|| {
    let table = Op::ALL.iter().filter_map(|&op| match op.row().spelling {
        Spelling::Prefix(symbol) => Some((symbol, op)),
        Spelling::Infix(..) | Spelling::Call => None,
    });
    table.collect()
});

/// What `name` before a parenthesis means, unless it is a function of the program.
pub(super) fn callee(name: &str) -> Option<Callee> {
    CALLEES.get(name).copied()
}

/// The infix op that a symbol spells.
pub(super) fn infix(symbol: &str) -> Option<Infix> {
    INFIX.get(symbol).copied()
}

/// The prefix op that a symbol spells.
pub(super) fn prefix(symbol: &str) -> Option<Op> {
    PREFIX.get(symbol).copied()
}

/// The op of `+=` and similar: that of the symbol before the `=`. Comparisons such as `<=` are not
/// compound assignments.
pub(super) fn compound_assignment(symbol: &str) -> Option<Op> {
    let before = symbol.strip_suffix('=')?;
    if infix(symbol).is_some() { None } else { infix(before).map(|infix| infix.op) }
}

pub(super) fn atomic_name(op: AtomicOp) -> String {
    format!("atomic_{}", op.row().name)
}

pub(super) fn subgroup_name(op: SubgroupOp) -> String {
    format!("subgroup_{}", op.row().name)
}

pub(super) fn workgroup_name(op: WorkgroupOp) -> String {
    format!("workgroup_{}", op.row().name)
}

pub(super) fn builtin(name: &str) -> Option<Builtin> {
    Builtin::ALL.into_iter().find(|builtin| builtin.name() == name)
}

pub(super) fn access(name: &str) -> Option<Access> {
    Access::ALL.into_iter().find(|access| access.name() == name)
}

pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// Whether the name can be written without backticks.
pub(super) fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !is_keyword(name)
}

/// Whether the buffer is a single value, which a bare name loads.
pub(super) fn is_scalar_uniform(decl: &BufferDecl) -> bool {
    decl.access == Access::Uniform && decl.count == 1 && decl.length.is_none()
}

/// The index with which a bare name loads its single value.
pub(super) fn scalar_index() -> Expr {
    Expr::u32(0)
}

/// The implied binding of a declaration without one: one above the largest before it, 0 for
/// workgroup memory.
#[derive(Default)]
pub(super) struct ImpliedBindings {
    next: u32,
}

impl ImpliedBindings {
    pub(super) fn implied(&self, access: Access) -> u32 {
        if access == Access::Workgroup { 0 } else { self.next }
    }

    pub(super) fn declare(&mut self, decl: &BufferDecl) {
        if decl.access != Access::Workgroup {
            self.next = self.next.max(decl.binding.saturating_add(1));
        }
    }
}
