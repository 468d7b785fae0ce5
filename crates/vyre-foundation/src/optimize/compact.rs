//! Renumbers values, locals and arrays without gaps, in statement order.

use super::walk::each_block_mut;
use crate::kernel::{ArrayId, Def, KernelBody, LocalId, Place, Stmt, StmtKind, ValueId};

/// Renumbers the whole kernel.
pub(crate) fn run(body: &mut KernelBody) {
    let mut numbers = Numbers {
        values: vec![None; body.values.len()],
        locals: vec![None; body.locals.len()],
        arrays: vec![None; body.arrays.len()],
        used: [Vec::new(), Vec::new(), Vec::new()],
    };
    numbers.block(&body.body);
    each_block_mut(&mut body.body, &mut |block| {
        for stmt in block.iter_mut() {
            numbers.rename(&mut stmt.kind);
        }
    });
    let [values, locals, arrays] = &numbers.used;
    body.values = values.iter().map(|&old| body.values[old]).collect();
    body.locals = locals.iter().map(|&old| body.locals[old].clone()).collect();
    body.arrays = arrays.iter().map(|&old| body.arrays[old].clone()).collect();
}

/// The new number of each old handle, and the old handles in their new order.
struct Numbers {
    values: Vec<Option<u32>>,
    locals: Vec<Option<u32>>,
    arrays: Vec<Option<u32>>,
    used: [Vec<usize>; 3],
}

fn number(table: &mut [Option<u32>], used: &mut Vec<usize>, old: usize) {
    if table[old].is_none() {
        table[old] = Some(used.len() as u32);
        used.push(old);
    }
}

impl Numbers {
    fn block(&mut self, block: &[Stmt]) {
        let Numbers { values, locals, arrays, used: [used_values, used_locals, used_arrays] } = self;
        super::walk::each_stmt(block, &mut |stmt| match &stmt.kind {
            StmtKind::Def(value, def) => {
                number(values, used_values, value.index());
                match def {
                    Def::Get(local) => number(locals, used_locals, local.index()),
                    Def::Load { place: Place::Array(array), .. } => {
                        number(arrays, used_arrays, array.index())
                    }
                    Def::Load { place: Place::Buffer(_), .. }
                    | Def::Const(_)
                    | Def::Op(..)
                    | Def::Len(_)
                    | Def::Builtin(..)
                    | Def::Atomic { .. }
                    | Def::Subgroup(..) => {}
                }
            }
            StmtKind::For { counter, .. } => number(values, used_values, counter.index()),
            StmtKind::Set(local, _) => number(locals, used_locals, local.index()),
            StmtKind::Clear(array) | StmtKind::Store { place: Place::Array(array), .. } => {
                number(arrays, used_arrays, array.index());
            }
            StmtKind::Store { place: Place::Buffer(_), .. }
            | StmtKind::If { .. }
            | StmtKind::Loop(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => {}
        });
    }

    fn value(&self, value: &mut ValueId) {
        let Some(new) = self.values[value.index()] else { unreachable!("{value:?} is used but not defined") };
        *value = ValueId(new);
    }

    fn local(&self, local: &mut LocalId) {
        *local = LocalId(self.locals[local.index()].unwrap_or(0));
    }

    fn array(&self, array: &mut ArrayId) {
        *array = ArrayId(self.arrays[array.index()].unwrap_or(0));
    }

    fn rename(&self, kind: &mut StmtKind) {
        kind.each_operand_mut(|operand| self.value(operand));
        match kind {
            StmtKind::Def(value, def) => {
                self.value(value);
                match def {
                    Def::Get(local) => self.local(local),
                    Def::Load { place: Place::Array(array), .. } => self.array(array),
                    Def::Load { place: Place::Buffer(_), .. }
                    | Def::Const(_)
                    | Def::Op(..)
                    | Def::Len(_)
                    | Def::Builtin(..)
                    | Def::Atomic { .. }
                    | Def::Subgroup(..) => {}
                }
            }
            StmtKind::For { counter, .. } => self.value(counter),
            StmtKind::Set(local, _) => self.local(local),
            StmtKind::Clear(array) | StmtKind::Store { place: Place::Array(array), .. } => self.array(array),
            StmtKind::Store { place: Place::Buffer(_), .. }
            | StmtKind::If { .. }
            | StmtKind::Loop(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Region { .. }
            | StmtKind::Trap(_) => {}
        }
    }
}
