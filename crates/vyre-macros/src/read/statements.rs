//! Statements and blocks.

use super::calls::intrinsic_name;
use super::expressions::update;
use super::{Meaning, Read, Reader, fault, plain, span_of};
use crate::token_span::TokenSpan;
use crate::tree::{
    AssignmentTarget, Block, Elements, Message, Range, Size, Slice, SliceOf, Statement, StatementKind, Value,
    VariableId,
};
use crate::types::{Kind, Scalar, Type};
use syn::parse::{Parse, ParseStream};
use syn::{BinOp, Expr, Ident, Pat, RangeLimits, Stmt, Token};

impl Reader {
    /// Reads statements for their effect, in a new scope. Each fault is recorded for its statement.
    pub(crate) fn block(&mut self, block: &syn::Block) -> Block {
        self.in_scope(|reader| {
            let statements = block.stmts.iter().filter_map(|statement| reader.statement_or_fault(statement));
            Block { statements: statements.collect(), value: None }
        })
    }

    /// Reads statements and a trailing value of that type; no value if the last statement leaves
    /// the block.
    pub(crate) fn block_with_value(&mut self, block: &syn::Block, ty: Type) -> Read<Block> {
        let Some((last, before)) = block.stmts.split_last() else {
            return fault(span_of(block), "this block has no value");
        };
        let mut statements: Vec<Statement> =
            before.iter().filter_map(|statement| self.statement_or_fault(statement)).collect();
        match last {
            Stmt::Expr(Expr::Return(_) | Expr::Break(_) | Expr::Continue(_), _) => {
                statements.push(self.statement(last)?);
                Ok(Block { statements, value: None })
            }
            Stmt::Expr(expr, None) => {
                let value = self.value(expr)?;
                self.same(ty, value.ty, value.span)?;
                Ok(Block { statements, value: Some(Box::new(value)) })
            }
            _ => fault(span_of(last), "this block ends without a value; leave out the last `;`"),
        }
    }

