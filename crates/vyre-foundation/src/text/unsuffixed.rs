//! Type inference for numbers without a suffix.
//!
//! By default an integer is a `u32` and a number with a point an `f32`. Where that would be an
//! error, because the context has another type of the same kind, the number takes that type: next
//! to another operand, where a function, an element or a variable expects it, and between the
//! bounds of a loop. An op on such numbers alone is itself *open* and takes a type as a whole. A
//! program that is valid with the default types therefore keeps them.
//!
//! Types are inferred only as far as this needs; unknown types and errors are left to validation.

use super::literal;
use crate::diagnostics::{Code, Diagnostic};
use crate::ir::{
    Block, BufferDecl, Expr, Function, Name, Node, Program, Span, rewrite_block, rewrite_expr, walk_expr,
};
use crate::ops::Signature;
use crate::types::{Value, ValueType};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// Access to the literals of a part of a program by post-order position.
trait Literals {
    /// Whether the literal has no suffix.
    fn is_open(&self, position: usize, value: Value) -> bool;

    /// Whether the step of a loop is omitted in the source.
    fn is_implied(&self, position: usize) -> bool;

    /// Fixes the type of an open literal.
    fn settle(&mut self, position: usize, value: Value, ty: ValueType);
}

/// Types declared in the rest of the program.
#[derive(Default)]
pub(super) struct Surroundings {
    /// Value types of buffer elements.
    pub(super) elements: HashMap<Name, ValueType>,
    /// Parameter and result types of functions.
    pub(super) functions: HashMap<Name, (Vec<ValueType>, ValueType)>,
}

impl Surroundings {
    pub(super) fn new<'p>(
        buffers: impl IntoIterator<Item = &'p BufferDecl>,
        functions: impl IntoIterator<Item = &'p Function>,
    ) -> Surroundings {
        let element = |decl: &BufferDecl| (decl.name.clone(), decl.element.value_type());
        let signature = |function: &Function| {
            let params = function.params.iter().map(|(_, ty)| *ty).collect();
            (function.name.clone(), (params, function.result))
        };
        Surroundings {
            elements: buffers.into_iter().map(element).collect(),
            functions: functions.into_iter().map(signature).collect(),
        }
    }
}

// Parsing.

/// The literals of a source text.
struct Texts<'t> {
    source: &'t str,
    /// Spans of the nodes, in post-order.
    tree: &'t [Span],
    settled: Settled,
}

/// The types chosen for numbers without a suffix.
#[derive(Default)]
pub(super) struct Settled {
    /// Values that replace literals, by position.
    values: HashMap<usize, Value>,
    pub(super) faults: Vec<(Diagnostic, Span)>,
}

impl Texts<'_> {
    fn place(&self, position: usize) -> Span {
        self.tree.get(position).copied().unwrap_or_default()
    }

    fn text(&self, position: usize) -> &str {
        let Span { start, end } = self.place(position);
        self.source.get(start as usize..end as usize).unwrap_or_default()
    }
}

impl Literals for Texts<'_> {
    fn is_open(&self, position: usize, value: Value) -> bool {
        is_default(value) && literal::is_unsuffixed(self.text(position))
    }

    fn is_implied(&self, position: usize) -> bool {
        // Its span is that of the bounds.
        self.text(position).contains("..")
    }

    fn settle(&mut self, position: usize, value: Value, ty: ValueType) {
        // Zero is also the placeholder for numbers outside their default type.
        if value.ty() == ty && value.to_bits() != 0 {
            return;
        }
        let read = match self.is_implied(position) {
            true => Ok(Value::one(ty)),
            false => literal::read_as(self.text(position), ty, value.ty()),
        };
        match read {
            Ok(value) => drop(self.settled.values.insert(position, value)),
            Err(bad) => {
                let mut diagnostic = Diagnostic::new(Code::BadLiteral, bad.message);
                diagnostic.help = bad.help;
                let fault = (diagnostic, self.place(position));
                if !self.settled.faults.contains(&fault) {
                    self.settled.faults.push(fault);
                }
            }
        }
    }
}

