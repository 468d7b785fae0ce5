//! Loops over rows of different lengths, as sparse matrices have: lanes would wait for the longest row, and each element is
//! somewhere else in every lane.

use vyre_foundation::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};

/// Whether a kernel spends its time in rows whose ends are read from memory, with more loads than arithmetic.
pub(crate) fn is_ragged(kernel: &KernelBody) -> bool {
    let mut walk = Walk { kernel, definitions: vec![None; kernel.values.len()] };
    walk.block(&kernel.body)
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    definitions: Vec<Option<&'k Def>>,
}

impl<'k> Walk<'k> {
    fn block(&mut self, block: &'k [Stmt]) -> bool {
        block.iter().any(|stmt| {
            match &stmt.kind {
                StmtKind::Def(value, def) => self.definitions[value.index()] = Some(def),
                StmtKind::For { from, to, body, .. } => {
                    let is_read = [*from, *to].into_iter().any(|bound| self.is_read(bound, DEPTH));
                    if is_read && self.is_mostly_loads(body) {
                        return true;
                    }
                }
                _ => {}
            }
            stmt.kind.blocks().into_iter().any(|block| self.block(block))
        })
    }

    /// Whether a value that differs between invocations comes from memory.
    fn is_read(&self, value: ValueId, depth: usize) -> bool {
        if self.kernel.values[value.index()].uniform || depth == 0 {
            return false;
        }
        match self.definitions[value.index()] {
            Some(Def::Load { place: Place::Buffer(_), .. }) => true,
            Some(Def::Op(_, operands)) => operands.iter().any(|&operand| self.is_read(operand, depth - 1)),
            _ => false,
        }
    }

    /// Whether lanes would gain nothing. A vector of eight takes about three instructions for each element that its lanes load
    /// from different places, and one for an op of all; eight invocations by themselves take one for each.
    fn is_mostly_loads(&self, body: &[Stmt]) -> bool {
        let (mut loads, mut ops) = (0, 0);
        self.count(body, &mut loads, &mut ops);
        24 * loads + ops > 8 * (loads + ops)
    }

    fn count(&self, block: &[Stmt], loads: &mut usize, ops: &mut usize) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Def(_, Def::Load { index, .. }) if !self.kernel.values[index.index()].uniform => {
                    *loads += 1;
                }
                StmtKind::Def(value, Def::Op(..)) if !self.kernel.values[value.index()].uniform => *ops += 1,
                _ => {}
            }
            stmt.kind.blocks().into_iter().for_each(|block| self.count(block, loads, ops));
        }
    }
}

/// How far back the bound of a loop is followed.
const DEPTH: usize = 4;
