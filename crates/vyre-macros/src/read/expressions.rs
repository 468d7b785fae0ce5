//! Expressions.

use super::sizes::spelling;
use super::{Meaning, Read, Reader, fault, plain, span_of};
use crate::token_span::TokenSpan;
use crate::tree::{Binary, Element, If, Slice, SliceOf, Value, ValueKind};
use crate::types::{Kind, Scalar, Type};
use syn::{BinOp, Expr, ExprIndex, ExprLit, ExprPath, Lit, UnOp};

impl Reader {
    pub(crate) fn value(&mut self, expr: &Expr) -> Read<Value> {
        let span = span_of(expr);
        match expr {
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Group(inner) => self.value(&inner.expr),
            Expr::Lit(literal) => self.literal(literal),
            Expr::Path(path) => self.path(path),
            Expr::Unary(unary) => self.unary(unary, span),
            Expr::Binary(binary) => self.binary(binary, span),
            Expr::Cast(cast) => {
                if let Some(constant) = self.cast_constant(cast)? {
                    return Ok(constant);
                }
                let value = self.value(&cast.expr)?;
                let ty = Type::Known(self.scalar(&cast.ty)?);
                if matches!(value.kind, ValueKind::Integer { .. } | ValueKind::Float { .. }) {
                    // A literal takes the type it is cast to if possible, otherwise its own
                    // default.
                    let _ = self.types.same(value.ty, ty);
                }
                Ok(Value { kind: ValueKind::Cast(Box::new(value)), ty, span })
            }
            Expr::Index(index) => {
                let place = self.place(index)?;
                let ty = self.element(&place.slice);
                Ok(Value { kind: ValueKind::Load(Box::new(place)), ty, span })
            }
            Expr::If(branch) => self.if_value(branch, span),
            Expr::Block(block) if block.label.is_none() => {
                let ty = self.types.open(Kind::Any);
                let block = self.in_scope(|reader| reader.block_with_value(&block.block, ty))?;
                Ok(Value { kind: ValueKind::Block(block), ty, span })
            }
            Expr::MethodCall(call) => self.method_call(call),
            Expr::Call(call) => self.call(call),
            _ => fault(span, refused(expr)),
        }
    }

    fn literal(&mut self, literal: &ExprLit) -> Read<Value> {
        let span = TokenSpan::from(literal.lit.span());
        let (kind, ty) = match &literal.lit {
            Lit::Int(number) => {
                let digits = number
                    .base10_parse::<u128>()
                    .map_err(|_| span.error("kernels have no numbers of more than 64 bits"))?;
                let ty = self.suffix(number.suffix(), Kind::Integer, span)?;
                match self.types.known(ty) {
                    Some(scalar) if scalar.is_float() => {
                        (ValueKind::Float { digits: digits.to_string(), negative: false }, ty)
                    }
                    _ => (ValueKind::Integer { digits, negative: false }, ty),
                }
            }
            Lit::Float(number) => {
                let ty = self.suffix(number.suffix(), Kind::Float, span)?;
                (ValueKind::Float { digits: number.base10_digits().into(), negative: false }, ty)
            }
            Lit::Bool(truth) => (ValueKind::Bool(truth.value), Type::Known(Scalar::Bool)),
            Lit::Byte(byte) => {
                let digits = u128::from(byte.value());
                (ValueKind::Integer { digits, negative: false }, Type::Known(Scalar::U8))
            }
            Lit::Char(_) => return fault(span, "kernels have no characters; write `'a' as u32` as a number"),
            _ => return fault(span, "kernels have numbers and bools, no strings"),
        };
        Ok(Value { kind, ty, span })
    }

    fn suffix(&mut self, suffix: &str, kind: Kind, span: TokenSpan) -> Read<Type> {
        match (suffix, Scalar::from_name(suffix)) {
            ("", _) => Ok(self.types.open(kind)),
            (_, Some(scalar)) => Ok(Type::Known(scalar)),
            (_, None) => fault(span, format!("kernels have no type `{suffix}`")),
        }
    }

