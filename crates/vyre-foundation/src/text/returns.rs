//! Rewrites functions with early returns into functions that end with their result.
//!
//! Programs have no early returns: once a function is parsed, its returns become assignments to a
//! variable that is the result at the end. The statements after a branch that always returns move
//! into the other branch; in and after loops, where that is not possible, a second variable records
//! whether the function has returned. The parser represents `return x` as a block of the assignment
//! and a `return`.
//!
//! Every statement moves together with the spans of its nodes, which a source map holds in
//! post-order.

use crate::ir::{Block, Expr, Node, Span, walk_expr};
use crate::ops::Op;
use crate::types::{Value, ValueType};
use std::cell::Cell;

/// The variable that holds the result. It is not a plain name, so it collides with none in the
/// program.
pub(super) const RESULT: &str = "the result";
const RETURNED: &str = "has returned";

/// A statement, and the spans of all nodes in it.
#[derive(Clone)]
struct SpannedNode {
    node: Node,
    spans: Vec<Span>,
}

impl SpannedNode {
    /// A statement that replaces another one at its span.
    fn at(span: Span, node: Node) -> SpannedNode {
        let spans = vec![span; nodes_of(&node)];
        SpannedNode { node, spans }
    }

    fn place(&self) -> Span {
        self.spans.last().copied().unwrap_or_default()
    }

    /// A copy with these blocks; its expressions are the nodes before those of its blocks.
    fn with_blocks(&self, blocks: Vec<Vec<SpannedNode>>) -> SpannedNode {
        let inside: usize = self.node.blocks().into_iter().map(nodes_in).sum();
        let exprs = nodes_of(&self.node) - inside - 1;
        let mut node = self.node.clone();
        let mut spans = self.spans.get(..exprs).unwrap_or_default().to_vec();
        for (slot, pieces) in node.blocks_mut().into_iter().zip(blocks) {
            spans.extend(pieces.iter().flat_map(|piece| &piece.spans));
            *slot = block_of(pieces);
        }
        spans.push(self.place());
        SpannedNode { node, spans }
    }

    /// The statements of its blocks.
    fn blocks(&self) -> Vec<Vec<SpannedNode>> {
        let blocks = self.node.blocks();
        let inside: usize = blocks.iter().map(|block| nodes_in(block)).sum();
        let mut spans = self.spans.get(self.spans.len().saturating_sub(inside + 1)..).unwrap_or_default();
        blocks.into_iter().map(|block| pieces(block, &mut spans)).collect()
    }
}

/// The assignment in a `return x`, as the parser represents it.
fn returned(node: &Node) -> Option<&Node> {
    let Node::Block(block) = node else { return None };
    match &**block {
        [assign @ Node::Assign { name, .. }, Node::Return] if **name == *RESULT => Some(assign),
        _ => None,
    }
}

fn returns(node: &Node) -> bool {
    returned(node).is_some() || node.blocks().iter().any(|block| block.iter().any(returns))
}

fn always_returns(node: &Node) -> bool {
    let always = |block: &Block| block.iter().any(always_returns);
    if returned(node).is_some() {
        return true;
    }
    match node {
        Node::If { then, otherwise, .. } => always(then) && always(otherwise),
        Node::Block(block) => always(block),
        Node::Let { .. }
        | Node::Array { .. }
        | Node::Assign { .. }
        | Node::Store { .. }
        | Node::Eval(_)
        | Node::For { .. }
        | Node::While { .. }
        | Node::Break
        | Node::Continue
        | Node::Return
        | Node::Barrier
        | Node::Region { .. }
        | Node::Trap(_)
        | Node::Print { .. }
        | Node::Assert { .. } => false,
    }
}

/// Number of nodes in a statement, its expressions and its blocks.
fn nodes_of(node: &Node) -> usize {
    let mut count = 1 + node.blocks().into_iter().map(nodes_in).sum::<usize>();
    node.exprs().into_iter().for_each(|expr| walk_expr(expr, &mut |_| count += 1));
    count
}

