//! Building blocks of a naga function: expressions, literals and variables.
//!
//! Naga requires every computed expression to be listed in an `Emit` statement in the block that
//! evaluates it. The builder emits it at once, so the order of calls is the order of evaluation.

use naga::{
    BinaryOperator, Block, Expression, Function, Handle, Literal, LocalVariable, MathFunction, Module, Range,
    Scalar, ScalarKind, Span, Statement, Type, TypeInner, UnaryOperator,
};
use std::collections::HashMap;
use vyre_foundation::types::{Value, ValueType};

/// A naga expression.
pub(super) type Expr = Handle<Expression>;

/// The module under construction and the current block.
pub(super) struct Builder {
    pub(super) module: Module,
    pub(super) function: Function,
    block: Block,
    literals: HashMap<(ValueType, u64), Expr>,
}

/// The naga type of a value.
pub(super) fn scalar(ty: ValueType) -> Scalar {
    let (kind, width) = match ty {
        ValueType::Bool => (ScalarKind::Bool, 1),
        ValueType::U32 => (ScalarKind::Uint, 4),
        ValueType::I32 => (ScalarKind::Sint, 4),
        ValueType::U64 => (ScalarKind::Uint, 8),
        ValueType::I64 => (ScalarKind::Sint, 8),
        ValueType::F32 => (ScalarKind::Float, 4),
        ValueType::F64 => (ScalarKind::Float, 8),
    };
    Scalar { kind, width }
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            module: Module::default(),
            function: Function::default(),
            block: Block::new(),
            literals: HashMap::new(),
        }
    }

    /// Returns the module and the function; the current block becomes the function's body.
    pub(super) fn finish(mut self) -> (Module, Function) {
        self.function.body = self.block;
        (self.module, self.function)
    }

    pub(super) fn ty(&mut self, inner: TypeInner) -> Handle<Type> {
        self.module.types.insert(Type { name: None, inner }, Span::UNDEFINED)
    }

    pub(super) fn value_ty(&mut self, ty: ValueType) -> Handle<Type> {
        self.ty(TypeInner::Scalar(scalar(ty)))
    }

    /// An expression that needs no evaluation: an argument, a variable, or the result of a
    /// statement.
    pub(super) fn name(&mut self, expression: Expression) -> Expr {
        self.function.expressions.append(expression, Span::UNDEFINED)
    }

    /// An expression that is evaluated at this point.
    pub(super) fn compute(&mut self, expression: Expression) -> Expr {
        let handle = self.name(expression);
        self.push(Statement::Emit(Range::new_from_bounds(handle, handle)));
        handle
    }

    pub(super) fn push(&mut self, statement: Statement) {
        self.block.push(statement, Span::UNDEFINED);
    }

    /// Runs `build` on an empty block and returns what it emitted.
    pub(super) fn nested<S>(
        state: &mut S,
        builder: fn(&mut S) -> &mut Builder,
        build: impl FnOnce(&mut S),
    ) -> Block {
        let outer = std::mem::take(&mut builder(state).block);
        build(state);
        std::mem::replace(&mut builder(state).block, outer)
    }

    /// A constant. Floats are built from their bits, since naga rejects infinite and NaN literals.
    pub(super) fn constant(&mut self, value: Value) -> Expr {
        let bits = value.to_bits();
        match value {
            Value::F32(_) => {
                let bits = self.u32(bits as u32);
                self.bitcast(bits, ScalarKind::Float)
            }
            Value::F64(_) => {
                let bits = self.literal(ValueType::U64, bits, Literal::U64(bits));
                self.bitcast(bits, ScalarKind::Float)
            }
            Value::Bool(x) => self.literal(ValueType::Bool, bits, Literal::Bool(x)),
            Value::U32(x) => self.u32(x),
            Value::I32(x) => self.literal(ValueType::I32, bits, Literal::I32(x)),
            Value::U64(x) => self.literal(ValueType::U64, bits, Literal::U64(x)),
            Value::I64(x) => self.literal(ValueType::I64, bits, Literal::I64(x)),
        }
    }

    pub(super) fn u32(&mut self, x: u32) -> Expr {
        self.literal(ValueType::U32, x.into(), Literal::U32(x))
    }

    fn literal(&mut self, ty: ValueType, bits: u64, literal: Literal) -> Expr {
        if let Some(&known) = self.literals.get(&(ty, bits)) {
            return known;
        }
        let made = self.name(Expression::Literal(literal));
        self.literals.insert((ty, bits), made);
        made
    }

    /// The value of a literal integer expression.
    pub(super) fn integer(&self, expr: Expr) -> Option<Value> {
        match self.function.expressions[expr] {
            Expression::Literal(Literal::U32(x)) => Some(Value::U32(x)),
            Expression::Literal(Literal::I32(x)) => Some(Value::I32(x)),
            Expression::Literal(Literal::U64(x)) => Some(Value::U64(x)),
            Expression::Literal(Literal::I64(x)) => Some(Value::I64(x)),
            _ => None,
        }
    }

    pub(super) fn binary(&mut self, op: BinaryOperator, left: Expr, right: Expr) -> Expr {
        self.compute(Expression::Binary { op, left, right })
    }

    /// A binary operator with a constant `u32` as its right operand.
    pub(super) fn with_u32(&mut self, op: BinaryOperator, left: Expr, right: u32) -> Expr {
        let right = self.u32(right);
        self.binary(op, left, right)
    }

    pub(super) fn unary(&mut self, op: UnaryOperator, expr: Expr) -> Expr {
        self.compute(Expression::Unary { op, expr })
    }

    pub(super) fn select(&mut self, condition: Expr, accept: Expr, reject: Expr) -> Expr {
        self.compute(Expression::Select { condition, accept, reject })
    }

    pub(super) fn math(&mut self, fun: MathFunction, args: &[Expr]) -> Expr {
        let arg = |k: usize| args.get(k).copied();
        let Some(first) = arg(0) else { unreachable!("every function takes an argument") };
        self.compute(Expression::Math { fun, arg: first, arg1: arg(1), arg2: arg(2), arg3: None })
    }

    /// Reinterprets the bits as another kind of the same width.
    pub(super) fn bitcast(&mut self, expr: Expr, kind: ScalarKind) -> Expr {
        self.compute(Expression::As { expr, kind, convert: None })
    }

    /// Converts a value to another type.
    pub(super) fn convert(&mut self, expr: Expr, to: ValueType) -> Expr {
        let Scalar { kind, width } = scalar(to);
        self.compute(Expression::As { expr, kind, convert: Some(width) })
    }

    pub(super) fn load(&mut self, pointer: Expr) -> Expr {
        self.compute(Expression::Load { pointer })
    }

    pub(super) fn store(&mut self, pointer: Expr, value: Expr) {
        self.push(Statement::Store { pointer, value });
    }

    /// Pointer to an element of an array.
    pub(super) fn element(&mut self, base: Expr, index: Expr) -> Expr {
        self.compute(Expression::Access { base, index })
    }

    /// A fixed component of a vector, array or struct.
    pub(super) fn component(&mut self, base: Expr, index: u32) -> Expr {
        self.compute(Expression::AccessIndex { base, index })
    }

    /// Declares a local variable and returns a pointer to it.
    pub(super) fn variable(&mut self, name: Option<&str>, ty: Handle<Type>) -> Expr {
        let variable = LocalVariable { name: name.map(String::from), ty, init: None };
        let handle = self.function.local_variables.append(variable, Span::UNDEFINED);
        self.name(Expression::LocalVariable(handle))
    }
}
