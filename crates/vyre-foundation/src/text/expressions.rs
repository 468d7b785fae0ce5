//! Expressions: operator precedence over the spellings of the op table.
//!
//! The parser does not recurse. What waits for the current operand (a prefix op, a left operand, an
//! open parenthesis, a call with some of its operands) is on a stack of [`StackEntry`]. A complete
//! operand is joined with every stack entry that binds it tighter than what follows. Each
//! expression pushes its span when it is complete, so spans are in post-order.

use super::cursor::{Missing, Parsed, Parser, excerpt};
use super::lexer::{Lexeme, Token};
use super::literal::{self, Sign};
use super::vocabulary::{self, AXES, Callee, Infix, MAX_PENDING};
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{Args, Builtin, Expr, Name, Span};
use crate::ops::{AtomicOp, Op, SubgroupOp, WorkgroupOp};
use crate::types::{Value, ValueType};

/// A stack entry that waits for an operand.
pub(super) enum StackEntry {
    /// A prefix op.
    Prefix { op: Op, start: u32 },
    /// An op and its left operand.
    Infix { infix: Infix, left: Operand },
    /// An open parenthesis.
    Parenthesis { open: Span },
    /// A call or load with the operands read so far.
    List(List),
}

/// A complete operand and where it starts, including its parenthesis if any.
pub(super) struct Operand {
    expr: Expr,
    start: u32,
}

/// Operands between parentheses or brackets.
pub(super) struct List {
    head: Head,
    start: u32,
    open: Span,
    items: Vec<Expr>,
}

/// What the operands of a list belong to.
enum Head {
    Call(Name),
    Load(Name),
    Op(Op),
    Atomic(AtomicOp, Name),
    Subgroup(SubgroupOp),
    Workgroup(WorkgroupOp),
}

