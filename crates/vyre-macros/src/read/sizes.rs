//! Constants that rustc knows, and sizes made of them and of literals.

use super::{Read, Reader, fault, plain, span_of};
use crate::tree::{Constant, ConstantId, Size, Value};
use crate::types::{Scalar, Type};
use syn::{Expr, ExprLit, Lit, Path};

impl Reader {
    /// Declares a const generic of the function.
    pub(crate) fn add_const_generic(&mut self, ident: &syn::Ident, ty: Scalar) {
        let constant = self.constant(&Path::from(ident.clone()));
        let constant = &mut self.constants[constant.0];
        (constant.ty, constant.generic) = (Type::Known(ty), true);
    }

    /// The constant at a path.
    pub(super) fn constant(&mut self, path: &Path) -> ConstantId {
        self.constant_as(path, None)
    }

    /// The constant at a path, cast by rustc, which knows its type.
    pub(super) fn constant_as(&mut self, path: &Path, cast: Option<Scalar>) -> ConstantId {
        let spelt = spelling(path);
        let same = |constant: &Constant| spelling(&constant.path) == spelt && constant.cast == cast;
        if let Some(at) = self.constants.iter().position(same) {
            return ConstantId(at);
        }
        // In text a constant is a plain word, and no keyword or op starts like this.
        let word: String = spelt.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let word =
            if word.starts_with(|c: char| c.is_ascii_uppercase()) { word } else { format!("C_{word}") };
        let (name, ty) = match cast {
            Some(scalar) => (format!("{word}_as_{}", scalar.name()), Type::Known(scalar)),
            None => (word, self.types.outside()),
        };
        self.constants.push(Constant { path: path.clone(), cast, name, ty, generic: false });
        ConstantId(self.constants.len() - 1)
    }

    /// A size that each call computes: `usize` or `u32`.
    pub(crate) fn size_value(&mut self, expr: &Expr) -> Read<Value> {
        let value = self.value(expr)?;
        match self.types.known(value.ty) {
            Some(Scalar::Usize | Scalar::U32) => Ok(value),
            Some(_) => fault(value.span, "sizes are `usize` or `u32`"),
            None => {
                self.is(&value, Scalar::Usize)?;
                Ok(value)
            }
        }
    }

    /// A size: literals, constants, and their sums, differences, products and quotients.
    pub(crate) fn size(&mut self, expr: &Expr) -> Read<Size> {
        let text = self.size_text(expr)?;
        Ok(Size { expr: expr.clone(), text })
    }

    fn size_text(&mut self, expr: &Expr) -> Read<String> {
        match expr {
            Expr::Paren(inner) => self.size_text(&inner.expr),
            Expr::Group(inner) => self.size_text(&inner.expr),
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Ok(number.base10_parse::<u32>()?.to_string()),
            Expr::Path(path) => {
                let span = span_of(expr);
                if path.path.get_ident().is_some_and(|ident| self.meaning(&plain(ident)).is_some()) {
                    return fault(
                        span,
                        "a size is known when the kernel is compiled: literals and constants",
                    );
                }
                let id = self.constant(&path.path);
                self.same(Type::Known(Scalar::Usize), self.constants[id.0].ty, span)?;
                Ok(self.constants[id.0].name.clone())
            }
            Expr::Binary(binary) => {
                let symbol = match binary.op {
                    syn::BinOp::Add(_) => "+",
                    syn::BinOp::Sub(_) => "-",
                    syn::BinOp::Mul(_) => "*",
                    syn::BinOp::Div(_) => "/",
                    _ => return fault(span_of(&binary.op), "sizes have `+`, `-`, `*` and `/`"),
                };
                let (left, right) = (self.size_text(&binary.left)?, self.size_text(&binary.right)?);
                Ok(format!("({left} {symbol} {right})"))
            }
            _ => fault(span_of(expr), "a size is made of literals and constants"),
        }
    }
}

/// Spelling of a path, without blanks.
pub(crate) fn spelling(path: &Path) -> String {
    let leading = if path.leading_colon.is_some() { "::" } else { "" };
    let names: Vec<String> = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
    format!("{leading}{}", names.join("::"))
}
