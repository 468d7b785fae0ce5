//! Evaluates an expansion for a block of inputs at a time: one tight loop per step, which the
//! compiler vectorises.
//!
//! A value is kept as the bits of one [`LaneWord`] per lane: 32 for expansions of `f32`, 64 for
//! those of `f64`; a `bool` is 0 or 1. Both sides of an `if` process all lanes; only the lanes
//! selected by the condition write locals, and a side that no lane takes is skipped. The result is
//! bit-identical to that of [`vyre_foundation::ops::eval`], which this module's tests check.

use vyre_foundation::kernel::{LocalId, Operands, ValueId};
use vyre_foundation::math::{Compute, Expansion, ExpansionStep};
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::{Value, ValueType};

/// Number of inputs evaluated together; all values of a block fit in the second-level cache.
pub(super) const LANES: usize = 512;

type Lanes<W> = [W; LANES];

/// The storage of a lane: the low bits hold the value, in its own width.
pub(super) trait LaneWord: Copy + Default + Eq {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;

    fn low(self) -> u32 {
        self.bits() as u32
    }
}

impl LaneWord for u32 {
    fn of(bits: u64) -> u32 {
        bits as u32
    }
    fn bits(self) -> u64 {
        self.into()
    }
}

impl LaneWord for u64 {
    fn of(bits: u64) -> u64 {
        bits
    }
    fn bits(self) -> u64 {
        self
    }
}

/// Storage for the values and locals of one expansion.
pub(super) struct Block<W> {
    expansion: &'static Expansion,
    values: Vec<Lanes<W>>,
    locals: Vec<Lanes<W>>,
}

impl<W: LaneWord> Block<W> {
    pub(super) fn new(expansion: &'static Expansion) -> Block<W> {
        let mut block = Block {
            expansion,
            values: vec![[W::default(); LANES]; expansion.values.len()],
            locals: vec![[W::default(); LANES]; expansion.locals.len()],
        };
        block.set_constants(&expansion.steps);
        block
    }

    /// Writes the constants once; no step overwrites a value that another one defines.
    fn set_constants(&mut self, steps: &[ExpansionStep]) {
        for step in steps {
            match step {
                ExpansionStep::Define(id, Compute::Const(value)) => {
                    self.values[id.index()] = [W::of(value.to_bits()); LANES]
                }
                ExpansionStep::Define(_, Compute::Get(_) | Compute::Op(..)) | ExpansionStep::Set(..) => {}
                ExpansionStep::If { then, otherwise, .. } => {
                    self.set_constants(then);
                    self.set_constants(otherwise);
                }
            }
        }
    }

    /// Operand with this index, to be filled before [`Block::run`].
    pub(super) fn input(&mut self, number: usize) -> &mut Lanes<W> {
        &mut self.values[self.expansion.parameters[number].index()]
    }

    /// Evaluates all lanes and returns the results' bits, with canonical NaNs.
    pub(super) fn run(&mut self) -> Lanes<W> {
        let expansion = self.expansion;
        self.steps(&expansion.steps, &[W::of(1); LANES]);
        let result = &self.values[expansion.result.index()];
        match expansion.values[expansion.result.index()] {
            ValueType::F64 => result.map(|x| W::of(canonical_f64(x.bits()))),
            ValueType::F32 => result.map(|x| W::of(canonical(x.low()).into())),
            ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => *result,
        }
    }

    fn steps(&mut self, steps: &[ExpansionStep], mask: &Lanes<W>) {
        for step in steps {
            match step {
                ExpansionStep::Define(_, Compute::Const(_)) => {}
                ExpansionStep::Define(id, Compute::Get(local)) => {
                    self.values[id.index()] = self.locals[local.index()]
                }
                ExpansionStep::Define(id, Compute::Op(op, operands)) => self.define(*id, *op, operands),
                ExpansionStep::Set(local, value) => self.set(*local, *value, mask),
                ExpansionStep::If { condition, then, otherwise } => {
                    let condition = self.values[condition.index()];
                    let mut taken = [W::default(); LANES];
                    two(&mut taken, &condition, mask, |holds, on| holds & on);
                    let mut left = [W::default(); LANES];
                    two(&mut left, &condition, mask, |holds, on| (1 - holds) & on);
                    for (side, lanes) in [(then, taken), (otherwise, left)] {
                        if lanes.contains(&W::of(1)) {
                            self.steps(side, &lanes);
                        }
                    }
                }
            }
        }
    }

    fn set(&mut self, LocalId(local): LocalId, value: ValueId, mask: &Lanes<W>) {
        let value = &self.values[value.index()];
        for ((out, new), on) in self.locals[local as usize].iter_mut().zip(value).zip(mask) {
            *out = if *on == W::of(1) { *new } else { *out };
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
            ValueType::F64 => float_wide(out, op, x, y),
            ValueType::U64 => unsigned_wide(out, op, x, y),
            ValueType::I64 => false,
        };
        if !done {
            let typed: Vec<(ValueType, &Lanes<W>)> =
                operands.iter().map(|operand| (types[operand.index()], &before[operand.index()])).collect();
            lane_by_lane(out, op, &typed);
        }
    }
}

/// Evaluates an op without a dedicated loop by its definition; correct for every op, but slow.
fn lane_by_lane<W: LaneWord>(out: &mut Lanes<W>, op: Op, operands: &[(ValueType, &Lanes<W>)]) {
    for (lane, out) in out.iter_mut().enumerate() {
        let args: Vec<Value> =
            operands.iter().map(|(ty, lanes)| Value::from_bits(*ty, lanes[lane].bits())).collect();
        let value = eval(op, &args).unwrap_or_else(|| unreachable!("validation checked the types"));
        *out = W::of(value.to_bits());
    }
}

