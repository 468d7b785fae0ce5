//! Inlines functions that emit messages.
//!
//! Functions cannot access buffers, so a lowered message cannot be inside one. A call to a function
//! that emits messages becomes a block before the statement that contains it: the body of the
//! function with renamed variables, and an assignment of its result. Whatever the statement
//! evaluates before the call is bound to variables ahead of that block, which preserves the order
//! of evaluation.
//!
//! Validation guarantees that calls terminate and that inlined bodies nest no deeper than the block
//! limit.

use super::{FreeNames, block_nodes, expr_nodes};
use crate::ir::{Block, Expr, Function, Name, Node, Program, SourceMap, Span, rewrite_expr, telling};
use crate::types::Value;
use hashbrown::{HashMap, HashSet};

/// The program without calls to functions that emit messages; `None` if it has no such functions.
pub(super) fn inline(program: &Program) -> Option<Program> {
    let telling = telling(program.functions());
    if telling.is_empty() {
        return None;
    }
    let mut inlining = Inlining {
        program,
        telling,
        tree: program.source().map_or(&[], |source| &source.tree),
        position: 0,
        place: None,
        starts: HashMap::new(),
        map: SourceMap {
            functions: Vec::new(),
            tree: Vec::new(),
            ..program.source().cloned().unwrap_or_default()
        },
        prefix: FreeNames::new(program).buffer,
        counter: 0,
        names: None,
    };
    let functions = inlining.other_functions();
    let body = inlining.block(program.entry());
    let mut inlined = Program::new(program.buffers().to_vec(), program.workgroup_size(), body.into_vec())
        .with_domain(program.domain().clone())
        .with_functions(functions);
    if let Some(name) = program.name() {
        inlined = inlined.with_name(name.clone());
    }
    Some(if program.source().is_some() { inlined.with_source(inlining.map) } else { inlined })
}

struct Inlining<'p> {
    program: &'p Program,
    /// Functions that emit messages.
    telling: HashSet<Name>,
    /// Spans of all nodes in post-order, and the position of the next node.
    tree: &'p [Span],
    position: usize,
    /// Span of the current statement.
    place: Option<Span>,
    /// Position of the first node of each function.
    starts: HashMap<&'p Name, usize>,
    /// Source map of the result.
    map: SourceMap,
    /// Prefix of new variable names, and how many exist.
    prefix: String,
    counter: usize,
    /// Inside a function: the new names of its variables.
    names: Option<HashMap<Name, Name>>,
}

impl<'p> Inlining<'p> {
    /// The functions that are kept; advances past all of them.
    fn other_functions(&mut self) -> Vec<Function> {
        let headers = self.program.source().map_or(&[][..], |source| &source.functions);
        let mut kept = Vec::new();
        for (k, function) in self.program.functions().iter().enumerate() {
            let start = self.position;
            self.starts.insert(&function.name, start);
            self.position += block_nodes(&function.body) + expr_nodes(&function.value);
            if !self.telling.contains(&function.name) {
                self.map.tree.extend(self.tree.get(start..self.position).unwrap_or_default());
                self.map.functions.extend(headers.get(k));
                kept.push(function.clone());
            }
        }
        kept
    }

    /// Records the current statement's span for `nodes` new nodes.
    fn made(&mut self, nodes: usize) {
        self.map.tree.extend(self.place.into_iter().flat_map(|place| std::iter::repeat_n(place, nodes)));
    }

    fn emit(&mut self, node: Node, out: &mut Vec<Node>) {
        let block = Block::from(vec![node]);
        self.made(block_nodes(&block));
        out.extend(block.into_vec());
    }

    fn new_name(&mut self) -> Name {
        self.counter += 1;
        format!("{}{}", self.prefix, self.counter).into()
    }

    /// The new name of a variable declared here.
    fn declared(&mut self, name: &Name) -> Name {
        if self.names.is_none() {
            return name.clone();
        }
        let new = self.new_name();
        self.names.iter_mut().for_each(|names| drop(names.insert(name.clone(), new.clone())));
        new
    }

    fn renamed(&self, name: &Name) -> Name {
        self.names.as_ref().and_then(|names| names.get(name)).unwrap_or(name).clone()
    }

    fn block(&mut self, block: &Block) -> Block {
        let mut out = Vec::new();
        block.iter().for_each(|node| self.statement(node, &mut out));
        out.into()
    }

    /// Appends the replacement of a statement to `out`.
    fn statement(&mut self, node: &Node, out: &mut Vec<Node>) {
        let exprs: usize = node.exprs().into_iter().map(expr_nodes).sum();
        let inside: usize = node.blocks().into_iter().map(block_nodes).sum();
        let last = self.position + exprs + inside;
        let outer = std::mem::replace(&mut self.place, self.tree.get(last).copied());
        match node {
            Node::While { condition, body } if condition.calls(&self.telling) => {
                self.position += exprs;
                self.repeated(condition, body, out);
            }
            Node::Let { .. }
            | Node::Array { .. }
            | Node::Assign { .. }
            | Node::Store { .. }
            | Node::Eval(_)
            | Node::If { .. }
            | Node::For { .. }
            | Node::While { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_)
            | Node::Print { .. }
            | Node::Assert { .. } => self.ordinary(node, exprs, out),
        }
        self.position = last + 1;
        self.place = outer;
    }

