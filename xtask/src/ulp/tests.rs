//! Tests of the expansions in CI: samples of the full sweep, special values, and that the recorded
//! sweep matches the current expansions.

use super::block::{Block, LANES};
use super::hard_cases::hard_cases;
use super::record::{Record, docs};
use super::{expanded, measure, sample, wide};
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
        let bound = f64::from(op.expansion_error(ValueType::F32).unwrap_or(0.0));
        assert!(error <= bound, "{op:?} is {error} ULP off, its row says {bound}");
    }
}

#[test]
fn the_record_is_of_the_present_expansions() {
    let record = Record::read().expect("docs/ulp.json can be read");
    for op in expanded() {
        let wide = record.functions.get(&super::record::wide_name(op));
        let of_f64 =
            wide.filter(|known| known.covers(&math::fingerprint(op, ValueType::F64).unwrap_or_default(), 1));
        let name = op.row().name;
        let bound = f64::from(op.expansion_error(ValueType::F64).unwrap_or(0.0));
        assert!(
            of_f64.is_some_and(|known| known.max_ulp <= bound),
            "docs/ulp.json lacks {name} on f64 as it is; run `cargo xtask ulp --points 1000000 {name}`"
        );
        let Some(measurement) = record.functions.get(name) else {
            panic!("docs/ulp.json lacks {name}; run `cargo xtask ulp {name}`");
        };
        let present = math::fingerprint(op, ValueType::F32);
        assert_eq!(
            Some(&measurement.fingerprint),
            present.as_ref(),
            "{name} has changed since it was measured; run `cargo xtask ulp {name}`"
        );
        let bound = f64::from(op.expansion_error(ValueType::F32).unwrap_or(0.0));
        let found = measurement.max_ulp;
        assert!(
            found <= bound && bound < found + 0.25,
            "{name}: the row says {bound}, the sweep found {found}"
        );
    }
    let page = std::fs::read_to_string(docs("ops.md")).expect("docs/ops.md can be read");
    assert_eq!(record.insert_table(&page).as_ref(), Ok(&page), "docs/ops.md does not show docs/ulp.json");
}

#[test]
fn errors_on_f64_are_within_the_bounds_of_the_op_table() {
    for op in expanded() {
        let found = wide::measure(op, 0..4_000, 1);
        let bound = f64::from(op.expansion_error(ValueType::F64).unwrap_or(0.0));
        assert!(found.inputs > 1_000, "{op:?} was measured at {} points only", found.inputs);
        assert!(found.error <= bound, "{op:?} is {} ULP off on f64, its row says {bound}", found.error);
    }
}

/// Number of steps between two numbers of the same sign.
fn steps(x: f64, y: f64) -> u64 {
    x.to_bits().abs_diff(y.to_bits())
}

/// The true values are close to the midpoint between two numbers, or close to a number.
#[test]
fn published_hard_cases_are_within_the_bounds_of_the_op_table() {
    let mut cases = 0;
    for op in expanded() {
        let bound = f64::from(op.expansion_error(ValueType::F64).unwrap_or(0.0));
        for case in hard_cases(op) {
            let Some(Value::F64(got)) = eval(op, &[Value::F64(case.x)]) else { panic!("{op:?} takes f64") };
            let off = steps(got, case.nearest);
            assert!(off as f64 <= bound + 0.5, "{op:?} of {:e} is {off} numbers off", case.x);
            let Some(exact) = super::double::unary(op.row().name, case.x) else { continue };
            assert!(steps(exact.high, case.nearest) <= 1, "the reference of {op:?} at {:e}", case.x);
            cases += 1;
        }
    }
    assert!(cases > 150, "only {cases} cases");
}

/// A measurement in parts, as after an interruption, equals that of the whole.
#[test]
fn a_measurement_goes_on_where_it_was() {
    let whole = wide::measure(Op::Atan2, 0..3_000, 1);
    let mut parts = wide::measure(Op::Atan2, 0..1_000, 1);
    parts.join(wide::measure(Op::Atan2, 1_000..3_000, 2));
    assert_eq!(parts, whole);
}

