//! Rewrites counted loops to count iterations.
//!
//! `for i in from..to step s` becomes `for k in 0..n` with `i = from + k * s`. The trip count n is
//! ⌈(to − from) / s⌉, which always fits in the unsigned type of the counter's width; the products
//! and sums wrap to the exact counter.

use super::{Lines, Steps, constant, rewrite};
use crate::kernel::{Def, KernelBody, Operands, StmtKind, ValueId};
use crate::ops::Op;
use crate::optimize::{definitions, each_stmt, trip_count};
use crate::types::{Value, ValueType};

/// Whether a loop has a step that the target does not support.
pub(super) fn is_needed(body: &KernelBody, steps: Steps) -> bool {
    let definitions = definitions(body);
    let mut found = false;
    each_stmt(&body.body, &mut |stmt| {
        if let StmtKind::For { step, .. } = stmt.kind {
            found |= !steps.allow(constant(&definitions, step));
        }
    });
    found
}

pub(super) fn run(body: &mut KernelBody, steps: Steps) {
    let definitions = definitions(body);
    rewrite(body, &mut |lines, kind| {
        if let StmtKind::For { counter, from, to, step, body } = kind {
            let known = [from, to, step].map(|bound| constant(&definitions, bound));
            if steps.allow(known[2]) {
                return lines.push(StmtKind::For { counter, from, to, step, body });
            }
            let ty = lines.body.ty(counter);
            let rounds = match known {
                [Some(from), Some(to), Some(step)] => fixed_rounds(lines, from, to, step),
                [_, _, step_value] => rounds(lines, [from, to, step], step_value),
            };
            let round = crate::optimize::new_value(lines.body, unsigned(ty));
            let [zero, one] = [Value::zero(unsigned(ty)), Value::one(unsigned(ty))];
            let (zero, one) = (lines.constant(zero), lines.constant(one));
            let mut inner = lines.nested(|lines| {
                let number = signed_like(lines, round, ty);
                let distance = lines.op(Op::Mul, &[number, step]);
                let sum = Def::Op(Op::Add, Operands::new(&[from, distance]));
                lines.push(StmtKind::Def(counter, sum));
            });
            inner.extend(body);
            lines.push(StmtKind::For { counter: round, from: zero, to: rounds, step: one, body: inner });
        } else {
            lines.push(kind);
        }
    });
}

impl Steps {
    fn allow(self, step: Option<Value>) -> bool {
        match (self, step) {
            (Steps::Any, _) => true,
            (Steps::Constant, step) => step.is_some_and(|step| step != Value::zero(step.ty())),
            (Steps::One, step) => step.is_some_and(|step| step == Value::one(step.ty())),
        }
    }
}

fn unsigned(ty: ValueType) -> ValueType {
    if ty.bits() == 64 { ValueType::U64 } else { ValueType::U32 }
}

/// The bits of an integer as the unsigned type.
fn bits(lines: &mut Lines<'_>, value: ValueId) -> ValueId {
    match lines.body.ty(value) {
        ValueType::I32 => lines.op(Op::BitsU32, &[value]),
        ValueType::I64 => lines.op(Op::BitsU64, &[value]),
        ValueType::U32 | ValueType::U64 | ValueType::Bool | ValueType::F32 | ValueType::F64 => value,
    }
}

/// The bits of an unsigned number as the counter's type.
fn signed_like(lines: &mut Lines<'_>, number: ValueId, ty: ValueType) -> ValueId {
    match ty {
        ValueType::I32 => lines.op(Op::BitsI32, &[number]),
        ValueType::I64 => lines.op(Op::BitsI64, &[number]),
        ValueType::U32 | ValueType::U64 | ValueType::Bool | ValueType::F32 | ValueType::F64 => number,
    }
}

fn fixed_rounds(lines: &mut Lines<'_>, from: Value, to: Value, step: Value) -> ValueId {
    let Some(rounds) = trip_count(from, to, step) else { unreachable!("bounds are integers") };
    let is_wide = step.ty().bits() == 64;
    lines.constant(if is_wide { Value::U64(rounds as u64) } else { Value::U32(rounds as u32) })
}

/// The trip count: upwards, and downwards if the step may be negative.
fn rounds(lines: &mut Lines<'_>, [from, to, step]: [ValueId; 3], known: Option<Value>) -> ValueId {
    let zero = Value::zero(lines.body.ty(step));
    let sign = known.and_then(Value::as_integer).map(i128::signum);
    let [low, high, stride] = [from, to, step].map(|bound| bits(lines, bound));
    let none = Value::zero(lines.body.ty(low));
    let mut count = lines.constant(none);
    if sign.is_none_or(|sign| sign > 0) {
        let runs = lines.op(Op::Lt, &[from, to]);
        count = counted(lines, [low, high, stride], runs, count);
    }
    if zero.ty().is_signed_integer() && sign.is_none_or(|sign| sign < 0) {
        let stride = lines.op(Op::Neg, &[step]);
        let stride = bits(lines, stride);
        let runs = lines.op(Op::Gt, &[from, to]);
        let none = lines.constant(none);
        let down = counted(lines, [high, low, stride], runs, none);
        if sign.is_some() {
            return down;
        }
        let zero = lines.constant(zero);
        let falls = lines.op(Op::Lt, &[step, zero]);
        count = lines.op(Op::Select, &[falls, down, count]);
    }
    if sign.is_some_and(|sign| sign != 0) {
        return count;
    }
    let zero = lines.constant(zero);
    let moves = lines.op(Op::Ne, &[step, zero]);
    let none = lines.constant(none);
    lines.op(Op::Select, &[moves, count, none])
}

/// ⌈(end − start) / stride⌉ if the loop runs, otherwise `none`.
fn counted(
    lines: &mut Lines<'_>,
    [start, end, stride]: [ValueId; 3],
    runs: ValueId,
    none: ValueId,
) -> ValueId {
    let one = Value::one(lines.body.ty(start));
    let one = lines.constant(one);
    let distance = lines.op(Op::Sub, &[end, start]);
    let last = lines.op(Op::Sub, &[distance, one]);
    let whole = lines.op(Op::Div, &[last, stride]);
    let rounds = lines.op(Op::Add, &[whole, one]);
    lines.op(Op::Select, &[runs, rounds, none])
}
