//! Control flow decided by constants: branches not taken, loops that do not run, unreachable
//! statements.

use super::walk::{definitions, each_block_mut, ends};
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
