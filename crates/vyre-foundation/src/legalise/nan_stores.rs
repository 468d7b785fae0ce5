//! Makes stored NaNs canonical.
//!
//! Memory that the caller sees holds one NaN per type. `y[i] = x` becomes `y[i] = select(is_nan(x),
//! nan, x)`, so that the store itself can copy bits. Values that are never NaN are left unchanged,
//! as is memory that only the kernel sees.

use super::{Lines, rewrite};
use crate::ir::Access;
use crate::kernel::{BufferId, Def, KernelBody, Place, StmtKind, ValueId};
use crate::ops::Op;
use crate::optimize::definitions;
use crate::types::Value;

pub(super) fn is_needed(body: &KernelBody) -> bool {
    let ids = (0..body.buffers.len() as u32).map(BufferId);
    ids.filter(|&id| body.buffer(id).stored).any(|id| is_seen(body, Place::Buffer(id)))
}

pub(super) fn run(body: &mut KernelBody) {
    let definitions = definitions(body);
    rewrite(body, &mut |lines, mut kind| {
        if let StmtKind::Store { place, value, .. } = &mut kind
            && is_seen(lines.body, *place)
        {
            *value = canonical(lines, *value, definitions[value.index()].as_ref());
        }
        lines.push(kind);
    });
}

/// Whether stores there leave floats in memory that the caller sees. Floats narrower than their
/// value type are rounded when stored.
fn is_seen(body: &KernelBody, place: Place) -> bool {
    let element = body.element(place);
    let is_bound = matches!(place, Place::Buffer(id) if body.buffer(id).decl.access != Access::Workgroup);
    is_bound && element.value_type().is_float() && element.size() >= 4
}

/// The value, with every NaN replaced by the canonical one.
fn canonical(lines: &mut Lines<'_>, value: ValueId, definition: Option<&Def>) -> ValueId {
    match definition {
        Some(Def::Const(constant)) if constant.canonical().to_bits() == constant.to_bits() => return value,
        Some(Def::Const(constant)) => return lines.constant(constant.canonical()),
        // Converted from an integer, not from another float type.
        Some(Def::Op(Op::ToF32 | Op::ToF64, operands)) if !lines.body.ty(operands[0]).is_float() => {
            return value;
        }
        Some(
            Def::Op(..)
            | Def::Get(_)
            | Def::Load { .. }
            | Def::Len(_)
            | Def::Builtin(..)
            | Def::Atomic { .. }
            | Def::Subgroup(..),
        )
        | None => {}
    }
    let nan = match lines.body.ty(value).bits() {
        64 => Value::F64(f64::NAN),
        _ => Value::F32(f32::NAN),
    };
    let nan = lines.constant(nan.canonical());
    let is_nan = lines.op(Op::IsNan, &[value]);
    lines.op(Op::Select, &[is_nan, nan, value])
}
