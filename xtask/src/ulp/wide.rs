//! The errors of the functions on `f64`, at points spread over all exponents and over the ranges where they do something.
//!
//! What is evaluated is the op's expansion, by the evaluator; what it is compared with is [`super::double`]. A point where a
//! function is at a limit (an overflow, a NaN) has no true value to compare with; the tests of the op table hold those.

use super::double::{self, Double};
use super::sample::Random;
use vyre_foundation::ops::{Op, eval};
use vyre_foundation::types::Value;

/// What was found on some points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WideTally {
    pub(super) inputs: u64,
    pub(super) nearest: u64,
    pub(super) error: f64,
    pub(super) at: [u64; 2],
}

/// Measures `points` points of a function, the same ones in every run.
pub(super) fn measure(op: Op, points: u64, threads: usize) -> WideTally {
    let threads = threads.max(1) as u64;
    let parts = std::thread::scope(|scope| {
        let part = |thread: u64| scope.spawn(move || sweep(op, (thread..points).step_by(threads as usize)));
        let running: Vec<_> = (0..threads).map(part).collect();
        running.into_iter().map(|part| part.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    let mut all = WideTally::default();
    for part in parts {
        all.inputs += part.inputs;
        all.nearest += part.nearest;
        if part.error > all.error || (part.error == all.error && part.at < all.at) {
            (all.error, all.at) = (part.error, part.at);
        }
    }
    all
}

fn sweep(op: Op, points: impl Iterator<Item = u64>) -> WideTally {
    let mut tally = WideTally::default();
    for number in points {
        let [x, y] = point(op, number);
        let Some((error, at)) = error_at(op, x, y) else { continue };
        tally.inputs += 1;
        tally.nearest += u64::from(error <= 0.5);
        if error > tally.error || (error == tally.error && at < tally.at) {
            (tally.error, tally.at) = (error, at);
        }
    }
    tally
}

/// The error at a point and the point's bits; `None` where there is no true value to compare with.
pub(super) fn error_at(op: Op, x: f64, y: f64) -> Option<(f64, [u64; 2])> {
    if !x.is_finite() || !y.is_finite() || x == 0.0 {
        return None;
    }
    let unary = op.row().signature.arity() == 1;
    let name = op.row().name;
    let exact = if unary { double::unary(name, x) } else { double::binary(name, x, y) }?;
    let args = [Value::F64(x), Value::F64(y)];
    let Some(Value::F64(got)) = eval(op, &args[..op.row().signature.arity()]) else { return None };
    // Near the ends of the range the low part of the true value is itself cut off.
    if !(1e-280..1e300).contains(&exact.high.abs()) {
        return None;
    }
    Some((error_in_ulp(got, exact), [x.to_bits(), if unary { 0 } else { y.to_bits() }]))
}

/// The distance in units in the last place at `exact`, a normal number.
fn error_in_ulp(got: f64, exact: Double) -> f64 {
    if !got.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (exact.high.to_bits() >> 52) & 0x7FF;
    let unit = f64::from_bits((exponent - 52) << 52);
    ((got - exact.high) / unit - exact.low / unit).abs()
}

/// The operands with that number.
fn point(op: Op, number: u64) -> [f64; 2] {
    let mut random = Random::numbered(number);
    let near = |random: &mut Random, low: f64, high: f64| low + (high - low) * random.unit();
    let any = |random: &mut Random| f64::from_bits(random.next());
    if op.row().signature.arity() == 2 {
        return match (op, number % 4) {
            (Op::Pow, 0 | 1) => {
                let x = any(&mut random).abs();
                [x, near(&mut random, -1000.0, 1000.0) / x.log2()]
            }
            (Op::Pow, 2) => {
                let x = 1.0 + near(&mut random, -1.0, 1.0) * f64::powi(2.0, -((random.next() % 50) as i32));
                [x, near(&mut random, -690.0, 690.0) / x.ln()]
            }
            (Op::Pow, _) => [near(&mut random, 0.0, 16.0), near(&mut random, -60.0, 60.0)],
            (_, 0) => [any(&mut random), any(&mut random)],
            (_, 1) => {
                let x = any(&mut random);
                [x, x * near(&mut random, -2.0, 2.0)]
            }
            (_, _) => [near(&mut random, -4.0, 4.0), near(&mut random, -4.0, 4.0)],
        };
    }
    let (low, high) = range(op);
    let x = match number % 4 {
        0 => any(&mut random),
        1 | 2 => near(&mut random, low, high),
        _ => {
            let around = if number % 8 == 3 { 0.0 } else { 1.0 };
            around + near(&mut random, -1.5, 1.5) * f64::powi(2.0, -((random.next() % 24) as i32))
        }
    };
    [x, 0.0]
}

/// Where a function of one operand is neither nearly linear nor nearly constant.
fn range(op: Op) -> (f64, f64) {
    match op.row().name {
        "exp" => (-700.0, 700.0),
        "exp2" => (-1000.0, 1000.0),
        "exp_m1" => (-40.0, 60.0),
        "log" | "log2" | "log10" => (0.0, 4.0),
        "log_1p" => (-1.0, 4.0),
        "sin" | "cos" | "tan" => (-1000.0, 1000.0),
        "asin" | "acos" | "atanh" => (-1.0, 1.0),
        "acosh" => (1.0, 6.0),
        "tanh" => (-3.0, 3.0),
        "sinh" | "cosh" => (-24.0, 24.0),
        "erf" => (-6.5, 6.5),
        _ => (-8.0, 8.0),
    }
}
