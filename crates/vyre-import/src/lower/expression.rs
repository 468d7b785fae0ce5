//! Expressions: when they are evaluated, and how each is lowered.

use super::pointee::{Pointee, Root, mentions};
use super::scalar_type::ScalarType;
use super::statement_list::size;
use super::types::no_value;
use super::{Lower, Value};
use crate::fault::{Fault, Result};
use naga::{Expression, Handle, Literal, RelationalFunction, TypeInner};
use vyre_foundation::ir::{Expr, Name, Op};

/// Size above which an expression gets a name, so that large ones are not duplicated or nested too
/// deep.
const MAX_SIZE: usize = 24;

impl<'m> Lower<'m> {
    pub(super) fn type_of(&self, handle: Handle<Expression>) -> &TypeInner {
        self.innermost().info[handle].ty.inner_with(&self.module.types)
    }

    /// Kind of a value's scalars.
    pub(super) fn kind_of(&self, handle: Handle<Expression>) -> Result<ScalarType> {
        match self.type_of(handle) {
            TypeInner::Scalar(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. }
            | TypeInner::Atomic(scalar) => ScalarType::of(*scalar),
            other => Err(no_value(other)),
        }
    }

    /// Evaluates an expression that an `Emit` statement names.
    pub(super) fn emit_expression(&mut self, handle: Handle<Expression>) -> Result<()> {
        let inlined = self.innermost();
        let uses = inlined.info[handle].ref_count;
        let label = inlined.function.named_expressions.get(&handle).cloned();
        let expression = &inlined.function.expressions[handle];
        let is_step = matches!(expression, Expression::Access { .. } | Expression::AccessIndex { .. });
        // A pointer that is used once is resolved at its use; its indices are stable values.
        let is_pointer = is_step && self.type_of(handle).pointer_space().is_some();
        if uses == 0 || (is_pointer && uses == 1 && !self.is_sticky(handle)) {
            return Ok(());
        }
        self.innermost_mut().uses.remove(&handle);
        let value = match self.compute(handle)? {
            Value::Leaves(leaves) => {
                let several = uses > 1 || label.is_some();
                let keep = |lower: &Self, leaf: &Expr| {
                    is_short(leaf)
                        || (!several && size(leaf) <= MAX_SIZE && !acts(leaf) && !lower.is_sticky(handle))
                };
                let labels = if leaves.iter().all(|leaf| keep(self, leaf)) {
                    Vec::new()
                } else {
                    self.types.labels(self.type_of(handle))
                };
                let mut kept = Vec::new();
                for (index, leaf) in leaves.into_iter().enumerate() {
                    kept.push(if keep(self, &leaf) {
                        leaf
                    } else {
                        let suffix = labels.get(index).map_or("", String::as_str);
                        self.name_it(&format!("{}{suffix}", label.as_deref().unwrap_or("t")), leaf)?
                    });
                }
                if kept.iter().any(|leaf| !self.is_plain(leaf)) {
                    self.innermost_mut().waiting.push(handle);
                }
                Value::Leaves(kept)
            }
            Value::Pointer(pointee) => Value::Pointer(self.shared_pointee(pointee)?),
        };
        self.innermost_mut().values.insert(handle, value);
        Ok(())
    }

    fn is_sticky(&self, handle: Handle<Expression>) -> bool {
        self.innermost().facts.repeated.contains(&handle)
    }

    fn still_used(&self, handle: Handle<Expression>) -> bool {
        let inlined = self.innermost();
        let all = inlined.info[handle].ref_count;
        self.is_sticky(handle) || inlined.uses.get(&handle).copied().unwrap_or(0) < all
    }

    /// Names the pending values that read `name`, which is about to change.
    pub(super) fn settle(&mut self, name: &Name) -> Result<()> {
        self.settle_where(|_, leaf| mentions(leaf, name))
    }

    /// Names the pending values that read anything that can change.
    pub(super) fn settle_all(&mut self) -> Result<()> {
        self.settle_where(|lower, leaf| lower.can_change(leaf))
    }

    /// Names all pending values, so that a loop does not evaluate them in every iteration.
    pub(super) fn settle_for_loop(&mut self) -> Result<()> {
        self.settle_where(|lower, leaf| !lower.is_plain(leaf))
    }

