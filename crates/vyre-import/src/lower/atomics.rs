//! Atomics: those that programs have, and the others as compare-exchange loops.

use super::pointee::{Pointee, Root};
use super::scalar_type::ScalarType;
use super::{Lower, Value};
use crate::fault::{Fault, Result};
use naga::{AtomicFunction, Expression, Handle, TypeInner};
use vyre_foundation::ir::{AtomicOp, Expr, Name, Node};

/// The element that an atomic operates on.
struct AtomicTarget {
    memory: Name,
    index: Expr,
    /// Kind that the shader sees.
    kind: ScalarType,
    /// Kind of the element in memory.
    element: ScalarType,
}

impl<'m> Lower<'m> {
    fn target(&mut self, pointee: &Pointee) -> Result<AtomicTarget> {
        let TypeInner::Atomic(scalar) = pointee.inner else {
            return Err(Fault::unsupported("an atomic on memory that is not declared atomic"));
        };
        let kind = ScalarType::of(scalar)?;
        let element = match &pointee.root {
            Root::Buffer(buffer) => buffer.element.unwrap_or(buffer.word),
            Root::Arrays(_) | Root::Variables(_) | Root::Counter(_) => kind,
        };
        if kind.width() != element.width() || element.is_float() {
            return Err(Fault::unsupported(format!("an atomic {}", kind.suffix())));
        }
        let index = self.atomic_index(pointee, kind)?;
        let index = self.shared(index)?;
        Ok(AtomicTarget { memory: pointee.memory(kind)?, index, kind, element })
    }

    pub(super) fn atomic_load(&mut self, pointee: &Pointee) -> Result<Expr> {
        let target = self.target(pointee)?;
        let old = self.name_it("t", Expr::atomic_load(target.memory, target.index))?;
        Ok(target.element.bits(old, target.kind))
    }

    pub(super) fn atomic_store(&mut self, pointee: &Pointee, values: Vec<Expr>) -> Result<()> {
        let target = self.target(pointee)?;
        for value in values {
            let value = target.kind.bits(value, target.element);
            let store = Expr::atomic(AtomicOp::Store, target.memory.clone(), target.index.clone(), value);
            self.emit(Node::eval(store))?;
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        function: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let pointee = self.pointee(pointer)?;
        let value = self.leaf(value)?;
        let target = self.target(&pointee)?;
        self.settle(&target.memory.clone())?;
        let is_used = result.is_some_and(|result| self.innermost().info[result].ref_count > 0);
        if let AtomicFunction::Exchange { compare: Some(compare) } = function {
            return self.compare_exchange(target, compare, value, result);
        }
        let op = match function {
            AtomicFunction::Add | AtomicFunction::Subtract => AtomicOp::Add,
            AtomicFunction::And => AtomicOp::And,
            AtomicFunction::ExclusiveOr => AtomicOp::Xor,
            AtomicFunction::InclusiveOr => AtomicOp::Or,
            AtomicFunction::Min => AtomicOp::Min,
            AtomicFunction::Max => AtomicOp::Max,
            AtomicFunction::Exchange { .. } => AtomicOp::Exchange,
        };
        let by_bits = match op {
            AtomicOp::Min | AtomicOp::Max => target.kind == target.element,
            AtomicOp::Add => !target.kind.is_float(),
            _ => true,
        };
        let value = if function == AtomicFunction::Subtract { -value } else { value };
        let old = if by_bits {
            let operand = target.kind.bits(value, target.element);
            let atomic = Expr::atomic(op, target.memory, target.index, operand);
            if !is_used {
                return self.emit(Node::eval(atomic));
            }
            let old = self.name_it("old", atomic)?;
            target.element.bits(old, target.kind)
        } else {
            self.replace_in_loop(target, op, value)?
        };
        if let Some(result) = result {
            self.innermost_mut().values.insert(result, Value::Leaves(vec![old]));
        }
        Ok(())
    }

    fn compare_exchange(
        &mut self,
        target: AtomicTarget,
        compare: Handle<Expression>,
        value: Expr,
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let compare = self.leaf(compare)?;
        let expected = target.kind.bits(compare, target.element);
        let expected = self.shared(expected)?;
        let new = target.kind.bits(value, target.element);
        let atomic = Expr::atomic_compare_exchange(target.memory, target.index, expected.clone(), new);
        let old = self.name_it("old", atomic)?;
        let exchanged = self.name_it("exchanged", old.clone().equals(expected))?;
        let old = target.element.bits(old, target.kind);
        if let Some(result) = result {
            // SPIR-V's instruction returns only the old value, WGSL's function a struct of both.
            let is_struct = matches!(self.type_of(result), TypeInner::Struct { .. });
            let leaves = if is_struct { vec![old, exchanged] } else { vec![old] };
            self.innermost_mut().values.insert(result, Value::Leaves(leaves));
        }
        Ok(())
    }

    /// An atomic that programs lack for this kind: retries until no other write intervened. Returns
    /// the old value.
    fn replace_in_loop(&mut self, target: AtomicTarget, op: AtomicOp, value: Expr) -> Result<Expr> {
        let AtomicTarget { memory, index, kind, element } = target;
        let value = self.shared(value)?;
        let old = self.fresh("old");
        self.emit(Node::let_(old.clone(), Expr::atomic_load(memory.clone(), index.clone())))?;
        let done = self.fresh("done");
        self.emit(Node::let_(done.clone(), Expr::bool(false)))?;
        let before = element.bits(Expr::Var(old.clone()), kind);
        let combined = match op {
            AtomicOp::Min => before.min(value),
            AtomicOp::Max => before.max(value),
            _ => kind.rounded(before + value),
        };
        let new = kind.bits(combined, element);
        let body = self.nested(|lower| {
            let expected = Expr::Var(old.clone());
            let exchange = Expr::atomic_compare_exchange(memory, index, expected.clone(), new);
            let seen = lower.name_it("seen", exchange)?;
            lower.emit(Node::assign(done.clone(), seen.clone().equals(expected)))?;
            lower.emit(Node::assign(old.clone(), seen))
        })?;
        self.code.repeat(!Expr::Var(done), body, self.here);
        Ok(element.bits(Expr::Var(old), kind))
    }
}
