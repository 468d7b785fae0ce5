//! Expressions: precedence climbing over the spellings of the op table.
//!
//! Each expression pushes its span when it is complete, so spans come in post-order. The recursion is bounded by
//! [`MAX_NESTING`](super::vocabulary::MAX_NESTING).

use super::cursor::{Failed, Parsed, Parser, excerpt};
use super::lexer::{Kind, Token};
use super::literal::{self, Sign};
use super::vocabulary::{self, AXES, Callee};
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Builtin, Expr, Name};
use crate::types::{Value, ValueType};

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.infix(0)
    }

    /// Operands joined by ops that bind at least as tight as `loosest`.
    fn infix(&mut self, loosest: u8) -> Parsed<Expr> {
        self.enter()?;
        let start = self.peek().span.start;
        let mut left = self.operand()?;
        while let Some(infix) = self.infix_here()
            && infix.precedence >= loosest
        {
            self.bump();
            let right = self.infix(infix.precedence + 1)?;
            left = self.complete(start, Expr::op(infix.op, [left, right]))?;
        }
        self.nesting -= 1;
        Ok(left)
    }

    fn infix_here(&self) -> Option<vocabulary::Infix> {
        let token = self.peek();
        let joins = token.kind == Kind::Symbol && self.continues(token);
        joins.then(|| vocabulary::infix(self.text(token))).flatten()
    }

    fn enter(&mut self) -> Parsed<()> {
        self.nesting += 1;
        if self.nesting > vocabulary::MAX_NESTING {
            return Err(self.too_deep(self.peek().span));
        }
        Ok(())
    }

    /// Records the span of an expression whose operands were recorded before it.
    pub(super) fn complete(&mut self, start: u32, expr: Expr) -> Parsed<Expr> {
        let span = self.span_from(start);
        self.tree.push(span);
        if expr.arg_list().is_some_and(|args| args.is_too_deep()) {
            return Err(self.too_deep(span));
        }
        Ok(expr)
    }

    /// An operand with the ops before it. A minus before a number belongs to the number.
    fn operand(&mut self) -> Parsed<Expr> {
        let token = self.peek();
        if token.kind != Kind::Symbol {
            return self.primary(token);
        }
        let symbol = self.text(token);
        if symbol == "-" && self.number_follows() {
            return self.number(token.span.start, Sign::Minus);
        }
        match vocabulary::prefix(symbol) {
            Some(op) => {
                self.bump();
                self.enter()?;
                let inner = self.operand()?;
                self.nesting -= 1;
                self.complete(token.span.start, Expr::op(op, [inner]))
            }
            None => self.primary(token),
        }
    }

    fn number_follows(&self) -> bool {
        let next = self.peek_ahead(1);
        next.kind == Kind::Number
            || (next.kind == Kind::Word && literal::read_word(self.text(next), Sign::Plus).is_some())
    }

    fn primary(&mut self, token: Token) -> Parsed<Expr> {
        match token.kind {
            Kind::Number => self.number(token.span.start, Sign::Plus),
            Kind::Word => self.word(token),
            Kind::Quoted => {
                self.bump();
                let name = self.quoted_name(token);
                self.named(token, name)
            }
            Kind::Symbol if self.text(token) == "(" => {
                self.bump();
                self.brackets += 1;
                let inner = self.expression()?;
                self.close(")", token.span)?;
                Ok(inner)
            }
            Kind::Symbol | Kind::String | Kind::Bad | Kind::End => Err(self.no_expression(token)),
        }
    }

    fn no_expression(&mut self, token: Token) -> Failed {
        let is_infix = token.kind == Kind::Symbol && vocabulary::infix(self.text(token)).is_some();
        let help = "an expression goes on in the next line only inside parentheses or after an operator";
        let help = (is_infix && token.starts_line).then(|| help.to_string());
        self.unexpected_with("an expression", help)
    }

    /// A number or a word for one, behind a minus or not.
    fn number(&mut self, start: u32, sign: Sign) -> Parsed<Expr> {
        if sign == Sign::Minus {
            self.bump();
        }
        let token = self.bump();
        let text = self.text(token);
        let value = match literal::read_word(text, sign) {
            Some(value) => Ok(value),
            None => literal::read_number(text, sign),
        };
        match value {
            Ok(value) => self.complete(start, Expr::Literal(value)),
            Err(bad) => {
                let mut diagnostic = Diagnostic::new(Code::BadLiteral, bad.message);
                diagnostic.help = bad.help;
                let span = self.span_from(start);
                Err(self.fault(diagnostic, span))
            }
        }
    }

    fn word(&mut self, token: Token) -> Parsed<Expr> {
        let word = self.text(token);
        match word {
            "true" | "false" => {
                self.bump();
                return self.complete(token.span.start, Expr::bool(word == "true"));
            }
            "inf" | "nan" | "inf_f64" | "nan_f64" => return self.number(token.span.start, Sign::Plus),
            _ if vocabulary::is_keyword(word) => {
                let help = "this is a keyword; a name that is spelt like it stands in backticks";
                return Err(self.unexpected_with("an expression", Some(help.into())));
            }
            _ => {}
        }
        self.bump();
        if self.opens("(")
            && let Some(callee) = vocabulary::callee(word)
        {
            return self.call(token, callee);
        }
        if self.opens(".") {
            return self.builtin(token);
        }
        let name = self.plain_name(token);
        if !self.opens("(") && !self.opens("[") && self.scalars.contains(&name) {
            self.complete(token.span.start, vocabulary::scalar_index())?;
            return self.complete(token.span.start, Expr::Load(name, [vocabulary::scalar_index()].into()));
        }
        self.named(token, name)
    }

    /// Whether the symbol follows as part of the same expression.
    fn opens(&self, symbol: &str) -> bool {
        self.at_symbol(symbol) && self.continues(self.peek())
    }

    /// A call of a function, an element, or a variable.
    fn named(&mut self, token: Token, name: Name) -> Parsed<Expr> {
        let expr = if self.opens("(") {
            self.bump();
            Expr::Call(name, self.list(")", Self::expression)?.into())
        } else if self.opens("[") {
            self.bump();
            Expr::Load(name, self.list("]", Self::expression)?.into())
        } else {
            Expr::Var(name)
        };
        self.complete(token.span.start, expr)
    }

    /// `workgroup.x`; the name was just taken.
    fn builtin(&mut self, token: Token) -> Parsed<Expr> {
        let Some(builtin) = vocabulary::builtin(self.text(token)) else {
            let known: Vec<_> = Builtin::ALL.iter().map(|builtin| format!("`{}`", builtin.name())).collect();
            let help = format!("only {} have axes", known.join(", "));
            return Err(self.unexpected_with("an operator", Some(help)));
        };
        self.bump();
        let axis = self.peek();
        let text = self.text(axis);
        let by_letter = AXES.iter().position(|&letter| letter == text).map(|axis| axis as u8);
        let Some(axis) = by_letter.or_else(|| text.parse().ok()) else {
            return Err(self.unexpected("an axis: `x`, `y` or `z`"));
        };
        self.bump();
        self.complete(token.span.start, Expr::Builtin(builtin, axis))
    }

    /// A call of something that is not a function of the program; its name was just taken.
    fn call(&mut self, token: Token, callee: Callee) -> Parsed<Expr> {
        let open = self.bump();
        let expr = match callee {
            Callee::Op(op) => Expr::Op(op, self.list(")", Self::expression)?.into()),
            Callee::Subgroup(op) => Expr::Subgroup(op, self.list(")", Self::expression)?.into()),
            Callee::Atomic(op) => {
                self.brackets += 1;
                let buffer = self.name("a buffer")?;
                let more = self.eat_symbol(",");
                self.brackets -= 1;
                let args = if more { self.list(")", Self::expression)? } else { Vec::new() };
                if !more {
                    self.expect_symbol(")")?;
                }
                Expr::Atomic(op, buffer, args.into())
            }
            Callee::Len => {
                self.brackets += 1;
                let buffer = self.name("a buffer")?;
                self.close(")", open.span)?;
                Expr::BufLen(buffer)
            }
            Callee::Bits(ty) => {
                self.brackets += 1;
                let bits = self.bits(ty)?;
                self.close(")", open.span)?;
                Expr::Literal(bits)
            }
        };
        self.complete(token.span.start, expr)
    }

    /// The bits of a literal: a number of the unsigned type of the same width.
    fn bits(&mut self, ty: ValueType) -> Parsed<Value> {
        let token = self.peek();
        if token.kind != Kind::Number {
            return Err(self.unexpected("a number"));
        }
        self.bump();
        let bits = literal::read_number(self.text(token), Sign::Plus).ok().and_then(|value| match value {
            Value::U32(bits) => Some(u64::from(bits)),
            Value::U64(bits) if ty == ValueType::F64 => Some(bits),
            Value::U64(_)
            | Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::F32(_)
            | Value::F64(_) => None,
        });
        bits.map(|bits| Value::from_bits(ty, bits)).ok_or_else(|| {
            let message = format!("`{}` is not the bits of an {ty}", excerpt(self.text(token)));
            let help = format!("write an unsigned number of {} bits", ty.bits());
            self.fault(Diagnostic::new(Code::BadLiteral, message).help(help), token.span)
        })
    }
}