    /// A statement whose expressions are evaluated once, before its blocks.
    fn ordinary(&mut self, node: &Node, exprs: usize, out: &mut Vec<Node>) {
        let operands = self.operands(&node.exprs(), out);
        let mut new = node.clone();
        match &mut new {
            Node::Let { name, .. } | Node::Array { name, .. } | Node::For { counter: name, .. } => {
                *name = self.declared(name);
            }
            Node::Assign { name, .. } | Node::Store { to: name, .. } => *name = self.renamed(name),
            Node::Eval(_)
            | Node::If { .. }
            | Node::While { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_)
            | Node::Print { .. }
            | Node::Assert { .. } => {}
        }
        self.position += exprs;
        self.made(operands.iter().map(expr_nodes).sum());
        new.exprs_mut().into_iter().zip(operands).for_each(|(slot, operand)| *slot = operand);
        for (slot, block) in new.blocks_mut().into_iter().zip(node.blocks()) {
            *slot = self.block(block);
        }
        self.made(1);
        out.push(new);
    }

    /// A loop whose condition calls such a function: the condition is evaluated at the start of
    /// every iteration.
    fn repeated(&mut self, condition: &Expr, body: &Block, out: &mut Vec<Node>) {
        self.made(1);
        let mut round = Vec::new();
        let condition = self.expr(condition, &mut round);
        self.emit(Node::if_else(condition, vec![], vec![Node::Break]), &mut round);
        round.extend(self.block(body).into_vec());
        self.made(1);
        out.push(Node::while_(Expr::bool(true), round));
    }

    /// Expressions evaluated in sequence: all those before the last one with such a call are bound
    /// to variables.
    fn operands(&mut self, exprs: &[&Expr], out: &mut Vec<Node>) -> Vec<Expr> {
        let last = exprs.iter().rposition(|expr| expr.calls(&self.telling));
        let mut operands = Vec::with_capacity(exprs.len());
        for (k, expr) in exprs.iter().enumerate() {
            let operand = self.expr(expr, out);
            let is_before = last.is_some_and(|last| k < last);
            operands.push(if is_before { self.named(operand, out) } else { operand });
        }
        operands
    }

    fn named(&mut self, value: Expr, out: &mut Vec<Node>) -> Expr {
        let name = self.new_name();
        self.emit(Node::Let { name: name.clone(), value }, out);
        Expr::Var(name)
    }

    fn expr(&mut self, expr: &Expr, out: &mut Vec<Node>) -> Expr {
        if !expr.calls(&self.telling) {
            return rewrite_expr(expr.clone(), &mut |expr| self.with_names(expr));
        }
        let args: Vec<&Expr> = expr.args().iter().collect();
        let args = self.operands(&args, out);
        match expr {
            Expr::Call(name, _) if self.telling.contains(name) => self.call(name, args, out),
            Expr::Literal(_)
            | Expr::Var(_)
            | Expr::Builtin(..)
            | Expr::BufLen(_)
            | Expr::Load(..)
            | Expr::Op(..)
            | Expr::Atomic(..)
            | Expr::Subgroup(..)
            | Expr::Workgroup(..)
            | Expr::Call(..) => {
                let mut with_args = expr.clone();
                with_args.arg_list_mut().into_iter().for_each(|list| *list = args.clone().into());
                self.with_names(with_args)
            }
        }
    }

    /// Renames the variables of a leaf, or of an expression whose operands are done.
    fn with_names(&self, expr: Expr) -> Expr {
        match expr {
            Expr::Var(name) => Expr::Var(self.renamed(&name)),
            Expr::BufLen(name) => Expr::BufLen(self.renamed(&name)),
            Expr::Load(name, args) => Expr::Load(self.renamed(&name), args),
            Expr::Literal(_)
            | Expr::Builtin(..)
            | Expr::Op(..)
            | Expr::Atomic(..)
            | Expr::Subgroup(..)
            | Expr::Workgroup(..)
            | Expr::Call(..) => expr,
        }
    }

    /// Inlines the body of a function at a call, and returns its result.
    fn call(&mut self, name: &Name, args: Vec<Expr>, out: &mut Vec<Node>) -> Expr {
        let Some(function) = self.program.functions().iter().find(|function| function.name == *name) else {
            unreachable!("only functions of the program tell messages")
        };
        let mut names = HashMap::new();
        for ((param, _), arg) in function.params.iter().zip(args) {
            let Expr::Var(value) = self.named(arg, out) else { unreachable!("a name was given") };
            names.insert(param.clone(), value);
        }
        let result = self.new_name();
        self.emit(Node::let_(result.clone(), Expr::Literal(Value::zero(function.result))), out);
        let start = self.starts.get(name).copied().unwrap_or_default();
        let (place, position) = (self.place, std::mem::replace(&mut self.position, start));
        let outer = self.names.replace(names);
        let mut inside = Vec::new();
        function.body.iter().for_each(|node| self.statement(node, &mut inside));
        let value = self.expr(&function.value, &mut inside);
        self.emit(Node::assign(result.clone(), value), &mut inside);
        (self.place, self.position, self.names) = (place, position, outer);
        self.made(1);
        out.push(Node::block(inside));
        Expr::Var(result)
    }
}
