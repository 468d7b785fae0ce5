//! Evaluates an expansion for a block of inputs at a time: one tight loop per step, which the
//! compiler vectorises.
//!
//! A value is kept as its 32 bits per lane, `bool` as 0 or 1. Both sides of an `if` process all
//! lanes; only the lanes selected by the condition write locals, and a side that no lane takes is
//! skipped. The result is bit-identical to that of [`vyre_foundation::ops::eval`], which this
//! module's tests check.

use vyre_foundation::kernel::{LocalId, Operands, ValueId};
use vyre_foundation::math::{Compute, Expansion, Step};
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::{Value, ValueType};

/// Number of inputs evaluated together; all values of a block fit in the second-level cache.
pub(super) const LANES: usize = 512;

type Lanes = [u32; LANES];

const CANONICAL_NAN: u32 = 0x7FC0_0000;

/// Storage for the values and locals of one expansion.
pub(super) struct Block {
    expansion: &'static Expansion,
    values: Vec<Lanes>,
    locals: Vec<Lanes>,
}

impl Block {
    pub(super) fn new(expansion: &'static Expansion) -> Block {
        let mut block = Block {
            expansion,
            values: vec![[0; LANES]; expansion.values.len()],
            locals: vec![[0; LANES]; expansion.locals.len()],
        };
        block.set_constants(&expansion.steps);
        block
    }

    /// Writes the constants once; no step overwrites a value that another one defines.
    fn set_constants(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Define(id, Compute::Const(value)) => {
                    self.values[id.index()] = [value.to_bits() as u32; LANES]
                }
                Step::Define(_, Compute::Get(_) | Compute::Op(..)) | Step::Set(..) => {}
                Step::If { then, otherwise, .. } => {
                    self.set_constants(then);
                    self.set_constants(otherwise);
                }
            }
        }
    }

    /// Operand with this index, to be filled before [`Block::run`].
    pub(super) fn input(&mut self, number: usize) -> &mut Lanes {
        &mut self.values[self.expansion.parameters[number].index()]
    }

    /// Evaluates all lanes and returns the results' bits, with canonical NaNs.
    pub(super) fn run(&mut self) -> Lanes {
        let expansion = self.expansion;
        self.steps(&expansion.steps, &[1; LANES]);
        self.values[expansion.result.index()].map(canonical)
    }

    fn steps(&mut self, steps: &[Step], mask: &Lanes) {
        for step in steps {
            match step {
                Step::Define(_, Compute::Const(_)) => {}
                Step::Define(id, Compute::Get(local)) => self.values[id.index()] = self.locals[local.index()],
                Step::Define(id, Compute::Op(op, operands)) => self.define(*id, *op, operands),
                Step::Set(local, value) => self.set(*local, *value, mask),
                Step::If { condition, then, otherwise } => {
                    let condition = self.values[condition.index()];
                    let mut taken = [0; LANES];
                    two(&mut taken, &condition, mask, |holds, on| holds & on);
                    let mut left = [0; LANES];
                    two(&mut left, &condition, mask, |holds, on| (1 - holds) & on);
                    for (side, lanes) in [(then, taken), (otherwise, left)] {
                        if lanes.contains(&1) {
                            self.steps(side, &lanes);
                        }
                    }
                }
            }
        }
    }

    fn set(&mut self, LocalId(local): LocalId, value: ValueId, mask: &Lanes) {
        let value = &self.values[value.index()];
        for ((out, new), on) in self.locals[local as usize].iter_mut().zip(value).zip(mask) {
            *out = if *on == 1 { *new } else { *out };
        }
    }

    fn define(&mut self, id: ValueId, op: Op, operands: &Operands) {
        // A definition comes after its operands, in values as in steps.
        let (before, from) = self.values.split_at_mut(id.index());
        let (types, out) = (&self.expansion.values, &mut from[0]);
        let operand = |k: usize| &before[operands.get(k).unwrap_or(&operands[0]).index()];
        let (x, y, z) = (operand(0), operand(1), operand(2));
        let ty = types[operands[0].index()];
        let done = match ty {
            ValueType::F32 => float(out, op, x, y),
            ValueType::U32 => unsigned(out, op, x, y),
            ValueType::I32 => signed(out, op, x, y),
            ValueType::Bool => logical(out, op, [x, y, z]),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => unreachable!("expansions keep to 32 bits"),
        };
        if !done {
            let typed: Vec<(ValueType, &Lanes)> =
                operands.iter().map(|operand| (types[operand.index()], &before[operand.index()])).collect();
            lane_by_lane(out, op, &typed);
        }
    }
}

