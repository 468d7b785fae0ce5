//! Control flow decided by constants: branches not taken, loops that do not run, unreachable
//! statements; and exits from the middle of a block, which become branches.
//!
//! `if c { a; return } b` becomes `if c { a } else { b }` where the invocation ends after `b`, and
//! likewise with `continue` where an iteration does. A back end that runs invocations as lanes of a
//! vector then sees both sides of a branch, of which most vectors take one as a whole, instead of
//! lanes that are gone for the rest of the kernel.

use super::walk::{any_stmt, definitions, each_block_mut, ends};
use crate::kernel::{Def, KernelBody, Stmt, StmtKind, ValueId};
use crate::types::Value;

/// The trip count of a counted loop with these constant bounds: ⌈(to − from) / step⌉, 0 if that is
/// not positive.
pub(crate) fn trip_count(from: Value, to: Value, step: Value) -> Option<u128> {
    let (distance, step) = (to.as_integer()? - from.as_integer()?, step.as_integer()?);
    if step == 0 || distance.signum() != step.signum() {
        return Some(0);
    }
    Some(distance.unsigned_abs().div_ceil(step.unsigned_abs()))
}

/// Simplifies every block, the innermost first.
pub(super) fn run(body: &mut KernelBody) {
    let definitions = definitions(body);
    let constant = |value: ValueId| match definitions[value.index()] {
        Some(Def::Const(constant)) => Some(constant),
        Some(
            Def::Get(_)
            | Def::Op(..)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..),
        )
        | None => None,
    };
    each_block_mut(&mut body.body, &mut |block| {
        if block.iter().any(|stmt| is_control(&stmt.kind)) {
            let statements = std::mem::take(block);
            simplify_block(statements, block, &constant);
        }
    });
    branch_instead_of_exit(&mut body.body, Some(Exit::Return), 0);
}

/// An exit that does the same as reaching the end of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exit {
    Return,
    Continue,
}

impl Exit {
    /// Whether a block takes this exit at its end.
    fn ends(self, block: &[Stmt]) -> bool {
        block.last().is_some_and(|last| match self {
            Exit::Return => matches!(last.kind, StmtKind::Return),
            Exit::Continue => matches!(last.kind, StmtKind::Continue),
        })
    }
}

/// Nesting depth from which exits are kept. Each exit that becomes a branch is one more level
/// (`filetests/hostile/returns_150.vyre`), and drivers limit how deep branches nest: llvmpipe to
/// 80.
const DEEPEST: usize = 16;

/// Turns exits into branches in a block and in those nested in it, given the exit that does the
/// same as reaching its end, if there is one, and the number of enclosing blocks.
fn branch_instead_of_exit(block: &mut Vec<Stmt>, end: Option<Exit>, depth: usize) {
    if let Some(exit) = end {
        if depth < DEEPEST {
            nest_rest(block, exit);
        }
        while exit.ends(block) {
            block.pop();
        }
    }
    let count = block.len();
    for (number, stmt) in block.iter_mut().enumerate() {
        let is_last = number + 1 == count;
        match &mut stmt.kind {
            StmtKind::If { then, otherwise, .. } => {
                let end = end.filter(|_| is_last);
                branch_instead_of_exit(then, end, depth + 1);
                branch_instead_of_exit(otherwise, end, depth + 1);
            }
            StmtKind::Region { body, .. } => {
                branch_instead_of_exit(body, end.filter(|_| is_last), depth + 1);
            }
            StmtKind::For { body, .. } | StmtKind::Loop(body) => {
                branch_instead_of_exit(body, Some(Exit::Continue), depth + 1);
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => {}
        }
    }
}

/// Moves what follows the first branch with a side that takes the exit to its other side. Barriers
/// stay where they are: back ends cut kernels at them.
fn nest_rest(block: &mut Vec<Stmt>, exit: Exit) {
    let is_taken = |stmt: &Stmt| {
        let StmtKind::If { then, otherwise, .. } = &stmt.kind else { return false };
        exit.ends(then) && !ends(otherwise) || exit.ends(otherwise) && !ends(then)
    };
    let Some(at) = block.iter().position(is_taken) else { return };
    if any_stmt(&block[at + 1..], &|kind| matches!(kind, StmtKind::Barrier)) {
        return;
    }
    let rest = block.split_off(at + 1);
    if let Some(Stmt { kind: StmtKind::If { then, otherwise, .. }, .. }) = block.last_mut() {
        let other = if exit.ends(then) { otherwise } else { then };
        other.extend(rest);
    }
}

fn is_control(kind: &StmtKind) -> bool {
    match kind {
        StmtKind::If { .. }
        | StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Region { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Trap(_) => true,
        StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Barrier => false,
    }
}

/// Moves the reachable statements to `out`.
fn simplify_block(statements: Vec<Stmt>, out: &mut Vec<Stmt>, constant: &impl Fn(ValueId) -> Option<Value>) {
    for stmt in statements {
        match stmt.kind {
            StmtKind::If { condition, then, otherwise } => match constant(condition) {
                Some(known) => out.extend(if known == Value::Bool(true) { then } else { otherwise }),
                None if then.is_empty() && otherwise.is_empty() => {}
                None => out.push(Stmt { kind: StmtKind::If { condition, then, otherwise }, at: stmt.at }),
            },
            StmtKind::For { from, to, step, ref body, .. } => {
                let runs = match (constant(from), constant(to), constant(step)) {
                    (Some(from), Some(to), Some(step)) => trip_count(from, to, step) != Some(0),
                    (Some(_) | None, Some(_) | None, Some(_) | None) => true,
                };
                if runs && !body.is_empty() {
                    out.push(stmt);
                }
            }
            StmtKind::Loop(ref body) if matches!(body.first(), Some(Stmt { kind: StmtKind::Break, .. })) => {}
            StmtKind::Continue | StmtKind::Break | StmtKind::Return | StmtKind::Trap(_) => out.push(stmt),
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Loop(_)
            | StmtKind::Barrier
            | StmtKind::Region { .. } => out.push(stmt),
        }
        if ends(&out[out.len().saturating_sub(1)..]) {
            return;
        }
    }
}
