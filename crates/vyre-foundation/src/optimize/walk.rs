//! Shared traversals of the statement tree: operands, nested blocks, writes, and whether a block
//! ends control flow.
//!
//! Recursion follows only blocks, whose depth validation bounds.

use crate::ir::Access;
use crate::kernel::{Def, KernelBody, LocalId, Place, Stmt, StmtKind, ValueId};
use hashbrown::HashSet;

impl StmtKind {
    /// Calls `visit` for each value that the statement reads, excluding nested blocks.
    pub(crate) fn each_operand(&self, mut visit: impl FnMut(ValueId)) {
        match self {
            StmtKind::Def(_, def) => def.operands().for_each(visit),
            StmtKind::Set(_, value) => visit(*value),
            StmtKind::Store { index, value, .. } => [*index, *value].into_iter().for_each(visit),
            StmtKind::If { condition, .. } => visit(*condition),
            StmtKind::For { from, to, step, .. } => [*from, *to, *step].into_iter().for_each(visit),
            StmtKind::Clear(_)
            | StmtKind::Loop(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => {}
        }
    }

    /// Calls `visit` for each value that the statement reads, excluding nested blocks, so that it
    /// can be replaced.
    pub(crate) fn each_operand_mut(&mut self, mut visit: impl FnMut(&mut ValueId)) {
        match self {
            StmtKind::Def(_, def) => def.operands_mut().for_each(visit),
            StmtKind::Set(_, value) => visit(value),
            StmtKind::Store { index, value, .. } => [index, value].into_iter().for_each(visit),
            StmtKind::If { condition, .. } => visit(condition),
            StmtKind::For { from, to, step, .. } => [from, to, step].into_iter().for_each(visit),
            StmtKind::Clear(_)
            | StmtKind::Loop(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => {}
        }
    }

    /// The statement's direct blocks; absent ones are empty.
    pub fn blocks(&self) -> [&[Stmt]; 2] {
        match self {
            StmtKind::If { then, otherwise, .. } => [then, otherwise],
            StmtKind::For { body, .. } | StmtKind::Loop(body) | StmtKind::Region { body, .. } => [body, &[]],
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => [&[], &[]],
        }
    }

    /// Mutable references to the statement's direct blocks.
    pub(crate) fn blocks_mut(&mut self) -> [Option<&mut Vec<Stmt>>; 2] {
        match self {
            StmtKind::If { then, otherwise, .. } => [Some(then), Some(otherwise)],
            StmtKind::For { body, .. } | StmtKind::Loop(body) | StmtKind::Region { body, .. } => {
                [Some(body), None]
            }
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => [None, None],
        }
    }
}

/// Whether any statement in the block, at any depth, satisfies `wanted`.
pub(crate) fn any_stmt(block: &[Stmt], wanted: &dyn Fn(&StmtKind) -> bool) -> bool {
    let within = |kind: &StmtKind| kind.blocks().into_iter().any(|nested| any_stmt(nested, wanted));
    block.iter().any(|stmt| wanted(&stmt.kind) || within(&stmt.kind))
}

/// Calls `visit` for every statement in pre-order.
pub(crate) fn each_stmt(block: &[Stmt], visit: &mut impl FnMut(&Stmt)) {
    for stmt in block {
        visit(stmt);
        for nested in stmt.kind.blocks() {
            each_stmt(nested, visit);
        }
    }
}

/// Calls `visit` for every block, innermost first.
pub(super) fn each_block_mut(block: &mut Vec<Stmt>, visit: &mut impl FnMut(&mut Vec<Stmt>)) {
    for stmt in block.iter_mut() {
        for nested in stmt.kind.blocks_mut().into_iter().flatten() {
            each_block_mut(nested, visit);
        }
    }
    visit(block);
}

/// The definition of each value; `None` for loop counters and values that no statement defines.
pub(crate) fn definitions(body: &KernelBody) -> Vec<Option<Def>> {
    let mut definitions = vec![None; body.values.len()];
    each_stmt(&body.body, &mut |stmt| {
        if let StmtKind::Def(value, def) = &stmt.kind {
            definitions[value.index()] = Some(def.clone());
        }
    });
    definitions
}

/// Whether control never reaches the end of the block; conservative, so it can return `false` for
/// one that does not.
pub(super) fn ends(block: &[Stmt]) -> bool {
    match block.last().map(|stmt| &stmt.kind) {
        Some(StmtKind::Break | StmtKind::Continue | StmtKind::Return | StmtKind::Trap(_)) => true,
        Some(StmtKind::If { then, otherwise, .. }) => ends(then) && ends(otherwise),
        Some(StmtKind::Region { body, .. }) => ends(body),
        Some(
            StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Barrier,
        )
        | None => false,
    }
}

/// Whether the block breaks out of, or continues, the loop whose body it is.
pub(super) fn leaves_round(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::If { then, otherwise, .. } => leaves_round(then) || leaves_round(otherwise),
        StmtKind::Region { body, .. } => leaves_round(body),
        // A nested loop contains its own breaks.
        StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Trap(_) => false,
    })
}

/// What running a block can change.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    /// The locals that it sets.
    pub(super) locals: HashSet<LocalId>,
    /// The memory that it writes itself.
    pub(super) places: HashSet<Place>,
    /// Whether it contains a barrier, which makes writes of other invocations visible.
    pub(super) barrier: bool,
}

impl Writes {
    /// The writes of these blocks.
    pub(super) fn of(blocks: [&[Stmt]; 2]) -> Writes {
        let mut writes = Writes::default();
        for block in blocks {
            each_stmt(block, &mut |stmt| writes.add(&stmt.kind));
        }
        writes
    }

    fn add(&mut self, kind: &StmtKind) {
        if let StmtKind::Set(local, _) = kind {
            self.locals.insert(*local);
        }
        self.places.extend(written(kind));
        self.barrier |= matches!(kind, StmtKind::Barrier);
    }

    /// Whether a load from `place` can yield a different value after the block than before it.
    pub(super) fn touches(&self, body: &KernelBody, place: Place) -> bool {
        self.places.contains(&place) || (self.barrier && is_shared(body, place))
    }
}

/// The memory that the statement writes, excluding nested blocks.
pub(super) fn written(kind: &StmtKind) -> Option<Place> {
    match kind {
        StmtKind::Store { place, .. } => Some(*place),
        StmtKind::Clear(array) => Some(Place::Array(*array)),
        StmtKind::Def(_, Def::Atomic { buffer, .. }) => Some(Place::Buffer(*buffer)),
        StmtKind::Def(
            _,
            Def::Const(_)
            | Def::Get(_)
            | Def::Op(..)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Subgroup(..),
        )
        | StmtKind::Set(..)
        | StmtKind::If { .. }
        | StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Region { .. }
        | StmtKind::Trap(_) => None,
    }
}

/// Whether other invocations can write the place, with their writes visible after a barrier.
pub(super) fn is_shared(body: &KernelBody, place: Place) -> bool {
    match place {
        Place::Buffer(id) => match body.buffer(id).decl.access {
            Access::ReadWrite | Access::Output | Access::Workgroup => true,
            Access::Read | Access::Uniform => false,
        },
        Place::Array(_) => false,
    }
}

/// The number of elements of a place, if it is fixed.
pub(super) fn fixed_len(body: &KernelBody, place: Place) -> Option<u32> {
    match place {
        Place::Buffer(id) => Some(body.buffer(id).decl.count).filter(|&count| count > 0),
        Place::Array(id) => Some(body.arrays[id.index()].count),
    }
}
