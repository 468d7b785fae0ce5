//! Statements.

use super::{Expr, Name};
use crate::types::ValueType;
use std::ops::Deref;

/// Maximum nesting depth of blocks. Blocks and expressions of the benchmarks and filetests together
/// nest at most 14 deep.
pub const MAX_BLOCK_DEPTH: usize = 128;

/// Maximum number of operands of a message: every record has room for those of the longest message,
/// 144 bytes with this many of 64 bits.
pub const MAX_MESSAGE_OPERANDS: usize = 16;

/// Nesting depth of the blocks that a message expands to.
const MESSAGE_DEPTH: usize = 4;

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Declares a variable with the type of its initial value.
    Let {
        /// The variable.
        name: Name,
        /// The initial value.
        value: Expr,
    },
    /// Declares a zeroed array private to the invocation.
    Array {
        /// The array.
        name: Name,
        /// The type of its elements.
        element: ValueType,
        /// The number of elements.
        count: u32,
    },
    /// Assigns a variable.
    Assign {
        /// The variable.
        name: Name,
        /// The new value.
        value: Expr,
    },
    /// Writes an element of a buffer or private array.
    Store {
        /// The buffer or array.
        to: Name,
        /// The index of the element.
        index: Expr,
        /// The value to write.
        value: Expr,
    },
    /// Evaluates an expression for its side effect, an atomic.
    Eval(Expr),
    /// Runs one of two blocks.
    If {
        /// The condition.
        condition: Expr,
        /// Runs where the condition is true.
        then: Block,
        /// Runs where the condition is false.
        otherwise: Block,
    },
    /// Runs a block for each of `from`, `from + step`, … up to but not including `to` (down to it,
    /// if `step` is negative).
    For {
        /// The counter; the body can read it.
        counter: Name,
        /// The first value.
        from: Expr,
        /// The limit, exclusive.
        to: Expr,
        /// The increment per iteration; 0 runs no iterations.
        step: Expr,
        /// The loop body.
        body: Block,
    },
    /// Runs a block while a condition holds.
    While {
        /// Evaluated before every iteration.
        condition: Expr,
        /// The loop body.
        body: Block,
    },
    /// Leaves the innermost loop.
    Break,
    /// Starts the next iteration of the innermost loop.
    Continue,
    /// Ends this invocation.
    Return,
    /// Waits until every invocation of the workgroup arrives, and orders their memory accesses.
    Barrier,
    /// A block with its own scope.
    Block(Block),
    /// A named part of the kernel: the unit of profiling, hints and traces.
    Region {
        /// The name of the generator, under which the region is profiled.
        generator: Name,
        /// The statements.
        body: Block,
    },
    /// Fails the whole dispatch with this code; it returns no outputs.
    Trap(u32),
    /// Reports a message to the caller, with no other effect.
    Print {
        /// The message, with `{}` for each operand.
        format: Name,
        /// The operands, in order.
        args: Vec<Expr>,
    },
    /// Fails the call with a message if a condition is false. The kernel continues, and there is no
    /// other effect.
    Assert {
        /// The condition.
        condition: Expr,
        /// The message, with `{}` for each operand; can be empty.
        format: Name,
        /// The operands, in order.
        args: Vec<Expr>,
    },
}

/// Splits a message at its `{}`, with `{{` and `}}` for braces; `None` if a brace is neither.
///
/// ```
/// use vyre_foundation::ir::message_pieces;
/// assert_eq!(message_pieces("{{{}}} of {}"), Some(vec!["{".into(), "} of ".into(), "".into()]));
/// assert_eq!(message_pieces("{x}"), None);
/// ```
pub fn message_pieces(format: &str) -> Option<Vec<String>> {
    let mut pieces = vec![String::new()];
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        let piece = pieces.last_mut()?;
        match next {
            '{' | '}' => match (next, rest.next()?) {
                ('{', '}') => pieces.push(String::new()),
                (brace, again) if brace == again => piece.push(brace),
                _ => return None,
            },
            _ => piece.push(next),
        }
    }
    Some(pieces)
}

