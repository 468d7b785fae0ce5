//! Element coarsening: one invocation of a shape-free kernel does the work of several.
//!
//! With c elements per invocation and a domain of n, s = ⌈n / c⌉ invocations run; invocation b
//! handles the elements b, b + s, b + 2s, …, so that adjacent invocations access adjacent elements.
//! The body of each top-level region is wrapped in a loop over k that runs while k·s < n − b, with
//! b + k·s as the invocation's position; computations independent of k can then be hoisted. The
//! launch divides the domain by c ([`KernelBody::coarsening`]).
//!
//! The invocations of a shape-free kernel are unordered, so one region can run for all elements
//! before the next region starts. A `return` becomes a `continue`; if that is not possible (in an
//! inner loop, or with further regions) the kernel is left unchanged.

use super::rewrite::new_value;
use super::walk::{each_block_mut, each_stmt};
use crate::ir::Builtin;
use crate::kernel::{Def, KernelBody, Known, Operands, Place, Stmt, StmtKind, ValueId};
use crate::ops::Op;
use crate::types::{Value, ValueType};

/// The largest factor for which k·s fits in a `u32` for every domain.
const MOST_ELEMENTS: u32 = 1024;

/// Makes each invocation handle `elements` elements.
pub(super) fn run(body: &mut KernelBody, elements: u32) {
    let allowed = body.shape_free && body.coarsening == 1 && (2..=MOST_ELEMENTS).contains(&elements);
    if !allowed || !returns_allow(body) {
        return;
    }
    let Some(domain) = body.domain.axis(0) else { return };
    body.coarsening = elements;
    let mut regions = std::mem::take(&mut body.body);
    for region in &mut regions {
        if let StmtKind::Region { body: statements, .. } = &mut region.kind {
            let inner = std::mem::take(statements);
            *statements = Rounds { body, out: Vec::new() }.around(inner, elements, &domain);
        }
    }
    body.body = regions;
}

/// Whether every `return` can become a `continue` of the new loop, and all statements are in
/// regions.
fn returns_allow(body: &KernelBody) -> bool {
    let all_regions = body.body.iter().all(|stmt| matches!(stmt.kind, StmtKind::Region { .. }));
    let mut returns = 0;
    each_stmt(&body.body, &mut |stmt| returns += usize::from(matches!(stmt.kind, StmtKind::Return)));
    all_regions && (returns == 0 || (body.body.len() == 1 && returns == outside_loops(&body.body)))
}

/// The number of `return` statements outside all loops.
fn outside_loops(block: &[Stmt]) -> usize {
    let count = |stmt: &Stmt| match &stmt.kind {
        StmtKind::Return => 1,
        StmtKind::For { .. } | StmtKind::Loop(_) => 0,
        StmtKind::If { then, otherwise, .. } => outside_loops(then) + outside_loops(otherwise),
        StmtKind::Region { body, .. } => outside_loops(body),
        StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Barrier
        | StmtKind::Trap(_) => 0,
    };
    block.iter().map(count).sum()
}

/// Builds the loop around a region's body.
struct Rounds<'a> {
    body: &'a mut KernelBody,
    out: Vec<Stmt>,
}

impl Rounds<'_> {
    fn around(mut self, mut inner: Vec<Stmt>, elements: u32, domain: &Known) -> Vec<Stmt> {
        let [zero, one, rounds] = [0, 1, elements].map(|number| self.define(Def::Const(Value::U32(number))));
        let base = self.define(Def::Builtin(Builtin::InvocationId, 0));
        let count = self.known(domain);
        // n + c - 1 could overflow; (n - 1) / c + 1 does not, and an empty domain runs no
        // invocations.
        let last = self.op(Op::Sub, count, one);
        let whole = self.op(Op::Div, last, rounds);
        let stride = self.op(Op::Add, whole, one);
        let left = self.op(Op::Sub, count, base);

        let counter = new_value(self.body, ValueType::U32);
        let mut round = Rounds { body: self.body, out: Vec::new() };
        let offset = round.op(Op::Mul, counter, stride);
        let runs = round.op_of(ValueType::Bool, Op::Lt, offset, left);
        let position = round.op(Op::Add, base, offset);
        replace(&mut inner, position);
        let otherwise = Vec::new();
        round.push(StmtKind::If { condition: runs, then: inner, otherwise });
        let body = round.out;
        self.push(StmtKind::For { counter, from: zero, to: rounds, step: one, body });
        self.out
    }

    /// Emits code that computes a dispatch-time expression in each invocation.
    fn known(&mut self, known: &Known) -> ValueId {
        let def = match known {
            Known::Const(value) => Def::Const(*value),
            Known::Len(buffer) => Def::Len(*buffer),
            Known::Element(buffer, index) => {
                let index = self.define(Def::Const(Value::U32(*index)));
                Def::Load { place: Place::Buffer(*buffer), index, in_bounds: false }
            }
            Known::Groups(axis) => Def::Builtin(Builtin::GridSize, *axis),
            Known::Op(op, args) => {
                let args: Vec<ValueId> = args.iter().map(|arg| self.known(arg)).collect();
                Def::Op(*op, Operands::new(&args))
            }
        };
        let Some(ty) = known.ty(self.body) else { unreachable!("validation typed what a dispatch knows") };
        let value = new_value(self.body, ty);
        self.push(StmtKind::Def(value, def));
        value
    }

    fn push(&mut self, kind: StmtKind) {
        self.out.push(Stmt { kind, at: None });
    }

    fn define(&mut self, def: Def) -> ValueId {
        let value = new_value(self.body, ValueType::U32);
        self.push(StmtKind::Def(value, def));
        value
    }

    fn op(&mut self, op: Op, x: ValueId, y: ValueId) -> ValueId {
        self.op_of(ValueType::U32, op, x, y)
    }

    fn op_of(&mut self, ty: ValueType, op: Op, x: ValueId, y: ValueId) -> ValueId {
        let value = new_value(self.body, ty);
        self.push(StmtKind::Def(value, Def::Op(op, Operands::new(&[x, y]))));
        value
    }
}

/// Replaces the invocation's position with the element's position, and `return` with `continue`.
fn replace(statements: &mut Vec<Stmt>, position: ValueId) {
    let mut positions = Vec::new();
    each_block_mut(statements, &mut |block| {
        block.retain_mut(|stmt| {
            if let StmtKind::Return = stmt.kind {
                stmt.kind = StmtKind::Continue;
            }
            let StmtKind::Def(value, Def::Builtin(Builtin::InvocationId, 0)) = stmt.kind else { return true };
            positions.push(value);
            false
        });
    });
    positions.sort_unstable();
    each_block_mut(statements, &mut |block| {
        for stmt in block.iter_mut() {
            stmt.kind.each_operand_mut(|operand| {
                if positions.binary_search(operand).is_ok() {
                    *operand = position;
                }
            });
        }
    });
}
