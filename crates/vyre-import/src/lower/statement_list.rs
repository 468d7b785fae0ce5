//! Statements under construction, each with its position in the shader.
//!
//! A program's source map is a list in post-order (`SourceMap::tree`). [`StatementList`] keeps that
//! list next to its statements, so that blocks can be assembled in any order.

use vyre_foundation::ir::{Expr, Node, Span};

/// A list of statements and the positions of all their parts.
#[derive(Default)]
pub(super) struct StatementList {
    pub(super) nodes: Vec<Node>,
    pub(super) places: Vec<Span>,
}

impl StatementList {
    /// Adds a statement without blocks.
    pub(super) fn push(&mut self, node: Node, at: Span) {
        let parts: usize = node.exprs().into_iter().map(size).sum();
        self.places.extend(std::iter::repeat_n(at, parts + 1));
        self.nodes.push(node);
    }

    /// Removes the last statement, which must have no blocks.
    pub(super) fn pop(&mut self) -> Option<Node> {
        let node = self.nodes.pop()?;
        let parts: usize = node.exprs().into_iter().map(size).sum();
        self.places.truncate(self.places.len() - parts - 1);
        Some(node)
    }

    /// Adds all statements of another list.
    pub(super) fn append(&mut self, other: StatementList) {
        self.nodes.extend(other.nodes);
        self.places.extend(other.places);
    }

    pub(super) fn choose(
        &mut self,
        condition: Expr,
        then: StatementList,
        otherwise: StatementList,
        at: Span,
    ) {
        self.places.extend(std::iter::repeat_n(at, size(&condition)));
        self.places.extend(then.places);
        self.places.extend(otherwise.places);
        self.places.push(at);
        self.nodes.push(Node::if_else(condition, then.nodes, otherwise.nodes));
    }

    pub(super) fn repeat(&mut self, condition: Expr, body: StatementList, at: Span) {
        self.places.extend(std::iter::repeat_n(at, size(&condition)));
        self.places.extend(body.places);
        self.places.push(at);
        self.nodes.push(Node::while_(condition, body.nodes));
    }

    pub(super) fn count(&mut self, counter: &str, bounds: [Expr; 3], body: StatementList, at: Span) {
        let parts: usize = bounds.iter().map(size).sum();
        self.places.extend(std::iter::repeat_n(at, parts));
        self.places.extend(body.places);
        self.places.push(at);
        self.nodes.push(Node::for_step(counter, bounds, body.nodes));
    }
}

/// Number of expressions in an expression, including itself.
pub(super) fn size(expr: &Expr) -> usize {
    1 + expr.args().iter().map(size).sum::<usize>()
}
