//! The table ops, on scalars and on vectors.
//!
//! Most ops share one sequence for both: machine instructions that work lane by lane. Vectors whose
//! operands have a special form take a shorter one (`rules`). Ops without a vector form run lane by
//! lane.

mod bits;
mod comparisons;
mod conversions;
mod division;
mod floats;
mod integers;
mod rules;

use super::call::{Passed, Scalars};
use super::{Emitter, Pieces, scalar_type};
use crate::op_groups::{Arithmetic, IntegerOp, OpGroup};
use crate::piece::{Type, Value as Operand};
use crate::routines;
use crate::vector::{Reg, RegType};
use vyre_foundation::ir::Op;
use vyre_foundation::types::ValueType;

/// An op on vectors.
struct Operation<'a> {
    op: Op,
    group: OpGroup,
    args: &'a [Reg],
    types: &'a [ValueType],
}

/// Result of dividing two integers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Division {
    Quotient,
    Remainder,
}

impl Operation<'_> {
    /// Type of the pieces of the first operand.
    fn reg_type(&self) -> RegType {
        RegType { ty: self.types[0], vector: true }
    }
}

impl Emitter<'_> {
    /// Machine type of a scalar or of a vector's pieces.
    fn machine(&self, reg_type: RegType) -> Type {
        if reg_type.vector { self.piece_type(reg_type.ty) } else { scalar_type(reg_type.ty) }
    }

    pub(super) fn operation(&mut self, op: Op, args: &[Reg], vector: bool) -> Pieces {
        let types: Vec<ValueType> = args.iter().map(|&arg| self.reg_type(arg).ty).collect();
        if !vector {
            let values: Vec<Operand> = args.iter().map(|&arg| self.scalar(arg)).collect();
            return vec![self.scalar_op(op, &types, &values)];
        }
        let operation = Operation { op, group: OpGroup::of(op), args, types: &types };
        if let Some(pieces) = self.by_rule(&operation) {
            return pieces;
        }
        let values: Vec<Pieces> = args.iter().map(|&arg| self.vector(arg)).collect();
        self.vector_op(op, &types, &values)
    }

    /// Emits an op on scalars.
    pub(super) fn scalar_op(&mut self, op: Op, types: &[ValueType], args: &[Operand]) -> Operand {
        let first = RegType { ty: types[0], vector: false };
        let last = RegType { ty: types[types.len() - 1], vector: false };
        match OpGroup::of(op) {
            OpGroup::Cast(to) => self.cast_scalar(types[0], to, args[0]),
            OpGroup::Bitcast(to) => self.bitcast(first, to, args[0]),
            OpGroup::Select => self.choose(last, args[0], args[1], args[2]),
            OpGroup::Shift(shift) => self.shift(shift, first, args[0], args[1]),
            OpGroup::Compare(comparison) => self.compare(comparison, first, [args[0], args[1]]),
            OpGroup::Test(test) => self.test_float(test, first, args[0]),
            OpGroup::Count(count) => self.count_scalar(count, first, args[0]),
            OpGroup::Logic(logic) => self.logic(logic, first, args),
            OpGroup::Integer(op) => self.integer_op(op, first, args),
            OpGroup::Float(op) => self.float_op(op, first, args),
            OpGroup::Arithmetic(op) => self.arithmetic(op, first, args),
        }
    }

    fn vector_op(&mut self, op: Op, types: &[ValueType], args: &[Pieces]) -> Pieces {
        let reg_type = RegType { ty: types[0], vector: true };
        match OpGroup::of(op) {
            OpGroup::Cast(to) => self.cast_vector(types[0], to, &args[0]),
            OpGroup::Bitcast(to) => self.each(&args[0], |this, piece| this.bitcast(reg_type, to, piece)),
            OpGroup::Select => self.blend(types[2], &args[0], &args[1], &args[2]),
            OpGroup::Shift(shift) if self.builder.shifts_lanes() => {
                self.shift_each(shift, reg_type, &args[0], &args[1])
            }
            OpGroup::Compare(comparison) => {
                self.compare_vectors(comparison, reg_type.ty, [&args[0], &args[1]])
            }
            OpGroup::Test(test) => {
                let masks = self.each(&args[0], |this, piece| this.test_float(test, reg_type, piece));
                self.narrow_mask(reg_type.ty, masks)
            }
            OpGroup::Count(count) if self.builder.has_all_integers() => {
                self.count_lanes(count, reg_type, &args[0])
            }
            OpGroup::Count(count) if !reg_type.is_wide() => {
                self.each(&args[0], |this, piece| this.count_vector(count, piece))
            }
            OpGroup::Logic(logic) => self.by_pieces(args, |this, args| this.logic(logic, reg_type, args)),
            OpGroup::Integer(op) if !reg_type.is_wide() || has_wide_form(op) => {
                self.by_pieces(args, |this, args| this.integer_op(op, reg_type, args))
            }
            OpGroup::Float(op) => self.by_pieces(args, |this, args| this.float_op(op, reg_type, args)),
            OpGroup::Arithmetic(op) if !(op == Arithmetic::Div && reg_type.is_wide_integer()) => {
                self.by_pieces(args, |this, args| this.arithmetic(op, reg_type, args))
            }
            OpGroup::Shift(_) | OpGroup::Count(_) | OpGroup::Integer(_) | OpGroup::Arithmetic(_) => {
                self.lane_by_lane(op, types, args)
            }
        }
    }

    fn arithmetic(&mut self, op: Arithmetic, reg_type: RegType, args: &[Operand]) -> Operand {
        match reg_type.ty.is_float() {
            true => self.float_arithmetic(op, reg_type, args),
            false => self.integer_arithmetic(op, reg_type, args),
        }
    }
    fn by_pieces(
        &mut self,
        args: &[Pieces],
        mut each: impl FnMut(&mut Self, &[Operand]) -> Operand,
    ) -> Pieces {
        let count = args[0].len();
        let row = |k: usize| -> Vec<Operand> { args.iter().map(|arg| arg[k]).collect() };
        (0..count).map(|k| each(self, &row(k))).collect()
    }

    fn lane_by_lane(&mut self, op: Op, types: &[ValueType], args: &[Pieces]) -> Pieces {
        let Some(result) = op.row().signature.result(types) else { unreachable!("the kernel's types fit") };
        if let Some(routine) = routines::op(op, types) {
            for (pieces, passed) in args.iter().zip([Passed::First, Passed::Second]) {
                self.pass(passed, pieces);
            }
            let number = u64::from(self.code.lanes);
            self.call(routine, Scalars { number, index: None, running: None });
            return self.results(result);
        }
        let mut scalars = Vec::new();
        for lane in 0..self.lanes() {
            let typed = args.iter().zip(types);
            let values: Vec<Operand> = typed.map(|(arg, &ty)| self.scalar_lane(ty, arg, lane)).collect();
            scalars.push(self.scalar_op(op, types, &values));
        }
        self.vector_of_scalars(result, &scalars)
    }

    pub(super) fn constant(&mut self, reg_type: RegType, bits: u64) -> Operand {
        self.builder.constant(self.machine(reg_type), bits)
    }

    fn bits_constant(&mut self, reg_type: RegType, bits: u64) -> Operand {
        let ty = if reg_type.is_wide() { ValueType::U64 } else { ValueType::U32 };
        self.constant(RegType { ty, ..reg_type }, bits)
    }

    fn bits_of(&mut self, reg_type: RegType, value: Operand) -> Operand {
        if reg_type.ty.is_float() {
            self.builder.bitcast(self.machine(reg_type).bits(), value)
        } else {
            value
        }
    }

    pub(super) fn value_of_bits(&mut self, reg_type: RegType, bits: Operand) -> Operand {
        if reg_type.ty.is_float() { self.builder.bitcast(self.machine(reg_type), bits) } else { bits }
    }

    fn each(&mut self, pieces: &[Operand], mut make: impl FnMut(&mut Self, Operand) -> Operand) -> Pieces {
        pieces.iter().map(|&piece| make(self, piece)).collect()
    }
}

/// Whether an op has vector instructions for 64-bit integers.
fn has_wide_form(op: IntegerOp) -> bool {
    match op {
        IntegerOp::Rem | IntegerOp::MulHigh | IntegerOp::ReverseBits => false,
        IntegerOp::SaturatingAdd | IntegerOp::SaturatingSub | IntegerOp::Distance => true,
    }
}