    fn path(&mut self, path: &ExprPath) -> Read<Value> {
        let span = span_of(path);
        let value = |kind, ty| Ok(Value { kind, ty, span });
        if let Some(ident) = path.path.get_ident() {
            let name = plain(ident);
            match self.meaning(&name).cloned() {
                Some(Meaning::Variable(id)) => {
                    return value(ValueKind::Variable(id, ident.clone()), self.variables[id.0].ty);
                }
                Some(Meaning::Uniform(ty)) => return value(ValueKind::Uniform(ident.clone()), ty),
                Some(Meaning::Array(_) | Meaning::Buffer(_)) => {
                    return fault(span, format!("`{name}` is a slice or array; index it: `{name}[i]`"));
                }
                Some(Meaning::Faulty) => return fault(span, super::TOLD),
                None if name.starts_with(|c: char| c.is_lowercase()) && !self.is_constant(&name) => {
                    return fault(span, format!("there is no variable `{name}` here"));
                }
                None => {}
            }
        }
        if let Some((ty, text)) = self.named_constant(&path.path) {
            return value(ValueKind::Named(path.path.clone(), text), Type::Known(ty));
        }
        let id = self.constant(&path.path);
        value(ValueKind::Constant(id), self.constants[id.0].ty)
    }

    /// `LENGTH as f32`, for a constant whose type only rustc knows.
    fn cast_constant(&mut self, cast: &syn::ExprCast) -> Read<Option<Value>> {
        let Expr::Path(ExprPath { path, .. }) = &*cast.expr else { return Ok(None) };
        let names_something = match path.get_ident() {
            Some(ident) => {
                self.meaning(&plain(ident)).is_some() || plain(ident).starts_with(char::is_lowercase)
            }
            None => false,
        };
        let generic =
            self.constants.iter().any(|constant| constant.generic && constant.path.is_ident(&spelling(path)));
        if names_something || generic || self.named_constant(path).is_some() {
            return Ok(None);
        }
        let scalar = self.scalar(&cast.ty)?;
        let id = self.constant_as(path, Some(scalar));
        let kind = ValueKind::Constant(id);
        Ok(Some(Value { kind, ty: Type::Known(scalar), span: span_of(cast) }))
    }

    fn is_constant(&self, name: &str) -> bool {
        self.constants.iter().any(|constant| constant.path.is_ident(name))
    }