/// Whether the value has a default type.
fn is_default(value: Value) -> bool {
    matches!(value.ty(), ValueType::U32 | ValueType::F32)
}

impl Settled {
    pub(super) fn of_function(
        source: &str,
        tree: &[Span],
        around: &Surroundings,
        function: &Function,
    ) -> Settled {
        Settled::of(source, tree, around, |inference| inference.function(function))
    }

    pub(super) fn of_body(source: &str, tree: &[Span], around: &Surroundings, body: &Block) -> Settled {
        Settled::of(source, tree, around, |inference| inference.block(body))
    }

    /// An expression of a required type.
    pub(super) fn of_expr(
        source: &str,
        tree: &[Span],
        around: &Surroundings,
        (expr, wanted): (&Expr, ValueType),
    ) -> Settled {
        Settled::of(source, tree, around, |inference| inference.wanted(expr, Some(wanted)))
    }

    fn of<'t>(
        source: &'t str,
        tree: &'t [Span],
        around: &Surroundings,
        walk: impl FnOnce(&mut Inference<'_, Texts<'t>>),
    ) -> Settled {
        let mut texts = Texts { source, tree, settled: Settled::default() };
        walk(&mut Inference::new(&mut texts, around));
        texts.settled
    }

    /// The statements with the settled values. `position` is that of their first node, and advances
    /// past their last.
    pub(super) fn in_block(&self, block: Block, position: &mut usize) -> Block {
        if self.values.is_empty() {
            return block;
        }
        let position = std::cell::RefCell::new(position);
        let next = || {
            let mut position = position.borrow_mut();
            **position += 1;
            **position - 1
        };
        let on_node = &mut |node| {
            next();
            vec![node]
        };
        rewrite_block(block, on_node, &mut |expr| self.in_place(expr, next()))
    }

    pub(super) fn in_expr(&self, expr: Expr, position: &mut usize) -> Expr {
        let next = &mut |expr| {
            *position += 1;
            self.in_place(expr, *position - 1)
        };
        if self.values.is_empty() { expr } else { rewrite_expr(expr, next) }
    }

    fn in_place(&self, expr: Expr, position: usize) -> Expr {
        self.values.get(&position).map_or(expr, |value| Expr::Literal(*value))
    }
}

// Printing.

/// Detects numbers that would take another type if printed without a suffix.
#[derive(Default)]
struct Written {
    changes: bool,
}

impl Literals for Written {
    fn is_open(&self, _: usize, value: Value) -> bool {
        is_default(value)
    }

    fn is_implied(&self, _: usize) -> bool {
        false
    }

    fn settle(&mut self, _: usize, value: Value, ty: ValueType) {
        self.changes |= value.ty() != ty;
    }
}

/// Whether the program parses back equal only with a suffix on every number. No valid program needs
/// that.
pub(super) fn needs_suffixes(program: &Program) -> bool {
    let around = Surroundings::new(program.buffers(), program.functions());
    let mut written = Written::default();
    let mut each = |walk: &dyn Fn(&mut Inference<'_, Written>)| {
        walk(&mut Inference::new(&mut written, &around));
    };
    let lengths = program.buffers().iter().filter_map(|decl| decl.length.as_ref());
    for formula in lengths.chain(program.domain().formulas()) {
        each(&|inference| inference.wanted(formula.expr(), Some(ValueType::U32)));
    }
    for function in program.functions() {
        each(&|inference| inference.function(function));
    }
    each(&|inference| inference.block(program.entry()));
    written.changes
}

// Types.

/// An expression and its type, as far as known.
#[derive(Clone, Copy)]
struct Typed<'e> {
    expr: &'e Expr,
    /// Position of its first node.
    start: usize,
    ty: Option<ValueType>,
    /// Made of unsuffixed numbers whose types are not settled.
    is_open: bool,
}

impl Typed<'_> {
    /// The type of the expression once the context asks for `wanted`.
    fn taking(self, wanted: Option<ValueType>) -> Option<ValueType> {
        let takes = |wanted: &ValueType| {
            self.ty.is_some_and(|ty| ty.is_float() == wanted.is_float() && *wanted != ValueType::Bool)
        };
        if self.is_open { wanted.filter(takes).or(self.ty) } else { self.ty }
    }
}

