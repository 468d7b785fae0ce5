//! Replaces private arrays whose indices are all constant with variables, one per element.
//!
//! Out-of-range loads yield zero and out-of-range stores are removed. Arrays with many elements,
//! and arrays cleared so often that the assignments would outgrow them, stay in memory.

use super::rewrite::new_value;
use super::walk::{definitions, each_block_mut, each_stmt};
use crate::kernel::{ArrayId, Def, KernelBody, Local, LocalId, Place, Stmt, StmtKind, ValueId};
use crate::types::Value;

/// Maximum number of elements of an array: an 8 by 8 matrix. 32 and 256 change none of the
/// benchmarks, whose arrays of that size are indexed by variables.
const ELEMENT_LIMIT: u32 = 64;
/// Maximum number of statements that clearing one array can expand to: four clears of the largest
/// array.
const CLEAR_LIMIT: u32 = 256;

/// Replaces the arrays that qualify.
pub(super) fn run(body: &mut KernelBody) {
    let indices: Vec<Option<u32>> = definitions(body)
        .into_iter()
        .map(|def| if let Some(Def::Const(constant)) = def { constant.as_u32() } else { None })
        .collect();
    let first_locals = allowed(body, &indices)
        .into_iter()
        .enumerate()
        .map(|(id, allowed)| allowed.then(|| elements(body, ArrayId(id as u32))));
    let scalars = Scalars { first_locals: first_locals.collect(), indices };
    let mut statements = std::mem::take(&mut body.body);
    each_block_mut(&mut statements, &mut |block| {
        if block.iter().any(|stmt| scalars.array_of(&stmt.kind).is_some()) {
            let old = std::mem::take(block);
            old.into_iter().for_each(|stmt| scalars.replace(body, stmt, block));
        }
    });
    body.body = statements;
}

/// Whether each array can be replaced.
fn allowed(body: &KernelBody, indices: &[Option<u32>]) -> Vec<bool> {
    let mut clears = vec![0; body.arrays.len()];
    let mut fixed: Vec<bool> = body.arrays.iter().map(|array| array.count <= ELEMENT_LIMIT).collect();
    each_stmt(&body.body, &mut |stmt| match &stmt.kind {
        StmtKind::Clear(array) => clears[array.index()] += body.arrays[array.index()].count,
        StmtKind::Store { place: Place::Array(array), index, .. }
        | StmtKind::Def(_, Def::Load { place: Place::Array(array), index, .. }) => {
            fixed[array.index()] &= indices[index.index()].is_some();
        }
        StmtKind::Store { place: Place::Buffer(_), .. }
        | StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::If { .. }
        | StmtKind::For { .. }
        | StmtKind::Loop(_)
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier
        | StmtKind::Region { .. }
        | StmtKind::Trap(_) => {}
    });
    fixed.iter().zip(clears).map(|(&fixed, clears)| fixed && clears <= CLEAR_LIMIT).collect()
}

/// Declares one local per element and returns the first.
fn elements(body: &mut KernelBody, array: ArrayId) -> LocalId {
    let array = body.arrays[array.index()].clone();
    let first = LocalId(body.locals.len() as u32);
    let local = |k: u32| Local { name: format!("{}.{k}", array.name).into(), ty: array.element };
    body.locals.extend((0..array.count).map(local));
    first
}

struct Scalars {
    /// The local of element 0 of each replaced array.
    first_locals: Vec<Option<LocalId>>,
    /// The constant value of each value, if it is a `u32` constant.
    indices: Vec<Option<u32>>,
}

impl Scalars {
    /// The replaced array that the statement accesses, and its first local.
    fn array_of(&self, kind: &StmtKind) -> Option<(ArrayId, LocalId)> {
        let (StmtKind::Clear(array)
        | StmtKind::Store { place: Place::Array(array), .. }
        | StmtKind::Def(_, Def::Load { place: Place::Array(array), .. })) = kind
        else {
            return None;
        };
        self.first_locals[array.index()].map(|first| (*array, first))
    }

    fn replace(&self, body: &mut KernelBody, stmt: Stmt, out: &mut Vec<Stmt>) {
        let Some((array, first)) = self.array_of(&stmt.kind) else { return out.push(stmt) };
        let (element, count) = (body.arrays[array.index()].element, body.arrays[array.index()].count);
        let local = |index: &ValueId| {
            let index = self.indices[index.index()].unwrap_or(u32::MAX);
            (index < count).then(|| LocalId(first.0 + index))
        };
        let at = stmt.at;
        let mut emit = |kind: StmtKind| out.push(Stmt { kind, at });
        match stmt.kind {
            StmtKind::Def(value, Def::Load { index, .. }) => emit(match local(&index) {
                Some(local) => StmtKind::Def(value, Def::Get(local)),
                None => StmtKind::Def(value, Def::Const(Value::zero(element))),
            }),
            StmtKind::Store { index, value, .. } => {
                if let Some(local) = local(&index) {
                    emit(StmtKind::Set(local, value));
                }
            }
            StmtKind::Clear(_) => {
                let zero = new_value(body, element);
                emit(StmtKind::Def(zero, Def::Const(Value::zero(element))));
                (0..count).for_each(|k| emit(StmtKind::Set(LocalId(first.0 + k), zero)));
            }
            other => unreachable!("{other:?} touches no array"),
        }
    }
}
