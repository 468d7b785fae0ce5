//! Constant folding: evaluates expressions of constants with the shared evaluator.

use super::rewrite::{Emitter, RuleOutcome, rewrite};
use super::target::Assume;
use super::walk::fixed_len;
use crate::ir::Builtin;
use crate::kernel::{Def, KernelBody, Operands, Place};
use crate::ops::{Op, eval};
use crate::types::Value;

/// Folds every definition whose operands are constants.
pub(crate) fn run(body: &mut KernelBody, assume: &Assume) {
    rewrite(body, &mut |emitter, _, def| {
        RuleOutcome::Def(match folded(emitter, &def, assume) {
            Some(constant) => Def::Const(constant),
            None => def,
        })
    });
}

fn folded(emitter: &Emitter, def: &Def, assume: &Assume) -> Option<Value> {
    match def {
        Def::Op(op, operands) => fold_op(emitter, *op, operands),
        Def::Load { place, index, .. } => fold_load(emitter, *place, emitter.constant(*index)?),
        Def::Len(buffer) => fixed_len(emitter.body, Place::Buffer(*buffer)).map(Value::U32),
        Def::Builtin(Builtin::WorkgroupSize, axis) => {
            assume.workgroup.map(|size| Value::U32(size[usize::from(*axis)]))
        }
        // Canonicalizes NaN constants, so that equal constants have equal bits.
        Def::Const(constant) => Some(constant.canonical()),
        Def::Builtin(
            Builtin::InvocationId | Builtin::WorkgroupId | Builtin::LocalId | Builtin::GridSize,
            _,
        )
        | Def::Get(_)
        | Def::Atomic { .. }
        | Def::Subgroup(..) => None,
    }
}

fn fold_op(emitter: &Emitter, op: Op, operands: &Operands) -> Option<Value> {
    let mut constants = [Value::Bool(false); 4];
    for (slot, &operand) in constants.iter_mut().zip(operands.iter()) {
        *slot = emitter.constant(operand)?;
    }
    eval(op, &constants[..operands.len()])
}

/// A load that is certainly out of range reads zero.
fn fold_load(emitter: &Emitter, place: Place, index: Value) -> Option<Value> {
    let outside = index.as_u32()? >= fixed_len(emitter.body, place)?;
    outside.then(|| Value::zero(emitter.body.element(place).value_type()))
}
