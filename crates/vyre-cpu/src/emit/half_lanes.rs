//! Vectors in 16-bit lanes, where ranges allow: narrow elements loaded without widening, arithmetic
//! on twice as many lanes per instruction, and elements stored without narrowing.
//!
//! A register is held in half lanes if it is a load of neighbouring narrow elements, or an op on
//! such registers that half lanes can compute, and either its values fit 16 bits or all its uses
//! depend only on the low 16. Variables that are set to such registers are held the same way. A
//! register in half lanes is also available in full lanes for uses that need them; instruction
//! selection drops an unread copy. A load or variable that has a use in full lanes is held in full
//! lanes; uses of variables where lanes go apart do not count.

use super::narrow::narrow;
use super::ranges::{Range, Ranges};
use super::windows::Column;
use crate::op_groups::{Arithmetic, Extreme, IntegerOp, Logic, OpGroup, Shift};
use crate::piece::IntOrder;
use crate::schedule::{nested, operands};
use crate::vector::{Calc, Index, Inst, Reg, Store, Var, VectorCode};
use hashbrown::{HashMap, HashSet};
use vyre_foundation::ir::Op;
use vyre_foundation::kernel::Place;
use vyre_foundation::types::{DataType, Value, ValueType};

/// What is held in half lanes.
pub(super) struct HalfLanes {
    pub(super) regs: Vec<bool>,
    pub(super) vars: Vec<bool>,
    /// Per register: the op that computes it in half lanes.
    pub(super) ops: Vec<Option<HalfOp>>,
}

/// An op on half lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOp {
    Add,
    Sub,
    Mul,
    Neg,
    Logic(Logic),
    ShiftLeft(u32),
    ShiftRight {
        count: u32,
        signed: bool,
    },
    Min {
        signed: bool,
    },
    Max {
        signed: bool,
    },
    Clamp {
        signed: bool,
    },
    Distance {
        signed: bool,
    },
    Abs,
    /// Unsigned.
    SaturatingSub,
    MulHigh(Factor),
    Compare(IntOrder),
    Select,
    /// 0 or 1 from a mask.
    OfBool,
    /// The operand as it is.
    Same,
}

/// Finds what to hold in half lanes: nothing unless half lanes fill whole pieces of 32 bytes. With
/// smaller pieces, 8 lanes of bytes at a stride of 2 span less than one load, and Cranelift lacks
/// some of the ops.
pub(super) fn half_registers(
    code: &VectorCode,
    ranges: &Ranges,
    columns: &HashMap<Reg, Column>,
    piece_bytes: u32,
) -> HalfLanes {
    let nothing = || HalfLanes {
        regs: vec![false; code.regs.len()],
        vars: vec![false; code.vars.len()],
        ops: vec![None; code.regs.len()],
    };
    if piece_bytes < 32 || !(2 * code.lanes).is_multiple_of(piece_bytes) {
        return nothing();
    }
    let blocks = code.frame.blocks();
    let mut search = Search {
        code,
        ranges,
        columns,
        low: low_is_enough(code, ranges, &blocks),
        half: vec![false; code.regs.len()],
        ops: vec![None; code.regs.len()],
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
            return HalfLanes { regs: search.half, vars: search.vars, ops: search.ops };
        }
    }
    nothing()
}

