//! Statements and early exits.

use super::analysis::{Exit, ends, has_exit};
use super::{Lower, RoundEnd, Scope, Value};
use crate::fault::{Fault, Result};
use naga::{Block, Expression, Handle, Span, Statement};
use vyre_foundation::ir::{Expr, Node};

/// A statement and its position.
pub(super) type Item<'m> = (&'m Statement, Span);

pub(super) fn items(block: &Block) -> Vec<Item<'_>> {
    block.span_iter().map(|(statement, span)| (statement, *span)).collect()
}

impl<'m> Lower<'m> {
    /// Lowers statements in order, up to the first that control does not pass.
    pub(super) fn list(&mut self, list: &[Item<'m>]) -> Result<()> {
        let is_tail = self.is_tail;
        for (index, &(statement, span)) in list.iter().enumerate() {
            self.at(span);
            let here = self.here;
            let rest = &list[index + 1..];
            self.is_tail = is_tail && rest.is_empty();
            let done = self.item(statement, rest).map_err(|fault| fault.or_at(Some(here)))?;
            if done {
                break;
            }
        }
        self.is_tail = is_tail;
        Ok(())
    }

    pub(super) fn block(&mut self, block: &'m Block) -> Result<()> {
        self.list(&items(block))
    }

    /// Lowers one statement; returns whether the rest of the list has been handled or is
    /// unreachable.
    fn item(&mut self, statement: &'m Statement, rest: &[Item<'m>]) -> Result<bool> {
        match statement {
            Statement::Block(block) => {
                let list: Vec<_> = items(block).into_iter().chain(rest.iter().copied()).collect();
                self.list(&list)?;
                return Ok(true);
            }
            Statement::If { condition, accept, reject } => {
                return self.branch(*condition, [accept, reject], rest);
            }
            Statement::Break => self.break_()?,
            Statement::Continue => self.continue_()?,
            Statement::Return { value } => self.return_(*value)?,
            _ => {
                self.plain(statement)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An `if`. If a branch leaves a switch or function that is not a loop, the rest goes into the
    /// other branch.
    fn branch(
        &mut self,
        condition: Handle<Expression>,
        blocks: [&'m Block; 2],
        rest: &[Item<'m>],
    ) -> Result<bool> {
        if self.short_circuit(condition, blocks, rest)? {
            return Ok(false);
        }
        let [accept, reject] = blocks;
        let condition = self.leaf(condition)?;
        self.settle_all()?;
        let at = self.here;
        let leaves = |lower: &Self, block: &Block| {
            (lower.breaks_at_ends() && has_exit(block, Exit::Break))
                || (lower.returns_at_ends() && has_exit(block, Exit::Return))
        };
        let split = leaves(self, accept) || leaves(self, reject);
        let (mut first, mut second) = (items(accept), items(reject));
        if split {
            let target = if ends(accept) { &mut second } else { &mut first };
            target.extend_from_slice(rest);
        }
        let then = self.nested(|lower| lower.list(&first))?;
        let otherwise = self.nested(|lower| lower.list(&second))?;
        self.here = at;
        if then.nodes.is_empty() && !otherwise.nodes.is_empty() {
            self.code.choose(negated(condition), otherwise, then, at);
        } else {
            self.code.choose(condition, then, otherwise, at);
        }
        self.spend(1)?;
        Ok(split || (ends(accept) && ends(reject)))
    }

    fn breaks_at_ends(&self) -> bool {
        matches!(self.scopes.last(), Some(Scope::Switch))
    }

    fn returns_at_ends(&self) -> bool {
        matches!(self.scopes.last(), Some(Scope::Call))
    }

    fn plain(&mut self, statement: &'m Statement) -> Result<()> {
        self.is_tail = false;
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    let function = self.innermost().function;
                    self.at(function.expressions.get_span(handle));
                    let here = self.here;
                    self.emit_expression(handle).map_err(|fault| fault.or_at(Some(here)))?;
                }
                Ok(())
            }
            Statement::Store { pointer, value } => self.store_statement(statement, *pointer, *value),
            Statement::Loop { body, continuing, break_if } => {
                self.loop_(statement, body, continuing, *break_if)
            }
            Statement::Switch { selector, cases } => self.switch(*selector, cases),
            Statement::Call { function, arguments, result } => self.call(*function, arguments, *result),
            Statement::Atomic { pointer, fun, value, result } => self.atomic(*pointer, *fun, *value, *result),
            Statement::ControlBarrier(_) => {
                self.settle_all()?;
                self.emit(Node::Barrier)
            }
            // Barriers of programs order all memory; without one, no ordering is observable in a
            // program.
            Statement::MemoryBarrier(_) => Ok(()),
            Statement::WorkGroupUniformLoad { pointer, result } => self.uniform_load(*pointer, *result),
            Statement::SubgroupBallot { result, predicate } => self.ballot(*predicate, *result),
            Statement::SubgroupGather { mode, argument, result } => self.gather(*mode, *argument, *result),
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective((*op, *collective_op), *argument, *result)
            }
            Statement::Kill => Err(Fault::unsupported("`discard`")),
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => {
                Err(Fault::unsupported("a texture"))
            }
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => {
                Err(Fault::unsupported("a ray query"))
            }
            Statement::CooperativeStore { .. } => Err(Fault::unsupported("a cooperative matrix")),
            Statement::Block(_)
            | Statement::If { .. }
            | Statement::Break
            | Statement::Continue
            | Statement::Return { .. } => unreachable!("`item` takes these"),
        }
    }

    fn store_statement(
        &mut self,
        statement: &'m Statement,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Result<()> {
        let function = self.innermost().function;
        let is_zero = matches!(function.expressions[value], Expression::ZeroValue(_));
        if let Some(&local) = self.innermost().facts.declarations.get(&std::ptr::from_ref(statement)) {
            let declared = &function.local_variables[local];
            let inner = self.types.inner(declared.ty);
            let values = if is_zero { None } else { Some(self.leaves(value)?) };
            let label = declared.name.clone().unwrap_or_else(|| "v".into());
            let root = self.declare(&label, inner, values)?;
            self.innermost_mut().locals.insert(local, root);
            return Ok(());
        }
        if is_zero {
            let pointee = self.pointee(pointer)?;
            return self.clear(&pointee);
        }
        let values = self.leaves(value)?;
        let pointee = self.pointee(pointer)?;
        self.store(&pointee, values)
    }

    /// `workgroupUniformLoad`: all invocations wait, one loads, all get its value.
    fn uniform_load(&mut self, pointer: Handle<Expression>, result: Handle<Expression>) -> Result<()> {
        self.settle_all()?;
        self.emit(Node::Barrier)?;
        let pointee = self.pointee(pointer)?;
        let mut leaves = Vec::new();
        for leaf in self.load(&pointee)? {
            leaves.push(self.name_it("t", Expr::workgroup_broadcast(leaf))?);
        }
        self.innermost_mut().values.insert(result, Value::Leaves(leaves));
        Ok(())
    }

    fn break_(&mut self) -> Result<()> {
        match self.scopes.last() {
            Some(Scope::Loop { .. } | Scope::SwitchOnce) => self.emit(Node::Break),
            Some(Scope::Switch) => Ok(()),
            Some(Scope::Call | Scope::CallOnce) | None => {
                Err(Fault::unsupported("a `break` outside of a loop"))
            }
        }
    }

    pub(super) fn continue_(&mut self) -> Result<()> {
        for depth in (0..self.scopes.len()).rev() {
            match self.scopes[depth] {
                Scope::Loop { end } => {
                    // The end of the iteration belongs to the loop, not to the switch that is left.
                    let inner = self.scopes.split_off(depth + 1);
                    let ended = self.round_end(end);
                    self.scopes.extend(inner);
                    ended?;
                    return self.emit(Node::Continue);
                }
                Scope::SwitchOnce => {
                    let Some(again) = self.again.last().cloned() else { break };
                    self.emit(Node::assign(again, Expr::bool(true)))?;
                    return self.emit(Node::Break);
                }
                Scope::Switch => {}
                Scope::Call | Scope::CallOnce => break,
            }
        }
        Err(Fault::unsupported("a `continue` outside of a loop"))
    }

    /// Code between two iterations.
    pub(super) fn round_end(&mut self, end: RoundEnd<'m>) -> Result<()> {
        if let Some(continuing) = end.continuing {
            self.block(continuing)?;
        }
        if let Some(condition) = end.break_if {
            let condition = self.leaf(condition)?;
            let leave = self.nested(|lower| lower.emit(Node::Break))?;
            self.code.choose(condition, leave, super::statement_list::StatementList::default(), self.here);
        }
        Ok(())
    }

    fn return_(&mut self, value: Option<Handle<Expression>>) -> Result<()> {
        if self.inlined.len() == 1 {
            // The end of the body ends the invocation.
            return if self.is_tail { Ok(()) } else { self.emit(Node::Return) };
        }
        self.return_value(value)?;
        let call = self.scopes.iter().rev().find(|scope| matches!(scope, Scope::Call | Scope::CallOnce));
        if matches!(call, Some(Scope::Call)) {
            return Ok(());
        }
        if let Some(flag) = self.innermost().returned.clone() {
            self.emit(Node::assign(flag, Expr::bool(true)))?;
        }
        self.emit(Node::Break)
    }

    /// After a loop that a return left, leaves the enclosing scope too.
    pub(super) fn after_loop(&mut self, statements: &[&'m Block]) -> Result<()> {
        let Some(flag) = self.innermost().returned.clone() else { return Ok(()) };
        if statements.iter().any(|block| has_exit(block, Exit::Return)) {
            let leave = self.nested(|lower| lower.emit(Node::Break))?;
            self.code.choose(
                Expr::Var(flag),
                leave,
                super::statement_list::StatementList::default(),
                self.here,
            );
        }
        Ok(())
    }
}

/// Negates a condition.
pub(super) fn negated(condition: Expr) -> Expr {
    use vyre_foundation::ir::Op;
    match condition {
        Expr::Op(Op::Not, args) if args.len() == 1 => args[0].clone(),
        other => !other,
    }
}
