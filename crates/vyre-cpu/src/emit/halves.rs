//! Vectors in 16-bit lanes, where ranges allow: narrow elements loaded without widening, arithmetic
//! on twice as many lanes per instruction, and elements stored without narrowing.
//!
//! A register is held in half lanes if it is a load of neighbouring narrow elements, or an op on
//! such registers that half lanes can compute, and either its values fit 16 bits or all its uses
//! depend only on the low 16. Variables that are set to such registers are held the same way. A
//! register in half lanes is also available in full lanes for uses that need them; instruction
//! selection drops an unread copy. A load or variable that has a use in full lanes is held in full
//! lanes; uses of variables where lanes go apart do not count.

use super::narrow::{Width, narrow};
use super::ranges::{Range, Ranges};
use super::{Emitter, Pieces};
use crate::piece::{I32, IntOrder, Lane, Type, Value as Operand};
use crate::schedule::{nested, operands};
use crate::vector::{Calc, Frame, Index, Inst, Reg, Store, Var, VectorCode};
use std::collections::HashSet;
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::{BufferId, Place};
use vyre_foundation::types::{DataType, ValueType};

/// What is held in half lanes.
pub(super) struct Halves {
    pub(super) regs: Vec<bool>,
    pub(super) vars: Vec<bool>,
}

/// Finds what to hold in half lanes: nothing unless half lanes fill whole pieces of 32 bytes. With
/// smaller pieces, 8 lanes of bytes at a stride of 2 span less than one load, and Cranelift lacks
/// some of the ops.
pub(super) fn half_registers(code: &VectorCode, ranges: &Ranges, piece_bytes: u32) -> Halves {
    let nothing = || Halves { regs: vec![false; code.regs.len()], vars: vec![false; code.vars.len()] };
    if piece_bytes < 32 || !(2 * code.lanes).is_multiple_of(piece_bytes) {
        return nothing();
    }
    let blocks: Vec<&[Inst]> = match &code.frame {
        Frame::Rows { head, full, tail } => vec![head, full, tail],
        Frame::Groups(body) => vec![body],
    };
    let mut search = Search {
        code,
        ranges,
        low: low_is_enough(code, ranges, &blocks),
        half: vec![false; code.regs.len()],
        load: vec![true; code.regs.len()],
        vars: Vec::new(),
        read_from: vec![None; code.regs.len()],
        usual: code.inner.into_iter().collect(),
    };
    search.vars = (0..code.vars.len() as u32).map(|var| search.may_be_half(Var(var))).collect();
    // Each iteration removes at least one load or variable.
    for _ in 0..ROUNDS {
        blocks.iter().for_each(|block| search.find(block));
        let before = (search.load.clone(), search.vars.clone());
        let mut set = vec![false; code.vars.len()];
        blocks.iter().for_each(|block| search.drop_full(block, true, &mut set));
        search.vars.iter_mut().zip(set).for_each(|(half, set)| *half &= set);
        if (&search.load, &search.vars) == (&before.0, &before.1) {
            return Halves { regs: search.half, vars: search.vars };
        }
    }
    nothing()
}

const ROUNDS: usize = 16;

/// Per register: whether every use depends only on its low 16 bits.
fn low_is_enough(code: &VectorCode, ranges: &Ranges, blocks: &[&[Inst]]) -> Vec<bool> {
    let mut low = vec![true; code.regs.len()];
    loop {
        let before = low.clone();
        blocks.iter().for_each(|block| strike_full(code, ranges, block, &mut low));
        if low == before {
            return low;
        }
    }
}

