//! Recovers `&&` and `||`.
//!
//! naga writes them as an `if` that stores to a variable, which is loaded right after it. Here they
//! become one condition again, provided that the second operand reads no memory that the first
//! might guard.

use super::Lower;
use super::pointee::Root;
use super::statement::{Item, items, negated};
use crate::fault::Result;
use naga::{Block, Expression, Handle, Literal, LocalVariable, Statement};
use vyre_foundation::ir::{Access, Expr};

/// The branch that evaluates the second operand, and the operator.
struct Operand<'m> {
    local: Handle<LocalVariable>,
    value: Handle<Expression>,
    before: Vec<Item<'m>>,
    operator: Operator,
}

struct Operator {
    is_and: bool,
    /// Whether the first operand is the negated condition.
    inverted: bool,
}

impl<'m> Lower<'m> {
    /// Lowers an `if` that is `&&` or `||` to a condition; returns whether it was one.
    pub(super) fn short_circuit(
        &mut self,
        condition: Handle<Expression>,
        blocks: [&'m Block; 2],
        rest: &[Item<'m>],
    ) -> Result<bool> {
        let Some(operand) = self.second_operand(blocks, rest) else { return Ok(false) };
        let mut second = None;
        let code = self.nested(|lower| {
            lower.list(&operand.before)?;
            second = Some(lower.leaf(operand.value)?);
            Ok(())
        })?;
        let Some(second) = second.filter(|second| code.nodes.is_empty() && !self.reads_guarded(second))
        else {
            return Ok(false);
        };
        let first = self.leaf(condition)?;
        let first = if operand.operator.inverted { negated(first) } else { first };
        let both = if operand.operator.is_and { first & second } else { first | second };
        self.innermost_mut().locals.insert(operand.local, Root::Counter(both));
        Ok(true)
    }

    fn second_operand(&self, [accept, reject]: [&'m Block; 2], rest: &[Item<'m>]) -> Option<Operand<'m>> {
        let function = self.innermost().function;
        let stored = |block: &Block| match block.last() {
            Some(Statement::Store { pointer, value }) => match function.expressions[*pointer] {
                Expression::LocalVariable(local) => Some((local, *value)),
                _ => None,
            },
            _ => None,
        };
        let ((local, first), (other, second)) = (stored(accept)?, stored(reject)?);
        let literal = |block: &Block, value| match function.expressions[value] {
            Expression::Literal(Literal::Bool(value)) if block.len() == 1 => Some(value),
            _ => None,
        };
        let (block, value, operator) = match (literal(accept, first), literal(reject, second)) {
            (_, Some(otherwise)) => (accept, first, Operator { is_and: !otherwise, inverted: otherwise }),
            (Some(then), _) => (reject, second, Operator { is_and: !then, inverted: !then }),
            _ => return None,
        };
        let loaded_next = match rest.first() {
            Some((Statement::Emit(range), _)) => range.clone().any(|handle| {
                matches!(function.expressions[handle], Expression::Load { pointer }
                    if matches!(function.expressions[pointer], Expression::LocalVariable(loaded) if loaded == local))
            }),
            _ => false,
        };
        let facts = &self.innermost().facts;
        let is_passing = facts.stores.get(&local) == Some(&2) && facts.loads.get(&local) == Some(&1);
        let mut before = items(block);
        before.pop();
        (local == other && loaded_next && is_passing).then_some(Operand { local, value, before, operator })
    }

    /// Whether an expression reads memory that could be out of range if the first operand does not
    /// hold.
    fn reads_guarded(&self, expr: &Expr) -> bool {
        let here = match expr {
            Expr::Load(name, _) => {
                !self.buffers.iter().any(|buffer| buffer.name == *name && buffer.access == Access::Uniform)
            }
            Expr::Atomic(..) | Expr::Subgroup(..) | Expr::Workgroup(..) | Expr::Call(..) => true,
            Expr::Literal(_) | Expr::Var(_) | Expr::Builtin(..) | Expr::BufLen(_) | Expr::Op(..) => false,
        };
        here || expr.args().iter().any(|arg| self.reads_guarded(arg))
    }
}
