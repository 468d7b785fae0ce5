//! Operators and conversions, scalar by scalar.

use super::Lower;
use super::scalar_type::ScalarType;
use crate::fault::{Fault, Result};
use naga::{BinaryOperator, Expression, Handle, ScalarKind, TypeInner, UnaryOperator};
use vyre_foundation::ir::{Expr, Op};

impl<'m> Lower<'m> {
    pub(super) fn unary(&mut self, op: UnaryOperator, operand: Handle<Expression>) -> Result<Vec<Expr>> {
        let op = match op {
            UnaryOperator::Negate => Op::Neg,
            UnaryOperator::LogicalNot | UnaryOperator::BitwiseNot => Op::Not,
        };
        Ok(self.leaves(operand)?.into_iter().map(|leaf| Expr::op(op, [leaf])).collect())
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Vec<Expr>> {
        let types = (self.type_of(left).clone(), self.type_of(right).clone());
        let kind = self.kind_of(left)?;
        if op == BinaryOperator::Multiply
            && let Some(shape) = super::matrices::product_shape(&types.0, &types.1)
        {
            let (a, b) = (self.shared_leaves(left)?, self.shared_leaves(right)?);
            return Ok(super::matrices::product(kind, shape, &a, &b));
        }
        let counts_in_i32 = matches!(op, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight)
            && self.kind_of(right)? != ScalarType::U32;
        let mut a = self.leaves(left)?;
        let mut b = self.leaves(right)?;
        // A scalar is broadcast to each component of a vector.
        if a.len() < b.len() {
            a = vec![self.shared(a.swap_remove(0))?; b.len()];
        } else if b.len() < a.len() {
            b = vec![self.shared(b.swap_remove(0))?; a.len()];
        }
        let mut leaves = Vec::new();
        for (x, y) in a.into_iter().zip(b) {
            let y = if counts_in_i32 { y.cast(ScalarType::U32.value()) } else { y };
            leaves.push(self.scalar_binary(op, kind, x, y)?);
        }
        // Comparing whole vectors for equality in SPIR-V and GLSL also yields a vector.
        Ok(leaves)
    }

    fn scalar_binary(&mut self, op: BinaryOperator, kind: ScalarType, x: Expr, y: Expr) -> Result<Expr> {
        let op = match op {
            BinaryOperator::Add => Op::Add,
            BinaryOperator::Subtract => Op::Sub,
            BinaryOperator::Multiply => Op::Mul,
            BinaryOperator::Divide => Op::Div,
            BinaryOperator::Modulo if kind.is_float() => return self.float_remainder(kind, x, y),
            BinaryOperator::Modulo => Op::Rem,
            BinaryOperator::Equal => Op::Eq,
            BinaryOperator::NotEqual => Op::Ne,
            BinaryOperator::Less => Op::Lt,
            BinaryOperator::LessEqual => Op::Le,
            BinaryOperator::Greater => Op::Gt,
            BinaryOperator::GreaterEqual => Op::Ge,
            BinaryOperator::And | BinaryOperator::LogicalAnd => Op::And,
            BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => Op::Or,
            BinaryOperator::ExclusiveOr => Op::Xor,
            BinaryOperator::ShiftLeft => Op::Shl,
            BinaryOperator::ShiftRight => Op::Shr,
        };
        let value = Expr::op(op, [x, y]);
        Ok(match op {
            Op::Add | Op::Sub | Op::Mul | Op::Div => kind.rounded(value),
            _ => value,
        })
    }

    /// `x - y * trunc(x / y)`, as WGSL defines it.
    fn float_remainder(&mut self, kind: ScalarType, x: Expr, y: Expr) -> Result<Expr> {
        let (x, y) = (self.shared(x)?, self.shared(y)?);
        let whole = kind.rounded(x.clone() / y.clone()).trunc();
        Ok(kind.rounded(x - kind.rounded(y * whole)))
    }

    pub(super) fn convert(
        &mut self,
        operand: Handle<Expression>,
        kind: ScalarKind,
        width: Option<u8>,
    ) -> Result<Vec<Expr>> {
        let from = self.kind_of(operand)?;
        let leaves = self.leaves(operand)?;
        let Some(width) = width else { return self.bitcast(operand, from, kind, leaves) };
        let to = ScalarType::of(naga::Scalar { kind, width })?;
        Ok(leaves.into_iter().map(|leaf| from.convert(leaf, to)).collect())
    }

    /// Reinterprets the bits as scalars of another kind; with halves, the number of scalars
    /// changes.
    fn bitcast(
        &mut self,
        operand: Handle<Expression>,
        from: ScalarType,
        kind: ScalarKind,
        leaves: Vec<Expr>,
    ) -> Result<Vec<Expr>> {
        let width = match self.type_of(operand) {
            TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar.width,
            _ => return Err(Fault::unsupported("a bitcast of this type")),
        };
        let to = ScalarType::of(naga::Scalar { kind, width })?;
        Ok(leaves.into_iter().map(|leaf| from.bits(leaf, to)).collect())
    }
}