/// A list of statements that tracks its nesting depth, at most [`MAX_BLOCK_DEPTH`].
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    items: Vec<Node>,
    depth: usize,
}

impl Block {
    /// A block of these statements. A tree that would be too deep is dropped, which
    /// [`is_too_deep`](Block::is_too_deep) reports.
    pub fn new(items: Vec<Node>) -> Block {
        let depth = 1 + items.iter().map(Node::depth).max().unwrap_or(0);
        if depth > MAX_BLOCK_DEPTH { Block { items: Vec::new(), depth: 0 } } else { Block { items, depth } }
    }

    /// Whether statements were dropped because the tree was too deep.
    pub fn is_too_deep(&self) -> bool {
        self.depth == 0
    }

    /// Converts the block into its statements.
    pub fn into_vec(self) -> Vec<Node> {
        self.items
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
}

impl Default for Block {
    fn default() -> Block {
        Block::new(Vec::new())
    }
}

impl Deref for Block {
    type Target = [Node];
    fn deref(&self) -> &[Node] {
        &self.items
    }
}

impl From<Vec<Node>> for Block {
    fn from(items: Vec<Node>) -> Block {
        Block::new(items)
    }
}

impl<'a> IntoIterator for &'a Block {
    type Item = &'a Node;
    type IntoIter = std::slice::Iter<'a, Node>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl Node {
    /// Declares the variable `name`.
    pub fn let_(name: impl Into<Name>, value: impl Into<Expr>) -> Node {
        Node::Let { name: name.into(), value: value.into() }
    }

    /// Declares a private array of zeros.
    pub fn array(name: impl Into<Name>, element: ValueType, count: u32) -> Node {
        Node::Array { name: name.into(), element, count }
    }

    /// Assigns the variable `name`.
    pub fn assign(name: impl Into<Name>, value: impl Into<Expr>) -> Node {
        Node::Assign { name: name.into(), value: value.into() }
    }

    /// Writes an element of a buffer or private array.
    pub fn store(to: impl Into<Name>, index: impl Into<Expr>, value: impl Into<Expr>) -> Node {
        Node::Store { to: to.into(), index: index.into(), value: value.into() }
    }

    /// Evaluates an expression for its side effect.
    pub fn eval(expr: Expr) -> Node {
        Node::Eval(expr)
    }

    /// Runs `then` if the condition holds.
    pub fn if_(condition: impl Into<Expr>, then: impl Into<Block>) -> Node {
        Node::if_else(condition, then, Vec::new())
    }

    /// Runs `then` if the condition holds, otherwise `otherwise`.
    pub fn if_else(condition: impl Into<Expr>, then: impl Into<Block>, otherwise: impl Into<Block>) -> Node {
        Node::If { condition: condition.into(), then: then.into(), otherwise: otherwise.into() }
    }

    /// Runs `body` with the `u32` counter `counter` from `from` up to but not including `to`.
    pub fn for_range(
        counter: impl Into<Name>,
        from: impl Into<Expr>,
        to: impl Into<Expr>,
        body: impl Into<Block>,
    ) -> Node {
        Node::for_step(counter, [from.into(), to.into(), Expr::u32(1)], body)
    }

    /// Runs `body` with `counter` over the bounds `[from, to, step]`.
    pub fn for_step(counter: impl Into<Name>, bounds: [Expr; 3], body: impl Into<Block>) -> Node {
        let [from, to, step] = bounds;
        Node::For { counter: counter.into(), from, to, step, body: body.into() }
    }

    /// Runs `body` while the condition holds.
    pub fn while_(condition: impl Into<Expr>, body: impl Into<Block>) -> Node {
        Node::While { condition: condition.into(), body: body.into() }
    }

