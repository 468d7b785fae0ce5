//! Loops whose iterations can be the lanes.
//!
//! Where each invocation reduces a separate row to integers (a count, a sum, a maximum), lanes
//! across invocations read far apart, but the iterations of one invocation read neighbours. Integer
//! reductions are associative and commutative, so each lane can reduce every n-th iteration, and
//! the lanes are combined after the loop, with the same result. A kernel whose loops are all of
//! this kind runs one invocation at a time, with vectors along its loops.
//!
//! A local is reduced by a loop if every value that depends on it there, its *carriers*, is the
//! local combined with something independent of it, by one op. Each iteration then combines the
//! local with a separate value, whatever the order.

use crate::ragged_rows::RowIndices;
use crate::row_walks::steps;
use hashbrown::{HashMap, HashSet};
use vyre_foundation::ir::{Combine, Op};
use vyre_foundation::kernel::{Def, KernelBody, LocalId, Place, Stmt, StmtKind, ValueId};
use vyre_foundation::types::{Value, ValueType};

/// A local that a loop reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduced {
    pub(crate) local: LocalId,
    pub(crate) combine: Combine,
}

/// Fewest iterations of a loop for which lanes along it pay, if the number is known: two vectors of
/// 16 lanes, so that combining the lanes is not most of the work.
const FEW: u32 = 32;

/// Whether lanes along loops suit a kernel: each loop that contains no other reduces rows that are
/// far apart.
pub(crate) fn runs_along(kernel: &KernelBody) -> bool {
    let mut search = Search { kernel, rows: RowIndices::new(kernel), loops: 0 };
    search.block(&kernel.body) && search.loops > 0
}

struct Search<'k> {
    kernel: &'k KernelBody,
    rows: RowIndices<'k>,
    /// Number of loops found.
    loops: usize,
}

impl<'k> Search<'k> {
    /// Returns `false` if some loop is not of this kind.
    fn block(&mut self, block: &'k [Stmt]) -> bool {
        block.iter().all(|stmt| match &stmt.kind {
            StmtKind::Def(value, def) => {
                self.rows.define(*value, def);
                true
            }
            StmtKind::For { body, .. } if has_loops(body) => self.block(body),
            StmtKind::For { counter, from, to, step, body } => {
                self.loops += 1;
                self.is_one(*step)
                    && self.is_long(*from, *to)
                    && reduced(self.kernel, body, *counter).is_some()
                    && self.reads_rows(body, *counter)
            }
            StmtKind::Loop(_) | StmtKind::Barrier => false,
            StmtKind::If { .. } | StmtKind::Region { .. } => {
                stmt.kind.blocks().into_iter().all(|block| self.block(block))
            }
            StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Trap(_) => true,
        })
    }

    fn is_one(&self, step: ValueId) -> bool {
        self.rows.constant(step) == Some(Value::U32(1))
    }

    fn is_long(&self, from: ValueId, to: ValueId) -> bool {
        match [from, to].map(|bound| self.rows.constant(bound).and_then(Value::as_u32)) {
            [Some(from), Some(to)] => to.saturating_sub(from) >= FEW,
            _ => true,
        }
    }

    /// Whether some load walks along a row that is far from the neighbouring invocation's.
    fn reads_rows(&mut self, body: &'k [Stmt], counter: ValueId) -> bool {
        body.iter().for_each(|stmt| {
            if let StmtKind::Def(value, def) = &stmt.kind {
                self.rows.define(*value, def);
            }
        });
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::Def(_, Def::Load { index, .. }) => self.rows.is_along_row(*index, counter),
            _ => false,
        })
    }
}

fn has_loops(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| {
        matches!(stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_))
            || stmt.kind.blocks().into_iter().any(has_loops)
    })
}

/// Returns the locals that a loop with step one reduces, if it does nothing else and reads only
/// elements that are the same in all iterations or neighbours in successive ones.
pub(crate) fn reduced(kernel: &KernelBody, body: &[Stmt], counter: ValueId) -> Option<Vec<Reduced>> {
    if kernel.ty(counter) != ValueType::U32 {
        return None;
    }
    let mut read = Body::new(kernel, counter);
    let is_reduction = read.block(body, 0);
    let all = read.written.len() == read.reduced.len();
    (is_reduction && all && !read.reduced.is_empty()).then_some(read.reduced)
}