/// Strikes registers that have a use which depends on more than the low 16 bits.
fn strike_full(code: &VectorCode, ranges: &Ranges, insts: &[Inst], low: &mut [bool]) {
    // Uses come after definitions, but for variables.
    for inst in insts.iter().rev() {
        nested(inst).into_iter().for_each(|block| strike_full(code, ranges, block, low));
        let mut tolerant: Vec<Reg> = match inst {
            Inst::Def(reg, Calc::Op(op, args)) => low_operands(code, ranges, *op, args, low[reg.0 as usize]),
            Inst::Store(store) if narrow(store.element).is_some() => {
                std::iter::once(store.value).chain(store.more.iter().copied()).collect()
            }
            _ => Vec::new(),
        };
        operands(inst, &mut |reg| match tolerant.iter().position(|&other| other == reg) {
            Some(at) => _ = tolerant.swap_remove(at),
            None => low[reg.0 as usize] = false,
        });
    }
}

/// Operands of an op of which only the low 16 bits matter, given whether only those of the result
/// do.
fn low_operands(code: &VectorCode, ranges: &Ranges, op: Op, args: &[Reg], low: bool) -> Vec<Reg> {
    let is_word = |arg: &Reg| matches!(code.shape(*arg).ty, ValueType::U32 | ValueType::I32);
    let fits = |arg: Reg| ranges.integer(arg).is_some_and(Range::is_half);
    let of_low: &[Reg] = match op {
        Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Or | Op::Xor | Op::Not => args,
        Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => args,
        Op::Shl => &args[..1],
        Op::Select => &args[1..],
        Op::And => {
            return args
                .iter()
                .zip(args.iter().rev())
                .filter(|(arg, other)| is_word(arg) && (low || fits(**other)))
                .map(|(arg, _)| *arg)
                .collect();
        }
        _ => &[],
    };
    of_low.iter().copied().filter(|arg| low && is_word(arg)).collect()
}