    fn statement_or_fault(&mut self, statement: &Stmt) -> Option<Statement> {
        let read = self.statement(statement);
        if let (Err(_), Stmt::Local(local)) = (&read, statement) {
            self.add_faulty_names(&local.pat);
        }
        read.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn add_faulty_names(&mut self, pattern: &Pat) {
        match pattern {
            Pat::Ident(name) => self.add_faulty(&name.ident),
            Pat::Type(typed) => self.add_faulty_names(&typed.pat),
            Pat::Tuple(names) => names.elems.iter().for_each(|name| self.add_faulty_names(name)),
            _ => {}
        }
    }

    fn statement(&mut self, statement: &Stmt) -> Read<Statement> {
        let span = match statement {
            Stmt::Expr(expr, _) => head(expr),
            other => span_of(other),
        };
        let kind = match statement {
            Stmt::Local(local) => self.local(local, span)?,
            Stmt::Expr(expr, _) => self.effect(expr)?,
            Stmt::Macro(call) => self.message(&call.mac)?,
            Stmt::Item(_) => return fault(span, "items belong outside kernels"),
        };
        Ok(Statement { kind, span })
    }

    fn local(&mut self, local: &syn::Local, span: TokenSpan) -> Read<StatementKind> {
        let (pattern, ascribed) = match &local.pat {
            Pat::Type(typed) => (&*typed.pat, Some(&*typed.ty)),
            pattern => (pattern, None),
        };
        if let Some(init) = &local.init
            && init.diverge.is_some()
        {
            return fault(span, "kernels have no `let … else`");
        }
        let init = local.init.as_ref().map(|init| &*init.expr);
        match (pattern, init) {
            (Pat::Tuple(names), Some(Expr::Tuple(values))) if ascribed.is_none() => {
                self.local_tuple(names, values)
            }
            (Pat::Tuple(_), _) => {
                fault(span, "the numbers of variables and values must match: `let (a, b) = (x, y);`")
            }
            (_, Some(Expr::Repeat(_) | Expr::Array(_))) => self.local_array(pattern, ascribed, init),
            _ => {
                let ty = match ascribed {
                    Some(ty) => Type::Known(self.scalar(ty)?),
                    None => self.types.open(Kind::Any),
                };
                let value = init.map(|init| self.value(init)).transpose()?;
                if let Some(value) = &value {
                    self.same(ty, value.ty, value.span)?;
                }
                let variable = self.bind(pattern, ty)?;
                Ok(StatementKind::Let { variable, value })
            }
        }
    }

    /// Declares a variable that is visible from here on.
    fn bind(&mut self, pattern: &Pat, ty: Type) -> Read<VariableId> {
        let (ident, mutable) = name_of(pattern)?;
        let id = self.new_variable(&ident, ty, mutable);
        self.declare(&ident, Meaning::Variable(id));
        Ok(id)
    }

    fn local_tuple(&mut self, names: &syn::PatTuple, values: &syn::ExprTuple) -> Read<StatementKind> {
        if names.elems.len() != values.elems.len() {
            return fault(span_of(names), "the numbers of variables and values must match");
        }
        let values = values.elems.iter().map(|value| self.value(value)).collect::<Read<Vec<_>>>()?;
        let pairs = names.elems.iter().zip(&values);
        let variables = pairs.map(|(name, value)| self.bind(name, value.ty)).collect::<Read<Vec<_>>>()?;
        Ok(StatementKind::LetTuple { variables, values })
    }

    fn local_array(
        &mut self,
        pattern: &Pat,
        ascribed: Option<&syn::Type>,
        init: Option<&Expr>,
    ) -> Read<StatementKind> {
        let ty = self.types.open(Kind::Any);
        let (elements, length) = match init {
            Some(Expr::Repeat(repeat)) => {
                let value = self.value(&repeat.expr)?;
                self.same(ty, value.ty, value.span)?;
                (Elements::Repeat(value), self.size(&repeat.len)?)
            }
            Some(Expr::Array(array)) => self.array_list(array, ty)?,
            _ => return fault(span_of(pattern), "an array starts with its elements: `[0.0f32; 8]`"),
        };
        match ascribed {
            Some(syn::Type::Array(array)) => {
                let element = self.scalar(&array.elem)?;
                self.same(Type::Known(element), ty, span_of(&array.elem))?;
            }
            Some(syn::Type::Infer(_)) | None => {}
            Some(other) => return fault(span_of(other), "an array has the type `[T; N]`"),
        }
        let (ident, mutable) = name_of(pattern)?;
        let variable = self.new_variable(&ident, ty, mutable);
        self.variables[variable.0].length = Some(length);
        self.declare(&ident, Meaning::Array(variable));
        Ok(StatementKind::Array { variable, elements })
    }

    fn array_list(&mut self, array: &syn::ExprArray, ty: Type) -> Read<(Elements, Size)> {
        let values = array.elems.iter().map(|element| self.value(element)).collect::<Read<Vec<_>>>()?;
        for value in &values {
            self.same(ty, value.ty, value.span)?;
        }
        let count = values.len();
        let literal = syn::LitInt::new(&count.to_string(), span_of(array).start);
        let expr = Expr::Lit(syn::ExprLit { attrs: Vec::new(), lit: syn::Lit::Int(literal) });
        Ok((Elements::List(values), Size { expr, text: count.to_string() }))
    }

    /// Reads an expression for its effect.
    fn effect(&mut self, expr: &Expr) -> Read<StatementKind> {
        match expr {
            Expr::Assign(assign) => self.assignment(assign),
            Expr::Binary(binary) if update(&binary.op).is_some() => {
                self.update(&binary.op, binary, span_of(expr))
            }
            Expr::If(branch) => self.if_statement(branch),
            Expr::ForLoop(each) => self.for_loop(each),
            Expr::While(each) => {
                unlabelled(each.label.as_ref())?;
                let condition = self.condition(&each.cond)?;
                Ok(StatementKind::While { condition, body: self.block(&each.body) })
            }
            Expr::Loop(each) => {
                unlabelled(each.label.as_ref())?;
                Ok(StatementKind::Loop(self.block(&each.body)))
            }
            Expr::Block(block) if block.label.is_none() => Ok(StatementKind::Block(self.block(&block.block))),
            Expr::Break(leave) => match (&leave.label, &leave.expr) {
                (None, None) => Ok(StatementKind::Break),
                (Some(_), _) => {
                    fault(span_of(expr), "`break` leaves the innermost loop; there are no labels")
                }
                (None, Some(_)) => {
                    fault(span_of(expr), "a loop has no value in a kernel; assign a variable first")
                }
            },
            Expr::Continue(next) if next.label.is_none() => Ok(StatementKind::Continue),
            Expr::Continue(_) => {
                fault(span_of(expr), "`continue` applies to the innermost loop; there are no labels")
            }
            Expr::Return(leave) => self.return_statement(leave),
            Expr::Call(call) => self.call_statement(call),
            Expr::Macro(call) => self.message(&call.mac),
            Expr::Paren(inner) => self.effect(&inner.expr),
            Expr::Group(inner) => self.effect(&inner.expr),
            _ => Ok(StatementKind::Evaluate(self.value(expr)?)),
        }
    }

    fn call_statement(&mut self, call: &syn::ExprCall) -> Read<StatementKind> {
        if let Expr::Path(function) = &*call.func
            && intrinsic_name(&function.path).as_deref() == Some("barrier")
        {
            if self.result.is_some() {
                return fault(span_of(call), "a function has no barriers; they belong in the kernel");
            }
            self.exchanges = true;
            return Ok(StatementKind::Barrier(function.path.clone()));
        }
        let value = self.call(call)?;
        Ok(StatementKind::Evaluate(value))
    }

    fn return_statement(&mut self, leave: &syn::ExprReturn) -> Read<StatementKind> {
        match (self.result, &leave.expr) {
            (None, None) => Ok(StatementKind::Return(None)),
            (Some(ty), Some(value)) => {
                let value = self.value(value)?;
                self.same(ty, value.ty, value.span)?;
                Ok(StatementKind::Return(Some(value)))
            }
            (None, Some(_)) => fault(span_of(leave), "a kernel returns nothing; write to a `&mut` slice"),
            (Some(_), None) => fault(span_of(leave), "a function returns a number"),
        }
    }

    fn assignment(&mut self, assign: &syn::ExprAssign) -> Read<StatementKind> {
        if let (Expr::Tuple(left), Expr::Tuple(right)) = (&*assign.left, &*assign.right) {
            if left.elems.len() != right.elems.len() {
                return fault(span_of(assign), "the numbers of places and values must match");
            }
            let values = right.elems.iter().map(|value| self.value(value)).collect::<Read<Vec<_>>>()?;
            let targets = left.elems.iter().map(|target| self.target(target)).collect::<Read<Vec<_>>>()?;
            for (target, value) in targets.iter().zip(&values) {
                self.same(self.target_type(target), value.ty, value.span)?;
            }
            return Ok(StatementKind::AssignTuple { targets, values });
        }
        let value = self.value(&assign.right)?;
        let target = self.target(&assign.left)?;
        self.same(self.target_type(&target), value.ty, value.span)?;
        Ok(StatementKind::Assign(target, value))
    }

    fn update(&mut self, op: &BinOp, binary: &syn::ExprBinary, span: TokenSpan) -> Read<StatementKind> {
        let Some(op) = update(op) else { return fault(span, "this is not an assignment") };
        let value = self.value(&binary.right)?;
        let target = self.target(&binary.left)?;
        self.meet(op, self.target_type(&target), &value, span)?;
        Ok(StatementKind::Update(op, target, value))
    }

    fn target(&mut self, expr: &Expr) -> Read<AssignmentTarget> {
        match expr {
            Expr::Index(index) => {
                let place = self.place(index)?;
                self.check_writable(&place.slice)?;
                Ok(AssignmentTarget::Element(place))
            }
            Expr::Path(path) => {
                let Some(ident) = path.path.get_ident() else {
                    return fault(span_of(path), "this cannot be assigned");
                };
                match self.meaning(&plain(ident)) {
                    Some(Meaning::Variable(id)) => Ok(AssignmentTarget::Variable(*id, ident.clone())),
                    Some(Meaning::Uniform(_)) => fault(
                        span_of(path),
                        format!(
                            "`{ident}` is a uniform and cannot be assigned; copy it: `let mut {ident} = {ident};`"
                        ),
                    ),
                    Some(Meaning::Array(_) | Meaning::Buffer(_)) => fault(
                        span_of(path),
                        format!("`{ident}` is assigned element by element: `{ident}[i] = …`"),
                    ),
                    Some(Meaning::Faulty) => fault(span_of(path), super::TOLD),
                    None => fault(span_of(path), format!("there is no variable `{ident}` here")),
                }
            }
            _ => fault(span_of(expr), "this cannot be assigned"),
        }
    }

    pub(super) fn check_writable(&self, slice: &Slice) -> Read<()> {
        match slice.of {
            SliceOf::Buffer(at) if !self.buffers[at].writable => {
                let (name, element) = (&slice.ident, self.buffers[at].element.name());
                fault(name.span(), format!("`{name}` is read-only; declare it `{name}: &mut [{element}]`"))
            }
            SliceOf::Buffer(_) | SliceOf::Array(_) => Ok(()),
        }
    }

    fn target_type(&self, target: &AssignmentTarget) -> Type {
        match target {
            AssignmentTarget::Variable(id, _) => self.variables[id.0].ty,
            AssignmentTarget::Element(place) => self.element(&place.slice),
        }
    }

    fn if_statement(&mut self, branch: &syn::ExprIf) -> Read<StatementKind> {
        let condition = self.condition(&branch.cond)?;
        let then = self.block(&branch.then_branch);
        let otherwise = match &branch.else_branch {
            None => None,
            Some((_, otherwise)) => match &**otherwise {
                Expr::Block(block) => Some(self.block(&block.block)),
                other => {
                    let statement = Statement { kind: self.effect(other)?, span: head(other) };
                    Some(Block { statements: vec![statement], value: None })
                }
            },
        };
        Ok(StatementKind::If { condition, then, otherwise })
    }

    fn for_loop(&mut self, each: &syn::ExprForLoop) -> Read<StatementKind> {
        unlabelled(each.label.as_ref())?;
        let range = self.range(&each.expr)?;
        let ty = range.from.ty;
        let (ident, mutable) = match &*each.pat {
            Pat::Wild(wild) => (Ident::new("_unused", span_of(wild).start), false),
            pattern => name_of(pattern)?,
        };
        if mutable {
            return fault(ident.span(), "a loop counter cannot be assigned; copy it with `let mut`");
        }
        let counter = self.new_variable(&ident, ty, false);
        let body = self.in_scope(|reader| {
            reader.declare(&ident, Meaning::Variable(counter));
            reader.block(&each.body)
        });
        Ok(StatementKind::For { counter, range, body })
    }

    /// `a..b`, `a..=b`, `(a..b).rev()` or `(a..b).step_by(n)`.
    fn range(&mut self, expr: &Expr) -> Read<Range> {
        match expr {
            Expr::Paren(inner) => self.range(&inner.expr),
            Expr::Range(range) => {
                let (Some(from), Some(to)) = (&range.start, &range.end) else {
                    return fault(span_of(range), "a loop needs both bounds: `a..b`");
                };
                let (from, to) = (self.value(from)?, self.value(to)?);
                self.same(from.ty, to.ty, span_of(range))?;
                self.integer(&from)?;
                let inclusive = matches!(range.limits, RangeLimits::Closed(_));
                Ok(Range { from, to, step: None, reversed: false, inclusive })
            }
            Expr::MethodCall(call) if call.method == "rev" && call.args.is_empty() => {
                let range = self.range(&call.receiver)?;
                if range.reversed || range.step.is_some() {
                    return fault(call.method.span(), "a loop is reversed or has a step, not both");
                }
                Ok(Range { reversed: true, ..range })
            }
            Expr::MethodCall(call) if call.method == "step_by" && call.args.len() == 1 => {
                let range = self.range(&call.receiver)?;
                if range.reversed || range.step.is_some() {
                    return fault(call.method.span(), "a loop is reversed or has a step, not both");
                }
                let step = self.value(&call.args[0])?;
                self.is(&step, Scalar::Usize)?;
                Ok(Range { step: Some(step), ..range })
            }
            _ => fault(span_of(expr), "kernels loop over numbers: `for i in a..b`"),
        }
    }

    fn integer(&mut self, value: &Value) -> Read<()> {
        let integer = self.types.open(Kind::Integer);
        self.types.same(integer, value.ty).or_else(|_| fault(value.span, "a loop counts integers"))
    }

    /// `vyre::print!` or `vyre::assert!`.
    fn message(&mut self, call: &syn::Macro) -> Read<StatementKind> {
        let name = match intrinsic_name(&call.path).as_deref() {
            Some("print") => "print",
            Some("assert") => "assert",
            _ => {
                let last = call.path.segments.last().map(|segment| plain(&segment.ident)).unwrap_or_default();
                let help = match last.as_str() {
                    "assert" | "debug_assert" | "assert_eq" | "debug_assert_eq" | "panic" => {
                        "; write `vyre::assert!`"
                    }
                    "print" | "println" | "eprint" | "eprintln" | "dbg" => "; write `vyre::print!`",
                    _ => "",
                };
                return fault(span_of(&call.path), format!("kernels have no macro `{last}!`{help}"));
            }
        };
        let parts: MessageParts = call.parse_body()?;
        let operands = parts.operands.iter().map(|operand| self.value(operand)).collect::<Read<Vec<_>>>()?;
        let message = parts.format.map(|format| check_format(Message { format, operands })).transpose()?;
        match (name, parts.condition, message) {
            ("print", None, Some(message)) => Ok(StatementKind::Print(message)),
            ("assert", Some(condition), message) => {
                let condition = self.condition(&condition)?;
                Ok(StatementKind::Assert { condition, message })
            }
            ("print", _, _) => {
                fault(span_of(call), "`vyre::print!` starts with its message: `vyre::print!(\"x = {}\", x)`")
            }
            _ => fault(span_of(call), "`vyre::assert!` starts with a condition"),
        }
    }
}

/// Parts of a message macro's arguments.
struct MessageParts {
    condition: Option<Expr>,
    format: Option<syn::LitStr>,
    operands: Vec<Expr>,
}

impl Parse for MessageParts {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut parts = MessageParts { condition: None, format: None, operands: Vec::new() };
        if !input.peek(syn::LitStr) {
            parts.condition = Some(input.parse()?);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if !input.is_empty() {
            parts.format = Some(input.parse()?);
        }
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                parts.operands.push(input.parse()?);
            }
        }
        Ok(parts)
    }
}

