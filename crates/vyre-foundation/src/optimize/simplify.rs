//! Algebraic simplification: applies the op table's laws and a few rules between ops.
//!
//! Every rule is bit-exact for every operand, including NaNs, infinities and signed zeros; rules
//! limited to integers do not hold for floats. The laws come from [`Op::laws`], which the op
//! table's tests verify against the evaluator.

use super::rewrite::{Emitter, RuleOutcome, rewrite};
use crate::kernel::{Def, KernelBody, Operands, ValueId};
use crate::ops::{Law, Op, Signature, SpecialValue, eval};
use crate::types::{Value, ValueType};

/// An op, its operands and its result type.
struct OpSite {
    op: Op,
    operands: Operands,
    result: ValueType,
}

/// Applies laws and rules to every op; each looks one step into its operands.
pub(crate) fn run(body: &mut KernelBody) {
    rewrite(body, &mut |emitter, value, def| {
        let Def::Op(op, operands) = def else { return RuleOutcome::Def(def) };
        let mut site = OpSite { op, operands, result: emitter.body.ty(value) };
        constant_to_the_right(emitter, &mut site);
        let laws = op.laws(emitter.body.ty(site.operands[0]));
        let simpler = laws.iter().find_map(|&law| by_law(emitter, &site, law));
        let simpler = simpler.or_else(|| by_rules(emitter, &site));
        simpler.unwrap_or(RuleOutcome::Def(Def::Op(op, site.operands)))
    });
}

fn op(op: Op, operands: &[ValueId]) -> RuleOutcome {
    RuleOutcome::Def(Def::Op(op, Operands::new(operands)))
}

/// Moves the constant operand of a commutative op to the right, where the rules expect it.
fn constant_to_the_right(emitter: &Emitter, site: &mut OpSite) {
    let operands = &mut site.operands;
    let commutes = site.op.laws(emitter.body.ty(operands[0])).contains(&Law::Commutative);
    if commutes && emitter.constant(operands[0]).is_some() && emitter.constant(operands[1]).is_none() {
        operands.swap(0, 1);
    }
}

fn by_law(emitter: &mut Emitter, site: &OpSite, law: Law) -> Option<RuleOutcome> {
    let (x, y) = (site.operands[0], *site.operands.get(1).unwrap_or(&site.operands[0]));
    let is = |value: ValueId, special: SpecialValue| {
        let constant = emitter.constant(value).map(Value::canonical);
        constant.is_some() && constant == special.of(emitter.body.ty(value))
    };
    let kept = |holds: bool, value: ValueId| holds.then_some(RuleOutcome::Value(value));
    match law {
        Law::Commutative => None,
        Law::Associative => merge_constants(emitter, site.op, x, y),
        Law::Idempotent => kept(x == y, x),
        Law::Involution => emitter.operands_of(x, site.op).map(|inner| RuleOutcome::Value(inner[0])),
        Law::Projection => emitter.operands_of(x, site.op).map(|_| RuleOutcome::Value(x)),
        Law::LeftIdentity(e) => kept(is(x, e), y),
        Law::RightIdentity(e) => kept(is(y, e), x),
        Law::LeftAbsorbing(e) => kept(is(x, e), x),
        Law::RightAbsorbing(e) => kept(is(y, e), y),
        Law::SelfGives(e) if x == y => e.of(site.result).map(|value| RuleOutcome::Def(Def::Const(value))),
        Law::SelfGives(_) => None,
    }
}

/// Merges constants: `f(f(x, c), d) = f(x, f(c, d))`.
fn merge_constants(emitter: &mut Emitter, f: Op, x: ValueId, y: ValueId) -> Option<RuleOutcome> {
    let outer = emitter.constant(y)?;
    let inner = emitter.operands_of(x, f)?;
    let merged = eval(f, &[emitter.constant(inner[1])?, outer])?;
    let merged = emitter.emit_constant(merged);
    Some(op(f, &[inner[0], merged]))
}

fn by_rules(emitter: &mut Emitter, site: &OpSite) -> Option<RuleOutcome> {
    let (f, operands) = (site.op, &site.operands);
    match f.row().signature {
        Signature::Select => select(emitter, operands),
        Signature::Compare(_) => compare(emitter, f, operands),
        Signature::Shift => shift(emitter, f, operands),
        Signature::Cast(to) => cast(emitter, operands[0], to),
        Signature::Bitcast(to) => bitcast(emitter, operands[0], to),
        Signature::Same(..) => same(emitter, f, operands),
        Signature::Test(_) | Signature::Count(_) | Signature::Gives(..) | Signature::Distance => None,
        Signature::Scale | Signature::Field(_) => None,
    }
}

