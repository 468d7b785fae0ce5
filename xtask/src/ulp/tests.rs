//! What continuous integration checks of the expansions: samples of what the sweep does in full, special values, and that
//! the recorded sweep is one of the expansions as they are.

use super::block::{Block, LANES};
use super::record::{Record, docs};
use super::{expanded, measure, sample};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_foundation::math;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::{Value, ValueType};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
const TINY: f32 = f32::from_bits(1);

#[test]
fn errors_are_within_the_bounds_of_the_op_table() {
    for op in expanded() {
        // Primes, so that all exponents and all low bits occur.
        let stride = if op.row().signature.arity() == 1 { 8191 } else { 2003 };
        let error = measure(op, stride, 1).max_ulp;
        let bound = f64::from(op.row().expansion_error.unwrap_or(0.0));
        assert!(error <= bound, "{op:?} is {error} ULP off, its row says {bound}");
    }
}

#[test]
fn the_record_is_of_the_present_expansions() {
    let record = Record::read().expect("docs/ulp.json can be read");
    for op in expanded() {
        let name = op.row().name;
        let Some(measurement) = record.functions.get(name) else {
            panic!("docs/ulp.json lacks {name}; run `cargo xtask ulp {name}`");
        };
        let present = math::fingerprint(op, ValueType::F32);
        assert_eq!(
            Some(&measurement.fingerprint),
            present.as_ref(),
            "{name} has changed since it was measured; run `cargo xtask ulp {name}`"
        );
        let bound = f64::from(op.row().expansion_error.unwrap_or(0.0));
        let found = measurement.max_ulp;
        assert!(
            found <= bound && bound < found + 0.25,
            "{name}: the row says {bound}, the sweep found {found}"
        );
    }
    let page = std::fs::read_to_string(docs("ops.md")).expect("docs/ops.md can be read");
    assert_eq!(record.insert_table(&page).as_ref(), Ok(&page), "docs/ops.md does not show docs/ulp.json");
}

/// Inputs of all kinds for an op; the first operand alone counts for a unary one.
fn inputs(op: Op, count: u64) -> Vec<[u32; 2]> {
    let edges =
        [0.0, TINY, f32::MIN_POSITIVE, 0.5, 1.0, 1.5, 2.0, 3.0, 88.8, 3000.0, 1e10, f32::MAX, INF, NAN];
    let signed: Vec<f32> = edges.into_iter().flat_map(|x| [x, -x]).collect();
    let special = signed.iter().flat_map(|x| signed.iter().map(|y| [x.to_bits(), y.to_bits()]));
    let spread = (0..count).map(|k| [(k * ((1 << 32) / count + 1)) as u32, 0]);
    let pairs = (0..count).map(|k| sample::pair(op, k)).map(|(x, y)| [x.to_bits(), y.to_bits()]);
    if op.row().signature.arity() == 1 {
        special.chain(spread).collect()
    } else {
        special.chain(pairs).collect()
    }
}

/// The results of the sweep's own evaluation.
fn by_block(op: Op, inputs: &[[u32; 2]]) -> Vec<u32> {
    let expansion = math::expansion(op, ValueType::F32).expect("the op has an expansion");
    let mut block = Block::new(expansion);
    let mut results = Vec::with_capacity(inputs.len());
    for chunk in inputs.chunks(LANES) {
        for number in 0..expansion.parameters.len() {
            for (lane, input) in block.input(number).iter_mut().zip(chunk) {
                *lane = input[number];
            }
        }
        results.extend(&block.run()[..chunk.len()]);
    }
    results
}

#[test]
fn blocks_give_what_the_evaluator_gives() {
    for op in expanded() {
        let inputs = inputs(op, 20_000);
        for (input, got) in inputs.iter().zip(by_block(op, &inputs)) {
            let args = input.map(|bits| Value::F32(f32::from_bits(bits)));
            let expected = eval(op, &args[..op.row().signature.arity()]);
            assert_eq!(expected, Some(Value::F32(f32::from_bits(got))), "{op:?} of {args:?}");
        }
    }
}

