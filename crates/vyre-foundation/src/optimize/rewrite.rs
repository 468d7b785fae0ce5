//! A forward walk in which a rule replaces definitions one at a time.
//!
//! Values are defined before they are used, in the order of the walk. So when the rule sees a definition, its operands
//! are final: the rule may look up how they are computed, emit further definitions in front, and answer with another
//! definition or with an earlier value that stands for this one.

use crate::ir::Span;
use crate::kernel::{Def, KernelBody, Operands, Stmt, StmtKind, ValueId, ValueInfo};
use crate::ops::Op;
use crate::types::{Value, ValueType};

/// What a rule makes of a definition.
pub(super) enum Outcome {
    /// The value is computed like this.
    Def(Def),
    /// The value is this earlier one.
    Value(ValueId),
}

/// Which value stands for which.
pub(super) struct Names(Vec<ValueId>);

impl Names {
    /// Every value stands for itself.
    pub(super) fn new(body: &KernelBody) -> Names {
        Names((0..body.values.len() as u32).map(ValueId).collect())
    }

    /// What stands for `value`; values made since stand for themselves.
    pub(super) fn get(&self, value: ValueId) -> ValueId {
        self.0.get(value.index()).copied().unwrap_or(value)
    }

    /// From here on `by` stands for `value`.
    pub(super) fn replace(&mut self, value: ValueId, by: ValueId) {
        let by = self.get(by);
        self.0[value.index()] = by;
    }

    /// Gives the statement the names that hold now, nested blocks left out.
    pub(super) fn apply(&self, kind: &mut StmtKind) {
        kind.each_operand_mut(|operand| *operand = self.get(*operand));
    }
}

/// Adds a value of this type to the kernel. Whether it is uniform is worked out when all passes have run.
pub(crate) fn new_value(body: &mut KernelBody, ty: ValueType) -> ValueId {
    body.values.push(ValueInfo { ty, uniform: false });
    ValueId(body.values.len() as u32 - 1)
}

/// The state of the walk, as a rule sees it.
pub(super) struct Emitter<'a> {
    /// The kernel; its statements are taken out while the walk goes on.
    pub(super) body: &'a mut KernelBody,
    definitions: Vec<Option<Def>>,
    names: Names,
    out: Vec<Stmt>,
    at: Option<Span>,
}

impl Emitter<'_> {
    /// How a value is computed; `None` for a loop counter.
    pub(super) fn definition(&self, value: ValueId) -> Option<&Def> {
        self.definitions[value.index()].as_ref()
    }

    /// The constant that a value is, if it is one.
    pub(super) fn constant(&self, value: ValueId) -> Option<Value> {
        if let Some(Def::Const(constant)) = self.definition(value) { Some(*constant) } else { None }
    }

    /// Operands of the value's op, if it is computed by that op.
    pub(super) fn operands_of(&self, value: ValueId, op: Op) -> Option<Operands> {
        if let Some(Def::Op(found, operands)) = self.definition(value)
            && *found == op
        {
            return Some(*operands);
        }
        None
    }

    /// Computes a new value in front of the one that the rule looks at.
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

    /// Emits an op whose operands fit its signature.
    pub(super) fn emit_op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types: Vec<ValueType> = operands.iter().map(|&operand| self.body.ty(operand)).collect();
        let ty = op.row().signature.result(&types);
        let ty =
            ty.unwrap_or_else(|| unreachable!("a rule emits {op:?} of {types:?}, outside its signature"));
        self.emit(ty, Def::Op(op, Operands::new(operands)))
    }

    fn block(
        &mut self,
        block: Vec<Stmt>,
        rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> Outcome,
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
        rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> Outcome,
    ) {
        match rule(self, value, def) {
            Outcome::Def(def) => {
                self.definitions[value.index()] = Some(def.clone());
                self.out.push(Stmt { kind: StmtKind::Def(value, def), at: self.at });
            }
            Outcome::Value(by) => self.names.replace(value, by),
        }
    }
}

/// Runs the rule over every definition.
pub(super) fn rewrite(body: &mut KernelBody, rule: &mut dyn FnMut(&mut Emitter, ValueId, Def) -> Outcome) {
    let statements = std::mem::take(&mut body.body);
    let (names, definitions) = (Names::new(body), vec![None; body.values.len()]);
    let mut emitter = Emitter { body, definitions, names, out: Vec::new(), at: None };
    let statements = emitter.block(statements, rule);
    emitter.body.body = statements;
}
