//! Replaces ops that have an expansion with their code.

use super::compile::{Compute, Expansion, ExpansionStep, expansion};
use crate::kernel::{
    Def, Kernel, KernelBody, Local, LocalId, Operands, Stmt, StmtKind, ValueId, ValueInfo, facts, uniformity,
};
use crate::ops::Op;

/// Replaces each op that has an [expansion](super::expansion()) with a copy of its defining code;
/// the results stay bit-identical.
pub fn expand(kernel: &Kernel) -> Kernel {
    let is_expanded = |op: &Op| op.row().expansion_error.is_some() && kernel.needs.ops.contains(&op.id());
    if !Op::ALL.iter().any(is_expanded) {
        return kernel.clone();
    }
    let mut body = kernel.clone().into_body();
    expand_ops(&mut body, &|_| true);
    // Validation settled which invocations run, and an op in divergent control flow can set its
    // variables there.
    let shape_free = body.shape_free;
    facts::derive(&mut body);
    body.shape_free = shape_free;
    let divergences = uniformity::analyze(&mut body);
    debug_assert!(divergences.is_empty(), "uniform control flow stays uniform");
    Kernel::new(body)
}

/// Expands the ops that have an expansion and are `wanted`.
pub(crate) fn expand_ops(body: &mut KernelBody, wanted: &dyn Fn(Op) -> bool) {
    let (values, locals) = (std::mem::take(&mut body.values), std::mem::take(&mut body.locals));
    let mut expander = Expander { values, locals, wanted };
    body.body = expander.block(std::mem::take(&mut body.body));
    (body.values, body.locals) = (expander.values, expander.locals);
}

struct Expander<'a> {
    values: Vec<ValueInfo>,
    locals: Vec<Local>,
    wanted: &'a dyn Fn(Op) -> bool,
}

impl Expander<'_> {
    fn block(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        let mut block = Vec::with_capacity(stmts.len());
        for stmt in stmts {
            self.stmt(stmt, &mut block);
        }
        block
    }

    fn stmt(&mut self, stmt: Stmt, block: &mut Vec<Stmt>) {
        let at = stmt.at;
        let kind = match stmt.kind {
            StmtKind::Def(value, Def::Op(op, operands)) => {
                let ty = self.values[operands[0].index()].ty;
                match expansion(op, ty).filter(|_| (self.wanted)(op)) {
                    Some(expansion) => {
                        let mut copy = self.begin(expansion, value, &operands);
                        return block.extend(
                            copy.stmts(self, &expansion.steps).into_iter().map(|s| Stmt { at, ..s }),
                        );
                    }
                    None => StmtKind::Def(value, Def::Op(op, operands)),
                }
            }
            StmtKind::If { condition, then, otherwise } => {
                StmtKind::If { condition, then: self.block(then), otherwise: self.block(otherwise) }
            }
            StmtKind::For { counter, from, to, step, body } => {
                StmtKind::For { counter, from, to, step, body: self.block(body) }
            }
            StmtKind::Loop(body) => StmtKind::Loop(self.block(body)),
            StmtKind::Region { generator, body } => StmtKind::Region { generator, body: self.block(body) },
            other @ (StmtKind::Def(..)
            | StmtKind::Set(..)
            | StmtKind::Clear(_)
            | StmtKind::Store { .. }
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_)) => other,
        };
        block.push(Stmt { kind, at });
    }

    /// Allocates ids for a copy of the expansion: parameters map to the operands, the result to
    /// `result`, all else is new.
    fn begin(
        &mut self,
        expansion: &'static Expansion,
        result: ValueId,
        operands: &[ValueId],
    ) -> ExpansionCopy {
        let uniform = operands.iter().all(|operand| self.values[operand.index()].uniform);
        let mut values = operands.to_vec();
        for (number, ty) in expansion.values.iter().enumerate().skip(operands.len()) {
            if number == expansion.result.index() {
                values.push(result);
            } else {
                values.push(ValueId(self.values.len() as u32));
                self.values.push(ValueInfo { ty: *ty, uniform });
            }
        }
        let first_local = self.locals.len() as u32;
        self.locals.extend(expansion.locals.iter().cloned());
        ExpansionCopy { values, first_local }
    }
}

/// The ids of one copy of an expansion.
struct ExpansionCopy {
    values: Vec<ValueId>,
    first_local: u32,
}

impl ExpansionCopy {
    fn value(&self, id: ValueId) -> ValueId {
        self.values[id.index()]
    }

    fn local(&self, id: LocalId) -> LocalId {
        LocalId(self.first_local + id.0)
    }

    fn stmts(&mut self, expander: &mut Expander, steps: &[ExpansionStep]) -> Vec<Stmt> {
        steps.iter().map(|step| Stmt { kind: self.stmt(expander, step), at: None }).collect()
    }

    fn stmt(&mut self, expander: &mut Expander, step: &ExpansionStep) -> StmtKind {
        match step {
            ExpansionStep::Define(id, Compute::Const(constant)) => {
                expander.values[self.value(*id).index()].uniform = true;
                StmtKind::Def(self.value(*id), Def::Const(*constant))
            }
            ExpansionStep::Define(id, Compute::Get(local)) => {
                StmtKind::Def(self.value(*id), Def::Get(self.local(*local)))
            }
            ExpansionStep::Define(id, Compute::Op(op, operands)) => {
                let operands: Vec<ValueId> = operands.iter().map(|operand| self.value(*operand)).collect();
                StmtKind::Def(self.value(*id), Def::Op(*op, Operands::new(&operands)))
            }
            ExpansionStep::Set(local, value) => StmtKind::Set(self.local(*local), self.value(*value)),
            ExpansionStep::If { condition, then, otherwise } => StmtKind::If {
                condition: self.value(*condition),
                then: self.stmts(expander, then),
                otherwise: self.stmts(expander, otherwise),
            },
        }
    }
}