#[test]
fn the_interpreter_gives_the_same_bits_with_the_op_and_with_its_expansion() {
    for op in expanded() {
        let inputs = inputs(op, 20_000);
        let arity = op.row().signature.arity();
        let columns: Vec<Vec<u8>> =
            (0..arity).map(|k| inputs.iter().flat_map(|input| input[k].to_le_bytes()).collect()).collect();
        let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        let expected: Vec<u8> = by_block(op, &inputs).into_iter().flat_map(u32::to_le_bytes).collect();
        let kernel = one_op(op);
        let expanded = math::expand(&kernel);
        assert!(!expanded.needs.ops.contains(&op.id()), "{op:?} is still there");
        for kernel in [kernel, expanded] {
            let run = vyre_reference::run(&kernel, &columns, &Default::default()).expect("the kernel runs");
            assert!(run.outputs == [expected.as_slice()], "{op:?} differs");
        }
    }
}

/// A kernel that applies the op to each element.
fn one_op(op: Op) -> vyre_foundation::kernel::Kernel {
    let names = &["x", "y"][..op.row().signature.arity()];
    let element = || Expr::invocation_id(0);
    let arguments: Vec<Expr> = names.iter().map(|name| Expr::load(*name, element())).collect();
    let mut buffers: Vec<BufferDecl> = names
        .iter()
        .zip(0..)
        .map(|(name, binding)| BufferDecl::read(*name, binding, DataType::F32))
        .collect();
    buffers.push(BufferDecl::output("out", names.len() as u32, DataType::F32).with_len_of("x"));
    let body = vec![Node::store("out", element(), Expr::op(op, arguments))];
    Program::wrapped(buffers, [64, 1, 1], body).validate().expect("the program is valid")
}

fn check(op: Op, args: &[f32], expected: f32) {
    let values: Vec<Value> = args.iter().map(|arg| Value::F32(*arg)).collect();
    assert_eq!(eval(op, &values), Some(Value::F32(expected).canonical()), "{op:?} of {args:?}");
}

#[test]
fn special_values_of_one_operand() {
    for op in [Op::Sin, Op::Tan, Op::Asin, Op::Atan, Op::Sinh, Op::Tanh] {
        for x in [0.0, TINY, 1e-40, f32::MIN_POSITIVE, 1e-30] {
            check(op, &[x], x);
            check(op, &[-x], -x);
        }
    }
    for op in [Op::Erf, Op::Cbrt] {
        check(op, &[0.0], 0.0);
        check(op, &[-0.0], -0.0);
    }
    for op in expanded().filter(|op| op.row().signature.arity() == 1) {
        check(op, &[NAN], NAN);
    }
    let limits = [
        (Op::Exp, -INF, 0.0),
        (Op::Exp, INF, INF),
        (Op::Exp, 0.0, 1.0),
        (Op::Exp, -0.0, 1.0),
        (Op::Exp, 88.722_84, INF),
        (Op::Exp, -104.0, 0.0),
        (Op::Exp2, -INF, 0.0),
        (Op::Exp2, INF, INF),
        (Op::Exp2, 128.0, INF),
        (Op::Exp2, -149.0, TINY),
        (Op::Exp2, -151.0, 0.0),
        (Op::Log, 0.0, -INF),
        (Op::Log, -0.0, -INF),
        (Op::Log, -TINY, NAN),
        (Op::Log, 1.0, 0.0),
        (Op::Log, INF, INF),
        (Op::Log, -INF, NAN),
        (Op::Log2, 0.0, -INF),
        (Op::Log2, -0.0, -INF),
        (Op::Log2, -1.0, NAN),
        (Op::Log2, 1.0, 0.0),
        (Op::Log2, TINY, -149.0),
        (Op::Log2, INF, INF),
        (Op::Sin, INF, NAN),
        (Op::Sin, -INF, NAN),
        (Op::Cos, INF, NAN),
        (Op::Cos, 0.0, 1.0),
        (Op::Cos, -0.0, 1.0),
        (Op::Tan, -INF, NAN),
        (Op::Asin, 1.000_000_1, NAN),
        (Op::Asin, -INF, NAN),
        (Op::Asin, -1.0, -std::f32::consts::FRAC_PI_2),
        (Op::Acos, 1.0, 0.0),
        (Op::Acos, -1.0, std::f32::consts::PI),
        (Op::Acos, INF, NAN),
        (Op::Atan, INF, std::f32::consts::FRAC_PI_2),
        (Op::Atan, -INF, -std::f32::consts::FRAC_PI_2),
        (Op::Sinh, INF, INF),
        (Op::Sinh, -INF, -INF),
        (Op::Cosh, INF, INF),
        (Op::Cosh, -INF, INF),
        (Op::Cosh, 0.0, 1.0),
        (Op::Tanh, INF, 1.0),
        (Op::Tanh, -INF, -1.0),
        (Op::Erf, INF, 1.0),
        (Op::Erf, -INF, -1.0),
        (Op::Cbrt, INF, INF),
        (Op::Cbrt, -INF, -INF),
    ];
    for (op, x, expected) in limits {
        check(op, &[x], expected);
    }
}