fn select(emitter: &mut Emitter, operands: &Operands) -> Option<RuleOutcome> {
    let [condition, yes, no] = [operands[0], operands[1], operands[2]];
    if yes == no || (emitter.constant(yes).is_some() && emitter.constant(yes) == emitter.constant(no)) {
        return Some(RuleOutcome::Value(yes));
    }
    if let Some(known) = emitter.constant(condition) {
        return Some(RuleOutcome::Value(if known.as_bool()? { yes } else { no }));
    }
    match (emitter.constant(yes), emitter.constant(no)) {
        (Some(Value::Bool(true)), Some(Value::Bool(false))) => return Some(RuleOutcome::Value(condition)),
        (Some(Value::Bool(false)), Some(Value::Bool(true))) => return Some(op(Op::Not, &[condition])),
        (Some(_) | None, Some(_) | None) => {}
    }
    if let Some(inner) = emitter.operands_of(condition, Op::Not) {
        return Some(op(Op::Select, &[inner[0], no, yes]));
    }
    // An inner select on the same condition is already decided.
    let decided = |value: ValueId, side: usize| {
        let inner = emitter.operands_of(value, Op::Select).filter(|inner| inner[0] == condition);
        inner.map(|inner| inner[side])
    };
    match (decided(yes, 1), decided(no, 2)) {
        (None, None) => None,
        (new_yes, new_no) => Some(op(Op::Select, &[condition, new_yes.unwrap_or(yes), new_no.unwrap_or(no)])),
    }
}

fn compare(emitter: &mut Emitter, f: Op, operands: &Operands) -> Option<RuleOutcome> {
    let (x, y) = (operands[0], operands[1]);
    let ty = emitter.body.ty(x);
    if x == y {
        // A NaN is neither equal to itself nor below itself.
        let reflexive = match f {
            Op::Eq | Op::Le | Op::Ge => (!ty.is_float()).then_some(true),
            Op::Ne => (!ty.is_float()).then_some(false),
            Op::Lt | Op::Gt => Some(false),
            other => unreachable!("{other:?} is no comparison"),
        };
        return reflexive.map(|holds| RuleOutcome::Def(Def::Const(Value::Bool(holds))));
    }
    let Some(Value::Bool(y)) = emitter.constant(y) else { return None };
    match (f, y) {
        (Op::Eq, true) | (Op::Ne, false) => Some(RuleOutcome::Value(x)),
        (Op::Eq, false) | (Op::Ne, true) => Some(op(Op::Not, &[x])),
        (other, _) => unreachable!("{other:?} does not compare truth values"),
    }
}

fn shift(emitter: &mut Emitter, f: Op, operands: &Operands) -> Option<RuleOutcome> {
    let (x, count) = (operands[0], emitter.constant(operands[1])?.as_u32()?);
    let width = emitter.body.ty(x).bits();
    if count % width == 0 {
        return Some(RuleOutcome::Value(x));
    }
    // Two shifts in the same direction are one, unless the sum reaches the width.
    let inner = emitter.operands_of(x, f)?;
    let total = emitter.constant(inner[1])?.as_u32()? % width + count % width;
    let rotates = matches!(f, Op::RotateLeft | Op::RotateRight);
    if total >= width && !rotates {
        return None;
    }
    let total = emitter.emit_constant(Value::U32(total % width));
    Some(op(f, &[inner[0], total]))
}

fn cast(emitter: &mut Emitter, x: ValueId, to: ValueType) -> Option<RuleOutcome> {
    let from = emitter.body.ty(x);
    if from == to {
        return Some(RuleOutcome::Value(x));
    }
    let Some(Def::Op(inner, operands)) = emitter.definition(x) else { return None };
    let Signature::Cast(middle) = inner.row().signature else { return None };
    let (inner, origin) = (operands[0], emitter.body.ty(operands[0]));
    // Casts between integers keep the low bits, so a wide enough intermediate type has no effect.
    let integers = origin.is_integer() && middle.is_integer() && to.is_integer();
    let keeps_bits = integers && middle.bits() >= to.bits();
    // Every numeric type holds 0 and 1.
    let truth = origin == ValueType::Bool && to == ValueType::Bool;
    (keeps_bits || truth)
        .then(|| if origin == to { RuleOutcome::Value(inner) } else { op(Op::cast(to), &[inner]) })
}