/// Evaluates an op without a dedicated loop by its definition; correct for every op, but slow.
fn lane_by_lane(out: &mut Lanes, op: Op, operands: &[(ValueType, &Lanes)]) {
    for (lane, out) in out.iter_mut().enumerate() {
        let args: Vec<Value> =
            operands.iter().map(|(ty, lanes)| Value::from_bits(*ty, lanes[lane].into())).collect();
        let value = eval(op, &args).unwrap_or_else(|| unreachable!("validation checked the types"));
        *out = value.to_bits() as u32;
    }
}

fn canonical(bits: u32) -> u32 {
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { CANONICAL_NAN } else { bits }
}

fn one(out: &mut Lanes, x: &Lanes, f: impl Fn(u32) -> u32) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f(*x);
    }
}

fn two(out: &mut Lanes, x: &Lanes, y: &Lanes, f: impl Fn(u32, u32) -> u32) {
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = f(*x, *y);
    }
}

/// `f32` ops with a dedicated loop; returns `false` for the others.
fn float(out: &mut Lanes, op: Op, x: &Lanes, y: &Lanes) -> bool {
    let f = f32::from_bits;
    match op {
        Op::Add => two(out, x, y, |a, b| (f(a) + f(b)).to_bits()),
        Op::Sub => two(out, x, y, |a, b| (f(a) - f(b)).to_bits()),
        Op::Mul => two(out, x, y, |a, b| (f(a) * f(b)).to_bits()),
        Op::Div => two(out, x, y, |a, b| (f(a) / f(b)).to_bits()),
        Op::Neg => one(out, x, |a| a ^ 0x8000_0000),
        Op::Abs => one(out, x, |a| a & 0x7FFF_FFFF),
        Op::Sqrt => one(out, x, |a| f(a).sqrt().to_bits()),
        Op::Trunc => one(out, x, |a| f(a).trunc().to_bits()),
        Op::Copysign => two(out, x, y, |a, b| a & 0x7FFF_FFFF | canonical(b) & 0x8000_0000),
        Op::IsNan => one(out, x, |a| f(a).is_nan().into()),
        Op::Eq => two(out, x, y, |a, b| (f(a) == f(b)).into()),
        Op::Ne => two(out, x, y, |a, b| (f(a) != f(b)).into()),
        Op::Lt => two(out, x, y, |a, b| (f(a) < f(b)).into()),
        Op::Le => two(out, x, y, |a, b| (f(a) <= f(b)).into()),
        Op::Gt => two(out, x, y, |a, b| (f(a) > f(b)).into()),
        Op::Ge => two(out, x, y, |a, b| (f(a) >= f(b)).into()),
        Op::BitsU32 | Op::BitsI32 => one(out, x, canonical),
        _ => return false,
    }
    true
}

/// `u32` ops with a dedicated loop; returns `false` for the others.
fn unsigned(out: &mut Lanes, op: Op, x: &Lanes, y: &Lanes) -> bool {
    match op {
        Op::Add => two(out, x, y, u32::wrapping_add),
        Op::Sub => two(out, x, y, u32::wrapping_sub),
        Op::Mul => two(out, x, y, u32::wrapping_mul),
        Op::MulHi => two(out, x, y, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        Op::And => two(out, x, y, |a, b| a & b),
        Op::Or => two(out, x, y, |a, b| a | b),
        Op::Xor => two(out, x, y, |a, b| a ^ b),
        Op::Shl => two(out, x, y, u32::wrapping_shl),
        Op::Shr => two(out, x, y, u32::wrapping_shr),
        Op::Clz => one(out, x, u32::leading_zeros),
        Op::Eq => two(out, x, y, |a, b| (a == b).into()),
        Op::Lt => two(out, x, y, |a, b| (a < b).into()),
        Op::BitsF32 | Op::BitsI32 => *out = *x,
        _ => return false,
    }
    true
}

/// `i32` ops with a dedicated loop; returns `false` for the others.
fn signed(out: &mut Lanes, op: Op, x: &Lanes, y: &Lanes) -> bool {
    match op {
        Op::Sub => two(out, x, y, u32::wrapping_sub),
        Op::Max => two(out, x, y, |a, b| (a as i32).max(b as i32) as u32),
        Op::Shl => two(out, x, y, u32::wrapping_shl),
        Op::Shr => two(out, x, y, |a, b| (a as i32).wrapping_shr(b) as u32),
        Op::ToF32 => one(out, x, |a| (a as i32 as f32).to_bits()),
        Op::BitsF32 | Op::BitsU32 => *out = *x,
        _ => return false,
    }
    true
}

/// Ops with a `bool` first operand and a dedicated loop; returns `false` for the others.
fn logical(out: &mut Lanes, op: Op, [x, y, z]: [&Lanes; 3]) -> bool {
    match op {
        Op::And => two(out, x, y, |a, b| a & b),
        Op::Or => two(out, x, y, |a, b| a | b),
        Op::Not => one(out, x, |a| a ^ 1),
        Op::Select => {
            for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
                *out = if *x == 1 { *y } else { *z };
            }
        }
        _ => return false,
    }
    true
}