/// Limit on the search, which otherwise is quadratic in the number of loads; a kernel needs as many
/// rounds as its longest chain of variables that disqualify one another.
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
    let is_word = |arg: &Reg| matches!(code.reg_type(*arg).ty, ValueType::U32 | ValueType::I32);
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
    /// Loads that are columns of records.
    columns: &'a HashMap<Reg, Column>,
    /// Per register: whether its low 16 bits are enough for all uses.
    low: Vec<bool>,
    half: Vec<bool>,
    ops: Vec<Option<HalfOp>>,
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
        let reg_type = self.code.vars[var.0 as usize];
        reg_type.vector
            && matches!(reg_type.ty, ValueType::U32 | ValueType::I32)
            && self.ranges.variable(var).and_then(sign).is_some()
    }

    fn find(&mut self, insts: &[Inst]) {
        for inst in insts {
            if let Inst::Def(reg, calc) = inst {
                let is_vector = self.code.reg_type(*reg).vector;
                self.ops[reg.0 as usize] = match calc {
                    Calc::Op(op, args) if is_vector => self.half_op(*reg, *op, args),
                    _ => None,
                };
                self.half[reg.0 as usize] = is_vector && self.is_half(*reg, calc);
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
            Calc::Load { place: Place::Buffer(_), element, index: Index::Spaced(..), .. } => {
                let is_column = self.columns.contains_key(&reg);
                self.load[reg.0 as usize] && narrow(*element).is_some() && is_column
            }
            Calc::Const(Value::U32(_) | Value::I32(_)) => self.ranges.integer(reg).and_then(sign).is_some(),
            Calc::Get(var) => self.vars[var.0 as usize],
            Calc::Op(..) => self.ops[reg.0 as usize].is_some(),
            _ => false,
        }
    }

    /// Whether a register in half lanes, or a uniform value, can be an operand.
    fn is_operand(&self, reg: Reg) -> bool {
        self.half[reg.0 as usize]
            || !self.code.reg_type(reg).vector && self.ranges.integer(reg).and_then(sign).is_some()
    }

    /// Returns how half lanes compute a register, if they can.
    fn half_op(&self, reg: Reg, op: Op, args: &[Reg]) -> Option<HalfOp> {
        let result_fits = self.code.reg_type(reg).ty == ValueType::Bool
            || self.ranges.integer(reg).and_then(sign).is_some();
        let alike = |args: &[Reg]| {
            let ranges: Option<Vec<Range>> = args.iter().map(|&arg| self.ranges.integer(arg)).collect();
            ranges.and_then(common_sign).is_some()
        };
        let words = |args: &[Reg]| {
            args.iter().all(|arg| matches!(self.code.reg_type(*arg).ty, ValueType::U32 | ValueType::I32))
        };
        let fit = |args: &[Reg]| args.iter().all(|&arg| self.is_operand(arg));
        // The low bits of these ops depend on the low bits of their operands alone.
        let low = |args: &[Reg]| {
            let is_low = |arg: &Reg| self.half[arg.0 as usize] || !self.code.reg_type(*arg).vector;
            (result_fits || self.low[reg.0 as usize]) && args.iter().all(is_low)
        };
        let unsigned = |arg: Reg| self.ranges.integer(arg).is_some_and(Range::is_half);
        let is_ordered = || result_fits && words(args) && fit(args) && alike(args);
        let ranges = args.iter().filter_map(|&arg| self.ranges.integer(arg));
        let signed = matches!(common_sign(ranges), Some(Sign::Signed));
        if !args.iter().any(|arg| self.half[arg.0 as usize]) {
            return None;
        }
        let (half, may) = match OpGroup::of(op) {
            OpGroup::Arithmetic(op) => match op {
                Arithmetic::Add => (HalfOp::Add, words(args) && low(args)),
                Arithmetic::Sub => (HalfOp::Sub, words(args) && low(args)),
                Arithmetic::Mul => (HalfOp::Mul, words(args) && low(args)),
                Arithmetic::Neg => (HalfOp::Neg, words(args) && low(args)),
                Arithmetic::Extreme(Extreme::Min) => (HalfOp::Min { signed }, is_ordered()),
                Arithmetic::Extreme(Extreme::Max) => (HalfOp::Max { signed }, is_ordered()),
                Arithmetic::Clamp => (HalfOp::Clamp { signed }, is_ordered()),
                Arithmetic::Abs => {
                    let is_signed = self.ranges.integer(args[0]).is_some_and(Range::is_signed_half);
                    (HalfOp::Abs, fit(args) && is_signed)
                }
                Arithmetic::Div | Arithmetic::Sign => return None,
            },
            OpGroup::Integer(op) => match op {
                IntegerOp::Distance => (HalfOp::Distance { signed }, is_ordered()),
                IntegerOp::SaturatingSub => {
                    let is_unsigned = self.code.reg_type(reg).ty == ValueType::U32;
                    (HalfOp::SaturatingSub, is_unsigned && fit(args) && args.iter().all(|&arg| unsigned(arg)))
                }
                IntegerOp::MulHigh => {
                    (HalfOp::MulHigh(factor(self.ranges, args)?), self.half[args[0].0 as usize])
                }
                IntegerOp::Rem | IntegerOp::SaturatingAdd | IntegerOp::ReverseBits => return None,
            },
            OpGroup::Logic(logic) => (HalfOp::Logic(logic), low(args) && (words(args) || fit(args))),
            OpGroup::Shift(Shift::Left) => {
                (HalfOp::ShiftLeft(constant_count(self.ranges, args[1])?), words(args) && low(&args[..1]))
            }
            OpGroup::Shift(Shift::Right) => {
                let half = HalfOp::ShiftRight { count: constant_count(self.ranges, args[1])?, signed };
                (half, result_fits && words(args) && fit(&args[..1]) && alike(&args[..1]))
            }
            OpGroup::Compare(comparison) => {
                (HalfOp::Compare(comparison.of_integers(signed)), words(args) && fit(args) && alike(args))
            }
            OpGroup::Select => {
                (HalfOp::Select, self.half[args[0].0 as usize] && words(&args[1..]) && low(&args[1..]))
            }
            OpGroup::Cast(ValueType::U32 | ValueType::I32)
            | OpGroup::Bitcast(ValueType::U32 | ValueType::I32) => {
                let is_bool = self.code.reg_type(args[0]).ty == ValueType::Bool;
                let half = if is_bool { HalfOp::OfBool } else { HalfOp::Same };
                (half, low(args) && (is_bool || words(args)))
            }
            OpGroup::Shift(Shift::RotateLeft | Shift::RotateRight)
            | OpGroup::Float(_)
            | OpGroup::Test(_)
            | OpGroup::Count(_)
            | OpGroup::Cast(_)
            | OpGroup::Bitcast(_) => return None,
        };
        may.then_some(half)
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
                    let is_half = |reg: Reg| self.half[reg.0 as usize] || !self.code.reg_type(reg).vector;
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
pub(super) struct Factor {
    pub(super) number: u16,
    pub(super) shift: u32,
}

/// Finds the factor that gives the same as the high half of a 32-bit product for all values of the
/// first operand. That is how a division by a constant arrives here.
fn factor(ranges: &Ranges, args: &[Reg]) -> Option<Factor> {
    // All values are tried: at most 2^14 multiplications.
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
pub(super) fn stores_halves(store: &Store) -> bool {
    matches!(store.place, Place::Buffer(_))
        && matches!(store.index, Index::Consecutive(_))
        && narrow(store.element).is_some()
}

/// Whether a store can take the fields of its elements in half lanes.
pub(super) fn stores_half_fields(store: &Store) -> bool {
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
