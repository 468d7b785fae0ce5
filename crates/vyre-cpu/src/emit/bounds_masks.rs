//! Masks of the consecutive invocations within bounds, as in `if i < len(x)` or around a stencil's
//! border.
//!
//! A few scalar comparisons decide whether all lanes are within bounds, and usually they are, so
//! the mask itself is materialised only where it is read. (If the last lane's number would exceed
//! 2³², the scalar test fails although every lane can be within bounds; the code then uses the
//! mask, which is always correct.)

use super::{Emitter, Pieces};
use crate::op_groups::Inequality;
use crate::piece::{Block, I64, IntOrder, Value as Operand};
use crate::vector::{Calc, Reg};
use vyre_foundation::ir::Op;
use vyre_foundation::types::ValueType;

/// A vector of `u32`: the lane numbers, plus a scalar if there is one.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    from: Option<Reg>,
}

#[derive(Clone, Copy)]
pub(super) enum Guard {
    /// A comparison of such a vector with a scalar.
    Inequality(Inequality, Counted, Reg),
    /// The conjunction of two registers, which are such masks or scalars, and its number of
    /// comparisons and scalars.
    Both(Reg, Reg, usize),
}

/// Masks with more parts are materialised at once, since they can be part of larger ones. A guard
/// on both sides of two axes has 4 parts; `jacobi`, `blur` and `erode` have 5 to 8.
const MOST_PARTS: usize = 8;

impl Emitter<'_> {
    /// Records what a register is; returns whether it is a mask that is materialised later.
    pub(super) fn note_guard(&mut self, reg: Reg, calc: &Calc) -> bool {
        let at = reg.0 as usize;
        match calc {
            Calc::LaneNumbers => self.counted[at] = Some(Counted { from: None }),
            Calc::Op(op, args) if self.reg_type(reg).vector => {
                self.counted[at] = self.counted_sum(*op, args);
                self.guards[at] = self.guard(*op, args).filter(|_| !self.in_loops[at]);
            }
            // Evaluated at its use: a branch tests the comparisons one by one.
            Calc::All(mask) => self.guards[at] = self.guards[mask.0 as usize].filter(|_| !self.in_loops[at]),
            _ => {}
        }
        self.guards[at].is_some()
    }

    fn counted_sum(&self, op: Op, args: &[Reg]) -> Option<Counted> {
        let numbers = |reg: Reg| matches!(self.counted[reg.0 as usize], Some(Counted { from: None }));
        let plain = |reg: Reg| !self.reg_type(reg).vector && self.reg_type(reg).ty == ValueType::U32;
        match (op, args) {
            (Op::Add, &[a, b]) if plain(a) && numbers(b) => Some(Counted { from: Some(a) }),
            (Op::Add, &[a, b]) if numbers(a) && plain(b) => Some(Counted { from: Some(b) }),
            _ => None,
        }
    }

    fn guard(&self, op: Op, args: &[Reg]) -> Option<Guard> {
        if let (Some(order), &[a, b]) = (Inequality::of(op), args) {
            let counted = self.counted[a.0 as usize].filter(|_| !self.reg_type(b).vector);
            return counted.map(|counted| Guard::Inequality(order, counted, b));
        }
        match (op, args) {
            (Op::And, &[a, b]) if self.reg_type(a).ty == ValueType::Bool => {
                let parts = self.parts(a)? + self.parts(b)?;
                (parts <= MOST_PARTS).then_some(Guard::Both(a, b, parts))
            }
            _ => None,
        }
    }

    /// Number of parts of a deferred mask or a scalar.
    fn parts(&self, reg: Reg) -> Option<usize> {
        match self.guards[reg.0 as usize] {
            Some(Guard::Inequality(..)) => Some(1),
            Some(Guard::Both(.., parts)) => Some(parts),
            None => (!self.reg_type(reg).vector).then_some(1),
        }
    }

    /// Branches to `inside` if all lanes are within the bounds, else to `outside`.
    pub(super) fn branch_within(&mut self, guard: Guard, inside: Block, outside: Block) {
        self.leave_outside(guard, outside);
        self.builder.jump(inside, &[]);
    }

    fn leave_outside(&mut self, guard: Guard, outside: Block) {
        let parts = match guard {
            Guard::Inequality(..) => return self.leave_if_not(guard, outside),
            Guard::Both(a, b, _) => [a, b],
        };
        for part in parts {
            match self.guards[part.0 as usize] {
                Some(guard) => self.leave_outside(guard, outside),
                None => {
                    let (holds, inside) = (self.all(part), self.builder.create_block());
                    self.leave_unless(holds, outside, inside);
                    self.builder.begin(inside);
                }
            }
        }
    }

    fn leave_if_not(&mut self, guard: Guard, outside: Block) {
        let (holds, inside) = (self.guard_holds(guard), self.builder.create_block());
        self.leave_unless(holds, outside, inside);
        self.builder.begin(inside);
    }

    /// Whether all lanes are within the bounds.
    pub(super) fn guard_holds(&mut self, guard: Guard) -> Operand {
        let (order, counted, bound) = match guard {
            Guard::Inequality(order, counted, bound) => (order, counted, bound),
            Guard::Both(a, b, _) => {
                let (a, b) = (self.all(a), self.all(b));
                return self.builder.and(a, b);
            }
        };
        let mut may_wrap = false;
        let first = match counted.from {
            None => self.builder.int(I64, 0),
            Some(from) => {
                let from = self.scalar(from);
                // A full vector of a row ends within the domain.
                may_wrap = from != self.position[0] || self.remaining.is_some();
                self.builder.extend_unsigned(I64, from)
            }
        };
        let last = self.builder.add_const(first, i64::from(self.code.lanes) - 1);
        let bound = self.scalar(bound);
        let bound = self.builder.extend_unsigned(I64, bound);
        let is_upper = matches!(order, Inequality::Less | Inequality::LessOrEqual);
        let outermost = if is_upper { last } else { first };
        let within = self.builder.compare(order.of_integers(false), outermost, bound);
        if is_upper || !may_wrap {
            return within;
        }
        // Lanes beyond 2³² wrap to small numbers.
        let no_wrap = self.builder.compare_const(IntOrder::UnsignedLess, last, 1 << 32);
        self.builder.and(within, no_wrap)
    }

    /// Materialises the mask.
    pub(super) fn guard_mask(&mut self, guard: Guard) -> Pieces {
        let (order, counted, bound) = match guard {
            Guard::Inequality(order, counted, bound) => (order, counted, bound),
            Guard::Both(a, b, _) => {
                let (a, b) = (self.vector(a), self.vector(b));
                return a.into_iter().zip(b).map(|(a, b)| self.builder.and(a, b)).collect();
            }
        };
        let mut numbers = self.lane_numbers();
        if let Some(from) = counted.from {
            let from = self.vector(from);
            numbers = from.into_iter().zip(numbers).map(|(a, b)| self.builder.add(a, b)).collect();
        }
        let bounds = self.vector(bound);
        self.compare_words(order, &numbers, &bounds)
    }
}
