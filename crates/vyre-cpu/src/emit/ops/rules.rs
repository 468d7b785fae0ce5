//! Rules for ops on vectors whose operands have a special form: shorter sequences than the general
//! ones.
//!
//! [`RULES`] lists them. A rule applies to certain ops on certain types; its function looks for the
//! special form and returns `None` if there is none. The first rule that gives a result is taken.

use super::super::ranges::Range;
use super::super::{Emitter, Pieces};
use super::Operation;
use crate::op_groups::{Arithmetic, Comparison, Extreme, Inequality, OpGroup};
use crate::piece::{IntOrder, Value as Operand};
use crate::vector::Reg;
use vyre_foundation::ir::Op;
use vyre_foundation::types::{Value, ValueType};

/// A shorter sequence for ops on vectors whose operands have a special form.
struct Rule {
    ops: &'static [Op],
    /// Types of the first operand.
    on: &'static [ValueType],
    emit: fn(&mut Emitter<'_>, &Operation<'_>) -> Option<Pieces>,
}

const FLOATS: &[ValueType] = &[ValueType::F32, ValueType::F64];
const WORDS: &[ValueType] = &[ValueType::U32, ValueType::I32];
const INTEGERS: &[ValueType] = &[ValueType::U32, ValueType::I32, ValueType::U64, ValueType::I64];

/// The rules, from the most to the least specific.
const RULES: [Rule; 9] = [
    Rule {
        ops: &[Op::Shl, Op::Shr, Op::RotateLeft, Op::RotateRight],
        on: INTEGERS,
        emit: |emitter, operation| emitter.shift_together(operation),
    },
    Rule {
        ops: &[Op::Div, Op::Rem],
        on: WORDS,
        emit: |emitter, operation| emitter.divided_by_one(operation),
    },
    Rule {
        ops: &[Op::Min, Op::Max],
        on: FLOATS,
        emit: |emitter, operation| emitter.extreme_with_constant(operation),
    },
    Rule {
        ops: &[Op::Min, Op::Max],
        on: FLOATS,
        emit: |emitter, operation| emitter.extreme_of_numbers(operation),
    },
    Rule {
        ops: &[Op::Select],
        on: &[ValueType::Bool],
        emit: |emitter, operation| emitter.selected_by_order(operation),
    },
    Rule {
        ops: &[Op::ToF32],
        on: &[ValueType::U32],
        emit: |emitter, operation| emitter.float_of_small(operation),
    },
    Rule {
        ops: &[Op::ToU32, Op::ToI32],
        on: &[ValueType::F32],
        emit: |emitter, operation| emitter.word_of_float(operation),
    },
    Rule {
        ops: &[Op::Lt, Op::Le, Op::Gt, Op::Ge],
        on: &[ValueType::U32],
        emit: |emitter, operation| emitter.compared_as_signed(operation),
    },
    Rule {
        ops: &[Op::Lt, Op::Gt],
        on: &[ValueType::U32],
        emit: |emitter, operation| emitter.compared_with_constant(operation),
    },
];