/// Digits from tables: the reference's two parts hold 30 of them.
#[test]
fn the_reference_of_f64_knows_digits() {
    let check = |name: &str, x: f64, high: f64, low: f64| {
        let found = super::double::unary(name, x).expect("the function has a value there");
        let off = (found.high - high) + (found.low - low);
        assert!(off.abs() <= high.abs() * 1e-28, "{name} of {x} is {found:?}, off by {off:e}");
    };
    check("exp", 1.0, std::f64::consts::E, 1.4456468917292502e-16);
    check("exp", -321.5, 2.3676857923263024e-140, 1.2638298047785948e-156);
    check("exp2", 0.7, 1.624504792712471, 4.8844282126282756e-17);
    check("exp_m1", 1e-09, 1.0000000005000001e-09, -7.443897403844588e-26);
    check("exp_m1", 3.25, 24.790339917193062, -2.0220949927714329e-16);
    check("log", 10.0, std::f64::consts::LN_10, -2.1707562233822494e-16);
    check("log", 1.0000001, 9.999999505838704e-08, 1.5249709528441489e-24);
    check("log2", 3.0, 1.584962500721156, 1.0579781240112554e-16);
    check("log10", 7.0, 0.8450980400142568, 1.7965820250441286e-17);
    check("log_1p", 1e-07, 9.999999500000033e-08, -5.871247209360176e-24);
    check("sin", 1e+22, -0.8522008497671888, -6.7806825896773284e-18);
    check("cos", 3.0, -0.9899924966004454, -4.2060261566099734e-17);
    check("tan", 11.0, -225.95084645419513, -1.2217000310482306e-14);
    check("asin", 0.7, 0.775397496610753, 3.395027444633425e-17);
    check("acos", -0.3, 1.8754889808102941, -2.1748551325047183e-17);
    check("atan", 1.3, 0.9151007005533605, -2.4613983255192613e-17);
    check("sinh", 0.1, 0.10016675001984403, 3.3613961287681504e-18);
    check("cosh", 4.0, 27.308232836016487, 8.480712398000987e-17);
    check("tanh", 0.4, 0.3799489622552249, 6.3008573143723185e-18);
    check("asinh", 0.3, 0.29567304756342244, -1.351693404864361e-17);
    check("acosh", 1.5, 0.9624236501192069, -4.651563402692547e-17);
    check("atanh", 0.25, 0.25541281188299536, -1.9265407832078493e-17);
    check("cbrt", 2.0, 1.2599210498948732, -2.589933375300507e-17);
    check("erf", 0.5, 0.5204998778130465, 1.900077467916287e-17);
    check("erf", 2.5, 0.999593047982555, 4.6925151097042234e-17);
    check("cos", 5.319372648326541e+255, -4.687165924254628e-19, 4.3720557429382733e-36);
}

/// Inputs of all kinds for an op; a unary op uses the first operand only.
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

/// Results of the sweep's block evaluation.
fn by_block(op: Op, inputs: &[[u32; 2]]) -> Vec<u32> {
    let expansion = math::expansion(op, ValueType::F32).expect("the op has an expansion");
    let mut block = Block::<u32>::new(expansion);
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
fn blocks_of_f64_give_what_the_evaluator_gives() {
    for op in expanded() {
        let expansion = math::expansion(op, ValueType::F64).expect("the op has an expansion");
        let mut block = Block::<u64>::new(expansion);
        for start in (0..5_000).step_by(LANES) {
            let points: [[f64; 2]; LANES] = std::array::from_fn(|lane| wide::point(op, start + lane as u64));
            for number in 0..expansion.parameters.len() {
                *block.input(number) = points.map(|point| point[number].to_bits());
            }
            for (point, got) in points.into_iter().zip(block.run()) {
                let args = point.map(Value::F64);
                let expected = eval(op, &args[..op.row().signature.arity()]);
                assert_eq!(expected, Some(Value::F64(f64::from_bits(got))), "{op:?} of {args:?}");
            }
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

/// Kernel that applies the op to each element.
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
