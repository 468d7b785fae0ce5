//! Vectors in 16-bit lanes, where ranges allow: narrow elements loaded without widening, arithmetic
//! on twice as many lanes per instruction, and elements stored without narrowing.
//!
//! A register is held in half lanes if its values fit 16 bits and it is a load of consecutive
//! narrow elements or an op on such registers whose low bits depend on nothing else. It is also
//! available in full lanes for uses that need them; instruction selection drops an unread copy. A
//! load that has a use in full lanes is loaded in full lanes.

use super::access::{Width, narrow};
use super::ranges::{Range, Ranges};
use super::{Emitter, Pieces};
use crate::piece::{I32, IntOrder, Lane, Type, Value as Operand};
use crate::schedule::{nested, operands};
use crate::vector::{Calc, Frame, Index, Inst, Reg, Store, VectorCode};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, ValueType};

/// Per register: whether it is held in half lanes; none are unless half lanes fill whole pieces.
pub(super) fn half_registers(code: &VectorCode, ranges: &Ranges, piece_bytes: u32) -> Vec<bool> {
    let mut search =
        Search { code, ranges, half: vec![false; code.regs.len()], load: vec![true; code.regs.len()] };
    if !(2 * code.lanes).is_multiple_of(piece_bytes) {
        return search.half;
    }
    let blocks: Vec<&[Inst]> = match &code.frame {
        Frame::Rows { head, full, tail } => vec![head, full, tail],
        Frame::Groups(body) => vec![body],
    };
    // Each iteration removes at least one load.
    for _ in 0..ROUNDS {
        blocks.iter().for_each(|block| search.find(block));
        let before = search.load.clone();
        blocks.iter().for_each(|block| search.drop_loads(block));
        if search.load == before {
            return search.half;
        }
    }
    vec![false; code.regs.len()]
}

const ROUNDS: usize = 16;

struct Search<'a> {
    code: &'a VectorCode,
    ranges: &'a Ranges,
    half: Vec<bool>,
    /// Per register: whether it can be loaded in half lanes.
    load: Vec<bool>,
}

/// Signedness of a register's values in 16 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Unsigned,
    Signed,
    Either,
}

fn sign(range: Range) -> Option<Sign> {
    match (range.is_half(), range.is_signed_half()) {
        (true, true) => Some(Sign::Either),
        (true, false) => Some(Sign::Unsigned),
        (false, true) => Some(Sign::Signed),
        (false, false) => None,
    }
}

/// Common signedness of several registers, if there is one.
fn common_sign(ranges: impl IntoIterator<Item = Range>) -> Option<Sign> {
    ranges.into_iter().try_fold(Sign::Either, |known, range| match (known, sign(range)?) {
        (Sign::Either, other) | (other, Sign::Either) => Some(other),
        (known, other) => (known == other).then_some(known),
    })
}

impl Search<'_> {
    fn find(&mut self, insts: &[Inst]) {
        for inst in insts {
            if let Inst::Def(reg, calc) = inst {
                self.half[reg.0 as usize] = self.code.shape(*reg).vector && self.is_half(*reg, calc);
            }
            nested(inst).into_iter().for_each(|block| self.find(block));
        }
    }

    fn is_half(&self, reg: Reg, calc: &Calc) -> bool {
        match calc {
            Calc::Load { place: Place::Buffer(_), element, index: Index::Consecutive(_), .. } => {
                self.load[reg.0 as usize] && narrow(*element).is_some()
            }
            Calc::Op(op, args) => self.op_is_half(reg, *op, args),
            _ => false,
        }
    }

    fn op_is_half(&self, reg: Reg, op: Op, args: &[Reg]) -> bool {
        // Operands in half lanes, or uniform values that fit.
        let fits = |arg: &Reg| {
            self.half[arg.0 as usize]
                || !self.code.shape(*arg).vector && self.ranges.integer(*arg).and_then(sign).is_some()
        };
        let result_fits =
            self.code.shape(reg).ty == ValueType::Bool || self.ranges.integer(reg).and_then(sign).is_some();
        let alike = |args: &[Reg]| {
            let ranges: Option<Vec<Range>> = args.iter().map(|&arg| self.ranges.integer(arg)).collect();
            ranges.and_then(common_sign).is_some()
        };
        let words = |args: &[Reg]| {
            args.iter().all(|arg| matches!(self.code.shape(*arg).ty, ValueType::U32 | ValueType::I32))
        };
        let some_half = args.iter().any(|arg| self.half[arg.0 as usize]);
        some_half
            && result_fits
            && args.iter().all(fits)
            && match op {
                Op::Add | Op::Sub | Op::Mul | Op::Neg => words(args),
                Op::And | Op::Or | Op::Xor => true,
                Op::Not => self.code.shape(reg).ty == ValueType::Bool,
                Op::Shl | Op::Shr => words(args) && alike(&args[..1]) && self.count(args[1]).is_some(),
                Op::Min | Op::Max | Op::Clamp | Op::AbsDiff => words(args) && alike(args),
                Op::SatSub => args.iter().all(|&arg| self.ranges.integer(arg).is_some_and(Range::is_half)),
                Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq | Op::Ne => words(args) && alike(args),
                Op::Select => self.half[args[0].0 as usize] && words(&args[1..]),
                Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => {
                    words(args) || self.code.shape(args[0]).ty == ValueType::Bool
                }
                _ => false,
            }
    }

    /// The constant count of a shift, if valid for 16 bits.
    fn count(&self, reg: Reg) -> Option<u32> {
        constant_count(self.ranges, reg)
    }

    /// Removes loads that have a use in full lanes.
    fn drop_loads(&mut self, insts: &[Inst]) {
        for inst in insts {
            let takes_half = match inst {
                Inst::Def(reg, Calc::Op(..)) => self.half[reg.0 as usize],
                Inst::Store(store) => stores_halves(store),
                _ => false,
            };
            if !takes_half {
                operands(inst, &mut |reg| self.load[reg.0 as usize] = false);
            }
            nested(inst).into_iter().for_each(|block| self.drop_loads(block));
        }
    }
}

