//! Statements and blocks.
//!
//! A statement pushes its span after those of its expressions and blocks. It ends at the end of its
//! line, at a `;`, or before the `}` of its block; one that ends with `}` needs no terminator.

use super::cursor::{Missing, Parsed, Parser, excerpt};
use super::lexer::Lexeme;
use super::notes::SymbolKind;
use super::returns;
use super::vocabulary::{self, MESSAGE_WORDS, STATEMENT_WORDS};
use crate::diagnostics::{Code, Diagnostic, closest};
use crate::ir::{Block, Expr, MAX_BLOCK_DEPTH, Name, Node, walk_expr};
use crate::ops::Op;

/// Help for loops written in another language's syntax.
const FOR_HELP: &str =
    "a loop is written `for i in 0..count { … }`, or with a step: `for i in 0..count step 2`";

impl Parser<'_> {
    /// `{ … }`, which opens a scope.
    pub(super) fn block(&mut self) -> Parsed<Block> {
        self.open_scope();
        let block = self.block_inside();
        self.close_scope();
        block
    }

    fn block_inside(&mut self) -> Parsed<Block> {
        let open = self.peek().span;
        if !self.at_symbol("{") {
            return Err(self.unexpected("`{`"));
        }
        if self.blocks >= MAX_BLOCK_DEPTH {
            let failed = self.too_deep(open);
            self.skip_block();
            return Err(failed);
        }
        self.bump();
        self.blocks += 1;
        let mut nodes = Vec::new();
        while !self.eat_symbol("}") {
            if self.at_end() || self.at_item() {
                // Keep what was parsed, for callers that need more than the errors.
                self.unclosed(open);
                break;
            }
            if self.gave_up() {
                return Err(Missing);
            }
            if !self.eat_symbol(";") {
                self.statement_or_skip(&mut nodes);
            }
        }
        self.blocks -= 1;
        Ok(Block::new(nodes))
    }

    /// Parses a statement onto `nodes`; after an error, skips to the start of the next one.
    fn statement_or_skip(&mut self, nodes: &mut Vec<Node>) {
        let (start, blocks, spans) = (self.position(), self.blocks, self.tree.len());
        match self.statement() {
            Ok(node) => nodes.push(node),
            Err(Missing) => {
                // Keep only the spans of statements that were parsed.
                self.tree.truncate(spans);
                self.skip_from(start, blocks);
                return self.note_unread(start);
            }
        }
        if self.end_of_statement(start).is_err() {
            self.skip_from(start, blocks);
        }
    }

    fn skip_from(&mut self, start: usize, blocks: usize) {
        self.blocks = blocks;
        self.skip_statement(start);
        if self.position() == start {
            self.bump();
        }
    }

    fn end_of_statement(&mut self, start: usize) -> Parsed<()> {
        let next = self.peek();
        let ended = next.starts_line
            || next.kind == Lexeme::End
            || self.at_symbol("}")
            || self.text(self.previous()) == "}";
        if self.eat_symbol(";") || ended {
            return Ok(());
        }
        let first = self.token_at(start);
        let word = if first.kind == Lexeme::Word { self.text(first) } else { "" };
        let meant = match word {
            // Declarations as other languages spell them.
            "var" | "const" | "mut" | "auto" | "float" | "int" | "uint" => Some("let"),
            _ => closest(word, STATEMENT_WORDS.into_iter().chain(MESSAGE_WORDS)),
        };
        let help = match meant {
            _ if self.at_word("as") => Some("a conversion is a call: `f32(x)` for `x as f32`".into()),
            Some(meant) => Some(format!("did you mean `{meant}` for `{word}`?")),
            None => None,
        };
        let mends = meant.filter(|_| !self.at_word("as"));
        let failed = self.unexpected_with("the end of the line or `;`", help);
        if let Some(meant) = mends {
            self.mend(first.span, meant);
        }
        Err(failed)
    }

    fn statement(&mut self) -> Parsed<Node> {
        let token = self.peek();
        let word = if token.kind == Lexeme::Word { self.text(token) } else { "" };
        let node = match word {
            "let" => self.let_statement(),
            "array" => self.array_statement(),
            "if" => self.if_statement(),
            "for" => self.for_statement(),
            "while" => self.while_statement(),
            "region" => self.region_statement(),
            "return" if self.returns.is_some() => self.return_statement(),
            "break" | "continue" | "return" | "barrier" => Ok(self.bare_statement(word)),
            "trap" => self.trap_statement(),
            "print" | "assert" if self.text(self.peek_ahead(1)) == "(" => self.message_statement(word),
            _ if self.at_symbol("{") => self.block().map(Node::Block),
            _ => self.assignment_or_expression(),
        };
        let span = self.span_from(token.span.start);
        self.tree.push(span);
        node
    }

    fn bare_statement(&mut self, word: &str) -> Node {
        self.bump();
        match word {
            "break" => Node::Break,
            "continue" => Node::Continue,
            "return" => Node::Return,
            _ => Node::Barrier,
        }
    }

    /// `return x` in a function, in the form that `returns` expects. A `return` without a value is
    /// left for validation to reject.
    fn return_statement(&mut self) -> Parsed<Node> {
        let start = self.bump().span.start;
        let next = self.peek();
        if next.starts_line || next.kind == Lexeme::End || self.at_symbol("}") || self.at_symbol(";") {
            return Ok(Node::Return);
        }
        let value = self.expression()?;
        let span = self.span_from(start);
        self.returns = self.returns.map(|count| count + 1);
        // The statements after a return go into a nested block.
        if self.returns > Some(MAX_BLOCK_DEPTH) {
            return Err(self.too_deep(span));
        }
        self.tree.extend([span, span]);
        Ok(Node::block(vec![Node::assign(returns::RESULT, value), Node::Return]))
    }

    fn trap_statement(&mut self) -> Parsed<Node> {
        self.bump();
        self.integer("a trap code").map(Node::Trap)
    }

    /// `print("…", …)`, or `assert(…, "…", …)` with or without a message.
    fn message_statement(&mut self, word: &str) -> Parsed<Node> {
        self.bump();
        let open = self.bump().span;
        self.brackets += 1;
        let condition = if word == "assert" { Some(self.expression()?) } else { None };
        let more = condition.is_none() || self.eat_symbol(",");
        let (format, args) = if more && !self.at_symbol(")") { self.message()? } else { Default::default() };
        if !self.at_symbol(")") {
            return Err(if self.at_end() { self.unclosed(open) } else { self.unexpected("`,` or `)`") });
        }
        self.brackets -= 1;
        self.bump();
        Ok(match condition {
            None => Node::Print { format, args },
            Some(condition) => Node::Assert { condition, format, args },
        })
    }

    fn message(&mut self) -> Parsed<(Name, Vec<Expr>)> {
        let token = self.peek();
        if token.kind != Lexeme::String {
            return Err(self.unexpected("the message, as a string"));
        }
        self.bump();
        let (format, mut args) = (self.quoted_name(token), Vec::new());
        while self.eat_symbol(",") && !self.at_symbol(")") {
            args.push(self.expression()?);
        }
        Ok((format, args))
    }

    fn let_statement(&mut self) -> Parsed<Node> {
        let start = self.bump().span.start;
        let name = self.new_name("a variable")?;
        let declared = self.declared(SymbolKind::Variable, &name, start);
        let value = self.let_value(&name);
        // In scope from here on, but not in its own initializer.
        self.note_declared(declared);
        Ok(Node::Let { value: value?, name })
    }

    fn let_value(&mut self, name: &Name) -> Parsed<Expr> {
        if !self.eat_symbol("=") {
            let help = match &**name {
                "mut" => Some("every variable can be assigned: leave `mut` out".into()),
                _ if self.at_symbol(":") => {
                    Some("a variable has the type of its value: leave the type out".into())
                }
                _ => None,
            };
            return Err(self.unexpected_with("`=`", help));
        }
        self.expression()
    }

    fn array_statement(&mut self) -> Parsed<Node> {
        let start = self.bump().span.start;
        let name = self.new_name("an array")?;
        let declared = self.declared(SymbolKind::Array, &name, start);
        self.note_declared(declared);
        self.expect_symbol(":")?;
        let element = self.value_type()?;
        self.expect_symbol("[")?;
        self.brackets += 1;
        let count = self.count("a number of elements");
        self.brackets -= 1;
        let count = count?;
        self.expect_symbol("]")?;
        Ok(Node::Array { name, element, count })
    }

    /// Runs `read` on the header of a statement. If it fails, still parses the block after the
    /// header, for the errors in it.
    fn header<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let header = read(self);
        if header.is_err() && self.skip_to_block().is_ok() {
            // The block is discarded; only its errors matter.
            self.block().ok();
        }
        header
    }

    fn if_statement(&mut self) -> Parsed<Node> {
        self.bump();
        let condition = self.header(Self::expression)?;
        let then = self.block()?;
        let otherwise = if self.eat_word("else") { self.else_block()? } else { Block::default() };
        Ok(Node::If { condition, then, otherwise })
    }

    /// `else if` nests like `else { if }`.
    fn else_block(&mut self) -> Parsed<Block> {
        if !self.at_word("if") {
            return self.block();
        }
        let token = self.peek();
        if self.blocks >= MAX_BLOCK_DEPTH {
            return Err(self.too_deep(token.span));
        }
        self.blocks += 1;
        let node = self.if_statement()?;
        self.blocks -= 1;
        let span = self.span_from(token.span.start);
        self.tree.push(span);
        Ok(vec![node].into())
    }

    fn for_statement(&mut self) -> Parsed<Node> {
        self.open_scope();
        let node = self.for_inside();
        self.close_scope();
        node
    }

    fn for_inside(&mut self) -> Parsed<Node> {
        let start = self.bump().span.start;
        let (counter, [from, to, step]) = self.header(|parser| parser.for_header(start))?;
        Ok(Node::For { counter, from, to, step, body: self.block()? })
    }

    fn for_header(&mut self, start: u32) -> Parsed<(Name, [Expr; 3])> {
        if self.at_symbol("(") {
            return Err(self.unexpected_with("a counter", Some(FOR_HELP.into())));
        }
        let counter = self.new_name("a counter")?;
        let declared = self.declared(SymbolKind::Counter, &counter, start);
        let bounds = self.for_bounds();
        self.note_declared(declared);
        Ok((counter, bounds?))
    }

    fn for_bounds(&mut self) -> Parsed<[Expr; 3]> {
        if !self.eat_word("in") {
            return Err(self.unexpected_with("`in`", Some(FOR_HELP.into())));
        }
        let start = self.peek().span.start;
        let from = self.expression()?;
        self.expect_symbol("..")?;
        let to = self.expression()?;
        let step =
            if self.eat_word("step") { self.expression()? } else { self.complete(start, Expr::u32(1))? };
        Ok([from, to, step])
    }

    fn while_statement(&mut self) -> Parsed<Node> {
        self.bump();
        let condition = self.header(Self::expression)?;
        Ok(Node::While { condition, body: self.block()? })
    }

    fn region_statement(&mut self) -> Parsed<Node> {
        self.bump();
        let generator = self.header(|parser| {
            let token = parser.peek();
            if token.kind != Lexeme::String {
                return Err(parser.unexpected("the region's name, as a string"));
            }
            parser.bump();
            Ok(parser.quoted_name(token))
        })?;
        Ok(Node::Region { generator, body: self.block()? })
    }

    fn assignment_or_expression(&mut self) -> Parsed<Node> {
        let first = self.peek();
        if matches!(first.kind, Lexeme::Word | Lexeme::Quoted) && self.assigns(1) {
            return self.assignment();
        }
        let spans = self.tree.len();
        let expr = self.expression()?;
        if !self.assigns(0) {
            return Ok(Node::Eval(expr));
        }
        match expr {
            Expr::Load(to, args) if first.kind != Lexeme::Symbol && args.len() == 1 => {
                let index = args.into_vec().pop().unwrap_or_else(|| unreachable!("one operand"));
                self.store(to, index, spans)
            }
            _ => Err(self.unexpected_with(
                "the end of the line",
                Some("only a variable or one element, as in `y[i] = x`, can be assigned".into()),
            )),
        }
    }

    /// Whether the token `distance` ahead is `=`, `+=` or similar, on the same line.
    fn assigns(&self, distance: usize) -> bool {
        let token = self.peek_ahead(distance);
        let symbol = self.text(token);
        token.kind == Lexeme::Symbol
            && !token.starts_line
            && (symbol == "=" || vocabulary::compound_assignment(symbol).is_some())
    }

    fn assignment_op(&mut self) -> Option<Op> {
        let token = self.bump();
        vocabulary::compound_assignment(self.text(token))
    }

    fn assignment(&mut self) -> Parsed<Node> {
        let start = self.peek().span.start;
        let name = self.used_name("a variable")?;
        let target = self.span_from(start);
        let op = self.assignment_op();
        if op.is_some() {
            self.tree.push(target);
        }
        let mut value = self.expression()?;
        if let Some(op) = op {
            value = self.complete(start, Expr::op(op, [Expr::Var(name.clone()), value]))?;
        }
        Ok(Node::Assign { name, value })
    }

    /// `to[index] = …`. The target was parsed as a load whose spans start at `spans`.
    fn store(&mut self, to: Name, index: Expr, spans: usize) -> Parsed<Node> {
        let target = self.tree[spans..].to_vec();
        let start = target.last().map_or(0, |span| span.start);
        self.tree.pop();
        let Some(op) = self.assignment_op() else {
            return Ok(Node::Store { to, index, value: self.expression()? });
        };
        let mut acts = false;
        walk_expr(&index, &mut |expr| acts |= matches!(expr, Expr::Atomic(..)));
        if acts {
            let diagnostic = Diagnostic::new(
                Code::RepeatedIndex,
                format!("the index of `{}` has an atomic in it", excerpt(&to)),
            );
            let span = self.span_from(start);
            return Err(self.fault(diagnostic.help("name the index with `let` first"), span));
        }
        self.tree.extend(target);
        let value = self.expression()?;
        let old = Expr::Load(to.clone(), [index.clone()].into());
        let value = self.complete(start, Expr::op(op, [old, value]))?;
        Ok(Node::Store { to, index, value })
    }
}
