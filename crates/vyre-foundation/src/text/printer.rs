//! Prints programs as text that parses back to an equal program.
//!
//! Parentheses appear only where precedence needs them. An op with the wrong number of operands,
//! which cannot be written as an operator, is printed as a call of its name. Names are quoted when
//! they would parse as something else.

use super::literal::{write_quoted, write_suffixed, write_value};
use super::unsuffixed::needs_suffixes;
use super::vocabulary::{
    self, AXES, ImpliedBindings, Infix, LOGICAL_AND, LOGICAL_OR, atomic_name, is_plain_name,
    is_scalar_uniform, subgroup_name, workgroup_name,
};
use crate::ir::{Access, Axis, Block, BufferDecl, Domain, Expr, Function, Name, Node, Program};
use crate::ops::{Op, Signature, Spelling};
use crate::types::Value;
use hashbrown::HashSet;
use std::fmt::{self, Write};

/// Buffer lists wider than this are broken, one buffer to a line.
const LINE_WIDTH: usize = 100;

pub(super) fn write_program(out: &mut dyn Write, program: &Program) -> fmt::Result {
    let suffixes = needs_suffixes(program);
    let mut printer = Printer { out, indent: 0, scalars: HashSet::new(), suffixes };
    for function in program.functions() {
        printer.function(function)?;
        printer.out.write_str("\n")?;
    }
    printer.kernel(program)
}

struct Printer<'p> {
    out: &'p mut dyn Write,
    indent: usize,
    /// The single-value uniforms declared so far, which a bare name loads; empty inside functions.
    scalars: HashSet<&'p Name>,
    /// Whether every number is printed with a suffix.
    suffixes: bool,
}

/// A name, in backticks if it would not parse as a name.
pub(super) struct Quoted<'n>(pub(super) &'n str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain_name(self.0) { f.write_str(self.0) } else { write_quoted(f, self.0, '`') }
    }
}

/// A size on three axes, in the shortest form that parses back.
pub(super) struct Counts(pub(super) [u32; 3]);

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [x, 1, 1] => write!(f, "{x}"),
            [x, y, z] => write!(f, "[{x}, {y}, {z}]"),
        }
    }
}

/// Context of an expression, which decides whether it needs parentheses.
#[derive(Clone, Copy)]
enum Context {
    /// No operator binds to it.
    Free,
    /// Operand of an infix op: it must bind at least this tightly.
    Beside(u8),
    /// Operand of a prefix op.
    Behind,
}

impl<'p> Printer<'p> {
    fn line(&mut self) -> fmt::Result {
        self.out.write_char('\n')?;
        (0..self.indent).try_for_each(|_| self.out.write_str("  "))
    }

    fn function(&mut self, function: &Function) -> fmt::Result {
        write!(self.out, "fn {}(", Quoted(&function.name))?;
        for (k, (name, ty)) in function.params.iter().enumerate() {
            write!(self.out, "{}{}: {ty}", if k == 0 { "" } else { ", " }, Quoted(name))?;
        }
        write!(self.out, ") -> {} {{", function.result)?;
        self.indent += 1;
        for node in &function.body {
            self.line()?;
            self.node(node)?;
        }
        self.line()?;
        self.expr(&function.value, Context::Free)?;
        self.indent -= 1;
        self.out.write_str("\n}\n")
    }

    fn kernel(&mut self, program: &'p Program) -> fmt::Result {
        self.out.write_str("kernel ")?;
        match program.name() {
            Some(name) if is_plain_name(name) => self.out.write_str(name)?,
            Some(name) => write_quoted(&mut self.out, name, '"')?,
            None => {}
        }
        self.buffers(program.buffers())?;
        match program.domain() {
            Domain::Default => {}
            Domain::Counts(counts) => write!(self.out, " over {}", Counts(*counts))?,
            Domain::LenOf(name) => write!(self.out, " over {}", Quoted(name))?,
            Domain::Axes(axes) => self.axes(axes)?,
        }
        write!(self.out, " workgroup {} ", Counts(program.workgroup_size()))?;
        self.block(program.entry())?;
        self.out.write_str("\n")
    }

    fn axes(&mut self, axes: &[Axis; 3]) -> fmt::Result {
        self.out.write_str(" over [")?;
        for (k, axis) in axes.iter().enumerate() {
            self.out.write_str(if k == 0 { "" } else { ", " })?;
            match axis {
                Axis::Count(count) => write!(self.out, "{count}")?,
                Axis::Of(formula) => self.expr(formula.expr(), Context::Free)?,
            }
        }
        self.out.write_str("]")
    }

    fn buffers(&mut self, buffers: &'p [BufferDecl]) -> fmt::Result {
        let mut bindings = ImpliedBindings::default();
        let mut texts = Vec::with_capacity(buffers.len());
        for decl in buffers {
            texts.push(self.buffer_text(decl, &bindings)?);
            bindings.declare(decl);
            if is_scalar_uniform(decl) {
                self.scalars.insert(&decl.name);
            }
        }
        if texts.iter().map(|text| text.len() + 2).sum::<usize>() <= LINE_WIDTH {
            return write!(self.out, "({})", texts.join(", "));
        }
        write!(self.out, "(\n  {}\n)", texts.join(",\n  "))
    }

