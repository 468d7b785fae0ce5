//! A forward walk in which a rule replaces definitions one at a time.
//!
//! Values are defined before they are used, in walk order, so the operands of a definition are
//! final when the rule sees it. The rule can look up how they are computed, emit further
//! definitions before the current one, and replace it with another definition or an earlier value.

use crate::ir::Span;
use crate::kernel::{Def, KernelBody, Operands, Stmt, StmtKind, ValueId, ValueInfo};
use crate::ops::Op;
use crate::types::{Value, ValueType};
use smallvec::SmallVec;

/// The result of a rule.
pub(super) enum RuleOutcome {
    /// Compute the value with this definition.
    Def(Def),
    /// Replace the value with this earlier one.
    Value(ValueId),
}

/// A map from each value to its replacement.
#[derive(Clone)]
pub(super) struct Names(Vec<ValueId>);

impl Names {
    /// Maps every value to itself.
    pub(super) fn new(body: &KernelBody) -> Names {
        Names((0..body.values.len() as u32).map(ValueId).collect())
    }

    /// The replacement of `value`; values created since map to themselves.
    pub(super) fn get(&self, value: ValueId) -> ValueId {
        self.0.get(value.index()).copied().unwrap_or(value)
    }

    /// Replaces `value` with `by` from here on.
    pub(super) fn replace(&mut self, value: ValueId, by: ValueId) {
        let by = self.get(by);
        self.0[value.index()] = by;
    }

    /// Replaces the operands of the statement, excluding nested blocks.
    pub(super) fn apply(&self, kind: &mut StmtKind) {
        kind.each_operand_mut(|operand| *operand = self.get(*operand));
    }
}

/// Adds a value of this type to the kernel. Uniformity is computed after all passes have run.
pub(crate) fn new_value(body: &mut KernelBody, ty: ValueType) -> ValueId {
    body.values.push(ValueInfo { ty, uniform: false });
    ValueId(body.values.len() as u32 - 1)
}

/// The state of the walk that a rule sees.
pub(super) struct Emitter<'a> {
    /// The kernel, without its statements during the walk.
    pub(super) body: &'a mut KernelBody,
    definitions: Vec<Option<Def>>,
    names: Names,
    out: Vec<Stmt>,
    at: Option<Span>,
}

impl Emitter<'_> {
    /// The definition of a value; `None` for a loop counter.
    pub(super) fn definition(&self, value: ValueId) -> Option<&Def> {
        self.definitions[value.index()].as_ref()
    }

    /// The constant value, if it is one.
    pub(super) fn constant(&self, value: ValueId) -> Option<Value> {
        if let Some(Def::Const(constant)) = self.definition(value) { Some(*constant) } else { None }
    }

    /// The operands of the value's definition, if it is this op.
    pub(super) fn operands_of(&self, value: ValueId, op: Op) -> Option<Operands> {
        if let Some(Def::Op(found, operands)) = self.definition(value)
            && *found == op
        {
            return Some(*operands);
        }
        None
    }

    /// Computes a new value before the current definition.
    pub(super) fn emit(&mut self, ty: ValueType, def: Def) -> ValueId {
        let value = new_value(self.body, ty);
        self.definitions.push(Some(def.clone()));
        self.out.push(Stmt { kind: StmtKind::Def(value, def), at: self.at });
        value
    }

    /// Emits a constant.
    pub(super) fn emit_constant(&mut self, value: Value) -> ValueId {
        self.emit(value.ty(), Def::Const(value))
    }

    /// Emits an op whose operands match its signature.
    pub(super) fn emit_op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types: SmallVec<[ValueType; 4]> = operands.iter().map(|&operand| self.body.ty(operand)).collect();
        let ty = op.row().signature.result(&types);
        let ty =
            ty.unwrap_or_else(|| unreachable!("a rule emits {op:?} of {types:?}, outside its signature"));
        self.emit(ty, Def::Op(op, Operands::new(operands)))
    }

    fn block(
        &mut self,
        block: Vec<Stmt>,
        rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> RuleOutcome,
    ) -> Vec<Stmt> {
        let outer = std::mem::replace(&mut self.out, Vec::with_capacity(block.len()));
        for mut stmt in block {
            self.names.apply(&mut stmt.kind);
            self.at = stmt.at;
            if let StmtKind::Def(value, def) = stmt.kind {
                self.define(value, def, rule);
                continue;
            }
            for nested in stmt.kind.blocks_mut().into_iter().flatten() {
                *nested = self.block(std::mem::take(nested), rule);
            }
            self.out.push(stmt);
        }
        std::mem::replace(&mut self.out, outer)
    }

    fn define(
        &mut self,
        value: ValueId,
        def: Def,
        rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> RuleOutcome,
    ) {
        match rule(self, value, def) {
            RuleOutcome::Def(def) => {
                self.definitions[value.index()] = Some(def.clone());
                self.out.push(Stmt { kind: StmtKind::Def(value, def), at: self.at });
            }
            RuleOutcome::Value(by) => self.names.replace(value, by),
        }
    }
}

/// Runs the rule over every definition.
pub(super) fn rewrite(
    body: &mut KernelBody,
    rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> RuleOutcome,
) {
    let statements = std::mem::take(&mut body.body);
    let (names, definitions) = (Names::new(body), vec![None; body.values.len()]);
    let mut emitter = Emitter { body, definitions, names, out: Vec::new(), at: None };
    let statements = emitter.block(statements, rule);
    emitter.body.body = statements;
}