/// One walk in evaluation order, like that of validation.
struct Inference<'p, L> {
    literals: &'p mut L,
    around: &'p Surroundings,
    /// The variables and arrays in scope; `None` for an unknown type.
    scope: HashMap<Name, Option<ValueType>>,
    /// Declared names in order, so that leaving a block can remove them.
    order: Vec<Name>,
    position: usize,
}

impl<'p, L: Literals> Inference<'p, L> {
    fn new(literals: &'p mut L, around: &'p Surroundings) -> Inference<'p, L> {
        Inference { literals, around, scope: HashMap::new(), order: Vec::new(), position: 0 }
    }

    fn function(&mut self, function: &Function) {
        function.params.iter().for_each(|(name, ty)| self.declare(name, Some(*ty)));
        for node in &function.body {
            self.node(node);
        }
        self.wanted(&function.value, Some(function.result));
    }

    fn declare(&mut self, name: &Name, ty: Option<ValueType>) {
        if !self.scope.contains_key(name) {
            self.scope.insert(name.clone(), ty);
            self.order.push(name.clone());
        }
    }

    fn forget(&mut self, visible: usize) {
        for name in self.order.drain(visible..) {
            self.scope.remove(&name);
        }
    }

    fn block(&mut self, block: &Block) {
        let visible = self.order.len();
        for node in block {
            self.node(node);
        }
        self.forget(visible);
    }

    fn node(&mut self, node: &Node) {
        let visible = self.order.len();
        match node {
            Node::Let { name, value } => {
                let value = self.expr(value);
                self.settle(value, None);
                self.declare(name, value.ty);
            }
            Node::Array { name, element, .. } => self.declare(name, Some(*element)),
            Node::Assign { name, value } => {
                self.wanted(value, self.scope.get(name).copied().flatten());
            }
            Node::Store { to, index, value } => {
                self.wanted(index, Some(ValueType::U32));
                self.wanted(value, self.element(to));
            }
            Node::For { counter, from, to, step, .. } => {
                let mut bounds = [from, to, step].map(|bound| self.expr(bound));
                bounds[2].is_open |= *step == Expr::u32(1) && self.literals.is_implied(bounds[2].start);
                let ty = self.settle_alike(&bounds);
                self.declare(counter, ty);
            }
            Node::Eval(_)
            | Node::If { .. }
            | Node::While { .. }
            | Node::Print { .. }
            | Node::Assert { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_) => node.exprs().into_iter().for_each(|expr| self.wanted(expr, None)),
        }
        for block in node.blocks() {
            self.block(block);
        }
        if matches!(node, Node::For { .. }) {
            self.forget(visible);
        }
        self.position += 1;
    }

    /// An expression whose context may ask for a type.
    fn wanted(&mut self, expr: &Expr, wanted: Option<ValueType>) {
        let typed = self.expr(expr);
        self.settle(typed, wanted);
    }

    fn expr<'e>(&mut self, expr: &'e Expr) -> Typed<'e> {
        let start = self.position;
        let args: SmallVec<[Typed<'e>; 4]> = expr.args().iter().map(|arg| self.expr(arg)).collect();
        let position = self.position;
        self.position += 1;
        let closed = |ty: Option<ValueType>| (ty, false);
        let (ty, is_open) = match expr {
            Expr::Literal(value) => (Some(value.ty()), self.literals.is_open(position, *value)),
            Expr::Var(name) => closed(self.scope.get(name).copied().flatten()),
            Expr::Builtin(..) | Expr::BufLen(_) => closed(Some(ValueType::U32)),
            Expr::Load(from, _) => {
                self.settle_each(&args, |_| Some(ValueType::U32));
                closed(self.element(from))
            }
            Expr::Op(op, _) => self.op(op.row().signature, &args),
            Expr::Atomic(_, buffer, _) => {
                let element = self.element(buffer);
                self.settle_each(&args, |k| if k == 0 { Some(ValueType::U32) } else { element });
                closed(element)
            }
            Expr::Subgroup(op, _) => {
                self.settle_each(&args, |_| None);
                closed(types(&args).and_then(|types| op.result(&types)))
            }
            Expr::Workgroup(..) => {
                self.settle_each(&args, |_| None);
                closed(args.first().and_then(|arg| arg.ty))
            }
            Expr::Call(name, _) => {
                let function = self.around.functions.get(name);
                self.settle_each(&args, |k| function.and_then(|(params, _)| params.get(k).copied()));
                closed(function.map(|(_, result)| *result))
            }
        };
        Typed { expr, start, ty, is_open }
    }

    /// The type of an op, and whether it is open.
    fn op(&mut self, signature: Signature, args: &[Typed<'_>]) -> (Option<ValueType>, bool) {
        if args.len() != signature.arity() {
            self.settle_each(args, |_| None);
            return (None, false);
        }
        let alike = signature.alike();
        for (k, arg) in args.iter().enumerate().filter(|(k, _)| !alike.contains(k)) {
            self.settle(*arg, signature.fixed(k));
        }
        let result = |common: Option<ValueType>| {
            let given = args.iter().enumerate().map(|(k, arg)| match alike.contains(&k) {
                true => common,
                false => arg.taking(signature.fixed(k)),
            });
            signature.result(&given.collect::<Option<SmallVec<[ValueType; 4]>>>()?)
        };
        let group = &args[alike.clone()];
        let first = group.first().and_then(|arg| arg.ty);
        let all_open = group.iter().all(|arg| arg.is_open && arg.ty == first);
        if signature.gives_alike() && all_open && result(first).is_some() {
            return (result(first), true);
        }
        (result(self.settle_alike(group)), false)
    }

    /// Settles expressions that must have the same type, and returns that type: the one that the
    /// closed expressions agree on.
    fn settle_alike(&mut self, group: &[Typed<'_>]) -> Option<ValueType> {
        let mut closed = group.iter().filter(|arg| !arg.is_open).map(|arg| arg.ty);
        let first = closed.next().flatten();
        let decides = first.filter(|_| closed.all(|ty| ty == first));
        group.iter().for_each(|arg| self.settle(*arg, decides));
        let mut taken = group.iter().map(|arg| arg.taking(decides));
        let first = taken.next().flatten();
        first.filter(|_| taken.all(|ty| ty == first))
    }

    fn settle_each(&mut self, args: &[Typed<'_>], wanted: impl Fn(usize) -> Option<ValueType>) {
        args.iter().enumerate().for_each(|(k, arg)| self.settle(*arg, wanted(k)));
    }

    /// Assigns a type to the numbers of an open expression: the one that the context asks for, or
    /// their default.
    fn settle(&mut self, typed: Typed<'_>, wanted: Option<ValueType>) {
        if let (true, Some(ty)) = (typed.is_open, typed.taking(wanted)) {
            self.settle_from(typed.expr, typed.start, ty);
        }
    }

    /// Settles an open expression, and returns the position after it.
    fn settle_from(&mut self, expr: &Expr, start: usize, ty: ValueType) -> usize {
        let (mut position, alike) = match expr {
            Expr::Literal(value) => {
                self.literals.settle(start, *value, ty);
                (start, 0..0)
            }
            Expr::Op(op, _) => (start, op.row().signature.alike()),
            Expr::Var(_)
            | Expr::Builtin(..)
            | Expr::BufLen(_)
            | Expr::Load(..)
            | Expr::Atomic(..)
            | Expr::Subgroup(..)
            | Expr::Workgroup(..)
            | Expr::Call(..) => unreachable!("only literals and ops on them are open"),
        };
        for (k, arg) in expr.args().iter().enumerate() {
            if alike.contains(&k) {
                position = self.settle_from(arg, position, ty);
            } else {
                walk_expr(arg, &mut |_| position += 1);
            }
        }
        position + 1
    }

    fn element(&self, name: &Name) -> Option<ValueType> {
        let declared = self.scope.get(name).copied();
        declared.unwrap_or_else(|| self.around.elements.get(name).copied())
    }
}

fn types(args: &[Typed<'_>]) -> Option<Vec<ValueType>> {
    args.iter().map(|arg| arg.ty).collect()
}