    fn buffer_text(&self, decl: &BufferDecl, bindings: &ImpliedBindings) -> Result<String, fmt::Error> {
        let mut text = String::new();
        if decl.binding != bindings.implied(decl.access) {
            write!(text, "@binding({}) ", decl.binding)?;
        }
        write!(text, "{}: ", Quoted(&decl.name))?;
        match (decl.count, &decl.length) {
            _ if is_scalar_uniform(decl) => write!(text, "{} {}", decl.element, Access::Uniform)?,
            (_, Some(length)) => {
                write!(text, "{} {}[", decl.access, decl.element)?;
                let scalars = self.scalars.clone();
                let suffixes = self.suffixes;
                Printer { out: &mut text, indent: 0, scalars, suffixes }
                    .expr(length.expr(), Context::Free)?;
                text.push(']');
            }
            (0, None) => write!(text, "{} {}[]", decl.access, decl.element)?,
            (count, None) => write!(text, "{} {}[{count}]", decl.access, decl.element)?,
        }
        if let Some(other) = &decl.len_of {
            write!(text, " len_of {}", Quoted(other))?;
        }
        Ok(text)
    }

    fn block(&mut self, block: &Block) -> fmt::Result {
        if block.is_empty() {
            return self.out.write_str("{}");
        }
        self.out.write_str("{")?;
        self.indent += 1;
        for node in block {
            self.line()?;
            self.node(node)?;
        }
        self.indent -= 1;
        self.line()?;
        self.out.write_str("}")
    }

    fn node(&mut self, node: &Node) -> fmt::Result {
        match node {
            Node::Let { name, value } => {
                write!(self.out, "let {} = ", Quoted(name))?;
                self.expr(value, Context::Free)
            }
            Node::Array { name, element, count } => {
                write!(self.out, "array {}: {element}[{count}]", Quoted(name))
            }
            Node::Assign { name, value } => {
                write!(self.out, "{} = ", Quoted(name))?;
                self.expr(value, Context::Free)
            }
            Node::Store { to, index, value } => {
                write!(self.out, "{}[", Quoted(to))?;
                self.expr(index, Context::Free)?;
                self.out.write_str("] = ")?;
                self.expr(value, Context::Free)
            }
            Node::Eval(expr) => self.expr(expr, Context::Free),
            Node::If { condition, then, otherwise } => self.if_node(condition, then, otherwise),
            Node::For { counter, from, to, step, body } => {
                write!(self.out, "for {} in ", Quoted(counter))?;
                self.range([from, to, step])?;
                self.block(body)
            }
            Node::While { condition, body } => {
                self.out.write_str("while ")?;
                self.expr(condition, Context::Free)?;
                self.out.write_str(" ")?;
                self.block(body)
            }
            Node::Break => self.out.write_str("break"),
            Node::Continue => self.out.write_str("continue"),
            Node::Return => self.out.write_str("return"),
            Node::Barrier => self.out.write_str("barrier"),
            Node::Block(block) => self.block(block),
            Node::Region { generator, body } => {
                self.out.write_str("region ")?;
                write_quoted(&mut self.out, generator, '"')?;
                self.out.write_str(" ")?;
                self.block(body)
            }
            Node::Trap(code) => write!(self.out, "trap {code}"),
            Node::Print { format, args } => {
                self.out.write_str("print(")?;
                write_quoted(&mut self.out, format, '"')?;
                self.message_end(args)
            }
            Node::Assert { condition, format, args } => {
                self.out.write_str("assert(")?;
                self.expr(condition, Context::Free)?;
                if !format.is_empty() || !args.is_empty() {
                    self.out.write_str(", ")?;
                    write_quoted(&mut self.out, format, '"')?;
                }
                self.message_end(args)
            }
        }
    }

    fn message_end(&mut self, args: &[Expr]) -> fmt::Result {
        for arg in args {
            self.out.write_str(", ")?;
            self.expr(arg, Context::Free)?;
        }
        self.out.write_str(")")
    }

    fn if_node(&mut self, condition: &Expr, then: &Block, otherwise: &Block) -> fmt::Result {
        self.out.write_str("if ")?;
        self.expr(condition, Context::Free)?;
        self.out.write_str(" ")?;
        self.block(then)?;
        match &**otherwise {
            [] => Ok(()),
            [node @ Node::If { .. }] => {
                self.out.write_str(" else ")?;
                self.node(node)
            }
            _ => {
                self.out.write_str(" else ")?;
                self.block(otherwise)
            }
        }
    }

    fn range(&mut self, [from, to, step]: [&Expr; 3]) -> fmt::Result {
        self.expr(from, Context::Free)?;
        self.out.write_str("..")?;
        self.expr(to, Context::Free)?;
        if self.suffixes || *step != Expr::u32(1) {
            self.out.write_str(" step ")?;
            self.expr(step, Context::Free)?;
        }
        self.out.write_str(" ")
    }