    /// A constant of a number type, such as `f32::MAX` or `std::f32::consts::PI`, and its text.
    fn named_constant(&self, path: &syn::Path) -> Option<(Scalar, String)> {
        let names: Vec<String> = path.segments.iter().map(|segment| plain(&segment.ident)).collect();
        let scalar = |name: &str| self.generics.get(name).copied().or_else(|| Scalar::from_name(name));
        match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [.., ty, "consts", name] => {
                let ty = scalar(ty)?;
                Some((ty, mathematical(ty, name)?))
            }
            [.., ty, name] => {
                let ty = scalar(ty)?;
                Some((ty, limit(ty, name)?))
            }
            _ => None,
        }
    }

    fn unary(&mut self, unary: &syn::ExprUnary, span: TokenSpan) -> Read<Value> {
        let mut value = self.value(&unary.expr)?;
        let ty = value.ty;
        match unary.op {
            UnOp::Neg(_) => {
                match &mut value.kind {
                    ValueKind::Integer { negative: negative @ false, .. }
                    | ValueKind::Float { negative: negative @ false, .. } => {
                        *negative = true;
                        return Ok(Value { span, ..value });
                    }
                    _ => {}
                }
                Ok(Value { kind: ValueKind::Negate(Box::new(value)), ty, span })
            }
            UnOp::Not(_) => Ok(Value { kind: ValueKind::Not(Box::new(value)), ty, span }),
            _ => fault(span, "kernels have no references to follow"),
        }
    }

    fn binary(&mut self, binary: &syn::ExprBinary, span: TokenSpan) -> Read<Value> {
        let lazy = matches!(binary.op, BinOp::And(_) | BinOp::Or(_));
        let Some(op) = operator(&binary.op) else {
            return fault(span, "an assignment must be a separate statement");
        };
        let (left, right) = (self.value(&binary.left)?, self.value(&binary.right)?);
        if lazy {
            self.is(&left, Scalar::Bool)?;
            self.is(&right, Scalar::Bool)?;
            let kind = ValueKind::Lazy(op, Box::new([left, right]));
            return Ok(Value { kind, ty: Type::Known(Scalar::Bool), span });
        }
        let ty = left.ty;
        self.meet(op, ty, &right, span)?;
        let ty = if op.compares() { Type::Known(Scalar::Bool) } else { ty };
        Ok(Value { kind: ValueKind::Binary(op, Box::new([left, right])), ty, span })
    }

    /// Requires the right operand of an operator to fit the type of the left one.
    pub(super) fn meet(&mut self, op: Binary, left: Type, right: &Value, span: TokenSpan) -> Read<()> {
        if !op.shifts() {
            return self.same(left, right.ty, span);
        }
        // A shift count can have any integer type.
        if self.types.known(right.ty).is_none() {
            self.is(right, Scalar::U32)?;
        }
        Ok(())
    }

    fn if_value(&mut self, branch: &syn::ExprIf, span: TokenSpan) -> Read<Value> {
        let Some((_, otherwise)) = &branch.else_branch else {
            return fault(span, "an `if` without `else` has no value");
        };
        let condition = self.condition(&branch.cond)?;
        let ty = self.types.open(Kind::Any);
        let then = self.in_scope(|reader| reader.block_with_value(&branch.then_branch, ty))?;
        let otherwise = match &**otherwise {
            Expr::Block(block) => self.in_scope(|reader| reader.block_with_value(&block.block, ty))?,
            other => {
                let value = self.value(other)?;
                self.same(ty, value.ty, value.span)?;
                crate::tree::Block { statements: Vec::new(), value: Some(Box::new(value)) }
            }
        };
        Ok(Value { kind: ValueKind::If(Box::new(If { condition, then, otherwise })), ty, span })
    }

    pub(super) fn condition(&mut self, expr: &Expr) -> Read<Value> {
        if let Expr::Let(pattern) = expr {
            return fault(span_of(pattern), "kernels have no patterns; compare numbers");
        }
        let value = self.value(expr)?;
        self.is(&value, Scalar::Bool)?;
        Ok(value)
    }

    /// `x[i]`.
    pub(super) fn place(&mut self, index: &ExprIndex) -> Read<Element> {
        let slice = self.slice(&index.expr)?;
        let index = self.value(&index.index)?;
        if self.types.same(Type::Known(Scalar::Usize), index.ty).is_err() {
            let is_integer = self.types.known(index.ty).is_some_and(Scalar::is_integer);
            let help = if is_integer { ": `x[i as usize]`" } else { "" };
            return fault(index.span, format!("slices and arrays are indexed by `usize`{help}"));
        }
        Ok(Element { slice, index })
    }

    /// A slice or array, by name.
    pub(super) fn slice(&mut self, expr: &Expr) -> Read<Slice> {
        let expr = match expr {
            Expr::Paren(inner) => &inner.expr,
            other => other,
        };
        let Expr::Path(ExprPath { path, .. }) = expr else {
            return fault(span_of(expr), "only a named slice or array can be indexed");
        };
        let Some(ident) = path.get_ident() else {
            return fault(span_of(path), "only parameters of the kernel can be slices");
        };
        let of = match self.meaning(&plain(ident)) {
            Some(Meaning::Buffer(at)) => SliceOf::Buffer(*at),
            Some(Meaning::Array(id)) => SliceOf::Array(*id),
            Some(Meaning::Variable(_) | Meaning::Uniform(_)) => {
                return fault(ident.span(), format!("`{ident}` is a number and has no elements"));
            }
            Some(Meaning::Faulty) => return fault(ident.span(), super::TOLD),
            None => return fault(ident.span(), format!("there is no slice or array `{ident}` here")),
        };
        Ok(Slice { ident: ident.clone(), of })
    }
}

/// The operator; `None` for assignments.
pub(super) fn operator(op: &BinOp) -> Option<Binary> {
    Some(match op {
        BinOp::Add(_) => Binary::Add,
        BinOp::Sub(_) => Binary::Sub,
        BinOp::Mul(_) => Binary::Mul,
        BinOp::Div(_) => Binary::Div,
        BinOp::Rem(_) => Binary::Rem,
        BinOp::And(_) | BinOp::BitAnd(_) => Binary::And,
        BinOp::Or(_) | BinOp::BitOr(_) => Binary::Or,
        BinOp::BitXor(_) => Binary::Xor,
        BinOp::Shl(_) => Binary::Shl,
        BinOp::Shr(_) => Binary::Shr,
        BinOp::Eq(_) => Binary::Eq,
        BinOp::Ne(_) => Binary::Ne,
        BinOp::Lt(_) => Binary::Lt,
        BinOp::Le(_) => Binary::Le,
        BinOp::Gt(_) => Binary::Gt,
        BinOp::Ge(_) => Binary::Ge,
        _ => return None,
    })
}

