//! Facts about a kernel as a whole, derived from its statements: the buffers that it accesses, the
//! device features that it needs, and whether its result depends on the workgroup size.

use super::{BufferId, Def, KernelBody, Needs, Place, Stmt, StmtKind, ValueId};
use crate::ir::{Access, Builtin, Span};
use crate::ops::{AtomicOp, Op, SubgroupOp};
use crate::types::{DataType, ValueType};
use hashbrown::HashSet;

/// Derives the buffers' flags, `needs` and `shape_free` from the statements.
pub(crate) fn derive(kernel: &mut KernelBody) {
    for buffer in &mut kernel.buffers {
        (buffer.loaded, buffer.stored, buffer.atomic) = (false, false, false);
    }
    let mut facts = KernelFacts::default();
    let body = std::mem::take(&mut kernel.body);
    facts.block(kernel, &body);
    kernel.body = body;
    for buffer in &kernel.buffers {
        facts.storage(buffer.decl.element);
        if buffer.decl.access == Access::Workgroup {
            let bytes = u64::from(buffer.decl.count) * buffer.decl.element.size() as u64;
            facts.needs.workgroup_bytes += bytes.next_multiple_of(8);
            facts.shaped |= buffer.loaded || buffer.stored;
        }
    }
    // Types of arrays and variables appear in the emitted text even if no value of the type is
    // left.
    let kept = kernel.arrays.iter().map(|array| array.element);
    kept.chain(kernel.locals.iter().map(|local| local.ty)).for_each(|ty| facts.value(ty));
    let pure = facts.ops.iter().map(|op| op.id());
    let atomics = facts.atomics.iter().map(|op| op.id());
    let subgroups = facts.subgroups.iter().map(|op| op.id());
    facts.needs.ops = pure.chain(atomics).chain(subgroups).collect();
    kernel.shape_free = !facts.shaped;
    kernel.needs = facts.needs;
}

impl KernelBody {
    /// Whether a dispatch can trap.
    pub fn traps(&self) -> bool {
        has_trap(&self.body)
    }
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessMark {
    /// The memory.
    pub place: Place,
    /// Whether the index was proved in range.
    pub in_bounds: bool,
    /// Position in the source text, if the program was parsed from text.
    pub at: Option<Span>,
}

#[cfg(feature = "compiler")]
impl KernelBody {
    /// Every access to memory, in the order of the statements.
    pub fn accesses(&self) -> Vec<AccessMark> {
        let mut found = Vec::new();
        crate::optimize::each_stmt(&self.body, &mut |stmt| {
            let access = match &stmt.kind {
                StmtKind::Def(_, Def::Load { place, in_bounds, .. })
                | StmtKind::Store { place, in_bounds, .. } => Some((*place, *in_bounds)),
                StmtKind::Def(_, Def::Atomic { buffer, in_bounds, .. }) => {
                    Some((Place::Buffer(*buffer), *in_bounds))
                }
                StmtKind::Def(..)
                | StmtKind::Set(..)
                | StmtKind::Clear(_)
                | StmtKind::If { .. }
                | StmtKind::For { .. }
                | StmtKind::Loop(_)
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Barrier
                | StmtKind::Region { .. }
                | StmtKind::Trap(_) => None,
            };
            found.extend(access.map(|(place, in_bounds)| AccessMark { place, in_bounds, at: stmt.at }));
        });
        found
    }

    /// The name of a buffer or array.
    pub fn place_name(&self, place: Place) -> &str {
        match place {
            Place::Buffer(id) => &self.buffer(id).decl.name,
            Place::Array(id) => &self.arrays[id.index()].name,
        }
    }
}

fn has_trap(block: &[Stmt]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Trap(_) => true,
        StmtKind::If { then, otherwise, .. } => has_trap(then) || has_trap(otherwise),
        StmtKind::For { body, .. } | StmtKind::Loop(body) | StmtKind::Region { body, .. } => has_trap(body),
        StmtKind::Def(..)
        | StmtKind::Set(..)
        | StmtKind::Clear(_)
        | StmtKind::Store { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return
        | StmtKind::Barrier => false,
    })
}

#[derive(Default)]
struct KernelFacts {
    needs: Needs,
    ops: HashSet<Op>,
    atomics: HashSet<AtomicOp>,
    subgroups: HashSet<SubgroupOp>,
    shaped: bool,
}

impl KernelFacts {
    fn block(&mut self, kernel: &mut KernelBody, block: &[Stmt]) {
        for stmt in block {
            self.stmt(kernel, stmt);
        }
    }

    fn stmt(&mut self, kernel: &mut KernelBody, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Def(value, def) => self.define(kernel, *value, def),
            StmtKind::Store { place: Place::Buffer(buffer), .. } => {
                kernel.buffers[buffer.index()].stored = true
            }
            StmtKind::If { then, otherwise, .. } => {
                self.block(kernel, then);
                self.block(kernel, otherwise);
            }
            StmtKind::For { counter, body, .. } => {
                self.value(kernel.ty(*counter));
                self.block(kernel, body);
            }
            StmtKind::Loop(body) | StmtKind::Region { body, .. } => self.block(kernel, body),
            StmtKind::Barrier => self.shaped = true,
            StmtKind::Store { place: Place::Array(_), .. }
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Trap(_) => {}
        }
    }

    fn define(&mut self, kernel: &mut KernelBody, value: ValueId, def: &Def) {
        self.value(kernel.ty(value));
        match def {
            Def::Op(op, _) => {
                self.ops.insert(*op);
            }
            Def::Load { place: Place::Buffer(buffer), .. } => kernel.buffers[buffer.index()].loaded = true,
            Def::Builtin(builtin, _) => {
                self.shaped |= match builtin {
                    Builtin::InvocationId => false,
                    Builtin::WorkgroupId | Builtin::LocalId | Builtin::GridSize | Builtin::WorkgroupSize => {
                        true
                    }
                };
            }
            Def::Atomic { op, buffer, .. } => self.atomic(kernel, *op, *buffer),
            Def::Subgroup(op, _) => {
                self.subgroups.insert(*op);
                self.needs.subgroups = true;
                self.needs.shuffle |= matches!(op, SubgroupOp::Shuffle | SubgroupOp::Broadcast);
                self.shaped = true;
            }
            Def::Load { place: Place::Array(_), .. } | Def::Const(_) | Def::Get(_) | Def::Len(_) => {}
        }
    }

    fn atomic(&mut self, kernel: &mut KernelBody, op: AtomicOp, buffer: BufferId) {
        self.atomics.insert(op);
        let buffer = &mut kernel.buffers[buffer.index()];
        (buffer.loaded, buffer.stored, buffer.atomic) = (true, true, true);
        self.needs.atomic64 |= buffer.decl.element.size() == 8;
    }

    fn value(&mut self, ty: ValueType) {
        match ty {
            ValueType::U64 | ValueType::I64 => self.needs.int64 = true,
            ValueType::F64 => self.needs.f64 = true,
            ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::F32 => {}
        }
    }

    fn storage(&mut self, element: DataType) {
        self.value(element.value_type());
        self.needs.narrow_storage |= element.size() < 4;
        self.needs.f16_storage |= element == DataType::F16;
        self.needs.bf16_storage |= element == DataType::Bf16;
    }
}