struct Search<'a> {
    code: &'a VectorCode,
    ranges: &'a Ranges,
    /// Per register: whether its low 16 bits are enough for all uses.
    low: Vec<bool>,
    half: Vec<bool>,
    /// Per register: whether it can be loaded in half lanes.
    load: Vec<bool>,
    /// Per variable: whether it is held in half lanes.
    vars: Vec<bool>,
    /// Per register: the variable that it is read from.
    read_from: Vec<Option<Var>>,
    /// Conditions that hold in most vectors: all lanes are on one side.
    usual: HashSet<Reg>,
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
    fn may_be_half(&self, var: Var) -> bool {
        let shape = self.code.vars[var.0 as usize];
        shape.vector
            && matches!(shape.ty, ValueType::U32 | ValueType::I32)
            && self.ranges.variable(var).and_then(sign).is_some()
    }

    fn find(&mut self, insts: &[Inst]) {
        for inst in insts {
            if let Inst::Def(reg, calc) = inst {
                self.half[reg.0 as usize] = self.code.shape(*reg).vector && self.is_half(*reg, calc);
                match calc {
                    Calc::Get(var) => self.read_from[reg.0 as usize] = Some(*var),
                    Calc::All(_) => _ = self.usual.insert(*reg),
                    _ => {}
                }
            }
            nested(inst).into_iter().for_each(|block| self.find(block));
        }
    }

    fn is_half(&self, reg: Reg, calc: &Calc) -> bool {
        match calc {
            Calc::Load { place: Place::Buffer(_), element, index: Index::Consecutive(_), .. } => {
                self.load[reg.0 as usize] && narrow(*element).is_some()
            }
            Calc::Load { place: Place::Buffer(_), element, index: Index::Strided(_, stride), .. } => {
                self.load[reg.0 as usize] && picks_halves(*element, *stride)
            }
            Calc::Get(var) => self.vars[var.0 as usize],
            Calc::Op(op, args) => self.op_is_half(reg, *op, args),
            _ => false,
        }
    }

    /// Whether a register in half lanes, or a uniform value, can be an operand.
    fn is_operand(&self, reg: Reg) -> bool {
        self.half[reg.0 as usize]
            || !self.code.shape(reg).vector && self.ranges.integer(reg).and_then(sign).is_some()
    }

    fn op_is_half(&self, reg: Reg, op: Op, args: &[Reg]) -> bool {
        let result_fits =
            self.code.shape(reg).ty == ValueType::Bool || self.ranges.integer(reg).and_then(sign).is_some();
        let alike = |args: &[Reg]| {
            let ranges: Option<Vec<Range>> = args.iter().map(|&arg| self.ranges.integer(arg)).collect();
            ranges.and_then(common_sign).is_some()
        };
        let words = |args: &[Reg]| {
            args.iter().all(|arg| matches!(self.code.shape(*arg).ty, ValueType::U32 | ValueType::I32))
        };
        let fit = |args: &[Reg]| args.iter().all(|&arg| self.is_operand(arg));
        // The low bits of these ops depend on the low bits of their operands alone.
        let low = |args: &[Reg]| {
            let is_low = |arg: &Reg| self.half[arg.0 as usize] || !self.code.shape(*arg).vector;
            (result_fits || self.low[reg.0 as usize]) && args.iter().all(is_low)
        };
        let unsigned = |arg: Reg| self.ranges.integer(arg).is_some_and(Range::is_half);
        let some_half = args.iter().any(|arg| self.half[arg.0 as usize]);
        some_half
            && match op {
                Op::Add | Op::Sub | Op::Mul | Op::Neg => words(args) && low(args),
                Op::And | Op::Or | Op::Xor | Op::Not => low(args) && (words(args) || fit(args)),
                Op::Shl => words(args) && low(&args[..1]) && self.count(args[1]).is_some(),
                Op::Shr => {
                    result_fits
                        && words(args)
                        && fit(&args[..1])
                        && alike(&args[..1])
                        && self.count(args[1]).is_some()
                }
                Op::Min | Op::Max | Op::Clamp | Op::AbsDiff => {
                    result_fits && words(args) && fit(args) && alike(args)
                }
                Op::Abs => fit(args) && self.ranges.integer(args[0]).is_some_and(Range::is_signed_half),
                Op::SatSub => fit(args) && args.iter().all(|&arg| unsigned(arg)),
                Op::MulHi => self.half[args[0].0 as usize] && factor(self.ranges, args).is_some(),
                Op::Lt | Op::Le | Op::Gt | Op::Ge | Op::Eq | Op::Ne => {
                    words(args) && fit(args) && alike(args)
                }
                Op::Select => self.half[args[0].0 as usize] && words(&args[1..]) && low(&args[1..]),
                Op::ToU32 | Op::ToI32 | Op::BitsU32 | Op::BitsI32 => {
                    low(args) && (words(args) || self.code.shape(args[0]).ty == ValueType::Bool)
                }
                _ => false,
            }
    }

    /// The constant count of a shift, if valid for 16 bits.
    fn count(&self, reg: Reg) -> Option<u32> {
        constant_count(self.ranges, reg)
    }

    /// Removes loads and variables that have a use in full lanes. Notes variables that are set to
    /// registers in half lanes; others do not gain.
    fn drop_full(&mut self, insts: &[Inst], usual: bool, set: &mut [bool]) {
        for inst in insts {
            let takes_half = match inst {
                Inst::Def(reg, Calc::Op(..)) => self.half[reg.0 as usize],
                Inst::Set(var, reg) => {
                    let takes = self.vars[var.0 as usize];
                    set[var.0 as usize] |= takes && usual && self.half[reg.0 as usize];
                    takes && self.is_operand(*reg)
                }
                Inst::Store(store) => {
                    let is_half = |reg: Reg| self.half[reg.0 as usize] || !self.code.shape(reg).vector;
                    stores_halves(store)
                        || stores_half_fields(store)
                            && is_half(store.value)
                            && store.more.iter().all(|&reg| is_half(reg))
                }
                _ => false,
            };
            if !takes_half {
                operands(inst, &mut |reg| {
                    self.load[reg.0 as usize] = false;
                    if let Some(var) = self.read_from[reg.0 as usize].filter(|_| usual) {
                        self.vars[var.0 as usize] = false;
                    }
                });
            }
            match inst {
                Inst::If { condition, then, otherwise } if self.usual.contains(condition) => {
                    self.drop_full(then, usual, set);
                    self.drop_full(otherwise, false, set);
                }
                _ => nested(inst).into_iter().for_each(|block| self.drop_full(block, usual, set)),
            }
        }
    }
}