impl Head {
    fn close(&self) -> &'static str {
        match self {
            Head::Load(_) => "]",
            Head::Call(_) | Head::Op(_) | Head::Atomic(..) | Head::Subgroup(_) | Head::Workgroup(_) => ")",
        }
    }

    fn with(self, args: Args) -> Expr {
        match self {
            Head::Call(name) => Expr::Call(name, args),
            Head::Load(name) => Expr::Load(name, args),
            Head::Op(op) => Expr::Op(op, args),
            Head::Atomic(op, name) => Expr::Atomic(op, name, args),
            Head::Subgroup(op) => Expr::Subgroup(op, args),
            Head::Workgroup(op) => Expr::Workgroup(op, args),
        }
    }
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.pending.clear();
        loop {
            let Some(operand) = self.operand()? else { continue };
            if let Some(whole) = self.join(operand)? {
                return Ok(whole.expr);
            }
        }
    }

    /// Continues after a complete operand. Returns the whole expression at its end, or `None` when
    /// another operand follows.
    fn join(&mut self, mut operand: Operand) -> Parsed<Option<Operand>> {
        loop {
            if let Some(infix) = self.infix_here() {
                // Reduce before consuming the op: spans end at the last token consumed.
                let left = self.reduce(operand, infix.precedence)?;
                self.bump();
                self.push(StackEntry::Infix { infix, left })?;
                return Ok(None);
            }
            operand = self.reduce(operand, 0)?;
            operand = match self.pending.pop() {
                None => return Ok(Some(operand)),
                Some(StackEntry::Parenthesis { open }) => {
                    self.close(")", open)?;
                    Operand { start: open.start, ..operand }
                }
                Some(StackEntry::List(mut list)) => {
                    list.items.push(operand.expr);
                    match self.next_item(list)? {
                        Some(complete) => complete,
                        None => return Ok(None),
                    }
                }
                Some(StackEntry::Prefix { .. } | StackEntry::Infix { .. }) => unreachable!("reduced before"),
            }
        }
    }

    /// Joins the operand with the ops on the stack that bind at least as tightly as `loosest`.
    fn reduce(&mut self, mut operand: Operand, loosest: u8) -> Parsed<Operand> {
        let binds = |pending: &mut StackEntry| match pending {
            StackEntry::Prefix { .. } => true,
            StackEntry::Infix { infix, .. } => infix.precedence >= loosest,
            StackEntry::Parenthesis { .. } | StackEntry::List(_) => false,
        };
        while let Some(pending) = self.pending.pop_if(binds) {
            operand = match pending {
                StackEntry::Prefix { op, start } => self.joined(start, Expr::op(op, [operand.expr]))?,
                StackEntry::Infix { infix, left } => {
                    self.joined(left.start, Expr::op(infix.op, [left.expr, operand.expr]))?
                }
                StackEntry::Parenthesis { .. } | StackEntry::List(_) => unreachable!("neither binds"),
            };
        }
        Ok(operand)
    }

    fn infix_here(&self) -> Option<Infix> {
        let token = self.peek();
        let joins = token.kind == Lexeme::Symbol && self.continues(token);
        joins.then(|| vocabulary::infix(self.text(token))).flatten()
    }

    fn push(&mut self, pending: StackEntry) -> Parsed<()> {
        if self.pending.len() >= MAX_PENDING {
            return Err(self.too_deep(self.peek().span));
        }
        self.pending.push(pending);
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

    fn joined(&mut self, start: u32, expr: Expr) -> Parsed<Operand> {
        Ok(Operand { expr: self.complete(start, expr)?, start })
    }

    /// Parses up to the next complete operand; `None` if a construct was opened that waits for one.
    fn operand(&mut self) -> Parsed<Option<Operand>> {
        let token = self.peek();
        let start = token.span.start;
        match token.kind {
            Lexeme::Number => self.number(start, Sign::Plus).map(Some),
            Lexeme::Word => self.word(token),
            Lexeme::Quoted => {
                self.bump();
                let name = self.quoted_name(token);
                self.note_used(&name, token.span);
                self.named(start, name)
            }
            Lexeme::Symbol => self.symbol(token),
            Lexeme::String | Lexeme::Bad | Lexeme::End => Err(self.unexpected("an expression")),
        }
    }

    /// A prefix op or a parenthesis. A minus before a number belongs to the number.
    fn symbol(&mut self, token: Token) -> Parsed<Option<Operand>> {
        let (symbol, start) = (self.text(token), token.span.start);
        if symbol == "-" && self.number_follows() {
            self.bump();
            return self.number(start, Sign::Minus).map(Some);
        }
        let pending = match vocabulary::prefix(symbol) {
            Some(op) => StackEntry::Prefix { op, start },
            None if symbol == "(" => {
                self.brackets += 1;
                StackEntry::Parenthesis { open: token.span }
            }
            None => return Err(self.no_expression(token)),
        };
        self.bump();
        self.push(pending)?;
        Ok(None)
    }

    fn number_follows(&self) -> bool {
        let next = self.peek_ahead(1);
        next.kind == Lexeme::Number
            || (next.kind == Lexeme::Word && literal::read_word(self.text(next), Sign::Plus).is_some())
    }

    fn no_expression(&mut self, token: Token) -> Missing {
        let is_infix = vocabulary::infix(self.text(token)).is_some();
        let help = "an expression continues on the next line only inside parentheses or after an operator";
        let text = self.text(token);
        let doubled = matches!(text, "+" | "-") && self.text(self.previous()) == text;
        let help = match is_infix && token.starts_line {
            true => Some(help.to_string()),
            false => doubled.then(|| format!("`x {text}= 1` changes `x` by one")),
        };
        self.unexpected_with("an expression", help)
    }

    /// A number or a word for one; a minus before it has been consumed.
    fn number(&mut self, start: u32, sign: Sign) -> Parsed<Operand> {
        let token = self.bump();
        let text = self.text(token);
        let value = match literal::read_word(text, sign) {
            Some(value) => Ok(value),
            None => literal::read_open(text, sign),
        };
        match value {
            Ok(value) => self.joined(start, Expr::Literal(value)),
            Err(bad) => {
                let mut diagnostic = Diagnostic::new(Code::BadLiteral, bad.message);
                diagnostic.help = bad.help;
                let span = self.span_from(start);
                Err(self.fault(diagnostic, span))
            }
        }
    }

    fn word(&mut self, token: Token) -> Parsed<Option<Operand>> {
        let (word, start) = (self.text(token), token.span.start);
        match word {
            "true" | "false" => {
                self.bump();
                return self.joined(start, Expr::bool(word == "true")).map(Some);
            }
            "inf" | "nan" | "inf_f64" | "nan_f64" => return self.number(start, Sign::Plus).map(Some),
            _ if vocabulary::is_keyword(word) => {
                let help = "this is a keyword; to use it as a name, write it in backticks";
                return Err(self.unexpected_with("an expression", Some(help.into())));
            }
            _ => {}
        }
        self.bump();
        if self.opens("(")
            && let Some(callee) = vocabulary::callee(word)
        {
            return self.call(start, callee);
        }
        if self.opens(".") {
            return self.builtin(token).map(Some);
        }
        let name = self.plain_name(token);
        self.note_used(&name, token.span);
        if !self.opens("(")
            && !self.opens("[")
            && let Some(&value) = self.constants.get(&name)
        {
            return self.joined(start, Expr::Literal(value)).map(Some);
        }
        if !self.opens("(") && !self.opens("[") && self.scalars.contains_key(&name) {
            self.complete(start, vocabulary::scalar_index())?;
            return self.joined(start, Expr::Load(name, [vocabulary::scalar_index()].into())).map(Some);
        }
        self.named(start, name)
    }

    /// Whether the symbol follows as part of the same expression.
    fn opens(&self, symbol: &str) -> bool {
        self.at_symbol(symbol) && self.continues(self.peek())
    }

    /// A function call, an element, or a variable; the name has been consumed.
    fn named(&mut self, start: u32, name: Name) -> Parsed<Option<Operand>> {
        if self.opens("(") {
            self.open_list(start, Head::Call(name))
        } else if self.opens("[") {
            self.open_list(start, Head::Load(name))
        } else {
            self.joined(start, Expr::Var(name)).map(Some)
        }
    }

    fn open_list(&mut self, start: u32, head: Head) -> Parsed<Option<Operand>> {
        let open = self.bump().span;
        self.brackets += 1;
        self.item_or_close(List { head, start, open, items: Vec::new() })
    }

    /// After a list item: the end of the list, or a comma and possibly another item.
    fn next_item(&mut self, list: List) -> Parsed<Option<Operand>> {
        if self.eat_symbol(",") { self.item_or_close(list) } else { self.close_list(list).map(Some) }
    }

    /// At the start of a list item: the complete list if it ends here, `None` if an item follows.
    fn item_or_close(&mut self, list: List) -> Parsed<Option<Operand>> {
        if self.at_symbol(list.head.close()) {
            return self.close_list(list).map(Some);
        }
        self.push(StackEntry::List(list))?;
        Ok(None)
    }

    fn close_list(&mut self, list: List) -> Parsed<Operand> {
        self.close(list.head.close(), list.open)?;
        self.joined(list.start, list.head.with(list.items.into()))
    }

    /// `workgroup.x`; the name has been consumed.
    fn builtin(&mut self, token: Token) -> Parsed<Operand> {
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
        self.joined(token.span.start, Expr::Builtin(builtin, axis))
    }

    /// A call of a predeclared function; its name has been consumed.
    fn call(&mut self, start: u32, callee: Callee) -> Parsed<Option<Operand>> {
        match callee {
            Callee::Op(op) => return self.open_list(start, Head::Op(op)),
            Callee::Subgroup(op) => return self.open_list(start, Head::Subgroup(op)),
            Callee::Workgroup(op) => return self.open_list(start, Head::Workgroup(op)),
            Callee::Atomic(_) | Callee::Len | Callee::Bits(_) => {}
        }
        let open = self.bump().span;
        self.brackets += 1;
        let leaf = match callee {
            Callee::Bits(ty) => Expr::Literal(self.bits(ty)?),
            Callee::Len => Expr::BufLen(self.used_name("a buffer")?),
            Callee::Atomic(op) => {
                let head = Head::Atomic(op, self.used_name("a buffer")?);
                return self.next_item(List { head, start, open, items: Vec::new() });
            }
            Callee::Op(_) | Callee::Subgroup(_) | Callee::Workgroup(_) => {
                unreachable!("lists were opened above")
            }
        };
        self.close(")", open)?;
        self.joined(start, leaf).map(Some)
    }

    /// The bits of a literal, as a number of the unsigned type of the same width.
    fn bits(&mut self, ty: ValueType) -> Parsed<Value> {
        let token = self.peek();
        if token.kind != Lexeme::Number {
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
