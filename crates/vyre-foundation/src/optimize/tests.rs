//! Tests arithmetic rewrites against the evaluator, at the limits of every type and in between.

use super::{Pass, Schedule, Target, check, optimize};
use crate::ir::{BufferDecl, Expr, Node, Program};
use crate::kernel::interval::{Interval, transfer};
use crate::kernel::{Def, KernelBody, Stmt, StmtKind};
use crate::ops::{Op, eval};
use crate::types::{Value, ValueType};

/// Values that commonly break ops.
fn samples(ty: ValueType) -> Vec<Value> {
    let small = [0, 1, 2, 3, 5, 7, 8, 10, 31, 32, 33, 63, 64, 100, 255, 256, 641, 65_535, 65_536];
    let bits =
        small.into_iter().flat_map(|x: u64| [x, x.wrapping_neg(), u64::MAX / 2 + x, (u64::MAX / 3) ^ x]);
    match ty {
        ValueType::Bool => [false, true].map(Value::Bool).to_vec(),
        ValueType::U32 | ValueType::I32 => bits
            .flat_map(|x| [x, x ^ 0x8000_0000, x ^ 0x7FFF_FFFF])
            .map(|x| Value::from_bits(ty, x))
            .collect(),
        ValueType::U64 | ValueType::I64 => bits.map(|x| Value::from_bits(ty, x)).collect(),
        ValueType::F32 => {
            [0.0, 1.0, 1.5, 3.0, 0.1, f32::MAX, f32::MIN_POSITIVE, 1e-45, f32::INFINITY, f32::NAN]
                .iter()
                .flat_map(|&x| [Value::F32(x).canonical(), Value::F32(-x).canonical()])
                .collect()
        }
        ValueType::F64 => {
            [0.0, 1.0, 1.5, 3.0, 0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NAN]
                .iter()
                .flat_map(|&x| [Value::F64(x).canonical(), Value::F64(-x).canonical()])
                .collect()
        }
    }
}

/// Operand lists for an op, for every type that it takes, about `most` per type.
fn operand_lists(op: Op, most: usize) -> Vec<Vec<Value>> {
    let arity = op.row().signature.arity();
    let mut lists = Vec::new();
    for ty in ValueType::ALL {
        for second in [ty, ValueType::U32] {
            let types = [ty, second, ty];
            if op.row().signature.result(&types[..arity]).is_none() || (second != ty && arity < 2) {
                continue;
            }
            let columns = types[..arity].iter().map(|&ty| samples(ty)).collect::<Vec<_>>();
            let total: usize = columns.iter().map(Vec::len).product();
            // A stride coprime to the lengths samples every column evenly.
            for n in (0..total).step_by((total / most).max(1) | 1) {
                let mut rest = n;
                let pick = |column: &Vec<Value>| {
                    let value = column[rest % column.len()];
                    rest /= column.len();
                    value
                };
                lists.push(columns.iter().map(pick).collect());
            }
        }
    }
    lists
}

/// The values that a kernel of constant expressions stores after these passes, one per expression.
fn stored(expressions: Vec<Expr>, ty: ValueType, schedule: &Schedule) -> Vec<Value> {
    let out = BufferDecl::output("out", 0, ty.data_type()).with_count(expressions.len() as u32);
    let stores = (0u32..).zip(expressions).map(|(k, expr)| Node::store("out", k, expr)).collect();
    let kernel = Program::wrapped(vec![out], [1, 1, 1], stores).validate().expect("operands fit the op");
    let optimized = optimize(kernel, schedule);
    let StmtKind::Region { body, .. } = &optimized.body[0].kind else { unreachable!("wrapped in a region") };
    let constant = |wanted| {
        body.iter().find_map(|stmt| match &stmt.kind {
            StmtKind::Def(value, Def::Const(constant)) if *value == wanted => Some(*constant),
            _ => None,
        })
    };
    let value = |kind: &StmtKind| if let StmtKind::Store { value, .. } = kind { Some(*value) } else { None };
    body.iter().filter_map(|stmt| value(&stmt.kind)).map(|value| constant(value).expect("folded")).collect()
}

/// Compares the rewritten op with the evaluator.
fn compare(op: Op, lists: &[Vec<Value>], schedule: &Schedule) {
    for ty in ValueType::ALL {
        let expected: Vec<Value> = lists.iter().filter_map(|args| eval(op, args)).collect();
        let wanted: Vec<usize> = (0..lists.len()).filter(|&k| expected[k].ty() == ty).collect();
        for chunk in wanted.chunks(256) {
            let operands = |k: usize| lists[k].iter().map(|&value| Expr::from(value)).collect::<Vec<_>>();
            let expressions = chunk.iter().map(|&k| Expr::op(op, operands(k))).collect();
            for (&k, found) in chunk.iter().zip(stored(expressions, ty, schedule)) {
                assert_eq!(found, expected[k], "{op:?} of {:?}", lists[k]);
            }
        }
    }
}

#[test]
fn decomposed_ops_give_what_the_evaluator_gives() {
    let target = Target { lacking: Op::ALL.to_vec(), ..Target::default() };
    let schedule = Schedule::of(&[Pass::Decompose, Pass::Fold]).with_target(target);
    for &op in Op::ALL.iter().filter(|op| op.row().expansion_error.is_none()) {
        compare(op, &operand_lists(op, 400), &schedule);
    }
}