/// C23, F.10.4.5.
#[test]
fn special_values_of_pow() {
    let pow = |x: f32, y: f32, expected: f32| check(Op::Pow, &[x, y], expected);
    for odd in [1.0, 3.0, 16_777_215.0] {
        pow(0.0, -odd, INF);
        pow(-0.0, -odd, -INF);
        pow(0.0, odd, 0.0);
        pow(-0.0, odd, -0.0);
        pow(-INF, -odd, -0.0);
        pow(-INF, odd, -INF);
    }
    for not_odd in [0.5, 2.0, 2.5, 16_777_216.0, f32::MAX, INF] {
        for zero in [0.0, -0.0] {
            pow(zero, -not_odd, INF);
            pow(zero, not_odd, 0.0);
        }
        pow(-INF, -not_odd, 0.0);
        pow(-INF, not_odd, INF);
    }
    for y in [0.0, -0.0, 1.0, -3.5, TINY, f32::MAX, INF, -INF, NAN] {
        pow(1.0, y, 1.0);
    }
    for x in [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, TINY, INF, -INF, NAN] {
        pow(x, 0.0, 1.0);
        pow(x, -0.0, 1.0);
    }
    pow(-1.0, INF, 1.0);
    pow(-1.0, -INF, 1.0);
    for y in [0.5, -0.5, 1.5, TINY, 8_388_607.5] {
        pow(-2.0, y, NAN);
        pow(-TINY, y, NAN);
    }
    for (below, above) in [(0.5, 2.0), (-0.5, -2.0), (0.999_999_94, 1.000_000_1), (TINY, f32::MAX)] {
        pow(below, -INF, INF);
        pow(above, -INF, 0.0);
        pow(below, INF, 0.0);
        pow(above, INF, INF);
    }
    for y in [TINY, 0.5, 1.0, 2.0, f32::MAX, INF] {
        pow(INF, y, INF);
        pow(INF, -y, 0.0);
    }
    for other in [0.0, -0.0, 2.0, -2.0, INF, -INF, NAN] {
        if other != 0.0 {
            pow(NAN, other, NAN);
        }
        pow(other, NAN, NAN);
    }
    pow(-2.0, 3.0, -8.0);
    pow(-2.0, -2.0, 0.25);
    pow(-f32::MAX, 3.0, -INF);
    pow(-TINY, 3.0, -0.0);
    pow(2.0, -149.0, TINY);
    pow(10.0, 2.0, 100.0);
}

/// C23, F.10.1.4.
#[test]
fn special_values_of_atan2() {
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let both = |y: f32, x: f32, expected: f32| {
        check(Op::Atan2, &[y, x], expected);
        check(Op::Atan2, &[-y, x], -expected);
    };
    both(0.0, -0.0, PI);
    both(0.0, 0.0, 0.0);
    for x in [TINY, 1.0, f32::MAX, INF] {
        both(0.0, -x, PI);
        both(0.0, x, 0.0);
    }
    for y in [TINY, 1.0, f32::MAX, INF] {
        both(y, 0.0, FRAC_PI_2);
        both(y, -0.0, FRAC_PI_2);
    }
    for finite in [TINY, 1.0, f32::MAX] {
        both(finite, -INF, PI);
        both(finite, INF, 0.0);
        both(INF, finite, FRAC_PI_2);
        both(INF, -finite, FRAC_PI_2);
    }
    both(INF, -INF, (3.0 * std::f64::consts::FRAC_PI_4) as f32);
    both(INF, INF, FRAC_PI_4);
    for other in [0.0, -1.0, INF, NAN] {
        check(Op::Atan2, &[NAN, other], NAN);
        check(Op::Atan2, &[other, NAN], NAN);
    }
}