/// The value of a register that has only one.
fn constant(ranges: &Ranges, reg: Reg) -> Option<i64> {
    ranges.integer(reg).filter(|range| range.least == range.most).map(|range| range.least)
}

/// High half of a product with a constant, in half lanes: the high half of a product with
/// `number`, shifted right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Factor {
    number: u16,
    shift: u32,
}

/// Finds the factor that gives the same as the high half of a 32-bit product for all values of the
/// first operand. That is how a division by a constant arrives here.
fn factor(ranges: &Ranges, args: &[Reg]) -> Option<Factor> {
    // All values are tried.
    const MOST: i64 = 1 << 14;
    let range = ranges.integer(args[0]).filter(|range| range.is_half() && range.most <= MOST)?;
    let exact = u64::try_from(constant(ranges, args[1])?).ok().filter(|&exact| exact < 1 << 32)?;
    // As many bits of the constant as fit, rounded up.
    let bits = (64 - exact.leading_zeros()).max(16);
    let number = u16::try_from((exact >> (bits - 16)) + 1).ok()?;
    let shift = 32 - bits;
    let agrees = |x: i64| (x as u64 * exact) >> 32 == (x as u64 * u64::from(number)) >> (16 + shift);
    (shift < 16 && (range.least..=range.most).all(agrees)).then_some(Factor { number, shift })
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

/// Whether a store can take the fields of its elements in half lanes.
fn stores_half_fields(store: &Store) -> bool {
    matches!(store.place, Place::Buffer(_))
        && matches!(store.index, Index::Strided(..))
        && store.element.size() == 1
        && narrow(store.element).is_some()
        && (1..=3).contains(&store.more.len())
}

/// Whether elements at this stride can be picked into half lanes: 16 bytes of lanes take two loads
/// at most.
pub(super) fn picks_halves(element: DataType, stride: i32) -> bool {
    narrow(element).is_some_and(|from| (7 * stride.abs() + 1) * i32::from(from.bytes) <= 32)
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
        let signed = matches!(common_sign(ranges.iter().copied()), Some(Sign::Signed));
        let factor = if op == Op::MulHi { factor(&self.ranges, args) } else { None };
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
                    Op::Abs => {
                        let opposite = self.builder.neg(x);
                        self.builder.int_max(true, x, opposite)
                    }
                    Op::MulHi => {
                        let Some(Factor { number, shift }) = factor else {
                            unreachable!("the search found a factor")
                        };
                        let number = self.builder.constant(ty, number.into());
                        let high = self.builder.mul_high(false, x, number);
                        self.builder.shift_right_const(high, shift)
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

    /// Machine types of a variable in half lanes.
    pub(super) fn half_variable_types(&self) -> Vec<Type> {
        let ty = self.half_type();
        vec![ty; self.lanes() / ty.lane_count() as usize]
    }

    /// Returns the fields of a store in half lanes, if all of them are.
    pub(super) fn half_fields(&mut self, store: &Store) -> Option<Vec<Pieces>> {
        let fields: Vec<Reg> = std::iter::once(store.value).chain(store.more.iter().copied()).collect();
        let is_half = |reg: &Reg| self.half_values[reg.0 as usize].is_some() || !self.shape(*reg).vector;
        let some = fields.iter().any(|reg| self.half_values[reg.0 as usize].is_some());
        if !(stores_half_fields(store) && some && fields.iter().all(is_half)) {
            return None;
        }
        Some(fields.into_iter().map(|reg| self.half(reg)).collect())
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
        let is_half = self.half_values[reg.0 as usize].is_some() || !self.shape(reg).vector;
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
