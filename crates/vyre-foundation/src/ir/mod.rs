//! The unchecked program: a tree with names, as written by its author.
//!
//! A [`Program`] has buffers, a workgroup size, a domain and a body. The body is a list of
//! statements ([`Node`]), which contain expressions ([`Expr`]). Nothing here is checked: any tree
//! can be built, printed, encoded and compared. [`Program::validate`] checks the whole program and
//! returns the typed form that the compiler works on, a [`Kernel`](crate::kernel::Kernel).
//!
//! **Evaluation order.** Statements run in order, once per invocation. Operands are evaluated left
//! to right, each once; `select`, `&&` and `||` evaluate both sides. A counted loop evaluates its
//! three bounds once, before it starts. A `while` loop evaluates its condition before every
//! iteration.
//!
//! **Scope.** Functions are visible throughout the program; buffers are visible everywhere except
//! inside functions. A `let`, a private array or a loop counter is visible from its declaration to
//! the end of the enclosing block. A visible name cannot be redeclared; sibling blocks can use one
//! name for different things.
//!
//! **Depth.** A tree deeper than [`MAX_EXPR_DEPTH`] or [`MAX_BLOCK_DEPTH`] cannot be built:
//! [`Args`] and [`Block`] truncate it and record that they did, and validation reports it. Every
//! recursion over a program is therefore bounded, even for untrusted programs.

#[cfg(any(test, feature = "arbitrary"))]
mod arbitrary;
mod buffer;
mod builder;
mod expr;
mod node;
mod program;
mod size;
mod span;
mod visit;

pub use crate::ops::{AtomicOp, Combine, Op, OpId, SubgroupOp, WorkgroupOp};
pub use crate::types::{DataType, Value, ValueType};
pub use buffer::{Access, BufferDecl};
pub use builder::{BlockBuilder, Buffer, ProgramBuilder};
pub use expr::{Args, Builtin, Expr, MAX_EXPR_DEPTH};
pub use node::{Block, MAX_BLOCK_DEPTH, MAX_MESSAGE_OPERANDS, Node, message_pieces};
pub use program::{Domain, Function, Program, ROOT_GENERATOR};
pub(crate) use size::constant;
pub use size::{Axis, Formula};
pub use span::{SourceMap, Span};
pub(crate) use visit::telling;
pub use visit::{rewrite_block, rewrite_expr, walk_block, walk_expr};

/// A name in a program; cheap to clone.
pub type Name = std::sync::Arc<str>;
