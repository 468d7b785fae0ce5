//! Values that live from one part of a workgroup's work to another, and values that are recomputed
//! instead.
//!
//! A stretch between barriers is a *part*; the code that the workgroup runs together is part 0. A
//! value used outside its own part must be kept, unless it is *portable*: a constant, an id, or a
//! few scalar ops on such. Portable values are recomputed at their uses, which costs less than
//! memory and preserves their properties: a constant stays one, and an affine index still allows
//! wide accesses.

use crate::divergence::Item;
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};
use vyre_foundation::ir::{Builtin, Op};
use vyre_foundation::kernel::{Def, KernelBody, LocalId, Stmt, StmtKind, ValueId};
use vyre_foundation::types::ValueType;

/// Layout of a workgroup's invocations in vectors.
#[derive(Clone, Copy)]
pub(crate) struct GroupLayout {
    pub(crate) workgroup: [u32; 3],
    /// Whether no vector crosses from one row of the workgroup into the next.
    pub(crate) within: bool,
}

/// Portable values of a kernel and their definitions.
#[derive(Default)]
pub(crate) struct Portable<'k> {
    found: HashMap<ValueId, Found<'k>>,
}

struct Found<'k> {
    def: &'k Def,
    kind: PortableKind,
    /// Maximum number of ops between the value and its leaves.
    depth: u32,
}

/// Representation of a portable value in a vector of invocations: always cheaper than a vector.
#[derive(Clone, Copy, PartialEq)]
enum PortableKind {
    Constant,
    Scalar,
    Affine,
}

/// Maximum depth of recomputed ops; deeper values are kept. `matmul` needs 3: with 2, its indices
/// are kept in memory and its code has 3,168 bytes instead of 1,760. The rest is room.
const DEEPEST: u32 = 16;

