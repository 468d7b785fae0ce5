//! Detection of loops over rows for which lanes do not pay.
//!
//! With rows of different lengths, as in sparse matrices, lanes would wait for the longest row, and
//! each lane loads from a different place. With rows of integers and an op or two per element, one
//! invocation runs at load speed, while lanes have to be assembled. Sums of floats are different:
//! each waits for the one before, and lanes fill the time. Lanes also access private arrays one by
//! one where their indices differ.

use vyre_foundation::ir::{Builtin, Op};
use vyre_foundation::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};
use vyre_foundation::types::Value;

/// Whether a kernel spends its time in rows whose ends are loaded from memory or in private arrays,
/// with more accesses than arithmetic, or in rows of integers with little arithmetic.
pub(crate) fn is_ragged(kernel: &KernelBody) -> bool {
    let mut walk = Walk { kernel, rows: RowIndices::new(kernel) };
    walk.block(&kernel.body)
}

struct Walk<'k> {
    kernel: &'k KernelBody,
    rows: RowIndices<'k>,
}

/// Definitions of a kernel's values, to find indices that walk along rows.
pub(crate) struct RowIndices<'k> {
    kernel: &'k KernelBody,
    definitions: Vec<Option<&'k Def>>,
}

impl<'k> RowIndices<'k> {
    pub(crate) fn new(kernel: &'k KernelBody) -> RowIndices<'k> {
        RowIndices { kernel, definitions: vec![None; kernel.values.len()] }
    }

    pub(crate) fn define(&mut self, value: ValueId, def: &'k Def) {
        self.definitions[value.index()] = Some(def);
    }

    pub(crate) fn constant(&self, value: ValueId) -> Option<Value> {
        match self.definitions[value.index()] {
            Some(Def::Const(constant)) => Some(*constant),
            _ => None,
        }
    }

    /// Whether an index is the counter plus a term that differs widely between neighbouring
    /// invocations.
    pub(crate) fn is_along_row(&self, index: ValueId, counter: ValueId) -> bool {
        let (mut pending, mut counters, mut rows) = (vec![(index, DEPTH)], 0, 0);
        while let Some((value, depth)) = pending.pop() {
            if value == counter {
                // In a loop that starts at the start of a row, the counter contains it.
                (counters, rows) =
                    (counters + 1, rows + usize::from(!self.kernel.values[value.index()].uniform));
                continue;
            }
            match self.definitions[value.index()] {
                Some(Def::Op(Op::Add, operands)) if depth > 0 => {
                    pending.extend(operands.iter().map(|&operand| (operand, depth - 1)));
                }
                Some(Def::Op(Op::Mul | Op::Shl, _)) if self.differs_between_lanes(value, DEPTH) => rows += 1,
                _ if self.kernel.values[value.index()].uniform => {}
                _ => return false,
            }
        }
        counters == 1 && rows == 1
    }

    /// Whether a value depends on the position on the first axis, in which lanes differ.
    fn differs_between_lanes(&self, value: ValueId, depth: usize) -> bool {
        match self.definitions[value.index()] {
            Some(Def::Builtin(Builtin::InvocationId, axis)) => *axis == 0,
            Some(Def::Op(_, operands)) if depth > 0 => {
                operands.iter().any(|&operand| self.differs_between_lanes(operand, depth - 1))
            }
            _ => false,
        }
    }
}

impl<'k> Walk<'k> {
    fn block(&mut self, block: &'k [Stmt]) -> bool {
        block.iter().any(|stmt| {
            match &stmt.kind {
                StmtKind::Def(value, def) => self.rows.define(*value, def),
                StmtKind::For { counter, from, to, body, .. } => {
                    let is_read = [*from, *to].into_iter().any(|bound| self.is_read(bound, DEPTH));
                    let is_apart = is_read || self.indexes_arrays(body);
                    if (is_apart && self.is_mostly_loads(body)) || self.is_plain_row(body, *counter) {
                        return true;
                    }
                }
                _ => {}
            }
            stmt.kind.blocks().into_iter().any(|block| self.block(block))
        })
    }

