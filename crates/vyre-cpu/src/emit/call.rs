//! Calls of routines that process lanes one by one.

use super::{Emitter, Pieces};
use crate::context::Context;
use crate::host::caller;
use crate::piece::{I32, I64, Value as Operand};
use crate::routines::{Lanes, Routine};
use std::mem::offset_of;
use vyre_foundation::types::ValueType;

/// A vector passed to a routine or back.
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

/// Scalar arguments of a routine; see [`Routine`].
#[derive(Clone, Copy)]
pub(super) struct Scalars {
    pub(super) number: u64,
    pub(super) index: Option<Operand>,
    pub(super) running: Option<Operand>,
}

impl Emitter<'_> {
    pub(super) fn pass(&mut self, passed: Passed, pieces: &[Operand]) {
        self.store_pieces(pieces, self.context, passed.offset());
    }

    pub(super) fn results(&mut self, ty: ValueType) -> Pieces {
        let (piece, start) = (self.piece_type(ty), Passed::Results.offset());
        let offsets = self.piece_offsets(ty);
        offsets.map(|offset| self.builder.load(piece, self.context, start + offset)).collect()
    }

    pub(super) fn call(&mut self, routine: Routine, scalars: Scalars) {
        let number = self.builder.int(I64, scalars.number as i64);
        let routine = self.builder.int(I64, routine as usize as i64);
        let caller = self.builder.int(I64, caller() as i64);
        let index = scalars.index.unwrap_or(number);
        let running = scalars.running.unwrap_or_else(|| self.builder.int(I32, 0));
        self.builder.call(caller, [routine, self.context, number, index, running]);
    }
}
