//! Sizes that a dispatch works out: axes of domains and lengths of buffers.

use super::{Expr, Name};
use crate::ops::eval;
use crate::types::Value;

/// An expression over single-value uniforms and lengths that gives a number of invocations or elements. It is worked out
/// when a dispatch starts, as the kernel itself would: sums and products wrap, `x / 0` is `x`.
///
/// ```
/// use vyre_foundation::ir::{Expr, Formula};
/// assert!(Formula::new(Expr::uniform("width") / Expr::u32(4)).is_ok());
/// assert_eq!(Formula::new(Expr::u32(4) * Expr::u32(16)), Err(64));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Formula(Expr);

impl Formula {
    /// The formula, unless it is made of literals alone and gives a `u32`: then that number.
    pub fn new(expr: impl Into<Expr>) -> Result<Formula, u32> {
        let expr = expr.into();
        match constant(&expr) {
            Some(Value::U32(count)) => Err(count),
            Some(_) | None => Ok(Formula(expr)),
        }
    }

    /// The expression.
    pub fn expr(&self) -> &Expr {
        &self.0
    }

    /// The buffers that it names.
    pub(crate) fn names(&self) -> Vec<&Name> {
        fn collect<'a>(expr: &'a Expr, names: &mut Vec<&'a Name>) {
            match expr {
                Expr::BufLen(name) | Expr::Load(name, _) | Expr::Atomic(_, name, _) => names.push(name),
                Expr::Literal(_)
                | Expr::Var(_)
                | Expr::Builtin(..)
                | Expr::Op(..)
                | Expr::Subgroup(..)
                | Expr::Workgroup(..)
                | Expr::Call(..) => {}
            }
            expr.args().iter().for_each(|arg| collect(arg, names));
        }
        let mut names = Vec::new();
        collect(&self.0, &mut names);
        names
    }
}

/// How many invocations a domain has on one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// So many.
    Count(u32),
    /// As many as a dispatch works out.
    Of(Formula),
}

impl<E: Into<Expr>> From<E> for Axis {
    /// A literal expression is a count.
    fn from(expr: E) -> Axis {
        Formula::new(expr).map_or_else(Axis::Count, Axis::Of)
    }
}

/// The value of an expression that is made of literals and table ops alone.
pub(crate) fn constant(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(*value),
        Expr::Op(op, args) => {
            let args: Option<Vec<Value>> = args.iter().map(constant).collect();
            eval(*op, &args?)
        }
        Expr::Var(_)
        | Expr::Builtin(..)
        | Expr::BufLen(_)
        | Expr::Load(..)
        | Expr::Atomic(..)
        | Expr::Subgroup(..)
        | Expr::Workgroup(..)
        | Expr::Call(..) => None,
    }
}