    fn expr(&mut self, expr: &Expr, context: Context) -> fmt::Result {
        match expr {
            // A minus before a number is part of the number, so the operand of a minus op needs
            // parentheses.
            Expr::Literal(value)
                if matches!(context, Context::Behind) && !matches!(value, Value::Bool(_)) =>
            {
                self.out.write_str("(")?;
                self.literal(*value)?;
                self.out.write_str(")")
            }
            Expr::Literal(value) => self.literal(*value),
            Expr::Var(name) if self.scalars.contains(name) => write_quoted(&mut self.out, name, '`'),
            Expr::Var(name) => write!(self.out, "{}", Quoted(name)),
            Expr::Builtin(builtin, axis) => match AXES.get(usize::from(*axis)) {
                Some(letter) => write!(self.out, "{}.{letter}", builtin.name()),
                None => write!(self.out, "{}.{axis}", builtin.name()),
            },
            Expr::BufLen(name) => write!(self.out, "len({})", Quoted(name)),
            Expr::Load(name, args) if self.reads_scalar(name, args) => self.out.write_str(name),
            Expr::Load(name, args) => {
                write!(self.out, "{}", Quoted(name))?;
                self.list(['[', ']'], args)
            }
            Expr::Op(op, args) => self.op(*op, args, context),
            Expr::Atomic(op, name, args) => {
                write!(self.out, "{}({}", atomic_name(*op), Quoted(name))?;
                for arg in args {
                    self.out.write_str(", ")?;
                    self.expr(arg, Context::Free)?;
                }
                self.out.write_str(")")
            }
            Expr::Subgroup(op, args) => {
                self.out.write_str(&subgroup_name(*op))?;
                self.list(['(', ')'], args)
            }
            Expr::Workgroup(op, args) => {
                self.out.write_str(&workgroup_name(*op))?;
                self.list(['(', ')'], args)
            }
            Expr::Call(name, args) => {
                if vocabulary::callee(name).is_some() || vocabulary::MESSAGE_WORDS.contains(&&**name) {
                    write_quoted(&mut self.out, name, '`')?;
                } else {
                    write!(self.out, "{}", Quoted(name))?;
                }
                self.list(['(', ')'], args)
            }
        }
    }

    fn literal(&mut self, value: Value) -> fmt::Result {
        if self.suffixes { write_suffixed(&mut self.out, value) } else { write_value(&mut self.out, value) }
    }

    /// Whether a bare name is enough for this load.
    fn reads_scalar(&self, name: &Name, args: &[Expr]) -> bool {
        self.scalars.contains(name)
            && is_plain_name(name)
            && matches!(args, [index] if *index == vocabulary::scalar_index())
    }

    fn list(&mut self, [open, close]: [char; 2], items: &[Expr]) -> fmt::Result {
        self.out.write_char(open)?;
        for (k, item) in items.iter().enumerate() {
            if k > 0 {
                self.out.write_str(", ")?;
            }
            self.expr(item, Context::Free)?;
        }
        self.out.write_char(close)
    }

    fn op(&mut self, op: Op, args: &[Expr], context: Context) -> fmt::Result {
        match (op.row().spelling, args) {
            (Spelling::Infix(symbol, precedence), [left, right]) => {
                let (symbol, infix) = match op {
                    Op::And if joins_conditions(args) => LOGICAL_AND,
                    Op::Or if joins_conditions(args) => LOGICAL_OR,
                    _ => (symbol, Infix { op, precedence }),
                };
                let parenthesised = match context {
                    Context::Free => false,
                    Context::Beside(loosest) => infix.precedence < loosest,
                    Context::Behind => true,
                };
                self.out.write_str(if parenthesised { "(" } else { "" })?;
                self.expr(left, Context::Beside(infix.precedence))?;
                write!(self.out, " {symbol} ")?;
                self.expr(right, Context::Beside(infix.precedence + 1))?;
                self.out.write_str(if parenthesised { ")" } else { "" })
            }
            (Spelling::Prefix(symbol), [inner]) => {
                self.out.write_str(symbol)?;
                self.expr(inner, Context::Behind)
            }
            (Spelling::Infix(..) | Spelling::Prefix(_) | Spelling::Call, _) => {
                self.out.write_str(op.row().name)?;
                self.list(['(', ')'], args)
            }
        }
    }
}

/// Whether an operand is clearly a condition, so that `&&` and `||` read better than `&` and `|`.
fn joins_conditions(args: &[Expr]) -> bool {
    args.iter().any(is_condition)
}

fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value) => matches!(value, Value::Bool(_)),
        Expr::Op(Op::And | Op::Or | Op::Not, args) => joins_conditions(args),
        Expr::Op(op, _) => matches!(op.row().signature, Signature::Compare(_) | Signature::Test(_)),
        Expr::Var(_)
        | Expr::Builtin(..)
        | Expr::BufLen(_)
        | Expr::Load(..)
        | Expr::Atomic(..)
        | Expr::Subgroup(..)
        | Expr::Workgroup(..)
        | Expr::Call(..) => false,
    }
}
