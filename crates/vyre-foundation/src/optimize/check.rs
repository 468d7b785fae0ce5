//! Verifies the invariants that every pass must preserve, independently of the passes.
//!
//! - Every value is defined once, and used only later in its block or in blocks nested there.
//! - Every definition and statement has operands of the right types, and handles that exist.
//! - A local is read only where it is definitely set.
//! - `break` and `continue` occur only in loops.
//! - Barriers and subgroup ops occur only in uniform control flow, and no value that may vary is
//!   marked uniform.
//!
//! Whether an access marked `in_bounds` is in range depends on run-time values; the interpreter's
//! sanitizer checks it.

use crate::kernel::{Def, KernelBody, Operands, Place, Stmt, StmtKind, ValueId, uniformity};
use crate::types::ValueType;

/// Checks the kernel; the error describes the first violation.
pub(super) fn check(body: &KernelBody) -> Result<(), String> {
    let mut checker = Checker {
        body,
        state: vec![Use::Undefined; body.values.len()],
        set: vec![false; body.locals.len()],
        scope: Vec::new(),
        loops: 0,
    };
    checker.block(&body.body)?;
    let mut fresh = body.clone();
    if let Some(divergence) = uniformity::analyze(&mut fresh).first() {
        return Err(format!("{:?} in divergent control flow", divergence.rule));
    }
    match (0..body.values.len()).find(|&k| body.values[k].uniform && !fresh.values[k].uniform) {
        Some(k) => Err(format!("value {k} claims to be uniform and may vary")),
        None => Ok(()),
    }
}

/// The state of a value during the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Undefined,
    Visible,
    OutOfScope,
}

struct Checker<'a> {
    body: &'a KernelBody,
    state: Vec<Use>,
    /// The locals that are definitely set.
    set: Vec<bool>,
    /// The values that the open blocks define.
    scope: Vec<ValueId>,
    loops: usize,
}

