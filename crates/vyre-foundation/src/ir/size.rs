//! Sizes evaluated at dispatch: axes of domains and lengths of buffers.

use super::{Expr, Name};
use crate::ops::eval;
use crate::types::Value;

/// An expression over single-value uniforms and lengths that yields a number of invocations or
/// elements.
///
/// It is evaluated when a dispatch starts, with the semantics of the kernel: sums and products
/// wrap, and `x / 0` is `x`.
///
/// ```
/// use vyre_foundation::ir::{Expr, Formula};
/// assert!(Formula::new(Expr::uniform("width") / Expr::u32(4)).is_ok());
/// assert_eq!(Formula::new(Expr::u32(4) * Expr::u32(16)), Err(64));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Formula(Expr);

impl Formula {
    /// A formula; an expression of literals alone that yields a `u32` returns that number as the
    /// error.
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

    /// The buffers that it refers to.
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

/// The number of invocations of a domain on one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// A fixed number.
    Count(u32),
    /// A number computed at dispatch.
    Of(Formula),
}

impl<E: Into<Expr>> From<E> for Axis {
    /// Converts an expression; a literal becomes a count.
    fn from(expr: E) -> Axis {
        Formula::new(expr).map_or_else(Axis::Count, Axis::Of)
    }
}

/// The value of an expression that consists of literals and table ops alone.
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
