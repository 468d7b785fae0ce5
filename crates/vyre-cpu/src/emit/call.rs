//! Calls of the routines that lanes go through one by one.

use super::{Context, Emitter, Pieces, trusted};
use crate::code::caller;
use crate::routines::{Lanes, Routine};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, SigRef, Signature, Value as Clif};
use cranelift_codegen::isa::CallConv;
use std::mem::offset_of;
use vyre_foundation::types::ValueType;

/// A vector on its way to a routine or back.
#[derive(Clone, Copy)]
pub(super) enum Passed {
    Indices,
    First,
    Second,
    Results,
}

impl Passed {
    fn offset(self) -> i32 {
        let within = match self {
            Passed::Indices => offset_of!(Lanes, indices),
            Passed::First => offset_of!(Lanes, first),
            Passed::Second => offset_of!(Lanes, second),
            Passed::Results => offset_of!(Lanes, results),
        };
        (offset_of!(Context, lanes) + within) as i32
    }
}

/// The scalars that a routine gets; see [`Routine`].
#[derive(Clone, Copy)]
pub(super) struct Scalars {
    pub(super) number: u64,
    pub(super) index: Option<Clif>,
    pub(super) running: Option<Clif>,
}

/// The signature of the code through which routines are called: the routine, then what it gets. It keeps every register.
pub(crate) fn caller_signature() -> Signature {
    let mut signature = Signature::new(CallConv::PreserveAll);
    signature.params.extend([I64, I64, I64, I64, I32].map(AbiParam::new));
    signature
}

impl Emitter<'_, '_> {
    pub(super) fn pass(&mut self, passed: Passed, pieces: &[Clif]) {
        for (k, &piece) in pieces.iter().enumerate() {
            self.builder.ins().store(trusted(), piece, self.context, passed.offset() + 16 * k as i32);
        }
    }

    pub(super) fn results(&mut self, ty: ValueType) -> Pieces {
        let piece = super::piece_type(ty);
        let offsets = (0..self.piece_count(ty) as i32).map(|k| Passed::Results.offset() + 16 * k);
        offsets.map(|offset| self.builder.ins().load(piece, trusted(), self.context, offset)).collect()
    }

    pub(super) fn call(&mut self, routine: Routine, scalars: Scalars) {
        let signature = self.caller_signature();
        let number = self.builder.ins().iconst(I64, scalars.number as i64);
        let routine = self.builder.ins().iconst(I64, routine as usize as i64);
        let caller = self.builder.ins().iconst(I64, caller() as i64);
        let index = scalars.index.unwrap_or(number);
        let running = scalars.running.unwrap_or_else(|| self.builder.ins().iconst(I32, 0));
        let arguments = [routine, self.context, number, index, running];
        self.builder.ins().call_indirect(signature, caller, &arguments);
    }

    fn caller_signature(&mut self) -> SigRef {
        match self.caller_signature {
            Some(signature) => signature,
            None => {
                let signature = self.builder.import_signature(caller_signature());
                self.caller_signature = Some(signature);
                signature
            }
        }
    }
}