impl Checker<'_> {
    /// Checks a block and returns whether control can reach its end.
    fn block(&mut self, block: &[Stmt]) -> Result<bool, String> {
        let mark = self.scope.len();
        let mut goes_on = true;
        for stmt in block {
            let mut operands = Vec::new();
            stmt.kind.each_operand(|operand| operands.push(operand));
            operands.into_iter().try_for_each(|operand| self.visible(operand))?;
            goes_on &= self.stmt(&stmt.kind)?;
            if !goes_on {
                // Unreachable code reads nothing.
                self.set.fill(true);
            }
        }
        for value in self.scope.drain(mark..) {
            self.state[value.index()] = Use::OutOfScope;
        }
        Ok(goes_on)
    }

    fn visible(&self, value: ValueId) -> Result<(), String> {
        match self.state.get(value.index()) {
            Some(Use::Visible) => Ok(()),
            Some(Use::Undefined) => Err(format!("{value:?} is used before its definition")),
            Some(Use::OutOfScope) => Err(format!("{value:?} is used outside its block")),
            None => Err(format!("{value:?} does not exist")),
        }
    }

    fn define(&mut self, value: ValueId) -> Result<(), String> {
        if self.state.get(value.index()) != Some(&Use::Undefined) {
            return Err(format!("{value:?} is defined twice or does not exist"));
        }
        self.state[value.index()] = Use::Visible;
        self.scope.push(value);
        Ok(())
    }

    fn stmt(&mut self, kind: &StmtKind) -> Result<bool, String> {
        match kind {
            StmtKind::Def(value, def) => {
                let found = self.result(def)?;
                self.define(*value)?;
                expect(self.body.ty(*value) == found, || format!("{value:?} is no {found}: {def:?}"))?;
            }
            StmtKind::Set(local, value) => {
                let fits = self.body.locals.get(local.index()).is_some_and(|l| l.ty == self.body.ty(*value));
                expect(fits, || format!("{value:?} does not fit {local:?}"))?;
                self.set[local.index()] = true;
            }
            StmtKind::Clear(array) => {
                expect(array.index() < self.body.arrays.len(), || format!("{array:?} does not exist"))?;
            }
            StmtKind::Store { place, index, value, .. } => {
                let element = self.element(*place, *index)?;
                expect(element == self.body.ty(*value), || format!("{value:?} does not fit {place:?}"))?;
            }
            StmtKind::If { condition, then, otherwise } => return self.branch(*condition, [then, otherwise]),
            StmtKind::For { counter, from, to, step, body } => {
                let ty = self.body.ty(*counter);
                let same = [from, to, step].into_iter().all(|&bound| self.body.ty(bound) == ty);
                expect(same && ty.is_integer(), || format!("bounds of {counter:?} do not fit"))?;
                return self.repeat(Some(*counter), body);
            }
            StmtKind::Loop(body) => return self.repeat(None, body),
            StmtKind::Break | StmtKind::Continue => {
                expect(self.loops > 0, || format!("{kind:?} outside a loop"))?;
                return Ok(false);
            }
            StmtKind::Return | StmtKind::Trap(_) => return Ok(false),
            StmtKind::Region { body, .. } => return self.block(body),
            StmtKind::Barrier => {}
        }
        Ok(true)
    }

    fn branch(&mut self, condition: ValueId, [then, otherwise]: [&[Stmt]; 2]) -> Result<bool, String> {
        let is_bool = self.body.ty(condition) == ValueType::Bool;
        expect(is_bool, || format!("condition {condition:?} is no bool"))?;
        let before = self.set.clone();
        let then_goes_on = self.block(then)?;
        let after_then = std::mem::replace(&mut self.set, before);
        let otherwise_goes_on = self.block(otherwise)?;
        self.set.iter_mut().zip(after_then).for_each(|(mine, theirs)| *mine &= theirs);
        Ok(then_goes_on || otherwise_goes_on)
    }

    fn repeat(&mut self, counter: Option<ValueId>, body: &[Stmt]) -> Result<bool, String> {
        let (before, mark) = (self.set.clone(), self.scope.len());
        counter.map_or(Ok(()), |counter| self.define(counter))?;
        self.loops += 1;
        self.block(body)?;
        self.loops -= 1;
        for value in self.scope.drain(mark..) {
            self.state[value.index()] = Use::OutOfScope;
        }
        self.set = before;
        Ok(true)
    }

    /// The value type of a place's elements, after checking that the index is a `u32`.
    fn element(&self, place: Place, index: ValueId) -> Result<ValueType, String> {
        let exists = match place {
            Place::Buffer(id) => id.index() < self.body.buffers.len(),
            Place::Array(id) => id.index() < self.body.arrays.len(),
        };
        expect(exists, || format!("{place:?} does not exist"))?;
        expect(self.body.ty(index) == ValueType::U32, || format!("index {index:?} is no u32"))?;
        Ok(self.body.element(place).value_type())
    }

    fn types(&self, operands: &Operands) -> Vec<ValueType> {
        operands.iter().map(|&operand| self.body.ty(operand)).collect()
    }

    /// The type of a definition's value.
    fn result(&self, def: &Def) -> Result<ValueType, String> {
        match def {
            Def::Const(value) => Ok(value.ty()),
            Def::Get(local) => {
                let is_set = self.set.get(local.index()) == Some(&true);
                expect(is_set, || format!("{local:?} is read before it is set"))?;
                Ok(self.body.locals[local.index()].ty)
            }
            Def::Op(op, operands) => {
                let types = self.types(operands);
                op.row().signature.result(&types).ok_or_else(|| format!("{op:?} does not take {types:?}"))
            }
            Def::Load { place, index, .. } => self.element(*place, *index),
            Def::Len(buffer) => {
                expect(buffer.index() < self.body.buffers.len(), || format!("{buffer:?} does not exist"))?;
                Ok(ValueType::U32)
            }
            Def::Builtin(_, axis) => {
                expect(*axis < 3, || format!("there is no axis {axis}"))?;
                Ok(ValueType::U32)
            }
            Def::Atomic { op, buffer, index, operands, .. } => {
                let element = self.element(Place::Buffer(*buffer), *index)?;
                let fits =
                    operands.len() == op.operands() && self.types(operands).iter().all(|&ty| ty == element);
                expect(fits, || format!("operands of {def:?} do not fit"))?;
                Ok(element)
            }
            Def::Subgroup(op, operands) => {
                let types = self.types(operands);
                op.result(&types).ok_or_else(|| format!("{op:?} does not take {types:?}"))
            }
        }
    }
}

fn expect(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}