/// Checks that operands appear only as `{}`.
fn check_format(message: Message) -> Read<Message> {
    let text = message.format.value().replace("{{", "").replace("}}", "");
    let holes = text.matches("{}").count();
    if text.replace("{}", "").contains(['{', '}']) {
        return fault(
            message.format.span(),
            "a message has a plain `{}` for each operand, with nothing in the braces",
        );
    }
    if holes != message.operands.len() {
        let given = message.operands.len();
        return fault(message.format.span(), format!("the message has {holes} `{{}}` and {given} operands"));
    }
    Ok(message)
}

/// Extent of an expression without its blocks.
fn head(expr: &Expr) -> TokenSpan {
    let whole = span_of(expr);
    match expr {
        Expr::If(branch) => whole.to(span_of(&branch.cond)),
        Expr::While(each) => whole.to(span_of(&each.cond)),
        Expr::ForLoop(each) => whole.to(span_of(&each.expr)),
        Expr::Loop(each) => span_of(&each.loop_token),
        _ => whole,
    }
}

fn unlabelled(label: Option<&syn::Label>) -> Read<()> {
    match label {
        None => Ok(()),
        Some(label) => fault(span_of(label), "kernels have no labels; leave by a flag variable"),
    }
}

fn name_of(pattern: &Pat) -> Read<(Ident, bool)> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
            Ok((name.ident.clone(), name.mutability.is_some()))
        }
        Pat::Wild(wild) => Ok((Ident::new("_unused", span_of(wild).start), false)),
        _ => fault(span_of(pattern), "kernels have no patterns; declare a variable by its name"),
    }
}
