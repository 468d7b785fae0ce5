//! Value ranges of registers, derived from their definitions: narrow elements, constants, and
//! arithmetic on those. Values known to be small allow shorter instructions.

use crate::schedule::nested;
use crate::vector::{Calc, Inst, Reg, Var, VectorCode};
use vyre_foundation::ir::Op;
use vyre_foundation::types::{DataType, Value, ValueType};

/// Least and greatest value of a 32-bit integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: i64,
    pub(super) most: i64,
}

/// Least and greatest value of a single that is not NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Singles {
    pub(super) least: f32,
    pub(super) most: f32,
}

/// Known ranges of all registers.
pub(super) struct Ranges {
    integers: Vec<Option<Range>>,
    /// Per variable: the range of everything it is set to.
    variables: Vec<Option<Range>>,
    singles: Vec<Option<Singles>>,
}

impl Range {
    fn new(least: i64, most: i64) -> Range {
        Range { least, most }
    }

    fn is_within(self, least: i64, most: i64) -> bool {
        least <= self.least && self.most <= most
    }

    /// Whether it has the same value as a signed and as an unsigned word.
    pub(super) fn is_small(self) -> bool {
        self.is_within(0, i32::MAX.into())
    }

    /// Whether it fits 8 bits, unsigned.
    pub(super) fn is_byte(self) -> bool {
        self.is_within(0, 0xFF)
    }

    /// Whether it fits 16 bits, unsigned.
    pub(super) fn is_half(self) -> bool {
        self.is_within(0, 0xFFFF)
    }

    /// Whether it fits 16 bits, signed.
    pub(super) fn is_signed_half(self) -> bool {
        self.is_within(i16::MIN.into(), i16::MAX.into())
    }
}

impl Singles {
    /// Whether it fits a signed word when truncated.
    pub(super) fn fits_word(self) -> bool {
        -2_147_483_648.0 <= self.least && self.most < 2_147_483_648.0
    }
}

impl Ranges {
    pub(super) fn new(code: &VectorCode) -> Ranges {
        let count = code.regs.len();
        let variables = vec![None; code.vars.len()];
        let mut ranges = Ranges { integers: vec![None; count], variables, singles: vec![None; count] };
        let blocks = code.frame.blocks();
        blocks.iter().for_each(|block| ranges.block(code, block));
        ranges.suppose_variables(code, &blocks);
        ranges
    }

    /// Finds ranges of variables: supposes that a variable stays within what it is set to
    /// independently of variables, and drops what does not hold under that supposition.
    fn suppose_variables(&mut self, code: &VectorCode, blocks: &[&[Inst]]) {
        // A variable that nothing has set yet is zero.
        let mut supposed = vec![Some(Range::new(0, 0)); code.vars.len()];
        for_each_set(blocks, &mut |var, reg| {
            if let (Some(known), Some(more)) = (&mut supposed[var.0 as usize], self.integer(reg)) {
                *known = hull(&[known.least, known.most, more.least, more.most]);
            }
        });
        loop {
            self.variables = supposed.clone();
            blocks.iter().for_each(|block| self.block(code, block));
            for_each_set(blocks, &mut |var, reg| {
                let known = &mut supposed[var.0 as usize];
                let range = self.integer(reg);
                let holds =
                    |known: &Range| range.is_some_and(|range| range.is_within(known.least, known.most));
                *known = known.filter(holds);
            });
            if supposed == self.variables {
                return;
            }
        }
    }

    pub(super) fn variable(&self, var: Var) -> Option<Range> {
        self.variables[var.0 as usize]
    }

    pub(super) fn integer(&self, reg: Reg) -> Option<Range> {
        self.integers[reg.0 as usize]
    }

    pub(super) fn single(&self, reg: Reg) -> Option<Singles> {
        self.singles[reg.0 as usize]
    }