fn nodes_in(block: &Block) -> usize {
    block.iter().map(nodes_of).sum()
}

/// The statements of a block with their spans, which are taken from the front of `spans`.
fn pieces(block: &[Node], spans: &mut &[Span]) -> Vec<SpannedNode> {
    let piece = |node: &Node| {
        let (own, rest) = spans.split_at(nodes_of(node).min(spans.len()));
        *spans = rest;
        SpannedNode { node: node.clone(), spans: own.to_vec() }
    };
    block.iter().map(piece).collect()
}

fn block_of(pieces: Vec<SpannedNode>) -> Block {
    pieces.into_iter().map(|piece| piece.node).collect::<Vec<Node>>().into()
}

/// A function as parsed.
pub(super) struct FunctionParts {
    /// The statements; the last can be the result.
    pub(super) statements: Vec<Node>,
    /// Spans of their nodes.
    pub(super) tree: Vec<Span>,
    pub(super) result: ValueType,
}

/// A function without early returns.
pub(super) struct Ended {
    /// Too deep when the returns nest it beyond the block limit.
    pub(super) body: Block,
    pub(super) value: Expr,
    pub(super) tree: Vec<Span>,
}

/// Moves the result of a function to its end; returns the input if it does not end with a result.
pub(super) fn at_the_end(read: FunctionParts) -> Result<Ended, FunctionParts> {
    if !read.statements.iter().any(returns) {
        let FunctionParts { mut statements, mut tree, result } = read;
        // The result is a bare expression, not a statement.
        return match statements.pop() {
            Some(Node::Eval(value)) => {
                tree.pop();
                Ok(Ended { body: statements.into(), value, tree })
            }
            last => {
                statements.extend(last);
                Err(FunctionParts { statements, tree, result })
            }
        };
    }
    let mut body = pieces(&read.statements, &mut &*read.tree);
    match body.pop() {
        Some(SpannedNode { node: Node::Eval(value), spans }) => {
            body.push(SpannedNode { node: Node::assign(RESULT, value), spans });
        }
        Some(_) if !read.statements.iter().any(always_returns) => return Err(read),
        last => body.extend(last),
    }
    Ok(ended(&body, read.result))
}

fn ended(body: &[SpannedNode], result: ValueType) -> Ended {
    let place = body.first().map(SpannedNode::place).unwrap_or_default();
    let mut flag = Flag::default();
    let mut rewritten = flag.sequence(body, Around::Function);
    // The statements inserted before the first one have an empty span in the source.
    let before = Span { end: place.start, ..place };
    let mut first = vec![SpannedNode::at(before, Node::let_(RESULT, Expr::Literal(Value::zero(result))))];
    match flag.asked.get() {
        true => first.push(SpannedNode::at(before, Node::let_(RETURNED, Expr::bool(false)))),
        false => {
            flag.is_unused = true;
            rewritten = flag.sequence(body, Around::Function);
        }
    }
    first.extend(rewritten);
    let mut tree: Vec<Span> = first.iter().flat_map(|piece| piece.spans.clone()).collect();
    tree.push(place);
    let value = Expr::var(RESULT);
    Ended { body: block_of(first), value, tree }
}

/// What encloses a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    Function,
    Loop,
}

/// Tracks whether the variable that records an early return is read, and so must be declared.
#[derive(Default)]
struct Flag {
    asked: Cell<bool>,
    is_unused: bool,
}

