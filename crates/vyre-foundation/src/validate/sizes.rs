//! Checks of sizes computed at dispatch: axes of the domain and lengths of outputs.

use super::declarations::bound_buffer;
use super::faults;
use crate::diagnostics::Diagnostic;
use crate::ir::{Access, Axis, Expr, Formula, Name, Program, Value, ValueType};
use crate::kernel::{BufferId, Known};
use hashbrown::HashMap;

/// Context for resolving formulas.
pub(super) struct FormulaResolver<'a> {
    pub(super) program: &'a Program,
    pub(super) ids: &'a HashMap<Name, BufferId>,
    /// What the formula is for, used in messages.
    pub(super) what: &'a str,
}

impl FormulaResolver<'_> {
    /// An axis of the domain.
    pub(super) fn axis(&self, axis: &Axis) -> Result<Known, Diagnostic> {
        match axis {
            Axis::Count(count) => Ok(Known::Const(Value::U32(*count))),
            Axis::Of(formula) => self.formula(formula),
        }
    }

    /// A formula evaluated at dispatch, of type `u32`.
    pub(super) fn formula(&self, formula: &Formula) -> Result<Known, Diagnostic> {
        match self.expr(formula.expr())? {
            (known, ValueType::U32) => Ok(known),
            (_, ty) => Err(faults::size_type(self.what, ty)),
        }
    }

    fn expr(&self, expr: &Expr) -> Result<(Known, ValueType), Diagnostic> {
        match expr {
            Expr::Literal(value) => Ok((Known::Const(*value), value.ty())),
            Expr::BufLen(name) => {
                let id = bound_buffer(self.program, self.ids, self.what, name)?;
                Ok((Known::Len(id), ValueType::U32))
            }
            Expr::Load(name, args) => self.element(name, args),
            Expr::Op(op, args) => {
                if expr.is_too_deep() {
                    return Err(faults::too_deep());
                }
                let resolved: Result<Vec<_>, _> = args.iter().map(|arg| self.expr(arg)).collect();
                let (args, types): (Vec<Known>, Vec<ValueType>) = resolved?.into_iter().unzip();
                let row = op.row();
                if types.len() != row.signature.arity() {
                    return Err(faults::operand_count(row.name, row.signature.arity(), types.len()));
                }
                let ty = row.signature.result(&types).ok_or_else(|| faults::operand_types(row, &types))?;
                Ok((Known::Op(*op, args), ty))
            }
            Expr::Var(name) => {
                let is_buffer = self.program.buffers().iter().any(|decl| decl.name == *name);
                Err(faults::size_name(self.what, name, is_buffer))
            }
            Expr::Builtin(builtin, _) => {
                Err(faults::size_source(self.what, &format!("`{}`", builtin.name())))
            }
            Expr::Atomic(..) => Err(faults::size_source(self.what, "an atomic")),
            Expr::Subgroup(..) => Err(faults::size_source(self.what, "a subgroup op")),
            Expr::Workgroup(..) => Err(faults::size_source(self.what, "a workgroup op")),
            Expr::Call(name, _) => Err(faults::size_source(self.what, &format!("the function `{name}`"))),
        }
    }

    /// An element of a uniform, at a literal index.
    fn element(&self, name: &Name, args: &[Expr]) -> Result<(Known, ValueType), Diagnostic> {
        let id = bound_buffer(self.program, self.ids, self.what, name)?;
        let decl = &self.program.buffers()[id.index()];
        match args {
            [Expr::Literal(Value::U32(index))] if decl.access == Access::Uniform => {
                Ok((Known::Element(id, *index), decl.element.value_type()))
            }
            _ => Err(faults::size_source(self.what, &format!("an element of `{name}`"))),
        }
    }
}