/// The count of a shift by one constant below 16 in all lanes.
fn constant_count(ranges: &Ranges, reg: Reg) -> Option<u32> {
    let range = ranges.integer(reg)?;
    (range.least == range.most && (0..16).contains(&range.least)).then_some(range.least as u32)
}

/// Whether a store can take its value in half lanes.
fn stores_halves(store: &Store) -> bool {
    matches!(store.place, Place::Buffer(_))
        && matches!(store.index, Index::Consecutive(_))
        && narrow(store.element).is_some()
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
            Some(value) => self.builder.constant(ty, value.to_bits()),
            None => {
                let scalar = self.scalar(reg);
                let low = self.builder.reduce(ty.lane_type(), scalar);
                self.builder.splat(ty, low)
            }
        };
        vec![piece; count]
    }

    /// Records a register in half lanes and returns it in full lanes.
    fn set_half(&mut self, reg: Reg, halves: Pieces) -> Pieces {
        let is_signed = self.shape(reg).ty == ValueType::Bool
            || self.ranges.integer(reg).is_some_and(|range| range.least < 0);
        let wide = halves.iter().flat_map(|&piece| self.builder.widen(is_signed, piece)).collect();
        self.half_values[reg.0 as usize] = Some(halves);
        wide
    }

    /// Emits an op on half lanes; returns its result in full lanes.
    pub(super) fn half_operation(&mut self, reg: Reg, op: Op, args: &[Reg]) -> Pieces {
        let values: Vec<Pieces> = args.iter().map(|&arg| self.half(arg)).collect();
        let ranges: Vec<Range> = args.iter().filter_map(|&arg| self.ranges.integer(arg)).collect();
        let signed = matches!(common_sign(ranges), Some(Sign::Signed));
        let count = args.get(1).and_then(|&arg| constant_count(&self.ranges, arg)).unwrap_or(0);
        let from_bool = self.shape(args[0]).ty == ValueType::Bool;
        let halves = (0..values[0].len())
            .map(|k| {
                let [x, y, z] = std::array::from_fn(|arg| values.get(arg).map_or(values[0][k], |v| v[k]));
                let ty = self.half_type();
                match op {
                    Op::Add => self.builder.add(x, y),
                    Op::Sub => self.builder.sub(x, y),
                    Op::Mul => self.builder.mul(x, y),
                    Op::Neg => self.builder.neg(x),
                    Op::And => self.builder.and(x, y),
                    Op::Or => self.builder.or(x, y),
                    Op::Xor => self.builder.xor(x, y),
                    Op::Not => self.builder.not(x),
                    Op::Shl => self.builder.shift_left_const(x, count),
                    Op::Shr if signed => {
                        let count = self.builder.int(I32, count.into());
                        self.builder.shift_right_signed(x, count)
                    }
                    Op::Shr => self.builder.shift_right_const(x, count),
                    Op::Min => self.builder.int_min(signed, x, y),
                    Op::Max => self.builder.int_max(signed, x, y),
                    Op::Clamp => {
                        let raised = self.builder.int_max(signed, x, y);
                        self.builder.int_min(signed, raised, z)
                    }
                    Op::AbsDiff => {
                        let more = self.builder.int_max(signed, x, y);
                        let less = self.builder.int_min(signed, x, y);
                        self.builder.sub(more, less)
                    }
                    Op::SatSub => {
                        let more = self.builder.int_max(false, x, y);
                        self.builder.sub(more, y)
                    }
                    Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq | Op::Ne => {
                        self.builder.compare(half_order(op, signed), x, y)
                    }
                    Op::Select => self.builder.choose(x, y, z),
                    Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 if from_bool => {
                        let one = self.builder.constant(ty, 1);
                        self.builder.and(x, one)
                    }
                    Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => x,
                    _ => unreachable!("{op:?} is not done in half lanes"),
                }
            })
            .collect();
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

fn half_order(op: Op, signed: bool) -> IntOrder {
    match (op, signed) {
        (Op::Eq, _) => IntOrder::Equal,
        (Op::Ne, _) => IntOrder::NotEqual,
        (Op::Lt, true) => IntOrder::SignedLess,
        (Op::Le, true) => IntOrder::SignedLessOrEqual,
        (Op::Gt, true) => IntOrder::SignedGreater,
        (Op::Ge, true) => IntOrder::SignedGreaterOrEqual,
        (Op::Lt, false) => IntOrder::UnsignedLess,
        (Op::Le, false) => IntOrder::UnsignedLessOrEqual,
        (Op::Gt, false) => IntOrder::UnsignedGreater,
        _ => IntOrder::UnsignedGreaterOrEqual,
    }
}