/// The operator of a compound assignment such as `x += …`.
pub(super) fn update(op: &BinOp) -> Option<Binary> {
    Some(match op {
        BinOp::AddAssign(_) => Binary::Add,
        BinOp::SubAssign(_) => Binary::Sub,
        BinOp::MulAssign(_) => Binary::Mul,
        BinOp::DivAssign(_) => Binary::Div,
        BinOp::RemAssign(_) => Binary::Rem,
        BinOp::BitAndAssign(_) => Binary::And,
        BinOp::BitOrAssign(_) => Binary::Or,
        BinOp::BitXorAssign(_) => Binary::Xor,
        BinOp::ShlAssign(_) => Binary::Shl,
        BinOp::ShrAssign(_) => Binary::Shr,
        _ => return None,
    })
}

/// Why an expression is not allowed in a kernel.
fn refused(expr: &Expr) -> &'static str {
    match expr {
        Expr::Closure(_) => "kernels have no closures; write a function with `#[vyre::function]`",
        Expr::Match(_) => "kernels have no `match`; write `if` and `else`",
        Expr::Tuple(_) => "kernels have tuples only in `let (a, b) = (x, y);`",
        Expr::Struct(_) | Expr::Field(_) => {
            "kernels have no structs; write variables and slices for each field"
        }
        Expr::Reference(_) => "kernels have no references; only an atomic takes `&mut x[i]`",
        Expr::Macro(_) => {
            "kernels cannot use other macros; `vyre::print!` and `vyre::assert!` are statements"
        }
        Expr::Range(_) => "a range can only follow `in`",
        Expr::Array(_) | Expr::Repeat(_) => "an array is declared by itself: `let mut x = [0.0f32; 8];`",
        Expr::Loop(_) | Expr::While(_) | Expr::ForLoop(_) => "a loop has no value in a kernel",
        Expr::Unsafe(_) => "kernels have nothing unsafe",
        Expr::Async(_) | Expr::Await(_) => "kernels have nothing asynchronous",
        Expr::Try(_) => "kernels have no errors to pass on",
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => "this must be a separate statement",
        Expr::Assign(_) => "an assignment must be a separate statement",
        Expr::Let(_) => "kernels have no patterns",
        _ => "this is not part of the kernel language",
    }
}

/// Text of `MAX` and similar constants.
fn limit(ty: Scalar, name: &str) -> Option<String> {
    let suffix = if ty == Scalar::F64 { "f64" } else { "" };
    let float = |single: f32, double: f64| match ty {
        Scalar::F32 => Some(format!("{single:?}")),
        _ => Some(format!("{double:?}f64")),
    };
    let word = |word: &str| Some(if suffix.is_empty() { word.into() } else { format!("{word}_{suffix}") });
    match (name, ty.is_float()) {
        ("MAX", true) => float(f32::MAX, f64::MAX),
        ("MIN", true) => float(f32::MIN, f64::MIN),
        ("MIN_POSITIVE", true) => float(f32::MIN_POSITIVE, f64::MIN_POSITIVE),
        ("EPSILON", true) => float(f32::EPSILON, f64::EPSILON),
        ("INFINITY", true) => word("inf"),
        ("NEG_INFINITY", true) => word("-inf"),
        ("NAN", true) => word("nan"),
        // The limits and bits of `usize` would reveal its width.
        ("MAX" | "MIN" | "BITS", false) if ty == Scalar::Usize || ty == Scalar::Bool => None,
        ("MAX", false) => Some(integer(ty, ty.limits().1)),
        ("MIN", false) => Some(integer(ty, ty.limits().0)),
        _ => None,
    }
}

/// An integer literal in the text.
pub(crate) fn integer(ty: Scalar, value: i128) -> String {
    match ty.value() {
        "u32" => value.to_string(),
        other => format!("{value}{other}"),
    }
}

/// Text of `PI` and similar constants.
fn mathematical(ty: Scalar, name: &str) -> Option<String> {
    macro_rules! constants {
        ($($constant:ident)*) => {
            match (name, ty) {
                $(
                    (stringify!($constant), Scalar::F32) => format!("{:?}", std::f32::consts::$constant),
                    (stringify!($constant), Scalar::F64) => format!("{:?}f64", std::f64::consts::$constant),
                )*
                _ => return None,
            }
        };
    }
    Some(constants!(PI TAU E SQRT_2 LN_2 LN_10 LOG2_E LOG10_E LOG2_10 LOG10_2 FRAC_PI_2 FRAC_PI_3 FRAC_PI_4
        FRAC_PI_6 FRAC_PI_8 FRAC_1_PI FRAC_2_PI FRAC_1_SQRT_2 FRAC_2_SQRT_PI))
}