    /// A block with its own scope.
    pub fn block(body: impl Into<Block>) -> Node {
        Node::Block(body.into())
    }

    /// A named part of the kernel.
    pub fn region(generator: impl Into<Name>, body: impl Into<Block>) -> Node {
        Node::Region { generator: generator.into(), body: body.into() }
    }

    /// Reports a message to the caller, with `{}` for each operand.
    ///
    /// ```
    /// use vyre_foundation::ir::{Expr, Node, Program};
    /// let hello = Node::print("hello from {}", [Expr::invocation_id(0)]);
    /// assert!(Program::wrapped(Vec::new(), [1, 1, 1], vec![hello]).validate().is_ok());
    /// ```
    pub fn print(format: impl Into<Name>, args: impl Into<Vec<Expr>>) -> Node {
        Node::Print { format: format.into(), args: args.into() }
    }

    /// Fails the call with a message if the condition is false.
    pub fn assert(condition: impl Into<Expr>, format: impl Into<Name>, args: impl Into<Vec<Expr>>) -> Node {
        Node::Assert { condition: condition.into(), format: format.into(), args: args.into() }
    }

    /// Whether the statement is a `print` or `assert`.
    pub fn is_message(&self) -> bool {
        matches!(self, Node::Print { .. } | Node::Assert { .. })
    }

    /// The statement's direct expressions, in evaluation order.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Node::Let { value, .. } | Node::Assign { value, .. } | Node::Eval(value) => vec![value],
            Node::Store { index, value, .. } => vec![index, value],
            Node::If { condition, .. } | Node::While { condition, .. } => vec![condition],
            Node::For { from, to, step, .. } => vec![from, to, step],
            Node::Print { args, .. } => args.iter().collect(),
            Node::Assert { condition, args, .. } => std::iter::once(condition).chain(args).collect(),
            Node::Array { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_) => Vec::new(),
        }
    }

    pub(crate) fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            Node::Let { value, .. } | Node::Assign { value, .. } | Node::Eval(value) => vec![value],
            Node::Store { index, value, .. } => vec![index, value],
            Node::If { condition, .. } | Node::While { condition, .. } => vec![condition],
            Node::For { from, to, step, .. } => vec![from, to, step],
            Node::Print { args, .. } => args.iter_mut().collect(),
            Node::Assert { condition, args, .. } => std::iter::once(condition).chain(args).collect(),
            Node::Array { .. }
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Block(_)
            | Node::Region { .. }
            | Node::Trap(_) => Vec::new(),
        }
    }

    /// The statement's direct blocks, in order.
    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            Node::If { then, otherwise, .. } => vec![then, otherwise],
            Node::For { body, .. }
            | Node::While { body, .. }
            | Node::Block(body)
            | Node::Region { body, .. } => vec![body],
            Node::Let { .. }
            | Node::Array { .. }
            | Node::Assign { .. }
            | Node::Store { .. }
            | Node::Eval(_)
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Trap(_)
            | Node::Print { .. }
            | Node::Assert { .. } => Vec::new(),
        }
    }

    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Node::If { then, otherwise, .. } => vec![then, otherwise],
            Node::For { body, .. }
            | Node::While { body, .. }
            | Node::Block(body)
            | Node::Region { body, .. } => vec![body],
            Node::Let { .. }
            | Node::Array { .. }
            | Node::Assign { .. }
            | Node::Store { .. }
            | Node::Eval(_)
            | Node::Break
            | Node::Continue
            | Node::Return
            | Node::Barrier
            | Node::Trap(_)
            | Node::Print { .. }
            | Node::Assert { .. } => Vec::new(),
        }
    }

    /// Nesting depth of the blocks; for a message, the depth of its expansion (`messages`).
    fn depth(&self) -> usize {
        if self.is_message() {
            return MESSAGE_DEPTH;
        }
        self.blocks().into_iter().map(|block| block.depth).max().unwrap_or(0)
    }
}