    fn settle_where(&mut self, must: impl Fn(&Self, &Expr) -> bool) -> Result<()> {
        // Module variables are declared before there is a function.
        if self.inlined.is_empty() {
            return Ok(());
        }
        let mut still = Vec::new();
        for handle in std::mem::take(&mut self.innermost_mut().waiting) {
            if !self.still_used(handle) {
                continue;
            }
            let Some(Value::Leaves(leaves)) = self.innermost().values.get(&handle).cloned() else { continue };
            let mut kept = Vec::new();
            for leaf in leaves {
                kept.push(if must(self, &leaf) { self.name_it("t", leaf)? } else { leaf });
            }
            if kept.iter().any(|leaf| !self.is_plain(leaf)) {
                still.push(handle);
            }
            self.innermost_mut().values.insert(handle, Value::Leaves(kept));
        }
        self.innermost_mut().waiting = still;
        Ok(())
    }

    /// Whether an expression reads a variable that is assigned, or memory that is written.
    fn can_change(&self, expr: &Expr) -> bool {
        let here = match expr {
            Expr::Var(name) => self.mutable.contains(name),
            Expr::Load(name, _) => !self.constant.contains(name),
            Expr::Atomic(..) | Expr::Subgroup(..) | Expr::Workgroup(..) => true,
            Expr::Literal(_) | Expr::Builtin(..) | Expr::BufLen(_) | Expr::Op(..) | Expr::Call(..) => false,
        };
        here || expr.args().iter().any(|arg| self.can_change(arg))
    }

    /// Value of an expression; one that was not emitted is evaluated on the spot.
    pub(super) fn value(&mut self, handle: Handle<Expression>) -> Result<Value> {
        *self.innermost_mut().uses.entry(handle).or_insert(0) += 1;
        match self.innermost().values.get(&handle) {
            Some(value) => Ok(value.clone()),
            None => self.compute(handle),
        }
    }

    /// Scalars of a value, each for a single use.
    pub(super) fn leaves(&mut self, handle: Handle<Expression>) -> Result<Vec<Expr>> {
        match self.value(handle)? {
            Value::Leaves(leaves) => Ok(leaves),
            Value::Pointer(_) => Err(Fault::unsupported("a pointer used as a value")),
        }
    }

    /// Scalars of a value, each for any number of uses.
    pub(super) fn shared_leaves(&mut self, handle: Handle<Expression>) -> Result<Vec<Expr>> {
        let leaves = self.leaves(handle)?;
        self.shared_all(leaves)
    }

    /// The single scalar of a value.
    pub(super) fn leaf(&mut self, handle: Handle<Expression>) -> Result<Expr> {
        self.leaves(handle)?.into_iter().next().ok_or_else(|| Fault::unsupported("an empty value"))
    }

    pub(super) fn pointee(&mut self, handle: Handle<Expression>) -> Result<Pointee> {
        match self.value(handle)? {
            Value::Pointer(pointee) => Ok(pointee),
            Value::Leaves(_) => Err(Fault::unsupported("a value used as a pointer")),
        }
    }