    /// Whether a loop only walks along a row of integers, with a few cheap ops per element.
    fn is_plain_row(&mut self, body: &'k [Stmt], counter: ValueId) -> bool {
        // A core runs this few alongside its loads. Of the benchmarks, only `parity` is such a
        // loop, with one op.
        const OPS: usize = 3;
        let (mut accesses, mut ops) = (0, 0);
        for stmt in body {
            let kind = &stmt.kind;
            match kind {
                StmtKind::Def(value, def) => {
                    self.rows.define(*value, def);
                    let is_quick = match def {
                        Def::Op(op, _) => {
                            (op.row().cost <= 1 || *op == Op::Popcount) && self.kernel.ty(*value).is_integer()
                        }
                        Def::Load { place: Place::Buffer(_), index, .. } => {
                            accesses += 1;
                            self.rows.is_along_row(*index, counter)
                        }
                        Def::Const(_) | Def::Get(_) | Def::Len(_) => true,
                        Def::Load { .. } | Def::Builtin(..) | Def::Atomic { .. } | Def::Subgroup(..) => false,
                    };
                    ops += usize::from(matches!(def, Def::Op(..)));
                    if !is_quick {
                        return false;
                    }
                }
                StmtKind::Store { place: Place::Buffer(_), index, .. } => {
                    accesses += 1;
                    if !self.rows.is_along_row(*index, counter) {
                        return false;
                    }
                }
                StmtKind::Set(..) => {}
                _ => return false,
            }
        }
        accesses > 0 && ops <= OPS * accesses
    }

    /// Whether a value that differs between invocations comes from memory.
    fn is_read(&self, value: ValueId, depth: usize) -> bool {
        if self.kernel.values[value.index()].uniform || depth == 0 {
            return false;
        }
        match self.rows.definitions[value.index()] {
            Some(Def::Load { place: Place::Buffer(_), .. }) => true,
            Some(Def::Op(_, operands)) => operands.iter().any(|&operand| self.is_read(operand, depth - 1)),
            _ => false,
        }
    }

    /// Whether lanes would gain nothing. A vector of eight takes about three instructions for each
    /// element that its lanes load from different places, and one for an op of all; eight separate
    /// invocations take one for each.
    fn is_mostly_loads(&self, body: &[Stmt]) -> bool {
        let (mut loads, mut ops) = (0, 0);
        self.count(body, &mut loads, &mut ops);
        24 * loads + ops > 8 * (loads + ops)
    }

    /// Whether a block accesses private arrays at indices that differ between invocations.
    fn indexes_arrays(&self, block: &[Stmt]) -> bool {
        block.iter().any(|stmt| {
            let index = match &stmt.kind {
                StmtKind::Def(_, Def::Load { place: Place::Array(_), index, .. })
                | StmtKind::Store { place: Place::Array(_), index, .. } => Some(index),
                _ => None,
            };
            index.is_some_and(|index| !self.kernel.values[index.index()].uniform)
                || stmt.kind.blocks().into_iter().any(|block| self.indexes_arrays(block))
        })
    }

    fn count(&self, block: &[Stmt], loads: &mut usize, ops: &mut usize) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Def(_, Def::Load { index, .. })
                | StmtKind::Store { place: Place::Array(_), index, .. }
                    if !self.kernel.values[index.index()].uniform =>
                {
                    *loads += 1;
                }
                StmtKind::Def(value, Def::Op(..)) if !self.kernel.values[value.index()].uniform => *ops += 1,
                _ => {}
            }
            stmt.kind.blocks().into_iter().for_each(|block| self.count(block, loads, ops));
        }
    }
}

/// Maximum depth to which definitions are followed: an index such as `(a * b + c) * d + e`. 1 is
/// enough for the benchmarks; with 0, the code of seven (`csr`, `dots`) grows by 2,667
/// instructions.
const DEPTH: usize = 4;