    fn block(&mut self, code: &VectorCode, insts: &[Inst]) {
        for inst in insts {
            match inst {
                Inst::Def(reg, calc) => self.define(code, *reg, calc),
                Inst::If { then, otherwise, .. } => {
                    [then, otherwise].into_iter().for_each(|block| self.block(code, block));
                }
                Inst::Loop { body, next, .. } => [body, next].into_iter().for_each(|b| self.block(code, b)),
                Inst::Lanes { full, tail } => [full, tail].into_iter().for_each(|b| self.block(code, b)),
                Inst::Set(..)
                | Inst::Keep(..)
                | Inst::Store(_)
                | Inst::Tile(_)
                | Inst::Clear { .. }
                | Inst::Break
                | Inst::Continue
                | Inst::EndLanes
                | Inst::EndGroup
                | Inst::Trap(_) => {}
            }
        }
    }

    fn define(&mut self, code: &VectorCode, reg: Reg, calc: &Calc) {
        match code.reg_type(reg).ty {
            ty @ (ValueType::U32 | ValueType::I32) => {
                let (least, most) = limits(ty);
                let range = self.range(code, calc, ty).filter(|range| range.is_within(least, most));
                self.integers[reg.0 as usize] = range;
            }
            ValueType::F32 => {
                let range = self.single_range(code, calc);
                self.singles[reg.0 as usize] =
                    range.filter(|range| !range.least.is_nan() && !range.most.is_nan());
            }
            ValueType::Bool | ValueType::U64 | ValueType::I64 | ValueType::F64 => {}
        }
    }

    fn range(&self, code: &VectorCode, calc: &Calc, ty: ValueType) -> Option<Range> {
        match calc {
            Calc::Const(value) => number(*value).map(|number| Range::new(number, number)),
            Calc::LaneNumbers => Some(Range::new(0, i64::from(code.lanes) - 1)),
            Calc::Load { element, .. } => of_element(*element),
            Calc::First(reg) => self.integer(*reg),
            Calc::Get(var) => self.variable(*var),
            Calc::Op(op, args) => self.of_op(code, *op, args, ty),
            Calc::Source(_)
            | Calc::Recall(_)
            | Calc::Any(_)
            | Calc::All(_)
            | Calc::Len(_)
            | Calc::Tile(..)
            | Calc::Atomic { .. }
            | Calc::Subgroup { .. } => None,
        }
    }