    fn compute(&mut self, handle: Handle<Expression>) -> Result<Value> {
        let function = self.innermost().function;
        let leaves = match function.expressions[handle] {
            Expression::Literal(literal) => vec![self.literal(literal)?],
            Expression::Constant(constant) => self.constant(self.module.constants[constant].init)?,
            Expression::ZeroValue(ty) => self.zeros(ty)?,
            Expression::Compose { ref components, .. } => {
                let mut leaves = Vec::new();
                for &component in components {
                    leaves.extend(self.leaves(component)?);
                }
                leaves
            }
            Expression::Splat { size, value } => {
                let value = self.leaf(value)?;
                vec![self.shared(value)?; size as usize]
            }
            Expression::Swizzle { size, vector, pattern } => {
                let leaves = self.shared_leaves(vector)?;
                pattern[..size as usize].iter().map(|&component| leaves[component as usize].clone()).collect()
            }
            Expression::FunctionArgument(index) => {
                return Ok(self.innermost().arguments[index as usize].clone());
            }
            Expression::GlobalVariable(global) => {
                let inner = self.types.inner(self.module.global_variables[global].ty).clone();
                return Ok(Value::Pointer(Pointee::new(self.global(global)?, inner)));
            }
            Expression::LocalVariable(local) => {
                let inner = self.types.inner(function.local_variables[local].ty).clone();
                return Ok(Value::Pointer(Pointee::new(self.local(local)?, inner)));
            }
            Expression::AccessIndex { base, index } => return self.access_index(base, index),
            Expression::Access { base, index } => return self.access(base, index),
            Expression::Load { pointer } => {
                let pointee = self.pointee(pointer)?;
                self.load(&pointee)?
            }
            Expression::Unary { op, expr } => self.unary(op, expr)?,
            Expression::Binary { op, left, right } => self.binary(op, left, right)?,
            Expression::Select { condition, accept, reject } => self.select(condition, accept, reject)?,
            Expression::Relational { fun, argument } => self.relational(fun, argument)?,
            Expression::As { expr, kind, convert } => self.convert(expr, kind, convert)?,
            Expression::ArrayLength(array) => {
                let pointee = self.pointee(array)?;
                vec![self.array_length(&pointee)?]
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                self.math(handle, fun, [Some(arg), arg1, arg2, arg3])?
            }
            Expression::Override(_) => return Err(Fault::constant("an override has no value")),
            Expression::ImageSample { .. } | Expression::ImageLoad { .. } | Expression::ImageQuery { .. } => {
                return Err(Fault::unsupported("a texture"));
            }
            Expression::Derivative { .. } => return Err(Fault::unsupported("a derivative")),
            Expression::RayQueryVertexPositions { .. }
            | Expression::RayQueryProceedResult
            | Expression::RayQueryGetIntersection { .. } => return Err(Fault::unsupported("a ray query")),
            Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => {
                return Err(Fault::unsupported("a cooperative matrix"));
            }
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupBallotResult
            | Expression::SubgroupOperationResult { .. } => {
                return Err(Fault::unsupported("a result before its statement"));
            }
        };
        Ok(Value::Leaves(leaves))
    }

    fn access_index(&mut self, base: Handle<Expression>, index: u32) -> Result<Value> {
        match self.value(base)? {
            Value::Pointer(pointee) => self.component(pointee, index).map(Value::Pointer),
            Value::Leaves(leaves) => {
                let inner = self.type_of(base).clone();
                let before: u32 = match inner {
                    TypeInner::Struct { .. } => self.types.counts_before(&inner, index)?.iter().sum(),
                    _ => {
                        index
                            * self.types.counts(&self.types.component(&inner, 0)?.inner)?.iter().sum::<u32>()
                    }
                };
                let count = self.types.kinds(&self.types.component(&inner, index)?.inner)?.len();
                let part = leaves.get(before as usize..before as usize + count);
                part.map(|part| Value::Leaves(part.to_vec())).ok_or_else(|| no_value(&inner))
            }
        }
    }

    fn access(&mut self, base: Handle<Expression>, index: Handle<Expression>) -> Result<Value> {
        let kind = self.kind_of(index)?;
        let index = match (self.leaf(index)?, kind) {
            (Expr::Literal(vyre_foundation::ir::Value::I32(index)), _) => Expr::u32(index as u32),
            (index, ScalarType::U32) => index,
            (index, _) => index.cast(ScalarType::U32.value()),
        };
        if let Expression::Constant(constant) = self.innermost().function.expressions[base]
            && self.types.count(self.type_of(base))? > 16
        {
            let pointee = self.table(constant)?;
            let pointee = self.element(pointee, index)?;
            return self.load(&pointee).map(Value::Leaves);
        }
        match self.value(base)? {
            Value::Pointer(pointee) => self.element(pointee, index).map(Value::Pointer),
            Value::Leaves(leaves) => {
                let inner = self.type_of(base).clone();
                self.component_of_value(leaves, &inner, index)
            }
        }
    }