impl Emitter<'_> {
    /// Emits an op on vectors by the first rule that applies.
    pub(super) fn by_rule(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let applies =
            |rule: &&Rule| rule.ops.contains(&operation.op) && rule.on.contains(&operation.types[0]);
        RULES.iter().filter(applies).find_map(|rule| (rule.emit)(self, operation))
    }

    /// A shift of every lane by the same count.
    fn shift_together(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[value, count] = operation.args else { return None };
        let OpGroup::Shift(shift) = operation.group else { return None };
        if self.reg_type(count).vector {
            return None;
        }
        let count = self.scalar(count);
        let pieces = self.vector(value);
        let reg_type = operation.reg_type();
        Some(self.each(&pieces, |this, piece| this.shift(shift, reg_type, piece, count)))
    }

    /// Minimum or maximum with a constant that is neither NaN nor zero: the machine's instruction
    /// suffices.
    fn extreme_with_constant(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[a, b] = operation.args else { return None };
        let OpGroup::Arithmetic(Arithmetic::Extreme(extreme)) = operation.group else { return None };
        let plain = |value: Value| match value {
            Value::F32(x) => !x.is_nan() && x != 0.0,
            Value::F64(x) => !x.is_nan() && x != 0.0,
            Value::Bool(_) | Value::U32(_) | Value::I32(_) | Value::U64(_) | Value::I64(_) => false,
        };
        let known = |reg: Reg| self.constants[reg.0 as usize].is_some_and(plain);
        let (value, bound) = match (known(a), known(b)) {
            (_, true) => (a, b),
            (true, _) => (b, a),
            (false, false) => return None,
        };
        let (values, bounds) = (self.vector(value), self.vector(bound));
        // Operands are ordered so that a NaN fails the comparison and yields the bound.
        let pick = |this: &mut Self, x: Operand, bound: Operand| match extreme {
            Extreme::Min => this.builder.float_min(x, bound),
            Extreme::Max => this.builder.float_max(x, bound),
        };
        Some((0..values.len()).map(|k| pick(self, values[k], bounds[k])).collect())
    }

    /// Minimum or maximum with one operand known not to be NaN.
    fn extreme_of_numbers(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let OpGroup::Arithmetic(Arithmetic::Extreme(extreme)) = operation.group else { return None };
        let args = operation.args;
        let number = args.iter().position(|arg| self.numbers[arg.0 as usize])?;
        let (numbers, others) = (self.vector(args[number]), self.vector(args[1 - number]));
        let reg_type = operation.reg_type();
        let pick = |k: usize| self.extreme_with_number(extreme, reg_type, numbers[k], others[k]);
        Some((0..numbers.len()).map(pick).collect())
    }

    /// `select(a < b, a, b)` and its variants on floats.
    fn selected_by_order(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[condition, yes, no] = operation.args else { return None };
        let (a, b) = self.ordered[condition.0 as usize]?;
        let extreme = if self.is_same(yes, a) && self.is_same(no, b) {
            Extreme::Min
        } else if self.is_same(yes, b) && self.is_same(no, a) {
            Extreme::Max
        } else {
            return None;
        };
        let (low, high) = (self.vector(a), self.vector(b));
        let pick = |this: &mut Self, a: Operand, b: Operand| match extreme {
            Extreme::Min => this.builder.float_min(a, b),
            Extreme::Max => this.builder.float_max(b, a),
        };
        Some((0..low.len()).map(|k| pick(self, low[k], high[k])).collect())
    }

    /// Whether two registers hold the same value: the same register or equal constants.
    fn is_same(&self, a: Reg, b: Reg) -> bool {
        let constant = |reg: Reg| self.constants[reg.0 as usize].map(|value| (value.ty(), value.to_bits()));
        a == b || (constant(a).is_some() && constant(a) == constant(b))
    }

    /// Records a float comparison so that a select on it can be recognised as a minimum or maximum.
    pub(in super::super) fn note_order(&mut self, reg: Reg, op: Op, args: &[Reg]) {
        let &[a, b] = args else { return };
        if self.reg_type(reg).vector && self.reg_type(a).ty.is_float() {
            self.ordered[reg.0 as usize] = match Inequality::of(op) {
                Some(Inequality::Less) => Some((a, b)),
                Some(Inequality::Greater) => Some((b, a)),
                Some(Inequality::LessOrEqual | Inequality::GreaterOrEqual) | None => return,
            };
        }
    }

    /// Conversion of small integers: as signed words, they need no range handling.
    fn float_of_small(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[value] = operation.args else { return None };
        if !self.is_small(value) {
            return None;
        }
        let pieces = self.vector(value);
        let to = self.piece_type(ValueType::F32);
        Some(self.each(&pieces, |this, piece| this.builder.int_to_float(true, to, piece)))
    }

    /// Conversion of floats that fit the integers: truncation without saturation.
    fn word_of_float(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[value] = operation.args else { return None };
        let range = self.ranges.single(value).filter(|range| range.fits_word())?;
        if operation.op == Op::ToU32 && range.least <= -1.0 {
            return None;
        }
        let pieces = self.vector(value);
        Some(self.each(&pieces, |this, piece| this.builder.truncate_pieces(piece)))
    }

    /// Order of small integers: as signed words, they compare in one instruction.
    fn compared_as_signed(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[a, b] = operation.args else { return None };
        let order = Inequality::of(operation.op)?;
        if !self.is_small(a) || !self.is_small(b) {
            return None;
        }
        let (a, b) = (self.vector(a), self.vector(b));
        Some(self.compare_vectors(Comparison::Inequality(order), ValueType::I32, [&a, &b]))
    }

    fn is_small(&self, reg: Reg) -> bool {
        self.ranges.integer(reg).is_some_and(Range::is_small)
    }

    /// Unsigned comparison with a constant: `<= bound - 1` and `>= bound + 1` take fewer
    /// instructions than `<` and `>`.
    fn compared_with_constant(&mut self, operation: &Operation<'_>) -> Option<Pieces> {
        let &[a, b] = operation.args else { return None };
        let known = |reg: Reg| self.constants[reg.0 as usize].and_then(Value::as_u32);
        let (value, bound, below) = match (known(a), known(b)) {
            (_, Some(bound)) => (a, bound, operation.op == Op::Lt),
            (Some(bound), None) => (b, bound, operation.op == Op::Gt),
            (None, None) => return None,
        };
        let (code, nearest) = if below {
            (IntOrder::UnsignedLessOrEqual, bound.checked_sub(1)?)
        } else {
            (IntOrder::UnsignedGreaterOrEqual, bound.checked_add(1)?)
        };
        let nearest = self.constant_piece(ValueType::U32, nearest.into());
        let pieces = self.vector(value);
        Some(self.each(&pieces, |this, piece| this.builder.compare(code, piece, nearest)))
    }
}
