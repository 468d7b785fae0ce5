//! The visitor and the rewriter for programs.

use super::{Block, Expr, Function, Name, Node};
use hashbrown::HashSet;

/// Visits every statement of a block and its expressions, both in pre-order.
pub fn walk_block(block: &Block, on_node: &mut dyn FnMut(&Node), on_expr: &mut dyn FnMut(&Expr)) {
    for node in block {
        on_node(node);
        for expr in node.exprs() {
            walk_expr(expr, on_expr);
        }
        for inner in node.blocks() {
            walk_block(inner, on_node, on_expr);
        }
    }
}

/// Visits an expression and its operands in pre-order.
pub fn walk_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    for arg in expr.args() {
        walk_expr(arg, visit);
    }
}

/// Rebuilds a block bottom-up. `on_node` returns the replacement for a statement whose parts were
/// already rebuilt.
pub fn rewrite_block(
    block: Block,
    on_node: &mut dyn FnMut(Node) -> Vec<Node>,
    on_expr: &mut dyn FnMut(Expr) -> Expr,
) -> Block {
    let mut rebuilt = Vec::with_capacity(block.len());
    for mut node in block.into_vec() {
        rewrite_parts(&mut node, on_node, on_expr);
        rebuilt.extend(on_node(node));
    }
    Block::new(rebuilt)
}

fn rewrite_parts(
    node: &mut Node,
    on_node: &mut dyn FnMut(Node) -> Vec<Node>,
    on_expr: &mut dyn FnMut(Expr) -> Expr,
) {
    for slot in node.exprs_mut() {
        *slot = rewrite_expr(std::mem::replace(slot, Expr::bool(false)), on_expr);
    }
    for block in node.blocks_mut() {
        *block = rewrite_block(std::mem::take(block), on_node, on_expr);
    }
}

/// Rebuilds an expression bottom-up: `on_expr` receives each expression after its operands were
/// rebuilt.
pub fn rewrite_expr(mut expr: Expr, on_expr: &mut dyn FnMut(Expr) -> Expr) -> Expr {
    if let Some(args) = expr.arg_list_mut() {
        let operands = std::mem::take(args).into_vec();
        *args = operands.into_iter().map(|arg| rewrite_expr(arg, on_expr)).collect::<Vec<_>>().into();
    }
    on_expr(expr)
}

/// The functions that print or assert, directly or through their callees.
pub(crate) fn telling(functions: &[Function]) -> HashSet<Name> {
    let mut found = HashSet::new();
    loop {
        let tells = |function: &Function, found: &HashSet<Name>| {
            let (mut message, mut calls) = (false, function.value.calls(found));
            let on_node = &mut |node: &Node| message |= node.is_message();
            walk_block(&function.body, on_node, &mut |expr| calls |= expr.calls(found));
            message || calls
        };
        let more: Vec<Name> = functions
            .iter()
            .filter(|function| !found.contains(&function.name) && tells(function, &found))
            .map(|function| function.name.clone())
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

impl Expr {
    /// Whether the expression calls one of these functions.
    pub(crate) fn calls(&self, functions: &HashSet<Name>) -> bool {
        let mut found = false;
        if !functions.is_empty() {
            walk_expr(self, &mut |expr| match expr {
                Expr::Call(name, _) => found |= functions.contains(name),
                Expr::Literal(_)
                | Expr::Var(_)
                | Expr::Builtin(..)
                | Expr::BufLen(_)
                | Expr::Load(..)
                | Expr::Op(..)
                | Expr::Atomic(..)
                | Expr::Subgroup(..)
                | Expr::Workgroup(..) => {}
            });
        }
        found
    }

    /// A description of an atomic, subgroup op or workgroup op in the expression, if there is one.
    pub(crate) fn exchange(&self) -> Option<&'static str> {
        let mut found = None;
        walk_expr(self, &mut |expr| match expr {
            Expr::Atomic(..) => found = Some("an atomic"),
            Expr::Subgroup(..) => found = Some("a subgroup op"),
            Expr::Workgroup(..) => found = Some("a workgroup op"),
            Expr::Literal(_)
            | Expr::Var(_)
            | Expr::Builtin(..)
            | Expr::BufLen(_)
            | Expr::Load(..)
            | Expr::Op(..)
            | Expr::Call(..) => {}
        });
        found
    }
}