    fn of_op(&self, code: &VectorCode, op: Op, args: &[Reg], ty: ValueType) -> Option<Range> {
        let (least, most) = limits(ty);
        let known = |k: usize| self.integer(args[k]);
        // The range of an operand of which nothing is known.
        let any = |k: usize| known(k).unwrap_or(Range { least, most });
        let constant = |k: usize| known(k).filter(|range| range.least == range.most).map(|range| range.least);
        match op {
            Op::Add => {
                let (a, b) = (known(0)?, known(1)?);
                Some(Range::new(a.least + b.least, a.most + b.most))
            }
            Op::Sub => {
                let (a, b) = (known(0)?, known(1)?);
                Some(Range::new(a.least - b.most, a.most - b.least))
            }
            Op::Mul => {
                let (a, b) = (known(0)?, known(1)?);
                // The product of two words can exceed a signed 64-bit integer; then it exceeds a
                // word as well.
                let ends = [(a.least, b.least), (a.least, b.most), (a.most, b.least), (a.most, b.most)];
                Some(hull(&ends.map(|(a, b)| a.saturating_mul(b))))
            }
            Op::Neg => known(0).map(|a| Range::new(-a.most, -a.least)),
            Op::Abs => known(0).map(|a| {
                let far = a.least.abs().max(a.most.abs());
                Range::new(if a.least <= 0 && a.most >= 0 { 0 } else { a.least.abs().min(a.most.abs()) }, far)
            }),
            Op::Min => {
                let (a, b) = (any(0), any(1));
                Some(Range::new(a.least.min(b.least), a.most.min(b.most)))
            }
            Op::Max => {
                let (a, b) = (any(0), any(1));
                Some(Range::new(a.least.max(b.least), a.most.max(b.most)))
            }
            Op::Clamp => {
                let (x, low, high) = (any(0), any(1), any(2));
                let raised = Range::new(x.least.max(low.least), x.most.max(low.most));
                Some(Range::new(raised.least.min(high.least), raised.most.min(high.most)))
            }
            Op::SatSub if ty == ValueType::U32 => {
                let (a, b) = (any(0), any(1));
                Some(Range::new((a.least - b.most).max(0), (a.most - b.least).max(0)))
            }
            Op::AbsDiff => {
                let (a, b) = (known(0)?, known(1)?);
                Some(Range::new(0, (a.most - b.least).max(b.most - a.least)))
            }
            Op::And => {
                let (a, b) = (any(0), any(1));
                let most = match (a.least >= 0, b.least >= 0) {
                    (true, true) => a.most.min(b.most),
                    (true, false) => a.most,
                    (false, true) => b.most,
                    (false, false) => return None,
                };
                Some(Range::new(0, most))
            }
            Op::Or | Op::Xor => {
                let (a, b) = (known(0)?, known(1)?);
                let ones = |most: i64| (1_i64 << (64 - most.leading_zeros())) - 1;
                (a.least >= 0 && b.least >= 0).then(|| Range::new(0, ones(a.most.max(b.most))))
            }
            Op::Shl => {
                let (a, count) = (known(0)?, constant(1)?);
                (0..32).contains(&count).then(|| Range::new(a.least << count, a.most << count))
            }
            Op::Shr => {
                let (a, count) = (any(0), constant(1)?);
                (0..32).contains(&count).then(|| Range::new(a.least >> count, a.most >> count))
            }
            Op::MulHi if ty == ValueType::U32 => {
                let (a, b) = (any(0), any(1));
                let high = |a: i64, b: i64| ((a as u64 * b as u64) >> 32) as i64;
                Some(Range::new(high(a.least, b.least), high(a.most, b.most)))
            }
            Op::Div => {
                let (a, by) = (any(0), constant(1).filter(|&by| by > 0)?);
                Some(Range::new(a.least / by, a.most / by))
            }
            Op::Rem => {
                let (a, by) = (any(0), constant(1).filter(|&by| by > 0)?);
                let low = if a.least < 0 { -(by - 1) } else { 0 };
                Some(Range::new(low, (by - 1).min(a.most.max(0))))
            }
            Op::Select => {
                let (a, b) = (known(1)?, known(2)?);
                Some(hull(&[a.least, a.most, b.least, b.most]))
            }
            Op::Popcount | Op::Clz | Op::Ctz => Some(Range::new(0, 64)),
            Op::ToU32 | Op::ToI32 => match code.reg_type(args[0]).ty {
                ValueType::Bool => Some(Range::new(0, 1)),
                ValueType::U32 | ValueType::I32 => known(0),
                ValueType::F32 => self
                    .single(args[0])
                    .filter(|range| range.fits_word())
                    .map(|range| Range::new(range.least as i64, range.most as i64)),
                ValueType::U64 | ValueType::I64 | ValueType::F64 => None,
            },
            Op::BitsU32 | Op::BitsI32 if code.reg_type(args[0]).ty != ValueType::F32 => known(0),
            _ => None,
        }
    }