impl Flag {
    fn sequence(&self, body: &[SpannedNode], around: Around) -> Vec<SpannedNode> {
        let Some(at) = body.iter().position(|piece| returns(&piece.node)) else { return body.to_vec() };
        let (before, piece, rest) = (&body[..at], &body[at], &body[at + 1..]);
        let mut out = before.to_vec();
        match (&piece.node, returned(&piece.node)) {
            (_, Some(assign)) => {
                let spans = piece.spans.get(..piece.spans.len().saturating_sub(2)).unwrap_or_default();
                out.push(SpannedNode { node: assign.clone(), spans: spans.to_vec() });
                if !self.is_unused {
                    out.push(SpannedNode::at(piece.place(), Node::assign(RETURNED, Expr::bool(true))));
                }
                if around == Around::Loop {
                    out.push(SpannedNode::at(piece.place(), Node::Break));
                }
                // Unreachable statements are still validated.
                out.extend(self.guarded(piece, Expr::bool(false), rest, around));
            }
            (Node::If { .. }, None) if around == Around::Function && !rest.is_empty() => {
                out.extend(self.branches(piece, rest));
            }
            (Node::For { .. } | Node::While { .. }, None) => {
                let inside = piece.blocks().iter().map(|block| self.sequence(block, Around::Loop)).collect();
                out.push(piece.with_blocks(inside));
                match around {
                    Around::Loop => {
                        let leave = Node::if_(self.has_returned(), vec![Node::Break]);
                        out.push(SpannedNode::at(piece.place(), leave));
                        out.extend(self.sequence(rest, around));
                    }
                    Around::Function => out.extend(self.unless_returned(piece, rest)),
                }
            }
            (_, None) => {
                let inside = piece.blocks().iter().map(|block| self.sequence(block, around)).collect();
                out.push(piece.with_blocks(inside));
                match around {
                    Around::Loop => out.extend(self.sequence(rest, around)),
                    Around::Function => out.extend(self.unless_returned(piece, rest)),
                }
            }
        }
        out
    }

    /// An `if` that can return, and the statements after it.
    fn branches(&self, piece: &SpannedNode, rest: &[SpannedNode]) -> Vec<SpannedNode> {
        let blocks = piece.blocks();
        let never = |block: &Vec<SpannedNode>| !block.iter().any(|piece| returns(&piece.node));
        let always = |block: &Vec<SpannedNode>| block.iter().any(|piece| always_returns(&piece.node));
        let other = match blocks.as_slice() {
            [then, otherwise] if always(then) && never(otherwise) => Some(1),
            [then, otherwise] if always(otherwise) && never(then) => Some(0),
            _ => None,
        };
        let inside = |(k, block): (usize, &Vec<SpannedNode>)| match other {
            Some(other) if other == k => {
                // Declarations in the branch must not be visible after it.
                let mut whole = Vec::new();
                if !block.is_empty() {
                    let spans = block.iter().flat_map(|piece| piece.spans.clone()).chain([piece.place()]);
                    whole.push(SpannedNode {
                        spans: spans.collect(),
                        node: Node::Block(block_of(block.clone())),
                    });
                }
                whole.extend_from_slice(rest);
                self.sequence(&whole, Around::Function)
            }
            Some(_) | None => self.sequence(block, Around::Function),
        };
        let mut out = vec![piece.with_blocks(blocks.iter().enumerate().map(inside).collect())];
        if other.is_none() {
            out.extend(self.unless_returned(piece, rest));
        }
        out
    }

    fn has_returned(&self) -> Expr {
        self.asked.set(true);
        Expr::var(RETURNED)
    }

    /// The statements that run only if the function did not return in `piece`.
    fn unless_returned(&self, piece: &SpannedNode, rest: &[SpannedNode]) -> Option<SpannedNode> {
        if rest.is_empty() {
            return None;
        }
        let condition = Expr::op(Op::Not, [self.has_returned()]);
        self.guarded(piece, condition, rest, Around::Function)
    }

    fn guarded(
        &self,
        piece: &SpannedNode,
        condition: Expr,
        rest: &[SpannedNode],
        around: Around,
    ) -> Option<SpannedNode> {
        if rest.is_empty() {
            return None;
        }
        let empty = SpannedNode::at(piece.place(), Node::if_(condition, Vec::new()));
        Some(empty.with_blocks(vec![self.sequence(rest, around), Vec::new()]))
    }
}