    /// A large constant that is indexed, as an array that every invocation fills first.
    fn table(&mut self, constant: Handle<naga::Constant>) -> Result<Pointee> {
        let declared = &self.module.constants[constant];
        let inner = self.types.inner(declared.ty).clone();
        if let Some(root) = self.tables.get(&constant) {
            return Ok(Pointee::new(root.clone(), inner));
        }
        let values = self.constant(declared.init)?;
        let label = declared.name.clone().unwrap_or_else(|| "table".into());
        let mut root = None;
        let code = self.nested(|lower| {
            root = Some(lower.declare(&label, &inner, Some(values))?);
            Ok(())
        })?;
        self.prologue.append(code);
        let root = root.unwrap_or(Root::Variables(Vec::new()));
        // It is never written again.
        if let Root::Arrays(names) = &root {
            self.constant.extend(names.iter().flatten().cloned());
        }
        self.tables.insert(constant, root.clone());
        Ok(Pointee::new(root, inner))
    }

    pub(super) fn literal(&self, literal: Literal) -> Result<Expr> {
        Ok(match literal {
            Literal::F64(value) => Expr::f64(value),
            Literal::F32(value) => Expr::f32(value),
            Literal::F16(value) => Expr::f32(value.to_f32()),
            Literal::U32(value) => Expr::u32(value),
            Literal::I32(value) => Expr::i32(value),
            Literal::U64(value) => Expr::u64(value),
            Literal::I64(value) => Expr::i64(value),
            Literal::Bool(value) => Expr::bool(value),
            Literal::AbstractInt(value) => Expr::i32(value as i32),
            Literal::AbstractFloat(value) => Expr::f32(value as f32),
            Literal::U16(_) | Literal::I16(_) => return Err(Fault::unsupported("a number of 16 bits")),
        })
    }

    pub(super) fn zeros(&self, ty: Handle<naga::Type>) -> Result<Vec<Expr>> {
        Ok(self.types.kinds(self.types.inner(ty))?.into_iter().map(ScalarType::zero).collect())
    }

    /// Scalars of a module constant.
    pub(super) fn constant(&self, handle: Handle<Expression>) -> Result<Vec<Expr>> {
        Ok(match self.module.global_expressions[handle] {
            Expression::Literal(literal) => vec![self.literal(literal)?],
            Expression::Constant(constant) => self.constant(self.module.constants[constant].init)?,
            Expression::ZeroValue(ty) => self.zeros(ty)?,
            Expression::Compose { ref components, .. } => {
                let mut leaves = Vec::new();
                for &component in components {
                    leaves.extend(self.constant(component)?);
                }
                leaves
            }
            Expression::Splat { size, value } => {
                let value = self.constant(value)?;
                value.iter().cycle().take(size as usize).cloned().collect()
            }
            _ => return Err(Fault::unsupported("this constant expression")),
        })
    }

    fn select(
        &mut self,
        condition: Handle<Expression>,
        accept: Handle<Expression>,
        reject: Handle<Expression>,
    ) -> Result<Vec<Expr>> {
        let mut conditions = self.leaves(condition)?;
        let (accept, reject) = (self.leaves(accept)?, self.leaves(reject)?);
        if accept.len() > conditions.len() {
            conditions = self.shared_all(conditions)?;
        }
        let choices = accept.into_iter().zip(reject);
        Ok(conditions.iter().cycle().zip(choices).map(|(c, (a, r))| Expr::select(c, a, r)).collect())
    }

    fn relational(
        &mut self,
        function: RelationalFunction,
        argument: Handle<Expression>,
    ) -> Result<Vec<Expr>> {
        let leaves = self.leaves(argument)?;
        let reduce = |op| leaves.iter().cloned().reduce(|a, b| Expr::op(op, [a, b])).into_iter().collect();
        let each = |op| leaves.iter().map(|leaf| Expr::op(op, [leaf.clone()])).collect();
        Ok(match function {
            RelationalFunction::All => reduce(Op::And),
            RelationalFunction::Any => reduce(Op::Or),
            RelationalFunction::IsNan => each(Op::IsNan),
            RelationalFunction::IsInf => each(Op::IsInf),
        })
    }
}

/// Whether an expression is no longer than a name.
fn is_short(expr: &Expr) -> bool {
    expr.args().is_empty() && !acts(expr)
}

/// Whether an expression must be evaluated where it occurs.
fn acts(expr: &Expr) -> bool {
    let here = matches!(expr, Expr::Atomic(..) | Expr::Subgroup(..) | Expr::Workgroup(..) | Expr::Call(..));
    here || expr.args().iter().any(acts)
}
