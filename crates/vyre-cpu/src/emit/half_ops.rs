//! Ops, loads and stores of vectors in 16-bit lanes, as `half_lanes` found them.

use super::half_lanes::{Factor, HalfOp, stores_half_fields, stores_halves};
use super::narrow::{Width, narrow};
use super::ranges::Range;
use super::{Emitter, Pieces};
use crate::op_groups::Logic;
use crate::piece::{I32, Lane, Type, Value as Operand};
use crate::vector::{Reg, Store, Var};
use vyre_foundation::kernel::BufferId;
use vyre_foundation::types::{DataType, Value, ValueType};

/// Fields of a store in half lanes.
pub(super) enum HalfFields {
    Two([Pieces; 2]),
    Three([Pieces; 3]),
    Four([Pieces; 4]),
}

impl Emitter<'_> {
    fn half_type(&self) -> Type {
        self.builder.piece(Lane::I16)
    }

    /// Returns a register in half lanes: one held that way, or a uniform value.
    fn half(&mut self, reg: Reg) -> Pieces {
        if let Some(pieces) = &self.half_values[reg.0 as usize] {
            return pieces.clone();
        }
        let count = self.lanes() / self.half_type().lane_count() as usize;
        let ty = self.half_type();
        let piece = match self.constants[reg.0 as usize] {
            Some(value) => self.builder.constant(ty, value.to_bits() & 0xFFFF),
            None => {
                let scalar = self.scalar(reg);
                let low = self.builder.reduce(ty.lane_type(), scalar);
                self.builder.splat(ty, low)
            }
        };
        vec![piece; count]
    }

    /// Records a constant in half lanes.
    pub(super) fn set_half_constant(&mut self, reg: Reg, value: Value) {
        let ty = self.half_type();
        let piece = self.builder.constant(ty, value.to_bits() & 0xFFFF);
        self.half_values[reg.0 as usize] = Some(vec![piece; self.lanes() / ty.lane_count() as usize]);
    }

    /// Records a register in half lanes and returns it in full lanes.
    pub(super) fn set_half(&mut self, reg: Reg, halves: Pieces) -> Pieces {
        let is_signed = self.reg_type(reg).ty == ValueType::Bool
            || self.ranges.integer(reg).is_some_and(|range| range.least < 0);
        let wide = halves.iter().flat_map(|&piece| self.builder.widen(is_signed, piece)).collect();
        self.half_values[reg.0 as usize] = Some(halves);
        wide
    }

    /// Emits an op on half lanes; returns its result in full lanes.
    pub(super) fn half_operation(&mut self, reg: Reg, op: HalfOp, args: &[Reg]) -> Pieces {
        let values: Vec<Pieces> = args.iter().map(|&arg| self.half(arg)).collect();
        let halves = (0..values[0].len())
            .map(|k| {
                let operands = std::array::from_fn(|arg| values.get(arg).map_or(values[0][k], |v| v[k]));
                self.half_piece(op, operands)
            })
            .collect();
        self.set_half(reg, halves)
    }

    fn half_piece(&mut self, op: HalfOp, [x, y, z]: [Operand; 3]) -> Operand {
        let ty = self.half_type();
        match op {
            HalfOp::Add => self.builder.add(x, y),
            HalfOp::Sub => self.builder.sub(x, y),
            HalfOp::Mul => self.builder.mul(x, y),
            HalfOp::Neg => self.builder.neg(x),
            HalfOp::Logic(Logic::And) => self.builder.and(x, y),
            HalfOp::Logic(Logic::Or) => self.builder.or(x, y),
            HalfOp::Logic(Logic::Xor) => self.builder.xor(x, y),
            HalfOp::Logic(Logic::Not) => self.builder.not(x),
            HalfOp::ShiftLeft(count) => self.builder.shift_left_const(x, count),
            HalfOp::ShiftRight { count, signed: true } => {
                let count = self.builder.int(I32, count.into());
                self.builder.shift_right_signed(x, count)
            }
            HalfOp::ShiftRight { count, signed: false } => self.builder.shift_right_const(x, count),
            HalfOp::Min { signed } => self.builder.int_min(signed, x, y),
            HalfOp::Max { signed } => self.builder.int_max(signed, x, y),
            HalfOp::Clamp { signed } => {
                let raised = self.builder.int_max(signed, x, y);
                self.builder.int_min(signed, raised, z)
            }
            HalfOp::Distance { signed } => {
                let more = self.builder.int_max(signed, x, y);
                let less = self.builder.int_min(signed, x, y);
                self.builder.sub(more, less)
            }
            HalfOp::Abs => {
                let opposite = self.builder.neg(x);
                self.builder.int_max(true, x, opposite)
            }
            HalfOp::MulHigh(Factor { number, shift }) => {
                let number = self.builder.constant(ty, number.into());
                let high = self.builder.mul_high(false, x, number);
                self.builder.shift_right_const(high, shift)
            }
            HalfOp::SaturatingSub => {
                let more = self.builder.int_max(false, x, y);
                self.builder.sub(more, y)
            }
            HalfOp::Compare(order) => self.builder.compare(order, x, y),
            HalfOp::Select => self.builder.choose(x, y, z),
            HalfOp::OfBool => {
                let one = self.builder.constant(ty, 1);
                self.builder.and(x, one)
            }
            HalfOp::Same => x,
        }
    }

    /// Machine types of a variable in half lanes.
    pub(super) fn half_variable_types(&self) -> Vec<Type> {
        let ty = self.half_type();
        vec![ty; self.lanes() / ty.lane_count() as usize]
    }

    /// Returns the fields of a store in half lanes, if all of them are.
    pub(super) fn half_fields(&mut self, store: &Store) -> Option<HalfFields> {
        let fields: Vec<Reg> = std::iter::once(store.value).chain(store.more.iter().copied()).collect();
        let is_half = |reg: &Reg| self.half_values[reg.0 as usize].is_some() || !self.reg_type(*reg).vector;
        let some = fields.iter().any(|reg| self.half_values[reg.0 as usize].is_some());
        if !(stores_half_fields(store) && some && fields.iter().all(is_half)) {
            return None;
        }
        match fields[..] {
            [a, b] => Some(HalfFields::Two([a, b].map(|reg| self.half(reg)))),
            [a, b, c] => Some(HalfFields::Three([a, b, c].map(|reg| self.half(reg)))),
            [a, b, c, d] => Some(HalfFields::Four([a, b, c, d].map(|reg| self.half(reg)))),
            _ => None,
        }
    }

    /// Joins two fields of bytes in each half lane, the first lower.
    pub(super) fn paired_halves(&mut self, low: &[Operand], high: &[Operand]) -> Pieces {
        let kept = self.builder.constant(self.half_type(), 0xFF);
        low.iter()
            .zip(high)
            .map(|(&low, &high)| {
                let low = self.builder.and(low, kept);
                let high = self.builder.shift_left_const(high, 8);
                self.builder.or(low, high)
            })
            .collect()
    }

    /// Writes a variable that is held in half lanes.
    pub(super) fn set_half_variable(&mut self, var: Var, reg: Reg) {
        let is_half = self.half_values[reg.0 as usize].is_some() || !self.reg_type(reg).vector;
        let pieces = if is_half {
            self.half(reg)
        } else {
            let pieces = self.vector(reg);
            self.lower_halves(&pieces)
        };
        for (variable, piece) in self.vars[var.0 as usize].clone().into_iter().zip(pieces) {
            self.builder.set(variable, piece);
        }
    }

    /// Reads a variable that is held in half lanes; returns it in full lanes.
    pub(super) fn get_half_variable(&mut self, reg: Reg, var: Var) -> Pieces {
        let variables = self.vars[var.0 as usize].clone();
        let halves = variables.into_iter().map(|variable| self.builder.get(variable)).collect();
        self.set_half(reg, halves)
    }

    /// Loads narrow elements at a small stride into half lanes; returns them in full lanes.
    pub(super) fn load_strided_halves(
        &mut self,
        reg: Reg,
        buffer: BufferId,
        element: DataType,
        (base, stride): (Reg, i32),
        checked: bool,
    ) -> Pieces {
        let halves = match self.fields.get(&reg).copied().filter(|_| !checked) {
            Some(field) => {
                let address = self.start_of_record(reg, field, (buffer, element), base);
                self.picked_halves(element, address, stride, Some(field))
            }
            None => self.load_strided_as(buffer, element, (base, stride), checked, Width::Half),
        };
        self.set_half(reg, halves)
    }

    /// Loads consecutive narrow elements into half lanes; returns them in full lanes.
    pub(super) fn load_halves(
        &mut self,
        reg: Reg,
        buffer: BufferId,
        element: DataType,
        (base, checked): (Reg, bool),
    ) -> Pieces {
        let halves = self.load_wide_as(buffer, element, base, checked, Width::Half);
        self.set_half(reg, halves)
    }

    /// Loads half lanes from memory that is in range.
    pub(super) fn half_pieces(&mut self, element: DataType, address: Operand) -> Pieces {
        let Some(from) = narrow(element) else { unreachable!("only narrow elements are held in half lanes") };
        let ty = self.half_type();
        let count = self.lanes() as i32 / ty.lane_count() as i32;
        let step = ty.lane_count() as i32 * i32::from(from.bytes);
        (0..count)
            .map(|k| match from.bytes {
                1 => self.builder.load_narrow(ty, from, address, step * k),
                _ => self.builder.load(ty, address, step * k),
            })
            .collect()
    }

    /// Packs the lower halves of full lanes.
    pub(super) fn lower_halves(&mut self, pieces: &[Operand]) -> Pieces {
        let kept = self.constant_piece(ValueType::U32, 0xFFFF);
        pieces
            .chunks(2)
            .map(|pair| {
                let [low, high] = [pair[0], pair[1]].map(|piece| self.builder.and(piece, kept));
                self.builder.pack(low, high)
            })
            .collect()
    }

    /// Returns the value and the mask of a store in half lanes, if the value is held there.
    pub(super) fn masked_halves(&mut self, store: &Store, mask: Reg) -> Option<(Pieces, Pieces)> {
        let is_half = self.half_values[store.value.0 as usize].is_some();
        if !stores_halves(store) || !is_half {
            return None;
        }
        let masks = match &self.half_values[mask.0 as usize] {
            Some(masks) => masks.clone(),
            None => {
                let masks = self.vector(mask);
                self.lower_halves(&masks)
            }
        };
        Some((self.half(store.value), masks))
    }

    /// Stores narrow elements held in half lanes; returns whether they were.
    pub(super) fn store_halves(&mut self, store: &Store, address: Operand) -> bool {
        if !stores_halves(store) {
            return false;
        }
        let Some(mut pieces) = self.half_values[store.value.0 as usize].clone() else { return false };
        let ty = self.half_type();
        if store.element.size() == 2 {
            self.store_pieces(&pieces, address, 0);
            return true;
        }
        if !self.ranges.integer(store.value).is_some_and(Range::is_byte) {
            let kept = self.builder.constant(ty, 0xFF);
            pieces.iter_mut().for_each(|piece| *piece = self.builder.and(*piece, kept));
        }
        self.builder.store_half_pieces(&pieces, address);
        true
    }
}