fn bitcast(emitter: &mut Emitter, x: ValueId, to: ValueType) -> Option<RuleOutcome> {
    if emitter.body.ty(x) == to {
        return Some(RuleOutcome::Value(x));
    }
    let Some(Def::Op(inner, operands)) = emitter.definition(x) else { return None };
    let Signature::Bitcast(middle) = inner.row().signature else { return None };
    // Integer bits that pass through a float change if they encode a NaN.
    let inner = operands[0];
    let exact = middle.is_integer() || emitter.body.ty(inner).is_float();
    if !exact {
        return None;
    }
    if emitter.body.ty(inner) == to {
        return Some(RuleOutcome::Value(inner));
    }
    Op::bitcast(to).map(|direct| op(direct, &[inner]))
}

fn same(emitter: &mut Emitter, f: Op, operands: &Operands) -> Option<RuleOutcome> {
    if matches!(f, Op::Add | Op::Sub)
        && emitter.body.ty(operands[0]).is_integer()
        && let Some(simpler) = merge_offsets(emitter, f, operands)
    {
        return Some(simpler);
    }
    let under = |position: usize, op: Op| emitter.operands_of(operands[position], op);
    if f == Op::Not {
        not(emitter, operands[0])
    } else if f == Op::Add {
        // IEEE-754 defines subtraction as addition of the negated operand.
        under(1, Op::Neg).map(|y| op(Op::Sub, &[operands[0], y[0]]))
    } else if f == Op::Sub {
        under(1, Op::Neg).map(|y| op(Op::Add, &[operands[0], y[0]]))
    } else if f == Op::Neg && emitter.body.ty(operands[0]).is_integer() {
        // On floats -(x - x) is -0.0, and x - x is +0.0.
        under(0, Op::Sub).map(|inner| op(Op::Sub, &[inner[1], inner[0]]))
    } else {
        None
    }
}

/// Merges integer offsets: `(x + y) - y = x`, and `(x + 3) - 1 = x + 2`. This is exact because sums
/// and differences wrap. The remaining offset uses the smaller constant, since `x - 1` gives a
/// tighter range than `x + 4294967295`.
fn merge_offsets(emitter: &mut Emitter, f: Op, operands: &Operands) -> Option<RuleOutcome> {
    let (x, y) = (operands[0], operands[1]);
    let opposite = if f == Op::Add { Op::Sub } else { Op::Add };
    if let Some(inner) = emitter.operands_of(x, opposite) {
        if inner[1] == y {
            return Some(RuleOutcome::Value(inner[0]));
        }
        if f == Op::Sub && inner[0] == y {
            return Some(RuleOutcome::Value(inner[1]));
        }
    }
    let outer = emitter.constant(y)?;
    let (inner_op, inner) = [Op::Add, Op::Sub]
        .into_iter()
        .find_map(|inner_op| emitter.operands_of(x, inner_op).map(|inner| (inner_op, inner)))?;
    let zero = Value::zero(outer.ty());
    let added = |op: Op, constant: Value| eval(op, &[zero, constant]);
    let offset = eval(Op::Add, &[added(inner_op, emitter.constant(inner[1])?)?, added(f, outer)?])?;
    if offset == zero {
        return Some(RuleOutcome::Value(inner[0]));
    }
    let taken = added(Op::Sub, offset)?;
    let (f, offset) = if taken.to_bits() < offset.to_bits() { (Op::Sub, taken) } else { (Op::Add, offset) };
    let offset = emitter.emit_constant(offset);
    Some(op(f, &[inner[0], offset]))
}

/// The negated comparison; an order has one only if neither operand can be a NaN.
fn not(emitter: &mut Emitter, x: ValueId) -> Option<RuleOutcome> {
    const OPPOSITES: [(Op, Op); 3] = [(Op::Eq, Op::Ne), (Op::Lt, Op::Ge), (Op::Le, Op::Gt)];
    let Some(&Def::Op(inner, operands)) = emitter.definition(x) else { return None };
    let is_order = !matches!(inner, Op::Eq | Op::Ne);
    if is_order && emitter.body.ty(operands[0]).is_float() {
        return None;
    }
    let opposite = OPPOSITES
        .iter()
        .find_map(|&(one, other)| if inner == one { Some(other) } else { (inner == other).then_some(one) });
    opposite.map(|opposite| op(opposite, &operands))
}