/// The body of a loop, as far as it was read.
struct Body<'k> {
    kernel: &'k KernelBody,
    counter: ValueId,
    definitions: HashMap<ValueId, &'k Def>,
    /// Values that depend on a local that the loop writes, with that local.
    carriers: HashMap<ValueId, LocalId>,
    written: HashSet<LocalId>,
    reduced: Vec<Reduced>,
}

impl<'k> Body<'k> {
    fn new(kernel: &'k KernelBody, counter: ValueId) -> Body<'k> {
        Body {
            kernel,
            counter,
            definitions: HashMap::new(),
            carriers: HashMap::new(),
            written: HashSet::new(),
            reduced: Vec::new(),
        }
    }

    /// Reads a block; returns `false` if it does something else than reduce.
    fn block(&mut self, block: &'k [Stmt], depth: usize) -> bool {
        if depth == 0 {
            collect_written(block, &mut self.written);
            if !self.written.iter().all(|&local| self.kernel.locals[local.index()].ty.is_integer()) {
                return false;
            }
        }
        block.iter().all(|stmt| match &stmt.kind {
            StmtKind::Def(value, def) => {
                self.definitions.insert(*value, def);
                self.definition(*value, def, depth)
            }
            StmtKind::Set(local, value) => self.carriers.get(value) == Some(local),
            StmtKind::If { condition, then, otherwise } => {
                !self.carriers.contains_key(condition)
                    && self.block(then, depth + 1)
                    && self.block(otherwise, depth + 1)
            }
            StmtKind::Region { body, .. } => self.block(body, depth + 1),
            StmtKind::For { .. }
            | StmtKind::Loop(_)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Barrier
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Trap(_) => false,
        })
    }

    fn definition(&mut self, value: ValueId, def: &'k Def, depth: usize) -> bool {
        match def {
            Def::Const(_) | Def::Len(_) | Def::Builtin(..) => true,
            Def::Get(local) => {
                if self.written.contains(local) {
                    self.carriers.insert(value, *local);
                }
                true
            }
            Def::Op(op, operands) => self.operation(value, *op, operands),
            // A branch can guard an access that would be out of range in other lanes.
            Def::Load { place: Place::Buffer(_), index, .. } => {
                depth == 0
                    && !self.carriers.contains_key(index)
                    && matches!(steps(*index, self.counter, &self.definitions), Some(0 | 1))
            }
            Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..) => false,
        }
    }

    fn operation(&mut self, value: ValueId, op: Op, operands: &[ValueId]) -> bool {
        let carried: Vec<Option<LocalId>> =
            operands.iter().map(|operand| self.carriers.get(operand).copied()).collect();
        let local = match (op, &carried[..]) {
            (_, none) if none.iter().all(Option::is_none) => return true,
            (Op::Select, [None, Some(a), Some(b)]) if a == b => *a,
            (Op::Sub, [Some(local), None]) => *local,
            (_, [Some(local), None] | [None, Some(local)]) if op != Op::Sub => *local,
            _ => return false,
        };
        let combine = match op {
            Op::Select => None,
            Op::Add | Op::Sub => Some(Combine::Add),
            Op::Mul => Some(Combine::Mul),
            Op::Min => Some(Combine::Min),
            Op::Max => Some(Combine::Max),
            Op::And => Some(Combine::And),
            Op::Or => Some(Combine::Or),
            Op::Xor => Some(Combine::Xor),
            _ => return false,
        };
        self.carriers.insert(value, local);
        combine.is_none_or(|combine| self.reduces(Reduced { local, combine }))
    }

    /// Records how a local is reduced; returns `false` if it is reduced in another way too.
    fn reduces(&mut self, reduced: Reduced) -> bool {
        match self.reduced.iter().find(|known| known.local == reduced.local) {
            Some(known) => *known == reduced,
            None => {
                self.reduced.push(reduced);
                true
            }
        }
    }
}

/// Collects the locals that a block writes.
fn collect_written(block: &[Stmt], written: &mut HashSet<LocalId>) {
    for stmt in block {
        if let StmtKind::Set(local, _) = &stmt.kind {
            written.insert(*local);
        }
        stmt.kind.blocks().into_iter().for_each(|block| collect_written(block, written));
    }
}