    fn single_range(&self, code: &VectorCode, calc: &Calc) -> Option<Singles> {
        let Calc::Op(op, args) = calc else {
            let Calc::Const(Value::F32(number)) = calc else { return None };
            return Some(Singles { least: *number, most: *number });
        };
        let known = |k: usize| self.single(args[k]);
        let everything = Singles { least: f32::NEG_INFINITY, most: f32::INFINITY };
        // Rounding is monotonic, so the results of the bounds bound the results.
        match op {
            Op::ToF32 => match code.reg_type(args[0]).ty {
                ValueType::U32 | ValueType::I32 => {
                    let range = self.integer(args[0])?;
                    Some(Singles { least: range.least as f32, most: range.most as f32 })
                }
                _ => None,
            },
            Op::Add => {
                let (a, b) = (known(0)?, known(1)?);
                Some(Singles { least: a.least + b.least, most: a.most + b.most })
            }
            Op::Sub => {
                let (a, b) = (known(0)?, known(1)?);
                Some(Singles { least: a.least - b.most, most: a.most - b.least })
            }
            Op::Mul => {
                let (a, b) = (known(0)?, known(1)?);
                let all = [a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most];
                if all.iter().any(|product| product.is_nan()) {
                    return None;
                }
                let least = all.into_iter().fold(f32::INFINITY, f32::min);
                Some(Singles { least, most: all.into_iter().fold(f32::NEG_INFINITY, f32::max) })
            }
            Op::Min | Op::Max => {
                // A NaN operand yields the other operand; two NaNs yield NaN.
                let (a, b) = (known(0), known(1));
                (a.is_some() || b.is_some()).then(|| {
                    // Where one operand is NaN, the result is the other.
                    let (known, other) = (a.or(b).unwrap_or(everything), a.and(b));
                    extreme(*op, known, other)
                })
            }
            Op::Clamp => {
                let (low, high) = (known(1)?, known(2)?);
                let raised = extreme(Op::Max, low, known(0));
                Some(extreme(Op::Min, high, Some(raised)))
            }
            Op::Floor => known(0).map(|a| Singles { least: a.least.floor(), most: a.most.floor() }),
            Op::Ceil => known(0).map(|a| Singles { least: a.least.ceil(), most: a.most.ceil() }),
            Op::Trunc => known(0).map(|a| Singles { least: a.least.trunc(), most: a.most.trunc() }),
            Op::Round => {
                known(0).map(|a| Singles { least: a.least.round_ties_even(), most: a.most.round_ties_even() })
            }
            Op::Neg => known(0).map(|a| Singles { least: -a.most, most: -a.least }),
            Op::Select => {
                let (a, b) = (known(1)?, known(2)?);
                Some(Singles { least: a.least.min(b.least), most: a.most.max(b.most) })
            }
            _ => None,
        }
    }
}

/// Visits what variables are set to.
fn for_each_set(blocks: &[&[Inst]], each: &mut impl FnMut(Var, Reg)) {
    for inst in blocks.iter().copied().flatten() {
        if let Inst::Set(var, reg) = inst {
            each(*var, *reg);
        }
        let nested: Vec<&[Inst]> = nested(inst).into_iter().map(Vec::as_slice).collect();
        for_each_set(&nested, each);
    }
}

/// Minimum or maximum of a known range and another operand; an unknown operand can have any value,
/// including NaN.
fn extreme(op: Op, known: Singles, other: Option<Singles>) -> Singles {
    match (op, other) {
        (Op::Min, Some(other)) => {
            Singles { least: known.least.min(other.least), most: known.most.min(other.most) }
        }
        (Op::Min, None) => Singles { least: f32::NEG_INFINITY, most: known.most },
        (_, Some(other)) => Singles { least: known.least.max(other.least), most: known.most.max(other.most) },
        (_, None) => Singles { least: known.least, most: f32::INFINITY },
    }
}

fn hull(numbers: &[i64]) -> Range {
    let least = numbers.iter().copied().min().unwrap_or(0);
    Range::new(least, numbers.iter().copied().max().unwrap_or(0))
}

fn limits(ty: ValueType) -> (i64, i64) {
    if ty == ValueType::I32 { (i32::MIN.into(), i32::MAX.into()) } else { (0, u32::MAX.into()) }
}

fn number(value: Value) -> Option<i64> {
    match value {
        Value::U32(number) => Some(number.into()),
        Value::I32(number) => Some(number.into()),
        Value::Bool(_) | Value::U64(_) | Value::I64(_) | Value::F32(_) | Value::F64(_) => None,
    }
}

fn of_element(element: DataType) -> Option<Range> {
    match element {
        DataType::U8 => Some(Range::new(0, 0xFF)),
        DataType::I8 => Some(Range::new(-0x80, 0x7F)),
        DataType::U16 => Some(Range::new(0, 0xFFFF)),
        DataType::I16 => Some(Range::new(-0x8000, 0x7FFF)),
        DataType::Bool
        | DataType::U32
        | DataType::I32
        | DataType::U64
        | DataType::I64
        | DataType::F16
        | DataType::Bf16
        | DataType::F32
        | DataType::F64 => None,
    }
}
