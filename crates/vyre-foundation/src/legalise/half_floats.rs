//! Replaces half floats in memory with their bits.
//!
//! A buffer of `f16` or `bf16` becomes one of `u16`. Loads and stores use the ops that define the
//! conversions ([`Op::BitsF16`] and its kin), which are expanded immediately, so no target needs to
//! support them.

use super::{constant, rewrite};
use crate::kernel::{BufferId, Def, KernelBody, Operands, Place, StmtKind};
use crate::math::expand_ops;
use crate::ops::{Op, eval};
use crate::optimize::{definitions, new_value};
use crate::types::{DataType, ValueType};

pub(super) fn is_needed(body: &KernelBody) -> bool {
    body.buffers.iter().any(|buffer| conversions(buffer.decl.element).is_some())
}

pub(super) fn run(body: &mut KernelBody) {
    let definitions = definitions(body);
    let kinds: Vec<Option<Conversions>> =
        body.buffers.iter().map(|buffer| conversions(buffer.decl.element)).collect();
    let of = |place: Place| match place {
        Place::Buffer(BufferId(id)) => kinds[id as usize],
        Place::Array(_) => None,
    };
    for (buffer, _) in body.buffers.iter_mut().zip(&kinds).filter(|(_, kind)| kind.is_some()) {
        buffer.decl.element = DataType::U16;
    }
    rewrite(body, &mut |lines, mut kind| {
        if let StmtKind::Def(value, Def::Load { place, .. }) = kind
            && let Some(conversions) = of(place)
            && let StmtKind::Def(_, load) = kind
        {
            let bits = new_value(lines.body, ValueType::U32);
            lines.push(StmtKind::Def(bits, load));
            let widened = Def::Op(conversions.widen, Operands::new(&[bits]));
            return lines.push(StmtKind::Def(value, widened));
        }
        if let StmtKind::Store { place, value, .. } = &mut kind
            && let Some(conversions) = of(*place)
        {
            let known = constant(&definitions, *value);
            *value = match known.and_then(|known| eval(conversions.narrow, &[known])) {
                Some(bits) => lines.constant(bits),
                None => lines.op(conversions.narrow, &[*value]),
            };
        }
        lines.push(kind);
    });
    expand_ops(body, &|op| matches!(op, Op::BitsF16 | Op::F16Bits | Op::BitsBf16 | Op::Bf16Bits));
}

/// The conversion ops between an element's bits and its value.
#[derive(Clone, Copy)]
struct Conversions {
    widen: Op,
    narrow: Op,
}

fn conversions(element: DataType) -> Option<Conversions> {
    match element {
        DataType::F16 => Some(Conversions { widen: Op::BitsF16, narrow: Op::F16Bits }),
        DataType::Bf16 => Some(Conversions { widen: Op::BitsBf16, narrow: Op::Bf16Bits }),
        DataType::Bool
        | DataType::U8
        | DataType::I8
        | DataType::U16
        | DataType::I16
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F32
        | DataType::F64 => None,
    }
}