impl<'k> Portable<'k> {
    /// Returns the definition of a portable value.
    pub(crate) fn def(&self, value: ValueId) -> Option<&'k Def> {
        self.found.get(&value).map(|found| found.def)
    }

    /// Visits every definition in order; operands precede their uses.
    pub(crate) fn find(kernel: &KernelBody, items: &[Item<'k>], rows: GroupLayout) -> Portable<'k> {
        let mut portable = Portable::default();
        portable.block(kernel, items, rows);
        portable
    }

    fn block(&mut self, kernel: &KernelBody, items: &[Item<'k>], rows: GroupLayout) {
        for item in items {
            if let StmtKind::Def(value, def) = &item.stmt.kind {
                self.definition(kernel, *value, def, rows);
            }
            for block in &item.blocks {
                self.block(kernel, block, rows);
            }
        }
    }

    fn definition(&mut self, kernel: &KernelBody, value: ValueId, def: &'k Def, rows: GroupLayout) {
        let (kind, depth) = match def {
            Def::Const(_) => (Some(PortableKind::Constant), 0),
            Def::Len(_) => (Some(PortableKind::Scalar), 0),
            Def::Builtin(builtin, axis) => (id_kind(*builtin, *axis, rows), 0),
            Def::Op(op, operands) if !kernel.values[value.index()].uniform => {
                let known = |operand: &ValueId| match self.found.get(operand) {
                    Some(found) => Some((found.kind, found.depth)),
                    // A uniform value that is not recomputed is in a scalar variable.
                    None => kernel.values[operand.index()].uniform.then_some((PortableKind::Scalar, 0)),
                };
                let Some(known) = operands.iter().map(known).collect::<Option<Vec<_>>>() else { return };
                let kinds: Vec<PortableKind> = known.iter().map(|(kind, _)| *kind).collect();
                let depth = known.iter().map(|(_, depth)| depth + 1).max().unwrap_or(0);
                (op_kind(*op, &kinds, kernel.ty(value)), depth)
            }
            // A uniform value that takes work is computed once and kept in a scalar variable.
            Def::Op(..) | Def::Get(_) | Def::Load { .. } | Def::Atomic { .. } | Def::Subgroup(..) => {
                (None, 0)
            }
        };
        if let Some(kind) = kind
            && depth <= DEEPEST
        {
            self.found.insert(value, Found { def, kind, depth });
        }
    }
}

fn id_kind(builtin: Builtin, axis: u8, rows: GroupLayout) -> Option<PortableKind> {
    match builtin {
        Builtin::WorkgroupId | Builtin::GridSize | Builtin::WorkgroupSize => Some(PortableKind::Scalar),
        Builtin::LocalId | Builtin::InvocationId => {
            if rows.workgroup[usize::from(axis)] == 1 {
                Some(PortableKind::Scalar)
            } else if rows.within {
                Some(if axis == 0 { PortableKind::Affine } else { PortableKind::Scalar })
            } else {
                None
            }
        }
    }
}

/// Kind of an op on portable operands; `None` if it is a vector. The affine cases are those of the
/// lowering.
fn op_kind(op: Op, kinds: &[PortableKind], ty: ValueType) -> Option<PortableKind> {
    use PortableKind::{Affine, Constant};
    if !kinds.contains(&Affine) {
        return Some(PortableKind::Scalar);
    }
    let word = matches!(ty, ValueType::U32 | ValueType::I32);
    let stays = match (op, kinds) {
        (Op::Add, _) => true,
        (Op::Sub, [Affine, other]) => *other != Affine,
        (Op::Mul, [Affine, Constant] | [Constant, Affine]) | (Op::Shl, [Affine, Constant]) => true,
        (Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32, [Affine]) => true,
        _ => false,
    };
    (word && stays).then_some(Affine)
}

/// Definitions and uses by part of a workgroup's work; part 0 runs once per group.
pub(crate) struct Parts<'p, 'k> {
    portable: &'p Portable<'k>,
    /// Portable values and the parts that recompute them.
    recomputed: HashSet<(ValueId, usize)>,
    next: usize,
    defined: HashMap<ValueId, usize>,
    /// Values that must be kept from one part to another.
    pub(crate) crossing: HashSet<ValueId>,
    /// Parts that use each local.
    pub(crate) locals: BTreeMap<LocalId, BTreeSet<usize>>,
}

impl<'p, 'k> Parts<'p, 'k> {
    pub(crate) fn new(portable: &'p Portable<'k>) -> Parts<'p, 'k> {
        Parts {
            portable,
            recomputed: HashSet::new(),
            next: 0,
            defined: HashMap::new(),
            crossing: HashSet::new(),
            locals: BTreeMap::new(),
        }
    }

    /// Visits statements that the workgroup runs together.
    pub(crate) fn group(&mut self, items: &[Item<'_>]) {
        self.next += 1;
        let mut part = self.next;
        for item in items {
            if item.is_group_level() {
                self.own_operands(item.stmt, 0);
                for block in &item.blocks {
                    self.group(block);
                }
                self.next += 1;
                part = self.next;
            } else {
                self.stmt(item, part);
            }
        }
    }

    fn stmt(&mut self, item: &Item<'_>, part: usize) {
        self.own_operands(item.stmt, part);
        for block in &item.blocks {
            for inner in block {
                self.stmt(inner, part);
            }
        }
    }

    fn own_operands(&mut self, stmt: &Stmt, part: usize) {
        match &stmt.kind {
            StmtKind::Def(value, def) => {
                def.operands().for_each(|operand| self.used(operand, part));
                if let Def::Get(local) = def {
                    self.locals.entry(*local).or_default().insert(part);
                }
                self.defined.insert(*value, part);
            }
            StmtKind::Set(local, value) => {
                self.used(*value, part);
                self.locals.entry(*local).or_default().insert(part);
            }
            StmtKind::Store { index, value, .. } => {
                self.used(*index, part);
                self.used(*value, part);
            }
            StmtKind::If { condition, .. } => self.used(*condition, part),
            StmtKind::For { counter, from, to, step, .. } => {
                [from, to, step].into_iter().for_each(|&bound| self.used(bound, part));
                self.defined.insert(*counter, part);
            }
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

    fn used(&mut self, value: ValueId, part: usize) {
        if self.defined.get(&value) == Some(&part) {
            return;
        }
        match self.portable.def(value) {
            None => {
                self.crossing.insert(value);
            }
            Some(def) if self.recomputed.insert((value, part)) => {
                def.operands().for_each(|operand| self.used(operand, part));
            }
            Some(_) => {}
        }
    }
}