#[test]
fn divisions_by_constants_give_what_the_evaluator_gives() {
    for slow_division in [false, true] {
        let target = Target { slow_division, ..Target::default() };
        let schedule = Schedule::of(&[Pass::Strength, Pass::Fold]).with_target(target);
        for op in [Op::Div, Op::Rem] {
            compare(op, &operand_lists(op, 4000), &schedule);
        }
    }
}

/// Quotients change at multiples of the divisor, and reciprocals are least exact for large numbers.
#[test]
fn divisions_are_exact_next_to_multiples_of_the_divisor() {
    let target = Target { slow_division: true, ..Target::default() };
    let schedule = Schedule::of(&[Pass::Strength, Pass::Fold]).with_target(target);
    for ty in [ValueType::U32, ValueType::I32, ValueType::U64, ValueType::I64] {
        let most = u64::MAX >> (64 - ty.bits() + u32::from(ty.is_signed_integer()));
        let near_powers = (2..ty.bits() - 1).flat_map(|k| [(1 << k) - 1, (1 << k) + 1, 3 << (k - 1)]);
        let divisors =
            (2..40).chain([641, 1_000, 65_537, most, most - 1, most / 2, most / 3]).chain(near_powers);
        let mut lists = Vec::new();
        for d in divisors.filter(|&d| d <= most) {
            let last = most / d * d;
            for x in [d, d.wrapping_mul(2), most / d / 2 * d, last - d, last]
                .into_iter()
                .flat_map(|x| [x.wrapping_sub(1), x, x.wrapping_add(1)])
            {
                let signed = [
                    (x, d),
                    (x.wrapping_neg(), d),
                    (x, d.wrapping_neg()),
                    (x.wrapping_neg(), d.wrapping_neg()),
                ];
                let pairs = if ty.is_signed_integer() { &signed[..] } else { &signed[..1] };
                lists.extend(
                    pairs.iter().map(|&(x, d)| vec![Value::from_bits(ty, x), Value::from_bits(ty, d)]),
                );
            }
        }
        for op in [Op::Div, Op::Rem] {
            compare(op, &lists, &schedule);
        }
    }
}

#[test]
fn laws_and_rules_give_what_the_evaluator_gives() {
    let schedule = Schedule::of(&[Pass::Simplify, Pass::Fold]);
    for &op in Op::ALL.iter().filter(|op| op.row().expansion_error.is_none()) {
        compare(op, &operand_lists(op, 400), &schedule);
    }
}

#[test]
fn intervals_hold_every_result() {
    for &op in Op::ALL.iter().filter(|op| op.row().expansion_error.is_none()) {
        let lists = operand_lists(op, 600);
        for pair in lists.windows(2) {
            let [low, high] = [&pair[0], &pair[1]];
            if low.iter().zip(high).any(|(a, b)| a.ty() != b.ty()) {
                continue;
            }
            let hull = |(a, b): (&Value, &Value)| {
                let (a, b) = (Interval::of_constant(*a), Interval::of_constant(*b));
                Interval::new(a.low.min(b.low), a.high.max(b.high))
            };
            let args: Vec<Interval> = low.iter().zip(high).map(hull).collect();
            for operands in [low, high] {
                let result = eval(op, operands).expect("operands fit the op");
                let found = transfer(op, &args, operands[0].ty(), result.ty());
                let exact = Interval::of_constant(result);
                assert!(exact.within(found), "{op:?} of {args:?}: {result:?} is outside {found:?}");
            }
        }
    }
}

#[test]
fn the_checker_finds_broken_kernels() {
    let out = BufferDecl::output("out", 0, crate::types::DataType::U32).with_count(4);
    let body = vec![
        Node::let_("a", Expr::invocation_id(0)),
        Node::if_(Expr::var("a").lt(2u32), vec![Node::store("out", 0u32, Expr::var("a") + Expr::u32(1))]),
    ];
    let kernel = Program::wrapped(vec![out], [1, 1, 1], body).validate().expect("valid");
    let broken = |damage: &dyn Fn(&mut KernelBody)| {
        let mut body = kernel.clone().into_body();
        damage(&mut body);
        check::check(&body).err().unwrap_or_default()
    };
    fn statements(body: &mut KernelBody) -> &mut Vec<Stmt> {
        let StmtKind::Region { body, .. } = &mut body.body[0].kind else {
            unreachable!("wrapped in a region")
        };
        body
    }
    assert_eq!(broken(&|_| {}), "");
    assert!(broken(&|body| drop(statements(body).remove(0))).contains("before its definition"));
    assert!(broken(&|body| statements(body).swap(0, 2)).contains("before its definition"));
    let twice = |body: &mut KernelBody| {
        let first = statements(body)[0].clone();
        statements(body).push(first);
    };
    assert!(broken(&twice).contains("defined twice"));
    assert!(broken(&|body| body.values[0].ty = ValueType::F32).contains("is no u32"));
    assert!(broken(&|body| body.values[0].uniform = true).contains("claims to be uniform"));
    let lost = |body: &mut KernelBody| {
        let Some(StmtKind::If { then, .. }) = statements(body).last().map(|stmt| stmt.kind.clone()) else {
            return;
        };
        let last = then.last().cloned();
        statements(body).extend(last);
    };
    assert!(broken(&lost).contains("outside its block"));
}