fn canonical(bits: u32) -> u32 {
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FC0_0000 } else { bits }
}

fn canonical_f64(bits: u64) -> u64 {
    if bits & (u64::MAX >> 1) > 0x7FF0 << 48 { 0x7FF8 << 48 } else { bits }
}

/// Maps the low 32 bits of every lane.
fn one<W: LaneWord>(out: &mut Lanes<W>, x: &Lanes<W>, f: impl Fn(u32) -> u32) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = W::of(f(x.low()).into());
    }
}

fn two<W: LaneWord>(out: &mut Lanes<W>, x: &Lanes<W>, y: &Lanes<W>, f: impl Fn(u32, u32) -> u32) {
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = W::of(f(x.low(), y.low()).into());
    }
}

/// Maps all bits of every lane.
fn one_wide<W: LaneWord>(out: &mut Lanes<W>, x: &Lanes<W>, f: impl Fn(u64) -> u64) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = W::of(f(x.bits()));
    }
}

fn two_wide<W: LaneWord>(out: &mut Lanes<W>, x: &Lanes<W>, y: &Lanes<W>, f: impl Fn(u64, u64) -> u64) {
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = W::of(f(x.bits(), y.bits()));
    }
}

/// `f32` ops with a dedicated loop; returns `false` for the others.
fn float<W: LaneWord>(out: &mut Lanes<W>, op: Op, x: &Lanes<W>, y: &Lanes<W>) -> bool {
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

/// `f64` ops with a dedicated loop; returns `false` for the others.
fn float_wide<W: LaneWord>(out: &mut Lanes<W>, op: Op, x: &Lanes<W>, y: &Lanes<W>) -> bool {
    const SIGN: u64 = 1 << 63;
    let f = f64::from_bits;
    match op {
        Op::Add => two_wide(out, x, y, |a, b| (f(a) + f(b)).to_bits()),
        Op::Sub => two_wide(out, x, y, |a, b| (f(a) - f(b)).to_bits()),
        Op::Mul => two_wide(out, x, y, |a, b| (f(a) * f(b)).to_bits()),
        Op::Div => two_wide(out, x, y, |a, b| (f(a) / f(b)).to_bits()),
        Op::Neg => one_wide(out, x, |a| a ^ SIGN),
        Op::Abs => one_wide(out, x, |a| a & !SIGN),
        Op::Sqrt => one_wide(out, x, |a| f(a).sqrt().to_bits()),
        Op::Trunc => one_wide(out, x, |a| f(a).trunc().to_bits()),
        Op::Copysign => two_wide(out, x, y, |a, b| a & !SIGN | canonical_f64(b) & SIGN),
        Op::IsNan => one_wide(out, x, |a| f(a).is_nan().into()),
        Op::Eq => two_wide(out, x, y, |a, b| (f(a) == f(b)).into()),
        Op::Ne => two_wide(out, x, y, |a, b| (f(a) != f(b)).into()),
        Op::Lt => two_wide(out, x, y, |a, b| (f(a) < f(b)).into()),
        Op::Le => two_wide(out, x, y, |a, b| (f(a) <= f(b)).into()),
        Op::Gt => two_wide(out, x, y, |a, b| (f(a) > f(b)).into()),
        Op::Ge => two_wide(out, x, y, |a, b| (f(a) >= f(b)).into()),
        Op::BitsU64 | Op::BitsI64 => one_wide(out, x, canonical_f64),
        _ => return false,
    }
    true
}

/// `u64` ops with a dedicated loop; returns `false` for the others.
fn unsigned_wide<W: LaneWord>(out: &mut Lanes<W>, op: Op, x: &Lanes<W>, y: &Lanes<W>) -> bool {
    match op {
        Op::Add => two_wide(out, x, y, u64::wrapping_add),
        Op::Sub => two_wide(out, x, y, u64::wrapping_sub),
        Op::Mul => two_wide(out, x, y, u64::wrapping_mul),
        Op::And => two_wide(out, x, y, |a, b| a & b),
        Op::Or => two_wide(out, x, y, |a, b| a | b),
        Op::Xor => two_wide(out, x, y, |a, b| a ^ b),
        Op::Shl => two_wide(out, x, y, |a, b| a.wrapping_shl(b as u32)),
        Op::Shr => two_wide(out, x, y, |a, b| a.wrapping_shr(b as u32)),
        Op::Eq => two_wide(out, x, y, |a, b| (a == b).into()),
        Op::Lt => two_wide(out, x, y, |a, b| (a < b).into()),
        Op::BitsF64 | Op::BitsI64 => *out = *x,
        _ => return false,
    }
    true
}

/// `u32` ops with a dedicated loop; returns `false` for the others.
fn unsigned<W: LaneWord>(out: &mut Lanes<W>, op: Op, x: &Lanes<W>, y: &Lanes<W>) -> bool {
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
fn signed<W: LaneWord>(out: &mut Lanes<W>, op: Op, x: &Lanes<W>, y: &Lanes<W>) -> bool {
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
fn logical<W: LaneWord>(out: &mut Lanes<W>, op: Op, [x, y, z]: [&Lanes<W>; 3]) -> bool {
    match op {
        Op::And => two(out, x, y, |a, b| a & b),
        Op::Or => two(out, x, y, |a, b| a | b),
        Op::Not => one(out, x, |a| a ^ 1),
        Op::Select => {
            for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
                *out = if *x == W::of(1) { *y } else { *z };
            }
        }
        _ => return false,
    }
    true
}
